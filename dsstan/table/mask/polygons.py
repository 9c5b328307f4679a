"""A mask of polygons: the study area, land cover, the blocks of a city."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from dsstan.core.errors import CoordinateError, InputError, describe_rows
from dsstan.core.optional import needed
from dsstan.table.geo import crs_units, in_sites_crs
from dsstan.table.mask.grid import MOST, cells_aimed, check_size
from dsstan.table.mask.mask import Mask
from dsstan.table.problem import Problem

TOUCH = 1e-9
"""Share of a cell up to which its land is rounding of a shared edge."""


def mask_of_polygons(
    polygons: Any, problem: Problem, *, cells: int | None = None, width: float | None = None
) -> Mask:
    """The cells that overlap with an area; the exposure is the land in each.

    Synthetic places are uniform on the land of their cell.

    Parameters
    ----------
    polygons
        GeoDataFrame or GeoSeries of polygons, or a file that geopandas reads. With a CRS they are
        brought to that of the problem.
    problem
        The prepared table: its planar coordinates and unit are those of the mask.
    cells
        About how many cells; by default one for ten records, 20 at least and 1000 at most.
    width
        Side of a cell instead, in the problem's unit.

    Returns
    -------
    Mask

    Raises
    ------
    CoordinateError
        If the CRS of only one of the two is known, or the area is empty or no polygon.
    InputError
        If the cells are too many, or the extra ``geo`` is not installed.
    """
    shapely = needed("shapely", "geo")
    check_size(cells, width)
    area = _area(polygons, problem)
    left, bottom, right, top = shapely.bounds(area)
    if width is None:
        width = float(np.sqrt(shapely.area(area) / cells_aimed(cells, problem.n_records)))
    count = np.floor(np.array([right - left, top - bottom]) / width * (1.0 - TOUCH)) + 1.0
    if count.prod() > 20 * MOST:
        raise InputError(
            "width is too small: the area would have too many cells; give a larger one"
        )
    x = left + (np.arange(count[0]) + 0.5) * width
    y = bottom + (np.arange(count[1]) + 0.5) * width
    centres = np.stack(np.meshgrid(x, y, indexing="ij"), axis=-1).reshape(-1, 2)
    corners = np.hstack([centres - 0.5 * width, centres + 0.5 * width])
    boxes = shapely.box(*corners.T)
    shapely.prepare(area)
    near = shapely.intersects(area, boxes)
    centres, land = centres[near], boxes[near]
    edge = ~shapely.contains_properly(area, land)
    land[edge] = shapely.intersection(area, land[edge])
    exposure = shapely.area(land)
    some = exposure > TOUCH * width**2
    if some.sum() > MOST:
        raise InputError(f"the area has {some.sum()} cells, more than {MOST}: give a larger width")
    return Mask(centres[some], width, exposure[some], source="polygons", land=land[some])


def _area(polygons: Any, problem: Problem) -> Any:
    """The union of the polygons in the problem's planar coordinates, a shapely geometry."""
    geopandas, shapely = needed("geopandas", "geo"), needed("shapely", "geo")
    if isinstance(polygons, str | os.PathLike):
        polygons = geopandas.read_file(polygons)
    if not hasattr(polygons, "geom_type"):
        raise CoordinateError(
            "polygons must be a GeoDataFrame, a GeoSeries or a file, and is "
            f"{type(polygons).__name__}"
        )
    shapes = polygons.geometry
    shapes = shapes[~(shapes.isna() | shapes.is_empty)]
    other = ~shapes.geom_type.isin(["Polygon", "MultiPolygon"]).to_numpy(dtype=bool)
    if other.any():
        raise CoordinateError(f"polygons holds something else in {describe_rows(other)}")
    shapes = in_sites_crs(shapes, problem, "polygons")
    area = shapely.union_all(shapely.make_valid(shapes.to_numpy()))
    area = shapely.transform(area, lambda xy: xy / crs_units(problem))
    if shapely.is_empty(area) or not np.isfinite(shapely.bounds(area)).all():
        raise CoordinateError("the polygons have no area, or lie where their CRS does not reach")
    return area
