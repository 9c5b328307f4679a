"""The whole-release attacker against derivatives, normal laws written out, and a real intruder."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.spatial.distance import cdist

import dsstan as ds
from conftest import small_table
from dsstan.core.errors import InputError
from dsstan.covariance.base import Parameters
from dsstan.covariance.copy_law import copy_law, projected_precision
from dsstan.covariance.eigenbasis import FreeSurface, HeldBasis, eigenbasis_covers
from dsstan.covariance.latent import LatentModel
from dsstan.models.posterior import parameters_at, spread_draws
from dsstan.models.predictive import carried_effect
from dsstan.models.weights import own_weights, smoothing
from dsstan.risk.intruder.attacker import MARGIN, Attack, attack
from dsstan.risk.intruder.leave_one_out import leave_one_out_precision, unrestricted_terms
from dsstan.risk.intruder.planned import planned_information
from mc import FALSE_ALARM, z_limit

P = Parameters(np.array([5.0, 0.7]), 1.6, 0.25, 4.0)
PROTECTIONS = ("none", "paper", "preserving", "cut")

FLAT = 1e6
"""Prior variance of a coefficient that stands for a flat prior where a law is written out."""

FLAT_ERROR = 1e-5
"""What FLAT and the digits it costs leave: about V / (N FLAT), and 1e-16 FLAT."""

ROUNDING = 1e-9
"""Relative error of two orders of the same linear algebra, condition numbers up to 1e4."""

LINEAR = 1e-9
"""A difference quotient of a linear map has no truncation error, only rounding."""

GRID_ERROR = 1e-4
"""Relative error of an sd from a grid; FLAT_ERROR is all there should be."""

NORMAL = 0.06
"""Share by which a posterior precision may miss the normal approximation, whose information is
that at the true value: with 30 copies the posterior is narrow, not a point."""

UNKNOWING = 0.10
"""Share of the fixed information that not knowing a copy's variances may cost."""


@pytest.fixture(scope="module")
def cheap(tiny):
    """A fit to be given other problems, weights and draws; its own draws are never used."""
    return ds.fit(tiny, chains=1, warmup=50, samples=50, seed=1, engine="embedded", progress=False)


def carry(fit, protection, *, problem=None, a=None, gamma=np.inf, points=(P, P)):
    """A fit of a problem under a protection, with given draws and no sampling."""
    problem = problem or fit.problem
    restricted = protection != "none"
    weights = own_weights(problem, a) if restricted else None
    scalars = {k: np.array([[getattr(p, k) for p in points]]) for k in ("sigma_sq", "tau_sq")}
    return dataclasses.replace(
        fit,
        problem=problem,
        kind="restricted" if restricted else "unrestricted",
        protection=protection,
        weights=weights,
        gamma=gamma if restricted else 0.0,
        A=smoothing(gamma, weights.a) if restricted else np.ones(problem.n_records),
        phi_held=points[0].phi if restricted else None,
        draws={
            "beta": np.array([[p.beta for p in points]]),
            "phi": np.array([[p.phi for p in points]]),
            **scalars,
        },
        start=None,
    )


def covered(fit, effect):
    """Whether the eigenbasis serves copies of this effect."""
    return eigenbasis_covers(fit, carried_effect(fit, effect)[0])


def risk(n=30):
    """Flags on the far record, on one of a pair at one site, and on both of another pair."""
    a = np.zeros(n)
    a[[n - 1, 0]] = 1.0
    a[[1, 5]] = 0.5
    return a


def written_out(fit, p, carried):
    """E[copy | y] as a map, Cov[copy | y] and Cov[y] from the joint normal law of both."""
    problem, A = fit.problem, fit.A
    X, n = problem.X, problem.n_records
    K = p.sigma_sq * np.exp(-p.phi * cdist(problem.sites, problem.sites))
    D = np.full(n, p.tau_sq)
    if fit.protection == "preserving":
        D = D + p.sigma_sq * (1 - A**2)
    rows = np.flatnonzero(A == 1) if fit.protection == "cut" else np.arange(n)
    prior = FLAT * X @ X.T
    yy = (prior + np.diag(A) @ K @ np.diag(A) + np.diag(D))[np.ix_(rows, rows)]
    cy = (prior + np.diag(carried) @ K @ np.diag(A))[:, rows]
    cc = prior + np.diag(carried) @ K @ np.diag(carried) + p.tau_sq * np.eye(n)
    H = np.zeros((n, n))
    H[:, rows] = np.linalg.solve(yy, cy.T).T
    return H, cc - H[:, rows] @ cy.T


def unrestricted_covariance(problem, p):
    """Cov[y] under the unrestricted model, the coefficients' wide prior included."""
    K = p.sigma_sq * np.exp(-p.phi * cdist(problem.sites, problem.sites))
    return FLAT * problem.X @ problem.X.T + K + p.tau_sq * np.eye(problem.n_records)


# --- The law of a copy ---------------------------------------------------------------------


