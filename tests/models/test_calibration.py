"""Calibration of the shipped fits and releases: a few fits in every run, hundreds at night.

``calibration.py`` holds the method; its command writes docs/calibration.md. A family of tests
raises a false alarm with probability 1e-3 (ranks) or 1e-4 (counts); seeds are fixed.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from calibration import (
    ANALYSTS,
    COUNT_ALPHA,
    FAMILY_ALPHA,
    LEVEL,
    PHI_GRID,
    PRIORS,
    R_GRID,
    SCENARIOS,
    SPOILED,
    THINNED,
    TRUTH,
    N,
    calibrate,
    count_limits,
    design,
    distances,
    envelope,
    gls_estimated,
    gls_true,
    judge,
    prior_draw,
    recover,
    releases,
    uniformity,
)
from range_coverage import GOAL, RANGES, TABLES, coverage, fewest
from scipy import stats

from conftest import _no_stanli, leave_out, once

REPLICATES = 200
RELEASES = 150
SEED = 31

FEW = 6
"""Replicates of every run: they see what is wrong by an order of magnitude."""

nightly = pytest.mark.nightly(f"{REPLICATES} fits of each model, {RELEASES} releases")


def fits_of(tmp_path_factory, name, replicates, seed, **given):
    """Replicates of one model."""
    if _no_stanli():
        leave_out("stanli is missing")
    kind = "-".join(["sbc", name, str(replicates), *given])
    return once(
        tmp_path_factory, kind, lambda: calibrate(SCENARIOS[name], replicates, seed=seed, **given)
    )


@pytest.fixture(scope="module", params=SCENARIOS)
def outcomes(request, tmp_path_factory):
    """Many replicates of one model."""
    seed = SEED + list(SCENARIOS).index(request.param)
    return fits_of(tmp_path_factory, request.param, REPLICATES, seed)


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    """Repeated releases."""
    if _no_stanli():
        leave_out("stanli is missing")
    return once(tmp_path_factory, "releases", lambda: releases(RELEASES, seed=SEED + 100))


def failures(judged):
    """What did not pass."""
    return {name: result for name, result in judged.items() if not result.passed}


@pytest.mark.parametrize("name", ["unrestricted", "paper-finite"])
def test_a_few_ranks_of_the_truth_are_uniform_and_those_of_wrong_draws_are_not(
    name, tmp_path_factory
):
    few = fits_of(tmp_path_factory, name, FEW, SEED)
    assert not failures(judge(few))
    assert not failures(recover(few))
    assert min(o.ess for o in few) > THINNED
    wrong = {"sigma_sq": lambda d: 100 * d, "tau_sq": lambda d: d / 100}
    assert set(failures(judge(few, wrong))) == {"sigma_sq", "tau_sq"}


@nightly
def test_ranks_of_the_truth_are_uniform(outcomes):
    assert not failures(judge(outcomes))


@nightly
def test_posterior_intervals_cover_and_posterior_means_are_unbiased(outcomes):
    assert not failures(recover(outcomes))


@nightly
def test_posterior_means_follow_the_truth(outcomes):
    recovery = recover(outcomes)
    for name in ("beta_1", "sigma_sq", "tau_sq"):
        assert recovery[name].correlation > 0.5, name


@nightly
def test_thinned_draws_are_nearly_independent(outcomes):
    assert min(o.ess for o in outcomes) > THINNED


@nightly
def test_a_sigma_sq_that_is_too_large_is_rejected(outcomes):
    judged = judge(outcomes, {"sigma_sq": lambda d: SPOILED * d})
    assert set(failures(judged)) == {"sigma_sq"}


@nightly
def test_draws_that_are_too_narrow_are_rejected(outcomes):
    judged = judge(outcomes, {"beta_1": lambda d: d.mean() + (d - d.mean()) / 3})
    assert "beta_1" in failures(judged)


@nightly
def test_fits_under_another_prior_of_the_nugget_are_rejected(tmp_path_factory):
    wrong = replace(PRIORS, tau=0.1)
    spoiled = fits_of(tmp_path_factory, "paper", REPLICATES // 2, SEED + 50, priors=wrong)
    assert "tau_sq" in failures(judge(spoiled))


@nightly
def test_gls_intervals_from_copies_cover_and_those_of_ols_do_not(released):
    covered = {a: sum(r.covers("copies", a) for r in released) for a in ANALYSTS}
    low, high = count_limits(len(released), LEVEL, COUNT_ALPHA)
    assert low <= covered["GLS, true covariance"] <= high
    assert covered["OLS"] < low


@nightly
def test_copies_give_back_the_coverage_of_the_original_table(released):
    """The combining rule adds no error of its own beyond what binomial noise explains."""
    for analyst in ANALYSTS:
        pairs = [(r.covers("original", analyst), r.covers("copies", analyst)) for r in released]
        lost, won = pairs.count((True, False)), pairs.count((False, True))
        if lost + won:
            p = stats.binomtest(lost, lost + won).pvalue
            assert p > COUNT_ALPHA / len(ANALYSTS), analyst


@pytest.mark.nightly(f"{2 * TABLES} fits at each range")
@pytest.mark.parametrize("reach", RANGES)
def test_a_penalised_complexity_decay_covers_where_the_effect_reaches_far(reach):
    """By the same tables: its intervals hold the truth as often as the goal has it, or near it."""
    uniform, penalised = coverage("uniform", reach), coverage("penalised-complexity", reach)
    assert np.all(penalised.covered >= fewest(TABLES, GOAL))
    assert np.all(penalised.covered >= uniform.covered)
    assert np.all(penalised.width > uniform.width)
    if reach > 1.0:  # beyond the uniform prior's range
        assert uniform.covered[0] < fewest(TABLES, 0.95)


@pytest.mark.parametrize(
    "replicates", [60, pytest.param(200, marks=pytest.mark.nightly("a larger envelope"))]
)
def test_the_envelope_keeps_its_alpha_by_the_exact_recursion(replicates):
    alpha = FAMILY_ALPHA / 7
    bounds = envelope(replicates, alpha)
    counts = np.arange(replicates + 1)
    state, before = (counts == 0).astype(float), 0.0
    for z, low, high in zip(bounds.points, bounds.low, bounds.high, strict=True):
        share = (z - before) / (1 - before)
        step = stats.binom.pmf(counts[None] - counts[:, None], replicates - counts[:, None], share)
        state = state @ step * ((low <= counts) & (counts <= high))
        before = z
    # 28 of the 200,000 simulated sets lie outside: relative error 1 / sqrt(28), five of them
    assert 1 - state.sum() == pytest.approx(alpha, rel=5 / np.sqrt(28))


def test_even_ranks_pass_and_crowded_ones_do_not():
    rng = np.random.default_rng(8)
    even = rng.integers(0, THINNED + 1, 200)
    assert uniformity(even, FAMILY_ALPHA).passed
    assert not uniformity(even // 2 + THINNED // 4, FAMILY_ALPHA).passed
    assert not uniformity(np.minimum(even + 25, THINNED), FAMILY_ALPHA).passed


def test_prior_draws_have_the_quantiles_of_the_priors():
    rng = np.random.default_rng(9)
    draws = [prior_draw(SCENARIOS["unrestricted"], rng) for _ in range(2000)]
    low, high = PRIORS.phi_bounds
    samples = {
        "beta_1": ([p.beta[1] for p in draws], stats.norm(0, PRIORS.beta_scale[1])),
        "phi": ([p.phi for p in draws], stats.uniform(low, high - low)),
        # cut to the range of tau_sq / sigma_sq, which takes under one draw in a hundred
        "sigma": (np.sqrt([p.sigma_sq for p in draws]), stats.halfnorm(0, PRIORS.sigma)),
        "tau": (np.sqrt([p.tau_sq for p in draws]), stats.halfnorm(0, PRIORS.tau)),
    }
    for name, (values, law) in samples.items():
        assert stats.kstest(values, law.cdf).pvalue > COUNT_ALPHA, name


def test_the_analysts_are_the_formulas_written_out():
    y, X = np.random.default_rng(10).normal(size=(2, N)), design()
    R = {phi: np.exp(-phi * distances()) for phi in (TRUTH["phi"], *PHI_GRID)}

    def gls(response, C):
        weight = np.linalg.inv(C)
        inverse = np.linalg.inv(X.T @ weight @ X)
        coef = inverse @ X.T @ weight @ response
        residual = response - X @ coef
        s_sq = residual @ weight @ residual / (N - 2)
        log_det = np.linalg.slogdet(C)[1] - np.linalg.slogdet(inverse)[1]
        return coef[1], inverse[1, 1], s_sq, -0.5 * (log_det + (N - 2) * np.log(s_sq))

    V = TRUTH["sigma_sq"] * R[TRUTH["phi"]] + TRUTH["tau_sq"] * np.eye(N)
    want = [gls(row, V)[:2] for row in y]
    np.testing.assert_allclose(np.transpose(gls_true(y)), want, rtol=1e-8)
    want = []
    for row in y:
        every = [gls(row, R[phi] + r * np.eye(N)) for phi in PHI_GRID for r in R_GRID]
        slope, variance, s_sq, _ = max(every, key=lambda values: values[3])
        want.append((slope, s_sq * variance))
    np.testing.assert_allclose(np.transpose(gls_estimated(y)), want, rtol=1e-8)
