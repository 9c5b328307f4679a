"""The modified predictive process: a process at K knots, the rest independent.

The effect at a record is what the process at the knots predicts there, and a remainder of its own
that makes its variance right again (Banerjee, Finley, Waldmann and Ericsson 2010, *JASA* 105,
"Hierarchical spatial process models for multiple traits", section 3; Finley, Sang, Banerjee and
Gelfand 2009, *CSDA* 53, equation 6):

    w = sigma (B g + delta),   B = R_sk R_kk^(-1/2),   g ~ N(0, I_K),
    delta_i ~ N(0, 1 - sum_k B_ik^2),  independent of each other and of g.

So R(phi) becomes B B' with ones on its diagonal, and C = M + r I is U U' + diag(e + r), with
U = A B and e_i = A_ii^2 (1 - sum_k B_ik^2), under ``"preserving"`` with 1 - A_ii^2 added.

- Each record has a remainder of its own. Records that share a site are therefore correlated by
  less than 1, unless a knot lies there; the exact model makes their effects equal.
- R_kk is never inverted and nothing is added to it: B is made of its eigenvectors, those left out
  whose eigenvalue is zero to rounding.
- What varies faster than the knots lie apart is taken for independent, and then separated from the
  nugget only by how it differs among sites. Without the remainder the nugget comes out too large
  (Finley et al., section 3); with it, rather too small, and phi too. At N = 400 on the unit square
  with phi 6 and tau_sq / sigma_sq 0.3 the posterior means of log tau_sq and log phi are off by 0.6
  and 0.3 with 25 knots, 0.2 and 0.09 with 100, 0.1 and 0.05 with 200 (mean of six data sets).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.polynomial.chebyshev import chebvander
from numpy.typing import NDArray
from scipy.linalg import cho_solve, cholesky

from dsstan.core.arrays import Floats
from dsstan.core.chebyshev import chebyshev_map, chebyshev_nodes
from dsstan.covariance.correlation import correlation_code
from dsstan.covariance.process.knots import basis_at, knots_of
from dsstan.covariance.protection import removed_variance
from dsstan.covariance.surface_statistics import Rotation, rotate

__all__ = ["PredictiveProcessStatistics"]

BLOCK = 1024
"""Records that go through a matrix product at a time."""

PRECISION = 1e-10
"""Largest relative error of 1 / (e + r) in the products of :func:`_products`.

