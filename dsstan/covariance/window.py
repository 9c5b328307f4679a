"""Where the posterior of (phi, r) lies, so that a surface of many records covers no more.

The error of the interpolated log density grows with N while the posterior shrinks. So the terms
of some records, each with all its neighbours, give a first surface over the whole range of the
prior, those of more a second one over the box in which the first is not negligible, and the final
one, of all records, covers the box in which that one is not. Of the exact covariance the first
surface is that of blocks of records, taken as independent of one another: it costs as much as one
or two nodes of the final one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from dsstan.core.arrays import Floats, Truths
from dsstan.core.chebyshev import Bounds, ChebyshevGrid, log_position_inv
from dsstan.core.errors import SurfaceError
from dsstan.covariance.likelihood_surface import TOLERANCE, Surface, first_nodes, interpolate
from dsstan.covariance.surface_statistics import ExactStatistics, Rotation, Statistics, matrix_of

__all__ = ["Window", "exact_surface", "narrowed_surface", "profile"]

STAGES = ((10_000, (24, 48)), (40_000, (20, 24)), (200_000, (16, 20)))
"""Records whose terms make a surface before the final one, and its nodes (G, H)."""

OF_BLOCKS = (24, 48)
"""Nodes (G, H) of the first surface of the exact covariance."""

TIMES = 2
"""So many times as many nodes G of either where phi has an exponential prior: its range is longer,
and statistics of smooth correlations bend most at its low end."""

FEWER = 0.75
"""Nodes of a narrow exact surface by those in proportion to its box, to begin with."""

HELD_OUT = 4
"""Values of phi at which a narrow exact surface is checked."""

DROP = 40.0
"""Fall of the log density of such a surface, from its top, at which the next box ends."""

EDGE = 25.0
"""Least fall of the final log density at an end of the box that is not one of the prior."""

LEAST_NODES = (8, 14)
GRID = 161
"""Points along each side at which a surface is looked at."""

GROWTH = 1.4
"""Nodes of the next attempt by those of one whose error was above the tolerance."""

_WIDENINGS = 6


class PartialStatistics(Statistics, Protocol):
    """Statistics that some of the records give as well as all."""

    @property
    def sites(self) -> Floats:
        """Places of the records that may be chosen from, shape (q, 2)."""

    def sums(self, phi: Floats, r: Floats, records: NDArray[np.int64] | None = None) -> Floats:
        """Scaled statistics at every node, of some or all records, shape (G, H, K)."""


@dataclass(frozen=True)
class Window:
    """A box of (phi, r) and where in it the log density is highest, NaN where nobody looked.

    ``phi_rate`` is the rate of the exponential prior of phi, 0 where it is uniform.
    """

    phi_bounds: Bounds
    r_bounds: Bounds
    phi: float = np.nan
    r: float = np.nan
    phi_rate: float = 0.0


def profile(
    surface: Surface,
    n: int,
    phi_bounds: tuple[float, float],
    r_bounds: tuple[float, float],
    phi_rate: float = 0.0,
) -> tuple[Floats, Floats, Floats]:
    """Log density on a grid over a box, at the best beta and sigma_sq of each point.

    That of the likelihood and the prior of phi; the others move it little.

    Parameters
    ----------
    surface
        Of the statistics.
    n
        Number of records that they are sums over.
    phi_bounds, r_bounds
        The box, within that of the surface.
    phi_rate
        Of the prior of phi; see :class:`Window`.

    Returns
    -------
    phi, r, density
        Shapes (A,), (B,) and (A, B), up to a constant.
    """
    count = 1 if phi_bounds[0] == phi_bounds[1] else GRID
    phi = log_position_inv(np.linspace(-1, 1, count), phi_bounds)
    r = log_position_inv(np.linspace(-1, 1, GRID), r_bounds)
    s = surface.grid.on(surface.coefficients, phi, r)
    p = surface.rotation.b.size
    full = matrix_of(s)
    # Of some records a column of X may be all zero: its coefficient is then left at 0.
    least = 1e-13 * np.trace(full[..., :p, :p], axis1=-2, axis2=-1)[..., None, None] * np.eye(p)
    beta = np.linalg.solve(full[..., :p, :p] + least, full[..., :p, p:])
    rest = full[..., p, p] - (full[..., p, :p] * beta[..., 0]).sum(axis=-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        # The factor 1 + r of log|C| and that of the quadratic form cancel.
        density = -0.5 * (s[..., 0] + n * np.log(rest)) - phi_rate * phi[:, None]
    return phi, r, np.where(np.isfinite(density), density, -np.inf)


def narrowed_surface(
    source: PartialStatistics,
    phi_bounds: tuple[float, float],
    r_bounds: tuple[float, float],
    *,
    nodes: tuple[int, int] | None = None,
    cov_model: str = "exponential",
    phi_rate: float = 0.0,
    tolerance: float = TOLERANCE,
    seed: int = 0,
    advance: Callable[[float], None] | None = None,
) -> tuple[Surface, Window]:
    """Surface over the part of the range in which the posterior lies, and that part.

    Parameters
    ----------
    source
        Of the statistics.
    phi_bounds, r_bounds
        Range of the prior; equal ends of ``phi_bounds`` hold the decay.
    nodes
        (G, H), taken as they are; by default by the width of the part.
    cov_model
        Correlation function, on which the number of nodes depends.
    phi_rate
        Of the prior of phi; see :class:`Window`.
    tolerance, seed, advance
        See :func:`dsstan.covariance.likelihood_surface.interpolate`.

    Raises
    ------
    SurfaceError
        If the tolerance is not met, or the posterior is not found.
    """
    rng, count = np.random.default_rng([seed, 1]), len(source.sites)
    window = whole = Window(phi_bounds, r_bounds, phi_rate=phi_rate)
    for size, with_nodes in STAGES:
        if size < count or np.isnan(window.phi):
            some = np.sort(rng.choice(count, min(count, size), replace=False))
            part = None if some.size == count else some
            n = len(source.rotation.Z) if part is None else some.size
            sums = partial(source.sums, records=part)
            window = _narrower(sums, source.rotation, n, window, with_nodes)
    fixed, most = nodes is not None, nodes or first_nodes(cov_model)
    how: dict[str, Any] = {"tolerance": tolerance, "seed": seed, "advance": advance}
    return _final(source, window, whole, most, fixed=fixed, **how)


def exact_surface(
    source: ExactStatistics,
    phi_bounds: Bounds,
    r_bounds: Bounds,
    *,
    nodes: tuple[int, int] | None = None,
    cov_model: str = "exponential",
    phi_rate: float = 0.0,
    narrow: bool = True,
    **how: Any,
) -> tuple[Surface, Window]:
    """Surface of the exact covariance, and the part of the range that it covers.

    It is narrowed where there are many records, unless nodes are given or ``narrow`` is False.
    Parameters and errors are those of :func:`narrowed_surface`.
    """
    whole = Window(phi_bounds, r_bounds, phi_rate=phi_rate)
    g, h = nodes or first_nodes(cov_model)
    held = phi_bounds[0] == phi_bounds[1]
    if held or not narrow or nodes is not None or not source.blocks:
        fixed = nodes is not None
        return interpolate(source, phi_bounds, r_bounds, (g, h), fixed=fixed, **how), whole

    def sums(phi: Floats, r: Floats) -> Floats:
        with threadpool_limits(limits=1, user_api="blas"):
            return np.stack(list(source.block_by_block(phi, r)))

    window = _narrower(sums, source.rotation, len(source.rotation.Z), whole, OF_BLOCKS)
    return _final(source, window, whole, (math.ceil(FEWER * g), h), checks=HELD_OUT, **how)


def _final(
    source: Statistics,
    window: Window,
    whole: Window,
    most: tuple[int, int],
    *,
    fixed: bool = False,
    **how: Any,
) -> tuple[Surface, Window]:
    """The surface over a box, wider until the density at its ends is low, and the box.

    ``most`` are the nodes of the whole range, or ``fixed`` those of any box.
    """
    for _ in range(_WIDENINGS):
        bounds, nodes = (window.phi_bounds, window.r_bounds), _nodes(window, whole, most)
        surface = interpolate(
            source, *bounds, most if fixed else nodes, fixed=fixed, growth=GROWTH, **how
        )
        wider, found = _checked(surface, window, whole)
        if not wider:
            return surface, found
        window = found
    raise SurfaceError(
        "the posterior of phi and tau_sq / sigma_sq was not found in the range of the prior; give "
        "narrower ranges (Priors)"
    )


def _narrower(
    sums: Callable[[Floats, Floats], Floats],
    rotation: Rotation,
    n: int,
    window: Window,
    nodes: tuple[int, int],
) -> Window:
    """The part of a box in which rough statistics, as of n records, are not negligible."""
    phi_bounds, r_bounds = window.phi_bounds, window.r_bounds
    g = nodes[0] * (TIMES if window.phi_rate > 0.0 else 1)
    if phi_bounds[0] == phi_bounds[1]:
        g = 1
    grid = ChebyshevGrid((g, nodes[1]), (phi_bounds, r_bounds))
    coefficients = grid.coefficients(sums(*grid.points))
    return inner_box(Surface(grid, coefficients, rotation, n, np.inf), DROP, window.phi_rate)


def inner_box(surface: Surface, drop: float, phi_rate: float = 0.0) -> Window:
    """The part of a surface's box in which the log density is within ``drop`` of its top."""
    phi_bounds, r_bounds = surface.phi_bounds, surface.r_bounds
    at_phi, at_r, density = profile(surface, surface.n, phi_bounds, r_bounds, phi_rate)
    there = density > density.max() - drop
    top = np.unravel_index(int(np.argmax(density)), density.shape)
    return Window(
        _around(at_phi, there.any(axis=1), phi_bounds),
        _around(at_r, there.any(axis=0), r_bounds),
        float(at_phi[top[0]]),
        float(at_r[top[1]]),
        phi_rate,
    )


