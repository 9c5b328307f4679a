"""A time and groups in a fit: what is held, what is refused, what a release says of them."""

from __future__ import annotations

import json
from functools import lru_cache, partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.spatial.distance import cdist

import dsstan as ds
from conftest import case
from dsstan.core.errors import DsstanWarning, FormulaError, InputError, TableError
from dsstan.covariance import approximations
from dsstan.covariance import most_likely as module
from dsstan.covariance.approximations import EXACT
from dsstan.covariance.base import SpatialModel
from dsstan.covariance.correlation import decay_bounds
from dsstan.covariance.most_likely import MOST_SHARE, Ties, most_likely
from dsstan.models.adaptive.fit import fit_adaptive
from dsstan.models.arguments import settings_of
from dsstan.models.brackets.fit import fit_bracketed
from dsstan.models.counts.fit import fit_counts
from dsstan.models.groups.fit import fit_multivariate
from dsstan.models.heaps.fit import fit_heaped
from mc import assert_same_posterior

R_BOUNDS = (1e-4, 1e4)
DIRECT: dict[str, Any] = {"engine": "direct", "seed": 1, "progress": False}
WHERE: dict[str, Any] = {"coords": ("x", "y")}
BOTH = "log(rent) ~ log(area) + (1 | zip)"

BIAS = 2.0
"""Standard errors of a mean of twenty estimates that it may be from the truth."""


@pytest.fixture(scope="module")
def panel() -> pd.DataFrame:
    """Eighty flats of four years each, in as many ZIP codes; four districts are added."""
    table = case("panel.csv")
    return table.assign(district=(table["x"] > 10) + 2 * (table["y"] > 10))


@lru_cache
def simulated(
    seed: int, c: float, q: float, places: int, years: int, groups: int, nugget: float = 0.1
) -> ds.Problem:
    """A table with a decay in time, or a share of groups that are not nested in places."""
    rng = np.random.default_rng(seed)
    sites = np.repeat(rng.uniform(0, 1, (places, 2)), years, axis=0)
    year = np.tile(np.arange(float(years)), places)
    zips = rng.integers(0, groups, year.size)
    lag = np.abs(year[:, None] - year)
    R = (1 - q) * np.exp(-4.0 * cdist(sites, sites) - c * lag) + q * (zips[:, None] == zips)
    root = np.linalg.cholesky(R + nugget * np.eye(year.size))
    x = rng.normal(size=year.size)
    y = 1.0 + 0.5 * x + root @ rng.standard_normal(year.size)
    columns = {"a": sites[:, 0], "b": sites[:, 1], "x": x, "y": y, "year": year, "zip": zips}
    formula = "y ~ x + (1 | zip)" if q else "y ~ x"
    time = "year" if c else None
    return ds.prepare(pd.DataFrame(columns), formula, coords=("a", "b"), time=time)


def found_in(problem: ds.Problem, **held: float) -> Ties:
    """The most likely values of a table."""
    ones = np.ones(problem.n_records)
    model = SpatialModel(problem=problem, A=ones, covariance=EXACT, **held)
    return most_likely(model, decay_bounds(problem.d_max), R_BOUNDS)


# --- The most likely values ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("c", "q", "shape"),
    [
        (0.5, 0.0, (60, 5, 2)),
        (0.0, 0.4, (250, 1, 40)),
        pytest.param(0.5, 0.4, (70, 6, 35), marks=pytest.mark.nightly("tables of 420 records")),
    ],
)
def test_over_twenty_tables_the_most_likely_values_are_not_biased(c, q, shape):
    all_ = [found_in(simulated(seed, c, q, *shape)) for seed in range(20)]
    for truth, name in ((c, "time_decay"), (q, "group_share")):
        values = [getattr(one, name) for one in all_]
        if not truth:
            assert values == [None] * 20
            continue
        error = np.std(values, ddof=1) / np.sqrt(20)
        assert np.mean(values) == pytest.approx(truth, abs=BIAS * error)
        assert error < 0.1 * truth


def test_of_few_places_and_years_the_decay_in_time_tends_to_be_too_high():
    """As the page on panels says."""
    values = [found_in(simulated(seed, 0.5, 0.0, 50, 4, 2, 0.3)).time_decay for seed in range(20)]
    error = np.std(values, ddof=1) / np.sqrt(20)
    assert np.mean(values) > 0.5 + error
    assert np.mean(values) < 0.8


