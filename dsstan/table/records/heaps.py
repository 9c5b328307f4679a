"""A heap: a value that many records share, of a response that is else continuous."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dsstan.core.errors import InputError, is_number
from dsstan.core.spelling import spelled
from dsstan.table.columns import response_values

HeapLike = float | str
"""A number, ``"cap"`` for the largest value, ``"floor"`` for the smallest."""

FEWEST = 5
"""Least number of records in a heap and of values beside it, which a model of either needs."""


def heap_value(heap: HeapLike) -> float | str:
    """A heap as it was typed, as a number or as ``"cap"`` or ``"floor"``.

    Raises InputError if it is neither.

    Examples
    --------
    >>> heap_value("0"), heap_value("cap")
    (0.0, 'cap')
    """
    if heap in ("cap", "floor"):
        return str(heap)
    try:
        value = float(heap) if isinstance(heap, str) or is_number(heap) else np.nan
    except ValueError:
        value = np.nan
    if not np.isfinite(value):
        raise InputError(
            f'heap must be a number such as 0, "cap" for the largest value or "floor" for the '
            f"smallest, got {heap!r}"
        )
    return value


def read_heap(column: pd.Series, heap: HeapLike, missing: str = "refuse") -> float:
    """The value of a heap in a response.

    Raises InputError if it is none, the response may be missing, or fewer than :data:`FEWEST`
    records are in the heap or beside it.
    """
    asked, name = heap_value(heap), str(column.name)
    if missing == "draw":
        raise InputError(
            f"a heap needs the response of every record: leave {spelled('missing', missing)} out"
        )
    values = response_values(column, name)
    ends = {"cap": values.max(), "floor": values.min()}
    at = float(ends[asked]) if isinstance(asked, str) else asked
    inside = int(np.sum(values == at))
    beside = np.unique(values[values != at]).size
    if inside < FEWEST or beside < FEWEST:
        what = f"{inside} of {values.size} records of {name!r} have it"
        if inside >= FEWEST:
            what = f"{name!r} has {beside} other values"
        raise InputError(
            f"{spelled('heap', heap)} is no heap: {what}, and {FEWEST} are needed. Leave heap out"
            + (", or model the column as a count" if inside >= FEWEST else "")
        )
    return at
