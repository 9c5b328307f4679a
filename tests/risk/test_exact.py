"""The exact intruder against one written out in dense matrices, phi free and held."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache, partial

import numpy as np
import pandas as pd
import pytest
from scipy.interpolate import CubicSpline
from scipy.spatial.distance import cdist
from scipy.special import logsumexp
from scipy.stats import expon, norm

import dsstan as ds
from dsstan.core.errors import InputError
from dsstan.models.posterior import parameters_at
from dsstan.models.predictive import carried_effect
from dsstan.models.weights import own_weights
from dsstan.risk.intruder import exact, value_posterior
from dsstan.risk.intruder.attacker import attack
from dsstan.risk.intruder.exact import CopyGrid, exact_intruder
from dsstan.risk.intruder.known_variances import known_variances
from dsstan.risk.intruder.value_posterior import REACH, log_marginal, normalised, wide_spline
from dsstan.risk.intruder.variance_grid import VarianceGrid
from dsstan.table.rounding import Rounding

FAST = {"engine": "embedded", "progress": False, "chains": 2, "warmup": 400, "samples": 400}
N, PHI, FLAT = 10, 4.0, 1e6
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


@lru_cache
def released(nugget, protection, gamma=np.inf, copies=3, n=N, seed=5, noise=None, priors=None):
    """Copies; the decay is free without protection and under cut, else held."""
    problem = ds.prepare(table(nugget, n, seed), "y ~ x", coords=("a", "b"))
    free = fit = ds.fit(problem, seed=1, priors=priors, **FAST)
    if protection != "none":
        a = np.zeros(n)
        a[[0, n - 1]] = 1.0
        how = {"weights": own_weights(problem, a), "protection": protection, "gamma": gamma}
        fit = ds.fit(problem, start=free, seed=2, **how, **FAST)
    how = {"accept_failed": True, "accept_few_draws": True, "progress": False}
    sd = None if noise is None else noise * (np.arange(n) % 3 != 0)
    return ds.synthesise(fit, copies, seed=3, rounding="none", noise=sd, **how)


def log_normal(V, e):
    """Log normal density at each column of e, of each covariance of a stack, constant left out."""
    root = np.linalg.cholesky(V)
    z = np.linalg.solve(root, e)
    log_det = np.sum(np.log(np.diagonal(root, axis1=1, axis2=2)), axis=1)
    return -0.5 * np.sum(z**2, axis=1) - log_det[:, None]


def decays(fit, points):
    """Decays and the log weights of their prior, uniform or exponential."""
    if fit.phi_held is not None:
        return [(fit.phi_held, 0.0)]
    low, high = np.log(fit.priors.phi_bounds)
    x, w = np.polynomial.legendre.leggauss(points)
    at = 0.5 * (low + high) + 0.5 * (high - low) * x
    rate = fit.priors.phi_rate
    law = 0.0 if rate == 0.0 else expon(scale=1 / rate).logpdf(np.exp(at))
    return list(zip(np.exp(at), np.log(w) + at + law, strict=True))


def correlation_of(fit, phi):
    """R, with the decay in time and the share of the groups that the fit holds."""
    problem = fit.problem
    R = np.exp(-phi * cdist(problem.sites, problem.sites))
    if problem.structure is None:
        return R
    year, zips = (problem.table[name].to_numpy() for name in ("year", "zip"))
    R *= (1 - fit.group_share) * np.exp(-fit.time_decay * np.abs(year[:, None] - year))
    return R + fit.group_share * (zips[:, None] == zips)


def by_hand(release, i, points=41, at_decays=14, known=None):
    """Mean and sd of y_i from normal laws written out, node by node.

    With the draw behind each copy ``known``, its law takes the place of a sum.

    The coefficients have a wide normal prior and are part of every covariance.
    """
    fit, problem = release.fit, release.problem
    free = fit.start or fit
    X, y, A, n = problem.X, problem.y, fit.A, problem.n_records
    R_at = partial(correlation_of, fit)
    rows = np.flatnonzero(A == 1) if fit.protection == "cut" else np.arange(n)
    carried = np.where((A == 0) | (release.effect == "w"), 1.0, A)
    removed = 1 - A**2 if fit.protection == "preserving" else 0 * A
    bounds = attack(release, progress=False)
    sd, alone = bounds.sd()[i], bounds.leave_one_out[i]
    reach = np.arcsinh(6.0 + 10.0 * alone / sd)  # dense in the middle, and as wide as its tails
    values = y[i] + np.sinh(np.linspace(-reach, reach, points)) * sd
    ys = np.tile(y[:, None], (1, points))
    ys[i] = values
    copies = release.modelled()
    wide, eye = FLAT * X @ X.T, np.eye(n)
    added = 0.0 if release.noise is None else np.diag(release.noise**2)
    s = np.exp(np.arange(-8.0, 4.5, 0.2))[:, None, None]
    ratios = np.geomspace(1e-4, 1e4, 93)
    at_end = np.zeros(ratios.size)
    at_end[[0, -1]] = np.log(0.5)  # a trapezoid: there may be mass where the prior's range ends

    def half_normal(which, t):
        p = which.priors
        out = -0.5 * s / p.sigma[0] ** 2 - 0.5 * t / p.tau[0] ** 2 + 0.5 * np.log(s * t)
        return out[:, :, 0]

    def laws(phi, s, t):
        """Log density of y, and of each copy given y."""
        R = R_at(phi)
        yy = wide + s * (A[:, None] * R * A + np.diag(removed)) + t * eye
        cy = wide + s * carried[:, None] * R * A
        cc = wide + s * carried[:, None] * R * carried + t * eye + added
        yy, cy = yy[:, rows][:, :, rows], cy[:, :, rows]
        gain = np.swapaxes(np.linalg.solve(yy, np.swapaxes(cy, 1, 2)), 1, 2)
        mean, Vs = gain @ ys[rows], cc - gain @ np.swapaxes(cy, 1, 2)
        Vs = 0.5 * (Vs + np.swapaxes(Vs, 1, 2))
        return log_normal(yy, ys[None, rows]), [log_normal(Vs, c[:, None] - mean) for c in copies]

    prior, post, seen = [], [], []
    for phi, weight in decays(free, at_decays):
        for r, end in zip(ratios, at_end, strict=True):
            S = wide + s * R_at(phi) + s * r * eye
            prior.append(weight + end + half_normal(free, s * r) + log_normal(S, ys))
    for phi, weight in decays(fit, at_decays):
        for r, end in zip(ratios, at_end, strict=True):
            of_y, of_copies = laws(phi, s, s * r)
            post.append(weight + end + half_normal(fit, s * r) + of_y)
            seen.append(of_copies)
    prior, post = np.concatenate(prior), np.concatenate(post)
    total = logsumexp(prior, axis=0)
    for c in range(len(copies)):
        if known is None:
            together = logsumexp(post + np.concatenate([each[c] for each in seen]), axis=0)
        else:
            p = known[c]
            of_y, of_copies = laws(p.phi, np.full((1, 1, 1), p.sigma_sq), p.tau_sq)
            together = (of_y + of_copies[c])[0]
        total = total + together - logsumexp(post, axis=0)
    density = CubicSpline(values, total - total.max())
    fine = np.linspace(values[0], values[-1], 20_001)
    weight = np.exp(density(fine))
    weight /= weight.sum()
    assert weight[[0, -1]].max() < 1e-4 * weight.max()
    mean = weight @ fine
    return np.sqrt(weight @ (fine - mean) ** 2), mean


@pytest.mark.parametrize("record", [0, 29])
def test_it_is_so_of_a_panel_with_groups(record):
    """Ten places with three years each, in four groups; one place is flagged in all its years."""
    rng = np.random.default_rng(8)
    place = np.repeat(np.arange(10), 3)
    sites = np.vstack([rng.uniform(0, 1, (9, 2)), [[1.8, 1.8]]])[place]
    year, zips = np.tile(np.arange(3.0), 10), place % 4
    R = 0.7 * np.exp(-PHI * cdist(sites, sites) - 0.4 * np.abs(year[:, None] - year))
    R += 0.3 * (zips[:, None] == zips)
    y = 2.0 + np.linalg.cholesky(R + 0.25 * np.eye(30)) @ rng.standard_normal(30)
    columns = {"a": sites[:, 0], "b": sites[:, 1], "y": y, "year": year, "zip": zips}
    of = {"coords": ("a", "b"), "time": "year"}
    problem = ds.prepare(pd.DataFrame(columns), "y ~ 1 + (1 | zip)", **of)
    how = FAST | {"engine": "direct"}
    free = ds.fit(problem, time_decay=0.4, group_share=0.3, seed=1, **how)
    a = np.where(place == 9, 1.0, 0.0)
    fit = ds.fit(problem, weights=own_weights(problem, a), start=free, seed=2, **how)
    release = ds.synthesise(
        fit, 3, seed=3, rounding="none", accept_failed=True, accept_few_draws=True, progress=False
    )
    sd, mean = by_hand(release, record)
    found = exact_intruder(release, records=[record], progress=False).records.iloc[0]
    assert found["sd"] == pytest.approx(sd, rel=GRID_ERROR)
    assert found["mean"] == pytest.approx(mean, abs=0.02 * sd)


NIGHT = pytest.mark.nightly("the exact intruder in every case")
BY_DAY = {
    ("none", "weak", N - 1),
    ("none", "ordinary", 0),
    ("paper", "strong", 5),
    ("paper", "weak", 0),
    ("preserving", "ordinary", N - 1),
    ("cut", "weak", 5),
}


@pytest.mark.parametrize(
    ("protection", "nugget", "record"),
    [
        pytest.param(p, k, i, marks=() if (p, k, i) in BY_DAY else NIGHT)
        for p in PROTECTIONS
        for k in NUGGETS
        for i in (0, 5, N - 1)
    ],
)
def test_the_posterior_is_that_of_normal_laws_written_out(protection, nugget, record):
    """Record 0 shares its site and is flagged, 5 is ordinary, the last far and flagged."""
    release = released(NUGGETS[nugget], protection)
    assert (release.fit.phi_held is None) == (protection in ("none", "cut"))
    sd, mean = by_hand(release, record)
    found = exact_intruder(release, records=[record], progress=False).records.iloc[0]
    assert found["sd"] == pytest.approx(sd, rel=GRID_ERROR)
    assert found["mean"] == pytest.approx(mean, abs=0.02 * sd)


PENALISED = ds.Priors(decay="penalised-complexity", short_range=(6.0, 0.01), phi_bounds=(0.15, 6.0))
"""It pulls to ranges far beyond the table, so that an intruder without it would be another one."""


@pytest.mark.parametrize(
    ("protection", "nugget", "record"),
    [
        ("none", "ordinary", 0),
        ("cut", "ordinary", 5),
        pytest.param("paper", "ordinary", 0, marks=NIGHT),
        pytest.param("none", "strong", N - 1, marks=NIGHT),
        pytest.param("none", "weak", 5, marks=NIGHT),
    ],
)
def test_it_is_so_under_the_penalised_complexity_prior(protection, nugget, record):
    release = released(NUGGETS[nugget], protection, priors=PENALISED)
    assert release.fit.priors.phi_rate > 1.0
    sd, mean = by_hand(release, record)
    found = exact_intruder(release, records=[record], progress=False).records.iloc[0]
    assert found["sd"] == pytest.approx(sd, rel=GRID_ERROR)
    assert found["mean"] == pytest.approx(mean, abs=0.02 * sd)


def test_the_prior_of_the_decay_counts_for_the_intruder():
    """Were it left out, the mean would be further off than the test above allows."""
    release = released(NUGGETS["ordinary"], "none", priors=PENALISED)
    flat = replace(release.fit, priors=replace(release.fit.priors, phi_rate=0.0))
    found = exact_intruder(release, records=[0], progress=False).records.iloc[0]
    other = exact_intruder(replace(release, fit=flat), records=[0], progress=False).records.iloc[0]
    assert abs(found["mean"] - other["mean"]) > 3 * 0.02 * found["sd"]


@pytest.mark.parametrize(
    ("protection", "nugget", "record"),
    [
        ("preserving", "weak", 5),
        ("paper", "ordinary", 0),
        pytest.param("none", "weak", N - 1, marks=NIGHT),
        pytest.param("cut", "ordinary", 5, marks=NIGHT),
    ],
)
def test_it_is_so_where_noise_was_added(protection, nugget, record):
    """Two records in three have noise of an sd like that of a copy's own."""
    release = released(NUGGETS[nugget], protection, noise=0.3)
    sd, mean = by_hand(release, record)
    found = exact_intruder(release, records=[record], progress=False).records.iloc[0]
    assert found["sd"] == pytest.approx(sd, rel=GRID_ERROR)
    assert found["mean"] == pytest.approx(mean, abs=0.02 * sd)


