"""Sample a posterior of a few coordinates whose prior is N(0, I), exactly, from a good guess of it.

1. The modes that Newton's method with approximate curvature finds from several starts, and the
   curvature there: Laplace's approximation, a mixture where there are several.
2. Rounds of draws from it: their importance weights give the mean and covariance of the next
   guess, a multivariate t (Cornuet, Marin, Mira and Robert 2012).
3. Markov chains whose proposals are fresh draws of the last guess (independence Metropolis), and
   steps to neighbouring points, by which a chain leaves a point that the guess takes for too
   unlikely. They leave the exact posterior invariant, however rough the guess is.

Densities at many points are independent of one another, so all cores share them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular
from scipy.optimize import minimize
from scipy.special import gammaln, logsumexp

from dsstan.core.arrays import Floats

LogDensity = Callable[[Floats], Floats]
"""Log density at M points (M, d), up to a constant; -inf where there is none."""

FREEDOM = 5.0
"""Degrees of freedom of the t: heavier tails than those of N(0, I), so that weights are bounded."""

STEP, CURVED = 1e-5, 0.02
"""Steps of the differences for gradients and curvatures; the prior's sd is 1."""

LEAST_CURVATURE = 0.2
"""Of a coordinate; that of the prior alone is 1."""

CLOSE, ROUGHLY, SAME = 0.05, 0.5, 0.1
"""Largest slope at a mode, and on the way to it; modes nearer than the last are one."""

FAR, REACH = 40.0, 10.0
"""A mode is left out whose log density is so far below the highest, or whose log mass is."""

ALWAYS = 0.1
"""Share of the guess that stays with the modes, whatever the rounds find."""

ROUND = 1000
"""Draws of a round, or 40 a coordinate where that is more."""

FEWEST, MOST = 4, 8
"""Rounds."""

GOOD = 0.45
"""Effective share of a round's draws at which the guess is good enough."""

COMPONENTS, INWARDS = 8, 0.3
"""Of the guess, and how far towards the middle they begin."""

MOST_PROPOSALS, BLOCK = 8, 256
"""For a draw, and those of all chains whose densities are computed together."""

LEAST_SHARE = 0.005
"""Share below which a component of the guess goes."""

DRAWS_EACH = 20
"""Effective draws a coordinate with which a component takes their mean and covariance alone."""

LOCAL = 1.7
"""Size of a step to a neighbouring point, in sds of the guess over the root of the coordinates."""

WIDE_SHARE, WIDE = 0.2, 2.0
"""Share of the guess that is wider than the rest, and how much, in sds."""


