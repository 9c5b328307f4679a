"""One order of a table's records, whatever the order of its rows, and a fingerprint of the table.

The ledger has to find the same records again in a table that was sorted, read from another file or
prepared with another formula, without keeping a value of it. So records are ordered by their
response and their place, and the fingerprint is a keyed hash (HMAC-SHA256) of all values of the
response in that order:

- of all at once, since the hash of one value could be found by trying every price;
- in the order of the values and not of the rows, since a table that was sorted is the same one;
- keyed, since whoever knows all values but one could try that one; the key never leaves the ledger;
- of six significant digits, which any file of text keeps.

Records added, removed or corrected, and values in another unit, make another table.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dsstan.core.arrays import Floats, Indices, Truths
from dsstan.table.problem import Problem

__all__ = ["RecordOrder", "fingerprint_of", "largest_of_each", "record_order"]


NAME_DIGITS = 16
"""Hexadecimal digits of the name of a release."""

VALUE_DIGITS, PLACE_DIGITS = 6, 10
"""Significant digits of a response and of a coordinate that distinguish records."""


@dataclass(frozen=True, eq=False)
class RecordOrder:
    """The records of a table in an order of their own. Confidential.

    Attributes
    ----------
    rows
        Row of each record, shape (N,), in that order.
    same_value, same_place
        A number for each run of records that share their response, and for those that share
        their place too, shape (N,), in that order. Which of them is which nobody can tell.
    """

    rows: Indices = field(repr=False)
    same_value: NDArray[np.int64] = field(repr=False)
    same_place: NDArray[np.int64] = field(repr=False)
    _values: Floats = field(repr=False)
    _places: Floats = field(repr=False)

    @property
    def place_numbers(self) -> NDArray[np.uint64]:
        """A number for the place of each record, shape (N,), in that order. Places are public."""
        places = pd.DataFrame(self._places)
        return np.asarray(pd.util.hash_pandas_object(places, index=False), dtype=np.uint64)

    def name_of(self, values: Floats, key: bytes) -> str:
        """Name of a release by its copies, shape (L, N), whatever the order of the rows and copies
        that were written to another folder or format."""
        content = b"dsstan ledger 1, copies" + values[:, self.rows].astype("<f8").tobytes()
        return _keyed(content, key)[:NAME_DIGITS]

    def fingerprints(self, key: bytes) -> tuple[str, str]:
        """Of the responses alone, and of the responses with their places, as hexadecimal text."""
        values = _responses(self._values)
        places = b"dsstan ledger 1, places" + self._places.astype("<f8").tobytes()
        return _keyed(values, key), _keyed(values + places, key)


def record_order(problem: Problem) -> RecordOrder:
    """The records of a table by response, then by place, whatever the order of its rows."""
    values = _rounded(problem.original(), VALUE_DIGITS)
    places = _rounded(problem.coords, PLACE_DIGITS)
    rows = np.lexsort((places[:, 1], places[:, 0], values))
    values, places = values[rows], places[rows]
    after, before = values[1:], values[:-1]
    new_value = ~((after == before) | (np.isnan(after) & np.isnan(before)))
    new_place = new_value | (places[1:] != places[:-1]).any(axis=1)
    return RecordOrder(rows, _runs(new_value), _runs(new_place), values, places)


def fingerprint_of(values: Floats, key: bytes) -> str:
    """What :meth:`RecordOrder.fingerprints` gives for the values of a response, shape (N,).

    It tells that a column is one of which copies went out.
    """
    return _keyed(_responses(np.sort(_rounded(values, VALUE_DIGITS))), key)


def _responses(ordered: Floats) -> bytes:
    """What the fingerprint of rounded responses in their order is made from."""
    return b"dsstan ledger 1, responses" + ordered.astype("<f8").tobytes()


def _keyed(content: bytes, key: bytes) -> str:
    """A hash that only who has the key can make, as hexadecimal text."""
    return hmac.new(key, content, hashlib.sha256).hexdigest()


def largest_of_each(numbers: Floats, groups: NDArray[np.int64]) -> Floats:
    """The largest number of each group for all its members, shape (..., N).

    Parameters
    ----------
    numbers
        Shape (..., N).
    groups
        A number for each run of members, shape (N,), from 0 on.

    Examples
    --------
    >>> largest_of_each(np.array([1.0, 3.0, 2.0]), np.array([0, 0, 1]))
    array([3., 3., 2.])
    """
    starts = np.flatnonzero(np.diff(groups, prepend=-1))
    return np.asarray(np.maximum.reduceat(numbers, starts, axis=-1)[..., groups])


def _rounded(numbers: Floats, digits: int) -> Floats:
    """Numbers to so many significant digits, one zero and one NaN."""
    with np.errstate(divide="ignore", invalid="ignore"):
        size = np.floor(np.log10(np.abs(numbers)))
    size = np.where(np.isfinite(size), size, 0.0)
    # In two steps: a power of ten beyond a float's range would lose the number.
    scaled = np.rint(numbers / 10.0**size * 10.0 ** (digits - 1))
    out = scaled / 10.0 ** (digits - 1) * 10.0**size + 0.0
    return np.asarray(np.where(np.isnan(out), np.nan, out))


def _runs(new: Truths) -> NDArray[np.int64]:
    """The number of each run, from where a new one begins, shape (N,)."""
    return np.concatenate([[0], np.cumsum(new)]).astype(np.int64)
