"""Columns, indices and rows that put the records in the order of the response."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

__all__ = ["as_numbers", "ranks_like_response", "nearly_sorted", "numbers_of"]

from dsstan.core.arrays import Floats
from dsstan.core.errors import ReleaseError
from dsstan.table.problem import Problem

# What may stand beside a number: all but its signs, and an E that is no exponent, as in EUR.
_BESIDE = re.compile(r"[^0-9.,eE+-]+|(?<![0-9.,])[eE]|[eE](?![0-9+-])")
_GROUPED = {
    sign: re.compile(rf"[+-]?[1-9][0-9]{{0,2}}({re.escape(sign)}[0-9]{{3}})+([{other}][0-9]*)?")
    for sign, other in (",.", ".,")
}
"""A number with a sign between its thousands, and perhaps the other sign before its decimals."""

_REPEATED = 2**16

MOSTLY = 0.9
"""Share of the cells of text that must be numbers for it to count as numbers."""
NEARLY = 0.98
"""Rank correlation with the response from which on a column reveals the response."""
SORTED = 0.9
"""Share of the records in order, beyond chance, from which on rows count as sorted."""
_SCREENED = 20_000
"""Of many more records as many are drawn first: a correlation below ``_CLEAR`` among them is 100
standard errors from ``NEARLY``, which spares the ranks of all."""
_CLEAR = 0.94
FEW, SOME = 7, 20
"""Records that can be ranked by accident; records from which on nearly in order counts."""


def as_numbers(column: pd.Series) -> Floats | None:
    """The numbers of a column, also where they are text, categories or dates.

    Parameters
    ----------
    column
        Any column, shape (N,).

    Returns
    -------
    ndarray or None
        Shape (N,), NaN where there is none; None for a column that is not of numbers.

    Examples
    --------
    >>> as_numbers(pd.Series(["$1,200", "$950", None]))
    array([1200.,  950.,   nan])
    """
    return numbers_of([column], len(column))


def numbers_of(pieces: Iterable[pd.Series], rows: int) -> Floats | None:
    """The numbers of a column that comes in pieces; see :func:`as_numbers`.

    A column of text is left as soon as too many of its cells are no numbers.

    Parameters
    ----------
    pieces
        Of the column, in order.
    rows
        N, the number of rows of all pieces.

    Returns
    -------
    ndarray or None
        Shape (N,), as from the whole column.

    Examples
    --------
    >>> numbers_of([pd.Series(["$1,200"]), pd.Series(["$950", None])], 3)
    array([1200.,  950.,   nan])
    """
    found, filled, known, text = [], 0, 0, False
    for piece in pieces:
        numbers = _numbers(piece)
        text = text or not _of_numbers(piece.dtype)
        filled += int(piece.notna().sum())
        known += int(np.isfinite(numbers).sum())
        if text and filled - known > (1.0 - MOSTLY) * rows + 1.0:
            return None
        found.append(numbers)
    if not found or (text and not known >= MOSTLY * filled > 0):
        return None
    return np.concatenate(found)


def _of_numbers(dtype: Any) -> bool:
    """Whether a column is of numbers, or of dates, which count as such."""
    kind = pd.api.types
    numeric = kind.is_numeric_dtype(dtype) and not kind.is_bool_dtype(dtype)
    return bool(numeric or kind.is_datetime64_any_dtype(dtype) or kind.is_timedelta64_dtype(dtype))


def _numbers(column: pd.Series) -> Floats:
    """The numbers of a column, NaN for a cell that is none; truth values are none."""
    dtype = column.dtype
    if pd.api.types.is_bool_dtype(dtype):
        return np.full(len(column), np.nan)
    if pd.api.types.is_numeric_dtype(dtype):
        return pd.to_numeric(column, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    plain = pd.Series(np.asarray(column.astype(object), dtype=object), dtype=object)
    if _of_numbers(dtype):
        moments = plain.map(lambda t: t.value, na_action="ignore")
        return pd.to_numeric(moments, errors="coerce").to_numpy(dtype=np.float64)
    alone = lru_cache(_REPEATED)(lambda cell: _BESIDE.sub("", cell))  # text repeats itself
    digits = _pointed(plain.map(lambda cell: alone(str(cell)), na_action="ignore"))
    return pd.to_numeric(digits, errors="coerce").to_numpy(dtype=np.float64)


def _pointed(cells: pd.Series) -> pd.Series:
    """Numbers of text with a point before their decimals and nothing between their thousands.

    A sign is between thousands if it is so in most of the cells that have it; of three decimals
    and one sign in every cell that may be wrong, which leaves the order as it is.
    """
    known = cells.dropna().astype(str)
    for sign, pattern in _GROUPED.items():
        having = known[known.str.contains(sign, regex=False)]
        if len(having) and having.str.fullmatch(pattern).mean() >= MOSTLY:
            known = known.str.replace(sign, "", regex=False)
            break
    known = known.str.replace(",", ".", regex=False)
    listed = known.str.count(r"\.") > 1
    return known.where(~listed, known.str.replace(".", "", regex=False)).reindex(cells.index)


def ranks_like_response(column: pd.Series, response: pd.Series) -> bool:
    """Whether a column ranks the records as the response does, or in reverse, or nearly so.

    Judged on the records that have both. Exactly the same order counts in any table of three
    records or more without gaps; a rank correlation of 0.98 from 20 records on. Signs
    that alternate are looked through.

    Parameters
    ----------
    column, response
        Shape (N,).
    """
    numbers, values = as_numbers(column), as_numbers(response)
    if numbers is None or values is None:
        return False
    both = np.isfinite(numbers) & np.isfinite(values)
    numbers, values = numbers[both], values[both]
    if np.unique(numbers).size <= 2 or np.unique(values).size <= 2:
        return False
    candidates = [numbers, np.abs(numbers)] if (numbers < 0).any() else [numbers]
    for each in candidates:
        if not _may_be(each, values):
            continue
        ranks, order = _ranks(each), _ranks(values)
        same = np.array_equal(ranks, order) or np.array_equal(len(ranks) + 1 - ranks, order)
        if same and (both.all() or both.sum() >= FEW):
            return True
        if both.sum() >= SOME and abs(float(np.corrcoef(ranks, order)[0, 1])) >= NEARLY:
            return True
    return False


def nearly_sorted(values: Floats) -> bool:
    """Whether values rise, or fall, from the first to the last, all or all but a few.

    The longest run that never falls (rows between may be left out) holds a share of the rows;
    what chance gives is taken off by the same of shuffled rows.

    Parameters
    ----------
    values
        Shape (N,), finite.

    Examples
    --------
    >>> moved = np.append(np.arange(1.0, 60.0), 0.0)
    >>> nearly_sorted(moved), nearly_sorted(np.random.default_rng(1).permutation(moved))
    (True, False)
    """
    if np.unique(values).size <= 2:
        return False
    if (np.diff(values) >= 0).all() or (np.diff(values) <= 0).all():
        return True
    if values.size < SOME:
        return False
    shuffled = np.random.default_rng(values.size).permutation(values)
    for sign in (1.0, -1.0):
        chance = _longest_run(sign * shuffled) / values.size
        if _longest_run(sign * values) / values.size >= chance + SORTED * (1.0 - chance):
            return True
    return False


def check_rows(values: Floats, response: str) -> None:
    """Refuse values of the response that rise or fall from row to row, or nearly so.

    Raises
    ------
    ReleaseError
        If they do.
    """
    if nearly_sorted(values):
        raise ReleaseError(
            f"the rows are in the order of the response {response!r}, or nearly so, and "
            "copies keep the order of the rows: shuffle them first, with table.sample(frac=1)"
        )


def check_order(problem: Problem) -> None:
    """Refuse a table whose order of rows, or index, reveals the response.

    Copies keep both, so a table sorted by the response would publish who has the most.

    Raises
    ------
    ReleaseError
        If the response rises or falls from the first row to the last, or does so but for a
        few rows (:func:`dsstan.table.order_leaks.nearly_sorted`); or if a level of the index puts
        the records in the order of the response.
    """
    response = problem.table[problem.response]
    check_rows(problem.original()[problem.known], problem.response)
    index = problem.table.index
    for level in range(index.nlevels):
        labels = pd.Series(index.get_level_values(level), index=index)
        if ranks_like_response(labels, response):
            raise ReleaseError(
                f"the index is in the order of the response {problem.response!r}, or nearly so, "
                "and would be published: use table.reset_index(drop=True) first"
            )


def _longest_run(values: Floats) -> int:
    """Length of the longest subsequence that never falls."""
    ends: list[float] = []
    for value in values.tolist():
        place = bisect_right(ends, value)
        if place == len(ends):
            ends.append(value)
        else:
            ends[place] = value
    return len(ends)


def _ranks(values: Floats) -> Floats:
    """Average ranks."""
    return np.asarray(pd.Series(values).rank(), dtype=np.float64)


def _may_be(a: Floats, b: Floats) -> bool:
    """Whether two columns may be in the same order, judged on some records where there are many."""
    if a.size <= 4 * _SCREENED:
        return True
    some = np.random.default_rng(a.size).choice(a.size, _SCREENED, replace=False)
    a, b = a[some], b[some]
    # Where most records share one value the few others decide, and a sample of them is not enough.
    if max(np.unique(each, return_counts=True)[1].max() for each in (a, b)) > _SCREENED / 2:
        return True
    return bool(abs(float(np.corrcoef(_ranks(a), _ranks(b))[0, 1])) >= _CLEAR)
