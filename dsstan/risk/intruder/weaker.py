"""What the whole release reveals to an intruder who does not know all the other records.

:mod:`dsstan.risk.intruder.attacker` grants the intruder every other y. Here they know none, or
only those farther than a radius from the record they are after. They still know
places, covariates, model and parameters, and sees all L copies. Everything is
normal, so no simulation is needed: the posterior precision of all y at once is

    Lambda = P + sum_l H' Vs^-1 H

with P of the unrestricted model under a flat prior of the coefficients, and H
and Vs of ``dsstan.covariance.copy_law.copy_law`` at the draw behind copy l. To know a record is to
strike its row and column, so with U the records they do not know the variance of y_i is
(Lambda_UU^-1)_ii. With U = {i} this is the stronger attacker. Records at one site hide behind one
another: copies carry one w for all, so no number of copies reveals their differences.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.spatial.distance import cdist
from threadpoolctl import threadpool_limits

from dsstan.copies.result import Synthesis
from dsstan.core.arrays import Floats, Indices, Truths
from dsstan.core.errors import InputError
from dsstan.core.progress import progress_bar
from dsstan.covariance.copy_law import CopyLaw, copy_law, projection
from dsstan.covariance.latent import LatentModel, require_all_pairs
from dsstan.models.posterior import parameters_at
from dsstan.models.predictive import carried_effect
from dsstan.models.result import Fit
from dsstan.risk.intruder.attacker import planned_release
from dsstan.risk.intruder.leave_one_out import averaged_draws
from dsstan.table.problem import Problem

DRAWS = 40
"""Posterior draws over which is averaged what the released ones do not settle, unless others are
asked for."""

BATCHES = 10
"""Groups of draws whose spread gives the Monte Carlo error."""


@dataclass(frozen=True, eq=False)
class WeakAttack:
    """An intruder's posterior sd of every record, on the modelled scale. Confidential.

    Attributes
    ----------
    sd
        Posterior sd of each y_i, shape (N,).
    error
        Monte Carlo standard error of it, from the draws averaged over, shape (N,).
    full
        sd left to an intruder who knows all other records, from the same draws, shape (N,);
        never above ``sd``.
    unknown
        How many other records they do not know, shape (N,).
    knows
        ``"none"``, or the radius beyond which they know the records.
    variances
        As in :meth:`dsstan.risk.intruder.attacker.Attack.sd`.
    copies, draws
        L, and the posterior draws averaged over.
    """

    sd: Floats = field(repr=False)
    error: Floats = field(repr=False)
    full: Floats = field(repr=False)
    unknown: Indices = field(repr=False)
    flagged: Truths = field(repr=False)
    index: pd.Index = field(repr=False)
    knows: str | float
    variances: str
    copies: int
    draws: int
    seconds: float

    def table(self) -> pd.DataFrame:
        """One row a record: the sd, its Monte Carlo error, and the stronger attacker's."""
        return pd.DataFrame(
            {
                "flagged": self.flagged,
                "unknown": self.unknown,
                "sd": self.sd,
                "error": self.error,
                "full": self.full,
            },
            index=self.index,
        )

    def __str__(self) -> str:
        who = (
            "none of the others"
            if self.knows == "none"
            else f"the records farther than {self.knows:g}"
        )
        smallest = self.table().groupby("flagged")[["sd", "full"]].min()
        text = smallest.to_string(float_format=lambda v: f"{v:.3g}")
        return (
            f"Smallest sd left to an intruder who knows {who}, from {self.copies} copies\n"
            f"(modelled scale, variances {self.variances}, {self.draws} posterior draws, "
            f"Monte Carlo error up to {np.max(self.error / self.sd):.1%})\n{text}"
        )


