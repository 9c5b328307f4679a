"""The statistics of the likelihood at given phi and r, and what follows from them.

With V = sigma_sq C, C = M(phi) + r I and r = tau_sq / sigma_sq, the likelihood needs only log|C|
and Z' C^-1 Z, Z = [Q, e] (an orthonormal basis of X and the least-squares residuals).
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.linalg import lapack, solve_triangular

from dsstan.core.arrays import Floats, Indices
from dsstan.core.errors import SurfaceError
from dsstan.covariance.correlation import correlation
from dsstan.covariance.pairs import Pairs
from dsstan.covariance.protection import protection_of, removed_variance
from dsstan.covariance.shared_sites import Contrasts, site_means

_LOG_PI_2 = float(np.log(2.0 * np.pi))


@dataclass(frozen=True)
class Rotation:
    """The data rotated by a basis of X: y - X beta = Z [T (b - beta), 1].

    Attributes
    ----------
    Z
        [Q, e], shape (n, P + 1).
    T
        Upper triangular, X = Q T, shape (P, P).
    b
        Least-squares coefficients, shape (P,).
    """

    Z: Floats
    T: Floats
    b: Floats


def rotate(X: Floats, y: Floats) -> Rotation:
    """Orthonormal basis of X beside the least-squares residuals.

    Parameters
    ----------
    X, y
        Design matrix (n, P) of full rank; response (n,).
    """
    q, t = np.linalg.qr(X)
    sign = np.where(np.diag(t) < 0, -1.0, 1.0)
    q, t = q * sign, t * sign[:, None]
    b = solve_triangular(t, q.T @ y)
    b = b + solve_triangular(t, q.T @ (y - X @ b))
    return Rotation(np.column_stack([q, y - X @ b]), t, b)


def smoothed_correlation(
    d: Floats, phi: float, a_diag: Floats, protection: str, cov_model: str = "exponential"
) -> Floats:
    """The matrix M in V = sigma_sq (M + r I), shape (n, n).

    Parameters
    ----------
    d
        Distances among the informing records, shape (n, n).
    phi
        Decay, inverse of their unit.
    a_diag
        Diagonal of A of those records, shape (n,).
    protection
        ``"paper"``, ``"preserving"`` or ``"cut"``; under ``"preserving"``
        I - A^2 is added, the variance that smoothing removes.
    cov_model
        Correlation function, one of :data:`dsstan.covariance.correlation.CORRELATIONS`.
    """
    return smoothed(correlation(d, phi, cov_model), a_diag, protection)


def smoothed(m: Floats, a_diag: Floats, protection: str) -> Floats:
    """M from R among the informing records, in its place; see :func:`smoothed_correlation`."""
    if np.any(a_diag != 1.0):
        m *= a_diag[:, None] * a_diag[None, :]
    if protection_of(protection).variance_returns:
        m[np.diag_indices_from(m)] += removed_variance(a_diag, protection)
    return m


def node_statistics(m: Floats, z: Floats, r: Floats) -> Floats:
    """Scaled statistics of C = M + r I at several nugget ratios.

    M is reduced to tridiagonal form once, the reflectors are applied to Z
    alone, and each r costs one tridiagonal solve.

    Parameters
    ----------
    m
        Symmetric, non-negative definite, shape (n, n).
    z
        Rotated data, shape (n, k).
    r
        Nugget ratios, shape (H,).

    Returns
    -------
    ndarray
        Shape (H, 1 + k (k + 1) / 2): log|C| - n log(1 + r), then the lower
        triangle, row by row, of (1 + r) Z' C^-1 Z.
    """
    diagonal, off, qz = tridiagonal(m, z)
    return np.stack([scaled(*solved(diagonal + x, off, qz), len(z), float(x)) for x in r])


def tridiagonal(m: Floats, z: Floats) -> tuple[Floats, Floats, Floats]:
    """Diagonal and off-diagonal of Q'MQ, M symmetric (n, n), and Q'z, z of shape (n, k)."""
    n, k = z.shape
    if n == 1:
        return m[0].copy(), np.zeros(1), z
    work, _ = lapack.dsytrd_lwork(n, lower=1)
    reflectors, diagonal, off, tau, _ = lapack.dsytrd(
        np.asfortranarray(m), lower=1, lwork=int(work), overwrite_a=0
    )
    # The reflectors leave the first row alone.
    rest, _, _ = lapack.dormqr("L", "T", reflectors[1:, :-1], tau, z[1:], 64 * k)
    return diagonal, off, np.vstack([z[:1], rest])


def solved(diagonal: Floats, off: Floats, z: Floats) -> tuple[float, Floats]:
    """log|T| and z'T^-1 z of a positive definite tridiagonal T; SurfaceError if it is not."""
    pivots, ratios, info = lapack.dpttrf(diagonal, off)
    if info != 0:
        raise SurfaceError(
            "the covariance is not positive definite at a node of the surface; "
            "raise the lower bound of tau_sq / sigma_sq (Priors.r_bounds)"
        )
    inner, _ = lapack.dpttrs(pivots, ratios, z)
    return float(np.sum(np.log(pivots))), z.T @ inner