@dataclass(frozen=True, eq=False)
class Mixture:
    """A mixture of multivariate t.

    Attributes
    ----------
    shares, centres, roots
        Shapes (K,), (K, d) and (K, d, d), the last Cholesky factors of the scales.
    """

    shares: Floats
    centres: Floats
    roots: Floats

    @classmethod
    def about(
        cls, centres: Sequence[Floats], covariances: Sequence[Floats], shares: Floats | None = None
    ) -> Mixture:
        """About each centre, by default with equal shares; a fifth of each wider than the rest."""
        roots = [np.linalg.cholesky(c) for c in covariances]
        each = np.full(len(roots), 1.0 / len(roots)) if shares is None else shares
        return cls(
            np.concatenate([(1.0 - WIDE_SHARE) * each, WIDE_SHARE * each]),
            np.array([*centres, *centres]),
            np.array([*roots, *(WIDE * root for root in roots)]),
        )

    def draw(self, rng: np.random.Generator, count: int) -> Floats:
        """Points, shape (count, d)."""
        part = rng.choice(self.shares.size, count, p=self.shares)
        z = rng.standard_normal((count, self.centres.shape[1]))
        z /= np.sqrt(rng.chisquare(FREEDOM, count) / FREEDOM)[:, None]
        return np.asarray(self.centres[part] + np.einsum("kij,kj->ki", self.roots[part], z))

    def log_density(self, points: Floats) -> Floats:
        """Log density at points (M, d), shape (M,)."""
        return np.asarray(logsumexp(self._parts(points), axis=0))

    def _parts(self, points: Floats) -> Floats:
        """Log of each component's share of the density, shape (K, M)."""
        d = points.shape[1]
        constant = gammaln(0.5 * (FREEDOM + d)) - gammaln(0.5 * FREEDOM)
        constant -= 0.5 * d * np.log(FREEDOM * np.pi)
        parts = []
        for share, centre, root in zip(self.shares, self.centres, self.roots, strict=True):
            z = solve_triangular(root, (points - centre).T, lower=True)
            tail = np.log1p(np.sum(z**2, axis=0) / FREEDOM)
            size = np.log(share) - float(np.sum(np.log(np.diag(root))))
            parts.append(constant + size - 0.5 * (FREEDOM + d) * tail)
        return np.array(parts)

    def beside(self, other: Mixture) -> Mixture:
        """This one, and a small share of another."""
        return Mixture(
            np.concatenate([(1.0 - ALWAYS) * self.shares, ALWAYS * other.shares]),
            np.concatenate([self.centres, other.centres]),
            np.concatenate([self.roots, other.roots]),
        )

    def scattered(self, points: Floats, weights: Floats, rng: np.random.Generator) -> Mixture:
        """Several components about draws by their weights, each of the nearest one's shape.

        One component can't be skew, several can.
        """
        half = len(self.shares) // 2
        chosen = points[rng.choice(len(points), COMPONENTS, p=weights)]
        nearest = np.argmax(self._parts(chosen)[:half], axis=0)
        roots = self.roots[nearest]
        centres = INWARDS * self.centres[nearest] + (1.0 - INWARDS) * chosen
        return Mixture.about(list(centres), list(roots @ roots.swapaxes(1, 2)))

    def moved(self, points: Floats, weights: Floats) -> Mixture:
        """Each component at the mean and covariance of its part of weighted draws.

        One step of the population Monte Carlo of Cappe, Douc, Guillin, Marin and Robert (2008).
        A component that has hardly a draw of its own keeps some of its shape, and one with next
        to none of the weight goes.
        """
        d, half = points.shape[1], len(self.shares) // 2
        parts = self._parts(points)
        parts = np.logaddexp(parts[:half], parts[half:])
        own = weights * np.exp(parts - logsumexp(parts, axis=0))
        shares = own.sum(axis=1)
        kept = np.flatnonzero(shares > LEAST_SHARE)
        centres, covariances = [], []
        for k in kept:
            weight = own[k] / shares[k]
            trust = min(1.0, 1.0 / (float(np.sum(weight**2)) * DRAWS_EACH * d))
            centre = trust * (weight @ points) + (1.0 - trust) * self.centres[k]
            spread = (points - centre).T @ ((points - centre) * weight[:, None])
            former = self.roots[k] @ self.roots[k].T
            centres.append(centre)
            covariances.append(trust * spread + (1.0 - trust) * former)
        return Mixture.about(centres, covariances, shares[kept] / shares[kept].sum())


def laplace(log_density: LogDensity, start: Floats, line: Floats | None) -> Mixture:
    """Laplace's approximation about each mode that is found.

    Parameters
    ----------
    log_density
        Of the posterior.
    start
        Where the search begins, shape (d,).
    line
        Values of the last coordinate, in order, 0 among them or nearly. The best of the others is
        followed along them, and every top on the way is a start; None where one search is enough.
    """
    if line is None:
        found = [_climb(log_density, start)]
    else:
        along = _profile(log_density, start, line)
        heights = np.array([-np.inf, *(height for height, _ in along), -np.inf])
        top = (heights[1:-1] >= heights[:-2]) & (heights[1:-1] >= heights[2:])
        top &= heights[1:-1] > heights.max() - FAR
        found = [_climb(log_density, along[k][1]) for k in np.flatnonzero(top)]
        # A wide shoulder where the prior has most of its mass has no top, and yet mass.
        found.append(along[int(np.argmin(np.abs(line)))])
    centres: list[Floats] = []
    masses, covariances = [], []
    for value, at in found:
        if all(np.linalg.norm(at - other) > SAME for other in centres):
            centres.append(at)
            covariances.append(_covariance(log_density, at))
            masses.append(value + 0.5 * float(np.linalg.slogdet(covariances[-1])[1]))
    kept = [k for k, mass in enumerate(masses) if mass > max(masses) - REACH]
    return Mixture.about([centres[k] for k in kept], [covariances[k] for k in kept])


