"""Vecchia's likelihood brought to the exact one, or to that of more neighbours.

The surface by m neighbours needs dozens of nodes over a wide box. What it lacks of better
statistics is small and smooth where the posterior lies, so a few nodes there hold it: it is
interpolated by itself and added. Up to 5000 rows (``EXACT_ROWS``) the better statistics are the
exact ones. Beyond they are those of twice as many neighbours, doubled until they are enough and no
posterior mean is still to move by a tenth of its sd, going by what the last doubling moved. Of more
than 10,000 rows (``MOST_ROWS``) they are those of as many neighbours as were asked for, unchecked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from scipy.linalg import lapack, solve_triangular
from scipy.spatial.distance import cdist
from threadpoolctl import threadpool_limits

from dsstan.core.arrays import Floats
from dsstan.core.chebyshev import ChebyshevGrid, log_position_inv
from dsstan.core.errors import SurfaceError
from dsstan.covariance.correlation import correlation
from dsstan.covariance.likelihood_surface import Surface, error_at
from dsstan.covariance.surface_statistics import matrix_of
from dsstan.covariance.vecchia.statistics import VecchiaStatistics
from dsstan.covariance.window import Window, inner_box, profile

__all__ = ["MOVED", "DenseStatistics", "Refinement", "posterior_moments", "refined_surface"]

EXACT_ROWS = 5000
"""Most rows, one a site and smoothing, whose exact statistics are added."""

MOST_ROWS = 10_000
"""Rows beyond which no more neighbours are taken than are asked for: sixty of them cost fourteen
times a fit at 20,000 rows, where the sds are so small that a move of one matters little."""

ENOUGH = 60
"""Neighbours that are enough if the last doubling moved little."""

MOST = 120
"""Most neighbours that are tried."""

MOVED = 0.1
"""Move of a posterior mean, in its sds, that is not accepted."""

SHARE = 0.5
"""What is left after a doubling by what that moved, from 60 neighbours on. On the tables of
``tests/vecchia_tables.py`` it was at most 0.42 wherever that was more than 0.03."""

INNER = 20.0
"""Fall of the log density from its top at which the box of the difference ends."""

NODES = (4, 6, 9, 13, 19, 28)
"""Nodes of the difference along each side, the next where its error is too large."""

OF_LONGER = 40
"""Nodes at the last where phi has an exponential prior, whose range is longer."""

NEAR_ENOUGH = 0.05
"""Largest error of the log density that may be left. It moves a mean by less, in sds."""

OUTER = 4.0
"""Fall of the log density from its top at the points where it is measured."""

BETWEEN = 10
"""So many points between those."""

POINTS = 61
"""Points along each side over which moments are summed."""


Moments = tuple[Floats, Floats]
"""Means and sds."""


class Sums(Protocol):
    """Statistics that are wanted, at few nodes."""

    def sums(self, phi: Floats, r: Floats) -> Floats:
        """Scaled statistics at every node, shape (G, H, K)."""


@dataclass(frozen=True, eq=False)
class DenseStatistics:
    """The exact statistics of the rows of Vecchia's, by one Cholesky factor a node."""

    source: VecchiaStatistics

    def sums(self, phi: Floats, r: Floats) -> Floats:
        """Scaled statistics at every node, shape (G, H, K)."""
        s = self.source
        distances, out = cdist(s.sites, s.sites), []
        with threadpool_limits(limits=1, user_api="blas"):
            for value in phi:
                M = correlation(distances, float(value), s.cov_model)
                M *= s.a[:, None]
                M *= s.a
                out.append([self._one(M, float(ratio)) for ratio in r])
        return s.with_contrasts(np.array(out), r)

    def _one(self, M: Floats, r: float) -> Floats:
        """Of M with its diagonal still to come."""
        C = M.copy()
        C[np.diag_indices_from(C)] = self.source.own + r
        root, info = lapack.dpotrf(C.T, lower=1, overwrite_a=1, clean=0)
        if info != 0:
            raise SurfaceError(
                "the covariance is not positive definite at a node of the surface; "
                "raise the lower bound of tau_sq / sigma_sq (Priors.r_bounds)"
            )
        half = solve_triangular(root, self.source.z, lower=True, check_finite=False)
        log_det = 2.0 * np.log(np.diag(root)).sum() - len(C) * np.log1p(r)
        return np.append(log_det, (1.0 + r) * (half.T @ half)[np.tril_indices(half.shape[1])])


