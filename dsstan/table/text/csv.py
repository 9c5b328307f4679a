"""A CSV read without a guess, so that the copies can repeat it to the letter."""

from __future__ import annotations

import csv
import io
import re
import warnings
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import pandas as pd

from dsstan.core.errors import DsstanWarning, InputError, ReleaseError, describe_rows
from dsstan.core.spelling import spelled
from dsstan.table.as_read import AS_READ
from dsstan.table.sizes import MOST_COLUMNS, check_most
from dsstan.table.text.dialect import PLAIN, Dialect, Quotes, TextAsRead
from dsstan.table.text.found_dialect import (
    SEPARATORS,
    is_value,
    may_be_numbers,
    refuse_another_dialect,
)
from dsstan.table.text.text_file import opened_text, written_text

_TRUTH = {"True": True, "False": False}
_SAMPLE = 1000
"""Lines in which quotes are looked at."""

_LONGEST_LINE = 2**24
"""Letters of a line that is read."""


def read_csv(
    path: Path, used: Collection[str] | None = None, dialect: Dialect = PLAIN
) -> pd.DataFrame:
    """The table of a CSV file.

    Raises InputError if a row has more or fewer cells than the header has names, a line is blank, a
    name repeats or is empty or a number, or there is no record; below it DialectError where the
    file looks like one of another dialect.

    Parameters
    ----------
    path
        The names of the columns are in the first line.
    used
        Columns whose numbers are needed. Any other column becomes numbers only where they are
        written again exactly as they stand in the file; else its text is kept, so that the
        copies repeat it to the letter. None takes every column as needed.
    dialect
        How the file is written.

    Returns
    -------
    DataFrame
        An empty cell is a missing value, and a text that the dialect names as one. Whole numbers
        with missing values are ``Int64``. Numbers with leading zeros (postcodes), and whole numbers
        that no 64-bit integer holds, are text. Its attribute ``as_read`` is what :func:`write_csv`
        takes.
    """
    try:
        header, rows = check_rows(path, lambda names: check_header(names, path), dialect)
    except (InputError, UnicodeError):
        refuse_another_dialect(path, used, dialect)
        raise
    texts = parsed_csv(
        path, dialect, dtype=str, keep_default_na=False, na_filter=False, index_col=False
    )
    # pandas and the csv module must see the same table.
    if list(texts.columns) != header or len(texts) != rows:
        raise InputError(
            f"{path.name} can be read in more than one way; write it again with plain quotes"
        )
    needed = header if used is None else [name for name in header if name in used]
    table = pd.DataFrame(
        {name: _typed(texts[name], name in needed, dialect) for name in header}, columns=header
    )
    for word in dialect.na:
        if not (texts == word).to_numpy().any():
            warnings.warn(
                f"{spelled('na', [word])} is in no cell of {path.name}: give it as it stands there",
                DsstanWarning,
                stacklevel=2,
            )
    if len(header) == 1 or any(_is_text(table[c]) and may_be_numbers(texts[c]) for c in needed):
        refuse_another_dialect(path, used, dialect)
    table.attrs[AS_READ] = _as_read(path, texts, table, dialect)
    return table


def _is_text(column: pd.Series) -> bool:
    """Whether a column did not become numbers or truth values."""
    return not pd.api.types.is_numeric_dtype(column.dtype)


def parsed_csv(path: Path, dialect: Dialect, **options: Any) -> pd.DataFrame:
    """What pandas reads; a row with too many cells is an error."""
    with warnings.catch_warnings():
        # pandas 3.1 is exact by itself, and deprecates what older ones need.
        warnings.filterwarnings("ignore", "The 'float_precision'")
        warnings.filterwarnings("error", category=pd.errors.ParserWarning)
        with opened_text(path, dialect.codec) as stream:
            table: pd.DataFrame = pd.read_csv(stream, sep=dialect.sep, **options)
    return table


def check_rows(
    path: Path,
    names: Callable[[list[str]], None],
    dialect: Dialect = PLAIN,
    most_rows: int | None = None,
) -> tuple[list[str], int]:
    """Names of the columns and the number of records, every row as long as the header.

    Raises InputError if a row has more or fewer cells than the header has names, a line is blank,
    or there is no record; RowsError, below it, as soon as there are more than ``most_rows``.

    Parameters
    ----------
    path
        The file.
    names
        Looks at the header and raises if it is wrong.
    dialect
        How the file is written.
    most_rows
        Rows that the file may have, where that is known.
    """
    with opened_text(path, dialect.codec) as stream:
        reader = csv.reader(_lines(stream, path), delimiter=dialect.sep)
        header = next(reader, [])
        names(header)
        wrong, blank = [], None
        for cells in reader:
            if not cells:
                blank = reader.line_num if blank is None else blank
                continue
            if blank is not None:
                raise InputError(f"{path.name} has a blank line, line {blank}: take it out")
            wrong.append(len(cells) != len(header))
            check_most(path, len(wrong), most_rows)
    bad = np.array(wrong, dtype=bool)
    if bad.any():
        sign = SEPARATORS.get(dialect.sep, repr(dialect.sep))
        raise InputError(
            f"{path.name} has {len(header)} column names, and more or fewer cells in "
            f"{describe_rows(bad)}: each row needs one cell a name. Look for a {sign} at the end "
            f"of lines, or a {sign} inside a cell without quotes"
        )
    if not wrong:
        raise InputError(f"{path.name} has no record below its header")
    return header, len(wrong)