def _profile(log_density: LogDensity, start: Floats, line: Floats) -> list[tuple[float, Floats]]:
    """The best log density at each value of the last coordinate, with where it is."""
    found = []
    at = start[:-1]
    for value in line:

        def held(x: Floats, value: float = value) -> Floats:
            return log_density(np.column_stack([x, np.full(len(x), value)]))

        height, at = _climb(held, at, ROUGHLY)
        found.append((height, np.append(at, value)))
    return found


def _climb(log_density: LogDensity, start: Floats, close: float = CLOSE) -> tuple[float, Floats]:
    """Log density at the mode that is found from a start, and where it is."""

    def falling(x: Floats) -> tuple[float, Floats]:
        v = np.maximum(log_density(np.vstack([x, x + STEP * np.eye(x.size)])), -1e15)
        return -float(v[0]), (v[0] - v[1:]) / STEP

    found = minimize(falling, start, jac=True, method="BFGS", options={"gtol": close})
    return -float(found.fun), np.asarray(found.x)


def _covariance(log_density: LogDensity, at: Floats) -> Floats:
    """Inverse of minus the curvature, by differences, shape (d, d)."""
    d = at.size
    rows, columns = np.tril_indices(d)
    first, second = CURVED * np.eye(d)[rows], CURVED * np.eye(d)[columns]
    corners = [at + first + second, at + first - second, at - first + second, at - first - second]
    v = np.maximum(log_density(np.vstack(corners)), -1e15).reshape(4, -1)
    curved = np.zeros((d, d))
    curved[rows, columns] = (v[1] + v[2] - v[0] - v[3]) / (4.0 * CURVED**2)
    curved += np.tril(curved, -1).T
    values, vectors = np.linalg.eigh(curved)
    return np.asarray(vectors / np.maximum(values, LEAST_CURVATURE) @ vectors.T)


@dataclass(frozen=True, eq=False)
class Guess:
    """A mixture that is near the posterior, and how near.

    Attributes
    ----------
    mixture
        The last one.
    share
        Effective share of draws from it.
    starts
        Of chains: draws of the posterior but for the error of one round, shape (chains, d).
    """

    mixture: Mixture
    share: float
    starts: Floats


def adapted(
    log_density: LogDensity,
    mixture: Mixture,
    rng: np.random.Generator,
    chains: int,
    advance: Callable[[float], None] | None = None,
) -> Guess:
    """The guess after rounds that move it to the posterior's mean and covariance."""
    d = mixture.centres.shape[1]
    count = max(ROUND, 40 * d)
    tried, points, values = [mixture], np.empty((0, d)), np.empty(0)
    moving = mixture
    for number in range(1, MOST + 1):
        fresh = tried[-1].draw(rng, count)
        points, values = np.vstack([points, fresh]), np.append(values, log_density(fresh))
        own = values[-count:] - tried[-1].log_density(fresh)
        share = _effective(own) / count
        if advance is not None:
            advance(number / MOST)
        if (share > GOOD and number >= FEWEST) or number == MOST:
            break
        # Every draw counts as one of the mixture of all guesses so far.
        proposed = logsumexp([m.log_density(points) for m in tried], axis=0)
        weight = np.exp(values - proposed - np.max(values - proposed))
        weight /= weight.sum()
        moving = moving.moved(points, weight)
        if number == 1:
            moving = moving.scattered(points, weight, rng).moved(points, weight)
        tried.append(moving.beside(mixture))
    weight = np.exp(own - own.max())
    chosen = rng.choice(count, chains, p=weight / weight.sum())
    return Guess(tried[-1], share, fresh[chosen])


