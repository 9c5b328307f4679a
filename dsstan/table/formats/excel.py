"""Excel workbooks, by openpyxl: one sheet, its names in the first row; no formula is run."""

from __future__ import annotations

import datetime
import itertools
import zipfile
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dsstan.core.errors import InputError, ReleaseError, describe_rows
from dsstan.core.optional import needed
from dsstan.core.spelling import spelled
from dsstan.table.as_read import AS_READ, Asked, AsRead
from dsstan.table.columns import plain_index
from dsstan.table.formats.layers import one_layer
from dsstan.table.sizes import check_size, check_unpacked
from dsstan.table.text.csv import check_header

__all__ = ["read_excel", "write_excel"]

MOST_ROWS, MOST_COLUMNS = 2**20, 2**14
"""Of a sheet, the header counted."""

_MOST_BESIDE = 2**24
"""Empty cells to the right of all rows together: one cell at the end of a row makes 16,383."""

_FORMULA, _ERROR, _TEXT, _NUMBER = "f", "e", "s", "n"
"""Kinds of cells, as a workbook calls them."""

_EXACT = 2**53
"""Whole numbers beyond have more digits than Excel keeps."""


@dataclass(eq=False, repr=False)
class ExcelAsRead(AsRead):
    """How a table stood in a workbook.

    Attributes
    ----------
    sheet
        Its name.
    shown
        By column, how Excel shows its numbers, such as ``"0.00"`` or ``"yyyy-mm-dd"``.
    """

    sheet: str = ""
    shown: dict[str, str] = field(default_factory=dict)


def read_excel(path: Path, asked: Asked) -> pd.DataFrame:
    """A sheet of a workbook.

    Raises InputError if it is none, it has several sheets and none was named, its first row does
    not hold one name a column, or a cell holds a formula or an error.
    """
    openpyxl = needed("openpyxl", "excel")
    try:
        check_unpacked(path)
    except zipfile.BadZipFile:
        raise InputError(
            f"{path.name} is no .xlsx workbook: it may be an older .xls, locked by a password, or "
            "another file under this name. Open it in Excel and save it as .xlsx"
        ) from None
    with open(path, "rb") as stream:
        book = openpyxl.load_workbook(stream, read_only=True, keep_links=False)
        name = one_layer(path, [sheet.title for sheet in book.worksheets], asked.layer, "sheet")
        sheet = book[name]
        sheet.reset_dimensions()  # what a file says of them need not be true
        header, rows = _rows(path, sheet, asked)
    columns = dict(zip(header, zip(*rows, strict=True), strict=True))
    kinds = {n: np.array([cell.data_type for cell in cells]) for n, cells in columns.items()}
    for kind, what, do in (
        (_FORMULA, "formulas", "they are not run here. Copy the column and paste its values"),
        (_ERROR, "error values such as #N/A", "correct or empty these cells"),
    ):
        for column, found in kinds.items():
            if (found == kind).any():
                raise InputError(
                    f"column {column!r} of {path.name} holds {what} in "
                    f"{describe_rows(found == kind)}: {do}"
                )
    table = pd.DataFrame(
        {
            column: _typed(path, column, [cell.value for cell in cells], asked)
            for column, cells in columns.items()
        }
    )
    shown = {
        column: next((c.number_format for c in cells if c.value is not None), "General")
        for column, cells in columns.items()
    }
    table.attrs[AS_READ] = ExcelAsRead("xlsx", name, shown)
    return table


def _rows(path: Path, sheet: Any, asked: Asked) -> tuple[list[str], list[Sequence[Any]]]:
    """Names and rows of a sheet, each as long as the names; empty rows below are no rows."""
    lines: Iterator[Any] = sheet.iter_rows()
    first = [cell.value for cell in next(lines, ())]
    while first and first[-1] is None:
        first.pop()
    header = ["" if one is None else str(one) for one in first]
    try:
        check_header(header, path)
    except InputError as error:
        raise InputError(
            f"{error}. The first row of the sheet must hold one name a column: take out titles and "
            "rows above the names, and split merged cells"
        ) from None
    rows: list[Sequence[Any]] = []
    ended, beside = False, 0
    most = MOST_ROWS if asked.most_rows is None else asked.most_rows + 1
    for line in itertools.islice(lines, most):
        beside += len(line[len(header) :])
        if beside > _MOST_BESIDE:
            raise InputError(
                f"{path.name} has empty cells far beside its columns, row after row: delete the "
                "columns to the right of the table, or save the sheet as CSV"
            )
        if any(cell.value is not None for cell in line[len(header) :]):
            raise InputError(
                f"{path.name} has a cell beside its columns, in row {len(rows) + 2} of the sheet: "
                "take it out, or give its column a name in the first row"
            )
        if all(cell.value is None for cell in line):
            ended = True  # not kept: one cell far below would make a million such rows
            continue
        if ended:
            raise InputError(
                f"{path.name} has an empty row, row {len(rows) + 2} of the sheet: delete it"
            )
        blank = itertools.repeat(_Blank, len(header))
        rows.append([*itertools.islice(itertools.chain(line, blank), len(header))])
    if not rows:
        raise InputError(f"{path.name} has no record below its names")
    check_size(path, len(rows), len(header), asked)
    return header, rows


