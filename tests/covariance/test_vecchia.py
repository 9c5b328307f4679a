"""Many records: Vecchia's approximation against exact linear algebra, step by step."""

from __future__ import annotations

import dataclasses
import functools
import subprocess
import sys
import textwrap

import numba
import numpy as np
import pandas as pd
import pytest
from scipy.spatial.distance import cdist
from vecchia_tables import linear_law

import dsstan as ds
import mc
from dsstan.core.errors import InputError
from dsstan.covariance.approximations import EXACT, PredictiveProcess, Vecchia, choose_covariance
from dsstan.covariance.base import Parameters
from dsstan.covariance.copy_law import copy_law, projected_precision
from dsstan.covariance.latent import LatentModel
from dsstan.covariance.likelihood_surface import (
    ExactStatistics,
    node_statistics,
    smoothed_correlation,
    surface_of,
)
from dsstan.covariance.vecchia import preconditioner
from dsstan.covariance.vecchia.exposure import left_out, local_terms
from dsstan.covariance.vecchia.factor_kernels import conditional_weights
from dsstan.covariance.vecchia.latent import RESIDUAL, SparseLatentModel
from dsstan.covariance.vecchia.neighbours import Neighbours, earlier_neighbours, order_places
from dsstan.covariance.vecchia.preconditioner import NearPrecision
from dsstan.covariance.vecchia.statistics import VecchiaStatistics
from dsstan.covariance.window import narrowed_surface, profile
from dsstan.models.checks.conditions import at_window
from dsstan.models.posterior import centre_of
from dsstan.models.predictive import carried_effect
from dsstan.release.report.records import pictured
from dsstan.risk.intruder.attacker import Attack, attack

SETTINGS = [
    ("none", 0.0),
    ("paper", np.inf),
    ("paper", 3.0),
    ("preserving", np.inf),
    ("preserving", 3.0),
    ("cut", np.inf),
]
P = Parameters(np.array([11.0, 0.5]), 4.0, 0.25, 12.7)


def table_of(n, seed=0, phi=12.7, tau_sq=0.25):
    """n records on the unit square, two at one site and two at sites that are all but one."""
    rng = np.random.default_rng(seed)
    sites, x = rng.uniform(size=(n, 2)), rng.standard_normal(n)
    sites[10], sites[20] = sites[11], sites[21] + 1e-13
    V = 4.0 * np.exp(-phi * cdist(sites, sites)) + tau_sq * np.eye(n)
    y = 11.0 + 0.5 * x + np.linalg.cholesky(V) @ rng.standard_normal(n)
    return pd.DataFrame({"s1": sites[:, 0], "s2": sites[:, 1], "x": x, "y": y})


def problem_of(n, **more):
    return ds.prepare(table_of(n, **more), "y ~ x", coords=("s1", "s2"))


@pytest.fixture(scope="module")
def small():
    return problem_of(90)


@pytest.fixture(scope="module")
def fits(small):
    """One short fit a setting; only what they say of the law is used."""
    a = np.zeros(small.n_records)
    a[:4], a[4:8] = 1.0, 0.5
    weights = ds.own_weights(small, a)
    short = {"warmup": 200, "samples": 60, "progress": False}
    free = ds.fit(small, seed=1, **short)
    kept = {
        (protection, gamma): ds.fit(
            small,
            weights=weights,
            start=free,
            protection=protection,
            gamma=gamma,
            seed=2,
            **short,
        )
        for protection, gamma in SETTINGS[1:]
    }
    return {SETTINGS[0]: free, **kept}


# Orders and neighbours


def slow_maxmin(places):
    """The max-min order by its definition, in O(n^2)."""
    i = int(np.argmin(np.sum((places - places.mean(axis=0)) ** 2, axis=1)))
    order, left = [i], np.sum((places - places[i]) ** 2, axis=1)
    left[i] = -1.0
    while len(order) < len(places):
        i = int(np.argmax(left))
        order.append(i)
        left = np.minimum(left, np.sum((places - places[i]) ** 2, axis=1))
        left[order] = -1.0
    return np.array(order)