def _around(values: Floats, there: Truths, bounds: tuple[float, float]) -> tuple[float, float]:
    """The range of the values that are there, one step wider on each side."""
    if values.size == 1:
        return bounds
    where = np.flatnonzero(there)
    low, high = max(where[0] - 1, 0), min(where[-1] + 1, values.size - 1)
    # The ends of the box itself to the bit: there the prior ends, not the surface.
    return (
        bounds[0] if low == 0 else float(values[low]),
        bounds[1] if high == values.size - 1 else float(values[high]),
    )


def _nodes(window: Window, whole: Window, all_nodes: tuple[int, int]) -> tuple[int, int]:
    """Nodes for a box: in proportion to its sides, and some for the least of boxes."""
    found = []
    for part, range_, most, least in (
        (window.phi_bounds, whole.phi_bounds, all_nodes[0], LEAST_NODES[0]),
        (window.r_bounds, whole.r_bounds, all_nodes[1], LEAST_NODES[1]),
    ):
        wide = np.log(range_[1] / range_[0])
        share = 1.0 if wide == 0 else np.log(part[1] / part[0]) / wide
        found.append(int(min(most, max(least, np.ceil(most * share)))))
    return found[0], found[1]


def _checked(surface: Surface, window: Window, whole: Window) -> tuple[bool, Window]:
    """Whether the box must be wider, and the box: the wider one, or this with its top."""
    rate = window.phi_rate
    phi, r, density = profile(surface, surface.n, window.phi_bounds, window.r_bounds, rate)
    top = np.unravel_index(int(np.argmax(density)), density.shape)
    least = density.max() - EDGE
    along_phi, along_r = density.max(axis=1), density.max(axis=0)
    new_phi = _wider(window.phi_bounds, whole.phi_bounds, along_phi, least)
    new_r = _wider(window.r_bounds, whole.r_bounds, along_r, least)
    wider = new_phi != window.phi_bounds or new_r != window.r_bounds
    return wider, Window(new_phi, new_r, float(phi[top[0]]), float(r[top[1]]), rate)


def _wider(
    part: tuple[float, float], whole: tuple[float, float], along: Floats, least: float
) -> tuple[float, float]:
    """A side of the box, stretched by its own width where the density is high at an end."""
    if part[0] == part[1]:
        return part
    factor = part[1] / part[0]
    low, high = part
    if along[0] > least:
        low = max(whole[0], part[0] / factor)
    if along[-1] > least:
        high = min(whole[1], part[1] * factor)
    return float(low), float(high)
