"""The files of the copies, written as the table came."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pandas as pd

from dsstan.copies.published import public_columns, synthetic
from dsstan.core.errors import InputError, ReleaseError
from dsstan.release.parquet_copies import write_copies
from dsstan.release.public import plain_index, public_table
from dsstan.table.cells import quote, texts
from dsstan.table.csv import AS_READ, write_csv
from dsstan.table.dialect import AsRead, Dialect
from dsstan.table.parquet import ParquetProblem

if TYPE_CHECKING:
    from dsstan.copies.result import Synthesis

__all__ = ["how_written", "quoting_of", "write_copy_files", "write_parquet"]


def how_written(release: Synthesis, format: str, dialect: Dialect | None) -> AsRead | None:
    """How copies in CSV are written; None as pandas writes them."""
    found = release.problem.table.attrs.get(AS_READ)
    if format != "csv":
        if dialect is not None:
            raise InputError(f"dialect is of CSV, and the copies are {format}: leave it out")
        return None
    if dialect is not None:
        return replace(found, dialect=dialect) if isinstance(found, AsRead) else AsRead(dialect)
    return found if isinstance(found, AsRead) else None


def write_copy_files(
    release: Synthesis, paths: Sequence[Path], format: str, csv_text: str, as_read: AsRead | None
) -> None:
    """Write each copy to its path."""
    problem, made = release.problem, synthetic(release)
    if isinstance(problem, ParquetProblem):
        columns = public_columns(release)
        write_copies(problem, paths, columns, lambda k: public_table(release, k)[made])
        return
    plain, quoting = plain_index(problem.table.index), quoting_of(problem.table)
    for number, path in enumerate(paths):
        table = public_table(release, number)
        if format == "csv":
            table = quote(table) if csv_text == "quote" else table
            if as_read is not None:
                write_csv(table if plain else table.reset_index(), path, as_read, made)
            else:
                table.to_csv(path, index=not plain, quoting=quoting)
        else:
            write_parquet(table, path, index=None if plain else True)


def write_parquet(table: pd.DataFrame, path: Path, *, index: bool | None) -> None:
    """Write Parquet; to an open file, since Arrow takes no path that is not UTF-8."""
    from pyarrow import ArrowInvalid, ArrowTypeError

    try:
        with open(path, "wb") as stream:
            table.to_parquet(stream, index=index)
    except (ArrowInvalid, ArrowTypeError):
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


def quoting_of(table: pd.DataFrame) -> Literal[0, 2]:
    """How a CSV of these records is quoted: all text, where a cell holds a carriage return.

    Python before 3.13 writes a lone carriage return without quotes, and a reader takes it for the
    end of a row. 0 is csv.QUOTE_MINIMAL and 2 csv.QUOTE_NONNUMERIC.
    """
    held = (isinstance(cell, str) and "\r" in cell for _, text in texts(table) for cell in text)
    return 2 if any(held) else 0
