"""Moved records and synthetic populations: where they lie, how many there are, what they hold."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from placed_tables import (
    EAST,
    SLOPE,
    home_fit,
    home_intensity,
    home_problem,
    homes,
    unit_mask,
)
from scipy import stats

from dsstan.copies.options import ReleaseOptions
from dsstan.copies.placed import PlacesOptions, check_columns, draw_placed
from dsstan.copies.places.draw import move_places, synthesise_population
from dsstan.copies.places.scatter import group_sizes
from dsstan.copies.synthesis import synthesise
from dsstan.core.errors import ConvergenceError, InputError, ReleaseError
from dsstan.table.planes import as_given, in_plane
from dsstan.table.prepare import prepare
from mc import FALSE_ALARM, z_limit

ROUND_TRIP = 1e-9
"""Kilometres: a projection and back, in double precision."""


class Known:
    """A law whose chances are known, and the same in every draw."""

    def __init__(self, chances):
        self.chances = chances

    def draws(self, counts, number, rng):
        return np.tile(self.chances, (number, 1, 1))


@pytest.fixture(scope="module")
def problem():
    return home_problem(homes())


@pytest.fixture(scope="module")
def moved(problem):
    return move_places(home_intensity(problem, unit_mask()), home_fit(problem), 20, seed=4)


def test_places_have_the_chances_of_their_group(problem):
    mask = unit_mask(3)
    chances = np.random.default_rng(8).dirichlet(np.ones(9), 2)
    intensity = home_intensity(problem, mask, law=Known(chances))
    release = move_places(intensity, problem=problem, copies=40, seed=1)
    seen, sizes = release.counts.sum(axis=0), intensity.counts.sum(axis=1)
    expected = 40 * sizes[:, None] * chances
    statistic = float(np.sum((seen - expected) ** 2 / expected))
    assert FALSE_ALARM / 2 < stats.chi2.cdf(statistic, 2 * 8) < 1.0 - FALSE_ALARM / 2


def test_places_are_uniform_in_their_cell_and_rounded_like_the_table(problem, moved):
    mask = moved.intensity.mask
    inside = []
    for table, sites in zip(moved.tables, moved.sites, strict=True):
        own = table[["x", "y"]].to_numpy()
        np.testing.assert_array_equal(own, sites)
        np.testing.assert_array_equal(own, np.round(own, 3))
        inside.append((own - mask.centres[mask.cell_of(own)]) / mask.width + 0.5)
    # Three decimals are steps of 0.006 of a cell: the test sees them as ties, not as a bias.
    share = np.concatenate(inside).ravel()
    smooth = share + np.random.default_rng(1).uniform(-0.003, 0.003, share.size)
    assert stats.kstest(smooth, "uniform").pvalue > FALSE_ALARM


def test_the_counts_are_those_of_the_published_places(moved):
    C = moved.intensity.mask.n_cells
    for table, counts in zip(moved.tables, moved.counts, strict=True):
        cells = moved.intensity.mask.cell_of(table[["x", "y"]].to_numpy())
        np.testing.assert_array_equal(np.bincount(cells, minlength=C), counts.sum(axis=0))


def test_moved_records_keep_their_covariates_and_leave_out_what_nobody_named(problem, moved):
    assert list(moved.tables[0].columns) == ["x", "y", "size", "price"]
    assert moved.left_out == ("kind", "note")
    for table in moved.tables:
        np.testing.assert_array_equal(np.sort(table["size"]), np.sort(problem.table["size"]))


def test_the_order_of_the_rows_says_nothing_of_the_table(problem):
    named = home_problem(homes(), publish=["note"])
    release = move_places(home_intensity(named, unit_mask()), home_fit(named), 20, seed=4)
    n = named.n_records
    limit = z_limit(20) / np.sqrt(n - 1)
    for table in release.tables:
        assert table.index.equals(pd.RangeIndex(n))
        assert abs(stats.spearmanr(table["note"], np.arange(n)).statistic) < limit
    fixed = sum((t["note"].to_numpy() == np.arange(n)).sum() for t in release.tables)
    assert fixed <= stats.poisson.isf(FALSE_ALARM, 20)  # one fixed point a copy by chance


def test_a_record_whose_cell_holds_no_other_moves_no_place_of_a_release(problem):
    mask = unit_mask()
    here = home_intensity(problem, mask, held_back=1)
    record = int(np.flatnonzero(here.lonely)[0])
    cells = here.cell_index.copy()
    cells[record] = np.flatnonzero(here.counts[here.group_index[record]] == 0)[-1]
    there = replace(here, cell_index=cells)
    assert cells[record] != here.cell_index[record]
    one, other = (move_places(i, problem=problem, copies=3, seed=9) for i in (here, there))
    for first, second in zip(one.tables, other.tables, strict=True):
        pd.testing.assert_frame_equal(first, second)


def test_an_informing_record_does_move_them(problem):
    mask = unit_mask()
    here = home_intensity(problem, mask)
    cells = here.cell_index.copy()
    cells[11] = (cells[11] + 17) % mask.n_cells
    one, other = (
        move_places(i, problem=problem, copies=3, seed=9)
        for i in (here, replace(here, cell_index=cells))
    )
    assert not one.tables[0].equals(other.tables[0])


def test_the_same_seed_gives_the_same_copies_and_another_others(problem, moved):
    again = move_places(home_intensity(problem, unit_mask()), home_fit(problem), 20, seed=4)
    pd.testing.assert_frame_equal(again.tables[7], moved.tables[7])
    other = move_places(home_intensity(problem, unit_mask()), home_fit(problem), 20, seed=5)
    assert not other.tables[7].equals(moved.tables[7])


def test_drawn_numbers_are_negative_binomial(problem):
    intensity = home_intensity(problem, unit_mask())
    rng = np.random.default_rng(2)
    drawn = np.array([group_sizes(intensity, "drawn", rng) for _ in range(4000)])
    for k, size in enumerate(intensity.counts.sum(axis=1)):
        law = stats.nbinom(size, 0.5)  # mean N_k, variance 2 N_k
        ends = law.ppf(np.linspace(0.1, 0.9, 9))
        bins = np.concatenate([[-1.0], ends, [np.inf]])
        expected = 4000 * np.diff(law.cdf(bins))
        seen = np.histogram(drawn[:, k], bins + 0.5)[0]
        statistic = np.sum((seen - expected) ** 2 / expected)
        assert stats.chi2.sf(statistic, 9) > FALSE_ALARM


def test_kept_numbers_keep_every_group(problem):
    intensity = home_intensity(problem, unit_mask())
    release = synthesise_population(
        intensity, copies=5, problem=problem, groups=("kind",), number="kept", seed=1
    )
    true = problem.table["kind"].value_counts().to_dict()
    for table in release.tables:
        assert table["kind"].value_counts().to_dict() == true
    assert release.left_out == ("size", "note", "price")


def test_an_empty_group_stays_empty(problem):
    mask = unit_mask()
    full = home_intensity(problem, mask)
    law = type(full.law)(np.full((3, mask.n_cells), 0.5))
    intensity = replace(full, groups=("flat", "house", "castle"), law=law)
    release = synthesise_population(intensity, copies=4, problem=problem, groups=("kind",), seed=1)
    assert release.counts[:, 2].sum() == 0
    assert set(pd.concat(release.tables)["kind"]) == {"flat", "house"}


def slopes(tables):
    """Least squares of each copy: estimates and variances of size and x."""
    found = []
    for table in tables:
        X = np.column_stack([np.ones(len(table)), table["size"], table["x"]])
        y = np.log(table["price"])
        beta, rest = np.linalg.lstsq(X, y, rcond=None)[:2]
        variance = np.linalg.inv(X.T @ X) * rest / (len(y) - 3)
        found.append((beta[1:], np.diag(variance)[1:]))
    return tuple(map(np.array, zip(*found, strict=True)))


def test_moved_copies_recover_the_slopes_at_the_new_places():
    problem = home_problem(homes(400))
    release = move_places(home_intensity(problem, unit_mask()), home_fit(problem), 20, seed=4)
    estimates, variances = slopes(release.tables)
    # Sampling of the table, and of 20 copies.
    error = np.sqrt(variances.mean(axis=0) * (1.0 + 2.0 / 20))
    assert (np.abs(estimates.mean(axis=0) - [SLOPE, EAST]) < z_limit(2) * error).all()


def test_a_population_draws_its_columns_in_the_order_of_the_chain():
    table = homes(300)
    sizes = prepare(table, "size ~ x", coords=("x", "y"), distance="planar")
    prices = home_problem(table)
    fits = (home_fit(sizes), home_fit(prices))
    intensity = home_intensity(prices, unit_mask())
    release = synthesise(
        fits, 20, places="population", intensity=intensity, groups=("kind",), seed=3
    )
    assert list(release.tables[0].columns) == ["x", "y", "kind", "size", "price"]
    assert release.tables[0]["size"].dtype == table["size"].dtype
    estimates, _ = slopes(release.tables)
    spread = estimates.std(axis=0, ddof=1)
    error = spread * np.sqrt(1.0 + 1.0 / 20)
    assert (np.abs(estimates.mean(axis=0) - [SLOPE, EAST]) < z_limit(2) * error).all()
    assert len({len(one) for one in release.tables}) > 1


def test_a_formula_that_takes_what_nothing_makes_is_refused(problem):
    with pytest.raises(InputError, match="'size', which a synthetic population has only if"):
        synthesise_population(
            home_intensity(problem, unit_mask()), (home_fit(problem),), groups=("kind",)
        )


def test_a_column_to_be_published_that_nothing_makes_is_refused():
    problem = prepare(
        homes(), "log(price) ~ x", coords=("x", "y"), distance="planar", publish=["note"]
    )
    with pytest.raises(InputError, match="publish names 'note', which a synthetic population"):
        synthesise_population(
            home_intensity(problem, unit_mask()), (home_fit(problem),), groups=("kind",)
        )


def test_groups_must_be_named_and_be_those_of_the_intensity(problem):
    intensity = home_intensity(problem, unit_mask())
    with pytest.raises(InputError, match="2 groups and no column"):
        synthesise_population(intensity, problem=problem)
    with pytest.raises(InputError, match="differs within a group"):
        synthesise_population(intensity, problem=problem, groups=("size",))


def test_a_column_that_tells_the_place_is_refused_and_can_be_accepted():
    table = homes()
    table["post"] = np.floor(3 * table["x"]).astype(int).astype(str) + "A"
    table["post"] += np.floor(2 * table["y"]).astype(int).astype(str)
    table["height"] = np.round(10 * np.sin(table["x"]) + table["y"], 4)
    for name in ("post", "height"):
        problem = home_problem(table, publish=[name])
        intensity, fit = home_intensity(problem, unit_mask()), home_fit(problem)
        with pytest.raises(ReleaseError, match=f"{name!r} is much the same at neighbouring"):
            move_places(intensity, fit, 2, accept_few_draws=True)
        release = move_places(intensity, fit, 2, accept_few_draws=True, accept_place=[name])
        assert name in release.tables[0]


def test_a_table_in_its_order_of_prices_can_be_moved():
    problem = home_problem(homes().sort_values("price", ignore_index=True))
    assert move_places(home_intensity(problem, unit_mask()), home_fit(problem), 2).copies == 2


def test_places_of_longitudes_are_published_as_longitudes():
    table = homes()
    table["lon"], table["lat"] = np.round(-122.5 + 0.1 * table.pop("x"), 4), 37.7
    table["lat"] = np.round(37.7 + 0.1 * table.pop("y"), 4)
    problem = prepare(table, "log(price) ~ size", coords=("lon", "lat"), distance="projected")
    sites = problem.sites
    np.testing.assert_allclose(in_plane(problem, as_given(problem, sites)), sites, atol=ROUND_TRIP)
    low, width = sites.min(axis=0), 3.0
    steps = np.arange(5)
    centres = low + width * (np.array([(a, b) for a in steps for b in steps]) + 0.4)
    mask = replace(unit_mask(), centres=centres, width=width, exposure=np.ones(25))
    release = move_places(home_intensity(problem, mask), home_fit(problem), 3, seed=1)
    for copy, where in zip(release.tables, release.sites, strict=True):
        own = copy[["lon", "lat"]].to_numpy()
        np.testing.assert_array_equal(own, np.round(own, 4))
        np.testing.assert_allclose(in_plane(problem, own), where, atol=ROUND_TRIP)
        assert (mask.cell_of(where) >= 0).all()


def test_places_of_whole_numbers_stay_whole_numbers():
    table = homes()
    table[["x", "y"]] = np.rint(1000 * table[["x", "y"]]).astype(np.int64)
    problem = prepare(table, "log(price) ~ size", coords=("x", "y"), distance="planar")
    mask = replace(unit_mask(), centres=1000 * unit_mask().centres, width=1000 / 6)
    release = move_places(home_intensity(problem, mask), home_fit(problem), 2, seed=1)
    assert release.tables[0]["x"].dtype == np.int64


def test_steps_wider_than_a_cell_are_an_error():
    table = homes()
    table[["x", "y"]] = np.round(table[["x", "y"]], 1)
    problem = prepare(table, "log(price) ~ size", coords=("x", "y"), distance="planar")
    with pytest.raises(InputError, match="make wider cells"):
        move_places(home_intensity(problem, unit_mask(25)), home_fit(problem), 2, seed=1)


def test_places_are_addresses_where_there_are_some(problem):
    rng = np.random.default_rng(3)
    mask = replace(unit_mask(), addresses=np.vstack([rng.random((900, 2)), unit_mask().centres]))
    release = move_places(home_intensity(problem, mask), problem=problem, copies=2, seed=1)
    listed = set(map(tuple, mask.addresses))
    assert all(set(map(tuple, sites)) <= listed for sites in release.sites)


def test_points_are_published_as_points(problem):
    geopandas = pytest.importorskip("geopandas")
    table = homes()
    points = geopandas.points_from_xy(table.pop("x"), table.pop("y"))
    own = prepare(geopandas.GeoDataFrame(table, geometry=points), "log(price) ~ size")
    release = move_places(home_intensity(own, unit_mask()), home_fit(own), 2, seed=1)
    first = release.tables[0]
    assert first.active_geometry_name == "geometry"
    np.testing.assert_array_equal(
        np.column_stack([first.geometry.x, first.geometry.y]), release.sites[0]
    )


def test_what_belongs_to_kept_places_is_refused(problem):
    intensity, fit = home_intensity(problem, unit_mask()), home_fit(problem)
    with pytest.raises(InputError, match="noise is for places that are kept"):
        synthesise(fit, 5, places="moved", intensity=intensity, noise=0.1)
    with pytest.raises(InputError, match="needs intensity="):
        synthesise(fit, 5, places="moved")
    with pytest.raises(InputError, match="belongs to synthetic places"):
        synthesise(fit, 5, intensity=intensity)
    with pytest.raises(InputError, match="places must be one of"):
        synthesise(fit, 5, places="blurred", intensity=intensity)


def test_a_release_shows_no_value_of_a_record(moved):
    text = f"{moved!r}\n{moved}\n{moved._repr_html_()}"
    assert "moved places, 20 copies" in text
    assert "left out" in text
    assert not any(f"{value:.2f}" in text for value in moved.problem.table["price"])


def test_a_failed_intensity_says_what_helps_before_any_column_is_fitted(problem):
    short = ReleaseOptions(chains=2, warmup=5, samples=8, copies=3, seed=1, progress=False)
    own = PlacesOptions(
        places="moved", mask=Path("area.gpkg"), surface="own", places_groups=["kind"]
    )
    fitted = []

    def run(**given):
        fitted.append(given)
        more = {name: given[name] for name in ("weights", "start") if name in given}
        return home_fit(problem, **more)

    with pytest.raises(ConvergenceError) as failed:
        draw_placed([(run, short)], problem, own, unit_mask(), 1)
    assert fitted == []
    said = str(failed.value)
    assert "the fit of the intensity of group flat did not pass" in said
    assert "(8 now)" in said or "(5 now)" in said
    assert 'cells=18; 36 now), and so can surface="shared" or surface="none"' in said
    let = replace(short, accept_failed=True)
    assert draw_placed([(run, let)], problem, own, unit_mask(), 1).copies == 3
    assert len(fitted) == 2


def test_a_group_that_is_no_column_is_named_before_the_formula(problem):
    wrong = PlacesOptions(
        places="population", mask=Path("area.gpkg"), places_groups=["knd"], surface="none"
    )
    with pytest.raises(InputError, match=r"=\['knd'\] names no column .* Did you mean 'kind'"):
        check_columns([problem], [ReleaseOptions()], wrong)
