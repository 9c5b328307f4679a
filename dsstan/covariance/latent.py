"""The spatial effect given the data under the exact covariance, by dense matrices."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy.linalg import cho_factor, cho_solve, cholesky

from dsstan.core.arrays import Floats
from dsstan.core.errors import InputError
from dsstan.covariance.base import Parameters, SpatialModel
from dsstan.covariance.pairs import pairs_of, pairs_of_places
from dsstan.covariance.protection import removed_variance
from dsstan.covariance.surface_statistics import smoothed


def correlation_factor(R: Floats) -> Floats:
    """F with R = F F', by Cholesky, or by eigenvectors where R is singular to rounding.

    No jitter is added: eigenvalues that rounding made negative are set to zero.
    """
    try:
        return np.asarray(cholesky(R, lower=True, check_finite=False))
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(R)
        return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


def require_gaussian(model: SpatialModel) -> None:
    """Refuse a fit whose response is not Gaussian given the spatial effect.

    Raises InputError if so: the closed forms of the attacker and of kriging hold for the Gaussian
    alone.
    """
    if model.outcome != "Gaussian":
        raise InputError(
            f"this needs a Gaussian response and the fit is of another model ({model.outcome}): "
            "disclosure() measures its copies"
        )


def require_exact(model: SpatialModel) -> None:
    """Refuse a fit whose covariance is approximated.

    Raises InputError if so: what needs it inverts an N x N matrix.
    """
    if model.covariance.approximate:
        raise InputError(
            f"this needs the exact covariance and the fit has another ({model.covariance}): "
            "disclosure(), attack(), compare() and utility() take such a fit; for this, take a "
            'smaller table or fit with covariance="exact"'
        )


ALL_PAIRS_LIMIT = 5000
"""Most records for which measures hold matrices of all pairs."""

ALL_PAIRS_MATRICES = 26
"""N x N matrices of doubles that such a measure holds at its peak, as measured."""


def require_all_pairs(what: str, *models: SpatialModel) -> None:
    """Refuse, before anything is computed, fits that a measure of all pairs can't take.

    Raises InputError if a covariance is approximated, or there are more than 5000 records.
    """
    limit = f"{what}() takes the exact covariance, up to {ALL_PAIRS_LIMIT:,} records"
    instead = 'prepare() fewer records and fit them with covariance="exact"'
    if all(model.covariance.has_attacker for model in models):
        instead = f"use attack(), whose intruder knows all other records, or {instead}"
    n = models[0].problem.n_records
    if n > ALL_PAIRS_LIMIT:
        memory = ALL_PAIRS_MATRICES * 8 * n**2 / 1024**3
        raise InputError(
            f"{limit}; for these {n:,} it would need about {memory:,.0f} GiB of memory: {instead}"
        )
    for model in models:
        if model.covariance.approximate:
            raise InputError(f"{limit}, and the fit has another ({model.covariance}): {instead}")


class LatentModel:
    """Conditional law of w given y under the exact covariance.

    Section 2 of the paper, w integrated out:
    ``w | y ~ N(K A V^-1 (y - X beta), K - K A V^-1 A K)``, K = sigma_sq R(phi),
    V = A K A + D; under ``cut`` from the unflagged rows. One formula serves
    gamma = 0, finite and infinite: given the other w, a record with A_ii = 0 has
    exactly its conditional prior.
    """

    def __init__(self, model: SpatialModel) -> None:
        require_gaussian(model)
        require_exact(model)
        if model.smoothing_moves:
            raise InputError(
                "A of this fit changes from draw to draw, and this takes one A: disclosure() "
                "measures its copies and attack() its release"
            )
        self.model = model
        problem = model.problem
        self.rows = model.informing
        self.a_rows = model.A[self.rows]
        self.y = problem.y[self.rows]
        self.X = problem.X[self.rows]
        self.site = problem.effect_index
        self.site_rows = self.site[self.rows]
        self.first = np.unique(self.site, return_index=True)[1]
        self.parts = lru_cache(maxsize=1)(self._factor)

    def _factor(self, phi: float) -> tuple[Floats, Floats, Floats]:
        """R among the distinct effects, its factor, and M among the informing records."""
        pairs = pairs_of(self.model, self.first)
        R = pairs.at(phi)
        M = smoothed(pairs.take(self.site_rows).at(phi), self.a_rows, self.model.protection)
        return R, correlation_factor(R), M

    def _solve(self, M: Floats, p: Parameters, right: Floats) -> Floats:
        """V^-1 right."""
        V = p.sigma_sq * M
        V[np.diag_indices_from(V)] += p.tau_sq
        factor = cho_factor(V, lower=True, overwrite_a=True, check_finite=False)
        return np.asarray(cho_solve(factor, right, check_finite=False))

    def draw(self, p: Parameters, rng: np.random.Generator) -> Floats:
        """One draw of w at all records, shape (N,).

        A prior draw corrected by its own residual: w0 + K A V^-1 (y - X beta -
        A w0 - e), with w0 from N(0, K) and e from N(0, D).
        """
        R, factor, M = self.parts(p.phi)
        w0 = np.sqrt(p.sigma_sq) * (factor @ rng.standard_normal(len(self.first)))
        removed = removed_variance(self.a_rows, self.model.protection)
        variance = p.tau_sq + p.sigma_sq * removed
        noise = np.sqrt(variance) * rng.standard_normal(self.rows.size)
        residual = self.y - self.X @ p.beta - self.a_rows * w0[self.site_rows] - noise
        weight = self.a_rows * self._solve(M, p, residual)
        by_site = np.bincount(self.site_rows, weights=weight, minlength=len(self.first))
        return np.asarray((w0 + p.sigma_sq * (R @ by_site))[self.site])

    def mean(
        self, p: Parameters, places: Floats | None = None, time: float | None = None
    ) -> Floats:
        """E[w | y, parameters] at the records (N,), or at planar places (m, 2) at one time."""
        R, _, M = self.parts(p.phi)
        weight = self.a_rows * self._solve(M, p, self.y - self.X @ p.beta)
        by_site = np.bincount(self.site_rows, weights=weight, minlength=len(self.first))
        if places is None:
            return np.asarray(p.sigma_sq * (R @ by_site)[self.site])
        there = pairs_of_places(self.model, places, self.first, time).at(p.phi)
        return np.asarray(p.sigma_sq * (there @ by_site))

    def covariance(self, p: Parameters) -> Floats:
        """Cov[w | y, parameters] at the records, shape (N, N)."""
        R, _, M = self.parts(p.phi)
        K = p.sigma_sq * R[np.ix_(self.site, self.site)]
        KA = K[:, self.rows] * self.a_rows
        return np.asarray(K - KA @ self._solve(M, p, KA.T))