def weak_attack(
    release: Synthesis | Fit,
    *,
    against: Fit | None = None,
    copies: int | None = None,
    knows: str | float = "none",
    variances: str = "fixed",
    effect: str = "auto",
    draws: int = DRAWS,
    progress: bool | None = None,
) -> WeakAttack:
    """What an intruder who knows few of the other records learns from the whole release.

    Exact linear algebra given the parameters. The information is summed over the draws behind the
    copies; of a fit, and of the belief without copies, it is averaged over posterior draws, and the
    error of that average is stated. Each radius costs at
    most about N^4 / 24 operations after the draws' N^3 each: seconds for 500
    records, minutes for 2000. It holds matrices of all pairs, so it takes the exact covariance,
    up to 5000 records.

    Parameters
    ----------
    release
        The copies, or a fit from which copies are planned.
    against
        The unrestricted fit; by default the one the release's fit started from.
    copies
        L planned; by default the release's. Of another number than was released each copy counts
        as much as one of those.
    knows
        ``"none"`` of the other records, or a radius in the sites' unit: they know
        the records farther than it from the one they are after. At radius 0 they
        know all but those at the same site.
    variances
        ``"fixed"``: the draws of the variances reveal nothing; ``"known"``: they
        know each.
    effect
        For a fit: as in :func:`dsstan.synthesise`.
    draws
        Posterior draws to average the information over; at least 2.

    Raises
    ------
    InputError
        If there is no unrestricted fit to compare with, an argument is out of range, the
        covariance of a fit is approximated, or there are more than 5000 records.
    """
    begin = time.perf_counter()
    fit, free, planned, effect = planned_release(release, against, copies, effect)
    require_all_pairs("weak_attack", fit, free)
    if variances not in ("fixed", "known"):
        raise InputError('variances must be "fixed" or "known"')
    missing = _missing(fit.problem, knows)
    with (
        threadpool_limits(limits=1, user_api="blas"),
        progress_bar("weaker intruder", progress) as advance,
    ):
        copied = release if isinstance(release, Synthesis) else None
        precision, batches, count = _information(
            fit, free, planned, effect, copied, variances, draws, advance
        )
        columns = _covariance_columns(precision, missing)
        # The derivative of a variance by the precision is minus its column's square.
        change = np.stack([np.sum(columns * (batch @ columns), axis=0) for batch in batches])
        error = change.std(axis=0, ddof=1) / np.sqrt(len(change))
        advance(1.0)
    sd = np.sqrt(np.diag(columns))
    return WeakAttack(
        sd=sd,
        error=0.5 * error / sd,
        full=1.0 / np.sqrt(np.diag(precision)),
        unknown=missing.sum(axis=1) - 1,
        flagged=fit.flagged,
        index=fit.problem.table.index,
        knows=knows,
        variances=variances,
        copies=planned,
        draws=count,
        seconds=time.perf_counter() - begin,
    )


def _missing(problem: Problem, knows: str | float) -> Truths:
    """Row i marks the records unknown to an intruder who is after record i, shape (N, N)."""
    n = problem.n_records
    if isinstance(knows, str):
        if knows != "none":
            raise InputError(f'knows must be "none" or a radius, got {knows!r}')
        return np.ones((n, n), dtype=bool)
    if isinstance(knows, bool) or not (np.isfinite(knows) and knows >= 0):
        raise InputError("the radius beyond which records are known must be finite and not below 0")
    # By site, so that records at one place are surely at distance 0.
    near = cdist(problem.unique_sites, problem.unique_sites) <= knows
    return np.asarray(near[np.ix_(problem.site_index, problem.site_index)])


