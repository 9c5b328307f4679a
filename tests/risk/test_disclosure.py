"""The paper's disclosure measures, held against shares counted by hand."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest

import dsstan as ds
from conftest import small_table
from dsstan.copies.result import Synthesis
from dsstan.core.errors import InputError
from dsstan.models.weights import own_weights
from dsstan.risk.disclosure import sides, within

EXACT = 1e-12
"""Shares are ratios of small whole numbers: only rounding may differ."""

TRUTH = np.array([100.0, 200.0, -50.0, 0.0, 1000.0])
FLAGGED = np.array([1.0, 0.0, 1.0, 0.0, 0.0])

# Made-up copies, one row a copy. Within 10%, ends included:
#   record 0 (90 to 110), 1 (180 to 220), 2 (-55 to -45), 3 (exactly 0), 4 (900 to 1100).
AFTER = np.array(
    [
        [100.0, 150.0, -50.0, 0.0, 1000.0],
        [110.0, 230.0, 50.0, 0.1, 2000.0],
        [111.0, 180.0, -56.0, -0.1, 1099.0],
        [500.0, 221.0, -60.0, 0.0, 0.0],
    ]
)
AFTER_RELATIVE = np.array([0.50, 0.25, 0.25, 0.50, 0.50])
AFTER_WITHIN_11 = np.array([0.75, 0.00, 0.75, 1.00, 0.25])

BEFORE = np.array(
    [
        [100.0, 200.0, -50.0, 0.0, 1000.0],
        [109.0, 201.0, -51.0, 5.0, 1001.0],
        [95.0, 250.0, -46.0, 5.0, 5.0],
        [300.0, 202.0, 50.0, 5.0, 999.0],
    ]
)
BEFORE_RELATIVE = np.array([0.75, 0.75, 0.75, 0.25, 0.75])


def made_up(fit, truth=TRUTH, weights=None):
    """A fit whose problem holds five made-up records, some flagged."""
    n = len(truth)
    table = pd.DataFrame({"u": np.arange(n), "v": np.arange(n) % 2, "value": truth})
    problem = ds.prepare(table, "value ~ 1", coords=("u", "v"))
    kind = "unrestricted" if weights is None else "restricted"
    return dataclasses.replace(
        fit,
        problem=problem,
        kind=kind,
        weights=None if weights is None else own_weights(problem, weights),
        start=None,
    )


def copies_of(fit, values):
    """A synthesis of these values."""
    picks = np.zeros((len(values), 2), dtype=np.intp)
    return Synthesis(fit, np.asarray(values, dtype=float), "w", picks, 1, 0.0)


@pytest.fixture
def after(free):
    """The made-up release, records 0 and 2 flagged."""
    return copies_of(made_up(free, weights=FLAGGED), AFTER)


@pytest.fixture
def before(after):
    """Made-up copies of the same problem, without protection."""
    fit = dataclasses.replace(after.fit, kind="unrestricted", weights=None)
    return copies_of(fit, BEFORE)


def group(frame, **wanted):
    """The one row of a frame with these values."""
    rows = frame.loc[(frame[list(wanted)] == pd.Series(wanted)).all(axis=1)]
    assert len(rows) == 1
    return rows.iloc[0]


def test_a_records_share_counts_the_copies_within_ten_per_cent_of_it(after):
    records = ds.disclosure(after).records
    np.testing.assert_allclose(records["within_relative_restricted"], AFTER_RELATIVE, atol=EXACT)


def test_a_copy_at_the_very_end_of_the_tolerance_counts():
    truth, copies = np.array([100.0, 200.0]), np.array([[110.0, 180.0], [110.0001, 179.9999]])
    np.testing.assert_array_equal(within(copies, truth, 0.1 * truth), [0.5, 0.5])


def test_the_relative_tolerance_is_a_share_of_the_truth(after):
    shares = ds.disclosure(after, relative=0.25).records["within_relative_restricted"]
    np.testing.assert_allclose(shares, [0.75, 1.0, 0.75, 0.5, 0.5], atol=EXACT)


def test_the_absolute_tolerance_is_in_the_responses_own_unit(after):
    shares = ds.disclosure(after, absolute=11.0).records["within_absolute_restricted"]
    np.testing.assert_allclose(shares, AFTER_WITHIN_11, atol=EXACT)


def test_both_scales_are_the_responses_own_and_not_the_logs(kept):
    release = ds.synthesise(kept, 6, seed=3)
    truth = release.problem.table["value"].to_numpy()
    expected = (np.abs(release.values - truth) <= 2.5).mean(axis=0)
    shares = ds.disclosure(release, absolute=2.5).records["within_absolute_restricted"]
    np.testing.assert_array_equal(shares, expected)


def test_without_an_absolute_tolerance_there_is_no_such_measure(after):
    risks = ds.disclosure(after)
    assert risks.absolute is None
    assert set(risks.summary["measure"]) == {"within_relative"}


@pytest.mark.parametrize(
    ("name", "count", "share"),
    [
        ("flagged", 2, (0.50 + 0.25) / 2),
        ("unflagged", 3, (0.25 + 0.50 + 0.50) / 3),
        ("all", 5, 2.00 / 5),
    ],
)
def test_a_groups_share_is_the_mean_over_its_records(after, name, count, share):
    risks = ds.disclosure(after)
    row = group(risks.summary, measure="within_relative", fit="restricted", group=name)
    assert row["records"] == count
    assert row["share"] == pytest.approx(share, abs=EXACT)
    assert risks.share("within_relative", "restricted", name) == row["share"]


@pytest.mark.parametrize(
    ("name", "percent"),
    [
        ("flagged", 100 * (1 - 0.375 / 0.75)),
        ("unflagged", 100 * (1 - (1.25 / 3) / (1.75 / 3))),
        ("all", 100 * (1 - 2.00 / 3.25)),
    ],
)
def test_the_reduction_is_the_percentage_by_which_the_mean_share_fell(after, before, name, percent):
    reduction = ds.disclosure(after, against=before).reduction
    found = group(reduction, measure="within_relative", group=name)["percent"]
    assert found == pytest.approx(percent, abs=100 * EXACT)


def test_a_share_that_rose_gives_a_negative_reduction(after, before):
    reduction = ds.disclosure(
        dataclasses.replace(before, fit=after.fit),
        against=dataclasses.replace(after, fit=before.fit),
    ).reduction
    percent = group(reduction, measure="within_relative", group="flagged")["percent"]
    assert percent == pytest.approx(-100.0, abs=100 * EXACT)


def test_a_risk_that_rose_from_nothing_is_told_rather_than_dropped(after, before):
    far = before.values.copy()
    far[:, FLAGGED == 1] = 1e6
    risks = ds.disclosure(after, against=dataclasses.replace(before, values=far))
    falls = risks.reduction.set_index(["measure", "group"])["percent"]
    assert falls["within_relative", "flagged"] == -np.inf
    assert "rose from 0" in str(risks)


@pytest.mark.parametrize("tolerance", [{}, {"relative": 0.0}, {"absolute": 0.0}])
def test_copies_equal_to_the_original_have_share_one(after, tolerance):
    same = dataclasses.replace(after, values=np.tile(TRUTH, (3, 1)))
    risks = ds.disclosure(same, **tolerance)
    assert np.all(risks.records.drop(columns="flagged") == 1.0)
    assert np.all(risks.summary["share"] == 1.0)


def test_a_negative_value_is_near_values_on_both_its_sides_only(free):
    fit = made_up(free, truth=np.array([-50.0, -51.0, 3.0, 4.0]))
    copies = copies_of(fit, [[-45.0, -60.0, 0, 0], [-55.0, 51.0, 0, 0], [50.0, -51.0, 0, 0]])
    shares = ds.disclosure(copies).records["within_relative_unrestricted"]
    np.testing.assert_allclose(shares[:2], [2 / 3, 1 / 3], atol=EXACT)


def test_a_true_value_of_zero_is_met_by_zero_alone_under_a_relative_tolerance(after):
    values = after.values.copy()
    values[:, 3] = [0.0, -0.0, 1e-300, -1.0]
    shares = ds.disclosure(dataclasses.replace(after, values=values), absolute=1.0).records
    assert shares["within_relative_restricted"].iloc[3] == 0.5
    assert shares["within_absolute_restricted"].iloc[3] == 1.0


def test_tied_copies_each_count(after):
    values = np.repeat(after.values[:1], 4, axis=0)
    shares = ds.disclosure(dataclasses.replace(after, values=values)).records
    np.testing.assert_array_equal(shares["within_relative_restricted"], [1, 0, 1, 1, 1])


@pytest.mark.parametrize(("weight", "there"), [(0.0, "unflagged"), (1.0, "flagged")])
def test_a_group_without_records_is_left_out(free, weight, there):
    risks = ds.disclosure(copies_of(made_up(free, weights=np.full(5, weight)), AFTER))
    assert list(risks.summary["group"]) == [there, "all"]
    assert np.isfinite(risks.summary["share"]).all()
    empty = {"flagged", "unflagged"} - {there}
    assert risks.share("within_relative", "restricted", empty.pop()) is None
    assert there in str(risks)


def test_an_unrestricted_release_has_nothing_to_be_compared_with(free):
    release = ds.synthesise(free, 5, seed=1)
    risks = ds.disclosure(release)
    assert set(risks.summary["fit"]) == {"unrestricted"}
    assert set(risks.summary["group"]) == {"unflagged", "all"}
    assert risks.reduction.empty
    assert "unrestricted" in str(risks)


def test_a_restricted_release_without_a_start_stands_alone(after):
    risks = ds.disclosure(after)
    assert set(risks.summary["fit"]) == {"restricted"}
    assert risks.reduction.empty
    assert "reduced" not in str(risks)


def test_by_default_the_release_is_compared_with_its_starting_fit(free, kept):
    release = ds.synthesise(kept, 8, seed=1)
    shares = ds.disclosure(release).records
    pd.testing.assert_frame_equal(shares, ds.disclosure(release, against=free).records)
    assert list(shares.columns) == [
        "flagged",
        "within_relative_unrestricted",
        "within_relative_restricted",
    ]


def test_against_a_fit_as_many_copies_are_drawn_from_it_by_a_stream_of_their_own(free, kept):
    release = ds.synthesise(kept, 8, seed=1)
    other = sides(release, free)["unrestricted"]
    assert other.fit is free
    assert other.copies == 8
    assert other.seed != release.seed
    assert not np.isin(other.values, release.values).any()


def test_the_comparison_does_not_change_from_call_to_call(kept):
    release = ds.synthesise(kept, 4, seed=1)
    first, second = (ds.disclosure(release).records for _ in range(2))
    pd.testing.assert_frame_equal(first, second)


def test_against_copies_already_drawn_those_are_counted(after, before):
    records = ds.disclosure(after, against=before).records
    np.testing.assert_allclose(records["within_relative_unrestricted"], BEFORE_RELATIVE, atol=EXACT)


def test_against_may_hold_another_number_of_copies(after, before):
    fewer = dataclasses.replace(before, values=before.values[:1])
    records = ds.disclosure(after, against=fewer).records
    np.testing.assert_array_equal(records["within_relative_unrestricted"], np.ones(5))


@pytest.mark.parametrize("kind", ["copies", "fit"])
def test_against_another_problem_is_refused(kept, free, kind):
    again = ds.prepare(small_table(), "log(value) ~ x", coords=("east", "north"))
    fit = dataclasses.replace(free, problem=again)
    against = ds.synthesise(fit, 2, seed=1) if kind == "copies" else fit
    with pytest.raises(InputError, match="another problem"):
        ds.disclosure(ds.synthesise(kept, 2, seed=1), against=against)


@pytest.mark.parametrize("name", ["relative", "absolute"])
@pytest.mark.parametrize("value", [-0.1, np.nan, np.inf])
def test_a_tolerance_that_is_negative_or_not_finite_is_refused(after, name, value):
    with pytest.raises(InputError, match=f"{name} tolerance"):
        ds.disclosure(after, **{name: value})


def test_one_copy_gives_shares_of_zero_and_one(kept):
    risks = ds.disclosure(ds.synthesise(kept, 1, seed=1), absolute=100.0)
    assert set(np.unique(risks.records.drop(columns="flagged"))) <= {0.0, 1.0}
    assert str(risks)


def test_records_keep_the_tables_index_and_say_which_are_flagged(free):
    table = small_table(12, shared=2)
    table.index = pd.Index([f"id{i}" for i in range(12)], name="id")
    problem = ds.prepare(table, "value ~ 1", coords=("east", "north"))
    weights = own_weights(problem, np.arange(12) % 3 == 0)
    fit = dataclasses.replace(free, problem=problem, kind="restricted", weights=weights)
    release = copies_of(dataclasses.replace(fit, start=None), np.ones((2, 12)))
    records = ds.disclosure(release).records
    pd.testing.assert_index_equal(records.index, table.index)
    np.testing.assert_array_equal(records["flagged"], np.arange(12) % 3 == 0)


def test_text_shows_percentages_for_each_group_and_fit(after, before):
    lines = str(ds.disclosure(after, against=before, absolute=11.0)).splitlines()
    assert lines[0] == "Copies near the truth"
    assert lines[1].split() == ["unrestricted", "restricted", "reduced", "by"]
    line = next(line for line in lines if line.startswith("within_relative, flagged"))
    assert line.split()[-3:] == ["75.0%", "37.5%", "50%"]
    assert len(lines) == 2 + 6
    assert "nan" not in "\n".join(lines).lower()


def test_against_a_restricted_fit_is_refused(kept):
    with pytest.raises(InputError, match="unrestricted fit"):
        ds.disclosure(ds.synthesise(kept, 2, seed=1), against=kept)


def test_an_unrestricted_release_is_not_called_restricted_by_a_comparison(free):
    release = ds.synthesise(free, 2, seed=1)
    with pytest.raises(InputError, match="leave against out"):
        ds.disclosure(release, against=ds.synthesise(free, 2, seed=2))


def test_a_restricted_fit_started_from_another_is_compared_with_the_unrestricted_one(free, kept):
    second = ds.fit(
        kept.problem,
        weights=kept.weights,
        gamma=2.0,
        start=kept,
        phi=kept.phi_held,
        chains=2,
        seed=1,
        engine="embedded",
        progress=False,
    )
    assert second.start is free
    assert sides(ds.synthesise(second, 2, seed=1))["unrestricted"].fit is free
