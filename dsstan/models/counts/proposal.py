"""Laplace's approximation of the posterior of theta, as a histogram to propose from."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from threading import Event
from typing import TypeVar

import numpy as np
from numpy.polynomial import chebyshev
from scipy.optimize import minimize
from threadpoolctl import threadpool_limits

from dsstan.core.arrays import Floats
from dsstan.models.counts.whitened import Frame, WhitenedModel, turn

T = TypeVar("T")
R = TypeVar("R")
LogPrior = Callable[[Floats], float]
Pilot = tuple[Floats, Floats]

COARSE = {2: (7, 12), 3: (5, 7, 7)}
"""Nodes over the whole range, in log phi, log sigma_sq and the log dispersion, by dimension."""
FINE = {2: (12, 12), 3: (7, 7, 10)}
FINE_HELD = {2: (1, 12), 3: (1, 10, 14)}
"""Chebyshev nodes over the part that matters; the second where phi is held."""
CELLS = {2: 160, 3: 48}
"""Cells of the histogram in each direction."""
DROP = 9.0
"""What lies so far below the mode in log density counts as not mattering."""
ANYWHERE = 0.03
"""Share of proposals that are uniform over the whole range: the chain can reach all of it."""
CLIMB = 60
"""Most points on the way from the best coarse node to the top."""
REACH = 5.5
"""The part that matters has so many sds of a quadratic at the top on either side, or one step."""
ZOOMS, WIDE = 2, 4.0
"""A box wider than so many reaches is looked at again, by a grid of its own, at most so often."""
OVER = 1.0
"""By how much the log density between nodes may lie above the highest node."""
PILOT = (32, 3)
"""Draws of z at one theta that correct the approximation at the others, and turns between."""
PILOT_KICKS = 6


@dataclass(frozen=True)
class Proposal:
    """The approximate posterior of theta as a histogram, and where modes are.

    Attributes
    ----------
    low, high
        Ends of the whole range of theta, shape (q,); equal where phi is held.
    box_low, box_high
        Ends of the part with the histogram.
    log_mass
        Log probability of each cell, q axes.
    modes
        Chebyshev coefficients of the mode of x = (beta, w), q axes and (M,).
    coarse, coarse_modes
        Nodes over the whole range (K, q), and the modes there (K, M).
    """

    low: Floats
    high: Floats
    box_low: Floats
    box_high: Floats
    log_mass: Floats
    modes: Floats
    coarse: Floats
    coarse_modes: Floats

    @cached_property
    def width(self) -> Floats:
        """Width of a cell; 0 where phi is held."""
        return np.asarray((self.box_high - self.box_low) / self.log_mass.shape)

    @cached_property
    def cumulated(self) -> Floats:
        """Cumulated probability of the cells."""
        return np.cumsum(np.exp(self.log_mass).ravel())

    @cached_property
    def spread(self) -> Floats:
        """Standard deviation of the histogram in each direction, shape (q,)."""
        mass = np.exp(self.log_mass)
        out = []
        for k, n in enumerate(mass.shape):
            share = mass.sum(axis=tuple(j for j in range(mass.ndim) if j != k))
            place = np.arange(n) - share @ np.arange(n)
            out.append(float(np.sqrt(share @ place**2)))
        return np.array(out) * self.width

    def draw(self, rng: np.random.Generator) -> Floats:
        """One theta."""
        q = self.low.size
        if rng.random() < ANYWHERE:
            return np.asarray(self.low + rng.random(q) * (self.high - self.low))
        cell = int(np.searchsorted(self.cumulated, rng.random() * self.cumulated[-1]))
        where = np.array(np.unravel_index(cell, self.log_mass.shape))
        return np.asarray(self.box_low + (where + rng.random(q)) * self.width)

    def log_density(self, theta: Floats) -> float:
        """Log density of :meth:`draw`; a direction that is held does not count."""
        free = self.high > self.low
        anywhere = float(np.log(ANYWHERE) - np.sum(np.log((self.high - self.low)[free])))
        if not self.inside(theta):
            return anywhere
        cell = np.zeros(theta.size, dtype=int)
        cell[free] = ((theta - self.box_low)[free] / self.width[free]).astype(int)
        cell = np.minimum(cell, np.array(self.log_mass.shape) - 1)
        fine = self.log_mass[tuple(cell)] - float(np.sum(np.log(self.width[free])))
        return float(np.logaddexp(anywhere, np.log1p(-ANYWHERE) + fine))

    def inside(self, theta: Floats) -> bool:
        """Whether theta is in the part with the histogram."""
        return bool(np.all((theta >= self.box_low) & (theta <= self.box_high)))

    def frame(self, model: WhitenedModel, theta: Floats) -> Frame:
        """The frame at theta: one step from the interpolated mode, or from afar about the mode."""
        if self.inside(theta):
            near = _interpolate(self.modes, theta, self.box_low, self.box_high)
            frame = model.frame(theta, near)
            return replace(frame, centre=near + model.newton_step(frame, near)[0])
        nearest = int(np.argmin(np.sum((self.coarse - theta) ** 2, axis=1)))
        return model.mode_frame(theta, self.coarse_modes[nearest])


def run_pilot(model: WhitenedModel, frame: Frame) -> Pilot:
    """Draws of z given one theta, and their log density there.

    The ratio of the marginal likelihoods of two theta is the mean, over z given the first, of the
    ratio of the joint densities: where z barely depends on theta, few draws give it well.
    """
    rng = np.random.default_rng(0)
    z = np.zeros(model.M)
    x = model.place(frame, z)
    value = model.log_joint(frame, x)
    draws, logs = [], []
    for _ in range(PILOT[0]):
        for _ in range(PILOT[1]):
            z, x, value, *_ = turn(model, frame, z, x, value, PILOT_KICKS, rng)
        draws.append(z)
        logs.append(value)
    return np.array(draws), np.array(logs)


def proposal_nodes(low: Floats, high: Floats) -> tuple[int, int]:
    """Fine nodes in log phi, and in all other directions together."""
    first, *others = _fine(low, high)
    return (first, math.prod(others))


def _fine(low: Floats, high: Floats) -> tuple[int, ...]:
    """Fine nodes in each direction."""
    return (FINE_HELD if low[0] == high[0] else FINE)[low.size]


def in_threads(run: Callable[[T], R], items: Iterable[T], workers: int, ended: Event) -> list[R]:
    """What ``run`` gives for each item, one BLAS thread each.

    Where one or the wait for them is interrupted, ``ended`` tells the others.
    """
    with threadpool_limits(limits=1, user_api="blas"), ThreadPoolExecutor(workers) as pool:
        try:
            return list(pool.map(run, items))
        except BaseException:
            ended.set()
            raise


@dataclass
class _Surface:
    """Laplace's approximation of the log posterior of theta at many points."""

    model: WhitenedModel
    log_prior: LogPrior
    workers: int
    advance: Callable[[float], None] | None
    total: int
    done: int = 0
    ended: Event = field(default_factory=Event)

    def at(self, theta: Floats, x: Floats, pilot: Pilot | None = None) -> tuple[float, Floats]:
        """Its value and the mode of x, which is looked for from ``x`` on."""
        if self.ended.is_set():
            raise KeyboardInterrupt
        frame = self.model.mode_frame(theta, x)
        value = frame.log_det + self.log_prior(theta)
        if pilot is None:
            value += self.model.log_joint(frame, frame.centre)
        else:
            value += self.model.log_mean_joint(frame, *pilot)
        self.done += 1
        if self.advance is not None:
            self.advance(min(1.0, self.done / self.total))
        return value, frame.centre

    def on(
        self, axes: list[Floats], x: Floats, pilot: Pilot | None = None
    ) -> tuple[Floats, Floats]:
        """Values (K,) and modes (K, M) on a grid, each value of the first axis in a thread.

        Every row starts from ``x`` and goes on from point to point, so that no number depends on
        how many there are.
        """

        def row(thetas: Floats) -> list[tuple[float, Floats]]:
            near, out = x, []
            for theta in thetas:
                value, near = self.at(theta, near, pilot)
                out.append((value, near))
            return out

        rows = in_threads(row, np.split(_grid(axes), axes[0].size), self.workers, self.ended)
        values, modes = zip(*(point for each in rows for point in each), strict=True)
        return np.array(values), np.array(modes)

    def climb(
        self, theta: Floats, x: Floats, step: Floats, low: Floats, high: Floats
    ) -> tuple[Floats, float, Floats, Floats]:
        """The top from a point on: theta, its value and mode, and the sds of a quadratic there.

        Where the data are many the posterior is a ridge that a coarse grid does not see.
        """
        free = step > 0
        points: list[Floats] = []
        values: list[float] = []
        modes = [x]

        def fall(some: Floats) -> float:
            here = theta.copy()
            here[free] = some
            value, mode = self.at(here, modes[int(np.argmax(values)) + 1] if values else x)
            points.append(here)
            values.append(value)
            modes.append(mode)
            return -value

        begin = np.clip(theta, low + 0.1 * step, high - 0.1 * step)[free]
        simplex = begin + np.vstack([np.zeros(begin.size), np.diag(0.5 * step[free])])
        out = simplex > high[free]
        simplex[out] -= np.broadcast_to(step[free], simplex.shape)[out]
        minimize(
            fall,
            begin,
            method="Nelder-Mead",
            bounds=list(zip(low[free], high[free], strict=True)),
            options={"initial_simplex": simplex, "maxfev": CLIMB, "xatol": 0.02, "fatol": 0.2},
        )
        top = int(np.argmax(values))
        sds = np.zeros(theta.size)
        sds[free] = _quadratic_sds(
            np.array(points)[:, free] - points[top][free], np.array(values) - values[top]
        )
        return points[top], values[top], modes[top + 1], sds


