"""The effect at sites as a Vecchia process: given data, tabulated, and corrected to the exact."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from scipy.stats import multivariate_normal

from dsstan.covariance.correlation import CORRELATIONS, correlation
from dsstan.covariance.vecchia.neighbours import Neighbours
from dsstan.covariance.vecchia.site_process import (
    LEAST,
    ExactCorrection,
    SiteProcess,
    is_near,
)

ROUNDING = 1e-8
NEAR = {"exponential": 0.05, "matern32": 0.15, "matern52": 0.5}
"""How far eigenvalues of the whitened precision may be from 1, about twice what was measured."""
LOG_PHI, SIGMA_SQ = np.log(5.0), 0.7


def process_of(cov_model: str = "exponential", n: int = 90, m: int = 12) -> SiteProcess:
    sites = np.random.default_rng(4).uniform(size=(n, 2))
    return SiteProcess(sites, Neighbours.of(sites, m), cov_model)


def dense(of, n: int) -> np.ndarray:
    """A linear map as a matrix."""
    return np.column_stack([of(unit) for unit in np.eye(n)])


def test_colour_and_whiten_are_inverses_and_their_product_is_the_covariance():
    process = process_of(m=89)
    assert process.complete
    weights = process.weights(LOG_PHI)
    root = dense(lambda z: process.colour(weights, z), 90)
    R = correlation(cdist(process.sites, process.sites), 5.0)
    np.testing.assert_allclose(root @ root.T, R, atol=ROUNDING)
    inverse = dense(lambda w: process.whiten(weights, w), 90)
    np.testing.assert_allclose(inverse @ root, np.eye(90), atol=ROUNDING)
    back = dense(lambda g: process.colour_transposed(weights, g), 90)
    np.testing.assert_allclose(back, root.T, atol=ROUNDING)
    precision = dense(lambda w: process.precision_times(weights, w), 90)
    np.testing.assert_allclose(precision @ R, np.eye(90), atol=1e-6)


@pytest.mark.parametrize("cov_model", CORRELATIONS)
@pytest.mark.parametrize("level", [0.1, 5.0])
def test_given_data_the_process_is_nearly_the_exact_conditional(cov_model, level):
    process = process_of(cov_model)
    weights = process.weights(LOG_PHI)
    observed = level * np.random.default_rng(5).uniform(size=90)
    observed[:30] = 0.0
    given = process.given(weights, observed)
    root = dense(lambda z: process.colour(given, z), 90)
    precision = dense(lambda w: process.precision_times(weights, w), 90) + np.diag(observed)
    values = np.linalg.eigvalsh(root.T @ precision @ root)
    assert np.abs(values - 1.0).max() < NEAR[cov_model]


def test_without_data_the_process_stays_what_it_is():
    process = process_of("matern32")
    weights = process.weights(LOG_PHI)
    for before, after in zip(weights, process.given(weights, np.zeros(90)), strict=True):
        np.testing.assert_allclose(after, before, rtol=1e-6, atol=ROUNDING)


@pytest.mark.parametrize("cov_model", CORRELATIONS)
def test_tabulated_weights_are_the_weights(cov_model):
    process = process_of(cov_model)
    at = np.array([1.05, 1.62, 2.4])
    before = [process.weights(x) for x in at]
    process.tabulate(1.0, 2.5)
    w = process.colour(before[1], np.random.default_rng(6).standard_normal(90))
    for x, direct in zip(at, before, strict=True):
        table = process.weights(x)
        assert table[0] is not direct[0]
        np.testing.assert_allclose(process.whiten(table, w), process.whiten(direct, w), atol=1e-3)
        np.testing.assert_allclose(table[1], direct[1], rtol=1e-4)


@pytest.mark.parametrize("cov_model", CORRELATIONS)
@pytest.mark.parametrize("tabulated", [False, True])
def test_the_correction_is_the_difference_of_two_normal_log_densities(cov_model, tabulated):
    process = process_of(cov_model, m=4)
    if tabulated:
        process.tabulate(1.0, 2.5)
    correction = ExactCorrection(process, 1.0, 2.5)
    assert correction.error < 1e-5
    weights, rng = process.weights(LOG_PHI), np.random.default_rng(7)
    w = np.sqrt(SIGMA_SQ) * process.colour(weights, rng.standard_normal(90))
    R = correlation(cdist(process.sites, process.sites), 5.0, cov_model)
    own = -0.5 * np.sum(process.whiten(weights, w) ** 2) / SIGMA_SQ
    own -= 0.5 * np.sum(np.log(2.0 * np.pi * SIGMA_SQ * weights[1]))
    want = multivariate_normal(np.zeros(90), SIGMA_SQ * R).logpdf(w) - own
    assert abs(want) > 0.01
    assert correction(LOG_PHI, SIGMA_SQ, w) == pytest.approx(want, abs=1e-5)
    beyond = ExactCorrection(process, 1.0, 1.1)  # the log determinant is not interpolated there
    assert beyond(LOG_PHI, SIGMA_SQ, w) == pytest.approx(want, abs=1e-5)


def test_a_process_of_few_neighbours_is_near_for_a_rough_effect_and_not_for_a_smooth_one():
    assert is_near(process_of("exponential", m=20), LOG_PHI)
    assert not is_near(process_of("matern52", m=12), LOG_PHI)
    assert is_near(process_of("matern52", m=60), LOG_PHI)
    assert is_near(process_of("matern52", n=20, m=19), LOG_PHI)


def test_sites_that_are_all_but_the_same_keep_finite_weights():
    sites = np.random.default_rng(8).uniform(size=(30, 2))
    sites[1] = sites[0] + 1e-15
    process = SiteProcess(sites, Neighbours.of(sites, 5), "matern52")
    weights = process.weights(LOG_PHI)
    given = process.given(weights, np.ones(30))
    assert weights[1].min() == LEAST
    assert all(np.isfinite(part).all() for part in (*weights, *given))
    z = np.random.default_rng(9).standard_normal(30)
    back = process.whiten(given, process.colour(given, z))
    np.testing.assert_allclose(back, z, atol=1e-6)
