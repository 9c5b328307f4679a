"""The chance that an intruder's target was sampled, against quadrature and a simulated survey."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import quad
from test_identification import release_of

from dsstan.risk.keys.identification import UNSURE, identification
from dsstan.risk.keys.population import chance_of_lookalikes, chance_sampled

EXACT = 1e-10
"""Two ways to one integral."""

ERRORS = 5.0
"""Standard errors of a simulated mean, at a false alarm of 6e-7."""


@pytest.mark.parametrize("f", [1, 2, 7, 300])
@pytest.mark.parametrize("p", [1e-4, 0.03, 0.5, 0.999, 1.0])
def test_the_mean_of_f_over_F_is_that_of_the_negative_binomial(f, p):
    # E t^(F - 1) integrated over t from 0 to 1, with F - f negative binomial.
    def integrand(t):
        return t ** (f - 1) * (p / (1 - (1 - p) * t)) ** f

    parts = np.unique([0.0, *(1 - np.geomspace(1, 1e-6, 13)), 1.0])
    expected = f * sum(
        quad(integrand, *ends, epsabs=0, epsrel=1e-12)[0] for ends in pairwise(parts)
    )
    found = float(chance_sampled(np.array([float(f)]), np.array([f / p]))[0])
    assert found == pytest.approx(expected, rel=EXACT)


def test_it_is_never_below_the_sampling_fraction_and_never_above_1():
    f, total = np.meshgrid(np.arange(1.0, 40.0), np.geomspace(0.1, 1e6, 50))
    found = chance_sampled(f, total)
    assert np.all(found <= 1.0)
    assert np.all(found >= np.minimum(1.0, f / total) * (1 - EXACT))


def test_it_is_the_share_of_lookalikes_that_a_survey_drew():
    """Cells of unknown size, a tenth of whose members are drawn: F given f is what it says."""
    rng = np.random.default_rng(5)
    rate, sizes = 0.1, np.arange(1, 1000)
    # Given f, F - f is negative binomial where sizes are as rare as 1 / F makes them.
    F = rng.choice(sizes, size=400_000, p=1.0 / sizes / np.sum(1.0 / sizes))
    f = rng.binomial(F, rate)
    for seen in (1, 2, 5):
        share = seen / F[f == seen]
        error = share.std() / np.sqrt(share.size)
        found = float(chance_sampled(np.array([float(seen)]), np.array([seen / rate]))[0])
        assert abs(found - share.mean()) < ERRORS * error


def test_lookalikes_are_of_one_group_and_within_the_tolerance():
    truth = np.array([1.0, 1.5, 3.0, 1.0])
    group = np.array([0, 0, 0, 1])
    weights = np.array([2.0, 3.0, 4.0, 5.0])
    found = chance_of_lookalikes(truth, np.array([0.5, 0.1, np.inf, 9.0]), group, weights)
    expected = chance_sampled(np.array([2.0, 1.0, 3.0, 1.0]), np.array([5.0, 3.0, 9.0, 5.0]))
    np.testing.assert_allclose(found, expected, rtol=EXACT)


def surveyed(fit, weights, **more):
    """A release with weights, whose first copy is the truth."""
    values = [[10.0, 20.0, 30.0, -40.0, 0.0], [11.0, 21.0, 31.0, -41.0, 1.0]]
    release = release_of(fit, values, weight=weights)
    object.__setattr__(release.problem, "survey_weights", "weight")
    return identification(release, keys=["kind"], **more)


def test_weights_stand_beside_the_headline_and_do_not_change_it(free):
    plain = release_of(free, [[10.0, 20.0, 30.0, -40.0, 0.0]] * 2)
    before = identification(plain, keys=["kind"], coordinates=None)
    assert before.get(UNSURE, "keys") is None
    found = surveyed(free, [2.0, 8.0, 5.0, 5.0, 10.0], coordinates=None)
    kept = found.summary[found.summary["measure"] != UNSURE].reset_index(drop=True)
    keys = kept["fit"] == "keys"
    assert kept[keys].equals(before.summary[before.summary["fit"] == "keys"])
    f = np.array([2.0, 2.0, 3.0, 3.0, 3.0])
    chance = chance_sampled(f, np.array([10.0, 10.0, 20.0, 20.0, 20.0]))
    assert chance[0] < 0.5  # its weight of 2 says that it was drawn with this chance
    chance[0] = 0.5
    assert found.get(UNSURE, "keys") == pytest.approx(float(np.sum(chance / f)))
    assert found.get(UNSURE, "unrestricted") is not None or found.get(UNSURE, "restricted")
    np.testing.assert_array_equal(found.records["population"], [10, 10, 20, 20, 20])
    assert "stand for 30 members" in found.note
    assert "if unsure who was sampled" in str(found)
    assert "Of 0 records nobody else in the sample has the keys" in found.note


@pytest.mark.parametrize(
    ("weights", "coordinates"), [([1.0] * 5, None), ([0.2] * 5, None), ([9.0] * 5, "exact")]
)
def test_a_census_and_an_exact_place_leave_nobody_unsure(free, weights, coordinates):
    found = surveyed(free, weights, coordinates=coordinates)
    for fit in found.summary["fit"].unique():
        assert found.get(UNSURE, fit) == pytest.approx(found.get("expected_match_risk", fit))
