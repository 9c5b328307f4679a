"""Adaptive smoothing: weights and gamma inside the sampler."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest
from parity.golden import FOLDER, golden_path
from scipy import special, stats
from scipy.spatial.distance import cdist
from whitened import even, whitened

import dsstan as ds
from conftest import scalars, small_table
from dsstan.core.errors import InputError
from dsstan.covariance.copy_law import copy_law
from dsstan.covariance.latent import LatentModel
from dsstan.covariance.likelihood_surface import build_surface
from dsstan.covariance.protection import protection_of
from dsstan.covariance.surface_statistics import rotate
from dsstan.engines import SamplerSettings, get_engine
from dsstan.engines.programs import Program
from dsstan.models.adaptive.fit import AdaptiveRule, fit_adaptive
from dsstan.models.adaptive.surface import Setting, build_adaptive_surface
from dsstan.models.checks.diagnostics import ess
from dsstan.models.posterior import latent_draws, parameters_at
from dsstan.models.predictive import carried_at
from dsstan.models.stan_data import shared_data
from dsstan.models.weights import gamma_from_alpha, neighbour_distances
from dsstan.risk.intruder.attacker import attack
from dsstan.table.datasets import load_simulated
from mc import Estimate, assert_same, assert_same_posterior, estimates_of, mean_of, z_limit

RULES = {
    "ratio": AdaptiveRule(),
    "alpha": AdaptiveRule("alpha", alpha=0.2),
    "step": AdaptiveRule("step", gamma=4.0),
}
R_BOUNDS, PHI_BOUNDS = (1e-4, 1e4), (1.5, 150.0)
DENSITY = 1e-8
INTERPOLATED = 1e-4
"""Error that a fit's surface may have."""


def by_hand(problem, rule, protection, phi, sigma_sq, tau_sq):
    """A and V written out for the exponential, without the package's formulas."""
    d = np.sqrt(((problem.sites[:, None] - problem.sites[None]) ** 2).sum(-1))
    nearest = np.sort(d, axis=1)[:, 1]
    if rule.name == "step":
        M = -np.log(rule.c) / phi
        with np.errstate(divide="ignore"):
            s = 1 / (1 + (M / nearest) ** (1 / rule.width))
        A = np.sqrt(1 - s * (1.0 if np.isinf(rule.gamma) else rule.gamma / (1 + rule.gamma)))
    else:
        ratio = sigma_sq / tau_sq
        gamma = max(0.0, ratio * (1 - rule.alpha) / rule.alpha - 1)
        A = 1 / np.sqrt(1 + gamma * (1 - np.exp(-phi * nearest)))
    V = sigma_sq * np.outer(A, A) * np.exp(-phi * d) + tau_sq * np.eye(len(A))
    if protection == "preserving":
        V += sigma_sq * np.diag(1 - A**2)
    return A, V


@pytest.mark.parametrize("name", RULES)
def test_the_diagonal_of_A_follows_its_formula(small, name):
    rule, nearest = RULES[name], neighbour_distances(small)
    for phi, sigma_sq, tau_sq in ((5.0, 1.4, 0.2), (30.0, 0.3, 2.0), (1.6, 20.0, 0.01)):
        A, _ = by_hand(small, rule, "paper", phi, sigma_sq, tau_sq)
        got = rule.diagonal(nearest, phi, tau_sq / sigma_sq, "exponential")
        np.testing.assert_allclose(got, A, rtol=1e-12)
        assert np.all(got[nearest == 0] == 1)


def test_gamma_is_the_paper_s_alpha_clipped_at_zero():
    rule = RULES["alpha"]
    assert rule.gamma_at(0.1) == pytest.approx(gamma_from_alpha(0.2, 10.0, 1.0))
    assert rule.gamma_at(rule.kink) == 0
    assert rule.gamma_at(1e3) == 0
    assert AdaptiveRule().gamma_at(0.25) == pytest.approx(4.0 - 1.0)


