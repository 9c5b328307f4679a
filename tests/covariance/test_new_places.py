"""The effect at new places: its mean and covariance are those of the joint normal law."""

from __future__ import annotations

import numpy as np
import pytest
from placed_tables import home_fit, home_problem, homes
from scipy.spatial.distance import cdist

from dsstan.covariance.base import Parameters
from dsstan.covariance.correlation import CORRELATIONS, correlation
from dsstan.covariance.new_places import effect_at, joint_effect, sequential_effect
from dsstan.covariance.vecchia.neighbours import earlier_neighbours

EXACT = 1e-8
"""Two ways through one Cholesky factor of well apart sites."""

DIVERGENCE = 0.02
"""Kullback-Leibler divergence of 120 places with 30 neighbours each from their joint law: whoever
sees one draw of all 120 tells the two laws apart by chance alone (total variation below 0.1)."""

P = Parameters(np.zeros(1), 1.7, 0.1, 6.0)


class Unit:
    """In place of a random generator: no permutation, and a normal draw that is one unit vector."""

    def __init__(self, at: int | None) -> None:
        self.at = at

    def permutation(self, n: int) -> np.ndarray:
        return np.arange(n)

    def standard_normal(self, n: int) -> np.ndarray:
        z = np.zeros(n)
        if self.at is not None:
            z[self.at if self.at >= 0 else n + self.at] = 1.0
        return z


def moments(draw, q):
    """Mean and covariance of a draw that is linear in its normal numbers."""
    mean = draw(Unit(None))
    factor = np.column_stack([draw(Unit(i - q)) for i in range(q)]) - mean[:, None]
    return mean, factor @ factor.T


def closed_form(sites, values, places, cov_model):
    """Conditional mean and covariance by plain linear algebra."""
    both = np.vstack([sites, places])
    K = P.sigma_sq * correlation(cdist(both, both), P.phi, cov_model)
    n = len(sites)
    gain = np.linalg.solve(K[:n, :n], K[:n, n:])
    return gain.T @ values, K[n:, n:] - K[n:, :n] @ gain


def scattered(n, q, seed=1):
    rng = np.random.default_rng(seed)
    return rng.random((n, 2)), rng.standard_normal(n), rng.random((q, 2))


@pytest.mark.parametrize("cov_model", CORRELATIONS)
def test_the_joint_draw_has_the_conditional_mean_and_covariance(cov_model):
    sites, values, places = scattered(30, 12)
    mean, cov = moments(lambda rng: joint_effect(sites, values, places, P, cov_model, rng), 12)
    true_mean, true_cov = closed_form(sites, values, places, cov_model)
    np.testing.assert_allclose(mean, true_mean, atol=EXACT)
    np.testing.assert_allclose(cov, true_cov, atol=EXACT)


@pytest.mark.parametrize("cov_model", CORRELATIONS)
def test_the_sequential_draw_is_the_joint_one_where_every_place_is_given_all(cov_model):
    sites, values, places = scattered(30, 12)
    mean, cov = moments(
        lambda rng: sequential_effect(sites, values, places, P, cov_model, rng, neighbours=41), 12
    )
    true_mean, true_cov = closed_form(sites, values, places, cov_model)
    np.testing.assert_allclose(mean, true_mean, atol=EXACT)
    np.testing.assert_allclose(cov, true_cov, atol=EXACT)


def test_thirty_neighbours_are_next_to_the_joint_law():
    sites, values, places = scattered(200, 120)
    mean, cov = moments(
        lambda rng: sequential_effect(sites, values, places, P, "exponential", rng, neighbours=30),
        120,
    )
    true_mean, true_cov = closed_form(sites, values, places, "exponential")
    shift = mean - true_mean
    inverse = np.linalg.inv(true_cov)
    logs = np.linalg.slogdet(true_cov)[1] - np.linalg.slogdet(cov)[1]
    divergence = 0.5 * (np.trace(inverse @ cov) - 120 + logs + shift @ inverse @ shift)
    assert 0.0 <= divergence < DIVERGENCE


def test_places_before_the_first_one_asked_for_have_no_neighbours_and_others_keep_theirs():
    places = np.random.default_rng(4).random((300, 2))
    whole, late = earlier_neighbours(places, 7), earlier_neighbours(places, 7, begin=120)
    assert (late[:120] == -1).all()
    np.testing.assert_array_equal(late[120:], whole[120:])


def test_a_place_at_a_site_has_its_effect_and_two_at_one_place_share_theirs():
    problem = home_problem(homes(60))
    fit, w = home_fit(problem), np.random.default_rng(5).standard_normal(60)
    w = w[np.unique(problem.site_index, return_index=True)[1]][problem.site_index]
    places = np.vstack([problem.sites[7], [0.31, 0.62], [0.31, 0.62]])
    drawn = effect_at(fit, P, w, places, np.random.default_rng(6))
    assert drawn[0] == pytest.approx(w[7], abs=1e-6)  # a root of rounding errors
    assert drawn[1] == drawn[2]


def test_records_that_are_not_given_do_not_move_a_place():
    problem = home_problem(homes(60))
    fit, w = home_fit(problem), np.random.default_rng(5).standard_normal(60)
    given = np.arange(60) != 7
    other = w.copy()
    other[7] += 100.0
    places = problem.sites[[7]] + 0.001
    first, second = (
        effect_at(fit, P, one, places, np.random.default_rng(6), given=given) for one in (w, other)
    )
    np.testing.assert_array_equal(first, second)
