"""Brackets: their ends, who is in which, what a column can hold; and the copies that keep them."""

from __future__ import annotations

import json
from dataclasses import fields

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.spatial.distance import cdist

import dsstan as ds
from conftest import small_table
from dsstan.core.errors import DsstanWarning, InputError
from dsstan.models.brackets.fit import fit_bracketed
from dsstan.models.brackets.limits import find_brackets
from dsstan.models.brackets.result import BracketedFit
from dsstan.models.brackets.truncation import truncated_normal, truncated_sd
from dsstan.models.posterior import parameters_at
from dsstan.models.result import Fit
from dsstan.release.reading import read_release
from dsstan.risk.bracket_cost import bracket_cost, sd_left
from dsstan.table.rounding import Rounding
from factory import fit_from

FALSE_ALARM = 1e-5
QUICK = {"chains": 2, "warmup": 400, "samples": 2000, "engine": "embedded", "progress": False}
EXACT = 1e-8
"""Quantiles, against SciPy's truncated normal."""


def prepared(values, formula="log(value) ~ x", **columns):
    """Records at random places with these values."""
    n = len(values)
    rng = np.random.default_rng(2)
    table = pd.DataFrame({"u": rng.uniform(size=n), "v": rng.uniform(size=n)})
    table = table.assign(x=rng.normal(size=n), value=values, **columns)
    return ds.prepare(table, formula, coords=("u", "v"))


def with_brackets(problem, cuts, *, beta=(0.0, 0.0), tau_sq=1.0, draws=30, **given):
    """A plain fit whose every draw is one point, the spatial effect of variance one."""
    shape = (1, draws)
    gaussian = fit_from(
        problem,
        {
            "beta": np.broadcast_to(beta, (*shape, 2)),
            "sigma_sq": np.ones(shape),
            "tau_sq": np.full(shape, tau_sq),
            "phi": np.full(shape, 3.0),
        },
    )
    own = {name: getattr(gaussian, name) for name in (each.name for each in fields(Fit))}
    return BracketedFit(**own, brackets=find_brackets(problem, cuts, **given), gaussian=gaussian)


def copies_of(fit, copies=20, **given):
    """Copies, whatever their number of effective draws."""
    return ds.synthesise(fit, copies, seed=4, accept_few_draws=True, progress=False, **given)


@pytest.fixture(scope="module")
def cuts(small):
    return list(np.quantile(small.original(), [1 / 3, 2 / 3]))


@pytest.fixture(scope="module")
def plain(small, cuts):
    return fit_bracketed(small, cuts, seed=1, **QUICK)


@pytest.fixture(scope="module")
def released(small, cuts, plain):
    weights = ds.flag_isolated(plain, distance=0.15)
    fit = fit_bracketed(small, cuts, weights=weights, start=plain, seed=2, **QUICK)
    return ds.synthesise(fit, 30, seed=3, progress=False)


# --- Truncated normals ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high"),
    [(-1.0, 0.5), (3.0, np.inf), (-np.inf, -8.0), (20.0, 20.5), (-40.0, -39.0), (0.1, 0.1001)],
)
def test_quantiles_are_those_of_scipy_s_truncated_normal(low, high):
    z = np.linspace(-6, 6, 41)
    got = truncated_normal(z, 0.0, 1.0, np.float64(low), np.float64(high))
    np.testing.assert_allclose(got, stats.truncnorm(low, high).ppf(stats.norm.cdf(z)), rtol=EXACT)


@pytest.mark.parametrize("far", [1e2, 1e4, 1e6])
def test_far_tails_are_exponential_beyond_the_end(far):
    """Mills: beyond a far end the normal is exponential with that rate, but for 1 / far^2."""
    z = np.linspace(-3, 3, 13)
    got = truncated_normal(z, 0.0, 1.0, np.float64(far), np.float64(np.inf))
    steps = (got - far) * far
    np.testing.assert_allclose(steps, stats.expon.isf(stats.norm.sf(z)), rtol=1e-3, atol=1e-3)
    mirrored = truncated_normal(-z, 0.0, 1.0, np.float64(-np.inf), np.float64(-far))
    np.testing.assert_array_equal(mirrored, -got)