def test_a_narrow_step_is_the_paper_s_flag(small):
    nearest, phi = neighbour_distances(small), 9.0
    rule = AdaptiveRule("step", width=1e-4)
    flags = nearest >= -np.log(0.20) / phi
    assert 0 < flags.sum() < flags.size
    got = rule.diagonal(nearest, phi, 0.1, "exponential")
    np.testing.assert_allclose(got, np.where(flags, 0.0, 1.0), atol=1e-12)


@pytest.mark.parametrize("protection", ["paper", "preserving"])
@pytest.mark.parametrize("name", RULES)
def test_the_surface_is_the_closed_form_on_both_sides_of_the_kink(small, name, protection):
    rule = RULES[name]
    setting = Setting(
        cdist(small.sites, small.sites), neighbour_distances(small), rule, protection, "exponential"
    )
    surface = build_adaptive_surface(
        setting, small.X, small.y, phi_bounds=PHI_BOUNDS, r_bounds=R_BOUNDS
    )
    assert surface.error < INTERPOLATED
    beta = np.array([5.0, 0.6])
    ratios = [1e-3, 0.3, 3.0, 50.0]
    if name != "step":
        ratios += [rule.kink, 0.999 * rule.kink, 1.001 * rule.kink]
    for r in ratios:
        for phi in (2.0, 7.7, 60.0):
            _, V = by_hand(small, rule, protection, phi, 1.4, 1.4 * r)
            want = stats.multivariate_normal(small.X @ beta, V).logpdf(small.y)
            got = surface.log_density(beta, 1.4, 1.4 * r, phi)
            assert got == pytest.approx(want, abs=INTERPOLATED, rel=1e-6)


@pytest.mark.parametrize("protection", ["paper", "preserving"])
@pytest.mark.parametrize("alpha", [0.002, 0.5, 0.99])
def test_the_statistics_are_those_of_the_covariance_written_out(small, alpha, protection):
    """Before any interpolation, for all r at once, with records at one site and a far one."""
    rule = AdaptiveRule("alpha", alpha=alpha)
    d = cdist(small.sites, small.sites)
    setting = Setting(d, neighbour_distances(small), rule, protection, "exponential")
    z, phi = rotate(small.X, small.y).Z, 7.7
    ratios = np.array([1e-4, 0.03, 0.3, 0.6, 1 - 1e-9]) * min(rule.kink, 1e4)
    for r, found in zip(ratios, setting.statistics(z, phi, ratios), strict=True):
        _, V = by_hand(small, rule, protection, phi, 1.0, r)
        log_det = np.linalg.slogdet(V)[1] - len(z) * np.log1p(r)
        inner = (1 + r) * z.T @ np.linalg.solve(V, z)
        want = np.array([log_det, *inner[np.tril_indices(3)]])
        np.testing.assert_allclose(found, want, rtol=DENSITY, atol=DENSITY * np.abs(want).max())


def test_one_interpolant_over_the_kink_does_not_converge(small):
    """Why there are two panels: as many nodes without a break leave an error 100 times larger."""
    setting = Setting(
        cdist(small.sites, small.sites),
        neighbour_distances(small),
        RULES["ratio"],
        "preserving",
        "exponential",
    )
    bounds = {"phi_bounds": (5.0, 5.5), "nodes": (6, 28), "tolerance": np.inf}
    two = build_adaptive_surface(setting, small.X, small.y, r_bounds=R_BOUNDS, **bounds)

    class Blind(AdaptiveRule):
        """The same gamma; its kink is not told to the surface."""

        kink = property(lambda self: np.inf)

        def gamma_at(self, r):
            return np.maximum(0.0, 1.0 / np.asarray(r) - 1.0)

    blind = Setting(setting.distances, setting.nearest, Blind(), "preserving", "exponential")
    one = build_adaptive_surface(
        blind, small.X, small.y, r_bounds=R_BOUNDS, **{**bounds, "nodes": (6, 56)}
    )
    assert one.error > 100 * two.error