def _effective(log_weights: Floats) -> float:
    """Effective number of weighted draws."""
    return float(np.exp(2.0 * logsumexp(log_weights) - logsumexp(2.0 * log_weights)))


@dataclass(frozen=True, eq=False)
class Chains:
    """Draws of independence Metropolis chains.

    Attributes
    ----------
    points, kept
        Shapes (chains, samples, d) and (chains, samples, Q).
    sampler
        Chance of acceptance, 0, 0 and minus the log density, shape (chains, samples, 4).
    log_weights
        Of all proposals: log density over that of the guess.
    """

    points: Floats
    kept: Floats
    sampler: Floats
    log_weights: Floats


def run_chains(
    evaluate: Callable[[Floats], tuple[Floats, Floats]],
    keep: Callable[[Floats], Floats],
    guess: Guess,
    rng: np.random.Generator,
    *,
    samples: int,
    effort: float = 1.5,
    advance: Callable[[float], None] | None = None,
) -> Chains:
    """Chains from ``guess.starts``.

    Parameters
    ----------
    evaluate
        Log density at M points (M, d), and what else is to be known of each, M rows.
    keep
        What is kept of such rows, (M, Q): once for every draw, also where the chain stays.
    guess, rng, samples
        Where proposals come from, their stream, and draws of each chain.
    effort
        Effective proposals for a draw.
    """
    mixture = guess.mixture
    chains, d = guess.starts.shape
    count = int(np.clip(np.ceil(effort / max(guess.share, 1e-9)), 1, MOST_PROPOSALS))
    state = _State.at(guess.starts.copy(), evaluate, mixture)
    points, kept, stats, all_weights = [], [], [], []
    block = max(1, BLOCK // (chains * count))
    for begin in range(0, samples, block):
        size = min(block, samples - begin)
        fresh = _State.at(mixture.draw(rng, size * count * chains), evaluate, mixture)
        all_weights.append(fresh.weight)
        for step in range(size):
            chance = np.zeros(chains)
            for number in range(step * count, (step + 1) * count):
                other = fresh.part(slice(number * chains, (number + 1) * chains))
                chance += state.move(other, other.weight - state.weight, rng) / count
            root = mixture.roots[rng.choice(mixture.shares.size, p=mixture.shares)]
            step_by = rng.standard_normal((chains, d)) @ root.T * (LOCAL / np.sqrt(d))
            other = _State.at(state.point + step_by, evaluate, mixture)
            state.move(other, other.value - state.value, rng)
            points.append(state.point.copy())
            kept.append(keep(state.extra))
            stats.append(np.column_stack([chance, np.zeros((chains, 2)), -state.value]))
        if advance is not None:
            advance((begin + size) / samples)
    at, held, sampler = (np.swapaxes(np.array(part), 0, 1) for part in (points, kept, stats))
    return Chains(at, held, sampler, np.concatenate(all_weights))


@dataclass(eq=False)
class _State:
    """Points with what is known of each: log density, that over the guess's, and the rest."""

    point: Floats
    value: Floats
    weight: Floats
    extra: Floats

    @classmethod
    def at(
        cls, points: Floats, evaluate: Callable[[Floats], tuple[Floats, Floats]], mixture: Mixture
    ) -> _State:
        value, extra = evaluate(points)
        return cls(points, value, value - mixture.log_density(points), extra)

    def part(self, rows: slice) -> _State:
        """Some of them."""
        return _State(self.point[rows], self.value[rows], self.weight[rows], self.extra[rows])

    def move(self, other: _State, log_ratio: Floats, rng: np.random.Generator) -> Floats:
        """Take another's point with the chance exp(log_ratio), and give that chance."""
        taken = np.log(rng.random(len(log_ratio))) < log_ratio
        for name in ("point", "value", "weight", "extra"):
            getattr(self, name)[taken] = getattr(other, name)[taken]
        return np.exp(np.minimum(log_ratio, 0.0))
