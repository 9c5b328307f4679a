"""The information of copies that are not drawn yet.

Where the nugget is weak, a few posterior draws carry most of the information, so the mean over
all draws is less than many a set of L draws gives. A plan counts on a set with much of it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dsstan.core.arrays import Floats, Indices

CAUTION, SETS = 0.95, 200
"""Quantile of the information over sets of L draws, and how many sets are drawn for it."""

MOST_COPIES = 10**9
"""Answer where no number of copies is too many."""

RESAMPLED, MOST_DRAWN, BLOCK = 60, 1000, 20_000
"""Sets of draws for a Monte Carlo error, most draws of a set that are drawn one by one, and
records at a time, which bounds the memory."""

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
    times = _times_drawn(sequences[:, :rest], count)
    if rounds:
        times += rounds * _times_drawn(sequences, count)
    high = np.quantile(times @ by_draw, CAUTION, axis=0)
    return np.asarray(np.maximum(high, copies * by_draw.mean(axis=0)))


def _times_drawn(sets: Indices, count: int) -> Floats:
    """How often each of S draws is in each set, rows of ``sets``; shape (sets, S)."""
    shifted = sets + count * np.arange(len(sets))[:, None]
    times = np.bincount(shifted.ravel(), minlength=len(sets) * count)
    return times.reshape(len(sets), count).astype(np.float64)


def spread_of_sd(by_draw: Floats, copies: int, precision: Floats, *, plan: bool) -> Floats:
    """How far a log sd after so many copies would move with other draws: its sd, shape (N,).

    By sets of the draws, drawn with replacement. Where the nugget is weak the information is so
    heavy-tailed that the standard error of its mean says little of a set of L draws, and less of
    a high quantile over sets.

    Parameters
    ----------
    by_draw
        Information of one copy at each posterior draw, shape (S, N).
    copies
        L.
    precision
        Without the copies, shape (N,).
    plan
        Whether the information is :func:`planned_information` of the draws, which other S draws
        move; else it is the sum over L of them.
    """
    count = len(by_draw)
    sets = np.random.default_rng(0).integers(
        count, size=(RESAMPLED, count if plan else min(copies, MOST_DRAWN))
    )
    times = _times_drawn(sets, count) * (copies / sets.shape[1])
    out = np.empty(precision.size)
    for begin in range(0, precision.size, BLOCK):
        some = slice(begin, begin + BLOCK)
        part = by_draw[:, some]
        found = (
            np.stack([planned_information(part[s], copies) for s in sets]) if plan else times @ part
        )
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(precision[some] + found)
        # A record with its own coefficient on which copies say nothing has no sd that could move.
        out[some] = np.nan_to_num(0.5 * logs.std(axis=0, ddof=1), nan=0.0)
    return np.asarray(out * np.sqrt(count / (count - 1)))


def most_copies(kept: Callable[[int], bool]) -> int:
    """The most copies that still keep something; 0 if none, never more than 10^9.

    Parameters
    ----------
    kept
        Whether so many do, which more copies never turn from no to yes.
    """
    low, high = 0, 1
    while high < MOST_COPIES and kept(high):
        low, high = high, min(2 * high, MOST_COPIES)
    if kept(high):
        return high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if kept(middle) else (low, middle)
    return low


def sd_with(alone: Floats, gain: Floats, margin: Floats | float) -> Floats:
    """sd by the precision without copies and what copies add, shape (N,).

    The margin, a factor on the sd, is that of bounds on what copies say: none where they say
    nothing, and never beyond the sd without copies.
    """
    with np.errstate(divide="ignore"):
        sd = np.where(gain > 0, margin, 1.0) / np.sqrt(alone + gain)
        return np.asarray(np.minimum(sd, 1.0 / np.sqrt(alone)))
