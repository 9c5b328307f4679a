"""What a text file looks like, where it is not written as was said: for the advice of an error.

Nothing found here is used by itself. A run stops with the options that would read the file, and
``dsstan init`` writes them into the job file, where they can be seen.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from pathlib import Path

import pandas as pd

from dsstan.core.errors import TableError
from dsstan.core.spelling import spelled
from dsstan.table.text.dialect import Dialect, DialectError
from dsstan.table.text.text_file import text_bytes

__all__ = ["SEPARATORS", "is_value", "may_be_numbers", "refuse_another_dialect"]

SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
"""Signs that may stand between cells, and what they are called."""

MISSING_WORDS = {
    *("NA", "N/A", "n/a", "na", "#N/A", "NaN", "nan", "NULL", "null", "None", "none", "missing"),
    *("-", "--", ".", "?"),
}
"""Texts that programs write for a missing value."""

CURRENCY = re.compile(r"([€$£¥₹₩₽%]|CHF|EUR|USD|GBP|JPY|SEK|NOK|DKK|kr\.?|zł|Fr\.)")
"""Signs that may stand before or after a number."""

_NUMBERS = tuple(
    Dialect(decimal=decimal, thousands=thousands)
    for decimal in (".", ",")
    for thousands in (None, ",", ".", " ", "'", "’")
    if thousands != decimal
)
"""How numbers may be written."""

RowsOf = Callable[[str], list[list[str]]]

_VALUE = re.compile(
    r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?"
    r"|[-+]?[€$£¥]?\s*\d{1,3}([,.'’\s]\d{3})+([.,]\d+)?\s*[€$£¥]?"
)
_CODE = re.compile(r"[-+]?0\d+")
_THOUSANDS_WORDS = {",": "commas", ".": "points", " ": "spaces"}
_SHOWN = 5


def is_value(name: str) -> bool:
    """Whether what stands where names should is a number, so that the first line is a record.

    Examples
    --------
    >>> [is_value(name) for name in ("450000", "-1.5e3", "$450,000", "e5", "95%", "USD 2019")]
    [True, True, True, False, False, False]
    """
    return _VALUE.fullmatch(name.strip()) is not None


def may_be_numbers(cells: pd.Series) -> bool:
    """Whether all cells of a column hold figures, but for missing values."""
    sign = CURRENCY.pattern.replace("(", "(?:", 1)
    figures = cells.str.fullmatch(rf"\s*{sign}?[-+\d.,'’eE\s]*\d[.,'’\s]*{sign}?\s*")
    return bool(figures.any() and (figures | cells.isin(["", *MISSING_WORDS])).all())


def refuse_another_dialect(path: Path, used: Collection[str] | None, said: Dialect) -> None:
    """Refuse a file that looks like one of another dialect than was said.

    Parameters
    ----------
    path
        The file.
    used
        Columns whose numbers are needed; None for all.
    said
        The dialect that was said.

    Raises
    ------
    DialectError
        If another dialect reads the file, or gives numbers in a column that needs them.
    TableError
        If a needed column holds numbers with a currency sign.
    """
    content = text_bytes(path)
    encoding = _encoding(content, said.encoding)
    rows_of = _rows(content.decode(encoding))
    sep = _separator(rows_of, said.sep)
    rows = rows_of(sep)
    if encoding == said.encoding and (not rows or len(rows[0]) == 1):
        return  # no table, whatever its signs mean
    even = all(len(row) == len(rows[0]) for row in rows)
    found = replace(said, encoding=encoding, sep=sep)
    what = []
    if sep != said.sep:
        what.append(f"{SEPARATORS[sep]}s between cells")
    if encoding != said.encoding:
        what.append(f"text in {encoding}, not {said.encoding}")
    unsure = ""
    if even:
        given = {name: list(cells) for name, *cells in zip(*rows, strict=True)}
        columns = {name: cells for name, cells in given.items() if not is_value(name)}
        needed = [name for name in columns if used is None or name in used]
        _refuse_currency(path, {name: columns[name] for name in needed})
        found, more, unsure = _numbers(columns, needed, found)
        what += more
    if found != said:
        in_words = _listed(what)
        raise DialectError(
            f"{path.name} looks like a file with {in_words}. If it is one, say so: "
            f"{found.typed(other_than=said)}{unsure}",
            *(found, in_words + unsure),
        )


def _encoding(content: bytes, said: str) -> str:
    """The encoding that was said, if it fits; else the one that the bytes look like."""
    marks = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
    if content[:2] in marks and not said.lower().startswith("utf-16"):
        return marks[content[:2]]
    try:
        content.decode(said)
        return said
    except UnicodeError:
        pass
    for encoding in ("utf-8", "cp1252"):
        try:
            text = content.decode(encoding)
        except UnicodeError:
            continue
        # Only the signs from 0x80 to 0x9f tell the two apart.
        plain = encoding == "cp1252" and not any(0x80 <= byte <= 0x9F for byte in content)
        return "latin-1" if plain and text else encoding
    return "latin-1"


def _rows(text: str) -> RowsOf:
    """A function of a separator that gives the rows."""

    def rows(sep: str) -> list[list[str]]:
        lines = io.StringIO(text.removeprefix("\ufeff"), newline="")
        try:
            return [row for row in csv.reader(lines, delimiter=sep) if row]
        except csv.Error:
            return []

    return rows


def _separator(rows_of: RowsOf, said: str) -> str:
    """The separator that was said, if all rows are as long; else one for which they are."""

    def width(sep: str) -> int:
        widths = {len(row) for row in rows_of(sep)}
        return widths.pop() if len(widths) == 1 else 0

    if width(said) > 1:
        return said
    best = max(SEPARATORS, key=width)
    return best if width(best) > 1 else said


def _refuse_currency(path: Path, columns: dict[str, list[str]]) -> None:
    """Refuse numbers with a currency sign."""
    for name, cells in columns.items():
        filled = [cell for cell in cells if cell and cell not in MISSING_WORDS]
        signs = [sorted(set(CURRENCY.findall(cell))) for cell in filled]
        bare = [CURRENCY.sub("", cell, count=1).strip() for cell in filled]
        if not filled or not all(signs) or not _readings(bare):
            continue
        sign = " or ".join(sorted({one for cell in signs for one in cell}))
        raise TableError(
            f"{path.name} has {sign} beside each number of column {name!r}, so they are text. Take "
            f"it out of the cells (in a spreadsheet give the column the number format General; in "
            f"R or Python delete the sign from the text), name the unit in the column's name, and "
            "run again"
        )


def _readings(cells: Iterable[str]) -> list[Dialect]:
    """The ways in which all cells are numbers; none where one is a code with leading zeros."""
    bare = [cell.strip() for cell in cells]
    if not bare or any(_CODE.fullmatch(cell) for cell in bare):
        return []
    patterns = [(one, one.pattern(whole=False)) for one in _NUMBERS]
    return [one for one, pattern in patterns if all(pattern.fullmatch(cell) for cell in bare)]


def _numbers(
    columns: dict[str, list[str]], needed: Collection[str], found: Dialect
) -> tuple[Dialect, list[str], str]:
    """The dialect with the signs of the numbers; what is new in words; what else it could be."""
    ways: dict[str, list[Dialect]] = {}
    gaps: dict[str, set[str]] = {}
    for name, cells in columns.items():
        filled = [cell for cell in cells if cell and cell not in found.na]
        words = {cell.strip() for cell in filled} & MISSING_WORDS
        readings = _readings(cell for cell in filled if cell.strip() not in words)
        if readings:
            ways[name], gaps[name] = readings, words
    asked = [name for name in needed if name in ways]
    said = Dialect(decimal=found.decimal, thousands=found.thousands)
    comma, grouped = Dialect(decimal=","), Dialect(thousands=",")
    likely = (said, comma, *_NUMBERS) if found.sep == ";" else (said, *_NUMBERS)
    left = [way for way in likely if all(way in ways[name] for name in asked)]
    if not asked or not left:
        return found, [], ""
    for name in ways:  # the other columns decide where these do not
        if name not in asked and any(way in ways[name] for way in left):
            left = [way for way in left if way in ways[name]]
    best, what, unsure = left[0], [], ""
    missing = sorted({word for name in asked for word in gaps[name]})
    if best != said:
        marked = _listed([repr(n) for n in asked if said not in ways[n]][:_SHOWN])
        if best.decimal != found.decimal:
            what.append(f"decimal {'commas' if best.decimal == ',' else 'points'} in {marked}")
        if best.thousands != found.thousands and best.thousands is not None:
            sign = _THOUSANDS_WORDS.get(best.thousands, best.thousands)
            what.append(f"{sign} between thousands in {marked}")
        if {comma, grouped} <= {*left}:
            signs = spelled("thousands", ","), spelled("decimal", ",")
            unsure = f" (commas stand before three figures each: {signs[0]} if they part "
            unsure += f"thousands, {signs[1]} if they are decimal commas)"
    if missing:
        where = _listed([repr(name) for name in asked if gaps[name]][:_SHOWN])
        what.append(f"{_listed([repr(word) for word in missing])} for a missing value in {where}")
    found = replace(found, decimal=best.decimal, thousands=best.thousands, na=(*found.na, *missing))
    return found, what, unsure


def _listed(parts: list[str]) -> str:
    """Parts as a sentence lists them."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
