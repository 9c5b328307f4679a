"""Convergence diagnostics of draws (Vehtari et al. 2021), by ArviZ."""

from __future__ import annotations

import numpy as np

from dsstan.core.arrays import Floats

RELIABLE_K = 0.7
"""Largest Pareto k with which importance weights can be trusted (Vehtari et al. 2024)."""


def rhat(draws: Floats) -> float:
    """Rank-normalised split R-hat, the larger of bulk and tail, of draws (chains, samples)."""
    from arviz_stats.base import array_stats  # a second to import

    return float(array_stats.rhat(draws, chain_axis=0, draw_axis=1, method="rank"))


def ess(draws: Floats, kind: str = "bulk") -> float:
    """Effective sample size, ``"bulk"`` or ``"tail"``, of draws (chains, samples)."""
    from arviz_stats.base import array_stats  # a second to import

    tails = (0.05, 0.95) if kind == "tail" else None
    return float(array_stats.ess(draws, chain_axis=0, draw_axis=1, method=kind, prob=tails))


def pareto_k(log_ratio: Floats) -> float:
    """Pareto k of importance weights from their logs, shape (S,); 0 at least.

    0 as well where all are equal, and infinite where five draws or fewer carry
    them all, since no tail can then be fitted. Vehtari et al. (2024).
    """
    from arviz_stats.base import array_stats  # a second to import

    ratio = np.exp(log_ratio - log_ratio.max())
    if np.ptp(ratio) < 1e-8:
        return 0.0
    if np.sum(ratio) ** 2 / np.sum(ratio**2) <= 5.0:
        return float("inf")
    try:
        # pareto_khat of arviz-stats 0.8 takes logs for the weights themselves; psislw doesn't.
        with np.errstate(all="ignore"):
            k = float(array_stats.psislw(-log_ratio)[1])
    except ValueError:  # equal weights throughout the tail
        return 0.0
    return max(0.0, k) if np.isfinite(k) else float("inf")
