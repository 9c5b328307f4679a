"""Draw the copies: L posterior-predictive replacements of the sensitive values."""

from __future__ import annotations

import itertools
import os
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from dsstan.core.errors import ConvergenceError, DsstanWarning, InputError
from dsstan.core.progress import progress_bar
from dsstan.core.seeds import (
    COMPARISON,
    COPIES,
    FRESH_BITS,
    root_seed,
    seed_bits,
    seed_of,
    stream,
)
from dsstan.covariance.latent import spread_draws
from dsstan.models.conditions import few_draws
from dsstan.models.fit import Fit
from dsstan.models.predictive import EFFECTS, Predictive
from dsstan.table.rounding import ROUNDINGS, Rounding, find_rounding

if TYPE_CHECKING:
    from dsstan.table.formula import Design
    from dsstan.table.problem import Problem

Floats = NDArray[np.float64]

# Whole numbers that every float holds.
_EXACT = 2.0**53


@dataclass(frozen=True, eq=False)
class Synthesis:
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
        What the caller took upon himself: ``accept_failed``, ``accept_few_draws``.
    moved_share
        Share of values that the response's column could not hold and that were
        moved to the end of its range.
    rounding
        How the copies were rounded like the input; None where they were not.
        Confidential.
    seed_bits
        Bits of the seed that the caller gave, or 128 where a fresh one was drawn.
    """

    fit: Fit
    values: Floats = field(repr=False)
    effect: str
    draw_index: NDArray[np.intp] = field(repr=False)
    seed: int = field(repr=False)
    seconds: float
    accepted: tuple[bool, bool] = (False, False)
    moved_share: float = 0.0
    rounding: Rounding | None = field(repr=False, default=None)
    seed_bits: int = field(repr=False, default=FRESH_BITS)

    def __repr__(self) -> str:
        return (
            f"Synthesis of {self.problem.name!r}: {self.copies} copies of "
            f"{self.problem.n_records} records, {int(self.fit.flagged.sum())} flagged, "
            f"protection {self.fit.protection}, carrying {self.effect}"
        )

    @property
    def problem(self) -> Problem:
        """The prepared table."""
        return self.fit.problem

    @property
    def fits(self) -> dict[str, Fit]:
        """The fits behind the copies by kind, the unrestricted first."""
        return {f.kind: f for f in (self.fit.start, self.fit) if f is not None}

    @property
    def imputation(self) -> NDArray[np.intp] | None:
        """Number, from 1, of the imputation behind each copy, shape (L,); None where the
        response was missing nowhere."""
        return None

    @property
    def copies(self) -> int:
        """L, the number of copies."""
        return len(self.values)

    def table(self, copy: int) -> pd.DataFrame:
        """Copy number ``copy``, from 0: the input table with the response replaced."""
        return self.problem.with_response(self.values[copy])

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

    @cached_property
    def whole_numbers(self) -> bool:
        """Whether a column of floats is published as whole numbers.

        It is where its copies are rounded to whole numbers: else the type would tell that one or
        two records have a fraction.
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
        return synthesise(
            fit,
            self.copies,
            seed=seed_of(stream(self.seed, COMPARISON)),
            accept_failed=True,
            accept_few_draws=True,
            rounding="none" if self.rounding is None else "auto",
            progress=False,
            **more,
        )

    def to_arviz(self) -> Any:
        """Posterior and copies for ArviZ; see :meth:`dsstan.Fit.to_arviz`. Confidential."""
        from dsstan.release.exchange import to_arviz

        return to_arviz(self)

    def write(
        self,
        folder: str | os.PathLike[str],
        *,
        format: str = "csv",
        csv_text: str = "refuse",
        report: bool = True,
    ) -> Path:
        """Write the release; see :func:`dsstan.release.write.write_release`."""
        from dsstan.release.write import write_release

        return write_release(self, folder, format=format, csv_text=csv_text, report=report)