@pytest.mark.parametrize(
    ("program", "name", "protection"),
    [
        ("surface", "ratio", "paper"),
        ("surface", "alpha", "preserving"),
        ("surface", "step", "paper"),
        ("adaptive", "ratio", "paper"),
        ("adaptive", "alpha", "preserving"),
    ],
)
def test_log_density_of_the_program(density_engine, small, program, name, protection):
    """Against the NumPy interpolant at 1e-8, on both sides of the kink; that against the closed
    form above. So both programs state the same posterior."""
    rule, nearest = RULES[name], neighbour_distances(small)
    priors = ds.Priors(phi_bounds=PHI_BOUNDS, r_bounds=R_BOUNDS)
    resolved = priors.resolve(small.y, small.X, small.d_max)
    setting = Setting(cdist(small.sites, small.sites), nearest, rule, protection, "exponential")
    surface = build_adaptive_surface(
        setting, small.X, small.y, phi_bounds=PHI_BOUNDS, r_bounds=R_BOUNDS
    )
    points = [
        {"beta": [5.0, 0.6], "sigma_sq": 1.4, "tau_sq": 0.2, "phi": 4.4},
        {"beta": [4.0, 1.0], "sigma_sq": 0.3, "tau_sq": 2.0, "phi": 30.0},
        {"beta": [6.0, 0.1], "sigma_sq": 20.0, "tau_sq": 0.01, "phi": 1.6},
    ]
    if program == "surface":
        data = even(resolved.on_surface(surface))
        coordinates = [whitened(data, p) for p in points]
        given = [{"whitened": z} for z, _ in coordinates]
        jacobians = [log_jacobian for _, log_jacobian in coordinates]
    else:
        data = natural_data(small, setting, resolved, surface)
        given = points
        jacobians = [
            np.log(p["sigma_sq"])
            + jacobian(p["tau_sq"], R_BOUNDS[0] * p["sigma_sq"], R_BOUNDS[1] * p["sigma_sq"])
            + jacobian(p["phi"], *PHI_BOUNDS)
            for p in points
        ]
    engine = get_engine(density_engine)
    got = engine.log_density(Program(program), data, given) - np.array(jacobians)
    for value, p in zip(got, points, strict=True):
        want = surface.log_density(np.array(p["beta"]), p["sigma_sq"], p["tau_sq"], p["phi"])
        want += stats.norm(0, resolved.beta_scale).logpdf(p["beta"]).sum()
        for key, (scale, _) in (("sigma_sq", resolved.sigma), ("tau_sq", resolved.tau)):
            root = np.sqrt(p[key])
            want += stats.halfnorm(scale=scale).logpdf(root) - np.log(2 * root)
        want -= np.log(PHI_BOUNDS[1] - PHI_BOUNDS[0])
        assert value == pytest.approx(want, abs=DENSITY * max(100.0, abs(want)))


def natural_data(problem, setting, priors, surface):
    """Data of ``adaptive.stan``, with the nodes of a surface."""
    below, above = surface.panels
    return {
        **shared_data(problem, None, priors, below, setting.cov_model),
        "nearest": setting.nearest,
        "protection": protection_of(setting.protection).stan_number,
        "kink": setting.rule.kink,
        "H_above": above.nodes[1],
    }


def jacobian(x, low, high):
    """Log Jacobian of Stan's transform of a bounded parameter."""
    return np.log(x - low) + np.log(high - x) - np.log(high - low)


@pytest.fixture(scope="module")
def adaptive(small, free):
    """The paper's rule on the small table."""
    return fit_adaptive(small, start=free, seed=41, engine="embedded", progress=False)


