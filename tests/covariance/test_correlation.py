"""Correlation functions by name, and what a fit, a rule and a release make of them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from quadrature import model_of, posterior
from scipy import integrate, special
from scipy.spatial.distance import cdist

import dsstan as ds
import dsstan.analysis.spatial_utility as su
from conftest import scalars, small_table
from dsstan.analysis.spatial_surfaces import predicted_surface
from dsstan.comparison.baselines import _effect, _whole
from dsstan.core.errors import InputError
from dsstan.covariance.copy_law import copy_law
from dsstan.covariance.correlation import (
    CORRELATIONS,
    EFFECTIVE,
    correlation,
    correlation_distance,
    correlation_words,
    decay_bounds,
    dissimilarity,
)
from dsstan.covariance.eigenbasis import HeldBasis
from dsstan.covariance.latent import LatentModel
from dsstan.covariance.likelihood_surface import build_surface
from dsstan.models.effect_map import grid
from dsstan.models.flagging.continuous_weights import continuous_weights
from dsstan.models.posterior import parameters_at
from dsstan.models.weights import isolation_distance
from mc import QUANTILES, assert_same, estimates_of

MATERN = ("matern32", "matern52")
NU = {"exponential": 0.5, "matern32": 1.5, "matern52": 2.5}
ROUNDING = 1e-12
SOLVED = 1e-8
"""Relative, after linear systems of ill-conditioned matrices on both sides."""


def by_bessel(d, phi, name):
    """Matern's general formula; the package has the closed forms."""
    nu, u = NU[name], np.where(d == 0, 1.0, phi * d)
    value = 2 ** (1 - nu) / special.gamma(nu) * u**nu * special.kv(nu, u)
    return np.where(d == 0, 1.0, value)


@pytest.mark.parametrize("name", CORRELATIONS)
def test_each_is_matern_s_by_its_spectral_density(name):
    """In the plane the spectral density is proportional to (phi^2 + k^2)^-(nu + 1)."""
    nu, phi = NU[name], 2.0
    total = 2 * nu * phi ** (2 * nu)  # so that the integral at distance 0 is 1

    def spectral(k, d):
        return total * k * special.j0(k * d) * (phi**2 + k**2) ** -(nu + 1)

    for d in (0.0, 0.3, 1.1):
        value, error = integrate.quad(spectral, 0, 400, args=(d,), limit=4000)
        beyond = total * 400 ** (-2 * nu) / (2 * nu)
        assert abs(value - correlation(np.array(d), phi, name)) < 10 * error + 1.1 * beyond


@pytest.mark.parametrize("name", CORRELATIONS)
def test_dissimilarity_is_one_less_the_correlation_and_keeps_its_digits(name):
    d = np.array([0.0, 0.1, 1.0, 40.0])
    np.testing.assert_allclose(
        dissimilarity(d, 2.0, name), 1 - correlation(d, 2.0, name), atol=1e-15
    )
    # Near 0: u, u^2 / 2 and u^2 / 6, the first terms of their series.
    u = 1e-4
    first = {"exponential": u, "matern32": u**2 / 2, "matern52": u**2 / 6}[name]
    assert dissimilarity(np.array(u), 1.0, name) == pytest.approx(first, rel=2e-4)


@pytest.mark.parametrize("name", CORRELATIONS)
def test_default_decays_give_effective_ranges_from_d_max_to_a_hundredth(name):
    low, high = decay_bounds(7.0, name)
    assert high == pytest.approx(100 * low, rel=ROUNDING)
    reach = correlation_distance(EFFECTIVE, low, name)
    # The exponential keeps the customary 3 for -log 0.05 = 2.996.
    assert reach == pytest.approx(7.0, rel=2e-3 if name == "exponential" else ROUNDING)


def test_default_decays_of_the_exponential_are_what_they_were(small):
    assert decay_bounds(small.d_max) == (3.0 / small.d_max, 300.0 / small.d_max)


def test_an_unknown_function_is_refused_before_anything_runs(small):
    wrong = {"cov_model": "matern", "engine": "nowhere"}
    with pytest.raises(InputError, match="exponential, matern32, matern52, got 'matern'"):
        ds.fit(small, **wrong)
    with pytest.raises(InputError, match="cov_model must be one of"):
        ds.protect(small_table(), "log(value) ~ x", coords=("east", "north"), **wrong)


@pytest.fixture(scope="module", params=MATERN)
def matern_free(request, small):
    """An unrestricted fit with the function."""
    return ds.fit(small, cov_model=request.param, seed=31, engine="embedded", progress=False)


