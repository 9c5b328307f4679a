"""Tests of dsstan.release.report.axes, and of the labels that the report's pictures place."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from dsstan.release.report.axes import EVEN, LOG, Axes, Axis, around
from dsstan.release.report.pictures import _marks, _numbers

ENDS = [(0.0, 1.0), (-3.0, 5.0), (50.0, 5000.0)]


@pytest.mark.parametrize("scale", [EVEN, LOG])
@pytest.mark.parametrize("ends", ENDS)
def test_an_axis_begins_at_its_low_end_and_ends_at_its_high_one(ends, scale):
    if scale is LOG and ends[0] <= 0:
        return
    low, high = ends
    middle = scale.inverse(np.mean(scale.forward(np.array([low, high]))))
    found = Axis(low, high, "price", scale).at([low, middle, high])
    assert found == pytest.approx([0.0, 0.5, 1.0])


@pytest.mark.parametrize("ends", ENDS)
def test_the_corners_of_a_picture_lie_inside_it_and_leave_room_for_the_words(ends):
    axes = Axes(Axis(*ends, "x"), Axis(*ends, "y"))
    (left, foot), (right, top) = axes.place(list(ends), list(ends))
    assert (left, right) == pytest.approx((axes.left, axes.width - axes.right))
    assert (top, foot) == pytest.approx((axes.top, axes.height - axes.foot))


@pytest.mark.parametrize("ends", ENDS)
def test_ticks_are_labelled_where_they_lie(ends):
    axes = Axes(Axis(*ends, "x"), Axis(*ends, "y"))
    for number, own in enumerate((axes.x, axes.y)):
        found = axes.ticks(number)
        assert len(found) > 1
        for at, label in found:
            value = float(label.replace(",", "").replace("\N{MINUS SIGN}", "-"))
            assert axes.place(value, value)[0][number] == pytest.approx(at)
            assert own.low - 1e-9 <= value <= own.high + 1e-9


@pytest.mark.parametrize("scale", [EVEN, LOG])
def test_an_axis_holds_all_values_with_as_much_room_on_both_sides(scale):
    low, high = around([2.0, 30.0], np.nan, [7.0], scale=scale)
    inner = Axis(low, high, "price", scale).at([2.0, 30.0])
    assert inner[0] == pytest.approx(1.0 - inner[1])
    assert 0.0 < inner[0] < 0.1


def test_an_axis_of_one_value_has_a_length():
    low, high = around([7.0])
    assert low < 7.0 < high


def test_the_numbers_of_records_run_into_the_map_and_never_out_of_it():
    found = _numbers(np.array([[20.0, 50.0], [390.0, 90.0], [24.0, 52.0]]), 400.0)
    assert [(text, side) for _, _, text, side in found] == [("1, 3", "start"), ("2", "end")]
    (first, above, *_), (second, *_) = found
    assert first > 20.0
    assert above < 50.0
    assert second < 390.0


def test_flagged_records_are_drawn_last_and_larger_and_a_place_tells_of_all_its_records():
    """Seven records at three places, one flagged; the most narrowly placed comes first."""
    records = pd.DataFrame(
        {
            "row": range(7),
            "label": list("abcdefg"),
            "flagged": [True, *[False] * 6],
            "neighbour": 0.5,
            "within_none": 0.9,
            "within_before": np.nan,
            "within_after": [0.5, 0.4, 0.3, 0.2, 0.1, 0.6, 0.7],
        }
    )
    problem = SimpleNamespace(site_index=np.array([0, 1, 1, 1, 1, 2, 1]), unit="km")
    at = np.array([[10.0, 10.0], [20.0, 10.0], [30.0, 10.0]])
    *plain, last = _marks(problem, records, at, 4.0)
    assert [(mark[0], mark[3]) for mark in plain] == [(20.0, False), (30.0, False)]
    assert (last[0], last[3]) == (10.0, True)
    assert last[2] > plain[0][2] == 4.0
    assert plain[0][4].startswith("Record e (row 4), not flagged")
    assert plain[0][4].endswith("and 1 more at this place")
    assert "more at this place" not in plain[1][4] + last[4]
