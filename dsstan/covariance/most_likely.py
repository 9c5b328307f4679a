"""The most likely decay in time and share of the groups, at which a fit holds them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.optimize import minimize
from threadpoolctl import threadpool_limits

from dsstan.core.arrays import Floats
from dsstan.core.errors import InputError
from dsstan.covariance.base import SpatialModel
from dsstan.covariance.pairs import Pairs, pairs_of
from dsstan.covariance.surface_statistics import MANY, halved, rotate

__all__ = ["MOST_SHARE", "Ties", "most_likely", "time_decay_range"]

MOST_SHARE = 0.99
"""Largest share of the groups that is looked at."""

NEARLY_ONE, HIGH, NEARLY_NONE = 1.0 - 1e-6, 0.99, 1e-4
"""Correlations in time: over all times at the lower end of the decay and where the lattice begins,
between the nearest two times at the upper end."""

STARTS = 3
"""Points of the lattice, the most likely ones, from which the maximum is climbed to."""

RATIOS, SHARES, POINTS = (0.1, 0.5, 2.0), (0.05, 0.3, 0.6), 4
"""Values of r and q on the lattice, and how many of each decay."""

AT_END = 0.01
"""Share of a range, nearer to whose end than this a value lies at it."""


@dataclass(frozen=True)
class Ties:
    """The most likely values, None where the table has no time or no groups.

    Attributes
    ----------
    time_decay, group_share
        c and q.
    undecided
        What the table does not tell, in words.
    """

    time_decay: float | None = None
    group_share: float | None = None
    undecided: tuple[str, ...] = ()


def time_decay_range(times: Floats) -> tuple[float, float]:
    """Range of the decay in time: from hardly any over all times to no correlation of the nearest.

    Parameters
    ----------
    times
        Shape (N,), not all the same.
    """
    distinct = np.unique(times)
    low = -np.log(NEARLY_ONE) / (distinct[-1] - distinct[0])
    return float(low), float(-np.log(NEARLY_NONE) / np.diff(distinct).min())


def most_likely(
    model: SpatialModel, phi_bounds: tuple[float, float], r_bounds: tuple[float, float]
) -> Ties:
    """Maximum likelihood of c and q, with phi, r, the coefficients and sigma_sq, unsmoothed.

    Of 700 informing records or more, records of different blocks count as independent.

    Parameters
    ----------
    model
        Its informing records are used; c and q are held where the model has them already.
    phi_bounds, r_bounds
        Ranges of phi and r; equal ends hold phi.

    Raises
    ------
    InputError
        If all informing records have one time.
    """
    structure = model.problem.structure
    assert structure is not None
    axes = [_decays(phi_bounds), (np.log(RATIOS), np.log(r_bounds))]
    decays = structure.times is not None and model.time_decay is None
    shares = structure.groups is not None and model.group_share is None
    if decays:
        assert structure.times is not None
        times = structure.times[model.informing]
        if np.ptp(times) == 0.0:
            raise InputError(
                f"all records that inform the fit have one {structure.time!r}, so nothing can be "
                "learnt about time: give time_decay, or prepare the table without a time"
            )
        low, high = time_decay_range(times)
        first = low * np.log(HIGH) / np.log(NEARLY_ONE)
        axes.append((_decays((first, high))[0], np.log([low, high])))
    if shares:
        axes.append((np.array(SHARES), np.array([0.0, MOST_SHARE])))
    likelihood = _likelihood(model)

    def loss(at: Floats) -> float:
        time_decay, group_share = model.time_decay or 0.0, model.group_share or 0.0
        rest = list(at[2:])
        if decays:
            time_decay = float(np.exp(rest.pop(0)))
        if shares:
            group_share = float(rest[0])
        return -likelihood(np.exp(at[0]), np.exp(at[1]), time_decay, group_share)

    ends = np.array([bounds for _, bounds in axes])
    with threadpool_limits(limits=1, user_api="blas"):
        points = [np.clip(p, ends[:, 0], ends[:, 1]) for p in product(*(v for v, _ in axes))]
        points.sort(key=loss)
        climbed = [
            minimize(loss, point, method="L-BFGS-B", bounds=ends) for point in points[:STARTS]
        ]
    best = min(climbed, key=lambda c: float(c.fun)).x
    near = (best - ends[:, 0]) / np.maximum(np.ptp(ends, axis=1), 1e-300)
    found, undecided = Ties(model.time_decay, model.group_share), []
    if decays:
        found = replace(found, time_decay=float(np.exp(best[2])))
        if near[2] < AT_END:
            undecided.append(f"the effect hardly changes with {structure.time!r}")
        elif near[2] > 1.0 - AT_END:
            undecided.append(f"the effects of different times of {structure.time!r} are unrelated")
    if shares:
        found = replace(found, group_share=float(best[-1]))
        if near[-1] < AT_END:
            undecided.append(f"the groups of {structure.group!r} have nothing in common")
    return replace(found, undecided=tuple(undecided))


def _decays(bounds: tuple[float, float]) -> tuple[Floats, Floats]:
    """Values of a decay on the lattice and its ends, both as logs; one value where it is held."""
    ends = np.log(bounds)
    points = 1 if bounds[0] == bounds[1] else POINTS
    return ends[0] + np.ptp(ends) * (np.arange(points) + 0.5) / points, ends


def _likelihood(model: SpatialModel) -> Callable[[float, float, float, float], float]:
    """Log likelihood of (phi, r, c, q), the coefficients and sigma_sq at their best."""
    rows = model.informing
    X, y, sites = (
        values[rows] for values in (model.problem.X, model.problem.y, model.problem.sites)
    )
    rotation = rotate(X, y)
    blocks = list(halved(sites)) if rows.size >= MANY else [np.arange(rows.size)]
    parts = [(pairs_of(model, rows[block]), rotation.Z[block]) for block in blocks]

    def at(phi: float, r: float, time_decay: float, group_share: float) -> float:
        try:
            each = list(_sums(parts, phi, r, time_decay, group_share))
        except LinAlgError:  # singular to rounding, at a tiny r
            return -np.inf
        log_det, full = sum(det for det, _ in each), np.sum([s for _, s in each], axis=0)
        left = full[-1, -1] - full[-1, :-1] @ np.linalg.solve(full[:-1, :-1], full[:-1, -1])
        return float(-0.5 * (log_det + rows.size * np.log(left)))

    return at


def _sums(
    parts: list[tuple[Pairs, Floats]], phi: float, r: float, time_decay: float, group_share: float
) -> Iterator[tuple[float, Floats]]:
    """log|C| and Z' C^-1 Z of each block."""
    for pairs, Z in parts:
        C = replace(pairs, time_decay=time_decay, group_share=group_share).at(phi)
        C[np.diag_indices_from(C)] += r
        factor = cho_factor(C, lower=True, overwrite_a=True, check_finite=False)
        log_det = 2.0 * np.sum(np.log(np.diag(factor[0])))
        yield log_det, Z.T @ cho_solve(factor, Z, check_finite=False)
