"""Laplace's approximation of the posterior of theta, as a histogram to propose from."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.polynomial import chebyshev

from dsstan.core.arrays import Floats
from dsstan.models.counts.whitened import Frame, WhitenedModel, turn

LogPrior = Callable[[Floats], float]
Pilot = tuple[Floats, Floats]

COARSE = {2: (7, 12), 3: (5, 7, 5)}
"""Nodes over the whole range, in log phi, log sigma_sq and the log dispersion, by dimension."""
FINE = {2: (12, 12), 3: (8, 8, 7)}
"""Chebyshev nodes over the part that matters."""
CELLS = {2: 96, 3: 36}
"""Cells of the histogram in each direction."""
DROP = 12.0
"""What lies so far below the mode in log density counts as not mattering."""
ANYWHERE = 0.03
"""Share of proposals that are uniform over the whole range: the chain can reach all of it."""
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
        Chebyshev coefficients of the mode of the linear predictor, q axes and (N,).
    coarse, coarse_modes
        Nodes over the whole range (K, q), and the modes there (K, N).
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
        """The frame at theta: one Newton step from the interpolated mode, or many from afar."""
        if self.inside(theta):
            near = _interpolate(self.modes, theta, self.box_low, self.box_high)
            return model.frame(theta, near, steps=1)
        nearest = int(np.argmin(np.sum((self.coarse - theta) ** 2, axis=1)))
        return model.frame(theta, self.coarse_modes[nearest])


def run_pilot(model: WhitenedModel, frame: Frame) -> Pilot:
    """Draws of z given one theta, and their log density there.

    The ratio of the marginal likelihoods of two theta is the mean, over z given the first, of the
    ratio of the joint densities: where z barely depends on theta, few draws give it well.
    """
    rng = np.random.default_rng(0)
    z = np.zeros(model.M)
    u = frame.place(z)
    value = model.log_joint(frame, u)
    draws, logs = [], []
    for _ in range(PILOT[0]):
        for _ in range(PILOT[1]):
            z, u, value, *_ = turn(model, frame, z, u, value, PILOT_KICKS, rng)
        draws.append(z)
        logs.append(value)
    return np.asfortranarray(np.array(draws).T), np.array(logs)


def proposal_nodes(low: Floats, high: Floats) -> tuple[int, int]:
    """Fine nodes in log phi, and in all other directions together."""
    first, *others = FINE[low.size]
    return (1 if low[0] == high[0] else first, math.prod(others))


def build_proposal(
    model: WhitenedModel,
    log_prior: LogPrior,
    low: Floats,
    high: Floats,
    advance: Callable[[float], None] | None = None,
) -> Proposal:
    """Laplace's approximation over the range of theta; equal ends of the first where phi is
    held.
    """
    q, held = low.size, low[0] == high[0]
    coarse_shape = tuple(1 if held and k == 0 else n for k, n in enumerate(COARSE[q]))
    shape = tuple(1 if held and k == 0 else n for k, n in enumerate(FINE[q]))
    cells = tuple(1 if n == 1 else CELLS[q] for n in shape)
    total, done = math.prod(coarse_shape) + math.prod(shape), 0

    def evaluate(thetas: Floats, eta: Floats, pilot: Pilot | None) -> tuple[Floats, Floats]:
        nonlocal done
        values, modes = np.empty(len(thetas)), np.empty((len(thetas), eta.size))
        for k, theta in enumerate(thetas):
            frame = model.frame(theta, eta)
            modes[k] = eta = model.eta(frame.H, frame.centre)
            values[k] = frame.log_det + log_prior(theta)
            if pilot is None:
                values[k] += model.log_joint(frame, frame.centre)
            else:
                values[k] += model.log_mean_joint(frame, *pilot)
            done += 1
            if advance is not None:
                advance(done / total)
        return values, modes

    axes = [np.linspace(low[k], high[k], n) for k, n in enumerate(coarse_shape)]
    coarse = _grid(axes)
    values, modes = evaluate(coarse, model.start, None)
    matters = coarse[values > values.max() - DROP]
    step = np.array([axis[1] - axis[0] if axis.size > 1 else 0.0 for axis in axes])
    box_low = np.maximum(matters.min(axis=0) - step, low)
    box_high = np.minimum(matters.max(axis=0) + step, high)
    nodes = [
        0.5 * (box_low[k] + box_high[k]) + 0.5 * (box_high[k] - box_low[k]) * _nodes(n)
        for k, n in enumerate(shape)
    ]
    best = int(np.argmax(values))
    fine_values, fine_modes = evaluate(
        _grid(nodes), modes[best], run_pilot(model, model.frame(coarse[best], modes[best]))
    )
    surface = _coefficients(fine_values.reshape(shape), q)
    for n in cells:  # each turn evaluates the first axis and puts it last
        centres = (np.arange(n) + 0.5) * 2.0 / n - 1.0
        basis = chebyshev.chebvander(centres, surface.shape[0] - 1)
        surface = np.moveaxis(np.tensordot(basis, surface, axes=(1, 0)), 0, -1)
    mass = np.exp(np.maximum(surface - surface.max(), -50.0))
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
