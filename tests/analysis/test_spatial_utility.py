"""Spatial analyses of copies, held against the formulas written out and direct optimisation."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.spatial.distance import cdist
from scipy.stats import multivariate_normal, norm

import dsstan as ds
from conftest import leave_out
from dsstan.analysis import spatial_estimators as estimators
from dsstan.analysis import spatial_surfaces as surfaces
from dsstan.analysis import spatial_utility as su
from dsstan.analysis.combining import combine
from dsstan.analysis.pooling import pool
from dsstan.analysis.spatial_regression import _covariance
from dsstan.analysis.spatial_surfaces import compare_surfaces
from dsstan.analysis.utility import ols
from dsstan.core.errors import DsstanWarning, InputError
from dsstan.covariance.likelihood_surface import TOLERANCE
from dsstan.covariance.pairs import Pairs
from mc import z_limit

EXACT = 1e-10
"""The exact tier of the design: two ways to one sum differ by rounding only."""

AFTER_SOLVE = 1e-8
"""Relative, where a solve with a covariance of condition 1e3 to 1e5 stands between."""

AT_THE_MAXIMUM = 2e-3
"""Relative, for parameters: an error of 1e-6 in the log density lets its maximum move by
sqrt(2e-6) standard errors of the log of a parameter, and those are near 1 here."""


def scene(n=60, seed=3, shared=6, sigma_sq=1.0, tau_sq=0.25, phi=5.0):
    """Sites, some shared, a spatial covariate and a response."""
    rng = np.random.default_rng(seed)
    sites = rng.uniform(-1, 1, (n, 2))
    sites[:shared] = sites[shared : 2 * shared]
    d = cdist(sites, sites)
    X = np.column_stack([np.ones(n), 40 + rng.normal(size=n)])
    V = sigma_sq * np.exp(-phi * d) + tau_sq * np.eye(n)
    y = X @ [-3.0, 0.5] + np.linalg.cholesky(V) @ rng.normal(size=n)
    return X, y, sites, V


def test_generalised_least_squares_agree_with_the_normal_equations():
    X, y, _, V = scene()
    inverse = np.linalg.inv(V)
    cov = np.linalg.inv(X.T @ inverse @ X)
    beta, found = su.gls(X, y, V)
    np.testing.assert_allclose(beta, cov @ X.T @ inverse @ y, rtol=AFTER_SOLVE)
    np.testing.assert_allclose(found, cov, rtol=AFTER_SOLVE)


def test_with_an_identity_covariance_they_are_least_squares():
    X, y, _, _ = scene()
    np.testing.assert_allclose(su.gls(X, y, np.eye(len(y)))[0], ols(X, y)[0], rtol=AFTER_SOLVE)


def test_shared_sites_without_a_nugget_are_refused():
    X, y, sites, _ = scene()
    with pytest.raises(InputError, match="nugget"):
        su.gls(X, y, np.exp(-cdist(sites, sites)) - 1e-9 * np.eye(len(y)))


def minus_log_density(X, y, sites):
    """As a function of log (sigma_sq, tau_sq, phi), beta at its best."""
    d = cdist(sites, sites)

    def loss(logs):
        sigma_sq, tau_sq, phi = np.exp(logs)
        V = sigma_sq * np.exp(-phi * d) + tau_sq * np.eye(len(y))
        beta = np.linalg.solve(X.T @ np.linalg.solve(V, X), X.T @ np.linalg.solve(V, y))
        return -multivariate_normal.logpdf(y, X @ beta, V)

    return loss


@pytest.mark.parametrize("seed", [3, 5, 8])
def test_maximum_likelihood_agrees_with_direct_optimisation(seed):
    X, y, sites, _ = scene(seed=seed)
    found = su.maximum_likelihood(X, y, sites)
    loss = minus_log_density(X, y, sites)
    logs = np.log([found.sigma_sq, found.tau_sq, found.phi])
    direct = min(
        (
            minimize(loss, np.log(start), method="Nelder-Mead", options={"xatol": 1e-5})
            for start in ([1.0, 0.2, 4.0], [0.5, 0.5, 15.0])
        ),
        key=lambda r: r.fun,
    )
    assert loss(logs) < direct.fun + TOLERANCE
    np.testing.assert_allclose(np.exp(logs), np.exp(direct.x), rtol=AT_THE_MAXIMUM)
    sigma_sq, tau_sq, phi = np.exp(logs)
    V = sigma_sq * np.exp(-phi * cdist(sites, sites)) + tau_sq * np.eye(len(y))
    beta, cov = su.gls(X, y, V)
    # Interpolated statistics against exact ones.
    np.testing.assert_allclose(found.beta, beta, rtol=1e-4)
    np.testing.assert_allclose(found.cov, cov, rtol=1e-4)


def test_maximum_likelihood_keeps_the_users_units():
    X, y, sites, _ = scene()
    one = su.maximum_likelihood(X, y, sites)
    two = su.maximum_likelihood(X, 1000 * y - 7, 50 * sites - 300)
    np.testing.assert_allclose(
        [two.sigma_sq / 1e6, two.tau_sq / 1e6, two.phi * 50],
        [one.sigma_sq, one.tau_sq, one.phi],
        rtol=1e-4,  # two searches end within their own tolerance
    )


def test_a_maximum_at_the_end_of_a_range_warns():
    X, _, sites, _ = scene(shared=0)
    y = np.random.default_rng(5).normal(size=len(X))
    with pytest.warns(DsstanWarning, match="end of the range"):
        su.maximum_likelihood(X, y, sites, phi_bounds=(0.01, 0.02))


@pytest.mark.parametrize("case", ["constant", "explained", "one site", "missing"])
def test_data_without_a_covariance_to_estimate_are_refused(case):
    X, y, sites, _ = scene()
    y, sites, match = {
        "constant": (np.full_like(y, 7.3), sites, "no residual"),
        "explained": (X @ [0.1, -3.0], sites, "no residual"),
        "one site": (y, np.ones_like(sites), "one site"),
        "missing": (np.where(y == y[3], np.nan, y), sites, "finite"),
    }[case]
    with pytest.raises(InputError, match=match):
        su.maximum_likelihood(X, y, sites)


@pytest.mark.parametrize("cutoff", [0.05, 0.6, 10.0])
def test_conleys_covariance_agrees_with_a_double_loop(cutoff):
    X, y, sites, _ = scene(n=25)
    coef, cov = su.conley(X, y, sites, cutoff)
    e = y - X @ np.linalg.solve(X.T @ X, X.T @ y)
    meat = np.zeros((2, 2))
    for i in range(25):
        for j in range(25):
            u = np.hypot(*(sites[i] - sites[j])) / cutoff
            meat += max(0.0, 1.0 - u) * e[i] * e[j] * np.outer(X[i], X[j])
    bread = np.linalg.inv(X.T @ X)
    np.testing.assert_allclose(coef, ols(X, y)[0], rtol=EXACT)
    # Relative to the size of the matrix: the normal equations have condition 1e6.
    np.testing.assert_allclose(cov, bread @ meat @ bread, atol=1e-8 * np.abs(cov).max())


def test_conleys_covariance_agrees_to_ten_digits_where_columns_are_orthogonal():
    X, y, sites, _ = scene(n=25)
    X = np.linalg.qr(X)[0]
    _, cov = su.conley(X, y, sites, 0.6)
    e = y - X @ (X.T @ y)
    loop = sum(
        max(0.0, 1.0 - np.hypot(*(sites[i] - sites[j])) / 0.6) * e[i] * e[j] * np.outer(X[i], X[j])
        for i in range(25)
        for j in range(25)
    )
    np.testing.assert_allclose(cov, loop, rtol=0, atol=EXACT * np.abs(loop).max())


def test_a_short_cutoff_gives_whites_covariance():
    X, y, sites, _ = scene(shared=0)
    e = y - X @ ols(X, y)[0]
    bread = np.linalg.inv(X.T @ X)
    white = bread @ (X.T @ np.diag(e**2) @ X) @ bread
    cov = su.conley(X, y, sites, 1e-9)[1]
    np.testing.assert_allclose(cov, white, atol=1e-8 * np.abs(cov).max())


def test_a_kernel_that_gives_a_negative_variance_is_refused():
    """Residuals along an eigenvector of a negative eigenvalue: 1 - d isn't a covariance here."""
    sites = np.array([[i, j] for i in range(8) for j in range(8)], dtype=float)
    values, vectors = np.linalg.eigh(np.maximum(0.0, 1.0 - cdist(sites, sites) / 1.5))
    assert values[0] < -0.05
    with pytest.raises(InputError, match="negative variance"):
        su.conley(np.ones((64, 1)), vectors[:, 0], sites, 1.5)