def test_it_converges_and_its_draws_are_nearly_independent(adaptive):
    assert adaptive.verdict.passed, str(adaptive.verdict)
    assert 0 < adaptive.surface_error < INTERPOLATED
    assert adaptive.nodes == (32, 56)
    assert adaptive.program == "surface"
    for name, draws in scalars(adaptive).items():
        # Of 4000; in larger tables as of independent normals.
        assert ess(draws, "bulk") > 2500, name
        assert ess(draws, "tail") > 1500, name


def test_direct_draws_are_of_the_same_posterior(small, adaptive):
    direct = fit_adaptive(small, seed=42, engine="direct", progress=False)
    assert direct.verdict.passed, str(direct.verdict)
    assert_same_posterior(scalars(adaptive), scalars(direct))


@pytest.mark.nightly("draws of a program that no fit runs")
@pytest.mark.parametrize("protection", ["paper", "preserving"])
def test_the_program_of_the_records_has_the_same_posterior(sampling_engine, small, protection):
    fit = fit_adaptive(small, protection=protection, seed=43, samples=4000, progress=False)
    d = cdist(small.sites, small.sites)
    setting = Setting(d, fit.nearest, fit.rule, protection, "exponential")
    bounds = {"phi_bounds": fit.priors.phi_bounds, "r_bounds": fit.priors.r_bounds}
    surface = build_adaptive_surface(setting, small.X, small.y, **bounds)
    drawn = get_engine(sampling_engine).sample(
        Program("adaptive"),
        natural_data(small, setting, fit.priors, surface),
        settings=SamplerSettings(samples=4000),
        seed=44,
        inits=[{"beta": [5.0, 0.6], "sigma_sq": 1.4, "tau_sq": 0.2, "phi": 4.4}] * 4,
    )
    assert drawn["surface_error"].max() < INTERPOLATED
    natural = {f"beta_{j}": drawn["beta"][:, :, j] for j in range(2)}
    natural |= {name: drawn[name] for name in ("sigma_sq", "tau_sq", "phi")}
    assert_same_posterior(dict(zip(natural, scalars(fit).values(), strict=True)), natural)


def test_two_tops_are_found_with_their_shares_and_said():
    """One on each side of sigma_sq = tau_sq, of values without a pattern in space."""
    rng, n = np.random.default_rng(0), 24
    sites = rng.uniform(size=(n, 2))
    table = small_table(n).assign(east=sites[:, 0], north=sites[:, 1], x=rng.normal(size=n))
    problem = ds.prepare(table, "x ~ 1", coords=("east", "north"))
    priors = ds.Priors(variance="inverse-gamma", sigma=(1.0, 0.02), tau=(1.0, 0.02))
    common = {"rule": "alpha", "alpha": 0.95, "priors": priors, "seed": 1, "progress": False}
    stan, direct = (
        fit_adaptive(problem, engine=engine, **common) for engine in ("embedded", "direct")
    )
    larger = []
    for fit in (stan, direct):
        assert fit.verdict.passed, str(fit.verdict)
        assert "2 separate tops" in "".join(fit.notes)
        larger.append((fit.draws["tau_sq"] > fit.draws["sigma_sq"]).astype(float))
    assert 0.1 < larger[1].mean() < 0.9
    assert ess(larger[0], "bulk") > 1000  # the chains cross from one to the other
    assert_same({"share": mean_of(larger[0])}, {"share": mean_of(larger[1])})