def layouts():
    rng = np.random.default_rng(3)
    return {
        "uniform": rng.uniform(size=(300, 2)),
        "grid with shared places": np.round(rng.uniform(size=(400, 2)), 1),
        "two clusters": np.vstack(
            [rng.normal(size=(100, 2)), 50 + 0.01 * rng.normal(size=(200, 2))]
        ),
        "a line": np.column_stack([np.arange(60.0), np.zeros(60)]),
        "one place": np.zeros((20, 2)),
        "scales": rng.normal(size=(500, 2)) * 10 ** rng.uniform(-4, 0, size=(500, 1)),
    }


@pytest.mark.parametrize("name", layouts())
def test_the_maxmin_order_is_the_definition(name):
    places = layouts()[name]
    np.testing.assert_array_equal(order_places(places), slow_maxmin(places))


@pytest.mark.parametrize("ordering", ["maxmin", "coordinate"])
@pytest.mark.parametrize("name", layouts())
def test_neighbours_are_the_nearest_of_those_before(name, ordering):
    found = Neighbours.of(layouts()[name], 10, ordering)
    places = layouts()[name][found.order]
    assert sorted(found.order) == list(range(len(places)))
    for i in range(1, len(places)):
        d = np.sqrt(np.sum((places[:i] - places[i]) ** 2, axis=1))
        mine = found.earlier[i][found.earlier[i] >= 0]
        assert mine.size == min(10, i)
        assert np.unique(mine).size == mine.size
        np.testing.assert_allclose(d[mine], np.sort(d)[:10], rtol=1e-12, atol=1e-300)


def test_the_coordinate_order_goes_along_the_longer_side():
    places = np.random.default_rng(0).uniform(size=(50, 2)) * [1.0, 3.0]
    assert np.all(np.diff(places[order_places(places, "coordinate")][:, 1]) >= 0)


# Statistics of the surface


@pytest.mark.parametrize("cov_model", ["exponential", "matern32", "matern52"])
@pytest.mark.parametrize(("protection", "gamma"), SETTINGS)
def test_with_all_neighbours_the_statistics_are_exact(fits, protection, gamma, cov_model):
    fit = fits[protection, gamma]
    problem, rows = fit.problem, fit.informing
    source = VecchiaStatistics.of(
        *(problem, rows),
        a_diag=fit.A[rows],
        protection=protection,
        cov_model=cov_model,
        neighbours=len(rows) - 1,
    )
    r = np.array([1e-3, 0.1, 1.0, 50.0])
    d = cdist(problem.sites[rows], problem.sites[rows])
    for phi in (3.0, 40.0):
        M = smoothed_correlation(d, phi, fit.A[rows], protection, cov_model)
        want = node_statistics(M, source.rotation.Z, r)
        np.testing.assert_allclose(
            source.sums(np.array([phi]), r)[0], want, rtol=1e-8, atol=1e-8 * np.abs(want).max()
        )