def test_open_ends_give_the_normal_to_the_last_digit():
    z = np.random.default_rng(1).standard_normal(100)
    got = truncated_normal(z, 3.0, 0.7, np.float64(-np.inf), np.float64(np.inf))
    np.testing.assert_array_equal(got, 3.0 + 0.7 * z)


@given(
    st.floats(-8, 8), st.floats(-1e9, 1e9), st.floats(1e-6, 1e6), st.floats(-1e9, 1e9), st.floats()
)
@settings(max_examples=200, deadline=None)
def test_a_draw_never_leaves_its_interval(z, mean, sd, low, width):
    width = np.clip(np.nan_to_num(abs(width), nan=np.inf), 1e-12, np.inf)
    high = np.maximum(low + width, np.nextafter(low, np.inf))
    got = truncated_normal(np.array([z]), mean, sd, np.array([low]), np.array([high]))
    assert low <= got[0] <= high


def test_standard_deviations_are_those_of_scipy():
    mean = np.array([0.0, 2.0, -7.0, 0.0])
    low = np.array([-1.0, -np.inf, 1.0, 0.0])
    high = np.array([2.0, 1.0, np.inf, 1e-3])
    want = stats.truncnorm((low - mean) / 1.5, (high - mean) / 1.5, mean, 1.5).std()
    # By 400 quantiles, which miss the last part of an open tail.
    np.testing.assert_allclose(truncated_sd(mean, 1.5, low, high), want, rtol=0.01)


# --- Brackets of a table --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("closed", "numbers", "words"),
    [
        ("left", [0, 1, 1, 2, 2], ["below 10", "from 10 to below 20", "20 or more"]),
        ("right", [0, 0, 1, 1, 2], ["10 or less", "above 10 up to 20", "above 20"]),
    ],
)
def test_a_value_on_a_boundary_is_in_the_bracket_that_holds_the_end(closed, numbers, words):
    kept = find_brackets(prepared([5, 10, 15, 20, 25]), [10, 20], closed=closed)
    assert kept.number.tolist() == numbers
    assert kept.words() == words
    assert kept.counts.sum() == 5
    assert kept.inside(np.array([5.0, 10, 15, 20, 25])).all()


def test_named_brackets_are_those_of_the_cuts_between_them():
    values = [5.0, 10, 15, 20, 25]
    by_cuts = find_brackets(prepared(values), [10, 20])
    name = ["low", "middle", "middle", "top", "top"]
    problem = prepared(values, name=name)
    ends = {"top": (20, None), "low": (None, 10), "middle": (10, 20)}
    table = pd.DataFrame(
        {"low": [20, np.nan, 10], "high": [np.nan, 10, 20]}, index=["top", "low", "middle"]
    )
    for given_as in (ends, table):
        for column in ("name", None):
            kept = find_brackets(problem, given_as, column=column)
            assert kept.names == ("low", "middle", "top")
            assert kept.number.tolist() == by_cuts.number.tolist()
            np.testing.assert_array_equal(kept.low_modelled, by_cuts.low_modelled)


def test_a_bracket_without_records_is_allowed_and_counted():
    kept = find_brackets(prepared([5, 10, 15, 20, 25]), [10, 30, 40])
    assert kept.counts.tolist() == [1, 4, 0, 0]


def test_named_outer_brackets_may_end_and_may_begin_where_the_domain_does():
    kept = find_brackets(prepared([5, 10, 15, 20, 25]), {"all": (0, 30)})
    assert np.all(kept.low_modelled == -np.inf)
    assert np.all(kept.first == 1)
    assert np.all(kept.last == 29)


