"""Counts of records on areas: administrative ones, or the squares of a grid."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
import pandas as pd

from dsstan.core.arrays import Floats, Indices
from dsstan.core.errors import InputError
from dsstan.table.mask.mask import Mask

NEAR = 0.1
"""A count is near the original's within this share of it, or within one record."""


def squares(places: Floats, side: float, origin: Floats) -> list[tuple[int, int]]:
    """The square of a grid that each place is in, as column and row from ``origin``."""
    if not (np.isfinite(side) and side > 0):
        raise InputError("the side of a square is a length above 0, in the unit of the places")
    number = np.floor((places - origin) / side).astype(np.int64)
    return [(int(u), int(v)) for u, v in number]


def areas_of_cells(places: Floats, mask: Mask, area: Sequence[Hashable]) -> list[Hashable]:
    """Area of each place by that of its cell, of which ``area`` names one a cell."""
    if len(area) != mask.n_cells:
        raise InputError(f"area needs one name a cell, {mask.n_cells}; got {len(area)}")
    names = [*area, None]
    return [names[c] for c in mask.cell_of(places)]


def counts_on(
    original: Sequence[Hashable], copies: Sequence[Sequence[Hashable]]
) -> tuple[Floats, Floats]:
    """Records in each area that any table has: of the original (A,), of the copies (L, A)."""
    number: dict[Hashable, int] = {}
    coded: list[Indices] = [
        np.array([number.setdefault(name, len(number)) for name in table], dtype=np.intp)
        for table in (original, *copies)
    ]
    counts = np.stack([np.bincount(c, minlength=len(number)) for c in coded]).astype(np.float64)
    return counts[0], counts[1:]


def compare_counts(original: Floats, copies: Floats) -> pd.Series[float]:
    """How near the counts of the copies come to those of the original.

    Parameters
    ----------
    original, copies
        As from :func:`counts_on`.

    Returns
    -------
    Series
        ``areas``; ``correlation`` of the original with the mean of the copies, NaN where either
        does not vary; ``misplaced``, the share of records that would have to move to another area
        for a copy to have the original's shares, mean over copies; ``near``, the share of areas
        whose mean count is within a tenth of the original's or within one record.
    """
    mean = copies.mean(axis=0)
    varies = bool(np.ptp(original) > 0 and np.ptp(mean) > 0)
    shares = [c / c.sum(axis=-1, keepdims=True) for c in (original, copies)]
    return pd.Series(
        {
            "areas": float(len(original)),
            "correlation": float(np.corrcoef(original, mean)[0, 1]) if varies else np.nan,
            "misplaced": float(0.5 * np.abs(shares[1] - shares[0]).sum(axis=1).mean()),
            "near": float(np.mean(np.abs(mean - original) <= np.maximum(1.0, NEAR * original))),
        }
    )
