"""Attacks on a release by a statistician who has the documentation and not the code.

The intruder has the public files, the values of all records but one, and all places and
covariates; each record is the one they lack in turn. Nothing here imports dsstan.

Two attacks. :func:`learn_from_others` asks nothing of the model of the copies: it krigs a record
from the others and regresses the error of that on the copies, as the others show it.
:func:`full_posterior` computes the law of the missing value given everything, under the model and
the law of a copy that the documentation states: nodes of the decay and of the nugget's share,
coefficients and sill integrated out in closed form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.spatial.distance import cdist
from scipy.special import gammaln, logsumexp
from scipy.stats import truncnorm

Floats = NDArray[np.float64]

DECAYS = 16  # nodes of the decay, from the town's width to a hundredth of it
SHARES = np.geomspace(3e-4, 30, 24)  # nodes of r = nugget / sill
VALUES = 41  # candidates for the missing value in each pass
# A median of a thousand effective draws is off by a tenth of a node: three points of a normal.
MEDIAN_ERROR = ((1 / 6, -0.17), (2 / 3, 0.0), (1 / 6, 0.17))
PASSES = 3  # each looks closer; ten sds on either side, since smoothing may leave two places


@dataclass(frozen=True)
class Known:
    """What the intruder has.

    Attributes
    ----------
    copies
        Published values on the modelled scale, shape (L, N).
    y
        True values, shape (N,); the estimate of record i uses all but the i-th.
    X
        Design matrix of the release's formula, shape (N, P).
    hints
        Further published columns that may predict y, shape (N, Q); Q may be 0.
    places
        Shape (N, 2).
    flagged
        Records whose effect was smoothed fully, shape (N,); the rule is public.
    """

    copies: Floats
    y: Floats
    X: Floats
    hints: Floats
    places: Floats
    flagged: NDArray[np.bool_]


@dataclass(frozen=True)
class Estimate:
    """Of every record as the missing one: posterior mean and sd, shape (N,)."""

    mean: Floats
    sd: Floats


@dataclass(frozen=True)
class _Quadratic:
    """``level + 2 slope t + curve t^2``, t what is added to y_i; any shape ending in N."""

    level: Floats
    slope: Floats
    curve: Floats

    def at(self, t: Floats) -> Floats:
        """Values at t of shape (N, K), shape (..., N, K)."""
        return self.level[..., None] + 2 * self.slope[..., None] * t + self.curve[..., None] * t**2

    def node(self, *index: int | slice) -> _Quadratic:
        """The part at an index of the first axes."""
        return _Quadratic(self.level[index], self.slope[index], self.curve[index])


@dataclass(frozen=True)
class _Marginal:
    """log p(y) by nodes, coefficients and sill integrated out; first axes are the nodes'."""

    constant: Floats
    square: _Quadratic
    shape: float
    contrasts: Floats

    def log_density(self, t: Floats) -> Floats:
        """At y_i + t, shape (..., N, K)."""
        return self.constant[..., None, None] - self.shape * np.log(self.square.at(t) / 2)


def _nodes(known: Known) -> Floats:
    width = cdist(known.places, known.places).max()
    return np.geomspace(3 / width, 300 / width, DECAYS)


def _contrasts(V: Floats, X: Floats) -> tuple[Floats, float]:
    """P with y'Py the generalised residual sum of squares, and log|V| + log|X'V^-1 X|."""
    factor = cho_factor(V, lower=True)
    inverse = cho_solve(factor, np.eye(len(V)))
    U = inverse @ X
    inner = X.T @ U
    P = inverse - U @ np.linalg.solve(inner, U.T)
    return P, 2 * np.log(np.diag(factor[0])).sum() + np.linalg.slogdet(inner)[1]


def _marginal(known: Known, X: Floats, A: Floats) -> _Marginal:
    """Marginal density of y, with effects scaled by A, at every node."""
    n, p = X.shape
    distances = cdist(known.places, known.places)
    shape = (n - p) / 2 - 1
    found = []
    for phi in _nodes(known):
        R = A[:, None] * np.exp(-phi * distances) * A
        for r in SHARES:
            P, logs = _contrasts(R + r * np.eye(n), X)
            Py = P @ known.y
            prior = np.log(phi) + np.log(r) / 2
            found.append((prior - logs / 2, known.y @ Py, Py, np.diag(P), P))
    grid = (DECAYS, SHARES.size)
    constant, level, slope, curve, P = (np.stack(part) for part in zip(*found, strict=True))
    square = _Quadratic(
        np.repeat(level.reshape(*grid, 1), n, axis=2),
        slope.reshape(*grid, n),
        curve.reshape(*grid, n),
    )
    return _Marginal(constant.reshape(grid), square, shape, P.reshape(*grid, n, n))


