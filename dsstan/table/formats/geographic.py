"""GeoPackage and shapefile, by pyogrio."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Collection
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from dsstan.core.errors import CONTROL, InputError, ReleaseError
from dsstan.core.optional import needed
from dsstan.core.spelling import spelled
from dsstan.table.as_read import AS_READ, Asked, AsRead
from dsstan.table.columns import arrow_to_pandas
from dsstan.table.formats.arrow import typed_as
from dsstan.table.formats.layers import one_layer
from dsstan.table.places.coordinates import geometry_name
from dsstan.table.sizes import check_size

__all__ = ["GeoAsRead", "read_geopackage", "read_shapefile", "write_geopackage", "write_shapefile"]

_LONGEST_NAME = 10
"""Letters of a column's name in a shapefile."""

_LONGEST_TEXT = 2**20
"""Bytes of a text in the lists of a GeoPackage, and of a statement that makes a table."""

_SHOWN = 60

_STORED = re.compile(
    r'CREATE ((TABLE|INDEX|UNIQUE INDEX|TRIGGER) |VIRTUAL TABLE ("[^"]*"|\w+) USING rtree *\()',
    re.IGNORECASE,
)
"""How SQLite keeps the statements of a GeoPackage that run nothing when it is read; its indices of
places are virtual tables of the kind rtree."""

_COMPUTED = "SELECT t.name FROM sqlite_master AS t, pragma_table_xinfo(t.name) AS c WHERE c.hidden"
_LISTS = (
    "SELECT name FROM sqlite_master WHERE type = 'table' "
    "AND (name LIKE 'gpkg%' OR name = 'layer_styles' COLLATE NOCASE)"
)
"""The tables that GDAL reads whatever the layer."""


@dataclass(eq=False, repr=False)
class GeoAsRead(AsRead):
    """How a table stood in a geographic file.

    Attributes
    ----------
    layer
        Its name; empty where the file names it.
    shape
        The type of its geometry, such as ``"Point"``.
    schema
        Names and types of the other columns, of Arrow.
    """

    layer: str = ""
    shape: str = "Unknown"
    schema: Any = None


def read_geopackage(path: Path, asked: Asked) -> pd.DataFrame:
    """A layer of a GeoPackage, a GeoDataFrame.

    Raises InputError if it is none, it has several layers and none was named, or opening it would
    run something that it holds.
    """
    _begins(path, b"SQLite format 3\0", "GeoPackage")
    pyogrio = needed("pyogrio", "geo")
    _check_nothing_runs(path)
    names = [str(name) for name, shape in pyogrio.list_layers(path) if shape is not None]
    return _read(path, one_layer(path, names, asked.layer, "layer"), asked, "gpkg")


def _check_nothing_runs(path: Path) -> None:
    """Refuse a GeoPackage that holds more than stored rows, before GDAL looks at it.

    A view or a computed column may never end or fill the memory, and GDAL asks several tables
    for their rows just to list the layers. Triggers run only where rows are changed.

    Raises InputError.
    """
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as file:
            file.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_TEXT)
            made = file.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL")
            runs = [name for name, sql in made if not _STORED.match(sql)]
            if not runs:
                runs = [name for (name,) in file.execute(_COMPUTED)]
            if not runs:
                for (name,) in file.execute(_LISTS).fetchall():
                    quoted = name.replace('"', '""')
                    for _ in file.execute(f'SELECT * FROM "{quoted}"'):  # each within the limit
                        pass
    except sqlite3.Error:
        raise InputError(
            f"{path.name} can't be read as a GeoPackage, or its own lists hold texts of more than "
            f"{_LONGEST_TEXT >> 20} MiB: save the layer again, in a file of its own"
        ) from None
    if runs:
        raise InputError(
            f"{path.name} holds a view, a virtual table or a computed column "
            f"({CONTROL.sub('?', str(runs[0])[:_SHOWN])!r}), which is not run here: save the layer "
            "in a file of its own"
        )


def read_shapefile(path: Path, asked: Asked) -> pd.DataFrame:
    """The table of a shapefile, a GeoDataFrame.

    Raises InputError if it is none, or a file beside it is missing.
    """
    _begins(path, b"\0\0\x27\x0a", "shapefile")
    there = {other.name.lower() for other in path.parent.iterdir()}
    lost = [part for part in (".shx", ".dbf") if path.stem.lower() + part not in there]
    if lost:
        raise InputError(
            f"{path.name} lacks {path.stem}{lost[0]} beside it: a shapefile is several files of "
            "one name; copy them all"
        )
    if asked.layer is not None:
        raise InputError(f"{path.name} has one layer: leave layer out")
    return _read(path, None, asked, "shp")


