"""Sample a latent Gaussian model with the covariance parameters theta free, exactly.

1. Laplace's approximation of log p(theta | y), beta and w integrated out, at nodes: coarse over
   the whole prior range, then Chebyshev over the part that matters, there corrected by a mean
   over draws of z at one theta.
2. A histogram of it on a fine grid is a proposal q(theta) whose density is known.
3. Markov chains on (theta, z), the whitened coordinates of
   :class:`dsstan.models.counts.whitened.WhitenedModel`. theta moves by Metropolis steps with z
   kept: from q alone where these are mostly accepted, else to neighbours too, in half of such steps
   with w kept in units of its prior. Then z moves by Hamiltonian steps, split into the exact
   rotation of N(0, I) and kicks of what is left. All leave the exact posterior under the Vecchia
   process invariant, however rough the approximation is.
4. Where the covariance is exact, a pair of these moves is the proposal of a Metropolis step whose
   ratio is that of the exact density of w and the Vecchia process's (Liu 2001, *Monte Carlo
   Strategies in Scientific Computing*, section 9.4.3).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from threading import Event

import numpy as np

from dsstan.core.arrays import Floats
from dsstan.covariance.vecchia.site_process import ExactCorrection
from dsstan.models.counts.proposal import LogPrior, Proposal, in_threads
from dsstan.models.counts.whitened import Frame, WhitenedModel, turn

GOOD = 0.5
"""Acceptance of proposals from the histogram in warm-up from which on all are such."""
LOCAL_SHARE, LOCAL_STEP = 0.75, 0.5
"""Share of steps to a neighbouring theta otherwise, and their size in sds of the histogram."""
ACCEPT = 0.8
"""Acceptance below which warm-up shortens the Hamiltonian steps."""
FEWEST_KICKS, MOST_KICKS = 3, 64
WINDOW = 20


@dataclass(frozen=True)
class Chain:
    """Draws of one chain after warm-up.

    Attributes
    ----------
    theta, beta, w
        Shapes (samples, q), (samples, P) and (samples, m).
    sampler
        Acceptance, 0, divergence and energy; shape (samples, 4).
    kicks
        Hamiltonian steps a trajectory.
    moved, corrected
        Share of theta's proposals accepted, and of the steps to the exact covariance.
    """

    theta: Floats
    beta: Floats
    w: Floats
    sampler: Floats
    kicks: int
    moved: float
    corrected: float


@dataclass(frozen=True)
class _State:
    """Where a chain is: z and x at the frame of theta, and the log density of theta and z."""

    theta: Floats
    frame: Frame
    z: Floats
    x: Floats
    joint: float
    prior: float

    @property
    def value(self) -> float:
        """Log density of (theta, z)."""
        return self.joint + self.frame.log_det + self.prior


@dataclass(frozen=True)
class Moves:
    """The moves of a chain under the Vecchia process.

    Attributes
    ----------
    model, proposal, log_prior
        The model, where theta is proposed, and its log prior density.
    """

    model: WhitenedModel
    proposal: Proposal
    log_prior: LogPrior

    def begin(self, rng: np.random.Generator) -> _State:
        """A draw of the approximate posterior."""
        theta = self.proposal.draw(rng)
        frame = self.proposal.frame(self.model, theta)
        return self._at(theta, frame, rng.standard_normal(self.model.M))

    def _at(self, theta: Floats, frame: Frame, z: Floats) -> _State:
        x = self.model.place(frame, z)
        return _State(theta, frame, z, x, self.model.log_joint(frame, x), self.log_prior(theta))

    def jump(self, now: _State, rng: np.random.Generator) -> _State:
        """theta from the histogram, z kept."""
        theta = self.proposal.draw(rng)
        new = self._at(theta, self.proposal.frame(self.model, theta), now.z)
        log_ratio = self.proposal.log_density(now.theta) - self.proposal.log_density(theta)
        accepted = np.log(rng.random()) < new.value - now.value + log_ratio
        return new if accepted else now

    def step(self, now: _State, rng: np.random.Generator, *, by_prior: bool) -> _State:
        """theta to a neighbour, with z kept or with w kept in units of its prior."""
        model, free = self.model, rng.standard_normal(now.theta.size)
        theta = now.theta + LOCAL_STEP * self.proposal.spread * free
        if not np.all((theta >= self.proposal.low) & (theta <= self.proposal.high)):
            return now
        frame = self.proposal.frame(model, theta)
        if not by_prior:
            new = self._at(theta, frame, now.z)
            return new if np.log(rng.random()) < new.value - now.value else now
        x = model.prior_place(frame, now.x, model.prior_find(now.frame, now.x))
        joint, prior = model.log_joint(frame, x), self.log_prior(theta)
        log_ratio = joint + frame.log_scale + prior
        log_ratio -= now.joint + now.frame.log_scale + now.prior
        if np.log(rng.random()) < log_ratio:
            return _State(theta, frame, model.find(frame, x), x, joint, prior)
        return now


def sample_chain(
    moves: Moves,
    correction: ExactCorrection | None,
    seed: np.random.SeedSequence,
    *,
    warmup: int,
    samples: int,
    advance: Callable[[], None] | None = None,
) -> Chain:
    """One chain of (theta, z)."""
    rng, model = np.random.default_rng(seed), moves.model
    state = moves.begin(rng)
    kicks, local, gap = FEWEST_KICKS, 0.5, 0.0
    window: list[float] = []
    jumps: list[bool] = []
    corrected: list[bool] = []
    thetas, betas = np.empty((samples, state.theta.size)), np.empty((samples, model.P))
    effects, diagnostics = np.empty((samples, model.m)), np.zeros((samples, 4))
    for iteration in range(warmup + samples):
        if iteration == warmup:
            local = 0.0 if np.mean(jumps or [True]) >= GOOD else LOCAL_SHARE
            gap = _gap(correction, model, state)
        near = rng.random() < local
        if near:
            new = moves.step(state, rng, by_prior=bool(iteration % 2))
        else:
            new = moves.jump(state, rng)
            jumps.append(new is not state)
        z, x, joint, accept, energy, wild = turn(
            model, new.frame, new.z, new.x, new.joint, kicks, rng
        )
        energy -= new.value - new.joint
        new = replace(new, z=z, x=x, joint=joint)
        if iteration < warmup:
            state = new
            window.append(accept)
            if len(window) == WINDOW:
                if np.mean(window) < ACCEPT and kicks < MOST_KICKS:
                    kicks = int(np.ceil(1.5 * kicks))
                window = []
        else:
            new_gap = _gap(correction, model, new)
            if correction is None or np.log(rng.random()) < new_gap - gap:
                state, gap = new, new_gap
            corrected.append(state is new)
            at = iteration - warmup
            thetas[at], (betas[at], effects[at]) = state.theta, model.natural(state.x)
            diagnostics[at] = accept, 0.0, wild, energy
        if advance is not None:
            advance()
    moved = float(np.mean(jumps or [True]))
    return Chain(thetas, betas, effects, diagnostics, kicks, moved, float(np.mean(corrected)))


def _gap(correction: ExactCorrection | None, model: WhitenedModel, state: _State) -> float:
    """Log density of w under the exact covariance less that of the Vecchia process."""
    if correction is None:
        return 0.0
    log_sigma_sq, _ = model.outcome.scales(state.theta)
    return correction(float(state.theta[0]), float(np.exp(log_sigma_sq)), state.x[model.P :])


def sample(
    moves: Moves,
    correction: ExactCorrection | None,
    seeds: list[np.random.SeedSequence],
    *,
    warmup: int,
    samples: int,
    workers: int,
    advance: Callable[[float], None] | None = None,
) -> list[Chain]:
    """Chains, in threads; the draws are the same for any number of them.

    An interruption of one ends all at their next step.
    """
    total, done, ended = len(seeds) * (warmup + samples), 0, Event()

    def tick() -> None:
        nonlocal done
        if ended.is_set():
            raise KeyboardInterrupt
        done += 1
        if advance is not None and done % 20 == 0:
            advance(min(1.0, done / total))

    def one(seed: np.random.SeedSequence) -> Chain:
        return sample_chain(
            moves,
            correction,
            seed,
            warmup=warmup,
            samples=samples,
            advance=tick,
        )

    return in_threads(one, seeds, workers, ended)