def _left_out(marginal: _Marginal, y: Floats) -> tuple[Estimate, NDArray[np.intp]]:
    """Kriging of each record from the others, averaged over nodes, and its likeliest node."""
    s = marginal.square
    rest = s.level - s.slope**2 / s.curve
    log_weight = (
        marginal.constant[..., None]
        - np.log(s.curve) / 2
        - (marginal.shape - 0.5) * np.log(rest / 2)
    )
    flat = log_weight.reshape(-1, y.size)
    weight = np.exp(flat - logsumexp(flat, axis=0))
    mean = (y - s.slope / s.curve).reshape(-1, y.size)
    variance = (rest / s.curve).reshape(-1, y.size) / (2 * marginal.shape - 1)
    centre = (weight * mean).sum(axis=0)
    spread = (weight * (variance + (mean - centre) ** 2)).sum(axis=0)
    return Estimate(centre, np.sqrt(spread)), np.argmax(flat, axis=0)


def kriging(known: Known) -> Estimate:
    """Each record from the others, places, covariates and hints, without any copy."""
    marginal = _marginal(known, np.hstack([known.X, known.hints]), np.ones(known.y.size))
    return _left_out(marginal, known.y)[0]


def learn_from_others(known: Known) -> Estimate:
    """Kriging, corrected by the copies as the other records show that copies follow the truth.

    For the missing record i the error of kriging each other record j (from all but i and j) is
    regressed on the distance of j's mean copy from that prediction.
    """
    y, n = known.y, known.y.size
    marginal = _marginal(known, np.hstack([known.X, known.hints]), np.ones(n))
    alone, likeliest = _left_out(marginal, y)
    contrasts = marginal.contrasts.reshape(-1, n, n)
    centre = known.copies.mean(axis=0)
    mean, sd = alone.mean.copy(), alone.sd.copy()
    for i in np.flatnonzero(~known.flagged):
        P = contrasts[likeliest[i]]
        Py, diagonal = P @ y, np.diag(P)
        j = np.flatnonzero(~known.flagged & (np.arange(n) != i))
        error = (P[i, i] * Py[j] - P[i, j] * Py[i]) / (P[i, i] * diagonal[j] - P[i, j] ** 2)
        gap = np.column_stack([np.ones(j.size), centre[j] - (y[j] - error)])
        fitted, *_ = np.linalg.lstsq(gap, error, rcond=None)
        prediction = y[i] - Py[i] / P[i, i]
        mean[i] = prediction + fitted @ [1.0, centre[i] - prediction]
        sd[i] = np.sqrt(np.mean((error - gap @ fitted) ** 2))
    return Estimate(mean, sd)


@dataclass(frozen=True)
class _CopyLaw:
    """Squared distance of the copies from their mean by node, copy and record, and log dets."""

    square: _Quadratic
    logs: Floats


def _copy_law(known: Known, A: Floats) -> _CopyLaw:
    """Law of a copy given y, a decay and a nugget's share, in units of the sill."""
    X, y, n = known.X, known.y, known.y.size
    distances = cdist(known.places, known.places)
    found = []
    for phi in _nodes(known):
        R = np.exp(-phi * distances)
        for r in SHARES:
            inverse = np.linalg.inv(A[:, None] * R * A + r * np.eye(n))
            G = (R * A) @ inverse
            C = np.linalg.inv(X.T @ inverse @ X)
            H = X @ C @ X.T @ inverse
            M = H + G @ (np.eye(n) - H)
            F = X - G @ X
            factor = cho_factor(R - G @ (A[:, None] * R) + r * np.eye(n) + F @ C @ F.T, lower=True)
            E = known.copies.T - (M @ y)[:, None]
            WE, WM = cho_solve(factor, E), cho_solve(factor, M)
            found.append(
                (
                    (E * WE).sum(axis=0),
                    -(M.T @ WE).T,
                    (M * WM).sum(axis=0),
                    2 * np.log(np.diag(factor[0])).sum(),
                )
            )
    level, slope, curve, logs = (np.stack(part) for part in zip(*found, strict=True))
    grid, L = (DECAYS, SHARES.size), len(known.copies)
    square = _Quadratic(
        np.broadcast_to(level.reshape(*grid, L, 1), (*grid, L, n)),
        slope.reshape(*grid, L, n),
        np.broadcast_to(curve.reshape(*grid, 1, n), (*grid, L, n)),
    )
    return _CopyLaw(square, logs.reshape(grid))


