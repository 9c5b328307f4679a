"""What can go wrong, one class for each thing a caller may want to catch.

Messages name columns, terms and row positions. They never repeat a value of the data, so
that a traceback can be shown to somebody who may not see the table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeGuard

import numpy as np

from dsstan.core.arrays import Truths

__all__ = [
    "ConvergenceError",
    "CoordinateError",
    "DatasetError",
    "DisclosureError",
    "DsstanDeprecationWarning",
    "DsstanError",
    "DsstanWarning",
    "EngineError",
    "FormulaError",
    "InputError",
    "ReleaseError",
    "SurfaceError",
    "TableError",
    "check_count",
    "describe_rows",
    "is_number",
    "named",
    "whole_number",
]

_ROWS_SHOWN = 5


CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
"""Signs that a terminal obeys instead of showing them."""


class DsstanError(Exception):
    """Base class of every error that this package raises on purpose."""


class InputError(DsstanError, ValueError):
    """Raised when an argument, or the data in it, cannot be used as it stands."""


class FormulaError(InputError):
    """Raised when a formula cannot be read, or asks for something that is not allowed."""


class CoordinateError(InputError):
    """Raised when coordinates are missing, impossible, swapped or of an undecided unit."""


class TableError(InputError):
    """Raised when the rows or columns of a table do not allow the model to be fitted."""


class SurfaceError(DsstanError):
    """Raised when the profile surface cannot be computed or interpolated well enough."""


class ConvergenceError(DsstanError):
    """Raised when the draws of a fit are not good enough for the use made of them."""


class EngineError(DsstanError, RuntimeError):
    """Raised when Stan is missing, does not compile a program or stops while running it."""


class ReleaseError(DsstanError):
    """Raised when a release would be incomplete or would publish something confidential."""


class DisclosureError(DsstanError):
    """Raised when a release would leave an intruder less than the floor that was asked for."""


class DatasetError(DsstanError):
    """Raised when an example data set cannot be found, downloaded or verified."""


class DsstanWarning(UserWarning):
    """Issued when a result is usable but rests on something the user should know."""


class DsstanDeprecationWarning(DsstanWarning, DeprecationWarning):
    """Issued when something works for one more version only."""


def is_number(value: object) -> TypeGuard[float]:
    """Whether an argument is one number; NaN and the infinities count.

    Examples
    --------
    >>> [is_number(v) for v in (1, 0.5, np.float32(2), "1", True, None, [1])]
    [True, True, True, False, False, False, False]
    """
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def whole_number(value: object) -> int | None:
    """The whole number that an argument is, or None; 20.0, which is how R sends 20, is 20.

    Examples
    --------
    >>> [whole_number(v) for v in (20, 20.0, np.int64(3), 20.5, float("inf"), True, "20")]
    [20, 20, 3, None, None, None, None]
    """
    if not is_number(value) or (not isinstance(value, int) and not float(value).is_integer()):
        return None
    return int(value)


MOST = {
    "chains": (1_000, "each is a run of the sampler of its own"),
    "warmup": (100_000_000, "such a chain would run for days"),
    "chains times samples": (100_000, "all draws are held in memory, several times over"),
    "max_treedepth": (20, "a trajectory has 2 to this power steps"),
    "workers": (1_000, "each is a thread of this machine"),
    "cluster": (1_000, "each is a process of this machine"),
    "neighbours": (200, "the work grows with their cube: take the exact covariance"),
    "knots": (20_000, "all pairs of knots are held in memory"),
    "nodes": (1_000, "each node of phi is a decomposition of the table's covariance"),
}
"""Largest whole numbers that are taken, by the name of the argument, and why not larger ones."""


def check_count(name: str, value: object, least: int = 1) -> int:
    """The whole number that an argument is, between the least and the most that make sense.

    Raises
    ------
    InputError
        If it is no whole number, below or above.
    """
    whole = whole_number(value)
    if whole is None or whole < least:
        raise InputError(f"{name} must be a whole number of at least {least}, got {value!r}")
    most, why = MOST.get(name, (whole, ""))
    if whole > most:
        raise InputError(f"{name} must be at most {most:,}, got {whole:,}: {why}")
    return whole


@contextmanager
def named(name: str | None) -> Iterator[None]:
    """Errors of a part of a release begin with its name, such as ``step 2``; None has none."""
    try:
        yield
    except (ConvergenceError, InputError) as error:
        if name is None:
            raise
        raise type(error)(f"{name}: {error}") from None


def describe_rows(bad: Truths) -> str:
    """How many rows, and the positions of at most the first five, from 0, for an error message.

    Positions are given rather than index labels: a label may itself be confidential.

    Parameters
    ----------
    bad
        True for each row meant, shape (N,).

    Examples
    --------
    >>> describe_rows(np.array([False, True, True]))
    '2 rows (positions 1, 2, counted from 0)'
    >>> describe_rows(np.ones(7, dtype=bool))
    '7 rows (positions 0, 1, 2, 3, 4 and 2 more, counted from 0)'
    """
    positions = np.flatnonzero(bad)
    shown = ", ".join(str(i) for i in positions[:_ROWS_SHOWN])
    more = len(positions) - _ROWS_SHOWN
    tail = f" and {more} more" if more > 0 else ""
    noun, place = ("row", "position") if len(positions) == 1 else ("rows", "positions")
    return f"{len(positions)} {noun} ({place} {shown}{tail}, counted from 0)"
