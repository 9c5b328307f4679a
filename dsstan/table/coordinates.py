"""Coordinates of a table: read, checked, and brought into the plane.

The covariance of the model needs planar distances. Longitudes and latitudes are no planar
coordinates, so the caller decides what to do with them and nothing is converted in silence.
"""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.spatial import ConvexHull, QhullError
from scipy.spatial.distance import cdist

from dsstan.core.errors import CoordinateError, DsstanWarning, describe_rows

__all__ = [
    "Located",
    "from_columns",
    "is_geodataframe",
    "largest_distance",
    "locate",
    "site_numbers",
]

Array = NDArray[np.float64]

LONGITUDE = {"lon", "long", "lng", "longitude"}
LATITUDE = {"lat", "latitude"}
DISTANCES = ("planar", "degrees", "projected")
_UTM_WIDTH = 6.0
_HIGH_LATITUDE = 60.0
_CHUNK = 1024


@dataclass(frozen=True, eq=False)
class Located:
    """Coordinates as given and as planar sites; see :class:`dsstan.table.problem.Problem`."""

    coords: Array
    coord_names: tuple[str, str]
    sites: Array
    unit: str
    distance: str
    crs: str | None
    sites_crs: str | None


def locate(table: pd.DataFrame, coords: Any, distance: str | None, crs: Any) -> Located:
    """Read the coordinates of each record and bring them into the plane.

    Parameters
    ----------
    table
        pandas table or GeoDataFrame of points, N rows.
    coords
        Names of the two coordinate columns, x (or longitude) first; None takes the points of
        a GeoDataFrame.
    distance
        ``"planar"``, ``"degrees"`` or ``"projected"``; None is planar, and is refused for
        longitudes and latitudes.
    crs
        Coordinate reference system of ``coords``, anything pyproj reads, or None.

    Returns
    -------
    Located
        With ``coords`` and ``sites`` of shape (N, 2).

    Raises
    ------
    CoordinateError
        If the coordinates are missing, not finite, out of range or swapped, or if how to
        measure distance between longitudes and latitudes is not decided.
    """
    if distance is not None and distance not in DISTANCES:
        came = repr(distance) if isinstance(distance, str) else type(distance).__name__
        raise CoordinateError(
            f"distance must be one of {', '.join(DISTANCES)} or None, and is {came}."
        )
    if coords is None:
        values, names, crs = _from_points(table, crs)
    else:
        values, names = from_columns(table, coords)
    system = None if crs is None else _read_crs(crs)
    said = [name.lower() for name in names]
    by_name = bool({*said} & (LONGITUDE | LATITUDE))
    if by_name and system is not None and not system.is_geographic:
        raise CoordinateError(
            f"Columns {names[0]!r} and {names[1]!r} are named as longitude and latitude, but "
            f"the CRS {system.to_string()} is not geographic. Give the CRS that these columns "
            "are in (EPSG:4326 for GPS coordinates), or rename them."
        )
    if said[0] in LATITUDE or said[1] in LONGITUDE:
        raise CoordinateError(
            f"The coordinates are given as ({names[0]!r}, {names[1]!r}), latitude first; "
            f"longitude comes first. Use coords=({names[1]!r}, {names[0]!r})."
        )
    geographic = by_name if system is None else bool(system.is_geographic)
    if geographic or distance == "degrees":
        _check_range(values, names)
    if geographic and distance in (None, "planar"):
        raise CoordinateError(
            f"Coordinates {names[0]!r} and {names[1]!r} are longitude and latitude. Choose "
            "how distance between them is measured: distance='projected' projects them to "
            "the UTM zone of their middle and measures kilometres; distance='degrees' takes "
            "longitude and latitude as if they were planar, in degrees, where a degree of "
            "longitude counts as much as one of latitude."
        )
    if distance == "degrees":
        if system is not None and not geographic:
            raise CoordinateError(
                f"distance='degrees' needs longitudes and latitudes; the CRS "
                f"{system.to_string()} is not geographic. Use distance='planar'."
            )
        _warn_degrees(values)
        name = None if system is None else system.to_string()
        return Located(values, names, values.copy(), "degree", "degrees", name, name)
    if distance == "projected":
        return _projected(values, names, system, geographic)
    name = None if system is None else system.to_string()
    return Located(values, names, values.copy(), _unit_of(system), "planar", name, name)


def is_geodataframe(table: object) -> bool:
    """Whether a table is a GeoDataFrame, without importing geopandas."""
    geopandas = sys.modules.get("geopandas")
    return geopandas is not None and isinstance(table, geopandas.GeoDataFrame)


