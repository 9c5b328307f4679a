"""Map of the records: who is flagged, how surely, and how far from others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from dsstan.core.errors import InputError
from dsstan.release.pictures.maps import GREY, RED, map_frame, plotnine_module, record_layers

if TYPE_CHECKING:
    from plotnine import ggplot

    from dsstan.models.weights import Weights
    from dsstan.table.problem import Problem

_CORNERS = 60
# A circle that would dwarf the map tells nothing.
_LARGEST_CIRCLE = 0.5


def plot_flags(
    weights: Weights, problem: Problem, *, circles: bool = True, title: str | None = None
) -> ggplot:
    """Map of the records with the flagged ones marked. Confidential.

    Raises InputError if the weights are not of this table.

    Parameters
    ----------
    weights
        From :func:`dsstan.flag_isolated` or :func:`dsstan.own_weights`.
    problem
        The prepared table they were made for.
    circles
        Draw a circle of radius M about each flagged record, where the weights have a threshold M
        of less than half the map's width: by the paper's rule no other record lies inside. Other
        rules, such as the k-th neighbour, may leave some inside.
    title
        Above the map.

    Returns
    -------
    ggplot
        Layers can be added to it. The caption says how many records are flagged.

    Examples
    --------
    >>> import dsstan as ds
    >>> table = pd.DataFrame({"x": [0.0, 1, 2, 9], "y": [0.0, 1, 0, 9], "v": [1.0, 2, 3, 4]})
    >>> problem = ds.prepare(table, "v ~ 1", coords=("x", "y"))
    >>> plot = plot_flags(ds.own_weights(problem, [0, 0, 0, 1.0]), problem)
    >>> plot.labels.caption
    '1 of 4 records flagged'
    """
    p9 = plotnine_module()
    if weights.a.shape != (problem.n_records,):
        raise InputError(
            f"the weights are of {weights.a.size} records and the table has {problem.n_records}: "
            "give the problem that they were made for"
        )
    places = pd.DataFrame({"x": problem.sites[:, 0], "y": problem.sites[:, 1]})
    m = float(weights.threshold)
    caption = f"{weights.n_flagged} of {problem.n_records} records flagged"
    rings = None
    if circles and weights.n_flagged and 0.0 < m < _LARGEST_CIRCLE * problem.d_max:
        rings = _rings(places[weights.flagged], m)
        caption += f"; circles: M = {m:.3g} {problem.unit}"
    plot: ggplot = p9.ggplot(places, p9.aes(x="x", y="y"))
    for part in map_frame(problem, places if rings is None else pd.concat([places, rings])):
        plot += part
    if rings is not None:
        plot += p9.geom_polygon(
            p9.aes(x="x", y="y", group="ring"), data=rings, fill=RED, color=GREY, alpha=0.12
        )
    for layer in record_layers(places, "x", "y", weights.flagged):
        plot += layer
    return plot + p9.labs(title=title, caption=caption)


def _rings(places: pd.DataFrame, radius: float) -> pd.DataFrame:
    """Corners of a circle about each place."""
    angle = np.linspace(0.0, 2.0 * np.pi, _CORNERS)
    x, y = (places[axis].to_numpy()[:, None] for axis in ("x", "y"))
    return pd.DataFrame(
        {
            "x": (x + radius * np.cos(angle)).ravel(),
            "y": (y + radius * np.sin(angle)).ravel(),
            "ring": np.repeat(np.arange(len(places)), _CORNERS),
        }
    )
