"""Parquet files of one table, read in pieces so that the whole is never in memory."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dsstan.core.errors import InputError, ReleaseError, TableError

CELLS = 2**20
"""Cells that are read at a time, of all columns; a row group with more is read in parts."""
LEAST, MOST = 2**12, 2**17
"""Rows that are read at a time, in a wide table and in a narrow one."""

_BUFFER = 2**16
_KINDS = (".parquet", ".pq")


@dataclass(frozen=True, eq=False)
class ParquetSource:
    """One Parquet file, or the files of one folder in the order of their names.

    Attributes
    ----------
    files
        Their paths.
    schema
        Arrow schema that all of them have; its metadata are those of the first.
    rows
        Number of rows of each file.
    groups
        Number of row groups of all files.
    stamps
        Device, inode, size and time of each file when it was opened.
    """

    files: tuple[Path, ...]
    schema: Any = field(repr=False)
    rows: tuple[int, ...]
    groups: int
    stamps: tuple[tuple[int, ...], ...] = field(repr=False)

    @property
    def n_records(self) -> int:
        """Number of rows of all files."""
        return sum(self.rows)

    @cached_property
    def index(self) -> tuple[str, ...]:
        """Columns that pandas stored its index in; none where it is a count."""
        return _index_of(self.schema)

    @cached_property
    def empty(self) -> pd.DataFrame:
        """The table without its rows; columns, index and types as pandas reads them."""
        with naming(self.files[0]):
            return self.schema.empty_table().to_pandas()  # type: ignore[no-any-return]

    @cached_property
    def types(self) -> dict[str, str]:
        """Type of each column as pandas reads it, by name."""
        found = {}
        for name, dtype in self.empty.dtypes.items():
            plain = isinstance(dtype, np.dtype) and dtype.kind in "iub"
            if plain and self._has_nulls(str(name)):  # what pandas makes of gaps
                found[str(name)] = "object" if dtype.kind == "b" else "float64"
            else:
                found[str(name)] = str(dtype)
        return found

    def metadata_without(self, names: Collection[str]) -> dict[bytes, bytes]:
        """What pandas stored of its index and types, but for some columns."""
        said = self.schema.pandas_metadata
        if not said:
            return {}
        said["columns"] = [one for one in said["columns"] if one.get("field_name") not in names]
        return {b"pandas": json.dumps(said).encode()}

    def pieces(self, names: Sequence[str]) -> Iterator[tuple[int, Any]]:
        """Some columns, one row group or a part of it at a time.

        Raises InputError if a file can't be read.

        Parameters
        ----------
        names
            Of columns; the index of pandas counts as columns.

        Yields
        ------
        start, batch
            Number of the first row, counted over all files, and an Arrow record batch of
            about ``CELLS`` cells or fewer.
        """
        start, rows = 0, min(MOST, max(LEAST, CELLS // len(names)))
        for path in self.files:
            with naming(path), open(path, "rb") as stream:
                reader = _reader(stream)
                for group in range(reader.num_row_groups):
                    batches = reader.iter_batches(rows, row_groups=[group], columns=list(names))
                    for batch in batches:
                        yield start, _with_wide_codes(batch.select(list(names)))
                        start += batch.num_rows

    def column(self, name: str) -> Iterator[pd.Series]:
        """One column in pieces, as pandas; of the column's own type where a piece allows it."""
        for _, batch in self.pieces([name]):
            with naming(self.files[0]):
                column = batch.column(0).to_pandas()
            yield column

    def categories(self, name: str) -> Any:
        """The categories of a column that some record has, in their order.

        They are in the order in which the row groups hold them, the first row group first, as when
        all are read at once.

        Raises InputError if the categories have an order and two row groups hold others.

        Returns
        -------
        Array
            Of Arrow, of the type of the categories.
        """
        import pyarrow as pa

        kind = self.schema.field(name).type
        used: dict[Any, bool] = {}
        last = None
        for _, batch in self.pieces([name]):
            column = batch.column(0)
            if last is None or not column.dictionary.equals(last):
                if last is not None and kind.ordered:
                    raise InputError(
                        f"column {name!r} has categories in an order, and two row groups hold "
                        "others or another order: write the file with the same categories in each"
                    )
                last = column.dictionary
                values = last.to_pylist()
                for value in values:
                    used.setdefault(value, False)
            for code in column.indices.unique().drop_null().to_pylist():
                used[values[code]] = True
        return pa.array([value for value, there in used.items() if there], kind.value_type)

    def check_unchanged(self) -> None:
        """Refuse files that are not those that were opened.

        Raises ReleaseError if one was written, moved or removed since.
        """
        for path, stamp in zip(self.files, self.stamps, strict=True):
            try:
                same = _stamp(path) == stamp
            except OSError:
                same = False
            if not same:
                raise ReleaseError(
                    f"{path.name} was changed, moved or removed since it was prepared, so the "
                    "copies would not fit the model: prepare and fit it again"
                )

    def _has_nulls(self, name: str) -> bool:
        """Whether a column has gaps."""
        return any(batch.column(0).null_count > 0 for _, batch in self.pieces([name]))


