"""The exact posterior of a record's value for an intruder who knows all others.

The intruder knows every other y, all places and covariates, the model and how the copies were made,
and sees all L copies, but not which variances made a copy. Their posterior of y_i is::

    p(y_i | y_-i) prod_l  sum_theta p(copy_l | theta, y) p(theta | y),

the first factor under the unrestricted model. On a grid of theta = (phi, sigma_sq, tau_sq), phi
where it is free, log p(theta | y) and log p(copy_l | theta, y) are quadratic in y_i, so one
factorisation a node serves every value of y_i. The bounds of :mod:`dsstan.risk.attacker` are
approximations of what is computed here.

A held phi, the flags and the scales of the priors are taken as known, although y_i helped to set
them. Copies are taken as they were before rounding.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.interpolate import CubicSpline
from scipy.linalg import solve_triangular
from threadpoolctl import threadpool_limits

from dsstan.copies.result import Synthesis
from dsstan.core.errors import InputError, describe_rows
from dsstan.core.progress import progress_bar
from dsstan.covariance.base import Parameters
from dsstan.covariance.copy_law import copy_law
from dsstan.covariance.eigenbasis import alone
from dsstan.covariance.latent import LatentModel, require_all_pairs
from dsstan.models.predictive import carried_effect
from dsstan.models.result import Fit
from dsstan.risk.attacker import Attack, attack, planned_release
from dsstan.risk.identification import record_positions
from dsstan.risk.variance_grid import VarianceGrid, scale_nodes

__all__ = ["ExactIntruder", "exact_intruder"]

Floats = NDArray[np.float64]

WORST = 10
"""Records that are looked at unless others are asked for: those with the smallest sd."""

STEP = 0.9
"""Distance of the nodes of log r, in sqrt(2 / N), to which a copy tells it at best."""

KEPT_MASS = 1e-8
"""Share of the posterior below which a pair (phi, r) is left out."""

KEPT = 18.0
"""Nodes whose log density is by so much less than the largest are left out, copy by copy."""

ROUGH = 9
"""Values of y_i at which nodes are compared to find those that matter."""

POINTS, REACH, DEPTH, CORE, ENOUGH, ZOOMS = 61, 7.0, 20.0, 5.0, 24, 8
"""Values of y_i, their first reach in sds, the log density that ends the range and that
ends its core, the points that must lie in the range, and how often the range is adapted."""


@dataclass(frozen=True, eq=False)
class ExactIntruder:
    """What an intruder who knows all other records believes of some. Confidential.

    Attributes
    ----------
    records
        One row a record, the smallest sd first: ``position``, ``flagged``; ``sd``, ``mean``,
        ``low`` and ``high`` of the posterior of y_i, the last two the ends of its 95% interval, on
        the modelled scale; ``sd_known``, ``sd_fixed``, the bounds of
        :class:`dsstan.risk.attacker.Attack`; ``sd_leave_one_out``, without any copy, by the grid.
    copies
        L.
    seconds
        Wall time.
    """

    records: pd.DataFrame = field(repr=False)
    copies: int
    seconds: float

    @property
    def worst(self) -> float:
        """The smallest sd."""
        return float(self.records["sd"].min())

    def __str__(self) -> str:
        return (
            "Exact posterior sd of an intruder who knows all other records (modelled scale):\n"
            f"{self.worst:.3g} at least, of {len(self.records)} records after {self.copies} copies"
        )


def exact_intruder(
    release: Synthesis,
    *,
    records: Sequence[int] | None = None,
    exact: int = WORST,
    against: Fit | None = None,
    bounds: Attack | None = None,
    progress: bool | None = None,
) -> ExactIntruder:
    """The intruder's exact posterior of some records, by quadrature over the variances.

    Parameters
    ----------
    release
        The copies.
    records
        Positions of the records; by default the ``exact`` with the smallest sd.
    exact
        How many, 10 by default.
    against
        The unrestricted fit of the belief without copies; by default that of the release.
    bounds
        The :func:`dsstan.risk.attacker.attack` on this release, where it is at hand.

    Raises
    ------
    InputError
        If there is no unrestricted fit, a record is impossible or has a coefficient of its own,
        the covariance is approximated, the weights are continuous, or there are too many records.
    """
    begin = time.perf_counter()
    fit, free, _, effect = planned_release(release, against, None, "auto")
    require_all_pairs("exact_intruder", fit, free)
    if fit.smoothing_moves:
        raise InputError("exact_intruder takes a fixed A, and that of this fit changes by draw")
    if bounds is None:
        bounds = attack(release, against=against, progress=False)
    rows = _chosen(release, records, exact, bounds)
    carried = carried_effect(fit, effect)[0]
    with threadpool_limits(limits=1, user_api="blas"), progress_bar("exact", progress) as advance:
        before = VarianceGrid(free, rows)
        advance(0.2)
        law = _CopyGrid(fit, rows, release.modelled(), carried)
        advance(0.6)
        found, scale = [], bounds.sd(release.copies)
        for k, i in enumerate(rows):
            found.append(_record(before, law, k, float(fit.problem.y[i]), float(scale[i])))
            advance(0.6 + 0.4 * (k + 1) / rows.size)
    table = pd.DataFrame(found, index=bounds.index[rows])
    table.insert(0, "position", rows)
    table.insert(1, "flagged", fit.flagged[rows])
    table["sd_known"] = bounds.sd(release.copies, variances="known")[rows]
    table["sd_fixed"] = bounds.sd(release.copies)[rows]
    return ExactIntruder(table.sort_values("sd"), release.copies, time.perf_counter() - begin)


def _chosen(
    release: Synthesis, records: Sequence[int] | None, exact: int, bounds: Attack
) -> NDArray[np.intp]:
    """Positions asked for, or of the smallest sds."""
    problem = release.problem
    own = alone(problem.X)
    if records is None:
        if isinstance(exact, bool) or not isinstance(exact, int | np.integer) or exact < 1:
            raise InputError("exact must be a whole number from 1 on")
        order = np.argsort(bounds.sd(release.copies, variances="known"), kind="stable")
        return order[~own[order]][: int(exact)].astype(np.intp)
    rows = record_positions(problem, records)
    if own[rows].any():
        raise InputError(
            f"of those asked for, a coefficient of their own have {describe_rows(own[rows])}"
        )
    return rows


class _CopyGrid:
    """Quadratics in y_i of every copy's log density, at the nodes of (phi, r) that matter."""

    def __init__(self, fit: Fit, rows: NDArray[np.intp], copies: Floats, carried: Floats) -> None:
        n = fit.problem.n_records
        self.grid = VarianceGrid(fit, rows, STEP * np.sqrt(2.0 / n))
        self.n = n
        where = np.argwhere((self.grid.masses() > KEPT_MASS * self.grid.masses().max()).any(axis=0))
        self.places = where[:, 0], where[:, 1]
        latent = LatentModel(fit)
        zero, found = np.zeros(fit.problem.n_terms), []
        for g, h in where:
            phi, r = np.exp(self.grid.log_phi[g]), np.exp(self.grid.log_r[h])
            law = copy_law(latent, Parameters(zero, 1.0, float(r), float(phi)), carried)
            root = np.linalg.cholesky(law.Vs)
            right = np.column_stack([law.H[:, rows], copies.T - (law.H @ fit.problem.y)[:, None]])
            z = solve_triangular(root, right, lower=True, check_finite=False)
            own, residual = z[:, : rows.size], z[:, rows.size :]
            squares = np.sum(own**2, axis=0), np.sum(residual**2, axis=0)
            found.append((*squares, residual.T @ own, np.sum(np.log(np.diag(root)))))
        # Shapes (T, M), (T, L), (T, L, M) and (T,), T the number of pairs (phi, r).
        self.bend, self.square, self.slope, self.half_log_det = (
            np.stack(x) for x in zip(*found, strict=True)
        )

    def log_density(self, k: int) -> Callable[[Floats], Floats]:
        """Log density of all copies as a function of the shift of y_k, shape (D,) to (D,)."""
        grid, at = self.grid, self.places
        ends = grid.without(k), np.maximum(grid.quadratic, grid.without(k))
        log_sigma, log_scale = scale_nodes(ends, grid.degrees)
        posterior = grid.log_posterior(grid.quadratic, log_sigma, grid.degrees) + log_scale
        base, scale = posterior[at], np.exp(-log_sigma[at])  # (T, K)
        linear = (-grid.score[at][:, k, None] * scale).ravel()
        curve = (grid.precision[at][:, k, None] * scale).ravel()
        bend = (self.bend[:, k, None] * scale).ravel() + curve
        own = base - 0.5 * self.n * log_sigma[at] - self.half_log_det[:, None]
        base = base.ravel()
        each = [
            (
                (own - 0.5 * square[:, None] * scale).ravel(),
                linear + (slope[:, None] * scale).ravel(),
            )
            for square, slope in zip(self.square.T, self.slope[:, :, k].T, strict=True)
        ]

        def density(shift: Floats) -> Floats:
            total = np.zeros(shift.size)
            whole = _sum_of_quadratics(base, linear, curve, shift)
            for constant, slope in each:
                total += _sum_of_quadratics(constant, slope, bend, shift) - whole
            return total

        return density


