"""Statistics that must not become a release: each condition, triggered and told."""

from __future__ import annotations

import dataclasses
import functools
import json
import re

import jsonschema
import numpy as np
import pandas as pd
import pytest
from test_command_line import inside  # noqa: F401
from test_engines import folder_of_programs

import dsstan as ds
from conftest import ROOT, small_table
from dsstan.core.errors import ConvergenceError
from dsstan.covariance.likelihood_surface import interpolate
from dsstan.engines import EmbeddedEngine, SamplerSettings
from dsstan.engines.programs import Program
from dsstan.models.checks.conditions import (
    CONDITIONS,
    at_bounds,
    few_draws,
    most_flagged,
    reach_note,
    several_modes,
)
from dsstan.models.checks.verdict import Verdict, diagnose
from dsstan.release.conditions import conditions
from dsstan.risk.intruder.leave_one_out import leave_one_out

QUICK = {"chains": 2, "warmup": 300, "samples": 500, "engine": "embedded", "progress": False}

MODEL = ("--formula", "log(value) ~ x", "--coords", "east", "north", "--seed", "1")
SAMPLER = ("--chains", "2", "--warmup", "300", "--samples", "600", "--engine", "embedded")

TWO_MODES = """
parameters {
  real mu;
}
model {
  target += log_sum_exp(normal_lpdf(mu | -20, 1), normal_lpdf(mu | 20, 1));
}
"""


def noiseless(n=90):
    """A table whose response is a smooth function of the place and nothing else."""
    table = small_table(n, shared=0)
    east, north = table["east"], table["north"]
    return table.assign(value=np.exp(2 + east + 2 * north**2 + np.sin(3 * east)))


def spaceless(n=60):
    """A table whose response is noise alone."""
    return small_table(n).assign(value=np.exp(np.random.default_rng(5).normal(size=n)))


def named(fit, severity):
    checks = fit.verdict.failures if severity == "failure" else fit.verdict.warnings
    return {check.condition for check in checks}


def fitted(table, **options):
    problem = ds.prepare(table, "log(value) ~ x", coords=("east", "north"))
    return ds.fit(problem, seed=1, **{**QUICK, **options})


# Each condition in a fit


def test_too_short_a_run_has_not_converged():
    assert "not-converged" in named(fitted(small_table(), warmup=20, samples=20), "failure")


def test_chains_in_two_modes_are_told_from_chains_that_wander(tmp_path, monkeypatch):
    folder_of_programs(tmp_path / "stan", monkeypatch, modes=TWO_MODES)
    drawn = EmbeddedEngine().sample(
        Program("modes"),
        {},
        settings=SamplerSettings(chains=4, warmup=200, samples=400),
        seed=1,
        inits=[{"mu": 20.0 * sign} for sign in (-1, 1, -1, 1)],
    )
    mu = drawn["mu"]
    assert several_modes(mu)
    wandering = np.cumsum(np.random.default_rng(1).normal(size=(4, 400)), axis=1)
    assert not several_modes(wandering)
    assert not several_modes(np.random.default_rng(1).normal(size=(4, 400)))
    fine = np.exp(np.random.default_rng(2).normal(size=mu.shape))
    verdict = diagnose(
        {"mu": mu, "sigma_sq": fine, "tau_sq": fine[::-1]},
        drawn.sampler,
        settings=SamplerSettings(),
        surface_error=0.0,
        phi_bounds=None,
        r_bounds=(1e-4, 1e4),
    )
    [check] = [c for c in verdict.failures if c.condition == "several-modes"]
    assert check.where == "mu"


def test_a_response_without_noise_leaves_no_nugget():
    assert "no-nugget" in named(fitted(noiseless()), "failure")


def test_a_response_without_space_has_no_spatial_effect():
    fit = fitted(spaceless(), priors=ds.Priors(r_bounds=(1e-4, 0.02)))
    assert "no-spatial-effect" in named(fit, "failure")


