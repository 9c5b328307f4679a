"""Sample a latent Gaussian model with the covariance parameters theta free, exactly.

1. Laplace's approximation of log p(theta | y), beta and w integrated out, at nodes: coarse over
   the whole prior range, then Chebyshev over the part that matters, there corrected by a mean
   over draws of z at one theta.
2. A histogram of it on a fine grid is a proposal q(theta) whose density is known.
3. Markov chains on (theta, z), the whitened coordinates of
   :class:`dsstan.models._whitened.WhitenedModel`. theta moves by Metropolis steps with z kept:
   from q alone where these are mostly accepted, else to neighbours too, in half of such steps with
   w kept in units of its prior. Then z moves by Hamiltonian steps, split into the exact rotation
   of N(0, I) and kicks of what is left. All leave the exact posterior invariant, however rough
   the approximation is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from dsstan.models._whitened import Frame, WhitenedModel

Floats = NDArray[np.float64]
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
GOOD = 0.7
"""Acceptance of proposals from the histogram in warm-up from which on all are such."""
LOCAL_SHARE, LOCAL_STEP = 0.75, 0.5
"""Share of steps to a neighbouring theta otherwise, and their size in sds of the histogram."""
ACCEPT = 0.8
"""Acceptance below which warm-up shortens the Hamiltonian steps."""
FEWEST_KICKS, MOST_KICKS = 3, 64
WINDOW = 20
WILD = 1000.0
"""Error of the energy from which on a trajectory counts as divergent, as in Stan."""
ANGLE = (0.35 * np.pi, 0.65 * np.pi)
"""A trajectory turns by a quarter on average: z and its momentum change places."""


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
        anywhere = np.log(ANYWHERE) - float(np.sum(np.log((self.high - self.low)[free])))
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
    ratio of the joint densities: where z hardly depends on theta, few draws give it well.
    """
    rng = np.random.default_rng(0)
    z = np.zeros(model.M)
    u = frame.place(z)
    value = model.log_joint(frame, u)
    draws, logs = [], []
    for _ in range(PILOT[0]):
        for _ in range(PILOT[1]):
            z, u, value, *_ = _turn(model, frame, z, u, value, 2 * FEWEST_KICKS, rng)
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
    """Laplace's approximation over the range of theta.

    Parameters
    ----------
    model
        The model.
    log_prior
        Log prior density of theta.
    low, high
        Ends of the range of theta; equal in the first where phi is held.
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


@dataclass(frozen=True)
class Chain:
    """Draws of one chain after warm-up.

    Attributes
    ----------
    theta, beta, w
        Shapes (samples, q), (samples, P) and (samples, m).
    sampler
        Acceptance, whether theta moved, divergence and energy; shape (samples, 4).
    kicks
        Hamiltonian steps a trajectory.
    """

    theta: Floats
    beta: Floats
    w: Floats
    sampler: Floats
    kicks: int


def sample_chain(
    model: WhitenedModel,
    proposal: Proposal,
    log_prior: LogPrior,
    seed: np.random.SeedSequence,
    *,
    warmup: int,
    samples: int,
    advance: Callable[[], None] | None = None,
) -> Chain:
    """One chain of (theta, z)."""
    rng = np.random.default_rng(seed)
    theta = proposal.draw(rng)
    frame = proposal.frame(model, theta)
    z = rng.standard_normal(model.M)
    u = frame.place(z)
    value = model.log_joint(frame, u) + frame.log_det + log_prior(theta)
    kicks, local = FEWEST_KICKS, 0.5
    window: list[float] = []
    global_jumps: list[bool] = []
    kept: list[tuple[Floats, ...]] = []
    for iteration in range(warmup + samples):
        if iteration == warmup:
            local = 0.0 if np.mean(global_jumps or [1.0]) >= GOOD else LOCAL_SHARE
        near = rng.random() < local
        if near:
            new_theta = theta + LOCAL_STEP * proposal.spread * rng.standard_normal(theta.size)
        else:
            new_theta = proposal.draw(rng)
        jumped = False
        if np.all((new_theta >= proposal.low) & (new_theta <= proposal.high)):
            # z is kept; in every other local step u, which says w in units of its prior.
            by_prior = near and bool(iteration % 2)
            new_frame = proposal.frame(model, new_theta)
            new_u = u if by_prior else new_frame.place(z)
            new_value = model.log_joint(new_frame, new_u) + new_frame.log_det
            new_value += log_prior(new_theta)
            log_ratio = new_value - value
            if by_prior:
                log_ratio += frame.log_det - new_frame.log_det
            elif not near:
                log_ratio += proposal.log_density(theta) - proposal.log_density(new_theta)
            jumped = bool(np.log(rng.random()) < log_ratio)
            if jumped:
                z = new_frame.find(new_u) if by_prior else z
                theta, frame, u, value = new_theta, new_frame, new_u, new_value
        if not near:
            global_jumps.append(jumped)
        z, u, value, accept, energy, wild = _turn(model, frame, z, u, value, kicks, rng)
        if iteration >= warmup:
            beta, w = model.natural(theta, u)
            kept.append((theta, beta, w, np.array([accept, jumped, wild, energy])))
        else:
            window.append(accept)
            if len(window) == WINDOW:
                if np.mean(window) < ACCEPT and kicks < MOST_KICKS:
                    kicks = int(np.ceil(1.5 * kicks))
                window = []
        if advance is not None:
            advance()
    return Chain(*(np.array(column) for column in zip(*kept, strict=True)), kicks)


def _turn(
    model: WhitenedModel,
    frame: Frame,
    z: Floats,
    u: Floats,
    value: float,
    kicks: int,
    rng: np.random.Generator,
) -> tuple[Floats, Floats, float, float, float, bool]:
    """One Hamiltonian trajectory of z: new z, u and log density; acceptance, energy, divergence.

    The Hamiltonian is that of N(0, I), whose flow is a rotation, plus a residual that is flat
    where Laplace's approximation is exact.
    """
    momentum = rng.standard_normal(z.size)
    angle = rng.uniform(*ANGLE) / kicks
    cos, sin = np.cos(angle), np.sin(angle)
    energy = 0.5 * float(momentum @ momentum) - value

    def residual(z: Floats, u: Floats) -> Floats:
        return frame.pull(model.gradient(frame, u)) + z

    new_z, new_u = z, u
    with np.errstate(all="ignore"):
        push = residual(new_z, new_u)
        for _ in range(kicks):
            momentum = momentum + 0.5 * angle * push
            new_z, momentum = cos * new_z + sin * momentum, cos * momentum - sin * new_z
            new_u = frame.place(new_z)
            push = residual(new_z, new_u)
            momentum = momentum + 0.5 * angle * push
        new_value = value + model.log_joint(frame, new_u) - model.log_joint(frame, u)
        change = 0.5 * float(momentum @ momentum) - new_value - energy
    accept = float(np.exp(min(0.0, -change))) if np.isfinite(change) else 0.0
    wild = not change < WILD
    if rng.random() < accept:
        return new_z, new_u, new_value, accept, energy, wild
    return z, u, value, accept, energy, wild


def sample(
    model: WhitenedModel,
    proposal: Proposal,
    log_prior: LogPrior,
    seeds: list[np.random.SeedSequence],
    *,
    warmup: int,
    samples: int,
    workers: int,
    advance: Callable[[float], None] | None = None,
) -> list[Chain]:
    """Chains, in threads; the draws are the same for any number of them."""
    total, done = len(seeds) * (warmup + samples), 0

    def tick() -> None:
        nonlocal done
        done += 1
        if advance is not None and done % 20 == 0:
            advance(min(1.0, done / total))

    def one(seed: np.random.SeedSequence) -> Chain:
        return sample_chain(
            model,
            proposal,
            log_prior,
            seed,
            warmup=warmup,
            samples=samples,
            advance=tick,
        )

    with threadpool_limits(limits=1, user_api="blas"), ThreadPoolExecutor(workers) as pool:
        return list(pool.map(one, seeds))


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
