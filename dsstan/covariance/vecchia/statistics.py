"""Statistics of the profile surface by Vecchia's approximation, in time linear in N.

The density of the response is written as a product of conditionals, each given at most m records
that come before in an ordering (Vecchia 1988, *JRSS B* 50; for the response with a nugget Datta,
Banerjee, Finley and Gelfand 2016, *JASA* 111). Both statistics are then sums over records:

    log|C| = sum_i log F_i,    Z'C^-1 Z = sum_i u_i u_i' / F_i

with F_i and u_i the conditional variance and the residual of row i of Z given its neighbours.
For a record, M among itself and its neighbours is reduced to tridiagonal form once for each phi,
keeping the record's own axis; every nugget ratio r then costs one elimination that ends in F_i
and u_i. Records that share a site and a smoothing are one row, their scaled mean, and contrasts
without a spatial effect (:mod:`dsstan.covariance.shared_sites`), exactly. Fully smoothed records
(A_ii = 0) are independent of all others and need no neighbours.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsstan.core.arrays import Floats, Indices
from dsstan.core.errors import SurfaceError
from dsstan.covariance.base import SpatialModel
from dsstan.covariance.correlation import CORRELATIONS, correlation_code
from dsstan.covariance.protection import removed_variance
from dsstan.covariance.shared_sites import Contrasts, site_means
from dsstan.covariance.surface_statistics import Rotation, coefficients_at, rotate
from dsstan.covariance.vecchia.neighbours import Neighbours, neighbours_of
from dsstan.table.problem import Problem

__all__ = ["VecchiaStatistics"]


@dataclass(frozen=True, eq=False)
class VecchiaStatistics:
    """Statistics of the surface as sums over records.

    Attributes
    ----------
    rotation
        The data, in the records' own order.
    neighbours
        Of the rows with a spatial effect, one a site and smoothing, in the ordering.
    sites, a, own, z
        Those rows in the ordering: sites (q, 2), diagonals of A and of M (q,), scaled means of
        Z (q, P + 1).
    contrasts
        The rows without a spatial effect.
    code
        Of the correlation function.
    """

    rotation: Rotation = field(repr=False)
    neighbours: Neighbours = field(repr=False)
    sites: Floats = field(repr=False)
    a: Floats = field(repr=False)
    own: Floats = field(repr=False)
    z: Floats = field(repr=False)
    contrasts: tuple[Contrasts, ...] = field(repr=False)
    code: int

    @classmethod
    def of_model(cls, model: SpatialModel, neighbours: int, ordering: str) -> VecchiaStatistics:
        """Of the informing records of a model."""
        rows = model.informing
        return cls.of(
            *(model.problem, rows),
            a_diag=model.A[rows],
            protection=model.protection,
            cov_model=model.cov_model,
            neighbours=neighbours,
            ordering=ordering,
        )

    @classmethod
    def of(
        cls,
        problem: Problem,
        rows: Indices,
        *,
        a_diag: Floats,
        protection: str,
        cov_model: str = "exponential",
        neighbours: int = 15,
        ordering: str = "maxmin",
    ) -> VecchiaStatistics:
        """Order the informing records and find their neighbours.

        Parameters
        ----------
        problem, rows
            The prepared table and the positions of its n informing records.
        a_diag, protection
            Of those records; see :func:`dsstan.covariance.surface_statistics.smoothed_correlation`.
        cov_model
            Correlation function.
        neighbours, ordering
            m, and an ordering; see :func:`dsstan.covariance.vecchia.neighbours.order_places`.
        """
        rotation = rotate(problem.X[rows], problem.y[rows])
        _, first, at = np.unique(problem.site_index[rows], return_index=True, return_inverse=True)
        groups = site_means(first[at], a_diag, protection, rotation.Z)
        kept = np.flatnonzero(groups.scale != 0.0)
        near = neighbours_of(problem, rows[groups.first[kept]], neighbours, ordering)
        ordered = kept[near.order]
        a, free = np.ascontiguousarray(groups.scale[ordered]), groups.scale == 0.0
        apart = float(removed_variance(np.zeros(1), protection)[0])
        return cls(
            rotation,
            near,
            np.ascontiguousarray(problem.sites[rows[groups.first[ordered]]]),
            a,
            a**2 + groups.noise[ordered],
            np.ascontiguousarray(groups.means[ordered]),
            (*groups.contrasts, Contrasts.of(apart, int(free.sum()), groups.means[free])),
            correlation_code(cov_model),
        )

    @classmethod
    def plain(
        cls,
        X: Floats,
        y: Floats,
        sites: Floats,
        near: Neighbours,
        cov_model: str = "exponential",
        own: Floats | None = None,
    ) -> VecchiaStatistics:
        """Of records that are all whole in the model.

        Parameters
        ----------
        X, y, sites
            Shapes (n, P), (n,) and (n, 2).
        near
            Ordering and neighbours of the sites.
        cov_model
            Correlation function.
        own
            Diagonal of M, by default 1, shape (n,).
        """
        rotation, ones = rotate(X, y), np.ones(len(y))
        diagonal = ones if own is None else np.ascontiguousarray(own[near.order])
        return cls(
            *(rotation, near, np.ascontiguousarray(sites[near.order]), ones, diagonal),
            *(np.ascontiguousarray(rotation.Z[near.order]), (), correlation_code(cov_model)),
        )

    def coefficients(self, sigma_sq: float, tau_sq: float, phi: float) -> tuple[Floats, Floats]:
        """See :func:`dsstan.covariance.surface_statistics.coefficients_at`."""
        return self.coefficients_at(np.array([[sigma_sq, tau_sq, phi]]))[0]

    def coefficients_at(self, theta: Floats) -> list[tuple[Floats, Floats]]:
        """:meth:`coefficients` at each row (sigma_sq, tau_sq, phi) of a matrix, in one pass."""
        sigma_sq, r = theta[:, 0], theta[:, 1] / theta[:, 0]
        phi, node = np.unique(theta[:, 2], return_inverse=True)
        found = self.sums(phi, r)[node, np.arange(len(theta))]
        return [
            coefficients_at(self.rotation, one, float(s), float(ratio))
            for one, s, ratio in zip(found, sigma_sq, r, strict=True)
        ]

    def sums(self, phi: Floats, r: Floats, records: NDArray[np.int64] | None = None) -> Floats:
        """Statistics at every node.

        Parameters
        ----------
        phi, r
            Nodes, shapes (G,) and (H,).
        records
            Places in the ordering whose terms are summed; by default all, and the records
            without a spatial effect too.

        Returns
        -------
        ndarray
            Shape (G, H, K), scaled as by
            :func:`dsstan.covariance.surface_statistics.node_statistics`.
        """
        some = np.arange(len(self.sites)) if records is None else records
        found = self.block_sums(np.ascontiguousarray(phi, dtype=np.float64), r, some)
        return self.finished(found.sum(axis=0), r, records)

    @property
    def cov_model(self) -> str:
        """Name of the correlation function."""
        return CORRELATIONS[self.code - 1]

    @property
    def arrays(self) -> tuple[NDArray[Any], ...]:
        """Sites, diagonal of A, own noise, columns and neighbours, as the kernels take them."""
        return self.sites, self.a, self.own, self.z, self.neighbours.earlier

    def block_sums(self, phi: Floats, r: Floats, records: NDArray[np.int64]) -> Floats:
        """Sums over each block of records; see
        ``dsstan.covariance.vecchia.kernels.node_sums``."""
        from dsstan.covariance.vecchia.kernels import PARALLEL, node_sums

        with PARALLEL:
            return np.asarray(
                node_sums(*self.arrays, records, phi, np.ascontiguousarray(r), self.code)
            )

    def finished(self, sums: Floats, r: Floats, records: NDArray[np.int64] | None) -> Floats:
        """Statistics (G, H, K) from sums over records (G, K, H); of all, contrasts are added.

        Raises
        ------
        SurfaceError
            If the covariance of some neighbours is not positive definite.
        """
        out = np.moveaxis(sums, 1, 2)
        if not np.isfinite(out).all():
            raise SurfaceError(
                "the covariance is not positive definite at a node of the surface; "
                "raise the lower bound of tau_sq / sigma_sq (Priors.r_bounds)"
            )
        return self.with_contrasts(out, r) if records is None else np.asarray(out)

    def with_contrasts(self, rows: Floats, r: Floats) -> Floats:
        """Statistics of all records (G, H, K), from those of the rows with a spatial effect."""
        return np.asarray(sum((c.statistics(r) for c in self.contrasts), start=rows))

    def at(self, phi: Floats, r: Floats) -> Iterator[Floats]:
        """Scaled statistics at each phi, shape (H, K)."""
        for value in phi:
            yield self.sums(np.array([value]), r)[0]
