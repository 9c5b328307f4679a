"""A CSV read without a guess, so that the copies can repeat it to the letter."""

from __future__ import annotations

import csv
import re
import warnings
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dsstan.core.errors import InputError, describe_rows

__all__ = ["check_rows", "parsed_csv", "read_csv"]

_NUMBER = re.compile(r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*")
# A leading zero makes a number a code, such as a postcode.
_WHOLE = r"[-+]?(?:0|[1-9]\d*)"
_DECIMAL = r"[-+]?(?:(?:0|[1-9]\d*)(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d{1,3})?"
_TRUTH = {"True": True, "False": False}


def read_csv(path: Path, used: Collection[str] | None = None) -> pd.DataFrame:
    """The table of a CSV file.

    Parameters
    ----------
    path
        UTF-8, with or without a byte order mark, the names of the columns in the first line.
    used
        Columns whose numbers are needed. Any other column becomes numbers only where they are
        written again exactly as they stand in the file; else its text is kept, so that the
        copies repeat it to the letter. None takes every column as needed.

    Returns
    -------
    DataFrame
        An empty cell is a missing value and nothing else is. Whole numbers with missing values
        are ``Int64``. Numbers with leading zeros (postcodes), and whole numbers that no 64-bit
        integer holds, are text.

    Raises
    ------
    InputError
        If a row has more or fewer cells than the header has names, a line is blank, a name
        repeats or is empty or a number, or there is no record.
    """
    header, rows = check_rows(path, lambda names: _check_header(names, path))
    texts = parsed_csv(path, dtype=str, keep_default_na=False, na_filter=False, index_col=False)
    # pandas and the csv module must see the same table.
    if list(texts.columns) != header or len(texts) != rows:
        raise InputError(
            f"{path.name} can be read in more than one way; write it again with plain quotes"
        )
    return pd.DataFrame(
        {name: _typed(texts[name], used is None or name in used) for name in header},
        columns=header,
    )


def parsed_csv(path: Path, **options: Any) -> pd.DataFrame:
    """What pandas reads; a row with too many cells is an error."""
    with warnings.catch_warnings():
        # pandas 3.1 is exact by itself, and deprecates what older ones need.
        warnings.filterwarnings("ignore", "The 'float_precision'")
        warnings.filterwarnings("error", category=pd.errors.ParserWarning)
        table: pd.DataFrame = pd.read_csv(path, **options)
    return table


def check_rows(path: Path, names: Callable[[list[str]], None]) -> tuple[list[str], int]:
    """Names of the columns and the number of records, every row as long as the header.

    Parameters
    ----------
    path
        The file.
    names
        Looks at the header and raises if it is wrong.

    Raises
    ------
    InputError
        If a row has more or fewer cells than the header has names, a line is blank, or there
        is no record.
    """
    with open(path, newline="", encoding="utf-8-sig") as stream:
        reader = csv.reader(stream)
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
    bad = np.array(wrong, dtype=bool)
    if bad.any():
        raise InputError(
            f"{path.name} has {len(header)} column names, and more or fewer cells in "
            f"{describe_rows(bad)}: each row needs one cell a name. Look for a comma at the end of "
            "lines, or a comma inside a cell without quotes"
        )
    if not wrong:
        raise InputError(f"{path.name} has no record below its header")
    return header, len(wrong)


def _check_header(header: list[str], path: Path) -> None:
    """Names there are, each once. The first line may be a record, so it is not quoted."""
    if not header:
        raise InputError(f"{path.name} is empty or begins with a blank line")
    numbers = [i + 1 for i, name in enumerate(header) if _NUMBER.fullmatch(name)]
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


def _typed(texts: pd.Series, needed: bool) -> pd.Series:
    """A column of text as numbers or truth values, where that loses nothing that is needed."""
    filled = texts != ""
    cells = texts[filled]
    if cells.empty:
        return pd.Series(np.nan, index=texts.index, dtype=np.float64)
    plain = cells.str.strip() if needed else cells
    for convert in (_whole, _decimal, _truth):
        values = convert(plain)
        if values is not None and (needed or _written(values).equals(cells.astype(object))):
            if filled.all():
                return values
            if values.dtype == np.bool_:
                break
            whole = values.dtype == np.int64
            return values.astype("Int64" if whole else np.float64).reindex(texts.index)
    return texts.where(filled, None)


def _whole(cells: pd.Series) -> pd.Series | None:
    """64-bit integers, if all are."""
    if not cells.str.fullmatch(_WHOLE).all():
        return None
    try:
        return cells.astype(np.int64)
    except (OverflowError, ValueError):
        return None


def _decimal(cells: pd.Series) -> pd.Series | None:
    """Floats, if all are written as such; whole numbers that no float holds are none."""
    if not cells.str.fullmatch(_DECIMAL).all():
        return None
    values = cells.astype(np.float64)
    whole = cells.str.fullmatch(_WHOLE)
    if not np.isfinite(values).all() or (whole & (values.abs() > 2.0**53)).any():
        return None
    return values


def _truth(cells: pd.Series) -> pd.Series | None:
    """Truth values, if all are."""
    return cells.map(_TRUTH).astype(np.bool_) if cells.isin(list(_TRUTH)).all() else None


def _written(values: pd.Series) -> pd.Series:
    """The text that a CSV of these values has."""
    return values.map(repr if values.dtype == np.float64 else str).astype(object)
