"""The exact intruder against one written out in dense matrices, and the bounds against both."""

from __future__ import annotations

import dataclasses
from functools import lru_cache

import numpy as np
import pandas as pd
import pytest
from scipy.spatial.distance import cdist
from scipy.special import logsumexp

import dsstan as ds
from dsstan.core.errors import InputError
from dsstan.models.weights import own_weights
from dsstan.risk.attacker import attack
from dsstan.risk.exact import exact_intruder

FAST = {"engine": "embedded", "progress": False, "chains": 2, "warmup": 400, "samples": 400}
N, PHI, FLAT = 14, 4.0, 1e6
NUGGETS = {"weak": 0.01, "ordinary": 0.25, "strong": 2.0}
PROTECTIONS = ("none", "paper", "preserving", "cut")
GRID_ERROR = 0.01
"""Relative error of an sd by the even grid, whose steps in log sigma_sq and log r are 0.3."""


@lru_cache
def table(nugget, n=N, seed=5):
    """A small table with a pair at one site and a far record, the last."""
    rng = np.random.default_rng(seed)
    sites = rng.uniform(0, 1, (n, 2))
    sites[1], sites[-1] = sites[0], (1.8, 1.8)
    x = rng.normal(size=n)
    d = cdist(sites, sites)
    root = np.linalg.cholesky(np.exp(-PHI * d) + nugget * np.eye(n))
    y = 2.0 + 0.5 * x + root @ rng.standard_normal(n)
    return pd.DataFrame({"a": sites[:, 0], "b": sites[:, 1], "x": x, "y": y})


def hold(fit):
    """The fit with its decay held; its variances' draws only say where a grid must reach."""
    draws = {**fit.draws, "phi": np.full_like(fit.draws["phi"], PHI)}
    return dataclasses.replace(fit, phi_held=PHI, draws=draws)


@lru_cache
def released(nugget, protection, gamma=np.inf, copies=3, n=N, seed=5, held=True):
    """Copies; the decay of both fits is held, so that the dense grid has two axes."""
    problem = ds.prepare(table(nugget, n, seed), "y ~ x", coords=("a", "b"))
    free = ds.fit(problem, seed=1, **FAST)
    free = hold(free) if held else free
    fit = free
    if protection != "none":
        a = np.zeros(n)
        a[[0, n - 1]] = 1.0
        how = {"weights": own_weights(problem, a), "protection": protection, "gamma": gamma}
        fit = ds.fit(problem, start=free, seed=2, **how, **FAST)
    how = {"accept_failed": True, "accept_few_draws": True, "progress": False}
    return ds.synthesise(fit, copies, seed=3, rounding="none", **how)


def by_hand(release, i, points=41):
    """sd of y_i from normal laws written out, a wide prior on the coefficients, node by node."""
    fit, problem = release.fit, release.problem
    free = fit.start or fit
    X, y, A, n = problem.X, problem.y, fit.A, problem.n_records
    phi = float(fit.draws["phi"].flat[0])
    R = np.exp(-phi * cdist(problem.sites, problem.sites))
    rows = np.flatnonzero(A == 1) if fit.protection == "cut" else np.arange(n)
    carried = np.where((A == 0) | (release.effect == "w"), 1.0, A)
    log_s, log_r = np.arange(-11.0, 6.0, 0.3), np.arange(np.log(1e-4), np.log(1e4), 0.3)
    sd = attack(release, progress=False).sd()[i]
    values = y[i] + np.linspace(-9.0, 9.0, points) * sd
    ys = np.tile(y, (points, 1))
    ys[:, i] = values
    copies = release.modelled()
    wide = FLAT * X @ X.T
    prior, post, seen = [], [], []

    def log_normal(V, e):
        root = np.linalg.cholesky(V)
        z = np.linalg.solve(root, e.T)
        return -0.5 * np.sum(z**2, axis=0) - np.sum(np.log(np.diag(root)))

    def half_normal(which, s, t):
        p = which.priors
        return -0.5 * s / p.sigma[0] ** 2 - 0.5 * t / p.tau[0] ** 2 + 0.5 * np.log(s * t)

    for s in np.exp(log_s):
        for t in s * np.exp(log_r):
            S = wide + s * R + t * np.eye(n)
            prior.append(half_normal(free, s, t) + log_normal(S, ys))
            removed = s * (1 - A**2) if fit.protection == "preserving" else 0 * A
            yy = (wide + s * A[:, None] * R * A + np.diag(t + removed))[np.ix_(rows, rows)]
            cy = (wide + s * carried[:, None] * R * A)[:, rows]
            cc = wide + s * carried[:, None] * R * carried + t * np.eye(n)
            gain = np.linalg.solve(yy, cy.T).T
            post.append(half_normal(fit, s, t) + log_normal(yy, ys[:, rows]))
            mean, Vs = ys[:, rows] @ gain.T, cc - gain @ cy.T
            seen.append([log_normal(0.5 * (Vs + Vs.T), c - mean) for c in copies])
    prior, post, seen = np.array(prior), np.array(post), np.array(seen)
    total = logsumexp(prior, axis=0)
    for c in range(len(copies)):
        total = total + logsumexp(post + seen[:, c], axis=0) - logsumexp(post, axis=0)
    weight = np.exp(total - total.max())
    weight /= weight.sum()
    assert max(weight[0], weight[-1]) < 1e-4
    mean = weight @ values
    return np.sqrt(weight @ (values - mean) ** 2), mean


NIGHT = pytest.mark.nightly("the exact intruder in every case")
BY_DAY = {("weak", N - 1), ("ordinary", 0), ("strong", 5)}


@pytest.mark.parametrize(
    ("nugget", "record"),
    [
        pytest.param(k, i, marks=() if (k, i) in BY_DAY else NIGHT)
        for k in NUGGETS
        for i in (0, 5, N - 1)
    ],
)
@pytest.mark.parametrize("protection", PROTECTIONS)
def test_the_posterior_is_that_of_normal_laws_written_out(protection, nugget, record):
    """Record 0 shares its site and is flagged, 5 is ordinary, the last far and flagged."""
    release = released(NUGGETS[nugget], protection)
    sd, mean = by_hand(release, record)
    found = exact_intruder(release, records=[record], progress=False).records.iloc[0]
    assert found["sd"] == pytest.approx(sd, rel=GRID_ERROR)
    assert found["mean"] == pytest.approx(mean, abs=0.02 * sd)


def test_it_is_so_where_copies_carry_a_part_of_the_effect():
    release = released(NUGGETS["ordinary"], "paper", 3.0)
    assert release.effect == "w*"
    sd, _ = by_hand(release, N - 1)
    found = exact_intruder(release, records=[N - 1], progress=False).records.iloc[0]
    assert found["sd"] == pytest.approx(sd, rel=GRID_ERROR)


def test_records_out_of_range_or_with_no_number_are_refused():
    release = released(NUGGETS["ordinary"], "paper")
    for arguments in ({"records": [N]}, {"records": []}, {"exact": 0}, {"exact": 1.5}):
        with pytest.raises(InputError):
            exact_intruder(release, progress=False, **arguments)
