"""Brackets of the response: their ends, which record is in which, what a column can hold there.

A bracket holds its lower end and not its upper one (``closed="left"``, the default), or the
other way round (``closed="right"``). A value on a boundary therefore belongs to one bracket, and
rounding, integer columns and single precision keep to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from dsstan.core.arrays import Floats, Indices, Truths
from dsstan.core.errors import InputError, describe_rows, is_number
from dsstan.table.formulas.formula import ResponseTransform
from dsstan.table.problem import Problem
from dsstan.table.rounding import find_rounding

__all__ = ["CLOSED", "Brackets", "find_brackets"]


CLOSED = ("left", "right")


@dataclass(frozen=True, eq=False)
class Brackets:
    """The brackets of one table.

    Attributes
    ----------
    low, high
        Ends on the response's own scale, shape (K,), ascending; infinite where open.
    names
        What the brackets are called, in the same order.
    closed
        Which end belongs to a bracket, ``"left"`` or ``"right"``.
    column
        The column that names each record's bracket, if there is one.
    number
        The bracket of each record, from 0, shape (N,).
    low_modelled, high_modelled
        Ends of each record's bracket on the modelled scale, shape (N,).
    first, last
        Smallest and largest value of each record's bracket that the column can hold,
        shape (N,); infinite where that is the column's own business.
    single
        Records for which the column, as it is rounded, can hold one value only, shape (N,).
    """

    low: Floats
    high: Floats
    names: tuple[str, ...]
    closed: str
    column: str | None
    number: Indices = field(repr=False)
    low_modelled: Floats = field(repr=False)
    high_modelled: Floats = field(repr=False)
    first: Floats = field(repr=False)
    last: Floats = field(repr=False)
    single: Truths = field(repr=False)

    @property
    def counts(self) -> Indices:
        """Records in each bracket, shape (K,); the same in every copy."""
        return np.bincount(self.number, minlength=self.low.size)

    @property
    def bounded(self) -> bool:
        """Whether any bracket has an end."""
        return bool(np.isfinite(self.low_modelled).any() or np.isfinite(self.high_modelled).any())

    def inside(self, values: Floats) -> Truths:
        """Whether values are in their record's bracket, shape (N,) or (m, N)."""
        low, high = self.low[self.number], self.high[self.number]
        if self.closed == "left":
            return np.asarray((values >= low) & (values < high))
        return np.asarray((values > low) & (values <= high))

    def clip(self, values: Floats) -> Floats:
        """Values with those outside moved to the nearest that the column can hold inside."""
        return np.asarray(np.clip(values, self.first, self.last))

    def words(self) -> list[str]:
        """Each bracket in words, in order.

        Examples
        --------
        >>> import dsstan as ds
        >>> table = pd.DataFrame({"x": [0, 1, 2, 3], "y": [0, 2, 1, 5], "rent": [9, 5, 7, 8]})
        >>> problem = ds.prepare(table, "rent ~ 1", coords=("x", "y"))
        >>> find_brackets(problem, [6, 8]).words()
        ['below 6', 'from 6 to below 8', '8 or more']
        """
        left = self.closed == "left"
        out = []
        for low, high in zip(self.low, self.high, strict=True):
            a, b = f"{low:,.15g}", f"{high:,.15g}"
            if np.isinf(low) and np.isinf(high):
                out.append("all values")
            elif np.isinf(low):
                out.append(f"below {b}" if left else f"{b} or less")
            elif np.isinf(high):
                out.append(f"{a} or more" if left else f"above {a}")
            else:
                out.append(f"from {a} to below {b}" if left else f"above {a} up to {b}")
        return out

    def without(self) -> Brackets:
        """One bracket with all values, for the same records: nothing is kept."""
        n, (first, last) = self.number.size, (np.array([-np.inf]), np.array([np.inf]))
        every = np.zeros(n, dtype=np.intp)
        ends = (first[every], last[every])
        return Brackets(
            first, last, ("all",), self.closed, None, every, *ends, *ends, np.zeros(n, bool)
        )


