"""Other ways to publish a table, held against small cases worked by hand."""

from __future__ import annotations

import dataclasses
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.spatial.distance import cdist

import dsstan as ds
from dsstan.analysis.spatial_surfaces import surface_correlation
from dsstan.comparison.baselines import (
    _error,
    aggregate,
    compare_baselines,
    displace,
    kernel,
    smooth,
    standard_baselines,
    suppress,
    top_code,
)
from dsstan.copies.result import Synthesis
from dsstan.core.errors import InputError
from dsstan.covariance.copy_law import projection
from dsstan.covariance.latent import LatentModel
from dsstan.models.posterior import parameters_at
from dsstan.models.weights import own_weights
from dsstan.risk.intruder.attacker import attack
from dsstan.risk.intruder.leave_one_out import leave_one_out_precision

EXACT = 1e-10
"""The exact tier of the design: two ways to one sum differ by rounding only."""

MC_ERRORS = 5.0
"""Standard errors allowed to a mean over displaced records: false alarm below 1e-6."""

FAST = {"engine": "embedded", "chains": 4, "warmup": 600, "samples": 800}


def line(values, places=None, formula="value ~ 1", **columns):
    """Records along a line, one a unit apart unless told otherwise."""
    n = len(values)
    u = np.arange(n) * 1.0 if places is None else places
    table = pd.DataFrame({"u": u, "v": np.zeros(n), "value": values, **columns})
    return ds.prepare(table, formula, coords=("u", "v"))


@pytest.fixture(scope="module")
def release(kept):
    """Four copies of the small table."""
    return ds.synthesise(kept, 4, seed=2)


@pytest.fixture(scope="module")
def others(release):
    """The standard baselines of it, suppression by a short fit."""
    return standard_baselines(release, seed=3, **FAST)


@pytest.fixture(scope="module")
def compared(release, others):
    """All of them in one table, by method."""
    return compare_baselines(release, others).set_index("method")


# Kernel smoothing


def test_smoothed_values_are_weighted_means_with_rows_that_sum_to_one():
    # Weights 1 and 1/2 at distance log 2, 1/4 at 2 log 2.
    problem = line([0.0, 6.0, 14.0], np.log(2) * np.arange(3))
    shown = smooth(problem, 1.0)
    np.testing.assert_allclose(
        shown.values[0],
        [(0 + 3 + 3.5) / 1.75, (0 + 6 + 7) / 2, (0 + 3 + 14) / 1.75],
        rtol=EXACT,
    )
    np.testing.assert_allclose(kernel(problem.sites, 0.3).sum(axis=1), 1.0, rtol=EXACT)
    assert shown.tables[0]["u"].equals(problem.table["u"])


def test_under_a_log_the_smoothed_value_is_a_geometric_mean():
    problem = line([1.0, 16.0, 1.0], np.array([0.0, np.log(3), 100.0]), "log(value) ~ 1")
    np.testing.assert_allclose(smooth(problem, 1.0).values[0, :2], [2.0, 8.0], rtol=EXACT)


def test_smoothing_leaves_an_isolated_record_almost_as_it_is(small):
    far = int(np.argmax(small.sites[:, 0]))
    nearest = np.sort(cdist(small.sites[[far]], small.sites)[0])[1]
    shown = small.transform.forward(smooth(small, nearest / 20).values[0])
    assert abs(shown[far] - small.y[far]) < 60 * np.exp(-20) * np.ptp(small.y)
    assert np.median(np.abs(shown - small.y)) > 0.05


def test_who_knows_the_others_undoes_smoothing_from_any_row(small):
    W = kernel(small.sites, 0.2)
    shown = small.transform.forward(smooth(small, 0.2).values[0])
    for i in (0, 7, 59):
        known = shown[i] - np.delete(W[i], i) @ np.delete(small.y, i)
        assert known / W[i, i] == pytest.approx(small.y[i], rel=1e-9)
    assert smooth(small, 0.2).revealed.all()