NAMES = {"a": (None, 10), "b": (10, 20), "c": (20, None)}
BAD = {
    "unordered cuts": (dict(cuts=[20, 10]), "ascend"),
    "a cut given twice": (dict(cuts=[10, 10]), "ascend"),
    "an infinite cut": (dict(cuts=[10, np.inf]), "finite"),
    "a cut that is no number": (dict(cuts=[10, np.nan]), "finite"),
    "a cut as text": (dict(cuts=["10"]), "finite"),
    "one number": (dict(cuts=10), "cut points"),
    "text": (dict(cuts="10"), "cut points"),
    "a cut below the logarithm's domain": (dict(cuts=[0, 10]), "above 0 for log"),
    "an unknown side": (dict(cuts=[10], closed="both"), "closed"),
    "a column without names": (dict(cuts=[10], column="x"), "mapping"),
    "overlapping brackets": (dict(cuts={**NAMES, "b": (10, 21)}), "'b' and 'c' overlap"),
    "a gap": (dict(cuts={**NAMES, "b": (10, 19)}), "'b' and 'c' leave a gap"),
    "ends the wrong way round": (dict(cuts={**NAMES, "b": (20, 10)}), "low end below"),
    "an end that is no number": (dict(cuts={**NAMES, "b": (10, "20")}), "no number"),
    "one end only": (dict(cuts={"a": (10,)}), "two ends"),
    "no bracket": (dict(cuts={}), "two ends"),
    "a table without ends": (dict(cuts=pd.DataFrame({"from": [1]})), "'low' and 'high'"),
    "a bracket from below the domain": (dict(cuts={"a": (-5, 30)}), "above 0 for log"),
    "values beyond the outer ends": (dict(cuts={"a": (8, 30)}), r"1 row \(position 0"),
    "a column that is missing": (dict(cuts=NAMES, column="absent"), "no column 'absent'"),
    "the response as names": (dict(cuts=NAMES, column="value"), "response or a place"),
    "a bracket that is not given": (dict(cuts=NAMES, column="other"), r"1 row \(position 4"),
    "a missing name": (dict(cuts=NAMES, column="gaps"), r"names no bracket in 1 row"),
    "a value outside its bracket": (dict(cuts=NAMES, column="wrong"), r"outside its bracket in 1"),
    "values beyond the only bracket": (dict(cuts={"a": (None, 5.2)}), "every bracket in 4 rows"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_brackets_are_refused_before_any_sampling(what):
    arguments, message = BAD[what]
    problem = prepared(
        [5, 10, 15, 20, 25],
        other=list("abbcd"),
        wrong=list("aabcc"),
        gaps=["a", "b", None, "c", "c"],
    )
    with pytest.raises(InputError, match=message) as caught:
        fit_bracketed(problem, **arguments)
    assert "25" not in str(caught.value)


def test_a_boundary_of_single_precision_is_kept_when_read_as_double():
    """0.1 in single precision is above 0.1, but written as 0.1."""
    values = np.array([0.05, 0.09, 0.11, 0.3, 0.7], dtype=np.float32)
    problem = prepared(values)
    for closed in ("left", "right"):
        kept = find_brackets(problem, [0.1, 0.5], closed=closed)
        for edges in (kept.first, kept.last):
            held = np.where(np.isfinite(edges), edges, values).astype(np.float32)
            assert kept.inside(held.astype(float)).all()
            assert kept.inside(np.array([float(str(v)) for v in held])).all()


# --- Copies ---------------------------------------------------------------------------------


COLUMNS = {
    "integers": (np.int32, [10, 100, 1000]),
    "small integers": (np.int8, [3, 4, 40]),
    "singles": (np.float32, [0.1, 10.3, 100.7]),
    "doubles": (np.float64, [0.1, 10.3, 100.7]),
    "thousands": (np.int64, [10_000, 10_500, 40_000]),
}


@pytest.mark.filterwarnings("ignore:.*lie outside what the column:dsstan.core.errors.DsstanWarning")
@pytest.mark.parametrize("closed", ["left", "right"])
@pytest.mark.parametrize("formula", ["log(value) ~ x", "value ~ x", "log1p(value) ~ x"])
@pytest.mark.parametrize("column", COLUMNS)
def test_copies_stay_in_their_bracket_whatever_the_column(column, formula, closed, tmp_path):
    dtype, ends = COLUMNS[column]
    rng = np.random.default_rng(9)
    values = np.clip(np.exp(rng.normal(3.0, 2.0, 40)), 1.0, 120.0)
    if column == "thousands":
        values = 1000 * np.rint(np.clip(values, 1, 100))
    values[:6] = [*ends, *ends]  # on the boundaries
    problem = prepared(values.astype(dtype), formula)
    fit = with_brackets(problem, ends, beta=(3.0, 0.0), tau_sq=4.0, closed=closed)
    for rounding in ("auto", "none"):
        release = copies_of(fit, rounding=rounding)
        assert fit.brackets.inside(release.values).all()
        again = fit.brackets.clip(release.values)
        np.testing.assert_array_equal(again, release.values)
    for number in range(3):
        table = release.table(number)
        assert table["value"].dtype == dtype
        table.to_csv(tmp_path / "copy.csv", index=False)
        read = pd.read_csv(tmp_path / "copy.csv")["value"].to_numpy(dtype=float)
        assert fit.brackets.inside(read).all()


@given(st.data())
@settings(max_examples=25, deadline=None)
def test_counts_are_exact_for_any_cuts(data):
    values = data.draw(st.lists(st.integers(1, 10**6), min_size=8, max_size=20, unique=True))
    ends = sorted(data.draw(st.sets(st.integers(2, 10**6), min_size=1, max_size=5)))
    closed = data.draw(st.sampled_from(["left", "right"]))
    problem = prepared(values)
    fit = with_brackets(problem, ends, beta=(9.0, 0.0), tau_sq=9.0, draws=5, closed=closed)
    release = copies_of(fit, 3)
    side = "right" if closed == "left" else "left"
    for copy in release.values:
        np.testing.assert_array_equal(np.searchsorted(ends, copy, side=side), fit.brackets.number)


def test_rounding_goes_down_where_up_would_leave_the_bracket():
    fine = Rounding(0, (1000, 50_000), (0.0, 1.0))
    rng = np.random.default_rng(1)
    values = np.array([499_400.0, 480_000.0, 499_999.0])
    low = fine.apply(values, rng, lambda v: v < 500_000)
    assert low.tolist() == [499_000.0, 481_000.0, 499_000.0]


def test_a_whole_number_column_without_a_whole_number_in_a_bracket_stays_inside():
    values = np.array([1.0, 2.0, 5.0, 7.0, 9.0, 12.0, 15.0, 100.5])
    fit = with_brackets(prepared(values), [100.2, 100.7])
    release = copies_of(fit)
    assert not release.whole_numbers
    published = np.stack([ds.public.public_table(release, i)["value"] for i in range(3)])
    assert fit.brackets.inside(published.astype(float)).all()


def test_a_bracket_with_one_value_warns_and_the_copy_is_the_truth(small):
    table = small_table().assign(value=lambda t: 1000 * np.ceil(t["value"] / 10).astype(int))
    problem = ds.prepare(table, "log(value) ~ x", coords=("east", "north"))
    top = int(table["value"].max())
    with pytest.warns(DsstanWarning, match="are equal to the truth"):
        fit = fit_bracketed(problem, [top, top + 1000], seed=1, **{**QUICK, "samples": 100})
    assert any("equal to the truth" in note for note in fit.notes)
    alone = fit.brackets.single
    assert alone.sum() == np.sum(table["value"] == top)
    release = copies_of(fit, 10, accept_failed=True)
    assert np.all(release.values[:, alone] == top)


@pytest.mark.parametrize("likelihood", ["plain", "truncated"])
def test_an_engine_that_there_is_not_is_refused(small, likelihood):
    with pytest.raises(InputError, match="engine must be"):
        fit_bracketed(small, [], likelihood=likelihood, engine="stan3")


def test_one_infinite_bracket_gives_the_gaussian_copies_to_the_byte(small, free, kept):
    none = fit_bracketed(small, [], seed=11, engine="embedded", progress=False)
    for name, draws in free.draws.items():
        np.testing.assert_array_equal(none.draws[name], draws)
    flagged = fit_bracketed(
        small, [], weights=kept.weights, start=none, seed=12, engine="embedded", progress=False
    )
    for ours, theirs in ((none, free), (flagged, kept)):
        a, b = (ds.synthesise(f, 10, seed=5).values for f in (ours, theirs))
        np.testing.assert_array_equal(a, b)
        assert ours.public_note == ""


def test_other_brackets_give_other_noise(small, cuts):
    both, fewer = (with_brackets(small, c, beta=(5.0, 0.7)) for c in (cuts, cuts[:1]))
    a, b = (copies_of(f, 5).modelled() for f in (both, fewer))
    low = both.brackets.number == 0
    assert not np.any(a[:, low] == b[:, low])


def test_copies_are_the_same_for_any_number_of_workers(plain):
    one, two = (ds.synthesise(plain, 6, seed=2, workers=k).values for k in (1, 2))
    np.testing.assert_array_equal(one, two)


# --- Fits and releases ----------------------------------------------------------------------


def test_arguments_that_contradict_each_other_are_refused(small, cuts, plain, free):
    weights = ds.own_weights(small, np.r_[1.0, np.zeros(small.n_records - 1)])
    refused = [
        (dict(likelihood="other"), "likelihood must be"),
        (dict(cov_model="cubic"), "cov_model must be"),
        (dict(weights=weights, start=free), "fit of fit_bracketed"),
        (dict(weights=weights), "holds phi"),
        (dict(start=plain), "give weights as well"),
        (dict(gamma=1.0), "restricted fit"),
        (dict(gamma=1.0, likelihood="truncated"), "restricted fit"),
        (dict(phi=-1.0, likelihood="truncated"), "phi must be positive"),
        (dict(protection="cut", likelihood="truncated"), '"paper" only'),
        (dict(weights=weights, start=plain, likelihood="truncated"), "same one"),
        (dict(weights=weights, likelihood="truncated"), "holds phi"),
    ]
    for arguments, message in refused:
        with pytest.raises(InputError, match=message):
            fit_bracketed(small, cuts, **arguments)
    with pytest.raises(InputError, match="other brackets"):
        fit_bracketed(small, cuts[:1], weights=weights, start=plain)


def test_a_truncated_fit_holds_the_phi_of_its_start_and_goes_the_common_way(
    small, cuts, plain, tmp_path
):
    sampler = {**QUICK, "warmup": 150, "samples": 150}
    fit = fit_bracketed(small, cuts, likelihood="truncated", start=plain, seed=2, **sampler)
    assert fit.phi_held == np.median(plain.draws["phi"])
    assert fit.start is None
    accepted = {"accept_failed": True, "accept_few_draws": True}
    release = ds.synthesise(fit, 10, seed=2, **accepted)
    assert fit.brackets.inside(release.values).all()
    assert "truncated" in fit.outcome
    shares = ds.disclosure(release).summary
    assert shares["share"].between(0, 1).all()
    assert len(bracket_cost(release)) == 4
    folder = release.write(tmp_path / "release")
    held = json.loads((folder / "confidential" / "settings.json").read_text(encoding="utf-8"))
    assert held["fits"]["unrestricted"]["likelihood"] == "truncated"


def test_a_release_says_its_brackets_and_reads_back(released, tmp_path, cuts):
    fit = released.fit
    folder = released.write(tmp_path / "release")
    public = read_release(folder / "public")
    counts = fit.brackets.counts
    for copy in public.copies:
        values = copy["value"].to_numpy(dtype=float)
        found = np.bincount(np.searchsorted(cuts, values, side="right"), minlength=3)
        np.testing.assert_array_equal(found, counts)
    text = (folder / "public" / "README.md").read_text(encoding="utf-8")
    for word in fit.brackets.words():
        assert f"- {word}" in text
    width = cuts[1] - cuts[0]
    assert f"off by at most {100 * width / (cuts[0] + cuts[1]):.2g}%" in text
    metadata = json.loads((folder / "public" / "metadata.json").read_text(encoding="utf-8"))
    assert metadata["model"]["outcome"] == fit.outcome
    assert fit.outcome != "Gaussian"
    held = json.loads((folder / "confidential" / "settings.json").read_text(encoding="utf-8"))
    assert held["fits"]["restricted"]["brackets"]["1"] == [None, cuts[0]]
    assert held["fits"]["restricted"]["likelihood"] == "plain"


def test_a_guess_in_the_middle_is_never_further_off_than_the_readme_says(released, cuts):
    low, high = cuts
    guess, truth = 2 * low * high / (low + high), np.linspace(low, high, 1001)
    worst = np.max(np.abs(guess - truth) / truth)
    assert worst == pytest.approx((high - low) / (high + low))


def test_the_closed_form_attacker_is_refused_with_the_reason(released):
    with pytest.raises(InputError, match="copies within the bracket"):
        ds.assess(released)


def test_kept_brackets_cost_disclosure_and_the_table_says_how_much(released, small):
    table = bracket_cost(released)
    assert table["records"].tolist()[-1] == small.n_records
    assert table["records"].tolist()[:-1] == released.fit.brackets.counts.tolist()
    every = table.iloc[-1]
    assert every["near"] > 1.2 * every["near_without"]
    assert every["sd_bracket"] < 0.9 * every["sd_others"]
    with pytest.raises(InputError, match="fit_bracketed"):
        bracket_cost(ds.synthesise(released.fit.gaussian, 5, seed=1))
    with pytest.raises(InputError, match="not negative"):
        bracket_cost(released, relative=-1.0)


def test_what_the_others_leave_unknown_is_their_leave_one_out_law():
    """Against the definition: condition the record on all others, coefficients integrated out."""
    problem = prepared(np.exp(np.random.default_rng(3).normal(size=12)))
    fit = with_brackets(problem, [1.0], tau_sq=0.5, draws=3)
    before, after = sd_left(fit)
    d = np.sqrt(((problem.sites[:, None] - problem.sites[None]) ** 2).sum(-1))
    V = np.exp(-3.0 * d) + 0.5 * np.eye(12) + 1e7 * problem.X @ problem.X.T
    for i in range(12):
        rest = np.arange(12) != i
        weight = np.linalg.solve(V[np.ix_(rest, rest)], V[rest, i])
        sd = np.sqrt(V[i, i] - weight @ V[rest, i])
        assert before[i] == pytest.approx(sd, rel=1e-4)
        mean = weight @ problem.y[rest]
        ends = (fit.brackets.low_modelled[i], fit.brackets.high_modelled[i])
        a, b = (np.array(ends) - mean) / sd
        assert after[i] == pytest.approx(stats.truncnorm(a, b, mean, sd).std(), rel=0.01)


def test_settings_of_a_fit_name_the_brackets(plain, cuts):
    held = plain.model_settings
    assert list(held["brackets"].values())[1] == [pytest.approx(c) for c in cuts]
    assert held["closed"] == "left"
    assert "brackets" not in plain.outcome  # one bracket a record


def test_copies_of_a_smoothed_record_follow_the_law_without_its_effect(small, cuts, plain):
    """Given the others' effects: its prior's mean and variance, cut to the bracket, no crowding."""
    weights = ds.flag_isolated(plain, distance=0.15)
    fit = fit_bracketed(small, cuts, weights=weights, start=plain, seed=2, **QUICK)
    law = fit.predictive()
    assert law.lone.sum() == weights.n_flagged == 1
    at = int(np.flatnonzero(law.lone)[0])
    rest = np.delete(np.arange(small.n_records), at)
    scores = []
    for k in range(400):
        rng = np.random.default_rng(k)
        w = law.effect_at(0, k, np.random.default_rng(k))
        drawn = np.log(law.draw(0, k, rng))[at]
        p = parameters_at(fit, 0, k)
        R = np.exp(-p.phi * cdist(small.sites, small.sites))
        gain = np.linalg.lstsq(R[np.ix_(rest, rest)], R[rest, at], rcond=1e-10)[0]
        mean = small.X[at] @ p.beta + gain @ w[rest]
        sd = np.sqrt(p.sigma_sq * (1 - gain @ R[rest, at]) + p.tau_sq)
        low, high = fit.brackets.low_modelled[at], fit.brackets.high_modelled[at]
        cut = stats.truncnorm((low - mean) / sd, (high - mean) / sd, mean, sd)
        scores.append(cut.cdf(drawn))
    assert stats.kstest(scores, "uniform").pvalue > FALSE_ALARM


def test_a_truncated_fit_starts_a_restricted_one(small, cuts):
    short = {**QUICK, "warmup": 200, "samples": 100}
    free = fit_bracketed(small, cuts, likelihood="truncated", phi=3.0, seed=1, **short)
    weights = ds.flag_isolated(free, distance=0.15)
    kept = fit_bracketed(
        small, cuts, likelihood="truncated", weights=weights, start=free, seed=2, **short
    )
    assert kept.kind == "restricted"
    assert kept.phi_held == 3.0


def test_cuts_on_another_scale_are_told(small):
    with pytest.warns(DsstanWarning, match="all records are in one bracket"):
        fit_bracketed(small, [1e-3, 2e-3], seed=1, **{**QUICK, "warmup": 50, "samples": 50})
