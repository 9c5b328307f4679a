"""Compiled loops of the covariance of several groups, whole and by Vecchia's approximation."""

# The loops are written out, since that is what numba compiles.
from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit, prange

from dsstan.covariance.vecchia.kernels import _correlation


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})
def _given_neighbours(
    i: int,
    near: Any,
    sites: Any,
    group: Any,
    a: Any,
    removed: Any,
    T: Any,
    tau_sq: Any,
    phi: float,
    code: int,
    root: Any,
    weights: Any,
) -> float:
    """Variance of record i given its neighbours, and their weights, into ``weights``.

    Minus the number of the neighbour whose variance given those before it is not positive.
    """
    count = 0
    while count < near.size and near[count] >= 0:
        count += 1
    # Cholesky of the neighbours with the record itself as the last row.
    for x in range(count + 1):
        here = i if x == count else near[x]
        g = group[here]
        for y in range(x):
            there = near[y]
            dx = sites[here, 0] - sites[there, 0]
            dy = sites[here, 1] - sites[there, 1]
            d = math.sqrt(dx * dx + dy * dy)
            value = a[here] * a[there] * T[g, group[there]] * _correlation(d, phi, code)
            for o in range(y):
                value -= root[x, o] * root[y, o]
            root[x, y] = value / root[y, y]
        value = T[g, g] * (a[here] * a[here] + removed[here]) + tau_sq[g]
        for o in range(x):
            value -= root[x, o] * root[x, o]
        if not value > 0.0:
            return -1.0 - x
        root[x, x] = math.sqrt(value)
    for x in range(count - 1, -1, -1):
        value = root[count, x]
        for o in range(x + 1, count):
            value -= root[o, x] * weights[o]
        weights[x] = value / root[x, x]
    return float(root[count, count] ** 2)


@njit(cache=True, nogil=True, error_model="numpy")
def fill_covariance(
    sites: Any, group: Any, a: Any, removed: Any, T: Any, tau_sq: Any, phi: float, code: int, V: Any
) -> None:
    """The lower triangle of V, shape (n, n), at one set of parameters; see :func:`group_sums`."""
    n = len(group)
    for j in range(n):
        g = group[j]
        V[j, j] = T[g, g] * (a[j] * a[j] + removed[j]) + tau_sq[g]
        for i in range(j + 1, n):
            dx, dy = sites[i, 0] - sites[j, 0], sites[i, 1] - sites[j, 1]
            d = math.sqrt(dx * dx + dy * dy)
            V[i, j] = a[i] * a[j] * T[group[i], g] * _correlation(d, phi, code)


@njit(cache=True, nogil=True, parallel=True, error_model="numpy", fastmath={"reassoc", "contract"})
def group_sums(
    sites: Any,
    group: Any,
    a: Any,
    removed: Any,
    x: Any,
    y: Any,
    near: Any,
    T: Any,
    tau_sq: Any,
    phi: Any,
    code: int,
) -> Any:
    """log|V| and Z' V^-1 Z at M sets of parameters.

    Parameters
    ----------
    sites, group, a, removed
        In the ordering: places (n, 2), number of the group, diagonal of A, and the share of the
        sill that returns as noise, (n,) each.
    x, y
        Design matrix (n, P) and response (n,). Z has P columns a group, 0 outside it, and y.
    near
        Positions of earlier records, -1 where there are fewer, shape (n, m).
    T, tau_sq, phi
        Shapes (M, J, J), (M, J) and (M,).
    code
        Of the correlation function.

    Returns
    -------
    ndarray
        Shape (M, Q + 2, Q + 1), Q = J P: Z' V^-1 Z, its lower triangle alone, above log|V| in
        column 0; NaN where V is not positive definite.
    """
    n, m = near.shape
    p, groups = x.shape[1], T.shape[1]
    q = groups * p
    out = np.zeros((phi.size, q + 2, q + 1))
    for k in prange(phi.size):
        root, weights, u = np.empty((m + 1, m + 1)), np.empty(m), np.empty(q + 1)
        for i in range(n):
            variance = _given_neighbours(
                i, near[i], sites, group, a, removed, T[k], tau_sq[k], phi[k], code, root, weights
            )
            if variance < 0.0:
                out[k, q + 1, 0] = np.nan
                break
            u[:] = 0.0
            for c in range(p):
                u[group[i] * p + c] = x[i, c]
            u[q] = y[i]
            for j in range(m):
                o = near[i, j]
                if o < 0:
                    break
                for c in range(p):
                    u[group[o] * p + c] -= weights[j] * x[o, c]
                u[q] -= weights[j] * y[o]
            out[k, q + 1, 0] += math.log(variance)
            for c in range(q + 1):
                if u[c] != 0.0:
                    scaled = u[c] / variance
                    for o in range(c + 1):
                        out[k, c, o] += scaled * u[o]
    return out


@njit(cache=True, nogil=True, error_model="numpy")
def group_weights(
    sites: Any,
    group: Any,
    a: Any,
    removed: Any,
    near: Any,
    T: Any,
    tau_sq: Any,
    phi: float,
    code: int,
) -> Any:
    """Weights (n, m) and variances (n,) of the records given their neighbours, at one set."""
    n, m = near.shape
    weights, variance, root = np.zeros((n, m)), np.empty(n), np.empty((m + 1, m + 1))
    for i in range(n):
        variance[i] = _given_neighbours(
            i, near[i], sites, group, a, removed, T, tau_sq, phi, code, root, weights[i]
        )
    return weights, variance
