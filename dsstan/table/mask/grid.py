"""Square cells that cover an extent, and how wide they are."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dsstan.core.arrays import Floats, Indices
from dsstan.core.errors import InputError, check_count, is_number

FEWEST, CELLS, RECORDS = 20, 1000, 10
"""Cells aimed at where neither their number nor their width is given: at least and at most so many,
between them one for so many records, since a cell with few holds back what it has."""
MOST = 50_000
"""Cells that a mask may have."""
BISECTIONS = 25


def check_size(cells: int | None, width: float | None) -> None:
    """Refuse a number of cells and a width together, or values that are none.

    Raises InputError.
    """
    if cells is not None and width is not None:
        raise InputError("give cells or width, not both: one follows from the other")
    if cells is not None and check_count("cells", cells) > MOST:
        raise InputError(f"cells must be at most {MOST}, got {cells}")
    if width is not None and not (is_number(width) and np.isfinite(width) and width > 0):
        raise InputError("width must be above 0 and finite, in the unit of the coordinates")


def cells_aimed(cells: int | None, records: int) -> int:
    """The number of cells that was given, else one that suits so many records."""
    return cells or min(CELLS, max(FEWEST, records // RECORDS))


def numbers_of(places: Floats, width: float) -> Indices:
    """Column and row of the cell of each place, whole numbers of shape (n, 2).

    The grid is centred on the places, so that few of them lie on an edge.
    """
    low, high = places.min(axis=0), places.max(axis=0)
    count = np.floor((high - low) / width) + 1
    origin = 0.5 * (low + high - count * width)
    return np.asarray(np.floor((places - origin) / width), dtype=np.int64)


def centres_of(numbers: Indices, places: Floats, width: float) -> Floats:
    """Centres of cells of :func:`numbers_of` the same places, shape (n, 2)."""
    low, high = places.min(axis=0), places.max(axis=0)
    count = np.floor((high - low) / width) + 1
    return np.asarray(0.5 * (low + high - count * width) + (numbers + 0.5) * width)


def width_for(count: Callable[[float], int], cells: int, extent: Floats) -> float:
    """The width at which ``count(width)`` is near ``cells``, by bisection of its log.

    Parameters
    ----------
    count
        Cells of a width; about falling.
    cells
        Cells aimed at.
    extent
        Width and height of the area, shape (2,).
    """
    long = float(extent.max())
    low, high = np.log(long / (2.0 * cells)), np.log(2.0 * long)
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        if count(float(np.exp(middle))) > cells:
            low = middle
        else:
            high = middle
    return float(np.exp(high))
