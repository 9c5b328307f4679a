"""Draws of several groups without Stan: coordinates, likelihood, chains, and Vecchia's effects."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from scipy.spatial.distance import cdist

import dsstan as ds
from conftest import small_table
from dsstan.covariance.approximations import Vecchia
from dsstan.covariance.base import SpatialModel
from dsstan.covariance.exact import EXACT
from dsstan.covariance.protection import removed_variance
from dsstan.models.groups.coordinates import PriorCoordinates
from dsstan.models.groups.coregionalisation import GroupLatentModel, group_parameters_at
from dsstan.models.groups.effect_map import surface_by_group
from dsstan.models.groups.fit import fit_multivariate
from dsstan.models.groups.groups import read_groups
from dsstan.models.groups.independence import adapted, laplace, run_chains
from dsstan.models.groups.likelihood import (
    GroupPosterior,
    GroupRecords,
    VecchiaGroups,
    exact_statistics,
)
from dsstan.models.groups.predictive import group_effects
from dsstan.models.groups.sparse import SparseGroupModel
from mc import assert_same_posterior, mean_of, z_limit

N = 40
ROUNDING = 1e-8
SOLVED = 1e-6
"""Conjugate gradients stop at a relative residual of 1e-8."""
FALSE_ALARM = 1e-5


@pytest.fixture(scope="module")
def problem():
    table = small_table(N, seed=9, shared=4).assign(kind=np.arange(N) % 3)
    return ds.prepare(table, "log(value) ~ x", coords=("east", "north"))


@pytest.fixture(scope="module")
def priors(problem):
    return ds.Priors().resolve(problem.y, problem.X, problem.d_max)


@pytest.mark.parametrize(
    ("variance", "rate"), [("half-normal", 0.0), ("inverse-gamma", 0.0), ("half-normal", 0.3)]
)
def test_standard_normal_coordinates_are_the_prior(priors, variance, rate):
    pair = {"half-normal": ((1.5, 1.0), (0.7, 1.0)), "inverse-gamma": ((3.0, 2.0), (2.5, 0.5))}
    sigma, tau = pair[variance]
    own = replace(priors, variance=variance, sigma=sigma, tau=tau, r_bounds=(1e-12, 1e12))
    own = replace(own, phi_rate=rate)
    coordinates = PriorCoordinates(3, own, 1.5, None)
    u = np.random.default_rng(1).standard_normal((4000, coordinates.size))
    sets = coordinates.natural(u)
    assert sets.inside.all()
    sill = np.diagonal(sets.T, axis1=1, axis2=2)
    root = np.sqrt(sill)
    correlations = sets.T / root[:, :, None] / root[:, None]
    laws = []
    for k in range(3):
        for value, (first, second) in ((sill[:, k], sigma), (sets.tau_sq[:, k], tau)):
            half = stats.halfnorm(scale=first).cdf(np.sqrt(value))
            gamma = stats.invgamma(first, scale=second).cdf(value)
            laws.append(half if variance == "half-normal" else gamma)
    for k, j in ((1, 0), (2, 0), (2, 1)):
        laws.append(stats.beta(2.0, 2.0).cdf((correlations[:, k, j] + 1) / 2))  # eta + (J - 2) / 2
    low, high = own.phi_bounds
    width = high - low
    decay = stats.truncexpon(width * rate, low, 1 / rate) if rate else stats.uniform(low, width)
    laws.append(decay.cdf(sets.phi))
    middle = coordinates.natural(coordinates.start(0.5)[None])
    assert middle.phi[0] == pytest.approx(np.sqrt(low * high))
    for uniform in laws:
        assert stats.kstest(uniform, "uniform").pvalue > FALSE_ALARM / len(laws)
    assert abs(stats.spearmanr(sill[:, 0], sets.tau_sq[:, 0])[0]) < z_limit(1) / np.sqrt(4000)


def test_the_ratio_of_the_variances_keeps_to_its_range(priors):
    for variance in ("half-normal", "inverse-gamma"):
        own = replace(priors, variance=variance, sigma=(1.0, 1.0), tau=(2.0, 1.0))
        sets = PriorCoordinates(2, replace(own, r_bounds=(0.5, 2.0)), 2.0, 3.0).natural(
            4.0 * np.random.default_rng(2).standard_normal((500, 5))
        )
        ratio = sets.tau_sq / np.diagonal(sets.T, axis1=1, axis2=2)
        fine = np.all((ratio > 0.5 - ROUNDING) & (ratio < 2.0 + ROUNDING), axis=1)
        np.testing.assert_array_equal(sets.inside, fine)
        assert fine.all() == (variance == "half-normal")
        assert np.all(sets.phi == 3.0)


def model_of(problem, protection: str, flagged: float) -> SpatialModel:
    """Three flagged records."""
    A = np.ones(problem.n_records)
    A[[2, 7, 20]] = flagged
    return SpatialModel(
        problem=problem, A=A, protection=protection, cov_model="matern32", covariance=EXACT
    )


CASES = [("none", 1.0), ("paper", 0.0), ("paper", 0.4), ("preserving", 0.4), ("cut", 0.0)]


@pytest.mark.parametrize(("protection", "flagged"), CASES)
def test_the_likelihood_is_a_normal_density_and_vecchia_given_all_is_exact(
    problem, priors, protection, flagged
):
    groups, model = read_groups(problem, "kind"), model_of(problem, protection, flagged)
    records = GroupRecords.of(model, groups)
    coordinates = PriorCoordinates(3, priors, 2.0, None)
    u = 0.7 * np.random.default_rng(3).standard_normal((6, coordinates.size))
    sets, scales = coordinates.natural(u), (np.array([20.0, 9.0]), np.array([1.5, 0.8]))
    found = [
        GroupPosterior(statistics, records, *scales).log_likelihood(statistics(sets))
        for statistics in (exact_statistics(records), VecchiaGroups(records, N - 1, "maxmin"))
    ]
    rows, g = model.informing, groups.index[model.informing]
    X, a = problem.X[rows], model.A[rows]
    d = cdist(problem.sites[rows], problem.sites[rows])
    B = np.einsum("ip,jp->ij", X * scales[0] ** 2, X)
    B += np.einsum("ip,jp->ij", X * scales[1] ** 2, X) * (g[:, None] == g)
    for k in range(len(u)):
        T, phi = sets.T[k], sets.phi[k]
        V = T[np.ix_(g, g)] * (1 + phi * d) * np.exp(-phi * d) * np.outer(a, a)
        V += np.diag(sets.tau_sq[k][g] + np.diag(T)[g] * removed_variance(a, protection))
        density = stats.multivariate_normal(cov=V + B).logpdf(problem.y[rows])
        assert found[0][k] == pytest.approx(density, abs=ROUNDING * 100)
        assert found[1][k] == pytest.approx(found[0][k], abs=ROUNDING)


def test_coefficients_are_drawn_from_their_normal_law(problem, priors):
    groups, model = read_groups(problem, "kind"), model_of(problem, "paper", 0.4)
    records = GroupRecords.of(model, groups)
    sets = PriorCoordinates(3, priors, 2.0, None).natural(np.full((1, 10), 0.2))
    b, g = np.array([2.0, 1.0]), np.array([1.5, 0.8])
    statistics = exact_statistics(records)
    posterior, s = GroupPosterior(statistics, records, b, g), statistics(sets)
    draws = posterior.draw_coefficients(np.repeat(s, 4000, axis=0), np.random.default_rng(4))
    z = records.design()[:, :-1]
    prior = np.kron(np.ones((3, 3)), np.diag(b**2)) + np.kron(np.eye(3), np.diag(g**2))
    precision = np.tril(s[0, :6, :6]) + np.tril(s[0, :6, :6], -1).T
    covariance = np.linalg.inv(precision + np.linalg.inv(prior))
    # Z'V^-1 y from that of the residuals.
    right = s[0, 6, :6] + precision @ np.tile(records.common, 3)
    assert z.shape == (N, 6)
    sd = np.sqrt(np.diag(covariance))
    away = (draws - covariance @ right) / sd
    assert np.all(np.abs(away.mean(axis=0)) < z_limit(12) / np.sqrt(4000))
    assert np.all(np.abs(away.var(axis=0) - 1) < z_limit(12) * np.sqrt(2 / 4000))


def test_chains_find_both_tops_of_a_mixture_with_their_masses():
    shares, places = np.array([0.7, 0.3]), np.array([[-2.5, 0.5, -2.0], [1.5, -0.5, 1.5]])
    sds = np.array([[0.2, 0.5, 0.3], [0.6, 0.3, 0.4]])

    def log_density(u):
        parts = [stats.norm(m, s).logpdf(u).sum(axis=1) for m, s in zip(places, sds, strict=True)]
        return np.logaddexp.reduce(np.log(shares)[:, None] + np.array(parts), axis=0)

    rng = np.random.default_rng(5)
    near = laplace(log_density, np.zeros(3), np.linspace(-2.5, 2.5, 7))
    guess = adapted(log_density, near, rng, 4)
    found = run_chains(
        lambda u: (log_density(u), u.copy()), lambda rows: 2.0 * rows, guess, rng, samples=1000
    )
    np.testing.assert_array_equal(found.kept, 2.0 * found.points)
    first = mean_of((found.points[..., 2] < 0).astype(float))
    assert abs(first.value - 0.7) < z_limit(4) * first.error
    for j in range(3):
        mean = mean_of(found.points[..., j])
        assert abs(mean.value - shares @ places[:, j]) < z_limit(4) * mean.error


@pytest.fixture(scope="module")
def kept(problem):
    """Restricted, by Vecchia's approximation given all others, one record fully smoothed."""
    a = np.zeros(N)
    a[5] = 1.0
    return fit_multivariate(
        problem,
        "kind",
        weights=ds.own_weights(problem, a),
        phi=4.0,
        covariance=Vecchia(neighbours=N - 1),
        seed=1,
        samples=500,
        progress=False,
    )


