"""prepare: what a good table becomes. Bad tables are in test_bad_tables.py."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.spatial.distance import pdist

from dsstan.core.errors import CoordinateError, DsstanWarning, InputError, TableError
from dsstan.table.prepare import prepare
from dsstan.table.problem import Problem

EXACT = 1e-12  # rounding of a handful of double precision operations
N = 12
PLAIN = {"formula": "log(price) ~ area", "coords": ("east", "north")}
GEOGRAPHIC = {"formula": "log(price) ~ area", "coords": ("lon", "lat")}

# Values that no message may repeat: one stands in the first row of every column and in the index.
PLANTED = ["987654", "3141.59265", "zanzibar", "-76.5432109", "39.8765432", "55.5551234", "Smithee"]


def table() -> pd.DataFrame:
    """Twelve records, none of them wrong."""
    rng = np.random.default_rng(8)
    frame = pd.DataFrame(
        {
            "price": rng.integers(100, 900, N),
            "area": rng.uniform(50.0, 200.0, N),
            "zone": ["a", "b", "c"] * 4,
            "east": rng.uniform(0.0, 9.0, N),
            "north": rng.uniform(0.0, 9.0, N),
            "lon": rng.uniform(-76.7, -76.5, N),
            "lat": rng.uniform(39.2, 39.4, N),
        },
        index=pd.Index(["Smithee", *(f"p{i}" for i in range(1, N))], name="person"),
    )
    place = [55.5551234, 55.5551234, -76.5432109, 39.8765432]
    frame.iloc[0] = [987654, 3141.59265, "zanzibar", *place]
    frame.loc[["p2", "p5"], "zone"] = "zanzibar"
    return frame


def test_the_printed_form_shows_no_value_of_the_data() -> None:
    problem = prepare(table(), "log(price) ~ zone", coords=("east", "north"))
    assert not [value for value in PLANTED if value in repr(problem)]
    assert len(repr(problem).splitlines()) < 10


def test_every_array_is_read_only_and_contiguous() -> None:
    problem = prepare(table(), **PLAIN)
    for array in (problem.y, problem.X, problem.coords, problem.sites, problem.unique_sites):
        assert array.dtype == np.float64
        assert array.flags.c_contiguous
        assert not array.flags.writeable
    assert not problem.site_index.flags.writeable


def test_the_table_is_a_copy_with_its_index_columns_and_dtypes() -> None:
    given = table()
    problem = prepare(given, **PLAIN)
    pd.testing.assert_frame_equal(problem.table, given)
    given.iloc[0, 0] = 1
    assert problem.table.iloc[0, 0] == 987654


def test_planar_coordinates_are_taken_as_they_are() -> None:
    problem = prepare(table(), **PLAIN)
    np.testing.assert_array_equal(problem.sites, table()[["east", "north"]])
    assert (problem.distance, problem.unit, problem.crs) == ("planar", "coordinate unit", None)


def test_degrees_are_taken_as_planar_when_asked() -> None:
    problem = prepare(table(), **GEOGRAPHIC, distance="degrees")
    np.testing.assert_array_equal(problem.sites, table()[["lon", "lat"]])
    assert (problem.distance, problem.unit) == ("degrees", "degree")


def test_projected_distances_are_those_on_the_ellipsoid_in_kilometres() -> None:
    from pyproj import Geod

    problem = prepare(table(), **GEOGRAPHIC, distance="projected")
    lon, lat = problem.coords[1], problem.coords[4]
    metres = Geod(ellps="WGS84").inv(lon[0], lon[1], lat[0], lat[1])[2]
    planar = np.linalg.norm(problem.sites[1] - problem.sites[4])
    # UTM stretches lengths by at most 0.1% inside its zone.
    assert planar == pytest.approx(metres / 1000.0, rel=1e-3)
    assert (problem.unit, problem.crs) == ("kilometre", "EPSG:4326")
    assert problem.sites_crs == "EPSG:32618"


def test_a_projected_crs_is_only_turned_into_kilometres() -> None:
    problem = prepare(table(), **PLAIN, crs="EPSG:32618", distance="projected")
    np.testing.assert_allclose(problem.sites, problem.coords / 1000.0, rtol=EXACT)
    feet = prepare(table(), **PLAIN, crs="EPSG:2248", distance="projected")
    np.testing.assert_allclose(feet.sites, feet.coords * 1200 / 3937 / 1000, rtol=EXACT)


def test_a_projected_crs_names_its_unit() -> None:
    assert prepare(table(), **PLAIN, crs="EPSG:32618").unit == "metre"


@pytest.mark.parametrize("names", [("LON", "LAT"), ("Longitude", "Latitude"), ("lng", "lat")])
def test_longitude_and_latitude_are_known_by_name(names: tuple[str, str]) -> None:
    frame = table().rename(columns={"lon": names[0], "lat": names[1]})
    with pytest.raises(CoordinateError, match="are longitude and latitude"):
        prepare(frame, "price ~ 1", coords=names)


def test_degrees_far_from_the_equator_are_warned_about() -> None:
    north = table().assign(lat=np.linspace(59.0, 61.0, N))
    with pytest.warns(DsstanWarning, match=r"beyond 60 degrees.*6 rows"):
        prepare(north, **GEOGRAPHIC, distance="degrees")


def test_the_edge_of_the_map_does_not_tear_a_projection() -> None:
    lon = np.where(np.arange(N) % 2, 179.9, -179.9)
    problem = prepare(table().assign(lon=lon), **GEOGRAPHIC, distance="projected")
    assert problem.d_max < 100.0


def test_coincident_records_share_a_site_and_are_counted() -> None:
    frame = table()
    frame.loc[["p3", "p7"], ["east", "north"]] = frame.loc["Smithee", ["east", "north"]].to_numpy()
    problem = prepare(frame, **PLAIN)
    assert (problem.n_sites, problem.n_coincident) == (N - 2, 3)
    with pytest.warns(DeprecationWarning, match="site_index"):
        assert problem.site is problem.site_index
    assert list(problem.site_index[:5]) == [0, 1, 2, 0, 3]
    np.testing.assert_array_equal(problem.unique_sites[problem.site_index], problem.sites)


def test_minus_zero_and_zero_are_one_site() -> None:
    frame = table()
    frame.iloc[[1, 2], 3:5] = [[0.0, 0.0], [-0.0, 0.0]]
    assert prepare(frame, **PLAIN).n_sites == N - 1


def test_the_largest_distance_is_that_of_all_pairs() -> None:
    problem = prepare(table(), **PLAIN)
    assert problem.d_max == pytest.approx(pdist(problem.sites).max(), rel=EXACT)


def test_the_largest_distance_of_sites_on_a_line_is_found() -> None:
    line = table().assign(east=np.arange(N) * 3.0, north=np.arange(N) * 4.0)
    assert prepare(line, **PLAIN).d_max == pytest.approx(5.0 * (N - 1), rel=EXACT)


@pytest.mark.parametrize(
    ("dtype", "value", "expected"),
    [
        ("int64", 2.5, 2),
        ("int64", 3.5, 4),
        ("int64", 1e30, 2**63 - 1),
        ("int64", -1e30, -(2**63)),
        ("int32", 1e12, 2**31 - 1),
        ("uint32", -7.0, 0),
        ("uint64", 1e30, 2**64 - 1),
        ("Int32", 1e12, 2**31 - 1),
        ("int32[pyarrow]", 1e12, 2**31 - 1),
        ("Int64", 2.5, 2),
        ("float32", 1e300, float(np.finfo(np.float32).max)),
        ("float64", 0.1, 0.1),
        ("Float64", 0.1, 0.1),
        ("double[pyarrow]", 0.1, 0.1),
    ],
)
def test_a_new_response_keeps_the_dtype(dtype: str, value: float, expected: float) -> None:
    problem = prepare(table().astype({"price": dtype}), **PLAIN)
    copy = problem.with_response(np.full(N, value))
    assert copy["price"].dtype == problem.table["price"].dtype
    assert copy["price"].iloc[0] == expected


def test_a_new_response_changes_nothing_else() -> None:
    problem = prepare(table(), **PLAIN)
    copy = problem.with_response(np.arange(N) + 5.0)
    assert list(copy.columns) == list(problem.table.columns)
    pd.testing.assert_frame_equal(
        copy.drop(columns="price"), problem.table.drop(columns="price"), check_exact=True
    )
    pd.testing.assert_frame_equal(problem.table, table())


def test_the_original_response_comes_back_as_it_was() -> None:
    problem = prepare(table(), **PLAIN)
    pd.testing.assert_frame_equal(problem.with_response(problem.original()), problem.table)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (np.ones(3), "shape"),
        (np.ones((N, 1)), "shape"),
        (np.where(np.arange(N) == 2, np.nan, 987654.0), r"1 row \(position 2"),
        (np.where(np.arange(N) == 2, np.inf, 987654.0), r"1 row \(position 2"),
    ],
)
def test_a_new_response_that_cannot_be_used_is_refused(values: Any, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        prepare(table(), **PLAIN).with_response(values)
    assert "987654" not in str(caught.value)


def test_a_problem_can_be_sent_to_another_process() -> None:
    problem = prepare(table(), **PLAIN)
    sent: Problem = pickle.loads(pickle.dumps(problem))
    np.testing.assert_array_equal(sent.X, problem.X)
    pd.testing.assert_frame_equal(sent.table, problem.table)


def test_a_name_can_come_from_the_table_or_the_caller() -> None:
    named = table()
    named.attrs["name"] = "homes"
    assert prepare(named, **PLAIN).name == "homes"
    assert prepare(named, **PLAIN, name="flats").name == "flats"
    assert prepare(table(), **PLAIN).name == "table"


# --- tables of other kinds ----------------------------------------------------------------------


def as_arrow() -> Any:
    import pyarrow as pa

    return pa.Table.from_pandas(table().reset_index(drop=True))


def as_polars() -> Any:
    polars = pytest.importorskip("polars")
    return polars.from_arrow(as_arrow())


@pytest.mark.parametrize("make", [as_arrow, as_polars])
def test_a_table_of_another_kind_gives_the_same_problem(make: Callable[[], Any]) -> None:
    problem, plain = prepare(make(), **PLAIN), prepare(table(), **PLAIN)
    np.testing.assert_array_equal(problem.X, plain.X)
    np.testing.assert_array_equal(problem.y, plain.y)
    assert list(problem.table.columns) == list(plain.table.columns)
    assert problem.table["price"].dtype == np.int64


def test_whole_numbers_with_gaps_stay_whole_numbers() -> None:
    import pyarrow as pa

    rooms = pa.array([None, *range(N - 1)], type=pa.int32())
    problem = prepare(as_arrow().append_column("rooms", rooms), **PLAIN)
    assert problem.table["rooms"].dtype == pd.Int32Dtype()
    assert problem.table["rooms"].iloc[-1] == N - 2


def test_a_lazy_table_is_asked_to_be_collected() -> None:
    with pytest.raises(TableError, match=r"Call collect\(\)"):
        prepare(as_polars().lazy(), **PLAIN)


def geo(crs: str | None = "EPSG:4326") -> Any:
    import geopandas

    frame = table()
    points = geopandas.points_from_xy(frame["lon"], frame["lat"])
    return geopandas.GeoDataFrame(frame.drop(columns=["lon", "lat"]), geometry=points, crs=crs)


def test_a_geodataframe_brings_its_coordinates_and_crs() -> None:
    problem = prepare(geo(), "log(price) ~ area", distance="projected")
    plain = prepare(table(), **GEOGRAPHIC, distance="projected")
    np.testing.assert_allclose(problem.sites, plain.sites, rtol=EXACT)
    assert problem.crs == "EPSG:4326"


def test_a_geodataframe_keeps_its_geometry_in_copies() -> None:
    problem = prepare(geo(), "log(price) ~ area", distance="degrees")
    copy = problem.with_response(problem.original())
    assert type(copy) is type(geo())
    assert copy.geometry.equals(geo().geometry)


def test_a_geodataframe_without_a_crs_takes_that_of_the_call() -> None:
    problem = prepare(geo(None), "price ~ area", crs="EPSG:4326", distance="degrees")
    assert problem.crs == "EPSG:4326"


@pytest.mark.parametrize(
    ("change", "arguments", "words"),
    [
        (lambda g: g, {}, 'distance="projected"'),
        (lambda g: g, {"crs": "EPSG:32618"}, "has the CRS EPSG:4326 and crs says EPSG:32618"),
        (lambda g: g.set_geometry(g.buffer(0.1)), {"distance": "degrees"}, "12 rows .positions 0"),
        (
            lambda g: g.assign(geometry=g.geometry.where(np.arange(N) != 2)),
            {"distance": "degrees"},
            r"'geometry' has no point in 1 row \(position 2",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:Geometry is in a geographic CRS")
def test_a_geodataframe_that_cannot_be_used_says_why(
    change: Callable[[Any], Any], arguments: dict[str, Any], words: str
) -> None:
    with pytest.raises(CoordinateError, match=words):
        prepare(change(geo()), "price ~ area", **arguments)


def test_the_san_francisco_regression_is_the_one_the_paper_implies(
    san_francisco: pd.DataFrame,
) -> None:
    problem = prepare(
        san_francisco,
        "log(price) ~ scale(log(squarefeet))",
        coords=("longitude", "latitude"),
        distance="degrees",
    )
    beta = np.linalg.lstsq(problem.X, problem.y, rcond=None)[0]
    # Published to three decimals; four for the slope.
    assert beta[0] == pytest.approx(13.232, abs=5e-4)
    assert beta[1] == pytest.approx(0.2706, abs=5e-5)
    assert (problem.n_records, problem.n_sites, problem.n_coincident) == (214, 154, 90)


def test_the_term_that_is_undefined_is_named_and_its_rows() -> None:
    data = pd.DataFrame(np.random.default_rng(4).random((12, 4)) + 0.5, columns=list("abxy"))
    data["price"] = np.exp(data["a"])
    data.loc[[1, 5, 6], "b"] = 0.0
    with pytest.raises(TableError, match=r"'log\(b\)' of the formula is infinite .* in 3 rows"):
        prepare(data, "log(price) ~ a + log(b)", coords=("x", "y"))


def test_as_many_values_as_terms_and_two_more_are_enough_and_one_fewer_are_not() -> None:
    data = pd.DataFrame(np.random.default_rng(4).random((12, 4)) + 0.5, columns=list("abxy"))
    data["price"] = np.exp(data["a"])
    asked = {"formula": "log(price) ~ a + b", "coords": ("x", "y"), "missing": "draw"}
    data.loc[5:, "price"] = np.nan
    assert prepare(data, **asked).n_missing == 7
    data.loc[4:, "price"] = np.nan
    with pytest.raises(TableError, match="there in 4 of 12 records, too few"):
        prepare(data, **asked)
