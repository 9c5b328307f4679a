"""What a synthesis is: L copies of the table, and how they were made."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dsstan.core import above
from dsstan.core.arrays import Floats, Indices, Truths
from dsstan.core.display import Card, Shown
from dsstan.core.errors import InputError, whole_number
from dsstan.core.seeds import (
    COMPARISON,
    FRESH_BITS,
    seed_of,
    stream,
)
from dsstan.models.result import Fit
from dsstan.table.formulas.formula import Design
from dsstan.table.problem import Problem, require_complete
from dsstan.table.rounding import Rounding
from dsstan.table.text.dialect import Dialect

# Whole numbers that every float holds.
_EXACT = 2.0**53


@dataclass(frozen=True, eq=False, repr=False)
class Synthesis(Shown):
    """L copies of the table, and how they were made.

    Attributes
    ----------
    fit
        The fit whose posterior they come from.
    values
        Synthetic response on its own scale, as published, shape (L, N).
    effect
        Which spatial effect the copies carry: ``"w"``, ``"w*"`` or ``"plug"``.
    draw_index
        Chain and iteration of the draw behind each copy, shape (L, 2).
        Confidential.
    seed
        Root of the copies' random streams, one spawned child a copy.
        Confidential.
    seconds
        Wall time.
    accepted
        What the caller accepted: ``accept_failed``, ``accept_few_draws``.
    moved_share
        Share of values that the response's column could not hold and that were
        moved to the end of its range.
    rounding
        How the copies were rounded like the input; None where they were not.
        Confidential.
    seed_bits
        Bits of the seed that the caller gave, or 128 where a fresh one was drawn.
    noise
        sd of the independent noise added to each value of every copy, modelled scale, shape
        (N,); None where none was added. Confidential.
    workers
        Threads that drew the copies, and that draw others to compare with; no byte depends on it.
    """

    fit: Fit
    values: Floats = field(repr=False)
    effect: str
    draw_index: Indices = field(repr=False)
    seed: int = field(repr=False)
    seconds: float
    accepted: tuple[bool, bool] = (False, False)
    moved_share: float = 0.0
    rounding: Rounding | None = field(repr=False, default=None)
    seed_bits: int = field(repr=False, default=FRESH_BITS)
    noise: Floats | None = field(repr=False, default=None)
    workers: int = field(repr=False, default=1)

    def _line(self) -> str:
        return (
            f"Synthesis of {self.problem.name!r}: {self.copies} copies of "
            f"{self.problem.n_records} records, {int(self.fit.flagged.sum())} flagged, "
            f"protection {self.protection}"
        )

    def _card(self) -> Card:
        names = ", ".join(step.problem.response for step in self.steps)
        return Card(
            (
                ("synthetic", names),
                ("formula", self.problem.formula),
                ("spatial effect", self.effect),
                ("fit", str(self.fit.verdict)),
            )
        )

    @property
    def problem(self) -> Problem:
        """The prepared table."""
        return self.fit.problem

    @property
    def protected(self) -> bool:
        """Whether any record is flagged or noise was added."""
        return bool(np.any(self.fit.flagged)) or self.noise is not None

    @property
    def protection(self) -> str:
        """The fit's protection, noise, or both, in words."""
        if self.noise is None:
            return self.fit.protection
        return f"{self.fit.protection} and noise" if self.fit.kind == "restricted" else "noise"

    @property
    def fits(self) -> dict[str, Fit]:
        """The fits behind the copies by kind, the unrestricted first."""
        return {f.kind: f for f in (self.fit.start, self.fit) if f is not None}

    @property
    def imputation(self) -> Indices | None:
        """Number, from 1, of the imputation behind each copy, shape (L,); None where the
        response was missing nowhere."""
        return None

    @property
    def hide_gaps(self) -> bool:
        """Whether the completed tables behind the copies hold a draw of every record."""
        return False

    @property
    def copies(self) -> int:
        """L, the number of copies."""
        return len(self.values)

    def table(self, copy: int) -> pd.DataFrame:
        """Copy number ``copy``, from 0: the input table with the response replaced."""
        number = whole_number(copy)
        if number is None or not -self.copies <= number < self.copies:
            raise InputError(
                f"copies are counted from 0 to {self.copies - 1}, and copy {copy!r} was asked for"
            )
        return self.problem.with_response(self.values[number])

    def native(self, copy: int) -> Any:
        """Copy number ``copy``, from 0, as the kind of table that was given to ``prepare``.

        A polars or pyarrow table comes back as one, with the types of its columns; pandas and
        GeoPandas as from :meth:`table`.
        """
        source, table = self.problem.source, self.table(copy)
        if source is None:
            return table
        import narwhals as nw

        frame = nw.from_native(source, eager_only=True)
        for name in (step.problem.response for step in self.steps):
            values = nw.new_series(name, table[name].to_list(), backend=frame.implementation)
            frame = frame.with_columns(values.cast(frame.schema[name]))
        return frame.to_native()

    @property
    def steps(self) -> tuple[Synthesis, ...]:
        """The copies of every synthetic column, in the order in which they were drawn."""
        return (self,)

    def designs(self, design: Design) -> Iterator[Floats]:
        """Design matrix of each copy, L of them, shape (N, P)."""
        return itertools.repeat(design.X, self.copies)

    def modelled(self) -> Floats:
        """The published values on the modelled scale, shape (L, N)."""
        return np.asarray(self.problem.transform.forward(self.values))

    def beside_heap(self) -> Floats:
        """The same with NaN for values in the heap, shape (L, N)."""
        return np.where(self.in_heap(), np.nan, self.modelled())

    def in_heap(self) -> Truths:
        """Which values are in the heap, shape (L, N)."""
        heap = self.problem.heap
        return np.zeros(self.values.shape, bool) if heap is None else self.values == heap

    @cached_property
    def whole_numbers(self) -> bool:
        """Whether a column of floats is published as whole numbers.

        True where its copies are rounded to whole numbers: otherwise the type would reveal that
        one or two records have a fraction.
        """
        rounding = self.rounding
        if rounding is None or self.problem.table[self.problem.response].dtype != np.float64:
            return False
        one = 10**rounding.decimals
        steps = all(unit > 0 and unit % one == 0 for unit in rounding.units)
        # A bracket without a whole number in it leaves a value that is none.
        whole = np.array_equal(self.values, np.rint(self.values))
        return steps and whole and bool((np.abs(self.values) < _EXACT).all())

    @cached_property
    def unprotected(self) -> Synthesis | None:
        """As many copies from the fit that this one's fit started from, if any."""
        return None if self.fit.start is None else self._from(self.fit.start)

    @cached_property
    def assessed(self) -> dict[Any, Any]:
        """What :func:`dsstan.assess` found of these copies, by what it was asked."""
        return {}

    def comparison(self, against: Fit | Synthesis | None = None) -> Synthesis | None:
        """Copies to compare with: those given, or as many from a fit, drawn once."""
        if isinstance(against, Synthesis):
            return against
        if against is None or against is self.fit.start:
            return self.unprotected
        return self._from(against)

    def _from(self, fit: Fit) -> Synthesis:
        """As many copies from another fit, by a stream derived from this one's root.

        They are never published, so nothing about that fit is refused here.
        """
        return self._as_many(fit)

    def _as_many(self, fit: Fit, **more: Any) -> Synthesis:
        drawn: Synthesis = above.call(
            "synthesise",
            fit,
            self.copies,
            seed=seed_of(stream(self.seed, COMPARISON)),
            workers=self.workers,
            accept_failed=True,
            accept_few_draws=True,
            rounding="none" if self.rounding is None else "auto",
            progress=False,
            **more,
        )
        return drawn

    def to_arviz(self) -> Any:
        """Posterior and copies for ArviZ; see :meth:`dsstan.Fit.to_arviz`. Confidential."""
        return above.call("to_arviz", self)

    def write(
        self,
        folder: str | os.PathLike[str],
        *,
        format: str | None = None,
        csv_text: str = "refuse",
        floor: float | str | None = None,
        accept_below_floor: bool = False,
        reason: str | None = None,
        report: bool = True,
        dialect: Dialect | None = None,
        alternatives: Any = None,
        pictures: bool = False,
    ) -> Path:
        """Write the release; see :func:`dsstan.release.write.write_release`."""
        how: dict[str, Any] = {"format": format, "csv_text": csv_text, "dialect": dialect}
        how |= {"report": report, "reason": reason}
        how |= {"alternatives": alternatives, "pictures": pictures}
        how |= {"floor": floor, "accept_below_floor": accept_below_floor}
        return Path(above.call("Synthesis.write", self, folder, **how))

    def publish(
        self,
        folder: str | os.PathLike[str],
        *,
        to: str | os.PathLike[str],
        reason: str | None = None,
    ) -> Any:
        """Publish what :meth:`write` wrote to ``folder``; see
        :func:`dsstan.release.publication.publish.publish`."""
        return above.call("Synthesis.publish", self, folder, to=to, reason=reason)


def require_one_column(release: Synthesis) -> None:
    """Refuse a release of several synthetic columns, and gaps in the response.

    Raises InputError if there are: the measure takes each record's covariates and its truth as they
    are.
    """
    require_complete(release.problem)
    if len(release.steps) > 1:
        raise InputError(
            "this takes the covariates as they were collected, and the release has several "
            "synthetic columns: use disclosure(), utility() or pool()"
        )