@pytest.mark.parametrize("effect", ["w", "w*", "plug"])
@pytest.mark.parametrize("gamma", [0.0, 3.0, np.inf])
@pytest.mark.parametrize("protection", PROTECTIONS)
def test_exposure_is_the_derivative_of_the_copys_mean_by_the_records_value(
    cheap, protection, gamma, effect
):
    fit = carry(cheap, protection, a=risk(), gamma=gamma)
    # Any factor on w must do, also one that synthesis refuses (w* under preserving).
    carried = fit.A if effect == "w*" else carried_effect(fit, effect)[0]
    model, problem, rows = LatentModel(fit), fit.problem, fit.informing
    _, _, M = model.parts(P.phi)
    V = P.sigma_sq * M + P.tau_sq * np.eye(rows.size)
    Xr = problem.X[rows]

    def mean(y):
        """E[copy | y], the coefficients estimated anew by generalised least squares."""
        W = np.linalg.solve(V, Xr)
        beta = np.linalg.solve(Xr.T @ W, W.T @ y[rows])
        model.y = y[rows]
        return problem.X @ beta + carried * model.mean(dataclasses.replace(P, beta=beta))

    y, unit = problem.y, np.eye(problem.n_records)
    want = np.column_stack([mean(y + e) - mean(y) for e in unit])
    H = copy_law(LatentModel(fit), P, carried).H
    np.testing.assert_allclose(H, want, atol=LINEAR)
    if protection == "cut" and gamma > 0:
        assert np.all(H[:, fit.flagged] == 0)


@pytest.mark.parametrize("effect", ["w", "w*", "plug"])
@pytest.mark.parametrize("gamma", [0.0, 3.0, np.inf])
@pytest.mark.parametrize("protection", PROTECTIONS)
def test_the_law_of_a_copy_is_the_conditional_of_the_joint_normal(cheap, protection, gamma, effect):
    fit = carry(cheap, protection, a=risk(), gamma=gamma)
    # Any factor on w must do, also one that synthesis refuses (w* under preserving).
    carried = fit.A if effect == "w*" else carried_effect(fit, effect)[0]
    H, Vs = written_out(fit, P, carried)
    law = copy_law(LatentModel(fit), P, carried)
    np.testing.assert_allclose(law.H, H, atol=FLAT_ERROR)
    np.testing.assert_allclose(law.Vs, Vs, atol=FLAT_ERROR)


@pytest.mark.parametrize("protection", PROTECTIONS)
def test_the_score_is_the_derivative_of_the_likelihood_of_the_variances(cheap, protection):
    """d/dy_i of log p(y | variances) is -(P y)_i, the coefficients integrated out."""
    fit = carry(cheap, protection, a=risk(), gamma=3.0)
    model, rows = LatentModel(fit), fit.informing
    _, _, M = model.parts(P.phi)
    V = P.sigma_sq * M + P.tau_sq * np.eye(rows.size)
    law = stats.multivariate_normal(cov=V + FLAT * model.X @ model.X.T)
    step = 1e-3 * np.eye(rows.size)
    got = copy_law(model, P, np.ones(30)).score
    want = [(law.logpdf(model.y + e) - law.logpdf(model.y - e)) / 2e-3 for e in step]
    np.testing.assert_allclose(got[rows], -np.array(want), atol=1e-4)
    assert np.all(got[np.setdiff1d(np.arange(30), rows)] == 0)


# --- The attacker's precision --------------------------------------------------------------


@pytest.mark.parametrize("gamma", [3.0, np.inf])
@pytest.mark.parametrize("protection", PROTECTIONS)
def test_the_sd_is_that_of_the_joint_normal_of_values_and_copies(cheap, protection, gamma):
    free, fit = carry(cheap, "none"), carry(cheap, protection, a=risk(), gamma=gamma)
    L, n = 3, 30
    H, Vs = written_out(fit, P, carried_effect(fit)[0])
    S = unrestricted_covariance(fit.problem, P)
    HS, stack = H @ S, np.ones((L, L))
    joint = np.block(
        [
            [S, np.tile(HS.T, L)],
            [np.tile(HS.T, L).T, np.kron(stack, HS @ H.T) + np.kron(np.eye(L), Vs)],
        ]
    )
    want = []
    for i in range(n):
        rest = np.delete(np.arange(len(joint)), i)
        gain = np.linalg.solve(joint[np.ix_(rest, rest)], joint[rest, i])
        want.append(joint[i, i] - joint[i, rest] @ gain)
    got = attack(fit, against=free, copies=L, progress=False)
    # A variance is a difference of numbers of the size of FLAT.
    np.testing.assert_allclose(got.sd() ** 2, want, rtol=1e-4)


def drop_one_kriging(problem, p):
    """Variance of universal kriging at each record from the others, nugget included."""
    V = p.sigma_sq * np.exp(-p.phi * cdist(problem.sites, problem.sites))
    V = V + p.tau_sq * np.eye(problem.n_records)
    out = []
    for i in range(problem.n_records):
        rest = np.delete(np.arange(problem.n_records), i)
        X, k, W = problem.X[rest], V[rest, i], V[np.ix_(rest, rest)]
        zero = np.zeros((X.shape[1], X.shape[1]))
        right = np.concatenate([k, problem.X[i]])
        out.append(V[i, i] - right @ np.linalg.solve(np.block([[W, X], [X.T, zero]]), right))
    return np.array(out)


def test_leave_one_out_precision_is_that_of_drop_one_kriging(small, free):
    np.testing.assert_allclose(
        projected_precision(LatentModel(free), P), 1 / drop_one_kriging(small, P), rtol=ROUNDING
    )


def test_leave_one_out_precision_is_averaged_over_the_draws_by_an_interpolant(small, free):
    points = [parameters_at(free, int(c), int(i)) for c, i in spread_draws(free, 100)]
    want = np.mean([1 / drop_one_kriging(small, p) for p in points], axis=0)
    # The tolerance holds at the middle draw; elsewhere the error may be a few times as large.
    np.testing.assert_allclose(unrestricted_terms(free, 100).precision, want, rtol=5e-5)


