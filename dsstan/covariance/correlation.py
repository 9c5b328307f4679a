"""Correlation functions of the spatial effect, by name.

All have the decay phi as the inverse of a distance, correlation 1 at distance 0, and fall with
u = phi d:

=============  =======================================
name           correlation at u = phi d
=============  =======================================
exponential    exp(-u)
matern32       (1 + u) exp(-u)
matern52       (1 + u + u^2 / 3) exp(-u)
=============  =======================================

They are Matern's with smoothness 1/2, 3/2 and 5/2 (Stein 1999, *Interpolation of Spatial Data*,
section 2.7), in the scale of ``fields::Matern(d, range = 1 / phi)``. The paper's is the first.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq

from dsstan.core.arrays import Floats
from dsstan.core.errors import InputError, is_number

__all__ = [
    "CORRELATIONS",
    "correlation",
    "correlation_code",
    "correlation_distance",
    "correlation_words",
    "decay_bounds",
    "decay_quantile",
    "decay_rate",
    "decay_share",
    "dissimilarity",
    "log_decay_mass",
]


CORRELATIONS = ("exponential", "matern32", "matern52")
"""Names, in the order of the codes 1, 2, 3 of the Stan programs."""

EFFECTIVE = 0.05
"""Correlation at the effective range."""

_WORDS = ("exponential", "Matern 3/2", "Matern 5/2")


def correlation_code(name: str) -> int:
    """Code of a correlation function in the Stan programs, from 1.

    Raises
    ------
    InputError
        If there is none of this name.
    """
    if name not in CORRELATIONS:
        raise InputError(f"cov_model must be one of {', '.join(CORRELATIONS)}, got {name!r}")
    return CORRELATIONS.index(name) + 1


def correlation_words(name: str) -> str:
    """A correlation function as it is called in reports.

    Examples
    --------
    >>> correlation_words("matern32")
    'Matern 3/2'
    """
    return _WORDS[correlation_code(name) - 1]


def correlation(d: Floats, phi: float, name: str = "exponential") -> Floats:
    """Correlation at distances, of their shape.

    Parameters
    ----------
    d
        Distances, any shape.
    phi
        Decay, inverse of their unit.
    name
        One of :data:`CORRELATIONS`.

    Examples
    --------
    >>> correlation(np.array([0.0, 1.0]), 2.0, "matern32").round(4)
    array([1.   , 0.406])
    """
    code = correlation_code(name)
    out = np.exp(-phi * np.asarray(d, dtype=np.float64))
    if code == 1:
        return np.asarray(out)
    u = phi * np.asarray(d, dtype=np.float64)
    return np.asarray(out * (1.0 + u if code == 2 else 1.0 + u + u**2 / 3.0))


def correlation_distance(c: float, phi: float, name: str = "exponential") -> float:
    """Distance at which the correlation has fallen to c.

    The paper's M for c = 0.20 (section 3.2), the effective range for c = 0.05.

    Parameters
    ----------
    c
        Between 0 and 1.
    phi
        Decay, above 0.
    name
        One of :data:`CORRELATIONS`.

    Examples
    --------
    >>> [round(correlation_distance(EFFECTIVE, 1.0, name), 2) for name in CORRELATIONS]
    [3.0, 4.74, 5.92]
    """
    if not (is_number(c) and 0 < c < 1):
        raise InputError("correlation must lie between 0 and 1")
    if correlation_code(name) == 1:
        return float(-np.log(c) / phi)
    falls = lambda u: float(correlation(np.asarray(u), 1.0, name)) - c  # noqa: E731
    top = 2.0 * float(-np.log(c)) + 10.0
    return float(brentq(falls, 0.0, top, xtol=1e-14, rtol=1e-14)) / phi


def dissimilarity(d: Floats, phi: float, name: str = "exponential") -> Floats:
    """1 - correlation, from 0 to 1, exact to rounding also at short distances, of their shape.

    Parameters
    ----------
    d, phi, name
        As :func:`correlation` takes them.

    Examples
    --------
    >>> dissimilarity(np.array([0.0, 1e-12, 1.0]), 1.0)
    array([0.00000000e+00, 1.00000000e-12, 6.32120559e-01])
    """
    code = correlation_code(name)
    u = phi * np.asarray(d, dtype=np.float64)
    rest = -np.expm1(-u)
    if code == 1:
        return np.asarray(rest)
    more = u if code == 2 else u + u**2 / 3.0
    return np.asarray(np.maximum(rest - more * np.exp(-u), 0.0))


def decay_bounds(d_max: float, name: str = "exponential") -> tuple[float, float]:
    """Default range of phi: effective ranges from the largest distance to a hundredth of it.

    3 / d_max to 300 / d_max for the exponential, whose effective range is 3 / phi to the
    usual rounding (-log 0.05 = 2.996). The Matern functions fall later, so their phi is
    larger at the same effective range: 4.74 and 5.92 take the place of 3.

    Parameters
    ----------
    d_max
        Largest distance between sites.
    name
        One of :data:`CORRELATIONS`.

    Examples
    --------
    >>> [decay_bounds(2.0, name)[0].__round__(2) for name in CORRELATIONS]
    [1.5, 2.37, 2.96]
    """
    at = _effective(name)
    return at / d_max, 100.0 * at / d_max


def _effective(name: str) -> float:
    """phi times the effective range."""
    return 3.0 if correlation_code(name) == 1 else correlation_distance(EFFECTIVE, 1.0, name)


def decay_rate(short: float, chance: float, name: str = "exponential") -> float:
    """Rate of the exponential prior of phi under which a short effective range has a given chance.

    The penalised-complexity prior of the range in two dimensions (Fuglstad, Simpson, Lindgren and
    Rue 2019, JASA 114, 445-452, doi 10.1080/01621459.2017.1415907): the inverse of the
    range, and so phi, is exponential. P(c / phi < short) = exp(-rate c / short), c = phi times the
    effective range.

    Parameters
    ----------
    short
        An effective range, unit of the coordinates.
    chance
        That of a shorter one, between 0 and 1.
    name
        One of :data:`CORRELATIONS`.

    Returns
    -------
    float
        Unit of ``short``, whose inverse phi has.

    Examples
    --------
    >>> round(decay_rate(0.3, 0.05), 4)
    0.2996
    """
    return float(-np.log(chance) * short / _effective(name))


def log_decay_mass(bounds: tuple[float, float], rate: float = 0.0) -> float:
    """Log integral of exp(-rate phi) between two ends of phi.

    The constant of the prior of phi: uniform where the rate is 0, else exponential and cut.

    Examples
    --------
    >>> round(log_decay_mass((1.0, 2.0)), 4), round(log_decay_mass((0.0, 50.0), 2.0), 4)
    (0.0, -0.6931)
    """
    low, high = bounds
    if rate == 0.0:
        return float(np.log(high - low))
    return float(np.log(-np.expm1(-rate * (high - low)) / rate) - rate * low)


def decay_share(phi: Floats, bounds: tuple[float, float], rate: float = 0.0) -> Floats:
    """Prior probability of a smaller decay, of the shape of ``phi``; see :func:`log_decay_mass`."""
    low, high = bounds
    if rate == 0.0:
        return np.asarray((phi - low) / (high - low))
    return np.asarray(np.expm1(-rate * (phi - low)) / np.expm1(-rate * (high - low)))


def decay_quantile(share: Floats, bounds: tuple[float, float], rate: float = 0.0) -> Floats:
    """The decay of which a share of the prior is smaller: the inverse of :func:`decay_share`.

    Examples
    --------
    >>> bounds = 0.5, 40.0
    >>> decay_quantile(decay_share(np.array([0.7, 9.0]), bounds, 0.2), bounds, 0.2).round(9)
    array([0.7, 9. ])
    """
    low, high = bounds
    if rate == 0.0:
        return np.asarray(low + (high - low) * share)
    return np.asarray(low - np.log1p(share * np.expm1(-rate * (high - low))) / rate)
