"""Convergence diagnostics of draws (Vehtari et al. 2021), by ArviZ."""

from __future__ import annotations

from dsstan.core.arrays import Floats


def rhat(draws: Floats) -> float:
    """Rank-normalised split R-hat, the larger of bulk and tail, of draws (chains, samples)."""
    from arviz_stats.base import array_stats  # a second to import

    return float(array_stats.rhat(draws, chain_axis=0, draw_axis=1, method="rank"))


def ess(draws: Floats, kind: str = "bulk") -> float:
    """Effective sample size, ``"bulk"`` or ``"tail"``, of draws (chains, samples)."""
    from arviz_stats.base import array_stats  # a second to import

    tails = (0.05, 0.95) if kind == "tail" else None
    return float(array_stats.ess(draws, chain_axis=0, draw_axis=1, method=kind, prob=tails))
