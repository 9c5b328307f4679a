"""What analysts estimate from many records: given neighbours, held against all pairs."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import cdist

import dsstan as ds
from conftest import small_table
from dsstan.analysis import spatial_estimators as estimators
from dsstan.analysis import spatial_regression as regressions
from dsstan.analysis import spatial_statistics as statistics
from dsstan.analysis import spatial_surfaces as surfaces
from dsstan.analysis import spatial_utility as su
from dsstan.comparison import baselines, simple_methods
from dsstan.core.errors import InputError
from dsstan.covariance.approximations import Vecchia
from dsstan.covariance.vecchia.kriging import krige
from dsstan.covariance.vecchia.neighbours import Neighbours

COVARIANCE = (1.5, 0.2, 4.0)
TOLERANCES = (1e-6, 1e-2, 2e-2, 2e-2, 1e-12)


@pytest.fixture(scope="module")
def data():
    """120 records in two clusters and a far one, some at one site."""
    problem = ds.prepare(small_table(120), "log(value) ~ x", coords=("east", "north"))
    return problem.X, problem.y, problem.sites


@pytest.fixture(scope="module")
def release():
    """Three copies of 60 records."""
    problem = ds.prepare(small_table(60), "log(value) ~ x", coords=("east", "north"))
    free = ds.fit(problem, seed=1, warmup=300, samples=200, progress=False)
    return ds.synthesise(free, 3, seed=2, accept_failed=True, accept_few_draws=True)


@pytest.fixture
def many(monkeypatch):
    """A few records count as many, and every one is given all that come before it."""
    for module in (estimators, su):
        monkeypatch.setattr(module, "EXACT_LIMIT", 50)
    monkeypatch.setattr(estimators, "Vecchia", lambda: Vecchia(59))


def covariance_at(sites):
    """V at COVARIANCE."""
    sigma_sq, tau_sq, phi = COVARIANCE
    return sigma_sq * np.exp(-phi * cdist(sites, sites)) + tau_sq * np.eye(len(sites))


def test_up_to_the_limit_all_pairs_are_used(data):
    assert estimators.near_for(data[2]) is None
    assert estimators.near_for(np.zeros((2001, 2))) is not None


def test_coefficients_given_all_neighbours_are_those_of_generalised_least_squares(data):
    X, y, sites = data
    V = covariance_at(sites)
    wanted = su.gls(X, y, V)
    found = regressions.near_gls(X, y, sites, Neighbours.of(sites, 119), COVARIANCE, "exponential")
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-8)


def test_with_fifteen_neighbours_they_are_within_a_twentieth_of_a_standard_error(data):
    X, y, sites = data
    V = covariance_at(sites)
    beta, cov = su.gls(X, y, V)
    found, about = regressions.near_gls(
        X, y, sites, Neighbours.of(sites, 15), COVARIANCE, "exponential"
    )
    sd = np.sqrt(np.diag(cov))
    assert np.all(np.abs(found - beta) < 0.05 * sd)
    np.testing.assert_allclose(np.sqrt(np.diag(about)), sd, rtol=0.05)


def test_maximum_likelihood_given_all_neighbours_is_the_exact_one(data):
    exact = estimators._maximise(*data)[0]
    found = estimators._maximise(*data, near=Neighbours.of(data[2], 119))[0]
    for name in exact._fields:
        np.testing.assert_allclose(getattr(found, name), getattr(exact, name), rtol=1e-3)


def test_a_place_is_predicted_from_the_records_around_it(data):
    X, y, sites = data
    sigma_sq, tau_sq, phi = COVARIANCE
    rest = y - X @ np.linalg.lstsq(X, y, rcond=None)[0]
    places = np.random.default_rng(0).uniform(size=(50, 2))
    wanted = (
        sigma_sq * np.exp(-phi * cdist(places, sites)) @ np.linalg.solve(covariance_at(sites), rest)
    )
    law = {"phi": phi, "r": tau_sq / sigma_sq, "code": 1}
    whole = krige(places, sites, rest, **law, around=120)
    np.testing.assert_allclose(whole, wanted, atol=1e-10)
    some = krige(places, sites, rest, **law)
    assert np.sqrt(np.mean((some - wanted) ** 2)) < 0.02 * np.std(wanted)


def test_many_records_at_a_site_do_not_hide_the_others():
    rng = np.random.default_rng(5)
    sites = np.repeat(rng.uniform(size=(40, 2)), 70, axis=0)
    own, r, phi = np.where(rng.uniform(size=len(sites)) < 0.5, 1.0, 0.7), 1.0, 2.0
    R = np.exp(-phi * cdist(sites, sites))
    V = R + np.diag(own - 1.0 + r)
    values, places = np.linalg.cholesky(V) @ rng.normal(size=len(sites)), rng.uniform(size=(30, 2))
    wanted = np.exp(-phi * cdist(places, sites)) @ np.linalg.solve(V, values)
    found = krige(places, sites, values, phi=phi, r=r, code=1, own=own)
    np.testing.assert_allclose(found, wanted, atol=1e-8)


def test_the_information_stays_within_a_narrow_surface(data):
    X, y, sites = data
    near = Neighbours.of(sites, 15)
    best = estimators._maximise(X, y, sites, near=near)[0]
    r = best.tau_sq / best.sigma_sq
    wide = estimators._maximise(X, y, sites, (0.1, 100.0), near=near)
    wanted = estimators._log_variances(wide[1], wide[0])
    for low in (1.02, 1.035):
        ranges = (best.phi / low, 60.0), (1e-4, 1e4)
        again, surface = estimators._maximise(X, y, sites, *ranges, near=near)
        assert again.phi == pytest.approx(best.phi, rel=1e-3)
        assert again.tau_sq / again.sigma_sq == pytest.approx(r, rel=1e-2)
        found = estimators._log_variances(surface, again, ranges)
        # At the nearer end the maximum leans on it.
        np.testing.assert_allclose(found, np.inf if low == 1.02 else wanted, rtol=0.05)


def test_no_place_has_an_empty_order():
    found = Neighbours.of(np.empty((0, 2)), 15)
    assert (found.order.shape, found.earlier.shape) == ((0,), (0, 15))


@pytest.mark.parametrize("k", [1, 4, 7])
@pytest.mark.parametrize("ties", [False, True])
def test_nearest_weights_are_the_spatial_weights(data, k, ties):
    # On a grid nearly every k-th neighbour is tied; records also share sites.
    sites = np.round(data[2], 1) if ties else data[2]
    found = statistics.nearest_weights(sites, k)
    wanted = statistics.spatial_weights(sites, k)
    np.testing.assert_allclose(found.toarray(), wanted, atol=1e-14)
    values = data[1]
    assert statistics.morans_i(values, found) == pytest.approx(statistics.morans_i(values, wanted))
    with pytest.raises(InputError, match="neighbours must lie from 1 to 119"):
        statistics.nearest_weights(sites, 120)


def test_conleys_sum_is_the_same_in_pieces(data, monkeypatch):
    X, y, sites = data
    whole = estimators.conley(X, y, sites, 0.3)[1]
    monkeypatch.setattr(estimators, "_PAIRS", 4000)  # ten records at a time
    np.testing.assert_allclose(estimators.conley(X, y, sites, 0.3)[1], whole, rtol=1e-12)


def test_a_release_of_many_records_is_analysed_like_one_of_few(release, monkeypatch, many):
    def analyses():
        return [
            su.spatial_regression(release, covariance=COVARIANCE).table,
            su.spatial_regression(release).table,
            su.recover_parameters(release).table,
            surfaces.compare_surfaces(release, covariance=COVARIANCE, cells=8).table,
            su.compare_morans_i(release).table,
        ]

    near = analyses()
    monkeypatch.setattr(estimators, "EXACT_LIMIT", 2000)
    monkeypatch.setattr(su, "EXACT_LIMIT", 2000)
    for found, wanted, tolerance in zip(near, analyses(), TOLERANCES, strict=True):
        words, numbers = wanted.select_dtypes(exclude="number"), wanted.select_dtypes("number")
        assert found[words.columns].equals(words)
        np.testing.assert_allclose(found[numbers.columns], numbers, rtol=tolerance, atol=1e-3)


def test_many_records_say_what_they_leave_out(release, many):
    found = su.compare_variograms(release)
    assert found.title == "Semivariogram, pairs of 50 of 60 records"
    assert found.table["pairs"].sum() <= 3 * 50 * 49 / 2
    with pytest.raises(InputError, match="inverse distances of 60 records are too many"):
        su.compare_morans_i(release, neighbours=None)
    with pytest.raises(InputError, match="covariance needs variances above 0"):
        su.spatial_regression(release, covariance=(1.0, 0.0, 3.0))


@pytest.mark.parametrize("areas", [False, True])
def test_the_effect_of_other_methods_is_the_one_of_all_pairs(release, areas, monkeypatch):
    problem, free = release.problem, release.fit
    shown = (
        baselines.aggregate(problem, 0.05, minimum=1) if areas else baselines.smooth(problem, 0.02)
    )
    wanted = baselines._effect(free, shown)
    monkeypatch.setattr(estimators, "EXACT_LIMIT", 10)
    monkeypatch.setattr(estimators, "Vecchia", lambda: Vecchia(59))
    np.testing.assert_allclose(baselines._effect(free, shown), wanted, atol=1e-8)


def test_smoothing_is_the_same_some_records_at_a_time(release, monkeypatch):
    whole = baselines.smooth(release.problem, 0.2)
    monkeypatch.setattr(simple_methods, "_ROWS", 7)
    np.testing.assert_allclose(baselines.smooth(release.problem, 0.2).values, whole.values)


def test_no_matrix_of_all_pairs_is_made(release, many, monkeypatch):
    """Every analysis of many records, with the functions that make such a matrix taken away."""

    def refused(*_, **__):
        raise AssertionError("a matrix of all pairs")

    monkeypatch.setattr(estimators, "Vecchia", Vecchia)
    for module in (estimators, regressions, su, surfaces, statistics):
        if hasattr(module, "cdist"):
            monkeypatch.setattr(module, "cdist", refused)
    su.spatial_regression(release, covariance=COVARIANCE)
    su.conley_regression(release, 0.3)
    su.recover_parameters(release)
    su.compare_morans_i(release)
    su.compare_variograms(release)
    surfaces.compare_surfaces(release, cells=8)
    surfaces.predicted_surface(release.fit, release.problem.y, COVARIANCE, cells=8)
