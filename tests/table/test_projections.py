"""How true distances are: measured on the ellipsoid, in a plane that keeps them, or said to be off.

What a table that no plane suits is refused for is in test_bad_tables.py.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pyproj import CRS, Geod, Transformer
from scipy.spatial.distance import pdist

from conftest import case
from dsstan.core.errors import CoordinateError, DsstanWarning
from dsstan.table.places.projections import TRUE_WITHIN
from dsstan.table.prepare import prepare
from dsstan.table.problem import Problem

N = 60
WEB = {"formula": "log(rent) ~ log(area)", "coords": ("X", "Y"), "crs": "EPSG:3857"}


def kilometres(longitude: Any, latitude: Any) -> Any:
    """Lengths of the geodesics between all pairs, in the order of pdist."""
    i, j = np.triu_indices(len(longitude), k=1)
    of = np.asarray(longitude), np.asarray(latitude)
    return Geod(ellps="WGS84").inv(of[0][i], of[1][i], of[0][j], of[1][j])[2] / 1000.0


def error(problem: Problem, longitude: Any, latitude: Any) -> float:
    """Largest relative error of a distance in the plane."""
    return float(np.abs(pdist(problem.sites) / kilometres(longitude, latitude) - 1).max())


def region(west: float, east: float, south: float, north: float) -> pd.DataFrame:
    """A table whose places are spread over a part of the earth, two of them at its corners."""
    rng = np.random.default_rng(4)
    return pd.DataFrame(
        {
            "lon": [west, east, *rng.uniform(west, east, N - 2)],
            "lat": [south, north, *rng.uniform(south, north, N - 2)],
            "rent": rng.uniform(300.0, 900.0, N),
        }
    )


def prepared(table: pd.DataFrame) -> Problem:
    return prepare(table, "log(rent) ~ 1", coords=("lon", "lat"), distance="projected")


def test_distances_of_web_mercator_are_measured_true_with_a_note() -> None:
    table = case("webmerc.csv")
    with pytest.warns(DsstanWarning, match=r"EPSG:3857.*1\.6.*measured in EPSG:32631"):
        problem = prepare(table, **WEB, distance="projected")
    back = Transformer.from_crs("EPSG:3857", "EPSG:4326", always_xy=True)
    assert error(problem, *back.transform(table["X"], table["Y"])) < TRUE_WITHIN
    np.testing.assert_array_equal(problem.coords, table[["X", "Y"]])
    assert (problem.crs, problem.sites_crs) == ("EPSG:3857", "EPSG:32631")
    assert "EPSG:3857, EPSG:32631" in str(problem)


def test_web_mercator_alone_is_refused_with_what_to_type() -> None:
    with pytest.raises(CoordinateError, match=r'1\.6 to 1\.61 times.*distance="projected"'):
        prepare(case("webmerc.csv"), **WEB)


def test_web_mercator_as_it_is_is_said_to_be_off() -> None:
    with pytest.warns(DsstanWarning, match=r"1\.6 to 1\.61 times the true ones"):
        problem = prepare(case("webmerc.csv"), **WEB, distance="planar")
    assert problem.unit == "metre"


def test_metres_of_a_national_grid_are_taken_as_they_are() -> None:
    table = case("bng.csv")
    where: dict[str, Any] = {"coords": ("Easting", "Northing"), "crs": "EPSG:27700"}
    with warnings.catch_warnings():
        warnings.simplefilter("error", DsstanWarning)
        problem = prepare(table, WEB["formula"], **where, distance="projected")
    np.testing.assert_array_equal(problem.sites, table[["Easting", "Northing"]] * 0.001)


@pytest.mark.parametrize(
    ("west", "east", "south", "north", "system"),
    [
        (6.0, 15.0, 47.0, 55.0, "EPSG:32632"),
        (-80.0, -66.0, -56.0, -17.0, "+proj=tmerc"),
        (-107.0, -93.0, 26.0, 36.0, "+proj=lcc"),
        (10.0, 40.0, -5.0, 5.0, "+proj=merc"),
        (-179.0, 180.0, 84.5, 89.0, "+proj=stere"),
    ],
    ids=["a country", "tall", "wide", "at the equator", "around the pole"],
)
def test_distances_of_a_region_are_true_without_a_word(
    west: float, east: float, south: float, north: float, system: str
) -> None:
    table = region(west, east, south, north)
    with warnings.catch_warnings():
        warnings.simplefilter("error", DsstanWarning)
        problem = prepared(table)
    assert error(problem, table["lon"], table["lat"]) < TRUE_WITHIN
    assert str(problem.sites_crs).startswith(system)


def test_the_middle_of_a_region_across_the_edge_of_the_map_is_in_it() -> None:
    """From 177 east to 177.4 west the middle is 179.8 east, of the last zone and not the first."""
    table = region(177.0, 182.6, -20.0, -16.0)
    across = table.assign(lon=(table["lon"] + 180.0) % 360.0 - 180.0)
    assert str(prepared(across).sites_crs) == "EPSG:32760"


def test_distances_of_a_continent_are_said_to_be_off_by_as_much_as_they_are() -> None:
    table = region(-125.0, -67.0, 25.0, 49.0)
    with pytest.warns(DsstanWarning, match="No plane keeps all distances") as said:
        problem = prepared(table)
    ratio = pdist(problem.sites) / kilometres(table["lon"], table["lat"])
    assert f"{ratio.min():.3g} to {ratio.max():.3g} times" in str(said[0].message)
    assert np.abs(ratio - 1).max() < 0.03


def test_places_go_back_from_a_plane_of_their_own() -> None:
    table = region(-107.0, -93.0, 26.0, 36.0)
    problem = prepared(table)
    back = Transformer.from_crs(CRS(problem.sites_crs), "EPSG:4326", always_xy=True)
    found = back.transform(*(1000.0 * problem.sites.T))
    np.testing.assert_allclose(np.transpose(found), table[["lon", "lat"]], rtol=0, atol=1e-9)
