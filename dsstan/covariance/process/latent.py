"""The spatial effect given the data under the modified predictive process."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy.linalg import cho_solve, cholesky, solve_triangular

from dsstan.core.arrays import Floats
from dsstan.covariance.base import Parameters, SpatialModel
from dsstan.covariance.latent import require_gaussian
from dsstan.covariance.process.knots import Basis, basis_at, knots_of
from dsstan.covariance.protection import removed_variance

__all__ = ["ProcessLatentModel"]


class ProcessLatentModel:
    """Conditional law of w given y under the modified process.

    Time of the order of N K^2 and memory of N K. Given g, y and the parameters the remainders are
    independent, so a draw needs no correction: g comes from its K-variate normal, then each
    remainder from its own. Two records at one place have different remainders, hence different w.

    Parameters
    ----------
    model
        Of a Gaussian response.
    knots, placement
        As the fit had them: a number of knots and how they were placed among all sites of the
        problem (seed 0), or their places, shape (K, 2).
    """

    def __init__(
        self, model: SpatialModel, knots: int | Floats = 200, placement: str = "kmeans"
    ) -> None:
        require_gaussian(model)
        self.model = model
        problem = model.problem
        self.knots = knots_of(problem.sites, knots, placement)
        self.rows = model.informing
        self.a_rows = model.A[self.rows]
        self.y, self.X = problem.y[self.rows], problem.X[self.rows]
        self.removed = removed_variance(self.a_rows, model.protection)
        self._basis = lru_cache(maxsize=1)(self._basis_at)

    def _basis_at(self, phi: float) -> Basis:
        """B at all records."""
        return basis_at(self.model.problem.sites, self.knots, phi, self.model.cov_model)

    def _own(self, p: Parameters) -> tuple[Floats, Floats]:
        """Variance of the noise of the informing records, and of A times remainder plus noise."""
        noise = p.tau_sq + p.sigma_sq * self.removed
        rest = self._basis(p.phi).rest[self.rows]
        return noise, p.sigma_sq * self.a_rows**2 * rest + noise

    def _at_knots(self, p: Parameters) -> tuple[Floats, Floats]:
        """Mean of sigma g given y, shape (k,), and the lower factor of the precision of g."""
        _, variance = self._own(p)
        S = self._basis(p.phi).rows[self.rows]
        S *= (np.sqrt(p.sigma_sq / variance) * self.a_rows)[:, None]
        inner = S.T @ S
        inner[np.diag_indices_from(inner)] += 1.0
        factor = cholesky(inner, lower=True, overwrite_a=True, check_finite=False)
        right = S.T @ ((self.y - self.X @ p.beta) / np.sqrt(variance))
        mean = cho_solve((factor, True), right, check_finite=False)
        return np.sqrt(p.sigma_sq) * mean, factor

    def _remainder(self, p: Parameters, smooth: Floats) -> Floats:
        """Mean of sigma delta given y and the process at the knots, at the records, shape (N,).

        0 for a record that does not inform the fit, or with A_ii = 0.
        """
        basis = self._basis(p.phi)
        _, variance = self._own(p)
        residual = self.y - self.X @ p.beta - self.a_rows * smooth[self.rows]
        out = np.zeros(len(basis.rest))
        gain = p.sigma_sq * basis.rest[self.rows] * self.a_rows / variance
        out[self.rows] = gain * residual
        return out

    def draw(self, p: Parameters, rng: np.random.Generator) -> Floats:
        """One draw of w at all records, shape (N,)."""
        basis = self._basis(p.phi)
        mean, factor = self._at_knots(p)
        z = rng.standard_normal(mean.size)
        spread = solve_triangular(factor, z, lower=True, trans=1, check_finite=False)
        smooth = basis.rows @ (mean + np.sqrt(p.sigma_sq) * spread)
        noise, variance = self._own(p)
        left = p.sigma_sq * basis.rest
        left[self.rows] *= noise / variance
        own = np.sqrt(left) * rng.standard_normal(left.size)
        return np.asarray(smooth + self._remainder(p, smooth) + own)

    def mean(self, p: Parameters, places: Floats | None = None) -> Floats:
        """E[w | y, parameters] at the records (N,), or at planar places (q, 2).

        A place has a remainder of its own, of mean 0, even where a record lies.
        """
        mean, _ = self._at_knots(p)
        if places is not None:
            there = basis_at(places, self.knots, p.phi, self.model.cov_model)
            return np.asarray(there.rows @ mean)
        smooth = self._basis(p.phi).rows @ mean
        return np.asarray(smooth + self._remainder(p, smooth))
