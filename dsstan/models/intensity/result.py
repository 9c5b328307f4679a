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

    def draw(self, counts: Floats, rng: np.random.Generator) -> Floats:
        """One draw of the chances given ``counts``, shape (K, C); rows sum to 1."""
        ...

    def draws(self, counts: Floats, number: int, rng: np.random.Generator) -> Floats:
        """Several, each used once where the law has so many, shape (number, K, C)."""
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
    lonely
        Records whose place does not inform the chances of a release, shape (N,). Confidential.
    law
        The posterior of the chances given counts.
    fits
        Fits of the surface behind the law by kind, ``"unrestricted"`` first; empty without one.
        Where each group has its own, the kind is followed by the group.
    lonely_below
        A record is lonely where fewer others of its group are expected in its cell.
    """

    mask: Mask
    groups: tuple[str, ...]
    group_index: Indices = field(repr=False)
    cell_index: Indices = field(repr=False)
    lonely: Truths = field(repr=False)
    law: CellDraws = field(repr=False)
    fits: dict[str, Any] = field(repr=False, default_factory=dict)
    lonely_below: float = 1.0

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
        return self._count(np.ones(self.n_records, dtype=bool))

    @cached_property
    def informing(self) -> Floats:
        """The same without the lonely records, which a release does not know. Confidential."""
        return self._count(~self.lonely)

    def _count(self, which: Truths) -> Floats:
        K, C = len(self.groups), self.mask.n_cells
        number = self.group_index[which] * C + self.cell_index[which]
        return np.bincount(number, minlength=K * C).reshape(K, C).astype(np.float64)