def test_the_interpolant_is_as_good_at_the_outermost_draws(free):
    model = LatentModel(free)
    points = [parameters_at(free, int(c), int(i)) for c, i in spread_draws(free, 100)]
    surface = FreeSurface(free, points, (12, 24))
    for key in (lambda p: p.phi, lambda p: p.tau_sq / p.sigma_sq):
        for p in (min(points, key=key), max(points, key=key)):
            got = surface.at(p)
            np.testing.assert_allclose(got.precision, projected_precision(model, p), rtol=5e-5)
            law = copy_law(model, p, np.ones(model.y.size))
            information = np.diag(law.H.T @ np.linalg.solve(law.Vs, law.H))
            np.testing.assert_allclose(got.information, information, rtol=5e-5)
            np.testing.assert_allclose(got.exposure, np.diag(law.H), rtol=5e-5)
            size = np.sqrt(got.precision.max())
            np.testing.assert_allclose(got.score, law.score, rtol=5e-5, atol=5e-5 * size)


def test_unrestricted_terms_are_those_of_the_dense_formulas_over_the_same_draws(free):
    model, points = LatentModel(free), spread_draws(free, 60)
    laws = [
        copy_law(model, parameters_at(free, int(c), int(i)), np.ones(model.y.size))
        for c, i in points
    ]
    found = attack(free, copies=3, draws=60, progress=False)
    one = np.stack([np.diag(w.H.T @ np.linalg.solve(w.Vs, w.H)) for w in laws])
    leak = np.var([w.score for w in laws], axis=0, ddof=1)
    np.testing.assert_allclose(found.by_draw[0], one, rtol=1e-4)
    got = np.mean(found.by_draw[1] - found.by_draw[0], axis=0)
    np.testing.assert_allclose(got, leak, rtol=5e-5, atol=5e-5 * leak.max())
    exposure = np.mean([np.diag(w.H) for w in laws], axis=0)
    np.testing.assert_allclose(found.exposure, exposure, rtol=1e-5)  # as at a single draw, above


def test_unrestricted_terms_are_computed_once_for_a_fit(free):
    assert unrestricted_terms(free, 60) is unrestricted_terms(free, 60)
    assert unrestricted_terms(free, 61) is not unrestricted_terms(free, 60)


def test_by_default_an_attack_uses_400_draws_where_many_cost_little(cheap, kept, free):
    assert attack(free, copies=2, progress=False).draws == min(400, free.n_draws)
    assert attack(kept, copies=2, progress=False).draws == min(400, kept.n_draws)


@pytest.mark.parametrize("draws", [2, 20])
def test_a_record_with_a_coefficient_of_its_own_can_not_be_told_from_the_others(cheap, draws):
    """Its sd without copies is infinite, not NaN and not a large number, and finite with them."""
    table = small_table(30, seed=9, shared=4)
    table["group"] = ["a"] * 29 + ["b"]
    problem = ds.prepare(table, "log(value) ~ x + group", coords=("east", "north"))
    points = [Parameters(np.zeros(3), 1.6, 0.25 + 0.01 * k, 4.0 + 0.1 * k) for k in range(draws)]
    fit = carry(cheap, "none", problem=problem, points=points)
    found = attack(fit, copies=10, draws=draws, progress=False)
    assert np.isinf(found.leave_one_out[-1])
    assert np.all(np.isfinite(found.leave_one_out[:-1]))
    assert np.all(np.isfinite(found.sd()) & (found.sd() > 0))
    assert np.isinf(found.sd(0)[-1])
    assert found.largest_release(0.1) > 0


def dense_terms(fit, places):
    """Information and score at some draws, from the dense formulas, shape (S, N) each."""
    model, points = LatentModel(fit), [parameters_at(fit, int(c), int(i)) for c, i in places]
    laws = [copy_law(model, p, carried_effect(fit)[0]) for p in points]
    information = [np.diag(w.H.T @ np.linalg.solve(w.Vs, w.H)) for w in laws]
    return np.stack(information), np.stack([w.score for w in laws])


def test_the_information_of_a_release_is_the_sum_over_the_draws_behind_its_copies(free, kept):
    release = ds.synthesise(kept, 7, seed=1, progress=False)
    found = attack(release, draws=10, progress=False)
    one, score = dense_terms(kept, release.draw_index)
    _, others = dense_terms(kept, spread_draws(kept, 10))
    least = others.var(axis=0, ddof=1)
    leak = np.maximum(np.mean((score - others.mean(axis=0)) ** 2, axis=0), least)
    bare = dataclasses.replace(found, margin=(1.0, 1.0))
    precision = found.leave_one_out**-2 + one.sum(axis=0)
    np.testing.assert_allclose(bare.sd(), precision**-0.5, rtol=ROUNDING)
    # Not less than that for one who knows the draws, and not less than their posterior says.
    assert np.all(bare.sd(variances="known") <= (precision + 7 * leak) ** -0.5 * (1 + ROUNDING))
    for variances, factor in zip(("fixed", "known"), MARGIN, strict=True):
        sd = found.sd(variances=variances)
        np.testing.assert_allclose(sd, factor * bare.sd(variances=variances), rtol=ROUNDING)
    assert np.any(leak > least)
    assert np.any(leak == least)
    assert (found.copies, found.draws, found.released) == (7, 10, 7)


