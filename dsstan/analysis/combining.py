"""Estimates from copies combined into one, by the rules of partially synthetic data."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from dsstan.core.arrays import Floats, Indices
from dsstan.core.display import Card, Part, Shown
from dsstan.core.errors import DsstanWarning, InputError

LEVEL = 0.95


@dataclass(frozen=True, eq=False, repr=False)
class Pooled(Shown):
    """Estimates combined over L copies (Reiter 2003).

    Attributes
    ----------
    estimate, variance
        q_bar and T = u_bar + b / L, each of shape (P,).
    df
        (L - 1)(1 + L u_bar / b)^2, shape (P,); infinite where b = 0.
    low, high
        Ends of the t interval, shape (P,).
    """

    estimate: Floats
    variance: Floats
    df: Floats
    low: Floats
    high: Floats

    def _line(self) -> str:
        return f"Pooled: {self.estimate.size} estimates, combined over copies"

    def _card(self) -> Card:
        columns = {
            "estimate": self.estimate,
            "se": np.sqrt(self.variance),
            "df": self.df,
            "low": self.low,
            "high": self.high,
        }
        return Card(blocks=(Part(pd.DataFrame(columns)),))


def check_two(copies: int) -> None:
    """Refuse a single copy."""
    if copies < 2:
        raise InputError(
            "the combining rule needs at least two copies: from one, the variance between "
            "copies can't be estimated"
        )


def combine(
    estimates: ArrayLike,
    variances: ArrayLike,
    *,
    level: float = LEVEL,
    imputation: ArrayLike | None = None,
    hide_gaps: bool = False,
) -> Pooled:
    """Combine the estimates of L partially synthetic copies (Reiter 2003).

    Not Rubin's rule for missing data, whose (1 + 1/L) b + u_bar is too wide here. Where the
    response of some records was missing, by the nested rule of
    ``dsstan.analysis.combining.combine_nested``.

    Parameters
    ----------
    estimates, variances
        Each copy's estimates and squared standard errors, shape (L, P); (L,) of one term.
    level
        Of the interval.
    imputation
        Number of the imputation that each copy was made from, shape (L,), where the copies
        come from several; ``metadata.json`` of a release has it. The same number of copies each.
    hide_gaps
        Whether every record was drawn in each imputation, so that gaps don't show; ``hide_gaps``
        of a release says so.

    Raises
    ------
    InputError
        If there are fewer than two copies, shapes differ, a value is not
        finite, or a variance is negative.

    Warns
    -----
    DsstanWarning
        With two copies whose estimates vary more than their own variance says:
        such intervals cover too little.

    Examples
    --------
    >>> pooled = combine([[1.0], [2.0], [3.0]], [[1.0], [1.0], [1.0]])
    >>> float(pooled.estimate[0]), round(float(pooled.variance[0]), 4), float(pooled.df[0])
    (2.0, 1.3333, 32.0)
    """
    q, u = _by_copy(estimates, variances)
    copies = len(q)
    check_two(copies)
    if not (np.all(np.isfinite(q)) and np.all(np.isfinite(u)) and np.all(u >= 0)):
        raise InputError("estimates must be finite, and variances finite and not negative")
    if not 0 < level < 1:
        raise InputError("level must lie between 0 and 1")
    if imputation is not None:
        rows = rows_by_imputation(imputation, copies)
        return combine_nested(q[rows], u[rows], level=level, hide_gaps=hide_gaps)
    q_bar, u_bar = q.mean(axis=0), u.mean(axis=0)
    b = (q - q[0]).var(axis=0, ddof=1)  # exactly 0 where all copies agree
    if copies == 2 and np.any(b > u_bar):
        warnings.warn(
            "two copies whose estimates vary much: the intervals cover less than their level; "
            "release more copies",
            DsstanWarning,
            stacklevel=2,
        )
    variance = u_bar + b / copies
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        df = (copies - 1) * (1.0 + copies * u_bar / np.where(b > 0, b, 0.0)) ** 2
    half = stdtrit(np.where(b > 0, df, np.inf), 0.5 + level / 2) * np.sqrt(variance)
    df = np.where(b > 0, df, np.inf)
    return Pooled(q_bar, variance, df, q_bar - half, q_bar + half)


def combine_full(estimates: ArrayLike, variances: ArrayLike, *, level: float = LEVEL) -> Pooled:
    """Combine the estimates of L synthetic populations.

    Raghunathan, Reiter and Rubin (2003), Journal of Official Statistics 19, 1-16: every copy is a
    new sample, so b holds the variance of a sample, which u_bar estimates, and
    ``T = (1 + 1/L) b - u_bar``. That can be 0 or less; it is at least u_bar + b / L, what it is
    where the population is known as well as a sample of this size tells. Student's t has
    ``(L - 1) (T / ((1 + 1/L) b))^2`` degrees of freedom, and (L - 1) / 2 at least.

    The larger of two estimates is too large on average, so that intervals are wide: of a mean they
    cover 99% in place of 95% with 10 copies, 98% with 20 and 97% with 50. :func:`dsstan.combine`
    covers 95% there (Raab, Nowok and Dibben 2016, *Journal of Privacy and Confidentiality* 7), but
    takes u_bar for the variance of the sample, which standard errors that ignore the spatial
    correlation are not.

    Parameters
    ----------
    estimates, variances, level
        See :func:`dsstan.combine`.

    Raises
    ------
    InputError
        As :func:`dsstan.combine`.

    Examples
    --------
    >>> pooled = combine_full([[1.0], [2.0], [6.0]], [[1.0], [1.0], [1.0]])
    >>> float(pooled.estimate[0]), round(float(pooled.variance[0]), 4)
    (3.0, 8.3333)
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DsstanWarning)  # of two copies, by the other rule
        plain = combine(estimates, variances, level=level)
    q, u = _by_copy(estimates, variances)
    copies, u_bar = len(q), u.mean(axis=0)
    b = (q - q[0]).var(axis=0, ddof=1)
    between = (1.0 + 1.0 / copies) * b
    variance = np.maximum(between - u_bar, u_bar + b / copies)
    with np.errstate(divide="ignore", invalid="ignore"):
        df = np.maximum((copies - 1) * (variance / between) ** 2, (copies - 1) / 2)
    df = np.where(b > 0, df, np.inf)
    half = stdtrit(df, 0.5 + level / 2) * np.sqrt(variance)
    return Pooled(plain.estimate, variance, df, plain.estimate - half, plain.estimate + half)


