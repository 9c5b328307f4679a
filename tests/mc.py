"""Monte Carlo tolerances, the only place.

Two posteriors are called the same where every compared mean and quantile
differs by less than z standard errors of the difference, both sides' Monte
Carlo errors included, z from a false-alarm rate of 1e-5 for the whole set of
comparisons (Bonferroni).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from arviz_stats.base import array_stats
from numpy.typing import NDArray
from scipy import stats

Floats = NDArray[np.float64]

FALSE_ALARM = 1e-5
QUANTILES = (0.025, 0.5, 0.975)


def z_limit(comparisons: int, false_alarm: float = FALSE_ALARM) -> float:
    """Two-sided normal limit for a number of comparisons."""
    return float(stats.norm.isf(false_alarm / (2 * comparisons)))


@dataclass(frozen=True)
class Estimate:
    """A number and its Monte Carlo standard error."""

    value: float
    error: float


def mean_of(draws: Floats) -> Estimate:
    """Mean of draws of shape (chains, samples), with its Monte Carlo error."""
    error = array_stats.mcse(draws, chain_axis=0, draw_axis=1, method="mean")
    return Estimate(float(np.mean(draws)), float(error))


def sd_of(draws: Floats) -> Estimate:
    """Standard deviation of draws, with its Monte Carlo error."""
    error = array_stats.mcse(draws, chain_axis=0, draw_axis=1, method="sd")
    return Estimate(float(np.std(draws, ddof=1)), float(error))


def quantile_of(draws: Floats, probability: float) -> Estimate:
    """Quantile of draws, with its Monte Carlo error."""
    error = array_stats.mcse(draws, chain_axis=0, draw_axis=1, method="quantile", prob=probability)
    return Estimate(float(np.quantile(draws, probability)), float(error))


def estimates_of(draws: Mapping[str, Floats]) -> dict[str, Estimate]:
    """Mean and three quantiles of every parameter."""
    out = {}
    for name, d in draws.items():
        out[f"mean {name}"] = mean_of(d)
        for p in QUANTILES:
            out[f"q{1000 * p:.0f} {name}"] = quantile_of(d, p)
    return out


def assert_same(first: Mapping[str, Estimate], second: Mapping[str, Estimate | float]) -> None:
    """Fail, naming each, where two sets of estimates differ beyond their errors."""
    assert first, "nothing to compare"
    assert set(first) == set(second)
    limit = z_limit(len(first))
    worst = {}
    for name, a in first.items():
        other = second[name]
        b = other if isinstance(other, Estimate) else Estimate(float(other), 0.0)
        error = float(np.hypot(a.error, b.error))
        assert 0 < error < np.inf, f"no Monte Carlo error for {name}"
        z = abs(a.value - b.value) / error
        if not z < limit:
            worst[name] = f"{a.value:.5g} and {b.value:.5g}, {z:.1f} standard errors"
    assert not worst, f"limit {limit:.1f}: {worst}"


def assert_same_posterior(first: Mapping[str, Floats], second: Mapping[str, Floats]) -> None:
    """Compare means and quantiles of draws of shape (chains, samples)."""
    assert_same(estimates_of(first), estimates_of(second))
