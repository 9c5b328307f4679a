"""Targets: the smallest smoothing that meets a floor on the attacker's sd."""

from __future__ import annotations

import numpy as np
import pytest

import dsstan as ds
from dsstan.core.errors import InputError
from dsstan.risk.intruder.attacker import attack
from dsstan.risk.targets import FULL, _unmixed, solve_targets

FAR, FLOOR, COPIES = 59, 0.5, 5
REFIT_NOISE = 1.15
"""The solver aims 2% above; the refit moves the variances, and so the sd, by some per cent."""


@pytest.fixture(scope="module")
def candidates():
    return np.arange(60) == FAR


def solved(free, protection, candidates, floor=FLOOR, copies=COPIES, **options):
    return solve_targets(
        free,
        floor,
        copies,
        protection=protection,
        candidates=candidates,
        seed=1,
        engine="embedded",
        draws=40,
        progress=False,
        **{"variances": "fixed", **options},
    )


@pytest.mark.parametrize("protection", ["preserving", "paper"])
def test_a_candidate_meets_the_floor_with_no_more_smoothing_than_it_takes(
    free, candidates, protection
):
    before = attack(free, copies=COPIES, draws=40, progress=False).sd()[FAR]
    target = solved(free, protection, candidates)
    after = target.attack.sd()[FAR]
    assert before < FLOOR <= after
    if protection == "preserving":
        assert after < FLOOR * REFIT_NOISE
        assert 0 < target.gamma < FULL
    else:
        # Partly smoothed under ``paper``, a few draws reveal much: no plan can count on them.
        assert target.gamma == np.inf
    assert list(np.flatnonzero(target.weights.flagged)) == [FAR]
    assert FAR not in target.unmet


def test_by_default_the_cautious_intruder_is_held_off(free, candidates):
    target = solve_targets(
        free, 0.4, COPIES, candidates=candidates, seed=1, engine="embedded", progress=False
    )
    assert target.variances == "known"
    assert target.attack.sd(variances="known")[FAR] >= 0.4


def test_under_paper_full_and_partial_smoothing_do_not_mix():
    strength = np.array([0.0, 3.0, FULL])
    assert _unmixed(strength, "paper").tolist() == [0.0, FULL, FULL]
    assert _unmixed(strength, "preserving").tolist() == strength.tolist()
    partial = np.array([0.0, 3.0, 5.0])
    assert _unmixed(partial, "paper").tolist() == partial.tolist()


def test_cut_smooths_all_or_nothing(free, candidates):
    target = solved(free, "cut", candidates)
    assert target.gamma == np.inf
    assert target.attack.exposure[FAR] == 0
    assert target.attack.sd()[FAR] == pytest.approx(target.attack.leave_one_out[FAR])


def test_a_floor_that_paper_can_not_meet_is_named_with_what_the_others_would_give(free, candidates):
    loo = attack(free, copies=1, draws=40, progress=False).leave_one_out[FAR]
    target = solved(free, "paper", candidates, floor=0.9 * float(loo), copies=500)
    assert FAR in target.unmet
    assert "leak through the coefficients" in target.message
    assert "preserving" in target.message
    assert "cut" in target.message


def test_records_that_may_not_be_smoothed_are_counted_with_the_cause(free, candidates):
    message = str(solved(free, "preserving", candidates))
    assert "59 unsmoothed records miss it: sigma_sq / tau_sq is" in message


def test_a_record_known_better_without_any_copy_is_told(free, candidates):
    message = solved(free, "preserving", candidates, floor=2.9, refits=1).message
    assert "known better than that without any copy" in message


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"floor": 0.0}, "floor"),
        ({"copies": 0}, "copies"),
        ({"protection": "none"}, "protection"),
        ({"variances": "guessed"}, "variances"),
    ],
)
def test_impossible_targets_are_refused(free, change, match):
    with pytest.raises(InputError, match=match):
        solve_targets(free, **{"floor": 1.0, "copies": 2, **change})


def test_targets_start_from_the_unrestricted_fit(kept):
    with pytest.raises(InputError, match="unrestricted"):
        solve_targets(kept, 1.0, 2)


def test_the_weights_of_a_target_can_be_fitted_again(small, free, candidates):
    target = solved(free, "preserving", candidates)
    again = ds.fit(
        small,
        weights=target.weights,
        gamma=target.gamma,
        protection="preserving",
        start=free,
        seed=1,
        engine="embedded",
        progress=False,
    )
    np.testing.assert_array_equal(again.A, target.fit.A)


def test_a_percentage_is_a_floor_too(free):
    """Under log it is one sd for all, so both ways of asking give the same plan."""
    same = {"engine": "embedded", "refits": 1, "draws": 20, "seed": 3, "progress": False}
    asked = solve_targets(free, "90%", 100, **same)
    sd = float(np.log(1.9 / 0.1) / 2 / 1.96)
    assert free.problem.transform.name == "log"
    np.testing.assert_allclose(asked.weights.a, solve_targets(free, sd, 100, **same).weights.a)
    assert asked.floor == pytest.approx(sd)
    assert "floor of 90% at 100 copies" in str(asked)


def test_where_cut_would_leave_nobody_to_fit_the_reason_is_given(free):
    """At so many copies every record falls short, so that all would leave the fit."""
    asked = {"protection": "cut", "engine": "embedded", "progress": False}
    with pytest.raises(InputError, match=r"60 of 60 records fall short .* leaves 0 of 60 records"):
        solve_targets(free, 0.9, 200, **asked)
