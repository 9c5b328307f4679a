"""The spatial effect of each group at places: what a group borrows from the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from dsstan.core.progress import progress_bar
from dsstan.models.effect_map import grid
from dsstan.models.groups.coregionalisation import group_parameters_at
from dsstan.models.groups.predictive import group_effects
from dsstan.models.groups.result import MultivariateFit
from dsstan.models.posterior import spread_draws
from dsstan.table.geo import planar


def surface_by_group(
    fit: MultivariateFit,
    places: Any = None,
    *,
    groups: Sequence[object] | None = None,
    draws: int = 100,
    cells: int = 40,
    progress: bool | None = None,
) -> pd.DataFrame:
    """Posterior mean and sd of the spatial effect of groups at places.

    Parameters
    ----------
    fit
        From :func:`dsstan.models.groups.fit.fit_multivariate`.
    groups
        Labels of the groups; by default all of the fit.
    places, draws, cells, progress
        See :func:`dsstan.surface_on_grid`.

    Returns
    -------
    DataFrame
        Columns ``x``, ``y``, ``group``, ``w`` (posterior mean) and ``sd``, m rows a group.
        Confidential: near a record that stands alone it reveals the record.

    Raises
    ------
    InputError
        If no record of the fit belongs to a group asked for.
    CoordinateError
        If ``places`` are not finite pairs of numbers or points.
    """
    labels = fit.groups.labels if groups is None else tuple(groups)
    numbers = [fit.groups.number(label) for label in labels]
    where = grid(fit, cells=cells) if places is None else planar(places, fit.problem)
    model = group_effects(fit)
    picks = spread_draws(fit, min(draws, fit.n_draws))
    m = len(where)
    group = np.repeat(np.asarray(numbers, dtype=np.intp), m)
    spots = np.tile(where, (len(numbers), 1))
    means, variance = np.empty((len(picks), len(spots))), np.zeros(len(spots))
    with (
        threadpool_limits(limits=1, user_api="blas"),
        progress_bar("surfaces of the groups", progress) as advance,
    ):
        for i, (chain, iteration) in enumerate(picks):
            p = group_parameters_at(fit, int(chain), int(iteration))
            means[i], own = model.at(p, group, spots)
            variance += own / len(picks)
            advance((i + 1) / len(picks))
    return pd.DataFrame(
        {
            "x": spots[:, 0],
            "y": spots[:, 1],
            "group": np.repeat(np.array(labels, dtype=object), m),
            "w": means.mean(axis=0),
            "sd": np.sqrt(np.maximum(variance + means.var(axis=0), 0.0)),
        }
    )
