"""The multivariate model: groups that inform one another."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from calibration import FAMILY_ALPHA, uniformity
from parity.golden import golden_path
from parity.multivariate import fitted
from parity.posterior import read_runs
from scipy.spatial.distance import cdist

import dsstan as ds
from conftest import small_table
from dsstan.core.errors import InputError
from dsstan.models.groups.coregionalisation import (
    GroupLatentModel,
    GroupParameters,
    group_parameters_at,
)
from dsstan.models.groups.effect_map import surface_by_group
from dsstan.models.groups.fit import fit_multivariate
from dsstan.models.groups.groups import MAX_GROUPS
from dsstan.models.groups.result import MultivariateFit
from dsstan.models.weights import neighbour_distances
from mc import Estimate, assert_same, assert_same_posterior, mean_of, quantile_of, sd_of, z_limit

QUIET = {"progress": False}
SHORT = {"samples": 500, **QUIET}
ROUNDING = 1e-9
"""Two ways of solving the same linear system of some sixty records."""

ENOUGH = 150
"""Effective draws that every quantity of the golden must have."""

MIXED = 1.05
"""Largest R-hat of a golden's parameter."""


def grouped(n: int = 30, *, lone: bool = False) -> pd.DataFrame:
    """A small table with a group for each record; with ``lone`` the far record has its own."""
    table = small_table(n, seed=9, shared=4)
    group = np.arange(n) % 2
    if lone:
        group[-1] = 2
    return table.assign(kind=group)


@pytest.fixture(scope="module")
def problem():
    return ds.prepare(
        grouped(lone=True), "log(value) ~ x", coords=("east", "north"), name="three kinds"
    )


@pytest.fixture(scope="module")
def lone(problem) -> MultivariateFit:
    """Three groups, the third of one record."""
    return fit_multivariate(problem, "kind", seed=3, **SHORT)


@pytest.fixture(scope="module")
def kept(problem, lone) -> MultivariateFit:
    """Restricted, the far record flagged."""
    weights = ds.flag_isolated(lone, distance=0.15)
    return fit_multivariate(problem, "kind", weights=weights, start=lone, seed=4, **SHORT)


def test_a_group_of_one_record_passes_and_the_note_says_what_it_can_tell(lone):
    assert list(lone.groups.sizes) == [15, 14, 1]
    assert lone.verdict.passed, str(lone.verdict)
    assert float(np.mean(lone.draws["phi"] > 0)) == 1.0
    (note,) = [n for n in lone.notes if "group 2" in n]
    assert "the 1 informing records" in note
    assert "determine 1 of 2 coefficients" in note
    # One record: its nugget stays near its half-normal prior, whose sd is 0.6 of its scale.
    tau = np.sqrt(lone.draws["tau_sq"][..., 2])
    assert tau.std() > 0.4 * lone.priors.tau[0]


def test_summary_names_every_parameter_by_its_group(lone):
    table = lone.summary()
    assert list(table.index[:2]) == ["beta_0_0", "beta_0_1"]
    assert table.loc["T_2_1", "term"] == "covariance, kind 2 with kind 1"
    assert table.loc["tau_sq_2", "term"] == "nugget, kind 2"
    assert len(table) == 6 + 6 + 3 + 1
    assert np.all(np.abs(lone.group_correlation) <= 1 + 1e-12)


def dense(fit: MultivariateFit, p: GroupParameters, places, group):
    """Mean and covariance of the effects at places by one joint normal law, with no shortcut."""
    problem, rows = fit.problem, fit.informing
    own = fit.groups.index[rows]
    sites = np.vstack([problem.sites[rows], places])
    index = np.concatenate([own, group])
    K = p.T[np.ix_(index, index)] * np.exp(-p.phi * cdist(sites, sites))
    n = len(rows)
    A = np.diag(fit.A[rows])
    V = A @ K[:n, :n] @ A + np.diag(p.tau_sq[own])
    if fit.protection == "preserving":
        V += np.diag(np.diag(p.T)[own] * (1 - fit.A[rows] ** 2))
    gain = K[n:, :n] @ A @ np.linalg.inv(V)
    residual = problem.y[rows] - np.einsum("ij,ij->i", problem.X[rows], p.beta[own])
    return gain @ residual, K[n:, n:] - gain @ A @ K[:n, n:]


