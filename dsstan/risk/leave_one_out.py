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
from scipy.linalg import cho_factor, cho_solve
from threadpoolctl import threadpool_limits

from dsstan.core.errors import InputError
from dsstan.covariance.approximations import is_approximated
from dsstan.covariance.eigenbasis import FreeSurface, HeldBasis, Terms, alone
from dsstan.covariance.latent import (
    LatentModel,
    Parameters,
    parameters_at,
    require_complete,
    require_gaussian,
    spread_draws,
)
from dsstan.covariance.vecchia.exposure import local_draws, local_terms
from dsstan.models.fit import Fit

Floats = NDArray[np.float64]

DRAWS = 400
"""Posterior draws to average over in an eigenbasis, unless told otherwise."""

TOLERANCE = 1e-5
"""Largest error of an interpolated term, by the size of its kind (P_ii: by itself)."""

FEW_DRAWS = 8
"""Up to as many draws the terms are computed at each, not interpolated."""

NODES = ((5, 8), (8, 16), (12, 24), (18, 36), (27, 54))
"""Numbers of nodes (G, H) tried until the tolerance is met."""


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
    if is_approximated(fit.covariance):
        draws = min(draws, local_draws(fit))
    picks = averaged_draws(fit, draws)
    known = _KNOWN.setdefault(fit, {})
    if len(picks) not in known:
        with threadpool_limits(limits=1, user_api="blas"):
            known[len(picks)] = _averaged(fit, picks)
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


def _averaged(fit: Fit, picks: NDArray[np.intp]) -> MeanTerms:
    """Means and variances over these draws."""
    chosen = [parameters_at(fit, int(c), int(i)) for c, i in picks]
    if is_approximated(fit.covariance):
        own = local_terms(fit, chosen, np.ones(fit.problem.n_records))
        precision = np.mean([one.precision for one in own], axis=0)
        precision[alone(fit.problem.X)] = 0.0
        return MeanTerms.over(precision, [one.terms for one in own])
    source = _interpolant(fit, chosen) if len(chosen) > FEW_DRAWS else None
    found = [_exactly(fit, p) if source is None else source.at(p) for p in chosen]
    precision = np.mean([own for own, _ in found], axis=0)
    return MeanTerms.over(precision, [terms for _, terms in found])


def _exactly(fit: Fit, p: Parameters) -> tuple[Floats, Terms]:
    """P_ii and the terms at one draw."""
    basis = HeldBasis.unrestricted(fit.problem, p.phi, fit.cov_model)
    precision = np.where(alone(fit.problem.X), 0.0, basis.precision(p))
    return precision, basis.terms(p)


def _interpolant(fit: Fit, chosen: list[Parameters]) -> FreeSurface | None:
    """Terms as functions of (phi, r), good to the tolerance; None if no number of nodes is."""
    middle = chosen[int(np.argsort([p.phi for p in chosen])[len(chosen) // 2])]
    own, exact = _exactly(fit, middle)
    for nodes in NODES:
        surface = FreeSurface(fit.problem, chosen, nodes, fit.cov_model)
        precision, terms = surface.at(middle)
        there = own > 0
        errors = [np.max(np.abs(precision[there] / own[there] - 1.0), initial=0.0)]
        for mine, want, size in (
            (terms.information, exact.information, np.max(exact.information)),
            (terms.exposure, exact.exposure, 1.0),
            (terms.score, exact.score, np.sqrt(np.max(own))),  # the score's own sd
        ):
            errors.append(np.max(np.abs(mine - want)) / size)
        if max(errors) < TOLERANCE:
            return surface
    return None


def projection(model: LatentModel, p: Parameters) -> Floats:
    """P = V^-1 - V^-1 X (X' V^-1 X)^-1 X' V^-1 of the informing records, shape (n, n)."""
    _, _, M = model._parts(p.phi)
    inverse = cho_solve(covariance_factor(M, p), np.eye(len(M)), check_finite=False)
    VX = inverse @ model.X
    return np.asarray(inverse - VX @ np.linalg.solve(model.X.T @ VX, VX.T))


def projected_precision(model: LatentModel, p: Parameters) -> Floats:
    """Diagonal of P, shape (n,); exactly 0 where a record has a coefficient of its own."""
    return np.asarray(np.where(alone(model.X), 0.0, np.diag(projection(model, p))))


def covariance_factor(M: Floats, p: Parameters) -> tuple[Floats, bool]:
    """Cholesky factor of V = sigma_sq M + tau_sq I, for ``cho_solve``."""
    V = p.sigma_sq * M
    V[np.diag_indices_from(V)] += p.tau_sq
    factor, lower = cho_factor(V, lower=True, overwrite_a=True, check_finite=False)
    return factor, lower
