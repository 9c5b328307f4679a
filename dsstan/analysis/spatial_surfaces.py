"""The surface that copies predict against the one that the original predicts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
from scipy.linalg import cho_factor, cho_solve

from dsstan.analysis.spatial_estimators import gls, near_of
from dsstan.analysis.spatial_regression import _covariance, check_variances
from dsstan.analysis.spatial_utility import SpatialComparison, _Data, _data
from dsstan.copies.result import Synthesis
from dsstan.core.arrays import Floats
from dsstan.covariance.pairs import pairs_of_places
from dsstan.models.effect_map import grid
from dsstan.models.result import Fit

__all__ = ["compare_surfaces", "predicted_surface", "surface_correlation", "surface_predictor"]


def compare_surfaces(
    release: Synthesis,
    *,
    covariance: tuple[float, float, float] | None = None,
    cells: int = 30,
    against: Fit | Synthesis | None = None,
) -> SpatialComparison:
    """The surface that a copy predicts against the one that the original predicts.

    The surface is x_bar' beta + sigma_sq R(phi) V^-1 (y - X beta) on a grid, R between the
    grid and the records by the fit's correlation function: the expected response without
    noise, on the modelled scale, at the mean covariates and the latest time. Of more than 2000
    records the coefficients and the covariance are Vecchia's and a place is predicted from the 60
    sites around it.

    Parameters
    ----------
    release
        The copies; one is enough.
    covariance
        As in :func:`dsstan.analysis.spatial_utility.spatial_regression`.
    cells
        Along the longer side of the grid.
    against
        See :func:`dsstan.disclosure`.

    Returns
    -------
    SpatialComparison
        One row a source of copies: ``correlation`` and ``rmse`` with the
        original's surface (means over the copies), and the same of the mean of
        the copies' surfaces. Where a surface is flat the correlation is 0.
    """
    data = _data(release, against, ordered=True)
    places = grid(release.fit, cells=cells)
    surfaces: dict[str, list[Floats]] = {source: [] for source in data.responses}
    for source, _, y in data:
        used = covariance
        if used is None:
            best, _ = data.best(y)
            used = (best.sigma_sq, best.tau_sq, best.phi)
        surfaces[source].append(_predicted(data, y, used, places))
    truth = surfaces.pop("original")[0]
    rows = []
    for source, found in surfaces.items():
        mean = np.mean(found, axis=0)
        rows.append(
            {
                "source": source,
                "correlation": np.mean([surface_correlation(s, truth) for s in found]),
                "rmse": np.mean([np.sqrt(np.mean((s - truth) ** 2)) for s in found]),
                "correlation_of_mean": surface_correlation(mean, truth),
                "rmse_of_mean": np.sqrt(np.mean((mean - truth) ** 2)),
            }
        )
    return SpatialComparison(pd.DataFrame(rows), "Predicted surface against the original's")


def _predicted(
    data: _Data, y: Floats, covariance: tuple[float, float, float], places: Floats
) -> Floats:
    """The surface of :func:`compare_surfaces` from one response."""
    if data.near is not None:
        from dsstan.covariance.vecchia.kriging import universal_kriging

        check_variances(covariance)
        law = (data.near, covariance, data.cov_model)
        beta, effect = universal_kriging(places, data.X, y, data.sites, *law)
        return np.asarray(data.X.mean(axis=0) @ beta + effect)
    V = _covariance(data.pairs, covariance)
    beta, _ = gls(data.X, y, V)
    solved = cho_solve(cho_factor(V, lower=True), y - data.X @ beta)
    structure = data.model.problem.structure
    latest = None if structure is None else structure.latest
    R = pairs_of_places(data.model, places, np.arange(y.size), latest).at(covariance[2])
    return np.asarray(data.X.mean(axis=0) @ beta + covariance[0] * R @ solved)


def surface_predictor(
    fit: Fit, covariance: tuple[float, float, float], cells: int = 30
) -> Callable[[Floats], Floats]:
    """The surface of :func:`compare_surfaces` as a function of one response.

    Linear in y: the surface of the mean of the copies is the mean of their surfaces. It returns
    the surface at the places of the grid, shape (places,). The neighbours of many records are
    looked up once, however many responses follow.
    """
    problem = fit.problem
    near = near_of(problem)
    data = _Data(problem.X, problem.sites, problem.d_max, {}, fit, near)
    places = grid(fit, cells=cells)
    return lambda y: _predicted(data, y, covariance, places)


def predicted_surface(
    fit: Fit, y: Floats, covariance: tuple[float, float, float], cells: int = 30
) -> Floats:
    """The surface of :func:`surface_predictor` from one response."""
    return surface_predictor(fit, covariance, cells)(y)


def surface_correlation(a: Floats, b: Floats) -> float:
    """Correlation, or 0 where one of the two is flat to rounding."""
    for v in (a, b):
        if np.ptp(v) <= 1e-10 * max(float(np.abs(v).max()), 1e-300):
            return 0.0
    return float(np.corrcoef(a, b)[0, 1])