@pytest.mark.parametrize("cutoff", [0.0, -1.0, np.inf, np.nan])
def test_a_cutoff_that_is_none_is_refused(cutoff):
    X, y, sites, _ = scene()
    with pytest.raises(InputError, match="cutoff"):
        su.conley(X, y, sites, cutoff)


def test_the_variogram_agrees_with_a_double_loop():
    _, y, sites, _ = scene()
    edges = np.linspace(0, 1.2, 8)
    found = su.variogram(y, sites, edges)
    sums = np.zeros((7, 3))
    for i in range(len(y)):
        for j in range(i):
            h = np.hypot(*(sites[i] - sites[j]))
            for k in range(7):
                if edges[k] < h <= edges[k + 1] or (k == 0 and h == 0):
                    sums[k] += [1, h, (y[i] - y[j]) ** 2]
    np.testing.assert_array_equal(found["pairs"], sums[:, 0])
    np.testing.assert_allclose(found["distance"], sums[:, 1] / sums[:, 0], rtol=EXACT)
    np.testing.assert_allclose(found["gamma"], sums[:, 2] / sums[:, 0] / 2, rtol=EXACT)


def test_bins_without_a_pair_are_left_out_and_a_shared_site_counts_in_the_first():
    sites = np.array([[0.0, 0.0], [0.0, 0.0], [3.0, 0.0]])
    found = su.variogram(np.array([1.0, -1.0, 5.0]), sites, np.array([0.0, 1.0, 2.0, 3.0]))
    assert found.to_numpy().tolist() == [[0.0, 2.0, 1.0], [3.0, 13.0, 2.0]]