@pytest.fixture(scope="module")
def matern_kept(small, matern_free):
    """The restricted fit that starts from it."""
    weights = ds.flag_isolated(matern_free, distance=0.15)
    assert 1 <= weights.n_flagged < small.n_records / 4
    return ds.fit(
        small, weights=weights, start=matern_free, seed=32, engine="embedded", progress=False
    )


def test_a_restricted_fit_takes_the_function_of_its_start(matern_free, matern_kept):
    assert matern_kept.cov_model == matern_free.cov_model
    assert matern_free.verdict.passed
    assert matern_kept.verdict.passed
    low, high = matern_free.priors.phi_bounds
    assert (low, high) == decay_bounds(matern_free.problem.d_max, matern_free.cov_model)


def test_a_start_of_another_function_is_refused(small, matern_free, kept):
    with pytest.raises(InputError, match="start was fitted with"):
        ds.fit(small, weights=kept.weights, start=matern_free, cov_model="exponential")


def test_the_posterior_is_that_of_quadrature(small, matern_free):
    names = list(scalars(matern_free))
    answer = posterior(model_of(matern_free), record=0)
    want = {f"mean {n}": answer.mean(n) for n in names}
    want |= {f"q{1000 * p:.0f} {n}": answer.quantile(n, p) for n in names for p in QUANTILES}
    assert_same({k: v for k, v in estimates_of(scalars(matern_free)).items() if k in want}, want)


def test_the_comparison_with_quadrature_sees_another_function(small, matern_free, free):
    answer = posterior(model_of(matern_free), record=0)
    with pytest.raises(AssertionError):
        assert_same({"phi": estimates_of(scalars(free))["mean phi"]}, {"phi": answer.mean("phi")})


def test_the_rule_takes_the_distance_at_which_this_function_has_fallen_to_c(matern_free):
    phi = matern_free.draws["phi"].ravel()
    found = ds.flag_isolated(matern_free, correlation=0.5)
    name = matern_free.cov_model
    assert found.threshold == isolation_distance(0.5, float(np.median(phi)), name)
    at = by_bessel(np.array(found.threshold), np.median(phi), name)
    assert at == pytest.approx(0.5, rel=1e-10)
    # P(flag): the share of draws under which the correlation with the neighbour is at most c.
    share = np.mean([by_bessel(found.nearest, p, name) <= 0.5 for p in phi[::40]], axis=0)
    every = np.mean(
        [found.nearest >= correlation_distance(0.5, float(p), name) for p in phi], axis=0
    )
    np.testing.assert_allclose(found.probability, every, atol=1.5 / phi.size)
    np.testing.assert_allclose(share, every, atol=0.3)
    by_distance = ds.flag_isolated(matern_free, distance=found.threshold)
    assert by_distance.correlation == pytest.approx(0.5, rel=1e-10)


def test_continuous_weights_are_one_less_the_function(matern_free):
    weights, _ = continuous_weights(matern_free)
    phi = float(np.median(matern_free.draws["phi"]))
    want = 1 - by_bessel(weights.nearest, phi, matern_free.cov_model)
    np.testing.assert_allclose(weights.a, want, atol=1e-10)


def closed_form(fit, p):
    """Mean and covariance of w written out with the Bessel formula."""
    problem, A = fit.problem, fit.A
    d = cdist(problem.sites, problem.sites)
    K = p.sigma_sq * by_bessel(d, p.phi, fit.cov_model)
    V = A[:, None] * K * A + p.tau_sq * np.eye(len(A))
    KA = K * A
    mean = KA @ np.linalg.solve(V, problem.y - problem.X @ p.beta)
    return mean, K - KA @ np.linalg.solve(V, KA.T), K, V


def test_w_given_y_is_the_closed_form_at_records_and_elsewhere(matern_free, matern_kept):
    for fit in (matern_free, matern_kept):
        p = parameters_at(fit, 0, 7)
        mean, covariance, _, V = closed_form(fit, p)
        model = LatentModel(fit)
        scale = np.abs(mean).max()
        np.testing.assert_allclose(model.mean(p), mean, atol=SOLVED * scale)
        np.testing.assert_allclose(model.covariance(p), covariance, atol=SOLVED * p.sigma_sq)
        places = grid(fit, cells=5)
        across = p.sigma_sq * by_bessel(cdist(places, fit.problem.sites), p.phi, fit.cov_model)
        residual = fit.problem.y - fit.problem.X @ p.beta
        there = (across * fit.A) @ np.linalg.solve(V, residual)
        np.testing.assert_allclose(model.mean(p, places), there, atol=SOLVED * scale)


def test_the_attacker_s_two_ways_agree(matern_kept):
    p = parameters_at(matern_kept, 1, 3)
    terms = HeldBasis(matern_kept).terms(p)
    law = copy_law(LatentModel(matern_kept), p, np.ones(matern_kept.problem.n_records))
    np.testing.assert_allclose(terms.exposure, np.diag(law.H), atol=1e-7)


