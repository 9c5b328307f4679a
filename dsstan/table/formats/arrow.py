"""Parquet, GeoParquet and Feather, by Arrow."""

from __future__ import annotations

import io
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from dsstan.core.errors import ReleaseError
from dsstan.core.optional import needed
from dsstan.table.as_read import AS_READ, Asked, AsRead
from dsstan.table.columns import arrow_to_pandas
from dsstan.table.places.coordinates import is_geodataframe
from dsstan.table.sizes import check_size

__all__ = ["read_feather", "read_parquet", "typed_as", "write_feather", "write_parquet"]

_GEO = b"geo"
"""The key under which Arrow's metadata describe geometry."""


@dataclass(eq=False, repr=False)
class ArrowAsRead(AsRead):
    """How a table stood in Arrow.

    Attributes
    ----------
    schema
        Names and types of its columns, without what else a file may say of them.
    """

    schema: Any = None


def read_parquet(path: Path, asked: Asked) -> pd.DataFrame:
    """The table of a Parquet file, a GeoDataFrame where it has geometry.

    The file is opened first, since Arrow takes no path that is not UTF-8.
    """
    import pyarrow.parquet as pq

    with open(path, "rb") as stream:
        head = pq.read_metadata(stream)
    check_size(path, head.num_rows, head.num_columns, asked)
    with open(path, "rb") as stream:
        arrow = pq.read_table(stream)
    return _table(path, arrow, "read_parquet", "parquet")


def read_feather(path: Path, asked: Asked) -> pd.DataFrame:
    """The table of a Feather file, a GeoDataFrame where it has geometry."""
    import pyarrow.dataset
    import pyarrow.feather

    with open(path, "rb") as stream:
        fragment = pyarrow.dataset.IpcFileFormat().make_fragment(stream)
        check_size(path, fragment.count_rows(), len(fragment.physical_schema.names), asked)
    with open(path, "rb") as stream:
        arrow = pyarrow.feather.read_table(stream)
    return _table(path, arrow, "read_feather", "feather")


def _table(path: Path, arrow: Any, geographic: str, format: str) -> pd.DataFrame:
    """The table of an Arrow table; geometry as geopandas reads it, the rest to the letter."""
    table: pd.DataFrame
    metadata = arrow.schema.metadata or {}
    if _GEO in metadata:
        geopandas = needed("geopandas", "geo")
        with open(path, "rb") as stream:
            table = getattr(geopandas, geographic)(stream)
        shapes = set(table.columns[table.dtypes == "geometry"])
        there = [name for name in arrow.column_names if name not in shapes]
        rest = arrow_to_pandas(arrow.select(there))
        for name in rest.columns:
            table[name] = rest[name].array
    else:
        table = arrow_to_pandas(arrow)
    table.attrs = {AS_READ: ArrowAsRead(format, arrow.schema.remove_metadata())}
    return table


def typed_as(arrow: Any, table: pd.DataFrame, schema: Any, made: Collection[str]) -> Any:
    """An Arrow table of a table of pandas, its columns of the types that they had in a file.

    A column that no longer fits its type keeps the one of pandas.
    """
    import pyarrow as pa

    for place, name in enumerate(arrow.column_names):
        if schema is None or name not in schema.names or name in made or name not in table:
            continue
        kind = schema.field(name).type
        if arrow.schema.field(name).type == kind or str(table[name].dtype) == "geometry":
            continue
        try:
            column = pa.array(table[name].array, kind, from_pandas=True)
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, TypeError):
            continue
        arrow = arrow.set_column(place, pa.field(name, kind), column)
    return arrow


def write_parquet(
    table: pd.DataFrame, path: Path, as_read: AsRead | None = None, made: Collection[str] = ()
) -> None:
    """Write Parquet; to an open file, since Arrow takes no path that is not UTF-8."""
    import pyarrow.parquet as pq

    arrow = _arrow(table, as_read, made)
    with open(path, "wb") as stream:
        pq.write_table(arrow, stream)


def write_feather(
    table: pd.DataFrame, path: Path, as_read: AsRead | None = None, made: Collection[str] = ()
) -> None:
    """Write Feather, which is Arrow's own format of files."""
    import pyarrow.feather

    arrow = _arrow(table, as_read, made)
    with open(path, "wb") as stream:
        pyarrow.feather.write_feather(arrow, stream)


def _arrow(table: pd.DataFrame, as_read: AsRead | None, made: Collection[str]) -> Any:
    """The table for Arrow. Raises ReleaseError if a column is of no one kind."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if is_geodataframe(table):
            content = io.BytesIO()
            table.to_parquet(content)
            arrow = pq.read_table(io.BytesIO(content.getvalue()))
        else:
            arrow = pa.Table.from_pandas(table)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        mixed = [
            str(name)
            for name in table.columns
            if pd.api.types.infer_dtype(table[name], skipna=True).startswith("mixed")
        ]
        named = f"column {mixed[0]!r}" if mixed else "a column or the index"
        raise ReleaseError(
            f"the release can't be written as Parquet: {named} holds values of several kinds. Make "
            "them one kind, for example with astype(str), or publish CSV"
        ) from None
    schema = as_read.schema if isinstance(as_read, ArrowAsRead) else None
    return typed_as(arrow, table, schema, made)