def test_an_effect_that_reaches_farther_than_the_map_puts_the_decay_at_its_bound():
    fit = fitted(noiseless())
    assert "phi-at-bound" in named(fit, "failure")


@pytest.mark.parametrize(
    ("ratio", "condition"),
    [(2e3, "no-spatial-effect"), (5e2, None), (2e-3, None), (5e-4, "no-nugget")],
)
def test_a_share_of_a_thousandth_of_either_variance_is_as_good_as_none(ratio, condition):
    draws = {"sigma_sq": np.ones((4, 100)), "tau_sq": np.full((4, 100), ratio)}
    failed = {c.condition for c in at_bounds(draws, None, (1e-4, 1e4)) if c.severity == "failure"}
    assert failed == ({condition} if condition else set())


@pytest.mark.parametrize(
    ("low", "high", "stated", "severity"),
    [
        (0.04, 0.0, False, "ok"),
        (0.12, 0.0, False, "ok"),
        (0.12, 0.0, True, "warning"),
        (0.03, 0.03, True, "warning"),
        (0.0, 0.12, False, "warning"),
        (0.6, 0.0, False, "failure"),
        (0.0, 0.6, False, "failure"),
    ],
)
def test_the_low_end_of_the_default_range_warns_of_nothing(low, high, stated, severity):
    """It fails where most draws are there; a range that was stated warns at both ends."""
    phi = np.ones(1000)
    phi[: round(1000 * low)] = 0.1
    phi[1000 - round(1000 * high) :] = 10.0
    phi = phi.reshape(4, 250)
    [check] = at_bounds({"phi": phi}, (0.1, 10.0), None, phi_stated=stated)
    assert check.severity == severity
    noted = reach_note(phi, (0.1, 10.0))
    assert (noted is not None) is (0.05 < low <= 0.5)
    assert noted is None or f"{100 * low:.0f}% of the draws" in noted


@pytest.mark.parametrize("phi_rate", [0.0, 0.3])
def test_a_narrow_interval_leads_to_the_other_prior_where_it_is_not_taken_yet(phi_rate):
    noted = reach_note(np.ones((4, 250)), (0.1, 10.0), ("Intercept", 1.5), phi_rate)
    assert "the sd of Intercept would be 1.5 times as large" in noted
    other = 'priors=Priors(decay="penalised-complexity")'
    assert (other in noted) is (phi_rate == 0.0)


FARTHER = 0.05
"""By how much the low end of the default range may move what is left without a release: what counts
as a material rise of a risk. Monte Carlo errors are below 1%."""


def test_the_low_end_of_the_default_range_decides_little():
    """Baltimore leans on it; a range that begins ten times lower leaves an intruder the same."""
    homes = ds.load_baltimore()
    problem = ds.prepare(homes, "log(price) ~ scale(log(squarefeet))", coords=("x", "y"))
    usual = ds.fit(problem, seed=1, progress=False)
    assert named(usual, "warning") == set()
    assert any("reaches across the whole table" in note for note in usual.notes)
    low, high = usual.priors.phi_bounds
    wider = ds.Priors(phi_bounds=(low / 10, high))
    farther = ds.fit(problem, seed=2, progress=False, priors=wider)
    ratio = leave_one_out(farther).sd / leave_one_out(usual).sd
    assert np.max(np.abs(np.log(ratio))) < FARTHER


def across(decay: float, seed: int) -> pd.DataFrame:
    """120 records of the unit square, the exponential effect of this decay."""
    rng = np.random.default_rng(seed)
    places = rng.uniform(size=(120, 2))
    d = np.linalg.norm(places[:, None] - places, axis=2)
    w = np.linalg.cholesky(np.exp(-decay * d) + 1e-10 * np.eye(120)) @ rng.normal(size=120)
    y = 1.0 + 0.5 * places[:, 0] + w + 0.3 * rng.normal(size=120)
    return pd.DataFrame({"s1": places[:, 0], "s2": places[:, 1], "x": places[:, 0], "y": y})


