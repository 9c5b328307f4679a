"""Fits: arguments, records of what ran, verdicts."""

from __future__ import annotations

import numpy as np
import pytest

import dsstan as ds
from conftest import small_table
from dsstan.core.errors import DsstanWarning, InputError, SurfaceError
from dsstan.core.seeds import root_seed, stan_seed
from dsstan.engines import SamplerSettings
from dsstan.models.checks.diagnostics import ess, rhat
from dsstan.models.checks.verdict import diagnose

QUICK = {"chains": 2, "warmup": 200, "samples": 200, "engine": "embedded", "progress": False}


def test_a_fit_records_what_ran(free, kept):
    assert (free.kind, free.protection, free.phi_held) == ("unrestricted", "none", None)
    assert (kept.kind, kept.protection) == ("restricted", "paper")
    assert kept.phi_held == np.median(free.draws["phi"])
    assert np.all(kept.draws["phi"] == kept.phi_held)
    assert kept.start is free
    assert kept.engine == "embedded"
    assert "stanli" in kept.engine_version
    assert len(kept.fingerprint) == 64
    assert kept.gamma == np.inf
    assert free.verdict.passed
    assert free.seconds > 0


def test_flagged_records_reach_the_model_as_exact_zeros(kept):
    assert set(np.unique(kept.A)) == {0.0, 1.0}
    np.testing.assert_array_equal(kept.A == 0, kept.flagged)


def test_the_summary_has_the_quantiles_of_the_draws(free):
    table = free.summary()
    assert list(table.index) == ["beta_0", "beta_1", "sigma_sq", "tau_sq", "phi"]
    draws = free.draws["tau_sq"]
    row = table.loc["tau_sq"]
    assert row["mean"] == pytest.approx(draws.mean())
    assert row["q975"] == pytest.approx(np.quantile(draws, 0.975))
    assert row["rhat"] < 1.01
    assert "Intercept" in str(free)


def test_a_held_decay_has_no_effective_sample_size(kept):
    row = kept.summary().loc["phi"]
    assert row["sd"] == 0
    assert np.isnan(row["ess_bulk"])
    assert np.isfinite(kept.worst_ess)


def test_the_same_seed_gives_the_same_draws_and_another_seed_others(small, engine):
    runs = [ds.fit(small, seed=s, **{**QUICK, "engine": engine}) for s in (0, 0, 1)]
    np.testing.assert_array_equal(runs[0].draws["phi"], runs[1].draws["phi"])
    assert not np.array_equal(runs[0].draws["phi"], runs[2].draws["phi"])


def test_seeds_become_different_stan_seeds_and_fresh_ones_are_wide():
    assert len({stan_seed(s) for s in range(2000)}) == 2000
    assert 1 <= stan_seed(0) < 2**31
    assert root_seed(None) != root_seed(None)
    assert root_seed(None) > 2**64
    for bad in (-1, 1.5, True, "1"):
        with pytest.raises(InputError, match="whole number"):
            root_seed(bad)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"weights": True, "phi": 3.0, "protection": "none"}, "protection must be one of"),
        ({"protection": "cut"}, "give weights"),
        ({"gamma": 4.0}, "give weights"),
        ({"program": "fast"}, "program must be"),
        ({"engine": "rstan"}, "engine must be"),
        ({"phi": 3.0}, "give weights"),
        ({"weights": True, "hold_phi": True}, "holds phi"),
        ({"weights": True, "phi": -1.0}, "positive"),
        ({"weights": True, "phi": 3.0, "hold_phi": False}, "contradicts"),
        ({"weights": True, "hold_phi": False, "program": "natural"}, "holds phi"),
        ({"weights": True, "phi": 3.0, "gamma": -2.0}, "gamma"),
        ({"chains": 0}, "chains"),
        ({"adapt_delta": 1.0}, "adapt_delta"),
        ({"seed": -5}, "seed"),
    ],
)
def test_contradicting_arguments_are_refused_before_sampling(small, kept, change, match):
    arguments = {**QUICK, **change}
    if arguments.get("weights"):
        arguments["weights"] = kept.weights
    with pytest.raises(InputError, match=match):
        ds.fit(small, **arguments)


def test_weights_and_start_must_be_of_the_same_problem(free, kept):
    other = ds.prepare(small_table(30), "log(value) ~ x", coords=("east", "north"))
    with pytest.raises(InputError, match="weights are of 60 records"):
        ds.fit(other, weights=kept.weights, phi=3.0, **QUICK)
    with pytest.raises(InputError, match="another problem"):
        ds.fit(other, weights=ds.own_weights(other, np.zeros(30)), start=free, **QUICK)
    with pytest.raises(InputError, match="must be an unrestricted fit"):
        ds.fit(kept.problem, weights=kept.weights, start=kept, **QUICK)