def test_spatial_utility_follows_the_function_of_the_fit(small, matern_free):
    name = matern_free.cov_model
    best = su.maximum_likelihood(small.X, small.y, small.sites, cov_model=name)
    V = best.sigma_sq * by_bessel(cdist(small.sites, small.sites), best.phi, name)
    V += best.tau_sq * np.eye(small.n_records)
    beta, cov = su.gls(small.X, small.y, V)
    np.testing.assert_allclose(best.beta, beta, rtol=1e-5)
    np.testing.assert_allclose(best.cov, cov, rtol=1e-4)
    release = ds.synthesise(matern_free, 3, seed=1, progress=False)
    given = (1.0, 0.2, 3.0 * decay_bounds(small.d_max, name)[0])
    found = su.spatial_regression(release, covariance=given)
    V = by_bessel(cdist(small.sites, small.sites), given[2], name) + 0.2 * np.eye(small.n_records)
    [copies] = (v for v in found.estimates.values() if len(v) == release.copies)
    for y, estimate in zip(release.modelled(), copies, strict=True):
        np.testing.assert_allclose(estimate, su.gls(small.X, y, V)[0], rtol=1e-8)
    # A predicted surface goes through kriging with the same function.
    places = grid(matern_free, cells=30)
    beta, _ = su.gls(small.X, small.y, V)
    across = by_bessel(cdist(places, small.sites), given[2], name)
    want = small.X.mean(axis=0) @ beta + across @ np.linalg.solve(V, small.y - small.X @ beta)
    np.testing.assert_allclose(predicted_surface(matern_free, small.y, given), want, rtol=1e-7)
    curves = su.compare_variograms(release).curves
    assert set(curves) == {"original", "unrestricted"}


def test_the_baselines_effect_follows_the_function_of_the_fit(small, matern_free):
    s2, t2, phi = (float(np.median(matern_free.draws[k])) for k in ("sigma_sq", "tau_sq", "phi"))
    name = matern_free.cov_model
    V = s2 * by_bessel(cdist(small.sites, small.sites), phi, name) + t2 * np.eye(small.n_records)
    beta, _ = su.gls(small.X, small.y, V)
    across = s2 * by_bessel(cdist(grid(matern_free, cells=30), small.sites), phi, name)
    want = across @ np.linalg.solve(V, small.y - small.X @ beta)
    got = _effect(matern_free, _whole(small, "original", small.table))
    np.testing.assert_allclose(got, want, atol=1e-7 * np.abs(want).max())


def test_a_variogram_of_the_function_is_recovered():
    h = np.linspace(0.02, 1.5, 15)
    for name in MATERN:
        gamma = 0.2 + 1.5 * (1 - by_bessel(h, 6.0, name))
        found = su.fit_variogram(h, gamma, np.arange(1, 16), (1.0, 100.0), name)
        np.testing.assert_allclose(found, (1.5, 0.2, 6.0), rtol=1e-5)


@pytest.mark.parametrize("protection", ["none", "paper", "preserving"])
@pytest.mark.parametrize("name", MATERN)
def test_the_surface_meets_its_tolerance_with_shared_sites(small, name, protection):
    """R of a smoother function is nearer to singular; coincident sites make it so. No jitter."""
    a = np.ones(small.n_records)
    if protection != "none":
        a[[0, 7, -1]] = 0.0, 0.5, 0.0
    assert small.n_sites < small.n_records
    surface = build_surface(
        cdist(small.sites, small.sites),
        small.X,
        small.y,
        a_diag=a,
        protection=protection,
        phi_bounds=decay_bounds(small.d_max, name),
        r_bounds=(1e-4, 1e4),
        cov_model=name,
    )
    assert surface.error < 1e-4


def test_a_release_with_matern_says_so(tmp_path):
    table = small_table()
    release = ds.protect(
        table,
        "log(value) ~ x",
        coords=("east", "north"),
        threshold=0.15,
        cov_model="matern52",
        copies=5,
        seed=3,
        engine="embedded",
        progress=False,
    )
    assert {f.cov_model for f in release.fits.values()} == {"matern52"}
    folder = release.write(tmp_path / "release")
    about = json.loads((folder / "public" / "metadata.json").read_text())
    words = f"Gaussian process, {correlation_words('matern52')} correlation"
    assert about["model"]["spatial_effect"] == words
    kept = json.loads((folder / "confidential" / "settings.json").read_text())
    assert {f["cov_model"] for f in kept["fits"].values()} == {"matern52"}
    assert words in (folder / "public" / "factsheet.html").read_text()