@pytest.mark.parametrize("effect", ["auto", "w*"])
def test_an_attack_on_copies_takes_their_effect_and_their_number(kept, effect):
    release = ds.synthesise(kept, 6, seed=1, effect=effect, accept_failed=True)
    first = attack(release, draws=5, progress=False)
    plan = attack(kept, copies=6, effect=effect, draws=5, progress=False)
    assert first.copies == plan.copies == 6
    np.testing.assert_array_equal(first.by_draw, plan.by_draw)
    # By a grid, and by reweighted draws.
    np.testing.assert_allclose(first.leave_one_out, plan.leave_one_out, rtol=0.1)
    assert attack(release, copies=9, draws=5, progress=False).copies == 9


def test_fewer_copies_have_a_share_of_the_information_and_more_at_least_what_is_planned(kept):
    release = ds.synthesise(kept, 6, seed=1, progress=False)
    found, plan = attack(release, progress=False), attack(kept, copies=6, progress=False)
    found = dataclasses.replace(found, margin=(1.0, 1.0))
    prior = found.leave_one_out**-2
    fewer, own, more = (found.sd(k) ** -2 - prior for k in (2, 6, 12))
    planned = plan.sd(12) ** -2 - plan.leave_one_out**-2
    np.testing.assert_allclose(fewer, own / 3, rtol=1e-8)
    np.testing.assert_allclose(more, np.maximum(2 * own, planned), rtol=1e-6)


# --- A plan --------------------------------------------------------------------------------


def test_a_plan_counts_on_a_set_of_draws_with_much_information():
    """One draw in ten carries nearly all: few sets of ten draws have as little as the mean."""
    one = np.where(np.arange(400) % 10 == 0, 1000.0, 1.0)[:, None]
    planned = planned_information(one, 10)[0]
    assert planned == pytest.approx(3007.0)  # the 95% quantile of a binomial(10, 1/10) is 3
    assert planned > 2.5 * 10 * one.mean()


def test_a_plan_grows_with_the_copies_and_tends_to_their_mean():
    one = np.random.default_rng(1).pareto(1.5, size=(100, 3))
    sums = np.array([planned_information(one, k) for k in (*range(1, 250), 10**4)])
    assert np.all(np.diff(sums, axis=0) > 0)
    # What is left at the end is the Monte Carlo error of 100 draws.
    error = one.std(axis=0) / 10.0
    assert np.all(sums[-1] / 10**4 < one.mean(axis=0) + 4 * error)
    assert np.all(sums[-1] / 10**4 >= one.mean(axis=0))


def test_of_few_draws_a_plan_takes_the_largest():
    one = np.array([[1.0, 5.0], [3.0, 2.0]])
    np.testing.assert_array_equal(planned_information(one, 4), [12.0, 20.0])


# --- The eigenbasis ------------------------------------------------------------------------

FLAGS = {
    "one": [29],
    "several": [29, 3, 11, 17, 20],
    "none": [],
    "both of a pair at one site": [0, 4, 29],
    "one of a pair at one site": [0, 29],
    "all but five": list(range(5, 30)),
}


@pytest.mark.parametrize("effect", ["w", "w*"])
@pytest.mark.parametrize("flags", FLAGS)
@pytest.mark.parametrize("protection", ["paper", "preserving", "cut"])
def test_the_eigenbasis_gives_the_dense_terms(cheap, protection, flags, effect):
    a = np.zeros(30)
    a[FLAGS[flags]] = 1.0
    fit = carry(cheap, protection, a=a)
    assert covered(fit, effect)
    basis, model = HeldBasis(fit), LatentModel(fit)
    for p in (P, Parameters(P.beta, 4.0, 0.0625, P.phi), Parameters(P.beta, 0.1, 2.0, P.phi)):
        law = copy_law(model, p, carried_effect(fit, effect)[0])
        got = basis.terms(p)
        information = np.diag(law.H.T @ np.linalg.solve(law.Vs, law.H))
        for mine, dense in (
            (got.information, information),
            (got.exposure, np.diag(law.H)),
            (got.score, law.score),
        ):
            np.testing.assert_allclose(mine, dense, rtol=ROUNDING, atol=ROUNDING * abs(dense).max())


def test_the_eigenbasis_leaves_other_fits_to_the_dense_terms(cheap):
    a = risk()
    assert not covered(carry(cheap, "none"), "w")
    assert not covered(carry(cheap, "paper", a=a, gamma=3.0), "w")
    assert not covered(carry(cheap, "paper", a=a), "plug")


@pytest.mark.parametrize("protection", ["paper", "preserving"])
def test_flagging_every_record_gives_finite_terms(cheap, protection):
    """No record is left for a basis; copies then follow least squares and the prior of w."""
    fit = carry(cheap, protection, a=np.ones(30))
    assert not covered(fit, "w")
    found = attack(fit, against=carry(cheap, "none"), copies=4, progress=False)
    hat = fit.problem.X @ np.linalg.pinv(fit.problem.X)
    np.testing.assert_allclose(found.exposure, np.diag(hat), atol=ROUNDING)
    assert np.all(np.isfinite(found.sd()) & (found.sd() > 0))


def test_flagging_every_record_under_cut_is_refused_by_the_fit(tiny):
    with pytest.raises(InputError, match="flag fewer"):
        ds.fit(tiny, weights=own_weights(tiny, np.ones(30)), protection="cut", phi=4.0)


# --- The numbers of the design -------------------------------------------------------------

