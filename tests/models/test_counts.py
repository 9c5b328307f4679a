"""Counts: outcomes, what is refused, the law of the copies, the way to a release."""

from __future__ import annotations

import json
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.optimize import approx_fprime
from scipy.spatial.distance import cdist

import dsstan as ds
from dsstan.core.errors import DsstanWarning, FormulaError, InputError, TableError
from dsstan.models.counts import proposal as _proposal
from dsstan.models.counts.fit import CountPriors, fit_counts
from dsstan.models.counts.laplace import sample
from dsstan.models.counts.outcomes import OUTCOMES
from mc import z_limit

QUICK = {"samples": 200, "seed": 3, "progress": False}
TINY = {"chains": 2, "warmup": 10, "samples": 20, "seed": 3, "progress": False}
"""For tests that ask nothing of the posterior."""
ROUNDING = 1e-10
DIFFERENCE = 1e-5
"""Relative, of a derivative by finite differences of step 1e-6."""
PRIORS = CountPriors(phi_bounds=(2.0, 60.0))


def count_table(n: int = 50, *, seed: int = 2) -> pd.DataFrame:
    """Sites in a square and one far away, a covariate, an exposure, three responses."""
    rng = np.random.default_rng(seed)
    sites = rng.uniform(size=(n, 2))
    sites[:3] = sites[3:6]
    sites[-1] = 2.5, 0.5
    w = (
        0.6
        * np.linalg.cholesky(np.exp(-5 * cdist(sites, sites)) + 1e-9 * np.eye(n))
        @ (rng.standard_normal(n))
    )
    x = rng.standard_normal(n)
    years = np.round(rng.uniform(0.5, 3.0, n), 2)
    mean = years * np.exp(1.0 + 0.4 * x + w)
    mean[-1] = 40.0  # a value that the place alone would give away
    return pd.DataFrame(
        {
            "east": sites[:, 0],
            "north": sites[:, 1],
            "x": x,
            "years": years,
            "cases": rng.poisson(mean),
            "spread": rng.poisson(mean * rng.gamma(3.0, 1 / 3.0, n)),
            "ill": (rng.uniform(size=n) < 1 / (1 + np.exp(-2 * w))).astype(int),
        }
    )


def prepared(response: str = "cases", table: pd.DataFrame | None = None) -> ds.Problem:
    given = count_table() if table is None else table
    return ds.prepare(given, f"{response} ~ x", coords=("east", "north"))


@pytest.fixture(scope="module")
def problem():
    return prepared()


@pytest.fixture(scope="module")
def free(problem):
    return fit_counts(problem, offset="years", priors=PRIORS, **{**QUICK, "samples": 400})


@pytest.fixture(scope="module")
def alone(problem):
    a = np.zeros(problem.n_records)
    a[-1] = 1.0
    return ds.own_weights(problem, a)


@pytest.fixture(scope="module")
def kept(problem, free, alone):
    return fit_counts(problem, offset="years", weights=alone, start=free, **QUICK)


LAWS = {
    "poisson": lambda eta, k: stats.poisson(np.exp(eta)),
    "negative binomial": lambda eta, k: stats.nbinom(k, k / (k + np.exp(eta))),
    "bernoulli": lambda eta, k: stats.bernoulli(1 / (1 + np.exp(-eta))),
}


@pytest.mark.parametrize("name", OUTCOMES)
def test_likelihoods_are_those_of_scipy(name):
    rng = np.random.default_rng(1)
    law, eta, k = OUTCOMES[name], rng.normal(0.5, 1.0, 30), 2.5
    y = LAWS[name](eta, k).rvs(random_state=5).astype(float)
    want = LAWS[name](eta, k).logpmf(y).sum()
    assert law.log_likelihood(y, eta, np.log(k)) == pytest.approx(want, abs=ROUNDING)