def test_who_knows_the_bandwidth_undoes_smoothing_of_distinct_sites_without_knowing_any():
    rng = np.random.default_rng(1)
    places = rng.uniform(size=40)
    problem = line(rng.normal(size=40), places)
    shown = smooth(problem, 0.3).values[0]
    solved = np.linalg.solve(kernel(problem.sites, 0.3), shown)
    np.testing.assert_allclose(solved, problem.y, atol=1e-6)


def test_records_of_one_site_are_smoothed_to_one_value():
    shown = smooth(line([1.0, 5.0, 9.0], np.array([0.0, 0.0, 50.0])), 0.5).values[0]
    np.testing.assert_allclose(shown, [3.0, 3.0, 9.0], rtol=EXACT)


# Areas


def test_an_area_shows_the_means_of_its_records_and_their_count():
    problem = line([1.0, 3.0, 7.0, 2.0, 4.0], formula="value ~ x", x=[0.0, 2.0, 1.0, 5.0, 3.0])
    shown = aggregate(problem, 2.0, minimum=2)
    table = shown.tables[0]
    np.testing.assert_allclose(table["value"], [2.0, 4.5], rtol=EXACT)
    np.testing.assert_allclose(table["x"], [1.0, 3.0], rtol=EXACT)
    np.testing.assert_allclose(table["u"], [0.5, 2.5], rtol=EXACT)
    np.testing.assert_array_equal(table["count"], [2, 2])
    np.testing.assert_array_equal(shown.present, [1, 1, 1, 1, 0])
    np.testing.assert_array_equal(shown.rows, [0, 0, 1, 1])
    np.testing.assert_allclose(shown.values, [[2.0, 2.0, 4.5, 4.5]], rtol=EXACT)


def test_small_areas_are_merged_with_the_nearest():
    problem = line([1.0, 3.0, 7.0, 2.0, 4.0])
    shown = aggregate(problem, 2.0, minimum=2, small="merge")
    assert shown.present.all()
    np.testing.assert_allclose(shown.tables[0]["value"], [2.0, 13 / 3], rtol=EXACT)
    np.testing.assert_array_equal(shown.tables[0]["count"], [2, 3])


def test_under_a_log_an_area_shows_a_geometric_mean():
    problem = line([1.0, 16.0, 3.0, 3.0], formula="log(value) ~ 1")
    np.testing.assert_allclose(aggregate(problem, 2.0, minimum=2).tables[0]["value"], [4.0, 3.0])


def test_who_knows_the_others_undoes_the_mean_of_an_area_and_not_a_suppressed_one():
    problem = line([1.0, 3.0, 7.0, 2.0, 4.0])
    shown = aggregate(problem, 2.0, minimum=2)
    assert 2 * shown.tables[0]["value"][1] - problem.y[2] == pytest.approx(problem.y[3])
    np.testing.assert_array_equal(shown.revealed, shown.present)


@pytest.mark.parametrize("minimum", [1, 5])
def test_one_area_of_all_records_is_an_area(minimum):
    shown = aggregate(line([-1.0, -3.0, 0.0, 2.0, 4.0]), 1e6, minimum=minimum)
    np.testing.assert_allclose(shown.tables[0]["value"], [0.4], rtol=EXACT)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"size": 1.0, "minimum": 5}, "no area has 5 records"),
        ({"size": 9.0, "minimum": 6, "small": "merge"}, "no area has 6 records"),
        ({"size": 1.0, "minimum": 0}, "minimum must be"),
        ({"size": 1.0, "minimum": 1.5}, "minimum must be"),
        ({"size": 1.0, "small": "drop"}, "suppress"),
        ({"size": -1.0}, "size must be positive"),
        ({"size": np.nan}, "size must be positive"),
    ],
)
def test_impossible_areas_are_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        aggregate(line([1.0, 3.0, 7.0, 2.0, 4.0]), **arguments)


# Displacement


