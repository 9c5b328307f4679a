"""What the posterior of one record's value is made of: marginal likelihoods as functions of it.

The likelihood of y, and of y and a copy together, with the coefficients and sigma_sq integrated
out, summed over the nodes of a :class:`dsstan.risk.intruder.variance_grid.VarianceGrid`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar
from weakref import WeakKeyDictionary

import numpy as np
from scipy.interpolate import CubicSpline
from scipy.linalg import eigh

from dsstan.core.arrays import Floats, Indices, Truths
from dsstan.core.errors import InputError
from dsstan.covariance.pairs import pairs_of
from dsstan.covariance.protection import removed_variance
from dsstan.models.result import Fit
from dsstan.risk.intruder.scale_integral import log_sum_over_nodes
from dsstan.risk.intruder.variance_grid import Marginal, Spectrum, VarianceGrid, centred

One = TypeVar("One")

REACH = 40.0
"""sds of the law without copies up to which a value may lie: its tails are those of Student's t."""

ROUGH, POINTS, WIDE = 61, 91, 161
"""Values at which a posterior is sought, at which it is taken, and those of a wide spline."""

FINE = 2001
"""Values at which a spline through the log density is summed: quantiles are off by 0.01% of an
sd."""

FLOOR = 600.0
"""Fall of a log density from its top below which it is as good as nothing."""

SMALL = 0.3
"""Share of the scale to begin with: a peak narrower than it is must not lie between two values."""

ROUNDS, SHIFT, GROWTH = 8, 1.0, 1.5
"""How often a grid is moved at most, and the move, in scales, and factor that end it."""


def log_marginal(
    grid: VarianceGrid, found: Marginal, k: int, degrees: int, kept: Truths
) -> Callable[[Floats], Floats]:
    """Log density of each data set as a function of the shift of y_k, shape (D,) to (L, D).

    The variances are integrated out; a constant is left out.
    """
    prior = grid.prior
    base, rate, add = (
        np.broadcast_to(x, kept.shape)[kept]
        for x in (grid.log_weight - found.half_log_det, prior.rate, prior.add)
    )
    constant = np.ascontiguousarray(0.5 * found.square[kept].T) + add
    slope = np.ascontiguousarray(found.score[kept][:, k].T)
    bend = np.ascontiguousarray(0.5 * found.precision[kept][:, k])
    order = 0.5 * degrees + prior.shift

    def density(shift: Floats) -> Floats:
        return np.asarray(log_sum_over_nodes(base, rate, constant, slope, bend, order, shift))

    return density


def joint_spectrum(
    fit: Fit, records: Indices, phi: float, *, copies: Floats, carried: Floats
) -> Spectrum:
    """Of y and a copy together, whose covariance is M + r I too.

    M = [A; C] R [A; C]', C the factor on w in the copies, and the removed variance on y's
    diagonal. Turning each pair (y_i, copy_i) puts all of R into its first half, so that a matrix
    of N rows is decomposed and not one of 2 N.
    """
    problem, rows = fit.problem, fit.informing
    n = problem.n_records
    R = pairs_of(fit).at(phi)
    a, removed = np.zeros(n), np.zeros(n)
    a[rows], removed[rows] = fit.A[rows], removed_variance(fit.A[rows], fit.protection)
    size = np.hypot(a, carried)
    cos = np.divide(carried, size, out=np.ones(n), where=size > 0)
    sin = np.divide(a, size, out=np.zeros(n), where=size > 0)
    first = size[:, None] * R * size
    first[np.diag_indices(n)] += removed * sin**2
    second, between = (removed * cos**2)[rows], (-removed * sin * cos)[rows]
    X, y = centred(fit)

    def turned(of_y: Floats, of_copy: Floats) -> Floats:
        up = sin[:, None] * of_y + cos[:, None] * of_copy
        down = sin[:, None] * of_copy - cos[:, None] * of_y
        return np.concatenate([up, down[rows]])

    if np.any(between):  # smoothed in part, under preserving
        M = np.zeros((n + rows.size, n + rows.size))
        M[:n, :n] = first
        M[np.arange(n, len(M)), np.arange(n, len(M))] = second
        M[rows, np.arange(n, len(M))] = M[np.arange(n, len(M)), rows] = between
        values, Q = eigh(M, check_finite=False, overwrite_a=True)
    else:
        values, Q = eigh(first, check_finite=False, overwrite_a=True)
        values = np.concatenate([values, second])

    def seen(data: Floats) -> Floats:
        return np.concatenate([Q.T @ data[: len(Q)], data[len(Q) :]])

    shift = problem.X @ np.linalg.lstsq(problem.X, problem.y, rcond=None)[0]
    units = np.zeros((n, records.size))
    units[records, np.arange(records.size)] = 1.0
    return Spectrum(
        np.maximum(values, 0.0),
        seen(turned(X, X)),
        seen(turned(y[:, None], (copies - shift).T)),
        seen(turned(units, np.zeros_like(units))),
    )


def wide_spline(grid: VarianceGrid, k: int, mean: float, sd: float) -> Callable[[Floats], Floats]:
    """Log density of y as a function of the shift of y_k, up to the reach of its law.

    It is smooth in asinh((x - mean) / sd), so that a spline does for every later grid.

    Parameters
    ----------
    mean, sd
        Of y_k's law given the others, the mean from y_k.
    """
    return _spline_of_law(_of_y(grid, k), mean, sd)