def test_cut_that_leaves_too_few_records_is_refused(small):
    weights = ds.own_weights(small, np.r_[np.zeros(3), np.ones(57)])
    with pytest.raises(InputError, match="leaves 3 of 60"):
        ds.fit(small, weights=weights, protection="cut", phi=4.0, **QUICK)


def test_a_forced_bad_surface_is_refused_before_sampling(small):
    with pytest.raises(SurfaceError, match="held-out point"):
        ds.fit(small, nodes=(5, 6), **QUICK)


@pytest.mark.parametrize(
    ("priors", "match"),
    [
        (ds.Priors(phi_bounds=(5.0, 1.0)), "low < high"),
        (ds.Priors(phi_bounds=(1e-300, 1.0)), "give ends between"),
        (ds.Priors(r_bounds=(0.0, 1.0)), "positive"),
        (ds.Priors(sigma=-1.0), "positive"),
        (ds.Priors(sigma=(1.0, 2.0)), "one number"),
        (ds.Priors(variance="inverse-gamma", tau=2.0), "two"),
        (ds.Priors(variance="uniform"), "half-normal"),
    ],
)
def test_impossible_priors_are_refused(small, priors, match):
    with pytest.raises(InputError, match=match):
        ds.fit(small, priors=priors, **QUICK)


def test_default_priors_are_those_stated(small):
    priors = ds.Priors().resolve(small.y, small.X, small.d_max)
    coef, *_ = np.linalg.lstsq(small.X, small.y, rcond=None)
    residual = small.y - small.X @ coef
    sd = np.sqrt(residual @ residual / (60 - 2))
    assert priors.sigma[0] == pytest.approx(sd)
    assert priors.tau[0] == pytest.approx(sd)
    assert priors.phi_bounds == pytest.approx((3 / small.d_max, 300 / small.d_max))
    assert priors.beta_scale[1] == pytest.approx(100 * small.y.std() / small.X[:, 1].std())


def test_default_priors_do_not_move_the_coefficients(san_francisco):
    """In any units: raw coordinates and square feet as covariates, far from zero."""
    problem = ds.prepare(
        san_francisco,
        "log(price) ~ squarefeet + latitude",
        coords=("longitude", "latitude"),
        distance="degrees",
    )
    priors = ds.Priors().resolve(problem.y, problem.X, problem.d_max)
    coef, *_ = np.linalg.lstsq(problem.X, problem.y, rcond=None)
    assert np.all(np.abs(coef) < np.array(priors.beta_scale))
    cov = np.linalg.inv(problem.X.T @ problem.X) * np.var(problem.y)
    assert np.all(np.sqrt(np.diag(cov)) < 0.1 * np.array(priors.beta_scale))


def test_too_short_a_run_fails_its_verdict_and_says_why(small):
    fit = ds.fit(small, seed=1, **{**QUICK, "warmup": 20, "samples": 20})
    assert not fit.verdict.passed
    assert any(c.name == "ess_bulk" for c in fit.verdict.failures)
    assert "samples=40 (20 now)" in str(fit.verdict)


def _verdict(**change):
    rng = np.random.default_rng(1)
    draws = {
        "sigma_sq": np.exp(rng.normal(size=(4, 1000))),
        "tau_sq": np.exp(rng.normal(size=(4, 1000))),
        "phi": np.exp(rng.normal(1.5, 0.3, size=(4, 1000))),
    }
    sampler = np.zeros((4, 1000, 4))
    sampler[:, :, 3] = rng.normal(size=(4, 1000))
    arguments = {
        "settings": SamplerSettings(),
        "surface_error": 1e-6,
        "phi_bounds": (0.01, 1000.0),
        "r_bounds": (1e-4, 1e4),
    }
    change_draws = change.pop("draws", {})
    change_sampler = change.pop("sampler", None)
    if change_sampler:
        change_sampler(sampler)
    return diagnose({**draws, **change_draws}, sampler, **{**arguments, **change})


def test_good_draws_pass():
    verdict = _verdict()
    assert verdict.passed
    assert not verdict.warnings
    assert str(verdict) == "passed"


def _set(column, value, count):
    def change(sampler):
        sampler[0, :count, column] = value

    return change


def _walk(sampler):
    sampler[:, :, 3] = np.cumsum(sampler[:, :, 3], axis=1)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"surface_error": 2e-4}, "surface error"),
        ({"sampler": _set(2, 1, 30)}, "divergent share"),
        ({"sampler": _set(1, 10, 60)}, "treedepth share"),
        ({"sampler": _walk}, "e-bfmi"),
        ({"draws": {"phi": np.linspace(1, 9, 4000).reshape(4, 1000)}}, "rhat"),
        ({"draws": {"phi": np.ones((4, 1000))}}, "rhat"),
    ],
)
def test_each_failure_is_named(change, name):
    verdict = _verdict(**change)
    assert not verdict.passed
    assert name in {c.name for c in verdict.failures}


def test_a_posterior_that_leans_on_a_bound_is_a_warning():
    verdict = _verdict(phi_bounds=(3.0, 1000.0))
    assert verdict.passed
    assert [c.where for c in verdict.warnings] == ["phi"]


