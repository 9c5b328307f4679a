"""Vecchia's likelihood, refined: against the exact posterior, and what it says of itself."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from vecchia_tables import LAYOUTS, Layout, problem_on, shift

import dsstan as ds
from dsstan.covariance.approximations import Vecchia, choose_covariance
from dsstan.covariance.base import SpatialModel
from dsstan.covariance.likelihood_surface import error_at
from dsstan.covariance.vecchia import refinement
from dsstan.covariance.vecchia.refinement import (
    DenseStatistics,
    Refinement,
    posterior_moments,
    refined_surface,
)
from dsstan.covariance.vecchia.statistics import VecchiaStatistics
from dsstan.covariance.window import narrowed_surface
from dsstan.models.checks.refined import refinement_checks, refinement_notes

N = 400
SMOOTH = Layout(0.002, "matern52", 15.0)
DRAWS = {"engine": "direct", "samples": 4000, "progress": False, "seed": 1}

MONTE_CARLO = 0.03
"""Five sds of a mean's Monte Carlo error at twice 16,000 independent draws, in posterior sds: a
false alarm in a million for each."""


@pytest.fixture(scope="module")
def smooth():
    return problem_on(SMOOTH, N, seed=4)


@pytest.fixture(scope="module")
def exact(smooth):
    return ds.fit(smooth, cov_model="matern52", covariance="exact", **DRAWS)


@pytest.mark.parametrize("protection", ["paper", "preserving", "cut"])
def test_dense_statistics_are_those_of_all_neighbours(protection):
    problem = problem_on(LAYOUTS["towers, small nugget"], 300, seed=2)
    a = np.ones(300)
    a[::7], a[::5] = 0.0, 0.4
    model = SpatialModel(problem=problem, A=a, protection=protection, covariance=Vecchia())
    source = VecchiaStatistics.of_model(model, 199, "maxmin")
    assert len(source.sites) <= 200
    nodes = np.array([4.0, 30.0]), np.array([1e-3, 0.1, 5.0])
    want, found = source.sums(*nodes), DenseStatistics(source).sums(*nodes)
    np.testing.assert_allclose(found, want, rtol=1e-8, atol=1e-8 * np.abs(want).max())


def surfaces_of(problem, neighbours, **how):
    model = SpatialModel(
        problem=problem, A=np.ones(N), cov_model="matern52", covariance=Vecchia(neighbours)
    )
    source = model.covariance.statistics(model)
    priors = ds.Priors().resolve(problem.y, problem.X, problem.d_max, cov_model="matern52")
    ranges = priors.phi_bounds, priors.r_bounds
    surface, _ = narrowed_surface(source, *ranges, cov_model="matern52")

    def more(count):
        return Vecchia(count).statistics(model)

    return source, surface, *refined_surface(source, surface, more, **how)


def test_the_refined_log_density_is_the_exact_one_where_the_posterior_lies(smooth):
    source, rough, fine, window, done = surfaces_of(smooth, 5)
    assert (done.neighbours, done.by) == (5, "exact")
    assert done.left < refinement.NEAR_ENOUGH
    rng = np.random.default_rng(3)
    before, after = [], []
    for x, y in rng.uniform(-0.35, 0.35, size=(12, 2)):  # the middle of a box of 6 sds to a side
        phi, r = (
            float(np.exp(np.mean(np.log(b)) + 0.5 * at * np.diff(np.log(b))[0]))
            for b, at in ((window.phi_bounds, x), (window.r_bounds, y))
        )
        exact = DenseStatistics(source).sums(np.array([phi]), np.array([r]))[0, 0]
        before.append(error_at(rough, exact, phi, r))
        after.append(error_at(fine, exact, phi, r))
    assert max(after) < 2 * refinement.NEAR_ENOUGH
    assert np.std(before) > 0.5  # what a constant doesn't explain


def test_moments_of_a_surface_are_those_of_the_posterior(smooth, exact):
    _, _, fine, _, _ = surfaces_of(smooth, 15)
    means, sds = posterior_moments(fine)
    drawn = [np.log(exact.draws[k]).ravel() for k in ("phi", "sigma_sq", "tau_sq")]
    drawn += list(exact.draws["beta"].reshape(-1, 2).T)
    # Half-normal priors of the size of the residuals are left out: 0.2 sd here. In moves, for which
    # the moments are there, it cancels.
    np.testing.assert_allclose((means - [d.mean() for d in drawn]) / sds, 0.0, atol=0.25)
    np.testing.assert_allclose(sds / [d.std() for d in drawn], 1.0, atol=0.1)


def test_a_fit_of_few_neighbours_has_the_exact_posterior(smooth, exact):
    near = ds.fit(smooth, cov_model="matern52", covariance=Vecchia(8), **DRAWS)
    assert near.verdict.passed
    assert near.refinement.by == "exact"
    assert max(abs(s) for s in shift(exact, near).values()) < 0.05 + MONTE_CARLO
    # Without it, these tables are moved by more than is accepted: the test can fail.
    assert abs(near.refinement.moved[near.refinement.most_moved]) > 0.3
    (note,) = [n for n in near.notes if "likelihood of 8 neighbours" in n]
    assert note.endswith("It was replaced by the exact one")


@pytest.mark.parametrize("protection", ["paper", "preserving", "cut"])
def test_so_it_is_in_restricted_fits(smooth, exact, protection):
    how = {"protection": protection, "phi": float(np.median(exact.draws["phi"])), **DRAWS}
    flags = ds.flag_isolated(exact, distance=0.06)
    assert 3 < flags.n_flagged < 60
    found = []
    for covariance in ("exact", Vecchia(8)):
        start = dataclasses.replace(exact, covariance=choose_covariance(covariance, 1))
        found.append(
            ds.fit(smooth, weights=flags, start=start, gamma=3.0, covariance=covariance, **how)
        )
    assert found[1].refinement.moved[0] == 0.0  # phi is held
    assert max(abs(s) for s in shift(*found).values()) < 0.05 + MONTE_CARLO


def test_so_it_is_where_a_table_hardly_tells():
    # The posterior fills the range of the prior, where few nodes give statistics of no covariance.
    problem = problem_on(Layout(3.0), 60, seed=2)
    exact = ds.fit(problem, covariance="exact", **DRAWS)
    near = ds.fit(problem, covariance=Vecchia(5), **DRAWS)
    assert near.refinement.left < refinement.NEAR_ENOUGH
    assert max(abs(s) for s in shift(exact, near).values()) < 0.05 + MONTE_CARLO


# Of too many rows for the exact statistics


def test_neighbours_are_doubled_until_little_is_left_to_move(smooth, exact, monkeypatch):
    monkeypatch.setattr(refinement, "EXACT_ROWS", 0)
    near = ds.fit(smooth, cov_model="matern52", covariance=Vecchia(15), **DRAWS)
    assert near.refinement.by in (60, 120)
    assert near.refinement.left < refinement.MOVED
    assert near.verdict.passed
    assert max(abs(s) for s in shift(exact, near).values()) < 0.1 + MONTE_CARLO
    assert choose_covariance("vecchia", 1, "matern52").rough == Vecchia(15)


def test_a_fit_fails_where_more_is_left_than_is_accepted(smooth, monkeypatch):
    monkeypatch.setattr(refinement, "EXACT_ROWS", 0)
    monkeypatch.setattr(refinement, "ENOUGH", 10)
    monkeypatch.setattr(refinement, "MOST", 10)
    near = ds.fit(smooth, cov_model="matern52", covariance=Vecchia(5), **DRAWS)
    assert near.refinement.by == 10
    (failure,) = [c for c in near.verdict.failures if c.condition == "approximation-error"]
    assert failure.value > refinement.MOVED


@pytest.mark.parametrize(("rows", "by"), [(10, "exact"), (10_000, 60)])
def test_more_neighbours_than_asked_for_are_never_fewer(smooth, monkeypatch, rows, by):
    # The limits stand for tables of so many rows: this one has 400.
    monkeypatch.setattr(refinement, "EXACT_ROWS", 400 if by == "exact" else 0)
    monkeypatch.setattr(refinement, "MOVED", np.inf)
    model = SpatialModel(problem=smooth, A=np.ones(N), covariance=Vecchia())
    source = model.covariance.statistics(model)
    surface, _ = narrowed_surface(source, (2.0, 60.0), (1e-4, 1e2))
    more = {m: Vecchia(m).statistics(model) for m in (30, 60, 100)}
    assert refined_surface(source, surface, more.__getitem__)[2].by == by
    if by == 60:
        assert refined_surface(source, surface, more.get, at_least=40)[2].by == 60


def test_many_rows_take_no_more_neighbours_than_were_asked_for(smooth, monkeypatch):
    how = {"cov_model": "matern52", **DRAWS}
    whole = ds.fit(smooth, covariance=Vecchia(40), **how)
    monkeypatch.setattr(refinement, "EXACT_ROWS", 0)
    monkeypatch.setattr(refinement, "MOST_ROWS", 10)
    rough = ds.fit(smooth, covariance=Vecchia(8), **how)
    asked = ds.fit(smooth, covariance=Vecchia(40), **how)
    assert (rough.refinement.by, asked.refinement.by) == (8, 40)
    assert "likelihood of 8 neighbours is not compared with that of more" in " ".join(rough.notes)
    assert not [c for c in rough.verdict.failures if c.condition == "approximation-error"]
    far, near = (max(abs(s) for s in shift(whole, fit).values()) for fit in (rough, asked))
    assert near < 0.5 * far


def test_what_is_said_of_moves():
    done = Refinement(15, 60, (0.02, -0.3, 0.1, 0.0), left=0.02, where=0)
    (said,) = refinement_notes(done, ["Intercept"])
    assert said == (
        "the likelihood of 15 neighbours would have put the posterior mean of log sigma_sq 0.30 of "
        "its sd too high. It was replaced by that of 60 neighbours"
    )
    assert refinement_notes(dataclasses.replace(done, moved=(0.02,) * 4), ["Intercept"]) == []
    assert refinement_notes(None, []) == refinement_checks(None, []) == []
    (check,) = refinement_checks(dataclasses.replace(done, left=0.2, where=3), ["Intercept"])
    assert (check.severity, check.where) == ("failure", "Intercept")


def test_a_smooth_correlation_has_more_neighbours():
    chosen = [choose_covariance("vecchia", 1, m) for m in ("exponential", "matern32", "matern52")]
    assert chosen == [Vecchia(15), Vecchia(30), Vecchia(50)]


@pytest.mark.nightly("exact linear algebra of a thousand sites, a hundred fits")
@pytest.mark.parametrize("rows", [refinement.EXACT_ROWS, 0])
@pytest.mark.parametrize("name", LAYOUTS)
def test_no_posterior_mean_is_a_tenth_of_its_sd_off(name, rows, monkeypatch):
    monkeypatch.setattr(refinement, "EXACT_ROWS", rows)
    layout = LAYOUTS[name]
    for seed in range(4):
        problem = problem_on(layout, 3000 if layout.towers else 1000, seed)
        how = {"cov_model": layout.cov_model, **DRAWS}
        exact = ds.fit(problem, covariance="exact", **how)
        near = ds.fit(problem, covariance="vecchia", **how)
        assert near.verdict.passed
        assert max(abs(s) for s in shift(exact, near).values()) < 0.1 + MONTE_CARLO
