"""What a release of places is drawn from, and what an intruder knows before it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from dsstan.core.arrays import Floats, Indices, Truths
from dsstan.core.errors import InputError
from dsstan.models.intensity.cell_law import CellLaw
from dsstan.models.intensity.result import Intensity

__all__ = ["KnownPlaces", "Pairs"]


@dataclass(frozen=True, eq=False)
class Pairs:
    """The distinct cells that hold records of one group: n of them, a number for each.

    Attributes
    ----------
    group
        k.
    records
        Positions of the records of the group, shape (m,).
    which
        Of each of these records its cell, as a position in ``cells``, shape (m,).
    cells
        Numbers of the cells, shape (n,).
    alone
        Whether the records there are lonely, shape (n,).
    """

    group: int
    records: Indices
    which: Indices
    cells: Indices
    alone: Truths


@dataclass(frozen=True, eq=False)
class KnownPlaces:
    """The table as the intruders of places see it. Confidential.

    Attributes
    ----------
    law
        The posterior of the chances of the cells given counts.
    everyone
        All records by group and cell, shape (K, C).
    group_index, cell_index
        Of each record, shape (N,).
    held_back
        How many records of each group in each cell do not inform a release.
    """

    law: CellLaw
    everyone: Floats = field(repr=False)
    group_index: Indices = field(repr=False)
    cell_index: Indices = field(repr=False)
    held_back: int = 1

    def __post_init__(self) -> None:
        if len(self.group_index) != len(self.cell_index):
            raise InputError(
                "group_index and cell_index must be of the same records; got "
                f"{len(self.group_index)} and {len(self.cell_index)}"
            )
        found = np.zeros_like(self.everyone)
        np.add.at(found, (self.group_index, self.cell_index), 1.0)
        if not np.array_equal(found, self.everyone):
            raise InputError("everyone must be the counts of the records by group and cell")

    @classmethod
    def of(cls, intensity: Intensity) -> KnownPlaces:
        """The table of a fitted intensity."""
        return cls(
            law=intensity.law,
            everyone=intensity.counts,
            group_index=intensity.group_index,
            cell_index=intensity.cell_index,
            held_back=intensity.held_back,
        )

    @property
    def n_records(self) -> int:
        """N."""
        return len(self.cell_index)

    @cached_property
    def informing(self) -> Floats:
        """The records that the release is drawn from, shape (K, C)."""
        return np.maximum(self.everyone - self.held_back, 0.0)

    @cached_property
    def lonely(self) -> Truths:
        """Records in whose cell none of their group informs the release, shape (N,)."""
        return np.asarray(self.informing[self.group_index, self.cell_index] == 0.0)

    @cached_property
    def totals(self) -> Floats:
        """N_k, shape (K,)."""
        return np.asarray(self.everyone.sum(axis=1))

    @cached_property
    def pairs(self) -> tuple[Pairs, ...]:
        """The occupied cells of each group that has records."""
        out = []
        for group in np.flatnonzero(self.totals):
            records = np.flatnonzero(self.group_index == group)
            cells, which = np.unique(self.cell_index[records], return_inverse=True)
            alone = self.informing[group, cells] == 0.0
            out.append(Pairs(int(group), records, which, cells.astype(np.intp), alone))
        return tuple(out)

    def check_released(self, released: Floats) -> None:
        """Refuse counts of copies that are of another mask or other groups.

        Raises
        ------
        InputError
            If they are not of shape (L, K, C).
        """
        if released.ndim != 3 or released.shape[1:] != self.everyone.shape:
            K, C = self.everyone.shape
            raise InputError(
                f"counts of the copies must have the shape (copies, {K} groups, {C} cells); got "
                f"{released.shape}"
            )
