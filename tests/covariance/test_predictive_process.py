"""The modified predictive process against dense linear algebra on the same covariance."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist

import dsstan.covariance.process.statistics as module
from conftest import NIGHTLY
from dsstan.core.chebyshev import chebyshev_nodes, log_position_inv
from dsstan.core.errors import InputError
from dsstan.covariance.base import Parameters
from dsstan.covariance.correlation import CORRELATIONS, correlation
from dsstan.covariance.latent import LatentModel
from dsstan.covariance.likelihood_surface import (
    TOLERANCE,
    ExactStatistics,
    interpolate,
    node_statistics,
    rotate,
    smoothed_correlation,
    surface_of,
)
from dsstan.covariance.process.knots import Basis, basis_at, place_knots
from dsstan.covariance.process.latent import ProcessLatentModel
from dsstan.covariance.process.statistics import PredictiveProcessStatistics
from dsstan.covariance.window import profile
from mc import z_limit

SAME = 1e-8
"""Two orders of summation and two decompositions of one covariance."""

BOUNDS = (1e-4, 1e4)
R = log_position_inv(chebyshev_nodes(24), BOUNDS)
P = Parameters(np.array([5.0, 0.7]), 1.6, 0.25, 4.0)
KNOTS = np.random.default_rng(6).random((14, 2))
"""On no record, so that flagged ones, which stand alone, have remainders as well."""

PROTECTIONS = ("none", "paper", "preserving", "cut")


def dense(places, knots, phi, cov_model="exponential"):
    """R(phi) of the modified process, by its definition."""
    across = correlation(cdist(places, knots), phi, cov_model)
    among = correlation(cdist(knots, knots), phi, cov_model)
    out = across @ np.linalg.solve(among, across.T)
    np.fill_diagonal(out, 1.0)
    return out


def records(protection, n=90, seed=2):
    """Sites, some shared; X, y and A with ones, zeros and what lies between."""
    rng = np.random.default_rng(seed)
    sites = rng.random((n, 2))
    sites[:8] = sites[8:16]
    X = np.column_stack([np.ones(n), rng.normal(size=n)])
    a = np.ones(n)
    if protection in ("paper", "preserving"):
        a[:6], a[6:20] = 0.0, rng.uniform(0.2, 0.9, 14)
    return sites, X, 3.0 + rng.normal(size=n), a


def assert_same_statistics(got, want):
    """Relative to the whole: an entry of Z'C^-1 Z may cancel, and so may the log determinant."""
    scale = np.abs(want[:, 1:]).max(axis=1, keepdims=True)
    assert np.all(np.abs(got - want)[:, 1:] < SAME * scale)
    np.testing.assert_allclose(got[:, 0], want[:, 0], rtol=SAME, atol=SAME)


@pytest.mark.parametrize("cov_model", CORRELATIONS)
@pytest.mark.parametrize("protection", PROTECTIONS)
def test_statistics_are_those_of_the_dense_covariance(protection, cov_model):
    sites, X, y, a = records(protection)
    # Some knots lie on sites, one of them shared, and some do not.
    knots = np.vstack([sites[[0, 30, 40]], place_knots(sites, 12)])
    source = PredictiveProcessStatistics.of(
        sites, X, y, a_diag=a, protection=protection, cov_model=cov_model, knots=knots
    )
    phis = np.array([3.0, 20.0, 150.0])
    for phi, got in zip(phis, source.at(phis, R), strict=True):
        M = a[:, None] * dense(sites, knots, phi, cov_model) * a
        if protection == "preserving":
            M += np.diag(1 - a**2)
        assert_same_statistics(got, node_statistics(M, rotate(X, y).Z, R))


@pytest.mark.parametrize("protection", PROTECTIONS)
def test_a_knot_at_every_site_gives_the_exact_covariance(protection):
    sites, X, y, a = records(protection)
    source = PredictiveProcessStatistics.of(
        sites, X, y, a_diag=a, protection=protection, knots=len(np.unique(sites, axis=0))
    )
    for phi in (3.0, 60.0):
        M = smoothed_correlation(cdist(sites, sites), phi, a, protection)
        want = node_statistics(M, rotate(X, y).Z, R)
        assert_same_statistics(source.sums(np.array([phi]), R)[0], want)


