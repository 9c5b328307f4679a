"""Pictures of synthetic places: a map of the original beside copies, K with its envelope.

Confidential: the first map shows where the records are, and K is computed from them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from dsstan.core.arrays import Floats
from dsstan.core.errors import InputError
from dsstan.release.pictures.maps import BLUE, GREY, RED, picture_theme, plotnine_module

if TYPE_CHECKING:
    from plotnine import ggplot

    from dsstan.analysis.places.marked import MarkedPlaces
    from dsstan.analysis.places.utility import PlaceUtility
    from dsstan.table.mask.mask import Mask

_COPIES = 3
"""Copies that a map shows by default."""


def plot_places(
    original: MarkedPlaces,
    copies: Sequence[MarkedPlaces],
    mask: Mask,
    *,
    shown: int = _COPIES,
    names: Sequence[str] | None = None,
    value: str = "value",
) -> ggplot:
    """Map of the original beside copies, on the cells of the mask. Confidential.

    Parameters
    ----------
    original, copies
        The tables; coloured by their values where all have them.
    mask
        The study area.
    shown
        How many copies are drawn, the first ones.
    names
        What each is called; by default by its number.
    value
        Title of the colours.

    Raises
    ------
    InputError
        If there is no copy, or not one name a copy that is drawn.
    """
    p9 = plotnine_module()

    drawn = list(copies[:shown])
    labels = [f"copy {k}" for k in range(1, len(drawn) + 1)] if names is None else list(names)
    if not drawn or len(labels) != len(drawn):
        raise InputError(f"a map needs a copy, and one name for each of the {len(drawn)} drawn")
    tables = [original, *drawn]
    panels = ["original", *labels]
    coloured = all(t.values is not None for t in tables)
    parts = []
    for name, table in zip(panels, tables, strict=True):
        part = pd.DataFrame({"x": table.places[:, 0], "y": table.places[:, 1], "panel": name})
        parts.append(part.assign(value=table.values) if coloured else part)
    places = pd.concat(parts, ignore_index=True)
    places["panel"] = pd.Categorical(places["panel"], panels)
    columns = min(len(panels), 4)
    rows = -(-len(panels) // columns)
    cells = pd.DataFrame({"x": mask.centres[:, 0], "y": mask.centres[:, 1]})
    plot: ggplot = (
        p9.ggplot(places, p9.aes(x="x", y="y"))
        + p9.geom_tile(
            p9.aes(x="x", y="y"), data=cells, fill="#ececec", width=mask.width, height=mask.width
        )
        + p9.facet_wrap("panel", ncol=columns)
        + p9.coord_fixed()
        + p9.labs(x="", y="")
        + picture_theme((2.6 * columns + 0.8, 2.8 * rows))
        + p9.theme(axis_text=p9.element_blank(), axis_ticks=p9.element_blank())
    )
    if not coloured:
        return plot + p9.geom_point(size=0.8, alpha=0.7, color=BLUE)
    colours = p9.scale_color_continuous(cmap_name="cividis", name=value)
    return plot + p9.geom_point(p9.aes(color="value"), size=1.0) + colours


def plot_k(found: PlaceUtility, *, unit: str = "") -> ggplot:
    """K of the original and of the copies, with the envelope, as sqrt(K / pi) - r. Confidential.

    That is 0 where records ignore one another, and has about the same error at every distance.

    Parameters
    ----------
    found
        What the copies keep.
    unit
        Of the distance, for the axis.
    """
    p9 = plotnine_module()

    k = found.curves[found.curves["curve"] == "K"]

    def centred(column: str) -> Floats:
        values = np.maximum(k[column].to_numpy(dtype=np.float64), 0.0)
        return np.asarray(np.sqrt(values / np.pi) - k["distance"].to_numpy())

    band = pd.DataFrame({"r": k["distance"], "low": centred("low"), "high": centred("high")})
    lines = pd.concat(
        [
            pd.DataFrame({"r": k["distance"], "l": centred(column), "curve": name})
            for column, name in (("original", "original"), ("copies", "mean of copies"))
        ]
    )
    ends = pd.DataFrame(
        {"r": k["distance"], "low": centred("smallest"), "high": centred("largest")}
    )
    distance = f"distance r ({unit})" if unit else "distance r"
    plot: ggplot = (
        p9.ggplot(lines, p9.aes(x="r"))
        + p9.geom_ribbon(p9.aes(ymin="low", ymax="high"), data=band, fill=GREY, alpha=0.2)
        + p9.geom_line(p9.aes(y="low"), data=ends, color=BLUE, linetype="dotted")
        + p9.geom_line(p9.aes(y="high"), data=ends, color=BLUE, linetype="dotted")
        + p9.geom_line(p9.aes(y="l", color="curve", linetype="curve"), size=0.9)
        + p9.geom_hline(yintercept=0.0, color=GREY, size=0.3)
        + p9.scale_color_manual({"original": RED, "mean of copies": BLUE})
        + p9.labs(
            x=distance,
            y="sqrt(K / pi) - r",
            color="",
            linetype="",
            caption=f"grey: {100 * found.envelope.level:.0f}% envelope, {found.envelope.source}\n"
            "dotted: smallest and largest copy",
        )
        + picture_theme((6.4, 4.2))
    )
    return plot