def open_source(path: Path) -> ParquetSource:
    """The Parquet files of a table, their schemas checked; no row is read.

    Raises InputError if there is nothing, a file is not Parquet, the folder holds other files or
    folders, or the schemas differ; TableError if there is no row group, or a name of a column
    repeats.

    Parameters
    ----------
    path
        A Parquet file, or a folder that holds nothing else than Parquet files of one schema. Names
        there that begin with ``.`` or ``_`` are passed over.
    """
    files = _files_of(path)
    first, rows, groups, stamps = None, [], 0, []
    for file in files:
        stamps.append(_stamp(file))
        with naming(file), open(file, "rb") as stream:
            reader = _reader(stream)
            schema = reader.schema_arrow
            rows.append(reader.metadata.num_rows)
            groups += reader.num_row_groups
            _check_index(schema, len(files))
        if first is None:
            first = schema
        else:
            _check_same(first, schema, files[0], file)
    if not groups:
        raise TableError(f"{path.name} has no row group, so it holds no record.")
    assert first is not None
    repeated = [name for k, name in enumerate(first.names) if name in first.names[:k]]
    if repeated:
        raise TableError(f"Column {repeated[0]!r} occurs more than once. Rename or drop it.")
    for column in first:
        if _nested_categories(column.type):
            raise InputError(
                f"column {column.name!r} holds categories within lists or records, of which levels "
                "that no record has can't be taken out: store plain values instead"
            )
    return ParquetSource(files, first, tuple(rows), groups, tuple(stamps))


def _files_of(path: Path) -> tuple[Path, ...]:
    """The file, or those of the folder in the order of their names."""
    if path.is_file():
        return (path,)
    if not path.is_dir():
        raise InputError(f"there is no file or folder {path}")
    found = sorted(p for p in path.iterdir() if not p.name.startswith((".", "_")))
    for inner in found:
        if inner.is_dir():
            raise InputError(
                f"{path.name} holds the folder {inner.name!r}: a partitioned table keeps columns "
                "in the names of folders. Write it as files of one folder"
            )
        if inner.suffix.lower() not in _KINDS:
            raise InputError(
                f"{path.name} holds {inner.name!r}, which is neither .parquet nor .pq: "
                "move it to another folder"
            )
    if not found:
        raise InputError(f"the folder {path.name} holds no Parquet file")
    return tuple(found)


def _reader(stream: Any) -> Any:
    """A reader of one piece at a time; of a stream, since Arrow takes no path that is not UTF-8."""
    import pyarrow.parquet

    return pyarrow.parquet.ParquetFile(stream, pre_buffer=False, buffer_size=_BUFFER)


def _stamp(path: Path) -> tuple[int, ...]:
    """Device, inode, size and time of a file: a changed file has another stamp."""
    there = os.stat(path)
    return there.st_dev, there.st_ino, there.st_size, there.st_mtime_ns


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Report a file that can't be read by its name; the texts of Arrow may hold values."""
    try:
        yield
    except (MemoryError, InputError):
        raise
    except Exception as error:  # Arrow raises many kinds
        raise InputError(f"{path.name} can't be read as Parquet: {type(error).__name__}") from None


def _index_of(schema: Any) -> tuple[str, ...]:
    """Columns that hold an index of pandas, as its metadata say."""
    said = (schema.pandas_metadata or {}).get("index_columns", [])
    return tuple(name for name in said if isinstance(name, str) and name in schema.names)


def _check_index(schema: Any, files: int) -> None:
    """A count that is an index of its own in each of several files can't be put together."""
    for level in (schema.pandas_metadata or {}).get("index_columns", []):
        counted = isinstance(level, dict) and (level.get("name") is not None)
        if counted and files > 1:
            raise InputError(
                "the index is a count with a name, which each file of the folder begins anew: "
                "store it as a column, with table.reset_index()"
            )


def _check_same(first: Any, other: Any, of: Path, file: Path) -> None:
    """Two files of one table must have the same columns, in the same order, of the same types."""
    what = ""
    lacking = [name for name in first.names if name not in other.names]
    added = [name for name in other.names if name not in first.names]
    if lacking:
        what = f"lacks column {lacking[0]!r}"
    elif added:
        what = f"has another column, {added[0]!r}"
    elif _index_of(first) != _index_of(other):
        what = "has another index"
    elif first.names != other.names:
        what = "has the columns in another order"
    else:
        for mine, theirs in zip(first, other, strict=True):
            if wide(mine.type) != wide(theirs.type):
                what = f"has column {mine.name!r} as {theirs.type} and not {mine.type}"
                break
    if what:
        raise InputError(
            f"{file.name} {what}, other than {of.name}: all files of a folder must have the same "
            "columns"
        )


def _with_wide_codes(batch: Any) -> Any:
    """The batch with codes of categories as 32-bit numbers, in whatever width a file has them."""
    import pyarrow as pa

    columns = [
        pa.DictionaryArray.from_arrays(
            column.indices.cast(pa.int32()), column.dictionary, ordered=column.type.ordered
        )
        if pa.types.is_dictionary(column.type)
        else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def wide(type_: Any) -> Any:
    """The type; of categories with 32-bit codes, whose width depends on their number."""
    import pyarrow as pa

    if pa.types.is_dictionary(type_):
        return pa.dictionary(pa.int32(), type_.value_type, type_.ordered)
    return type_


def _nested_categories(type_: Any, inner: bool = False) -> bool:
    """Whether a type holds categories anywhere but at its top."""
    import pyarrow as pa

    if pa.types.is_dictionary(type_):
        return inner
    parts = [type_.field(k).type for k in range(type_.num_fields)]
    return any(_nested_categories(part, True) for part in parts)
