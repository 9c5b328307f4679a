"""Posteriors of dsstan beside those of JAGS and of a Gibbs sampler in R, both with w latent.

The long runs of R are golden files; where R is found a short run is made again. The rules are
those of ``mc.py``: every mean, sd and quantile within so many Monte Carlo standard errors that
all of them together raise a false alarm once in 100,000.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from conftest import _no_stanli, leave_out
from dsstan.models.priors import Priors
from mc import Estimate
from parity.cases import inputs
from parity.golden import run_r
from parity.posterior import (
    COMPARED,
    LIMIT,
    MODELS,
    POSTERIORS,
    STATISTICS,
    SYSTEMS,
    Run,
    draws_of,
    estimates_of,
    fitted,
    load_runs,
    needs_file,
    ours,
    problem_of,
    read_runs,
    rejected,
    strain_of_short,
    theirs,
    unrestricted,
    z_scores,
)

ENOUGH = 400
"""Effective draws that every quantity of a golden must have."""

MIXED = 1.05
"""Largest R-hat of a golden's parameter."""


def need(name: str) -> None:
    """Leave a posterior out where its data or the engine are missing."""
    if needs_file(POSTERIORS[name][1]):
        leave_out("the San Francisco file is missing; set DSSTAN_DATA to the folder that holds it")
    if _no_stanli():
        leave_out("stanli is missing")


def parameters(scores: Mapping[str, float], limit: float = LIMIT) -> set[str]:
    """Parameters of which some statistic is rejected."""
    return {key.split()[1] for key in rejected(scores, limit)}


BY_DAY = "simulated"
"""The case that every run compares; the others, which take minutes, are compared at night."""

nightly = pytest.mark.nightly("ten thousand draws of each further posterior")


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=() if c == BY_DAY else nightly) for n, (_, c, _) in POSTERIORS.items()],
)
def test_dsstan_has_the_posterior_that_r_has(name: str) -> None:
    need(name)
    _, case, model = POSTERIORS[name]
    assert fitted(case, model).verdict.passed
    assert not rejected(z_scores(ours(name), theirs(name).estimates))


@pytest.mark.parametrize("case", [c for cases in SYSTEMS.values() for c in cases])
def test_r_works_out_the_same_default_priors(case: str) -> None:
    need(f"{case}/unrestricted")
    resolved = Priors().resolve(problem_of(case).y, problem_of(case).X, problem_of(case).d_max)
    for model in MODELS:
        priors = theirs(f"{case}/{model}").priors
        np.testing.assert_allclose(np.atleast_1d(priors["beta"]), resolved.beta_scale, rtol=1e-10)
        np.testing.assert_allclose(priors["root"], resolved.sigma[0], rtol=1e-10)
        np.testing.assert_allclose(priors["root"], resolved.tau[0], rtol=1e-10)
        np.testing.assert_allclose(priors["phi"], resolved.phi_bounds, rtol=1e-10)


@pytest.mark.parametrize("topic", SYSTEMS)
def test_golden_was_written_by_the_scripts_as_they_are(topic: str) -> None:
    golden = load_runs(topic).golden
    assert golden.topic == topic
    assert set(golden.sha256) == {
        f"{topic}.R",
        "posterior_common.R",
        "common.R",
        "inputs/posterior.json",
    }
    assert golden.stale == [], "run make parity"


@pytest.mark.parametrize("topic", SYSTEMS)
def test_golden_holds_every_posterior_and_the_long_runs(topic: str) -> None:
    runs = load_runs(topic).runs
    assert set(runs) == {name for name, (t, _, _) in POSTERIORS.items() if t == topic}
    for name, run in runs.items():
        _, case, model = POSTERIORS[name]
        own = inputs("posterior")[case]
        asked = own["lengths"][model]["long"]
        assert {key: run.about[key] for key in asked} == asked
        assert run.about["chains"] == inputs("posterior")["chains"]
        assert float(run.about["gamma"]) == MODELS[model]
        watched = {f"w_{i}" for i in own["watched"]}
        slopes = {f"beta_{j}" for j in range(own["formula"].count("scale(") + 1)}
        free = {"phi"} if model == "unrestricted" else set()
        expected = {"sigma_sq", "tau_sq", "copy"} | watched | slopes | free
        assert set(run.estimates) == {f"{s} {p}" for s in STATISTICS for p in expected}
        assert len(watched) == 5
        assert own["watched"][0] == own["outlier"]


@pytest.mark.parametrize("name", POSTERIORS)
def test_long_runs_of_r_have_mixed_and_are_long_enough(name: str) -> None:
    run = theirs(name)
    assert min(run.ess.values()) >= ENOUGH
    assert max(run.rhat.values()) <= MIXED
    # JAGS knows no cut of tau_sq / sigma_sq; it makes no difference where no draw is beyond it.
    assert run.about["outside"] == 0