def test_displacement_changes_distances_and_not_the_response(small):
    shown = displace(small, 0.1, seed=1)
    table = shown.tables[0]
    pd.testing.assert_series_equal(table["value"], small.table["value"])
    pd.testing.assert_series_equal(table["x"], small.table["x"])
    step = np.linalg.norm(table[["east", "north"]].to_numpy() - small.coords, axis=1)
    assert (step > 0).all()
    assert (step <= 0.1).all()
    assert not np.allclose(cdist(shown.sites, shown.sites), cdist(small.sites, small.sites))
    assert len(np.unique(shown.sites, axis=0)) == 60 > small.n_sites
    assert shown.revealed.all()


def test_places_are_uniform_in_the_disc():
    n = 4000
    problem = line(np.arange(n) % 3 * 1.0, np.arange(n) % 2 * 1.0)
    step = displace(problem, 2.0, seed=5).sites - problem.sites
    share = (step**2).sum(axis=1) / 4.0  # uniform from 0 to 1
    assert stats.kstest(share, "uniform").pvalue > 1e-5
    assert np.all(np.abs(step.mean(axis=0)) < MC_ERRORS / np.sqrt(n))


def test_the_same_seed_moves_to_the_same_places(small):
    first, second, third = (displace(small, 0.1, seed=s) for s in (1, 1, 2))
    np.testing.assert_array_equal(first.sites, second.sites)
    assert not np.array_equal(first.sites, third.sites)


@pytest.mark.parametrize("kind", ["lonlat", "metres", "points"])
def test_projected_places_come_back_in_the_coordinates_they_came_in(kind):
    rng = np.random.default_rng(3)
    lon, lat = -122.4 + 0.05 * rng.uniform(size=20), 37.7 + 0.05 * rng.uniform(size=20)
    table = pd.DataFrame({"lon": lon, "lat": lat, "value": rng.normal(size=20)})
    if kind == "lonlat":
        arguments = {"coords": ("lon", "lat"), "distance": "projected"}
    else:
        import geopandas

        points = geopandas.points_from_xy(lon, lat, crs="EPSG:4326")
        table = geopandas.GeoDataFrame(table[["value"]], geometry=points)
        arguments = {"distance": "projected"}
        if kind == "metres":
            table = table.to_crs("EPSG:32610")
            table = pd.DataFrame(
                {"x": table.geometry.x, "y": table.geometry.y, "value": table["value"]}
            )
            arguments |= {"coords": ("x", "y"), "crs": "EPSG:32610"}
    problem = ds.prepare(table, "value ~ 1", **arguments)
    shown = displace(problem, 1.5, seed=2)
    again = ds.prepare(shown.tables[0], "value ~ 1", **arguments)
    np.testing.assert_allclose(again.sites, shown.sites, atol=1e-6)
    step = np.linalg.norm(again.sites - problem.sites, axis=1)
    assert 0.3 < step.mean() < 1.5


# Top-coding


def test_values_above_the_quantile_are_published_as_it():
    problem = line([5.0, -1.0, 9.0, 2.0, 7.0])
    shown = top_code(problem, 0.5)
    np.testing.assert_array_equal(shown.values, [[5.0, -1.0, 5.0, 2.0, 5.0]])
    np.testing.assert_array_equal(shown.revealed, [False, True, False, True, False])


def test_an_integer_column_stays_one_when_top_coded():
    table = top_code(line(np.array([5, 1, 9, 2, 7])), 0.6).tables[0]
    assert table["value"].dtype == np.int64
    np.testing.assert_array_equal(table["value"], [5, 1, 5, 2, 5])