def _of_y(grid: VarianceGrid, k: int) -> Callable[[Floats], Floats]:
    """Log density of y as a function of the shift of y_k, shape (D,) to (D,)."""
    everywhere = np.ones(grid.log_weight.shape, dtype=bool)
    density = log_marginal(grid, grid.marginal, k, grid.degrees, everywhere)
    return lambda shift: np.asarray(density(shift)[0])


def _spline_of_law(
    density: Callable[[Floats], Floats], mean: float, sd: float
) -> Callable[[Floats], Floats]:
    """A log density up to the reach of a law of this mean and sd."""
    return spline_of(density, mean, sd, 2.0 * REACH * sd + abs(mean), WIDE)


def spline_of(
    density: Callable[[Floats], Floats], centre: float, scale: float, reach: float, points: int
) -> Callable[[Floats], Floats]:
    """A log density by its values at some points, which serve every later grid.

    Parameters
    ----------
    density
        Smooth in asinh((x - centre) / scale).
    reach
        Largest distance from the centre.
    points
        How many.
    """
    end = np.arcsinh(reach / scale)
    at = np.linspace(-end, end, points)
    spline = CubicSpline(at, density(centre + scale * np.sinh(at)))
    return lambda x: np.asarray(spline(np.arcsinh((x - centre) / scale)))


@dataclass(frozen=True, eq=False)
class ValueLaw:
    """The law of one value of y given the others, without any copy.

    Attributes
    ----------
    mean, sd
        The mean from the value that is true.
    log_density
        As a function of the shift from it, a constant left out; see :func:`wide_spline`.
    exactly
        The same without a spline, which has a narrow top at a shared site with a weak nugget.
    """

    mean: float
    sd: float
    log_density: Callable[[Floats], Floats]
    exactly: Callable[[Floats], Floats]


def side_by_side(of: Callable[[int], One], count: int) -> Iterator[One]:
    """What is computed of each record, in their order, on all processors."""
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        yield from pool.map(of, range(count))


_LAWS: WeakKeyDictionary[Fit, dict[int, ValueLaw]] = WeakKeyDictionary()
"""Laws of fits that are still in use, by record."""


def laws_without_copies(fit: Fit, records: Indices) -> list[ValueLaw]:
    """The law of each of some records. Kept as long as the fit is.

    Parameters
    ----------
    fit
        The unrestricted fit, of the exact covariance.
    records
        Positions, of records without a coefficient of their own.

    Raises
    ------
    InputError
        If a law has no finite spread.
    """
    known = _LAWS.setdefault(fit, {})
    missing = np.array([i for i in records.tolist() if i not in known], dtype=np.intp)
    if missing.size:
        grid = VarianceGrid(fit, missing)

        def law(k: int) -> ValueLaw:
            mean, sd = grid.moments(k)
            if not (math.isfinite(mean) and 0.0 < sd < math.inf):
                raise InputError(
                    "the prediction of one record from all others has no finite spread, as where "
                    "they have one value: no intruder can be computed. Model another column"
                )
            density = _of_y(grid, k)
            return ValueLaw(mean, sd, _spline_of_law(density, mean, sd), density)

        known.update(zip(missing.tolist(), side_by_side(law, missing.size), strict=True))
    return [known[i] for i in records.tolist()]


def normalised(
    density: Callable[[Floats], Floats], scale: float, reach: float
) -> tuple[Floats, Floats]:
    """A density on a grid, dense in its middle and as wide as its tails.

    Returns the grid, ascending, and weights that sum to 1.

    Parameters
    ----------
    density
        Its log, a constant left out. Its middle is within some scales of 0.
    scale
        A guess of its sd.
    reach
        Largest distance from 0 that matters.
    """
    centre, scale = 0.0, SMALL * scale
    for _ in range(ROUNDS):
        x, weight = _weighted(density, centre, scale, reach, ROUGH)
        below = np.cumsum(weight) - 0.5 * weight
        low, middle, high = np.interp([0.16, 0.5, 0.84], below, x)
        moved, grown = abs(middle - centre) / scale, 0.5 * (high - low) / scale
        centre, scale = float(middle), float(0.5 * (high - low))
        if moved < SHIFT and 1.0 / GROWTH < grown < GROWTH:
            break
    return _weighted(density, centre, scale, reach, POINTS, FINE)


def _weighted(
    density: Callable[[Floats], Floats],
    centre: float,
    scale: float,
    reach: float,
    points: int,
    fine: int | None = None,
) -> tuple[Floats, Floats]:
    """Values up to the reach whose distance from the centre grows like a sinh, and their weights.

    The density is computed at so many ``points``; a spline through its log gives it at ``fine``.
    """
    first, last = np.arcsinh((np.array([-reach, reach]) - centre) / scale)
    at = np.linspace(first, last, points)
    value = density(centre + scale * np.sinh(at)) + np.log(np.cosh(at))
    value = np.maximum(value - value.max(), -FLOOR)
    if fine is not None:
        spline, at = CubicSpline(at, value), np.linspace(first, last, fine)
        value = spline(at)
    weight = np.exp(value)
    return centre + scale * np.sinh(at), weight / weight.sum()
