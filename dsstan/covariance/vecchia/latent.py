"""The spatial effect given the data, for many records: memory linear in N.

The effect at the distinct sites is a nearest-neighbour Gaussian process (Datta, Banerjee, Finley
and Gelfand 2016, *JASA* 111): w = B w + e, each site given a few that come before. A draw of w
given y is a prior draw corrected by its own residual,

    w = w0 + K A V^-1 (y - X beta - A w0 - e),    V = A K A + D,

as in ``dsstan.covariance.latent.LatentModel``. K is applied through the sparse (I - B), exactly,
and never inverted, so that sites that are all but the same do no harm. V is solved by conjugate
gradients, preconditioned by an approximation of V^-1 that is so near that a dozen iterations do
(``dsstan.covariance.vecchia.preconditioner``). Every solve reports its residual.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, cg

from dsstan.core.arrays import Floats, Indices
from dsstan.core.errors import EngineError
from dsstan.covariance.base import Parameters, SpatialModel
from dsstan.covariance.correlation import correlation_code
from dsstan.covariance.latent import require_gaussian
from dsstan.covariance.shared_sites import site_means
from dsstan.covariance.vecchia.factor_kernels import conditional_weights, unwind, unwind_transposed
from dsstan.covariance.vecchia.kernels import PARALLEL
from dsstan.covariance.vecchia.kriging import krige
from dsstan.covariance.vecchia.neighbours import neighbours_of
from dsstan.covariance.vecchia.preconditioner import NearPrecision
from dsstan.table.problem import Problem

__all__ = ["RESIDUAL", "SparseLatentModel", "ordered_sites", "solved"]

RESIDUAL = 1e-8
"""Relative residual at which conjugate gradients stop."""

MOST_ITERATIONS = 500

FOR_PLACES = 4
"""Neighbours of a place without a record, by those of a record: sites on all sides."""


def ordered_sites(
    problem: Problem, neighbours: int, ordering: str
) -> tuple[Floats, NDArray[np.int32], Indices]:
    """The distinct sites in their ordering, the earlier neighbours of each, and each record's site.

    Shapes (n, 2), (n, m) and (N,); sites are numbered by their place in the ordering.
    """
    first = np.unique(problem.site_index, return_index=True)[1]
    near = neighbours_of(problem, first, neighbours, ordering)
    place = np.empty(near.order.size, dtype=np.intp)
    place[near.order] = np.arange(near.order.size)
    sites = np.ascontiguousarray(problem.unique_sites[near.order])
    return sites, near.earlier, place[problem.site_index]


Product = Callable[[Floats], Floats]


def solved(times: Product, nearly: Product, right: Floats) -> tuple[Floats, float]:
    """V^-1 right by preconditioned conjugate gradients, and the relative residual.

    Parameters
    ----------
    times, nearly
        V and what is near its inverse, as functions of a vector.
    right
        A vector.

    Raises
    ------
    EngineError
        If the residual does not fall below :data:`RESIDUAL`.
    """
    shape = (right.size, right.size)
    system, near = (
        LinearOperator(shape, matvec=product, dtype=np.float64) for product in (times, nearly)
    )
    x, unsolved = cg(system, right, rtol=RESIDUAL, maxiter=MOST_ITERATIONS, M=near)
    size = float(np.linalg.norm(right - times(x)) / (np.linalg.norm(right) or 1.0))
    if unsolved:
        raise EngineError(
            f"the spatial effect was not found: after {MOST_ITERATIONS} conjugate gradients "
            f"the relative residual is {size:.1g}, above {RESIDUAL:g}. Fit with more neighbours"
        )
    return np.asarray(x), size


class SparseLatentModel:
    """Conditional law of w given y, without an N x N matrix.

    Parameters
    ----------
    model
        Of a Gaussian response.
    centre
        A draw at which the preconditioner is tuned; conjugate gradients come to the same end from
        any, so one serves all draws.
    neighbours, ordering
        m and the ordering, of the process and of the preconditioner.

    Attributes
    ----------
    worst_residual
        Of the solves so far, relative.
    """

    def __init__(
        self,
        model: SpatialModel,
        centre: Parameters,
        neighbours: int = 15,
        ordering: str = "maxmin",
    ) -> None:
        require_gaussian(model)
        problem = model.problem
        self.neighbours = neighbours
        rows = model.informing
        _, first, at = np.unique(problem.site_index[rows], return_index=True, return_inverse=True)
        data = np.column_stack([problem.X[rows], problem.y[rows]])
        groups = site_means(first[at], model.A[rows], model.protection, data)
        # What records say of the effect at their site is in their scaled mean.
        self.rows, self.a_rows = rows[groups.first], groups.scale
        self.X, self.y = groups.means[:, :-1], groups.means[:, -1]
        self.code = correlation_code(model.cov_model)
        self.sites, self.earlier, self.site = ordered_sites(problem, neighbours, ordering)
        self.site_rows = self.site[self.rows]
        self.ones = np.ones(len(self.sites))
        # Records with a spatial effect, for the preconditioner.
        self.kept = np.flatnonzero(self.a_rows != 0.0)
        self.response = neighbours_of(problem, self.rows[self.kept], neighbours, ordering)
        ordered = self.kept[self.response.order]
        self.response_rows = ordered
        self.response_sites = np.ascontiguousarray(problem.sites[self.rows[ordered]])
        self.response_a = np.ascontiguousarray(self.a_rows[ordered])
        self.removed = groups.noise
        self.own = self.response_a**2 + self.removed[ordered]
        self.worst_residual = 0.0
        self._process = lru_cache(maxsize=1)(self._weights)
        self.near = NearPrecision(
            self.response_sites,
            self.response_a,
            self.own,
            self.response.earlier,
            self.sites,
            self.earlier,
            phi=centre.phi,
            r=centre.tau_sq / centre.sigma_sq,
            code=self.code,
        )

    def _weights(self, phi: float) -> tuple[Floats, Floats]:
        """B and the conditional variances of the process, of partial sill 1."""
        with PARALLEL:
            B, F = conditional_weights(
                self.sites, self.ones, self.ones, self.earlier, phi, 0.0, self.code
            )
        return np.asarray(B), np.asarray(F)

    def _times_K(self, p: Parameters, right: Floats, process: tuple[Floats, Floats]) -> Floats:
        """K right, of the sites."""
        B, F = process
        out = right.copy()
        unwind_transposed(B, self.earlier, out)
        out *= p.sigma_sq * F
        unwind(B, self.earlier, out)
        return out

    def _at_sites(self, weight: Floats) -> Floats:
        """Sums of weights of the informing records at each site."""
        return np.asarray(
            np.bincount(self.site_rows, weights=weight, minlength=len(self.sites)),
            dtype=np.float64,
        )

    def _noise(self, p: Parameters) -> Floats:
        """Diagonal of D, shape (n,)."""
        return np.asarray(p.tau_sq + p.sigma_sq * self.removed)

    def solve(
        self, p: Parameters, right: Floats, process: tuple[Floats, Floats] | None = None
    ) -> Floats:
        """V^-1 right, by preconditioned conjugate gradients.

        Parameters
        ----------
        p, right
            One draw, and a vector of the informing records.
        process
            B and the variances at the draw's phi, where the caller has them.

        Raises
        ------
        EngineError
            If the residual does not fall below :data:`RESIDUAL`.
        """
        noise, known = self._noise(p), process or self._process(p.phi)

        def times(x: Floats) -> Floats:
            k = self._times_K(p, self._at_sites(self.a_rows * x), known)
            return np.asarray(self.a_rows * k[self.site_rows] + noise * x)

        def nearly(x: Floats) -> Floats:
            out = x / noise
            inside = self.near.times(x[self.response_rows])
            out[self.response_rows] = inside / p.sigma_sq
            return out

        x, size = solved(times, nearly, right)
        self.worst_residual = max(self.worst_residual, size)
        return x

    def draw(self, p: Parameters, rng: np.random.Generator) -> Floats:
        """One draw of w at all records, shape (N,)."""
        process = self._process(p.phi)
        B, F = process
        w0 = np.sqrt(p.sigma_sq * F) * rng.standard_normal(len(self.sites))
        unwind(B, self.earlier, w0)
        noise = np.sqrt(self._noise(p)) * rng.standard_normal(self.rows.size)
        residual = self.y - self.X @ p.beta - self.a_rows * w0[self.site_rows] - noise
        weight = self._at_sites(self.a_rows * self.solve(p, residual, process))
        return np.asarray((w0 + self._times_K(p, weight, process))[self.site])

    def mean(self, p: Parameters, places: Floats | None = None) -> Floats:
        """E[w | y, parameters] at the records (N,), or at planar places (q, 2).

        At places the process is carried on: each place given its 4 m nearest sites.
        """
        process = self._process(p.phi)
        weight = self._at_sites(self.a_rows * self.solve(p, self.y - self.X @ p.beta, process))
        at_sites = self._times_K(p, weight, process)
        if places is None:
            return np.asarray(at_sites[self.site])
        around = FOR_PLACES * self.neighbours
        return krige(places, self.sites, at_sites, phi=p.phi, r=0.0, code=self.code, around=around)
