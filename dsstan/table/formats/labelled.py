"""Files of Stata, SPSS and SAS (transport), with their labels, formats and missing values."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dsstan.core.arrays import Indices
from dsstan.core.errors import DsstanWarning, ReleaseError, describe_rows
from dsstan.core.optional import needed
from dsstan.core.spelling import spelled
from dsstan.table.as_read import AS_READ, Asked, AsRead
from dsstan.table.columns import plain_index
from dsstan.table.formats.stata import StataColumn, stata_column, write_dta
from dsstan.table.sizes import check_size

__all__ = ["LabelledAsRead", "read_labelled", "write_sas", "write_spss", "write_stata"]

_LIBRARY, _EXTRA = "pyreadstat", "stats"
_READERS = {"dta": "read_dta", "sav": "read_sav", "zsav": "read_sav", "xpt": "read_xport"}
_WHOLE = re.compile(r"F\d+(\.0)?")
"""Formats of SPSS that show whole numbers; it keeps every number as a float."""

_NAMES = {
    "dta": (
        r"[^\W\d]\w{0,31}",
        "Stata",
        "at most 32 letters, digits and _, no digit first, no word of its own",
    ),
    "sav": (r"[^\W\d_][\w.#$@]{0,63}", "SPSS", "at most 64 letters, digits and _, a letter first"),
    "xpt": (r"[A-Za-z_][A-Za-z0-9_]{0,31}", "SAS", "at most 32 letters, digits and _"),
    "xpt5": (r"[A-Za-z_][A-Za-z0-9_]{0,7}", "SAS transport 5", "at most 8 letters, digits and _"),
}
"""What names of columns may be, by format: a pattern, whose it is, and that in words."""

_RESERVED = {
    *("_all", "_b", "_coef", "_cons", "_n", "_N", "_pi", "_pred", "_rc", "_skip", "byte", "double"),
    *("float", "if", "in", "int", "long", "strL", "using", "with"),
}
"""Words that Stata keeps for itself."""


MEASURED = 20
"""Values without a label from which a column of numbers is measured, and no category."""


@dataclass(eq=False, repr=False)
class LabelledAsRead(AsRead):
    """How a table stood in a file of Stata, SPSS or SAS. By column but for the first three.

    Attributes
    ----------
    version
        Of SAS transport, 5 or 8.
    member
        Name of the table in SAS transport.
    labels
        Texts by value, by the name of the set of labels.
    label_of
        Name of its set of labels.
    meanings
        What it is, in words.
    formats, storage, widths
        How it is shown, the type and the width that it is stored in.
    ranges, measures, displayed
        Of SPSS: values that mean missing, the level of measurement, the width on the screen.
    cells
        What the table has, and what stood in the file, where they differ: dates, which are numbers
        there, and values that mean missing.
    """

    version: int = 8
    member: str | None = None
    labels: dict[str, dict[Any, str]] = field(default_factory=dict)
    label_of: dict[str, str] = field(default_factory=dict)
    meanings: dict[str, str] = field(default_factory=dict)
    formats: dict[str, str] = field(default_factory=dict)
    storage: dict[str, str] = field(default_factory=dict)
    widths: dict[str, int] = field(default_factory=dict)
    ranges: dict[str, Any] = field(default_factory=dict)
    measures: dict[str, str] = field(default_factory=dict)
    displayed: dict[str, int] = field(default_factory=dict)
    cells: dict[str, tuple[pd.Series, pd.Series]] = field(default_factory=dict)

    def of(self, rows: Indices) -> LabelledAsRead:
        cells = {
            name: (table.iloc[rows], file.iloc[rows]) for name, (table, file) in self.cells.items()
        }
        return replace(self, cells=cells)

    def stood(self, name: str, column: pd.Series, made: Collection[str]) -> pd.Series | None:
        """What stood in the file for a column that is still as it was read; else None."""
        if name in made or name not in self.cells:
            return None
        table, file = self.cells[name]
        same = len(table) == len(column) and table.reset_index(drop=True).equals(
            column.reset_index(drop=True)
        )
        return file if same else None


def read_labelled(path: Path, asked: Asked, *, format: str) -> pd.DataFrame:
    """The table of a file of Stata, SPSS or SAS transport.

    Columns with value labels are their numbers. What stands for a missing value (``.a`` to ``.z``
    of Stata, those that SPSS declares) is missing, and goes out as it stood.
    """
    read: Callable[..., Any] = getattr(needed(_LIBRARY, _EXTRA), _READERS[format])
    _, head = read(str(path), metadataonly=True)
    rows = head.number_rows
    check_size(path, max(0, rows or 0), head.number_columns or 0, asked)
    limit = 0 if asked.most_rows is None else asked.most_rows + 1
    read = partial(read, str(path), row_limit=limit)
    shown, meta = read()
    marked = {} if format == "xpt" else {"user_missing": True}
    file, marks = read(disable_datetime_conversion=True, **marked)
    check_size(path, len(shown), len(shown.columns), asked)
    stored, as_said = meta.readstat_variable_types, meta.original_variable_types
    table, cells = {}, {}
    for name in shown.columns:
        column, kind = shown[name], stored[name]
        raw = file[name]
        if kind.startswith("int") or (
            format in ("sav", "zsav") and _is_whole(column, as_said[name])
        ):
            column = column.astype("Int64" if column.isna().any() else "int64")
        elif kind in ("float", "double") and column.dtype == object and column.isna().all():
            column = column.astype("float64")
        if kind.startswith(("int", "float", "double")):
            # A plain missing value beside others that mean missing may come as 0.
            gone = shown[name].isna().to_numpy() & ~_marks(raw, format, marks.missing_ranges, name)
            raw = raw.astype(object).where(~gone, np.nan) if gone.any() else raw
        table[name] = column
        if not _alike(column, raw):
            cells[name] = (column, raw)
    found = pd.DataFrame(table, columns=list(shown.columns))
    for name, labels in meta.variable_value_labels.items():
        if asked.used is None or name in asked.used:
            _warn_labelled_few(path, found[name], labels)
    found.attrs[AS_READ] = LabelledAsRead(
        format,
        version=8 if b"LIBV8" in _first(path) else 5,
        member=meta.table_name,
        labels=dict(meta.value_labels),
        label_of={k: v for k, v in meta.variable_to_label.items() if v in meta.value_labels},
        meanings={k: v for k, v in meta.column_names_to_labels.items() if v},
        formats={k: v for k, v in as_said.items() if v},
        storage=dict(stored),
        widths=dict(meta.variable_storage_width),
        ranges=dict(marks.missing_ranges),
        measures=dict(meta.variable_measure),
        displayed=dict(meta.variable_display_width),
        cells=cells,
    )
    return found


def _warn_labelled_few(path: Path, column: pd.Series, labels: Mapping[Any, str]) -> None:
    """Say that a few values of a measured column have labels: they may mean that it is missing."""
    if not pd.api.types.is_numeric_dtype(column.dtype):
        return
    few = column.isin(list(labels)).to_numpy(dtype=bool)
    if few.any() and column[~few].nunique() >= MEASURED:
        warnings.warn(
            f"column {str(column.name)!r} of {path.name} has labels on a few of its values, in "
            f"{describe_rows(few)}: where they mean that it is missing, make it missing first",
            DsstanWarning,
            stacklevel=2,
        )


def _first(path: Path) -> bytes:
    """The head of a file."""
    with open(path, "rb") as stream:
        return stream.read(80)


def _is_whole(column: pd.Series, shown: str | None) -> bool:
    """Whether a column of floats of SPSS is shown as whole numbers, and is."""
    if not _WHOLE.fullmatch(shown or "") or column.dtype != np.float64:
        return False
    there = column.dropna()
    return bool(len(there)) and bool(((there % 1 == 0) & (there.abs() < 2**53)).all())


def _marks(raw: pd.Series, format: str, ranges: Any, name: str) -> Any:
    """Which cells hold a value that means missing."""
    if format == "dta":
        return raw.map(lambda one: isinstance(one, str)).to_numpy(dtype=bool)
    found = np.zeros(len(raw), dtype=bool)
    for one in ranges.get(name, []):
        values = pd.to_numeric(raw, errors="coerce")
        found |= ((values >= one["lo"]) & (values <= one["hi"])).to_numpy(dtype=bool)
    return found


def _alike(column: pd.Series, raw: pd.Series) -> bool:
    """Whether a column of the table is what stands in the file."""
    if pd.api.types.is_numeric_dtype(column.dtype):
        if raw.dtype == object and raw.map(lambda one: isinstance(one, str)).any():
            return False
        ours = column.to_numpy(dtype=np.float64, na_value=np.nan)
        return np.array_equal(ours, raw.to_numpy(dtype=np.float64, na_value=np.nan), equal_nan=True)
    return column.equals(raw)


def _prepared(
    table: pd.DataFrame, as_read: AsRead | None, family: tuple[str, ...]
) -> tuple[pd.DataFrame, LabelledAsRead, LabelledAsRead]:
    """The table without an index, what is known of its columns, and that of the same program."""
    table = table if plain_index(table.index) else table.reset_index()
    known = as_read if isinstance(as_read, LabelledAsRead) else LabelledAsRead("")
    own = known if known.format in family else LabelledAsRead("")
    return table, known, own


def _check_names(table: pd.DataFrame, format: str) -> None:
    """Refuse names that the format does not have."""
    pattern, program, words = _NAMES[format]
    bad = [
        str(name)
        for name in table.columns
        if not re.fullmatch(pattern, str(name)) or (format == "dta" and name in _RESERVED)
    ]
    if bad:
        raise ReleaseError(
            f"column {bad[0]!r} has a name that {program} does not allow ({words}): rename it, or "
            f"give {spelled('format', 'parquet')}"
        )


def write_stata(
    table: pd.DataFrame, path: Path, as_read: AsRead | None, made: Collection[str]
) -> None:
    """Write a file of Stata (14 and later) with its types, formats and labels."""
    table, known, own = _prepared(table, as_read, ("dta",))
    _check_names(table, "dta")
    columns: list[StataColumn] = []
    for name in map(str, table.columns):
        stood = own.stood(name, table[name], made)
        cells = table[name] if stood is None else stood
        columns.append(
            stata_column(
                *(name, cells, own.storage.get(name), own.widths.get(name, 0)),
                shown=own.formats.get(name),
                meaning=known.meanings.get(name, ""),
                labels=known.label_of.get(name, ""),
            )
        )
    used = {known.label_of[str(n)] for n in table.columns if str(n) in known.label_of}
    write_dta(path, columns, {name: known.labels[name] for name in sorted(used)})


def _numbers(labels: dict[Any, str]) -> dict[Any, str]:
    """Labels of values, without those of Stata's letters for missing ones."""
    return {value: text for value, text in labels.items() if not isinstance(value, str)}


