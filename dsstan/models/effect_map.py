"""The posterior mean of the spatial effect on a grid: the map of the paper's figures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from dsstan.core.arrays import Floats
from dsstan.core.errors import InputError
from dsstan.core.progress import progress_bar
from dsstan.covariance.base import Parameters
from dsstan.covariance.latent import LatentModel
from dsstan.models.posterior import latent_models, parameters_at, spread_draws
from dsstan.models.result import Fit
from dsstan.table.geo import as_cells, planar

MARGIN = 0.03
"""How far the grid goes beyond the sites, by their larger span."""


def grid(fit: Fit, *, cells: int = 60) -> Floats:
    """Centres of a regular grid over the sites in planar coordinates, shape (m, 2)."""
    sites = fit.problem.unique_sites
    low, high = sites.min(axis=0), sites.max(axis=0)
    pad = MARGIN * float((high - low).max())
    low, high = low - pad, high + pad
    size = _cell_size(fit, cells)
    axes = [
        np.arange(max(1, int(np.ceil((high[k] - low[k]) / size)))) * size + low[k] + size / 2
        for k in range(2)
    ]
    x, y = np.meshgrid(*axes)
    return np.column_stack([x.ravel(), y.ravel()])


def _cell_size(fit: Fit, cells: int) -> float:
    """Width of a cell of :func:`grid`."""
    span = float(np.ptp(fit.problem.unique_sites, axis=0).max())
    return span * (1.0 + 2.0 * MARGIN) / cells


def _effect_at(fit: Fit, where: Floats, time: float | None) -> Callable[[Parameters], Floats]:
    """E[w | y, parameters] at places, as a function of the parameters."""
    structure = fit.problem.structure
    if time is not None and (structure is None or structure.times is None):
        raise InputError("time is for a problem that was prepared with one: leave it out")
    if structure is None:
        models = latent_models(fit)
        return lambda p: models(p).mean(p, where)
    law = LatentModel(fit)
    return lambda p: law.mean(p, where, time)


def surface_on_grid(
    fit: Fit,
    places: Any = None,
    *,
    draws: int = 100,
    cells: int = 60,
    time: float | None = None,
    progress: bool | None = None,
) -> pd.DataFrame:
    """Posterior mean of the spatial effect on a grid: the map of the paper's figures.

    Parameters
    ----------
    fit
        Any fit.
    places
        Planar coordinates in the problem's unit, shape (m, 2), or a GeoDataFrame of points;
        by default a grid.
    draws
        Posterior draws to average over.
    cells
        Cells along the longer side of the default grid.
    time
        Of a problem with a time: the time of the map, in the unit of the column; of dates, days
        from the first. Groups' random intercepts are not in the map.

    Returns
    -------
    DataFrame
        Columns ``x``, ``y``, ``w`` (posterior mean), m rows. Where the prepared table is a
        GeoDataFrame this is one too, of square cells (of points, with ``places``).
        Confidential: near a record that stands alone it reveals the record.

    Raises
    ------
    CoordinateError
        If ``places`` are not finite pairs of numbers or points.
    InputError
        If the problem has a time and none is given, or the other way round.
    """
    where = grid(fit, cells=cells) if places is None else planar(places, fit.problem)
    mean = _effect_at(fit, where, time)
    total = np.zeros(len(where))
    picks = spread_draws(fit, min(draws, fit.n_draws))
    with (
        threadpool_limits(limits=1, user_api="blas"),
        progress_bar("prediction surface", progress) as advance,
    ):
        for i, (chain, iteration) in enumerate(picks):
            p = parameters_at(fit, int(chain), int(iteration))
            total += mean(p)
            advance((i + 1) / len(picks))
    found = pd.DataFrame({"x": where[:, 0], "y": where[:, 1], "w": total / len(picks)})
    return as_cells(found, fit.problem, _cell_size(fit, cells) if places is None else None)
