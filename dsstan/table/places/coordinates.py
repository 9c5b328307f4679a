"""Coordinates of a table: read, checked, and brought into the plane.

The covariance of the model needs planar distances. Longitudes and latitudes are no planar
coordinates, so the caller decides what to do with them and nothing is converted in silence.
"""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.spatial import ConvexHull, QhullError
from scipy.spatial.distance import cdist

from dsstan.core.arrays import Floats
from dsstan.core.errors import CoordinateError, DsstanWarning, describe_rows
from dsstan.core.spelling import spelled
from dsstan.table.columns import to_numbers_in_words
from dsstan.table.places.degrees import check_range, longitudes_and_latitudes, refuse_rows
from dsstan.table.places.projections import TRUE_WITHIN, Plane, plane_of, truest_plane

DISTANCES = ("planar", "degrees", "projected")
_GREAT = 0.05
"""Error of a distance from which the caller must say that it is meant."""
_HIGH_LATITUDE = 60.0
_CHUNK = 1024


@dataclass(frozen=True, eq=False)
class Located:
    """Coordinates as given and as planar sites; see :class:`dsstan.table.problem.Problem`."""

    coords: Floats
    coord_names: tuple[str, str]
    sites: Floats
    unit: str
    distance: str
    crs: str | None
    sites_crs: str | None