def find_brackets(
    problem: Problem, cuts: Any, *, column: str | None = None, closed: str = "left"
) -> Brackets:
    """Check brackets against a table and find each record's.

    Parameters
    ----------
    problem
        From :func:`dsstan.prepare`.
    cuts
        Ascending cut points on the response's own scale, such as ``[500_000, 1_000_000]``: three
        brackets, the outer two open. Or the ends of each bracket by its name, a mapping to
        ``(low, high)`` or a table with columns ``low`` and ``high``, None (or NaN, or an infinity)
        where open.
    column
        With named brackets: the column that names each record's.
    closed
        ``"left"``: a bracket holds its lower end; ``"right"``: its upper one.

    Raises
    ------
    InputError
        If cuts are not finite or not ascending, brackets overlap or leave a gap, an end is
        outside the domain of the formula's transform, a record's value is outside its bracket
        or its bracket has no name, or a bracket with records holds no value of the column's type.
    """
    if closed not in CLOSED:
        raise InputError(f'closed must be "left" or "right", got {closed!r}')
    if isinstance(cuts, Mapping | pd.DataFrame):
        names, low, high = _named(cuts)
    else:
        low, high = _between(cuts)
        names = [str(k + 1) for k in range(low.size)]
        if column is not None:
            raise InputError(
                f"column {column!r} names brackets: give cuts as a mapping from each name to its "
                "(low, high)"
            )
    check_domain(problem.transform, low, high)
    truth = problem.original()
    ends = high[:-1]
    number = np.searchsorted(ends, truth, side="right" if closed == "left" else "left")
    if column is not None:
        number = _by_name(problem, column, names)
    left = closed == "left"
    first, last = held_ends(problem, low, high, holds=(left, not left))
    forward = problem.transform.forward
    with np.errstate(all="ignore"):
        # The lowest end may be that of the domain, where a logarithm is minus infinity.
        low_modelled = np.where(np.isinf(low), low, forward(low))
        high_modelled = np.where(np.isinf(high), high, forward(high))
    found = Brackets(
        low,
        high,
        tuple(names),
        closed,
        column,
        number.astype(np.intp),
        low_modelled[number],
        high_modelled[number],
        first[number],
        last[number],
        _one_value(problem, first, last)[number],
    )
    outside = ~found.inside(truth)
    if outside.any():
        which = "its bracket" if column else "every bracket"
        held = "lower" if closed == "left" else "upper"
        raise InputError(
            f"{problem.response!r} is outside {which} in {describe_rows(outside)}. A bracket holds "
            f"its {held} end and not the other one: correct the ends or the names, or choose "
            "another value of closed"
        )
    empty = found.first > found.last
    if empty.any():
        raise InputError(
            f"no value that column {problem.response!r} can hold is inside the bracket of "
            f"{describe_rows(empty)}: widen it"
        )
    return found


def _between(cuts: Any) -> tuple[Floats, Floats]:
    """Ends of the brackets between cut points."""
    if isinstance(cuts, str) or not isinstance(cuts, Sequence | np.ndarray | pd.Series):
        raise InputError(
            "cuts must be cut points such as [500_000, 1_000_000], or a mapping from each "
            f"bracket's name to its (low, high); got {type(cuts).__name__}"
        )
    points = list(cuts)
    if not all(is_number(c) and np.isfinite(c) for c in points):
        raise InputError("cuts must be finite numbers; the outer brackets are open by themselves")
    if any(a >= b for a, b in pairwise(points)):
        raise InputError("cuts must ascend, none twice")
    ends = np.array(points, dtype=np.float64)
    return np.append(-np.inf, ends), np.append(ends, np.inf)


def _named(cuts: Mapping[Any, Any] | pd.DataFrame) -> tuple[list[str], Floats, Floats]:
    """Names and ends of brackets given by name, ascending."""
    if isinstance(cuts, pd.DataFrame):
        if not {"low", "high"} <= set(cuts.columns) or cuts.index.has_duplicates:
            raise InputError(
                "a table of brackets needs columns 'low' and 'high', and each bracket's name once "
                "in its index"
            )
        rows = [(str(name), row["low"], row["high"]) for name, row in cuts.iterrows()]
    else:
        try:
            rows = [(str(name), *ends) for name, ends in cuts.items()]
        except TypeError:
            rows = []
    if not rows or any(len(row) != 3 for row in rows):
        raise InputError("each bracket needs a name and two ends, (low, high)")
    sides = {}
    for name, low, high in rows:
        ends = []
        for end, open_end in ((low, -np.inf), (high, np.inf)):
            missing = end is None or end is pd.NA or (is_number(end) and np.isnan(end))
            if not missing and not (is_number(end) and end != -open_end):
                raise InputError(f"an end of bracket {name!r} is no number; None leaves it open")
            ends.append(open_end if missing else float(end))
        if not ends[0] < ends[1]:
            raise InputError(f"bracket {name!r} must have its low end below its high end")
        sides[name] = ends
    if len(sides) < len(rows):
        raise InputError("two brackets have the same name")
    names = sorted(sides, key=lambda name: sides[name])
    for a, b in pairwise(names):
        if sides[a][1] > sides[b][0]:
            raise InputError(f"brackets {a!r} and {b!r} overlap")
        if sides[a][1] < sides[b][0]:
            raise InputError(
                f"brackets {a!r} and {b!r} leave a gap: the end of one must be the beginning of "
                "the next, in integers too"
            )
    ends_of = np.array([sides[name] for name in names], dtype=np.float64)
    return names, ends_of[:, 0], ends_of[:, 1]