OUTLIER = np.array([0.51, 0.01])
TRUTH = Parameters(np.zeros(1), 4.0, 0.0625, 12.7)
N_DENSE, N = 420, 500
DESIGNS = 10
RANGES = {
    # effect and protection: h_ii, attacker sd, sd from the release alone, at the outlier
    "none": ((0.9845, 0.9855), (0.0155, 0.0165), (0.0155, 0.0165)),
    "paper": ((0.59, 0.64), (0.138, 0.148), (0.138, 0.148)),
    "plug": ((0.67, 0.73), (0.0200, 0.0215), (0.0200, 0.0215)),
    "preserving": ((0.029, 0.033), (1.62, 1.70), (2.65, 3.07)),
    "cut": ((0.0, 0.0), (2.035, 2.05), (np.inf, np.inf)),
}
"""Medians over designs: the ranges of the design's 20 where stated, else its digits rounded."""

UNFLAGGED = {500: (0.0155, 0.0205), 5: (0.155, 0.205)}
"""0.016 to 0.020 and 0.16 to 0.20, rounded."""


def design(seed):
    """A dense and a sparse part of the unit square, and a record clear of both by 0.26."""
    rng = np.random.default_rng(seed)
    sites = []
    while len(sites) < N - 1:
        dense = len(sites) < N_DENSE
        site = rng.normal([0.25, 0.5], [0.12, 0.18]) if dense else rng.uniform(0, 1, 2)
        if np.all((site >= 0) & (site <= 1)) and np.linalg.norm(site - OUTLIER) > 0.26:
            sites.append(site)
    east, north = np.vstack([*sites, OUTLIER]).T
    table = pd.DataFrame({"east": east, "north": north, "value": rng.normal(size=N)})
    return ds.prepare(table, "value ~ 1", coords=("east", "north"))


@pytest.fixture(scope="module")
def designs(cheap):
    """Attacks on one release of 500 copies, by rule, over the designs, the variances fixed."""
    found = {name: [] for name in RANGES}
    a = np.zeros(N)
    a[-1] = 1.0
    for seed in range(DESIGNS):
        problem = design(seed)
        free = carry(cheap, "none", problem=problem, points=(TRUTH, TRUTH))
        for name in RANGES:
            protection, effect = ("paper", "plug") if name == "plug" else (name, "auto")
            fit = carry(cheap, protection, problem=problem, a=a, points=(TRUTH, TRUTH))
            found[name].append(attack(fit, against=free, copies=500, effect=effect, progress=False))
    return found


@pytest.mark.parametrize("name", RANGES)
def test_the_outliers_numbers_are_those_of_the_design(designs, name):
    with np.errstate(divide="ignore"):
        rows = [
            (a.exposure[-1], a.sd()[-1], (500 * a.information[-1]) ** -0.5) for a in designs[name]
        ]
    for median, (low, high) in zip(np.median(rows, axis=0), RANGES[name], strict=True):
        assert low <= median <= high


def test_cut_leaves_the_leave_one_out_sd_exactly(designs):
    for found in designs["cut"]:
        assert found.exposure[-1] == 0
        assert found.information[-1] == 0
        assert found.sd()[-1] == found.leave_one_out[-1]


@pytest.mark.parametrize("name", RANGES)
@pytest.mark.parametrize("copies", UNFLAGGED)
def test_unflagged_records_are_as_exposed_under_every_protection(designs, name, copies):
    """All but the sparsest at 500 copies: the largest of 499 sds is up to 0.024."""
    low, high = UNFLAGGED[copies]
    sds = np.array([a.sd(copies)[:-1] for a in designs[name]])
    assert low < sds.min()
    assert np.quantile(sds, 0.99) < high
    assert sds.max() < 1.2 * high


# --- An intruder who does it ---------------------------------------------------------------

RECORDS = {"flagged": 29, "unflagged": 12}
REACH, STEPS = 12, 401
"""Grids reach so many sds either side of the truth, in so many points."""

REPLICATES = 300
COPIES = 5


def grid_posterior(log_density, grid):
    """Mean and sd of a density given by its log on an even grid."""
    weight = np.exp(log_density - log_density.max())
    weight /= weight.sum()
    assert max(weight[0], weight[-1]) < 1e-9, "the grid is too short"
    mean = weight @ grid
    return mean, float(np.sqrt(weight @ (grid - mean) ** 2))


