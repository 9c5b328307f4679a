"""A file of Stata, release 118 (Stata 14 and later), written with types, formats and labels.

StataCorp, *File formats .dta*, describes it (``help dta``). What writes such files otherwise widens
every whole number to four bytes, or does not know ``.a`` to ``.z``.
"""

from __future__ import annotations

import datetime
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dsstan.core.errors import ReleaseError
from dsstan.core.spelling import spelled

__all__ = ["StataColumn", "stata_column", "write_dta"]

_LONG, _FIXED, _TEXT = 32768, 2045, "string"
_WHOLE = {
    "int8": (65530, "<i1", -127, 100, "%8.0g"),
    "int16": (65529, "<i2", -32767, 32740, "%8.0g"),
    "int32": (65528, "<i4", -2147483647, 2147483620, "%12.0g"),
}
"""Whole numbers: code, type, least and largest value, format. The next value means missing."""

_REAL = {
    "float": (65527, "<f4", "<u4", 0x7F000000, 0x800, "%9.0g"),
    "double": (65526, "<f8", "<u8", 0x7FE0000000000000, 0x0000010000000000, "%10.0g"),
}
"""Floats: code, type, type of their bits, those of a missing value, what each letter adds."""

_LABELLED_MISSING = 2147483621
_EPOCH = pd.Timestamp("1960-01-01")
_DAY, _MILLISECOND = pd.Timedelta(days=1), pd.Timedelta(milliseconds=1)


@dataclass(frozen=True, eq=False)
class StataColumn:
    """One column as it stands in the file.

    Attributes
    ----------
    name, shown, labels, meaning
        Its name, its format, its set of value labels and what it is.
    code
        Number of its type.
    cells
        N cells in the bytes of the file; of long text the bytes themselves.
    """

    name: str
    shown: str
    labels: str
    meaning: str
    code: int
    cells: NDArray[Any]


def stata_column(
    name: str,
    cells: pd.Series,
    storage: str | None,
    width: int,
    *,
    shown: str | None,
    meaning: str,
    labels: str,
) -> StataColumn:
    """A column in the type that it had, or the narrowest that holds it.

    Raises ReleaseError if Stata has no type for it.

    Parameters
    ----------
    name, shown, meaning, labels
        Its name, its format or None, what it is, and its set of value labels.
    cells
        Numbers, dates, truth values or text; text ``"a"`` to ``"z"`` among numbers is a missing
        value of that letter.
    storage, width
        Type and bytes that it had, if any.
    """
    if isinstance(cells.dtype, pd.CategoricalDtype):
        cells = cells.astype(cells.cat.categories.dtype)
    cells, dated = _undated(cells)
    letters = np.zeros(len(cells), dtype=np.int64)
    if storage not in (None, "string", "string_ref"):
        is_letter = cells.map(lambda one: isinstance(one, str) and len(one) == 1).to_numpy(bool)
        rest = cells.astype(object).where(~is_letter, np.nan)
        numbers = pd.to_numeric(rest, errors="coerce")
        if numbers.notna().equals(rest.notna()):
            letters[is_letter] = [ord(one) - ord("a") + 1 for one in cells[is_letter]]
            cells = numbers.astype(np.float64)
    if pd.api.types.is_numeric_dtype(cells.dtype):
        kind, own, found = _numbers(name, cells, letters, storage)
        return StataColumn(name, shown or dated or own, labels, meaning, kind, found)
    if pd.api.types.infer_dtype(cells, skipna=True) not in ("string", "empty"):
        raise ReleaseError(f"column {name!r} holds values that Stata has no type for: {_advice()}")
    text = [b"" if pd.isna(one) else str(one).encode() for one in cells]
    longest = max(1, *map(len, text))
    if storage == "string_ref" or longest > _FIXED:
        whole = np.empty(len(text), dtype=object)
        whole[:] = text
        return StataColumn(name, shown or "%9s", "", meaning, _LONG, whole)
    size = max(longest, width if storage == _TEXT else 0)
    size = min(size, _FIXED)
    return StataColumn(name, shown or f"%{size}s", "", meaning, size, np.array(text, f"S{size}"))


def _advice() -> str:
    """What to do about a column that Stata does not hold."""
    return f"make it text, or give {spelled('format', 'parquet')}"


def _undated(cells: pd.Series) -> tuple[pd.Series, str | None]:
    """Dates as days, and dates with a time as milliseconds, since 1960; with their format."""
    if cells.dtype == object:
        there = cells.dropna()
        if len(there) and there.map(lambda one: type(one) is datetime.date).all():
            days = (pd.to_datetime(cells) - _EPOCH) / _DAY
            return days, "%td"
    if pd.api.types.is_datetime64_any_dtype(cells.dtype):
        if getattr(cells.dt, "tz", None) is not None:
            raise ReleaseError(f"Stata has no dates with a time zone: {_advice()}")
        return (cells - _EPOCH) / _MILLISECOND, "%tc"
    return cells, None


