"""Cells of a study area: from polygons, addresses, records or a table."""

from __future__ import annotations

from pathlib import Path

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest
import shapely

import dsstan as ds
from dsstan.core.errors import CoordinateError, DsstanWarning, InputError, TableError
from dsstan.core.spelling import JOB, options_typed_in
from dsstan.table.mask.mask import OUTSIDE, Mask
from dsstan.table.mask.points import mask_of_addresses, mask_of_cells, mask_of_table
from dsstan.table.mask.polygons import mask_of_polygons
from dsstan.table.problem import Problem

UTM = "EPSG:32633"


def table(places: np.ndarray) -> pd.DataFrame:
    value = np.random.default_rng(5).normal(size=len(places))
    return pd.DataFrame({"x": places[:, 0], "y": places[:, 1], "value": value})


@pytest.fixture(scope="module")
def problem() -> Problem:
    places = np.random.default_rng(1).random((60, 2)) * [4.0, 2.0]
    return ds.prepare(table(places), "value ~ 1", coords=("x", "y"), distance="planar")


@pytest.fixture(scope="module")
def holed() -> shapely.Geometry:
    """A rectangle of 4 x 2 with a round hole."""
    return shapely.box(0, 0, 4, 2).difference(shapely.Point(2, 1).buffer(0.7))


def test_the_land_of_the_cells_is_the_area(problem: Problem, holed: shapely.Geometry) -> None:
    mask = mask_of_polygons(gpd.GeoSeries([holed]), problem, width=0.25)
    assert mask.exposure.sum() == pytest.approx(holed.area, rel=1e-12)
    assert mask.n_cells < 16 * 8
    assert mask.cell_of(np.array([[2.0, 1.0], [9.0, 9.0]])).tolist() == [OUTSIDE, OUTSIDE]


def test_cells_is_about_their_number(problem: Problem, holed: shapely.Geometry) -> None:
    mask = mask_of_polygons(gpd.GeoSeries([holed]), problem, cells=500)
    assert 500 <= mask.n_cells < 600  # cells of which an edge cuts a part come on top


def test_a_synthetic_place_is_on_the_land_and_uniform(
    problem: Problem, holed: shapely.Geometry
) -> None:
    mask = mask_of_polygons(gpd.GeoSeries([holed]), problem, width=0.5)
    rng = np.random.default_rng(3)
    cells = np.repeat(np.arange(mask.n_cells), 400)
    places = mask.draw(cells, rng)
    assert shapely.contains_xy(holed, places).all()
    assert (mask.cell_of(places) == cells).all()
    edge = int(np.argmin(mask.exposure))
    land, own = mask.land[edge], places[cells == edge]
    middle = shapely.centroid(land)
    sd = own.std(axis=0) / np.sqrt(len(own))
    away = np.abs(own.mean(axis=0) - [middle.x, middle.y]) / sd
    assert away.max() < 4.5  # false alarm 1e-5


def test_polygons_of_another_crs_come_to_the_unit_of_the_problem(tmp_path: Path) -> None:
    places = np.random.default_rng(1).random((40, 2)) * 1000.0 + [500_000, 5_000_000]
    frame = gpd.GeoDataFrame(
        {"value": np.arange(40.0)}, geometry=gpd.points_from_xy(*places.T), crs=UTM
    )
    problem = ds.prepare(frame, "value ~ 1", distance="projected")
    square = gpd.GeoSeries([shapely.box(500_000, 5_000_000, 501_000, 5_001_000)], crs=UTM)
    path = tmp_path / "area.gpkg"
    square.to_crs("EPSG:4326").to_file(path)
    mask = mask_of_polygons(path, problem, width=0.1)
    assert mask.exposure.sum() == pytest.approx(1.0, rel=1e-4)  # square kilometres
    assert (mask.cell_of(problem.sites) != OUTSIDE).all()
    with pytest.raises(CoordinateError, match="polygons has no coordinate reference system"):
        mask_of_polygons(gpd.GeoSeries([square.iloc[0]]), problem)
    bare = ds.prepare(
        pd.DataFrame({"value": np.arange(40.0), "x": places[:, 0], "y": places[:, 1]}),
        "value ~ 1",
        coords=("x", "y"),
        distance="planar",
    )
    with (
        options_typed_in(JOB),
        pytest.raises(CoordinateError, match=r'the table has no .*: set it, crs = "EPSG:..."'),
    ):
        mask_of_polygons(square, bare)