@pytest.mark.parametrize("record", RECORDS)
@pytest.mark.parametrize("protection", PROTECTIONS)
def test_an_intruders_posterior_from_simulated_releases_is_the_closed_one(
    cheap, protection, record
):
    """Values from the unrestricted model, copies as ``synthesise`` draws them, the variances
    fixed; the intruder multiplies p(y_i | y_-i) and the densities of the copies on a grid."""
    i, rng = RECORDS[record], np.random.default_rng(8)
    a = np.zeros(30)
    a[29] = 1.0
    free, fit = carry(cheap, "none"), carry(cheap, protection, a=a)
    problem, rows = fit.problem, fit.informing
    closed = attack(fit, against=free, copies=COPIES, progress=False).sd()[i]
    H, Vs = written_out(fit, P, np.ones(30))
    S = unrestricted_covariance(problem, P)
    rest = np.delete(np.arange(30), i)
    kriging = np.linalg.solve(S[np.ix_(rest, rest)], S[rest, i])
    spread = np.sqrt(S[i, i] - S[i, rest] @ kriging)
    whiten = np.linalg.inv(np.linalg.cholesky(Vs))
    model = LatentModel(fit)
    _, _, M = model.parts(P.phi)
    Xr = problem.X[rows]
    W = np.linalg.solve(P.sigma_sq * M + P.tau_sq * np.eye(rows.size), Xr)
    G = np.linalg.inv(Xr.T @ W)
    G_root = np.linalg.cholesky(G)
    unit = np.eye(30)[i]
    root = np.linalg.cholesky(S - FLAT * problem.X @ problem.X.T)
    scores, sds = [], []
    for _ in range(REPLICATES):
        y = problem.X @ P.beta + root @ rng.standard_normal(30)
        model.y = y[rows]
        copies = []
        for _ in range(COPIES):
            beta = G @ (W.T @ y[rows]) + G_root @ rng.standard_normal(len(G))
            w = model.draw(dataclasses.replace(P, beta=beta), rng)
            noise = np.sqrt(P.tau_sq) * rng.standard_normal(30)
            copies.append(problem.X @ beta + w + noise)
        prior = y[rest] @ kriging
        grid = np.linspace(-REACH, REACH, STEPS) * closed + y[i]
        log_density = -0.5 * ((grid - prior) / spread) ** 2
        for copy in copies:
            left = whiten @ (copy - H @ (y - y[i] * unit))
            z = left[:, None] - (whiten @ H @ unit)[:, None] * grid
            log_density = log_density - 0.5 * np.sum(z**2, axis=0)
        mean, sd = grid_posterior(log_density, grid)
        scores.append((y[i] - mean) / sd)
        sds.append(sd)
    np.testing.assert_allclose(sds, closed, rtol=GRID_ERROR)
    comparisons = 2 * len(PROTECTIONS) * len(RECORDS)
    assert abs(np.mean(scores)) < z_limit(comparisons) / np.sqrt(REPLICATES)
    tail = FALSE_ALARM / (2 * comparisons)
    low, high = stats.chi2.ppf([tail, 1 - tail], REPLICATES)
    assert low < np.sum(np.square(scores)) < high


AXIS = 9
NARROW = {"unrestricted": 30, "paper": 30, "paper, gamma 3": 30, "preserving": 100}
"""Copies that leave a posterior over which the information hardly changes."""

REMARKABLE = 3.0
CASES = {
    "unrestricted": ("none", np.inf),
    "paper": ("paper", np.inf),
    "paper, gamma 3": ("paper", 3.0),
    "preserving": ("preserving", np.inf),
}


class Intruder:
    """One who knows all but y_i, and the posterior of the variances as a function of y_i.

    sigma_sq and tau_sq lie on a grid with half-normal priors of their roots, so
    that every law is exact; phi is held. Record i has a value a given number of
    leave-one-out sds from what the others say.
    """

    def __init__(self, cheap, protection, gamma, remarkable):
        self.i, self.rng = 29, np.random.default_rng(3)
        a = np.zeros(30)
        a[self.i] = 1.0
        fit = carry(cheap, protection, a=a, gamma=gamma)
        problem, X = fit.problem, fit.problem.X
        S = unrestricted_covariance(problem, P)
        root = np.linalg.cholesky(S - FLAT * X @ X.T)
        y = X @ P.beta + root @ self.rng.standard_normal(30)
        rest = np.delete(np.arange(30), self.i)
        kriging = np.linalg.solve(S[np.ix_(rest, rest)], S[rest, self.i])
        self.prior_mean = y[rest] @ kriging
        self.prior_var = S[self.i, self.i] - S[self.i, rest] @ kriging
        y[self.i] = self.prior_mean + remarkable * np.sqrt(self.prior_var)
        self.y = y
        fit = dataclasses.replace(fit, problem=dataclasses.replace(problem, y=y))
        axes = np.geomspace(0.2, 15.0, AXIS), np.geomspace(0.01, 3.0, AXIS)
        points = [Parameters(P.beta, s, t, P.phi) for s in axes[0] for t in axes[1]]
        carried, _ = carried_effect(fit)
        laws = [copy_law(LatentModel(fit), p, carried) for p in points]
        self.roots = np.stack([np.linalg.cholesky(law.Vs) for law in laws])
        self.whiten = np.linalg.inv(self.roots)
        self.means = np.stack([law.H @ y for law in laws])
        self.pull = np.stack(
            [z @ law.H[:, self.i] for z, law in zip(self.whiten, laws, strict=True)]
        )
        self.log_det = -np.log(np.diagonal(self.roots, axis1=1, axis2=2)).sum(axis=1)
        prior = [
            -0.5 * (p.sigma_sq + p.tau_sq) / 1.5**2 + 0.5 * np.log(p.sigma_sq * p.tau_sq)
            for p in points
        ]
        # log p(variances, y) is a quadratic of y_i, found from three of its values.
        step = np.eye(30)[self.i]
        values = [
            [p0 + self.marginal(fit, p, y + k * step) for k in (-1.0, 0.0, 1.0)]
            for p0, p in zip(prior, points, strict=True)
        ]
        low, self.log_joint, high = np.array(values).T
        self.slope, self.bend = 0.5 * (high - low), high - 2 * self.log_joint + low
        self.share = np.exp(self.log_joint - self.log_joint.max())
        self.share /= self.share.sum()
        scores = np.array([law.score[self.i] for law in laws])
        self.fixed = self.share @ np.sum(self.pull**2, axis=1)
        self.known = self.fixed + self.share @ (scores - self.share @ scores) ** 2

    @staticmethod
    def marginal(fit, p, y):
        """log p(y | variances) of the fitted model, the coefficients integrated out flat."""
        _, _, M = LatentModel(fit).parts(p.phi)
        V, X = p.sigma_sq * M + p.tau_sq * np.eye(30), fit.problem.X
        W = np.linalg.solve(V, X)
        e = y - X @ np.linalg.solve(X.T @ W, W.T @ y)
        log_det = np.linalg.slogdet(V)[1] + np.linalg.slogdet(X.T @ W)[1]
        return -0.5 * (log_det + e @ np.linalg.solve(V, e))

    def release(self, count):
        """Copies, each at its own draw of the variances: grid positions and values."""
        picks = self.rng.choice(len(self.share), count, p=self.share)
        noise = self.rng.standard_normal((count, 30))
        return picks, self.means[picks] + np.einsum("lij,lj->li", self.roots[picks], noise)

    def residuals(self, copies):
        """Whitened residuals of every copy at every grid point, shape (T, L, N)."""
        return np.einsum("tij,tlj->tli", self.whiten, copies - self.means[:, None])

    def squared_scores(self, count):
        """(d/dy_i log density)^2 of simulated copies, variances known and not, shape (count,)."""
        picks, copies = self.release(count)
        z = self.residuals(copies)
        log_weight = self.log_joint[:, None] + self.log_det[:, None] - 0.5 * np.sum(z**2, axis=2)
        weight = np.exp(log_weight - log_weight.max(axis=0))
        weight /= weight.sum(axis=0)
        moved = self.slope - self.share @ self.slope
        score = np.einsum("tli,ti->tl", z, self.pull) + moved[:, None]
        return score[picks, np.arange(count)] ** 2, np.sum(weight * score, axis=0) ** 2

    def precisions(self, count):
        """Posterior precision of y_i from one release, variances known and not."""
        picks, copies = self.release(count)
        z = self.residuals(copies)
        # The variances may also allow a value as far on the other side.
        reach = REACH / np.sqrt(1 / self.prior_var + count * self.fixed)
        step = np.linspace(-reach, reach, STEPS)
        log_joint = self.log_joint[:, None] + self.slope[:, None] * step
        log_joint = log_joint + 0.5 * self.bend[:, None] * step**2
        log_share = log_joint - np.logaddexp.reduce(log_joint, axis=0)
        squares = (
            np.sum(z**2, axis=2)[:, :, None]
            - 2 * np.einsum("tli,ti->tl", z, self.pull)[:, :, None] * step
            + np.sum(self.pull**2, axis=1)[:, None, None] * step**2
        )
        each = (log_share + self.log_det[:, None])[:, None] - 0.5 * squares
        prior = -0.5 * (self.y[self.i] + step - self.prior_mean) ** 2 / self.prior_var
        known = prior + each[picks, np.arange(count)].sum(axis=0)
        top = each.max(axis=0)
        unknown = prior + (np.log(np.exp(each - top).sum(axis=0)) + top).sum(axis=0)
        return [grid_posterior(d, step)[1] ** -2 for d in (known, unknown)]


