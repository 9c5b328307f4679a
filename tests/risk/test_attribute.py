"""What an intruder believes, held against normal laws and sums written out."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.spatial.distance import cdist
from scipy.special import logsumexp

import dsstan as ds
from conftest import small_table
from dsstan.copies.result import Synthesis
from dsstan.core.errors import InputError
from dsstan.models.weights import own_weights
from dsstan.risk.intruder.attacker import attack
from dsstan.risk.intruder.leave_one_out import leave_one_out
from dsstan.risk.keys.attribute import _posterior, _summary, _unused, attribute, pareto_k

EXACT = 1e-8
"""Two ways to one normal law, after a Cholesky factor and a grid of candidates."""

DIFFUSE = 1e-4
"""The oracle's coefficients have a prior sd of 1000 where the product's is flat."""

ROUNDING = 0.01
"""Posterior weights become whole numbers of draws, in relative terms; half a per cent each."""

ROWS = [0, 7, 31, 58, 59]


def with_draws(fit, sigma_sq, tau_sq, phi):
    """The fit with these draws in one chain, each of shape (S,); its start untouched."""
    beta = np.zeros((1, len(sigma_sq), fit.problem.n_terms))
    draws = {
        "beta": beta,
        **{
            k: np.asarray(v, dtype=float)[None]
            for k, v in (("sigma_sq", sigma_sq), ("tau_sq", tau_sq), ("phi", phi))
        },
    }
    return dataclasses.replace(fit, draws=draws)


def fixed(fit, sigma_sq=1.4, tau_sq=0.25, phi=4.0, draws=200):
    """The fit and its start with every draw the same."""
    made = with_draws(fit, *(np.full(draws, v) for v in (sigma_sq, tau_sq, phi)))
    start = None if fit.start is None else fixed(fit.start, sigma_sq, tau_sq, phi, draws)
    held = None if fit.phi_held is None else phi
    return dataclasses.replace(made, start=start, phi_held=held)


def copies_of(fit, values, effect="w"):
    """A release of these modelled values; no draw counts as used but the first."""
    own = fit.problem.transform.inverse(np.asarray(values, dtype=float))
    return Synthesis(fit, own, effect, np.zeros((len(own), 2), dtype=np.intp), 1, 0.0)


def release_of(fit, copies=3, seed=5, effect="w"):
    """Made-up copies: the truth with noise, so that they say something."""
    y = fit.problem.y
    noise = np.random.default_rng(seed).normal(0.0, 0.5, (copies, y.size))
    return copies_of(fit, y + noise, effect)


def law(fit, y, v, carried=None):
    """log p(y) and the mean and covariance of a copy, by plain conditioning.

    Latent u = (beta, w) with sd 1000 for each coefficient; y = [X, A] u + noise.
    """
    sigma_sq, tau_sq, phi = v
    problem = fit.problem
    n, p = problem.X.shape
    prior = np.zeros((p + n, p + n))
    prior[:p, :p] = 1e6 * np.eye(p)
    prior[p:, p:] = sigma_sq * np.exp(-phi * cdist(problem.sites, problem.sites))
    noise = np.full(n, tau_sq)
    if fit.protection == "preserving":
        noise = noise + sigma_sq * (1 - fit.A**2)
    rows = fit.informing
    Z = np.hstack([problem.X, np.diag(fit.A)])[rows]
    V = Z @ prior @ Z.T + np.diag(noise[rows])
    gain = np.linalg.solve(V, Z @ prior).T
    shown = np.hstack([problem.X, np.diag(np.ones(n) if carried is None else carried)])
    covariance = shown @ (prior - gain @ Z @ prior) @ shown.T + tau_sq * np.eye(n)
    return log_normal(y[rows], V), shown @ gain @ y[rows], covariance


def log_normal(x, covariance):
    """Log density of a normal vector with mean zero."""
    root = np.linalg.cholesky(covariance)
    z = np.linalg.solve(root, x)
    return -np.sum(np.log(np.diag(root))) - 0.5 * (z @ z) - 0.5 * len(x) * np.log(2 * np.pi)


def believed(fit, free, copies, i, grid, atoms, free_atoms):
    """Log posterior of y_i on a grid, under a uniform prior over atoms of the variances.

    p(y*) prod_l p(copy l | y*), each a sum over atoms: no draw and no reweighting.
    """
    out = np.zeros(grid.size)
    for g, candidate in enumerate(grid):
        y = fit.problem.y.copy()
        y[i] = candidate
        out[g] = logsumexp([law(free, y, v)[0] for v in free_atoms])
        found = [law(fit, y, v) for v in atoms]
        weight = np.array([density for density, _, _ in found])
        for copy in copies:
            told = [log_normal(copy - m, c) for _, m, c in found]
            out[g] += logsumexp(weight + told) - logsumexp(weight)
    return out


def moments(grid, log_p):
    """Mean and sd of a density on a grid."""
    weight = np.exp(log_p - log_p.max())
    weight /= weight.sum()
    mean = weight @ grid
    return mean, np.sqrt(weight @ (grid - mean) ** 2)


def formula_sd(release):
    """The attacker's sd by the draws that were made up, without the margin of a release."""
    information = release.copies * attack(release, draws=2).information
    return (sd_alone(release) ** -2 + information) ** -0.5


