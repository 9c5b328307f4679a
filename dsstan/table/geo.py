"""Between the planar coordinates of a problem and GeoDataFrames.

geopandas is imported only where a GeoDataFrame comes or goes, which keeps ``import dsstan`` quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from dsstan.core.arrays import Floats
from dsstan.core.errors import CoordinateError, describe_rows
from dsstan.core.optional import needed
from dsstan.core.spelling import spelled
from dsstan.table.places.coordinates import is_geodataframe

if TYPE_CHECKING:
    from dsstan.table.problem import Problem

__all__ = ["as_cells", "as_points", "crs_units", "planar"]


def as_points(table: pd.DataFrame, problem: Problem) -> pd.DataFrame:
    """A table with one row a record; a GeoDataFrame in the input's CRS where that was one.

    Parameters
    ----------
    table
        N rows, the index of ``problem.table``.
    problem
        The prepared table.
    """
    if not is_geodataframe(problem.table):
        return table
    geopandas = needed("geopandas", "geo")
    found: pd.DataFrame = geopandas.GeoDataFrame(table, geometry=problem.table.geometry)
    return found


def as_cells(surface: pd.DataFrame, problem: Problem, size: float | None) -> pd.DataFrame:
    """The cells of a grid as squares, or other places as points, where a GeoDataFrame came in.

    Parameters
    ----------
    surface
        Columns ``x`` and ``y``, planar coordinates of the centres in the problem's unit.
    problem
        The prepared table.
    size
        Width of a cell in the same unit; None for places that are no grid.

    Returns
    -------
    DataFrame
        The same columns; a GeoDataFrame in ``problem.sites_crs`` where the table was one.
    """
    if not is_geodataframe(problem.table):
        return surface
    geopandas, shapely = needed("geopandas", "geo"), needed("shapely", "geo")
    factor = crs_units(problem)
    x, y = (factor * surface[axis].to_numpy() for axis in ("x", "y"))
    if size is None:
        shapes = shapely.points(x, y)
    else:
        half = 0.5 * factor * size
        shapes = shapely.box(x - half, y - half, x + half, y + half)
    found: pd.DataFrame = geopandas.GeoDataFrame(surface, geometry=shapes, crs=problem.sites_crs)
    return found


def planar(places: Any, problem: Problem) -> Floats:
    """Places in the planar coordinates of a problem, shape (m, 2), in its unit.

    Parameters
    ----------
    places
        Planar coordinates in the problem's unit, shape (m, 2); or a GeoDataFrame or
        GeoSeries of points in any CRS, if that of the problem is known.
    problem
        The prepared table.

    Raises
    ------
    CoordinateError
        If there is no finite pair of numbers for each place, or a CRS is not known.
    """
    if not hasattr(places, "geom_type"):
        return _pairs(places)
    points = places.geometry
    other = (points.geom_type != "Point").to_numpy(dtype=bool) | points.is_empty.to_numpy(bool)
    if other.any():
        raise CoordinateError(f"places holds something else than a point in {describe_rows(other)}")
    points = in_sites_crs(points, problem, "places")
    return _pairs(np.column_stack([points.x, points.y]) / crs_units(problem))


def in_sites_crs(shapes: Any, problem: Problem, what: str) -> Any:
    """A GeoSeries in the CRS of a problem's sites; the message calls it ``what``.

    Raises CoordinateError if the CRS of only one of the two is known.
    """
    if (shapes.crs is None) != (problem.sites_crs is None):
        own = shapes.crs is None
        lacks = what if own else "the table"
        typed = "with .set_crs() of geopandas" if own else spelled("crs", "EPSG:...")
        raise CoordinateError(
            f"{lacks} has no coordinate reference system, so the two can't be brought together: "
            f"set it, {typed}"
        )
    return shapes if shapes.crs is None else shapes.to_crs(problem.sites_crs)


def _pairs(places: Any) -> Floats:
    """Finite pairs of numbers."""
    try:
        where = np.asarray(places, dtype=np.float64)
    except (TypeError, ValueError):
        where = np.empty(0)
    if where.ndim != 2 or where.shape[1] != 2 or not np.isfinite(where).all():
        raise CoordinateError(
            "places needs two finite planar coordinates a place, shape (m, 2), or a "
            f"GeoDataFrame of points; got {type(places).__name__} of shape {np.shape(places)}"
        )
    return where


def crs_units(problem: Problem) -> float:
    """Units of ``sites_crs`` in one unit of the sites."""
    if problem.distance != "projected":
        return 1.0
    import pyproj

    system = pyproj.CRS.from_user_input(problem.sites_crs)
    return 1000.0 / float(system.axis_info[0].unit_conversion_factor)
