"""A study area cut into square cells."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from scipy.spatial import cKDTree

from dsstan.core.arrays import Floats, Indices
from dsstan.core.display import Card, Shown
from dsstan.core.errors import InputError, describe_rows, is_number
from dsstan.core.optional import needed

OUTSIDE = -1
"""Number of the cell of a place that is in none."""
ROUNDS = 10_000
"""Trials of a place in the land of a cell; land that fills a ten-thousandth of its bounding box is
missed by all of them once in 20,000 draws."""


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
    land
        The part of each cell in which places may lie, shapely geometries of shape (C,); None where
        that is the whole cell.

    Raises
    ------
    InputError
        If shapes disagree, the width is not above 0, or an exposure is not above 0 and finite.
    """

    centres: Floats = field(repr=False)
    width: float
    exposure: Floats = field(repr=False)
    covariates: pd.DataFrame = field(repr=False, default_factory=pd.DataFrame)
    addresses: Floats | None = field(repr=False, default=None)
    source: str = "cells"
    land: Any = field(repr=False, default=None)

    def __post_init__(self) -> None:
        """Check the arrays against one another."""
        if not is_number(self.width) or not np.isfinite(self.width) or self.width <= 0:
            raise InputError("width of the cells must be above 0 and finite")
        C = len(self.centres)
        rows = {"exposure": len(self.exposure), "covariates": len(self.covariates)}
        if not self.covariates.columns.size:
            del rows["covariates"]
        wrong = [f"{name} has {n} rows" for name, n in rows.items() if n != C]
        if C == 0 or wrong:
            raise InputError(f"a mask needs one row a cell; it has {C} cells; {', '.join(wrong)}")
        exposure = np.asarray(self.exposure, dtype=np.float64)
        bad = ~(np.isfinite(exposure) & (exposure > 0))
        if bad.any():
            raise InputError(
                f"exposure must be above 0 and finite; it is not in {describe_rows(bad)} of the "
                "cells: leave cells out in which nobody can be"
            )

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
        """A place in each cell, shape (n, 2): an address of it, else uniform on its land."""
        if self.addresses is None:
            return self._on_land(cells, rng)
        order, begins = self.addresses_by_cell
        counts = np.diff(begins)[cells]
        chosen = begins[:-1][cells] + np.floor(rng.random(len(cells)) * counts).astype(np.int64)
        return np.asarray(self.addresses[order[chosen]])

    def _on_land(self, cells: Indices, rng: np.random.Generator) -> Floats:
        """A uniform place on the land of each cell, by rejection, shape (n, 2)."""
        if self.land is None:
            return np.asarray(
                self.centres[cells] + self.width * (rng.random((len(cells), 2)) - 0.5)
            )
        shapely = needed("shapely", "geo")
        low, high = np.split(shapely.bounds(self.land)[cells], 2, axis=1)
        places, open_ = np.empty((len(cells), 2)), np.arange(len(cells))
        for _ in range(ROUNDS):
            trial = low[open_] + (high - low)[open_] * rng.random((open_.size, 2))
            places[open_] = trial
            open_ = open_[~shapely.contains_xy(self.land[cells[open_]], trial)]
            if not open_.size:
                return places
        raise InputError(
            "the land of some cells is too thin to draw a place on it: give a larger width, or "
            "simplify the polygons"
        )