@dataclass(frozen=True)
class Refinement:
    """What was added to Vecchia's likelihood, and what it moved.

    Attributes
    ----------
    neighbours
        Of the surface that was refined.
    by
        ``"exact"``, or the number of neighbours of the likelihood that it became.
    moved
        By how much each posterior mean moved, in its sds: of the logs of phi, sigma_sq and
        tau_sq and of every coefficient, in the order of the terms. Empty where it was not looked
        at, of too many rows.
    left
        The largest move that is still to be expected, in sds; infinite where it is not known.
    where
        Of which of these: its position in ``moved``.
    """

    neighbours: int
    by: int | str
    moved: tuple[float, ...]
    left: float
    where: int

    @property
    def most_moved(self) -> int:
        """Position of the largest move."""
        return int(np.argmax(np.abs(self.moved)))


def refined_surface(
    source: VecchiaStatistics,
    surface: Surface,
    more: Callable[[int], Sums],
    *,
    at_least: int = 0,
    phi_rate: float = 0.0,
) -> tuple[Surface, Window | None, Refinement]:
    """The surface where the posterior lies, refined; as it is, without a window, where it is not.

    Parameters
    ----------
    source, surface
        Of m neighbours.
    more
        Gives the statistics of another number of neighbours.
    at_least
        Neighbours that the caller asked for.
    phi_rate
        Of the prior of phi; see :class:`dsstan.covariance.window.Window`.
    """
    m = source.neighbours.earlier.shape[1]
    many = len(source.sites) > MOST_ROWS
    if many and at_least <= m:
        return surface, None, Refinement(m, m, (), np.inf, 0)
    box = inner_box(surface, INNER, phi_rate)
    ends = box.phi_bounds, box.r_bounds
    grid = ChebyshevGrid(surface.nodes, ends)
    values = surface.grid.on(surface.coefficients, *grid.points)
    rough = replace(surface, grid=grid, coefficients=grid.coefficients(values))
    if many:
        fine, _ = _with_difference(rough, more(at_least), phi_rate)
        return fine, inner_box(fine, np.inf, phi_rate), Refinement(m, at_least, (), np.inf, 0)
    first = posterior_moments(rough, phi_rate)
    by: int | str = "exact"
    if len(source.sites) <= EXACT_ROWS:
        (fine, left), where = _with_difference(rough, DenseStatistics(source), phi_rate), 0
    else:
        fine, by, left, where = _doubled(rough, first, more, m, at_least, phi_rate)
    found = posterior_moments(fine, phi_rate)
    moved = (found[0] - first[0]) / found[1]
    done = Refinement(m, by, tuple(moved.tolist()), left, where)
    return fine, inner_box(fine, np.inf, phi_rate), done


def _doubled(
    rough: Surface,
    found: Moments,
    more: Callable[[int], Sums],
    m: int,
    at_least: int,
    phi_rate: float,
) -> tuple[Surface, int, float, int]:
    """The surface of twice as many neighbours, and so on until they are enough.

    With their number, the largest move that is still to be expected, and of which mean; ``found``
    are the moments by m.
    """
    count, left = m, np.inf
    while count < max(ENOUGH, at_least) or (left > MOVED and count < MOST):
        count, before = min(2 * count, max(MOST, at_least)), found
        fine, error = _with_difference(rough, more(count), phi_rate)
        found = posterior_moments(fine, phi_rate)
        step = np.abs(found[0] - before[0]) / found[1]
        still = float(step.max()) * (SHARE if count >= ENOUGH else 1.0)
        left, where = max(still, error), int(np.argmax(step))
    return fine, count, left, where


