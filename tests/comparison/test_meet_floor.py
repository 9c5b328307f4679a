"""The least damaging release that keeps a floor: planted cases, and where none does, why."""

from __future__ import annotations

import numpy as np
import pytest

import dsstan as ds
from dsstan.comparison.floor_aims import Floors
from dsstan.comparison.floor_plans import copies_to_try
from dsstan.core.errors import InputError
from dsstan.risk.intruder.leave_one_out import leave_one_out

QUIET = {"seed": 3, "progress": False}


def judged(found):
    """The same verdict from the release alone."""
    again = ds.assess(found.release, floor=str(found.floor), progress=False)
    np.testing.assert_array_equal(again.below_floor, found.assessment.below_floor)
    assert found.met is (again.verdict == "met")
    assert found.setting in set(found.trail["setting"])
    return again


def test_a_floor_that_unprotected_copies_keep_costs_nothing_but_their_number(small, free):
    found = ds.protect_to(small, 0.05, start=free, **QUIET)
    judged(found)
    assert found.met
    assert (found.release.copies, found.release.fit) == (20, free)
    assert found.release.noise is None
    assert found.cost.copies == 0.0
    assert "met: 20 copies, no record flagged" in str(found)
    assert "smaller" not in str(found)


def test_a_floor_that_only_fewer_copies_keep(small, free):
    """Under paper alone and without noise: flagged records leak through the coefficients."""
    menu = {"protections": ("paper",), "noise": False, "start": free, **QUIET}
    found = ds.protect_to(small, 0.3, **menu)
    judged(found)
    assert found.met
    copies = found.release.copies
    assert copies in copies_to_try(20, 2)[1:]
    assert found.release.fit == free
    more = ds.synthesise(free, 2 * copies, seed=3, progress=False)
    assert ds.assess(more, floor=str(found.floor), progress=False).verdict == "missed"
    held = ds.protect_to(small, 0.3, copies=100, least_copies=100, **menu)
    judged(held)
    assert not held.met
    assert held.release.copies == 100
    assert "no setting that was tried" in str(held)
    assert "records are known better" not in str(held)


@pytest.mark.nightly("several releases with noise, most records exactly")
def test_a_floor_that_only_noise_keeps(small, free):
    """So many copies, under preserving or without a record flagged, are not enough alone."""
    menu = {"copies": 10, "least_copies": 10, "protections": ("preserving",), "start": free}
    menu |= QUIET
    plain = ds.protect_to(small, 0.3, noise=False, **menu)
    judged(plain)
    assert not plain.met
    found = ds.protect_to(small, 0.3, noise=True, **menu)
    judged(found)
    assert found.met
    assert found.release.noise is not None
    assert np.any(found.release.noise > 0)
    assert "noise of sd" in found.setting
    assert found.cost.total > 0
    released = found.trail[found.trail["stage"] == "released"]
    # Of those that keep it, the cheapest.
    kept = released[released["met"]]
    assert found.setting == kept["setting"][kept["cost"].idxmin()]


def test_a_floor_that_nothing_keeps(small, free):
    """Some records are known better from the others alone; every other record keeps it."""
    alone = leave_one_out(free).sd
    floor = 1.1 * float(np.sort(alone)[0])
    hopeless = alone < floor
    menu = {"copies": 2, "protections": ("cut", "preserving"), "start": free, **QUIET}
    found = ds.protect_to(small, floor, **menu)
    assert not found.met
    np.testing.assert_array_equal(found.hopeless, hopeless)
    assert f"{int(hopeless.sum())} records are known better than that without any copy" in str(
        found
    )
    # One within 2% of the floor may be left a little more by these very copies.
    assert int(np.argmin(alone)) in found.assessment.below_floor
    assert np.all(found.assessment.sd[hopeless] < 1.05 * floor)


def test_records_of_a_stated_distance_are_flagged_in_any_case(small, free):
    found = ds.protect_to(small, 0.05, distance=0.15, start=free, **QUIET)
    judged(found)
    rule = ds.flag_isolated(free, distance=0.15)
    assert found.met
    np.testing.assert_array_equal(found.release.fit.flagged, rule.flagged)
    assert found.release.fit.weights.rule == "distance"
    assert found.release.fit.start is free


def test_the_same_seed_gives_the_same_release(small, free):
    a, b = (ds.protect_to(small, 0.05, start=free, **QUIET) for _ in range(2))
    np.testing.assert_array_equal(a.release.values, b.release.values)
    assert a.trail.equals(b.trail)


def test_a_plan_aims_above_the_floor_and_never_above_what_others_know():
    asked, alone = np.full(3, 1.0), np.array([2.0, 1.01, 0.5])
    floors = Floors.of(asked, alone)
    assert floors.aim[0] == pytest.approx(1.02)
    assert 1.0 < floors.aim[1] < 1.01
    assert floors.aim[2] < 0.5
    assert floors.hopeless.tolist() == [False, False, True]
    np.testing.assert_allclose(floors.sd(floors.room), floors.aim)
    assert floors.weakest(np.array([1.5, 0.9, 0.1])) == pytest.approx(0.9)
    raised = floors.raised(np.array([1.5, 0.9, 0.1]))
    assert raised.aim[0] == floors.aim[0]
    assert floors.aim[1] < raised.aim[1] < 1.01
    assert raised.aim[2] == floors.aim[2]


def test_copies_are_tried_by_halves():
    assert copies_to_try(20, 2) == [20, 10, 5, 2]
    assert copies_to_try(20, 20) == [20]
    assert copies_to_try(3, 2) == [3, 2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"floor": "much"}, "floor must be"),
        ({"copies": 1}, "least_copies"),
        ({"least_copies": 30}, "least_copies"),
        ({"protections": ()}, "protections must be"),
        ({"protections": ("armour",)}, "armour"),
        ({"start": "kept"}, "start must be"),
    ],
)
def test_arguments_out_of_range_are_refused_before_any_fit(small, kept, arguments, message):
    arguments = {"floor": 0.1, **arguments}
    if arguments.get("start") == "kept":
        arguments["start"] = kept
    with pytest.raises(InputError, match=message):
        ds.protect_to(small, **arguments)
