"""Draw L posterior-predictive replacements of the sensitive values."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from threadpoolctl import threadpool_limits

from dsstan.copies.result import Synthesis
from dsstan.core.arrays import Floats, Indices
from dsstan.core.errors import ConvergenceError, DsstanWarning, InputError
from dsstan.core.progress import progress_bar
from dsstan.core.seeds import (
    COPIES,
    ROUNDING,
    root_seed,
    seed_bits,
    stream,
)
from dsstan.core.spelling import spelled
from dsstan.models.checks.conditions import few_draws
from dsstan.models.posterior import spread_draws
from dsstan.models.predictive import EFFECTS, Predictive
from dsstan.models.result import Fit
from dsstan.table.problem import Problem
from dsstan.table.rounding import FEWEST, MORE, ROUNDINGS, Rounding, find_rounding

S = TypeVar("S", bound=Synthesis)


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """How copies are drawn, whatever of; :func:`dsstan.synthesise` explains each."""

    seed: int | None
    effect: str
    workers: int
    accept_failed: bool
    accept_few_draws: bool
    strict: bool
    rounding: str
    progress: bool | None
    noise: float | Floats | None = None


def draw_column(
    fit: Fit,
    copies: int,
    how: Drawing,
    kind: type[S],
    *,
    designs: Callable[[int], Floats] | None = None,
    digits: Rounding | None = None,
    **own: Any,
) -> S:
    """Copies of one column without gaps.

    Parameters
    ----------
    fit, copies, how
        See :func:`dsstan.synthesise`.
    kind, own
        Class of the result, and its fields that not every synthesis has.
    designs
        Design matrix of each copy by its number, where it is not that of the table.
    digits
        How the copies are rounded, where ``how`` rounds them; by default like the column.
    """
    begin = time.perf_counter()
    check_release(fit, copies, how)
    root = root_seed(how.seed)
    law = fit.predictive(how.effect)
    if how.noise is not None:
        law = law.with_noise(noise_of(fit.problem, how.noise))
    digits = (digits or find_digits(fit, root)) if how.rounding == "auto" else None
    # Made before the threads begin: formulaic's warnings are caught by a filter that all share.
    laws = None if designs is None else [law.with_design(designs(k)) for k in range(copies)]
    values, picks, moved = draw_copies(
        law,
        copies,
        root=root,
        digits=digits,
        laws=None if laws is None else laws.__getitem__,
        workers=how.workers,
        progress=how.progress,
    )
    return kind(
        fit,
        values,
        law.effect,
        picks,
        root,
        time.perf_counter() - begin,
        (how.accept_failed, how.accept_few_draws),
        moved,
        digits,
        seed_bits(how.seed),
        law.added,
        how.workers,
        **own,
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
) -> tuple[Floats, Indices, float]:
    """Copies as they are published, nothing checked.

    Parameters
    ----------
    law
        How the fit draws a copy.
    copies, root, digits, workers
        As in :class:`Synthesis` and :func:`dsstan.synthesise`.
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


def noise_of(problem: Problem, noise: float | Floats) -> Floats:
    """sd of the noise added to each record, shape (N,), from one number or one a record.

    Raises InputError if an sd is negative or not finite, or there are neither one nor N of them.
    """
    try:
        given = np.asarray(noise, dtype=np.float64)
    except (TypeError, ValueError):
        given = np.array(np.nan)
    n = problem.n_records
    if given.shape not in ((), (n,)) or not np.all(np.isfinite(given) & (given >= 0)):
        raise InputError(
            "noise must be an sd on the modelled scale, from 0 on: one number, or one for each "
            f"of the {n} records"
        )
    return np.broadcast_to(given, (n,)).copy()


def find_digits(fit: Fit, root: int) -> Rounding:
    """How the copies of one release are rounded, as the records that inform the fit show it.

    ``root`` is the release's root seed; see :meth:`dsstan.table.rounding.Rounding.redrawn`.
    """
    problem = fit.problem
    rng = np.random.default_rng(stream(root, ROUNDING, problem.response.encode()))
    dtype = problem.table[problem.response].dtype
    width = getattr(dtype, "numpy_dtype", dtype)
    fewest = FEWEST + int(rng.integers(MORE))
    return find_rounding(problem.original()[fit.informing], width, fewest=fewest).redrawn(rng)


def check_release(fit: Fit, copies: int, how: Drawing) -> None:
    """Refuse what must not reach a release; see :func:`dsstan.synthesise`."""
    for name, word, words in (
        ("rounding", how.rounding, ROUNDINGS),
        ("effect", how.effect, EFFECTS),
    ):
        if word not in words:
            raise InputError(f"{name} must be one of {', '.join(words)}, got {word!r}")
    for needed in (fit.start, fit):
        if needed is None:
            continue
        warned = needed.verdict.warnings if how.strict else ()
        if (not needed.verdict.passed and not how.accept_failed) or warned:
            reasons = "\n".join(f"  {check}" for check in (*needed.verdict.failures, *warned))
            raise ConvergenceError(
                f"the {needed.kind} fit did not pass, so no copy is drawn:\n{reasons}\n"
                + (
                    "Correct the fit: strict refuses warnings too."
                    if warned
                    else f"Correct the fit, or accept it with {spelled('accept_failed', True)}."
                )
            )
    if copies > fit.n_draws:
        raise InputError(f"{copies} copies need as many posterior draws; there are {fit.n_draws}")
    enough = few_draws(copies, fit.worst_ess, fit.settings)
    if enough.severity != "ok" and not how.accept_few_draws:
        raise ConvergenceError(f"{enough}, or pass accept_few_draws=True")
    if how.effect == "plug":
        warnings.warn(
            'effect="plug" fixes the effect of flagged records at its mean, which reveals more of '
            "them than a draw would, and may leave them nearly as exposed as no protection: "
            "see docs/explain/disclosure.md",
            DsstanWarning,
            stacklevel=3,
        )
