"""The exact posterior of a record's value for an intruder who knows all others.

The intruder knows every other y, all places and covariates, the model and how the copies were made,
and sees all L copies, but not which variances made a copy. Their posterior of y_i is::

    p(y_i | y_-i) prod_l  sum_theta p(copy_l | theta, y) p(theta | y),

the first factor under the unrestricted model. The sum for a copy is p(copy_l, y) / p(y), each a
marginal likelihood: of y and the copy together, and of y alone. So are the first factor's terms.
On a grid of (phi, r), phi where it is free, such a likelihood needs a quadratic form in y_i, one
eigendecomposition serves every r, and sigma_sq is integrated out in closed form
(:mod:`dsstan.risk.intruder.variance_grid`). The bounds of :mod:`dsstan.risk.intruder.attacker` are
approximations of what is computed here.

A held phi, the flags and the scales of the priors are taken as known, although y_i helped to set
them. Copies are taken as they were before rounding.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from dsstan.copies.result import Synthesis
from dsstan.core.arrays import Floats, Indices
from dsstan.core.errors import InputError, check_count, describe_rows
from dsstan.core.progress import progress_bar
from dsstan.covariance.eigenbasis import alone
from dsstan.covariance.latent import require_all_pairs
from dsstan.models.predictive import carried_effect
from dsstan.models.result import Fit
from dsstan.risk.intruder.attacker import Attack, attack, planned_release
from dsstan.risk.intruder.noisy_copies import NoisyCopies
from dsstan.risk.intruder.value_posterior import (
    REACH,
    ValueLaw,
    joint_spectrum,
    laws_without_copies,
    log_marginal,
    normalised,
    side_by_side,
    spline_of,
)
from dsstan.risk.intruder.variance_grid import VarianceGrid
from dsstan.table.problem import record_positions

__all__ = ["ExactIntruder", "exact_intruder"]


WORST = 10
"""Records that are looked at unless others are asked for: those with the smallest sd."""

STEP = 1.7
"""Distance of the nodes of log r, in sqrt(2 / N), to which a copy determines it at best."""

NEAR = 10.0
"""So many sds of the law without copies from its mean the density of noisy copies is right."""

KNOTS, CLOSE = 33, 65
"""Values of y_i at which the density of the copies is worked out: as far as its law reaches, and
where the posterior is, which may have two peaks."""

TAIL, BESIDE = 1e-5, 6.0
"""The posterior is between the quantiles that leave so much on either side, and so many of its
scales beside them."""

ROUNDS, MOVED, GROWN = 4, 0.5, 1.5
"""How often it is looked for at most, and the move, in scales, and factor that end it."""

KEPT_MASS = 1e-6
"""Share of the posterior below which a pair (phi, r) is left out."""


@dataclass(frozen=True, eq=False)
class ExactIntruder:
    """What an intruder who knows all other records believes of some. Confidential.

    Attributes
    ----------
    records
        One row a record, the smallest sd first: ``position``, ``flagged``; ``sd``, ``mean``,
        ``low`` and ``high`` of the posterior of y_i, the last two the ends of its 95% interval, on
        the modelled scale; ``middle``, half the length of its central 68%, which is the sd of a
        normal one and less where there is a far second place for y_i; ``interval``, half the length
        of the shortest 95% interval over 1.96, which is the sd of a normal one and what a p-percent
        floor asks for: less where the posterior has a peak and a far tail; ``sd_known`` and
        ``sd_fixed``, the bounds of :class:`dsstan.risk.intruder.attacker.Attack`;
        ``sd_leave_one_out``, without any copy, by the grid; ``rounding``, the step to which the
        record's copies are rounded over tau, the sd of a copy's noise: below 1 rounding changes an
        sd by 4% at most, on average.
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

    def with_more(self, other: ExactIntruder) -> ExactIntruder:
        """The records of both."""
        records = pd.concat([self.records, other.records]).sort_values("sd")
        return ExactIntruder(records, self.copies, self.seconds + other.seconds)

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
        The :func:`dsstan.risk.intruder.attacker.attack` on this release, where it is at hand.

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
        laws = laws_without_copies(free, rows)
        advance(0.2)
        law = CopyGrid(fit, rows, release.modelled(), carried, release.noise)
        advance(0.6)
        scale = bounds.sd(release.copies)
        narrow = bounds.sd(release.copies, variances="known")

        def of(k: int) -> dict[str, float]:
            i = rows[k]
            former = 0.0 if bounds.former is None else float(bounds.former.known[i])
            near, reach = (abs(laws[k].mean) + far * laws[k].sd for far in (NEAR, REACH))
            copies = law.log_density(k, near)
            sds = float(narrow[i]), float(scale[i])
            return _record(laws[k], copies, float(fit.problem.y[i]), sds, reach, former)

        found = []
        for record in side_by_side(of, rows.size):
            found.append(record)
            advance(0.6 + 0.4 * len(found) / rows.size)
    table = pd.DataFrame(found, index=bounds.index[rows])
    table.insert(0, "position", rows)
    table.insert(1, "flagged", fit.flagged[rows])
    table["sd_known"] = narrow[rows]
    table["sd_fixed"] = scale[rows]
    table["rounding"] = _rounding(release)[rows]
    return ExactIntruder(table.sort_values("sd"), release.copies, time.perf_counter() - begin)