def test_frozen_weights_are_the_restricted_model(small, free):
    """A step so narrow that no phi moves a flag across it has a constant A."""
    nearest = neighbour_distances(small)
    order = np.sort(nearest[nearest > 0])[-12:]
    k = int(np.argmax(order[1:] / order[:-1]))
    cut = float(np.sqrt(order[k] * order[k + 1]))
    assert order[k + 1] / order[k] > 1.07
    flags = (nearest > cut).astype(float)
    # phi moves M by less than the gap about it.
    phi = -np.log(0.20) / cut
    priors = ds.Priors(phi_bounds=(0.97 * phi, 1.03 * phi))
    common = {"priors": priors, "engine": "embedded", "progress": False, "samples": 2000}
    frozen = fit_adaptive(
        small, rule="step", width=1e-5, gamma=4.0, start=free, seed=5, nodes=(4, 56), **common
    )
    want = ds.fit(
        small,
        weights=ds.own_weights(small, flags),
        gamma=4.0,
        hold_phi=False,
        start=free,
        seed=6,
        **common,
    )
    assert frozen.program == "surface"
    p = parameters_at(frozen, 0, 0)
    np.testing.assert_allclose(frozen.diagonal(p), want.A, atol=1e-10)
    held = [{k: v for k, v in scalars(f).items() if k != "phi"} for f in (frozen, want)]
    assert_same_posterior(*held)
    setting = Setting(cdist(small.sites, small.sites), nearest, frozen.rule, "paper", "exponential")
    bounds = {"phi_bounds": priors.phi_bounds, "r_bounds": R_BOUNDS, "nodes": (4, 56)}
    ours = build_adaptive_surface(setting, small.X, small.y, **bounds)
    theirs = build_surface(
        setting.distances, small.X, small.y, a_diag=want.A, protection="paper", **bounds
    )
    for r in (0.01, 1.3, 40.0):
        both = [s.log_density(np.array([5.0, 0.6]), 1.2, 1.2 * r, phi) for s in (ours, theirs)]
        assert both[0] == pytest.approx(both[1], rel=1e-10)


def test_the_posterior_is_that_of_jags(adaptive):
    """80 simulated incomes; w integrated out on both sides, the surface on ours alone."""
    raw = json.loads(golden_path("posterior_adaptive").read_text())
    for name, digest in raw["sha256"].items():
        assert hashlib.sha256((FOLDER / name).read_bytes()).hexdigest() == digest, name
    run = raw["runs"]["simulated/adaptive"]
    assert run["outside"] == 0
    assert max(run["rhat"].values()) < 1.05
    table = load_simulated().iloc[run["rows"]].reset_index(drop=True)
    problem = ds.prepare(table, "log(income) ~ 1", coords=("s1", "s2"))
    fit = fit_adaptive(problem, seed=3, samples=2000, engine="embedded", progress=False)
    assert fit.verdict.passed
    resolved = fit.priors
    np.testing.assert_allclose(run["priors"]["phi"], resolved.phi_bounds, rtol=1e-10)
    np.testing.assert_allclose(run["priors"]["root"], resolved.sigma[0], rtol=1e-10)
    draws = {
        "beta": fit.draws["beta"][:, :, 0],
        **{k: fit.draws[k] for k in ("sigma_sq", "tau_sq", "phi")},
        "gamma": fit.gamma_draws,
    }
    theirs = {}
    for parameter, found in run["quantities"].items():
        assert min(e["ess"] for e in found.values()) > 200, parameter
        for statistic in ("mean", "q025", "q500", "q975"):
            e = found[statistic]
            theirs[f"{statistic} {parameter}"] = Estimate(e["value"], e["error"])
    ours = {key.replace("q25 ", "q025 "): e for key, e in estimates_of(draws).items()}
    assert_same(ours, theirs)


def test_copies_have_the_mean_and_variance_of_their_own_draw(adaptive):
    """Standardised copies are normal scores when each is measured by A of its own draw."""
    copies = 400
    release = ds.synthesise(adaptive, copies, seed=2, rounding="none", progress=False)
    assert release.effect == "w*"
    problem, z = adaptive.problem, []
    for number, (chain, iteration) in enumerate(release.draw_index):
        p = parameters_at(adaptive, int(chain), int(iteration))
        A, V = by_hand(problem, adaptive.rule, "paper", p.phi, p.sigma_sq, p.tau_sq)
        d = cdist(problem.sites, problem.sites)
        K = p.sigma_sq * np.exp(-p.phi * d)
        KA = K * A
        mean = problem.X @ p.beta + A * (KA @ np.linalg.solve(V, problem.y - problem.X @ p.beta))
        spread = A**2 * np.diag(K - KA @ np.linalg.solve(V, KA.T)) + p.tau_sq
        z.append((release.modelled()[number] - mean) / np.sqrt(spread))
    z = np.array(z)
    limit = z_limit(2 * problem.n_records)
    assert np.all(np.abs(z.mean(axis=0)) < limit / np.sqrt(copies))
    tail = stats.chi2(copies - 1)
    share = tail.cdf((copies - 1) * z.var(axis=0, ddof=1))
    level = special.ndtr(-limit)
    assert np.all((share > level) & (share < 1 - level))


