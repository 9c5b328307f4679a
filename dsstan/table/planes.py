"""From the plane of a problem to the coordinates of its table, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from dsstan.core.arrays import Floats
from dsstan.core.optional import needed
from dsstan.table.problem import Problem

__all__ = ["as_given", "in_plane", "place_columns", "with_places"]


def as_given(problem: Problem, sites: Floats) -> Floats:
    """Planar sites, shape (n, 2), in the system of the table's coordinates, x first."""
    if problem.distance != "projected":
        return sites
    import pyproj

    plane, own = pyproj.CRS(problem.sites_crs), pyproj.CRS(problem.crs)
    coords = sites * _units(plane)
    if plane == own:
        return coords
    move = pyproj.Transformer.from_crs(plane, own, always_xy=True)
    return np.column_stack(move.transform(*coords.T))


def in_plane(problem: Problem, coords: Floats) -> Floats:
    """Coordinates in the system of the table, shape (n, 2), as planar sites of the problem."""
    if problem.distance != "projected":
        return coords
    import pyproj

    plane, own = pyproj.CRS(problem.sites_crs), pyproj.CRS(problem.crs)
    if plane == own:
        return coords / _units(plane)
    move = pyproj.Transformer.from_crs(own, plane, always_xy=True)
    return np.column_stack(move.transform(*coords.T)) / _units(plane)


def place_columns(problem: Problem) -> tuple[str, ...]:
    """Columns of the table that hold the places: two of numbers, or one of points."""
    names = problem.coord_names
    return names if names[0] in problem.table.columns else (names[0].removesuffix(".x"),)


def with_places(problem: Problem, table: pd.DataFrame, coords: Floats) -> pd.DataFrame:
    """A table whose places are these, shape (n, 2), in the system of the problem's coordinates.

    Parameters
    ----------
    problem
        Whose table has the columns of the coordinates, or points.
    table
        n rows, with or without these columns.
    coords
        Its new places.
    """
    whole, names = problem.table, problem.coord_names
    if len(place_columns(problem)) == 2:
        pairs = zip(names, coords.T, strict=True)
        return table.assign(**{name: _held(x, whole[name]) for name, x in pairs})
    geopandas = needed("geopandas", "geo")

    name = place_columns(problem)[0]
    points = geopandas.points_from_xy(*coords.T, crs=problem.crs)
    rest = pd.DataFrame(table.drop(columns=name, errors="ignore"))
    found: pd.DataFrame = geopandas.GeoDataFrame(
        rest.assign(**{name: geopandas.GeoSeries(points, index=table.index)}), geometry=name
    )
    return found


def _held(x: Floats, column: pd.Series) -> Any:
    """Coordinates in the type of their column, where that holds them."""
    dtype: Any = column.dtype
    whole = pd.api.types.is_integer_dtype(dtype)
    return x if whole and np.any(x != np.rint(x)) else pd.array(x, dtype=dtype)


def _units(system: Any) -> float:
    """Units of a projected system in a kilometre."""
    return 1000.0 / float(system.axis_info[0].unit_conversion_factor)