def synthesise(
    fit: Fit,
    copies: int = 20,
    *,
    seed: int | None = None,
    effect: str = "auto",
    workers: int = 1,
    accept_failed: bool = False,
    accept_few_draws: bool = False,
    strict: bool = False,
    rounding: str = "auto",
    imputations: int | None = None,
    given: Synthesis | None = None,
    progress: bool | None = None,
) -> Synthesis:
    """Replace the sensitive values by L posterior-predictive draws.

    Section 3.3 of Quick, Holan and Wikle (2018): one posterior draw a copy,
    w given y and that draw, then Y = X beta + effect + tau z.

    Parameters
    ----------
    fit
        Unrestricted or restricted.
    copies
        L. Draws are spread over all chains and none serves twice.
    seed
        Root seed; by default a fresh one of 128 bits.
    effect
        ``"w"`` or ``"w*"`` = A w; ``"auto"`` takes w* under ``paper`` with a
        finite gamma, and w otherwise, so that fully smoothed records get a draw
        from their conditional prior. ``"plug"`` fixes the effect of flagged
        records at 0: narrower copies, which tell more of them than a draw would.
    workers
        Threads. The copies are the same bytes for any number.
    accept_failed
        Go on although the fit failed its verdict.
    accept_few_draws
        Go on although L is larger than the effective sample size.
    strict
        Refuse a fit whose verdict warns, too.
    rounding
        ``"auto"`` rounds the copies as the column is rounded, with its digits and its heaping
        (see :mod:`dsstan.table.rounding`); ``"none"`` leaves all digits. The type of the column
        rounds in any case.
    imputations
        M, where the response of some records is missing (``prepare(..., missing="draw")``),
        by default 5: the gaps are drawn M times, the model is fitted again to each completed
        table, and L / M copies are drawn from each, which must be a whole number from 2 on.
        :func:`dsstan.combine` pools them by the nested rule of Reiter (2004).
    given
        Copies of another column of the same table, as many as are drawn: copy l is drawn at the
        synthetic values of their copy l, and the result is the release of both (of all, where
        they were drawn given others). Their formula must not use this response.

    Raises
    ------
    ConvergenceError
        If the fit failed its verdict, or L exceeds the effective sample size.
    InputError
        If L is below 1 or above the number of draws, or the effect is unknown.
    """
    begin = time.perf_counter()
    how: dict[str, Any] = {
        "seed": seed,
        "effect": effect,
        "workers": workers,
        "accept_failed": accept_failed,
        "accept_few_draws": accept_few_draws,
        "strict": strict,
        "rounding": rounding,
        "progress": progress,
    }
    if given is not None:
        from dsstan.copies.chain import synthesise_given

        if imputations is not None:
            raise InputError("imputations are for a missing response, which a chain can't have")
        if copies != given.copies:
            raise InputError(
                f"the copies given are {given.copies}, so as many must be drawn, not {copies}"
            )
        return synthesise_given(fit, given, **how)
    if fit.problem.n_missing:
        from dsstan.copies.imputation import synthesise_completed

        return synthesise_completed(fit, copies, imputations, **how)
    if imputations is not None:
        raise InputError("imputations are for a missing response, and none is missing")
    check_release(fit, copies, effect, workers, accept_failed, accept_few_draws, strict, rounding)
    root = root_seed(seed)
    law = fit.predictive(effect)
    digits = find_digits(fit.problem) if rounding == "auto" else None
    values, picks, moved = draw_copies(
        law, copies, root=root, digits=digits, workers=workers, progress=progress
    )
    return Synthesis(
        fit,
        values,
        law.effect,
        picks,
        root,
        time.perf_counter() - begin,
        (accept_failed, accept_few_draws),
        moved,
        digits,
        seed_bits(seed),
    )


