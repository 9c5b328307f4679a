"""Compiled loop of the terms of each record from its surroundings; see :mod:`.exposure`.

With C the factor on w in the copies, the covariance of a copy given y and the coefficients is
S = C W C + tau_sq I, W = (K^-1 + A D^-1 A)^-1. With g^2 = C^2 + tau_sq A D^-1 A and h = C / g,

    S^-1 = (I - h^2) / tau_sq + h (g K g + tau_sq I)^-1 h,

so that two factors of matrices of the size of the surroundings are all that a record needs, at
any smoothing: nothing is divided by A, by C or by K.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit, prange

from dsstan.covariance.vecchia.kernels import _correlation

BLOCK = 512
"""Records of a piece of work."""

LANES = 8
"""Records that go through the arithmetic side by side, as the processor's vectors do."""


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract"})
def _factor(m: Any, n: int) -> None:
    """Cholesky factors of the lower triangles of m, shape (n, n, LANES), in place.

    On the diagonals are their inverses.
    """
    total = np.empty(LANES)
    for x in range(n):
        for y in range(x + 1):
            for e in range(LANES):
                total[e] = m[x, y, e]
            for o in range(y):
                for e in range(LANES):
                    total[e] -= m[x, o, e] * m[y, o, e]
            if y < x:
                for e in range(LANES):
                    m[x, y, e] = total[e] * m[y, y, e]
            else:
                for e in range(LANES):
                    m[x, x, e] = 1.0 / math.sqrt(total[e])


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract"})
def _forward(m: Any, v: Any, n: int) -> None:
    """L^-1 of each column of v in place, v of shape (columns, n, LANES)."""
    for j in range(v.shape[0]):
        for x in range(n):
            for o in range(x):
                for e in range(LANES):
                    v[j, x, e] -= m[x, o, e] * v[j, o, e]
            for e in range(LANES):
                v[j, x, e] *= m[x, x, e]


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract"})
def _back(m: Any, v: Any, n: int) -> None:
    """L'^-1 of each column of v in place, v of shape (columns, n, LANES)."""
    for j in range(v.shape[0]):
        for x in range(n - 1, -1, -1):
            for e in range(LANES):
                v[j, x, e] *= m[x, x, e]
            for o in range(x):
                for e in range(LANES):
                    v[j, o, e] -= m[x, o, e] * v[j, x, e]


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract"})
def _times(rho: Any, v: Any, out: Any, n: int) -> None:
    """Symmetric matrices, of which rho has the lower triangles, times each column of v."""
    for j in range(v.shape[0]):
        for x in range(n):
            for e in range(LANES):
                out[j, x, e] = rho[x, x, e] * v[j, x, e]
            for o in range(x):
                for e in range(LANES):
                    out[j, x, e] += rho[x, o, e] * v[j, o, e]
                    out[j, o, e] += rho[x, o, e] * v[j, x, e]


