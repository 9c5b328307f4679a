"""The penalised-complexity prior of the decay: its numbers, its law, what is refused."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import integrate, stats
from scipy.spatial.distance import cdist

import dsstan as ds
from conftest import scalars
from dsstan.core.errors import InputError
from dsstan.covariance.correlation import (
    CORRELATIONS,
    correlation_distance,
    decay_quantile,
    decay_rate,
    decay_share,
    log_decay_mass,
)
from dsstan.models.heaps.fit import fit_heaped
from dsstan.models.priors import Priors
from mc import assert_same_posterior

PENALISED = Priors(decay="penalised-complexity")
ROUNDED = 0.002
"""The exponential correlation takes 3 for -log(0.05) = 2.996."""


def resolved(small, priors, cov_model="exponential"):
    return priors.resolve(small.y, small.X, small.d_max, cov_model=cov_model)


@pytest.mark.parametrize("cov_model", CORRELATIONS)
def test_a_short_range_has_the_chance_that_was_asked_for(small, cov_model):
    for short, chance in ((small.d_max / 20, 0.05), (0.3, 0.01), (2.0, 0.6)):
        law = stats.expon(scale=1 / decay_rate(short, chance, cov_model))
        at = correlation_distance(0.05, 1.0, cov_model) / short  # phi at which the range is short
        assert law.sf(at) == pytest.approx(chance, rel=ROUNDED * -np.log(chance) + 1e-12)
    default = resolved(small, PENALISED, cov_model)
    assert default.phi_rate == decay_rate(small.d_max / 20, 0.05, cov_model)
    uniform = resolved(small, Priors(), cov_model)
    assert uniform.phi_rate == 0.0
    assert default.phi_bounds == (uniform.phi_bounds[0] / 10, uniform.phi_bounds[1])
    assert replace(default, phi_rate=0.0, phi_bounds=uniform.phi_bounds) == uniform


def test_a_stated_range_of_the_decay_is_kept():
    rng = np.random.default_rng(1)
    y, X = rng.normal(size=20), np.ones((20, 1))
    assert replace(PENALISED, phi_bounds=(2.0, 9.0)).resolve(y, X, 1.0).phi_bounds == (2.0, 9.0)


@pytest.mark.parametrize("rate", [0.0, 1e-6, 0.3, 4.0])
def test_the_law_of_the_decay_is_the_integral_of_its_density(rate):
    bounds = 0.5, 30.0

    def upto(end):
        return integrate.quad(lambda x: np.exp(-rate * x), bounds[0], end, epsabs=0)[0]

    assert log_decay_mass(bounds, rate) == pytest.approx(np.log(upto(bounds[1])), rel=1e-9)
    phi = np.array([0.5, 0.9, 3.0, 30.0])
    share = decay_share(phi, bounds, rate)
    np.testing.assert_allclose(share, [upto(x) / upto(bounds[1]) for x in phi], atol=1e-9)
    np.testing.assert_allclose(decay_quantile(share[:3], bounds, rate), phi[:3], rtol=1e-9)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (Priors(decay="exponential"), "decay must be uniform or penalised-complexity, got"),
        (Priors(short_range=(1.0, 0.05)), "short_range belongs to decay="),
        *[
            (replace(PENALISED, short_range=pair), r"short_range must be \(range, chance\)")
            for pair in ((0.0, 0.05), (1.0, 0.0), (1.0, 1.0), (np.inf, 0.05), ("1", 0.05))
        ],
        *[
            (replace(PENALISED, short_range=wrong), r"short_range must be \(range, chance\)")
            for wrong in ((1.0,), (1.0, 0.1, 0.1), 1.0)
        ],
    ],
)
def test_what_is_no_prior_of_the_decay_is_refused(small, asked, said):
    with pytest.raises(InputError, match=said):
        ds.fit(small, priors=asked, progress=False)


def test_who_is_in_a_heap_has_a_uniform_decay(small):
    with pytest.raises(InputError, match="in a model of counts the decay has a uniform prior"):
        fit_heaped(replace(small, heap=0.0), priors=PENALISED, progress=False)


def test_a_fit_that_was_kept_without_the_setting_is_uniform(free):
    old = copy.deepcopy(free.priors), copy.deepcopy(free.prior_settings)
    del old[0].__dict__["phi_rate"], old[1].__dict__["decay"], old[1].__dict__["short_range"]
    numbers, asked = pickle.loads(pickle.dumps(old))
    assert numbers == free.priors
    assert asked == free.prior_settings
    assert numbers.phi_rate == 0.0


@pytest.mark.parametrize("cov_model", ["exponential", "matern52"])
def test_vecchias_box_is_found_under_a_prior_that_pulls(cov_model):
    """The likelihood's own box would leave out what a strong prior makes likely."""
    rng = np.random.default_rng(7)
    sites = rng.uniform(size=(150, 2))
    d = cdist(sites, sites)
    root = np.linalg.cholesky(np.exp(-3.0 / (0.2 * d.max()) * d) + 0.5 * np.eye(150))
    columns = {"a": sites[:, 0], "b": sites[:, 1], "y": 1.0 + root @ rng.standard_normal(150)}
    problem = ds.prepare(pd.DataFrame(columns), "y ~ 1", coords=("a", "b"))
    pulled = replace(PENALISED, short_range=(d.max(), 0.05))
    how = {"engine": "direct", "cov_model": cov_model, "progress": False}
    exact = ds.fit(problem, priors=pulled, covariance="exact", seed=1, **how)
    near = ds.fit(problem, priors=pulled, covariance="vecchia", seed=2, **how)
    free = ds.fit(problem, seed=3, **how)
    assert near.verdict.passed, str(near.verdict)
    assert np.median(exact.draws["phi"]) < 0.5 * np.median(free.draws["phi"])
    assert_same_posterior(scalars(exact), scalars(near))
