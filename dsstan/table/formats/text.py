"""CSV and TSV, plain or packed by gzip."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pandas as pd

from dsstan.table.as_read import Asked, AsRead
from dsstan.table.columns import plain_index
from dsstan.table.text.cells import quoting_of
from dsstan.table.text.csv import read_csv, write_csv
from dsstan.table.text.dialect import PLAIN, Dialect, TextAsRead
from dsstan.table.text.text_file import PACKED, written_text

__all__ = ["dialect_for", "read_text", "write_text"]


def separator(name: str) -> str:
    """The sign between cells of a format, where nothing else was said."""
    return "\t" if name.removesuffix(PACKED).endswith("tsv") else PLAIN.sep


def read_text(path: Path, asked: Asked) -> pd.DataFrame:
    """The table of a text file; see :func:`dsstan.table.text.csv.read_csv`."""
    dialect = asked.dialect or Dialect(sep=separator(path.name.lower()))
    return read_csv(path, asked.used, dialect)


def dialect_for(name: str, found: AsRead | None) -> Dialect:
    """The dialect of copies in a text format, of a table that stood in its file so.

    Another text format has its own sign between cells, unless one was said.
    """
    if not isinstance(found, TextAsRead):
        return Dialect(sep=separator(name))
    own = found.dialect.sep == separator(found.format)
    return replace(found.dialect, sep=separator(name)) if own else found.dialect


def write_text(
    table: pd.DataFrame, path: Path, as_read: AsRead | None, made: Collection[str]
) -> None:
    """Write a table as its file was written, or as pandas does where it came from none."""
    plain = plain_index(table.index)
    if isinstance(as_read, TextAsRead):
        write_csv(table if plain else table.reset_index(), path, as_read, made)
        return
    with written_text(path, "utf-8") as stream:
        table.to_csv(
            stream,
            sep=separator(path.name),
            index=not plain,
            quoting=quoting_of(table),
            lineterminator="\n",
        )
