"""Copies of a table whose response is missing in some records.

In two steps (Reiter 2004, *Simultaneous use of multiple imputation for missing data and
disclosure limitation*, Survey Methodology 30, 235-242): the gaps are drawn M times from the
posterior predictive law, and from each completed table, fitted anew, R copies are drawn.

Then a gap shows: its values differ between the completed tables, those of the others do not. With
``hide_gaps`` the completed tables hold a draw of every record, each given records outside a part of
the table that it is in. So a record's draws have one law whether it has a value or not: nothing of
its own value enters them.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass, field, replace

import numpy as np

from dsstan.copies.draw import Drawing, check_release, draw_column, find_digits
from dsstan.copies.result import Synthesis
from dsstan.core.arrays import Floats, Indices
from dsstan.core.errors import DsstanWarning, InputError, whole_number
from dsstan.core.seeds import IMPUTATION, root_seed, seed_bits, seed_of, stream
from dsstan.models.arguments import settings_of
from dsstan.models.fit import fit
from dsstan.models.posterior import spread_draws
from dsstan.models.result import Fit
from dsstan.table.problem import Problem

__all__ = ["MANY", "CompletedSynthesis", "check_imputations", "complete", "synthesise_completed"]


MANY = 5
"""Default number of imputations."""

PARTS = 5
"""Parts into which a table is cut to draw every record: four fifths of the records with a value
inform each draw, and a completed table takes five draws of the spatial effect."""


@dataclass(frozen=True, eq=False, repr=False)
class CompletedSynthesis(Synthesis):
    """Copies drawn from M completed tables, R from each, one imputation after the other.

    Attributes
    ----------
    parts
        The copies of each imputation, M of them, each with its own fit.
    hide_gaps
        Whether each completed table has a draw of every record.
    """

    parts: tuple[Synthesis, ...] = field(repr=False, default=())
    hide_gaps: bool = False

    @property
    def imputation(self) -> Indices:
        """Number, from 1, of the imputation behind each copy, shape (L,)."""
        return np.repeat(np.arange(1, len(self.parts) + 1), self.copies // len(self.parts))

    @property
    def fits(self) -> dict[str, Fit]:
        """The fits to the records that have a response, then that of each completed table."""
        return super().fits | {f"imputation_{i}": part.fit for i, part in enumerate(self.parts, 1)}

    def _from(self, fit: Fit) -> Synthesis:
        """As many copies of as many imputations from another fit; see ``Synthesis``."""
        return self._as_many(fit, imputations=len(self.parts), hide_gaps=self.hide_gaps)


def complete(start: Fit, imputations: int, *, seed: int, hide_gaps: bool = False) -> list[Problem]:
    """The table with its gaps drawn, M times; with ``hide_gaps`` every record is drawn.

    The gaps are drawn by the law of the same fit from which the copies come, so what they carry of
    a flagged record is no more than a copy does. They carry w, whatever the copies do: a gap has
    no truth to be hidden, and A w would make the imputations vary too little.

    Parameters
    ----------
    start
        Fit to the records that have a response.
    imputations
        M.
    seed
        Root seed, one spawned child an imputation.
    hide_gaps
        Draw every record, given those with a value outside its part of the table. The parts are
        drawn anew each time.

    Returns
    -------
    list of Problem
        Confidential.
    """
    problem, law = start.problem, start.predictive("w")
    truth, gaps, root = problem.original(), ~problem.observed, root_seed(seed)
    digits, found = find_digits(start, root), []
    children = stream(root, IMPUTATION, law.label).spawn(imputations)
    picks = spread_draws(start, imputations)
    for child, (chain, iteration) in zip(children, picks, strict=True):
        rng = np.random.default_rng(child)
        if hide_gaps:
            raw = _draw_by_parts(start, int(chain), int(iteration), rng)
        else:
            raw = law.draw(int(chain), int(iteration), rng)
        drawn = law.published(digits.apply(raw, rng, law.inside))
        table = problem.with_response(drawn if hide_gaps else np.where(gaps, drawn, truth))
        y = problem.design.y_of(table)
        found.append(replace(problem, table=table, y=y, design=replace(problem.design, y=y)))
    return found


def _draw_by_parts(start: Fit, chain: int, iteration: int, rng: np.random.Generator) -> Floats:
    """A draw of every record given the records outside its part, own scale, shape (N,)."""
    problem = start.problem
    part = rng.permutation(np.arange(problem.n_records) % PARTS)
    drawn = np.empty(problem.n_records)
    # A stream for each part: how many random numbers one takes depends on who has a value.
    for number, own in enumerate(rng.spawn(PARTS)):
        mine = part == number
        others = replace(problem, y=np.where(mine, np.nan, problem.y))
        law = replace(start, problem=others).predictive("w")
        drawn[mine] = law.draw(chain, iteration, own)[mine]
    return drawn


def check_imputations(problem: Problem, copies: int, imputations: int | None) -> int:
    """M, by default :data:`MANY`.

    Raises
    ------
    InputError
        If no response is missing, or the copies can't be shared out among the imputations.
    """
    if not problem.n_missing:
        raise InputError("imputations are for a missing response, and none is missing")
    count = whole_number(MANY if imputations is None else imputations)
    if count is None or count < 2 or copies % count or copies // count < 2:
        raise InputError(
            f"{copies} copies of {count or imputations} imputations: the nested rule of combining "
            "needs two imputations at least and the same number of copies of each, two at least, "
            "such as 20 copies of 5"
        )
    return count


def synthesise_completed(
    start: Fit,
    copies: int,
    imputations: int | None,
    how: Drawing,
    *,
    hide_gaps: bool = False,
) -> CompletedSynthesis:
    """Draw the gaps M times, fit each completed table, and draw L / M copies from each.

    Parameters
    ----------
    start
        Fit to the records that have a response. Each completed table is fitted with every
        setting of it, the decay it held included.
    copies, imputations
        L and M. L / M must be a whole number from 2 on, M at least 2.
    hide_gaps
        Draw every record M times, not the gaps alone.
    how
        See :func:`dsstan.synthesise`.

    Raises
    ------
    InputError
        If the numbers do not fit, or the model is not Gaussian; with ``hide_gaps`` also if the
        covariance is approximated.
    ConvergenceError
        If a fit failed its verdict.
    """
    begin = time.perf_counter()
    check_release(start, copies, how)
    if type(start) is not Fit:
        raise InputError(
            f"a missing response is drawn for the Gaussian model only, not for {start.outcome}: "
            "leave its records out"
        )
    if hide_gaps and start.covariance.approximate:
        raise InputError(
            f"hide_gaps draws every record from the exact covariance, and the fit has another "
            f'({start.covariance}): fit it with covariance="exact", or leave hide_gaps out'
        )
    count = check_imputations(start.problem, copies, imputations)
    root = root_seed(how.seed)
    digits = find_digits(start, root)
    settings = settings_of(start)
    if start.program == "surface":
        settings["engine"] = "direct"  # the same posterior, and a refit need not wait for chains
    parts = []
    for number, problem in enumerate(complete(start, count, seed=root, hide_gaps=hide_gaps)):
        fit_seed, copy_seed = map(
            seed_of, stream(root, IMPUTATION, b"completed " + str(number).encode()).spawn(2)
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DsstanWarning)  # the first fit has said it
            fitted = fit(problem, **settings, seed=fit_seed, progress=how.progress)
        mine = replace(how, seed=copy_seed)
        parts.append(draw_column(fitted, copies // count, mine, Synthesis, digits=digits))
    return CompletedSynthesis(
        start,
        np.concatenate([part.values for part in parts]),
        parts[0].effect,
        np.concatenate([part.draw_index for part in parts]),
        root,
        time.perf_counter() - begin,
        parts[0].accepted,
        float(np.mean([part.moved_share for part in parts])),
        parts[0].rounding,
        seed_bits(how.seed),
        parts=tuple(parts),
        hide_gaps=hide_gaps,
    )