def test_block_by_block_they_are_nearly_the_same(monkeypatch):
    problem = simulated(3, 0.5, 0.4, 80, 5, 30)
    whole = found_in(problem)
    monkeypatch.setattr(module, "MANY", 400)
    parts = found_in(problem)
    assert whole != parts
    assert parts.time_decay == pytest.approx(whole.time_decay, rel=0.3)
    assert parts.group_share == pytest.approx(whole.group_share, abs=0.1)


def test_no_other_value_near_by_is_likelier():
    problem = simulated(3, 0.5, 0.4, 40, 4, 12)
    model = SpatialModel(problem=problem, A=np.ones(problem.n_records), covariance=EXACT)
    found = found_in(problem)
    phi, r = 4.0, 0.2

    def top(c: float, q: float) -> float:
        likelihood = module._likelihood(model)
        grid = [
            likelihood(phi * f, r * g, c, q)
            for f in np.geomspace(0.2, 5, 25)
            for g in np.geomspace(0.1, 10, 25)
        ]
        return max(grid)

    best = top(found.time_decay, found.group_share)
    for c, q in ((0.8, 1.0), (1.25, 1.0), (1.0, 0.8), (1.0, 1.25)):
        assert top(c * found.time_decay, q * found.group_share) < best


def test_one_that_is_given_is_kept_and_the_other_found():
    problem = simulated(3, 0.5, 0.4, 40, 4, 12)
    found = found_in(problem, time_decay=0.1)
    assert found.time_decay == 0.1
    assert 0.0 <= found.group_share <= MOST_SHARE


def test_what_a_table_does_not_tell_is_said():
    problem = simulated(3, 0.5, 0.4, 40, 4, 12)
    rng = np.random.default_rng(4)
    noise = problem.table.assign(zip=rng.integers(0, 10, problem.n_records))
    found = ds.prepare(noise, "y ~ x + (1 | zip)", coords=("a", "b"))
    assert any("'zip' have nothing in common" in said for said in found_in(found).undecided)
    still = problem.table.assign(y=problem.table.groupby(["a", "b"])["y"].transform("mean"))
    found = ds.prepare(still, "y ~ 1", coords=("a", "b"), time="year")
    assert found_in(found).undecided == ("the effect hardly changes with 'year'",)


# --- Fits ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def free(panel) -> ds.Fit:
    """The unrestricted fit of the panel, with districts."""
    formula = "log(rent) ~ log(area) + (1 | district)"
    return ds.fit(ds.prepare(panel, formula, **WHERE, time="year"), **DIRECT)


def test_the_restricted_fit_holds_what_the_unrestricted_one_found(free):
    weights = ds.flag_isolated(free, distance=1.5, by_site=True)
    kept = ds.fit(free.problem, weights=weights, start=free, **DIRECT)
    assert (kept.time_decay, kept.group_share) == (free.time_decay, free.group_share)
    assert free.time_decay > 0
    assert "time_decay" in repr(kept) or "time_decay" in str(kept)
    cut = ds.fit(free.problem, weights=weights, start=free, protection="cut", **DIRECT)
    assert cut.time_decay != free.time_decay  # flagged records have no say
    with pytest.raises(InputError, match=r"time_decay is 0\.5 and start holds"):
        ds.fit(free.problem, weights=weights, start=free, time_decay=0.5, **DIRECT)


def test_the_settings_of_a_fit_give_its_draws_again(free):
    settings = settings_of(free)
    assert settings.items() >= free.ties.items()
    again = ds.fit(free.problem, **settings, seed=free.seed, progress=False)
    assert np.array_equal(again.draws["phi"], free.draws["phi"])


def test_given_values_are_held(panel):
    problem = ds.prepare(panel, BOTH, **WHERE, time="year")
    found = ds.fit(problem, time_decay=0.3, group_share=0.2, **DIRECT)
    assert found.ties == {"time_decay": 0.3, "group_share": 0.2}


def test_both_engines_draw_from_one_posterior(panel, sampling_engine):
    problem = ds.prepare(panel, "log(rent) ~ log(area)", **WHERE, time="year")
    held = {"time_decay": 0.05, "progress": False}
    direct = ds.fit(problem, engine="direct", seed=1, **held)
    stan = ds.fit(problem, engine=sampling_engine, seed=2, **held)
    names = ("sigma_sq", "tau_sq", "phi")
    assert stan.verdict.passed
    assert_same_posterior(
        *({name: fit.draws[name] for name in names} for fit in (direct, stan)),
    )