def _by_copy(estimates: ArrayLike, variances: ArrayLike) -> tuple[Floats, Floats]:
    """Estimates and variances, shape (L, P) each.

    Raises InputError if they have different shapes, or another.
    """
    q, u = np.asarray(estimates, dtype=np.float64), np.asarray(variances, dtype=np.float64)
    if q.shape != u.shape or q.ndim not in (1, 2):
        raise InputError(
            f"estimates and variances need one shape, (copies, terms) or (copies,); got {q.shape}, "
            f"{u.shape}"
        )
    return q.reshape(len(q), -1), u.reshape(len(u), -1)


def rows_by_imputation(imputation: ArrayLike, copies: int) -> Indices:
    """Rows of the copies of each imputation, shape (M, R).

    Raises InputError if there is not one number a copy, or not two imputations at least with as
    many copies each, two at least.
    """
    labels = np.asarray(imputation)
    counts = np.unique(labels, return_counts=True)[1]
    equal = len(counts) >= 2 and counts.min() >= 2 and counts.min() == counts.max()
    if labels.shape != (copies,) or not equal:
        raise InputError(
            "imputation needs one number a copy, of two imputations at least with as many copies "
            f"each, two at least; got shape {labels.shape} for {copies} copies"
        )
    order: Indices = np.argsort(labels, kind="stable")
    return order.reshape(len(counts), -1)


def combine_nested(
    q: Floats, u: Floats, *, level: float = LEVEL, hide_gaps: bool = False
) -> Pooled:
    """Combine R copies of each of M imputations of the missing values.

    Reiter (2004), Survey Methodology 30, 235-242. With b the variance of the imputations'
    means and w the mean of the variances within an imputation,
    T = u_bar + (1 + 1/M) b - w / R. Student's t has
    T^2 / [((1 + 1/M) b)^2 / (M - 1) + (w / R)^2 / (M (R - 1))] degrees of freedom.

    That T can be 0 or less, and next to 0 its degrees of freedom vanish and intervals are
    endless. So T is at least u_bar + w / (M R), what it would be with no value missing, with
    M (R - 1)(1 + M R u_bar / w)^2 degrees of freedom (Reiter 2003), and these are never fewer
    than M - 1.

    Where every record was drawn in each imputation, the variance between imputations holds that of
    a sample as well, which u_bar estimates: T = (1 + 1/M) b - w / R - u_bar, the rule for fully
    synthetic data (Raghunathan, Reiter and Rubin 2003, Journal of Official Statistics 19, 1-16)
    with the second stage taken off. It is at least u_bar + b / M, what it would be with no value
    missing; the degrees of freedom are those of Reiter's formula, and (M - 1) / 2 at least.

    Parameters
    ----------
    q, u
        Estimates and squared standard errors, shape (M, R, P), M and R at least 2.
    level
        Of the interval.
    hide_gaps
        Whether every record was drawn in each imputation.
    """
    M, R = q.shape[:2]
    means = q.mean(axis=1)
    b = (1.0 + 1.0 / M) * (means - means[0]).var(axis=0, ddof=1)
    w = (q - q[:, :1]).var(axis=1, ddof=1).mean(axis=0) / R
    u_bar = u.mean(axis=(0, 1))
    if hide_gaps:
        variance, least = b - w - u_bar, u_bar + b / (M + 1.0)
    else:
        variance, least = b - w + u_bar, u_bar + w / M
    largest = np.maximum(variance, least)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        moving = b**2 / (M - 1) + w**2 / (M * (R - 1))
        if hide_gaps:
            df = np.maximum(largest**2 / moving, (M - 1.0) / 2)
        else:
            lifted = M * (R - 1) * (1.0 + M * u_bar / w) ** 2
            df = np.where(variance < least, lifted, variance**2 / moving)
            df = np.maximum(df, M - 1.0)
    df = np.where((b == 0) & (w == 0), np.inf, df)
    variance = largest
    half = stdtrit(df, 0.5 + level / 2) * np.sqrt(variance)
    q_bar = means.mean(axis=0)
    return Pooled(q_bar, variance, df, q_bar - half, q_bar + half)
