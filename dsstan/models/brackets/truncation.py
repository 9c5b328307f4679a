"""Normal distributions cut to an interval, exact far from the mean."""

from __future__ import annotations

import numpy as np
from scipy.special import log_ndtr, ndtri, ndtri_exp

from dsstan.core.arrays import Floats

__all__ = ["truncated_normal", "truncated_sd"]


NODES = 400
"""Quantiles behind a standard deviation."""


def truncated_normal(
    z: Floats, mean: Floats, sd: Floats | float, low: Floats, high: Floats
) -> Floats:
    """Quantiles of normals cut to intervals, at the probabilities that z has uncut.

    Equation trun of Quick, Holan and Wikle (2018). With z standard normal these are draws, one
    for each z and without any rejection. The logarithms of both tails are kept and the smaller
    one is inverted, so that an interval far from the mean is no worse than one around it.

    Parameters
    ----------
    z
        Normal scores of the probabilities, any shape.
    mean, sd
        Of the normals before they are cut; broadcast against z.
    low, high
        Ends of the intervals, low < high, infinite where open. An interval with both ends
        open gives ``mean + sd * z`` to the last digit.

    Returns
    -------
    ndarray
        Never outside [low, high].

    Examples
    --------
    >>> infinity = np.full(2, np.inf)
    >>> truncated_normal(np.array([0.0, 1.0]), np.zeros(2), 1.0, np.full(2, 40.0), infinity)
    array([40.01731413, 40.04597045])
    """
    z, mean, sd, low, high = np.broadcast_arrays(*map(np.asarray, (z, mean, sd, low, high)))
    with np.errstate(over="ignore", divide="ignore"):  # beyond all floats a tail is zero
        a, b = (low - mean) / sd, (high - mean) / sd
        p, q = log_ndtr(z), log_ndtr(-z)
        below = np.logaddexp(q + log_ndtr(a), p + log_ndtr(b))
        above = np.logaddexp(q + log_ndtr(-a), p + log_ndtr(-b))
        score = np.where(below < above, ndtri_exp(below), -ndtri_exp(above))
    uncut = np.isinf(low) & np.isinf(high)
    return np.asarray(np.clip(mean + sd * np.where(uncut, z, score), low, high))


def truncated_sd(mean: Floats, sd: Floats | float, low: Floats, high: Floats) -> Floats:
    """Standard deviations of normals cut to intervals, by their quantiles, shape (N,).

    Parameters
    ----------
    mean, sd, low, high
        As of :func:`truncated_normal`, shape (N,).

    Examples
    --------
    >>> one = np.ones(1)
    >>> truncated_sd(0 * one, 1.0, -1e-3 * one, 1e-3 * one).round(6)  # as of a uniform
    array([0.000577])
    """
    z = ndtri((np.arange(NODES) + 0.5) / NODES)[:, None]
    drawn = truncated_normal(z, mean, sd, low, high)
    return np.asarray(np.std(drawn, axis=0))