def test_a_top_coded_record_is_left_with_his_law_cut_from_below(free, small):
    draws = {k: np.repeat(v[:1, :1], 3, axis=1) for k, v in free.draws.items()}
    one = dataclasses.replace(free, draws=draws)
    shown = top_code(small, 0.9)
    without = leave_one_out_precision(one, draws=2) ** -0.5
    sd = _error(shown, one, without, 2)[0]
    P = projection(LatentModel(one), parameters_at(one, 0, 0))
    cut = np.log(shown.top)
    for i in np.flatnonzero(~shown.revealed):
        mean, spread = small.y[i] - (P @ small.y)[i] / P[i, i], P[i, i] ** -0.5
        x = cut + spread * (np.arange(200_000) + 0.5) * 1e-4
        weight = np.exp(-0.5 * ((x - mean) / spread) ** 2)
        weight /= weight.sum()
        assert sd[i] == pytest.approx(np.sqrt(weight @ (x - weight @ x) ** 2), rel=1e-5)
        assert sd[i] < without[i]
    assert (sd[shown.revealed] == 0).all()


@pytest.mark.parametrize(("quantile", "message"), [(0.0, "between"), (1.0, "between"), (0.9, "no")])
def test_a_cut_that_cuts_nothing_is_refused(quantile, message):
    with pytest.raises(InputError, match=message):
        top_code(line([1.0, 2.0, 2.0, 2.0, 2.0]), quantile)


# Suppression


def test_suppressed_records_are_absent_and_keep_what_no_release_tells(release, others, free):
    shown, flagged = others[0], release.fit.flagged
    assert shown.name == "suppressed"
    np.testing.assert_array_equal(shown.present, ~flagged)
    assert len(shown.tables) == 4
    for table in shown.tables:
        assert table.index.equals(release.problem.table.index[~flagged])
    without = leave_one_out_precision(free, draws=20) ** -0.5
    for sd in shown.error_sd:
        np.testing.assert_allclose(sd[flagged], without[flagged], rtol=EXACT)
        assert (sd[~flagged] < without[~flagged]).all()
    assert (shown.error_sd[0] <= shown.error_sd[1]).all()
    assert not shown.revealed.any()


def test_with_none_flagged_suppression_leaves_all(free, small):
    shown = suppress(free, np.zeros(60, dtype=bool), 2, seed=1, **FAST)
    assert shown.present.all()
    assert shown.values.shape == (2, 60)


@pytest.mark.parametrize(
    ("flagged", "message"),
    [
        (np.ones(60), "leaves 0"),
        (np.arange(60) > 2, "leaves 3"),
        (np.ones(5), "one value a record"),
    ],
)
def test_suppression_that_leaves_too_few_is_refused(free, flagged, message):
    with pytest.raises(InputError, match=message):
        suppress(free, flagged, 2, **FAST)


@pytest.mark.parametrize(("flagged", "there"), [(0, False), (3, True), (60, False)])
def test_the_standard_set_suppresses_where_some_but_not_all_are_flagged(release, flagged, there):
    weights = own_weights(release.problem, np.arange(60) < flagged)
    fit = dataclasses.replace(release.fit, weights=weights)
    found = standard_baselines(dataclasses.replace(release, fit=fit), seed=1, **FAST)
    assert [m.name.split()[0] for m in found][-4:] == [
        "smoothed",
        "areas",
        "displaced",
        "top-coded",
    ]
    assert (found[0].name == "suppressed") is there


@pytest.mark.parametrize("make", [smooth, displace])
@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, np.inf, True])
def test_lengths_that_are_not_positive_and_finite_are_refused(small, make, value):
    with pytest.raises(InputError, match="positive and finite"):
        make(small, value)


# The comparison


def test_the_original_has_all_risk_and_all_utility(compared):
    row = compared.loc["original"]
    assert (row["copies"], row["records"]) == (1, 60)
    for group in ("flagged", "unflagged"):
        assert row[f"share_{group}"] == 1
        assert row[f"sd_{group}"] == 0
    assert row["overlap_x"] == 1
    assert row["surface"] == pytest.approx(1.0)