def test_polygons_must_be_polygons_with_an_area(problem: Problem) -> None:
    with pytest.raises(CoordinateError, match="something else in 1 row"):
        mask_of_polygons(gpd.GeoSeries([shapely.Point(0, 0)]), problem)
    with pytest.raises(CoordinateError, match="no area"):
        mask_of_polygons(gpd.GeoSeries([shapely.Polygon()]), problem)
    with pytest.raises(InputError, match="not both"):
        mask_of_polygons(gpd.GeoSeries([shapely.box(0, 0, 1, 1)]), problem, cells=3, width=0.1)


@pytest.mark.filterwarnings("ignore:.*at no address of the list")
def test_addresses_count_and_places_are_among_them(problem: Problem) -> None:
    rng = np.random.default_rng(2)
    addresses = np.round(rng.random((500, 2)) * [4.0, 2.0], 1)  # many on edges, many repeated
    mask = mask_of_addresses(addresses, problem, width=0.5)
    distinct = np.unique(addresses, axis=0)
    assert mask.exposure.sum() == len(distinct)
    assert (np.bincount(mask.cell_of(distinct)) == mask.exposure).all()
    cells = rng.integers(mask.n_cells, size=300)
    places = mask.draw(cells, rng)
    assert (mask.cell_of(places) == cells).all()
    assert {tuple(p) for p in places} <= {tuple(a) for a in distinct}


@pytest.mark.filterwarnings("ignore:.*at no address of the list")
def test_cells_of_addresses_are_about_as_many_as_asked(problem: Problem) -> None:
    addresses = np.random.default_rng(2).normal(size=(5000, 2))
    assert 180 <= mask_of_addresses(addresses, problem, cells=200).n_cells <= 200


def test_a_mask_of_the_table_holds_its_records_and_warns(problem: Problem) -> None:
    with pytest.warns(DsstanWarning, match="tells where records are"):
        mask = mask_of_table(problem, cells=80)
    assert (mask.cell_of(problem.sites) != OUTSIDE).all()
    assert 60 <= mask.n_cells <= 80


def test_a_table_of_cells_keeps_exposure_and_covariates() -> None:
    x, y = (a.ravel() for a in np.meshgrid(np.arange(3.0), np.arange(4.0)))
    cells = pd.DataFrame({"x": x, "y": y, "people": 1.0 + x, "height": y})
    mask = mask_of_cells(cells, coords=("x", "y"), exposure="people")
    assert mask.width == 1.0
    assert list(mask.covariates) == ["height"]
    np.testing.assert_array_equal(mask.exposure, 1.0 + x)
    with pytest.raises(TableError, match="exposure 'people' is not above 0 in 1 row"):
        mask_of_cells(
            cells.assign(people=[1.0, 0.0] + [1.0] * 10), coords=("x", "y"), exposure="people"
        )
    with pytest.raises(CoordinateError, match="overlap"):
        mask_of_cells(pd.concat([cells, cells.iloc[:1]]), coords=("x", "y"))
    with pytest.raises(CoordinateError, match="overlap"):
        mask_of_cells(cells, coords=("x", "y"), width=1.5)
    with pytest.raises(TableError, match="no column 'z'"):
        mask_of_cells(cells, coords=("x", "y"), exposure="z")


def test_a_mask_refuses_rows_that_do_not_agree() -> None:
    centres = np.array([[0.0, 0.0], [1.0, 0.0]])
    with pytest.raises(InputError, match="one row a cell"):
        Mask(centres, 1.0, np.ones(3))
    with pytest.raises(InputError, match="above 0"):
        Mask(centres, 1.0, np.array([1.0, 0.0]))


def test_a_list_of_addresses_that_is_the_table_itself_counts_as_the_table(
    problem: Problem,
) -> None:
    with pytest.warns(DsstanWarning, match="are places of the table"):
        mask = mask_of_addresses(problem.sites, problem, cells=20)
    assert mask.source == "table"


def test_records_at_no_address_are_counted(problem: Problem) -> None:
    elsewhere = np.vstack([problem.sites[1:], problem.sites[1:] + 0.01, problem.sites[1:] + 0.02])
    with pytest.warns(DsstanWarning, match="^1 of .* places of the table are at no address"):
        mask = mask_of_addresses(elsewhere, problem, cells=20)
    assert mask.source == "addresses"
