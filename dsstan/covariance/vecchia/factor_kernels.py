"""Compiled loops of the sparse factor: weights of the neighbours, and products with I - B."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit, prange

from dsstan.covariance.vecchia.kernels import BLOCK, _correlation


@njit(cache=True, nogil=True, parallel=True, error_model="numpy")
def conditional_weights(
    sites: Any, a: Any, own: Any, neighbours: Any, phi: float, r: float, code: int
) -> Any:
    """Weights and variance of each record given its neighbours, under M + r I.

    A neighbour that the ones before it determine to rounding, as at a site that is all but the
    same, gets no weight.

    Parameters
    ----------
    sites, a, own, neighbours, code
        As :func:`node_sums` takes them.
    phi, r
        Decay and nugget ratio, which may be 0.

    Returns
    -------
    weights, variance
        Shapes (n, m) and (n,).
    """
    n, m = neighbours.shape
    weights = np.zeros((n, m))
    variance = np.empty(n)
    blocks = (n + BLOCK - 1) // BLOCK
    for b in prange(blocks):
        root = np.empty((m + 1, m + 1))
        half = np.empty(m + 1)
        for i in range(b * BLOCK, min((b + 1) * BLOCK, n)):
            count = 0
            while count < m and neighbours[i, count] >= 0:
                count += 1
            # Cholesky of the neighbours with the record itself as the last row.
            for x in range(count + 1):
                here = i if x == count else neighbours[i, x]
                for y in range(x + 1):
                    if y == x:
                        value = own[here] + r
                        least = 1e-13 * value
                    else:
                        there = neighbours[i, y]
                        dx = sites[here, 0] - sites[there, 0]
                        dy = sites[here, 1] - sites[there, 1]
                        d = math.sqrt(dx * dx + dy * dy)
                        value = a[here] * a[there] * _correlation(d, phi, code)
                        least = 0.0
                    for o in range(y):
                        value -= root[x, o] * root[y, o]
                    if y < x:
                        root[x, y] = value / root[y, y] if root[y, y] > 0.0 else 0.0
                    elif x == count:
                        variance[i] = max(value, 0.0)
                    else:
                        root[x, x] = math.sqrt(value) if value > least else 0.0
            for x in range(count - 1, -1, -1):
                value = root[count, x]
                for o in range(x + 1, count):
                    value -= root[o, x] * half[o]
                half[x] = value / root[x, x] if root[x, x] > 0.0 else 0.0
                weights[i, x] = half[x]
    return weights, variance


@njit(cache=True, nogil=True, error_model="numpy")
def unwind(weights: Any, neighbours: Any, u: Any) -> None:
    """Solve (I - B) x = u in place: every record from those before it."""
    n, m = neighbours.shape
    for i in range(n):
        total = u[i]
        for j in range(m):
            o = neighbours[i, j]
            if o < 0:
                break
            total += weights[i, j] * u[o]
        u[i] = total


@njit(cache=True, nogil=True, error_model="numpy")
def unwind_transposed(weights: Any, neighbours: Any, u: Any) -> None:
    """Solve (I - B)' x = u in place: every record hands on to those before it."""
    n, m = neighbours.shape
    for i in range(n - 1, -1, -1):
        value = u[i]
        for j in range(m):
            o = neighbours[i, j]
            if o < 0:
                break
            u[o] += weights[i, j] * value


@njit(cache=True, nogil=True, error_model="numpy")
def wind(weights: Any, neighbours: Any, u: Any) -> Any:
    """(I - B) u: every record less what those before it say."""
    n, m = neighbours.shape
    out = np.empty(n)
    for i in range(n):
        total = u[i]
        for j in range(m):
            o = neighbours[i, j]
            if o < 0:
                break
            total -= weights[i, j] * u[o]
        out[i] = total
    return out


@njit(cache=True, nogil=True, error_model="numpy")
def wind_transposed(weights: Any, neighbours: Any, u: Any) -> None:
    """(I - B)' u in place."""
    n, m = neighbours.shape
    for i in range(n):
        value = u[i]
        for j in range(m):
            o = neighbours[i, j]
            if o < 0:
                break
            u[o] -= weights[i, j] * value
