"""Posteriors of counts: JAGS, both samplers, both engines, simulation-based calibration."""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd
import pytest
from calibration import FAMILY_ALPHA, THINNED, uniformity
from parity import counts as twin
from parity.cases import inputs
from parity.golden import golden_path, load, run_r
from parity.posterior import read_runs, strain_of_short, z_scores
from scipy.spatial.distance import cdist

import dsstan as ds
from conftest import leave_out
from dsstan.models.counts.fit import CountFit, CountPriors, fit_counts
from dsstan.models.counts.outcomes import OUTCOMES
from dsstan.models.posterior import spread_draws
from mc import assert_same_posterior, mean_of, quantile_of, sd_of, z_limit

compiles = pytest.mark.nightly("compiles one more program")
CALIBRATED = ("poisson", "negative binomial", "bernoulli")
ENOUGH = 400
"""Effective draws that every quantity of the posterior where JAGS mixes must have."""
SOME = 100
"""Fewest for a comparison elsewhere: JAGS hardly moves phi, the size, sigma_sq of yes or no."""
MIXES = "poisson/flagged"
DENSITY = 1e-8

POSTERIORS = tuple(inputs("counts")["posteriors"])


@cache
def golden():
    return read_runs(golden_path("counts_jags"))


@cache
def fitted(name: str) -> CountFit:
    """The fit of one posterior, as the inputs describe it."""
    own, about = inputs("counts"), inputs("counts")["posteriors"][name]
    problem = twin.problem_of(about["outcome"])
    return fit_counts(
        problem,
        about["outcome"],
        offset="exposure" if about["offset"] else None,
        weights=ds.own_weights(problem, np.array(own["a"])) if about["flags"] else None,
        phi=None if about["free"] else own["phi"],
        priors=twin.priors_of(),
        samples=1000 if about["outcome"] == "negative binomial" else 600,
        seed=own["seed"],
        progress=False,
    )


def draws_of(name: str) -> dict[str, np.ndarray]:
    """Everything compared, each of shape (chains, samples)."""
    own, fit = inputs("counts"), fitted(name)
    draws = {key: d for key, d in fit.scalars.items() if key != "phi" or fit.phi_held is None}
    for record in own["watched"]:
        draws[f"w_{record}"] = fit.draws["w"][:, :, fit.problem.site_index[record]]
    law, rng = fit.predictive("w"), np.random.default_rng(3)
    draws["copy"] = np.array(
        [
            [law.draw(c, i, rng)[own["copied"]] for i in range(fit.shape[1])]
            for c in range(fit.shape[0])
        ]
    )
    return draws


def estimates(draws):
    """Mean, sd and quantiles as the golden has them; of the copy, a count, no quantile."""
    out = {}
    for parameter, d in draws.items():
        out |= {f"mean {parameter}": mean_of(d), f"sd {parameter}": sd_of(d)}
        if parameter != "copy":
            out |= {
                f"q{k} {parameter}": quantile_of(d, p)
                for k, p in (("025", 0.025), ("500", 0.5), ("975", 0.975))
            }
    return out


def limit() -> float:
    return z_limit(sum(len(run.estimates) for run in golden().runs.values()))


@pytest.mark.parametrize("name", POSTERIORS)
def test_the_posterior_is_that_of_jags(name):
    assert fitted(name).verdict.passed, str(fitted(name).verdict)
    run = golden().runs[name]
    usable = {key for key in run.estimates if run.ess[key] >= SOME}
    assert {"mean beta_1", "sd w_3", "mean w_40", "mean copy"} <= usable
    mine = estimates(draws_of(name))
    assert set(mine) == set(run.estimates)
    scores = z_scores(
        {key: mine[key] for key in usable}, {key: run.estimates[key] for key in usable}
    )
    assert max(scores.values()) < limit(), {k: z for k, z in scores.items() if not z < limit()}


def test_the_golden_is_current_and_long_enough_where_jags_mixes():
    found = golden()
    assert found.golden.stale == [], "run make parity"
    assert set(found.runs) == set(POSTERIORS)
    assert min(found.runs[MIXES].ess.values()) >= ENOUGH
    assert max(found.runs[MIXES].rhat.values()) < 1.05
    for run in found.runs.values():
        # JAGS knows no cut of sigma; it makes no difference where no draw is beyond it.
        assert run.about["outside"] == 0


