"""GeoJSON, read and written as JSON: numbers, truth values and text stay what they are."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pandas as pd

from dsstan.core.errors import InputError, ReleaseError, describe_rows
from dsstan.core.optional import needed
from dsstan.core.spelling import spelled
from dsstan.table.as_read import AS_READ, Asked, AsRead
from dsstan.table.sizes import check_size

__all__ = ["read_geojson", "write_geojson"]

GEOMETRY = "geometry"
_DEGREES = "OGC:CRS84"
"""What coordinates are in a file that names no system (RFC 7946, section 4)."""

_MOST_EMPTY = 2**24
"""Cells that a table may have for properties that its features lack: a small file has many."""


@dataclass(eq=False, repr=False)
class JsonAsRead(AsRead):
    """How a table stood in GeoJSON.

    Attributes
    ----------
    crs
        What the file says of its system; None where it says nothing.
    """

    crs: Any = None


def read_geojson(path: Path, asked: Asked) -> pd.DataFrame:
    """The features of a GeoJSON file, a GeoDataFrame.

    Without a system of its own its coordinates are longitudes and latitudes, as the standard says;
    where they can't be, they have none.

    Raises InputError if it is no collection of features, two kinds of value stand in one column, or
    a property is itself a list or an object and is needed.
    """
    geopandas, shapely = needed("geopandas", "geo"), needed("shapely", "geo")
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"), parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{path.name} can't be read as JSON in UTF-8 ({type(error).__name__}): export it again "
            "as GeoJSON"
        ) from None
    features = content.get("features") if isinstance(content, dict) else None
    if not isinstance(features, list) or not features or not all(map(_is_feature, features)):
        raise InputError(
            f"{path.name} is no GeoJSON FeatureCollection of at least one feature: export it as one"
        )
    properties = [one.get("properties") or {} for one in features]
    names = list(dict.fromkeys(key for one in properties for key in one))
    if GEOMETRY in names:
        raise InputError(
            f"{path.name} has a property named {GEOMETRY!r}, which is what its places are called: "
            "rename it"
        )
    check_size(path, len(features), len(names), asked)
    if len(features) * len(names) - sum(map(len, properties)) > _MOST_EMPTY:
        raise InputError(
            f"{path.name} has {len(features)} features and {len(names)} names of properties, of "
            "which each feature has few: export it with the same properties for all features"
        )
    cells = {n: [one.get(n) for one in properties] for n in names}
    columns = {name: _column(path, name, values, asked) for name, values in cells.items()}
    try:
        places = [
            None if one.get("geometry") is None else shapely.from_geojson(json.dumps(one[GEOMETRY]))
            for one in features
        ]
    except shapely.errors.GEOSException:
        raise InputError(
            f"{path.name} holds a geometry that is none of GeoJSON's: export it again"
        ) from None
    said = content.get("crs")
    crs = _DEGREES if said is None and _may_be_degrees(places) else _named(path, said)
    table: pd.DataFrame = geopandas.GeoDataFrame(
        pd.DataFrame(columns, index=pd.RangeIndex(len(features))),
        geometry=geopandas.GeoSeries(places, crs=crs),
        crs=crs,
    )
    table.attrs = {AS_READ: JsonAsRead("geojson", said)}
    return table


def _no_number(text: str) -> NoReturn:
    raise ValueError(text)


def _is_feature(one: Any) -> bool:
    """Whether a part of the collection is a feature."""
    return (
        isinstance(one, dict)
        and one.get("type") == "Feature"
        and isinstance(one.get("properties"), dict | None)
        and isinstance(one.get(GEOMETRY), dict | None)
    )


def _may_be_degrees(places: list[Any]) -> bool:
    """Whether all places lie within the range of longitudes and latitudes."""
    bounds = np.array([one.bounds for one in places if one is not None and not one.is_empty])
    return not bounds.size or bool((np.abs(bounds) <= [180.0, 90.0, 180.0, 90.0]).all())


def _named(path: Path, said: Any) -> Any:
    """The system that a file names; nothing that it links to is fetched."""
    if said is None:
        return None
    try:
        import pyproj

        return pyproj.CRS.from_user_input(str(said["properties"]["name"]))
    except Exception:  # of many kinds
        raise InputError(
            f"{path.name} names its coordinate reference system in a way that is not known: take "
            "the key crs out of it, if it has longitudes and latitudes, or export it again"
        ) from None


def _column(path: Path, name: str, values: list[Any], asked: Asked) -> pd.Series:
    """One property of all features, of the type that its values have."""
    kinds = {type(one) for one in values if one is not None}
    gaps = None in values
    if kinds == {bool}:
        return pd.Series(values, dtype="boolean" if gaps else "bool")
    if kinds == {int} and all(abs(one) < 2**63 for one in values if one is not None):
        return pd.Series(values, dtype="Int64" if gaps else "int64")
    if kinds <= {int, float}:
        return pd.Series(values, dtype="float64")
    if kinds == {str}:
        return pd.Series(values, dtype="object" if gaps else "str")
    if asked.used is not None and name not in asked.used:
        return pd.Series(values, dtype="object")  # as it is; the check of the copies refuses it
    text = np.array([isinstance(one, str | list | dict) for one in values])
    raise InputError(
        f"column {name!r} of {path.name} holds values of several kinds, numbers and others, with "
        f"text, lists or objects in {describe_rows(text)}: make them one kind"
    )


def write_geojson(
    table: pd.DataFrame, path: Path, as_read: AsRead | None, made: Collection[str]
) -> None:
    """Write a collection of features; raises ReleaseError for values that JSON does not have."""
    said = as_read.crs if isinstance(as_read, JsonAsRead) else None
    places = table.geometry
    if said is None and not isinstance(as_read, JsonAsRead) and places.crs is not None:
        code = places.crs.to_authority()
        if code is None:
            raise ReleaseError(
                "GeoJSON names a coordinate reference system by its code, and that of the table "
                f"has none: give {spelled('format', 'gpkg')}"
            )
        if code not in (("OGC", "CRS84"), ("EPSG", "4326")):
            name = f"urn:ogc:def:crs:{code[0]}::{code[1]}"
            said = {"type": "name", "properties": {"name": name}}
    names = [name for name in table.columns if name != places.name]
    cells = [[_value(name, one) for one in table[name]] for name in names]
    shapes = [None if one is None else one.__geo_interface__ for one in places]
    head = {"type": "FeatureCollection"} | ({} if said is None else {"crs": said})
    start = json.dumps(head, ensure_ascii=False)[:-1]
    with open(path, "w", encoding="utf-8", newline="") as stream:
        stream.write(f'{start}, "features": [\n')
        rows = zip(*cells, strict=True) if cells else iter([()] * len(shapes))
        lines = (
            json.dumps(
                {
                    "type": "Feature",
                    "properties": dict(zip(map(str, names), row, strict=True)),
                    GEOMETRY: shape,
                },
                ensure_ascii=False,
                allow_nan=False,
            )
            for row, shape in zip(rows, shapes, strict=True)
        )
        stream.write(",\n".join(lines))
        stream.write("\n]}\n")


def _value(name: Any, value: Any) -> Any:
    """A cell as JSON has it."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str | bool | int):
        return value
    if pd.api.types.is_scalar(value) and pd.isna(value):
        return None
    if isinstance(value, float) and np.isfinite(value):
        return value
    if hasattr(value, "isoformat"):
        return value.isoformat()
    raise ReleaseError(
        f"column {str(name)!r} holds values that GeoJSON does not have: take it out of publish, or "
        f"give {spelled('format', 'parquet')}"
    )
