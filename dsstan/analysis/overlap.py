"""Overlap of two intervals (Karr et al. 2006)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dsstan.core.arrays import Floats
from dsstan.core.errors import InputError


@dataclass(frozen=True, eq=False)
class Overlap:
    """How far a synthetic interval overlaps the original one (Karr et al. 2006).

    Attributes
    ----------
    raw
        Mean of the two ratios; 1 where the intervals are the same, negative where
        they are apart.
    truncated
        ``raw``, or 0 where that is negative.
    width_ratio
        Width of the synthetic interval over the original's. An overlap of 1 needs
        equal widths; one below 1 with a ratio far from 1 is a matter of width.
    """

    raw: Floats
    truncated: Floats
    width_ratio: Floats


def interval_overlap(
    original: tuple[ArrayLike, ArrayLike], synthetic: tuple[ArrayLike, ArrayLike]
) -> Overlap:
    """Overlap of intervals, the mean of its share of either (Karr et al. 2006).

    Parameters
    ----------
    original, synthetic
        (low, high), each a number or of shape (P,). A point inside the other
        interval counts as all of itself, the limit of a short interval; outside,
        the raw overlap is ``-inf``.

    Raises
    ------
    InputError
        If an end is not finite, or an interval is upside down.

    Examples
    --------
    >>> found = interval_overlap((0.0, 2.0), (1.0, 5.0))
    >>> float(found.raw), float(found.width_ratio)
    (0.375, 2.0)
    """
    ends = [np.asarray(e, dtype=np.float64) for e in (*original, *synthetic)]
    if len(ends) != 4 or len({e.shape for e in ends}) != 1:
        raise InputError("original and synthetic need (low, high), all four of one shape")
    low_o, high_o, low_s, high_s = ends
    if not all(np.all(np.isfinite(e)) for e in ends):
        raise InputError("the ends of the intervals must be finite")
    if np.any(low_o > high_o) or np.any(low_s > high_s):
        raise InputError("an interval's low end is above its high end")
    shared = np.minimum(high_o, high_s) - np.maximum(low_o, low_s)
    raw = 0.5 * (_share(shared, high_o - low_o) + _share(shared, high_s - low_s))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = (high_s - low_s) / (high_o - low_o)
    same = high_s - low_s == high_o - low_o
    return Overlap(raw, np.maximum(raw, 0.0), np.where(same, 1.0, ratio))


def _share(shared: Floats, width: Floats) -> Floats:
    """shared / width; for a point 1 inside and -inf outside."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where((width == 0) & (shared >= 0), 1.0, shared / width)