def scaled(log_det: float, quadratic: Floats, n: int, r: float) -> Floats:
    """One row of :func:`node_statistics` from log|C| and Z' C^-1 Z of n records."""
    s = (1.0 + r) * quadratic
    lower = (0.5 * (s + s.T))[np.tril_indices(len(s))]
    return np.array([log_det - n * np.log1p(r), *lower])


def response_log_density(s: Floats, u: Floats, n: int, sigma_sq: float, r: float) -> float:
    """Log density of the response from its scaled statistics, all constants kept.

    Parameters
    ----------
    s
        Scaled statistics at (phi, r), as one row of :func:`node_statistics`.
    u
        T (b - beta), shape (P,).
    n
        Number of informing records.
    sigma_sq, r
        Partial sill and nugget ratio.
    """
    full = matrix_of(s)
    b = np.append(u, 1.0)
    quadratic = float(b @ full @ b) / ((1.0 + r) * sigma_sq)
    log_det = s[0] + n * np.log1p(r)
    return float(-0.5 * (n * (_LOG_PI_2 + np.log(sigma_sq)) + log_det + quadratic))


def matrix_of(s: Floats) -> Floats:
    """The symmetric matrix whose lower triangle follows the log determinant, (..., K) in."""
    k = (math.isqrt(8 * (s.shape[-1] - 1) + 1) - 1) // 2
    rows, cols = np.tril_indices(k)
    full = np.empty((*s.shape[:-1], k, k))
    full[..., rows, cols] = s[..., 1:]
    full[..., cols, rows] = s[..., 1:]
    return full


def best_at(s: Floats, n: int, r: float) -> tuple[Floats, float]:
    """T (b - beta), shape (P,), and sigma_sq of the highest density.

    Parameters
    ----------
    s
        Scaled statistics at (phi, r), as one row of :func:`node_statistics`.
    n
        Number of informing records.
    r
        Nugget ratio.
    """
    full = matrix_of(s)
    u = np.asarray(-np.linalg.solve(full[:-1, :-1], full[:-1, -1]), dtype=np.float64)
    return u, float(full[-1, -1] + u @ full[:-1, -1]) / (n * (1.0 + r))


def coefficients_at(
    rotation: Rotation, s: Floats, sigma_sq: float, r: float
) -> tuple[Floats, Floats]:
    """Generalised least squares of the coefficients given the variances.

    Parameters
    ----------
    rotation
        The data that the statistics are of.
    s, r
        As :func:`best_at` takes them.
    sigma_sq
        Partial sill.

    Returns
    -------
    tuple
        The estimate, shape (P,), and its covariance (X'V^-1 X)^-1, shape (P, P).
    """
    full = matrix_of(s)
    inverse = np.linalg.inv(rotation.T)
    # The statistics are (1 + r) Z'C^-1 Z and V = sigma_sq C.
    cov = inverse @ np.linalg.inv(full[:-1, :-1]) @ inverse.T * (1.0 + r) * sigma_sq
    beta = rotation.b + inverse @ np.linalg.solve(full[:-1, :-1], full[:-1, -1])
    return np.asarray(beta), np.asarray(cov)


THREADED = 400
"""Rows from which nodes are computed side by side."""

MOST_THREADS = 8
"""Nodes at a time; each holds three matrices of all pairs."""

BLOCK, MANY = 200, 700
"""Most rows of a block, and rows from which there are blocks."""


class Statistics(Protocol):
    """Where the statistics of a surface come from: exact, or an approximation of C."""

    @property
    def rotation(self) -> Rotation:
        """The data that the statistics are of."""

    def at(self, phi: Floats, r: Floats) -> Iterator[Floats]:
        """Scaled statistics at each phi, as :func:`node_statistics` gives them for all r."""