def _quadratic_sds(steps: Floats, drops: Floats) -> Floats:
    """Sds of the normal density whose log is fitted to points near the top; 0 where it is none."""
    near = drops > -DROP
    q = steps.shape[1]
    first, second = np.triu_indices(q)
    basis = np.hstack([steps[near], steps[near][:, first] * steps[near][:, second]])
    if near.sum() <= basis.shape[1]:
        return np.zeros(q)
    found = np.linalg.lstsq(basis, drops[near], rcond=None)[0][q:]
    bend = np.zeros((q, q))
    bend[first, second] -= found
    bend[second, first] -= found
    values, vectors = np.linalg.eigh(bend)
    if values.min() <= 0.0:
        return np.zeros(q)
    return np.asarray(np.sqrt(np.sum(vectors**2 / values, axis=1)))


def build_proposal(
    model: WhitenedModel,
    log_prior: LogPrior,
    low: Floats,
    high: Floats,
    *,
    workers: int = 1,
    advance: Callable[[float], None] | None = None,
) -> Proposal:
    """Laplace's approximation over the range of theta; equal ends of the first where phi is
    held.
    """
    q, held = low.size, low[0] == high[0]
    coarse_shape = tuple(1 if held and k == 0 else n for k, n in enumerate(COARSE[q]))
    shape = _fine(low, high)
    cells = tuple(1 if n == 1 else CELLS[q] for n in shape)
    total = math.prod(coarse_shape) + CLIMB + math.prod(shape)
    surface = _Surface(model, log_prior, workers, advance, total)
    coarse, values, modes, step = _on_grid(surface, low, high, coarse_shape, model.start)
    best = int(np.argmax(values))
    top, height, mode, sds = surface.climb(coarse[best], modes[best], step, low, high)

    def that_matters(points: Floats, values: Floats, step: Floats) -> tuple[Floats, Floats]:
        matters = points[values > max(height, values.max()) - DROP]
        reach = np.minimum(REACH * sds, step)
        ends = np.vstack([matters - step, matters + step, top - reach, top + reach])
        return np.maximum(ends.min(axis=0), low), np.minimum(ends.max(axis=0), high)

    box_low, box_high = that_matters(coarse, values, step)
    for _ in range(ZOOMS):
        # Steps as long as the whole of a narrow top: what matters is but a part of the box.
        if np.all(box_high - box_low <= WIDE * REACH * sds):
            break
        near, values, _, step = _on_grid(surface, box_low, box_high, coarse_shape, mode)
        box_low, box_high = that_matters(near, values, step)
    middle, half = 0.5 * (box_low + box_high), 0.5 * (box_high - box_low)
    nodes = [middle[k] + half[k] * _nodes(n) for k, n in enumerate(shape)]
    pilot = run_pilot(model, model.mode_frame(top, mode))
    fine_values, fine_modes = surface.on(nodes, mode, pilot)
    table = _coefficients(fine_values.reshape(shape), q)
    for n in cells:  # each turn evaluates the first axis and puts it last
        centres = (np.arange(n) + 0.5) * 2.0 / n - 1.0
        basis = chebyshev.chebvander(centres, table.shape[0] - 1)
        table = np.moveaxis(np.tensordot(basis, table, axes=(1, 0)), 0, -1)
    # Between nodes far apart a polynomial may rise above all of them.
    table = np.minimum(table, fine_values.max() + OVER)
    mass = np.exp(np.maximum(table - table.max(), -50.0))
    return Proposal(
        low=low,
        high=high,
        box_low=box_low,
        box_high=box_high,
        log_mass=np.log(mass / mass.sum()),
        modes=_coefficients(fine_modes.reshape(*shape, -1), q),
        coarse=coarse,
        coarse_modes=modes,
    )


