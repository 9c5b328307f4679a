"""The law of a copy given y, as a function of y, under the exact covariance.

A copy is normal given y and the variances, with a mean that is linear in y: that map and the
covariance are all that an intruder needs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from dsstan.covariance.base import Parameters, Terms
from dsstan.covariance.eigenbasis import alone
from dsstan.covariance.latent import LatentModel

Floats = NDArray[np.float64]


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
        uncertainty included.
    score
        (P y)_i with P of the fitted model, shape (N,): minus the derivative by y_i
        of the log likelihood of the variances, zero for records that left the fit.
    """

    H: Floats
    Vs: Floats
    score: Floats


def copy_law(latent: LatentModel, p: Parameters, carried: Floats) -> CopyLaw:
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
    Vs[np.diag_indices_from(Vs)] += p.tau_sq
    score = np.zeros(n)
    residual = latent.y - Xr @ (B @ latent.y)
    score[rows] = cho_solve(factor, residual, check_finite=False)
    return CopyLaw(H, 0.5 * (Vs + Vs.T), score)


def copy_terms(latent: LatentModel, p: Parameters, carried: Floats) -> Terms:
    """The intruder's terms at one draw, of the order of N^3 operations."""
    law = copy_law(latent, p, carried)
    root = np.linalg.cholesky(law.Vs)
    z = solve_triangular(root, law.H, lower=True, check_finite=False)
    return Terms(np.einsum("ij,ij->j", z, z), np.diag(law.H).copy(), law.score)


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
