"""Continuous risk weights of the paper's discussion, in two stages, and their known fault."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import dsstan as ds
from dsstan.core.errors import InputError
from dsstan.models.flagging.continuous_weights import (
    continuous_effect,
    continuous_gamma,
    continuous_weights,
)
from dsstan.models.predictive import carried_effect
from dsstan.models.weights import alpha_from_gamma, neighbour_distances
from dsstan.risk.intruder.attacker import attack


def test_weights_and_gamma_follow_their_formulas_at_the_medians(small, free):
    weights, gamma = continuous_weights(free)
    sigma_sq, tau_sq, phi = (np.median(free.draws[k]) for k in ("sigma_sq", "tau_sq", "phi"))
    np.testing.assert_allclose(weights.a, 1 - np.exp(-phi * neighbour_distances(small)))
    assert gamma == pytest.approx(sigma_sq / tau_sq - 1)
    assert weights.rule == "continuous"
    assert np.all(weights.a[weights.nearest == 0] == 0)
    # At weight 1, given these variances, half of a lone record's deviation is kept.
    assert alpha_from_gamma(gamma, sigma_sq, tau_sq) == pytest.approx(0.5)


def test_neighbours_may_be_counted_by_site(small, free):
    shared = neighbour_distances(small) == 0
    assert shared.any()
    assert np.all(continuous_weights(free, by_site=True)[0].a[shared] > 0)


def test_a_nugget_above_the_sill_is_refused_with_both_numbers(free):
    swapped = dataclasses.replace(
        free,
        draws={
            **free.draws,
            "sigma_sq": free.draws["tau_sq"],
            "tau_sq": free.draws["sigma_sq"] + free.draws["tau_sq"],
        },
    )
    with pytest.raises(InputError, match="posterior medians are"):
        continuous_gamma(swapped)


def test_a_restricted_fit_and_another_rule_are_refused(kept):
    with pytest.raises(InputError, match="unrestricted"):
        continuous_weights(kept)
    with pytest.raises(InputError, match="continuous weights and start"):
        continuous_effect(kept)


@pytest.fixture(scope="module")
def simulated():
    """The simulated incomes, fitted without protection and with continuous weights."""
    problem = ds.prepare(ds.load_simulated(), "log(income) ~ 1", coords=("s1", "s2"))
    free = ds.fit(problem, seed=1, engine="embedded", progress=False)
    weights, gamma = continuous_weights(free)
    common = {"start": free, "engine": "embedded", "progress": False}
    return (
        free,
        ds.fit(problem, weights=weights, gamma=gamma, seed=2, **common),
        ds.fit(problem, weights=ds.flag_isolated(free, distance=0.13), seed=2, **common),
    )


def test_continuous_weights_smooth_all_records_and_leave_the_outlier_exposed(simulated):
    """The known fault: the paper's rule leaves the outlier far better hidden."""
    free, continuous, flagged = simulated
    effect = continuous_effect(continuous)
    assert effect.smoothed == 1.0
    assert effect.safe_smoothed is not None
    assert effect.safe_smoothed > 0.5
    # Half would be kept at the first fit's variances; the refit gives back more.
    assert effect.kept_by_the_farthest > 0.5
    assert effect.sill_ratio > 1.5
    assert f"{100 * effect.kept_by_the_farthest:.0f}% of its own deviation" in str(effect)

    record = int(np.argmax(flagged.weights.nearest))
    sds = {
        name: attack(fit, copies=100, draws=10, progress=False).sd(variances="fixed")[record]
        for name, fit in (("continuous", continuous), ("flagged", flagged), ("none", free))
    }
    assert sds["flagged"] > 10 * sds["none"]
    assert sds["continuous"] < 1.5 * sds["none"]


def test_copies_of_continuous_weights_carry_the_smoothed_effect(simulated):
    assert carried_effect(simulated[1])[1] == "w*"
