"""Compiled loops of the Vecchia approximation: ordering and statistics.

Nothing here knows of fits or problems; every function takes arrays. Sums over records are taken
block by block, in the order of the records, so their bytes do not depend on the number of threads.
"""

# The loops are written out, since that is what numba compiles.
from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np
from numba import njit, prange

BLOCK = 2048
"""Records whose terms are summed before the sums of blocks are added."""

PARALLEL = threading.Lock()
"""To be held around a function that runs on all cores: not every threading layer of numba allows
two such at once."""

LANES = 16
"""Records that go through the arithmetic side by side, as the processor's vectors do."""

_FLUSH = 2  # times LANES factors of a determinant are multiplied before a logarithm is taken


@njit(cache=True, inline="always")
def _correlation(d: float, phi: float, code: int) -> float:
    u = phi * d
    e = math.exp(-u)
    if code == 1:
        return e
    if code == 2:
        return e * (1.0 + u)
    return e * (1.0 + u + u * u / 3.0)


@njit(cache=True, nogil=True, error_model="numpy")
def _tridiagonal(m: Any, w: Any, n: int, k: int, v: Any, p: Any, s: Any, tau: Any) -> None:
    """Reduce symmetric matrices to tridiagonal form in place, keeping the first axis of each.

    Householder's reflections, of LANES matrices side by side. Only the lower triangles of m,
    shape (n, n, LANES), are read and written; afterwards its diagonal and the entries below
    it hold the tridiagonal matrices. The reflections are applied to w, shape (n, k, LANES).
    """
    for j in range(n - 2):
        for e in range(LANES):
            s[e] = 0.0
        for i in range(j + 2, n):
            for e in range(LANES):
                s[e] += m[i, j, e] * m[i, j, e]
        for e in range(LANES):
            x = m[j + 1, j, e]
            norm = math.sqrt(s[e] + x * x)
            alpha = -norm if x > 0.0 else norm
            first = x - alpha
            some = s[e] > 0.0
            # I - tau v v' with v = (1, ...); nothing where the column is clear already.
            tau[e] = -first / alpha if some else 0.0
            s[e] = 1.0 / first if some else 0.0
            v[j + 1, e] = 1.0
            m[j + 1, j, e] = alpha if some else x
        for i in range(j + 2, n):
            for e in range(LANES):
                v[i, e] = m[i, j, e] * s[e]
        for i in range(j + 1, n):
            for e in range(LANES):
                p[i, e] = 0.0
        for i in range(j + 1, n):
            for e in range(LANES):
                p[i, e] += m[i, i, e] * v[i, e]
            for o in range(j + 1, i):
                for e in range(LANES):
                    p[i, e] += m[i, o, e] * v[o, e]
                    p[o, e] += m[i, o, e] * v[i, e]
        for e in range(LANES):
            s[e] = 0.0
        for i in range(j + 1, n):
            for e in range(LANES):
                p[i, e] *= tau[e]
                s[e] += p[i, e] * v[i, e]
        for e in range(LANES):
            s[e] *= 0.5 * tau[e]
        for i in range(j + 1, n):
            for e in range(LANES):
                p[i, e] -= s[e] * v[i, e]
        for i in range(j + 1, n):
            for o in range(j + 1, i + 1):
                for e in range(LANES):
                    m[i, o, e] -= v[i, e] * p[o, e] + p[i, e] * v[o, e]
        for c in range(k):
            for e in range(LANES):
                s[e] = 0.0
            for i in range(j + 1, n):
                for e in range(LANES):
                    s[e] += v[i, e] * w[i, c, e]
            for e in range(LANES):
                s[e] *= tau[e]
            for i in range(j + 1, n):
                for e in range(LANES):
                    w[i, c, e] -= s[e] * v[i, e]


