"""The profile surface: the statistics that make a gradient independent of N.

With V = sigma_sq C, C = M(phi) + r I and r = tau_sq / sigma_sq, the likelihood
needs only log|C| and Z' C^-1 Z, Z = [Q, e] (an orthonormal basis of X and the
least-squares residuals). Both are smooth in (log phi, log r). They are computed
at Chebyshev nodes with LAPACK and interpolated; ``stan/surface.stan`` samples
from them, and ``stan/unrestricted.stan`` builds the same from natural data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack, solve_triangular
from threadpoolctl import threadpool_limits

from dsstan.core.chebyshev import Bounds, ChebyshevGrid, log_position_inv
from dsstan.core.errors import SurfaceError
from dsstan.covariance.correlation import correlation
from dsstan.covariance.protection import protection_of, removed_variance

Floats = NDArray[np.float64]

TOLERANCE = 1e-4
"""Largest error of the log density at a held-out point that a fit may have."""

HELD_OUT_PHI = 6
"""Values of phi, where it is free, at which the interpolation is checked."""

DEFAULT_NODES = (32, 56)
SMOOTH_NODES = (48, 84)
"""Nodes (G, H) to begin with; the second for Matern 5/2, whose R comes nearer to singular."""

MOST_NODES = (64, 112)
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
    m = correlation(d, phi, cov_model)
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
    n, k = z.shape
    rows, cols = np.tril_indices(k)
    out = np.empty((len(r), 1 + rows.size))
    if n == 1:
        diagonal, off, qz = m[0].copy(), np.zeros(1), z
    else:
        work, _ = lapack.dsytrd_lwork(n, lower=1)
        reflectors, diagonal, off, tau, _ = lapack.dsytrd(
            np.asfortranarray(m), lower=1, lwork=int(work), overwrite_a=0
        )
        qz = np.array(z, order="C")
        for i in range(n - 1):
            v = reflectors[i + 1 :, i].copy()
            v[0] = 1.0
            qz[i + 1 :] -= np.outer(tau[i] * v, v @ qz[i + 1 :])
    for h, ratio in enumerate(r):
        pivots, ratios, info = lapack.dpttrf(diagonal + ratio, off)
        if info != 0:
            raise SurfaceError(
                "the covariance is not positive definite at a node of the surface; "
                "raise the lower bound of tau_sq / sigma_sq (Priors.r_bounds)"
            )
        solved, _ = lapack.dpttrs(pivots, ratios, qz)
        s = (1.0 + ratio) * (qz.T @ solved)
        out[h, 0] = np.sum(np.log(pivots)) - n * np.log1p(ratio)
        out[h, 1:] = 0.5 * (s + s.T)[rows, cols]
    return out


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
    """The symmetric matrix whose lower triangle follows the log determinant."""
    k = (math.isqrt(8 * (s.size - 1) + 1) - 1) // 2
    full = np.zeros((k, k))
    full[np.tril_indices(k)] = s[1:]
    return np.asarray(full + np.tril(full, -1).T)


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

    def stan_data(self) -> dict[str, Any]:
        """Data of ``stan/surface.stan`` that come from the surface."""
        return {
            "n": self.n,
            "P": self.rotation.b.size,
            "G": self.nodes[0],
            "H": self.nodes[1],
            # H coefficients of statistic 1, then of 2, ...
            "surface": np.moveaxis(self.coefficients, 2, 1).reshape(self.nodes[0], -1),
            "factor": self.rotation.T,
            "b_ls": self.rotation.b,
            "phi_lower": self.phi_bounds[0],
            "phi_upper": self.phi_bounds[1],
        }


def first_nodes(cov_model: str) -> tuple[int, int]:
    """Nodes (G, H) to begin with."""
    return SMOOTH_NODES if cov_model == "matern52" else DEFAULT_NODES


class Statistics(Protocol):
    """Where the statistics of a surface come from: exact, or an approximation of C."""

    @property
    def rotation(self) -> Rotation:
        """The data that the statistics are of."""

    def at(self, phi: Floats, r: Floats) -> Iterator[Floats]:
        """Scaled statistics at each phi, as :func:`node_statistics` gives them for all r."""


@dataclass(frozen=True)
class ExactStatistics:
    """Statistics of the exact covariance, by LAPACK.

    Attributes
    ----------
    smoothed
        M at a value of phi; see :func:`smoothed_correlation`.
    rotation
        The data.
    """

    smoothed: Callable[[float], Floats]
    rotation: Rotation

    def at(self, phi: Floats, r: Floats) -> Iterator[Floats]:
        """Scaled statistics at each phi, shape (H, K)."""
        for value in phi:
            yield node_statistics(self.smoothed(float(value)), self.rotation.Z, r)


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
    smoothed = partial(
        smoothed_correlation,
        distances,
        a_diag=a_diag,
        protection=protection,
        cov_model=cov_model,
    )
    return interpolate(
        ExactStatistics(smoothed, rotate(X, y)),
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
        to 64 and 112.
    tolerance
        Largest error of the log density accepted.
    seed
        Of the held-out points.
    advance
        Called with the share done, from 0 to 1.

    Raises
    ------
    SurfaceError
        If the error is not below the tolerance.
    """
    g, h = nodes
    while True:
        g = 1 if phi_bounds[0] == phi_bounds[1] else g
        surface = surface_of(source, phi_bounds, r_bounds, (g, h), seed=seed, advance=advance)
        if surface.error < tolerance:
            return surface
        if fixed or h >= MOST_NODES[1]:
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


def error_at(surface: Interpolant, exact: Floats, phi: float, r: float) -> float:
    """Error of the log density at one point, at its best beta and sigma_sq."""
    u, sigma_sq = best_at(exact, surface.n, r)
    near = response_log_density(surface.at(phi, r), u, surface.n, sigma_sq, r)
    return abs(near - response_log_density(exact, u, surface.n, sigma_sq, r))
