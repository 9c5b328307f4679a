"""Likelihood of the covariance parameters of several groups, the coefficients integrated out.

    y ~ N(Z beta, V),   beta ~ N(0, B),   V = A (T_kk' R(phi)) A + D

Z has P columns a group. All that the likelihood and the coefficients' own posterior need of V is
log|V| and ``Z' V^-1 Z``, y in a last column of Z: from a Cholesky factor, or as sums over records
by Vecchia's approximation.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, lapack

from dsstan.core.arrays import Floats, Indices
from dsstan.covariance.base import SpatialModel
from dsstan.covariance.correlation import correlation_code
from dsstan.covariance.protection import removed_variance
from dsstan.covariance.vecchia.kernels import PARALLEL
from dsstan.covariance.vecchia.neighbours import earlier_neighbours, order_places
from dsstan.models.groups.coordinates import GroupParameterSets
from dsstan.models.groups.groups import Groups

WORTH_THREADS = 200
"""Records from which on threads share the sets of parameters."""


@dataclass(frozen=True, eq=False)
class GroupRecords:
    """The n informing records of a model as arrays.

    Attributes
    ----------
    X, sites, group
        Rows of the design matrix (n, P), place (n, 2) and number of the group.
    common, rest
        Least squares over all groups (P,), and what they leave of the response (n,): with the
        response itself, Z' V^-1 Z would lose digits where V is small.
    a, removed
        Diagonal of A, and the share of the sill that returns as noise.
    groups
        J.
    cov_model
        Correlation function.
    """

    X: Floats = field(repr=False)
    common: Floats = field(repr=False)
    rest: Floats = field(repr=False)
    sites: Floats = field(repr=False)
    group: Indices = field(repr=False)
    a: Floats = field(repr=False)
    removed: Floats = field(repr=False)
    groups: int
    cov_model: str

    @classmethod
    def of(cls, model: SpatialModel, groups: Groups) -> GroupRecords:
        """Of the informing records of a model."""
        rows, problem = model.informing, model.problem
        a, X, y = model.A[rows], problem.X[rows], problem.y[rows]
        common = np.linalg.lstsq(X, y, rcond=None)[0]
        rest, removed = np.asarray(y - X @ common), removed_variance(a, model.protection)
        group = groups.index[rows]
        return cls(
            *(X, np.asarray(common), rest, problem.sites[rows], group, a, removed, groups.n),
            model.cov_model,
        )

    def design(self) -> Floats:
        """Z and the rest, shape (n, J P + 1)."""
        n, p = self.X.shape
        z = np.zeros((n, self.groups * p + 1))
        for j in range(p):
            z[np.arange(n), self.group * p + j] = self.X[:, j]
        z[:, -1] = self.rest
        return z


Statistics = Callable[[GroupParameterSets], Floats]
"""Z' V^-1 Z, its lower triangle, above log|V| in column 0, at M sets: (M, Q + 2, Q + 1)."""


def exact_statistics(records: GroupRecords) -> Statistics:
    """The statistics by a Cholesky factor of V for each set of parameters."""
    from dsstan.models.groups.kernels import fill_covariance

    z, r = np.asfortranarray(records.design()), records
    n, q = z.shape
    arrays = r.sites, r.group, r.a, r.removed
    code = correlation_code(r.cov_model)

    def one(T: Floats, tau_sq: Floats, phi: float) -> Floats:
        V, out = np.empty((n, n), order="F"), np.empty((q + 1, q))
        fill_covariance(*arrays, T, tau_sq, phi, code, V)
        L, failed = lapack.dpotrf(V, lower=1, clean=0, overwrite_a=1)
        if failed:
            return np.full_like(out, np.nan)
        half = blas.dtrsm(1.0, L, z, lower=1)
        out[:q] = half.T @ half
        out[q] = 2.0 * float(np.sum(np.log(np.diag(L))))
        return out

    def many(sets: GroupParameterSets) -> Floats:
        parts = sets.T, sets.tau_sq, sets.phi
        if n < WORTH_THREADS:
            return np.array(list(map(one, *parts)))
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            return np.array(list(pool.map(one, *parts)))

    return many


