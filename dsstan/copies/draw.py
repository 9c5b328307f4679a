"""Draw L posterior-predictive replacements of the sensitive values."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from dsstan.copies.result import Synthesis
from dsstan.core.errors import ConvergenceError, DsstanWarning, InputError, check_count
from dsstan.core.progress import progress_bar
from dsstan.core.seeds import (
    COPIES,
    root_seed,
    seed_bits,
    stream,
)
from dsstan.models.checks.conditions import few_draws
from dsstan.models.posterior import spread_draws
from dsstan.models.predictive import EFFECTS, Predictive
from dsstan.models.result import Fit
from dsstan.table.problem import Problem
from dsstan.table.rounding import ROUNDINGS, Rounding, find_rounding

Floats = NDArray[np.float64]


def synthesise_plain(
    fit: Fit,
    copies: int,
    *,
    seed: int | None,
    effect: str,
    workers: int,
    accept_failed: bool,
    accept_few_draws: bool,
    strict: bool,
    rounding: str,
    progress: bool | None,
) -> Synthesis:
    """Copies of one column without gaps; see :func:`dsstan.synthesise`."""
    begin = time.perf_counter()
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
        check_count(name, value)
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
                    "Correct the fit: strict refuses warnings too."
                    if warned
                    else "Correct the fit, or pass accept_failed=True to accept it."
                )
            )
    if copies > fit.n_draws:
        raise InputError(f"{copies} copies need as many posterior draws; there are {fit.n_draws}")
    enough = few_draws(copies, fit.worst_ess)
    if enough.severity != "ok" and not accept_few_draws:
        raise ConvergenceError(f"{enough}, or pass accept_few_draws=True")
    if effect == "plug":
        warnings.warn(
            'effect="plug" fixes the effect of flagged records at its mean, which reveals more of '
            "them than a draw would, and may leave them nearly as exposed as no protection: "
            "see docs/explain/disclosure.md",
            DsstanWarning,
            stacklevel=3,
        )
