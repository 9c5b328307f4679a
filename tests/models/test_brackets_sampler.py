"""The sampler of the truncated likelihood: its density and slopes, its priors, its posteriors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.optimize import approx_fprime
from scipy.special import erfcx, log_ndtr

import dsstan as ds
from dsstan.core.errors import InputError
from dsstan.covariance.approximations import PredictiveProcess, Vecchia
from dsstan.models.brackets.fit import fit_bracketed
from dsstan.models.brackets.kernels import log_density, mills, slopes
from dsstan.models.brackets.likelihood import TruncatedPriors
from dsstan.models.posterior import parameters_at
from mc import Estimate, assert_same, mean_of, sd_of

EXACT = 1e-12
FAR_OUT = 1e-9
"""Relative, of values whose parts are thousands of times larger."""
SHARE = 2e-3
"""Of a variance, which only shapes proposals."""
SLOPE = 1e-5
INF = np.inf
BRACKETS = [
    (-1.0, 0.5),
    (3.0, INF),
    (-INF, -8.0),
    (20.0, 20.5),
    (-40.0, -39.0),
    (0.1, 0.1001),
    (-INF, INF),
    (-50.0, 0.2),
    (-45.0, 60.0),
]
"""Ends in sds from the mean."""


def square(n: int, *, seed: int = 4, formula: str = "y ~ x", shared: int = 0) -> ds.Problem:
    """Records in the unit square, some of them at one site."""
    rng = np.random.default_rng(seed)
    sites = rng.uniform(size=(n, 2))
    sites[:shared] = sites[shared : 2 * shared]
    x = rng.standard_normal(n)
    distances = np.hypot(*(sites[:, None] - sites[None]).T)
    root = np.linalg.cholesky(np.exp(-5.0 * distances) + 1e-6 * np.eye(n))
    y = 1.0 + 0.5 * x + root @ rng.standard_normal(n) + 0.4 * rng.standard_normal(n)
    table = pd.DataFrame({"u": sites[:, 0], "v": sites[:, 1], "x": x, "y": y})
    return ds.prepare(table, formula, coords=("u", "v"))


def thirds(problem: ds.Problem) -> list[float]:
    """Cut points at the thirds of the values."""
    return [float(c) for c in np.quantile(problem.original(), [1 / 3, 2 / 3])]


def truncated(problem: ds.Problem, cuts: Any, **given: Any) -> Any:
    """A fit of the truncated likelihood."""
    return fit_bracketed(
        problem, cuts, likelihood="truncated", progress=False, **{"seed": 5, **given}
    )


# --- Density and slopes ---------------------------------------------------------------------


def test_the_ratio_of_mills_is_scipy_s():
    x = np.concatenate([np.linspace(-30, 30, 601), [1e2, 1e4, 1e8]])
    want = np.sqrt(np.pi / 2) * erfcx(x / np.sqrt(2))
    np.testing.assert_allclose([mills(v) for v in x], want, rtol=EXACT)


@pytest.mark.parametrize(("low", "high"), BRACKETS)
@pytest.mark.parametrize("tau", [1.0, 0.03])
def test_density_and_moments_are_those_of_scipy_s_truncated_normal(low, high, tau):
    ends = np.array([low * tau + 7.0]), np.array([high * tau + 7.0])
    eta, law = np.array([7.0]), stats.truncnorm(low, high)
    for share in (0.02, 0.5, 0.97):
        y = 7.0 + tau * np.atleast_1d(law.ppf(share))
        value = law.logpdf((y - 7.0) / tau) - np.log(tau)
        assert log_density(y, eta, tau, *ends) == pytest.approx(value[0], rel=FAR_OUT, abs=FAR_OUT)
        score, information = slopes(y, eta, tau, *ends)
        scale = law.std() / tau
        assert score[0] == pytest.approx((y[0] - 7.0 - tau * law.mean()) / tau**2, abs=1e-5 * scale)
        assert information[0] == pytest.approx(law.var() / tau**2, rel=SHARE)


@given(st.floats(-1e3, 1e3), st.floats(1e-6, 1e3), st.floats(0.0, 1.0), st.floats(0.01, 10.0))
@settings(max_examples=300, deadline=None)
def test_the_score_is_the_slope_and_the_density_is_concave(low, width, share, tau):
    ends, y = (np.array([low]), np.array([low + width])), np.array([low + share * width])

    def value(eta):
        return log_density(y, np.atleast_1d(eta), tau, *ends)

    for eta in (low - 3.0 * tau, low + 0.5 * width, low + width + 40.0 * tau, 0.0):
        score, information = slopes(y, np.array([eta]), tau, *ends)
        assert np.isfinite(value(eta))
        assert 0.0 <= information[0] <= (1.0 + EXACT) / tau**2
        step = 1e-3 * tau
        numeric = (value(eta + step) - value(eta - step)) / (2 * step)
        far = (abs(low) + width) / tau + 41.0
        # Rounding of a far value's square, and of a narrow bracket's width.
        noise = 1e-15 * (far**2 + far * tau / width) / step
        assert score[0] == pytest.approx(numeric, rel=SLOPE, abs=SLOPE / tau + noise)


def test_an_end_beyond_all_floats_in_sds_is_an_open_end():
    y, eta = np.array([0.3, -0.2]), np.array([0.1, 0.0])
    wide = np.full(2, -1e300), np.full(2, 1e300)
    want = stats.norm(eta, 1e-9).logpdf(y).sum()
    assert log_density(y, eta, 1e-9, *wide) == pytest.approx(want, rel=EXACT)


# --- Priors ---------------------------------------------------------------------------------


@pytest.mark.parametrize("variance", ["half-normal", "inverse-gamma"])
def test_the_prior_of_theta_is_that_of_the_variances(variance):
    problem = square(12)
    given_as = {"sigma": (2.5, 0.7), "tau": (3.0, 0.2)} if variance == "inverse-gamma" else {}
    resolved = ds.Priors(variance=variance, **given_as).resolve(problem.y, problem.X, problem.d_max)
    priors = TruncatedPriors(resolved, float(np.var(problem.y)))

    def law(pair: Any) -> Any:
        if variance == "inverse-gamma":
            return stats.invgamma(pair[0], scale=pair[1]), 1.0
        return stats.halfnorm(scale=pair[0]), 0.5

    def want(total: float, ratio: float) -> float:
        """By the change of variables, its Jacobian taken numerically."""

        def variances(theta: Any) -> Any:
            sum_, r = np.exp(theta)
            return np.array([sum_ / (1 + r), sum_ * r / (1 + r)])

        at = np.array([total, ratio])
        out = np.log(abs(np.linalg.det(approx_fprime(at, variances, 1e-7))))
        for value, pair in zip(variances(at), (resolved.sigma, resolved.tau), strict=True):
            found, power = law(pair)
            out += found.logpdf(value**power) + np.log(power * value ** (power - 1.0))
        return float(out)

    for total, ratio in ((0.2, 0.3), (-1.0, 4.0), (1.0, -3.0)):
        got = priors.log_prior(np.array([1.3, total, ratio]), held=True)
        assert got == pytest.approx(want(total, ratio), abs=1e-5)
        free = priors.log_prior(np.array([1.3, total, ratio]), held=False)
        assert free == pytest.approx(got + 1.3, abs=EXACT)  # phi is uniform, so log phi is not
        own = TruncatedPriors(replace(resolved, phi_rate=0.2), 1.0)
        cut = own.log_prior(np.array([1.3, total, ratio]), held=False)
        assert cut == pytest.approx(free - 0.2 * np.exp(1.3), abs=EXACT)
    low, high = priors.theta_range(None)
    np.testing.assert_allclose(np.exp([low[0], high[0]]), resolved.phi_bounds)
    np.testing.assert_allclose(np.exp([low[2], high[2]]), resolved.r_bounds)


# --- Posteriors -----------------------------------------------------------------------------


def grid_posterior(problem: ds.Problem, cuts: list[float]) -> dict[str, float]:
    """Means and sds by sums on a grid where no record carries w: beta, tau_sq, and sigma_sq of
    its prior and the cut of the ratio."""
    resolved = ds.Priors().resolve(problem.y, problem.X, problem.d_max)
    ends = np.concatenate([[-INF], cuts, [INF]])
    number = np.searchsorted(cuts, problem.y, side="right")
    low, high, y = ends[number], ends[number + 1], problem.y
    tau = resolved.tau[0] * np.exp(np.linspace(-3.0, 1.7, 121))
    beta = np.linspace(-15.0, 17.0, 401)
    log = np.empty((beta.size, tau.size))
    for j, t in enumerate(tau):
        a, b = (low - beta[:, None]) / t, (high - beta[:, None]) / t
        # The mass of the bracket from the smaller tails.
        below, above = np.where(a > 0, -b, a), np.where(a > 0, -a, b)
        most = log_ndtr(above)
        mass = most + np.log1p(-np.exp(log_ndtr(below) - most))
        log[:, j] = (stats.norm.logpdf(y, beta[:, None], t) - mass).sum(axis=1)
    log += stats.norm.logpdf(beta, 0.0, resolved.beta_scale[0])[:, None]
    log += stats.halfnorm.logpdf(tau, scale=resolved.tau[0]) + np.log(tau)
    sigma = resolved.sigma[0] * np.exp(np.linspace(-9.0, 1.7, 600))
    of_sigma = stats.halfnorm.pdf(sigma, scale=resolved.sigma[0]) * sigma
    ratio = (tau[:, None] / sigma) ** 2
    inside = (ratio > resolved.r_bounds[0]) & (ratio < resolved.r_bounds[1])
    share, cut = np.exp(log - log.max()), of_sigma * inside
    by_tau = share.sum(axis=0)
    out = {}
    for name, values, weight in (
        ("beta_0", beta, share @ cut.sum(axis=1)),
        ("tau_sq", tau**2, by_tau * cut.sum(axis=1)),
        ("sigma_sq", sigma**2, by_tau @ cut),
    ):
        assert max(weight[0], weight[-1]) < 1e-3 * weight.max()
        mean = float(weight @ values / weight.sum())
        out[f"mean {name}"] = mean
        out[f"sd {name}"] = float(np.sqrt(weight @ (values - mean) ** 2 / weight.sum()))
    return out


def test_where_no_record_carries_w_the_posterior_is_that_of_a_grid():
    problem = square(60, formula="y ~ 1")
    cuts = [float(c) for c in np.quantile(problem.y, [0.15, 0.8])]
    fit = truncated(
        problem, cuts, weights=ds.own_weights(problem, np.ones(60)), phi=5.0, samples=2000
    )
    ours = {}
    for name in ("beta_0", "tau_sq", "sigma_sq"):
        ours[f"mean {name}"] = mean_of(fit.scalars[name])
        ours[f"sd {name}"] = sd_of(fit.scalars[name])
    theirs = {name: Estimate(v, 0.0) for name, v in grid_posterior(problem, cuts).items()}
    assert_same(ours, theirs)
    with pytest.raises(AssertionError, match="tau_sq"):
        assert_same(ours, {name: Estimate(1.3 * v.value, 0.0) for name, v in theirs.items()})


@pytest.mark.parametrize("scale", [1e-2, 1e5])
def test_a_prior_far_from_the_data_does_not_cut_them_off(scale):
    """The values' own spread is within the range of the variances, whatever the prior says."""
    problem = square(40)
    priors = ds.Priors(sigma=scale, tau=scale).resolve(problem.y, problem.X, problem.d_max)
    low, high = TruncatedPriors(priors, float(np.var(problem.y))).theta_range(4.0)
    assert low[1] < np.log(np.var(problem.y)) - 9.0
    assert high[1] > np.log(np.var(problem.y)) + 4.0


