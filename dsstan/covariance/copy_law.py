"""The law of a copy given y, as a function of y, under the exact covariance.

A copy is normal given y and the variances, with a mean that is linear in y: that map and the
covariance are all that an intruder needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from dsstan.core.arrays import Floats
from dsstan.core.chebyshev import ChebyshevGrid
from dsstan.covariance.base import Parameters, Terms
from dsstan.covariance.eigenbasis import TINY, TOLERANCE, alone
from dsstan.covariance.latent import LatentModel

NODES = (12, 24, 48)
"""Numbers of nodes of log r tried until the tolerance of the terms is met."""


@dataclass(frozen=True, eq=False)
class CopyLaw:
    """Law of one copy given y and one draw of the parameters' variances.

    Attributes
    ----------
    H
        dE[copy]/dy, shape (N, N); column i is what record i does to the copy.
        Columns of records that left the fit (``cut``) are zero.
    Vs
        Covariance of the copy given y, shape (N, N), the coefficients'
        uncertainty and added noise included.
    score
        (P y)_i with P of the fitted model, shape (N,): minus the derivative by y_i
        of the log likelihood of the variances, zero for records that left the fit.
    """

    H: Floats
    Vs: Floats
    score: Floats


def copy_law(
    latent: LatentModel, p: Parameters, carried: Floats, noise: Floats | None = None
) -> CopyLaw:
    """Mean map and covariance of a copy under flat priors of the coefficients.

    Parameters
    ----------
    latent
        Of the model that the copies come from.
    p
        One draw; its coefficients are integrated out.
    carried
        Factor on w in the copies, shape (N,); see
        :func:`dsstan.models.predictive.carried_effect`.
    noise
        sd of the independent noise added to each value of a copy, shape (N,), or None.
    """
    problem = latent.model.problem
    n = problem.n_records
    rows, a, X, Xr = latent.rows, latent.a_rows, problem.X, latent.X
    R, _, M = latent.parts(p.phi)
    factor = covariance_factor(M, p)
    K = p.sigma_sq * R[np.ix_(latent.site, latent.site)]
    KA = carried[:, None] * K[:, rows] * a
    gain = cho_solve(factor, KA.T, check_finite=False).T  # c K A V^-1
    VX = cho_solve(factor, Xr, check_finite=False)
    G = np.linalg.inv(Xr.T @ VX)
    B = G @ VX.T
    J = X - gain @ Xr
    H = np.zeros((n, n))
    H[:, rows] = gain + J @ B
    Vs = carried[:, None] * K * carried - gain @ KA.T + J @ G @ J.T
    Vs[np.diag_indices_from(Vs)] += p.tau_sq if noise is None else p.tau_sq + noise**2
    score = np.zeros(n)
    residual = latent.y - Xr @ (B @ latent.y)
    score[rows] = cho_solve(factor, residual, check_finite=False)
    return CopyLaw(H, 0.5 * (Vs + Vs.T), score)


def copy_terms(
    latent: LatentModel, p: Parameters, carried: Floats, noise: Floats | None = None
) -> Terms:
    """The intruder's terms at one draw, of the order of N^3 operations."""
    law = copy_law(latent, p, carried, noise)
    root = np.linalg.cholesky(law.Vs)
    z = solve_triangular(root, law.H, lower=True, check_finite=False)
    return Terms(np.einsum("ij,ij->j", z, z), np.diag(law.H).copy(), law.score)


def terms_at_draws(
    latent: LatentModel, points: Sequence[Parameters], carried: Floats
) -> list[Terms]:
    """The terms at some draws.

    Where all have one phi they are functions of r alone, up to a power of sigma_sq: of many
    draws they are computed at Chebyshev nodes of log r and interpolated, with nodes added until
    the error at the middle draw is below the tolerance.
    """
    one = len({p.phi for p in points}) == 1
    counts = [count for count in NODES if one and count < len(points)]
    if not counts:
        return [copy_terms(latent, p, carried) for p in points]
    ratios = [p.tau_sq / p.sigma_sq for p in points]
    checked = points[int(np.argsort(ratios)[len(points) // 2])]
    exact = _scaled(copy_terms(latent, checked, carried), checked.sigma_sq)
    size = np.max(np.abs(exact), axis=1, keepdims=True)
    for count in counts:
        grid = ChebyshevGrid((1, count), ((1.0, 1.0), (min(ratios), max(ratios))))
        at = [replace(checked, sigma_sq=1.0, tau_sq=float(r)) for r in grid.points[1]]
        values = np.stack([_scaled(copy_terms(latent, p, carried), 1.0) for p in at])
        values[:, 0] = np.log(np.maximum(values[:, 0], TINY))
        found = grid.on(grid.coefficients(values[None]), np.ones(1), np.array(ratios))[0]
        found[:, 0] = np.exp(found[:, 0])
        error = np.abs(found[ratios.index(checked.tau_sq / checked.sigma_sq)] - exact)
        if np.all(error <= TOLERANCE * size):
            return [
                Terms(information / p.sigma_sq, exposure, score / p.sigma_sq)
                for p, (information, exposure, score) in zip(points, found, strict=True)
            ]
    return [copy_terms(latent, p, carried) for p in points]


def _scaled(terms: Terms, sigma_sq: float) -> Floats:
    """Information, exposure and score of a partial sill of 1, shape (3, N)."""
    return np.stack([terms.information * sigma_sq, terms.exposure, terms.score * sigma_sq])


def projection(latent: LatentModel, p: Parameters) -> Floats:
    """P = V^-1 - V^-1 X (X' V^-1 X)^-1 X' V^-1 of the informing records, shape (n, n)."""
    _, _, M = latent.parts(p.phi)
    inverse = cho_solve(covariance_factor(M, p), np.eye(len(M)), check_finite=False)
    VX = inverse @ latent.X
    return np.asarray(inverse - VX @ np.linalg.solve(latent.X.T @ VX, VX.T))


def projected_precision(latent: LatentModel, p: Parameters) -> Floats:
    """Diagonal of P, shape (n,); exactly 0 where a record has a coefficient of its own."""
    return np.asarray(np.where(alone(latent.X), 0.0, np.diag(projection(latent, p))))


def covariance_factor(M: Floats, p: Parameters) -> tuple[Floats, bool]:
    """Cholesky factor of V = sigma_sq M + tau_sq I, for ``cho_solve``."""
    V = p.sigma_sq * M
    V[np.diag_indices_from(V)] += p.tau_sq
    factor, lower = cho_factor(V, lower=True, overwrite_a=True, check_finite=False)
    return factor, lower
