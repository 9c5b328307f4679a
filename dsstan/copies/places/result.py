"""What a release with synthetic places is."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from dsstan.core import above
from dsstan.core.arrays import Floats
from dsstan.core.display import Card, Shown
from dsstan.core.seeds import FRESH_BITS
from dsstan.models.intensity.result import Intensity
from dsstan.models.result import Fit
from dsstan.table.problem import Problem

KEPT, MOVED, POPULATION = PLACES = ("kept", "moved", "population")
"""What happens to places, which are published, moved, or part of a synthetic population."""

NUMBERS = ("kept", "drawn")
"""How the number of records of each group of a synthetic population is found."""


@dataclass(frozen=True, eq=False, repr=False)
class PlacedRelease(Shown):
    """L tables whose places are synthetic.

    Attributes
    ----------
    intensity
        Where the records are. Confidential.
    problem
        The prepared table; with several fits that of the last. Confidential.
    fits
        The models of the synthetic columns, in the order in which they were drawn.
    places
        ``"moved"``: each record keeps its covariates and gets a new place and new values.
        ``"population"``: nothing of a record is kept.
    number
        ``"kept"`` or ``"drawn"``: whether each group has as many records as the table has.
    tables
        As published, L of them: rows in a random order of their own, numbered from 0.
    sites
        Planar coordinates of the rows of each, in the unit of the problem, shape (N_l, 2).
    counts
        Published places by copy, group and cell, shape (L, K, C).
    left_out
        Columns of the table that are not published.
    seed
        Root of the random streams. Confidential.
    seconds
        Wall time.
    accepted
        What the caller accepted: ``accept_failed``, ``accept_few_draws``.
    seed_bits
        Bits of the seed that the caller gave, or 128 where a fresh one was drawn.
    rounding
        ``"auto"`` where places and values are rounded like the input, or ``"none"``.
    """

    intensity: Intensity = field(repr=False)
    problem: Problem = field(repr=False)
    fits: tuple[Fit, ...] = field(repr=False)
    places: str
    number: str
    tables: tuple[pd.DataFrame, ...] = field(repr=False)
    sites: tuple[Floats, ...] = field(repr=False)
    counts: Floats = field(repr=False)
    left_out: tuple[str, ...] = ()
    seed: int = field(repr=False, default=0)
    seconds: float = 0.0
    accepted: tuple[bool, bool] = (False, False)
    seed_bits: int = field(repr=False, default=FRESH_BITS)
    rounding: str = "auto"

    def _line(self) -> str:
        what = "moved places" if self.places == MOVED else "synthetic population"
        return f"Release of {self.problem.name!r}: {what}, {self.copies} copies"

    def _card(self) -> Card:
        sizes = sorted({len(table) for table in self.tables})
        records = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
        return Card(
            (
                ("records", f"{records} a copy, their number {self.number}"),
                ("places", f"synthetic, on a {self.intensity.mask!r}"),
                ("synthetic", self.synthetic_in_words),
                ("left out", ", ".join(self.left_out) or "none"),
            )
        )

    @property
    def in_words(self) -> str:
        """What the copies are."""
        if self.places == MOVED:
            return f"{self.copies} copies, each record at a synthetic place, its covariates kept"
        return f"{self.copies} copies, synthetic populations, the number of records {self.number}"

    @property
    def copies(self) -> int:
        """L, the number of copies."""
        return len(self.tables)

    @property
    def synthetic(self) -> tuple[str, ...]:
        """Names of the synthetic columns, first the coordinates, then those that were modelled."""
        return (*self.problem.coord_names, *(fit.problem.response for fit in self.fits))

    @property
    def synthetic_in_words(self) -> str:
        """The synthetic columns by name, which are all of a population."""
        return ", ".join(self.synthetic) if self.places == MOVED else "every column"

    def table(self, copy: int) -> pd.DataFrame:
        """Copy number ``copy``, from 0, as it is published."""
        return self.tables[copy].copy()

    def write(self, folder: str | os.PathLike[str], **options: Any) -> Path:
        """Write the release; see :func:`dsstan.release.placed.write.write_placed`."""
        return Path(above.call("PlacedRelease.write", self, folder, **options))