def test_a_process_given_all_sites_before_is_the_exact_covariance():
    problem = square(18, shared=3)
    brief = {"warmup": 20, "samples": 30, "chains": 2}
    exact = truncated(problem, thirds(problem), covariance="exact", **brief)
    whole = truncated(problem, thirds(problem), covariance=Vecchia(17), **brief)
    for name, draws in exact.draws.items():
        np.testing.assert_array_equal(whole.draws[name], draws)


def test_a_process_far_from_the_covariance_is_found(monkeypatch):
    """The planted bad run: its steps to the exact covariance are refused, and the verdict fails."""
    monkeypatch.setattr("dsstan.models.counts.runs.NEAR_EXACT", (1,))
    problem = square(150)
    fit = truncated(problem, thirds(problem), cov_model="matern52", phi=4.0, samples=100, warmup=50)
    assert not fit.verdict.passed
    assert "exact steps accepted" in {check.name for check in fit.verdict.failures}


def test_chains_of_few_draws_are_found():
    problem = square(40)
    fit = truncated(problem, thirds(problem), samples=40)
    assert not fit.verdict.passed
    assert any(check.condition == "not-converged" for check in fit.verdict.failures)


def test_default_lengths_are_those_of_counts_and_the_plain_likelihood_keeps_its_own(monkeypatch):
    monkeypatch.setattr("dsstan.models.counts.runs.MANY", 20)
    monkeypatch.setattr("dsstan.models.counts.runs.FEWER", 30)
    problem = square(25)
    fit = truncated(problem, thirds(problem), phi=5.0)
    assert (fit.settings.warmup, fit.settings.samples) == (100, 30)
    plain = fit_bracketed(problem, thirds(problem), chains=1, seed=1, progress=False)
    assert (plain.settings.warmup, plain.settings.samples) == (1000, 1000)


