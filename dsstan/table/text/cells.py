"""Text that a spreadsheet would run as a formula, and what a CSV does with it.

A copy repeats the text columns of the table. A cell such as ``=HYPERLINK(...)``, put there by
whoever supplied the record, would be run by the spreadsheet of whoever opens the copy.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any, Literal

import pandas as pd

from dsstan.core.errors import InputError, ReleaseError, describe_rows

__all__ = [
    "CSV_TEXT",
    "check_cells",
    "is_formula",
    "quote",
    "quoting_of",
    "texts",
    "unquote",
]

CSV_TEXT = ("refuse", "quote", "keep")
"""What to do with text that a spreadsheet would run; see :func:`check_cells`."""

_QUOTE = "'"
# A sign before figures alone calls nothing: -, +1, -2.5, +44 20 7946 0000.
_FORMULA = re.compile(r"[\t\r\n ]*(?:[=@]|[\t\r]|[-+](?![-+0-9 .,()/%]*\Z)).*", re.DOTALL)
# Where a spreadsheet may split a cell; a sign there is a formula only with a call or a link.
_SPLIT = re.compile(r"[;\t\r\n]")
_LATER = re.compile(r" *(?:[=@]|[-+][^;]*[(!|]).*")


def is_formula(text: Any) -> bool:
    """Whether a spreadsheet may take a cell for a formula.

    Examples
    --------
    >>> [is_formula(t) for t in ("=1+1", "@SUM(A1)", "-cmd|' /C calc'!A0", "-5", "-", "a=b", "")]
    [True, True, True, False, False, False, False]
    """
    if not isinstance(text, str):
        return False
    return _FORMULA.fullmatch(_seen(text)) is not None or _hidden(text)


def _seen(text: str) -> str:
    """The text as a spreadsheet may see it: full-width signs plain, nothing invisible first."""
    plain = unicodedata.normalize("NFKC", text)
    first = next((i for i, sign in enumerate(plain) if not _invisible(sign)), len(plain))
    return plain[first:]


def _invisible(sign: str) -> bool:
    """Whether a sign shows nothing, other than those that _FORMULA looks at."""
    return sign not in "\t\r\n " and (sign.isspace() or unicodedata.category(sign) in ("Cf", "Cc"))


def _hidden(text: Any) -> bool:
    """Whether a part after the first begins like a formula; an apostrophe does not help there."""
    return isinstance(text, str) and any(
        _LATER.fullmatch(_seen(part)) for part in _SPLIT.split(text)[1:]
    )


def check_cells(table: pd.DataFrame, in_text: bool, text: str) -> None:
    """Refuse a table whose text would be run by a spreadsheet that opens the copies.

    Parameters
    ----------
    table
        What is published.
    in_text
        Whether the copies are text, such as CSV: in other formats text is never run.
    text
        ``"refuse"``; ``"quote"`` to publish such cells with an apostrophe before them;
        ``"keep"`` to publish them as they are.

    Raises
    ------
    InputError
        If the option is none of these.
    ReleaseError
        If there is such a cell under ``"refuse"``, or such a name of a column unless
        under ``"keep"``; and under ``"quote"``, if a cell has the formula after a semicolon or
        a line break, where an apostrophe before it does not help.
    """
    if text not in CSV_TEXT:
        raise InputError(f"csv_text must be one of {', '.join(CSV_TEXT)}, got {text!r}")
    if not in_text or text == "keep":
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
    meant = is_formula if text == "refuse" else _hidden
    for name, column in texts(table):
        bad = column.map(meant).to_numpy(dtype=bool)
        if bad.any() and text == "quote":
            raise ReleaseError(
                f"{name} holds text that begins like a formula after a semicolon or a line break, "
                f"in {describe_rows(bad)}, where an apostrophe before it does not help: correct "
                "it, or publish Parquet"
            )
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


def texts(table: pd.DataFrame) -> list[tuple[str, pd.Series]]:
    """The index levels and columns that may hold text, and what a message calls them."""
    found = []
    for level in range(table.index.nlevels):
        values = table.index.get_level_values(level)
        if not pd.api.types.is_numeric_dtype(values.dtype):
            found.append(("the index", pd.Series(values).astype(object)))
    for name in table.columns:
        if _may_hold_text(table[name]):
            found.append((f"column {str(name)!r}", table[name].astype(object)))
    return found


def quoting_of(table: pd.DataFrame) -> Literal[0, 2]:
    """How a CSV of these records is quoted: all text, where a cell holds a carriage return.

    Python before 3.13 writes a lone carriage return without quotes, and a reader takes it for the
    end of a row. 0 is csv.QUOTE_MINIMAL and 2 csv.QUOTE_NONNUMERIC.
    """
    held = (isinstance(cell, str) and "\r" in cell for _, text in texts(table) for cell in text)
    return 2 if any(held) else 0


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
