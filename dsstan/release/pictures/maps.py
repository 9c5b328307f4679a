"""Parts of the pictures: the map of a surface, its colours and its records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from dsstan.core.arrays import Floats, Truths
from dsstan.core.errors import InputError

if TYPE_CHECKING:
    from plotnine import ggplot, theme

    from dsstan.table.problem import Problem


# The ends of ColorBrewer's PuOr: colour-blind readers can distinguish them.
_LOW, _MID, _HIGH = "#542788", "#f7f7f7", "#b35806"
# A grid may lack all but one in so many of its rows or columns.
_GAPS = 10
# Columns of a surface with a meaning of their own.
_TAKEN = ("x", "y", "width", "height", "panel")
RED, GREEN, BLUE, GREY = "#d7191c", "#008837", "#0571b0", "#4d4d4d"
RECORD, FLAGGED = "record", "flagged record"
PROTECTION = {"unrestricted": "without protection", "restricted": "with protection"}
"""What a picture calls the copies, or the effect, of each fit."""


def surface_map(
    cells: Mapping[str, pd.DataFrame],
    problem: Problem | None,
    flagged: ArrayLike | None,
    value: str,
    title: str | None,
    limits: tuple[float, float] | None,
) -> ggplot:
    """One panel a surface, the records in each, one colour scale."""
    p9 = plotnine_module()

    if flagged is not None and problem is None:
        raise InputError("flagged needs problem, which holds the places of the records")
    table = pd.concat([c.assign(panel=name) for name, c in cells.items()], ignore_index=True)
    table["panel"] = pd.Categorical(table["panel"], list(cells))
    ratio = _ratio(problem, table["y"])
    (left, low), (right, high) = (
        (table["x"] + side * table["width"], table["y"] + side * table["height"])
        for side in (-0.5, 0.5)
    )
    shape = ratio * (high.max() - low.min()) / (right.max() - left.min())
    x_name, y_name = _axes(problem)
    plot: ggplot = (
        p9.ggplot(table, p9.aes(x="x", y="y"))
        + p9.geom_tile(p9.aes(fill=value, width="width", height="height"))
        + _colours(table[value].to_numpy(), value, limits)
        + p9.coord_fixed(ratio=ratio, expand=False)
        + p9.labs(x=x_name, y=y_name, title=title)
    )
    for part in _map_layout(shape, len(cells)):
        plot += part
    if problem is not None:
        places = pd.DataFrame({"x": problem.sites[:, 0], "y": problem.sites[:, 1]})
        for layer in record_layers(places, "x", "y", check_flags(flagged, problem.n_records)):
            plot += layer
    if list(cells) != [""]:
        plot += p9.facet_wrap("panel", ncol=min(len(cells), 3))
    return plot


def map_frame(problem: Problem, places: pd.DataFrame) -> list[Any]:
    """Axes, proportions and look of a map of places alone, columns x and y."""
    p9 = plotnine_module()

    ratio = _ratio(problem, places["y"])
    wide, high = (float(np.ptp(places[axis])) for axis in ("x", "y"))
    x_name, y_name = _axes(problem)
    # Places on a line still need a panel that can be seen.
    shape = float(np.clip(ratio * high / max(wide, 1e-9 * high), 0.2, 5.0))
    return [
        p9.coord_fixed(ratio=ratio),
        p9.labs(x=x_name, y=y_name),
        *_map_layout(shape, 1),
    ]


def _ratio(problem: Problem | None, y: pd.Series[float]) -> float:
    """Length of a unit of y over one of x on the map."""
    if problem is None or problem.distance != "degrees":
        return 1.0
    return float(1.0 / np.cos(np.deg2rad(0.5 * (y.min() + y.max()))))


def record_layers(points: pd.DataFrame, x: str, y: str, flagged: Truths) -> list[Any]:
    """Small circles, and above them red triangles for the flagged, with their legend."""
    p9 = plotnine_module()

    look = {
        RECORD: {"shape": "o", "fill": "white", "color": GREY, "size": 0.9, "stroke": 0.35},
        FLAGGED: {"shape": "^", "fill": RED, "color": "white", "size": 3.2, "stroke": 0.5},
    }
    chosen = {RECORD: points[~flagged], FLAGGED: points[flagged]}
    kinds = [kind for kind, rows in chosen.items() if len(rows)]
    layers: list[Any] = []
    for kind in kinds:
        fixed = {k: v for k, v in look[kind].items() if k != "shape"}
        # One layer alone carries the legend: each draws every key.
        layers.append(
            p9.geom_point(
                p9.aes(x=x, y=y, shape="record"),
                data=chosen[kind].assign(record=kind),
                inherit_aes=False,
                show_legend=kind == kinds[-1],
                **fixed,
            )
        )
    keys = {k: [look[kind][k] for kind in kinds] for k in ("fill", "color", "size", "stroke")}
    layers.append(
        p9.scale_shape_manual(
            {kind: look[kind]["shape"] for kind in kinds},
            breaks=kinds,
            name=" ",
            guide=p9.guide_legend(override_aes=keys),
        )
    )
    return layers


def _colours(values: Floats, value: str, limits: tuple[float, float] | None) -> Any:
    """The colour scale of the surface."""
    p9 = plotnine_module()
    from mizani.bounds import squish

    if limits is None:
        low, high = float(np.min(values)), float(np.max(values))
        if value == "w":
            high = max(abs(low), abs(high))
            low = -high
        if low == high:
            low, high = low - 1.0, high + 1.0
    else:
        try:
            low, high = (float(end) for end in limits)
        except (TypeError, ValueError):
            low = high = np.nan
        if not (np.isfinite(low) and np.isfinite(high) and low < high):
            raise InputError("limits must be two finite numbers, the lower first")
    common: dict[str, Any] = {"limits": (low, high), "oob": squish}
    if value == "w":
        return p9.scale_fill_gradient2(
            low=_LOW, mid=_MID, high=_HIGH, midpoint=0.0, name="spatial\neffect w", **common
        )
    return p9.scale_fill_cmap("viridis", name=plain_text(value), **common)


def checked_cells(surface: pd.DataFrame, value: str, name: str) -> pd.DataFrame:
    """The cells that have a value, as numbers."""
    if value in _TAKEN:
        raise InputError(f"value must be another column than {', '.join(_TAKEN)}")
    if not isinstance(surface, pd.DataFrame):
        raise InputError(
            f"{name} must be a DataFrame with columns x, y and {value}, as from "
            f"surface_on_grid(); got {type(surface).__name__}"
        )
    missing = [column for column in ("x", "y", value) if column not in surface.columns]
    if missing:
        raise InputError(f"{name} has no column {', '.join(map(repr, missing))}")
    try:
        cells = surface[["x", "y", value]].astype(np.float64)
    except (TypeError, ValueError):
        raise InputError(f"columns x, y and {value} of {name} must hold numbers") from None
    if not np.isfinite(cells[["x", "y"]].to_numpy()).all():
        raise InputError(f"{name} has places that are missing or infinite")
    cells = cells[np.isfinite(cells[value])]
    if cells.empty:
        raise InputError(f"{name} has no cell with a value of {value!r}")
    if cells.duplicated(["x", "y"]).any():
        raise InputError(f"{name} has two values for one cell")
    width, height = (_step(cells[axis], f"{axis} of {name}") for axis in ("x", "y"))
    sized: pd.DataFrame = cells.assign(width=width or height or 1.0, height=height or width or 1.0)
    return sized


def _step(positions: pd.Series[float], name: str) -> float | None:
    """Distance between neighbouring rows or columns of cells; None for a single one."""
    values = positions.to_numpy(dtype=np.float64)
    span = float(np.ptp(values))
    if span == 0.0:
        return None
    # Rounding may have set apart values that are meant to be one.
    distinct = np.unique(np.round((values - values.min()) / span, 9))
    step = float(np.min(np.diff(distinct)))
    steps = distinct / step
    regular = np.allclose(steps, np.rint(steps), rtol=0.0, atol=0.01)
    # Scattered places are multiples of their last digit, but fill few rows and columns.
    if not regular or _GAPS * distinct.size < steps[-1]:
        raise InputError(f"{name} is on no regular grid: the cells need one size")
    return step * span


def check_flags(flagged: ArrayLike | None, n: int) -> Truths:
    """Flags of the records, checked."""
    if flagged is None:
        return np.zeros(n, dtype=bool)
    flags = np.asarray(flagged)
    if flags.dtype != np.bool_ or flags.shape != (n,):
        raise InputError(
            f"flagged needs one true or false a record, shape ({n},); got {flags.dtype} of "
            f"shape {flags.shape}"
        )
    return flags


def _axes(problem: Problem | None) -> tuple[str, str]:
    """Names of the axes of a map."""
    if problem is None:
        return "x", "y"
    if problem.distance == "projected":
        return "easting (km)", "northing (km)"
    if problem.distance == "degrees":
        return "longitude", "latitude"
    return plain_text(problem.coord_names[0]), plain_text(problem.coord_names[1])


def _map_layout(shape: float, panels: int) -> list[Any]:
    """Theme and ticks of maps whose panels are ``shape`` times as high as wide."""
    p9 = plotnine_module()
    columns = min(panels, 3)
    rows = -(-panels // columns)
    long = 4.4 if columns == 1 else 3.6
    wide, high = (long, long * shape) if shape <= 1 else (long / shape, long)
    wide, high = max(wide, 0.9), max(high, 0.6)
    # The legend needs 3 inches of height.
    size = (columns * (wide + 0.25) + 2.0, max(rows * (high + 0.35) + 0.6, 3.0))
    # Few enough labels along x, and panels far enough apart, that no two labels touch.
    count = int(np.clip(wide / 0.75, 3, 5))
    return [
        picture_theme(size),
        p9.theme(panel_spacing_x=0.3 / size[0]),
        p9.scale_x_continuous(breaks=lambda ends: map_ticks(ends, count), labels=_plain_numbers),
    ]


def map_ticks(ends: tuple[float, float], count: int) -> list[float]:
    """About so many round numbers between the ends, at least two where that can be."""
    from mizani.breaks import breaks_extended

    found: list[float] = []
    for n in range(count, count + 4):
        found = [float(v) for v in breaks_extended(n=n)(ends) if ends[0] <= v <= ends[1]]
        if len(found) > 1:
            break
    return found


def _plain_numbers(breaks: list[float]) -> list[str]:
    """Labels with as many digits as distinguish them."""
    return [f"{v:.10g}" for v in breaks]


def plotnine_module() -> Any:
    """The module plotnine, many of whose functions have no types."""
    import plotnine

    return plotnine


def picture_theme(size: tuple[float, float]) -> theme:
    """The look that all pictures share, at a size in inches."""
    p9 = plotnine_module()

    look: theme = p9.theme_bw(base_size=10) + p9.theme(
        figure_size=size,
        panel_grid_minor=p9.element_blank(),
        strip_background=p9.element_rect(fill="#eeeeee", color="#7f7f7f"),
        legend_key=p9.element_blank(),
    )
    return look


def plain_text(text: str) -> str:
    """Text that matplotlib does not read as mathematics."""
    return text.replace("$", r"\$")