def _on_grid(
    surface: _Surface, low: Floats, high: Floats, shape: tuple[int, ...], x: Floats
) -> tuple[Floats, Floats, Floats, Floats]:
    """Points (K, q) of an even grid over a box, values, modes, and the steps of the grid (q,)."""
    axes = [np.linspace(low[k], high[k], n) for k, n in enumerate(shape)]
    step = np.array([axis[1] - axis[0] if axis.size > 1 else 0.0 for axis in axes])
    return _grid(axes), *surface.on(axes, x), step


def _grid(axes: list[Floats]) -> Floats:
    """All combinations, the last fastest, shape (K, q)."""
    return np.stack([g.ravel() for g in np.meshgrid(*axes, indexing="ij")], axis=1)


def _nodes(n: int) -> Floats:
    """Chebyshev nodes of the first kind on [-1, 1]."""
    return np.asarray(chebyshev.chebpts1(n)) if n > 1 else np.zeros(1)


def _coefficients(values: Floats, q: int) -> Floats:
    """Chebyshev coefficients of values at nodes, by the first q axes."""
    for axis in range(q):
        n = values.shape[axis]
        inverse = np.linalg.inv(chebyshev.chebvander(_nodes(n), n - 1))
        values = np.moveaxis(np.tensordot(inverse, values, axes=(1, axis)), 0, axis)
    return values


def _interpolate(coefficients: Floats, theta: Floats, low: Floats, high: Floats) -> Floats:
    """A Chebyshev series at theta; the axis after the q of theta stays."""
    out = coefficients
    for k in range(theta.size):
        width = high[k] - low[k]
        x = 2.0 * (theta[k] - low[k]) / width - 1.0 if width > 0 else 0.0
        out = np.tensordot(chebyshev.chebvander([x], out.shape[0] - 1)[0], out, axes=(0, 0))
    return np.asarray(out)