def test_rows_are_the_methods_and_no_cell_is_nan_but_an_absent_groups(compared, release):
    names = [name.split()[0] for name in compared.index]
    assert names == [
        "original", "unrestricted", "restricted", "suppressed", "smoothed", "areas", "displaced",
        "top-coded",
    ]  # fmt: skip
    assert compared.loc["suppressed", "flagged"] == 0
    assert compared.loc["suppressed", "share_flagged"] is pd.NA
    filled = compared.drop(columns="share_flagged").astype(float)
    assert np.isfinite(filled.to_numpy()).all()
    assert compared.drop("suppressed")["share_flagged"].notna().all()


def test_shares_and_estimates_of_copies_are_those_of_the_stages(compared, release):
    risks, kept_terms = ds.disclosure(release), ds.utility(release)
    for fit in ("unrestricted", "restricted"):
        for group in ("flagged", "unflagged"):
            share = risks.share("within_relative", fit, group)
            assert compared.loc[fit, f"share_{group}"] == pytest.approx(share)
        for term in ("Intercept", "x"):
            row = kept_terms.get(fit, term)
            for name in ("estimate", "low", "high"):
                assert compared.loc[fit, f"{name}_{term}"] == pytest.approx(row[name])


def test_an_intruders_sd_is_that_of_the_attacker_and_0_where_the_method_reveals(compared, release):
    found = attack(release, draws=20)
    flagged = release.fit.flagged
    for column, variances in (("sd", "known"), ("sd_most", "fixed")):
        sd = found.sd(variances=variances)
        assert compared.loc["restricted", f"{column}_flagged"] == pytest.approx(sd[flagged].min())
        least = sd[~flagged].min()
        assert compared.loc["restricted", f"{column}_unflagged"] == pytest.approx(least)
    for name in compared.index[4:]:
        assert compared.loc[name, "sd_unflagged"] == 0


def test_displaced_values_have_all_the_share_and_lose_the_surface(compared):
    row = next(compared.loc[n] for n in compared.index if n.startswith("displaced"))
    assert row["share_unflagged"] == 1
    assert row["overlap_x"] == pytest.approx(1.0)
    assert row["surface"] < 0.999


def test_a_term_of_the_place_is_computed_again_from_displaced_places(release, others):
    formula = "log(value) ~ x + east"
    table = compare_baselines(release, others[3:4], formula=formula, draws=2).set_index("method")
    name = others[3].name
    again = ds.prepare(others[3].tables[0], formula, coords=("east", "north"))
    expected = np.linalg.lstsq(again.X, again.y, rcond=None)[0]
    assert table.loc[name, "estimate_east"] == pytest.approx(expected[2])
    assert table.loc[name, "estimate_east"] != table.loc["original", "estimate_east"]


def test_areas_are_regressed_with_their_counts_as_weights(small, release):
    shown = aggregate(small, 0.2, minimum=2)
    table = compare_baselines(release, [shown], draws=2).set_index("method")
    areas = shown.tables[0]
    X = np.column_stack([np.ones(len(areas)), areas["x"]])
    root = np.sqrt(areas["count"].to_numpy())[:, None]
    b, rss, _, _ = np.linalg.lstsq(X * root, np.log(areas["value"]) * root[:, 0], rcond=None)
    df = len(areas) - 2
    se = np.sqrt(rss[0] / df * np.linalg.inv((X * root).T @ (X * root))[1, 1])
    assert table.loc[shown.name, "estimate_x"] == pytest.approx(b[1])
    assert table.loc[shown.name, "high_x"] == pytest.approx(b[1] + stats.t.ppf(0.975, df) * se)
    assert table.loc[shown.name, "records"] == shown.present.sum() < 60


@pytest.mark.filterwarnings("ignore:two copies")
def test_copies_equal_to_the_original_have_its_risk_and_its_estimates(release):
    same = dataclasses.replace(
        release,
        values=np.tile(release.problem.original(), (2, 1)),
        draw_index=release.draw_index[:2],
    )
    row = compare_baselines(same, [], draws=2).set_index("method").loc["restricted"]
    assert row["share_flagged"] == row["share_unflagged"] == 1
    assert row["surface"] == pytest.approx(1.0)
    assert row["overlap_x"] > 0.97  # a normal interval for copies, a t interval for the data