@pytest.mark.parametrize(
    ("decay", "seed", "grows", "narrow"),
    [(1.5, 2, True, False), (1.5, 2, True, True), (3.0, 3, True, False), (15.0, 5, False, False)],
)
def test_a_note_says_how_much_less_certain_a_wider_range_leaves_the_coefficients(
    decay, seed, grows, narrow, monkeypatch
):
    """As a fit with that range has it: sds of 20,000 independent draws are off by 0.5%. A narrow
    surface, as of many sites, covers less than the range of the prior."""
    if narrow:
        monkeypatch.setattr("dsstan.covariance.surface_statistics.MANY", 100)
        monkeypatch.setattr("dsstan.covariance.surface_statistics.BLOCK", 40)
    problem = ds.prepare(across(decay, seed), "y ~ x", coords=("s1", "s2"))
    how = {"engine": "direct", "samples": 5000, "progress": False}
    usual = ds.fit(problem, seed=1, **how)
    assert (usual.nodes[0] < 20) is narrow
    low, high = usual.priors.phi_bounds
    farther = ds.fit(problem, seed=2, priors=ds.Priors(phi_bounds=(low / 10, high)), **how)
    sds = [fit.draws["beta"].reshape(-1, 2).std(axis=0) for fit in (usual, farther)]
    most = int(np.argmax(sds[1] / sds[0]))
    said = [re.search(r"the sd of (\S+) would be (\S+) times", note) for note in usual.notes]
    found = [(m[1], float(m[2])) for m in said if m]
    if not grows:
        assert found == []
        assert np.max(sds[1] / sds[0]) < 1.03
        return
    [(term, times)] = found
    assert term == problem.terms[most]
    assert times == pytest.approx(float(np.max(sds[1] / sds[0])), rel=0.05)
    # The user stated this range: nothing to add.
    assert not any("would be" in note for note in farther.notes)


@pytest.mark.parametrize(
    ("seed", "told"), [(7, True), (2**95 - 1, True), (2**96, False), (None, False)]
)
def test_a_seed_that_can_be_found_by_trying_is_told(kept, seed, told):
    release = ds.synthesise(kept, 2, seed=seed, accept_failed=True)
    found = [c for c in conditions(release) if c["condition"] == "guessable-seed"]
    assert [c["severity"] for c in found] == (["warning"] if told else [])


def test_a_small_seed_of_the_whole_way_is_told_although_its_stages_have_long_ones():
    release = ds.protect(
        small_table(30),
        "log(value) ~ x",
        coords=("east", "north"),
        threshold=0.15,
        copies=2,
        seed=7,
        accept_failed=True,
        **QUICK,
    )
    assert release.seed.bit_length() > 96
    assert [c["condition"] for c in conditions(release)][-1] == "guessable-seed"


def test_a_rule_that_flags_more_than_half_fails_and_own_weights_warn(small, free):
    flags = ds.flag_isolated(free, distance=0.001)
    assert flags.n_flagged > 30
    by_rule = ds.fit(small, weights=flags, start=free, seed=1, **QUICK)
    assert "most-flagged" in named(by_rule, "failure")
    chosen = ds.own_weights(small, np.r_[np.zeros(20), np.ones(40)])
    by_choice = ds.fit(small, weights=chosen, start=free, seed=1, **QUICK)
    assert "most-flagged" in named(by_choice, "warning")


@pytest.mark.parametrize(
    ("flagged", "chosen", "severity"),
    [(50, False, "ok"), (51, False, "failure"), (51, True, "warning"), (0, True, "ok")],
)
def test_half_of_the_records_may_be_flagged(flagged, chosen, severity):
    assert most_flagged(flagged, 100, chosen=chosen).severity == severity


