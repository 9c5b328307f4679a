"""How true distances between planar coordinates are, and the projection that keeps them true.

Every projection stretches some distances. What matters is by how much at the places of a table:
a UTM zone by a thousandth, the pseudo-Mercator projection of web maps (EPSG:3857) by 60% at 51
degrees of latitude. So the distances in the plane are compared with those on the ellipsoid.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from dsstan.core.arrays import Floats

if TYPE_CHECKING:
    import pyproj

TRUE_WITHIN = 0.005
"""Error of a distance up to which it counts as true."""

_COMPARED = 300
"""Most sites whose distances from one another are compared."""
_SHORTEST = 0.01
"""Shortest distance compared, as a share of the longest, where that is below a metre."""
_CONFORMAL = ("tmerc", "lcc", "merc", "stere")
"""Projections for tables that are tall, wide, at the equator, and as wide as tall."""


@dataclass(frozen=True, eq=False)
class Plane:
    """Sites in the plane of a coordinate reference system, with their places on the earth.

    Attributes
    ----------
    system
        A projected system of pyproj.
    sites
        Coordinates in kilometres, shape (N, 2).
    degrees
        Longitudes and latitudes of the same places, shape (N, 2).
    """

    system: pyproj.CRS
    sites: Floats
    degrees: Floats

    @cached_property
    def scale(self) -> tuple[float, float]:
        """Least and largest distance in the plane, over that on the ellipsoid."""
        _, rows = np.unique(self.degrees, axis=0, return_index=True)
        if len(rows) > _COMPARED:
            ends = np.concatenate([f(self.degrees, axis=0) for f in (np.argmin, np.argmax)])
            spread = np.linspace(0, len(rows) - 1, _COMPARED).astype(int)
            rows = np.unique([*rows[spread], *ends])
        i, j = np.triu_indices(len(rows), k=1)
        start, end = self.degrees[rows[i]].T, self.degrees[rows[j]].T
        geod = self.system.get_geod()
        assert geod is not None  # every projected system has its ellipsoid
        metres = np.asarray(geod.inv(*start, *end)[2])
        drawn = 1000.0 * np.hypot(*(self.sites[rows[i]] - self.sites[rows[j]]).T)
        # Rounding decides the ratio of two lengths below a millimetre.
        ratio = (drawn / metres)[metres > min(1.0, _SHORTEST * metres.max(initial=0.0))]
        return (float(ratio.min()), float(ratio.max())) if ratio.size else (1.0, 1.0)

    @property
    def error(self) -> float:
        """Largest relative error of a distance."""
        low, high = self.scale
        return max(1.0 - low, high - 1.0)


def plane_of(values: Floats, system: pyproj.CRS) -> Plane:
    """The plane of coordinates in a projected system, shape (N, 2), x first.

    Places that the system does not have get NaN.
    """
    import pyproj

    metres = float(system.axis_info[0].unit_conversion_factor)
    back = pyproj.Transformer.from_crs(system, system.geodetic_crs, always_xy=True)
    degrees = np.column_stack(back.transform(*values.T))
    return Plane(system, values * (metres / 1000.0), _finite(degrees))


def truest_plane(degrees: Floats, source: pyproj.CRS, *others: Plane) -> Plane:
    """The plane in which distances between places are as long as on the earth.

    The UTM zone of their middle, where distances there are true within :data:`TRUE_WITHIN`; else
    the truest of that zone, the ``others`` and conformal projections centred on the places.

    Parameters
    ----------
    degrees
        Longitudes and latitudes, shape (N, 2).
    source
        The geographic system that they are in.
    """
    import pyproj

    longitude, latitude = degrees.T
    # Either range of longitudes may be the one that the edge of the map does not cut.
    wrapped = longitude % 360.0
    if np.ptp(wrapped) >= np.ptp(longitude):
        wrapped = longitude
    x = (float(wrapped.min() + wrapped.max()) / 2 + 180.0) % 360.0 - 180.0
    y = float(latitude.min() + latitude.max()) / 2
    zone = _utm(x, y)
    planes = [] if zone is None else [_drawn(degrees, source, zone)]
    if not planes or not planes[0].error <= TRUE_WITHIN:
        if np.ptp(wrapped) > 180.0:  # around a pole
            y = float(np.copysign(90.0, y))
        planes += others
        for name in _CONFORMAL:
            with suppress(pyproj.exceptions.ProjError):  # a cone about the equator, or about a pole
                planes.append(_centred(degrees, source, name, x, y))
    return min(planes, key=lambda plane: np.nan_to_num(plane.error, nan=np.inf))


def _utm(x: float, y: float) -> Any:
    """The system of the UTM zone of a place, None where there is none."""
    import pyproj
    from pyproj.aoi import AreaOfInterest
    from pyproj.database import query_utm_crs_info

    zones = query_utm_crs_info(datum_name="WGS 84", area_of_interest=AreaOfInterest(x, y, x, y))
    return pyproj.CRS.from_epsg(int(zones[0].code)) if zones else None


def _centred(degrees: Floats, source: pyproj.CRS, name: str, x: float, y: float) -> Plane:
    """A conformal projection about a place, whose longest and shortest distances err as much."""
    import pyproj

    middle = f"+proj={name} +lat_0={y:.4g} +lat_1={y:.4g} +lon_0={x:.4g}"

    def scaled(k: float) -> Plane:
        text = f"{middle} +k_0={k:.6g} +datum=WGS84 +units=m"
        return _drawn(degrees, source, pyproj.CRS.from_user_input(text))

    low, high = scaled(1.0).scale
    return scaled(2.0 / (low + high))


def _drawn(degrees: Floats, source: pyproj.CRS, system: pyproj.CRS) -> Plane:
    """Places projected to a system."""
    import pyproj

    move = pyproj.Transformer.from_crs(source, system, always_xy=True)
    return Plane(system, _finite(np.column_stack(move.transform(*degrees.T))) / 1000.0, degrees)


def _finite(values: Floats) -> Floats:
    """Values with NaN for the infinities, which stand for no place."""
    return np.where(np.isfinite(values), values, np.nan)
