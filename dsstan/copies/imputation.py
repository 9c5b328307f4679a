"""Copies of a table whose response is missing in some records.

In two steps (Reiter 2004, *Simultaneous use of multiple imputation for missing data and
disclosure limitation*, Survey Methodology 30, 235-242): the gaps are drawn M times from the
posterior predictive law, and from each completed table, fitted anew, R copies are drawn.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from dsstan.copies.draw import check_release, draw_copies, find_digits
from dsstan.copies.result import Synthesis
from dsstan.core.errors import DsstanWarning, InputError
from dsstan.core.seeds import IMPUTATION, root_seed, seed_bits, seed_of, stream
from dsstan.models.arguments import settings_of
from dsstan.models.fit import fit
from dsstan.models.posterior import spread_draws
from dsstan.models.result import Fit
from dsstan.table.problem import Problem

__all__ = ["MANY", "CompletedSynthesis", "check_imputations", "complete", "synthesise_completed"]

Floats = NDArray[np.float64]

MANY = 5
"""Default number of imputations."""


@dataclass(frozen=True, eq=False, repr=False)
class CompletedSynthesis(Synthesis):
    """Copies drawn from M completed tables, R from each, one imputation after the other.

    Attributes
    ----------
    parts
        The copies of each imputation, M of them, each with its own fit.
    """

    parts: tuple[Synthesis, ...] = field(repr=False, default=())

    @property
    def imputation(self) -> NDArray[np.intp]:
        """Number, from 1, of the imputation behind each copy, shape (L,)."""
        return np.repeat(np.arange(1, len(self.parts) + 1), self.copies // len(self.parts))

    @property
    def fits(self) -> dict[str, Fit]:
        """The fits to the records that have a response, then that of each completed table."""
        return super().fits | {f"imputation_{i}": part.fit for i, part in enumerate(self.parts, 1)}

    def _from(self, fit: Fit) -> Synthesis:
        """As many copies of as many imputations from another fit; see ``Synthesis``."""
        return self._as_many(fit, imputations=len(self.parts))


def complete(start: Fit, imputations: int, *, seed: int) -> list[Problem]:
    """The table with its gaps drawn, M times.

    The gaps are drawn by the law of the same fit from which the copies come, so what they carry of
    a flagged record is no more than a copy does. They carry w, whatever the copies do: a gap has
    no truth to be smoothed away, and A w would make the imputations vary too little.

    Parameters
    ----------
    start
        Fit to the records that have a response.
    imputations
        M.
    seed
        Root seed, one spawned child an imputation.

    Returns
    -------
    list of Problem
        Confidential.
    """
    problem, law = start.problem, start.predictive("w")
    digits, gaps = find_digits(problem), ~problem.observed
    truth = problem.original()
    found = []
    children = stream(root_seed(seed), IMPUTATION, law.label).spawn(imputations)
    picks = spread_draws(start, imputations)
    for child, (chain, iteration) in zip(children, picks, strict=True):
        rng = np.random.default_rng(child)
        raw = law.draw(int(chain), int(iteration), rng)
        drawn = law.published(digits.apply(raw, rng, law.inside))
        table = problem.with_response(np.where(gaps, drawn, truth))
        y = problem.design.y_of(table)
        found.append(replace(problem, table=table, y=y, design=replace(problem.design, y=y)))
    return found


def check_imputations(problem: Problem, copies: int, imputations: int | None) -> int:
    """M, by default :data:`MANY`.

    Raises
    ------
    InputError
        If no response is missing, or the copies can't be shared out among the imputations.
    """
    if not problem.n_missing:
        raise InputError("imputations are for a missing response, and none is missing")
    count = MANY if imputations is None else imputations
    whole = isinstance(count, int | np.integer) and not isinstance(count, bool)
    if not whole or count < 2 or copies % count or copies // count < 2:
        raise InputError(
            f"{copies} copies of {count} imputations: the nested combining rule needs two "
            "imputations at least and the same number of copies of each, two at least, such as "
            "20 copies of 5"
        )
    return int(count)


def synthesise_completed(
    start: Fit,
    copies: int,
    imputations: int | None,
    *,
    seed: int | None,
    effect: str,
    workers: int,
    accept_failed: bool,
    accept_few_draws: bool,
    strict: bool,
    rounding: str,
    progress: bool | None,
) -> CompletedSynthesis:
    """Draw the gaps M times, fit each completed table, and draw L / M copies from each.

    Parameters
    ----------
    start
        Fit to the records that have a response. Each completed table is fitted with every
        setting of it, the decay it held included.
    copies, imputations
        L and M. L / M must be a whole number from 2 on, M at least 2.
    seed, effect, workers, accept_failed, accept_few_draws, strict, rounding, progress
        See :func:`dsstan.synthesise`.

    Raises
    ------
    InputError
        If the numbers do not fit, or the model is not Gaussian.
    ConvergenceError
        If a fit failed its verdict.
    """
    begin = time.perf_counter()
    check_release(start, copies, effect, workers, accept_failed, accept_few_draws, strict, rounding)
    if type(start) is not Fit:
        raise InputError(
            f"a missing response is drawn for the Gaussian model only, not for {start.outcome}: "
            "leave its records out"
        )
    count = check_imputations(start.problem, copies, imputations)
    root = root_seed(seed)
    law = start.predictive(effect)
    digits = find_digits(start.problem) if rounding == "auto" else None
    parts = []
    for number, problem in enumerate(complete(start, count, seed=root)):
        fit_seed, copy_seed = map(
            seed_of, stream(root, IMPUTATION, b"completed " + str(number).encode()).spawn(2)
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DsstanWarning)  # the first fit has said it
            fitted = fit(problem, **settings_of(start), seed=fit_seed, progress=progress)
        each = copies // count
        choices = (accept_failed, accept_few_draws, strict, rounding)
        check_release(fitted, each, effect, workers, *choices)
        values, picks, moved = draw_copies(
            fitted.predictive(effect),
            each,
            root=copy_seed,
            digits=digits,
            workers=workers,
            progress=progress,
        )
        accepted = (accept_failed, accept_few_draws)
        part = Synthesis(
            *(fitted, values, law.effect, picks, copy_seed, 0.0, accepted, moved, digits)
        )
        parts.append(part)
    return CompletedSynthesis(
        start,
        np.concatenate([part.values for part in parts]),
        law.effect,
        np.concatenate([part.draw_index for part in parts]),
        root,
        time.perf_counter() - begin,
        (accept_failed, accept_few_draws),
        float(np.mean([part.moved_share for part in parts])),
        digits,
        seed_bits(seed),
        parts=tuple(parts),
    )