def test_the_bytes_do_not_depend_on_the_threads():
    problem = problem_of(5000 // 2, seed=5)
    source = VecchiaStatistics.of(
        problem, np.arange(problem.n_records), a_diag=np.ones(problem.n_records), protection="none"
    )
    nodes = np.array([5.0, 20.0]), np.array([0.01, 1.0])
    before, found = numba.get_num_threads(), []
    try:
        for threads in {1, before}:
            numba.set_num_threads(threads)
            found.append(source.sums(*nodes).tobytes())
    finally:
        numba.set_num_threads(before)
    assert len(set(found)) == 1


def moments(surface, window):
    """Posterior means and sds of log phi and log r, beta and sigma_sq at their best."""
    phi, r, density = profile(surface, surface.n, window.phi_bounds, window.r_bounds)
    mass = np.exp(density - density.max())
    mass /= mass.sum()
    out = []
    for values, along in ((np.log(phi), mass.sum(axis=1)), (np.log(r), mass.sum(axis=0))):
        mean = float(along @ values)
        out += [mean, float(np.sqrt(along @ (values - mean) ** 2))]
    return np.array(out)


def shifts(n, seeds, neighbours=(15,), tau_sq=0.25, ordering="maxmin"):
    """Shifts of the posterior means of log phi and log r, in posterior sds, (seeds, m, 2)."""
    out = []
    for seed in seeds:
        problem = problem_of(n, seed=seed, tau_sq=tau_sq)
        ones, rows = np.ones(n), np.arange(n)
        bounds = (3 / problem.d_max, 300 / problem.d_max), (1e-4, 1e4)
        near = [
            VecchiaStatistics.of(
                problem, rows, a_diag=ones, protection="none", neighbours=m, ordering=ordering
            )
            for m in neighbours
        ]
        _, window = narrowed_surface(near[0], *bounds)
        box = window.phi_bounds, window.r_bounds, (12, 26)
        d = cdist(problem.sites, problem.sites)
        smoothed = functools.partial(
            smoothed_correlation, d, a_diag=ones, protection="none", cov_model="exponential"
        )
        want = moments(surface_of(ExactStatistics(smoothed, near[0].rotation), *box), window)
        found = [moments(surface_of(source, *box, checks=1), window) for source in near]
        out.append([((f - want) / want[[1, 1, 3, 3]])[[0, 2]] for f in found])
    return np.array(out)


def divergences(n, seeds, neighbours, tau_sq=0.25):
    """By how much Vecchia's log density is lower in the mean over the exact law, (seeds, m).

    Its conditional variances are true ones, so the quadratic forms have the same mean.
    """
    out = []
    for seed in seeds:
        sites, ones = problem_of(n, seed=seed).sites, np.ones(n)
        M = np.exp(-P.phi * cdist(sites, sites)) + tau_sq / P.sigma_sq * np.eye(n)
        exact = 2.0 * np.log(np.diag(np.linalg.cholesky(M))).sum()
        found = []
        for m in neighbours:
            near = Neighbours.of(sites, m)
            law = (sites[near.order], ones, ones, near.earlier, P.phi, tau_sq / P.sigma_sq, 1)
            found.append(0.5 * (np.log(conditional_weights(*law)[1]).sum() - exact))
        out.append(found)
    return np.array(out)


def test_the_log_density_nears_the_exact_one_from_below_with_m():
    found = divergences(1000, range(2), (5, 15, 30, 60))
    assert np.all(np.diff(found, axis=1) < 0)
    assert np.all((found[:, 1] < 2.0) & (found[:, 3] < 0.1) & (found[:, 3] > 0.0))
    assert np.abs(divergences(90, [0], (89,))) < 1e-8


def test_the_posterior_is_within_a_tenth_of_its_sd_and_nears_the_exact_one_with_m():
    # Means of log phi and of log tau_sq / sigma_sq over four data sets, root mean square.
    found = np.sqrt(np.mean(shifts(600, range(4), (5, 15, 40)) ** 2, axis=(0, 2)))
    assert found[1] < 0.1
    assert found[0] > 2 * found[1] > 3 * found[2]


@pytest.mark.nightly("exact linear algebra of two thousand records")
def test_so_it_is_with_two_thousand_records():
    found = shifts(2000, range(4))
    assert np.sqrt(np.mean(found**2)) < 0.1
    assert np.abs(found).max() < 0.15


def test_the_narrowed_surface_is_the_wide_one_where_the_posterior_is():
    problem = problem_of(600, seed=2)
    source = VecchiaStatistics.of(
        problem, np.arange(600), a_diag=np.ones(600), protection="none", neighbours=8
    )
    bounds = (3 / problem.d_max, 300 / problem.d_max), (1e-4, 1e4)
    surface, window = narrowed_surface(source, *bounds)
    assert surface.error < 1e-4
    assert bounds[1][0] <= window.r_bounds[0] < window.r_bounds[1] < bounds[1][1]
    for phi in (window.phi, *np.sqrt(np.outer([window.phi], window.phi_bounds)[0])):
        exact = source.sums(np.array([phi]), np.array([window.r]))[0, 0]
        np.testing.assert_allclose(surface.at(phi, window.r), exact, rtol=1e-6)
    # What is left outside has no mass: the density at the ends that were cut.
    phi, _r, density = profile(surface, 600, window.phi_bounds, window.r_bounds)
    top = density.max()
    for part, whole, along in (
        (window.phi_bounds, bounds[0], density.max(axis=1)),
        (window.r_bounds, bounds[1], density.max(axis=0)),
    ):
        for cut, own, value in zip(part, whole, along[[0, -1]], strict=True):
            assert cut == own or value < top - 25


def test_draws_at_an_end_that_was_cut_fail_the_verdict():
    whole = ds.Priors(phi_bounds=(1.0, 100.0)).resolve(np.arange(9.0) % 4, np.ones((9, 1)), 1.0)
    cut = ds.Priors(phi_bounds=(5.0, 20.0)).resolve(np.arange(9.0) % 4, np.ones((9, 1)), 1.0)
    draws = {"phi": np.full((4, 5), 5.0), "sigma_sq": np.ones((4, 5)), "tau_sq": np.ones((4, 5))}
    (found,) = at_window(draws, cut, whole)
    assert found.severity == "failure"
    assert found.value == 1.0
    (fine,) = at_window({**draws, "phi": np.full((4, 5), 10.0)}, cut, whole)
    assert fine.severity == "ok"
    assert at_window(draws, whole, whole) == []


# Fits


def test_auto_is_exact_up_to_its_limit_and_then_vecchia():
    assert choose_covariance("auto", 2000) is EXACT
    assert choose_covariance("auto", 2001) == Vecchia(15, "maxmin")
    assert choose_covariance(Vecchia(5), 10) == Vecchia(5)


def test_a_fit_with_all_neighbours_is_the_exact_fit(small, fits):
    # The range leaves out a second mode, without a spatial effect, which chains rarely find.
    how = {"priors": ds.Priors(phi_bounds=(2.0, 30.0)), "samples": 2000, "progress": False}
    free = ds.fit(small, seed=7, **how)
    near = ds.fit(small, seed=8, covariance=Vecchia(89), **how)
    assert near.covariance == Vecchia(89)
    assert near.program == "surface"
    assert near.verdict.passed
    assert near.surface_error < 1e-4
    mc.assert_same(
        mc.estimates_of({k: v for k, v in free.scalars.items()}),
        mc.estimates_of({k: v for k, v in near.scalars.items()}),
    )
    flags = ds.flag_isolated(near, distance=0.05)
    kept = ds.fit(small, weights=flags, start=near, seed=9, progress=False)
    assert kept.covariance == near.covariance  # that of start


# The effect given the data


@pytest.mark.parametrize(("protection", "gamma"), SETTINGS)
def test_with_all_neighbours_the_effect_has_its_exact_law(fits, protection, gamma):
    fit = fits[protection, gamma]
    exact, sparse = LatentModel(fit), SparseLatentModel(fit, centre_of(fit), neighbours=89)
    places = np.random.default_rng(1).uniform(size=(40, 2))
    np.testing.assert_allclose(sparse.mean(P), exact.mean(P), atol=1e-6)
    np.testing.assert_allclose(sparse.mean(P, places), exact.mean(P, places), atol=1e-6)
    mean, root = linear_law(sparse, P)
    np.testing.assert_allclose(mean, exact.mean(P), atol=1e-6)
    np.testing.assert_allclose(root @ root.T, exact.covariance(P), atol=1e-6)
    assert 0 < sparse.worst_residual < RESIDUAL


@pytest.mark.parametrize(("protection", "gamma"), SETTINGS)
def test_with_all_neighbours_the_precision_is_exact_whatever_the_knots(
    fits, protection, gamma, monkeypatch
):
    # Knots that are integrated out again leave the law of the response as it is.
    monkeypatch.setattr(preconditioner, "RECORDS_EACH", 8)
    monkeypatch.setattr(preconditioner, "GIVEN", 90)
    fit = fits[protection, gamma]
    model, r = SparseLatentModel(fit, centre_of(fit), neighbours=89), 0.0625
    near = NearPrecision(
        *(model.response_sites, model.response_a, model.own, model.response.earlier),
        *(model.sites, model.earlier, P.phi, r, 1),
    )
    assert near.on_knots.shape == (len(model.kept), len(model.kept) // 8)
    d = cdist(model.response_sites, model.response_sites)
    a = model.response_a
    M = smoothed_correlation(d, P.phi, a, "paper") + np.diag(model.own - a**2)
    a = np.ones(len(M))
    found = np.column_stack([near.times(e) for e in np.eye(len(a))])
    np.testing.assert_allclose(found @ (M + r * np.eye(len(a))), np.eye(len(a)), atol=1e-8)


def test_knots_keep_smooth_responses_from_costing_iterations(monkeypatch):
    """Eigenvalues of the approximate precision times V: all near 1 cost no iterations."""
    sites = np.random.default_rng(0).uniform(size=(1500, 2))
    near = Neighbours.of(sites, 15)
    places, ones, phi, r = sites[near.order], np.ones(1500), 0.5, 1.0
    V = np.exp(-phi * cdist(places, places)) + r * np.eye(1500)
    root = np.linalg.cholesky(V)

    def spread_of(most):
        monkeypatch.setattr(preconditioner, "MOST_KNOTS", most)
        law = (places, ones, ones, near.earlier, places, near.earlier, phi, r, 1)
        nearly = NearPrecision(*law)
        both = root.T @ np.column_stack([nearly.times(column) for column in root.T])
        np.testing.assert_allclose(both, both.T, atol=1e-8)
        values = np.linalg.eigvalsh(both)
        return values[-1] / values[0]

    assert spread_of(0) > 20
    assert spread_of(2000) < 10


def test_draws_are_near_the_exact_law_with_fifteen_neighbours():
    problem = problem_of(500, seed=9)
    a = np.zeros(500)
    a[:5] = 1.0
    short = {"warmup": 200, "samples": 60, "progress": False}
    free = ds.fit(problem, seed=1, **short)
    fit = ds.fit(problem, weights=ds.own_weights(problem, a), start=free, seed=1, **short)
    exact, sparse = LatentModel(fit), SparseLatentModel(fit, centre_of(fit))
    mean, root = linear_law(sparse, P)
    want = exact.covariance(P)
    sd = np.sqrt(np.diag(want))
    assert np.max(np.abs(mean - exact.mean(P)) / sd) < 0.05
    assert np.max(np.abs(root @ root.T - want) / np.outer(sd, sd)) < 0.05
    # A flagged record's own value is not in its draw.
    sparse.y = sparse.y + 100.0 * (sparse.rows == 0)
    np.testing.assert_allclose(sparse.mean(P)[0], exact.mean(P)[0], atol=0.05 * sd[0])


def test_copies_are_the_same_for_any_number_of_threads(small):
    fit = ds.fit(small, covariance=Vecchia(10), seed=3, progress=False)
    one, two = (
        ds.synthesise(fit, 6, seed=4, workers=workers, progress=False).values for workers in (1, 2)
    )
    assert one.tobytes() == two.tobytes()


# What a release tells


@pytest.mark.parametrize(("protection", "gamma"), SETTINGS)
def test_with_all_records_around_the_terms_are_exact(fits, protection, gamma):
    fit = fits[protection, gamma]
    fit = ds.fit(  # the same, with the coefficients by all neighbours
        fit.problem,
        weights=fit.weights,
        start=fit.start,
        phi=None,
        covariance=Vecchia(89),
        **({} if fit.weights is None else {"protection": protection, "gamma": gamma}),
        warmup=200,
        samples=60,
        seed=1,
        progress=False,
    )
    exact = LatentModel(fits[protection, gamma])
    weak = dataclasses.replace(P, tau_sq=1e-3 * P.tau_sq, phi=2.0 * P.phi)
    points = [P, weak, dataclasses.replace(P, sigma_sq=2.0 * P.sigma_sq)]
    for effect in ("auto", "w", "plug"):
        carried = carried_effect(fit, effect)[0]
        for p, found in zip(
            points, local_terms(fit, points, carried, surroundings=90), strict=True
        ):
            law = copy_law(exact, p, carried)
            want = np.einsum("ij,ij->j", law.H, np.linalg.solve(law.Vs, law.H))
            np.testing.assert_allclose(found.information, want, rtol=1e-6, atol=1e-10)
            np.testing.assert_allclose(found.exposure, np.diag(law.H), rtol=1e-6, atol=1e-9)
            np.testing.assert_allclose(found.score, law.score, rtol=1e-6, atol=1e-8)
            np.testing.assert_allclose(
                found.precision[fit.informing], projected_precision(exact, p), rtol=1e-6
            )


def test_the_attacker_is_near_the_exact_one():
    problem = problem_of(400, seed=4)
    exact = ds.fit(problem, covariance="exact", seed=1, progress=False)
    flags = ds.flag_isolated(exact, distance=0.06)
    assert 3 < flags.n_flagged < 60
    kept = ds.fit(problem, weights=flags, start=exact, phi=12.7, seed=1, progress=False)
    sds = []
    for covariance in (EXACT, Vecchia()):  # the same draws, so that no Monte Carlo error is left
        start = dataclasses.replace(exact, covariance=covariance)
        found = dataclasses.replace(kept, covariance=covariance, start=start)
        sds.append(attack(found, against=start, copies=20, draws=8, progress=False))
    assert sds[0].left_out is None
    assert 0 <= sds[1].left_out < 0.05
    for variances in ("fixed", "known"):
        ratio = sds[1].sd(variances=variances) / sds[0].sd(variances=variances)
        assert abs(np.median(ratio) - 1.0) < 0.02
        assert np.all(np.abs(np.log(ratio)) < 0.2)
    assert "records around each" in str(sds[1])


@pytest.mark.parametrize(("protection", "gamma"), SETTINGS[1:])
def test_what_is_left_out_is_little_with_half_of_all_around(fits, protection, gamma, monkeypatch):
    fit = fits[protection, gamma]
    found = []
    for count in (5, 10, 45):
        monkeypatch.setattr("dsstan.covariance.vecchia.exposure.SURROUNDINGS", count)
        found.append(left_out(fit, P, carried_effect(fit)[0], 20, fit.start, P))
    # What is left out with 5 of 90 around is no more than the sd itself; with 45 it is nothing.
    assert all(0.0 <= one < 1.0 for one in found)
    assert found[2] < 0.01


def test_a_floor_is_held_against_an_sd_smaller_by_what_is_left_out():
    n = 3
    found = Attack(
        leave_one_out=np.ones(n),
        information=np.full(n, 0.05),
        leak=np.zeros(n),
        error=np.zeros(n),
        exposure=np.zeros(n),
        flagged=np.zeros(n, dtype=bool),
        index=pd.RangeIndex(n),
        copies=20,
        draws=4,
        effective=4.0,
        seconds=0.0,
    )
    assert found.largest_release(0.5) == 60  # (1 / 0.25 - 1) / 0.05
    cautious = dataclasses.replace(found, left_out=0.1)
    assert cautious.largest_release(0.5) == int((1 / 0.55**2 - 1) / 0.05)


def test_a_level_that_no_early_record_has_does_no_harm(monkeypatch):
    table = table_of(400, seed=6)
    table["kind"] = np.where(np.arange(400) < 3, "rare", "usual")
    problem = ds.prepare(table, "y ~ x + kind", coords=("s1", "s2"))
    monkeypatch.setattr("dsstan.covariance.window.STAGES", ((40, (24, 48)), (80, (20, 24))))
    source = VecchiaStatistics.of(
        problem, np.arange(400), a_diag=np.ones(400), protection="none", neighbours=5
    )
    bounds = (3 / problem.d_max, 300 / problem.d_max), (1e-4, 1e4)
    surface, window = narrowed_surface(source, *bounds, seed=1)
    assert surface.error < 1e-4
    assert bounds[0][0] <= window.phi <= bounds[0][1]


# Releases


def test_a_release_of_many_records_is_written_and_says_how(tmp_path, small):
    table = small.table.assign(y=small.table["y"].round(3))
    release = ds.protect(
        table,
        "y ~ x",
        coords=("s1", "s2"),
        threshold=0.08,
        copies=4,
        covariance=Vecchia(10),
        seed=2,
        accept_failed=True,  # what is tested is what is written
        progress=False,
    )
    folder = release.write(tmp_path / "out")
    settings = (folder / "confidential" / "settings.json").read_text()
    assert '"name": "vecchia"' in settings
    assert '"neighbours": 10' in settings
    page = (folder / "confidential" / "report.html").read_text()
    assert "Vecchia" in page
    assert "computed from the 40 records around each, at 20 posterior draws;" in page
    assert "vecchia" not in (folder / "public" / "metadata.json").read_text().lower()


def test_a_picture_of_many_records_keeps_the_worst():
    n = 10_000
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {"row": np.arange(n), "flagged": rng.random(n) < 0.3, "sd_after": rng.random(n)}
    )
    shown = pictured(table)
    assert len(shown) == 3000
    assert shown["row"].is_monotonic_increasing
    assert set(table.nsmallest(20, "sd_after")["row"]) <= set(shown["row"])
    flagged = table[table["flagged"]].nsmallest(1500, "sd_after")
    assert set(flagged["row"]) <= set(shown["row"])
    pd.testing.assert_frame_equal(pictured(table.head(3000)), table.head(3000))


@pytest.mark.nightly("a release of twenty thousand records")
def test_memory_stays_far_below_a_matrix_of_all_pairs():
    script = """
        import numpy as np, pandas as pd, resource
        import dsstan as ds
        from dsstan.risk.intruder.attacker import attack
        n, rng = 20_000, np.random.default_rng(0)
        sites = rng.uniform(size=(n, 2))
        y = np.sin(9 * sites[:, 0]) + rng.standard_normal(n)
        table = pd.DataFrame({"s1": sites[:, 0], "s2": sites[:, 1], "y": y})
        problem = ds.prepare(table, "y ~ 1", coords=("s1", "s2"))
        short = {"warmup": 200, "samples": 200, "progress": False}
        free = ds.fit(problem, seed=1, **short)
        kept = ds.fit(problem, weights=ds.flag_isolated(free, distance=0.02), start=free, **short)
        ds.synthesise(kept, 2, accept_failed=True, accept_few_draws=True, progress=False)
        attack(kept, copies=2, draws=2, progress=False)
        print(free.covariance.name, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True
    )
    name, peak = done.stdout.split()
    assert name == "vecchia"
    assert float(peak) / 1024**2 < 1.5  # GiB; all pairs of 20,000 records take 3.0


def test_neighbours_beyond_the_number_of_records_cost_nothing(small):
    fit = ds.fit(small, covariance=Vecchia(200), seed=3, progress=False, chains=1, samples=20)
    assert fit.covariance.statistics(fit).neighbours.earlier.shape[1] == small.n_records - 1
    assert fit.covariance.latent(fit, centre_of(fit)).neighbours == small.n_records - 1


# Bad input


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda: Vecchia(0), "neighbours must be a whole number of at least 1, got 0"),
        (lambda: Vecchia(2.5), "neighbours must be a whole number"),
        (lambda: Vecchia(ordering="random"), "ordering must be one of maxmin, coordinate"),
        (lambda: PredictiveProcess(placement="here"), "placement must be one of"),
        (lambda: choose_covariance("nngp", 10), "covariance must be one of auto, exact, vecchia"),
    ],
)
def test_settings_that_make_no_sense_are_refused(ask, said):
    with pytest.raises(InputError, match=said):
        ask()


def test_the_natural_programs_are_exact(small):
    with pytest.raises(InputError, match="the exact covariance"):
        ds.fit(small, covariance="vecchia", program="natural", progress=False)


def test_what_needs_the_exact_covariance_says_so(small):
    short = {"warmup": 200, "samples": 60, "progress": False, "seed": 1}
    near = ds.fit(small, covariance="vecchia", **short)
    with pytest.raises(InputError, match="Vecchia's approximation, 15 neighbours"):
        LatentModel(near)
    knots = ds.fit(small, covariance=PredictiveProcess(20), **short)
    with pytest.raises(InputError, match="not computed under the predictive process"):
        attack(knots, progress=False)


def test_earlier_neighbours_of_few_places():
    found = earlier_neighbours(np.array([[0.0, 0.0], [1.0, 0.0]]), 3)
    np.testing.assert_array_equal(found, [[-1, -1, -1], [0, -1, -1]])
