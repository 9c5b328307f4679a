"""The key variables of records: categories, places, and values within a tolerance."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from dsstan.core.arrays import Floats, Indices
from dsstan.core.errors import InputError
from dsstan.risk.disclosure import RELATIVE, check_tolerances
from dsstan.table.problem import Problem


def tolerances(truth: Floats, relative: float | None, absolute: float | None) -> Floats:
    """Tolerance of each target, shape (N,), by default 10% of its true value.

    Raises
    ------
    InputError
        If both are given, or one is out of range.
    """
    if relative is not None and absolute is not None:
        raise InputError("give the relative or the absolute tolerance, not both")
    check_tolerances(relative, None if absolute == np.inf else absolute)
    if absolute is not None:
        return np.full(truth.size, float(absolute))
    return np.asarray((RELATIVE if relative is None else relative) * np.abs(truth))


def numbered_keys(problem: Problem, keys: Sequence[str]) -> NDArray[np.int64]:
    """Keys as whole numbers, shape (N, number of keys)."""
    if isinstance(keys, str):
        raise InputError(f"keys must be a list of columns, such as [{keys!r}]")
    if len(set(keys)) < len(keys):
        raise InputError("a key is named twice")
    codes = []
    for name in keys:
        if name not in problem.table.columns:
            raise InputError(f"there is no column {name!r} to match on")
        if name == problem.response:
            raise InputError(
                f"{name!r} is synthetic in every copy: what the intruder knows of it is the "
                "tolerance, not a key"
            )
        if name in problem.coord_names:
            raise InputError(f"{name!r} is a coordinate: say what they know with coordinates=")
        try:
            codes.append(pd.factorize(problem.table[name], use_na_sentinel=False)[0])
        except TypeError:
            raise InputError(f"column {name!r} holds values that can't be compared") from None
    shape = (problem.n_records, len(codes))
    return np.array(codes, dtype=np.int64).reshape(shape[::-1]).T


def numbered_places(problem: Problem, coordinates: str | float | None) -> NDArray[np.int64]:
    """What the intruder knows of the place, as whole numbers, shape (N, 1 or 2)."""
    if coordinates is None:
        return np.zeros((problem.n_records, 1), dtype=np.int64)
    if isinstance(coordinates, str):
        if coordinates != "exact":
            raise InputError(f'coordinates must be "exact", a grid size or None; {coordinates!r}')
        return problem.site_index[:, None]
    if isinstance(coordinates, bool) or not (np.isfinite(coordinates) and coordinates > 0):
        raise InputError("the grid size of coordinates must be positive and finite")
    return grid_cells(problem.sites, float(coordinates))


def grid_cells(sites: Floats, size: float) -> NDArray[np.int64]:
    """Column and row of each site in a square grid from the lower left site, shape (N, 2).

    Raises
    ------
    InputError
        If the grid is so fine that its cells can't be counted.

    Examples
    --------
    >>> grid_cells(np.array([[0.0, 1.0], [0.9, 1.0], [1.0, 3.5]]), 1.0)
    array([[0, 0],
           [0, 0],
           [1, 2]])
    """
    with np.errstate(over="ignore"):
        cells = np.floor((sites - sites.min(axis=0)) / size)
    if not np.all(cells < 2**53):
        raise InputError("the grid is too fine for coordinates of this size")
    return np.asarray(cells, dtype=np.int64)


def merged(area: Indices, sites: Floats, minimum: int) -> Indices:
    """Areas joined, smallest first with the nearest mean place, until each has ``minimum``."""
    area = np.array(area)
    while True:
        label, count = np.unique(area, return_counts=True)
        if count.min() >= minimum or label.size == 1:
            return area
        place = np.stack([sites[area == a].mean(axis=0) for a in label])
        least = int(np.argmin(count))
        gap = cdist(place[[least]], place)[0]
        gap[least] = np.inf
        area[area == label[least]] = label[int(np.argmin(gap))]


def numbered_rows(rows: NDArray[np.int64]) -> Indices:
    """Number of each distinct row, shape (N,)."""
    return np.asarray(np.unique(rows, axis=0, return_inverse=True)[1], dtype=np.intp).ravel()
