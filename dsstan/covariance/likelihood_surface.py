"""The profile surface, which makes a gradient independent of N.

The statistics of the likelihood (:mod:`dsstan.covariance.surface_statistics`) are smooth in
(log phi, log r). They are computed at Chebyshev nodes and interpolated; ``stan/surface.stan``
samples from them, and ``stan/unrestricted.stan`` builds the same from natural data.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from threadpoolctl import threadpool_limits

from dsstan.core.arrays import Floats
from dsstan.core.chebyshev import Bounds, ChebyshevGrid, log_position_inv
from dsstan.core.errors import SurfaceError, check_count
from dsstan.covariance.surface_statistics import (
    ExactStatistics,
    Rotation,
    Statistics,
    best_at,
    coefficients_at,
    exact_statistics,
    matrix_of,
    node_statistics,
    response_log_density,
    rotate,
    smoothed_correlation,
)

__all__ = [
    "DEFAULT_NODES",
    "HELD_OUT_PHI",
    "MOST_NODES",
    "SMOOTH_NODES",
    "TOLERANCE",
    "ExactStatistics",
    "Interpolant",
    "Rotation",
    "Statistics",
    "Surface",
    "best_at",
    "build_surface",
    "coefficients_at",
    "error_at",
    "first_nodes",
    "interpolate",
    "matrix_of",
    "node_statistics",
    "response_log_density",
    "rotate",
    "smoothed_correlation",
    "surface_of",
]


TOLERANCE = 1e-4
"""Largest error of the log density at a held-out point that a fit may have."""

HELD_OUT_PHI = 6
"""Values of phi, where it is free, at which the interpolation is checked."""

DEFAULT_NODES = (32, 56)
SMOOTH_NODES = (48, 84)
"""Nodes (G, H) to begin with; the second for Matern 5/2, whose R comes nearer to singular."""

MOST_NODES = (64, 112)

USUAL, OF_LONGER = 100.0, 128
"""Ratio of the ends of the usual range of phi, and nodes G at the last where it is larger."""


@dataclass(frozen=True)
class Surface:
    """An interpolated surface and its measured error.

    Attributes
    ----------
    grid
        Nodes (G, H) and the ranges of phi and r covered; equal ends mean a held decay.
    coefficients
        Chebyshev coefficients of the K statistics, shape (G, H, K).
    rotation
        Basis of X that the statistics refer to.
    n
        Number of informing records.
    error
        Largest error of the log density at the held-out points.
    """

    grid: ChebyshevGrid
    coefficients: Floats
    rotation: Rotation
    n: int
    error: float

    @property
    def nodes(self) -> tuple[int, int]:
        """(G, H)."""
        return self.grid.nodes

    @property
    def phi_bounds(self) -> Bounds:
        """Range of phi covered."""
        return self.grid.bounds[0]

    @property
    def r_bounds(self) -> Bounds:
        """Range of tau_sq / sigma_sq covered."""
        return self.grid.bounds[1]

    def at(self, phi: float, r: float) -> Floats:
        """Interpolated scaled statistics at (phi, r), shape (K,)."""
        for name, value, (low, high) in (
            ("phi", phi, self.phi_bounds),
            ("tau_sq / sigma_sq", r, self.r_bounds),
        ):
            if not low * (1 - 1e-9) <= value <= high * (1 + 1e-9):
                raise SurfaceError(f"{name} lies outside the range that the surface covers")
        return self.grid.at(self.coefficients, phi, r)

    def log_density(self, beta: Floats, sigma_sq: float, tau_sq: float, phi: float) -> float:
        """Log density of the response at natural parameters, all constants kept."""
        u = self.rotation.T @ (self.rotation.b - beta)
        r = tau_sq / sigma_sq
        return response_log_density(self.at(phi, r), u, self.n, sigma_sq, r)

    def stan_data(self, above: Surface | None = None) -> dict[str, Any]:
        """Data of ``stan/surface.stan`` that come from the surface.

        ``above`` is added to it where tau_sq / sigma_sq is larger than it covers.
        """
        G, _, K = self.coefficients.shape
        added = np.zeros((G, 1, K)) if above is None else above.coefficients
        # H coefficients of statistic 1, then of 2, ...
        columns = [np.moveaxis(c, 2, 1).reshape(G, -1) for c in (self.coefficients, added)]
        return {
            "n": self.n,
            "P": self.rotation.b.size,
            "G": self.nodes[0],
            "H": self.nodes[1],
            "H_above": added.shape[1],
            "r_split": self.r_bounds[1],
            "surface": np.hstack(columns),
            "factor": self.rotation.T,
            "b_ls": self.rotation.b,
            "phi_lower": self.phi_bounds[0],
            "phi_upper": self.phi_bounds[1],
        }


def first_nodes(cov_model: str) -> tuple[int, int]:
    """Nodes (G, H) to begin with."""
    return SMOOTH_NODES if cov_model == "matern52" else DEFAULT_NODES


def build_surface(
    distances: Floats,
    X: Floats,
    y: Floats,
    *,
    a_diag: Floats,
    protection: str,
    phi_bounds: tuple[float, float],
    r_bounds: tuple[float, float],
    cov_model: str = "exponential",
    nodes: tuple[int, int] | None = None,
    tolerance: float = TOLERANCE,
    seed: int = 0,
    advance: Callable[[float], None] | None = None,
) -> Surface:
    """Exact surface whose error at held-out points is below the tolerance.

    Parameters
    ----------
    distances
        Among the informing records, shape (n, n).
    X, y
        Their design matrix (n, P) and response (n,).
    a_diag, protection
        See :func:`smoothed_correlation`.
    phi_bounds, r_bounds
        Ranges to cover; equal ends of ``phi_bounds`` hold the decay.
    cov_model
        Correlation function, one of :data:`dsstan.covariance.correlation.CORRELATIONS`.
    nodes
        (G, H), taken as they are; by default 32 and 56 (48 and 84 for Matern 5/2), doubled as
        needed up to 64 and 112.
    tolerance, seed, advance
        See :func:`interpolate`.

    Raises
    ------
    SurfaceError
        If the error is not below the tolerance: with given nodes at once,
        otherwise at the largest number of nodes tried.
    """
    source = exact_statistics(
        distances, X, y, a_diag=a_diag, protection=protection, cov_model=cov_model
    )
    return interpolate(
        source,
        phi_bounds,
        r_bounds,
        nodes or first_nodes(cov_model),
        fixed=nodes is not None,
        tolerance=tolerance,
        seed=seed,
        advance=advance,
    )


def interpolate(
    source: Statistics,
    phi_bounds: tuple[float, float],
    r_bounds: tuple[float, float],
    nodes: tuple[int, int],
    *,
    fixed: bool = False,
    growth: float = 2.0,
    tolerance: float = TOLERANCE,
    seed: int = 0,
    checks: int = HELD_OUT_PHI,
    advance: Callable[[float], None] | None = None,
) -> Surface:
    """Surface of statistics whose error at held-out points is below the tolerance.

    Parameters
    ----------
    source
        Of the statistics.
    phi_bounds, r_bounds
        Ranges to cover; equal ends of ``phi_bounds`` hold the decay.
    nodes
        (G, H) to begin with; unless they are ``fixed``, ``growth`` times as many as needed, up
        to 64 and 112, or 128 and 112 where the range of phi is longer than the usual one.
    tolerance
        Largest error of the log density accepted.
    seed, checks
        Of the held-out points, and at how many values of phi they lie.
    advance
        Called with the share done, from 0 to 1.

    Raises
    ------
    SurfaceError
        If the error is not below the tolerance.
    """
    g, h = (check_count("nodes", count) for count in nodes)
    while True:
        g = 1 if phi_bounds[0] == phi_bounds[1] else g
        surface = surface_of(
            source, phi_bounds, r_bounds, (g, h), seed=seed, checks=checks, advance=advance
        )
        if surface.error < tolerance:
            return surface
        at_most = h >= MOST_NODES[1]
        if at_most and not fixed and g < OF_LONGER and phi_bounds[1] > 1.01 * USUAL * phi_bounds[0]:
            g = OF_LONGER
            continue
        if fixed or at_most:
            raise SurfaceError(
                f"the interpolated log density is off by {surface.error:.2g} at a held-out point "
                f"with {g} x {h} nodes; below {tolerance:g} is needed. Ask for more nodes, or "
                "narrow the ranges of phi and tau_sq / sigma_sq (Priors)"
            )
        g, h = (
            min(math.ceil(growth * now), most) for now, most in zip((g, h), MOST_NODES, strict=True)
        )


def surface_of(
    source: Statistics,
    phi_bounds: tuple[float, float],
    r_bounds: tuple[float, float],
    nodes: tuple[int, int],
    *,
    seed: int = 0,
    checks: int = HELD_OUT_PHI,
    advance: Callable[[float], None] | None = None,
) -> Surface:
    """Surface with these nodes, its error measured at ``checks`` values of phi (none: infinite)."""
    held = phi_bounds[0] == phi_bounds[1]
    rotation = source.rotation
    rng = np.random.default_rng(seed)
    check_phi = (
        np.full(min(checks, 1), phi_bounds[0])
        if held
        else log_position_inv(rng.uniform(-1, 1, checks), phi_bounds)
    )
    check_r = log_position_inv(rng.uniform(-1, 1, 24), r_bounds)
    grid = ChebyshevGrid(nodes, (phi_bounds, r_bounds))
    phi_nodes, r = grid.points
    total = nodes[0] + check_phi.size
    values = []
    # One BLAS thread: the same bytes on every machine size, and no quarrel
    # with the sampler's own threads.
    with threadpool_limits(limits=1, user_api="blas"):
        for i, found in enumerate(source.at(phi_nodes, r)):
            values.append(found)
            if advance is not None:
                advance((i + 1) / total)
        surface = Surface(
            grid, grid.coefficients(np.stack(values)), rotation, len(rotation.Z), np.inf
        )
        error = 0.0 if check_phi.size else np.inf
        for i, exact in enumerate(source.at(check_phi, check_r)):
            phi = float(check_phi[i])
            for s, ratio in zip(exact, check_r, strict=True):
                error = max(error, error_at(surface, s, phi, float(ratio)))
            if advance is not None:
                advance((nodes[0] + i + 1) / total)
    return replace(surface, error=error)


class Interpolant(Protocol):
    """What an interpolated surface offers."""

    @property
    def n(self) -> int:
        """Number of informing records."""

    def at(self, phi: float, r: float) -> Floats:
        """Interpolated scaled statistics at (phi, r)."""


def error_at(surface: Interpolant, exact: Floats, phi: float, r: float) -> float:
    """Error of the log density at one point, at its best beta and sigma_sq; inf if it is none."""
    u, sigma_sq = best_at(exact, surface.n, r)
    near = response_log_density(surface.at(phi, r), u, surface.n, sigma_sq, r)
    error = abs(near - response_log_density(exact, u, surface.n, sigma_sq, r))
    return error if np.isfinite(error) else np.inf