An error of log|C| is at most K times this. Z'C^-1 Z is a least sum of squares, computed as such
from the coefficients that the products give, so its relative error is of the order of its square.
"""


@dataclass(frozen=True, eq=False)
class PredictiveProcessStatistics:
    """Statistics of the surface under the modified predictive process.

    Each value of phi takes one (n, K) matrix; time is of the order of n K^2.

    Attributes
    ----------
    rotation
        The data.
    knots
        Their places, shape (K, 2).
    sites, a, removed
        Planar coordinates (n, 2); diagonal of A (n,); 1 - A_ii^2 under ``"preserving"``, else 0.
    cov_model
        Correlation function.
    """

    rotation: Rotation = field(repr=False)
    knots: Floats = field(repr=False)
    sites: Floats = field(repr=False)
    a: Floats = field(repr=False)
    removed: Floats = field(repr=False)
    cov_model: str

    @classmethod
    def of(
        cls,
        sites: Floats,
        X: Floats,
        y: Floats,
        *,
        a_diag: Floats,
        protection: str,
        cov_model: str = "exponential",
        knots: int | Floats = 200,
        placement: str = "kmeans",
        seed: int = 0,
    ) -> PredictiveProcessStatistics:
        """Place the knots among the informing records.

        Parameters
        ----------
        sites, X, y
            Planar coordinates (n, 2), design matrix (n, P) and response (n,).
        a_diag, protection
            See :func:`dsstan.covariance.surface_statistics.smoothed_correlation`.
        cov_model
            Correlation function.
        knots
            Their number, or their places, shape (K, 2).
        placement, seed
            See :func:`dsstan.covariance.process.knots.place_knots`; unused where places are
            given.

        Raises
        ------
        InputError
            If the knots cannot be placed so, or there is no such correlation function.
        """
        correlation_code(cov_model)
        where = knots_of(sites, knots, placement, seed)
        removed = removed_variance(a_diag, protection)
        return cls(rotate(X, y), where, sites, a_diag, removed, cov_model)

    def sums(self, phi: Floats, r: Floats, records: NDArray[np.int64] | None = None) -> Floats:
        """Statistics at every node.

        Parameters
        ----------
        phi, r
            Nodes, shapes (G,) and (H,).
        records
            Positions of the records whose joint density is meant; by default all.

        Returns
        -------
        ndarray
            Shape (G, H, K), scaled as by
            :func:`dsstan.covariance.surface_statistics.node_statistics`.
        """
        some = np.arange(len(self.sites)) if records is None else records
        return np.stack([self._node(float(value), r, some) for value in phi])

    def at(self, phi: Floats, r: Floats) -> Iterator[Floats]:
        """Scaled statistics at each phi, shape (H, K)."""
        for value in phi:
            yield self.sums(np.array([value]), r)[0]

    def _node(self, phi: float, r: Floats, records: NDArray[np.int64]) -> Floats:
        """Statistics of some records at one phi, shape (H, K).

        By Woodbury's identity |C| = |D| |I + U'D^-1 U| with D = diag(e + r), and z'C^-1 z is
        the least of (z - U c)'D^-1 (z - U c) + c'c over c. The second form does not cancel
        where r is small, as the difference of two terms does.
        """
        kept = records[self.a[records] != 0.0]
        basis = basis_at(self.sites[kept], self.knots, phi, self.cov_model)
        U = basis.rows
        U *= self.a[kept, None]
        e = self.a[kept] ** 2 * basis.rest + self.removed[kept]
        z = self.rotation.Z[kept]
        k, q = U.shape[1], z.shape[1]
        products = _products(U, z, e, r)
        log_det, squares = np.empty(r.size), np.empty((r.size, q, q))
        c = np.empty((k, q, r.size))
        for h in range(r.size):
            inner = products[:k, h] + np.eye(k)
            factor = cholesky(inner, lower=True, overwrite_a=True, check_finite=False)
            log_det[h] = 2.0 * np.sum(np.log(np.diag(factor)))
            c[:, :, h] = cho_solve((factor, True), products[k:, h].T, check_finite=False)
            squares[h] = c[:, :, h].T @ c[:, :, h]
        free = records[self.a[records] == 0.0]
        for U_part, part, own in (
            (U, kept, e),
            (np.zeros((free.size, k)), free, self.removed[free]),
        ):
            more = _residual_sums(U_part, self.rotation.Z[part], own, r, c)
            log_det += more[0]
            squares += more[1]
        rows, cols = np.tril_indices(q)
        return np.column_stack([log_det, (1.0 + r[:, None]) * squares[:, rows, cols]])


def _products(U: Floats, z: Floats, e: Floats, r: Floats) -> Floats:
    """Sums over records of [u_i, z_i] u_i' / (e_i + r) for every r.

    A sum for each r would cost H products of n by K. Records of like e are taken together
    instead: on a panel of e the function 1 / (e + r) is replaced by its interpolant at p
    Chebyshev nodes, so that p products do for all r. Its relative error is exactly
    T_p(x) / T_p(x_r), x_r the position of the pole -r, so p is known beforehand.

    Parameters
    ----------
    U, z
        Shapes (n, k) and (n, q).
    e
        Own variances from 0, shape (n,).
    r
        Nugget ratios above 0, shape (H,).

    Returns
    -------
    ndarray
        Shape (k + q, H, k), of whose first k rows the upper triangle (of the first and the
        last axis) is not filled in.
    """
    k = U.shape[1]
    m = k + z.shape[1]
    order = np.argsort(e, kind="stable")
    total = np.zeros((m, r.size, k))
    width = max(1, -(-k // 4))
    for first, last in _panels(e[order], r):
        low, high = e[order[first]], e[order[last - 1]]
        middle, half = 0.5 * (low + high), 0.5 * (high - low)
        p = 1
        if half > 0.0:
            p = int(np.ceil(_REACH / np.arccosh((middle + r.min()) / half)))
        sums = np.zeros((m, p, k))
        for begin in range(first, last, BLOCK):
            who = order[begin : min(begin + BLOCK, last)]
            x = (e[who] - middle) / half if half > 0.0 else np.zeros(who.size)
            share = chebvander(x, p - 1) @ chebyshev_map(p)
            both = np.hstack([U[who], z[who]])
            for c in range(0, k, width):
                right = both[:, c : min(c + width, k)]
                scaled = share[:, :, None] * right[:, None]
                product = both[:, c:].T @ scaled.reshape(who.size, -1)
                sums[c:, :, c : c + width] += product.reshape(m - c, p, -1)
        values = 1.0 / (middle + half * chebyshev_nodes(p) + r[:, None])
        total += values @ sums
    return total


_REACH = float(np.arccosh(1.0 / PRECISION))

_PANEL = 20
"""Cost of adding a panel's node to the sums of one r, by that of a record's product; measured."""


def _panels(e: Floats, r: Floats) -> list[tuple[int, int]]:
    """Stretches (first, last) of ascending e, by the cheapest number of nodes for each.

    With p nodes a panel may span e + min(r) by a factor (t + 1) / (t - 1), t = cosh(arccosh(1 /
    PRECISION) / p). Many nodes cost products over the records, many panels sums over r.
    """
    best, cost = [(0, e.size)] if e.size else [], np.inf
    least = float(r.min())
    for p in range(5, 17) if e.size else ():
        t = np.cosh(_REACH / p)
        factor = (t + 1.0) / (t - 1.0) * (1.0 - 1e-9)
        found, first = [], 0
        while first < e.size:
            top = max((e[first] + least) * factor - least, e[first])
            last = int(np.searchsorted(e, top, side="right"))
            found.append((first, last))
            first = last
        spent = p * (e.size + _PANEL * r.size * len(found))
        if spent < cost:
            best, cost = found, spent
    return best


def _residual_sums(U: Floats, z: Floats, e: Floats, r: Floats, c: Floats) -> tuple[Floats, Floats]:
    """Sums over records, block by block: log((e + r) / (1 + r)) and t t' / (e + r), t = z - U c.

    Parameters
    ----------
    U, z, e, r
        As :func:`_products` takes them.
    c
        Coefficients of each column of z at each r, shape (k, q, H).

    Returns
    -------
    logs, squares
        Shapes (H,) and (H, q, q), of the second the lower triangle.
    """
    k, q, h = c.shape
    logs, squares = np.zeros(h), np.zeros((h, q, q))
    for first in range(0, len(z), BLOCK):
        some = slice(first, first + BLOCK)
        own = e[some, None]
        logs += np.log1p((own - 1.0) / (1.0 + r)).sum(axis=0)
        t = z[some][:, :, None] - (U[some] @ c.reshape(k, -1)).reshape(-1, q, h)
        scaled = t / (own + r)[:, None]
        for i in range(q):
            for j in range(i + 1):
                squares[:, i, j] += np.einsum("nh,nh->h", scaled[:, i], t[:, j])
    return logs, squares