def test_effects_by_conjugate_gradients_are_those_by_dense_matrices(kept):
    assert kept.verdict.passed, str(kept.verdict)
    p = group_parameters_at(kept, 1, 10)
    sparse, dense = group_effects(kept), GroupLatentModel(kept)
    assert isinstance(sparse, SparseGroupModel)
    right = np.random.default_rng(6).standard_normal(N)
    np.testing.assert_allclose(sparse._solve(p, right), dense._solve(p, right), rtol=SOLVED)
    places, group = np.array([[0.2, 0.4], [1.5, 0.1], [0.5, 0.5]]), np.array([2, 0, 1])
    for ours, theirs in zip(sparse.at(p, group, places), dense.at(p, group, places), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=ROUNDING)
    rng = np.random.default_rng(7)
    draws = np.array([sparse.draw(p, rng) for _ in range(2000)])
    z = (draws - dense.mean(p)) / np.sqrt(np.diag(dense.covariance(p)))
    limit = z_limit(2 * N)
    assert np.all(np.abs(z.mean(axis=0)) < limit / np.sqrt(len(z)))
    assert np.all(np.abs(z.var(axis=0) - 1) < limit * np.sqrt(2 / len(z)))


def test_a_release_by_vecchia_goes_to_the_disk(kept, tmp_path):
    release = ds.synthesise(kept, 6, seed=5)
    assert release.write(tmp_path / "out").exists()
    assert set(surface_by_group(kept, cells=4, draws=5)["group"]) == {0, 1, 2}


