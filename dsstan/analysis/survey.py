"""Estimates of a survey: weighted by the survey weights, with the linearised variance.

Lumley (2010), Complex Surveys, and the R package ``survey`` without strata and clusters: an
estimate is a sum of one number a record, to first order, and its variance is n / (n - 1) times the
sum of their squares about their mean, as if records were drawn one by one and put back. The
weights count as known.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from dsstan.core.arrays import Floats
from dsstan.core.errors import InputError
from dsstan.table.columns import response_values
from dsstan.table.formulas.formula import build_design, parse
from dsstan.table.records.survey_weights import survey_weights_of

__all__ = ["weighted_least_squares", "weighted_mean", "weighted_regression", "weighted_total"]

TableEstimator = Callable[[pd.DataFrame], tuple[pd.Series, Floats]]
"""What :func:`dsstan.analysis.pooling.pool` takes."""


def weighted_least_squares(X: Floats, y: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Regression of a population, from a sample with survey weights.

    Parameters
    ----------
    X, y, weights
        Shapes (N, P), (N,) and (N,). The scale of the weights does not matter.

    Returns
    -------
    coefficients, covariance
        Shapes (P,) and (P, P); the covariance is the linearised one (sandwich).

    Examples
    --------
    With the intercept alone it is the weighted mean:

    >>> coef, cov = weighted_least_squares(
    ...     np.ones((3, 1)), np.array([1.0, 2.0, 6.0]), np.array([2.0, 1.0, 1.0])
    ... )
    >>> round(float(coef[0]), 9)
    2.5
    """
    root = np.sqrt(weights)[:, None]
    q, t = np.linalg.qr(root * X)
    coef = np.linalg.solve(t, q.T @ (root[:, 0] * y))
    # Rows of the influence: (X'WX)^-1 x_i w_i e_i, with t' t = X'WX.
    influence = (q * root) @ np.linalg.inv(t).T * (y - X @ coef)[:, None]
    return coef, _covariance(influence)


def weighted_mean(column: str, weights: str, by: str | None = None) -> TableEstimator:
    """The weighted mean of a column, of each group where ``by`` is given, for ``pool``.

    Parameters
    ----------
    column, weights
        The column of numbers, and that of the survey weights.
    by
        A column that no copy changes, whose values name the groups.
    """

    def mean(table: pd.DataFrame) -> tuple[pd.Series, Floats]:
        names, members, y, w = _groups(table, column, weights, by)
        size = members @ w
        means = members @ (w * y) / size
        return pd.Series(means, index=names), _covariance(
            (members * (y - means[:, None]) * w / size[:, None]).T
        )

    return mean


def weighted_total(column: str, weights: str, by: str | None = None) -> TableEstimator:
    """The total of a column in the population, of each group where ``by`` is given.

    See :func:`weighted_mean`. The weights must add up to the size of the population.
    """

    def total(table: pd.DataFrame) -> tuple[pd.Series, Floats]:
        names, members, y, w = _groups(table, column, weights, by)
        parts = members * (w * y)
        return pd.Series(parts.sum(axis=1), index=names), _covariance(parts.T)

    return total


def weighted_regression(formula: str, weights: str) -> TableEstimator:
    """:func:`weighted_least_squares` of a formula, for ``pool`` on the tables of a release.

    Parameters
    ----------
    formula
        Such as ``"log(rent) ~ log(area)"``.
    weights
        The column of the survey weights.
    """
    parsed = parse(formula)

    def regression(table: pd.DataFrame) -> tuple[pd.Series, Floats]:
        design = build_design(parsed, table)
        w = survey_weights_of(table, weights)
        coef, covariance = weighted_least_squares(design.X, design.y, w)
        return pd.Series(coef, index=list(design.terms)), covariance

    return regression


def _covariance(influence: Floats) -> Floats:
    """Covariance of sums whose parts have shape (N, P)."""
    n = len(influence)
    about = influence - influence.mean(axis=0)
    return np.asarray(about.T @ about * (n / (n - 1)))


def _groups(
    table: pd.DataFrame, column: str, weights: str, by: str | None
) -> tuple[list[str], Floats, Floats, Floats]:
    """Names of the groups, who is in each as 0 and 1, shape (G, N), values and weights."""
    for name in (column, by):
        if name is not None and name not in table.columns:
            raise InputError(f"there is no column {name!r} in the table")
    y = response_values(table[column], column)
    w = survey_weights_of(table, weights)
    if by is None:
        return ["all"], np.ones((1, len(table))), y, w
    levels = sorted(table[by].dropna().unique(), key=str)
    members = np.stack(
        [(table[by] == level).to_numpy(dtype=bool, na_value=False) for level in levels]
    )
    return [str(level) for level in levels], members.astype(np.float64), y, w
