"""What a file says of its size, looked at before it is read."""

from __future__ import annotations

import zipfile
from pathlib import Path

from dsstan.core.errors import InputError
from dsstan.table.as_read import Asked

__all__ = ["MOST_COLUMNS", "RowsError", "check_most", "check_size", "check_unpacked"]

MOST_CELLS = 2**31
"""Cells of a table that is read whole; as 64-bit numbers they are 16 GiB."""

MOST_UNPACKED, MOST_STYLES = 2**30, 2**25
"""Bytes that the parts of a packed workbook may have together, and its list of styles."""

MOST_COLUMNS = 10_000
"""Columns of a text file, each of which takes a while by itself."""


class RowsError(InputError):
    """Raised when a file has more rows than it may have."""


def check_most(path: Path, rows: int, most_rows: int | None) -> None:
    """Refuse more rows than a file may have, with RowsError; None is any number."""
    if most_rows is not None and rows > most_rows:
        raise RowsError(f"{path.name} has more rows than {most_rows}")


def check_size(path: Path, rows: int, columns: int, asked: Asked) -> None:
    """Refuse a file that says it holds more than may be read.

    Raises InputError if it has too many cells; RowsError, below it, if more rows than were asked.
    """
    check_most(path, rows, asked.most_rows)
    if rows * columns > MOST_CELLS:
        raise InputError(
            f"{path.name} says that it holds {rows} rows of {columns} columns, more than is read "
            "at once: write it as Parquet and read it by row groups"
        )


def check_unpacked(path: Path) -> None:
    """Refuse a zip file whose parts are too large.

    Raises InputError if so; BadZipFile if it is no zip file.
    """
    with zipfile.ZipFile(path) as parts:
        sizes = {part.filename: part.file_size for part in parts.infolist()}
    size = sum(sizes.values())
    if size > MOST_UNPACKED or sizes.get("xl/styles.xml", 0) > MOST_STYLES:
        raise InputError(
            f"{path.name} unpacks to {size >> 20} MiB, more than is read of a workbook: save the "
            "sheet as CSV"
        )
