"""The profile surface where A depends on the node, in two panels with the kink between them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from threadpoolctl import threadpool_limits

from dsstan.core.arrays import Floats
from dsstan.core.chebyshev import ChebyshevGrid, log_position_inv
from dsstan.core.errors import SurfaceError
from dsstan.covariance.correlation import correlation
from dsstan.covariance.likelihood_surface import HELD_OUT_PHI, TOLERANCE, Surface, error_at
from dsstan.covariance.protection import protection_of, removed_variance
from dsstan.covariance.surface_statistics import (
    Rotation,
    node_statistics,
    response_log_density,
    rotate,
)
from dsstan.models.adaptive.rules import AdaptiveRule

NODES = ((32, 28), (48, 42), (64, 56))
"""Nodes (G, H) tried until the tolerance is met; H on each side of the kink."""

NODES_PRESERVING = ((32, 36), (48, 54), (64, 72))
NODES_STEP = ((48, 56), (64, 56), (96, 84), (128, 84))
"""Of a step, which is one panel in log r and sharp in log phi."""


@dataclass(frozen=True)
class Setting:
    """What the statistics depend on beside (phi, r).

    Attributes
    ----------
    distances
        Among the records, shape (N, N).
    nearest
        Distance of each to its neighbour, shape (N,).
    rule, protection, cov_model
        See :func:`dsstan.models.adaptive.fit.fit_adaptive`.
    """

    distances: Floats
    nearest: Floats
    rule: AdaptiveRule
    protection: str
    cov_model: str

    def statistics(self, z: Floats, phi: float, r: Floats) -> Floats:
        """Scaled statistics as :func:`dsstan.covariance.surface_statistics.node_statistics` gives
        them.

        Where A does not depend on r one reduction serves all r, else each takes a factor.
        """
        R = correlation(self.distances, phi, self.cov_model)
        if self.rule.name == "step" or r.min() >= self.rule.kink:
            return node_statistics(self._smoothed(R, phi, float(r[0])), z, r)
        n, k = z.shape
        lower = np.tril_indices(k)
        out = np.empty((r.size, 1 + lower[0].size))
        for h, ratio in enumerate(r):
            C = self._smoothed(R, phi, float(ratio))
            C[np.diag_indices_from(C)] += ratio
            factor = cholesky(C, lower=True, overwrite_a=True, check_finite=False)
            white = solve_triangular(factor, z, lower=True, check_finite=False)
            out[h, 0] = 2.0 * np.sum(np.log(np.diag(factor))) - n * np.log1p(ratio)
            out[h, 1:] = ((1.0 + ratio) * (white.T @ white))[lower]
        return out

    def _smoothed(self, R: Floats, phi: float, r: float) -> Floats:
        """M in V = sigma_sq (M + r I) at a node, shape (N, N)."""
        A = self.rule.diagonal(self.nearest, phi, r, self.cov_model)
        m = A[:, None] * R
        m *= A
        m[np.diag_indices_from(m)] += removed_variance(A, self.protection)
        return m


@dataclass(frozen=True)
class AdaptiveSurface:
    """Two interpolants that share the kink.

    Attributes
    ----------
    below, above
        For r up to the kink and from it on; equal ends of ``r_bounds`` where a side is empty.
    error
        Largest error of the log density at the held-out points.
    """

    below: Surface
    above: Surface
    error: float

    @property
    def rotation(self) -> Rotation:
        """Basis of X that the statistics refer to."""
        return self.below.rotation

    @property
    def n(self) -> int:
        """Number of records."""
        return self.below.n

    @property
    def nodes(self) -> tuple[int, int]:
        """Nodes (G, H), H of both sides."""
        return self.below.nodes[0], self.below.nodes[1] + self.above.nodes[1]

    def at(self, phi: float, r: float) -> Floats:
        """Interpolated scaled statistics at (phi, r), shape (K,)."""
        kink = self.below.r_bounds[1]
        shared = self.below.at(phi, kink)
        return self.below.at(phi, min(r, kink)) + self.above.at(phi, max(r, kink)) - shared

    def log_density(self, beta: Floats, sigma_sq: float, tau_sq: float, phi: float) -> float:
        """Log density of the response at natural parameters, all constants kept."""
        u = self.rotation.T @ (self.rotation.b - beta)
        r = tau_sq / sigma_sq
        return response_log_density(self.at(phi, r), u, self.n, sigma_sq, r)


def build_adaptive_surface(
    setting: Setting,
    X: Floats,
    y: Floats,
    *,
    phi_bounds: tuple[float, float],
    r_bounds: tuple[float, float],
    nodes: tuple[int, int] | None = None,
    tolerance: float = TOLERANCE,
    seed: int = 0,
    advance: Callable[[float], None] | None = None,
) -> AdaptiveSurface:
    """Surface whose error at held-out points is below the tolerance.

    Raises SurfaceError if the error is not below the tolerance.

    Parameters
    ----------
    setting
        Distances, rule, protection.
    X, y
        Design matrix (N, P) and response (N,).
    phi_bounds, r_bounds
        Ranges to cover.
    nodes
        (G, H), H on each side of the kink; by default as many as the tolerance needs.
    tolerance, seed, advance
        See :func:`dsstan.covariance.likelihood_surface.build_surface`.
    """
    if nodes is not None:
        tried: tuple[tuple[int, int], ...] = (nodes,)
    elif setting.rule.name == "step":
        tried = NODES_STEP
    else:
        returns = protection_of(setting.protection).variance_returns
        tried = NODES_PRESERVING if returns else NODES
    for g, h in tried:
        surface = _build(setting, X, y, phi_bounds, r_bounds, (g, h), seed, advance)
        if surface.error < tolerance:
            return surface
    raise SurfaceError(
        f"the interpolated log density is off by {surface.error:.2g} at a held-out point with "
        f"{g} x {h} nodes; below {tolerance:g} is needed. "
        + (
            "A wider step is easier to interpolate"
            if setting.rule.name == "step"
            else "Narrow the ranges of phi and tau_sq / sigma_sq (Priors)"
        )
    )


def _build(
    setting: Setting,
    X: Floats,
    y: Floats,
    phi_bounds: tuple[float, float],
    r_bounds: tuple[float, float],
    nodes: tuple[int, int],
    seed: int,
    advance: Callable[[float], None] | None,
) -> AdaptiveSurface:
    """Build and check both panels."""
    g, h = nodes
    rotation = rotate(X, y)
    low, high = r_bounds
    kink = float(np.clip(setting.rule.kink, low, high))
    rng = np.random.default_rng(seed)
    check_phi = log_position_inv(rng.uniform(-1, 1, HELD_OUT_PHI), phi_bounds)
    check_r = np.sort(log_position_inv(rng.uniform(-1, 1, 24), r_bounds))
    total = 2 * g + check_phi.size
    panels: list[Surface] = []
    with threadpool_limits(limits=1, user_api="blas"):
        for bounds in ((low, kink), (kink, high)):
            count = h if bounds[1] > bounds[0] else 1
            grid = ChebyshevGrid((g, count), (phi_bounds, bounds))
            phi_nodes, r = grid.points
            values = []
            for phi in phi_nodes:
                values.append(setting.statistics(rotation.Z, float(phi), r))
                if advance is not None:
                    advance((len(panels) * g + len(values)) / total)
            coefficients = grid.coefficients(np.stack(values))
            panels.append(Surface(grid, coefficients, rotation, len(y), np.inf))
        surface, error = AdaptiveSurface(panels[0], panels[1], np.inf), 0.0
        for i, phi in enumerate(check_phi):
            for part in (check_r[check_r < kink], check_r[check_r >= kink]):
                if part.size:
                    exact = setting.statistics(rotation.Z, float(phi), part)
                    for s, ratio in zip(exact, part, strict=True):
                        error = max(error, error_at(surface, s, float(phi), float(ratio)))
            if advance is not None:
                advance((2 * g + i + 1) / total)
    return AdaptiveSurface(panels[0], panels[1], error)
