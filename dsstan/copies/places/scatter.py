"""Where synthetic records lie: a cell by the chances of their group, then a place in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dsstan.core.arrays import Floats, Indices
from dsstan.core.errors import InputError
from dsstan.core.seeds import ROUNDING, stream
from dsstan.models.intensity.result import Intensity
from dsstan.table.columns import to_width
from dsstan.table.planes import as_given, in_plane
from dsstan.table.problem import Problem
from dsstan.table.rounding import FEWEST, MORE, Rounding, find_rounding

__all__ = ["Grid", "cells_drawn", "find_grid", "group_sizes", "places_in"]

_ADDRESS = 9
"""Decimals of an address, a tenth of a millimetre where they are degrees."""

_TRIES = 200
"""How often a place is drawn until it stays in its cell once it is rounded."""


@dataclass(frozen=True)
class Grid:
    """How published coordinates are rounded and held.

    Attributes
    ----------
    digits
        Of each coordinate; None where all digits are kept.
    widths
        Type of each.
    """

    digits: tuple[Rounding, Rounding] | None
    widths: tuple[np.dtype[Any], np.dtype[Any]]

    def held(self, coords: Floats, rng: np.random.Generator, *, rounded: bool = True) -> Floats:
        """Coordinates as they are published, shape (n, 2)."""
        columns = []
        for j, width in enumerate(self.widths):
            x = coords[:, j]
            if rounded and self.digits is not None:
                x = self.digits[j].apply(x, rng)
            if rounded or width.kind == "f":
                x = to_width(x, width).astype(np.float64)
            columns.append(x)
        return np.column_stack(columns)


def find_grid(problem: Problem, rounding: str, root: int) -> Grid:
    """How the table's own coordinates are rounded, as :func:`dsstan.synthesise` finds it of a
    response."""
    table, names = problem.table, problem.coord_names
    widths = []
    for name in names:
        dtype: Any = table[name].dtype if name in table.columns else np.dtype(np.float64)
        widths.append(np.dtype(getattr(dtype, "numpy_dtype", dtype)))
    both = (widths[0], widths[1])
    if rounding == "none":
        return Grid(None, both)
    found = []
    for j, width in enumerate(both):
        rng = np.random.default_rng(stream(root, ROUNDING, f"coordinate {j}".encode()))
        fewest = FEWEST + int(rng.integers(MORE))
        found.append(find_rounding(problem.coords[:, j], width, fewest=fewest).redrawn(rng))
    return Grid((found[0], found[1]), both)


def group_sizes(intensity: Intensity, number: str, rng: np.random.Generator) -> Indices:
    """Records of each group in one copy, shape (K,).

    Drawn they are Poisson with a rate that is Gamma(N_k, 1) given N_k records, hence negative
    binomial with mean N_k and variance 2 N_k.
    """
    sizes = intensity.counts.sum(axis=1)
    if number == "kept":
        return np.asarray(sizes, dtype=np.int64)
    return np.asarray(rng.poisson(rng.gamma(sizes)), dtype=np.int64)


def cells_drawn(chances: Floats, groups: Indices, rng: np.random.Generator) -> Indices:
    """Cell of each synthetic record, shape (n,), from the chances, shape (K, C), of its group."""
    cells = np.empty(len(groups), dtype=np.int64)
    for k in range(len(chances)):
        members = np.flatnonzero(groups == k)
        cells[members] = rng.choice(chances.shape[1], size=members.size, p=chances[k])
    return cells


def places_in(
    problem: Problem, intensity: Intensity, cells: Indices, grid: Grid, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """A place in each of the cells: coordinates as published, and planar sites, both (n, 2).

    A public address is published with its own digits. Any other place is drawn until it lies in
    its cell as it is rounded.

    Raises InputError if coordinates are rounded so coarsely that a cell holds none.
    """
    mask = intensity.mask
    if mask.addresses is not None:
        coords = as_given(problem, mask.draw(cells, rng))
        if problem.distance == "projected":
            coords = np.round(coords, _ADDRESS)  # without what a projection and back leaves
        coords = grid.held(coords, rng, rounded=False)
        return coords, in_plane(problem, coords)
    coords, sites = np.empty((len(cells), 2)), np.empty((len(cells), 2))
    left = np.arange(len(cells))
    for _ in range(_TRIES):
        coords[left] = grid.held(as_given(problem, mask.draw(cells[left], rng)), rng)
        sites[left] = in_plane(problem, coords[left])
        left = left[mask.cell_of(sites[left]) != cells[left]]
        if not left.size:
            return coords, sites
    raise InputError(
        f"the coordinates {problem.coord_names[0]!r} and {problem.coord_names[1]!r} are rounded "
        "to steps so wide that a cell of the mask holds no such place: make wider cells, or ask "
        'for rounding="none"'
    )