class _Blank:
    """A cell that a row has not."""

    value, data_type, number_format = None, "n", "General"


def _typed(path: Path, name: str, values: list[Any], asked: Asked) -> pd.Series:
    """One column, of the type that its cells have."""
    there = [one for one in values if one is not None]
    kinds, gaps = {type(one) for one in there}, len(there) < len(values)
    if kinds == {bool}:
        return pd.Series(values, dtype="boolean" if gaps else "bool")
    if kinds == {int} and all(abs(one) < 2**63 for one in there):
        return pd.Series(values, dtype="Int64" if gaps else "int64")
    if kinds <= {int, float}:
        return pd.Series(values, dtype="float64")
    if kinds == {datetime.datetime}:
        return pd.Series(pd.to_datetime(pd.Series(values, dtype="object")))
    text = np.array([isinstance(one, str) for one in values])
    if len(kinds) > 1 and text.any() and (asked.used is None or name in asked.used):
        raise InputError(
            f"column {name!r} of {path.name} holds numbers, and text in {describe_rows(text)}: "
            "make these cells numbers, or empty them where a value is missing"
        )
    return pd.Series(values, dtype="str" if kinds == {str} and not gaps else "object")


def write_excel(
    table: pd.DataFrame, path: Path, as_read: AsRead | None, made: Collection[str]
) -> None:
    """Write a workbook of one sheet; text is text, whatever it begins with.

    Raises ReleaseError if a sheet can't hold the table.
    """
    openpyxl = needed("openpyxl", "excel")
    table = table if plain_index(table.index) else table.reset_index()
    other = spelled("format", "parquet")
    if len(table) >= MOST_ROWS or len(table.columns) > MOST_COLUMNS:
        raise ReleaseError(
            f"a sheet of Excel has {MOST_ROWS} rows and {MOST_COLUMNS} columns, and the table has "
            f"more: give {other}"
        )
    for name in table.columns:
        column = table[name]
        if pd.api.types.is_integer_dtype(column.dtype) and (column.abs() > _EXACT).any():
            raise ReleaseError(
                f"column {str(name)!r} holds whole numbers of more digits than Excel keeps: make "
                f"them text, or give {other}"
            )
    known = as_read if isinstance(as_read, ExcelAsRead) else ExcelAsRead("xlsx")
    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet(known.sheet or "copy")

    def cell(value: Any, shown: str | None = None) -> Any:
        made_of = openpyxl.cell.WriteOnlyCell(sheet, value=value)
        if isinstance(value, float):
            made_of.value, made_of.data_type = repr(value), _NUMBER  # else it loses its 17th digit
        elif isinstance(value, str):
            made_of.data_type = _TEXT  # else "=1+1" would be a formula, and "#N/A" an error
        if shown is not None:
            made_of.number_format = shown
        return made_of

    sheet.append([cell(str(name)) for name in table.columns])
    shown = [known.shown.get(name) for name in table.columns]
    columns = [map(_plain, table[name]) for name in table.columns]
    for row in zip(*columns, strict=True):
        sheet.append([None if v is None else cell(v, s) for v, s in zip(row, shown, strict=True)])
    with open(path, "wb") as stream:
        book.save(stream)


def _plain(value: Any) -> Any:
    """A cell of pandas as Python's own; None where it is missing."""
    if pd.api.types.is_scalar(value) and pd.isna(value):
        return None
    if isinstance(value, pd.Timestamp):
        return value.to_pydatetime()
    return value.item() if isinstance(value, np.generic) else value