def sd_alone(release):
    """The same without copies."""
    return leave_one_out(release.fit.start or release.fit).sd


@pytest.fixture(scope="module")
def protected(free, kept):
    """A restricted fit under each protection, its draws made up later."""
    return {
        kind: dataclasses.replace(kept, protection=kind) for kind in ("paper", "preserving", "cut")
    }


@pytest.mark.parametrize("kind", ["paper", "preserving", "cut"])
@pytest.mark.parametrize("copies", [1, 2, 7])
def test_with_the_variances_fixed_it_is_the_exact_attacker(protected, kind, copies):
    release = release_of(fixed(protected[kind]), copies)
    risks = attribute(release, draws=50)
    np.testing.assert_allclose(risks.records["sd_with"], formula_sd(release), rtol=EXACT)
    np.testing.assert_allclose(risks.records["sd_without"], sd_alone(release), rtol=EXACT)
    assert risks.records["mc_error"].max() < EXACT
    assert (risks.records["pareto_k"] == 0).all()


def test_an_unrestricted_release_has_the_exact_attacker_too(free):
    release = release_of(fixed(free), 4)
    risks = attribute(release, draws=50)
    np.testing.assert_allclose(risks.records["sd_with"], formula_sd(release), rtol=EXACT)
    assert set(risks.summary["group"]) == {"unflagged", "all"}


def test_smoothing_in_part_and_plugged_copies_have_the_exact_attacker_too(kept):
    part = dataclasses.replace(fixed(kept), A=np.where(kept.A == 0, 0.4, 1.0))
    for release in (release_of(part, effect="w*"), release_of(fixed(kept), effect="plug")):
        risks = attribute(release, draws=50)
        sd = formula_sd(release)
        np.testing.assert_allclose(risks.records["sd_with"], sd, rtol=EXACT)


@pytest.mark.parametrize("kind", ["paper", "preserving", "cut"])
def test_his_mean_is_that_of_plain_conditioning(protected, kind):
    fit = fixed(protected[kind])
    v = (1.4, 0.25, 4.0)
    release = release_of(fit, 2)
    rows = [*np.flatnonzero(fit.flagged)[:2], 3]
    risks = attribute(release, records=rows, draws=50).records
    for i, row in zip(rows, risks.itertuples(), strict=True):
        grid = row.mean_with + row.sd_with * np.linspace(-6, 6, 41)
        expected = moments(grid, believed(fit, fit.start, release.modelled(), i, grid, [v], [v]))
        np.testing.assert_allclose([row.mean_with, row.sd_with], expected, rtol=DIFFUSE)
        wide = row.mean_without + row.sd_without * np.linspace(-6, 6, 41)
        expected = moments(wide, believed(fit, fit.start, [], i, wide, [v], [v]))
        np.testing.assert_allclose([row.mean_without, row.sd_without], expected, rtol=DIFFUSE)