def test_noise_of_sd_0_is_no_noise():
    plain, zero = (released(NUGGETS["weak"], "preserving", noise=sd) for sd in (None, 0.0))
    found = [
        exact_intruder(release, records=[0, 5, N - 1], progress=False).records["sd"]
        for release in (plain, zero)
    ]
    assert zero.noise is not None
    assert found[1].index.tolist() == found[0].index.tolist()


@pytest.mark.parametrize(
    ("protection", "effect"), [("paper", "w*"), pytest.param("preserving", "w", marks=NIGHT)]
)
def test_it_is_so_where_records_are_smoothed_in_part(protection, effect):
    release = released(NUGGETS["ordinary"], protection, 3.0)
    assert release.effect == effect
    sd, _ = by_hand(release, N - 1)
    found = exact_intruder(release, records=[N - 1], progress=False).records.iloc[0]
    assert found["sd"] == pytest.approx(sd, rel=GRID_ERROR)


@pytest.mark.parametrize(
    ("protection", "gamma"),
    [
        ("preserving", 3.0),
        *(pytest.param(p, np.inf, marks=NIGHT) for p in PROTECTIONS),
    ],
)
def test_where_the_draws_are_known_it_is_the_law_at_each_draw(protection, gamma):
    release = released(NUGGETS["ordinary"], protection, gamma)
    fit = release.fit
    points = [parameters_at(fit, int(c), int(s)) for c, s in release.draw_index]
    carried = carried_effect(fit, release.effect)[0]
    found = known_variances(fit, fit.start or fit, release.modelled(), points, carried)
    for record in (5, N - 1):
        sd, _ = by_hand(release, record, known=points)
        assert found.sd[record] == pytest.approx(sd, rel=GRID_ERROR)