def _numbers(
    name: str, cells: pd.Series, letters: NDArray[np.int64], storage: str | None
) -> tuple[int, str, NDArray[Any]]:
    """Code, format and bytes of a column of numbers."""
    values = cells.to_numpy(dtype=np.float64, na_value=np.nan)
    gone = np.isnan(values)
    there = values[~gone]
    if np.isinf(there).any() or ((np.abs(there) > 2.0**53).any() and cells.dtype.kind in "iu"):
        raise ReleaseError(f"column {name!r} holds numbers that Stata does not hold: {_advice()}")
    whole = bool((there % 1 == 0).all())
    wanted = list(_WHOLE)
    if storage in _WHOLE:
        wanted = wanted[wanted.index(storage) :]
    elif storage in _REAL or pd.api.types.is_float_dtype(cells.dtype):
        wanted = []
    for kind in wanted if whole else []:
        code, type_, low, high, shown = _WHOLE[kind]
        if not len(there) or (low <= there.min() and there.max() <= high):
            filled = np.where(gone, high + 1 + letters, np.where(gone, 0, values))
            return code, shown, filled.astype(type_)
    narrow = storage == "float" and bool((np.abs(there) < 1.7e38).all())
    code, type_, bits, missing, step, shown = _REAL["float" if narrow else "double"]
    found = np.where(gone, 0.0, values).astype(type_)
    found.view(bits)[gone] = missing + letters[gone] * step
    return code, shown, found


def write_dta(
    path: Path, columns: Sequence[StataColumn], labels: Mapping[str, Mapping[Any, str]]
) -> None:
    """Write the file; raises ReleaseError if a text is too long for its place."""
    rows = len(columns[0].cells)
    parts = [
        (
            "header",
            b"<release>118</release><byteorder>LSF</byteorder><K>"
            + struct.pack("<H", len(columns))
            + b"</K><N>"
            + struct.pack("<Q", rows)
            + b"</N><label>\0\0</label><timestamp>\0</timestamp>",
        ),
        ("map", bytes(14 * 8)),
        ("variable_types", b"".join(struct.pack("<H", one.code) for one in columns)),
        ("varnames", b"".join(_fixed(one.name, 129) for one in columns)),
        ("sortlist", bytes(2 * len(columns) + 2)),
        ("formats", b"".join(_fixed(one.shown, 57) for one in columns)),
        ("value_label_names", b"".join(_fixed(one.labels, 129) for one in columns)),
        ("variable_labels", b"".join(_fixed(one.meaning, 321) for one in columns)),
        ("characteristics", b""),
        *_data(columns, rows),
        ("value_labels", b"".join(_label_set(*one) for one in labels.items())),
    ]
    content = bytearray(b"<stata_dta>")
    places = [0]
    for name, inner in parts:
        if name != "header":
            places.append(len(content))
        content += b"<%s>" % name.encode() + inner + b"</%s>" % name.encode()
    places += [len(content), len(content) + len(b"</stata_dta>")]
    begin = places[1] + len(b"<map>")
    content[begin : begin + 14 * 8] = struct.pack("<14Q", *places)
    with open(path, "wb") as stream:
        stream.write(content + b"</stata_dta>")


def _fixed(text: str, size: int) -> bytes:
    """A text in its place, which ends with a zero."""
    found = text.encode()
    if len(found) >= size:
        raise ReleaseError(f"a name, format or label of a column is too long for Stata ({size})")
    return found.ljust(size, b"\0")


def _data(columns: Sequence[StataColumn], rows: int) -> list[tuple[str, bytes]]:
    """The rows, and the long texts that they refer to."""
    kinds, cells, long = [], {}, bytearray()
    for number, one in enumerate(columns, 1):
        found = one.cells
        if one.code == _LONG:
            found = np.zeros(rows, dtype="<u8")
            for row, text in enumerate(one.cells):
                if text:
                    found[row] = number | (row + 1) << 16
                    head = struct.pack("<IQBI", number, row + 1, 130, len(text) + 1)
                    long += b"GSO" + head + text + b"\0"
        kinds.append((f"c{number}", found.dtype))
        cells[f"c{number}"] = found
    table = np.zeros(rows, dtype=kinds)
    for place, found in cells.items():
        table[place] = found
    return [("data", table.tobytes()), ("strls", bytes(long))]


def _label_set(name: str, labels: Mapping[Any, str]) -> bytes:
    """One set of value labels."""
    values = {
        _LABELLED_MISSING + ord(value) - ord("a") + 1
        if isinstance(value, str)
        else int(value): text
        for value, text in labels.items()
    }
    texts, places = bytearray(), []
    for value in sorted(values):
        places.append(len(texts))
        texts += values[value].encode() + b"\0"
    count = len(values)
    table = (
        struct.pack("<ii", count, len(texts))
        + struct.pack(f"<{count}i", *places)
        + struct.pack(f"<{count}i", *sorted(values))
        + bytes(texts)
    )
    return (
        b"<lbl>" + struct.pack("<i", len(table)) + _fixed(name, 129) + bytes(3) + table + b"</lbl>"
    )