@pytest.mark.parametrize("truth", [(1.5, 0.2, 4.0), (1.0, 0.0, 9.0), (0.0, 0.7, 5.0)])
def test_a_curve_through_exact_values_is_recovered(truth):
    sigma_sq, tau_sq, phi = truth
    h = np.linspace(0.02, 1.5, 15)
    gamma = tau_sq + sigma_sq * (1 - np.exp(-phi * h))
    a, b, c = su.fit_variogram(h, gamma, np.arange(1, 16), (1.0, 100.0))
    np.testing.assert_allclose(b + a * (1 - np.exp(-c * h)), gamma, rtol=1e-6, atol=1e-9)
    if sigma_sq > 0:
        np.testing.assert_allclose([a, b, c], truth, rtol=1e-5, atol=1e-6)


def test_a_flat_variogram_of_zero_gives_a_curve_of_zero():
    found = su.fit_variogram(np.array([0.1, 0.2]), np.zeros(2), np.ones(2), (1.0, 100.0))
    assert found[:2] == (0.0, 0.0)


def test_morans_i_of_three_points_by_hand():
    """Inverse distances 1, 1/2, 1/3 on a line, rows of sum 1, z = (-1, 0, 1)."""
    sites = np.array([[0.0, 0.0], [1.0, 0.0], [3.0, 0.0]])
    w = su.spatial_weights(sites)
    by_hand = [[0, 3 / 4, 1 / 4], [2 / 3, 0, 1 / 3], [2 / 5, 3 / 5, 0]]
    np.testing.assert_allclose(w, by_hand, rtol=EXACT)
    # (3 / 3) * (-1/4 - 2/5) / 2
    assert su.morans_i(np.array([1.0, 2.0, 3.0]), w) == pytest.approx(-0.325, rel=EXACT)


def test_the_k_nearest_are_those_of_libpysal():
    try:
        from libpysal.weights import KNN
    except ImportError:
        leave_out("libpysal is missing")
    sites = np.random.default_rng(1).normal(size=(40, 2))
    other = KNN.from_array(sites, k=4)
    other.transform = "r"
    np.testing.assert_allclose(su.spatial_weights(sites, 4), other.full()[0], atol=EXACT)


