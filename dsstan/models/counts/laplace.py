"""Sample a latent Gaussian model with the covariance parameters theta free, exactly.

1. Laplace's approximation of log p(theta | y), beta and w integrated out, at nodes: coarse over
   the whole prior range, then Chebyshev over the part that matters, there corrected by a mean
   over draws of z at one theta.
2. A histogram of it on a fine grid is a proposal q(theta) whose density is known.
3. Markov chains on (theta, z), the whitened coordinates of
   :class:`dsstan.models.counts.whitened.WhitenedModel`. theta moves by Metropolis steps with z
   kept: from q alone where these are mostly accepted, else to neighbours too, in half of such steps
   with w kept in units of its prior. Then z moves by Hamiltonian steps, split into the exact
   rotation of N(0, I) and kicks of what is left. All leave the exact posterior invariant, however
   rough the approximation is.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Event

import numpy as np
from threadpoolctl import threadpool_limits

from dsstan.core.arrays import Floats
from dsstan.models.counts.proposal import LogPrior, Proposal
from dsstan.models.counts.whitened import WhitenedModel, turn

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
            local = 0.0 if np.mean(global_jumps or [True]) >= GOOD else LOCAL_SHARE
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
        z, u, value, accept, energy, wild = turn(model, frame, z, u, value, kicks, rng)
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
    thetas, betas, effects, stats = (np.array(column) for column in zip(*kept, strict=True))
    return Chain(thetas, betas, effects, stats, kicks)


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
            model,
            proposal,
            log_prior,
            seed,
            warmup=warmup,
            samples=samples,
            advance=tick,
        )

    with threadpool_limits(limits=1, user_api="blas"), ThreadPoolExecutor(workers) as pool:
        try:
            return list(pool.map(one, seeds))
        except BaseException:
            ended.set()
            raise