def mean_and_error(values):
    """Mean of independent values and its standard error."""
    return np.mean(values), np.std(values, ddof=1) / np.sqrt(len(values))


@pytest.mark.parametrize("case", CASES)
def test_variances_drawn_for_each_copy_tell_what_the_two_bounds_say(cheap, case):
    """The information of one copy at the true value, exact but for Monte Carlo error.

    The record's value is remarkable, so that the variances do speak of it.
    """
    intruder = Intruder(cheap, *CASES[case], REMARKABLE)
    known, unknown = (mean_and_error(s) for s in zip(*[intruder.squared_scores(4000)], strict=True))
    limit = z_limit(3 * len(CASES))
    (known, known_error), (unknown, unknown_error) = known, unknown
    assert abs(known - intruder.known) < limit * known_error
    assert unknown < intruder.known + limit * unknown_error
    assert unknown > intruder.fixed - limit * unknown_error
    assert intruder.known > 1.1 * intruder.fixed, "the variances tell nothing here"


@pytest.mark.parametrize("protection", ["paper", "preserving"])
def test_of_an_unremarkable_record_not_knowing_the_variances_costs_a_few_per_cent(
    cheap, protection
):
    """The bounds nearly meet there, and mixing over the variances widens a copy's law a little."""
    intruder = Intruder(cheap, protection, np.inf, 0.0)
    assert intruder.known < 1.15 * intruder.fixed
    unknown, error = mean_and_error(intruder.squared_scores(4000)[1])
    limit = z_limit(4)
    assert unknown < intruder.known + limit * error
    assert unknown > (1 - UNKNOWING) * intruder.fixed - limit * error


@pytest.mark.parametrize("case", CASES)
def test_the_posterior_of_such_an_intruder_has_the_precision_of_the_bounds(cheap, case):
    """Exact grid posteriors of whole releases against P_ii + L times the information.

    This is a normal approximation, since the information changes with y_i and the
    formula takes it at the truth: hence NORMAL beside the Monte Carlo error. It
    asks for a narrow posterior. Under ``preserving`` 30 copies leave an sd as long
    as the leave-one-out sd, and then the one who knows the variances has but two
    thirds of the formula's precision; of an unremarkable record he has more of it.
    """
    intruder = Intruder(cheap, *CASES[case], REMARKABLE)
    found = np.array([intruder.precisions(NARROW[case]) for _ in range(25)])
    low, high = (
        1 / intruder.prior_var + NARROW[case] * one for one in (intruder.fixed, intruder.known)
    )
    limit = z_limit(3 * len(CASES))
    (known, known_error), (unknown, unknown_error) = (mean_and_error(f) for f in found.T)
    assert abs(known - high) < limit * known_error + NORMAL * high
    assert unknown < high + limit * unknown_error + NORMAL * high
    assert unknown > low - limit * unknown_error - NORMAL * low


