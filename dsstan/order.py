"""Columns, indices and rows that put the records in the order of the response."""

from __future__ import annotations

import re
from bisect import bisect_right

import numpy as np
import pandas as pd
from numpy.typing import NDArray

__all__ = ["as_numbers", "gives_away", "nearly_sorted"]

Floats = NDArray[np.float64]

NEARLY = 0.98
"""Rank correlation with the response from which on a column stands for it."""
SORTED = 0.9
"""Share of the records in order, beyond chance, from which on rows count as sorted."""
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
    dtype = column.dtype
    if pd.api.types.is_bool_dtype(dtype):
        return None
    if pd.api.types.is_numeric_dtype(dtype):
        return pd.to_numeric(column, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    plain = pd.Series(np.asarray(column.astype(object), dtype=object), dtype=object)
    if pd.api.types.is_datetime64_any_dtype(dtype) or pd.api.types.is_timedelta64_dtype(dtype):
        moments = plain.map(lambda t: t.value, na_action="ignore")
        return pd.to_numeric(moments, errors="coerce").to_numpy(dtype=np.float64)
    digits = plain.map(lambda cell: re.sub(r"[^0-9.eE+-]", "", str(cell)), na_action="ignore")
    found = pd.to_numeric(digits, errors="coerce").to_numpy(dtype=np.float64)
    return found if np.isfinite(found).sum() >= 0.9 * plain.notna().sum() > 0 else None


def gives_away(column: pd.Series, response: pd.Series) -> bool:
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
        if both.all() or both.sum() >= FEW:
            ranks, order = _ranks(each), _ranks(values)
            if np.array_equal(ranks, order) or np.array_equal(len(ranks) + 1 - ranks, order):
                return True
        if both.sum() >= SOME and abs(_correlation(each, values)) >= NEARLY:
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


def _correlation(a: Floats, b: Floats) -> float:
    """Spearman's rank correlation."""
    return float(np.corrcoef(_ranks(a), _ranks(b))[0, 1])