def test_a_step_carries_w_star_also_with_infinite_gamma(small, free):
    step = fit_adaptive(
        small,
        rule="step",
        width=0.4,
        start=free,
        seed=1,
        chains=2,
        warmup=300,
        samples=300,
        engine="embedded",
        progress=False,
    )
    assert step.predictive().effect == "w*"
    assert set(np.unique(step.weights.a)) <= {0.0, 1.0}
    assert 0 < step.weights.n_flagged < small.n_records
    far = int(np.argmax(step.nearest))
    p = parameters_at(step, 0, 5)
    assert step.with_smoothing_at(p).A[far] == step.at(p).A.min() < 0.5
    assert np.std(latent_draws(step, draws=50)[:, far]) > 0.1
    # With w a copy of a record that is smoothed in part would overshoot its record's own deviation.
    here = step.with_smoothing_at(p)
    carried = carried_at(here.A, step.flagged, "w*")
    partly = (here.A > 0) & (here.A < 1)
    assert partly.any()
    assert np.array_equal(carried[partly], here.A[partly])


def test_the_attacker_takes_A_of_each_draw(adaptive, free):
    found = attack(adaptive, copies=5, draws=20, progress=False)
    assert found.draws == 20
    p = parameters_at(adaptive, 2, 9)
    here = adaptive.with_smoothing_at(p)
    A, _ = by_hand(adaptive.problem, adaptive.rule, "paper", p.phi, p.sigma_sq, p.tau_sq)
    np.testing.assert_allclose(here.A, A, rtol=1e-10)
    # H is the derivative of the copy's mean by y: a finite difference of the closed form.
    law, problem = copy_law(LatentModel(here), p, A), adaptive.problem
    K = p.sigma_sq * np.exp(-p.phi * cdist(problem.sites, problem.sites))
    V = A[:, None] * K * A + p.tau_sq * np.eye(len(A))
    gain = A[:, None] * K * A @ np.linalg.inv(V)
    B = np.linalg.solve(problem.X.T @ np.linalg.solve(V, problem.X), problem.X.T) @ np.linalg.inv(V)
    H = problem.X @ B + gain @ (np.eye(len(A)) - problem.X @ B)
    np.testing.assert_allclose(law.H, H, atol=1e-8)


def test_what_cannot_follow_a_moving_A_refuses(adaptive):
    with pytest.raises(InputError, match="changes from draw to draw"):
        LatentModel(adaptive)


def test_a_release_says_what_it_is(adaptive, tmp_path):
    release = ds.synthesise(adaptive, 5, seed=2, progress=False)
    folder = release.write(tmp_path / "release")
    kept = json.loads((folder / "confidential" / "settings.json").read_text())
    assert kept["fits"]["restricted"]["adaptive"] == {"rule": "ratio", "alpha": 0.5}
    about = json.loads((folder / "public" / "metadata.json").read_text())
    assert about["model"]["effect"] == "w*"
    assert "distance to others" in (folder / "public" / "README.md").read_text()
    assert (folder / "confidential" / "report.html").is_file()
    assert ds.disclosure(release).share("within_relative", "restricted", "all") is not None


RANKS = 7
"""Draws that the truth is ranked among."""


