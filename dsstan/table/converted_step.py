"""The step of a column that was rounded, then converted, then rounded again.

Prices of whole 25,000 euros in dollars to the dollar are multiples of 27,092.5, but for half a
dollar: no number divides them, and whoever knows the rate of exchange knows how few there are.
"""

from __future__ import annotations

import numpy as np

from dsstan.core.arrays import Floats, Truths

__all__ = ["converted_step"]

SOME, FINE = 10, 20
"""Fewest different values that show a step, and how many times their rounding it must be."""

_CELLS = 2**20
"""Cells that the range of the values is cut into at most."""
_MOST, _FAR = 5000, 10.0
"""Values that a step is looked for in, and how far from the median, in quartile ranges."""
_HIGH, _NEAR_HIGHEST, _TRIED = 0.35, 0.7, 20
"""Height of a peak of the spectrum, also as a share of the highest, and how many are tried."""
_CHANCE = 1e-3
"""False alarms where there is no such step."""


def converted_step(values: Floats, rounding: float) -> tuple[float, Truths]:
    """The step that many values are a multiple of, but for an offset and their rounding.

    The spectrum of the different values (first of those that occur more than once, which rounding
    leads to) has a peak at the inverse of a step. Step and offset are fitted by least squares to
    the values near a multiple, nearer each time; they count where more values lie within one
    rounding of a multiple than chance has it.

    Parameters
    ----------
    values
        Shape (N,), own scale; NaN where there is none.
    rounding
        What the values were rounded to at last.

    Returns
    -------
    step
        0 where there is none.
    on
        Whether each value is on it, shape (N,).

    Examples
    --------
    >>> euros = 25_000 * np.random.default_rng(1).integers(4, 60, 100)
    >>> step, on = converted_step(np.round(1.0837 * euros), 1.0)
    >>> round(step, 1), on.all()
    (27092.5, np.True_)
    """
    different, times = np.unique(values[np.isfinite(values)], return_counts=True)
    for some in (different[times > 1], different):
        if some.size >= SOME:
            low, middle, high = np.quantile(some, [0.25, 0.5, 0.75])
            some = some[np.abs(some - middle) <= _FAR * (high - low)]
            some = some[:: -(-some.size // _MOST)]
            unit = max(rounding, float(np.ptp(some)) / _CELLS)
            step, offset = _step((some - some[0]) / unit)
            if step > 0:
                at = (values - some[0]) / unit - offset
                with np.errstate(invalid="ignore"):
                    return step * unit, np.abs(at - step * np.rint(at / step)) <= 1.0
    return 0.0, np.zeros(values.shape, dtype=bool)


def _step(at: Floats) -> tuple[float, float]:
    """Step and offset of values in units of their rounding, the first at 0; a step of 0 if none."""
    spread = float(np.subtract(*np.quantile(at, [0.75, 0.25])))
    if spread < 4 * FINE:
        return 0.0, 0.0
    length = 2 ** int(np.ceil(np.log2(at[-1] + 1.0)) + 1)
    height = np.abs(np.fft.rfft(np.bincount(np.rint(at).astype(int)), length)) / at.size
    low, high = int(np.ceil(4 * length / spread)), length // FINE
    own, before, after = height[low:high], height[low - 1 : high - 1], height[low + 1 : high + 1]
    peaks = low + np.flatnonzero((own >= before) & (own >= after) & (own >= _HIGH))
    found = []
    for peak in peaks[height[peaks] >= _NEAR_HIGHEST * own.max(initial=0.0)][:_TRIED]:
        step, offset, hits = _fitted(at, peak / length, 1.0 / length)
        by_chance = min(1.0, 2.0 / step)
        if step >= FINE and _tail(hits, at.size, by_chance) * length * step < _CHANCE:
            share = hits / at.size
            error = np.sqrt(share * (1.0 - share) / at.size)
            found.append((step, offset, (share - by_chance) / (1.0 - by_chance), error))
    # A part of a step has as many values beyond chance, a multiple fewer.
    most = max((excess for _, _, excess, _ in found), default=0.0)
    kept = [one for one in found if one[2] >= most - 2.0 * one[3] - 1e-9]
    return max(kept)[:2] if kept else (0.0, 0.0)


def _fitted(at: Floats, frequency: float, width: float) -> tuple[float, float, int]:
    """Step and offset near a frequency, and how many values are within one of a multiple."""
    near = frequency + width * np.linspace(-1.0, 1.0, 41)
    waves = np.exp(2j * np.pi * near[:, None] * at).mean(axis=1)
    best = int(np.abs(waves).argmax())
    step = float(1.0 / near[best])
    offset, window = float(np.angle(waves[best])) * step / (2.0 * np.pi), step / 8.0
    while True:
        times = np.rint((at - offset) / step)
        close = np.abs(at - offset - times * step) <= max(window, 1.0)
        if window < 1.0 or np.unique(times[close]).size < 2:
            return step, offset, int(close.sum())
        slope, offset = (float(one) for one in np.polyfit(times[close], at[close], 1))
        if slope <= 1.0:
            return step, offset, 0
        step, window = slope, window / 4.0


def _tail(hits: int, n: int, share: float) -> float:
    """Chance of at least so many of n."""
    from scipy.stats import binom  # half a second to import

    return float(binom.sf(hits - 1, n, share))