@njit(cache=True, nogil=True, parallel=True, error_model="numpy")
def node_sums(
    sites: Any,
    a: Any,
    own: Any,
    z: Any,
    neighbours: Any,
    records: Any,
    phi: Any,
    r: Any,
    code: int,
) -> Any:
    """Sums over blocks of records of their terms at every node.

    Parameters
    ----------
    sites, a, own, z
        In the ordering: sites (n, 2); diagonal of A and of M (n,); rotated data (n, k).
    neighbours
        Positions of earlier records, nearest first, -1 where there are fewer, shape (n, m).
    records
        Positions whose terms are summed, shape (q,).
    phi, r
        Nodes, shapes (G,) and (H,).
    code
        Of the correlation function.

    Returns
    -------
    ndarray
        Shape (blocks, G, 1 + k (k + 1) / 2, H): log F - log(1 + r), then the lower triangle of
        (1 + r) z z' / F, F and z the conditional variance and residual given the neighbours.
    """
    k, g, h = z.shape[1], phi.size, r.size
    n = neighbours.shape[1] + 1
    blocks = (records.size + BLOCK - 1) // BLOCK
    out = np.zeros((blocks, g, 1 + k * (k + 1) // 2, h))
    for b in prange(blocks):
        mat = np.empty((n, n, LANES))
        dist = np.empty((n, n, LANES))
        factor = np.empty((n, n, LANES))
        diagonal = np.empty((n, LANES))
        rows = np.empty((n, k, LANES))
        raw = np.empty((n, k, LANES))
        v, p = np.empty((n, LANES)), np.empty((n, LANES))
        s, tau = np.empty(LANES), np.empty(LANES)
        d, f = np.empty(LANES), np.empty(LANES)
        w = np.empty((k, LANES))
        product = np.ones((g, h))
        who = np.empty(n, np.int64)
        last = min((b + 1) * BLOCK, records.size)
        since = 0
        for first in range(b * BLOCK, last, LANES):
            there = min(LANES, last - first)
            for e in range(LANES):
                # A lane or a neighbour that is not there is a record apart, with z = 0.
                who[0] = records[first + e] if e < there else -1
                for x in range(1, n):
                    who[x] = neighbours[who[0], x - 1] if e < there else -1
                for x in range(n):
                    i = who[x]
                    diagonal[x, e] = own[i] if i >= 0 else 1.0
                    for c in range(k):
                        raw[x, c, e] = z[i, c] if i >= 0 else 0.0
                    for y in range(x):
                        o = who[y]
                        if i >= 0 and o >= 0:
                            dx = sites[i, 0] - sites[o, 0]
                            dy = sites[i, 1] - sites[o, 1]
                            dist[x, y, e] = math.sqrt(dx * dx + dy * dy)
                            factor[x, y, e] = a[i] * a[o]
                        else:
                            dist[x, y, e] = 0.0
                            factor[x, y, e] = 0.0
            for node in range(g):
                for x in range(n):
                    for e in range(LANES):
                        mat[x, x, e] = diagonal[x, e]
                    for y in range(x):
                        for e in range(LANES):
                            rho = _correlation(dist[x, y, e], phi[node], code)
                            mat[x, y, e] = factor[x, y, e] * rho
                    for c in range(k):
                        for e in range(LANES):
                            rows[x, c, e] = raw[x, c, e]
                _tridiagonal(mat, rows, n, k, v, p, s, tau)
                for q in range(h):
                    ratio = r[q]
                    for e in range(LANES):
                        d[e] = mat[n - 1, n - 1, e] + ratio
                    for c in range(k):
                        for e in range(LANES):
                            w[c, e] = rows[n - 1, c, e]
                    for x in range(n - 2, -1, -1):
                        for e in range(LANES):
                            f[e] = mat[x + 1, x, e] / d[e]
                            d[e] = mat[x, x, e] + ratio - mat[x + 1, x, e] * f[e]
                        for c in range(k):
                            for e in range(LANES):
                                w[c, e] = rows[x, c, e] - f[e] * w[c, e]
                    for e in range(LANES):
                        f[e] = (1.0 + ratio) / d[e]
                    for e in range(there):
                        product[node, q] *= f[e]
                    at = 1
                    for c in range(k):
                        for other in range(c + 1):
                            total = 0.0
                            for e in range(LANES):
                                total += f[e] * w[c, e] * w[other, e]
                            out[b, node, at, q] += total
                            at += 1
            since += 1
            if since == _FLUSH or first + LANES >= last:
                since = 0
                for node in range(g):
                    for q in range(h):
                        out[b, node, 0, q] -= math.log(product[node, q])
                        product[node, q] = 1.0
    return out


@njit(cache=True, nogil=True, error_model="numpy")
def _sink(heap: Any, where: Any, key: Any, label: Any, at: int, size: int) -> None:
    """Let the entry at a place of a max-heap sink to where it belongs; ties by label."""
    moving = heap[at]
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        other = child + 1
        if other < size:
            left, right = heap[child], heap[other]
            if key[right] > key[left] or (key[right] == key[left] and label[right] < label[left]):
                child = other
        best = heap[child]
        if key[best] > key[moving] or (key[best] == key[moving] and label[best] < label[moving]):
            heap[at] = best
            where[best] = at
            at = child
        else:
            break
    heap[at] = moving
    where[moving] = at


@njit(cache=True, nogil=True, error_model="numpy")
def maxmin_order(
    places: Any, label: Any, begin: Any, end: Any, left: Any, box: Any, first: int
) -> Any:
    """The max-min order of places, from place ``first`` on; ties go to the smaller label.

    A heap holds each place's squared distance to those taken. Only places within the distance
    of the one just taken can come nearer, and a tree of boxes finds them: about log(n) each.

    Parameters
    ----------
    places, label
        Sorted along the tree, shape (n, 2), and their original positions, shape (n,).
    begin, end, left, box
        Node t of the tree holds the places from ``begin[t]`` to ``end[t]``, which lie in the box
        ``box[t]`` (low x, low y, high x, high y); its halves are the nodes ``left[t]`` and
        ``left[t] + 1``, or -1 for a leaf. Node 0 holds all.
    first
        Where to start.
    """
    n = places.shape[0]
    key = np.full(n, np.inf)
    heap, where = np.arange(n), np.arange(n)
    order = np.empty(n, np.int64)
    taken = np.zeros(n, np.bool_)
    stack = np.empty(256, np.int64)
    size = n
    heap[0], heap[first] = first, heap[0]
    where[first], where[heap[first]] = 0, first
    for step in range(n):
        i = heap[0]
        radius = key[i]
        order[step] = label[i]
        taken[i] = True
        size -= 1
        heap[0] = heap[size]
        where[heap[0]] = 0
        if size == 0:
            break
        _sink(heap, where, key, label, 0, size)
        x, y = places[i, 0], places[i, 1]
        stack[0], top = 0, 1
        while top > 0:
            top -= 1
            t = stack[top]
            dx = max(box[t, 0] - x, x - box[t, 2], 0.0)
            dy = max(box[t, 1] - y, y - box[t, 3], 0.0)
            if dx * dx + dy * dy >= radius:
                continue
            if left[t] >= 0:
                stack[top], stack[top + 1] = left[t], left[t] + 1
                top += 2
                continue
            for o in range(begin[t], end[t]):
                if taken[o]:
                    continue
                dx, dy = places[o, 0] - x, places[o, 1] - y
                square = dx * dx + dy * dy
                if square < key[o]:
                    key[o] = square
                    if step > 0:
                        _sink(heap, where, key, label, where[o], size)
        if step == 0:
            for at in range(size // 2 - 1, -1, -1):
                _sink(heap, where, key, label, at, size)
    return order
