"""Compiled loop of the terms of each record from its surroundings; see :mod:`.exposure`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit, prange

from dsstan.covariance.vecchia.kernels import _correlation


@njit(cache=True, nogil=True, error_model="numpy")
def _factor(m: Any, n: int) -> None:
    """Cholesky factor of the lower triangle of m, in place."""
    for x in range(n):
        for y in range(x):
            value = m[x, y]
            for o in range(y):
                value -= m[x, o] * m[y, o]
            m[x, y] = value / m[y, y]
        value = m[x, x]
        for o in range(x):
            value -= m[x, o] * m[x, o]
        m[x, x] = math.sqrt(value)


@njit(cache=True, nogil=True, error_model="numpy")
def _halfway(m: Any, right: Any, n: int) -> None:
    """L^-1 right in place, row by row; L the lower triangle of m."""
    for x in range(n):
        for o in range(x):
            f = m[x, o]
            for c in range(right.shape[1]):
                right[x, c] -= f * right[o, c]
        f = 1.0 / m[x, x]
        for c in range(right.shape[1]):
            right[x, c] *= f


@njit(cache=True, nogil=True, parallel=True, error_model="numpy")
def surroundings_sums(
    near: Any,
    sites: Any,
    a: Any,
    carried: Any,
    noise: Any,
    there: Any,
    X: Any,
    residual: Any,
    cov: Any,
    sigma_sq: float,
    tau_sq: float,
    phi: float,
    code: int,
) -> Any:
    """What the terms of each record are made of.

    Parameters
    ----------
    near
        Each record and those around it, itself first, shape (n, q).
    sites, a, carried, noise, there, X, residual
        Of all records: places (N, 2), diagonal of A, factor on w in the copies, variance of
        the noise in the fit, whether the record informs it, design matrix (N, P), and
        y - X beta.
    cov
        (X'V^-1 X)^-1, shape (P, P).
    sigma_sq, tau_sq, phi, code
        One draw, and the correlation function.

    Returns
    -------
    ndarray
        Shape (n, 4 + 4 P): c'u, exposure, score, P_ii; t; the record's rows of J and S^-1 J; its
        column of B.
    """
    n, q = near.shape
    k = X.shape[1]
    out = np.zeros((n, 4 + 4 * k))
    for i in prange(n):
        V, K = np.empty((q, q)), np.empty((q, q))
        # Columns: (K A)' of the copies, X, the residual and the record's own axis.
        right = np.empty((q, q + k + 2))
        for x in range(q):
            o = near[i, x]
            for y in range(x + 1):
                p = near[i, y]
                dx, dy = sites[o, 0] - sites[p, 0], sites[o, 1] - sites[p, 1]
                K[x, y] = sigma_sq * _correlation(math.sqrt(dx * dx + dy * dy), phi, code)
                K[y, x] = K[x, y]
        for x in range(q):
            o = near[i, x]
            ax = a[o] if there[o] else 0.0
            for y in range(q):
                p = near[i, y]
                if y <= x:
                    V[x, y] = ax * K[x, y] * (a[p] if there[p] else 0.0)
                right[x, y] = ax * K[x, y] * carried[p]
            V[x, x] += noise[o] if there[o] else 1.0
            for c in range(k):
                right[x, q + c] = X[o, c] if there[o] else 0.0
            right[x, q + k] = residual[o] if there[o] else 0.0
            right[x, q + k + 1] = 1.0 if x == 0 else 0.0
        _factor(V, q)
        _halfway(V, right, q)
        mine = there[near[i, 0]]
        # S and J take the place of K and of the first columns of two.
        two = np.empty((q, 1 + k))
        for x in range(q):
            o = near[i, x]
            cx = carried[o]
            for y in range(x + 1):
                K[x, y] *= cx * carried[near[i, y]]
            K[x, x] += tau_sq
            two[x, 0] = 0.0
            for c in range(k):
                two[x, 1 + c] = X[o, c]
        for e in range(q):
            for x in range(q):
                f = right[e, x]
                for y in range(x + 1):
                    K[x, y] -= f * right[e, y]
                for c in range(k):
                    two[x, 1 + c] -= f * right[e, q + c]
                if mine:
                    two[x, 0] += f * right[e, q + k + 1]
        gain, J = two[0, 0], two[0, 1:].copy()
        _factor(K, q)
        _halfway(K, two, q)
        first = 1.0 / K[0, 0]
        for e in range(q):
            out[i, 0] += two[e, 0] * two[e, 0]
            for c in range(k):
                out[i, 4 + c] += two[e, 0] * two[e, 1 + c]
        # The record's own row of S^-1 J: back substitution to the first row.
        for c in range(k):
            for x in range(q - 1, -1, -1):
                value = two[x, 1 + c]
                for o in range(x + 1, q):
                    value -= K[o, x] * two[o, 1 + c]
                two[x, 1 + c] = value / K[x, x] if x > 0 else value * first
            out[i, 4 + k + c] = J[c]
            out[i, 4 + 2 * k + c] = two[0, 1 + c]
        if not mine:
            continue
        exposure, own = gain, 0.0
        for e in range(q):
            own += right[e, q + k + 1] ** 2
            out[i, 2] += right[e, q + k + 1] * right[e, q + k]
        VX = np.zeros(k)
        for c in range(k):
            for e in range(q):
                VX[c] += right[e, q + k + 1] * right[e, q + c]
        for c in range(k):
            value = 0.0
            for o in range(k):
                value += cov[c, o] * VX[o]
            out[i, 4 + 3 * k + c] = value
            exposure += J[c] * value
            own -= VX[c] * value
        out[i, 1], out[i, 3] = exposure, own
    return out
