"""A study area cut into square cells."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pandas as pd
from scipy.spatial import cKDTree

from dsstan.core.arrays import Floats, Indices
from dsstan.core.display import Card, Shown

OUTSIDE = -1
"""Number of the cell of a place that is in none."""


@dataclass(frozen=True, eq=False, repr=False)
class Mask(Shown):
    """The study area: C square cells of one width.

    Attributes
    ----------
    centres
        Planar coordinates of the centres, shape (C, 2), in ``unit``.
    width
        Side of a cell, in the same unit.
    exposure
        What the expected number of records is proportional to, all else equal: the land area of
        the cell, its addresses or its population; above 0, shape (C,).
    covariates
        Of the cells, C rows.
    addresses
        Public addresses at which synthetic places lie, shape (A, 2); None where a place is uniform
        in its cell.
    source
        ``"polygons"``, ``"addresses"``, ``"cells"`` or ``"table"``: what the cells come from.
    """

    centres: Floats = field(repr=False)
    width: float
    exposure: Floats = field(repr=False)
    covariates: pd.DataFrame = field(repr=False, default_factory=pd.DataFrame)
    addresses: Floats | None = field(repr=False, default=None)
    source: str = "cells"

    def _line(self) -> str:
        return f"Mask of {self.n_cells} cells, {self.width:g} wide, from {self.source}"

    def _card(self) -> Card:
        count = "none" if self.addresses is None else str(len(self.addresses))
        return Card((("addresses", count),))

    @property
    def n_cells(self) -> int:
        """C, the number of cells."""
        return len(self.centres)

    def cell_of(self, places: Floats) -> Indices:
        """Number of the cell of each place, shape (n,); :data:`OUTSIDE` where it is in none."""
        distance, near = self._tree.query(places, p=np.inf, workers=-1)
        inside = distance <= 0.5 * self.width * (1.0 + 1e-9)
        return np.where(inside, near, OUTSIDE).astype(np.int64)

    @cached_property
    def _tree(self) -> cKDTree:
        return cKDTree(self.centres)

    @cached_property
    def addresses_by_cell(self) -> tuple[Indices, Indices]:
        """Numbers of the addresses, cell by cell, and where each cell's begin, shape (C + 1,)."""
        assert self.addresses is not None
        cell = self.cell_of(self.addresses)
        order = np.argsort(cell, kind="stable")
        begins = np.searchsorted(cell[order], np.arange(self.n_cells + 1))
        return order, begins

    def draw(self, cells: Indices, rng: np.random.Generator) -> Floats:
        """A place in each of the cells, shape (n, 2): an address of it, else uniform in it."""
        if self.addresses is None:
            return np.asarray(
                self.centres[cells] + self.width * (rng.random((len(cells), 2)) - 0.5)
            )
        order, begins = self.addresses_by_cell
        counts = np.diff(begins)[cells]
        chosen = begins[:-1][cells] + np.floor(rng.random(len(cells)) * counts).astype(np.int64)
        return np.asarray(self.addresses[order[chosen]])