def _with_difference(rough: Surface, wanted: Sums, phi_rate: float) -> tuple[Surface, float]:
    """The surface with what it lacks of the statistics wanted, and the error that is left."""
    ends, held = rough.grid.bounds, rough.phi_bounds[0] == rough.phi_bounds[1]
    for count in NODES if phi_rate == 0.0 else (*NODES, OF_LONGER):
        g, h = (min(count, most) for most in rough.nodes)
        few = ChebyshevGrid((g, h), ends)
        lacks = wanted.sums(*few.points) - rough.grid.on(rough.coefficients, *few.points)
        coefficients = rough.coefficients.copy()
        coefficients[:g, :h] += few.coefficients(lacks)
        fine = replace(rough, coefficients=coefficients)
        points = _outermost(fine, phi_rate)
        error = 0.0 if points else np.inf
        for phi, r in points[2 if held else 0 :]:
            s = wanted.sums(np.array([phi]), np.array([r]))[0, 0]
            error = max(error, error_at(fine, s, phi, r))
        if error < NEAR_ENOUGH:
            break
    return fine, error


def _outermost(surface: Surface, phi_rate: float) -> list[tuple[float, float]]:
    """The points (phi, r) of least and most phi, least and most r where the posterior lies.

    A surface that is wrong somewhere may have its top there: so these are points of its own. Where
    the prior of phi pulls to long ranges, at which a difference bends more, also some between. None
    where somewhere in its box its statistics are those of no covariance.
    """
    phi, r, density = profile(surface, surface.n, surface.phi_bounds, surface.r_bounds, phi_rate)
    i, j = np.nonzero(density > density.max() - OUTER)
    full = matrix_of(surface.grid.on(surface.coefficients, phi, r))
    if not (np.isfinite(density).all() and np.linalg.eigvalsh(full).min() > 0.0):
        return []
    at = [i.argmin(), i.argmax(), j.argmin(), j.argmax()]
    if phi_rate > 0.0:
        at += np.linspace(0, i.size - 1, BETWEEN).astype(int).tolist()
    return [(float(phi[i[k]]), float(r[j[k]])) for k in at]


def posterior_moments(surface: Surface, phi_rate: float = 0.0) -> tuple[Floats, Floats]:
    """Means and sds of log phi, log sigma_sq, log tau_sq and every coefficient.

    Under flat priors of sigma, tau and the coefficients, which is near enough to say by how many
    sds a likelihood moves them. That of phi is flat where its rate is 0, else exponential.
    """
    n, P = surface.n, surface.rotation.b.size
    held = surface.phi_bounds[0] == surface.phi_bounds[1]
    phi = log_position_inv(np.linspace(-1, 1, 1 if held else POINTS), surface.phi_bounds)
    r = log_position_inv(np.linspace(-1, 1, POINTS), surface.r_bounds)
    s = surface.grid.on(surface.coefficients, phi, r)
    full = matrix_of(s)
    inverse = np.linalg.inv(full[..., :P, :P])
    u = -inverse @ full[..., :P, P:]
    rest = full[..., P, P] + np.sum(full[..., :P, P] * u[..., 0], axis=-1)
    # The factors 1 + r of the determinants and of the quadratic form cancel.
    density = -0.5 * (s[..., 0] - np.linalg.slogdet(inverse)[1] + (n - P) * np.log(rest))
    density += (np.log(phi) - phi_rate * phi)[:, None] + 0.5 * np.log(r)
    mass = np.exp(density - density.max())
    mass /= mass.sum()
    sigma = np.log(rest / ((1.0 + r) * (n - P)))
    back = np.linalg.inv(surface.rotation.T)
    beta = np.moveaxis(surface.rotation.b - u[..., 0] @ back.T, -1, 0)
    within = np.einsum("ij,abjk,ik->iab", back, inverse, back) * rest / (n - P)
    log_phi, of_sigma = (
        np.broadcast_to(np.log(phi)[:, None], sigma.shape),
        np.full_like(sigma, 2.0 / (n - P)),
    )
    values = np.stack([log_phi, sigma, sigma + np.log(r), *beta])
    variance = np.stack([np.zeros_like(sigma), of_sigma, of_sigma, *within])
    means = np.sum(mass * values, axis=(1, 2))
    spread = np.sum(mass * ((values - means[:, None, None]) ** 2 + variance), axis=(1, 2))
    if held:  # it moves by nothing, not by rounding
        means[0], spread[0] = log_phi[0, 0], 1.0
    return means, np.sqrt(spread)
