"""A fitted intensity."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from dsstan.core.arrays import Floats, Indices, Truths
from dsstan.core.display import Card, Shown
from dsstan.models.intensity.cell_law import CellLaw
from dsstan.table.mask.mask import Mask


class CellDraws(CellLaw, Protocol):
    """A law whose posterior given the counts of the fit can be drawn."""

    def draws(self, counts: Floats, number: int, rng: np.random.Generator) -> Floats:
        """Draws of the chances given ``counts``, each used once where the law has so many.

        Shape (number, K, C); rows sum to 1.
        """
        ...


@dataclass(frozen=True, eq=False, repr=False)
class Intensity(Shown):
    """Where records are, group by group.

    Attributes
    ----------
    mask
        The cells.
    groups
        Labels of the K groups.
    group_index, cell_index
        Of each record, shape (N,). Confidential.
    law
        The posterior of the chances given counts.
    fits
        Fits of the surface behind the law by kind, ``"unrestricted"`` first; empty without one.
        Where each group has its own, the kind is followed by the group.
    held_back
        How many records of each group in each cell do not inform a release. So one record more or
        less in the table is one more or less, or none, among those that do.
    """

    mask: Mask
    groups: tuple[str, ...]
    group_index: Indices = field(repr=False)
    cell_index: Indices = field(repr=False)
    law: CellDraws = field(repr=False)
    fits: dict[str, Any] = field(repr=False, default_factory=dict)
    held_back: int = 1

    def _line(self) -> str:
        return (
            f"Intensity of {self.n_records} records in {len(self.groups)} groups on "
            f"{self.mask.n_cells} cells, {int(self.lonely.sum())} lonely"
        )

    def _card(self) -> Card:
        return Card((("mask", str(self.mask)), ("groups", ", ".join(self.groups))))

    @property
    def n_records(self) -> int:
        """N."""
        return len(self.cell_index)

    @cached_property
    def counts(self) -> Floats:
        """All records by group and cell, shape (K, C). Confidential."""
        K, C = len(self.groups), self.mask.n_cells
        number = self.group_index * C + self.cell_index
        return np.bincount(number, minlength=K * C).reshape(K, C).astype(np.float64)

    @cached_property
    def informing(self) -> Floats:
        """Those that a release knows, without the held back ones, shape (K, C). Confidential."""
        return np.maximum(self.counts - self.held_back, 0.0)

    @cached_property
    def lonely(self) -> Truths:
        """Records whose cell has none of their group that informs, shape (N,). Confidential."""
        return np.asarray(self.informing[self.group_index, self.cell_index] == 0.0)
