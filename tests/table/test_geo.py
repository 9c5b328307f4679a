"""GeoDataFrame in, GeoDataFrame out; the map of the flagged records."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from geopandas import GeoDataFrame, GeoSeries, points_from_xy

import dsstan as ds
from conftest import small_table
from dsstan.core.errors import CoordinateError, InputError
from dsstan.release.pictures.plots import plot_flags, plot_surface

SHORT = {"chains": 2, "warmup": 200, "samples": 100, "engine": "embedded", "progress": False}
METRE = 1.0
"""Distances after going to another CRS and back, in metres."""


def town(crs: str = "EPSG:32610") -> GeoDataFrame:
    """30 records within about ten kilometres, as points."""
    table = small_table(30)
    points = points_from_xy(
        5.5e5 + 1000 * table["east"], 4.18e6 + 1000 * table["north"], crs="EPSG:32610"
    )
    return GeoDataFrame(table[["x", "value"]], geometry=points).to_crs(crs)


@pytest.fixture(scope="module")
def projected() -> ds.Fit:
    problem = ds.prepare(town("EPSG:4326"), "log(value) ~ x", distance="projected")
    return ds.fit(problem, seed=1, **SHORT)


def test_flags_come_back_as_points_in_the_input_s_crs(projected):
    flags = ds.flag_isolated(projected, distance=0.15)
    table = flags.table(projected.problem)
    assert isinstance(table, GeoDataFrame)
    assert table.crs == "EPSG:4326"
    assert table.geometry.equals(projected.problem.table.geometry)


def test_a_surface_comes_back_as_cells_that_hold_every_record(projected):
    surface = ds.surface_on_grid(projected, draws=5, cells=20, progress=False)
    assert isinstance(surface, GeoDataFrame)
    assert surface.crs == "EPSG:32610"
    whole = surface.geometry.union_all()
    assert whole.buffer(METRE).covers(town().geometry.union_all())
    centres = surface.geometry.centroid
    np.testing.assert_allclose(centres.x / 1000, surface["x"], atol=1e-6)
    # Neighbouring cells share an edge: together they are as large as their sum.
    assert whole.area == pytest.approx(surface.geometry.area.sum(), rel=1e-9)
    assert type(plot_surface(surface, projected.problem)).__name__ == "ggplot"


def test_places_of_any_crs_give_the_surface_of_their_planar_coordinates(projected):
    places = town("EPSG:3857")
    found = ds.surface_on_grid(projected, places, draws=5, progress=False)
    plain = ds.surface_on_grid(projected, projected.problem.sites, draws=5, progress=False)
    assert found.to_crs("EPSG:32610").distance(town().geometry).max() < METRE
    np.testing.assert_allclose(found["w"], plain["w"], atol=1e-3)


def test_a_plain_table_gives_plain_tables():
    problem = ds.prepare(small_table(30), "log(value) ~ x", coords=("east", "north"))
    fit = ds.fit(problem, seed=1, **SHORT)
    assert type(ds.surface_on_grid(fit, draws=2, cells=5, progress=False)) is pd.DataFrame
    assert type(ds.flag_isolated(fit, distance=0.15).table(problem)) is pd.DataFrame


def lines(n: int = 2) -> GeoSeries:
    return GeoSeries(town().geometry[:n].buffer(1.0))


@pytest.mark.parametrize(
    ("places", "said"),
    [
        (lines(), r"something else than a point in 2 rows"),
        (town().geometry.set_crs(None, allow_override=True), "places has no coordinate reference"),
        (np.zeros((3, 3)), r"shape \(3, 3\)"),
        (np.full((2, 2), np.nan), "two finite planar coordinates"),
        ("here", "two finite planar coordinates"),
    ],
)
def test_places_that_are_none_are_refused(projected, places: Any, said: str):
    with pytest.raises(CoordinateError, match=said):
        ds.surface_on_grid(projected, places, draws=2, progress=False)


def test_the_map_of_flags_marks_every_record_once_and_rings_the_flagged(projected):
    flags = ds.flag_isolated(projected, distance=0.15)
    plot = plot_flags(flags, projected.problem, title="alone")
    assert 0 < flags.n_flagged < 30
    ring, others, marked = (layer._data for layer in plot.layers)
    assert (len(others), len(marked)) == (30 - flags.n_flagged, flags.n_flagged)
    assert plot.labels.caption == (
        f"{flags.n_flagged} of 30 records flagged; circles: M = 0.15 kilometre"
    )
    reach = ring.groupby("ring").agg({"x": np.ptp, "y": np.ptp})
    np.testing.assert_allclose(reach, 0.3, rtol=0.01)
    plot.draw()


def test_own_weights_have_no_circles(projected):
    weights = ds.own_weights(projected.problem, np.eye(1, 30).ravel())
    plot = plot_flags(weights, projected.problem)
    assert plot.labels.caption == "1 of 30 records flagged"
    assert len(plot.layers) == 2


def test_weights_of_another_table_are_refused(projected):
    other = ds.prepare(small_table(20), "log(value) ~ x", coords=("east", "north"))
    with pytest.raises(InputError, match="20 records and the table has 30"):
        plot_flags(ds.own_weights(other, np.zeros(20)), projected.problem)


def test_flags_csv_of_a_geodataframe_has_the_documented_columns(projected, tmp_path):
    flags = ds.flag_isolated(projected, distance=0.15)
    kept = ds.fit(projected.problem, weights=flags, start=projected, seed=2, **SHORT)
    release = ds.synthesise(kept, 2, seed=3, accept_failed=True, progress=False)
    folder = release.write(tmp_path / "out", format="parquet", report=False)
    assert list(pd.read_csv(folder / "confidential" / "flags.csv", index_col=0)) == [
        "geometry.x",
        "geometry.y",
        "neighbour_distance",
        "probability",
        "weight",
        "flagged",
    ]