def test_neighbours_that_tie_share_what_is_left():
    sites = np.array([[0.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [0.0, 0.5], [0.0, -1.0]])
    row = su.spatial_weights(sites, 2)[0]
    np.testing.assert_allclose(row, [0, 1 / 6, 1 / 6, 1 / 2, 1 / 6], rtol=EXACT)


def test_weights_do_not_depend_on_the_order_of_the_records():
    _, _, sites, _ = scene()
    turn = np.random.default_rng(0).permutation(len(sites))
    w = su.spatial_weights(sites, 5)
    np.testing.assert_allclose(su.spatial_weights(sites[turn], 5), w[np.ix_(turn, turn)])


def test_what_has_no_morans_i_is_refused():
    _, y, sites, _ = scene()
    with pytest.raises(InputError, match="number of neighbours"):
        su.spatial_weights(sites)
    for k in (0, len(y)):
        with pytest.raises(InputError, match="from 1 to 59"):
            su.spatial_weights(sites, k)
    with pytest.raises(InputError, match="vary"):
        su.morans_i(np.full(60, -3.3), su.spatial_weights(sites, 3))


def test_a_gls_analyst_is_covered_and_a_least_squares_analyst_is_not():
    """Copies at known parameters, every value replaced, an analyst who knows V.

    The covariate is spatial itself, which is where least squares fails. 400 data
    sets of 60 records, L = 5.
    """
    replicates, copies, n, truth = 400, 5, 60, np.array([1.0, 0.5])
    rng = np.random.default_rng(17)
    sites = rng.uniform(size=(n, 2))
    R = np.exp(-4.0 * cdist(sites, sites))
    root = np.linalg.cholesky(R)
    X = np.column_stack([np.ones(n), root @ rng.normal(size=n)])
    tau_sq = 0.25
    V = R + tau_sq * np.eye(n)
    solve = np.linalg.inv(V)
    cov = np.linalg.inv(X.T @ solve @ X)
    beta_root = np.linalg.cholesky(cov)
    w_root = np.linalg.cholesky(R - R @ solve @ R)
    results = {"gls": ([], []), "ols": ([], [])}
    for _ in range(replicates):
        y = X @ truth + root @ rng.normal(size=n) + np.sqrt(tau_sq) * rng.normal(size=n)
        for _ in range(copies):
            beta = cov @ X.T @ solve @ y + beta_root @ rng.normal(size=2)
            w = R @ solve @ (y - X @ beta) + w_root @ rng.normal(size=n)
            copy = X @ beta + w + np.sqrt(tau_sq) * rng.normal(size=n)
            q, u = su.gls(X, copy, V)
            results["gls"][0].append(q)
            results["gls"][1].append(np.diag(u))
            for kept, value in zip(results["ols"], ols(X, copy), strict=True):
                kept.append(value)
    coverage = {}
    for name, (q, u) in results.items():
        shape = (replicates, copies, 2)
        by_copy = [np.reshape(v, shape).transpose(1, 0, 2).reshape(copies, -1) for v in (q, u)]
        pooled = combine(*by_copy)
        inside = (pooled.low <= np.tile(truth, replicates)) & (
            np.tile(truth, replicates) <= pooled.high
        )
        coverage[name] = inside.reshape(replicates, 2).mean(axis=0)
    error = np.sqrt(0.95 * 0.05 / replicates)
    limit = z_limit(4) * error
    assert np.all(np.abs(coverage["gls"] - 0.95) < limit), coverage
    assert np.all(coverage["ols"] < 0.95 - limit), coverage


@pytest.fixture(scope="module")
def release(kept):
    """Three copies of the restricted fit."""
    return ds.synthesise(kept, 3, seed=21)


def with_values(release, values):
    """The same release with other copies, none to compare with."""
    fit = dataclasses.replace(release.fit, start=None)
    return dataclasses.replace(release, fit=fit, values=np.asarray(values))


COVARIANCE = (1.5, 0.2, 4.0)


def test_spatial_regression_pools_gls_of_each_copy(release):
    found = su.spatial_regression(release, covariance=COVARIANCE)
    p = release.problem
    V = 1.5 * np.exp(-4.0 * cdist(p.sites, p.sites)) + 0.2 * np.eye(p.n_records)
    fits = [su.gls(p.X, y, V) for y in release.modelled()]
    expected = combine([f[0] for f in fits], [np.diag(f[1]) for f in fits])
    row = found.get("restricted", "x")
    np.testing.assert_allclose(
        [row["estimate"], row["low"], row["high"]],
        [expected.estimate[1], expected.low[1], expected.high[1]],
        rtol=AFTER_SOLVE,
    )
    assert list(found.table["source"].unique()) == ["original", "unrestricted", "restricted"]
    assert " ".join(str(found).split()).endswith(su.SMOOTHING_BIAS)


def test_spatial_regression_estimates_the_covariance_of_each_table(release):
    found = su.spatial_regression(release)
    p = release.problem
    best = estimators._maximise(p.X, p.y, p.sites)[0]
    row = found.get("original", "x")
    half = norm.ppf(0.975) * np.sqrt(best.cov[1, 1])
    np.testing.assert_allclose(
        [row["estimate"], row["low"]], [best.beta[1], best.beta[1] - half], rtol=AFTER_SOLVE
    )
    assert not found.table.isna().to_numpy().any()


def test_conley_regression_pools_conleys_covariance(release):
    found = su.conley_regression(release, 0.3)
    p = release.problem
    again = pool(release, lambda t: su.conley(p.X, np.log(t["value"].to_numpy()), p.sites, 0.3))
    np.testing.assert_allclose(found.table["low"], again.table["low"], rtol=AFTER_SOLVE)


def test_variograms_of_the_original_and_of_the_copies_stand_side_by_side(release):
    found = su.compare_variograms(release, bins=6)
    p = release.problem
    edges = np.linspace(0, p.d_max / 2, 7)
    residual = p.y - p.X @ ols(p.X, p.y)[0]
    expected = su.variogram(residual, p.sites, edges)
    t = found.table[found.table["source"] == "original"]
    np.testing.assert_allclose(t["gamma"], expected["gamma"], rtol=EXACT)
    assert np.all(found.table["smallest"] <= found.table["gamma"])
    assert np.all(found.table["gamma"] <= found.table["largest"])
    sigma_sq, tau_sq, phi = found.curves["original"]
    np.testing.assert_allclose(
        t["curve"], tau_sq + sigma_sq * (1 - np.exp(-phi * t["distance"])), rtol=EXACT
    )
    assert su.SMOOTHING_BIAS in str(found)


def test_morans_i_of_the_original_and_of_the_copies_stand_side_by_side(release):
    found = su.compare_morans_i(release, neighbours=5).table.set_index("source")
    p = release.problem
    residuals = [y - p.X @ ols(p.X, y)[0] for y in release.modelled()]
    values = [su.morans_i(r, su.spatial_weights(p.sites, 5)) for r in residuals]
    row = found.loc["restricted"]
    np.testing.assert_allclose(
        [row["morans_i"], row["smallest"], row["largest"]],
        [np.mean(values), min(values), max(values)],
        rtol=AFTER_SOLVE,
    )


def test_parameters_are_recovered_and_combined_on_the_log_scale(release):
    found = su.recover_parameters(release).table
    p = release.problem
    best = [estimators._maximise(p.X, y, p.sites)[0] for y in release.modelled()]
    rows = found[found["source"] == "restricted"].set_index("parameter")
    for name in su.PARAMETERS:
        mean = np.exp(np.mean(np.log([getattr(b, name) for b in best])))
        assert rows.loc[name, "estimate"] == pytest.approx(mean, rel=AFTER_SOLVE)
    assert np.all(found["low"] <= found["estimate"])
    assert np.all(found["estimate"] <= found["high"])
    assert not found.isna().to_numpy().any()


def test_the_information_agrees_with_second_differences_of_the_exact_density():
    X, y, sites, _ = scene(n=120, seed=4)
    best, surface = estimators._maximise(X, y, sites)
    loss = minus_log_density(X, y, sites)
    centre = np.log([best.sigma_sq, best.tau_sq, best.phi])
    h, e = 0.02, np.eye(3)
    hessian = [
        [
            sum(s * t * loss(centre + h * (s * e[i] + t * e[j])) for s in (1, -1) for t in (1, -1))
            / (4 * h * h)
            for j in range(3)
        ]
        for i in range(3)
    ]
    expected = np.diag(np.linalg.inv(hessian))
    # The interpolation error has second derivatives of about 1e-3.
    np.testing.assert_allclose(estimators._log_variances(surface, best), expected, rtol=0.02)


def test_copies_that_say_nothing_about_space_give_an_unbounded_interval(release):
    rng = np.random.default_rng(2)
    noise = np.exp(rng.normal(5, 1, release.values.shape))
    found = su.recover_parameters(with_values(release, noise)).table
    rows = found[found["source"] == "restricted"]
    assert np.all(rows["uninformative"] > 0)
    assert np.all(rows["low"] == 0)
    assert np.all(rows["high"] == np.inf)
    assert np.all(np.isfinite(rows["estimate"]))


@pytest.mark.parametrize("covariance", [COVARIANCE, None])
def test_copies_equal_to_the_original_give_its_surface(release, covariance):
    same = with_values(release, [release.problem.original()] * 2)
    row = compare_surfaces(same, covariance=covariance, cells=12).table.iloc[0]
    assert row["correlation"] == pytest.approx(1.0, abs=EXACT)
    assert row["rmse"] == pytest.approx(0.0, abs=EXACT)


def test_surfaces_of_copies_are_compared_with_the_originals(release):
    found = compare_surfaces(release, covariance=COVARIANCE, cells=12).table
    assert list(found["source"]) == ["unrestricted", "restricted"]
    assert np.all(np.abs(found["correlation"]) <= 1)
    assert np.all(found["rmse_of_mean"] <= found["rmse"])


def test_the_surface_at_a_record_is_its_kriging_prediction(release):
    """At the sites and with a tiny nugget the surface passes through the data."""
    p = release.problem
    data = su._data(release, None)
    y = np.sin(3 * p.sites[:, 0]) - p.sites[:, 1]  # one value a site
    surface = surfaces._predicted(data, y, (1.0, 1e-9, 2.0), p.sites)
    beta, _ = su.gls(p.X, y, _covariance(Pairs(cdist(p.sites, p.sites)), (1.0, 1e-9, 2.0)))
    np.testing.assert_allclose(surface, y + (p.X.mean(axis=0) - p.X) @ beta, atol=1e-5)


def test_a_flat_surface_has_correlation_zero(release):
    constant = with_values(release, np.full_like(release.values, 3.0))
    row = compare_surfaces(constant, covariance=COVARIANCE, cells=8).table.iloc[0]
    assert (row["correlation"], row["correlation_of_mean"]) == (0.0, 0.0)
    assert np.isfinite(row["rmse"])


def test_constant_copies_give_numbers_or_a_refusal(release):
    constant = with_values(release, np.full_like(release.values, 3.0))
    found = su.compare_variograms(constant)
    rows = found.table[found.table["source"] == "restricted"]
    assert np.all(rows[["gamma", "curve"]] == 0)
    row = su.spatial_regression(constant, covariance=COVARIANCE).get("restricted", "x")
    assert row["estimate"] == pytest.approx(0.0, abs=EXACT)
    for refused in (su.compare_morans_i, su.recover_parameters, su.spatial_regression):
        with pytest.raises(InputError, match="no residual"):
            refused(constant)


def test_one_copy_is_refused_where_copies_are_combined_and_shown_elsewhere(kept):
    one = ds.synthesise(kept, 1, seed=1)
    for refused in (
        su.spatial_regression,
        su.recover_parameters,
        lambda r: su.conley_regression(r, 0.3),
    ):
        with pytest.raises(InputError, match="at least two copies"):
            refused(one)
    for shown in (su.compare_variograms, su.compare_morans_i):
        assert not shown(one).table.isna().to_numpy().any()


def test_two_copies_that_vary_much_warn(release):
    values = release.values[:2].copy()
    values[1] *= np.exp(5.0)
    with pytest.warns(DsstanWarning, match="two copies"):
        su.spatial_regression(with_values(release, values), covariance=COVARIANCE)


@pytest.mark.parametrize(
    "covariance", [(-1.0, 1.0, 1.0), (1.0, 1.0, 0.0), (1.0, np.inf, 1.0), (1.0, np.nan, 1.0)]
)
def test_an_impossible_covariance_is_refused(release, covariance):
    with pytest.raises(InputError, match="covariance needs"):
        su.spatial_regression(release, covariance=covariance)


def test_bins_that_hold_nothing_are_refused(release):
    for given, match in (({"bins": 0}, "bins"), ({"longest": -1.0}, "longest")):
        with pytest.raises(InputError, match=match):
            su.compare_variograms(release, **given)