@pytest.mark.parametrize("kind", ["paper", "preserving", "cut"])
def test_with_unknown_variances_it_is_the_sum_over_all_of_them(small, protected, kind):
    # Atoms of the variances with a uniform prior: the posterior is known, its draws are laid
    # out in proportion, and the intruder's law is a finite sum that needs no reweighting.
    base = protected[kind]
    atoms = [(s, t, 4.0) for s in (0.6, 1.2, 2.4) for t in (0.1, 0.2, 0.4)]
    free_atoms = [(s, t, f) for s in (1.0, 2.0) for t in (0.15, 0.3) for f in (3.0, 6.0)]

    def laid_out(fit, points):
        log_p = np.array([law(fit, small.y, v)[0] for v in points])
        count = np.rint(4000 * np.exp(log_p - logsumexp(log_p))).astype(int)
        return with_draws(fit, *(np.repeat(x, count) for x in zip(*points, strict=True)))

    start = laid_out(base.start, free_atoms)
    fit = dataclasses.replace(laid_out(base, atoms), start=start)
    release = release_of(fit, 3)
    rows = [int(np.flatnonzero(fit.flagged)[-1]), 5]
    found = attribute(release, records=rows, draws=4000).records
    for i, row in zip(rows, found.itertuples(), strict=True):
        for name, copies in (("with", release.modelled()), ("without", [])):
            mean, sd = getattr(row, f"mean_{name}"), getattr(row, f"sd_{name}")
            grid = mean + sd * np.linspace(-6, 6, 31)
            log_p = believed(fit, start, copies, i, grid, atoms, free_atoms)
            exact_mean, exact_sd = moments(grid, log_p)
            assert abs(mean - exact_mean) < ROUNDING * exact_sd
            assert sd == pytest.approx(exact_sd, rel=ROUNDING)


def test_the_monte_carlo_error_is_as_large_as_results_differ_between_runs(kept):
    rng = np.random.default_rng(9)
    rows = []
    copies = release_of(kept, 3).values
    for _ in range(16):
        laws = (rng.normal(m, 0.25, 301) for m in (0.0, -1.5, 1.4))
        drawn = np.exp(list(laws))
        start = with_draws(kept.start, *drawn)
        fit = dataclasses.replace(with_draws(kept, *drawn), start=start)
        release = dataclasses.replace(release_of(fit, 3), values=copies)
        rows.append(attribute(release, records=[5], draws=300).records.iloc[0])
    found = pd.DataFrame(rows)
    differ = max(found["mean_with"].std(), found["sd_with"].std())
    said = (found["mc_error"] * found["sd_with"]).mean()
    # The sd of 16 runs is right within 18%; the rest is for an error that is a maximum of three.
    assert 0.4 < said / differ < 2.5


def test_over_a_posterior_he_lies_about_between_the_two_bounds(kept):
    release = ds.synthesise(kept, 20, seed=3)
    risks = attribute(release, draws=400)
    bounds = attack(release, draws=100)
    slack = 1.0 + 3.0 * risks.records["mc_error"]
    flagged = release.fit.flagged
    # The bounds hold on average. Of 20 copies the information really told is a sum of 20
    # squares, with a relative sd of sqrt(2 / 19); four of these either way are allowed.
    spread = np.sqrt(1.0 + 4.0 * np.sqrt(2.0 / 19.0))
    assert np.all(risks.records["sd_with"] * slack * spread > bounds.sd(variances="known"))
    assert np.all((risks.records["sd_with"] < bounds.sd() * slack * spread)[flagged])
    # Which records' weights have a long tail depends on the draws; hardly any may.
    assert risks.records["reliable"].mean() >= 0.95


def test_a_record_cut_from_the_fit_is_believed_as_without_the_release(protected):
    release = release_of(fixed(protected["cut"]), 5)
    rows = np.flatnonzero(release.fit.flagged)
    row = attribute(release, records=rows, draws=50).records
    for number in ("mean", "sd", "near"):
        np.testing.assert_allclose(row[f"{number}_with"], row[f"{number}_without"], rtol=EXACT)