@dataclass(frozen=True)
class ExactStatistics:
    """Statistics of the exact covariance, by LAPACK, with one row a site and smoothing.

    Attributes
    ----------
    smoothed
        M of the scaled means at a value of phi, shape (q, q).
    rotation
        The data.
    means
        The rotated data of the groups: sqrt(k) times their means, shape (q, P + 1); by default a
        group a record.
    contrasts
        What is left of the records within the groups.
    blocks
        Positions of rows that lie together, in many rows; every row is in one block.
    """

    smoothed: Callable[..., Floats]
    rotation: Rotation
    means: Floats | None = None
    contrasts: tuple[Contrasts, ...] = ()
    blocks: tuple[Indices, ...] = ()

    def at(self, phi: Floats, r: Floats) -> Iterator[Floats]:
        """Scaled statistics at each phi, shape (H, K)."""
        return self._each(phi, r, ((),))

    def block_by_block(self, phi: Floats, r: Floats) -> Iterator[Floats]:
        """As :meth:`at`, as if rows of different blocks were independent: quick, and rough."""
        return self._each(phi, r, tuple((block,) for block in self.blocks))

    def _each(
        self, phi: Floats, r: Floats, parts: tuple[tuple[Indices, ...], ...]
    ) -> Iterator[Floats]:
        """Statistics at each phi, sums over parts; that of no position has all rows."""
        z = self.rotation.Z if self.means is None else self.means
        within = sum((c.statistics(r) for c in self.contrasts), start=np.zeros(1))

        def node(value: float) -> Floats:
            each = (node_statistics(self.smoothed(float(value), *p), z[p or ...], r) for p in parts)
            return sum(each, start=within)

        if len(z) < THREADED:
            yield from map(node, phi)
            return
        # LAPACK lets go of the interpreter.
        with ThreadPoolExecutor(min(MOST_THREADS, os.cpu_count() or 1)) as pool:
            yield from pool.map(node, phi)


def exact_statistics(
    distances: Floats,
    X: Floats,
    y: Floats,
    *,
    a_diag: Floats,
    protection: str,
    cov_model: str = "exponential",
    places: Floats | None = None,
) -> ExactStatistics:
    """Statistics of all pairs of informing records, whose effects distance alone relates.

    Parameters
    ----------
    distances
        Among them, shape (n, n).
    X, y, a_diag, protection, places
        See :func:`statistics_of_pairs`.
    cov_model
        See :func:`smoothed_correlation`.
    """
    pairs = Pairs(distances, cov_model)
    return statistics_of_pairs(pairs, X, y, a_diag=a_diag, protection=protection, places=places)


def statistics_of_pairs(
    pairs: Pairs,
    X: Floats,
    y: Floats,
    *,
    a_diag: Floats,
    protection: str,
    places: Floats | None = None,
) -> ExactStatistics:
    """Statistics of all pairs of informing records.

    Parameters
    ----------
    pairs
        Those among them.
    X, y
        Their design matrix (n, P) and response (n,).
    a_diag, protection
        See :func:`smoothed_correlation`.
    places
        Of the records, shape (n, 2): many are then put into blocks.
    """
    rotation = rotate(X, y)
    groups = site_means(pairs.first, a_diag, protection, rotation.Z)
    first = groups.first
    near = pairs.take(first)

    def of_means(phi: float, some: Indices | None = None) -> Floats:
        among, a, add = near, groups.scale, groups.noise
        if some is not None:
            among, a, add = among.take(some), a[some], add[some]
        m = smoothed(among.at(phi), a, "paper")
        m[np.diag_indices_from(m)] += add
        return m

    blocks = halved(places[first]) if places is not None and first.size >= MANY else ()
    return ExactStatistics(of_means, rotation, groups.means, groups.contrasts, tuple(blocks))


def halved(places: Floats) -> Iterator[Indices]:
    """Positions of places that lie together: the longer side is halved until few are left."""
    open_ = [np.arange(len(places))]
    while open_:
        some = open_.pop()
        if some.size <= BLOCK:
            yield some
            continue
        side = int(np.argmax(np.ptp(places[some], axis=0)))
        order = some[np.argsort(places[some, side], kind="stable")]
        open_ += [order[some.size // 2 :], order[: some.size // 2]]