def _lines(stream: TextIO, path: Path) -> Iterator[str]:
    """The lines of a file; a packed one of any length may lie in a small file."""
    while line := stream.readline(_LONGEST_LINE):
        if len(line) == _LONGEST_LINE:
            raise InputError(
                f"{path.name} has a line of more than {_LONGEST_LINE >> 20} million letters: look "
                "for a quote that is not closed, or for line ends that are lost"
            )
        yield line


def check_header(header: list[str], path: Path) -> None:
    """Names there are, each once. The first line may be a record, so it is not quoted."""
    if not header:
        raise InputError(f"{path.name} is empty or begins with a blank line")
    if len(header) > MOST_COLUMNS:
        raise InputError(
            f"{path.name} has {len(header)} columns, more than the {MOST_COLUMNS} that are read: "
            "leave out those that are not needed"
        )
    numbers = [i for i, name in enumerate(header, 1) if is_value(name)]
    if numbers:
        listed = ", ".join(map(str, numbers[:5]))
        raise InputError(
            f"{path.name} has numbers where names of columns are needed, in column {listed}"
            f"{', ...' if len(numbers) > 5 else ''} of its first line: add a line with the names, "
            "or give these columns a name that is no number"
        )
    empty = [i + 1 for i, name in enumerate(header) if not name.strip()]
    if empty:
        raise InputError(f"{path.name} has no name for column {empty[0]} in its first line")
    first: dict[str, int] = {}
    for number, name in enumerate(header, 1):
        if name in first:
            raise InputError(
                f"columns {first[name]} and {number} of {path.name} have the same name: rename one"
            )
        first[name] = number


def _typed(texts: pd.Series, needed: bool, dialect: Dialect) -> pd.Series:
    """A column of text as numbers or truth values, where that loses nothing that is needed."""
    filled = (texts != "") & ~texts.isin(dialect.na)
    cells = texts[filled]
    if cells.empty:
        return pd.Series(np.nan, index=texts.index, dtype=np.float64)
    plain = cells.str.strip() if needed else cells
    for convert in (_whole, _decimal, _truth):
        values = convert(plain, dialect)
        if values is not None and (
            needed or _written(values, dialect).equals(cells.astype(object))
        ):
            if filled.all():
                return values
            if values.dtype == np.bool_:
                break
            whole = values.dtype == np.int64
            return values.astype("Int64" if whole else np.float64).reindex(texts.index)
    return texts.where(filled, None)


def _whole(cells: pd.Series, dialect: Dialect) -> pd.Series | None:
    """64-bit integers, if all are."""
    if not cells.str.fullmatch(dialect.pattern(whole=True)).all():
        return None
    try:
        return dialect.plain(cells).astype(np.int64)
    except (OverflowError, ValueError):
        return None


def _decimal(cells: pd.Series, dialect: Dialect) -> pd.Series | None:
    """Floats, if all are written as such; whole numbers that no float holds are none."""
    if not cells.str.fullmatch(dialect.pattern(whole=False)).all():
        return None
    values = dialect.plain(cells).astype(np.float64)
    whole = cells.str.fullmatch(dialect.pattern(whole=True))
    if not np.isfinite(values).all() or (whole & (values.abs() > 2.0**53)).any():
        return None
    return values


def _truth(cells: pd.Series, dialect: Dialect) -> pd.Series | None:
    """Truth values, if all are."""
    return cells.map(_TRUTH).astype(np.bool_) if cells.isin(list(_TRUTH)).all() else None


def _written(values: pd.Series, dialect: Dialect) -> pd.Series:
    """The text that a CSV of these values has."""
    if values.dtype == np.bool_:
        return values.map(str).astype(object)
    return dialect.written(values)


def _as_read(path: Path, texts: pd.DataFrame, table: pd.DataFrame, dialect: Dialect) -> TextAsRead:
    """What the copies need to repeat the file."""
    with opened_text(path, dialect.encoding) as stream:
        first = stream.read(1)
        lines = [first + stream.readline(), *(stream.readline() for _ in range(_SAMPLE))]
    mark = first == "\ufeff"
    if mark:
        lines[0] = lines[0][1:]
    kept = {
        name: texts[name]
        for name in table.columns
        if not _cells(table[name], dialect).equals(texts[name].astype(object))
    }
    newline = "\r\n" if lines[0].endswith("\r\n") else "\n"
    quotes = _quotes(lines, list(table.columns), dialect)
    return TextAsRead("csv", dialect, newline, mark, quotes, kept)


