"""What the other records alone tell of each, and the terms of the unrestricted fit.

The benchmark of every protection is one: the leave-one-out precision P_ii of the
unrestricted model. It is averaged over many draws of (phi, r), and so are the terms
of unrestricted copies, by :class:`dsstan.covariance.eigenbasis.FreeSurface`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from dsstan.core.errors import InputError
from dsstan.covariance.base import Terms
from dsstan.covariance.eigenbasis import alone
from dsstan.covariance.latent import require_gaussian
from dsstan.models.posterior import parameters_at, spread_draws
from dsstan.models.predictive import carried_at
from dsstan.models.result import Fit
from dsstan.table.problem import require_complete

Floats = NDArray[np.float64]

DRAWS = 400
"""Posterior draws to average over in an eigenbasis, unless told otherwise."""


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
    """

    precision: Floats = field(repr=False)
    information: Floats = field(repr=False)
    exposure: Floats = field(repr=False)
    leak: Floats = field(repr=False)
    error: Floats = field(repr=False)
    draws: int

    @classmethod
    def over(cls, precision: Floats, terms: Sequence[Terms]) -> MeanTerms:
        """Means, variances and their error over the terms of at least two draws."""
        information = np.stack([t.information for t in terms])
        scores = np.stack([t.score for t in terms])
        count = len(terms)
        own = information + (scores - scores.mean(axis=0)) ** 2 * count / (count - 1)
        return cls(
            precision=precision,
            information=information.mean(axis=0),
            exposure=np.mean([t.exposure for t in terms], axis=0),
            leak=scores.var(axis=0, ddof=1),
            error=own.std(axis=0, ddof=1) / np.sqrt(count),
            draws=count,
        )


_KNOWN: WeakKeyDictionary[Fit, dict[int, MeanTerms]] = WeakKeyDictionary()
"""Terms of fits that are still in use, by number of draws."""


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


def averaged_draws(fit: Fit, draws: int) -> NDArray[np.intp]:
    """Positions of the draws to average over, 2 at least: the leak is a variance over them."""
    whole = isinstance(draws, int | np.integer) and not isinstance(draws, bool)
    if not whole or min(draws, fit.n_draws) < 2:
        raise InputError("draws must be a whole number of at least 2, of a fit with as many")
    return spread_draws(fit, min(int(draws), fit.n_draws))


def leave_one_out_precision(fit: Fit, *, draws: int = DRAWS) -> Floats:
    """P_ii of the unrestricted model, averaged over draws, shape (N,).

    1 / sqrt of it is the sd of y_i for one who knows all other records and the
    covariance parameters, and sees no copy. It is exactly 0 where a record has a
    coefficient of its own, on which the others say nothing.

    Raises
    ------
    InputError
        If the fit is restricted.
    """
    return unrestricted_terms(fit, draws).precision


def mean_terms(fit: Fit, picks: NDArray[np.intp], effect: str = "w") -> MeanTerms:
    """The terms of a fit over some of its draws; ``effect`` is the one that copies carry."""
    points = [parameters_at(fit, int(chain), int(iteration)) for chain, iteration in picks]
    if fit.smoothing_moves:
        models = [fit.with_smoothing_at(p) for p in points]
        terms = [
            fit.covariance.attack_terms(one, [p], carried_at(one.A, fit.flagged, effect))[0]
            for one, p in zip(models, points, strict=True)
        ]
    else:
        carried = carried_at(fit.A, fit.flagged, effect)
        terms = fit.covariance.attack_terms(fit, points, carried)
    precision = np.full(fit.problem.n_records, np.nan)
    found = [t.precision for t in terms if t.precision is not None]
    if fit.kind == "unrestricted" and found:
        precision = np.mean(found, axis=0)
        precision[alone(fit.problem.X)] = 0.0
    return MeanTerms.over(precision, terms)
