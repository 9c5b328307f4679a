"""The spatial effect at distinct sites as a Vecchia process, and how far its density is from exact.

For samplers that hold the effect itself. Its partial sill is 1; sites are numbered by their place
in the max-min order.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.polynomial.chebyshev import Chebyshev
from scipy.linalg import cholesky, solve_triangular
from scipy.spatial.distance import cdist

from dsstan.core.arrays import Floats
from dsstan.core.chebyshev import chebyshev_map, chebyshev_nodes, chebyshev_polynomials
from dsstan.covariance.correlation import correlation, correlation_code
from dsstan.covariance.vecchia.factor_kernels import (
    conditioned_weights,
    pair_slots,
    process_weights,
    unwind,
    unwind_transposed,
    wind,
    wind_transposed,
)
from dsstan.covariance.vecchia.neighbours import Neighbours

__all__ = ["ExactCorrection", "SiteProcess", "Weights", "is_near"]

LEAST = 1e-12
"""Least conditional variance of a site, of 1: sites that are all but the same stay two."""
JITTER = 1e-10
"""Added to the variances where the exact correlations are singular to rounding."""

NEAR, DRAWS = 0.5, 12
"""sd of the correction, over so many draws, up to which a process counts as near: about seven
steps of ten to the exact covariance are then accepted."""
NODES, NODES_EACH = 8, 4
"""Chebyshev nodes in log phi, and more of them for each unit of its range."""

Weights = tuple[Floats, Floats]
"""B and the conditional variances of a process."""


class SiteProcess:
    """A process at sites, each given the nearest earlier ones.

    Parameters
    ----------
    sites
        Distinct planar places, shape (n, 2), in any order.
    near
        Their ordering and neighbours.
    cov_model
        Name of the correlation function.

    Attributes
    ----------
    order
        Position of each site of the process among those given.
    complete
        Whether every site is given all before it, so that the process is exact.
    """

    def __init__(self, sites: Floats, near: Neighbours, cov_model: str) -> None:
        self.order, self.earlier, self.cov_model = near.order, near.earlier, cov_model
        self.sites = np.ascontiguousarray(sites[near.order])
        self.complete = near.earlier.shape[1] >= len(sites) - 1
        self.slots = pair_slots(near.earlier)
        self.low, self.high = np.inf, -np.inf
        self.series = np.empty((0, 0))
        self.weights = lru_cache(maxsize=16)(self._weights)

    def tabulate(self, low: float, high: float) -> None:
        """From here on interpolate weights and log variances within a range of log phi.

        They are smooth in it, and a series costs a tenth of what it stands for. Whatever its
        error, what it gives are the weights of a process.
        """
        nodes = int(np.ceil(NODES + NODES_EACH * (high - low)))
        places = low + 0.5 * (high - low) * (chebyshev_nodes(nodes) + 1.0)
        found = [self._weights(float(place)) for place in places]
        table = np.array([np.concatenate([B.ravel(), np.log(F)]) for B, F in found])
        self.series = chebyshev_map(nodes) @ table
        self.low, self.high = low, high
        self.weights.cache_clear()

    def _weights(self, log_phi: float) -> Weights:
        if self.low <= log_phi <= self.high:
            at = 2.0 * (log_phi - self.low) / (self.high - self.low) - 1.0
            row = chebyshev_polynomials(at, len(self.series)) @ self.series
            shape = self.earlier.shape
            return row[: -shape[0]].reshape(shape), np.exp(row[-shape[0] :])
        code, phi = correlation_code(self.cov_model), float(np.exp(log_phi))
        B, F = process_weights(self.sites, self.earlier, phi, code)
        return B, np.maximum(F, LEAST)

    def given(self, process: Weights, precision: Floats) -> Weights:
        """The process given data of a precision at each site, nearly."""
        B, F = conditioned_weights(*process, precision, self.earlier, self.slots)
        return B, F

    def colour(self, process: Weights, z: Floats) -> Floats:
        """The process that independent normals make, shape (n,)."""
        w = np.sqrt(process[1]) * z
        unwind(process[0], self.earlier, w)
        return np.asarray(w)

    def colour_transposed(self, process: Weights, g: Floats) -> Floats:
        """Gradient by z of a gradient by the process."""
        z = g.copy()
        unwind_transposed(process[0], self.earlier, z)
        return np.asarray(np.sqrt(process[1]) * z)

    def whiten(self, process: Weights, w: Floats) -> Floats:
        """The inverse of :meth:`colour`."""
        return np.asarray(wind(process[0], self.earlier, w) / np.sqrt(process[1]))

    def precision_times(self, process: Weights, w: Floats) -> Floats:
        """(I - B)' F^-1 (I - B) w."""
        out = wind(process[0], self.earlier, w) / process[1]
        wind_transposed(process[0], self.earlier, out)
        return np.asarray(out)