def test_the_draws_are_the_same_for_the_same_seed_and_no_others(problem):
    same = {"phi": 4.0, "samples": 100, "chains": 2, "progress": False}
    first, second, third = (
        fit_multivariate(problem, "kind", seed=seed, **same).draws for seed in (1, 1, 2)
    )
    for name in first:
        np.testing.assert_array_equal(first[name], second[name])
    assert not np.array_equal(first["T"], third["T"])


def simulated(n: int, seed: int):
    """Three groups that correlate, on the unit square."""
    rng = np.random.default_rng(seed)
    sites, kind, x = rng.uniform(size=(n, 2)), rng.choice(3, n), rng.standard_normal(n)
    T = np.array([[1.0, 0.7, 0.5], [0.7, 1.0, 0.6], [0.5, 0.6, 1.0]])
    V = T[np.ix_(kind, kind)] * np.exp(-6.0 * cdist(sites, sites)) + 0.12 * np.eye(n)
    y = kind + 0.5 * x + np.linalg.cholesky(V) @ rng.standard_normal(n)
    table = small_table(n, seed=1)[[]].assign(
        east=sites[:, 0], north=sites[:, 1], kind=kind, x=x, value=y
    )
    return ds.prepare(table, "value ~ x", coords=("east", "north"))


@pytest.mark.nightly("Stan's sampler at 60 and 120 records, and Vecchia's at 400")
@pytest.mark.parametrize("n", [60, 120])
def test_the_posterior_is_that_of_stan(n):
    found = simulated(n, n)
    ours = fit_multivariate(found, "kind", seed=1, samples=2000, progress=False)
    stan = fit_multivariate(found, "kind", seed=2, engine="embedded", progress=False)
    assert ours.verdict.passed, str(ours.verdict)
    assert_same_posterior(dict(ours.scalars), dict(stan.scalars))


@pytest.mark.nightly("two fits of 400 records")
def test_vecchia_s_posterior_is_near_the_exact_one():
    found = simulated(400, 3)
    near, exact = (
        fit_multivariate(found, "kind", seed=1, covariance=covariance, progress=False)
        for covariance in ("vecchia", "exact")
    )
    for name, draws in exact.scalars.items():
        away = near.scalars[name].mean() - draws.mean()
        assert abs(away) < 0.25 * draws.std(), name
