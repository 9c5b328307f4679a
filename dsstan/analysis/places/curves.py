"""Variogram and regression of values at synthetic or masked places."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from dsstan.analysis.combining import combine, combine_full
from dsstan.analysis.overlap import interval_overlap
from dsstan.analysis.places.marked import MarkedPlaces
from dsstan.analysis.places.pairs import sums_of_pairs
from dsstan.analysis.places.ripley import STEPS, checked_reach
from dsstan.analysis.utility import least_squares, ols
from dsstan.core.arrays import Floats
from dsstan.core.errors import InputError
from dsstan.table.mask.mask import Mask

TREND = ("east", "north", "east^2", "east x north", "north^2")
"""Terms of the place in the regression."""


def variogram_of(
    data: MarkedPlaces, mask: Mask, *, reach: float | None = None, bins: int = STEPS // 2
) -> pd.DataFrame:
    """Empirical semivariogram, as :func:`dsstan.analysis.spatial_statistics.variogram` gives it.

    For many records: only pairs within the reach are visited.

    Returns
    -------
    DataFrame
        ``distance`` (upper end of the bin), ``gamma`` (NaN where the bin holds no pair) and
        ``pairs``.

    Raises
    ------
    InputError
        If there are no values, or an argument is impossible.
    """
    if data.values is None:
        raise InputError("a variogram needs values at the places")
    there = np.isfinite(data.values)
    far = checked_reach(mask, reach, bins, len(data.places))
    places, values = data.places[there], data.values[there]
    sums = sums_of_pairs(places, mask, step=far / bins, bins=bins, values=values)
    gamma = np.full(bins, np.nan)
    np.divide(0.5 * sums.squares, sums.pairs, out=gamma, where=sums.pairs > 0)
    ends = far * np.arange(1, bins + 1) / bins
    return pd.DataFrame({"distance": ends, "gamma": gamma, "pairs": sums.pairs})


def residuals_of(data: MarkedPlaces) -> MarkedPlaces:
    """The same places with the residuals of the regression without the place as values."""
    if data.values is None or data.X is None:
        return data
    there = np.isfinite(data.values)
    rest = np.full(len(there), np.nan)
    X, y = data.X[there], data.values[there]
    rest[there] = y - X @ np.linalg.lstsq(X, y, rcond=None)[0]
    return MarkedPlaces(data.places, rest, data.X, data.groups, data.terms)


def with_trend(data: MarkedPlaces, centre: Floats, scale: float) -> tuple[Floats, Floats]:
    """Design with a quadratic trend of the place, shape (n, P + 5), and the values, shape (n,).

    Records without a value are left out.
    """
    if data.values is None or data.X is None:
        raise InputError("the regression needs values and a design matrix")
    there = np.isfinite(data.values)
    u, v = ((data.places[there] - centre) / scale).T
    return np.column_stack([data.X[there], u, v, u * u, u * v, v * v]), data.values[there]


def compare_regression(
    original: MarkedPlaces, copies: Sequence[MarkedPlaces], *, population: bool = False
) -> pd.DataFrame:
    """Least squares with a quadratic trend of the place: what moved places do to it.

    The trend is that of the published places, about the original's centre and in units of its
    spread: a term of the place is attenuated where places carry error.

    Parameters
    ----------
    original, copies
        The tables.
    population
        Whether copies are synthetic populations, so that
        :func:`dsstan.analysis.combining.combine_full` combines them.

    Returns
    -------
    DataFrame
        One row a term: ``original``, ``se``, ``copies`` (mean over copies), ``bias`` and
        ``bias_in_se``, and of two copies or more ``low`` and ``high`` (Reiter 2003, or of
        populations Raghunathan, Reiter and Rubin 2003) and ``overlap`` of the intervals.

    Raises
    ------
    InputError
        If there are no values, no design matrix, or a term cannot be estimated.
    """
    centre = original.places.mean(axis=0)
    scale = float(np.sqrt(original.places.var(axis=0).mean()))
    if scale == 0.0:
        raise InputError("all records are at one place, so there is no trend of the place")
    designs = [with_trend(d, centre, scale) for d in (original, *copies)]
    for number, (X, _) in enumerate(designs):
        if np.linalg.matrix_rank(X) < X.shape[1]:
            which = "the original" if number == 0 else f"copy {number}"
            raise InputError(f"the regression with a trend of the place is collinear on {which}")
    own = least_squares(*designs[0])
    found = [ols(X, y) for X, y in designs[1:]]
    q, u = (np.stack(part) for part in zip(*found, strict=True))
    se = np.sqrt(own.variance)
    bias = q.mean(axis=0) - own.estimate
    columns = {
        "original": own.estimate,
        "se": se,
        "copies": q.mean(axis=0),
        "bias": bias,
        "bias_in_se": bias / se,
    }
    if len(copies) > 1:
        pooled = combine_full(q, u) if population else combine(q, u)
        columns |= {"low": pooled.low, "high": pooled.high}
        overlap = interval_overlap((own.low, own.high), (pooled.low, pooled.high))
        columns["overlap"] = overlap.truncated
    return pd.DataFrame(columns, index=[*original.terms, *TREND])