def test_two_copies_give_numbers_and_one_is_refused(kept):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ds.errors.DsstanWarning)
        table = compare_baselines(ds.synthesise(kept, 2, seed=1), [], draws=2)
    assert np.isfinite(table.drop(columns="method").astype(float).to_numpy()).all()
    with pytest.raises(InputError, match="at least two copies"):
        compare_baselines(ds.synthesise(kept, 1, seed=1), [], draws=2)


@pytest.mark.parametrize(("flagged", "gone"), [(0, "flagged"), (60, "unflagged")])
def test_a_group_without_records_has_no_columns(release, flagged, gone):
    weights = own_weights(release.problem, np.arange(60) < flagged)
    fit = dataclasses.replace(release.fit, weights=weights, A=1.0 - weights.a)
    table = compare_baselines(dataclasses.replace(release, fit=fit), [], draws=2)
    assert f"share_{gone}" not in table.columns
    assert f"sd_{gone}" not in table.columns
    assert f"sd_most_{gone}" not in table.columns
    assert table.notna().all(axis=None)


def test_an_unrestricted_release_stands_beside_the_original_alone(free):
    table = compare_baselines(ds.synthesise(free, 3, seed=1), [], draws=2)
    assert list(table["method"]) == ["original", "unrestricted"]


def test_negative_values_and_zeros_and_ties_give_numbers(free):
    n = 24
    table = pd.DataFrame(
        {"u": np.arange(n) % 6, "v": np.arange(n) // 6, "value": np.arange(n) % 5 - 2.0}
    )
    problem = ds.prepare(table, "value ~ 1", coords=("u", "v"))
    fit = dataclasses.replace(free, problem=problem, A=np.ones(n))
    noisy = problem.y + np.random.default_rng(1).normal(size=(3, n))
    release = Synthesis(fit, noisy, "w", np.zeros((3, 2), dtype=np.intp), 1, 0.0)
    methods = standard_baselines(release, reach=2.0, seed=1)
    assert not any(m.name.startswith("top") for m in methods)  # ties: nothing would be cut
    methods += [aggregate(problem, 2.0, minimum=2), top_code(problem, 0.5)]
    found = compare_baselines(release, methods, draws=2)
    assert np.isfinite(found.drop(columns="method").astype(float).to_numpy()).all()
    # An analyst's log of copies that fell below zero.
    positive = problem.table.assign(value=problem.table["value"] + 3.0)
    above = ds.prepare(positive, "value ~ 1", coords=("u", "v"))
    low = dataclasses.replace(
        release, fit=dataclasses.replace(fit, problem=above), values=noisy - 5
    )
    with pytest.raises(InputError, match="unrestricted shows values that have no log"):
        compare_baselines(low, [], formula="log(value) ~ 1", draws=2)


def test_what_does_not_belong_together_is_refused(release, small):
    with pytest.raises(InputError, match="another problem"):
        compare_baselines(release, [top_code(line([1.0, 2.0, 3.0]), 0.5)], draws=2)
    with pytest.raises(InputError, match="response must be 'value'"):
        compare_baselines(release, [], formula="x ~ 1", draws=2)
    with pytest.raises(InputError, match="leaves 1 rows, too few for the 2 terms"):
        compare_baselines(release, [aggregate(small, 100.0)], draws=2)


def test_a_flat_surface_has_correlation_zero():
    assert surface_correlation(np.arange(5.0), np.full(5, 3.0)) == 0.0
    assert surface_correlation(np.full(5, 3.0), np.full(5, 3.0) + 1e-14) == 0.0
    assert surface_correlation(np.arange(5.0), -2 * np.arange(5.0)) == pytest.approx(-1.0)