def test_near_is_the_normal_probability_of_the_tolerance(small, kept):
    release = release_of(fixed(kept), 2)
    row = attribute(release, records=ROWS, relative=0.2, draws=50).records
    truth = small.original()[ROWS]
    for name in ("with", "without"):
        normal = stats.norm(row[f"mean_{name}"], row[f"sd_{name}"])
        expected = normal.cdf(np.log(1.2 * truth)) - normal.cdf(np.log(0.8 * truth))
        np.testing.assert_allclose(row[f"near_{name}"], expected, atol=1e-6)
    whole = attribute(release, records=ROWS, absolute=1e9, draws=50).records
    assert (whole["near_with"] > 1 - 1e-9).all()
    # Below the domain of the log there is nothing, so the lower end is minus infinity.
    half = attribute(release, records=ROWS, relative=1.0, draws=50).records
    normal = stats.norm(half["mean_with"], half["sd_with"])
    np.testing.assert_allclose(half["near_with"], normal.cdf(np.log(2 * truth)), atol=1e-6)


def test_the_public_intruder_takes_the_others_copies_for_the_data(small, kept):
    fit = fixed(kept)
    release = release_of(fit, 2)
    v = (1.4, 0.25, 4.0)
    i = 31
    parts = []
    for copy in release.modelled():
        grid = np.linspace(-15, 25, 801)
        log_p = []
        for candidate in grid:
            y = copy.copy()
            y[i] = candidate
            log_p.append(law(fit.start, y, v)[0])
        parts.append(moments(grid, np.array(log_p)))
    means, sds = np.array(parts).T
    row = attribute(release, records=[i], draws=50).records.iloc[0]
    assert row["mean_public"] == pytest.approx(means.mean(), rel=DIFFUSE)
    spread = np.sqrt(np.mean(sds**2) + means.var())
    assert row["sd_public"] == pytest.approx(spread, rel=DIFFUSE)
    y = small.y[i]
    inside = [stats.norm(m, s).cdf(y + np.log([1.1, 0.9])) for m, s in parts]
    assert row["near_public"] == pytest.approx(np.mean([a - b for a, b in inside]), rel=1e-3)


def test_the_public_intruder_does_not_see_the_records_own_copies(kept):
    release = release_of(fixed(kept), 2)
    other = release.modelled()
    other[:, 31] += 3.0
    changed = copies_of(release.fit, other)
    a, b = (attribute(r, records=[31], draws=50).records.iloc[0] for r in (release, changed))
    assert a["mean_public"] == pytest.approx(b["mean_public"], rel=EXACT)
    assert abs(a["mean_with"] - b["mean_with"]) > 0.1


@pytest.mark.parametrize("copies", [1, 2])
def test_a_copy_equal_to_the_original_leaves_no_doubt(kept, small, copies):
    # The model alone would call the copy a noisy one of something else.
    noisy = release_of(kept, copies)
    told = np.vstack([noisy.values[1:], small.original()])
    risks = attribute(dataclasses.replace(noisy, values=told), records=ROWS, draws=200).records
    assert (risks["near_with"] == 1).all()
    assert (risks["sd_with"] == 0).all()
    np.testing.assert_array_equal(risks["mean_with"], small.y[ROWS])
    assert np.isfinite(risks.to_numpy(dtype=float)).all()


def test_records_asked_for_are_the_rows_of_all(kept):
    release = ds.synthesise(kept, 4, seed=1)
    everything = attribute(release, draws=300).records
    some = attribute(release, records=ROWS, draws=300).records
    pd.testing.assert_frame_equal(some, everything.iloc[ROWS], rtol=1e-4)
    assert everything.index.equals(release.problem.table.index)


def test_the_interpolated_terms_give_what_each_draw_gives(monkeypatch, kept):
    release = ds.synthesise(kept, 3, seed=1)
    before = attribute(release, records=ROWS, draws=120).records
    monkeypatch.setattr("dsstan.risk.keys.attribute._NODES", ())
    direct = attribute(release, records=ROWS, draws=120).records
    k = before.pop("pareto_k") - direct.pop("pareto_k")
    assert k.abs().max() < 0.01
    pd.testing.assert_frame_equal(before, direct, rtol=1e-4, atol=1e-4)