def test_records_out_of_range_or_with_no_number_are_refused():
    release = released(NUGGETS["ordinary"], "paper")
    for arguments in ({"records": [N]}, {"records": []}, {"exact": 0}, {"exact": 1.5}):
        with pytest.raises(InputError):
            exact_intruder(release, progress=False, **arguments)


@pytest.mark.parametrize(("step", "most"), [(0.25, 0.03), (1.0, 0.1)])
def test_rounding_matters_only_where_a_step_is_not_small_against_tau(step, most):
    """Rounded copies taken as exact, against the mean likelihood over what they may have been."""
    release = released(NUGGETS["ordinary"], "paper")
    fit, record, samples = release.fit, np.array([5]), 400
    width = step * float(np.sqrt(fit.draws["tau_sq"]).mean())
    copies = width * np.rint(release.modelled() / width)
    rng = np.random.default_rng(1)
    inside = copies[:, None] + width * rng.uniform(-0.5, 0.5, (len(copies), samples, N))
    before = VarianceGrid(fit.start, record)
    mean, sd = before.moments(0)
    prior = wide_spline(before, 0, mean, sd)
    found = []
    for seen in (copies[:, None], inside):
        law = CopyGrid(fit, record, seen.reshape(-1, N), np.ones(N))
        together = log_marginal(law.grid, law.joint, 0, law.degrees, law.kept)
        alone = log_marginal(law.grid, law.grid.marginal, 0, law.grid.degrees, law.kept)

        def density(x, seen=seen, together=together, alone=alone):
            each = together(x).reshape(len(copies), -1, x.size)
            return prior(x) + (logsumexp(each, axis=1) - alone(x)).sum(axis=0)

        x, weight = normalised(density, sd, REACH * sd)
        found.append(np.sqrt(weight @ (x - weight @ x) ** 2))
    assert found[0] == pytest.approx(found[1], rel=most)


