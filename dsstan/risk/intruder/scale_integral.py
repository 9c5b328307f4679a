"""The partial sill integrated out of a Gaussian likelihood, summed over nodes of (phi, r).

At one (phi, r) the likelihood of n values with P coefficients integrated out is
``sigma_sq^(-(n - P) / 2) exp(-q / (2 sigma_sq))``. With either prior of the variances its integral
over sigma_sq is one of Bessel's functions::

    integral v^(-a - 1) exp(-c v - Q / v) dv = 2 (Q / c)^(-a / 2) K_a(2 sqrt(c Q)),

so sigma_sq needs no nodes. q is quadratic in one record's value, which makes the sum over the
nodes a function of that value.
"""

# The loops are written out, since that is what numba compiles.
from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit

from dsstan.core.arrays import Floats
from dsstan.models.priors import ResolvedPriors

NEGLIGIBLE, ROUGH = 18.0, 7
"""Nodes whose log density is by so much less than the largest are left out, and the number of
values at which they are compared."""


@dataclass(frozen=True, eq=False)
class ScalePrior:
    """The prior of (sigma_sq, tau_sq) at each r as the integral takes it.

    Attributes
    ----------
    shift
        What is added to half the degrees of freedom to give a.
    rate, add
        c, and what is added to q / 2 to give Q, shape (...), as ``log_r``.
    log_constant
        What depends on r alone, shape (...).
    """

    shift: float
    rate: Floats
    add: Floats
    log_constant: Floats

    @classmethod
    def at(cls, priors: ResolvedPriors, log_r: Floats) -> ScalePrior:
        """For the settings of a fit; the density is that of (log sigma_sq, log r)."""
        r, sigma, tau = np.exp(log_r), priors.sigma, priors.tau
        if priors.variance == "half-normal":
            rate = 0.5 / sigma[0] ** 2 + 0.5 * r / tau[0] ** 2
            return cls(-1.0, rate, np.zeros_like(r), 0.5 * log_r)
        add = sigma[1] + tau[1] / r
        return cls(sigma[0] + tau[0], np.zeros_like(r), add, -tau[0] * log_r)

    def integral(self, degrees: float, quadratic: Floats) -> Floats:
        """Log of the integral over sigma_sq, constants left out, shape of ``quadratic``.

        Parameters
        ----------
        degrees
            n - P.
        quadratic
            q at sigma_sq = 1.
        """
        rate, big = np.broadcast_arrays(self.rate, 0.5 * quadratic + self.add)
        return np.asarray(_log_integrals(0.5 * degrees + self.shift, rate, big))


@njit(cache=True, nogil=True, inline="always", error_model="numpy")
def _log_integral(a: float, c: float, big: float) -> float:
    """Log of the integral above, by Debye's expansion of K_a to its fourth term.

    Abramowitz and Stegun (1964), 9.7.8. Its error is of the order of w^-5,
    w^2 = a^2 + 4 c Q; c may be 0, where it is Stirling's formula.
    """
    order = abs(a)
    w = math.sqrt(order * order + 4.0 * c * big)
    u = 1.0 / w
    p = order * order * u * u
    one = (3.0 - 5.0 * p) / 24.0
    two = (81.0 + p * (-462.0 + 385.0 * p)) / 1152.0
    three = (30375.0 + p * (-369603.0 + p * (765765.0 - 425425.0 * p))) / 414720.0
    four = 4465125.0 + p * (-94121676.0 + p * (349922430.0 + p * (-446185740.0 + p * 185910725.0)))
    four /= 39813120.0
    series = 1.0 + u * (-one + u * (two + u * (-three + u * four)))
    half = (order + w) / (2.0 * big) if a >= 0.0 else 2.0 * c / (order + w)
    return a * math.log(half) - w + 0.5 * math.log(2.0 * math.pi * series * series * u)


@njit(cache=True, nogil=True, error_model="numpy")
def _log_integrals_flat(a: float, c: Any, big: Any, out: Any) -> None:
    for i in range(out.size):
        out[i] = _log_integral(a, c[i], big[i])


def _log_integrals(a: float, c: Floats, big: Floats) -> Floats:
    """The log of the integral element by element."""
    out = np.empty(big.size)
    _log_integrals_flat(a, np.ravel(c), np.ravel(big), out)
    return out.reshape(big.shape)


@njit(cache=True, nogil=True, error_model="numpy")
def log_sum_over_nodes(
    base: Any, rate: Any, constant: Any, slope: Any, bend: Any, a: float, x: Any
) -> Any:
    """log sum_t exp(base_t + log integral(Q_t(x))), of each of several data sets, shape (L, D).

    Parameters
    ----------
    base, rate
        Log weight and c of each node, shape (T,).
    constant, slope, bend
        Q_t(x) = constant + slope x + bend x^2, shapes (L, T), (L, T) and (T,).
    a
        Order of the integral.
    x
        Shifts of the record's value, shape (D,).
    """
    sets, nodes = constant.shape
    out = np.empty((sets, x.size))
    value, kept = np.empty(nodes), np.empty(nodes, dtype=np.int64)
    for l in range(sets):  # noqa: E741
        many = _that_matter(base, rate, constant[l], slope[l], bend, a, x, kept)
        for d in range(x.size):
            top = -np.inf
            for j in range(many):
                t = kept[j]
                big = constant[l, t] + x[d] * (slope[l, t] + x[d] * bend[t])
                value[j] = base[t] + _log_integral(a, rate[t], big)
                top = max(top, value[j])
            total = 0.0
            for j in range(many):
                total += math.exp(value[j] - top)
            out[l, d] = top + math.log(total)
    return out


@njit(cache=True, nogil=True, error_model="numpy")
def _that_matter(
    base: Any, rate: Any, constant: Any, slope: Any, bend: Any, a: float, x: Any, kept: Any
) -> int:
    """Write into ``kept`` the nodes that count somewhere between the ends of x; how many.

    Each is compared with the largest at some values of x and, as it may be narrow, at its own
    peak, where the largest is taken as linear between those values.
    """
    low, step = x[0], (x[-1] - x[0]) / (ROUGH - 1)
    nodes = base.size
    value, top = np.empty((nodes, ROUGH)), np.full(ROUGH, -np.inf)
    for t in range(nodes):
        for j in range(ROUGH):
            at = low + j * step
            big = constant[t] + at * (slope[t] + at * bend[t])
            value[t, j] = base[t] + _log_integral(a, rate[t], big)
            top[j] = max(top[j], value[t, j])
    many = 0
    for t in range(nodes):
        counts = False
        for j in range(ROUGH):
            counts = counts or value[t, j] > top[j] - NEGLIGIBLE
        if not counts and bend[t] > 0.0:
            peak = -0.5 * slope[t] / bend[t]
            place = (peak - low) / step
            if 0.0 < place < ROUGH - 1:
                j = int(place)
                envelope = top[j] + (place - j) * (top[j + 1] - top[j])
                big = constant[t] + 0.5 * peak * slope[t]
                counts = base[t] + _log_integral(a, rate[t], big) > envelope - NEGLIGIBLE
        if counts:
            kept[many] = t
            many += 1
    return many