def _information(
    fit: Fit,
    free: Fit,
    copies: int,
    effect: str,
    release: Synthesis | None,
    variances: str,
    draws: int,
    advance: Callable[[float], None],
) -> tuple[Floats, Floats, int]:
    """Lambda (N, N), its mean in each batch of draws (B, N, N), and the draws used."""
    n = fit.problem.n_records
    carried, _ = carried_effect(fit, effect)
    mine, theirs = averaged_draws(fit, draws), averaged_draws(free, draws)
    size = min(BATCHES, len(mine), len(theirs))
    precision, batches = np.zeros((n, n)), np.zeros((size, n, n))

    def add(i: int, one: Floats, count: int) -> None:
        members = len(range(i % size, count, size))
        batches[i % size] += one / members
        precision[:] += one / count

    model, noise = LatentModel(fit), None if release is None else release.noise

    def law(chain: int, iteration: int) -> CopyLaw:
        return copy_law(model, parameters_at(fit, int(chain), int(iteration)), carried, noise)

    known = variances == "known"
    # One law at a time: each holds two matrices of all pairs.
    scores = np.zeros((len(mine), n))
    for i, pick in enumerate(mine if known or release is None else ()):
        each = law(*pick)
        scores[i] = each.score
        if release is None:
            add(i, copies * _of_copy(each), len(mine))
        advance(0.4 * (i + 1) / len(mine))
    centre = scores.mean(axis=0)
    if release is None and known:
        centred = (scores - centre) * np.sqrt(len(mine) / (len(mine) - 1))
        for i, score in enumerate(centred):
            add(i, copies * np.outer(score, score), len(mine))
    if release is not None:
        for pick in release.draw_index:
            each = law(*pick)
            information = _of_copy(each)
            if known:
                information += np.outer(each.score - centre, each.score - centre)
            information *= copies / release.copies
            precision += information
            batches += information
    advance(0.5)
    model = LatentModel(free)
    for i, (chain, iteration) in enumerate(theirs):
        add(i, projection(model, parameters_at(free, int(chain), int(iteration))), len(theirs))
        advance(0.5 + 0.4 * (i + 1) / len(theirs))
    return precision, batches, len(theirs)


def _of_copy(law: CopyLaw) -> Floats:
    """Information of a copy on all y with its variances fixed, shape (N, N)."""
    root = np.linalg.cholesky(law.Vs)
    z = solve_triangular(root, law.H, lower=True, check_finite=False)
    return np.asarray(z.T @ z)


def _covariance_columns(precision: Floats, missing: Truths) -> Floats:
    """Column i is that of record i in Lambda_UU^-1, U its unknown records, 0 elsewhere.

    Where more than half are unknown the known ones are conditioned on instead:
    Lambda_UU^-1 = S_UU - S_UK S_KK^-1 S_KU with S = Lambda^-1.
    """
    n = len(precision)
    columns = np.zeros((n, n))
    whole = None
    for unknown, targets in _groups(missing):
        known = np.flatnonzero(~missing[targets[0]])
        if len(unknown) <= n // 2:
            block = cho_factor(precision[np.ix_(unknown, unknown)], lower=True, check_finite=False)
            unit = (unknown[:, None] == targets).astype(np.float64)
            columns[np.ix_(unknown, targets)] = cho_solve(block, unit, check_finite=False)
            continue
        if whole is None:
            factor = cho_factor(precision, lower=True, check_finite=False)
            whole = cho_solve(factor, np.eye(n), check_finite=False)
        column = whole[np.ix_(unknown, targets)]
        if known.size:
            block = cho_factor(whole[np.ix_(known, known)], lower=True, check_finite=False)
            gain = cho_solve(block, whole[np.ix_(known, targets)], check_finite=False)
            column = column - whole[np.ix_(unknown, known)] @ gain
        columns[np.ix_(unknown, targets)] = column
    return columns


def _groups(
    missing: Truths,
) -> Iterator[tuple[Indices, Indices]]:
    """Each set of unknown records with the records it belongs to."""
    _, group = np.unique(np.packbits(missing, axis=1), axis=0, return_inverse=True)
    group = group.ravel()
    for number in range(int(group.max()) + 1):
        targets = np.flatnonzero(group == number)
        yield np.flatnonzero(missing[targets[0]]), targets