def _log_copies(law: _CopyLaw, fit: _Marginal, t: Floats) -> Floats:
    """log p(copies | y_i + t, held decay) by decay, shape (DECAYS, N, K)."""
    n = t.shape[0]
    out = np.empty((DECAYS, *t.shape))
    share = fit.log_density(t)
    share -= logsumexp(share, axis=1, keepdims=True)
    gain = gammaln(fit.shape + n / 2) - gammaln(fit.shape)
    for g in range(DECAYS):
        half = fit.square.node(g).at(t) / 2
        total = np.zeros(t.shape)
        for copy in range(law.square.level.shape[2]):
            q = law.square.node(g, slice(None), copy).at(t)
            log_t = (
                gain
                - law.logs[g][:, None, None] / 2
                + fit.shape * np.log(half)
                - (fit.shape + n / 2) * np.log(half + q / 2)
            )
            total += logsumexp(share[g] + log_t, axis=0)
        out[g] = total
    return out


def _held_decay(free: Floats) -> Floats:
    """Place among the nodes of the decay's posterior median, shape (N, K), from 0 to DECAYS - 1."""
    mass = np.exp(free - logsumexp(free, axis=0))
    below = np.cumsum(mass, axis=0) - mass / 2
    above = np.clip((below < 0.5).sum(axis=0), 1, DECAYS - 1)
    low = np.take_along_axis(below, (above - 1)[None], axis=0)[0]
    high = np.take_along_axis(below, above[None], axis=0)[0]
    return np.clip(above - 1 + (0.5 - low) / np.maximum(high - low, 1e-12), 0, DECAYS - 1)


def _between_nodes(values: Floats, place: Floats) -> Floats:
    """Cubic through the four nodes about each place, shape of the place."""
    first = np.clip(np.floor(place).astype(int) - 1, 0, DECAYS - 4)
    u = place - first
    out = np.zeros(place.shape)
    for a in range(4):
        weight = np.ones(place.shape)
        for b in range(4):
            if b != a:
                weight *= (u - b) / (a - b)
        out += weight * np.take_along_axis(values, (first + a)[None], axis=0)[0]
    return out


def full_posterior(known: Known, *, decay: str = "held") -> Estimate:
    """The missing value given everything, under the protection ``paper`` with gamma infinite.

    Parameters
    ----------
    known
        What the intruder has.
    decay
        ``"held"``: all copies share the median of the decay's posterior, which the intruder works
        out for each candidate; ``"unknown"``: they share one that the intruder averages over.
    """
    y, n = known.y, known.y.size
    plain = np.ones(n)
    prior = _marginal(known, np.hstack([known.X, known.hints]), plain)
    free = _marginal(known, known.X, plain)
    A = np.where(known.flagged, 0.0, 1.0)
    fit = _marginal(known, known.X, A)
    law = _copy_law(known, A)
    alone, _ = _left_out(prior, y)
    mean, sd, half = alone.mean, alone.sd, 6 * alone.sd
    for _ in range(PASSES):
        values = mean[:, None] + half[:, None] * np.linspace(-1, 1, VALUES)
        t = values - y[:, None]
        copies = _log_copies(law, fit, t)
        by_decay = logsumexp(free.log_density(t), axis=1)
        if decay == "held":
            place = _held_decay(by_decay)
            near = [np.log(w) + _between_nodes(copies, place + d) for w, d in MEDIAN_ERROR]
            seen = logsumexp(near, axis=0)
        else:
            seen = logsumexp(by_decay - logsumexp(by_decay, axis=0) + copies, axis=0)
        log_p = logsumexp(prior.log_density(t), axis=(0, 1)) + seen
        p = np.exp(log_p - logsumexp(log_p, axis=1, keepdims=True))
        mean = (p * values).sum(axis=1)
        sd = np.sqrt((p * (values - mean[:, None]) ** 2).sum(axis=1))
        half = np.minimum(half, np.maximum(10 * sd, 3 * half / (VALUES - 1)))
    return Estimate(mean, sd)


def within_brackets(estimate: Estimate, copies: Floats, cuts: Sequence[float]) -> Estimate:
    """The estimate's normal law cut to the bracket in which all copies of a record lie."""
    ends = np.concatenate([[-np.inf], cuts, [np.inf]])
    bracket = np.searchsorted(cuts, copies[0], side="right")
    a = (ends[bracket] - estimate.mean) / estimate.sd
    b = (ends[bracket + 1] - estimate.mean) / estimate.sd
    law = truncnorm(a, b, loc=estimate.mean, scale=estimate.sd)
    return Estimate(law.mean(), law.std())
