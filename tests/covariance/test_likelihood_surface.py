"""The profile surface against closed forms."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import block_diag
from scipy.spatial.distance import cdist
from scipy.stats import multivariate_normal

from dsstan.core.chebyshev import (
    chebyshev_map,
    chebyshev_nodes,
    chebyshev_polynomials,
    log_position,
    log_position_inv,
)
from dsstan.core.errors import SurfaceError
from dsstan.covariance import surface_statistics
from dsstan.covariance.likelihood_surface import (
    build_surface,
    error_at,
    exact_statistics,
    node_statistics,
    response_log_density,
    rotate,
    smoothed_correlation,
)

AFTER_TRIDIAGONAL = 1e-8
"""Relative: a tridiagonal reduction and solve stand between."""

INTERPOLATED = 1e-4
"""The largest error a fit may have."""


def data(n=80, p=3, seed=1, shared=10):
    rng = np.random.default_rng(seed)
    s = rng.uniform(size=(n, 2))
    s[:shared] = s[shared : 2 * shared]
    X = np.column_stack([np.ones(n), rng.normal(40, 3, (n, p - 1))])
    y = X @ np.arange(1, p + 1) + rng.normal(size=n)
    a = np.where(rng.uniform(size=n) < 0.1, 0.0, 1.0)
    a[-3:] = [0.5, 0.9, 0.0]
    return cdist(s, s), X, y, a


def covariance(d, a, protection, sigma_sq, tau_sq, phi):
    """V written out from the model's definition."""
    V = sigma_sq * np.diag(a) @ np.exp(-phi * d) @ np.diag(a) + tau_sq * np.eye(len(a))
    if protection == "preserving":
        V += np.diag(sigma_sq * (1 - a**2))
    return V


@pytest.mark.parametrize("n", [1, 2, 9])
def test_interpolation_is_exact_for_polynomials_below_the_number_of_nodes(n):
    x = chebyshev_nodes(n)
    coefficients = chebyshev_map(n) @ (x ** (n - 1))
    for at in (-1.0, -0.3, 0.0, 0.77, 1.0):
        assert chebyshev_polynomials(at, n) @ coefficients == pytest.approx(
            at ** (n - 1), abs=1e-12
        )


def test_log_positions_invert_each_other():
    bounds = (0.02, 7.0)
    for v in (0.02, 0.5, 7.0):
        x = log_position(v, bounds)
        assert float(log_position_inv(np.array(x), bounds)) == pytest.approx(v, rel=1e-13)
    assert log_position(3.0, (3.0, 3.0)) == 0.0


def test_rotated_data_reproduce_the_residuals_at_any_coefficients():
    _, X, y, _ = data()
    rotation = rotate(X, y)
    beta = np.array([3.0, -1.0, 0.2])
    u = rotation.T @ (rotation.b - beta)
    np.testing.assert_allclose(rotation.Z @ np.append(u, 1.0), y - X @ beta, atol=1e-9)
    np.testing.assert_allclose(rotation.Z[:, :-1].T @ rotation.Z[:, :-1], np.eye(3), atol=1e-12)


@pytest.mark.parametrize("protection", ["paper", "preserving", "cut", "none"])
@pytest.mark.parametrize("r", [1e-4, 0.07, 1e4])
def test_node_statistics_give_the_multivariate_normal_density(protection, r):
    d, X, y, a = data()
    if protection in ("cut", "none"):
        rows = np.flatnonzero(a == 1) if protection == "cut" else np.arange(len(a))
        d, X, y, a = d[np.ix_(rows, rows)], X[rows], y[rows], np.ones(len(rows))
    phi, sigma_sq, beta = 6.0, 1.7, np.array([1.0, 2.1, 2.9])
    rotation = rotate(X, y)
    m = smoothed_correlation(d, phi, a, protection)
    s = node_statistics(m, rotation.Z, np.array([r]))[0]
    ours = response_log_density(s, rotation.T @ (rotation.b - beta), len(y), sigma_sq, r)
    V = covariance(d, a, protection, sigma_sq, r * sigma_sq, phi)
    theirs = multivariate_normal(X @ beta, V).logpdf(y)
    assert ours == pytest.approx(theirs, rel=AFTER_TRIDIAGONAL)


@pytest.mark.parametrize("protection", ["none", "paper", "preserving", "cut"])
@pytest.mark.parametrize("smoothing", ["by record", "by site"])
def test_records_of_one_site_are_one_row_and_their_contrasts(protection, smoothing):
    rng = np.random.default_rng(4)
    site = np.repeat(np.arange(9), [1, 1, 2, 3, 1, 5, 2, 1, 4])
    places = rng.random((9, 2))[site]
    d, n = cdist(places, places), site.size
    a = rng.choice([0.0, 0.4, 1.0], 9 if smoothing == "by site" else n)
    a = a[site] if smoothing == "by site" else a
    if protection in ("none", "cut"):
        a = np.ones(n)
    X, y = np.column_stack([np.ones(n), rng.normal(size=n)]), rng.normal(size=n)
    source = exact_statistics(d, X, y, a_diag=a, protection=protection)
    assert len(source.means) == len(np.unique(np.column_stack([site, a]), axis=0))
    r = np.array([1e-4, 0.3, 1e4])
    for phi, found in zip((1.0, 8.0), source.at(np.array([1.0, 8.0]), r), strict=True):
        m = smoothed_correlation(d, phi, a, protection)
        np.testing.assert_allclose(
            found, node_statistics(m, source.rotation.Z, r), rtol=1e-9, atol=1e-7
        )