def _sum_of_quadratics(constant: Floats, slope: Floats, bend: Floats, x: Floats) -> Floats:
    """log sum_n exp(constant_n + slope_n x - bend_n x^2 / 2), shape (D,)."""
    some = np.linspace(x[0], x[-1], ROUGH)
    rough = constant[:, None] + np.multiply.outer(slope, some)
    rough -= 0.5 * np.multiply.outer(bend, some**2)
    envelope = rough.max(axis=0)
    # A narrow summand may matter between two of these values only: it is compared at its peak.
    with np.errstate(divide="ignore", invalid="ignore"):
        peak = np.clip(np.where(bend > 0, slope / bend, 0.0), x[0], x[-1])
    height = constant + slope * peak - 0.5 * bend * peak**2
    kept = height > np.interp(peak, some, envelope) - KEPT
    kept |= np.any(rough > envelope - KEPT, axis=1)
    value = constant[kept, None] + np.multiply.outer(slope[kept], x)
    value -= 0.5 * np.multiply.outer(bend[kept], x**2)
    top = value.max(axis=0)
    np.exp(np.subtract(value, top, out=value), out=value)
    return np.asarray(top + np.log(value.sum(axis=0)))


def _record(
    before: VarianceGrid, law: _CopyGrid, k: int, y: float, scale: float
) -> dict[str, float]:
    """The posterior of one record."""
    mean, alone_sd = before.moments(k)
    log_weight, shift, variance = before.law(k)
    constant = log_weight - 0.5 * np.log(variance) - 0.5 * shift**2 / variance
    copies = law.log_density(k)

    # The law without copies is wide and smooth: a spline of it does for every later range.
    reach = min(mean, 0.0) - 1.1 * REACH * alone_sd, max(mean, 0.0) + 1.1 * REACH * alone_sd
    wide = np.linspace(*reach, 2 * POINTS)
    prior = CubicSpline(wide, _sum_of_quadratics(constant, shift / variance, 1.0 / variance, wide))

    def density(x: Floats) -> Floats:
        return np.asarray(prior(x) + copies(x))

    fine, weight = _normalised(density, scale)
    centre = float(weight @ fine)
    below = np.cumsum(weight) - 0.5 * weight
    low, high = np.interp([0.025, 0.975], below, fine)
    return {
        "sd": float(np.sqrt(weight @ (fine - centre) ** 2)),
        "mean": y + centre,
        "low": y + float(low),
        "high": y + float(high),
        "sd_leave_one_out": alone_sd,
    }