def write_spss(
    table: pd.DataFrame, path: Path, as_read: AsRead | None, made: Collection[str]
) -> None:
    """Write a file of SPSS with its formats, labels and values that mean missing."""
    table, known, own = _prepared(table, as_read, ("sav", "zsav"))
    _check_names(table, "sav")
    names = list(map(str, table.columns))
    packed = path.name.endswith(".zsav")
    needed(_LIBRARY, _EXTRA).write_sav(
        _cells(table, own, made),
        str(path),
        column_labels=[known.meanings.get(name, "") for name in names],
        compress=packed,
        row_compress=not packed,
        variable_value_labels={
            name: _numbers(known.labels[known.label_of[name]])
            for name in names
            if name in known.label_of
        },
        missing_ranges={name: own.ranges[name] for name in names if name in own.ranges},
        variable_display_width={n: own.displayed[n] for n in names if own.displayed.get(n)},
        variable_measure={name: own.measures[name] for name in names if name in own.measures},
        variable_format={name: own.formats[name] for name in names if name in own.formats},
    )


def write_sas(
    table: pd.DataFrame, path: Path, as_read: AsRead | None, made: Collection[str]
) -> None:
    """Write SAS transport, of the version that it had; version 8 where it came from elsewhere."""
    table, known, own = _prepared(table, as_read, ("xpt",))
    _check_names(table, "xpt5" if own.version == 5 else "xpt")
    names = list(map(str, table.columns))
    needed(_LIBRARY, _EXTRA).write_xport(
        _cells(table, own, made),
        str(path),
        column_labels=[known.meanings.get(name, "") for name in names],
        table_name=own.member,
        file_format_version=own.version,
        variable_format={name: own.formats[name] for name in names if name in own.formats},
    )


def _cells(table: pd.DataFrame, own: LabelledAsRead, made: Collection[str]) -> pd.DataFrame:
    """The columns as they stood in the file, where they are as they were read."""
    columns = {}
    for name in table.columns:
        stood = own.stood(str(name), table[name], made)
        column = table[name] if stood is None else stood
        if isinstance(column.dtype, pd.CategoricalDtype):
            column = column.astype(column.cat.categories.dtype)
        columns[str(name)] = column.reset_index(drop=True)
    return pd.DataFrame(columns)
