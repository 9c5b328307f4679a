"""The files of the copies, written as the table came."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from dsstan.copies.published import public_columns, synthetic
from dsstan.core.errors import InputError
from dsstan.core.spelling import spelled
from dsstan.release.parquet_copies import write_copies
from dsstan.release.public import public_table
from dsstan.table.as_read import AsRead, as_read_of
from dsstan.table.formats.kinds import Format, format_named
from dsstan.table.formats.round_trip import check_format_holds
from dsstan.table.formats.text import dialect_for
from dsstan.table.parquet import ParquetProblem
from dsstan.table.text.cells import check_cells, quote
from dsstan.table.text.dialect import PLAIN, Dialect, TextAsRead

if TYPE_CHECKING:
    from dsstan.copies.result import Synthesis

__all__ = ["HowWritten", "check_copies", "format_for", "how_written", "write_copy_files"]


@dataclass(frozen=True)
class HowWritten:
    """How copies are written.

    Attributes
    ----------
    format
        Of their files.
    as_read
        How the table stood in its file, where the copies repeat it.
    csv_text
        What is done with text that a spreadsheet would run.
    """

    format: Format
    as_read: AsRead | None
    csv_text: str

    @property
    def dialect(self) -> Dialect:
        """Of copies that are text."""
        return self.as_read.dialect if isinstance(self.as_read, TextAsRead) else PLAIN

    @property
    def quoted(self) -> bool:
        """Whether cells that a spreadsheet would run have an apostrophe before them."""
        return self.csv_text == "quote" and self.format.is_text


def format_for(name: str | None, found: AsRead | None, *, by_row_groups: bool = False) -> Format:
    """The format of copies; by default that of the table's file, else CSV.

    Raises InputError if there is none of that name, or it can't be written by row groups.
    """
    if by_row_groups:
        if name not in (None, "parquet"):
            raise InputError(
                "a table that is read by row groups is released as Parquet: leave "
                f"{spelled('format', name)} out, or give {spelled('format', 'parquet')}"
            )
        return format_named("parquet")
    return format_named(name or ("csv" if found is None else found.format))


def how_written(
    table: pd.DataFrame,
    name: str | None,
    csv_text: str,
    dialect: Dialect | None = None,
    *,
    by_row_groups: bool = False,
) -> HowWritten:
    """How the copies of a table are written.

    Raises InputError if there is no such format, or a dialect is given for one that is no text.

    Parameters
    ----------
    table
        With how it stood in its file, if it was read from one.
    name
        Of the format; None for that of the file.
    csv_text
        See :func:`dsstan.table.text.cells.check_cells`.
    dialect
        Of copies in text; by default that of the file.
    by_row_groups
        Whether the table is read by row groups.
    """
    found = as_read_of(table)
    format = format_for(name, found, by_row_groups=by_row_groups)
    if not format.is_text:
        if dialect is not None:
            raise InputError(f"dialect is of CSV, and the copies are {format.name}: leave it out")
        return HowWritten(format, found, csv_text)
    stated = dialect_for(format.name, found) if dialect is None else dialect
    if isinstance(found, TextAsRead):
        return HowWritten(format, replace(found, dialect=stated), csv_text)
    plain = dialect is None and stated == PLAIN
    return HowWritten(format, None if plain else TextAsRead(format.name, stated), csv_text)


def check_copies(table: pd.DataFrame, how: HowWritten, made: Collection[str]) -> None:
    """Refuse columns that the copies could not hold, or that a spreadsheet would run.

    Raises ReleaseError if so; InputError if ``csv_text`` is no way to treat text.
    """
    check_cells(table, how.format.is_text, how.csv_text)
    check_format_holds(table, how.format, how.as_read, made)


def write_copy_files(release: Synthesis, paths: Sequence[Path], how: HowWritten) -> None:
    """Write each copy to its path."""
    problem, made = release.problem, synthetic(release)
    if isinstance(problem, ParquetProblem):
        columns = public_columns(release)
        write_copies(problem, paths, columns, lambda k: public_table(release, k)[made])
        return
    for number, path in enumerate(paths):
        table = public_table(release, number)
        how.format.write(quote(table) if how.quoted else table, path, how.as_read, made)
