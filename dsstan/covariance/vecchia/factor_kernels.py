"""Compiled loops of the sparse factor: weights of the neighbours, and products with I - B."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit, prange

from dsstan.covariance.vecchia.kernels import BLOCK, _correlation


@njit(cache=True, nogil=True, error_model="numpy")
def _weigh(
    sites: Any,
    a: Any,
    own: Any,
    neighbours: Any,
    phi: float,
    r: float,
    code: int,
    low: int,
    high: int,
    weights: Any,
    variance: Any,
) -> None:
    """Fill the rows from ``low`` to ``high`` of weights and variances."""
    m = neighbours.shape[1]
    root = np.empty((m + 1, m + 1))
    half = np.empty(m + 1)
    for i in range(low, high):
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
        high = min((b + 1) * BLOCK, n)
        _weigh(sites, a, own, neighbours, phi, r, code, b * BLOCK, high, weights, variance)
    return weights, variance


@njit(cache=True, nogil=True, error_model="numpy")
def process_weights(sites: Any, neighbours: Any, phi: float, code: int) -> Any:
    """Weights and variance of each site of a process of partial sill 1, on one core.

    As :func:`conditional_weights`, for chains that run side by side.
    """
    n, m = neighbours.shape
    weights, variance = np.zeros((n, m)), np.empty(n)
    ones = np.ones(n)
    _weigh(sites, ones, ones, neighbours, phi, 0.0, code, 0, n, weights, variance)
    return weights, variance


@njit(cache=True, nogil=True, error_model="numpy")
def pair_slots(neighbours: Any) -> Any:
    """Where a pair of neighbours of one site are themselves site and neighbour.

    Returns
    -------
    ndarray
        Shape (n, m (m - 1) / 2), for neighbours x > y of site l in the order (1, 0), (2, 0),
        (2, 1), ...: the position k m + s in the flattened table of neighbours where one of the
        two is the s-th neighbour of the other, k; -1 where neither is.
    """
    n, m = neighbours.shape
    slots = np.full((n, m * (m - 1) // 2), -1, np.int32)
    for i in range(n):
        at = 0
        for x in range(1, m):
            for y in range(x):
                first = min(neighbours[i, x], neighbours[i, y])
                last = max(neighbours[i, x], neighbours[i, y])
                if first >= 0:
                    for s in range(m):
                        if neighbours[last, s] == first:
                            slots[i, at] = last * m + s
                            break
                at += 1
    return slots


@njit(cache=True, nogil=True, error_model="numpy")
def conditioned_weights(
    weights: Any, variance: Any, precision: Any, neighbours: Any, slots: Any
) -> Any:
    """Weights and variances of a process that was observed with independent noise, nearly.

    The precision given the data is ``(I - B)' F^-1 (I - B) + D``. Its Cholesky factor, last site
    first, is kept to the entries that B has (incomplete factorisation: Schafer, Katzfuss and
    Owhadi 2021, *SIAM Journal on Scientific Computing* 43), and so it is again a process in which
    each site has weights of the same neighbours. Exact where D is zero.

    Parameters
    ----------
    weights, variance
        B and F, shapes (n, m) and (n,).
    precision
        D, of what was observed at each site; 0 where nothing was. Shape (n,).
    neighbours, slots
        Shape (n, m), and as :func:`pair_slots` gives them.

    Returns
    -------
    weights, variance
        Of the process given the data, shapes (n, m) and (n,).
    """
    n, m = neighbours.shape
    diagonal = precision.copy()
    beside = np.zeros(n * m)
    for i in range(n):
        own = 1.0 / variance[i]
        diagonal[i] += own
        at = 0
        for x in range(m):
            j = neighbours[i, x]
            if j < 0:
                break
            share = weights[i, x] * own
            diagonal[j] += share * weights[i, x]
            beside[i * m + x] -= share
            for y in range(x):
                slot = slots[i, at]
                if slot >= 0:
                    beside[slot] += share * weights[i, y]
                at += 1
    new, left = np.zeros((n, m)), np.empty(n)
    for i in range(n - 1, -1, -1):
        # Data only add to what a site's own law given the sites before it says.
        own = max(diagonal[i], 1.0 / variance[i] + precision[i])
        left[i] = 1.0 / own
        at = 0
        for x in range(m):
            j = neighbours[i, x]
            if j < 0:
                break
            weight = -beside[i * m + x] / own
            new[i, x] = weight
            share = weight * own
            diagonal[j] -= share * weight
            for y in range(x):
                slot = slots[i, at]
                if slot >= 0:
                    beside[slot] -= share * new[i, y]
                at += 1
    return new, left


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
