"""Compiled loops of the truncated likelihood, exact however far a bracket is from the mean."""

# The loops are written out, since that is what numba compiles.
from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

DEEP = 30.0
"""An end so many sds on the far side of the mean cuts nothing off, in double precision."""
EVEN = 1e-5
"""A width in sds, times the distance in sds where that is above 1, below which the density's value
in the middle of a bracket is that of all of it."""
NARROW = 1e-3
"""The same below which a cut normal has the variance of a uniform, to a part in a million."""
FAR = 100.0
"""sds from the mean beyond which what is left of a normal is exponential, to a part in 1700."""
TAIL, TERMS = 5.0, 25
"""Where the continued fraction of the Mills ratio begins, and how many terms it has."""


@njit(cache=True, nogil=True, error_model="numpy")
def mills(x: float) -> float:
    """Mass of the standard normal above x, over its density there; x is at least -30."""
    if x < TAIL:
        return math.sqrt(0.5 * math.pi) * math.exp(0.5 * x * x) * math.erfc(x * math.sqrt(0.5))
    below = x
    for k in range(TERMS, 0, -1):
        below = x + k / below
    return 1.0 / below


@njit(cache=True, nogil=True, error_model="numpy")
def _ends(low: float, high: float) -> Any:
    """The ends turned round so that the bracket's middle is not below the mean, and the turn."""
    turn = 1.0
    if high < -low:
        low, high, turn = -high, -low, -1.0
    return max(low, -DEEP), high, turn


@njit(cache=True, nogil=True, error_model="numpy")
def _mass(near: float, far: float) -> Any:
    """Mass from near to far over the density at near, and the density at far over that at near.

    A difference of Mills ratios: no exponent cancels.
    """
    width = far - near
    share = math.exp(-0.5 * width * (far + near))
    if width * max(1.0, abs(near)) < EVEN:
        return width * math.exp(-0.25 * width * (2.0 * near + 0.5 * width)), share
    return mills(near) - (share * mills(far) if share > 0.0 else 0.0), share


@njit(cache=True, nogil=True, error_model="numpy")
def log_density(y: Any, eta: Any, tau: float, low: Any, high: Any) -> Any:
    """Log density of values y about eta, each cut to its bracket; the sum over the records.

    Parameters
    ----------
    y, eta
        Values and the means before the cut, shape (N,).
    tau
        Standard deviation before the cut.
    low, high
        Ends of the brackets, infinite where open, shape (N,).
    """
    total = -math.log(tau) * y.size
    for i in range(y.size):
        near, far, turn = _ends((low[i] - eta[i]) / tau, (high[i] - eta[i]) / tau)
        u = turn * (y[i] - eta[i]) / tau
        mass, _ = _mass(near, far)
        total -= 0.5 * (u - near) * (u + near) + math.log(mass)
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def slopes(y: Any, eta: Any, tau: float, low: Any, high: Any) -> Any:
    """Derivative of :func:`log_density` by each eta, and minus the second, shapes (N,).

    (y - m) / tau^2 and v / tau^4, m and v those of the cut normal. v is right to a part in a
    thousand where it is tiny: it shapes proposals only.
    """
    score, information = np.empty(y.size), np.empty(y.size)
    for i in range(y.size):
        near, far, turn = _ends((low[i] - eta[i]) / tau, (high[i] - eta[i]) / tau)
        u, width = turn * (y[i] - eta[i]) / tau, far - near
        mass, share = _mass(near, far)
        mean = -math.expm1(-0.5 * width * (far + near)) / mass
        if width * max(1.0, abs(near)) < NARROW:
            variance = width * width / 12.0
        elif near > FAR:
            variance = 1.0 / (near * near)
            half = 0.5 * near * width
            if half < DEEP:
                variance -= (0.5 * width / math.sinh(half)) ** 2
        else:
            pull = far * share if share > 0.0 else 0.0
            variance = 1.0 + (near - pull) / mass - mean * mean
        score[i] = turn * (u - mean) / tau
        information[i] = min(max(variance, 0.0), 1.0) / (tau * tau)
    return score, information
