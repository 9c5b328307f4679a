"""Longitudes and latitudes: recognised among coordinates by what is stated, by values, by names.

What is stated counts most. A name such as ``site_lat`` counts where the values could be degrees,
and values alone decide nothing: they are reason enough to ask.
"""

from __future__ import annotations

import re
from typing import Any, NoReturn

import numpy as np

from dsstan.core.arrays import Floats, Truths
from dsstan.core.errors import CoordinateError, describe_rows
from dsstan.core.spelling import spelled

__all__ = [
    "check_range",
    "could_be_degrees",
    "is_latitude",
    "is_longitude",
    "longitudes_and_latitudes",
    "refuse_rows",
]

_LONGITUDE = {"lon", "long", "lng", "longitude", "longitud", "lons", "longs", "longitudes"}
_LATITUDE = {"lat", "latitude", "latitud", "lats", "latitudes"}
_EASTING, _NORTHING = {"easting", "eastings", "east"}, {"northing", "northings", "north"}
NEAR = 5.0
"""Coordinates within so much of 0 are not taken for degrees by their values alone."""
AWAY = 1e5
"""Metres of a grid of a country are farther from 0 in one direction."""
_MANY = 1000
"""Points that are compared with the area of a coordinate reference system."""


def _words(name: str) -> set[str]:
    """The words that a name is made of, in lower case."""
    parted = re.sub(r"(?<=[^\W\dA-Z_])(?=[A-Z])", " ", name)
    return {word.lower() for word in re.findall(r"[^\W\d_]+", parted)}


def is_longitude(name: str) -> bool:
    """Whether a name says longitude.

    Examples
    --------
    >>> [is_longitude(name) for name in ("long", "site_lon", "gpsLon", "along", "lat_long")]
    [True, True, True, False, False]
    """
    return bool(_words(name) & _LONGITUDE) and not _words(name) & _LATITUDE


def is_latitude(name: str) -> bool:
    """Whether a name says latitude."""
    return bool(_words(name) & _LATITUDE) and not _words(name) & _LONGITUDE


def longitudes_and_latitudes(
    values: Floats, names: tuple[str, str], system: Any, distance: str | None
) -> bool:
    """Whether coordinates are longitudes and latitudes.

    Parameters
    ----------
    values
        Coordinates as given, shape (N, 2).
    names
        Of their columns.
    system
        The CRS that was stated, or None.
    distance
        How distance is measured, as it was stated, or None.

    Raises
    ------
    CoordinateError
        If names, values and what was stated contradict each other, the two are swapped, or the
        values look like degrees and nothing says what they are.
    """
    named = any(is_longitude(name) or is_latitude(name) for name in names)
    backwards = is_latitude(names[0]) or is_longitude(names[1])
    fit = _in_degrees(values) | _in_degrees(values[:, ::-1])
    mostly = could_be_degrees(values)
    geographic = named and mostly if system is None else bool(system.is_geographic)
    if system is not None:
        if named and mostly and not geographic:
            raise CoordinateError(
                f"Columns {names[0]!r} and {names[1]!r} are named as longitude and latitude, and "
                f"their values could be, but the CRS {system.to_string()} is not geographic. Give "
                f"the CRS that they are in, such as {spelled('crs', 'EPSG:4326')} for GPS "
                "coordinates, or rename them."
            )
        _check_area(values, names, system)
    elif named and not mostly and distance != "planar":
        refuse_rows(
            f"Columns {names[0]!r} and {names[1]!r} are named as longitude and latitude, but are "
            "beyond [-180, 360] and [-90, 90]",
            ~fit,
            f"Say what they are: {spelled('distance', 'planar')} for planar coordinates such as "
            f"metres, or their CRS, as in {spelled('crs', 'EPSG:27700')}.",
        )
    elif not named and distance is None:
        _ask(values, names)
    if not geographic and (system is not None or distance != "planar"):
        _refuse_mixed(values, names)
    if _words(names[0]) & _NORTHING and _words(names[1]) & _EASTING:
        raise CoordinateError(
            f"The coordinates are given as ({names[0]!r}, {names[1]!r}), northing first; easting "
            f"comes first. Use {spelled('coords', names[::-1])}."
        )
    if geographic and backwards:
        raise CoordinateError(
            f"The coordinates are given as ({names[0]!r}, {names[1]!r}), latitude first; "
            f"longitude comes first. Use {spelled('coords', names[::-1])}."
        )
    return geographic


