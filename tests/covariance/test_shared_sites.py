"""Records that share a site, as one row: exact under Vecchia's approximation too."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from vecchia_tables import LAYOUTS, linear_law, problem_on

from dsstan.covariance.approximations import EXACT, Vecchia
from dsstan.covariance.base import Parameters, SpatialModel
from dsstan.covariance.latent import LatentModel
from dsstan.covariance.surface_statistics import node_statistics, smoothed_correlation
from dsstan.covariance.vecchia.statistics import VecchiaStatistics

N = 200
P = Parameters(np.array([11.0, 0.5]), 4.0, 0.04, 12.7)


@pytest.fixture(scope="module")
def towers():
    return problem_on(LAYOUTS["towers, small nugget"], N, seed=1)


def model_on(problem, protection, smoothed):
    """A model in which some records are smoothed: whole sites, some of a site, or each its own."""
    a, rng = np.ones(problem.n_records), np.random.default_rng(2)
    if smoothed == "whole sites":
        a[problem.site_index < 9] = 0.0
    elif smoothed == "some of a site":
        a[rng.permutation(N)[:30]] = 0.0
    elif smoothed == "each its own":
        a = np.minimum(rng.uniform(0.2, 1.2, N), 1.0)
    return SpatialModel(problem=problem, A=a, protection=protection, covariance=Vecchia(N))


SETTINGS = [
    (protection, smoothed)
    for protection in ("paper", "preserving", "cut")
    for smoothed in ("nobody", "whole sites", "some of a site", "each its own")
]


@pytest.mark.parametrize(("protection", "smoothed"), SETTINGS)
@pytest.mark.parametrize("cov_model", ["exponential", "matern52"])
def test_statistics_are_those_of_all_records(towers, protection, smoothed, cov_model):
    model = model_on(towers, protection, smoothed)
    rows = model.informing
    source = VecchiaStatistics.of_model(model.model_with(cov_model=cov_model), N, "maxmin")
    r, d = np.array([1e-3, 0.1, 2.0]), cdist(towers.sites[rows], towers.sites[rows])
    for phi in (3.0, 40.0):
        M = smoothed_correlation(d, phi, model.A[rows], protection, cov_model)
        want = node_statistics(M, source.rotation.Z, r)
        np.testing.assert_allclose(
            source.sums(np.array([phi]), r)[0], want, rtol=1e-8, atol=1e-8 * np.abs(want).max()
        )


@pytest.mark.parametrize(("protection", "smoothed"), SETTINGS)
def test_draws_of_the_effect_are_those_of_all_records(towers, protection, smoothed):
    model = model_on(towers, protection, smoothed)
    exact = LatentModel(model.model_with(covariance=EXACT))
    mean, root = linear_law(model.covariance.latent(model, P), P)
    np.testing.assert_allclose(mean, exact.mean(P), atol=1e-6)
    np.testing.assert_allclose(root @ root.T, exact.covariance(P), atol=1e-6)


def test_a_table_has_as_many_rows_as_sites(towers):
    model = model_on(towers, "paper", "nobody")
    assert len(VecchiaStatistics.of_model(model, 15, "maxmin").sites) == 60
    assert model.covariance.latent(model, P).rows.size == 60