def _rounding(release: Synthesis) -> Floats:
    """Largest step of the copies on the modelled scale, over tau, shape (N,); 0 without any."""
    fit, values = release.fit, release.values
    if release.rounding is None:
        return np.zeros(values.shape[1])
    half, forward = 0.5 * max(release.rounding.steps), fit.problem.transform.forward
    width = np.abs(forward(values + half) - forward(values))  # the upper half: below 0 has no log
    return np.asarray(2.0 * width.mean(axis=0) / np.sqrt(fit.draws["tau_sq"]).mean())


def _chosen(
    release: Synthesis, records: Sequence[int] | None, exact: int, bounds: Attack
) -> Indices:
    """Positions asked for, or of the smallest sds."""
    problem = release.problem
    own = alone(problem.X)
    if records is None:
        check_count("exact", exact)
        order = np.argsort(bounds.sd(release.copies, variances="known"), kind="stable")
        return order[~own[order]][: int(exact)].astype(np.intp)
    rows = record_positions(problem, records)
    if own[rows].any():
        raise InputError(
            "a record with a coefficient of its own, such as that of a category with one record, "
            f"has no exact posterior: leave out {describe_rows(own[rows])} of those asked for"
        )
    return rows


class CopyGrid:
    """log p(copies | y) as a function of one value of y, over the nodes that matter."""

    def __init__(
        self,
        fit: Fit,
        rows: Indices,
        copies: Floats,
        carried: Floats,
        noise: Floats | None = None,
    ) -> None:
        self.grid = grid = VarianceGrid(fit, rows, STEP * np.sqrt(2.0 / fit.problem.n_records))
        masses = grid.masses()
        largest = masses.max(axis=(1, 2), keepdims=True)
        self.kept = np.any(masses > KEPT_MASS * largest, axis=0)
        self.count, self.noisy = len(copies), None
        if noise is not None:
            self.noisy = NoisyCopies(grid, self.kept, copies, carried, noise)
        else:
            self.joint = grid.over_nodes(partial(joint_spectrum, copies=copies, carried=carried))
            self.degrees = grid.degrees + fit.problem.n_records

    def log_density(self, k: int, near: float) -> Callable[[Floats], Floats]:
        """Log density of all copies as a function of the shift of y_k, shape (D,) to (D,).

        Right for shifts up to ``near``.
        """
        alone = log_marginal(self.grid, self.grid.marginal, k, self.grid.degrees, self.kept)
        if self.noisy is not None:
            with_noise = self.noisy.log_density(k, near)
            return lambda shift: np.asarray(with_noise(shift) - self.count * alone(shift)[0])
        together = log_marginal(self.grid, self.joint, k, self.degrees, self.kept)
        return lambda shift: np.asarray(together(shift).sum(axis=0) - self.count * alone(shift)[0])


def _posterior(
    law: ValueLaw,
    copies: Callable[[Floats], Floats],
    sds: tuple[float, float],
    reach: float,
    former: float,
) -> tuple[Floats, Floats]:
    """Shifts of one record's value and their weights, which sum to 1.

    The densities are costly: splines through a few values find the posterior, which may be far from
    the value that is true, and another is laid through more values there.
    """
    far = spline_of(copies, 0.0, sds[0], reach, KNOTS)
    at, middle, spread, end = far, np.inf, sds[1], 0.0

    def density(x: Floats) -> Floats:
        there = np.abs(x - middle) <= end
        value = law.log_density(x) + far(x)
        value[there] = at(x[there])
        return np.asarray(value - 0.5 * former * x**2)

    for _ in range(ROUNDS):
        fine, weight = normalised(density, spread, reach)
        below = np.cumsum(weight) - 0.5 * weight
        first, low, now, high, last = np.interp([TAIL, 0.16, 0.5, 0.84, 1.0 - TAIL], below, fine)
        scale = 0.5 * (high - low)
        moved, grown = abs(now - middle) / scale, scale / spread
        middle, spread = float(now), float(scale)
        if moved < MOVED and 1.0 / GROWN < grown < GROWN:
            break
        end = float(max(last - now, now - first) + BESIDE * scale)
        at = spline_of(lambda x: law.exactly(x) + copies(x), middle, spread, end, CLOSE)
    return fine, weight


def _record(
    law: ValueLaw,
    copies: Callable[[Floats], Floats],
    y: float,
    sds: tuple[float, float],
    reach: float,
    former: float,
) -> dict[str, float]:
    """The posterior of one record, whose sds are about between two; ``former`` is the precision
    that former releases add."""
    fine, weight = _posterior(law, copies, sds, reach, former)
    centre = float(weight @ fine)
    below = np.cumsum(weight) - 0.5 * weight
    low, left, right, high = np.interp([0.025, 0.1587, 0.8413, 0.975], below, fine)
    starts = below <= max(0.05, below[0])
    ends = np.interp(below[starts] + 0.95, below, fine)
    return {
        "sd": float(np.sqrt(weight @ (fine - centre) ** 2)),
        "interval": float(np.min(ends - fine[starts])) / (2 * 1.96),
        "middle": 0.5 * float(right - left),
        "mean": y + centre,
        "low": y + float(low),
        "high": y + float(high),
        "sd_leave_one_out": law.sd,
    }