@pytest.mark.nightly("half a minute of JAGS")
def test_a_live_run_of_jags_agrees_with_the_golden(rscript, tmp_path):
    try:
        run_r(rscript, "counts_jags", tmp_path / "live.json", short=True)
    except RuntimeError as error:
        if "there is no package called" in str(error):
            leave_out(str(error))
        raise
    live = read_runs(tmp_path / "live.json")
    assert live.golden.sha256 == golden().golden.sha256
    for name, run in live.runs.items():
        long = golden().runs[name]
        strain = {
            key: value
            for key, value in strain_of_short(run, long).items()
            if not key.endswith(" copy") and long.ess[key] >= SOME
        }
        assert max(strain.values()) < 1.0, name


def test_an_offset_left_out_is_rejected():
    own, name = inputs("counts"), "poisson/flagged"
    problem = twin.problem_of("poisson")
    wrong = fit_counts(
        problem,
        weights=ds.own_weights(problem, np.array(own["a"])),
        phi=own["phi"],
        priors=twin.priors_of(),
        samples=300,
        seed=1,
        progress=False,
    )
    mine = {"mean beta_1": mean_of(wrong.draws["beta"][:, :, 1])}
    mine["sd beta_1"] = sd_of(wrong.draws["beta"][:, :, 1])
    mine["mean beta_0"] = mean_of(wrong.draws["beta"][:, :, 0])
    theirs = {key: golden().runs[name].estimates[key] for key in mine}
    assert max(z_scores(mine, theirs).values()) > limit()


@pytest.mark.parametrize(
    ("engine", "outcome"),
    [
        pytest.param(name, outcome, marks=compiles if name == "cmdstan" and i else ())
        for name in ("embedded", "cmdstan")
        for i, outcome in enumerate(CALIBRATED)
    ],
    indirect=["engine"],
)
def test_both_engines_have_the_log_density_of_r(engine, outcome):
    for i in range(3):
        want = load("counts").quantities[f"program/{outcome}/exponential/{i + 1}"].value
        got = twin.program(outcome, "exponential", i, engine)
        np.testing.assert_allclose(got, want, rtol=0, atol=DENSITY)


def watched(fit: CountFit) -> dict[str, np.ndarray]:
    own = {k: d for k, d in fit.scalars.items() if k != "phi" or fit.phi_held is None}
    return own | {f"w_{j}": fit.draws["w"][:, :, j] for j in (0, 20, 60)}


def test_the_stan_program_has_the_same_posterior_on_either_engine(sampling_engine):
    own = inputs("counts")
    nuts = fit_counts(
        twin.problem_of("poisson"),
        offset="exposure",
        weights=ds.own_weights(twin.problem_of("poisson"), np.array(own["a"])),
        phi=own["phi"],
        priors=twin.priors_of(),
        sampler="nuts",
        engine=sampling_engine,
        warmup=500,
        samples=1000,
        seed=2,
        progress=False,
    )
    assert nuts.verdict.passed, str(nuts.verdict)
    assert nuts.engine == sampling_engine
    assert_same_posterior(watched(nuts), watched(fitted("poisson/flagged")))


@cache
def places() -> pd.DataFrame:
    """Sites, two of them shared, and a covariate."""
    rng = np.random.default_rng(8)
    sites = rng.uniform(size=(24, 2))
    sites[:2] = sites[2:4]
    return pd.DataFrame({"e": sites[:, 0], "n": sites[:, 1], "x": rng.standard_normal(24)})


SBC = CountPriors(beta_scale=(1.0, 0.5), sigma=1.0, phi_bounds=(2.0, 20.0), size=(5.0, 0.5))