@pytest.mark.parametrize("name", OUTCOMES)
def test_slopes_are_the_derivatives_of_the_likelihood(name):
    rng = np.random.default_rng(2)
    law, eta, k = OUTCOMES[name], rng.normal(0.5, 1.0, 8), 2.5
    y = LAWS[name](eta, k).rvs(random_state=6).astype(float)
    score, weight = law.slopes(y, eta, np.log(k))
    numeric = approx_fprime(eta, lambda e: law.log_likelihood(y, e, np.log(k)), 1e-6)
    np.testing.assert_allclose(score, numeric, rtol=DIFFERENCE, atol=DIFFERENCE)
    bend = [
        approx_fprime(eta, lambda e, j=j: law.slopes(y, e, np.log(k))[0][j], 1e-6)[j]
        for j in range(8)
    ]
    np.testing.assert_allclose(weight, -np.array(bend), rtol=DIFFERENCE, atol=DIFFERENCE)


@pytest.mark.parametrize("name", OUTCOMES)
def test_draws_have_the_mean_and_variance_of_the_law(name):
    eta, k, draws = np.array([-1.0, 0.3, 3.0]), 2.5, 20_000
    law, exact = OUTCOMES[name], LAWS[name](np.array([-1.0, 0.3, 3.0]), 2.5)
    rng = np.random.default_rng(7)
    drawn = np.array([law.draw(eta, np.log(k), rng) for _ in range(draws)])
    mean, variance, kurtosis = exact.mean(), exact.var(), exact.stats(moments="k")
    limit = z_limit(2 * eta.size * len(OUTCOMES))
    assert np.all(np.abs(drawn.mean(axis=0) - mean) < limit * np.sqrt(variance / draws))
    error = variance * np.sqrt((kurtosis + 2.0) / draws)
    assert np.all(np.abs(drawn.var(axis=0) - variance) < limit * error)


@pytest.mark.parametrize("name", ["poisson", "negative binomial"])
def test_a_mean_beyond_any_number_is_drawn_as_the_largest_one(name):
    drawn = OUTCOMES[name].draw(np.array([5.0, 100.0, 5000.0]), 1.0, np.random.default_rng(1))
    assert np.all(np.isfinite(drawn))
    assert np.all(np.diff(drawn) > 0)


