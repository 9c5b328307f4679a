"""The truncated likelihood: its density, posterior and calibration, and the law of the copies."""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields

import numpy as np
import pandas as pd
import pytest
from benchmarks.cases_brackets import PHI, simulate
from bracketed_calibration import calibrate_truncated, copy_differences, judge
from parity.cases import inputs
from parity.golden import FOLDER
from scipy import stats

import dsstan as ds
from conftest import scalars
from dsstan.core.errors import DsstanWarning
from dsstan.engines import SamplerSettings, get_engine
from dsstan.engines.programs import Program
from dsstan.models.brackets.fit import fit_bracketed
from dsstan.models.brackets.limits import find_brackets
from dsstan.models.brackets.result import TruncatedFit
from dsstan.models.brackets.truncated import bracketed_data
from dsstan.models.checks.verdict import Verdict
from mc import (
    FALSE_ALARM,
    Estimate,
    assert_same,
    assert_same_posterior,
    mean_of,
    quantile_of,
    sd_of,
    z_limit,
)

DENSITY = 1e-8
nightly = pytest.mark.nightly("hundreds of fits, thousands of copies")
STATISTICS = {"mean": mean_of, "sd": sd_of}
STATISTICS |= {
    f"q{1000 * p:03.0f}": (lambda d, p=p: quantile_of(d, p)) for p in (0.025, 0.5, 0.975)
}


@pytest.fixture(scope="module")
def cuts(tiny):
    """Cut points at the thirds of the tiny table's values."""
    return list(np.quantile(tiny.original(), [1 / 3, 2 / 3]))


def density(problem, kept, A, priors, point):
    """Log density of the model by SciPy, all constants, with Stan's Jacobian; phi free."""
    d = np.sqrt(((problem.unique_sites[:, None] - problem.unique_sites[None]) ** 2).sum(-1))
    L = np.linalg.cholesky(np.exp(-point["phi_free"][0] * d))
    w = np.sqrt(point["sigma_sq"]) * L @ point["z"]
    tau = np.sqrt(point["tau_sq"])
    mu = problem.X @ np.array(point["beta"]) + A * w[problem.site_index]
    a, b = (kept.low_modelled - mu) / tau, (kept.high_modelled - mu) / tau
    total = stats.truncnorm.logpdf(problem.y, a, b, mu, tau).sum()
    total += stats.norm(0, priors.beta_scale).logpdf(point["beta"]).sum()
    total += stats.norm.logpdf(point["z"]).sum()
    for name, (scale, _) in (("sigma_sq", priors.sigma), ("tau_sq", priors.tau)):
        root = np.sqrt(point[name])
        total += stats.halfnorm(scale=scale).logpdf(root) - np.log(2 * root)
    ends = [tuple(point["sigma_sq"] * np.array(priors.r_bounds)), priors.phi_bounds]
    total += np.log(point["sigma_sq"]) - np.log(np.ptp(priors.phi_bounds))
    for value, (low, high) in zip((point["tau_sq"], point["phi_free"][0]), ends, strict=True):
        total += np.log(value - low) + np.log(high - value) - np.log(high - low)
    return total


def test_log_density_is_scipy_s_on_both_engines(density_engine, tiny, cuts):
    A = np.ones(tiny.n_records)
    A[[0, 7]] = 0.0, 0.5
    priors = ds.Priors().resolve(tiny.y, tiny.X, tiny.d_max)
    kept = find_brackets(tiny, cuts)
    rng = np.random.default_rng(1)
    points = [
        {
            "beta": [4.5, 0.4],
            "sigma_sq": sigma_sq,
            "tau_sq": tau_sq,
            "phi_free": [phi],
            "z": rng.standard_normal(tiny.n_sites),
        }
        for sigma_sq, tau_sq, phi in ((1.4, 0.2, 4.4), (0.3, 2.0, 30.0), (9.0, 0.002, 2.0))
    ]
    data = bracketed_data(tiny, kept, A, priors, None)
    got = get_engine(density_engine).log_density(Program("bracketed"), data, points)
    want = [density(tiny, kept, A, priors, point) for point in points]
    # The last point has values a hundred nuggets' sds from their means.
    np.testing.assert_allclose(got, want, rtol=DENSITY)