class ExactCorrection:
    """Log density of the exact process less that of a Vecchia process, both of the same sites.

    The quadratic form is solved by conjugate gradients, preconditioned by the Vecchia process: a
    handful of steps where it is near. The log determinants are interpolated in log phi.

    Parameters
    ----------
    process
        The Vecchia process.
    low, high
        Range of log phi in which the log determinants are interpolated; equal where phi is held.

    Attributes
    ----------
    error
        Largest error of the interpolated log determinant, at values held out.
    """

    NODES = (8, 12, 18, 27)
    FINE = 1e-5
    """Nodes of the log determinant, taken in turn until the error is so small."""
    CLOSE = 1e-9
    """Error of the quadratic form at which conjugate gradients stop."""
    MOST_ITERATIONS = 40

    def __init__(self, process: SiteProcess, low: float, high: float) -> None:
        self.process, self.low, self.high = process, low, high
        self.distances = cdist(process.sites, process.sites)
        self.correlation = lru_cache(maxsize=4)(self._correlation)
        self.series, self.error = self._interpolated()

    def _interpolated(self) -> tuple[Callable[[float], float], float]:
        """The log determinant's gap in log phi, and its largest error where it was held out."""
        low, width = self.low, self.high - self.low
        if width <= 0.0:
            held = self._log_det_gap(low)
            return lambda _: held, 0.0
        out = low + width * np.array([0.03, 0.6])
        truth = np.array([self._log_det_gap(float(x)) for x in out])
        for nodes in self.NODES:
            series = Chebyshev.interpolate(
                np.vectorize(self._log_det_gap), nodes - 1, domain=[low, self.high]
            )
            error = float(np.max(np.abs(series(out) - truth)))
            if error < self.FINE:
                break
        return series, error

    def _correlation(self, log_phi: float) -> Floats:
        return correlation(self.distances, float(np.exp(log_phi)), self.process.cov_model)

    def _root(self, log_phi: float) -> Floats:
        """Lower Cholesky factor of R."""
        R = self.correlation(log_phi)
        try:
            return np.asarray(cholesky(R, lower=True, check_finite=False))
        except np.linalg.LinAlgError:
            return np.asarray(cholesky(R + JITTER * np.eye(len(R)), lower=True, check_finite=False))

    def _log_det_gap(self, log_phi: float) -> float:
        """Log determinant of R less that of the process."""
        log_det = 2.0 * float(np.sum(np.log(np.diag(self._root(log_phi)))))
        return log_det - float(np.sum(np.log(self.process.weights(log_phi)[1])))

    def _quadratic(self, log_phi: float, w: Floats, close: float) -> float:
        """w' R^-1 w to an error, by conjugate gradients where these come to an end."""
        process, near = self.process, self.process.weights(log_phi)
        R = self.correlation(log_phi)
        x = process.precision_times(near, w)
        residual = w - R @ x
        value = float((w + residual) @ x)  # 2 w'x - x'R x, at most w'R^-1 w
        direction = process.precision_times(near, residual)
        size = float(residual @ direction)
        for _ in range(self.MOST_ITERATIONS):
            if size < close:
                return value
            along = R @ direction
            length = size / float(direction @ along)
            value += length * size
            residual = residual - length * along
            fresh = process.precision_times(near, residual)
            former, size = size, float(residual @ fresh)
            direction = fresh + (size / former) * direction
        half = solve_triangular(self._root(log_phi), w, lower=True, check_finite=False)
        return float(half @ half)

    def __call__(self, log_phi: float, sigma_sq: float, w: Floats) -> float:
        """The difference at one w, shape (n,)."""
        inside = self.low <= log_phi <= self.high
        gap = float(self.series(log_phi) if inside else self._log_det_gap(log_phi))
        whole = float(np.sum(self.process.whiten(self.process.weights(log_phi), w) ** 2))
        exact = self._quadratic(log_phi, w, self.CLOSE * sigma_sq)
        return 0.5 * ((whole - exact) / sigma_sq - gap)


def is_near(process: SiteProcess, log_phi: float) -> bool:
    """Whether a process is so near the exact one that few steps of a correction are refused."""
    if process.complete:
        return True
    correction, rng = ExactCorrection(process, log_phi, log_phi), np.random.default_rng(0)
    draws = rng.standard_normal((DRAWS, process.order.size))
    weights = process.weights(log_phi)
    gaps = [correction(log_phi, 1.0, process.colour(weights, z)) for z in draws]
    return float(np.std(gaps, ddof=1)) < NEAR