def test_the_table_has_the_step_of_each_record_in_tau():
    release = released(NUGGETS["ordinary"], "paper")
    steps = Rounding(1, (1,), (1.0,))
    rounded = replace(release, values=np.round(release.values, 1), rounding=steps)
    found = exact_intruder(rounded, records=[3], progress=False).records
    tau = np.sqrt(release.fit.draws["tau_sq"]).mean()
    assert found["rounding"].iloc[0] == pytest.approx(0.1 / tau)
    assert exact_intruder(release, records=[3], progress=False).records["rounding"].iloc[0] == 0


def narrow_top(seed):
    """Thirty records, three pairs at one site each, a tiny nugget and a far outlier, the first."""
    rng = np.random.default_rng(seed)
    sites = rng.uniform(0, 1, (30, 2))
    sites[0], sites[5:8] = (2.2, 2.0), sites[10:13]
    x = rng.normal(size=30)
    root = np.linalg.cholesky(np.exp(-3.0 * cdist(sites, sites)) + 1e-9 * np.eye(30))
    y = 10 + 0.5 * x + root @ rng.normal(size=30) + np.sqrt(0.001) * rng.normal(size=30)
    y[0] += 3.0
    columns = {"a": sites[:, 0], "b": sites[:, 1], "x": x, "y": y}
    return ds.prepare(pd.DataFrame(columns), "y ~ x", coords=("a", "b"))


