"""Text that a spreadsheet would run as a formula, and what a CSV does with it.

A copy repeats the text columns of the table. A cell such as ``=HYPERLINK(...)``, put there by
whoever supplied the record, would be run by the spreadsheet of whoever opens the copy.
"""

from __future__ import annotations

import re
from typing import Any

import pandas as pd

from dsstan.errors import InputError, ReleaseError, describe_rows

__all__ = ["CSV_TEXT", "check_cells", "is_formula", "quote", "unquote"]

CSV_TEXT = ("refuse", "quote", "keep")
"""What to do with text that a spreadsheet would run; see :func:`check_cells`."""

_QUOTE = "'"
# A sign before figures alone calls nothing: -, +1, -2.5, +44 20 7946 0000.
_FORMULA = re.compile(r"[\t\r\n ]*(?:[=@]|[\t\r]|[-+](?![-+0-9 .,()/%]*\Z)).*", re.DOTALL)


def is_formula(text: Any) -> bool:
    """Whether a spreadsheet may take a cell for a formula.

    Examples
    --------
    >>> [is_formula(t) for t in ("=1+1", "@SUM(A1)", "-cmd|' /C calc'!A0", "-5", "-", "a=b", "")]
    [True, True, True, False, False, False, False]
    """
    return isinstance(text, str) and _FORMULA.fullmatch(text) is not None


def check_cells(table: pd.DataFrame, format: str, text: str) -> None:
    """Refuse a table whose text would be run by a spreadsheet that opens the copies.

    Parameters
    ----------
    table
        What is published.
    format
        ``"csv"`` or ``"parquet"``; nothing is refused in Parquet, which no spreadsheet opens.
    text
        ``"refuse"``; ``"quote"`` to publish such cells with an apostrophe before them;
        ``"keep"`` to publish them as they are.

    Raises
    ------
    InputError
        If the option is none of these.
    ReleaseError
        If there is such a cell under ``"refuse"``, or such a name of a column unless
        under ``"keep"``.
    """
    if text not in CSV_TEXT:
        raise InputError(f"csv_text must be one of {', '.join(CSV_TEXT)}, got {text!r}")
    if format != "csv" or text == "keep":
        return
    advice = (
        'a spreadsheet that opens the copies would run it. Correct it, choose csv_text="quote" to '
        "have an apostrophe put before it, or publish Parquet"
    )
    for name in (*table.columns, *table.index.names):
        if is_formula(name):
            raise ReleaseError(
                f"the column name {name!r} begins like a formula, which a spreadsheet that opens "
                "the copies would run: rename it, or publish Parquet"
            )
    if text == "quote":
        return
    for name, column in _texts(table).items():
        bad = column.map(is_formula).to_numpy(dtype=bool)
        if bad.any():
            raise ReleaseError(
                f"{name} holds text that begins like a formula in {describe_rows(bad)}: {advice}"
            )


def quote(table: pd.DataFrame) -> pd.DataFrame:
    """The table with an apostrophe before text that begins like a formula.

    Text that begins with an apostrophe gets another, so that :func:`unquote` gives the table
    back.
    """
    return _mapped(
        table, lambda cell: _QUOTE + cell if is_formula(cell) or cell.startswith(_QUOTE) else cell
    )


def unquote(table: pd.DataFrame) -> pd.DataFrame:
    """The table before :func:`quote`."""
    return _mapped(table, lambda cell: cell.removeprefix(_QUOTE))


def _texts(table: pd.DataFrame) -> dict[str, pd.Series]:
    """The index levels and columns that may hold text, by what a message calls them."""
    found = {}
    for level in range(table.index.nlevels):
        values = table.index.get_level_values(level)
        if not pd.api.types.is_numeric_dtype(values.dtype):
            found["the index"] = pd.Series(values).astype(object)
    for name in table.columns:
        if _may_hold_text(table[name]):
            found[f"column {str(name)!r}"] = table[name].astype(object)
    return found


def _may_hold_text(column: pd.Series) -> bool:
    """Whether a column may hold text."""
    dtype = column.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        return not pd.api.types.is_numeric_dtype(dtype.categories.dtype)
    return pd.api.types.is_object_dtype(dtype) or pd.api.types.is_string_dtype(dtype)


def _mapped(table: pd.DataFrame, change: Any) -> pd.DataFrame:
    """A table with each text cell changed, those of its index too."""

    def one(cell: Any) -> Any:
        return change(cell) if isinstance(cell, str) else cell

    new = table.copy()
    for name in table.columns:
        if not _may_hold_text(table[name]):
            continue
        if isinstance(table[name].dtype, pd.CategoricalDtype):
            new[name] = table[name].cat.rename_categories(one)
        else:
            new[name] = table[name].map(one, na_action="ignore").astype(table[name].dtype)
    index = table.index
    if not isinstance(index, pd.MultiIndex):
        if not pd.api.types.is_numeric_dtype(index.dtype):
            new.index = pd.Index([one(label) for label in index], name=index.name)
    elif any(not pd.api.types.is_numeric_dtype(level.dtype) for level in index.levels):
        new.index = pd.MultiIndex.from_tuples(
            [tuple(map(one, labels)) for labels in index], names=index.names
        )
    return new