# --- Vecchia's approximation ----------------------------------------------------------------


@pytest.mark.parametrize("likelihood", ["plain", "truncated"])
def test_a_release_under_vecchia_keeps_its_brackets(likelihood):
    problem = square(70)
    brief: dict[str, Any] = {"likelihood": likelihood, "seed": 2, "progress": False}
    brief |= {"chains": 2, "warmup": 100, "samples": 150, "covariance": Vecchia(8)}
    free = fit_bracketed(problem, thirds(problem), **brief)
    weights = ds.own_weights(problem, (np.arange(70) < 3).astype(float))
    kept = fit_bracketed(problem, thirds(problem), weights=weights, start=free, **brief)
    assert kept.covariance == Vecchia(8)
    accepted = {"accept_failed": True, "accept_few_draws": True, "progress": False}
    release = ds.synthesise(kept, 10, seed=3, **accepted)
    assert kept.brackets.inside(release.values).all()
    assert not np.any(release.values == problem.original())


def test_a_smoothed_record_has_the_law_given_the_nearest_others():
    """All others are the nearest ones here: mean and variance are those of the dense formula."""
    problem = square(50)
    weights = ds.own_weights(problem, (np.arange(50) < 3).astype(float))
    brief: dict[str, Any] = {"weights": weights, "phi": 4.0, "chains": 1, "warmup": 20}
    laws = [
        truncated(problem, thirds(problem), samples=20, covariance=of, **brief).predictive()
        for of in ("exact", Vecchia(12))
    ]
    w = np.random.default_rng(2).standard_normal(50)
    p = parameters_at(laws[0].fit, 0, 0)
    exact, near = (law.prior_given_others(p, w) for law in laws)
    np.testing.assert_allclose(near, exact, rtol=1e-8)


@pytest.mark.parametrize("likelihood", ["plain", "truncated"])
def test_a_predictive_process_is_refused(likelihood):
    problem = square(30)
    for covariance in ("predictive_process", PredictiveProcess()):
        with pytest.raises(InputError, match="exact covariance and Vecchia's"):
            fit_bracketed(problem, thirds(problem), likelihood=likelihood, covariance=covariance)