def restated(fit: MultivariateFit, protection: str, a) -> MultivariateFit:
    """The same draws under another protection and A."""
    return replace(fit, protection=protection, A=a)


@pytest.mark.parametrize("protection", ["paper", "preserving", "cut"])
def test_effects_given_y_are_those_of_the_joint_normal_law(kept, protection):
    a = kept.A.copy()
    a[3] = 0.0 if protection == "cut" else 0.5
    fit = restated(kept, protection, a)
    p = group_parameters_at(fit, 1, 10)
    model = GroupLatentModel(fit)
    problem = fit.problem
    mean, covariance = dense(fit, p, problem.sites, fit.groups.index)
    np.testing.assert_allclose(model.mean(p), mean, atol=ROUNDING)
    np.testing.assert_allclose(model.covariance(p), covariance, atol=ROUNDING)
    places, group = np.array([[0.2, 0.4], [1.5, 0.1]]), np.array([2, 0])
    mean, covariance = dense(fit, p, places, group)
    found, variance = model.at(p, group, places)
    np.testing.assert_allclose(found, mean, atol=ROUNDING)
    np.testing.assert_allclose(variance, np.diag(covariance), atol=ROUNDING)


def test_drawn_effects_have_that_mean_and_covariance(kept):
    p = group_parameters_at(kept, 0, 5)
    model = GroupLatentModel(kept)
    rng = np.random.default_rng(5)
    draws = np.array([model.draw(p, rng) for _ in range(3000)])
    sd = np.sqrt(np.diag(model.covariance(p)))
    z = (draws - model.mean(p)) / sd
    limit = z_limit(2 * z.shape[1])
    assert np.all(np.abs(z.mean(axis=0)) < limit / np.sqrt(len(z)))
    assert np.all(np.abs(z.var(axis=0) - 1) < limit * np.sqrt(2 / len(z)))
    far, near = kept.problem.n_records - 1, 0
    assert kept.A[far] == 0.0
    cross = np.mean(z[:, far] * z[:, near]) * sd[far] * sd[near]
    assert cross == pytest.approx(
        model.covariance(p)[far, near], abs=z_limit(1) * sd[far] * sd[near] * np.sqrt(2 / len(z))
    )


def test_one_group_is_the_unrestricted_fit():
    problem = ds.prepare(grouped().assign(all=1), "log(value) ~ x", coords=("east", "north"))
    one = fit_multivariate(problem, "all", seed=1, warmup=300, samples=600, **QUIET)
    plain = ds.fit(problem, seed=2, samples=2000, **QUIET)
    named = {"beta_0": "beta_0_0", "beta_1": "beta_0_1", "sigma_sq": "T_0_0", "tau_sq": "tau_sq_0"}
    ours = {name: one.scalars[own] for name, own in named.items()} | {"phi": one.scalars["phi"]}
    assert_same_posterior(ours, plain.scalars)


def test_groups_that_cannot_correlate_are_fits_of_their_own():
    table = grouped()
    problem = ds.prepare(table, "log(value) ~ x", coords=("east", "north"))
    phi, firm = 4.0, ds.Priors(sigma=1.5, tau=0.8, beta_scale=200.0)
    # A huge eta forbids correlation; a huge group_scale leaves nothing in common.
    both = fit_multivariate(
        problem,
        "kind",
        phi=phi,
        priors=firm,
        group_scale=200.0,
        lkj_eta=1e3,
        seed=1,
        warmup=300,
        samples=700,
        **QUIET,
    )
    assert np.abs(both.group_correlation[..., 0, 1]).max() < 0.15
    for k in (0, 1):
        own = ds.prepare(table[table.kind == k], "log(value) ~ x", coords=("east", "north"))
        alone = ds.fit(
            own,
            weights=ds.own_weights(own, np.eye(own.n_records)[0]),
            gamma=0.0,  # one record is flagged, and none smoothed: phi is held and that is all
            phi=phi,
            priors=ds.Priors(sigma=1.5, tau=0.8, beta_scale=200 * np.sqrt(2)),
            seed=2,
            samples=2000,
            **QUIET,
        )
        names = {
            "beta_0": f"beta_{k}_0",
            "beta_1": f"beta_{k}_1",
            "sigma_sq": f"T_{k}_{k}",
            "tau_sq": f"tau_sq_{k}",
        }
        theirs = {name: alone.scalars[name] for name in names}
        assert_same_posterior({n: both.scalars[own] for n, own in names.items()}, theirs)


