"""What the other records alone say of each, and the terms of the unrestricted fit.

Every protection shares one benchmark: the predictive law of y_i given the other records
under the unrestricted model. At a draw theta it is normal, with variance 1 / P_ii and mean
``y_i - (P y)_i / P_ii``. The draws come from a posterior that has seen y_i, so each is weighted
by ``1 / p(y_i | y_-i, theta)`` (Gelfand 1996), and the weights' tail is smoothed (Vehtari et al.
2024). The benchmark is the sd of that mixture of normals, the spread of their means included.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np
from threadpoolctl import threadpool_limits

from dsstan.core.arrays import Floats, Indices, Truths
from dsstan.core.errors import InputError, check_count
from dsstan.covariance.base import Terms
from dsstan.covariance.eigenbasis import alone
from dsstan.covariance.latent import require_gaussian
from dsstan.models.checks.diagnostics import RELIABLE_K
from dsstan.models.posterior import parameters_at, spread_draws
from dsstan.models.predictive import carried_at
from dsstan.models.result import Fit
from dsstan.risk.intruder.variance_grid import integrable, leave_one_out_sd
from dsstan.table.problem import require_complete

DRAWS = 400
"""Posterior draws to average over in an eigenbasis, unless others are asked for."""

EQUAL = 1e-8
"""Log densities that differ by less are equal, and no tail is fitted to them."""

FEWEST = 50
"""Fewest draws to whose weights a Pareto tail is fitted."""

LARGE_ERROR = 0.02
"""Relative Monte Carlo error of an sd from which on a grid is worth its time."""

BATCHES = 5
"""Batches of consecutive draws in each chain, for Monte Carlo errors."""


@dataclass(frozen=True, eq=False)
class MeanTerms:
    """A fit's terms over its draws. Confidential.

    Attributes
    ----------
    precision
        Mean of P_ii of the unrestricted model, shape (N,); exactly 0 where a record has a
        coefficient of its own, on which the others say nothing. NaN for other fits.
    information, exposure
        Means over the draws, shape (N,).
    leak
        Variance of the score over the draws, shape (N,).
    error
        Monte Carlo standard error of ``information + leak``, shape (N,).
    draws
        How many.
    terms
        The terms at each draw.
    chains
        Chains that the draws take turns in.
    """

    precision: Floats = field(repr=False)
    information: Floats = field(repr=False)
    exposure: Floats = field(repr=False)
    leak: Floats = field(repr=False)
    error: Floats = field(repr=False)
    draws: int
    terms: Sequence[Terms] = field(repr=False)
    chains: int = 1

    @classmethod
    def over(cls, precision: Floats, terms: Sequence[Terms], chains: int = 1) -> MeanTerms:
        """Means, variances and their error over the terms of at least two draws."""
        information = np.stack([t.information for t in terms])
        scores = np.stack([t.score for t in terms])
        own = information + squared_deviations(scores)
        return cls(
            precision=precision,
            information=information.mean(axis=0),
            exposure=np.mean([t.exposure for t in terms], axis=0),
            leak=scores.var(axis=0, ddof=1),
            error=spread_of_one(own, chains) / np.sqrt(len(terms)),
            draws=len(terms),
            terms=terms,
            chains=chains,
        )

    @cached_property
    def by_draw(self) -> Floats:
        """What a copy gives at each draw, variances fixed and known, shape (2, S, N)."""
        information = np.stack([t.information for t in self.terms])
        scores = np.stack([t.score for t in self.terms])
        return np.stack([information, information + squared_deviations(scores)])


def squared_deviations(scores: Floats) -> Floats:
    """Squares that average to the variance over the draws, shape (S, N)."""
    count = len(scores)
    return np.asarray((scores - scores.mean(axis=0)) ** 2 * count / (count - 1))


def spread_of_one(values: Floats, chains: int) -> Floats:
    """sd of one value for the error of a mean of many, shape (N,).

    The larger of the sd over all draws and of that which batches of consecutive draws imply:
    draws that hang together, or chains that differ, make the latter larger. Where there are fewer
    than 10 draws a batch, the former alone.

    Parameters
    ----------
    values
        Shape (S, N); row s belongs to chain s modulo ``chains``.
    chains
        How many.
    """
    alone = values.std(axis=0, ddof=1)
    size = len(values) // (chains * BATCHES)
    if size < 10:
        return np.asarray(alone)
    batches = [
        batch.mean(axis=0)
        for c in range(chains)
        for batch in np.array_split(values[c::chains], BATCHES)
    ]
    return np.asarray(np.maximum(alone, np.sqrt(size) * np.std(batches, axis=0, ddof=1)))


@dataclass(frozen=True, eq=False)
class LeaveOneOut:
    """The predictive law of each y_i given the other records. Confidential.

    Attributes
    ----------
    sd
        Shape (N,); infinite where a record has a coefficient of its own.
    pareto_k
        Of the weights, shape (N,); NaN where there are too few draws to compute it.
    error
        Monte Carlo standard error of ``sd``, shape (N,).
    integrated
        Records whose weights could not be trusted (k above 0.7), or whose error is above 2%, and
        whose sd comes from a grid of the variances instead (exact covariance, up to 600
        records), shape (N,). Of the other untrusted records, ``sd`` is the smaller of the
        mixture's and of ``1 / sqrt(mean P_ii)``.
    """

    sd: Floats = field(repr=False)
    pareto_k: Floats = field(repr=False)
    error: Floats = field(repr=False)
    integrated: Truths = field(repr=False)


_KNOWN: WeakKeyDictionary[Fit, dict[int, MeanTerms]] = WeakKeyDictionary()
"""Terms of fits that are still in use, by number of draws."""

_LAWS: WeakKeyDictionary[Fit, dict[int, LeaveOneOut]] = WeakKeyDictionary()
"""Leave-one-out laws of fits that are still in use, by number of draws."""


def unrestricted_terms(fit: Fit, draws: int = DRAWS) -> MeanTerms:
    """P_ii and the terms of unrestricted copies, averaged over draws.

    Under an approximated covariance they come from the records around each, at a few draws
    (:mod:`dsstan.covariance.vecchia.exposure`). Else up to 8 draws they are computed at each; for
    more they are interpolated over (log phi, log r), and nodes are added until the error at the
    middle draw is below the tolerance. Kept as long as the fit is.

    Parameters
    ----------
    fit
        The unrestricted fit.
    draws
        Spread over the chains; at least 2.

    Raises
    ------
    InputError
        If the fit is restricted, or there are not so many draws.
    """
    if fit.kind != "unrestricted":
        raise InputError("the leave-one-out benchmark comes from the unrestricted fit")
    require_gaussian(fit)
    require_complete(fit.problem)
    draws = min(draws, fit.covariance.draws_by_default(fit, np.ones(fit.problem.n_records)))
    picks = averaged_draws(fit, draws)
    known = _KNOWN.setdefault(fit, {})
    if len(picks) not in known:
        with threadpool_limits(limits=1, user_api="blas"):
            known[len(picks)] = mean_terms(fit, picks)
    return known[len(picks)]


def averaged_draws(fit: Fit, draws: int) -> Indices:
    """Positions of the draws to average over, 2 at least: the leak is a variance over them."""
    check_count("draws", draws, least=2)
    check_count("the number of the fit's draws", fit.n_draws, least=2)
    return spread_draws(fit, min(int(draws), fit.n_draws))


def leave_one_out_precision(fit: Fit, *, draws: int = DRAWS) -> Floats:
    """Inverse of the variance of :func:`leave_one_out`, shape (N,).

    It is exactly 0 where a record has a coefficient of its own, on which the others say nothing.

    Raises
    ------
    InputError
        If the fit is restricted.
    """
    return np.asarray(leave_one_out(fit, draws=draws).sd ** -2.0)


def leave_one_out(fit: Fit, *, draws: int = DRAWS) -> LeaveOneOut:
    """What somebody who knows all other records, and sees no copy, can say of each.

    Kept as long as the fit is.

    Parameters
    ----------
    fit
        The unrestricted fit.
    draws
        Spread over the chains; at least 2.

    Raises
    ------
    InputError
        If the fit is restricted, or there are not so many draws.
    """
    found = unrestricted_terms(fit, draws)
    known = _LAWS.setdefault(fit, {})
    if found.draws not in known:
        known[found.draws] = _law(fit, found)
    return known[found.draws]


def _law(fit: Fit, found: MeanTerms) -> LeaveOneOut:
    """The mixture over the draws, and a grid where its weights can not be trusted."""
    there = found.precision > 0
    precision = np.stack([t.precision for t in found.terms if t.precision is not None])[:, there]
    score = np.stack([t.score for t in found.terms])[:, there]
    weight, k = smoothed_weights(0.5 * np.log(precision) - 0.5 * score**2 / precision)
    shift = -score / precision  # the mean, from y_i
    mean = np.sum(weight * shift, axis=0)
    each = 1.0 / precision + (shift - mean) ** 2
    variance = np.sum(weight * each, axis=0)
    # A weighted mean's error; the weights take the place of 1 / S.
    parts = len(weight) * weight * (each - variance)
    error = spread_of_one(parts, found.chains) / np.sqrt(len(weight))
    doubtful = ~(k <= RELIABLE_K)
    averaged = 1.0 / found.precision[there]
    variance[doubtful] = np.minimum(variance, averaged)[doubtful]
    n = len(there)
    sd, pareto_k, of_sd = np.full(n, np.inf), np.zeros(n), np.zeros(n)
    integrated = np.zeros(n, dtype=bool)
    sd[there], pareto_k[there] = np.sqrt(variance), k
    of_sd[there] = 0.5 * error / np.sqrt(variance)
    with np.errstate(invalid="ignore"):
        coarse = there & ((pareto_k > RELIABLE_K) | (of_sd > LARGE_ERROR * sd))
    if np.any(coarse) and len(found.terms) >= FEWEST and integrable(fit):
        integrated = coarse
        sd[integrated] = leave_one_out_sd(fit, np.flatnonzero(integrated))
        of_sd[integrated] = 0.0
    return LeaveOneOut(sd, pareto_k, of_sd, integrated)


def smoothed_weights(log_density: Floats) -> tuple[Floats, Floats]:
    """Weights proportional to 1 / density over the draws, their tail smoothed, and Pareto k.

    Parameters
    ----------
    log_density
        Shape (S, N).

    Returns
    -------
    weights
        Shape (S, N); each column sums to 1.
    k
        Shape (N,); NaN of fewer than 50 draws, whose weights are not smoothed.
    """
    log_weight = -log_density
    k = np.full(log_weight.shape[1], np.nan)
    if len(log_weight) >= FEWEST:
        from arviz_stats.base import array_stats  # a second to import

        k[:] = 0.0
        for i in np.flatnonzero(np.ptp(log_density, axis=0) > EQUAL):
            with np.errstate(all="ignore"):
                smooth, tail = array_stats.psislw(log_density[:, i])
            if np.isfinite(tail):
                log_weight[:, i], k[i] = smooth, tail
            else:
                k[i] = np.inf
    weight = np.exp(log_weight - log_weight.max(axis=0))
    return np.asarray(weight / weight.sum(axis=0)), k


def mean_terms(
    fit: Fit, picks: Indices, effect: str = "w", noise: Floats | None = None
) -> MeanTerms:
    """The terms of a fit over some of its draws; copies carry ``effect`` and ``noise``."""
    terms = terms_at(fit, picks, effect, noise)
    precision = np.full(fit.problem.n_records, np.nan)
    found = [t.precision for t in terms if t.precision is not None]
    if fit.kind == "unrestricted" and found:
        precision = np.mean(found, axis=0)
        precision[alone(fit.problem.X)] = 0.0
    return MeanTerms.over(precision, terms, fit.shape[0])


def terms_at(
    fit: Fit, picks: Indices, effect: str = "w", noise: Floats | None = None
) -> list[Terms]:
    """The terms of a fit at some of its draws; ``noise`` as in :func:`dsstan.synthesise`."""
    points = [parameters_at(fit, int(chain), int(iteration)) for chain, iteration in picks]
    if fit.smoothing_moves:
        return [
            fit.covariance.attack_terms(one, [p], carried_at(one.A, fit.flagged, effect))[0]
            for one, p in ((fit.with_smoothing_at(p), p) for p in points)
        ]
    return fit.covariance.attack_terms(fit, points, carried_at(fit.A, fit.flagged, effect), noise)
