"""Distances to the nearest record."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.spatial import cKDTree

from dsstan.core.arrays import Floats
from dsstan.core.errors import InputError

QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)


def nearest_distances(places: Floats) -> Floats:
    """Distance of each place to the nearest other one, shape (N,).

    Raises InputError if there are fewer than two places.
    """
    if len(places) < 2:
        raise InputError(f"nearest records need two places at least; there are {len(places)}")
    return np.asarray(cKDTree(places).query(places, k=[2])[0][:, 0])


def largest_gap(first: Floats, second: Floats) -> float:
    """Largest difference of two empirical distribution functions (Kolmogorov and Smirnov)."""
    at = np.concatenate([first, second])
    shares = [np.searchsorted(np.sort(v), at, side="right") / len(v) for v in (first, second)]
    return float(np.abs(shares[0] - shares[1]).max())


def compare_nearest(original: Floats, copies: Sequence[Floats]) -> pd.DataFrame:
    """Quantiles of the distance to the nearest record, original beside copies.

    Parameters
    ----------
    original, copies
        Places of the original and of each copy, shape (N, 2).

    Returns
    -------
    DataFrame
        One row a quantile: ``original``, ``copies`` (mean over the copies), ``smallest`` and
        ``largest``.
    """
    own = np.quantile(nearest_distances(original), QUANTILES)
    found = np.array([np.quantile(nearest_distances(c), QUANTILES) for c in copies])
    return beside(own, found, [f"{100 * q:.0f}%" for q in QUANTILES])


def beside(original: Floats, copies: Floats, index: Sequence[str]) -> pd.DataFrame:
    """Numbers of the original, shape (m,), beside those of the copies, shape (L, m)."""
    columns = {
        "original": original,
        "copies": copies.mean(axis=0),
        "smallest": copies.min(axis=0),
        "largest": copies.max(axis=0),
    }
    return pd.DataFrame(columns, index=list(index))