def _begins(path: Path, first: bytes, what: str) -> None:
    """Refuse a file whose first bytes are not those of its kind: readers guess by content."""
    with open(path, "rb") as stream:
        if stream.read(len(first)) != first:
            raise InputError(f"{path.name} is no {what}, whatever its name says: save it as one")


def _read(path: Path, layer: str | None, asked: Asked, format: str) -> pd.DataFrame:
    """One layer as Arrow gives it, so that whole numbers with gaps stay whole numbers."""
    pyogrio, geopandas = needed("pyogrio", "geo"), needed("geopandas", "geo")
    info = pyogrio.read_info(path, layer=layer, force_feature_count=True)
    check_size(path, int(info["features"]), len(info["fields"]), asked)
    meta, arrow = pyogrio.read_arrow(path, layer=layer)
    stored = meta["geometry_name"] or "wkb_geometry"
    if meta["geometry_type"] is None or stored not in arrow.column_names:
        raise InputError(
            f"{path.name} has no geometry: save its table as CSV or Parquet and give the two "
            "columns of coordinates"
        )
    shapes = geopandas.GeoSeries.from_wkb(arrow.column(stored).to_pylist(), crs=meta["crs"])
    plain = arrow.drop_columns([stored])
    name = meta["geometry_name"] or "geometry"
    table: pd.DataFrame = geopandas.GeoDataFrame(
        arrow_to_pandas(plain).assign(**{name: shapes.array}), geometry=name, crs=meta["crs"]
    )
    table.attrs = {
        AS_READ: GeoAsRead(
            format, layer or "", meta["geometry_type"], plain.schema.remove_metadata()
        )
    }
    return table


def write_geopackage(
    table: pd.DataFrame, path: Path, as_read: AsRead | None, made: Collection[str]
) -> None:
    """Write a GeoPackage of one layer, under the name that it had."""
    layer = (as_read.layer if isinstance(as_read, GeoAsRead) else "") or "copy"
    _write(
        *(table, path, as_read, made),
        driver="GPKG",
        layer=layer,
        layer_options={"GEOMETRY_NAME": geometry_name(table), "FID": _unused("fid", table)},
    )


def write_shapefile(
    table: pd.DataFrame, path: Path, as_read: AsRead | None, made: Collection[str]
) -> None:
    """Write a shapefile: the file named and those beside it.

    Raises ReleaseError if the name of a column is too long.
    """
    long = [
        str(name)
        for name in table.columns
        if len(str(name).encode()) > _LONGEST_NAME and name != geometry_name(table)
    ]
    if long:
        raise ReleaseError(
            f"a shapefile has names of at most {_LONGEST_NAME} letters, and column {long[0]!r} has "
            f"more: shorten it, or give {spelled('format', 'gpkg')}"
        )
    _write(table, path, as_read, made, driver="ESRI Shapefile", layer=path.stem)


def _write(
    table: pd.DataFrame, path: Path, as_read: AsRead | None, made: Collection[str], **how: Any
) -> None:
    """Write one layer with the types that its columns had."""
    import pyarrow as pa

    pyogrio = needed("pyogrio", "geo")
    shapes = table.geometry
    plain = pd.DataFrame(table.drop(columns=shapes.name))
    for column in plain.columns:
        if isinstance(plain[column].dtype, pd.CategoricalDtype):
            plain[column] = plain[column].astype(plain[column].cat.categories.dtype)
    known = as_read if isinstance(as_read, GeoAsRead) else GeoAsRead("")
    arrow = pa.Table.from_pandas(plain, preserve_index=False).replace_schema_metadata(None)
    arrow = typed_as(arrow, plain, known.schema, made)
    arrow = arrow.append_column(shapes.name, pa.array(shapes.to_wkb().tolist(), pa.binary()))
    kinds = set(shapes.geom_type.dropna())
    shape = known.shape if known.shape != "Unknown" or len(kinds) != 1 else kinds.pop()
    crs = None if shapes.crs is None else shapes.crs.to_wkt()
    code = None if shapes.crs is None else shapes.crs.to_authority()
    pyogrio.write_arrow(
        arrow,
        path,
        geometry_name=shapes.name,
        geometry_type=shape,
        crs=":".join(code) if code else crs,
        encoding="UTF-8",
        **how,
    )


def _unused(name: str, table: pd.DataFrame) -> str:
    """A name that no column has, whatever its case."""
    taken = {str(column).lower() for column in table.columns}
    while name in taken:
        name += "_"
    return name