def _from_points(table: pd.DataFrame, crs: Any) -> tuple[Array, tuple[str, str], Any]:
    """Coordinates, their names and the CRS of a GeoDataFrame of points."""
    if not is_geodataframe(table) or table.active_geometry_name is None:
        raise CoordinateError(
            "coords is needed: the names of the two coordinate columns, x (or longitude) "
            "first, such as coords=('longitude', 'latitude'). Only a GeoDataFrame of points "
            "carries its own coordinates."
        )
    points, name = table.geometry, str(table.active_geometry_name)
    empty = (points.isna() | points.is_empty).to_numpy(dtype=bool)
    if empty.any():
        _refuse_rows(f"Geometry column {name!r} has no point", empty, "Drop these rows.")
    other = (points.geom_type != "Point").to_numpy(dtype=bool)
    if other.any():
        _refuse_rows(
            f"Geometry column {name!r} holds something else than a point",
            other,
            "Use one point a record, for example the centroid.",
        )
    own = table.crs
    if own is not None and crs is not None and _read_crs(crs) != own:
        raise CoordinateError(
            f"The GeoDataFrame has the CRS {own.to_string()} and crs says "
            f"{_read_crs(crs).to_string()}. Leave crs out, or convert with to_crs() first."
        )
    values = np.column_stack([points.x, points.y]).astype(np.float64)
    names = (f"{name}.x", f"{name}.y")
    _check_finite(values, names)
    return values, names, crs if own is None else own


def from_columns(table: pd.DataFrame, coords: Any) -> tuple[Array, tuple[str, str]]:
    """Coordinates and names of two columns."""
    pair = isinstance(coords, tuple | list) and len(coords) == 2
    if not pair or not all(isinstance(name, str) for name in coords):
        came = [type(part).__name__ for part in coords] if pair else type(coords).__name__
        raise CoordinateError(
            "coords must be the names of two columns, x (or longitude) first, such as "
            f"coords=('longitude', 'latitude'); got {came}."
        )
    first, second = coords
    for name in coords:
        if name not in table.columns:
            listed = ", ".join(str(column) for column in table.columns[:10])
            raise CoordinateError(
                f"Coordinate column {name!r} is not in the table. Its columns: {listed}"
                f"{', ...' if len(table.columns) > 10 else ''}."
            )
    if first == second:
        raise CoordinateError(f"coords names column {first!r} twice; two columns are needed.")
    parts = []
    for name in coords:
        column = table[name]
        kind = pd.api.types
        if not (kind.is_integer_dtype(column.dtype) or kind.is_float_dtype(column.dtype)):
            raise CoordinateError(
                f"Coordinate column {name!r} must hold numbers and has dtype {column.dtype}. "
                "Convert it first, for example with astype(float)."
            )
        parts.append(column.to_numpy(dtype=np.float64, na_value=np.nan))
    values = np.column_stack(parts)
    _check_finite(values, (first, second))
    return values, (first, second)


def _check_finite(values: Array, names: tuple[str, str]) -> None:
    """Every coordinate must be a finite number."""
    for j, name in enumerate(names):
        for bad, what in (
            (np.isnan(values[:, j]), "missing values"),
            (np.isinf(values[:, j]), "infinite values"),
        ):
            if bad.any():
                _refuse_rows(
                    f"Coordinate {name!r} has {what}", bad, "Drop or correct these rows first."
                )


def _check_range(values: Array, names: tuple[str, str]) -> None:
    """Longitudes lie in [-180, 360] and latitudes in [-90, 90]."""
    bad_longitude = (values[:, 0] < -180) | (values[:, 0] > 360)
    bad_latitude = np.abs(values[:, 1]) > 90
    if bad_latitude.any() and (np.abs(values[:, 0]) <= 90).all():
        _refuse_rows(
            f"Latitude {names[1]!r} is outside [-90, 90]",
            bad_latitude,
            f"All of {names[0]!r} are inside: the two look swapped. Longitude comes first.",
        )
    for name, bad, span in (
        (names[0], bad_longitude, "Longitude {!r} is outside [-180, 360]"),
        (names[1], bad_latitude, "Latitude {!r} is outside [-90, 90]"),
    ):
        if bad.any():
            _refuse_rows(
                span.format(name),
                bad,
                "Correct these rows, or give the CRS that the coordinates are in.",
            )


def _refuse_rows(what: str, bad: NDArray[np.bool_], do: str) -> NoReturn:
    raise CoordinateError(f"{what} in {describe_rows(bad)}. {do}")


def _warn_degrees(values: Array) -> None:
    """Say where degrees are a poor measure of distance."""
    high = np.abs(values[:, 1]) > _HIGH_LATITUDE
    if high.any():
        _warn(
            f"distance='degrees' counts a degree of longitude as much as one of latitude, but "
            f"beyond {_HIGH_LATITUDE:g} degrees of latitude it is less than half as long: "
            f"{describe_rows(high)}. distance='projected' measures kilometres."
        )
    if np.ptp(values[:, 0]) > 180:
        _warn(
            "The longitudes span more than 180 degrees, so records on both sides of the edge "
            "of the map count as far apart. Shift the longitudes by 360 degrees on one side."
        )