def test_a_fully_smoothed_record_has_a_zero_row_and_column():
    d, _, _, a = data()
    m = smoothed_correlation(d, 5.0, a, "paper")
    assert np.all(m[a == 0] == 0)
    assert np.all(m[:, a == 0] == 0)
    kept = smoothed_correlation(d, 5.0, a, "preserving")
    np.testing.assert_allclose(np.diag(kept), 1.0, atol=1e-15)


def test_one_record_and_two_records_work():
    for n in (1, 2):
        m = np.exp(-np.abs(np.subtract.outer(np.arange(n), np.arange(n))).astype(float))
        z = np.column_stack([np.ones(n), np.arange(n) + 1.0])
        s = node_statistics(m, z, np.array([0.3]))[0]
        C = m + 0.3 * np.eye(n)
        assert s[0] == pytest.approx(np.linalg.slogdet(C)[1] - n * np.log1p(0.3), abs=1e-12)
        want = 1.3 * z.T @ np.linalg.solve(C, z)
        np.testing.assert_allclose(s[1:], want[np.tril_indices(2)], atol=1e-10)


@pytest.mark.parametrize("protection", ["none", "paper", "preserving"])
def test_the_surface_is_within_tolerance_everywhere_and_says_so(protection):
    d, X, y, a = data(n=120)
    a = np.ones(120) if protection == "none" else np.resize(a, 120)
    bounds = {"phi_bounds": (2.0, 200.0), "r_bounds": (1e-4, 1e4)}
    surface = build_surface(d, X, y, a_diag=a, protection=protection, **bounds)
    assert 0 < surface.error < INTERPOLATED
    rng = np.random.default_rng(5)
    for _ in range(40):
        phi, r = np.exp(rng.uniform(np.log([2.0, 1e-4]), np.log([200.0, 1e4])))
        m = smoothed_correlation(d, phi, a, protection)
        exact = node_statistics(m, surface.rotation.Z, np.array([r]))[0]
        full = np.zeros((4, 4))
        full[np.tril_indices(4)] = exact[1:]
        full = full + np.tril(full, -1).T
        u = -np.linalg.solve(full[:3, :3], full[:3, 3])
        s2 = (full[3, 3] + u @ full[:3, 3]) / (120 * (1 + r))
        near = response_log_density(surface.at(phi, r), u, 120, s2, r)
        assert abs(near - response_log_density(exact, u, 120, s2, r)) < INTERPOLATED


def test_a_forced_bad_surface_is_refused():
    d, X, y, a = data()
    with pytest.raises(SurfaceError, match=r"off by .* 4 x 5 nodes"):
        build_surface(
            d,
            X,
            y,
            a_diag=a,
            protection="paper",
            phi_bounds=(2.0, 200.0),
            r_bounds=(1e-4, 1e4),
            nodes=(4, 5),
        )


def test_a_surface_that_is_no_number_at_a_held_out_point_is_off_by_inf_there():
    class Nowhere:
        n = 80

        def at(self, phi, r):
            return np.full(11, np.nan)

    d, X, y, _ = data()
    rotation = rotate(X, y)
    exact = node_statistics(np.exp(-3.0 * d), rotation.Z, np.array([0.5]))[0]
    assert error_at(Nowhere(), exact, 3.0, 0.5) == np.inf


def test_an_impossible_tolerance_is_refused_after_adding_nodes():
    d, X, y, a = data(n=40)
    with pytest.raises(SurfaceError, match="64 x 112 nodes"):
        build_surface(
            d,
            X,
            y,
            a_diag=a,
            protection="paper",
            phi_bounds=(2.0, 200.0),
            r_bounds=(1e-4, 1e4),
            tolerance=1e-300,
        )


def test_nodes_that_are_computed_side_by_side_are_the_same_to_the_last_bit(monkeypatch):
    d, X, y, a = data()
    source = exact_statistics(d, X, y, a_diag=a, protection="paper")
    where = np.geomspace(1.0, 50.0, 7), np.geomspace(1e-3, 1e3, 9)
    alone = np.stack(list(source.at(*where)))
    monkeypatch.setattr(surface_statistics, "THREADED", 1)
    np.testing.assert_array_equal(np.stack(list(source.at(*where))), alone)


def test_a_held_decay_needs_one_node_in_phi():
    d, X, y, a = data()
    surface = build_surface(
        d, X, y, a_diag=a, protection="paper", phi_bounds=(5.0, 5.0), r_bounds=(1e-4, 1e4)
    )
    assert surface.nodes[0] == 1
    V = covariance(d, a, "paper", 2.0, 0.5, 5.0)
    beta = np.array([0.5, 2.0, 3.0])
    theirs = multivariate_normal(X @ beta, V).logpdf(y)
    assert surface.log_density(beta, 2.0, 0.5, 5.0) == pytest.approx(theirs, abs=1e-5)


def test_independent_groups_add_their_statistics():
    d, X, y, _ = data(n=30, shared=0)
    far = block_diag(d, d)
    far[:30, 30:] = far[30:, :30] = 1e6
    one = smoothed_correlation(d, 5.0, np.ones(30), "paper")
    both = smoothed_correlation(far, 5.0, np.ones(60), "paper")
    z = rotate(X, y).Z
    r = np.array([0.2])
    s1, s2 = node_statistics(one, z, r)[0], node_statistics(both, np.vstack([z, z]), r)[0]
    np.testing.assert_allclose(s2, 2 * s1, rtol=1e-9, atol=1e-9)