@njit(cache=True, nogil=True, parallel=True, error_model="numpy")
def surroundings_sums(
    near: Any,
    sites: Any,
    a: Any,
    carried: Any,
    removed: Any,
    there: Any,
    X: Any,
    y: Any,
    beta: Any,
    cov: Any,
    theta: Any,
    code: int,
) -> Any:
    """What the terms of each record are made of, at each of some draws.

    Parameters
    ----------
    near
        Each record and those around it, itself first, shape (n, q).
    sites, a, carried, removed, there, X, y
        Of all records: places (N, 2), diagonal of A, factor on w in the copies, the variance that
        smoothing removes and returns as noise, of 1, whether the record informs the fit, design
        matrix (N, P) and response.
    beta, cov
        Coefficients and their covariance (X'V^-1 X)^-1 at each draw, shapes (S, P) and (S, P, P).
    theta
        sigma_sq, tau_sq and phi of each draw, shape (S, 3).
    code
        Of the correlation function.

    Returns
    -------
    ndarray
        Shape (S, n, 4 + 4 P): c'u, exposure, score, P_ii; t; the record's rows of J and S^-1 J; its
        column of B.
    """
    n, q = near.shape
    k, draws, last = X.shape[1], len(theta), q - 1
    out = np.zeros((draws, n, 4 + 4 * k))
    for block in prange((n + BLOCK - 1) // BLOCK):
        distance, rho = np.empty((q, q, LANES)), np.empty((q, q, LANES))
        m = np.empty((q, q, LANES))
        row = np.empty((q, LANES), np.int64)
        ax, g, h = np.empty((q, LANES)), np.empty((q, LANES)), np.empty((q, LANES))
        diagonal, rest = np.empty((q, LANES)), np.empty((q, LANES))
        # Columns: those of X, and the record's own axis.
        v, both = np.empty((k + 1, q, LANES)), np.empty((k + 1, q, LANES))
        VX, some = np.empty((k, LANES)), np.empty((k + 1, LANES))
        score = np.empty(LANES)
        for first in range(block * BLOCK, min((block + 1) * BLOCK, n), LANES):
            lanes = min(LANES, n - first)
            # The record itself comes last, so that its own axis is solved for in one step.
            for x in range(q):
                for e in range(LANES):
                    row[x, e] = near[first + min(e, lanes - 1), last - x]
            for x in range(q):
                for o in range(x + 1):
                    for e in range(LANES):
                        dx = sites[row[x, e], 0] - sites[row[o, e], 0]
                        dy = sites[row[x, e], 1] - sites[row[o, e], 1]
                        distance[x, o, e] = math.sqrt(dx * dx + dy * dy)
            for s in range(draws):
                sigma_sq, tau_sq, phi = theta[s, 0], theta[s, 1], theta[s, 2]
                if s == 0 or phi != theta[s - 1, 2]:
                    for x in range(q):
                        for o in range(x + 1):
                            for e in range(LANES):
                                rho[x, o, e] = _correlation(distance[x, o, e], phi, code)
                for x in range(q):
                    for e in range(LANES):
                        i = row[x, e]
                        ax[x, e] = a[i] if there[i] else 0.0
                        noise = tau_sq + sigma_sq * removed[i]
                        diagonal[x, e] = noise if there[i] else 1.0
                        gain = ax[x, e] ** 2 / noise
                        square = carried[i] ** 2 + tau_sq * gain
                        g[x, e] = math.sqrt(square)
                        h[x, e] = carried[i] / g[x, e] if square > 0.0 else 0.0
                        # (1 - h^2) / tau_sq, without the difference of two like numbers.
                        rest[x, e] = gain / square if square > 0.0 else 1.0 / tau_sq
                        for j in range(k):
                            v[j, x, e] = X[i, j] if there[i] else 0.0
                        v[k, x, e] = 1.0 if x == last else 0.0
                for x in range(q):
                    for o in range(x + 1):
                        for e in range(LANES):
                            m[x, o, e] = sigma_sq * ax[x, e] * ax[o, e] * rho[x, o, e]
                    for e in range(LANES):
                        m[x, x, e] += diagonal[x, e]
                _factor(m, q)
                _forward(m, v, q)
                _back(m, v, q)
                # With z = V^-1 e, e the record's own axis: X'z, the score and P_ii; then
                # J = X - C K A V^-1 X and c = C K A z.
                VX[:] = 0.0
                score[:] = 0.0
                for x in range(q):
                    for e in range(LANES):
                        i, z = row[x, e], v[k, x, e]
                        if there[i]:
                            residual = y[i]
                            for j in range(k):
                                VX[j, e] += z * X[i, j]
                                residual -= X[i, j] * beta[s, j]
                            score[e] += z * residual
                own = v[k, last].copy()
                for j in range(k + 1):
                    for x in range(q):
                        for e in range(LANES):
                            v[j, x, e] *= sigma_sq * ax[x, e]
                _times(rho, v, both, q)
                for x in range(q):
                    for e in range(LANES):
                        i = row[x, e]
                        for j in range(k):
                            both[j, x, e] = X[i, j] - carried[i] * both[j, x, e]
                        both[k, x, e] *= carried[i]
                for e in range(lanes):
                    if not there[row[last, e]]:
                        continue
                    exposure, precision = both[k, last, e], own[e]
                    for j in range(k):
                        value = 0.0
                        for o in range(k):
                            value += cov[s, j, o] * VX[o, e]
                        out[s, first + e, 4 + 3 * k + j] = value
                        exposure += both[j, last, e] * value
                        precision -= VX[j, e] * value
                    out[s, first + e, 1] = exposure
                    out[s, first + e, 2] = score[e]
                    out[s, first + e, 3] = precision
                # S^-1 by its two parts, between c and each column.
                for x in range(q):
                    for o in range(x + 1):
                        for e in range(LANES):
                            m[x, o, e] = sigma_sq * g[x, e] * g[o, e] * rho[x, o, e]
                    for e in range(LANES):
                        m[x, x, e] += tau_sq
                _factor(m, q)
                for j in range(k + 1):
                    for x in range(q):
                        for e in range(LANES):
                            v[j, x, e] = h[x, e] * both[j, x, e]
                _forward(m, v, q)
                some[:] = 0.0
                for j in range(k + 1):
                    for x in range(q):
                        for e in range(LANES):
                            some[j, e] += rest[x, e] * both[k, x, e] * both[j, x, e]
                            some[j, e] += v[k, x, e] * v[j, x, e]
                for e in range(lanes):
                    here = out[s, first + e]
                    here[0] = some[k, e]
                    for j in range(k):
                        J = both[j, last, e]
                        here[4 + j], here[4 + k + j] = some[j, e], J
                        back = m[last, last, e] * v[j, last, e]
                        here[4 + 2 * k + j] = rest[last, e] * J + h[last, e] * back
    return out