def _projected(values: Array, names: tuple[str, str], system: Any, geographic: bool) -> Located:
    """Sites in kilometres: projected to UTM, or a projected CRS brought to kilometres."""
    import pyproj
    from pyproj.aoi import AreaOfInterest
    from pyproj.database import query_utm_crs_info

    if not geographic:
        if system is None or not system.is_projected:
            raise CoordinateError(
                f"distance='projected' needs to know what {names[0]!r} and {names[1]!r} are. "
                "Give crs, for example crs='EPSG:4326' for longitudes and latitudes."
            )
        name = system.to_string()
        sites = values * (system.axis_info[0].unit_conversion_factor / 1000.0)
        return Located(values, names, sites, "kilometre", "projected", name, name)
    source = pyproj.CRS.from_epsg(4326) if system is None else system
    longitude, latitude = values[:, 0], values[:, 1]
    # Either range of longitudes may be the one that the edge of the map does not cut.
    wrapped = longitude % 360.0
    if np.ptp(wrapped) >= np.ptp(longitude):
        wrapped = longitude
    if np.ptp(wrapped) > _UTM_WIDTH:
        _warn(
            f"The longitudes span more than {_UTM_WIDTH:g} degrees, the width of a UTM zone, so "
            "projected distances are stretched at the edges. Project the coordinates to a CRS "
            "made for the region, and use distance='planar'."
        )
    x = (float(wrapped.min() + wrapped.max()) / 2 + 180.0) % 360.0 - 180.0
    y = float(latitude.min() + latitude.max()) / 2
    zones = query_utm_crs_info(datum_name="WGS 84", area_of_interest=AreaOfInterest(x, y, x, y))
    if not zones:
        raise CoordinateError(
            "There is no UTM zone for the middle of these coordinates: UTM ends at 84 degrees "
            "north and 80 south. Project them to a polar CRS first, and use distance='planar'."
        )
    target = pyproj.CRS.from_epsg(int(zones[0].code))
    move = pyproj.Transformer.from_crs(source, target, always_xy=True)
    sites = np.column_stack(move.transform(longitude, latitude)) / 1000.0
    if not np.isfinite(sites).all():
        _refuse_rows(
            f"Coordinates {names[0]!r} and {names[1]!r} cannot be projected to UTM",
            np.asarray(np.logical_not(np.isfinite(sites)).any(axis=1)),
            "They lie too far from the others: project them to another CRS first.",
        )
    return Located(
        values, names, sites, "kilometre", "projected", source.to_string(), target.to_string()
    )


def _read_crs(crs: Any) -> Any:
    """A pyproj CRS from anything that pyproj reads."""
    import pyproj

    try:
        return pyproj.CRS.from_user_input(crs)
    except pyproj.exceptions.CRSError:
        came = repr(crs) if isinstance(crs, str | int) else f"of type {type(crs).__name__}"
        raise CoordinateError(
            f"crs is {came}, which is no coordinate reference system that pyproj can read. Give "
            "a code such as 'EPSG:4326', or leave it out."
        ) from None


def _unit_of(system: Any) -> str:
    """Unit of a planar CRS."""
    unit = "" if system is None or not system.axis_info else system.axis_info[0].unit_name
    return {"metre": "metre", "kilometre": "kilometre"}.get(unit, "coordinate unit")


def _warn(message: str) -> None:
    warnings.warn(message, DsstanWarning, stacklevel=5)


def site_numbers(sites: Array) -> NDArray[np.int64]:
    """Number of the distinct site of each record, in order of first appearance.

    Parameters
    ----------
    sites
        Planar coordinates, shape (N, 2). Two records share a site where both coordinates are
        exactly equal.

    Returns
    -------
    ndarray
        Shape (N,), from 0.

    Examples
    --------
    >>> site_numbers(np.array([[5.0, 1.0], [2.0, 1.0], [5.0, 1.0]]))
    array([0, 1, 0])
    """
    points = (sites[:, 0] + 0.0) + 1j * (sites[:, 1] + 0.0)  # + 0.0 makes -0.0 equal to 0.0
    _, first, inverse = np.unique(points, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[inverse]


def largest_distance(sites: Array) -> float:
    """Largest distance between any two sites, found on their convex hull.

    Parameters
    ----------
    sites
        Planar coordinates, shape (n, 2).

    Returns
    -------
    float
        In the unit of the coordinates.

    Examples
    --------
    >>> largest_distance(np.array([[0.0, 0.0], [3.0, 4.0], [1.0, 1.0]]))
    5.0
    """
    centred = sites - sites.mean(axis=0)
    try:
        corners = centred[ConvexHull(centred).vertices]
    except (QhullError, ValueError):  # fewer than three sites, or all on one line
        _, _, axes = np.linalg.svd(centred, full_matrices=False)
        along = centred @ axes[0]
        corners = centred[[int(np.argmin(along)), int(np.argmax(along))]]
    blocks = range(0, len(corners), _CHUNK)
    return max(float(cdist(corners[i : i + _CHUNK], corners).max()) for i in blocks)