@pytest.mark.parametrize(
    "engine",
    ["direct", pytest.param("embedded", marks=pytest.mark.nightly("statistics on Stan's engine"))],
)
@pytest.mark.parametrize("model", ["infinite"])
def test_the_posterior_is_that_of_jags(model, engine):
    run = read_runs(golden_path("multivariate_jags")).runs[model]
    assert min(run.ess.values()) >= ENOUGH
    assert max(run.rhat.values()) < MIXED
    fit = fitted(model, engine=engine)
    assert fit.verdict.passed, str(fit.verdict)
    ours: dict[str, Estimate] = {}
    for name, d in fit.scalars.items():
        if name == "phi" and fit.phi_held is not None:
            continue
        found = (mean_of(d), sd_of(d), *(quantile_of(d, p) for p in (0.025, 0.5, 0.975)))
        labels = ("mean", "sd", "q025", "q500", "q975")
        ours |= {f"{label} {name}": e for label, e in zip(labels, found, strict=True)}
    assert_same(ours, run.estimates)


RANKED, THINNED = 12, 100
"""Records of a table, and draws kept of each fit."""


def replicate(seed: int) -> dict[str, int]:
    """Ranks of parameters drawn from the prior among the draws of their posterior."""
    rng = np.random.default_rng([seed, 40])
    group = np.arange(RANKED) % 2
    sites = rng.uniform(size=(RANKED, 2))
    sites[:3] = sites[3:6]
    mu = rng.normal(0.0, 2.0)
    beta = mu + rng.normal(0.0, 1.0, 2)
    sigma, tau = np.abs(rng.normal(0.0, 1.0, 2)), np.abs(rng.normal(0.0, 0.5, 2))
    rho = 2.0 * rng.beta(2.0, 2.0) - 1.0
    phi = rng.uniform(2.0, 20.0)
    T = np.array([[1.0, rho], [rho, 1.0]]) * np.outer(sigma, sigma)
    V = T[np.ix_(group, group)] * np.exp(-phi * cdist(sites, sites)) + np.diag(tau[group] ** 2)
    y = beta[group] + np.linalg.cholesky(V) @ rng.standard_normal(RANKED)
    table = pd.DataFrame({"s": sites[:, 0], "t": sites[:, 1], "kind": group, "y": y})
    fit = fit_multivariate(
        ds.prepare(table, "y ~ 1", coords=("s", "t")),
        "kind",
        priors=ds.Priors(beta_scale=2.0, sigma=1.0, tau=0.5, phi_bounds=(2.0, 20.0)),
        group_scale=1.0,
        seed=seed,
        chains=2,
        warmup=300,
        samples=500,
        **QUIET,
    )
    truth = {"beta_0_0": beta[0], "beta_1_0": beta[1], "phi": phi}
    truth |= {f"T_{k}_{j}": T[k, j] for k, j in ((0, 0), (1, 0), (1, 1))}
    truth |= {f"tau_sq_{k}": tau[k] ** 2 for k in (0, 1)}
    step = 2 * 500 // THINNED
    return {k: int(np.sum(fit.scalars[k].ravel()[::step] < v)) for k, v in truth.items()}


@pytest.mark.parametrize(
    "replicates", [4, pytest.param(150, marks=pytest.mark.nightly("150 fits of two groups"))]
)
def test_ranks_of_what_the_prior_drew_are_uniform_among_the_posterior_s_draws(replicates):
    ranks = pd.DataFrame([replicate(seed) for seed in range(1, replicates + 1)])
    for name in ranks:
        found = uniformity(list(ranks[name]), FAMILY_ALPHA / ranks.shape[1])
        assert found.passed, name