def test_draws_behind_the_copies_are_left_out(kept):
    release = ds.synthesise(kept, 30, seed=1)
    everything = _unused(kept, 10**6, release.draw_index)
    assert len(everything) == kept.n_draws - 30
    used = {tuple(p) for p in release.draw_index}
    assert not used & {tuple(p) for p in everything}
    some = _unused(kept, 200, release.draw_index)
    assert len({tuple(p) for p in some}) == 200
    assert np.bincount(some[:, 0]).min() > 25
    np.testing.assert_array_equal(some, _unused(kept, 200, release.draw_index))


SPREAD = (np.linspace(0.5, 2.0, 80), np.linspace(0.3, 0.1, 80), np.full(80, 0.7))


def made(free, values, kept=None, flagged=None):
    """An unrestricted fit of given values on a lattice, and perhaps a restricted one."""
    n = len(values)
    table = pd.DataFrame({"u": np.arange(n) % 7, "v": np.arange(n) // 7, "value": values})
    problem = ds.prepare(table, "value ~ 1", coords=("u", "v"))
    start = dataclasses.replace(free, problem=problem, A=np.ones(n))
    start = with_draws(start, *SPREAD)
    if kept is None:
        return start
    weights = own_weights(problem, np.arange(n) < flagged)
    fit = dataclasses.replace(kept, problem=problem, weights=weights, A=1.0 - weights.a)
    return dataclasses.replace(with_draws(fit, *SPREAD), start=start)


@pytest.mark.parametrize(
    "values",
    [
        np.arange(20.0) - 9.5,
        np.where(np.arange(20) % 2, -3.0, 4.0),
        np.arange(1, 21),
    ],
    ids=["negative", "ties", "whole"],
)
@pytest.mark.parametrize("flagged", [0, 1, 20])
@pytest.mark.parametrize("copies", [1, 2])
def test_odd_tables_give_numbers(free, kept, values, flagged, copies):
    release = release_of(made(free, values, kept, flagged), copies)
    risks = attribute(release, absolute=0.5, draws=60)
    # These draws are no posterior, so k may be infinite, which is a number.
    numbers = risks.records.drop(columns="pareto_k").to_numpy(dtype=float)
    assert risks.records["pareto_k"].notna().all()
    assert np.isfinite(numbers).all()
    assert np.isfinite(risks.summary.drop(columns=["intruder", "group"]).to_numpy()).all()
    assert "nan" not in str(risks).lower()


def test_a_true_zero_needs_an_absolute_tolerance(free):
    release = release_of(made(free, np.arange(20.0) - 5), 2)
    with pytest.raises(InputError, match=r"1 row \(position 5.*give absolute="):
        attribute(release, draws=60)
    with pytest.raises(InputError, match="20 rows"):
        attribute(release, relative=0.0, draws=60)
    assert np.isfinite(attribute(release, absolute=0.5, draws=60).records["near_with"]).all()
    assert np.isfinite(attribute(release, records=[4, 6], draws=60).records["near_with"]).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"records": [60]}, "distinct positions"),
        ({"records": []}, "distinct positions"),
        ({"draws": 20}, "50 draws are needed"),
        ({"relative": -1.0}, "relative tolerance"),
        ({"relative": 0.1, "absolute": 1.0}, "not both"),
        ({"absolute": np.nan}, "absolute tolerance"),
    ],
)
def test_impossible_arguments_are_refused(kept, arguments, message):
    with pytest.raises(InputError, match=message):
        attribute(release_of(kept, 2), **arguments)


def test_without_an_unrestricted_fit_of_the_problem_it_refuses(kept, free):
    release = release_of(dataclasses.replace(kept, start=None), 2)
    with pytest.raises(InputError, match="give against"):
        attribute(release)
    again = ds.prepare(small_table(), "log(value) ~ x", coords=("east", "north"))
    with pytest.raises(InputError, match="another problem"):
        attribute(release, against=dataclasses.replace(free, problem=again))
    with pytest.raises(InputError, match="unrestricted"):
        attribute(release, against=kept)