def truncated(problem, cuts, **given):
    """A fit of the truncated likelihood, long enough to compare."""
    common = {"likelihood": "truncated", "phi": 4.0, "seed": 3, "samples": 1000}
    return fit_bracketed(problem, cuts, progress=False, **{**common, **given})


def divergent(fit):
    """Checks of the verdict on divergences that are not fine."""
    found = (*fit.verdict.failures, *fit.verdict.warnings)
    return [check for check in found if check.name == "divergent share"]


def test_one_infinite_bracket_has_the_gaussian_posterior(tiny):
    ours = truncated(tiny, [], samples=1500)
    alone = ds.own_weights(tiny, np.zeros(tiny.n_records))
    with pytest.warns(DsstanWarning, match="no record is flagged"):
        gaussian = ds.fit(
            tiny, weights=alone, phi=4.0, seed=4, samples=2000, engine="embedded", progress=False
        )
    assert_same_posterior(scalars(ours), scalars(gaussian))


def by_stan(problem, cuts, *, phi, a=None, engine="embedded", warmup=500, samples=1500):
    """Draws of the parameters and of w at three sites from the Stan program itself."""
    A = np.ones(problem.n_records) if a is None else 1.0 - np.asarray(a)
    priors = ds.Priors().resolve(problem.y, problem.X, problem.d_max)
    free = [] if phi is not None else [float(np.sqrt(np.prod(priors.phi_bounds)))]
    start = np.linalg.lstsq(problem.X, problem.y, rcond=None)[0]
    init = {"beta": start, "sigma_sq": priors.sigma[0] ** 2, "tau_sq": priors.tau[0] ** 2}
    init |= {"phi_free": free, "z": np.zeros(problem.n_sites)}
    drawn = get_engine(engine).sample(
        Program("bracketed"),
        bracketed_data(problem, find_brackets(problem, cuts), A, priors, phi),
        settings=SamplerSettings(4, warmup, samples, adapt_delta=0.95, metric="diag_e"),
        seed=11,
        inits=[init] * 4,
    )
    return compared({n: drawn[n] for n in ("beta", "sigma_sq", "tau_sq", "phi", "w")}, phi)


def compared(draws, phi):
    """What is compared of draws: every parameter, and w at three sites."""
    found = {f"beta_{j}": draws["beta"][:, :, j] for j in range(draws["beta"].shape[2])}
    found |= {name: draws[name] for name in ("sigma_sq", "tau_sq")}
    found |= {f"w_{k}": draws["w"][:, :, k] for k in (0, 11, draws["w"].shape[2] - 1)}
    return found if phi is not None else {**found, "phi": draws["phi"]}


def test_the_sampler_has_the_posterior_of_the_program(density_engine, tiny, cuts):
    a = (np.arange(tiny.n_records) == tiny.n_records - 1).astype(float)
    fit = truncated(tiny, cuts, weights=ds.own_weights(tiny, a))
    assert fit.engine == "dsstan"
    theirs = by_stan(tiny, cuts, phi=4.0, a=a, engine=density_engine)
    assert_same_posterior(compared(fit.draws, 4.0), theirs)


def hard(kind, n=40):
    """A table that one of the two finds hard, and its cuts."""
    rng = np.random.default_rng(8)
    sites = rng.uniform(size=(n, 2))
    distances = np.hypot(*(sites[:, None] - sites[None]).T)
    tau = 0.05 if kind == "weak nugget" else 0.5
    w = np.linalg.cholesky(np.exp(-5.0 * distances) + 1e-9 * np.eye(n)) @ rng.standard_normal(n)
    x = rng.standard_normal(n)
    y = 2.0 + 0.5 * x + w + tau * rng.standard_normal(n)
    if kind == "one outlier":
        y[0] += 8.0
    cuts = [-30.0, 30.0] if kind == "wide brackets" else list(np.quantile(y, [0.3, 0.7]))
    table = pd.DataFrame({"u": sites[:, 0], "v": sites[:, 1], "x": x, "y": y})
    return ds.prepare(table, "y ~ x", coords=("u", "v")), cuts