@pytest.mark.parametrize(
    ("copies", "ess", "severity"),
    [(20, 20.5, "ok"), (21, 20.5, "failure"), (1, float("nan"), "failure")],
)
def test_copies_may_be_as_many_as_independent_draws(copies, ess, severity):
    assert few_draws(copies, ess, SamplerSettings()).severity == severity


# Told in the release and by the exit code


def test_an_accepted_failure_stands_in_the_summary_by_name(small, tmp_path):
    fit = ds.fit(small, seed=1, **{**QUICK, "warmup": 50, "samples": 40, "program": "natural"})
    release = ds.synthesise(fit, 60, seed=1, accept_failed=True, accept_few_draws=True)
    target = release.write(tmp_path / "out")
    content = json.loads((target / "confidential" / "summary.json").read_text())
    schema = json.loads((ROOT / "docs" / "summary.schema.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(content)
    found = content["verdict"]["conditions"]
    assert {"not-converged", "copies-beyond-ess"} <= {entry["condition"] for entry in found}
    assert found == conditions(release)
    assert not content["verdict"]["passed"]


def test_a_warning_stops_only_under_strict(kept):
    warned = dataclasses.replace(kept, verdict=Verdict((most_flagged(9, 10, chosen=True),)))
    assert ds.synthesise(warned, 2, seed=1).copies == 2
    with pytest.raises(ConvergenceError, match=r"(?s)most-flagged.*strict"):
        ds.synthesise(warned, 2, seed=1, strict=True)


TOLD = {
    "not-converged": (small_table, ("--samples", "20")),
    "no-nugget, phi-at-bound": (noiseless, ("--threshold", "0.15")),
    "most-flagged": (small_table, ("--threshold", "0.001")),
    "copies-beyond-ess": (small_table, ("--copies", "1150", "--threshold", "0.15")),
}


@pytest.mark.filterwarnings("ignore::dsstan.core.errors.DsstanWarning")
@pytest.mark.parametrize("condition", TOLD)
def test_the_command_ends_with_three_and_names_the_condition(inside, tmp_path, condition):  # noqa: F811
    make, options = TOLD[condition]
    make().to_csv(tmp_path / "in.csv", index=False)
    more = (*SAMPLER, *options, "--out", tmp_path / "out")
    result = inside("synthesise", tmp_path / "in.csv", *MODEL, *more)
    assert result.returncode == 3, result.stderr
    assert all(name in result.stderr for name in condition.split(", ")), result.stderr
    assert not (tmp_path / "out").exists()


def test_a_surface_that_can_not_be_interpolated_ends_with_three(inside, monkeypatch, tmp_path):  # noqa: F811
    """With the tolerance at a value that no interpolation of doubles meets."""
    strict = functools.partial(interpolate, tolerance=1e-18)
    monkeypatch.setattr("dsstan.covariance.window.interpolate", strict)
    small_table(20).to_csv(tmp_path / "in.csv", index=False)
    result = inside("synthesise", tmp_path / "in.csv", *MODEL, *SAMPLER, "--out", tmp_path / "out")
    assert result.returncode == 3, result.stderr
    assert "interpolated" in result.stderr
    assert not (tmp_path / "out").exists()


def test_every_condition_is_explained_and_in_the_schema_of_the_summary():
    schema = json.loads((ROOT / "docs" / "summary.schema.json").read_text())
    assert schema["$defs"]["condition"]["properties"]["condition"]["enum"] == list(CONDITIONS)
    text = (ROOT / "docs" / "explain" / "trust.md").read_text()
    table = re.findall(r"^\| `([a-z-]+)` \| (.+?) \|", text, re.MULTILINE)
    assert dict(table) == {k: v.replace("|", "\\|") for k, v in CONDITIONS.items()}


def test_no_message_of_a_condition_repeats_a_value(kept):
    values = {f"{v:.6g}" for v in kept.problem.original()} | {f"{v:.6g}" for v in kept.problem.y}
    text = str(kept.verdict) + str(most_flagged(51, 100, chosen=False))
    assert not values & set(re.findall(r"[-\d.e]+", text))