def _quotes(lines: list[str], names: list[str], dialect: Dialect) -> Quotes:
    """Which columns are in quotes throughout, by the first lines that hold a whole record."""
    if not any('"' in line for line in lines):
        return Quotes()
    cell = rf'("(?:[^"]|"")*"|[^{re.escape(dialect.sep)}"\r\n]*)'
    record = re.compile(re.escape(dialect.sep).join([cell] * len(names)) + r"[\r\n]*")
    found = [match.groups() for line in lines if (match := record.fullmatch(line))]
    if not found:
        return Quotes()
    columns, empty = set(), {"", *dialect.na}
    special = re.compile(rf'[{re.escape(dialect.sep)}\r\n]|""')
    for name, cells in zip(names, zip(*found[1:], strict=True), strict=False):
        filled = [cell for cell in cells if cell not in empty]
        needless = any(not special.search(cell[1:-1]) for cell in filled)
        if needless and all(cell.startswith('"') for cell in filled):
            columns.add(name)
    marked = [cell for cells in found for cell in cells]
    return Quotes(
        all(name.startswith('"') for name in found[0]),
        frozenset(columns),
        frozenset(text for text in empty if f'"{text}"' not in marked),
    )


def _cells(column: pd.Series, dialect: Dialect, grouped: str = "") -> pd.Series:
    """A column as text, empty where a value is missing."""
    there = column.notna()
    kind = pd.api.types
    values = column[there]
    if kind.is_bool_dtype(values.dtype) or not kind.is_numeric_dtype(values.dtype):
        simple = (
            kind.is_bool_dtype(values.dtype)
            or kind.is_object_dtype(values.dtype)
            or (kind.is_string_dtype(values.dtype))
        )
        # What else there may be (dates, geometries) is written as pandas writes it.
        found = values.map(str) if simple else _by_pandas(values)
    else:
        found = dialect.written(values, grouped)
    return found.astype(object).reindex(column.index, fill_value="")


def _by_pandas(values: pd.Series) -> pd.Series:
    """The cells of a CSV that pandas writes."""
    rows = csv.reader(io.StringIO(values.to_csv(index=False, header=False, lineterminator="\n")))
    return pd.Series([row[0] for row in rows], index=values.index, dtype=object)


def write_csv(
    table: pd.DataFrame, path: Path, as_read: TextAsRead, synthetic: Collection[str] = ()
) -> None:
    """Write a table as its file was written, byte for byte where its values are the same.

    Raises ReleaseError if the encoding lacks a sign of the table.

    Parameters
    ----------
    table
        What is written, without its index.
    path
        The file.
    as_read
        How the file was written from which the table was read.
    synthetic
        Columns whose cells are never taken from that file.
    """
    dialect, columns = as_read.dialect, []
    special = re.compile(rf'[{re.escape(dialect.sep)}"\r\n]')

    def quoted(text: str, always: bool) -> str:
        if always or special.search(text):
            return '"' + text.replace('"', '""') + '"'
        return text

    for name in table.columns:
        stood = as_read.texts.get(name)
        if stood is None or name in synthetic or not _same(stood, table[name], dialect):
            cells = _cells(table[name], dialect, _grouping(stood, dialect))
        else:
            cells = stood
        always = name in as_read.quotes.columns
        bare = as_read.quotes.bare if always else frozenset()
        columns.append(
            [quoted(str(name), as_read.quotes.header)]
            + [cell if cell in bare else quoted(cell, always) for cell in cells]
        )
    lines = map(dialect.sep.join, zip(*columns, strict=True))
    codec = dialect.codec if as_read.mark else dialect.encoding
    try:
        with written_text(path, codec) as stream:
            stream.writelines(line + as_read.newline for line in lines)
    except UnicodeEncodeError:
        if dialect.codec.startswith("utf"):
            raise
        raise ReleaseError(
            f"the copies can't be written in the encoding {dialect.encoding}, which lacks a sign "
            "of the table: choose utf-8"
        ) from None


def _same(stood: pd.Series, column: pd.Series, dialect: Dialect) -> bool:
    """Whether the cells of a file still give the column."""
    if len(stood) != len(column):
        return False
    if _is_text(column):
        read = stood.where((stood != "") & ~stood.isin(dialect.na), None).to_numpy(dtype=object)
        own = column.astype(object).where(column.notna(), None).to_numpy(dtype=object)
        return bool(np.array_equal(read, own))
    again = _typed(stood, True, dialect)
    return pd.Series(again.array).equals(pd.Series(column.array))


def _grouping(stood: pd.Series | None, dialect: Dialect) -> str:
    """The sign between thousands that a column had in its file; empty where there was none."""
    if stood is None or not dialect.grouping:
        return ""
    found = stood.str.extract(f"({dialect.grouping})", expand=False).dropna()
    return "" if found.empty else str(found.iloc[0])