# --- The report ----------------------------------------------------------------------------


@pytest.fixture
def report():
    """An attack of three records: one well hidden, one exposed, one flagged and not in the fit."""
    return Attack(
        leave_one_out=np.array([1.0, 0.5, 2.0]),
        information=np.array([0.3, 40.0, 0.0]),
        leak=np.array([0.2, 1.0, 0.0]),
        error=np.zeros(3),
        exposure=np.array([0.4, 0.9, 0.0]),
        flagged=np.array([False, False, True]),
        index=pd.Index(["a", "b", "c"]),
        copies=20,
        draws=100,
        effective=100.0,
        seconds=0.0,
    )


@pytest.mark.parametrize("variances", ["fixed", "known"])
def test_more_copies_never_leave_a_larger_sd(report, variances):
    sds = np.array([report.sd(count, variances=variances) for count in (0, 1, 2, 5, 20, 500)])
    assert np.all(np.diff(sds, axis=0) <= 0)
    np.testing.assert_allclose(sds[0], report.leave_one_out)
    np.testing.assert_array_equal(sds[-2], report.sd(variances=variances))


def test_knowing_the_variances_never_leaves_a_larger_sd(report):
    for count in (0, 1, 20, 500):
        assert np.all(report.sd(count, variances="known") <= report.sd(count))
    assert np.all(report.sd(variances="known")[:2] < report.sd()[:2])


@pytest.mark.parametrize("variances", ["fixed", "known"])
@pytest.mark.parametrize("floor", [0.4, 0.1, 0.05, 0.013, 1e-4])
def test_the_largest_release_keeps_the_floor_and_one_copy_more_does_not(report, floor, variances):
    most = report.largest_release(floor, variances=variances)
    assert isinstance(most, int)
    if most:
        assert report.sd(most, variances=variances).min() >= floor
    assert report.sd(most + 1, variances=variances).min() < floor


def test_the_largest_release_is_exact_where_the_floor_is_the_sd_of_a_whole_number(report):
    for count in (1, 3, 7, 49, 1000):
        floor = float(report.sd(count, variances="known").min())
        assert report.largest_release(floor) == count


def test_a_floor_that_no_release_keeps_allows_no_copy(report):
    assert report.largest_release(0.6) == 0  # above the leave-one-out sd of record b
    assert report.largest_release(0.499) == 0  # one copy is too many


def test_where_no_number_of_copies_is_too_many_the_answer_is_large_and_finite(report):
    silent = dataclasses.replace(report, information=np.zeros(3), leak=np.zeros(3))
    assert silent.largest_release(0.4) == 10**9
    assert report.largest_release(1e-6) == 10**9
    assert np.all(silent.sd(10**9) == silent.leave_one_out)


def test_the_table_has_a_row_a_record_and_the_sds_of_the_planned_release(report):
    table = report.table()
    assert list(table.index) == ["a", "b", "c"]
    assert {"flagged", "exposure", "leave_one_out", "fixed_20", "known_500"} <= set(table)
    np.testing.assert_array_equal(table["known_20"], report.sd(variances="known"))
    assert list(report.table([3]).columns[3:]) == ["fixed_3", "known_3"]
    assert "100 posterior draws" in str(report)


def test_the_curve_falls_with_the_copies_for_each_group_and_bound(report):
    curve = report.curve((1, 10, 100))
    assert len(curve) == 3 * 2 * 2
    for _, part in curve.groupby(["variances", "group"]):
        assert np.all(np.diff(part["smallest"]) <= 0)
        assert np.all(part["smallest"] <= part["median"])
    unprotected = dataclasses.replace(report, flagged=np.zeros(3, dtype=bool))
    assert set(unprotected.curve((1,))["group"]) == {"unflagged"}


@pytest.mark.parametrize("copies", [-1, 2.5, True, "5"])
def test_a_number_of_copies_must_be_whole(report, copies):
    with pytest.raises(InputError, match="copies"):
        report.sd(copies)


@pytest.mark.parametrize("floor", [0.0, -0.1, np.nan, np.inf, [0.1, np.nan], [0.1, -0.1]])
def test_a_floor_must_be_positive_and_finite(report, floor):
    with pytest.raises(InputError, match="floor"):
        report.largest_release(floor)


def test_a_bound_that_does_not_exist_is_refused(report):
    with pytest.raises(InputError, match="variances"):
        report.sd(5, variances="unknown")
    with pytest.raises(InputError, match="variances"):
        report.largest_release(0.1, variances="unknown")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"effect": "W"}, "effect must be"),
        ({"copies": 0}, "copies"),
        ({"copies": True}, "copies"),
        ({"copies": 2.5}, "copies"),
        ({"draws": 1}, "draws"),
        ({"draws": 2.5}, "draws"),
    ],
)
def test_an_attack_refuses_arguments_out_of_range(kept, arguments, message):
    with pytest.raises(InputError, match=message):
        attack(kept, progress=False, **arguments)


def test_an_attack_needs_the_unrestricted_fit_of_the_same_problem(cheap, kept, free):
    alone = carry(cheap, "paper", a=risk())
    with pytest.raises(InputError, match="give against"):
        attack(alone, progress=False)
    with pytest.raises(InputError, match="another problem"):
        attack(alone, against=free, progress=False)
    with pytest.raises(InputError, match="unrestricted"):
        attack(alone, against=alone, progress=False)
    with pytest.raises(InputError, match="unrestricted"):
        leave_one_out_precision(kept)
