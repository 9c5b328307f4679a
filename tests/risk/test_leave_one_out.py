"""What the other records say of each, against a grid of the variances in dense matrices."""

from __future__ import annotations

import dataclasses
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.spatial.distance import cdist

import dsstan as ds
from dsstan.models.weights import own_weights
from dsstan.risk.intruder.attacker import attack
from dsstan.risk.intruder.exact import exact_intruder
from dsstan.risk.intruder.leave_one_out import (
    leave_one_out,
    smoothed_weights,
    spread_of_one,
    unrestricted_terms,
)
from dsstan.risk.intruder.variance_grid import leave_one_out_sd

FAST = {"engine": "embedded", "progress": False}
FLAGGED = (48, 49)
TRAPEZOID = 2e-3
"""Relative error of the dense grid: halving its steps changes an sd by less."""

REWEIGHTED = 5.0
"""Monte Carlo errors by which a reweighted sd may miss; the errors are estimates themselves."""


@lru_cache
def weak_nugget():
    """The table: 50 records, the nugget weakly known, records 48 and 49 at one site."""
    table = pd.read_csv(Path(__file__).with_name("weak_nugget.csv"))
    return ds.prepare(table, "y ~ x", coords=("a", "b"))


@lru_cache
def weak_fits():
    """The unrestricted fit and the one that smooths the two."""
    problem = weak_nugget()
    free = ds.fit(problem, seed=1, **FAST)
    a = np.isin(np.arange(50), FLAGGED).astype(float)
    weights = own_weights(problem, a)
    return free, ds.fit(
        problem, weights=weights, protection="preserving", start=free, seed=2, **FAST
    )


@lru_cache
def outlier_fit(size):
    """A table whose last record, at no other's site, lies so many sds from the others."""
    rng = np.random.default_rng(7)
    sites = rng.uniform(0, 1, (30, 2))
    d = cdist(sites, sites)
    y = np.linalg.cholesky(np.exp(-4 * d) + 0.05 * np.eye(30)) @ rng.standard_normal(30)
    y[-1] = size
    table = pd.DataFrame({"a": sites[:, 0], "b": sites[:, 1], "x": rng.normal(size=30), "y": y})
    return ds.fit(ds.prepare(table, "y ~ x", coords=("a", "b")), seed=3, **FAST)


def dense_sd(fit, i, counts=(24, 60, 40)):
    """sd of y_i given the others: an even grid, and the other records alone in every matrix."""
    problem, priors = fit.problem, fit.priors
    rest = np.delete(np.arange(problem.n_records), i)
    X, y, x_i = problem.X[rest], problem.y[rest], problem.X[i]
    d = cdist(problem.sites, problem.sites)
    n, p = X.shape
    axes = [
        np.linspace(low, high, count)
        for (low, high), count in zip(
            (np.log(priors.phi_bounds), np.log(priors.r_bounds), (-5.0, 4.0)), counts, strict=True
        )
    ]
    logs, means, variances = [], [], []
    for log_phi in axes[0]:
        R = np.exp(-np.exp(log_phi) * d)
        C = R + np.exp(axes[1])[:, None, None] * np.eye(len(d))
        inner, cross = C[:, rest][:, :, rest], C[:, rest, i]
        W = np.linalg.solve(
            inner,
            np.concatenate(
                [
                    np.broadcast_to(X, (len(C), n, p)),
                    np.broadcast_to(y[:, None], (len(C), n, 1)),
                    cross[:, :, None],
                ],
                axis=2,
            ),
        )
        WX, Wy, Wc = W[:, :, :p], W[:, :, p], W[:, :, p + 1]
        G = np.linalg.inv(X.T @ WX)
        b = np.einsum("hjk,hk->hj", G, np.einsum("hnj,n->hj", WX, y))
        q = Wy @ y - np.einsum("hj,hj->h", b, np.einsum("hnj,n->hj", WX, y))
        left = x_i - np.einsum("hn,hnj->hj", cross, WX)
        mean = b @ x_i + np.einsum("hn,hn->h", Wc, y - b @ X.T)
        one = 1 + np.exp(axes[1]) - np.einsum("hn,hn->h", cross, Wc)
        one = one + np.einsum("hj,hjk,hk->h", left, G, left)
        det = np.linalg.slogdet(inner)[1] - np.linalg.slogdet(G)[1]
        for log_s in axes[2]:
            s, t = np.exp(log_s), np.exp(log_s + axes[1])
            prior = log_phi + 0.5 * np.log(s * t)
            prior = prior - 0.5 * s / priors.sigma[0] ** 2 - 0.5 * t / priors.tau[0] ** 2
            logs.append(prior - 0.5 * (det + (n - p) * log_s + q / s))
            means.append(mean)
            variances.append(s * one)
    weight = np.exp(np.array(logs) - np.max(logs))
    weight /= weight.sum()
    mean = np.sum(weight * means)
    return np.sqrt(np.sum(weight * (variances + (means - mean) ** 2)))


CASES = {
    "two at one site": (lambda: weak_fits()[0], 49),
    "an ordinary record": (lambda: weak_fits()[0], 5),
    "a far outlier": (lambda: outlier_fit(7.0), 29),
    "an outlier": (lambda: outlier_fit(4.0), 29),
}


@pytest.mark.parametrize("case", CASES)
def test_the_grid_is_the_law_of_the_others_alone(case):
    fit, i = CASES[case][0](), CASES[case][1]
    assert leave_one_out_sd(fit, np.array([i]))[0] == pytest.approx(dense_sd(fit, i), rel=TRAPEZOID)


