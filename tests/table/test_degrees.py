"""Degrees are distinguished from planar coordinates, and swapped ones are reported as swapped."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import dsstan as ds
from conftest import case
from dsstan.core.errors import CoordinateError
from dsstan.core.spelling import COMMAND, options_typed_in

LONDON = {"x": (-0.2, 0.2), "y": (51.3, 51.7)}
METRES = {"x": (520_000, 550_000), "y": (170_000, 200_000)}
SCOTLAND = {"x": (200_000, 350_000), "y": (850_000, 950_000)}
"""Metres of the British grid that are no place of Great Britain when they are swapped."""


def places(where, names=("x", "y"), n=30):
    """Records at uniform places of a box, with a response."""
    rng = np.random.default_rng(7)
    table = pd.DataFrame({"rent": rng.uniform(1, 2, n)})
    for name, (low, high) in zip(names, where.values(), strict=True):
        table[name] = rng.uniform(low, high, n)
    return table


def prepared(table, names=("x", "y"), **options):
    return ds.prepare(table, "rent ~ 1", coords=names, **options)


def test_columns_named_as_degrees_that_hold_metres_ask_what_they_are():
    table = places(METRES, ("long", "lat"))
    with options_typed_in(COMMAND), pytest.raises(CoordinateError) as caught:
        prepared(table, ("long", "lat"))
    said = str(caught.value)
    assert "are named as longitude and latitude, but are beyond" in said
    assert "30 rows" in said
    assert "--distance planar" in said
    assert "--crs EPSG:27700" in said


@pytest.mark.parametrize("options", [{"distance": "planar"}, {"crs": "EPSG:27700"}])
def test_what_is_stated_beats_the_names(options):
    problem = prepared(places(METRES, ("long", "lat")), ("long", "lat"), **options)
    assert problem.distance == "planar"


def test_as_people_have_them_metres_in_columns_named_long_and_lat():
    table = case("bng.csv").rename(columns={"Easting": "long", "Northing": "lat"})
    with pytest.raises(CoordinateError, match="are named as longitude and latitude, but"):
        prepared(table, ("long", "lat"))
    assert prepared(table, ("long", "lat"), crs="EPSG:27700").unit == "metre"


def test_a_few_rows_out_of_range_are_errors_of_these_rows():
    table = places(LONDON, ("lon", "lat"))
    table.loc[3, "lon"] = 999.0
    with pytest.raises(CoordinateError, match=r"Longitude 'lon' is outside .* 1 row \(position 3"):
        prepared(table, ("lon", "lat"), distance="projected")


@pytest.mark.parametrize("metres", [3, 27])
@pytest.mark.parametrize("crs", [None, "EPSG:27700"])
def test_metres_among_degrees_and_degrees_among_metres_are_named(metres, crs):
    table = places(LONDON, n=30)
    table.loc[: metres - 1, ["x", "y"]] = places(METRES, n=metres)[["x", "y"]].to_numpy()
    few, rest = ("metres", "degrees") if metres == 3 else ("degrees", "metres")
    said = rf"look like {few} in 3 rows .*All 27 others look like {rest}"
    with pytest.raises(CoordinateError, match=said):
        prepared(table, crs=crs)
    if crs is None:
        assert prepared(table, distance="planar").n_records == 30


def test_a_plane_of_ones_own_may_begin_near_0():
    table = places({"x": (0, 5000), "y": (0, 5000)}, n=30)
    table.loc[0, ["x", "y"]] = 10.0
    assert prepared(table).n_records == 30


def test_a_place_in_the_sea_where_programs_put_what_they_did_not_find_is_refused():
    table = places(LONDON, ("lon", "lat"))
    table.loc[[4, 20], ["lon", "lat"]] = 0.0
    with pytest.raises(CoordinateError, match=r"are both 0, .* in 2 rows \(positions 4, 20, "):
        prepared(table, ("lon", "lat"), distance="projected")


def test_degrees_with_a_planar_crs_contradict_their_names():
    with pytest.raises(CoordinateError, match=r"EPSG:27700 is not geographic"):
        prepared(places(LONDON, ("lon", "lat")), ("lon", "lat"), crs="EPSG:27700")


def test_as_people_have_them_degrees_in_columns_of_other_names():
    table = case("sitelatlon.csv")
    with pytest.raises(CoordinateError, match="'site_lon' and 'site_lat' are longitude and lat"):
        prepared(table, ("site_lon", "site_lat"))
    with pytest.raises(CoordinateError, match=r"latitude first.*\('site_lon', 'site_lat'\)"):
        prepared(table, ("site_lat", "site_lon"))
    problem = prepared(table, ("site_lon", "site_lat"), distance="projected")
    assert (problem.unit, problem.crs) == ("kilometre", "EPSG:4326")


BOXES = {
    "London": LONDON,
    "San Francisco": {"x": (-122.5, -122.3), "y": (37.7, 37.8)},
    "the United States": {"x": (-124.0, -67.0), "y": (25.0, 49.0)},
    "Germany": {"x": (6.0, 15.0), "y": (47.0, 55.0)},
    "Chile": {"x": (-75.0, -67.0), "y": (-55.0, -18.0)},
}


@pytest.mark.parametrize("name", BOXES)
def test_degrees_by_value_alone_ask_for_a_choice(name):
    table = places(BOXES[name])
    with options_typed_in(COMMAND), pytest.raises(CoordinateError) as caught:
        prepared(table)
    said = str(caught.value)
    assert "look like longitudes and latitudes, and nothing says what they are" in said
    assert "--crs EPSG:4326 and --distance projected" in said
    assert prepared(table, distance="planar").unit == "coordinate unit"
    assert prepared(table, distance="degrees").unit == "degree"


@pytest.mark.parametrize(
    "where",
    [
        {"x": (0.0, 20.0), "y": (0.0, 20.0)},
        {"x": (-9.0, 20.0), "y": (0.1, 9.0)},
        {"x": (0.0, 1.0), "y": (0.0, 1.0)},
        {"x": (350.0, 360.0), "y": (50.0, 60.0)},
        METRES,
    ],
)
def test_planar_coordinates_of_ones_own_need_no_word(where):
    assert prepared(places(where)).distance == "planar"


def test_a_grid_of_whole_numbers_needs_no_word():
    table = places({"x": (50, 60), "y": (50, 60)}, n=40).round(0)
    table["rent"] = np.arange(40.0)
    assert prepared(table).distance == "planar"


def test_swapped_degrees_of_any_name_are_told_as_swapped():
    table = places(BOXES["San Francisco"])
    with options_typed_in(COMMAND), pytest.raises(CoordinateError) as caught:
        prepared(table, ("y", "x"))
    assert "look like latitudes and longitudes, swapped" in str(caught.value)
    assert "--coords x y, --crs EPSG:4326" in str(caught.value)
    for options in ({"crs": "EPSG:4326"}, {"distance": "degrees"}):
        with pytest.raises(CoordinateError, match=r"the two look swapped.*coords=\('x', 'y'\)"):
            prepared(table, ("y", "x"), **options)


def test_rows_that_are_swapped_are_told_as_swapped():
    table = places(BOXES["San Francisco"], ("lon", "lat"))
    table.loc[[4, 9], ["lon", "lat"]] = table.loc[[4, 9], ["lat", "lon"]].to_numpy()
    with pytest.raises(CoordinateError, match=r"2 rows \(positions 4, 9.*Swap the two in these"):
        prepared(table, ("lon", "lat"), distance="projected")


@pytest.mark.parametrize(
    ("where", "crs"), [(SCOTLAND, "EPSG:27700"), (BOXES["Germany"], "EPSG:4258")]
)
def test_coordinates_outside_their_crs_that_are_inside_it_swapped_are_told(where, crs):
    table = places(where)
    assert prepared(table, crs=crs, distance="projected").unit == "kilometre"
    with pytest.raises(CoordinateError, match=r"outside the area of the CRS .* look swapped"):
        prepared(table, ("y", "x"), crs=crs, distance="projected")


def test_as_people_have_them_northing_before_easting_is_told_as_swapped():
    with pytest.raises(CoordinateError, match=r"northing first.*\('Easting', 'Northing'\)"):
        prepared(case("bng.csv"), ("Northing", "Easting"), crs="EPSG:27700")
