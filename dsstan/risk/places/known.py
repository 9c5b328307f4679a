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
    informing
        Those that the release is drawn from, without the lonely ones, shape (K, C).
    group_index, cell_index, lonely
        Of each record, shape (N,).
    lonely_below
        A record is lonely where it expects fewer others of its group in its cell.
    """

    law: CellLaw
    everyone: Floats = field(repr=False)
    informing: Floats = field(repr=False)
    group_index: Indices = field(repr=False)
    cell_index: Indices = field(repr=False)
    lonely: Truths = field(repr=False)
    lonely_below: float = 1.0

    def __post_init__(self) -> None:
        lengths = {len(self.group_index), len(self.cell_index), len(self.lonely)}
        if len(lengths) > 1:
            raise InputError(
                "group_index, cell_index and lonely must be of the same records; got "
                f"{len(self.group_index)}, {len(self.cell_index)} and {len(self.lonely)}"
            )
        for name, counts, which in (
            ("everyone", self.everyone, np.ones(len(self.lonely), dtype=bool)),
            ("informing", self.informing, ~self.lonely),
        ):
            found = np.zeros_like(self.everyone)
            np.add.at(found, (self.group_index[which], self.cell_index[which]), 1.0)
            if counts.shape != self.everyone.shape or not np.array_equal(found, counts):
                raise InputError(f"{name} must be the counts of the records by group and cell")

    @classmethod
    def of(cls, intensity: Intensity) -> KnownPlaces:
        """The table of a fitted intensity."""
        return cls(
            law=intensity.law,
            everyone=intensity.counts,
            informing=intensity.informing,
            group_index=intensity.group_index,
            cell_index=intensity.cell_index,
            lonely=intensity.lonely,
            lonely_below=intensity.lonely_below,
        )

    @property
    def n_records(self) -> int:
        """N."""
        return len(self.lonely)

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
            alone = self.informing[group, cells] < self.everyone[group, cells]
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