def test_the_count_of_quantities_is_that_of_the_goldens() -> None:
    assert sum(len(theirs(name).estimates) for name in POSTERIORS) == COMPARED


LIVE = [
    pytest.param(t, marks=pytest.mark.nightly("minutes of JAGS") if t == "posterior_jags" else ())
    for t in SYSTEMS
]


@pytest.mark.parametrize("topic", LIVE)
def test_a_short_live_run_of_r_agrees_with_the_golden(
    topic: str, rscript: str, tmp_path: Path
) -> None:
    if any(needs_file(case) for case in SYSTEMS[topic]):
        leave_out("the San Francisco file is missing; set DSSTAN_DATA to the folder that holds it")
    try:
        run_r(rscript, topic, tmp_path / "live.json", short=True)
    except RuntimeError as error:
        if "there is no package called" in str(error):
            leave_out(str(error))
        raise
    golden, live = load_runs(topic), read_runs(tmp_path / "live.json")
    assert live.golden.sha256 == golden.golden.sha256
    assert set(live.runs) == set(golden.runs)
    for name, run in live.runs.items():
        long = golden.runs[name]
        assert not rejected(strain_of_short(run, long), limit=1.0), name
        for parameter in run.draws:
            scores = strain_of_short(moved(run, long, parameter), long)
            assert parameters(scores, limit=1.0) == {parameter}, name
    for case in SYSTEMS[topic]:
        # One gamma taken for the other, from the same few draws.
        scores = strain_of_short(live.runs[f"{case}/infinite"], golden.runs[f"{case}/four"])
        assert "copy" in parameters(scores, limit=1.0)


def moved(run: Run, long: Run, parameter: str, by: float = 5.0) -> Run:
    """A short run with one parameter moved by so many posterior sds."""
    shift = by * long.estimates[f"sd {parameter}"].value
    return replace(run, draws={**run.draws, parameter: run.draws[parameter] + shift})


def test_w_in_place_of_its_smoothed_self_is_rejected() -> None:
    need("simulated/four")
    wrong = draws_of("simulated", fitted("simulated", "four"), effect="w")
    assert parameters(z_scores(estimates_of(wrong), theirs("simulated/four").estimates)) == {"copy"}


@pytest.mark.parametrize(("given", "other"), [("infinite", "four"), ("four", "infinite")])
def test_one_gamma_in_place_of_the_other_is_rejected(given: str, other: str) -> None:
    need("simulated/four")
    scores = z_scores(ours(f"simulated/{given}"), theirs(f"simulated/{other}").estimates)
    assert {"beta_0", "tau_sq", "copy"} <= parameters(scores)


def test_another_prior_of_the_variances_is_rejected() -> None:
    need("simulated/infinite")
    wrong = fitted("simulated", "infinite", Priors(variance="inverse-gamma"))
    scores = z_scores(
        estimates_of(draws_of("simulated", wrong)), theirs("simulated/infinite").estimates
    )
    assert "sigma_sq" in parameters(scores)


@nightly
def test_another_range_of_the_decay_is_rejected() -> None:
    need("subset/unrestricted")
    low, high = unrestricted("subset").priors.phi_bounds
    wrong = unrestricted("subset", Priors(phi_bounds=(2 * low, high)))
    scores = z_scores(
        estimates_of(draws_of("subset", wrong)), theirs("subset/unrestricted").estimates
    )
    assert "phi" in parameters(scores)


def test_each_golden_number_that_is_moved_is_rejected_and_no_other() -> None:
    for name in POSTERIORS:
        held = theirs(name).estimates
        exact = {key: Estimate(e.value, e.error) for key, e in held.items()}
        assert not rejected(z_scores(exact, held))
        for key, e in held.items():
            for factor, seen in ((0.99, {}), (1.01, {key})):
                value = e.value + factor * LIMIT * np.hypot(e.error, e.error)
                scores = z_scores(exact, {**held, key: Estimate(value, e.error)})
                assert set(rejected(scores)) == set(seen)


@pytest.mark.parametrize("error", [0.0, np.nan, np.inf])
def test_a_quantity_without_a_monte_carlo_error_is_refused(error: float) -> None:
    held = theirs("simulated/four").estimates
    broken = {**held, "mean copy": replace(held["mean copy"], error=error)}
    with pytest.raises(AssertionError, match="mean copy"):
        z_scores(held, broken)
    with pytest.raises(AssertionError, match="mean copy"):
        z_scores(broken, held)


def test_a_quantity_that_is_lost_or_not_a_number_is_refused() -> None:
    held = theirs("simulated/four").estimates
    lost = {key: e for key, e in held.items() if key != "sd w_0"}
    with pytest.raises(AssertionError, match="sd w_0"):
        z_scores(lost, held)
    broken = {**held, "mean copy": replace(held["mean copy"], value=np.nan)}
    assert set(rejected(z_scores(broken, held))) == {"mean copy"}