def check_range(values: Floats, names: tuple[str, str]) -> None:
    """Longitudes lie in [-180, 360] and latitudes in [-90, 90].

    Raises CoordinateError if some do not, or are 0 and 0 where others are far from there.
    """
    _refuse_null_island(values, names)
    bad_longitude = (values[:, 0] < -180) | (values[:, 0] > 360)
    bad_latitude = np.abs(values[:, 1]) > 90
    bad = bad_longitude | bad_latitude
    turned = bad & _in_degrees(values[:, ::-1])
    if turned.any() and (turned == bad).all():
        whole = bool(_in_degrees(values[:, ::-1]).all())
        do = f"Use {spelled('coords', names[::-1])}" if whole else "Swap the two in these rows"
        refuse_rows(
            f"Latitude {names[1]!r} is outside [-90, 90]",
            turned,
            f"There {names[0]!r} is inside, so the two look swapped. Longitude comes first. {do}.",
        )
    for name, wrong, span in (
        (names[0], bad_longitude, "Longitude {!r} is outside [-180, 360]"),
        (names[1], bad_latitude, "Latitude {!r} is outside [-90, 90]"),
    ):
        if wrong.any():
            refuse_rows(
                span.format(name),
                wrong,
                "Correct these rows, or give the CRS that the coordinates are in.",
            )


def _refuse_mixed(values: Floats, names: tuple[str, str]) -> None:
    """Refuse planar coordinates of which some could be degrees and all others are far away."""
    degrees = _in_degrees(values)
    few, other = (degrees, ~degrees) if degrees.mean() <= 0.5 else (~degrees, degrees)
    if few.any() and np.abs(values[~degrees]).min(initial=np.inf) > AWAY:
        kinds = ("degrees", "metres") if few is degrees else ("metres", "degrees")
        refuse_rows(
            f"Coordinates {names[0]!r} and {names[1]!r} look like {kinds[0]}",
            few,
            f"All {int(other.sum())} others look like {kinds[1]}. Bring them into one system, or "
            f"say that they are in one: {spelled('distance', 'planar')}, without a CRS.",
        )


def _refuse_null_island(values: Floats, names: tuple[str, str]) -> None:
    """Refuse records at longitude 0 and latitude 0 beside others that are elsewhere."""
    nowhere = np.all(values == 0.0, axis=1)
    if nowhere.any() and np.abs(values[~nowhere]).max(initial=0.0) > NEAR:
        refuse_rows(
            f"Longitude {names[0]!r} and latitude {names[1]!r} are both 0, a place in the sea",
            nowhere,
            "Programs write that for a place they did not find: correct these rows, or drop them.",
        )


def could_be_degrees(values: Floats) -> bool:
    """Whether most coordinates could be degrees, in either order."""
    return bool(np.mean(_in_degrees(values) | _in_degrees(values[:, ::-1])) > 0.5)


def _in_degrees(values: Floats) -> Truths:
    """Records whose first coordinate could be a longitude and whose second a latitude."""
    x, y = values.T
    return np.asarray((x >= -180) & (x <= 360) & (np.abs(y) <= 90))


def _like_degrees(values: Floats) -> bool:
    """Whether all coordinates could be degrees, and are farther from 0 than planar ones are.

    A plane of one's own begins near 0, and a part of a unit square is as near to it. Degrees are
    in few places on earth.
    """
    if np.abs(values).max() <= NEAR:
        return False
    if not (_in_degrees(values).all() and values[:, 0].max() <= 180):
        return False
    if (values == np.rint(values)).all():  # rows and columns of a grid
        return False
    away = np.abs(values).min(axis=0) > np.ptp(values, axis=0)
    return bool(away.any() or (values.max(axis=0) < 0).any())


def _ask(values: Floats, names: tuple[str, str]) -> None:
    """Ask what coordinates are that look like degrees, in either order."""
    right, turned = _like_degrees(values), _like_degrees(values[:, ::-1])
    if not (right or turned):
        return
    swap, what = "", "longitudes and latitudes"
    if not right:
        swap, what = f"{spelled('coords', names[::-1])}, ", "latitudes and longitudes, swapped"
    raise CoordinateError(
        f"Coordinates {names[0]!r} and {names[1]!r} look like {what}, and nothing says what they "
        f"are. If they are, longitude comes first: {swap}{spelled('crs', 'EPSG:4326')} and "
        f"{spelled('distance', 'projected')}, which measures kilometres. If they are planar: "
        f"{spelled('distance', 'planar')}."
    )


def _check_area(values: Floats, names: tuple[str, str], system: Any) -> None:
    """Refuse coordinates that lie in the area of their CRS only when swapped."""
    import pyproj

    area = system.area_of_use
    if area is None or area.west >= area.east:
        return
    move = pyproj.Transformer.from_crs(system, system.geodetic_crs, always_xy=True)
    some = values[:: -(-len(values) // _MANY)]

    def inside(points: Floats) -> float:
        x, y = move.transform(*points.T)
        within = (x >= area.west) & (x <= area.east) & (y >= area.south) & (y <= area.north)
        return float(np.mean(within))

    if inside(some) == 0.0 and inside(some[:, ::-1]) == 1.0:
        raise CoordinateError(
            f"Coordinates {names[0]!r} and {names[1]!r} are outside the area of the CRS "
            f"{system.to_string()} ({area.name}), and inside it the other way round: the two look "
            f"swapped. x, or longitude, comes first. Use {spelled('coords', names[::-1])}."
        )


def refuse_rows(what: str, bad: Truths, do: str) -> NoReturn:
    """Refuse coordinates of some rows: what is wrong, which rows, and what to do."""
    raise CoordinateError(f"{what} in {describe_rows(bad)}. {do}")