def locate(table: pd.DataFrame, coords: Any, distance: str | None, crs: Any) -> Located:
    """Read the coordinates of each record and bring them into the plane.

    Raises CoordinateError if the coordinates are missing, not finite, out of range or swapped, or
    if how to measure distance between longitudes and latitudes is not decided.

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
    geographic = longitudes_and_latitudes(values, names, system, distance)
    if geographic or distance == "degrees":
        check_range(values, names)
    if geographic and distance in (None, "planar"):
        raise CoordinateError(
            f"Coordinates {names[0]!r} and {names[1]!r} are longitude and latitude. Choose "
            f"how distance between them is measured: {spelled('distance', 'projected')} projects "
            "them to the UTM zone of their middle, or where that is not true enough to a plane "
            f"about it, and measures kilometres; {spelled('distance', 'degrees')} takes "
            "longitude and latitude as if they were planar, in degrees, where a degree of "
            "longitude counts as much as one of latitude."
        )
    if distance == "degrees":
        if system is not None and not geographic:
            raise CoordinateError(
                f"{spelled('distance', 'degrees')} needs longitudes and latitudes; the CRS "
                f"{system.to_string()} is not geographic. Use {spelled('distance', 'planar')}."
            )
        _warn_degrees(values)
        name = None if system is None else system.to_string()
        return Located(values, names, values.copy(), "degree", "degrees", name, name)
    if distance == "projected":
        return _projected(values, names, system, geographic)
    _check_true(values, names, system, stated=distance == "planar")
    name = None if system is None else system.to_string()
    return Located(values, names, values.copy(), _unit_of(system), "planar", name, name)


def is_geodataframe(table: object) -> bool:
    """Whether a table is a GeoDataFrame, without importing geopandas."""
    geopandas = sys.modules.get("geopandas")
    return geopandas is not None and isinstance(table, geopandas.GeoDataFrame)


def geometry_name(table: pd.DataFrame) -> str | None:
    """Name of the column with the places of a GeoDataFrame; None of any other table."""
    name: Any = getattr(table, "active_geometry_name", None) if is_geodataframe(table) else None
    return None if name is None else str(name)


def _from_points(table: pd.DataFrame, crs: Any) -> tuple[Floats, tuple[str, str], Any]:
    """Coordinates, their names and the CRS of a GeoDataFrame of points."""
    if not is_geodataframe(table) or table.active_geometry_name is None:
        raise CoordinateError(
            "coords is needed: the names of the two coordinate columns, x (or longitude) first, "
            f"such as {spelled('coords', ('longitude', 'latitude'))}. Only a table with geometry "
            "carries its own coordinates."
        )
    points, name = table.geometry, str(table.active_geometry_name)
    empty = (points.isna() | points.is_empty).to_numpy(dtype=bool)
    if empty.any():
        refuse_rows(f"Geometry column {name!r} has no point", empty, "Drop these rows.")
    other = (points.geom_type != "Point").to_numpy(dtype=bool)
    if other.any():
        refuse_rows(
            f"Geometry column {name!r} holds something else than a point",
            other,
            f"Name two columns of coordinates, {spelled('coords', ('x', 'y'))}, or use one point a "
            "record, for example its centroid.",
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


def from_columns(table: pd.DataFrame, coords: Any) -> tuple[Floats, tuple[str, str]]:
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
                f"{to_numbers_in_words(column)}"
            )
        parts.append(column.to_numpy(dtype=np.float64, na_value=np.nan))
    values = np.column_stack(parts)
    _check_finite(values, (first, second))
    return values, (first, second)


def _check_finite(values: Floats, names: tuple[str, str]) -> None:
    """Every coordinate must be a finite number."""
    for j, name in enumerate(names):
        for bad, what in (
            (np.isnan(values[:, j]), "missing values"),
            (np.isinf(values[:, j]), "infinite values"),
        ):
            if bad.any():
                refuse_rows(
                    f"Coordinate {name!r} has {what}", bad, "Drop or correct these rows first."
                )


def _warn_degrees(values: Floats) -> None:
    """Say where degrees are a poor measure of distance."""
    high = np.abs(values[:, 1]) > _HIGH_LATITUDE
    if high.any():
        _warn(
            f"{spelled('distance', 'degrees')} counts a degree of longitude as much as one of "
            f"latitude, but beyond {_HIGH_LATITUDE:g} degrees of latitude it is less than half as "
            f"long: {describe_rows(high)}. {spelled('distance', 'projected')} measures kilometres."
        )
    if np.ptp(values[:, 0]) > 180:
        _warn(
            "The longitudes span more than 180 degrees, so records on both sides of the edge "
            "of the map count as far apart. Shift the longitudes by 360 degrees on one side."
        )


def _projected(values: Floats, names: tuple[str, str], system: Any, geographic: bool) -> Located:
    """Sites in kilometres, in a plane whose distances are true, or said not to be."""
    import pyproj

    if geographic:
        source = pyproj.CRS.from_epsg(4326) if system is None else system
        plane = truest_plane(values, source)
    else:
        if system is None or not system.is_projected:
            raise CoordinateError(
                f"{spelled('distance', 'projected')} needs to know what {names[0]!r} and "
                f"{names[1]!r} are. Give their coordinate reference system, such as "
                f"{spelled('crs', 'EPSG:4326')} for longitudes and latitudes."
            )
        source, own = system, _own_plane(values, names, system)
        plane = own
        if own.error > TRUE_WITHIN:
            plane = truest_plane(own.degrees, system.geodetic_crs, own)
        if plane is not own:
            _warn(
                f"Distances in {_named(system)} are {_times(own)} the true ones here, so they are "
                f"measured in {_named(plane.system)} instead. Copies keep the coordinates as given."
            )
    _check_places(
        *(plane.sites, names, "cannot be projected"),
        "They lie too far from the others: project them to another CRS first.",
    )
    if plane.error > TRUE_WITHIN:
        _warn(
            f"No plane keeps all distances of so large a region: in {_named(plane.system)} they "
            f"are {_times(plane)} the true ones. A smaller region has truer ones."
        )
    return Located(
        *(values, names, plane.sites, "kilometre", "projected"),
        *(source.to_string(), plane.system.to_string()),
    )


def _check_true(values: Floats, names: tuple[str, str], system: Any, *, stated: bool) -> None:
    """Say where distances in a projected CRS are not true; refuse great errors, unless stated."""
    if system is None or not system.is_projected:
        return
    own = _own_plane(values, names, system)
    if own.error <= TRUE_WITHIN:
        return
    said = (
        f"Distances in {_named(system)} are {_times(own)} the true ones here. "
        f"{spelled('distance', 'projected')} measures true kilometres"
    )
    if own.error > _GREAT and not stated:
        raise CoordinateError(
            f"{said}; {spelled('distance', 'planar')} takes the coordinates as they are."
        )
    _warn(f"{said}.")


def _own_plane(values: Floats, names: tuple[str, str], system: Any) -> Plane:
    """The plane of coordinates in a projected CRS; each must be a place in it."""
    plane = plane_of(values, system)
    _check_places(
        *(plane.degrees, names, f"are no place in {_named(system)}"),
        "Correct these rows, or give the CRS that the coordinates are in.",
    )
    return plane


def _check_places(places: Floats, names: tuple[str, str], what: str, do: str) -> None:
    """Refuse coordinates whose place in a projection is NaN."""
    lost = np.asarray(np.isnan(places).any(axis=1))
    if lost.any():
        refuse_rows(f"Coordinates {names[0]!r} and {names[1]!r} {what}", lost, do)


def _named(system: Any) -> str:
    """A CRS by its code and name; the parameters of one made for the table stay unsaid."""
    if system.name == "unknown":
        return "a projection about the middle of the places"
    return f"{system.to_string()} ({system.name})"


def _times(plane: Plane) -> str:
    """By what factors distances in a plane differ from the true ones."""
    low, high = (f"{end:.3g}" for end in plane.scale)
    return f"{low} times" if low == high else f"{low} to {high} times"


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


def site_numbers(sites: Floats) -> NDArray[np.int64]:
    """Number of the distinct site of each record, from 0, in order of first appearance, shape (N,).

    Two records share a site where both planar coordinates, shape (N, 2), are exactly equal.

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


def largest_distance(sites: Floats) -> float:
    """Largest distance between any two sites, in their unit, found on their convex hull.

    Parameters
    ----------
    sites
        Planar coordinates, shape (n, 2).

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
