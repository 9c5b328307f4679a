"""w given y against the conditional normal law written out, and the grid."""

from __future__ import annotations

import numpy as np
import pytest

import dsstan as ds
from dsstan.core.errors import InputError
from dsstan.covariance.base import Parameters
from dsstan.covariance.latent import LatentModel, correlation_factor
from dsstan.models.effect_map import grid
from dsstan.models.posterior import latent_draws, spread_draws
from mc import z_limit

P = Parameters(np.array([5.0, 0.7]), 1.6, 0.25, 4.0)


def joint(fit):
    """Mean of y, V, Cov(w, y) and K over informing records, by definition."""
    problem, a = fit.problem, fit.A
    d = np.sqrt(((problem.sites[:, None] - problem.sites[None]) ** 2).sum(-1))
    K = P.sigma_sq * np.exp(-P.phi * d)
    D = np.full(len(a), P.tau_sq)
    if fit.protection == "preserving":
        D = D + P.sigma_sq * (1 - a**2)
    rows = np.flatnonzero(a == 1) if fit.protection == "cut" else np.arange(len(a))
    V = (np.diag(a) @ K @ np.diag(a) + np.diag(D))[np.ix_(rows, rows)]
    return rows, K, (K * a)[:, rows], V


@pytest.mark.parametrize("gamma", [0.0, 3.0, np.inf])
def test_conditional_mean_and_covariance_are_the_normal_ones(protected, gamma):
    fit = protected[gamma]
    rows, K, KA, V = joint(fit)
    problem = fit.problem
    residual = problem.y[rows] - problem.X[rows] @ P.beta
    model = LatentModel(fit)
    np.testing.assert_allclose(model.mean(P), KA @ np.linalg.solve(V, residual), atol=1e-10)
    want = K - KA @ np.linalg.solve(V, KA.T)
    np.testing.assert_allclose(model.covariance(P), want, atol=1e-10)


@pytest.mark.parametrize("gamma", [3.0, np.inf])
def test_draws_have_that_mean_and_covariance(protected, gamma):
    fit = protected[gamma]
    model = LatentModel(fit)
    rng = np.random.default_rng(5)
    n = 3000
    draws = np.stack([model.draw(P, rng) for _ in range(n)])
    mean, cov = model.mean(P), model.covariance(P)
    sd = np.sqrt(np.diag(cov))
    limit = z_limit(2 * len(mean))
    assert np.all(np.abs(draws.mean(axis=0) - mean) < limit * sd / np.sqrt(n))
    variance = draws.var(axis=0, ddof=1)
    assert np.all(np.abs(variance / sd**2 - 1) < limit * np.sqrt(2 / n))
    # The same site carries the same effect.
    assert np.all(draws[:, 0] == draws[:, 6])


def test_a_fully_smoothed_record_has_its_conditional_prior_whatever_its_value(kept):
    """Given the other w, as the paper asks: w_N depends on y only through the others."""
    flagged = int(np.flatnonzero(kept.flagged)[0])
    _, K, KA, V = joint(kept)
    gain = KA @ np.linalg.inv(V)
    assert np.all(gain[:, flagged] == 0)
    others = np.delete(np.arange(len(K)), flagged)
    cov = K - KA @ np.linalg.solve(V, KA.T)
    given = np.linalg.lstsq(cov[np.ix_(others, others)], cov[others, flagged], rcond=None)[0]
    prior = np.linalg.lstsq(K[np.ix_(others, others)], K[others, flagged], rcond=None)[0]
    site = kept.problem.site_index
    # Coincident records share a weight; compare by site.
    by_site = [np.bincount(site[others], weights=g) for g in (given, prior)]
    np.testing.assert_allclose(by_site[0], by_site[1], atol=1e-6)


def test_a_singular_correlation_has_a_factor_without_jitter():
    R = np.ones((3, 3))
    F = correlation_factor(R)
    np.testing.assert_allclose(F @ F.T, R, atol=1e-14)


def test_the_surface_passes_through_the_mean_at_the_records(free):
    model = LatentModel(free)
    p = Parameters(P.beta, P.sigma_sq, P.tau_sq, P.phi)
    np.testing.assert_allclose(model.mean(p, free.problem.sites), model.mean(p), atol=1e-10)
    table = ds.surface_on_grid(free, cells=8, draws=10, progress=False)
    assert list(table.columns) == ["x", "y", "w"]
    assert np.all(np.isfinite(table))


def test_the_grid_covers_the_sites(free):
    places = grid(free, cells=20)
    sites = free.problem.sites
    assert np.all(places.min(axis=0) < sites.min(axis=0))
    assert np.all(places.max(axis=0) > sites.max(axis=0))


@pytest.mark.parametrize("count", [1, 3, 20, 1000, 4000])
def test_draws_are_spread_over_all_chains_and_none_is_used_twice(free, count):
    picks = spread_draws(free, count)
    assert len({tuple(p) for p in picks}) == count
    per_chain = np.bincount(picks[:, 0], minlength=4)
    assert per_chain.max() - per_chain.min() <= 1
    assert picks[:, 1].max() < 1000


def test_more_draws_than_there_are_can_not_be_taken(free):
    with pytest.raises(InputError, match="4000 draws"):
        spread_draws(free, 4001)


def test_latent_draws_repeat_with_their_seed(free):
    first, second = (latent_draws(free, draws=3, seed=4) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert first.shape == (3, 60)