REFUSED = {
    "negative": ({"cases": lambda t: t["cases"] - 3}, "cases ~ x", "poisson", "negative values"),
    "fraction": ({"cases": lambda t: t["cases"] + 0.5}, "cases ~ x", "poisson", "fractions"),
    "too large": ({"cases": lambda t: t["cases"] + 2**31}, "cases ~ x", "poisson", "above 2147"),
    "log": ({}, "log1p(cases) ~ x", "poisson", "modelled as it is"),
    "three values": ({}, "cases ~ x", "bernoulli", "needs the values 0 and 1"),
    "one and two": ({"ill": lambda t: t["ill"] + 1}, "ill ~ x", "bernoulli", "0 and 1"),
    "unknown outcome": ({}, "cases ~ x", "gamma", "outcome must be one of"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_response_that_is_no_count_is_refused_before_sampling(case):
    changes, formula, outcome, message = REFUSED[case]
    problem = ds.prepare(count_table().assign(**changes), formula, coords=("east", "north"))
    with pytest.raises(InputError, match=message) as caught:
        fit_counts(problem, outcome, **QUICK)
    if case == "log":
        assert caught.type is FormulaError
    if case in ("negative", "fraction", "too large"):
        assert caught.type is TableError
        assert "positions" in str(caught.value)


@pytest.mark.parametrize("value", [0, 1])
def test_all_zeros_or_all_ones_are_refused(value):
    with pytest.raises(TableError, match="same value in every row"):
        prepared("ill", count_table().assign(ill=value))


OFFSETS = {
    "absent": (None, "persons", "exposure", "does not have"),
    "the response": (None, "cases", "exposure", "is the response or a copy"),
    "a copy of it": (lambda t: t["cases"] * 1.0, "years", "log", "is the response or a copy"),
    "zero": (lambda t: t["years"].where(t.index > 2, 0.0), "years", "exposure", "not above 0"),
    "missing": (lambda t: t["years"].where(t.index > 2), "years", "exposure", "missing values"),
    "infinite": (
        lambda t: t["years"].where(t.index > 2, np.inf),
        "years",
        "log",
        "infinite values",
    ),
    "text": (lambda t: t["years"].astype(str), "years", "exposure", "must hold numbers"),
    "scale": (None, "years", "rate", "offset_is must be one of"),
}


@pytest.mark.parametrize("case", OFFSETS)
def test_an_offset_that_cannot_be_used_is_refused(case):
    change, name, scale, message = OFFSETS[case]
    table = count_table() if change is None else count_table().assign(years=change)
    with pytest.raises(InputError, match=message) as caught:
        fit_counts(prepared("cases", table), offset=name, offset_is=scale, **QUICK)
    if case in ("zero", "missing", "infinite"):
        assert "3 rows (positions 0, 1, 2" in str(caught.value)


def test_arguments_that_contradict_each_other_are_refused(problem, free, alone):
    for arguments, message in (
        ({"gamma": 1.0}, "gamma belongs to a restricted fit"),
        ({"start": free, "offset": "years"}, "start belongs to a restricted fit"),
        ({"weights": alone}, "holds phi"),
        ({"weights": alone, "start": free}, "same outcome and offset"),
        ({"phi": -1.0}, "phi must be positive"),
        ({"cov_model": "gaussian"}, "cov_model must be one of"),
        ({"sampler": "gibbs"}, "sampler must be one of"),
        (
            {"weights": alone, "start": free, "offset": "years", "cov_model": "matern32"},
            "fit both with one",
        ),
        ({"priors": CountPriors(sigma=-1.0)}, "sigma must be positive"),
        ({"priors": CountPriors(phi_bounds=(3.0, 1.0))}, "low < high"),
    ):
        with pytest.raises(InputError, match=message):
            fit_counts(problem, **arguments, **QUICK)


def test_the_gaussian_fit_refuses_truth_values_and_a_start_of_another_model(problem, free, alone):
    table = count_table().assign(ill=lambda t: t["ill"].astype(bool))
    with pytest.raises(InputError, match="fit_counts"):
        ds.fit(prepared("ill", table), engine="embedded", progress=False)
    with pytest.raises(InputError, match="fit of another model"):
        ds.fit(problem, weights=alone, start=free, engine="embedded", progress=False)


def test_the_fits_pass_and_say_what_they_are(free, kept):
    for fit in (free, kept):
        assert fit.verdict.passed, str(fit.verdict)
        assert fit.outcome == "Poisson, log link"
        assert "tau_sq" not in fit.scalars
        assert {c.name for c in fit.verdict.checks} >= {"rhat", "ess_bulk", "share of sigma below"}
    assert list(free.summary().index) == ["beta_0", "beta_1", "sigma_sq", "phi"]
    assert kept.phi_held == np.median(free.draws["phi"])
    assert kept.A[-1] == 0
    assert kept.start is free


def test_the_same_seed_gives_the_same_draws_in_any_number_of_threads(problem, monkeypatch):
    draws = []
    for cores in (1, 3):
        monkeypatch.setattr("os.cpu_count", lambda cores=cores: cores)
        fit = fit_counts(problem, phi=5.0, seed=5, chains=3, samples=20, warmup=5, progress=False)
        draws.append(fit.draws)
    for name in draws[0]:
        np.testing.assert_array_equal(draws[0][name], draws[1][name])


def test_an_exposure_is_the_same_as_its_log(problem):
    given = fit_counts(problem, offset="years", phi=5.0, **TINY)
    table = count_table().assign(years=lambda t: np.log(t["years"]))
    logged = fit_counts(prepared("cases", table), offset="years", offset_is="log", phi=5.0, **TINY)
    for name in ("beta", "sigma_sq", "w"):
        np.testing.assert_array_equal(given.draws[name], logged.draws[name])


def test_a_constant_exposure_moves_the_intercept(problem):
    even = fit_counts(
        prepared("cases", count_table().assign(years=8.0)), offset="years", phi=5.0, **QUICK
    )
    bare = fit_counts(problem, phi=5.0, **QUICK)
    errors = [f.summary().loc["beta_0", "sd"] / np.sqrt(f.worst_ess) for f in (even, bare)]
    gap = bare.draws["beta"][..., 0].mean() - even.draws["beta"][..., 0].mean()
    assert abs(gap - np.log(8.0)) < z_limit(1) * np.hypot(*errors)


def test_the_effect_of_a_flagged_record_is_a_draw_given_the_others(kept):
    """Standardised by its conditional prior it is a normal score, whatever its own count."""
    problem = kept.problem
    own = problem.site_index[-1]
    others = np.delete(np.arange(problem.n_sites), own)
    R = np.exp(-kept.phi_held * cdist(problem.unique_sites, problem.unique_sites))
    weight = np.linalg.solve(R[np.ix_(others, others)], R[others, own])
    w = kept.draws["w"].reshape(-1, problem.n_sites)
    sd = np.sqrt(kept.draws["sigma_sq"].ravel() * (1.0 - R[own, others] @ weight))
    scores = (w[:, own] - w[:, others] @ weight) / sd
    chains = kept.settings.chains
    effective = ds.diagnose.ess(scores.reshape(chains, -1))
    limit = z_limit(2)
    assert abs(scores.mean()) < limit / np.sqrt(effective)
    assert abs(scores.var() - 1.0) < limit * np.sqrt(2.0 / effective)


@pytest.mark.parametrize("effect", ["w", "plug"])
def test_copies_have_the_exact_moments_of_the_predictive_law(kept, effect):
    """Given their posterior draws, counts have mean exp(eta) and the Poisson's variance."""
    law, problem = kept.predictive(effect), kept.problem
    w = kept.draws["w"][1, 7][problem.site_index].copy()
    if effect == "plug":
        w[-1] = 0.0
    eta = np.log(problem.table["years"]) + problem.X @ kept.draws["beta"][1, 7] + w
    mean, draws = np.exp(eta.to_numpy()), 4000
    rng = np.random.default_rng(11)
    drawn = np.array([law.draw(1, 7, rng) for _ in range(draws)])
    limit = z_limit(2 * mean.size)
    assert np.max(np.abs(drawn.mean(axis=0) - mean) / np.sqrt(mean / draws)) < limit
    error = mean * np.sqrt((2.0 + 1.0 / mean) / draws)
    assert np.max(np.abs(drawn.var(axis=0) - mean) / error) < limit


def test_a_finite_gamma_carries_the_smoothed_effect(problem, free, alone):
    some = fit_counts(problem, offset="years", weights=alone, gamma=3.0, start=free, **TINY)
    law = some.predictive()
    assert law.effect == "w*"
    assert law.carried[-1] == 0.5
    assert np.all(law.carried[:-1] == 1.0)


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int64", "Int64", "float64"])
def test_copies_are_whole_numbers_of_the_columns_type(dtype):
    table = count_table()
    table = table.assign(cases=table["cases"].clip(upper=120).astype(dtype))
    fit = fit_counts(prepared("cases", table), phi=5.0, **TINY)
    release = ds.synthesise(
        fit, 5, seed=1, accept_failed=True, accept_few_draws=True, progress=False
    )
    copy = release.table(0)["cases"]
    assert copy.dtype == table["cases"].dtype
    assert np.all(release.values == np.rint(release.values))
    assert np.all(release.values >= 0)


@pytest.mark.parametrize("dtype", ["int8", "bool", "boolean", "float32"])
def test_yes_or_no_stays_what_it_was(dtype):
    table = count_table()
    table = table.assign(ill=table["ill"].astype(dtype))
    fit = fit_counts(prepared("ill", table), "bernoulli", phi=5.0, **TINY)
    release = ds.synthesise(
        fit, 5, seed=1, accept_failed=True, accept_few_draws=True, progress=False
    )
    assert release.table(0)["ill"].dtype == table["ill"].dtype
    assert set(np.unique(release.values)) == {0.0, 1.0}


def test_a_column_too_narrow_for_the_copies_is_told_of():
    table = count_table()
    table = table.assign(cases=(10 * table["cases"]).clip(upper=127).astype("int8"))
    fit = fit_counts(prepared("cases", table), phi=5.0, **TINY)
    with pytest.warns(DsstanWarning, match="moved to its end"):
        release = ds.synthesise(
            fit, 20, seed=1, accept_failed=True, accept_few_draws=True, progress=False
        )
    assert release.values.max() == 127


def test_equality_is_a_tolerance_of_zero(free, kept):
    """A count within ten per cent of 3 is 3; a truth of 0 is met by 0 alone."""
    release = ds.synthesise(kept, 40, seed=4, progress=False)
    found = ds.disclosure(release, absolute=0)
    truth = release.problem.original()
    equal = np.mean(release.values == truth, axis=0)
    np.testing.assert_array_equal(found.records["within_absolute_restricted"], equal)
    small = truth < 10
    np.testing.assert_array_equal(found.records["within_relative_restricted"][small], equal[small])
    assert np.any(truth == 0)
    flagged = found.share("within_absolute", "restricted", "flagged")
    assert flagged < found.share("within_relative", "unrestricted", "flagged")


def test_a_release_is_written_and_names_the_law(kept, tmp_path):
    release = ds.synthesise(kept, 5, seed=4, progress=False)
    assert ds.utility(release).table["estimate"].notna().all()
    release.write(tmp_path / "out")
    public = json.loads((tmp_path / "out/public/metadata.json").read_text())
    assert public["model"]["outcome"] == "Poisson, log link"
    assert "generalised linear model" in (tmp_path / "out/public/README.md").read_text()
    told = json.loads((tmp_path / "out/confidential/settings.json").read_text())
    assert told["fits"]["restricted"]["offset"] == "years"
    summary = json.loads((tmp_path / "out/confidential/summary.json").read_text())
    assert summary["engine"] == "dsstan"


def test_the_proposal_is_a_density_and_draws_from_it():
    low, high = np.array([0.0, -1.0]), np.array([2.0, 3.0])
    mass = np.random.default_rng(1).dirichlet(np.ones(12)).reshape(3, 4)
    made = _proposal.Proposal(
        low,
        high,
        np.array([0.5, 0.0]),
        np.array([1.5, 2.0]),
        np.log(mass),
        np.zeros((1, 1, 1)),
        np.zeros((1, 2)),
        np.zeros((1, 1)),
    )
    rng, draws = np.random.default_rng(2), 5000
    thetas = np.array([made.draw(rng) for _ in range(draws)])
    assert np.all((thetas >= low) & (thetas <= high))
    # Cells of the grid fit the histogram's, so the sum over their centres is the integral.
    axes = [(np.arange(12) + 0.5) / 6.0, (np.arange(16) + 0.5) / 4.0 - 1.0]
    total = sum(np.exp(made.log_density(np.array([a, b]))) for a in axes[0] for b in axes[1])
    assert total / 24.0 == pytest.approx(1.0, rel=ROUNDING)
    inside = np.array([made.inside(t) for t in thetas])
    share = 1.0 - _proposal.ANYWHERE * (1.0 - 2.0 / 8.0)
    error = np.sqrt(share * (1 - share) / draws)
    assert abs(inside.mean() - share) < z_limit(2) * error
    first = np.mean(np.all((thetas > [0.5, 0.0]) & (thetas < [0.5 + 1 / 3, 0.5]), axis=1))
    share = (1 - _proposal.ANYWHERE) * mass[0, 0] + _proposal.ANYWHERE / 48.0
    assert abs(first - share) < z_limit(2) * np.sqrt(share * (1 - share) / draws)


def test_an_interruption_ends_all_chains_at_their_next_step(monkeypatch):
    """As a signal or Ctrl-C in the thread that waits for them."""
    steps = 0

    def endless(*_, advance, **__):
        nonlocal steps
        for _ in range(20_000):
            time.sleep(0.001)
            steps += 1
            advance()

    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr("dsstan.models.counts.laplace.sample_chain", endless)
    seeds = np.random.SeedSequence(1).spawn(2)
    none: Any = None
    with pytest.raises(KeyboardInterrupt):
        sample(*(none, none, seeds), warmup=1, samples=99, workers=2, advance=interrupted)
    assert steps < 2_000


def test_an_interruption_ends_the_surface_at_its_next_node(monkeypatch):
    nodes = 0

    def slow(*_):
        nonlocal nodes
        time.sleep(0.01)
        nodes += 1
        return SimpleNamespace(log_det=0.0, centre=np.zeros(2))

    def interrupted(_):
        raise KeyboardInterrupt

    model: Any = SimpleNamespace(
        mode_frame=slow, log_joint=lambda *_: 0.0, start=np.zeros(2), outcome=OUTCOMES["poisson"]
    )
    ends = np.array([0.0, -1.0]), np.array([2.0, 3.0])
    with pytest.raises(KeyboardInterrupt):
        _proposal.build_proposal(model, lambda _: 0.0, *ends, workers=3, advance=interrupted)
    assert nodes <= 6