def test_statistics_of_some_records_are_those_of_their_joint_density():
    sites, X, y, a = records("paper")
    source = PredictiveProcessStatistics.of(sites, X, y, a_diag=a, protection="paper", knots=9)
    some = np.arange(0, 90, 2)
    M = (a[:, None] * dense(sites, source.knots, 5.0) * a)[np.ix_(some, some)]
    want = node_statistics(M, rotate(X, y).Z[some], R)
    assert_same_statistics(source.sums(np.array([5.0]), R, some)[0], want)


def test_records_without_any_spatial_effect_are_noise():
    sites, X, y, _ = records("paper")
    a = np.zeros(len(y))
    source = PredictiveProcessStatistics.of(sites, X, y, a_diag=a, protection="paper", knots=5)
    want = node_statistics(np.zeros((a.size, a.size)), rotate(X, y).Z, R)
    assert_same_statistics(source.sums(np.array([5.0]), R)[0], want)


def test_the_interpolated_surface_meets_the_tolerance():
    sites, X, y, a = records("preserving")
    source = PredictiveProcessStatistics.of(sites, X, y, a_diag=a, protection="paper", knots=20)
    assert interpolate(source, (2.0, 200.0), BOUNDS, (24, 48)).error < TOLERANCE


def test_the_products_keep_the_error_that_they_promise():
    rng = np.random.default_rng(3)
    U, z = rng.normal(size=(3000, 7)), rng.normal(size=(3000, 2))
    e = np.concatenate([np.zeros(40), 10.0 ** rng.uniform(-7, 0, 2960)])
    got = module._products(U, z, e, R)
    for h, r in enumerate(R):
        want = (U / (e + r)[:, None]).T @ U
        lower = np.tril_indices(7)
        # Each entry errs by at most PRECISION times the sum of the sizes of its terms.
        most = (np.abs(U) / (e + r)[:, None]).T @ np.abs(U)
        off = np.abs(got[:7, h] - want) / most
        assert off[lower].max() < 1.1 * module.PRECISION
        other = np.abs(got[7:, h].T - (U / (e + r)[:, None]).T @ z)
        most = (np.abs(U) / (e + r)[:, None]).T @ np.abs(z)
        assert (other / most).max() < 1.1 * module.PRECISION


def conditional(fit, knots):
    """Mean and covariance of w given y by the dense formulas."""
    problem, a = fit.problem, fit.A
    K = P.sigma_sq * dense(problem.sites, knots, P.phi)
    D = np.full(len(a), P.tau_sq)
    if fit.protection == "preserving":
        D = D + P.sigma_sq * (1 - a**2)
    rows = np.flatnonzero(a == 1) if fit.protection == "cut" else np.arange(len(a))
    V = (a[:, None] * K * a + np.diag(D))[np.ix_(rows, rows)]
    KA = (K * a)[:, rows]
    residual = problem.y[rows] - problem.X[rows] @ P.beta
    return KA @ np.linalg.solve(V, residual), K - KA @ np.linalg.solve(V, KA.T)


@pytest.mark.parametrize("gamma", [0.0, 3.0, np.inf])
def test_the_conditional_mean_is_the_normal_one(protected, gamma):
    fit = protected[gamma]
    model = ProcessLatentModel(fit, KNOTS)
    mean, _ = conditional(fit, model.knots)
    np.testing.assert_allclose(model.mean(P), mean, atol=SAME)