@pytest.mark.nightly("long chains of a program whose gradient factors a matrix")
@pytest.mark.filterwarnings("ignore:all records are in one:dsstan.core.errors.DsstanWarning")
@pytest.mark.parametrize("kind", ["wide brackets", "weak nugget", "one outlier"])
def test_hard_tables_have_the_posterior_of_the_program_with_phi_free(kind):
    problem, cuts = hard(kind)
    fit = truncated(problem, cuts, phi=None, samples=2000)
    assert_same_posterior(
        compared(fit.draws, None), by_stan(problem, cuts, phi=None, warmup=1000, samples=3000)
    )


@pytest.mark.nightly("long chains of two hundred records")
def test_the_table_of_speeds_has_the_posterior_of_the_program():
    problem, cuts = simulate(200, 1)
    fit = truncated(problem, cuts, phi=PHI)
    assert_same_posterior(
        compared(fit.draws, PHI), by_stan(problem, cuts, phi=PHI, warmup=1000, samples=4000)
    )


def test_the_program_draws_copies_in_their_bracket(sampling_engine, tiny, cuts):
    kept = find_brackets(tiny, cuts)
    priors = ds.Priors().resolve(tiny.y, tiny.X, tiny.d_max)
    data = bracketed_data(tiny, kept, np.ones(tiny.n_records), priors, 4.0)
    init = {"beta": [4.5, 0.4], "sigma_sq": 1.0, "tau_sq": 0.5, "phi_free": []}
    drawn = get_engine(sampling_engine).sample(
        Program("bracketed"),
        data,
        settings=SamplerSettings(1, 300, 600, metric="diag_e"),
        seed=9,
        inits=[{**init, "z": np.zeros(tiny.n_sites)}],
    )
    y, w = drawn["y_synthetic"][0], drawn["w"][0][:, tiny.site_index]
    assert np.all((y >= kept.low_modelled) & (y <= kept.high_modelled))
    mean, tau = drawn["beta"][0] @ tiny.X.T + w, np.sqrt(drawn["tau_sq"][0])[:, None]
    law = stats.truncnorm((kept.low_modelled - mean) / tau, (kept.high_modelled - mean) / tau)
    u = law.cdf((y - mean) / tau)
    # One record at a time the draws are independent given the parameters.
    worst = min(stats.kstest(u[:, i], "uniform").pvalue for i in range(tiny.n_records))
    assert worst > FALSE_ALARM / tiny.n_records


def test_copies_follow_scipy_s_truncated_normal(tiny, cuts):
    """Fixed parameters: every copy of a record is one draw of its law. False alarm 1e-5."""
    copies = 2000
    rng = np.random.default_rng(5)
    w = rng.standard_normal(tiny.n_sites)
    fit = held_fit(tiny, cuts, copies, w, beta=[4.5, 0.4], tau_sq=0.09)
    values = np.log(ds.synthesise(fit, copies, seed=8, rounding="none", progress=False).values)
    mean, kept = tiny.X @ [4.5, 0.4] + w[tiny.site_index], fit.brackets
    law = stats.truncnorm((kept.low_modelled - mean) / 0.3, (kept.high_modelled - mean) / 0.3)
    u = law.cdf((values - mean) / 0.3)
    far = np.abs((tiny.y - mean) / 0.3)
    assert far.max() > 5.0  # some brackets are far out
    worst = min(stats.kstest(u[:, i], "uniform").pvalue for i in range(tiny.n_records))
    assert worst > FALSE_ALARM / tiny.n_records
    moved = stats.kstest(law.cdf((values - mean - 0.1) / 0.3)[:, 0], "uniform").pvalue
    assert moved < FALSE_ALARM / tiny.n_records


def held_fit(problem, cuts, samples, w, *, beta, tau_sq):
    """A truncated fit whose every draw is one point."""
    shape = (1, samples)
    made = truncated(problem, cuts, chains=1, warmup=20, samples=20)
    draws = {
        "beta": np.broadcast_to(beta, (*shape, 2)),
        "sigma_sq": np.ones(shape),
        "tau_sq": np.full(shape, tau_sq),
        "phi": np.full(shape, 4.0),
        "w": np.broadcast_to(w, (*shape, w.size)),
    }
    own = {each.name: getattr(made, each.name) for each in fields(made)}
    return Known(**{**own, "draws": draws, "verdict": Verdict(())})


class Known(TruncatedFit):
    """A fit of independent draws, whatever its constant parameters say."""

    @property
    def worst_ess(self):
        return np.inf


