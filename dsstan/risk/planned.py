"""The information of copies that are not drawn yet.

Where the nugget is weak, a few posterior draws carry most of the information, so the mean over
all draws is less than many a set of L draws gives. A plan counts on a set with much of it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

CAUTION, SETS = 0.95, 200
"""Quantile of the information over sets of L draws, and how many sets are drawn for it."""

FEW_DRAWS = 5
"""With fewer draws than this, the largest information of a draw stands for a quantile."""


def planned_information(by_draw: Floats, copies: int) -> Floats:
    """Information to expect at worst of so many copies not yet drawn, shape (N,).

    The 95% quantile, over 200 sets of L draws, of the information of a set, and not less than L
    times the mean; of fewer than 5 draws L times the largest. It grows with L.

    Parameters
    ----------
    by_draw
        Of one copy at each posterior draw, shape (S, N).
    copies
        L.
    """
    count = len(by_draw)
    if count < FEW_DRAWS:
        return np.asarray(copies * by_draw.max(axis=0))
    # Each set is the beginning of one sequence, so that sets grow with L, and so does a quantile.
    sequences = np.random.default_rng(0).integers(count, size=(SETS, count))
    rounds, rest = divmod(copies, count)
    times = np.stack(
        [
            rounds * np.bincount(s, minlength=count) + np.bincount(s[:rest], minlength=count)
            for s in sequences
        ]
    ).astype(np.float64)
    high = np.quantile(times @ by_draw, CAUTION, axis=0)
    return np.asarray(np.maximum(high, copies * by_draw.mean(axis=0)))