def test_the_golden_of_jags_was_written_by_the_script_as_it_is():
    assert read_runs(golden_path("multivariate_jags")).golden.stale == []


def test_a_release_goes_from_the_restricted_fit_to_the_disk(kept, tmp_path):
    release = ds.synthesise(kept, 6, seed=5)
    risks = ds.disclosure(release)
    assert set(risks.reduction["group"]) == {"flagged", "unflagged", "all"}
    assert ds.utility(release).get("restricted", "x")["estimate"] == pytest.approx(0.7, abs=0.5)
    folder = release.write(tmp_path / "out")
    text = (folder / "public" / "metadata.json").read_text()
    assert '"Gaussian by group"' in text
    assert "for each group of column `kind`" in (folder / "public" / "README.md").read_text()
    with pytest.raises(InputError, match="Gaussian by group"):
        ds.latent.LatentModel(kept)


def test_copies_of_a_cut_group_come_from_the_prior_and_its_neighbours(problem, lone):
    a = np.zeros(problem.n_records)
    a[-1] = 1.0
    fit = fit_multivariate(
        problem,
        "kind",
        weights=ds.own_weights(problem, a),
        protection="cut",
        start=lone,
        seed=6,
        **SHORT,
    )
    assert fit.verdict.passed, str(fit.verdict)
    (note,) = [n for n in fit.notes if "group 2" in n]
    assert "the 0 informing records" in note
    copies = ds.synthesise(fit, 100, seed=7).modelled()[:, -1]
    level = fit.draws["beta"][..., 2, :] @ problem.X[-1]
    wide = np.sqrt(level.var() + np.mean(fit.draws["T"][..., 2, 2] + fit.draws["tau_sq"][..., 2]))
    assert copies.std() == pytest.approx(wide, rel=z_limit(1) * np.sqrt(0.5 / 100) * 1.5)


def test_a_group_borrows_from_the_others_where_it_has_no_record(lone):
    place = [[0.3, 0.3]]
    surface = surface_by_group(lone, place, draws=lone.n_draws)
    assert list(surface["group"]) == [0, 1, 2]
    sill = np.sqrt(lone.draws["T"][..., 2, 2].mean())
    assert surface["sd"][2] < sill
    assert surface["sd"][0] < surface["sd"][2]
    grid = surface_by_group(lone, groups=[1], draws=5, cells=8)
    assert set(grid["group"]) == {1}
    assert np.isfinite(grid[["w", "sd"]].to_numpy()).all()


def test_within_groups_the_nearest_neighbour_is_of_the_same_group(problem, lone):
    d = cdist(problem.sites, problem.sites)
    np.fill_diagonal(d, np.inf)
    d[lone.groups.index[:, None] != lone.groups.index[None, :]] = np.inf
    found = neighbour_distances(problem, within=lone.groups.index)
    np.testing.assert_allclose(found, d.min(axis=1), atol=1e-12)
    assert np.isinf(found[-1])
    second = np.sort(d, axis=1)[:, 1]
    np.testing.assert_allclose(
        neighbour_distances(problem, neighbour=2, within=lone.groups.index), second, atol=1e-12
    )
    weights = ds.flag_isolated(lone, distance=0.15, within_group=True)
    np.testing.assert_array_equal(weights.flagged, found >= 0.15)
    assert weights.n_flagged > ds.flag_isolated(lone, distance=0.15).n_flagged


def test_within_groups_by_site_leaves_out_the_own_place(problem, lone):
    group = np.zeros(problem.n_records, dtype=np.intp)
    found = neighbour_distances(problem, by_site=True, within=group)
    np.testing.assert_allclose(found, neighbour_distances(problem, by_site=True), atol=1e-12)