def check_domain(transform: ResponseTransform, low: Floats, high: Floats) -> None:
    """Ends must be values that the transform takes; the lowest may be the end of its domain."""
    if transform.name == "identity":
        return
    bottom = -1.0 if transform.name == "log1p" else 0.0
    inner = np.concatenate([low[1:], high])
    if np.any(inner <= bottom) or (np.isfinite(low[0]) and low[0] < bottom):
        raise InputError(
            f"the ends of brackets must be above {bottom:g} for {transform.name}(); the lowest "
            "bracket may begin there, or be open"
        )


def _by_name(problem: Problem, column: str, names: list[str]) -> Indices:
    """The bracket of each record by the column that names it."""
    if column not in problem.table.columns:
        raise InputError(f"there is no column {column!r} in the table")
    if column == problem.response or column in problem.coord_names:
        raise InputError(f"column {column!r} can't name brackets: it is the response or a place")
    named = problem.table[column]
    missing = named.isna().to_numpy()
    if missing.any():
        raise InputError(f"column {column!r} names no bracket in {describe_rows(missing)}")
    number = pd.Index(names).get_indexer(pd.Index(named.astype(object).map(str)))
    if (number < 0).any():
        raise InputError(
            f"column {column!r} names a bracket that is not given in {describe_rows(number < 0)}"
        )
    return np.asarray(number, dtype=np.intp)


def held_ends(
    problem: Problem, low: Floats, high: Floats, *, holds: tuple[bool, bool]
) -> tuple[Floats, Floats]:
    """Smallest and largest value of each bracket that the column can hold, shape (K,).

    ``holds`` says whether the low and the high end belong to their bracket.
    """
    width = _width(problem)
    first = np.array([_edge(end, width, up=True, holds=holds[0]) for end in low])
    last = np.array([_edge(end, width, up=False, holds=holds[1]) for end in high])
    if problem.transform.name != "identity":
        if width.kind == "f":
            smallest = float(np.finfo(width).tiny)
            if problem.transform.name == "log1p":
                smallest = float(np.nextafter(width.type(-1), width.type(0)))
        else:
            smallest = 0.0 if problem.transform.name == "log1p" else 1.0
        first = np.maximum(first, smallest)
    return first, last


def _width(problem: Problem) -> np.dtype[Any]:
    """The NumPy type that the response's column has or wraps."""
    dtype: Any = problem.table[problem.response].dtype
    width: np.dtype[Any] = np.dtype(getattr(dtype, "numpy_dtype", dtype))
    return width


def _edge(end: float, width: np.dtype[Any], *, up: bool, holds: bool) -> float:
    """The value of a type that is nearest to an end of a bracket, inside."""
    if np.isinf(end):
        return float(end)
    step = 1.0 if up else -1.0
    if width.kind != "f":
        nearest = float(np.ceil(end) if up else np.floor(end))
        return nearest + step if nearest == end and not holds else nearest
    value = width.type(end)
    toward = width.type(step * np.inf)
    # A copy is written with as few digits as tell the type's values apart: read back in double
    # precision, they must be inside too.
    while not all(
        step * v > step * end or (holds and v == end) for v in (float(value), float(str(value)))
    ):
        value = np.nextafter(value, toward)
    return float(value)


def _one_value(problem: Problem, first: Floats, last: Floats) -> Truths:
    """Whether the column, as it is rounded, can hold at most one value of a bracket, shape (K,)."""
    width = _width(problem)
    one = first >= last
    steps = find_rounding(problem.original(), width).steps
    finest = min((s for s in steps if s > 0), default=0.0)
    if finest > 0 and 0.0 not in steps:
        with np.errstate(invalid="ignore"):
            fit = np.floor(last / finest + 1e-9) - np.ceil(first / finest - 1e-9) + 1
        one |= fit <= 1
    return one
