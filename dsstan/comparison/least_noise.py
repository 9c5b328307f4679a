"""The cheapest noise that leaves every record a floor.

With s the variances of the noise, copies give ``h_i' (Vs + diag s)^-1 h_i`` on record i, which is
convex in s, so the cheapest s is a convex problem: a linear cost under convex bounds. Noise on one
record hides its neighbours, too, as it enters every record's information.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import minimize

from dsstan.comparison.copy_laws import CopyLaws
from dsstan.core.arrays import Floats

INSIDE = 0.998
"""Share of the room that is aimed at, so that what the penalty leaves over still fits."""

PENALTIES, ITERATIONS = (3.0, 30.0, 300.0), 60
"""Weights of the squared excess, each begun where the former ended, and iterations of each."""

NEGLIGIBLE = 1e-3
"""Noise of a smaller share of the uniform noise that would do is left out."""

MOST = 1e6
"""Largest uniform variance that is tried, times the mean variance of a copy."""


def least_noise(
    laws: CopyLaws, factor: Floats, room: Floats, price: Floats, near: Floats | None = None
) -> Floats | None:
    """Variances of the cheapest noise, shape (N,); None where none is enough.

    Parameters
    ----------
    laws
        Of the copies.
    factor
        What the information of one copy is multiplied by for each record, shape (N,): the number
        of copies, and what a cautious plan adds.
    room
        Most information that each record may have, shape (N,).
    price
        Cost of each record's variance, shape (N,), positive.
    near
        Variances to begin with, where the answer is thought to be near them, shape (N,).
    """
    n = room.size
    heard = factor > 0
    if np.any(room[heard] <= 0):
        return None

    def excess(variance: Floats, share: float = 1.0) -> Floats:
        ratio = np.zeros(n)
        ratio[heard] = (factor * laws.information(laws.solved(variance)))[heard] / (
            share * room[heard]
        )
        return ratio

    if np.all(excess(np.zeros(n)) <= 1.0):
        return np.zeros(n)
    uniform = _uniform(lambda v: float(excess(np.full(n, v), INSIDE).max()), laws)
    if uniform is None:
        return None
    scale = price.sum()
    share = np.zeros(n)
    share[heard] = factor[heard] / (INSIDE * room[heard])
    x = np.ones(n) if near is None else near / uniform
    for weight in PENALTIES if near is None else PENALTIES[1:]:

        def objective(x: Floats, weight: float = weight) -> tuple[float, Floats]:
            solved = laws.solved(uniform * x)
            ratio = share * laws.information(solved)
            over = np.maximum(ratio - 1.0, 0.0)
            value = float(price @ x) / scale + 0.5 * weight * float(over @ over)
            slope = price / scale
            if over.any():
                slope = slope + uniform * laws.slope(solved, weight * over * share)
            return value, slope

        found = minimize(
            objective,
            x,
            jac=True,
            method="L-BFGS-B",
            bounds=[(0.0, None)] * n,
            options={"maxiter": ITERATIONS},
        )
        x = found.x
    x[x < NEGLIGIBLE] = 0.0
    return _inside(uniform * x, np.full(n, uniform), excess)


def _uniform(worst: Callable[[float], float], laws: CopyLaws) -> float | None:
    """The least variance that does on all records alike, by bisection in logs."""
    middle = float(np.mean(np.einsum("dii->di", laws.Vs)))
    low, high = 1e-8 * middle, 1e-4 * middle
    while worst(high) > 1.0:
        low, high = high, 8.0 * high
        if high > MOST * middle:
            return None
    for _ in range(12):
        trial = float(np.sqrt(low * high))
        low, high = (low, trial) if worst(trial) <= 1.0 else (trial, high)
    return high


def _inside(variance: Floats, enough: Floats, excess: Callable[[Floats], Floats]) -> Floats:
    """The variances, moved towards enough of them as far as it needs."""
    if np.all(excess(variance) <= 1.0):
        return variance
    low, high = 0.0, 1.0
    for _ in range(12):
        t = 0.5 * (low + high)
        fits = np.all(excess((1.0 - t) * variance + t * enough) <= 1.0)
        low, high = (low, t) if fits else (t, high)
    return np.asarray((1.0 - high) * variance + high * enough)