@pytest.mark.nightly("statistics on the second engine")
def test_both_engines_give_the_same_posterior(cmdstan_home):
    problem = ds.prepare(grouped(), "log(value) ~ x", coords=("east", "north"))
    settings = {"phi": 4.0, "warmup": 300, "samples": 600, "progress": False}
    runs = [
        fit_multivariate(problem, "kind", engine=engine, seed=5, **settings)
        for engine in ("embedded", "cmdstan")
    ]
    assert [fit.engine for fit in runs] == ["embedded", "cmdstan"]
    first, second = ({k: v for k, v in f.scalars.items() if k != "phi"} for f in runs)
    assert_same_posterior(first, second)


BAD_GROUPS = [
    (lambda t: t, "absent", "no column 'absent'"),
    (lambda t: t, "value", "can't be the response"),
    (lambda t: t, 3, "name of a column, got int"),
    (lambda t: t.assign(kind=t.kind.astype(float)), "kind", "of type float64"),
    (lambda t: t.assign(kind=t.kind.where(t.index != 4).astype("Int64")), "kind", "1 row .*4"),
    (lambda t: t.assign(kind=[*["a"] * 10, *range(20)]), "kind", "all of one kind.*int, str"),
    (lambda t: t.assign(kind=np.arange(30) % (MAX_GROUPS + 1)), "kind", "9 groups; at most 8"),
]


@pytest.mark.parametrize(("change", "column", "message"), BAD_GROUPS)
def test_groups_that_cannot_be_used_are_refused_before_sampling(change, column, message):
    table = change(grouped())
    problem = ds.prepare(table, "log(value) ~ x", coords=("east", "north"))
    with pytest.raises(InputError, match=message):
        fit_multivariate(problem, column, **QUIET)


BAD_ARGUMENTS = [
    ({"gamma": 1.0}, "belong to a restricted fit"),
    ({"lkj_eta": 0.0}, "lkj_eta must be positive"),
    ({"group_scale": -1.0}, "group_scale must be positive"),
    ({"group_scale": [1.0, 2.0, 3.0]}, r"one a coefficient \(2\); got 3"),
    ({"phi": -1.0}, "phi must be positive"),
    ({"cov_model": "gauss"}, "cov_model must be one of"),
]


@pytest.mark.parametrize(("given", "message"), BAD_ARGUMENTS)
def test_arguments_that_cannot_be_used_are_refused(problem, given, message):
    with pytest.raises(InputError, match=message):
        fit_multivariate(problem, "kind", **given, **QUIET)


def test_a_start_of_another_model_or_other_groups_is_refused(problem, lone, free):
    weights = ds.own_weights(problem, np.zeros(problem.n_records))
    with pytest.raises(InputError, match="start must be a fit of fit_multivariate"):
        fit_multivariate(problem, "kind", weights=weights, start=free, **QUIET)
    other = problem.with_response(problem.original()).assign(other=1)
    second = ds.prepare(other, "log(value) ~ x", coords=("east", "north"))
    with pytest.raises(InputError, match="start is a fit by column 'kind'"):
        fit_multivariate(second, "other", weights=weights, start=lone, **QUIET)


def test_a_group_without_records_has_no_surface(lone):
    with pytest.raises(InputError, match="no record of a group 7 of column 'kind'"):
        surface_by_group(lone, [[0.0, 0.0]], groups=[7])


BEYOND_STAN = [
    ({"engine": "embedded"}, r"at most 20 informing records, and 30 records inform .*\"direct\""),
    ({"engine": "embedded", "covariance": "vecchia"}, 'and it has Vecchia.*"direct"'),
    ({"covariance": "predictive_process"}, 'not modified predictive process.*"vecchia"'),
    ({"engine": "jags"}, "engine must be one of auto, direct, cmdstan, embedded, got 'jags'"),
]


@pytest.mark.parametrize(("given", "message"), BEYOND_STAN)
def test_what_the_engine_or_the_model_can_t_take_is_refused(monkeypatch, problem, given, message):
    monkeypatch.setattr("dsstan.models.groups.fit.MAX_RECORDS", 20)
    with pytest.raises(InputError, match=message):
        fit_multivariate(problem, "kind", progress=False, **given)


def test_within_groups_needs_a_fit_of_groups(free):
    with pytest.raises(InputError, match="within_group needs a fit of several groups"):
        ds.flag_isolated(free, within_group=True)