def golden_run():
    """The posterior that JAGS sampled."""
    golden = json.loads((FOLDER / "golden" / "bracketed_jags.json").read_text(encoding="utf-8"))
    return golden, golden["runs"]["bracketed/infinite"]


def test_jags_s_golden_is_current_and_long_enough():
    golden, run = golden_run()
    assert set(golden["sha256"]) == {
        "bracketed_jags.R",
        "posterior_common.R",
        "common.R",
        "inputs/bracketed_posterior.json",
    }
    for name, digest in golden["sha256"].items():
        assert hashlib.sha256((FOLDER / name).read_bytes()).hexdigest() == digest, name
    own = inputs("bracketed_posterior")
    assert {key: run[key] for key in ("kept", "warmup", "chains")} == {
        key: own[key] for key in ("kept", "warmup", "chains")
    }
    assert run["outside"] == 0  # JAGS knows no cut of tau_sq / sigma_sq
    assert max(run["rhat"].values()) < 1.02
    assert min(e["ess"] for q in run["quantities"].values() for e in q.values()) > 200


def test_the_truncated_posterior_is_that_of_jags():
    own = inputs("bracketed_posterior")
    table = pd.DataFrame(own["columns"]).assign(y=own["y"])
    problem = ds.prepare(table, "y ~ x", coords=("u", "v"), distance="planar")
    a = np.zeros(problem.n_records)
    a[own["flagged"]] = 1.0
    fit = fit_bracketed(
        problem,
        own["cuts"],
        likelihood="truncated",
        weights=ds.own_weights(problem, a),
        phi=own["phi"],
        priors=ds.Priors(
            beta_scale=own["beta_scale"],
            sigma=own["root"],
            tau=own["root"],
            r_bounds=tuple(own["r_bounds"]),
        ),
        chains=2,
        samples=800,
        seed=6,
        progress=False,
    )
    assert not divergent(fit)
    draws = {name: fit.scalars[name] for name in ("beta_0", "beta_1", "sigma_sq", "tau_sq")}
    for record in own["watched"]:
        draws[f"w_{record}"] = fit.draws["w"][:, :, problem.site_index[record]]
    accepted = {"accept_few_draws": True, "accept_failed": True}
    release = ds.synthesise(fit, 1600, seed=7, progress=False, **accepted)
    by_chain = release.values.reshape(800, 2, -1).swapaxes(0, 1)
    draws |= {f"copy_{record}": by_chain[:, :, record] for record in own["watched"]}
    quantities = golden_run()[1]["quantities"]
    ours, theirs = {}, {}
    for name, d in draws.items():
        for statistic, of in STATISTICS.items():
            ours[f"{statistic} {name}"] = of(d)
            entry = quantities[name]["q500" if statistic == "q500" else statistic]
            theirs[f"{statistic} {name}"] = Estimate(entry["value"], entry["error"])
    assert_same(ours, theirs)
    moved = {**theirs, "mean tau_sq": Estimate(theirs["mean tau_sq"].value * 1.5, 0.0)}
    with pytest.raises(AssertionError, match="mean tau_sq"):
        assert_same(ours, moved)


@pytest.mark.parametrize(
    ("replicates", "factor"), [(5, 100.0), pytest.param(200, 4.0, marks=nightly)]
)
def test_the_truncated_likelihood_is_calibrated(replicates, factor):
    found = calibrate_truncated(replicates, seed=5)
    judged = judge(found)
    assert all(each.passed for each in judged.values()), judged
    spoiled = judge(found, {"tau_sq": factor, "sigma_sq": factor})
    assert not spoiled["tau_sq"].passed


@pytest.mark.parametrize("pairs", [400, pytest.param(4000, marks=nightly)])
def test_a_copy_has_the_law_of_its_original_jointly_with_w_and_the_brackets(pairs):
    """Plain likelihood: w given y, then a copy given w in the bracket. False alarm 1e-5."""

    def scores(spoil):
        found = copy_differences(pairs, seed=6, spoil=spoil)
        return found.mean(axis=0) / found.std(axis=0, ddof=1) * np.sqrt(len(found))

    assert np.all(np.abs(scores(1.0)) < z_limit(5))
    assert np.any(np.abs(scores(2.0)) > z_limit(5))