@pytest.mark.parametrize("case", CASES)
def test_reweighted_draws_give_the_sd_of_the_law_given_the_others(case):
    fit, i = CASES[case][0](), CASES[case][1]
    found = leave_one_out(fit)
    want = leave_one_out_sd(fit, np.array([i]))[0]
    assert abs(found.sd[i] - want) <= REWEIGHTED * found.error[i] + TRAPEZOID * want
    assert found.integrated[i] or found.pareto_k[i] <= 0.7


def test_draws_that_saw_the_value_do_not_set_the_benchmark():
    """Averaged over draws as they come: an outlier too uncertain, a pair at one site too sure."""
    pair, far = weak_fits()[0], outlier_fit(7.0)
    averaged = unrestricted_terms(pair).precision[49] ** -0.5
    assert averaged == pytest.approx(0.19, abs=0.02)
    assert leave_one_out(pair).sd[49] == pytest.approx(0.57, abs=0.01)
    assert leave_one_out(far).sd[29] < 0.8 * unrestricted_terms(far).precision[29] ** -0.5


def test_where_weights_can_not_be_trusted_a_grid_takes_their_place():
    far = outlier_fit(7.0)
    found = leave_one_out(far)
    assert found.pareto_k[29] > 0.7
    assert found.integrated[29]
    assert found.error[29] == 0
    assert found.sd[29] == pytest.approx(leave_one_out_sd(far, np.array([29]))[0], rel=1e-9)
    assert not found.integrated[:29].all()


def test_cut_reports_the_law_of_the_others_where_its_copies_say_nothing():
    free, _ = weak_fits()
    a = np.isin(np.arange(50), FLAGGED).astype(float)
    weights = own_weights(free.problem, a)
    cut = ds.fit(free.problem, weights=weights, protection="cut", start=free, seed=2, **FAST)
    found = attack(ds.synthesise(cut, 10, seed=50, accept_failed=True, progress=False))
    flagged, alone = list(FLAGGED), leave_one_out(free)
    for variances in ("known", "fixed"):
        sd = found.sd(variances=variances)[flagged]
        np.testing.assert_array_equal(sd, found.leave_one_out[flagged])
        assert np.all(np.abs(sd - alone.sd[flagged]) < 4 * np.maximum(alone.error[flagged], 1e-3))


def test_under_cut_the_exact_intruder_is_left_with_the_leave_one_out_sd():
    """Whatever the copies say of phi and the variances, they say it of the other records."""
    free, _ = weak_fits()
    weights = own_weights(free.problem, np.isin(np.arange(50), FLAGGED).astype(float))
    cut = ds.fit(free.problem, weights=weights, protection="cut", start=free, seed=2, **FAST)
    assert cut.phi_held is None
    release = ds.synthesise(cut, 10, seed=50, accept_failed=True, progress=False)
    found = exact_intruder(release, records=FLAGGED, progress=False).records
    np.testing.assert_allclose(found["sd"], found["sd_leave_one_out"], rtol=1e-4)
    rows = found["position"].to_numpy()
    own = leave_one_out(free)
    assert np.all(np.abs(found["sd"] - own.sd[rows]) < 4 * np.maximum(own.error[rows], 1e-3))


def test_a_weak_nugget_is_judged_by_the_draws_that_were_released():
    """At a floor of 0.03 the mean over other draws found no record below; 48 are.

    The seed is one of those whose released draws have a smaller nugget than most.
    """
    free, flagged = weak_fits()
    asked = {"weights": flagged.weights, "protection": "preserving", "start": free}
    kept = ds.fit(free.problem, **asked, seed=8, **FAST)
    release = ds.synthesise(kept, 10, seed=50, rounding="none", accept_failed=True, progress=False)
    found = dataclasses.replace(attack(release, progress=False), margin=(1.0, 1.0))
    assert np.flatnonzero(found.sd(variances="known") >= 0.03).tolist() == list(FLAGGED)
    averaged = found.leave_one_out**-2 + 10 * found.by_draw[0].mean(axis=0)
    assert averaged[5] ** -0.5 > 1.2 * found.sd()[5]
    plan = attack(kept, copies=10, progress=False)
    assert np.flatnonzero(plan.sd(variances="known") >= 0.03).tolist() == list(FLAGGED)
    assert plan.largest_release(0.03) < 10


# --- Weights and errors --------------------------------------------------------------------


def test_weights_are_the_inverse_densities_where_these_differ_little():
    log_density = np.random.default_rng(1).normal(scale=0.1, size=(400, 2))
    log_density[:, 1] = -3.0
    weight, k = smoothed_weights(log_density.copy())
    want = np.exp(-log_density)
    np.testing.assert_allclose(weight, want / want.sum(axis=0), rtol=0.1)
    assert k[0] < 0.5
    assert k[1] == 0


def test_the_weights_of_few_draws_are_not_smoothed_and_have_no_k():
    log_density = np.random.default_rng(1).normal(size=(10, 3))
    weight, k = smoothed_weights(log_density.copy())
    want = np.exp(-log_density)
    np.testing.assert_allclose(weight, want / want.sum(axis=0))
    assert np.isnan(k).all()


def test_chains_that_differ_make_the_error_larger():
    rng = np.random.default_rng(2)
    values = rng.normal(size=(400, 50))
    plain = spread_of_one(values, 4)
    assert np.median(plain) == pytest.approx(1.1, abs=0.15)
    apart = values + 0.5 * np.array([-1.0, 1.0, -1.0, 1.0])[np.arange(400) % 4][:, None]
    assert np.all(spread_of_one(apart, 4) > 1.5 * plain.min())
    slow = np.repeat(rng.normal(size=(20, 50)), 20, axis=0)
    assert np.median(spread_of_one(slow, 1)) > 1.5 * np.median(slow.std(axis=0))