def test_a_place_alone_on_the_map_is_flagged_in_all_its_years(free, panel):
    by_record = ds.flag_isolated(free, distance=1.5)
    assert by_record.n_flagged == 0
    by_site = ds.flag_isolated(free, distance=1.5, by_site=True)
    assert by_site.n_flagged > 0
    years = pd.Series(by_site.flagged).groupby(free.problem.site_index).agg(["sum", "count"])
    assert set(years["sum"]) == {0, 4}
    with pytest.warns(DsstanWarning, match="every record shares its place.*by_site=True"):
        ds.fit(free.problem, weights=by_record, start=free, **DIRECT)


def test_the_map_of_the_effect_is_of_one_time(free):
    with pytest.raises(InputError, match="say of which time, such as time=2021"):
        ds.surface_on_grid(free, cells=5, draws=5, progress=False)
    first, last = (
        ds.surface_on_grid(free, cells=5, draws=5, time=time, progress=False)["w"]
        for time in (2018, 2021)
    )
    assert not np.allclose(first, last)


def test_gaps_are_drawn_with_the_model(panel):
    gaps = panel.assign(rent=panel["rent"].where(panel.index % 7 > 0))
    problem = ds.prepare(gaps, "log(rent) ~ log(area)", **WHERE, time="year", missing="draw")
    fit = ds.fit(problem, **DIRECT)
    release = ds.synthesise(fit, 4, imputations=2, seed=1, accept_failed=True, progress=False)
    assert {part.fit.time_decay for part in release.parts} == {fit.time_decay}


def test_the_release_says_what_is_held_and_shows_the_time(panel, tmp_path):
    release = ds.protect(
        *(panel, "log(rent) ~ log(area) + (1 | district)"),
        **WHERE,
        **DIRECT,
        time="year",
        threshold=1.5,
        by_site=True,
        copies=3,
        accept_failed=True,
    )
    release.write(tmp_path / "out", report=False)
    fit = release.fit
    public = json.loads((tmp_path / "out/public/metadata.json").read_text())
    words = public["model"]["spatial_effect"]
    assert f"in space times exp(-{fit.time_decay:.4g} t) for a time t" in words
    assert f"{fit.group_share:.4g} of sigma_sq is a random intercept of district" in words
    assert set(public["columns"]) == {"x", "y", "area", "rent", "year", "district"}
    summary = json.loads((tmp_path / "out/confidential/summary.json").read_text())
    assert (summary["time"], summary["group"]) == ("year", "district")
    assert summary["time_decay"] == fit.time_decay
    assert summary["group_share"] == fit.group_share


# --- What is refused -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("formula", "said"),
    [
        ("log(rent) ~ (area | zip)", r"only the intercept can vary. Write \(1 \| zip\)"),
        ("log(rent) ~ area + (1 | zip) + (1 | year)", "has 2 random intercepts and may have one"),
        ("log(rent) ~ area + (1 | zip/year)", "for the groups of one column"),
        ("log(rent) ~ area:(1 | zip)", r"is added with '\+'"),
        ("log(rent) ~ (1 | rent)", "is the response and the group"),
    ],
)
def test_a_formula_that_asks_for_more_says_what_to_type(panel, formula, said):
    with pytest.raises(FormulaError, match=said):
        ds.prepare(panel, formula, **WHERE)


@pytest.mark.parametrize(
    ("formula", "columns"),
    [
        ("log(rent) ~ (1 | zip)", ["Intercept"]),
        ("log(rent) ~ (1 | zip) + area", ["Intercept", "area"]),
        ("log(rent) ~ 0 + area + (1|zip)", ["area"]),
        ("log(rent) ~ area + ( 1 | `zip`) - 1", ["area"]),
    ],
)
def test_a_random_intercept_leaves_the_other_terms_as_they_are(panel, formula, columns):
    problem = ds.prepare(panel, formula, **WHERE)
    assert list(problem.terms) == columns
    assert problem.structure.n_groups == 80


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"zip": 1}, "makes one group"),
        ({"zip": range(320)}, "makes as many groups as records"),
        ({"zip": [None, *range(319)]}, r"The random intercept 'zip' is missing in"),
        ({"year": 2018}, "same in every row"),
        ({"year": "spring"}, "must hold numbers, such as years, or dates, such as 2018-03-31"),
        ({"year": [np.nan, *range(319)]}, "Time 'year' is missing in"),
        ({"year": [np.inf, *range(319)]}, "Time 'year' is infinite in"),
        ({"year": [True, False] * 160}, "must hold numbers or dates"),
    ],
)
def test_columns_that_tell_nothing_are_refused(panel, change, said):
    with pytest.raises(TableError, match=said):
        ds.prepare(panel.assign(**change), BOTH, **WHERE, time="year")


