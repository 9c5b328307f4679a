"""A normal density times a Poisson likelihood, in one dimension.

``f(eta) ~ N(mu, v) exp(n eta - exp(eta))``: its integral, mean and variance, by Gauss-Hermite
quadrature about the mode. Everything is by element, arrays of one shape.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from dsstan.core.arrays import Floats

NODES = 48
"""Of the quadrature: five digits of the log integral for variances up to 9."""
STEPS = 60
CLOSE = 1e-10
UP = 1.0
"""Newton's method goes up by at most so much a step: from below, it would jump too far."""


@dataclass(frozen=True)
class Tilted:
    """The integral and the first two moments.

    Attributes
    ----------
    log_z
        Log of the integral of ``N(mu, v) exp(n eta - exp(eta))``; the factor 1 / n! is left out.
    mean, variance
        Of eta under the density.
    """

    log_z: Floats
    mean: Floats
    variance: Floats


def tilted(n: Floats, mu: Floats, v: Floats) -> Tilted:
    """The density for counts n and a normal of mean mu and variance v.

    Examples
    --------
    With a wide normal it is the log of a gamma variable of shape n, over its constant.

    >>> wide = tilted(np.array([3.0, 4.0]), np.zeros(2), np.full(2, 1e4))
    >>> np.diff(wide.log_z).round(3)  # log of Gamma(4) / Gamma(3)
    array([1.099])
    """
    mode = np.minimum(mu + n * v, np.maximum(mu, np.log(n + 0.5)))
    for _ in range(STEPS):
        rate = np.exp(mode)
        step = (n - rate - (mode - mu) / v) / (rate + 1.0 / v)
        mode = mode + np.minimum(step, UP)
        if np.max(np.abs(step), initial=0.0) < CLOSE:
            break
    width = 1.0 / np.sqrt(np.exp(mode) + 1.0 / v)
    at, log_weight = _nodes()
    eta = mode[..., None] + width[..., None] * at
    with np.errstate(over="ignore"):
        log_f = n[..., None] * eta - np.exp(eta)
    log_f -= 0.5 * (eta - mu[..., None]) ** 2 / v[..., None]
    log_f += log_weight
    top = log_f.max(axis=-1)
    weight = np.exp(log_f - top[..., None])
    total = weight.sum(axis=-1)
    weight /= total[..., None]
    mean = (weight * eta).sum(axis=-1)
    variance = (weight * (eta - mean[..., None]) ** 2).sum(axis=-1)
    log_z = top + np.log(total) + np.log(width) - 0.5 * np.log(2.0 * np.pi * v)
    return Tilted(log_z, mean, variance)


@cache
def _nodes() -> tuple[Floats, Floats]:
    """Nodes for integrals over the line, and logs of their weights."""
    at, weight = np.polynomial.hermite_e.hermegauss(NODES)
    return at, np.log(weight) + 0.5 * at**2