@pytest.mark.parametrize("gamma", [3.0, np.inf])
def test_draws_have_the_conditional_mean_and_covariance(protected, gamma):
    fit = protected[gamma]
    model = ProcessLatentModel(fit, KNOTS)
    mean, cov = conditional(fit, model.knots)
    rng = np.random.default_rng(5)
    n = 4000
    draws = np.stack([model.draw(P, rng) for _ in range(n)])
    sd = np.sqrt(np.diag(cov))
    limit = z_limit(mean.size + mean.size * (mean.size + 1) // 2)
    assert np.all(np.abs(draws.mean(axis=0) - mean) < limit * sd / np.sqrt(n))
    # The sampling variance of a covariance of normals.
    error = np.sqrt((np.outer(sd**2, sd**2) + cov**2) / n)
    assert np.all(np.abs(np.cov(draws.T) - cov) < limit * error)
    # Records of one site have remainders of their own.
    assert np.all(draws[:, 0] != draws[:, 6])


def test_the_mean_at_a_place_is_the_process_of_the_knots(free):
    model = ProcessLatentModel(free, 15, "grid")
    places = np.random.default_rng(1).random((7, 2))
    problem = free.problem
    both = np.vstack([problem.sites, places])
    K = P.sigma_sq * dense(both, model.knots, P.phi)
    n = len(problem.y)
    V = K[:n, :n] + P.tau_sq * np.eye(n)
    want = K[n:, :n] @ np.linalg.solve(V, problem.y - problem.X @ P.beta)
    np.testing.assert_allclose(model.mean(P, places), want, atol=SAME)


def test_knots_at_all_sites_give_the_exact_law_of_the_effect(free):
    model = ProcessLatentModel(free, free.problem.n_sites)
    exact = LatentModel(free)
    np.testing.assert_allclose(model.mean(P), exact.mean(P), atol=SAME)
    assert model.draw(P, np.random.default_rng(1)).shape == (free.problem.n_records,)


@pytest.mark.parametrize("knots", [1, 7, 40, 79])
def test_kmeans_knots_are_as_many_as_asked_for_and_each_has_a_site(knots):
    rng = np.random.default_rng(8)
    sites = np.vstack([rng.normal(0, 1e-3, (50, 2)), rng.random((30, 2)) + 4e6])
    sites = np.vstack([sites, sites[:20]])
    found = place_knots(sites, knots, "kmeans", 3)
    assert found.shape == (knots, 2)
    assert np.unique(found, axis=0).shape == (knots, 2)
    nearest = cKDTree(found).query(sites)[1]
    assert np.all(np.bincount(nearest, minlength=knots) > 0)
    np.testing.assert_array_equal(found, place_knots(sites, knots, "kmeans", 3))


def test_the_grid_has_no_knot_far_from_all_sites():
    rng = np.random.default_rng(9)
    sites = np.vstack([rng.random((60, 2)), rng.random((60, 2)) + 9.0])
    found = place_knots(sites, 50, "grid")
    assert 20 < len(found) <= 50
    step = np.min(cdist(found, found) + 99.0 * np.eye(len(found)))
    assert cKDTree(sites).query(found)[0].max() <= step + 1e-12
    # A square of the same number of knots would have them in the empty corners.
    assert not np.any((found[:, 0] > 3) & (found[:, 1] < 7))


def test_as_many_knots_as_sites_are_the_sites():
    sites = np.random.default_rng(1).random((9, 2))
    for placement in ("kmeans", "grid"):
        found = place_knots(np.vstack([sites, sites]), 9, placement)
        np.testing.assert_array_equal(found, np.unique(sites, axis=0))


def test_sites_on_a_line_and_a_single_site_have_knots():
    line = np.column_stack([np.arange(12.0), np.zeros(12)])
    for placement in ("kmeans", "grid"):
        assert np.all(np.isfinite(place_knots(line, 5, placement)))
        assert place_knots(line[:1], 1, placement).shape == (1, 2)


@pytest.mark.parametrize(
    ("knots", "placement", "message"),
    [
        (0, "kmeans", "whole number of at least 1"),
        (2.5, "kmeans", "whole number of at least 1"),
        (True, "kmeans", "whole number of at least 1"),
        (83, "kmeans", "82 distinct sites"),
        (5, "random", "placement must be one of"),
        (np.ones((3, 3)), "kmeans", r"shape \(K, 2\)"),
        (np.array([[0.0, np.nan]]), "kmeans", "finite"),
        (np.array([[0.0, 0.0], [0.0, 0.0]]), "kmeans", "two knots lie nearer"),
        (np.array([[0.0, 0.0], [0.0, 1e-9], [1.0, 0.0]]), "kmeans", "two knots lie nearer"),
    ],
)
def test_what_cannot_be_a_set_of_knots_is_refused(knots, placement, message):
    sites, X, y, a = records("none")
    with pytest.raises(InputError, match=message):
        PredictiveProcessStatistics.of(
            sites, X, y, a_diag=a, protection="none", knots=knots, placement=placement
        )


def test_an_unknown_correlation_function_is_refused():
    sites, X, y, a = records("none")
    with pytest.raises(InputError, match="cov_model must be one of"):
        PredictiveProcessStatistics.of(
            sites, X, y, a_diag=a, protection="none", cov_model="gaussian", knots=3
        )


BOX = {"phi_bounds": (2.0, 60.0), "r_bounds": (1e-3, 1e2)}
DATA_SETS = 4 if NIGHTLY else 2


def simulated(seed, n=400):
    """Data of the exact model: partial sill 1, nugget 0.3, decay 6 on the unit square."""
    rng = np.random.default_rng(seed)
    sites = rng.random((n, 2))
    X = np.column_stack([np.ones(n), rng.normal(size=n)])
    V = np.exp(-6.0 * cdist(sites, sites)) + 0.3 * np.eye(n)
    return sites, X, X @ [1.0, 0.5] + np.linalg.cholesky(V) @ rng.normal(size=n)


def quadrature(source):
    """Means of log phi and log tau_sq over the profile posterior, and its highest log density."""
    n, p = source.rotation.Z.shape[0], source.rotation.b.size
    surface = surface_of(source, *BOX.values(), (14, 24), checks=0)
    phi, r, density = profile(surface, n, *BOX.values())
    weight = np.exp(density - density.max())
    weight[weight < 1e-5] = 0.0
    weight /= weight.sum()
    log_tau_sq = 0.0
    for i, j in np.argwhere(weight):
        full = np.zeros((p + 1, p + 1))
        full[np.tril_indices(p + 1)] = surface.at(phi[i], r[j])[1:]
        full += np.tril(full, -1).T
        rest = 1.0 / np.linalg.inv(full)[p, p]
        log_tau_sq += weight[i, j] * np.log(r[j] * rest / (n * (1.0 + r[j])))
    return weight.sum(axis=1) @ np.log(phi), log_tau_sq, density.max()


def exact_of(sites, X, y):
    """Statistics of the exact covariance."""
    d = cdist(sites, sites)
    return ExactStatistics(lambda phi: np.exp(-phi * d), rotate(X, y))


@pytest.fixture(scope="module")
def by_knots():
    """For each number of knots, what its posterior says beyond the exact one's, by data set."""
    out = {}
    for seed in range(10, 10 + DATA_SETS):
        sites, X, y = simulated(seed)
        one = {"a_diag": np.ones(len(y)), "protection": "none"}
        truth = quadrature(exact_of(sites, X, y))
        for knots in (25, 100, 200):
            source = PredictiveProcessStatistics.of(sites, X, y, **one, knots=knots)
            out.setdefault(knots, []).append(np.subtract(quadrature(source), truth))
    return {knots: np.array(rows) for knots, rows in out.items()}


def test_the_error_of_the_posterior_falls_as_knots_grow(by_knots):
    """Finley et al. (2009) found few knots to bias the variances; how much, on some data sets."""
    phi, tau_sq, density = (
        [float(np.mean(np.abs(by_knots[knots][:, k]))) for knots in (25, 100, 200)]
        for k in range(3)
    )
    for error in (phi, tau_sq, density):
        assert error[0] > error[1] > error[2]
    # With 25 knots log tau_sq is off by a good part of 1, with one for every two records little.
    assert tau_sq[0] > 0.3
    assert phi[2] < 0.05
    # The remainder takes part of the nugget, which comes out too small.
    assert np.all(by_knots[100][:, 1] < 0)


def test_without_the_remainder_the_nugget_is_too_large(monkeypatch):
    """Why the process is modified: the nugget would take what the knots miss."""
    sites, X, y = simulated(10)
    source = PredictiveProcessStatistics.of(
        sites, X, y, a_diag=np.ones(len(y)), protection="none", knots=25
    )
    truth = quadrature(exact_of(sites, X, y))[1]

    def bare(*arguments):
        basis = basis_at(*arguments)
        return Basis(basis.rows, np.zeros_like(basis.rest))

    monkeypatch.setattr(module, "basis_at", bare)
    assert quadrature(source)[1] - truth > 0.5
