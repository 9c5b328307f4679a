"""The partial sill integrated out, against Bessel's functions and numerical integrals."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import kve, logsumexp

from dsstan.models.priors import Priors
from dsstan.risk.intruder.scale_integral import ScalePrior, _log_integrals, log_sum_over_nodes

DEBYE = 2.0
"""Error of the expansion's log in w^-5: the first term left out is at most 0.6 w^-5."""


@pytest.mark.parametrize("order", [-0.5, 0.0, 0.5, 1.0, 3.5, 20.0, 100.0])
@pytest.mark.parametrize("product", [1.0, 30.0, 1e4])
def test_the_integral_is_bessels_function(order, product):
    c, big = 0.3, product / 0.3
    w = np.sqrt(order**2 + 4 * product)
    z = 2 * np.sqrt(product)
    want = np.log(2.0) - 0.5 * order * np.log(big / c) + np.log(kve(order, z)) - z
    found = _log_integrals(order, np.array([c]), np.array([big]))[0]
    assert found == pytest.approx(want, abs=DEBYE * w**-5 + 1e-12 * abs(want))


@pytest.mark.parametrize("variance", ["half-normal", "inverse-gamma"])
def test_it_integrates_the_likelihood_times_the_prior(variance):
    rng = np.random.default_rng(1)
    X = np.column_stack([np.ones(20), rng.normal(size=20)])
    priors = Priors(variance=variance).resolve(rng.normal(size=20), X, 1.0)
    degrees, q, log_r = 18, 25.0, np.array([-2.0, 0.5])

    def density(v, r):
        """Likelihood and prior of (log v, log r), by the roots' or the variances' own laws."""
        likelihood = v ** (-degrees / 2) * np.exp(-q / (2 * v))
        if variance == "half-normal":
            roots = np.sqrt(v), np.sqrt(r * v)
            laws = [np.exp(-0.5 * (x / p[0]) ** 2) * x for x, p in zip(roots, pair, strict=True)]
        else:
            laws = [
                x ** (-p[0] - 1) * np.exp(-p[1] / x) * x
                for x, p in zip((v, r * v), pair, strict=True)
            ]
        return likelihood * laws[0] * laws[1]

    pair = (priors.sigma, priors.tau)
    want = [np.log(quad(lambda u, r=r: density(np.exp(u), r), -8, 8)[0]) for r in np.exp(log_r)]
    prior = ScalePrior.at(priors, log_r)
    found = prior.integral(degrees, np.array([q, q])) + prior.log_constant
    assert np.diff(found)[0] == pytest.approx(np.diff(want)[0], abs=1e-5)


def test_nodes_that_are_left_out_are_negligible():
    rng = np.random.default_rng(2)
    nodes, x = 400, np.linspace(-5.0, 5.0, 41)
    base, rate = rng.normal(0, 30, nodes), np.exp(rng.normal(size=nodes))
    bend = np.exp(rng.normal(2, 2, nodes))
    peak = rng.uniform(-6, 6, (3, nodes))
    constant = 5.0 + bend * peak**2
    found = log_sum_over_nodes(base, rate, constant, -2 * bend * peak, bend, 6.0, x)
    big = constant[:, :, None] - 2 * (bend * peak)[:, :, None] * x + bend[:, None] * x**2
    each = _log_integrals(6.0, np.broadcast_to(rate[:, None], big.shape), big)
    assert found == pytest.approx(logsumexp(base[:, None] + each, axis=1), abs=1e-4)


def test_a_node_that_is_large_only_between_the_values_compared_is_not_left_out():
    x = np.linspace(-5.0, 5.0, 41)  # compared at -5, -10/3, ..., 5
    bend, peak = np.array([1e-3, 1e5]), np.array([0.0, 2.5])
    constant = 5.0 + bend * peak**2
    base = np.array([0.0, 5.0])
    rows = constant[None], -2.0 * (bend * peak)[None]
    found = log_sum_over_nodes(base, np.zeros(2), *rows, bend, 6.0, x)[0]
    big = constant[:, None] - 2 * (bend * peak)[:, None] * x + bend[:, None] * x**2
    each = base[:, None] + _log_integrals(6.0, np.zeros(big.shape), big)
    assert each[1, 30] > each[0, 30] + 4.0
    np.testing.assert_allclose(found, logsumexp(each, axis=0), rtol=1e-6)


def test_settings_are_those_of_the_fit():
    priors = Priors(variance="inverse-gamma", sigma=(2.0, 0.5), tau=(3.0, 0.1)).resolve(
        np.arange(5.0), np.ones((5, 1)), 1.0
    )
    prior = ScalePrior.at(dataclasses.replace(priors), np.array([0.0]))
    assert (prior.shift, prior.rate[0], prior.add[0]) == (5.0, 0.0, 0.6)