@pytest.mark.parametrize(
    ("time", "said"),
    [
        ("yaer", "no column of the table. Did you mean 'year'"),
        ("rent", "which is the response"),
        ("x", "which is a coordinate"),
    ],
)
def test_a_time_must_be_a_column_of_its_own(panel, time, said):
    with pytest.raises(InputError, match=said):
        ds.prepare(panel, BOTH, **WHERE, time=time)


def test_a_category_of_the_formula_is_no_group(panel):
    with pytest.raises(TableError, match="each of its levels has an effect already"):
        ds.prepare(panel, "log(rent) ~ C(district) + (1 | district)", **WHERE)


def test_dates_are_days_since_the_first(panel):
    text = panel["year"].astype(str) + "-01-31"
    for column in (text, pd.to_datetime(text)):
        structure = ds.prepare(panel.assign(day=column), BOTH, **WHERE, time="day").structure
        assert structure.time_unit == "day"
        assert sorted(set(structure.times)) == [0.0, 365.0, 730.0, 1096.0]


@pytest.mark.parametrize(
    "call",
    [
        partial(fit_bracketed, cuts=[400.0, 600.0]),
        partial(fit_multivariate, groups="district"),
        partial(fit_heaped, range=(0, None)),
        fit_adaptive,
    ],
)
def test_other_models_refuse_them(panel, call):
    problem = ds.prepare(panel, "log(rent) ~ log(area)", **WHERE, time="year")
    with pytest.raises(InputError, match='time="year" is for the Gaussian model'):
        call(problem, **DIRECT)


def test_counts_refuse_them(panel):
    problem = ds.prepare(panel.assign(n=panel.index % 5), "n ~ area", **WHERE, time="year")
    with pytest.raises(InputError, match="is for the Gaussian model"):
        fit_counts(problem, seed=1, progress=False)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"covariance": "vecchia"}, "needs the exact covariance"),
        ({"covariance": "predictive_process"}, "needs the exact covariance"),
        ({"cov_model": "matern32"}, "leave cov_model out, or the time"),
        ({"program": "natural"}, "neither a time nor groups"),
        ({"cluster": 2}, "need sums over records"),
        ({"time_decay": -1.0}, "time_decay must be a number from 0"),
        ({"group_share": 0.2}, r"group_share needs groups: add \(1 \| column\)"),
    ],
)
def test_a_fit_refuses_what_has_no_time_before_it_samples(panel, how, said):
    problem = ds.prepare(panel, "log(rent) ~ log(area)", **WHERE, time="year")
    with pytest.raises(InputError, match=said):
        ds.fit(problem, **how, **(DIRECT | {"engine": "none"}))


def test_beyond_the_limit_of_auto_the_limit_is_said(panel, monkeypatch):
    problem = ds.prepare(panel, "log(rent) ~ log(area)", **WHERE, time="year")
    for place in (approximations, "dsstan.models.held"):
        owner = __import__(place, fromlist=["x"]) if isinstance(place, str) else place
        monkeypatch.setattr(owner, "EXACT_LIMIT", 300)
    with pytest.raises(InputError, match='320 records inform the fit, and covariance="auto" is ex'):
        ds.fit(problem, **DIRECT)
    assert ds.fit(problem, covariance="exact", time_decay=0.1, **DIRECT).time_decay == 0.1


def test_one_time_among_the_records_that_inform_the_fit_is_refused(panel):
    gaps = panel.assign(rent=panel["rent"].where(panel["year"] == 2018))
    problem = ds.prepare(gaps, "log(rent) ~ log(area)", **WHERE, time="year", missing="draw")
    with pytest.raises(InputError, match="have one 'year', so nothing can be learnt about time"):
        ds.fit(problem, **DIRECT)


def test_a_decay_in_time_needs_a_time(small):
    with pytest.raises(InputError, match="time_decay needs a time: prepare the table with time="):
        ds.fit(small, time_decay=0.1, **DIRECT)
