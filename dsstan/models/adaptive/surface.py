"""The profile surface where A depends on the node, in two panels with the kink between them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.linalg import cholesky, lapack, solve_triangular
from threadpoolctl import threadpool_limits

from dsstan.core.arrays import Floats
from dsstan.core.chebyshev import ChebyshevGrid, log_position_inv
from dsstan.core.errors import SurfaceError
from dsstan.covariance.correlation import correlation, dissimilarity
from dsstan.covariance.likelihood_surface import HELD_OUT_PHI, TOLERANCE, Surface, error_at
from dsstan.covariance.protection import protection_of, removed_variance
from dsstan.covariance.surface_statistics import (
    Rotation,
    node_statistics,
    response_log_density,
    rotate,
    scaled,
    solved,
    tridiagonal,
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
        them, for r on one side of the kink.

        One reduction serves all r, but below the kink under ``preserving`` each takes a factor.
        """
        R = correlation(self.distances, phi, self.cov_model)
        if self.rule.name == "step" or r.min() >= self.rule.kink:
            return node_statistics(self._smoothed(R, phi, float(r[0])), z, r)
        if not protection_of(self.protection).variance_returns:
            return self._below_kink(R, z, phi, r)
        rows = []
        for ratio in r:
            C = self._smoothed(R, phi, float(ratio))
            C[np.diag_indices_from(C)] += ratio
            factor = cholesky(C, lower=True, overwrite_a=True, check_finite=False)
            white = solve_triangular(factor, z, lower=True, check_finite=False)
            log_det = 2.0 * float(np.sum(np.log(np.diag(factor))))
            rows.append(scaled(log_det, white.T @ white, len(z), float(ratio)))
        return np.stack(rows)

    def _below_kink(self, R: Floats, z: Floats, phi: float, r: Floats) -> Floats:
        """The statistics where A R A + r I, with 1 / A^2 = 1 + (kink / r - 1) a, is linear in r
        between two A:

            A^-1 (A R A + r I) A^-1 = R + kink a + r (1 - a) = B + (r - s) (1 - a),

        a diagonal and B the matrix at an r = s, whose factor L makes it L (I + (r - s) M) L'.
        """
        n, kink = len(z), self.rule.kink
        a = dissimilarity(self.nearest, phi, self.cov_model)
        s = min(kink, 1.0)
        R[np.diag_indices_from(R)] += kink * a + s * (1.0 - a)
        L = cholesky(R, lower=True, overwrite_a=True, check_finite=False)
        M, _ = lapack.dsygst(np.diag(1.0 - a), L, lower=1, overwrite_a=1)
        root = np.sqrt(1.0 + self.rule.gamma_at(r)[:, None] * a)
        between = np.concatenate(root[..., None] * z, axis=1)
        white = solve_triangular(L, between, lower=True, check_finite=False)
        diagonal, off, white = tridiagonal(M, white)
        log_det = 2.0 * np.sum(np.log(np.diag(L))) - 2.0 * np.sum(np.log(root), axis=1)
        rows = []
        for ratio, fixed, part in zip(r, log_det, np.split(white, r.size, axis=1), strict=True):
            t = float(ratio) - s
            moved, quadratic = solved(1.0 + t * diagonal, t * off, part)
            rows.append(scaled(float(fixed) + moved, quadratic, n, float(ratio)))
        return np.stack(rows)

    def _smoothed(self, R: Floats, phi: float, r: float) -> Floats:
        """M in V = sigma_sq (M + r I) at a node, shape (N, N)."""
        A = self.rule.diagonal(self.nearest, phi, r, self.cov_model)
        m = A[:, None] * R
        m *= A
        m[np.diag_indices_from(m)] += removed_variance(A, self.protection)
        return m


@dataclass(frozen=True)
class AdaptiveSurface:
    """An interpolant on each side of the kink.

    Attributes
    ----------
    panels
        In rising r, one where the kink is no inner point of its range. The second is what is added
        to the first, which is read at the kink where r is above it.
    error
        Largest error of the log density at the held-out points.
    """

    panels: tuple[Surface, ...]
    error: float

    @property
    def rotation(self) -> Rotation:
        """Basis of X that the statistics refer to."""
        return self.panels[0].rotation

    @property
    def n(self) -> int:
        """Number of records."""
        return self.panels[0].n

    @property
    def nodes(self) -> tuple[int, int]:
        """Nodes (G, H), H of both sides."""
        return self.panels[0].nodes[0], sum(panel.nodes[1] for panel in self.panels)

    def at(self, phi: float, r: float) -> Floats:
        """Interpolated scaled statistics at (phi, r), shape (K,)."""
        parts = [panel.at(phi, float(np.clip(r, *panel.r_bounds))) for panel in self.panels]
        return np.asarray(np.sum(parts, axis=0))

    def stan_data(self) -> dict[str, Any]:
        """Data of ``stan/surface.stan`` that come from the surface."""
        return self.panels[0].stan_data(*self.panels[1:])

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
    """Build and check the panels."""
    g, h = nodes
    rotation = rotate(X, y)
    low, high = r_bounds
    kink = float(np.clip(setting.rule.kink, low, high))
    rng = np.random.default_rng(seed)
    check_phi = log_position_inv(rng.uniform(-1, 1, HELD_OUT_PHI), phi_bounds)
    check_r = np.sort(log_position_inv(rng.uniform(-1, 1, 24), r_bounds))
    sides = list(itertools.pairwise(sorted({low, kink, high})))
    total = len(sides) * g + check_phi.size
    panels: list[Surface] = []
    with threadpool_limits(limits=1, user_api="blas"):
        for bounds in sides:
            grid = ChebyshevGrid((g, h), (phi_bounds, bounds))
            phi_nodes, r = grid.points
            values = []
            for phi in phi_nodes:
                values.append(setting.statistics(rotation.Z, float(phi), r))
                if advance is not None:
                    advance((len(panels) * g + len(values)) / total)
            coefficients = grid.coefficients(np.stack(values))
            for panel in panels:
                # A Chebyshev polynomial is 1 at the upper end.
                coefficients[:, 0] -= panel.coefficients.sum(axis=1)
            panels.append(Surface(grid, coefficients, rotation, len(y), np.inf))
        surface, error = AdaptiveSurface(tuple(panels), np.inf), 0.0
        for i, phi in enumerate(check_phi):
            for part in (check_r[check_r < kink], check_r[check_r >= kink]):
                if part.size:
                    exact = setting.statistics(rotation.Z, float(phi), part)
                    for s, ratio in zip(exact, part, strict=True):
                        error = max(error, error_at(surface, s, float(phi), float(ratio)))
            if advance is not None:
                advance((total - check_phi.size + i + 1) / total)
    return replace(surface, error=error)