def test_a_posterior_that_a_bound_decides_is_a_failure():
    verdict = _verdict(phi_bounds=(4.4, 1000.0))
    assert [(c.where, c.condition) for c in verdict.failures] == [("phi", "phi-at-bound")]


@pytest.mark.parametrize(("divergent", "warned"), [(4, []), (5, ["divergent share"])])
def test_few_divergences_are_a_warning_and_stray_ones_are_not(divergent, warned):
    verdict = _verdict(sampler=_set(2, 1, divergent))
    assert verdict.passed
    assert [c.name for c in verdict.warnings] == warned


def test_rhat_and_ess_of_independent_draws_are_near_their_ideal():
    draws = np.random.default_rng(2).normal(size=(4, 1000))
    assert rhat(draws) < 1.005
    assert 3200 < ess(draws) < 4800
    assert 3000 < ess(draws, "tail") < 5000


def test_a_fit_notes_what_its_protection_can_not_promise(small, free, kept):

    def own(fit):
        """Notes on the protection; one on the range is up to the draws."""
        return [note for note in fit.notes if "range" not in note]

    with pytest.warns(DsstanWarning, match="no record is flagged"):
        nobody = ds.fit(small, weights=ds.own_weights(small, np.zeros(60)), start=free, **QUICK)
    assert "no record is flagged" in nobody.notes[0]
    pair = np.zeros(60)
    pair[[0, 6]] = 1.0  # one site
    common = {"weights": ds.own_weights(small, pair), "start": free, **QUICK}
    assert "1 pairs of flagged records" in ds.fit(small, protection="preserving", **common).notes[0]
    assert own(ds.fit(small, protection="cut", **common)) == []
    held = float(np.median(free.draws["phi"]))
    cut = ds.fit(small, protection="cut", phi=held, **common)
    assert "phi come from a fit that contains" in cut.notes[0]
    assert cut.notes[0] in " ".join(str(cut).split())
    by_correlation = {**common, "weights": ds.flag_isolated(free, correlation=0.5)}
    cut = ds.fit(small, protection="cut", **by_correlation)
    assert "the flags come from a fit that contains" in cut.notes[0]
    assert "flag by a distance that you state" in cut.notes[0]
    by_distance = {**common, "weights": ds.flag_isolated(free, distance=0.1)}
    assert own(ds.fit(small, protection="cut", **by_distance)) == []
    assert kept.notes == ()


def changed(problem, row, value):
    """The same table with another value of the response in one row."""
    table = problem.table.copy()
    table.iloc[row, table.columns.get_loc(problem.response)] = value
    return ds.prepare(table, problem.formula, coords=problem.coord_names)


def test_under_cut_no_number_behind_the_copies_depends_on_a_flagged_value(small):
    """Bit for bit: priors, starting points, phi, draws, rounding and copies."""
    flagged = ds.flag_isolated(ds.fit(small, seed=1, **QUICK), distance=0.1)
    rows = np.flatnonzero(flagged.flagged)
    assert 0 < rows.size < 10
    releases, held = [], []
    for value in (None, 1234.567891, 1e-3):
        problem = small if value is None else changed(small, rows[0], value)
        free = ds.fit(problem, seed=1, **QUICK)
        held.append(float(np.median(free.draws["phi"])))
        weights = ds.flag_isolated(free, distance=0.1)
        cut = ds.fit(problem, weights=weights, protection="cut", start=free, seed=2, **QUICK)
        assert cut.phi_held is None
        how = {"seed": 3, "accept_failed": True, "progress": False}
        releases.append(ds.synthesise(cut, 5, **how))
    assert len(set(held)) == 3  # what used to be held did move
    for other in releases[1:]:
        assert other.fit.priors == releases[0].fit.priors
        for name, draws in releases[0].fit.draws.items():
            np.testing.assert_array_equal(other.fit.draws[name], draws)
        np.testing.assert_array_equal(other.values, releases[0].values)


def test_under_cut_flagged_records_leave_whatever_gamma_is(small, free, kept):
    fit = ds.fit(
        small, weights=kept.weights, gamma=0.0, protection="cut", start=free, seed=1, **QUICK
    )
    np.testing.assert_array_equal(fit.informing, np.flatnonzero(~kept.flagged))


def test_a_restricted_fit_takes_the_priors_of_the_fit_it_starts_from(small, kept):
    priors = ds.Priors(variance="inverse-gamma", sigma=(2.0, 1.0), tau=(2.0, 1.0))
    begun = ds.fit(small, priors=priors, seed=1, **QUICK)
    ours = ds.fit(small, weights=kept.weights, start=begun, seed=2, **QUICK)
    assert ours.priors == begun.priors
    other = ds.fit(small, weights=kept.weights, start=begun, priors=ds.Priors(), seed=2, **QUICK)
    assert other.priors.variance == "half-normal"
