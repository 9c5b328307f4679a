"""Regressions that count spatial correlation, on the original and on each copy."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dsstan.analysis.combining import LEVEL
from dsstan.analysis.pooling import PooledAnalysis, pool
from dsstan.analysis.spatial_estimators import (
    _maximise,
    conley,
    gls,
    near_of,
)
from dsstan.copies.result import Synthesis, require_one_column
from dsstan.core.arrays import Floats
from dsstan.core.errors import InputError
from dsstan.covariance.approximations import EXACT_LIMIT
from dsstan.covariance.pairs import Pairs, pairs_of
from dsstan.covariance.vecchia.neighbours import Neighbours
from dsstan.models.result import Fit


def spatial_regression(
    release: Synthesis,
    *,
    covariance: tuple[float, float, float] | None = None,
    against: Fit | Synthesis | None = None,
    level: float = LEVEL,
) -> PooledAnalysis:
    """The problem's regression by generalised least squares on each copy, combined.

    Least squares ignores spatial correlation and its intervals cover far less than
    they say; these count it.

    Raises InputError if there is only one copy, or no covariance can be estimated.

    Parameters
    ----------
    release
        The copies.
    covariance
        (sigma_sq, tau_sq, phi), the same for the original and all copies; by
        default each is analysed at its own maximum of the likelihood, whose
        uncertainty the intervals leave out. The correlation function is the fit's, and so are the
        decay in time and the share of the groups where there are any.
    against
        See :func:`dsstan.disclosure`.
    level
        Of the intervals.
    """
    require_one_column(release)
    problem = release.problem
    name = release.fit.cov_model
    near = near_of(problem)
    pairs = pairs_of(release.fit) if near is None else None
    V = None
    if covariance is not None and pairs is not None:
        V = _covariance(pairs, covariance)

    def estimator(table: pd.DataFrame) -> tuple[Floats, Floats]:
        y = problem.design.y_of(table)
        if V is not None:
            return gls(problem.X, y, V)
        if covariance is not None and near is not None:
            return near_gls(problem.X, y, problem.sites, near, covariance, name)
        law = {"near": near} if pairs is None else {"pairs": pairs}
        found, _ = _maximise(problem.X, y, problem.sites, cov_model=name, **law)
        return found.beta, found.cov

    return pool(
        release,
        estimator,
        against=against,
        terms=problem.terms,
        name=f"Spatial generalised least squares {problem.formula}",
        level=level,
    )


def conley_regression(
    release: Synthesis,
    cutoff: float,
    *,
    against: Fit | Synthesis | None = None,
    level: float = LEVEL,
) -> PooledAnalysis:
    """The problem's least squares with Conley's covariance on each copy, combined.

    See :func:`conley` for the cutoff and :func:`spatial_regression` for the rest.
    With few records inside the cutoff these intervals too cover less than their level,
    if more than those of plain least squares.
    """
    require_one_column(release)
    problem = release.problem
    return pool(
        release,
        lambda table: conley(problem.X, problem.design.y_of(table), problem.sites, cutoff),
        against=against,
        terms=problem.terms,
        name=f"Least squares {problem.formula}, Conley covariance up to {cutoff:g}",
        level=level,
    )


def near_gls(
    X: Floats,
    y: Floats,
    sites: Floats,
    near: Neighbours,
    covariance: tuple[float, float, float],
    cov_model: str,
) -> tuple[Floats, Floats]:
    """:func:`gls` by Vecchia's approximation: coefficients (P,), covariance (P, P)."""
    from dsstan.covariance.vecchia.statistics import VecchiaStatistics

    check_variances(covariance)
    return VecchiaStatistics.plain(X, y, sites, near, cov_model).coefficients(*covariance)


def check_variances(covariance: tuple[float, float, float]) -> None:
    """Parameters by which many records can be analysed."""
    _check_covariance(covariance)
    if min(covariance) == 0.0:
        raise InputError(f"of more than {EXACT_LIMIT} records, covariance needs variances above 0")


def _check_covariance(covariance: tuple[float, float, float]) -> None:
    """Parameters that make a covariance."""
    sigma_sq, tau_sq, phi = covariance
    if not (sigma_sq >= 0 and tau_sq >= 0 and phi > 0 and np.all(np.isfinite(covariance))):
        raise InputError("covariance needs (sigma_sq, tau_sq, phi), finite and not negative")


def _covariance(pairs: Pairs, covariance: tuple[float, float, float]) -> Floats:
    """V of given parameters."""
    sigma_sq, tau_sq, phi = covariance
    _check_covariance(covariance)
    V = sigma_sq * pairs.at(phi)
    V[np.diag_indices_from(V)] += tau_sq
    return np.asarray(V)
