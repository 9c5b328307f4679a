"""The range of the values beside a heap: its ends, and what the column can hold there."""

from __future__ import annotations

from typing import Any

import numpy as np

from dsstan.core.arrays import Floats, Truths
from dsstan.core.errors import InputError, describe_rows, is_number
from dsstan.core.spelling import spelled
from dsstan.models.brackets.limits import Brackets, check_domain, held_ends
from dsstan.table.problem import Problem


class Range(Brackets):
    """One bracket for all records, with both its ends but for a heap that is one of them."""

    def inside(self, values: Floats) -> Truths:
        """Whether values are in the range, shape (N,) or (m, N)."""
        return np.asarray((values >= self.first) & (values <= self.last))


def range_ends(given: Any) -> tuple[float, float]:
    """The two ends of a range, infinite where it is open.

    Raises InputError if they are not two ascending numbers; None leaves an end open.

    Examples
    --------
    >>> range_ends((0, None))
    (0.0, inf)
    """
    pair = list(given) if isinstance(given, list | tuple | np.ndarray) else []
    opened = zip(pair, (-np.inf, np.inf), strict=False)
    ends = [open_end if end is None else end for end, open_end in opened]
    if len(pair) != 2 or not all(is_number(end) and not np.isnan(end) for end in ends):
        raise InputError(
            "range must be two numbers, the least and the largest value that copies may have, such "
            f"as {spelled('range', (0, 1000))}; an end of inf or -inf leaves it open"
        )
    low, high = map(float, ends)
    if not low < high or low == np.inf or high == -np.inf:
        raise InputError("range must begin below its end")
    return low, high


def find_range(problem: Problem, given: Any = None) -> Range:
    """The range of the values beside the heap, checked against the table.

    Parameters
    ----------
    problem
        From :func:`dsstan.prepare`, with a heap or without.
    given
        Least and largest value, both allowed, None or infinite where open. A heap with all other
        values on one side of it ends the range too, without belonging to it.

    Raises
    ------
    InputError
        If the ends are no range, an end is outside the domain of the formula's transform, or a
        record's value lies outside.
    """
    low, high = (-np.inf, np.inf) if given is None else range_ends(given)
    values, holds = problem.original()[problem.observed], [True, True]
    if problem.heap is not None:
        if values.min() > problem.heap >= low:
            low, holds[0] = problem.heap, False
        if values.max() < problem.heap <= high:
            high, holds[1] = problem.heap, False
    ends = np.array([low]), np.array([high])
    check_domain(problem.transform, *ends)
    first, last = held_ends(problem, *ends, holds=(holds[0], holds[1]))
    forward, every = problem.transform.forward, np.zeros(problem.n_records, dtype=np.intp)
    found = Range(
        low=ends[0],
        high=ends[1],
        names=("all",),
        closed="left",
        column=None,
        number=every,
        low_modelled=np.where(np.isinf(ends[0]), ends[0], forward(ends[0]))[every],
        high_modelled=np.where(np.isinf(ends[1]), ends[1], forward(ends[1]))[every],
        first=first[every],
        last=last[every],
        single=np.zeros(problem.n_records, dtype=bool),
    )
    outside = problem.observed & ~found.inside(problem.original())
    if outside.any():
        raise InputError(
            f"{problem.response!r} is outside the range in {describe_rows(outside)}: widen the "
            "range, or correct these rows"
        )
    return found