class VecchiaGroups:
    """Each record given its nearest earlier ones: m of any group, and m of its own.

    Where the groups hardly correlate the own group's records are what counts, else the nearest.
    Fully smoothed records are independent of all others: they come last and have no neighbours.

    Parameters
    ----------
    records
        The informing records.
    neighbours, ordering
        m and the ordering.
    """

    def __init__(self, records: GroupRecords, neighbours: int, ordering: str) -> None:
        r = records
        kept = np.flatnonzero(r.a != 0.0)
        order = kept[order_places(r.sites[kept], ordering)] if kept.size else kept
        self.order = np.concatenate([order, np.flatnonzero(r.a == 0.0)])
        self.near = np.full((len(r.rest), 2 * neighbours), -1, dtype=np.int32)
        self.near[: len(order)] = _both(r.sites[order], r.group[order], neighbours)
        parts = (r.sites, r.group.astype(np.int64), r.a, r.removed)
        self.arrays = tuple(np.ascontiguousarray(part[self.order]) for part in parts)
        self.data = tuple(np.ascontiguousarray(part[self.order]) for part in (r.X, r.rest))
        self.code = correlation_code(r.cov_model)

    def __call__(self, sets: GroupParameterSets) -> Floats:
        """The statistics at M sets of parameters."""
        from dsstan.models.groups.kernels import group_sums

        with PARALLEL:
            return np.asarray(
                group_sums(
                    *(*self.arrays, *self.data, self.near),
                    *(sets.T, sets.tau_sq, sets.phi, self.code),
                )
            )


def _both(places: Floats, group: Indices, m: int) -> NDArray[np.int32]:
    """m earlier neighbours of any group and then m more of the own, shape (n, 2 m)."""
    n = len(places)
    out = np.full((n, 2 * m), -1, dtype=np.int32)
    if n == 0:
        return out
    out[:, :m] = earlier_neighbours(places, m)
    for k in np.unique(group):
        own = np.flatnonzero(group == k)
        near = earlier_neighbours(places[own], min(2 * m, max(1, own.size - 1)))
        for i, row in zip(own, near, strict=True):
            have = out[i, :m][out[i, :m] >= 0]
            more = own[row[row >= 0]]
            more = more[~np.isin(more, have)][:m]
            out[i, have.size : have.size + more.size] = more
    return out


class GroupPosterior:
    """What the statistics say of the covariance parameters and of the coefficients.

    Parameters
    ----------
    statistics
        Where log|V| and Z' V^-1 Z come from.
    records
        The n informing records.
    beta_scale, group_scale
        Prior sds of the common coefficients and of a group's about them, P each.
    """

    def __init__(
        self,
        statistics: Statistics,
        records: GroupRecords,
        beta_scale: Floats,
        group_scale: Floats,
    ) -> None:
        self.statistics, self.n = statistics, len(records.rest)
        eye, ones = np.eye(records.groups), np.ones((records.groups, records.groups))
        prior = np.kron(ones, np.diag(beta_scale**2)) + np.kron(eye, np.diag(group_scale**2))
        # beta = common + root gamma with gamma ~ N(-shift, I): no eigenvalue of its precision
        # is below 1.
        self.root = np.linalg.cholesky(prior)
        self.common = np.tile(records.common, records.groups)
        self.shift = np.linalg.solve(self.root, self.common)

    def log_likelihood(self, s: Floats) -> Floats:
        """log p(y | T, tau_sq, phi) from statistics (M, Q + 2, Q + 1), all constants kept, (M,)."""
        G, half = self._factor(s)
        log_det = s[:, -1, 0] + 2.0 * np.sum(np.log(np.diagonal(G, axis1=1, axis2=2)), axis=1)
        squares = s[:, -2, -1] + self.shift @ self.shift - np.sum(half**2, axis=1)
        out = -0.5 * (self.n * np.log(2.0 * np.pi) + log_det + squares)
        # Squares below 0 are rounding, where V is all but singular.
        return np.where(np.isfinite(out) & (squares > 0.0), out, -np.inf)

    def draw_coefficients(self, s: Floats, rng: np.random.Generator) -> Floats:
        """One draw of the coefficients at each set of parameters, shape (M, Q)."""
        G, half = self._factor(s)
        noise = half + rng.standard_normal(half.shape)
        gamma = np.linalg.solve(G.swapaxes(1, 2), noise[..., None])[..., 0]
        return np.asarray(self.common + gamma @ self.root.T)

    def _factor(self, s: Floats) -> tuple[Floats, Floats]:
        """Factor of gamma's precision (M, Q, Q), NaN where rounding left none, and G^-1 times"""
        q = len(self.root)
        lower = np.tril(s[:, :q, :q])
        full = lower + np.tril(lower, -1).swapaxes(1, 2)
        precision = np.eye(q) + self.root.T @ full @ self.root
        try:
            G = np.linalg.cholesky(precision)
        except np.linalg.LinAlgError:
            G = np.full_like(precision, np.nan)
            for k in np.flatnonzero(np.isfinite(precision).all(axis=(1, 2))):
                with suppress(np.linalg.LinAlgError):
                    G[k] = np.linalg.cholesky(precision[k])
        right = s[:, q, :q] @ self.root - self.shift
        return np.asarray(G), np.asarray(np.linalg.solve(G, right[..., None])[..., 0])