def replicate(outcome: str, seed: int) -> dict[str, int]:
    """Ranks of the truth among draws of the posterior, of parameters from the prior."""
    rng = np.random.default_rng([seed, 5])
    table, law = places(), OUTCOMES[outcome]
    sites = table[["e", "n"]].to_numpy()
    while True:
        beta = rng.standard_normal(2) * SBC.beta_scale
        sigma, phi = abs(rng.standard_normal()), rng.uniform(2.0, 20.0)
        size = float(np.exp(np.log(5.0) + 0.5 * rng.standard_normal()))
        values, vectors = np.linalg.eigh(np.exp(-phi * cdist(sites, sites)))
        w = sigma * vectors @ (np.sqrt(np.maximum(values, 0)) * rng.standard_normal(24))
        eta = beta[0] + beta[1] * table["x"].to_numpy() + w
        y = law.draw(eta, np.log(size), rng)
        # Given any table ranks are uniform, so those that prepare() refuses may be left out.
        if np.ptp(y) > 0:
            break
    problem = ds.prepare(table.assign(y=y.astype(int)), "y ~ x", coords=("e", "n"))
    fit = fit_counts(
        problem,
        outcome,
        priors=SBC,
        chains=2,
        warmup=40,
        samples=150,
        seed=seed,
        progress=False,
    )
    chain, iteration = spread_draws(fit, THINNED).T
    truth = {"beta_0": beta[0], "beta_1": beta[1], "sigma_sq": sigma**2, "phi": phi, "size": size}
    ranks = {
        name: int(np.sum(d[chain, iteration] < truth[name])) for name, d in fit.scalars.items()
    }
    ranks["w"] = int(np.sum(fit.draws["w"][chain, iteration, 9] < w[problem.site_index == 9][0]))
    here = fit.draws["beta"][chain, iteration] @ problem.X.T
    here = here + fit.draws["w"][chain, iteration][:, problem.site_index]
    sizes = fit.draws["size"][chain, iteration] if law.dispersed else np.full(THINNED, size)
    own = law.log_likelihood(y, eta, np.log(size))
    each = [law.log_likelihood(y, e, np.log(k)) for e, k in zip(here, sizes, strict=True)]
    ranks["log likelihood"] = int(np.sum(np.array(each) < own))
    return ranks


@pytest.mark.parametrize(
    ("outcome", "replicates"),
    [
        ("poisson", 6),
        *(pytest.param(o, 200, marks=pytest.mark.nightly("200 fits")) for o in CALIBRATED),
    ],
)
def test_the_posterior_is_calibrated(outcome, replicates):
    seeds = np.random.SeedSequence(77).generate_state(replicates)
    found = [replicate(outcome, int(seed)) for seed in seeds]
    names = list(found[0])
    for name in names:
        judged = uniformity([r[name] for r in found], FAMILY_ALPHA / len(names))
        assert judged.passed, (name, judged)


def small_counts(outcome: str) -> ds.Problem:
    """Forty records of one outcome at distinct sites of the unit square."""
    rng = np.random.default_rng(6)
    s = rng.uniform(size=(40, 2))
    R = np.exp(-5.0 * cdist(s, s))
    eta = 1.2 + 0.8 * np.linalg.cholesky(R) @ rng.normal(size=40)
    drawn = {
        "poisson": lambda: rng.poisson(np.exp(eta)),
        "negative binomial": lambda: rng.negative_binomial(4.0, 4.0 / (4.0 + np.exp(eta))),
        "bernoulli": lambda: rng.uniform(size=40) < 1 / (1 + np.exp(1.2 - 2 * eta / 1.2)),
    }[outcome]()
    table = pd.DataFrame({"east": s[:, 0], "north": s[:, 1], "n": drawn.astype(int)})
    return ds.prepare(table, "n ~ 1", coords=("east", "north"))


def scalars_of(fit: CountFit) -> dict[str, np.ndarray]:
    """Logs of the positive parameters, and the intercept."""
    logs = {f"log {k}": np.log(fit.draws[k]) for k in ("sigma_sq", "phi", "size") if k in fit.draws}
    return {"beta": fit.draws["beta"][:, :, 0], **logs}


def test_local_moves_of_the_decay_leave_the_posterior_as_it_is(monkeypatch):
    """Where global proposals are rarely taken, local ones join; here always, and never."""
    problem = small_counts("poisson")
    short = {"samples": 1500, "progress": False}
    found = []
    for seed, good in enumerate((0.0, 2.0), 1):
        monkeypatch.setattr("dsstan.models.counts.laplace.GOOD", good)
        found.append(scalars_of(fit_counts(problem, "poisson", seed=seed, **short)))
    assert_same_posterior(*found)


@pytest.mark.nightly("minutes of latent sampling")
@pytest.mark.parametrize("outcome", OUTCOMES)
def test_with_phi_free_the_posterior_is_that_of_a_long_latent_run(outcome):
    """The Stan program, w a parameter and phi free, against the sampler that is the default."""
    problem = small_counts(outcome)
    latent = {"warmup": 2000, "samples": 8000, "adapt_delta": 0.98, "engine": "embedded"}
    theirs = fit_counts(problem, outcome, sampler="nuts", seed=1, progress=False, **latent)
    ours = fit_counts(problem, outcome, seed=2, samples=3000, progress=False)
    assert_same_posterior(scalars_of(ours), scalars_of(theirs))