@pytest.mark.parametrize(("gamma", "record", "within"), [(None, 5, 1e-4), (20.0, 0, 2e-3)])
def test_a_narrow_top_and_two_peaks_are_no_matter_of_the_splines(
    gamma, record, within, monkeypatch
):
    """A pair with a tiny nugget once had an sd 0.4% too large, two peaks one 0.7% too small."""
    problem, how = narrow_top(116), {"engine": "direct", "progress": False}
    free = fit = ds.fit(problem, seed=1, **how)
    if gamma is not None:
        a = own_weights(problem, (np.arange(30) == 0) * 1.0)
        fit = ds.fit(problem, weights=a, gamma=gamma, start=free, seed=2, **how)
    drawn = {"accept_failed": True, "accept_few_draws": True, "progress": False}
    release = ds.synthesise(fit, 2, seed=3, **drawn)
    found = exact_intruder(release, records=[record], against=free, progress=False)
    for name, value in (("KNOTS", 129), ("CLOSE", 257)):
        monkeypatch.setattr(exact, name, value)
    monkeypatch.setattr(value_posterior, "WIDE", 641)
    value_posterior._LAWS.clear()
    finer = exact_intruder(release, records=[record], against=free, progress=False)
    assert found.worst == pytest.approx(finer.worst, rel=within)


def test_quantiles_are_those_of_the_law_and_not_of_its_grid():
    fine, weight = normalised(lambda x: -0.5 * (x - 0.3) ** 2, 1.4, 40.0)
    below = np.cumsum(weight) - 0.5 * weight
    low, high = np.interp([0.025, 0.975], below, fine)
    assert [low, high] == pytest.approx(norm(0.3, 1.0).ppf([0.025, 0.975]), abs=1e-4)


def test_a_posterior_is_sought_within_its_reach_alone():
    """Beyond it the log density is an extrapolation, which may rise without end; the middle of
    the first grid lies far from 0 where the value is far from its law."""

    def density(x):
        return -0.5 * ((x + 80.0) / 3.0) ** 2 + np.where(np.abs(x) > 120.0, np.abs(x) ** 3, 0.0)

    fine, weight = normalised(density, 2.0, 120.0)
    assert np.abs(fine).max() <= 120.0
    assert weight @ fine == pytest.approx(-80.0, abs=1e-3)
    assert np.sqrt(weight @ (fine + 80.0) ** 2) == pytest.approx(3.0, rel=1e-3)