def _normalised(density: Callable[[Floats], Floats], scale: float) -> tuple[Floats, Floats]:
    """A density on an even grid that holds all its mass: the grid, and weights that sum to 1.

    ``density`` gives its log, a constant left out; the range begins as so many scales around 0.
    """
    low, high = -REACH * scale, REACH * scale
    for _ in range(ZOOMS):
        x = np.linspace(low, high, POINTS)
        value = density(x)
        inside = np.flatnonzero(value > value.max() - DEPTH)
        step, length = x[1] - x[0], high - low
        first, last = inside[0], inside[-1]
        if inside.size >= ENOUGH and first > 0 and last < POINTS - 1:
            break
        # Longer where the range cuts the density, shorter where the density fills little of it.
        low = low - 0.5 * length if first == 0 else x[first] - 1.5 * step
        high = high + 0.5 * length if last == POINTS - 1 else x[last] + 1.5 * step
    # A peak much narrower than its tails gets points of its own.
    core = np.flatnonzero(value > value.max() - CORE)
    first, last = max(core[0] - 1, 0), min(core[-1] + 1, POINTS - 1)
    more = np.linspace(x[first], x[last], POINTS)
    x = np.concatenate([x[:first], more, x[last + 1 :]])
    value = np.concatenate([value[:first], density(more), value[last + 1 :]])
    fine = np.linspace(x[0], x[-1], 40 * (POINTS - 1) + 1)
    found = CubicSpline(x, value - value.max())(fine)
    weight = np.exp(found - found.max())
    return fine, weight / weight.sum()