@pytest.mark.parametrize(
    "replicates", [6, pytest.param(200, marks=pytest.mark.nightly("200 adaptive fits"))]
)
def test_ranks_of_the_truth_are_uniform(replicates):
    """Simulation-based calibration (Talts et al. 2018): the mean rank, and chi-square of the bins.

    Six data sets see draws that lie nearly all on one side of the truth, 200 see a posterior that
    is off by a fraction of its sd.
    """
    rng, n = np.random.default_rng(12), 20
    sites = rng.uniform(size=(n, 2))
    sites[0] = 1.6, 1.6
    table = small_table(n).assign(east=sites[:, 0], north=sites[:, 1])
    settings = {"phi_bounds": (2.0, 8.0), "r_bounds": (0.02, 20.0)}
    priors = ds.Priors(beta_scale=2.0, sigma=1.0, tau=0.6, **settings)
    names = ("beta", "sigma_sq", "tau_sq", "phi")
    ranks = []
    for number in range(replicates):
        while True:
            sigma_sq, tau_sq = rng.normal(0, 1.0) ** 2, rng.normal(0, 0.6) ** 2
            if 0.02 < tau_sq / sigma_sq < 20.0:
                break
        beta, phi = rng.normal(0, 2.0), rng.uniform(2.0, 8.0)
        problem = ds.prepare(table, "x ~ 1", coords=("east", "north"))
        _, V = by_hand(problem, AdaptiveRule(), "paper", phi, sigma_sq, tau_sq)
        y = beta + np.linalg.cholesky(V) @ rng.normal(size=n)
        problem = ds.prepare(table.assign(x=y), "x ~ 1", coords=("east", "north"))
        fit = fit_adaptive(
            problem,
            priors=priors,
            nodes=(8, 14),
            chains=1,
            warmup=300,
            samples=RANKS * 50,
            seed=number,
            engine="embedded",
            progress=False,
        )
        truth = (beta, sigma_sq, tau_sq, phi)
        draws = [fit.draws["beta"][0, :, 0], *(fit.draws[k][0] for k in names[1:])]
        ranks.append([np.sum(d[::50] < t) for d, t in zip(draws, truth, strict=True)])
    ranks = np.array(ranks)
    for j, name in enumerate(names):
        # Each rank is uniform on 0 .. RANKS.
        sd = np.sqrt(((RANKS + 1) ** 2 - 1) / 12 / replicates)
        assert abs(ranks[:, j].mean() - RANKS / 2) < z_limit(2 * len(names)) * sd, name
        counts = np.bincount(ranks[:, j] // 2, minlength=4)
        if replicates >= 20:  # five expected in a bin
            assert stats.chisquare(counts).pvalue > 1e-5 / (2 * len(names)), name


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"rule": "flags"}, "rule must be one of ratio, alpha, step"),
        ({"rule": "alpha"}, 'alpha belongs to rule "alpha"'),
        ({"alpha": 0.3}, 'alpha belongs to rule "alpha"'),
        ({"rule": "alpha", "alpha": 1.0}, "alpha must lie between 0 and 1"),
        ({"width": 0.3}, 'width belongs to rule "step"'),
        ({"rule": "step", "width": 0.0}, "width must be positive"),
        ({"rule": "step", "correlation": 1.5}, "correlation must lie"),
        ({"rule": "step", "gamma": -1.0}, "gamma must be a number from 0"),
        ({"protection": "cut"}, "protection must be one of paper, preserving"),
        ({"neighbour": 0}, "neighbour must be a whole number"),
        ({"cov_model": "gauss"}, "cov_model must be one of"),
    ],
)
def test_bad_arguments_are_refused_before_anything_runs(small, wrong, message):
    with pytest.raises(InputError, match=message):
        fit_adaptive(small, engine="nowhere", **wrong)


def test_a_step_too_narrow_for_the_surface_says_so(small):
    with pytest.raises(ds.errors.SurfaceError, match="wider step"):
        fit_adaptive(small, rule="step", width=0.02, nodes=(32, 28), engine="embedded")
