"""NUTS on each engine against the posterior by quadrature, and the quadrature against itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from quadrature import Steps, gregory, model_of, posterior
from scipy import stats

import dsstan as ds
from dsstan.copies.synthesis import synthesise
from dsstan.covariance.latent import LatentModel
from dsstan.models.posterior import parameters_at, spread_draws
from mc import QUANTILES, assert_same, estimates_of, mean_of, sd_of

CONVERGED = 1e-4
"""Change, in posterior standard deviations, that halving every step may make."""

EXACT = 1e-10
"""Relative rounding error of a log density of 60 records whose V is well conditioned."""

SAMPLER = {"chains": 4, "warmup": 1000, "samples": 2500, "progress": False}
COPIES = 2000
"""Copies of the record, one in five draws: close to independent."""

INVERSE_GAMMA = ds.Priors(variance="inverse-gamma")
TIGHT = ds.Priors(beta_scale=(2.0, 0.3), sigma=0.8, tau=0.3, phi_bounds=(1.0, 30.0))
UNRESTRICTED = {"weights": None}
MIXED = np.zeros(60)
MIXED[[0, 6, 20, 21, 59]] = 1.0, 0.4, 0.7, 0.2, 1.0  # the first two share a site

CASES = {
    "unrestricted": UNRESTRICTED,
    "unrestricted, inverse gamma": {**UNRESTRICTED, "priors": INVERSE_GAMMA},
    "unrestricted, priors that pull": {**UNRESTRICTED, "priors": TIGHT, "program": "surface"},
    "paper": {},
    "paper, inverse gamma": {"priors": INVERSE_GAMMA, "program": "surface"},
    "paper, finite gamma": {"gamma": 3.0, "weights": MIXED},
    "paper, phi free": {"hold_phi": False},
    "preserving": {"protection": "preserving"},
    "preserving, finite gamma, phi free": {
        "protection": "preserving",
        "gamma": 3.0,
        "weights": MIXED,
        "hold_phi": False,
    },
    "cut": {"protection": "cut", "phi": 4.0},
    "cut, inverse gamma, phi free": {
        "protection": "cut",
        "hold_phi": False,
        "priors": INVERSE_GAMMA,
    },
}


def fit_case(case, small, free, kept, engine, **settings):
    """A fit of one case, by default with the flags of ``kept`` and the decay from ``free``."""
    arguments = {"weights": kept.weights.a, **CASES[case]}
    if arguments["weights"] is not None:
        arguments["start"] = free
        arguments["weights"] = ds.own_weights(small, arguments["weights"])
    return ds.fit(small, seed=21, engine=engine, **{**SAMPLER, **arguments, **settings})


def names_of(fit):
    """Sampled scalars."""
    return [n for n in fit.scalars if n != "phi" or fit.phi_held is None]


def record_of(kept):
    """The record flagged in every restricted case."""
    return int(np.flatnonzero(kept.flagged)[-1])


def bounded(name):
    """The scale on which a standard deviation has a Monte Carlo error worth the name.

    phi has one posterior draw in a thousand far above the others, where the effect is white
    noise: they make a quarter of its variance, and a run that misses them doesn't know.
    """
    return name if name.startswith("beta") else f"log_{name}"


def summaries(answer, names):
    """Every number of the quadrature that is compared."""
    out = {}
    for name in names:
        out[f"mean {name}"] = answer.mean(name)
        out[f"sd {bounded(name)}"] = answer.sd(bounded(name))
        for p in QUANTILES:
            out[f"q{1000 * p:.0f} {name}"] = answer.quantile(name, p)
    return out | {
        "mean w": answer.mean("w_mean"),
        "mean copy": answer.mean("copy"),
        "sd copy": answer.sd("copy"),
    }


def sampled(fit, record, names):
    """The same numbers from draws, each with its Monte Carlo error."""
    draws = {name: fit.scalars[name] for name in names}
    out = estimates_of(draws)
    for name, d in draws.items():
        out[f"sd {bounded(name)}"] = sd_of(d if bounded(name) == name else np.log(d))
    chains = fit.settings.chains
    copies = synthesise(fit, COPIES, seed=5, progress=False).modelled()[:, record]
    by_chain = copies.reshape(-1, chains).T  # copies take the chains in turn
    model = LatentModel(fit)
    w = [model.mean(parameters_at(fit, *map(int, p)))[record] for p in spread_draws(fit, COPIES)]
    return out | {
        "mean w": mean_of(np.reshape(w, (-1, chains)).T),
        "mean copy": mean_of(by_chain),
        "sd copy": sd_of(by_chain),
    }


@pytest.mark.parametrize("case", CASES)
def test_nuts_gives_the_posterior_of_the_quadrature(case, sampling_engine, small, free, kept):
    fit = fit_case(case, small, free, kept, sampling_engine)
    assert fit.verdict.passed
    assert (fit.phi_held is None) == ("unrestricted" in case or "phi free" in case)
    record, names = record_of(kept), names_of(fit)
    effect = "w*" if case == "paper, finite gamma" else "w"
    answer = posterior(model_of(fit), record=record, effect=effect)
    assert_same(sampled(fit, record, names), summaries(answer, names))


@pytest.fixture(scope="module")
def far_reaching():
    """50 records whose effect reaches one and a half times as far as the places do."""
    rng = np.random.default_rng(12)
    sites = rng.uniform(size=(50, 2))
    d = np.sqrt(((sites[:, None] - sites[None]) ** 2).sum(-1))
    root = np.linalg.cholesky(np.exp(-2.0 / d.max() * d) + 0.1 * np.eye(50))
    x = np.sin(2.5 * sites[:, 0]) + sites[:, 1]
    y = 2.0 + 0.5 * x + root @ rng.standard_normal(50)
    table = pd.DataFrame({"a": sites[:, 0], "b": sites[:, 1], "x": x, "y": y})
    return ds.prepare(table, "y ~ x", coords=("a", "b"))


@pytest.mark.parametrize("engine", ["direct", "embedded"])
@pytest.mark.parametrize("priors", ["default", "stated"])
def test_a_far_reaching_effect_under_the_penalised_complexity_prior(engine, priors, far_reaching):
    d_max = far_reaching.d_max
    own = {"default": None, "stated": (0.5 * d_max, 0.01)}[priors]
    asked = ds.Priors(decay="penalised-complexity", short_range=own)
    fit = ds.fit(far_reaching, priors=asked, seed=22, engine=engine, **SAMPLER)
    assert fit.verdict.passed, str(fit.verdict)
    names = names_of(fit)
    finer = Steps(phi=72)
    answer = posterior(model_of(fit), record=0, steps=finer)
    assert_same(sampled(fit, 0, names), summaries(answer, names))
    # The prior counts here: without its rate the same range gives another posterior.
    flat = replace(model_of(fit), priors=replace(fit.priors, phi_rate=0.0))
    with pytest.raises(AssertionError, match="phi"):
        assert_same(
            sampled(fit, 0, names), summaries(posterior(flat, record=0, steps=finer), names)
        )


@pytest.fixture(scope="module", params=["unrestricted", "paper", "preserving", "cut"])
def short(request, small, free, kept):
    """A short fit: only its data and settings matter."""
    quick = {"chains": 1, "warmup": 50, "samples": 50}
    return fit_case(request.param, small, free, kept, "embedded", **quick)


def test_halving_every_step_changes_nothing(short, kept):
    names, record = names_of(short), record_of(kept)
    steps = Steps()
    first = posterior(model_of(short), record=record, steps=steps)
    second = posterior(model_of(short), record=record, steps=Steps(2 * steps.phi, 2 * steps.r))
    a, b = (
        summaries(answer, names) | {f"sd {name}": answer.sd(name) for name in names}
        for answer in (first, second)
    )
    for key in a:
        name = key.split()[1]
        sd = second.sd("copy" if name == "w" else name)
        assert abs(a[key] - b[key]) < CONVERGED * sd, key


def test_the_closed_form_for_beta_is_the_normal_density_written_out(short, kept):
    # Priors of beta as wide as the default would leave the written-out V without digits.
    model = model_of(short)
    model = replace(model, priors=replace(model.priors, beta_scale=(2.0, 0.5)))
    answer = posterior(model, record=record_of(kept), steps=Steps(8, 16))
    rng = np.random.default_rng(3)
    X, y = model.X[model.rows], model.y[model.rows]
    prior = X @ np.diag(np.square(model.priors.beta_scale)) @ X.T
    for _ in range(10):
        i, j, k = (int(rng.integers(n)) for n in answer.share.shape)
        sigma_sq = np.exp(answer.log_sigma_sq[i, j, k])
        C = model.correlation(np.exp(answer.log_phi[i])) + np.exp(answer.log_r[j]) * np.eye(len(y))
        want = stats.multivariate_normal(None, sigma_sq * C + prior).logpdf(y)
        np.testing.assert_allclose(answer.log_marginal[i, j, k], want, rtol=EXACT)


def test_the_written_out_likelihood_is_the_normal_density(short):
    model = model_of(short)
    beta, sigma_sq, tau_sq, phi = np.array([4.0, 0.5]), 1.3, 0.2, 5.0
    X, y = model.X[model.rows], model.y[model.rows]
    V = sigma_sq * model.correlation(phi) + tau_sq * np.eye(len(y))
    want = stats.multivariate_normal(X @ beta, V).logpdf(y)
    np.testing.assert_allclose(model.log_likelihood(beta, sigma_sq, tau_sq, phi), want, rtol=EXACT)


def test_gregory_weights_integrate_cubics():
    x = np.linspace(0.0, 3.0, 13)
    for power in range(4):
        total = 0.25 * np.sum(gregory(12) * x**power)
        assert total == pytest.approx(3.0 ** (power + 1) / (power + 1), rel=1e-12)


def test_another_prior_of_the_nugget_is_seen(small, free, kept):
    """The comparison can fail: a posterior under a prior half as wide is told apart."""
    right = ds.Priors().resolve(small.y, small.X, small.d_max)
    half = ds.Priors(tau=0.5 * right.tau[0])
    wrong = fit_case("paper", small, free, kept, "embedded", priors=half)
    record, names = record_of(kept), names_of(wrong)
    answer = posterior(replace(model_of(wrong), priors=right), record=record)
    with pytest.raises(AssertionError, match="tau_sq"):
        assert_same(sampled(wrong, record, names), summaries(answer, names))