def draw_copies(
    law: Predictive,
    copies: int,
    *,
    root: int,
    digits: Rounding | None,
    laws: Callable[[int], Predictive] | None = None,
    workers: int = 1,
    progress: bool | None = None,
) -> tuple[Floats, NDArray[np.intp], float]:
    """Copies as they are published, nothing checked.

    Parameters
    ----------
    law
        How the fit draws a copy.
    copies, root, digits, workers
        As in :class:`Synthesis` and :func:`synthesise`.
    laws
        The law of each copy by its number, where they differ in their design matrix.

    Returns
    -------
    values
        Shape (L, N).
    picks
        Chain and iteration of the draw behind each copy, shape (L, 2).
    moved
        Share of values that were moved to an end of the column's range, of which it warns.
    """
    fit = law.fit
    picks = spread_draws(fit, copies)
    children = stream(root, COPIES, law.label).spawn(copies)
    problem = fit.problem

    def one(number: int) -> tuple[Floats, Floats]:
        rng = np.random.default_rng(children[number])
        mine = law if laws is None else laws(number)
        raw = mine.draw(int(picks[number, 0]), int(picks[number, 1]), rng)
        return raw, raw if digits is None else digits.apply(raw, rng, law.inside)

    values, moved = np.empty((copies, problem.n_records)), 0
    with (
        threadpool_limits(limits=1, user_api="blas"),
        progress_bar("synthesis", progress) as advance,
        ThreadPoolExecutor(workers) as pool,
    ):
        for number, (raw, copy) in enumerate(pool.map(one, range(copies))):
            held = law.published(raw)
            moved += int(np.sum(np.abs(held - raw) > 0.5 + 1e-6 * np.abs(raw)))
            values[number] = held if digits is None else law.published(copy)
            advance((number + 1) / copies)
    if moved:
        warnings.warn(
            f"{100 * moved / values.size:.2g}% of the synthetic values lie outside what the column "
            f"{problem.response!r} can hold ({problem.table[problem.response].dtype}) and were "
            "moved to its end: give the column a wider type, or model its logarithm",
            DsstanWarning,
            stacklevel=3,
        )
    return values, picks, moved / values.size


def find_digits(problem: Problem) -> Rounding:
    """How the response's column is rounded."""
    dtype = problem.table[problem.response].dtype
    return find_rounding(problem.original()[problem.observed], getattr(dtype, "numpy_dtype", dtype))


def check_release(
    fit: Fit,
    copies: int,
    effect: str,
    workers: int,
    accept_failed: bool,
    accept_few_draws: bool,
    strict: bool,
    rounding: str,
) -> None:
    """Refuse what must not reach a release; see :func:`synthesise`."""
    if rounding not in ROUNDINGS:
        raise InputError(f"rounding must be one of {', '.join(ROUNDINGS)}, got {rounding!r}")
    for name, value in (("copies", copies), ("workers", workers)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
            raise InputError(f"{name} must be a whole number of at least 1")
    if effect not in EFFECTS:
        raise InputError(f"effect must be one of {', '.join(EFFECTS)}, got {effect!r}")
    for needed in (fit.start, fit):
        if needed is None:
            continue
        warned = needed.verdict.warnings if strict else ()
        if (not needed.verdict.passed and not accept_failed) or warned:
            reasons = "\n".join(f"  {check}" for check in (*needed.verdict.failures, *warned))
            raise ConvergenceError(
                f"the {needed.kind} fit did not pass, so no copy is drawn:\n{reasons}\n"
                + (
                    "Mend the fit: strict refuses warnings too."
                    if warned
                    else "Mend the fit, or pass accept_failed=True and answer for it."
                )
            )
    if copies > fit.n_draws:
        raise InputError(f"{copies} copies need as many posterior draws; there are {fit.n_draws}")
    enough = few_draws(copies, fit.worst_ess)
    if enough.severity != "ok" and not accept_few_draws:
        raise ConvergenceError(f"{enough}, or pass accept_few_draws=True")
    if effect == "plug":
        warnings.warn(
            'effect="plug" fixes the effect of flagged records at its mean, which tells more of '
            "them than a draw would and may leave them nearly as exposed as no protection: "
            "see docs/explain/disclosure.md",
            DsstanWarning,
            stacklevel=3,
        )
