"""Whether a format holds a table: it is written and read back before anything else is done."""

from __future__ import annotations

import datetime
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dsstan.core.errors import DsstanError, ReleaseError, describe_rows
from dsstan.core.files.workspace import private_folder
from dsstan.core.spelling import spelled
from dsstan.table.as_read import Asked, AsRead
from dsstan.table.columns import plain_index
from dsstan.table.formats.kinds import Format
from dsstan.table.places.coordinates import geometry_name

__all__ = ["check_format_holds", "differing_rows"]

_CLOSE = 1e-9
"""Relative difference that a column of synthetic values may have: no value of it is the table's."""


def check_format_holds(
    table: pd.DataFrame, format: Format, as_read: AsRead | None, made: Collection[str] = ()
) -> None:
    """Refuse a table that a format does not give back as it is.

    Text and Arrow hold every table; for the others the columns that go out are written to a private
    folder and read again.

    Raises ReleaseError if a value, a missing value or a name would change.

    Parameters
    ----------
    table
        The columns that go out.
    format
        Of the copies.
    as_read
        How the table stood in its file, where that was one of this format.
    made
        Columns whose values are synthetic in the copies.
    """
    shape = geometry_name(table)
    shaped = shape in table.columns
    other = spelled("format", "gpkg" if shaped and format.name != "gpkg" else "parquet")
    if format.shapes == "must" and not shaped:
        raise ReleaseError(
            f"{format.what} needs the places of a table with geometry, and this one has columns of "
            f"coordinates: give {other}"
        )
    if format.shapes == "no" and shaped:
        raise ReleaseError(f"{format.what} can't hold geometry: give {other}")
    if format.is_text or format.is_arrow:
        return
    with private_folder() as folder:
        path = Path(folder) / f"table.{format.name}"
        try:
            format.write(table, path, as_read, made)
            back = format.read(path, Asked(used=()))
        except (DsstanError, MemoryError):
            raise
        except Exception as error:  # of many kinds, and their texts may hold values
            found = _first_refused(table, format, as_read, folder)
            raise ReleaseError(
                f"{format.what} can't hold {found or 'the table'} ({type(error).__name__}): take "
                f"it out of publish, or give {other}"
            ) from None
    expected = table if plain_index(table.index) else table.reset_index()
    names = list(map(str, back.columns))
    lost = [str(name) for name in expected.columns if str(name) not in names]
    if lost and not (len(lost) == 1 and shaped and lost[0] == shape):
        raise ReleaseError(
            f"{format.what} does not keep the name of column {lost[0]!r}: rename it, or give "
            f"{other}"
        )
    if len(back) != len(expected):
        raise ReleaseError(f"{format.what} does not keep the number of records: give {other}")
    for name in expected.columns:
        if str(name) in names:
            rows = differing_rows(expected[name], back[str(name)], close=name in made)
            if rows.any():
                raise ReleaseError(
                    f"{format.what} does not keep column {str(name)!r} "
                    f"({_kind(expected[name])}) as it is, in {describe_rows(rows)}: "
                    f"take it out of publish, or give {other}"
                )


def _first_refused(table: pd.DataFrame, format: Format, as_read: AsRead | None, folder: Any) -> str:
    """The first column that can't be written by itself; empty where each can."""
    shape = geometry_name(table)
    for number, name in enumerate(table.columns):
        alone = table[[name]] if shape in (None, name) else table[[name, shape]]
        try:
            format.write(alone, Path(folder) / f"alone_{number}.{format.name}", as_read, ())
        except Exception:  # of many kinds
            return f"column {str(name)!r} ({_kind(table[name])})"
    return ""


def _kind(column: pd.Series) -> str:
    """What a column holds, in a word."""
    return str(column.dtype) if column.dtype != object else pd.api.types.infer_dtype(column)


def differing_rows(mine: pd.Series, other: pd.Series, *, close: bool = False) -> Any:
    """Rows in which two columns hold other values, shape (N,).

    Categories count as their values and whole numbers as floats; a text that is missing is an empty
    one, unless the column has both.
    """
    one, two = _canonical(mine), _canonical(other)
    gone, also = pd.isna(one), pd.isna(two)
    if not gone.any() or not any(isinstance(v, str) and not v for v in one):
        one, gone = _filled(one, gone)
        two, also = _filled(two, also)
    same = np.array(
        [
            (g and a) or (not (g or a) and _equal(x, y, close))
            for x, y, g, a in zip(one, two, gone, also, strict=True)
        ],
        dtype=bool,
    )
    return ~same


def _filled(values: Any, gone: Any) -> tuple[Any, Any]:
    """Missing values of a column of text as empty texts."""
    if not any(isinstance(v, str) for v in values[~gone]):
        return values, gone
    values = values.copy()
    values[gone] = ""
    return values, np.zeros_like(gone)


def _equal(one: Any, other: Any, close: bool) -> bool:
    """Whether two cells hold one value."""
    if close:
        return bool(abs(one - other) <= _CLOSE * abs(one))
    return bool(one == other)


def _canonical(column: pd.Series) -> Any:
    """The cells of a column as plain values, shape (N,)."""
    if str(column.dtype) == "geometry":
        return np.array([None if one is None else one.wkb for one in column], dtype=object)
    if isinstance(column.dtype, pd.CategoricalDtype):
        column = column.astype(column.cat.categories.dtype)
    if pd.api.types.is_datetime64_any_dtype(column.dtype):
        return column.astype(object).to_numpy()
    values = column.astype(object).where(column.notna(), None).to_numpy(dtype=object)
    if any(type(one) is datetime.date for one in values):
        dates = [pd.Timestamp(one) if type(one) is datetime.date else one for one in values]
        values = np.array(dates, dtype=object)
    return values