def test_copies_that_use_nearly_every_draw_leave_too_few(kept):
    short = with_draws(kept, *(np.ones(60) for _ in range(3)))
    release = dataclasses.replace(
        release_of(short, 20), draw_index=np.column_stack([np.zeros(20, int), np.arange(20)])
    )
    with pytest.raises(InputError, match="leave 40"):
        attribute(release, draws=100)


def test_a_record_with_a_coefficient_of_its_own_is_refused(free):
    table = small_table(20, shared=2).assign(own=np.arange(20) == 4)
    problem = ds.prepare(table, "log(value) ~ x + own", coords=("east", "north"))
    fit = with_draws(dataclasses.replace(free, problem=problem, A=np.ones(20)), *SPREAD)
    with pytest.raises(InputError, match=r"position 4"):
        attribute(release_of(fit, 2), draws=60)
    assert len(attribute(release_of(fit, 2), records=[3], draws=60).records) == 1


def test_pareto_k_knows_a_thin_a_heavy_and_a_hopeless_tail():
    q = np.log1p(-(np.arange(4000) + 0.5) / 4000)  # logs of uniform tail probabilities
    for k in (0.2, 0.5, 0.9):
        assert pareto_k(-k * q) == pytest.approx(k, abs=0.05)
    assert pareto_k(np.zeros(100)) == 0.0
    assert pareto_k(1e-12 * np.arange(100.0)) == 0.0
    assert pareto_k(np.repeat([0.0, 1.0], 50)) == 0.0
    assert pareto_k(1000.0 * np.arange(100.0)) == np.inf


def test_records_past_the_limit_are_called_unreliable(kept):
    # A nugget that nearly vanishes in some draws: candidates far away reweight on few.
    wild = (np.full(400, 1.4), np.geomspace(1e-3, 1.0, 400), np.full(400, 4.0))
    start = with_draws(kept.start, *wild)
    fit = dataclasses.replace(with_draws(kept, *wild), start=start)
    risks = attribute(release_of(fit, 2), draws=400)
    bad = ~risks.records["reliable"]
    assert bad.any()
    assert (risks.records.loc[bad, "pareto_k"] > 0.7).all()
    assert f"{bad.sum()} records have a Pareto k" in str(risks)


@pytest.mark.parametrize("start", [(0.0, 1.0), (300.0, 1.0), (3.0, 1e-4), (3.0, 500.0)])
def test_a_grid_finds_its_density_from_a_bad_start(start):
    mean, sd, near = _posterior(lambda x: -2.0 * (x - 3.0) ** 2, start, (3.0, np.inf))
    assert (mean, sd, near) == pytest.approx((3.0, 0.5, 0.5), abs=1e-6)


def test_a_grid_follows_a_skew_density():
    # x = log of a gamma variate of shape 4: log density 4 x - exp(x).
    mean, sd, near = _posterior(lambda x: 4 * x - np.exp(x), (0.0, 1.0), (-np.inf, np.log(4.0)))
    law = stats.loggamma(4)
    expected = law.mean(), law.std(), law.cdf(np.log(4.0))
    assert (mean, sd, near) == pytest.approx(expected, abs=1e-4)


def test_the_summary_has_smallest_median_mean_and_largest_of_each_group():
    rng, flagged = np.random.default_rng(3), np.arange(9) < 3
    table = pd.DataFrame({"flagged": flagged})
    for name in ("public", "without", "with"):
        table[f"sd_{name}"], table[f"near_{name}"] = rng.exponential(size=9), rng.beta(1, 5, 9)
    found = _summary(table).set_index(["intruder", "group"])
    assert len(found) == 9
    for name in ("public", "without", "with"):
        for group, rows in (("flagged", flagged), ("unflagged", ~flagged), ("all", flagged | True)):
            sd, near = (table.loc[rows, f"{what}_{name}"].to_numpy() for what in ("sd", "near"))
            expected = (rows.sum(), sd.min(), np.median(sd), near.mean(), near.max())
            assert tuple(found.loc[name, group]) == pytest.approx(expected)
