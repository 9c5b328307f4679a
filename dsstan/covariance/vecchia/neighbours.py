"""Orderings of the records, and the earlier neighbours of each.

Vecchia's approximation writes a density as a product of conditionals, each given a few records
that come before. How good it is depends on the order (Guinness 2018, *Technometrics* 60): the
max-min order, in which every next record is the one farthest from all before it, keeps far and
near neighbours of each.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from dsstan.core.arrays import Floats, Indices
from dsstan.core.errors import InputError
from dsstan.table.problem import Problem

__all__ = [
    "NEIGHBOURS",
    "OF_SMOOTH",
    "ORDERINGS",
    "Neighbours",
    "earlier_neighbours",
    "neighbours_of",
    "order_places",
]

Places = NDArray[np.int64]

NEIGHBOURS = 15
"""Neighbours a record, unless others are asked for."""

OF_SMOOTH = {"matern32": 30, "matern52": 50}
"""The same where the correlation is smooth, whose farther records tell more beside the near ones:
a draw's mean is then within 0.06 posterior sds of the exact one."""

ORDERINGS = ("maxmin", "coordinate")

_LEAF = 64
"""Places in a box that is not halved further."""

_QUERIES = 200_000
"""Places whose neighbours are looked for at a time, which bounds the memory."""


@dataclass(frozen=True, eq=False)
class Neighbours:
    """An ordering of places and the nearest earlier ones of each.

    Attributes
    ----------
    order
        Positions of the places in the order, shape (n,).
    earlier
        Row i: places *in the order* before i, nearest first, -1 where there are fewer than m,
        shape (n, m).
    """

    order: Places = field(repr=False)
    earlier: NDArray[np.int32] = field(repr=False)

    @classmethod
    def of(cls, places: Floats, neighbours: int, ordering: str = "maxmin") -> Neighbours:
        """Order places, shape (n, 2), and find the neighbours of each."""
        if len(places) == 0:
            empty = np.empty((0, neighbours), dtype=np.int32)
            return cls(np.empty(0, dtype=np.int64), empty)
        order = order_places(places, ordering)
        return cls(order, earlier_neighbours(places[order], neighbours))


_KNOWN: WeakKeyDictionary[Problem, dict[tuple[int, str, bytes], Neighbours]] = WeakKeyDictionary()
"""Orderings of problems that are still in use, by settings and records."""


def neighbours_of(problem: Problem, rows: Indices, neighbours: int, ordering: str) -> Neighbours:
    """Ordering and neighbours of some records of a problem, found once for all its fits.

    Parameters
    ----------
    problem
        The prepared table.
    rows
        Positions of the records.
    neighbours, ordering
        m, and the ordering.
    """
    known = _KNOWN.setdefault(problem, {})
    key = (neighbours, ordering, hashlib.sha256(rows.astype(np.int64).tobytes()).digest())
    if key not in known:
        known[key] = Neighbours.of(problem.sites[rows], neighbours, ordering)
    return known[key]


def order_places(places: Floats, ordering: str = "maxmin") -> Places:
    """Positions of places in a named order, shape (n,).

    Parameters
    ----------
    places
        Planar coordinates, shape (n, 2).
    ordering
        ``"maxmin"``: from the place nearest to the middle on, always the one farthest from all
        before it (ties: the first). ``"coordinate"``: by the coordinate that varies more.

    Raises
    ------
    InputError
        If there is no ordering of this name.

    Examples
    --------
    >>> places = np.column_stack([np.arange(5.0), np.zeros(5)])
    >>> order_places(places)
    array([2, 0, 4, 1, 3])
    """
    if ordering not in ORDERINGS:
        raise InputError(f"ordering must be one of {', '.join(ORDERINGS)}, got {ordering!r}")
    if ordering == "coordinate":
        axis = int(np.argmax(np.ptp(places, axis=0)))
        return np.lexsort((places[:, 1 - axis], places[:, axis])).astype(np.int64)
    from dsstan.covariance.vecchia.kernels import maxmin_order

    places = np.ascontiguousarray(places, dtype=np.float64)
    members, *tree = _boxes(places)
    middle = np.sum((places - places.mean(axis=0)) ** 2, axis=1)[members]
    nearest = np.flatnonzero(middle == middle.min())
    first = int(nearest[np.argmin(members[nearest])])
    return np.asarray(maxmin_order(places[members], members, *tree, first))


def _boxes(places: Floats) -> tuple[NDArray[Any], ...]:
    """A tree of boxes, each halved along its longer side, as ``maxmin_order`` takes it."""
    members = np.arange(len(places))
    begin, end, left, box = [0], [len(places)], [-1], []
    node = 0
    while node < len(begin):
        low, high = begin[node], end[node]
        inside = places[members[low:high]]
        span = np.ptp(inside, axis=0)
        box.append((*inside.min(axis=0), *inside.max(axis=0)))
        if high - low > _LEAF and span.max() > 0:
            half = (high - low) // 2
            parted = np.argpartition(inside[:, int(np.argmax(span))], half)
            members[low:high] = members[low:high][parted]
            left[node] = len(begin)
            begin += [low, low + half]
            end += [low + half, high]
            left += [-1, -1]
        node += 1
    whole = (np.asarray(part, dtype=np.int64) for part in (begin, end, left))
    return (members, *whole, np.asarray(box))


def earlier_neighbours(places: Floats, neighbours: int, begin: int = 0) -> NDArray[np.int32]:
    """The m nearest of the earlier places, nearest first, for each place in an order, shape (n, m).

    -1 where a place has fewer before it, and of the places before ``begin``.

    Parameters
    ----------
    places
        In the order, shape (n, 2).
    neighbours
        m, from 1.
    begin
        First place whose neighbours are asked for.
    """
    n = len(places)
    m = min(neighbours, max(1, n - 1))
    found = np.full((n, neighbours), -1, dtype=np.int32)
    start, end = begin, min(n, max(4 * m, 64, 2 * begin))
    while start < n:
        # All that is earlier than anything in [start, end) is among the first `end`.
        tree = cKDTree(places[:end])
        for low in range(start, end, _QUERIES):
            _search(tree, places, np.arange(low, min(end, low + _QUERIES)), m, found)
        start, end = end, min(n, 2 * end)
    return found


def _search(tree: cKDTree, places: Floats, who: Places, m: int, found: NDArray[np.int32]) -> None:
    """Fill the rows ``who`` of ``found`` from the tree, asking for more until there are enough."""
    k = min(tree.n, 2 * m + 8)
    while who.size:
        near = tree.query(places[who], k=np.arange(1, k + 1), workers=-1)[1]
        early = near < who[:, None]
        enough = (early.sum(axis=1) >= np.minimum(m, who)) | (k >= tree.n)
        rows, near, early = who[enough], near[enough], early[enough]
        # Stable: earlier ones first, nearest first among them.
        first = np.argsort(~early, axis=1, kind="stable")[:, :m]
        chosen = np.take_along_axis(near, first, axis=1)
        chosen[~np.take_along_axis(early, first, axis=1)] = -1
        found[rows, : chosen.shape[1]] = chosen
        who, k = who[~enough], min(tree.n, 2 * k)
