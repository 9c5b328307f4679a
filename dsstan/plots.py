"""Pictures for the data steward: surfaces, copies at one record, intervals, risks.

Every function returns a plotnine ``ggplot``, so layers, scales and themes can be added with
``+``. plotnine is imported when a picture is made, which keeps ``import dsstan`` quick.

Most of these pictures are confidential, and each docstring says why. :func:`save` therefore
writes files that only their owner can read.
"""

from __future__ import annotations

import io
import os
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from dsstan.disclosure import sides
from dsstan.errors import InputError

if TYPE_CHECKING:
    from plotnine import ggplot, theme

    from dsstan.disclosure import Disclosure
    from dsstan.fit import Fit
    from dsstan.problem import Problem
    from dsstan.synthesis import Synthesis
    from dsstan.utility import Utility

__all__ = [
    "plot_copies",
    "plot_intervals",
    "plot_risk",
    "plot_surface",
    "plot_surfaces",
    "save",
]

Floats = NDArray[np.float64]

# The ends of ColorBrewer's PuOr: told apart by the colour-blind, and neither is red or green.
_LOW, _MID, _HIGH = "#542788", "#f7f7f7", "#b35806"
_RED, _GREEN, _BLUE, _GREY = "#d7191c", "#008837", "#0571b0", "#4d4d4d"
_RECORD, _FLAGGED = "record", "flagged record"
_FITS = ("unrestricted", "restricted")
_LINES = {
    "truth": (_RED, "solid"),
    "mean of unrestricted copies": (_GREEN, "dashed"),
    "mean of restricted copies": (_BLUE, "dashdot"),
}
# Fewest and most bins of a histogram.
_BINS = (10, 60)
# Inches; plotnine takes more for a mistake.
_LARGEST = 25.0
# A grid may lack all but one in so many of its rows or columns.
_GAPS = 10
# Columns of a surface with a meaning of their own.
_TAKEN = ("x", "y", "width", "height", "panel")


def plot_surface(
    surface: pd.DataFrame,
    problem: Problem | None = None,
    *,
    flagged: ArrayLike | None = None,
    value: str = "w",
    title: str | None = None,
    limits: tuple[float, float] | None = None,
) -> ggplot:
    """Map of a surface with the records on it (figures 1, 2 and 4 of the paper).

    Confidential: near a record that stands alone the surface gives the record away.

    Parameters
    ----------
    surface
        One row a cell of a regular grid: columns ``x`` and ``y``, planar coordinates of the
        centre in the problem's unit, and ``value``. As from
        :func:`dsstan.surface_on_grid`. Cells may be missing, or have a missing value.
    problem
        Gives the records and the names of the axes. Without it only the surface is drawn.
        Longitudes and latitudes taken as planar are drawn with a degree of latitude
        1 / cos(middle latitude) times as long as one of longitude, so that the map has its
        usual shape; any other coordinates have equal units on both axes.
    flagged
        True for each flagged record, shape (N,): a red triangle, above the circles of the
        others.
    value
        Column to colour by; the legend names it. ``"w"`` has a diverging scale centred at
        0, any other column a sequential one.
    title
        Above the map.
    limits
        Ends of the colour scale; values beyond take the colour of the end. By default the
        range of the values, for ``w`` made symmetric about 0.

    Raises
    ------
    InputError
        If the surface has no such columns or lies on no regular grid, or an argument does
        not fit it.

    Examples
    --------
    >>> x, y = np.meshgrid(np.arange(4.0), np.arange(3.0))
    >>> surface = pd.DataFrame({"x": x.ravel(), "y": y.ravel(), "w": (x - y).ravel()})
    >>> plot = plot_surface(surface, title="x - y")
    >>> type(plot).__name__, plot.labels.title
    ('ggplot', 'x - y')
    """
    cells = _cells(surface, value, "surface")
    return _map({"": cells}, problem, flagged, value, title, limits)


def plot_surfaces(
    surfaces: Mapping[str, pd.DataFrame],
    problem: Problem | None = None,
    *,
    flagged: ArrayLike | None = None,
    value: str = "w",
    title: str | None = None,
    limits: tuple[float, float] | None = None,
) -> ggplot:
    """Maps of several surfaces side by side, on one colour scale.

    Confidential: near a record that stands alone a surface gives the record away.

    Parameters
    ----------
    surfaces
        Surfaces by the name of their panel, in the order of the panels, such as
        ``{"unrestricted": ..., "restricted": ...}``.
    problem, flagged, value, title, limits
        See :func:`plot_surface`. The records and flags are drawn in every panel.

    Raises
    ------
    InputError
        If there is no surface, or as in :func:`plot_surface`.
    """
    if not isinstance(surfaces, Mapping) or not surfaces:
        raise InputError(
            "surfaces must be a mapping of at least one name to a surface, such as "
            '{"unrestricted": ..., "restricted": ...}'
        )
    cells = {str(n): _cells(s, value, f"surface {n!r}") for n, s in surfaces.items()}
    return _map(cells, problem, flagged, value, title, limits)


def plot_copies(
    release: Synthesis, record: int, *, against: Fit | Synthesis | None = None
) -> ggplot:
    """Histograms of the copies of one record (figures 3 and 5 of the paper).

    Confidential: it shows the record's true value.

    The copies are on the modelled scale. A red line marks the truth; a green one the mean
    of the unrestricted copies, in both panels for comparison; a blue one the mean of the
    restricted copies. Each panel has its own width of bins and its own axis of counts.

    Parameters
    ----------
    release
        The copies.
    record
        Position of the record in the table, from 0.
    against
        See :func:`dsstan.disclosure`.

    Raises
    ------
    InputError
        If there is no such record, or ``against`` is of another problem.
    """
    p9 = _plotnine()

    problem = release.problem
    _check_record(record, problem.n_records)
    shown = {
        name: np.asarray(copies.modelled()[:, record])
        for name, copies in sides(release, against).items()
    }
    means = {f"mean of {name} copies": float(np.mean(v)) for name, v in shown.items()}
    lines = pd.DataFrame(
        [
            (panel, line, at)
            for panel in shown
            for line, at in {"truth": float(problem.y[record]), **means}.items()
            if not (panel == "unrestricted" and "mean of restricted" in line)
        ],
        columns=["fit", "line", "value"],
    )
    names = [name for name in _LINES if name in set(lines["line"])]
    lines["fit"] = pd.Categorical(lines["fit"], [f for f in _FITS if f in shown])
    lines["line"] = pd.Categorical(lines["line"], names)
    plot: ggplot = p9.ggplot()
    for name, values in shown.items():
        copies = pd.DataFrame({"fit": name, "value": values})
        copies["fit"] = pd.Categorical(copies["fit"], lines["fit"].cat.categories)
        plot += p9.geom_histogram(
            p9.aes(x="value"),
            data=copies,
            binwidth=_bin_width(values),
            fill="#bdbdbd",
            color="white",
            size=0.2,
        )
    transform = problem.transform.name
    response = problem.response if transform == "identity" else f"{transform}({problem.response})"
    plot = (
        plot
        + p9.geom_vline(
            p9.aes(xintercept="value", color="line", linetype="line"), data=lines, size=0.9
        )
        + p9.facet_wrap("fit", ncol=1, scales="free_y")
        + p9.scale_color_manual({n: _LINES[n][0] for n in names}, breaks=names, name=" ")
        + p9.scale_linetype_manual({n: _LINES[n][1] for n in names}, breaks=names, name=" ")
        + p9.scale_y_continuous(breaks=_whole_breaks, expand=(0.0, 0.0, 0.05, 0.0))
        + p9.labs(x=_plain(response), y="copies", title=f"Copies of record {record}")
        + _theme((6.4, 1.7 + 1.8 * len(shown)))
        + p9.theme(legend_position="bottom", legend_title=p9.element_blank())
    )
    return plot


def plot_intervals(utility: Utility) -> ggplot:
    """Estimates and intervals of the analyst's regression, original against copies.

    One panel a term, each with its own axis; the dashed line is the original's estimate.
    It shows no single record, but the original's estimates are computed from the
    confidential table.

    Parameters
    ----------
    utility
        From :func:`dsstan.utility`.
    """
    p9 = _plotnine()

    table = utility.table.copy()
    # The first source is drawn at the top, the end of the axis.
    table["source"] = pd.Categorical(table["source"], table["source"].unique()[::-1])
    terms = [_plain(str(term)) for term in table["term"].unique()]
    table["term"] = pd.Categorical([_plain(str(term)) for term in table["term"]], terms)
    columns = 1 if len(terms) <= 4 else 2
    rows = -(-len(terms) // columns)
    plot: ggplot = (
        p9.ggplot(table, p9.aes(x="estimate", y="source"))
        + p9.geom_vline(
            p9.aes(xintercept="estimate"),
            data=table[table["source"] == "original"],
            color="#999999",
            linetype="dashed",
            size=0.5,
        )
        + p9.geom_segment(p9.aes(x="low", xend="high", yend="source"), size=0.9, color=_BLUE)
        + p9.geom_point(size=2.5, color=_BLUE)
        + p9.facet_wrap("term", ncol=columns, scales="free_x")
        + p9.scale_x_continuous(expand=(0.08, 0.0))
        + p9.labs(x=f"estimate and {100 * utility.level:g}% interval", y="")
        + _theme((6.4 if columns == 1 else 9.0, 0.8 + 1.15 * rows))
        + p9.theme(panel_grid_major_y=p9.element_blank(), panel_spacing_x=0.035)
    )
    return plot


def plot_risk(disclosure: Disclosure, *, measure: str = "relative") -> ggplot:
    """Share of copies near the truth per record, unrestricted against restricted.

    Confidential: it shows the risk of every record, and which are flagged. A record below
    the diagonal is safer in the restricted copies.

    Parameters
    ----------
    disclosure
        From :func:`dsstan.disclosure`, with something to compare with.
    measure
        ``"relative"``, or ``"absolute"`` if such a tolerance was asked for.

    Raises
    ------
    InputError
        If the shares of one side are missing.
    """
    p9 = _plotnine()

    records = disclosure.records
    if measure not in ("relative", "absolute"):
        raise InputError(f'measure must be "relative" or "absolute", got {measure!r}')
    names = {f"within_{measure}_{fit}": fit for fit in _FITS}
    missing = [name for column, name in names.items() if column not in records]
    if missing:
        raise InputError(
            f"there are no {' and no '.join(missing)} shares within a tolerance that is "
            f"{measure}: the picture needs disclosure() of a restricted release"
            + (" with absolute=" if measure == "absolute" else "")
        )
    points = records[[*names, "flagged"]].rename(columns=names)
    absolute = disclosure.absolute or 0.0
    near = f"{100 * disclosure.relative:g}%" if measure == "relative" else f"{absolute:,g}"
    top = float(points[list(_FITS)].to_numpy().max())
    bounds = (0.0, max(1.05 * top, 0.05))
    layers = _record_layers(points, "unrestricted", "restricted", points["flagged"].to_numpy())
    plot: ggplot = (
        p9.ggplot(points, p9.aes(x="unrestricted", y="restricted"))
        + p9.geom_abline(slope=1, intercept=0, color="#999999", linetype="dashed")
        + p9.coord_fixed(xlim=bounds, ylim=bounds)
        + p9.scale_x_continuous(labels=_percent)
        + p9.scale_y_continuous(labels=_percent)
        + p9.labs(
            x="unrestricted copies",
            y="restricted copies",
            title=f"Copies within {near} of the truth",
        )
        + _theme((5.9, 4.4))
    )
    for layer in layers:
        plot += layer
    return plot


def save(
    plot: ggplot,
    path: str | os.PathLike[str],
    *,
    width: float | None = None,
    height: float | None = None,
    dpi: int = 150,
) -> Path:
    """Write a picture as PNG, for its owner alone (mode 0600).

    Parameters
    ----------
    plot
        Any plotnine plot.
    path
        Ends in ``.png``. A file that exists is replaced at once, with the same mode.
    width, height
        In inches, both or neither; by default the plot's own size.
    dpi
        Dots per inch.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    InputError
        If the path or the size can't be used.
    """
    from plotnine.exceptions import PlotnineWarning

    target = Path(path).expanduser()
    if target.suffix.lower() != ".png":
        raise InputError(f"a picture is written as PNG: {target.name!r} must end in .png")
    if not target.parent.is_dir():
        raise InputError(f"{target.parent} is no folder; make it first")
    if (width is None) != (height is None):
        raise InputError("give width and height, or neither")
    for size in (width, height):
        if size is not None and not 0 < size <= _LARGEST:
            raise InputError(f"width and height are in inches, above 0 and at most {_LARGEST:g}")
    if not dpi > 0:
        raise InputError("dpi must be above 0")
    picture = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PlotnineWarning)
        plot.save(picture, format="png", width=width, height=height, dpi=dpi, verbose=False)
    # mkstemp makes a file that only its owner can read, whatever the umask.
    handle, partial = tempfile.mkstemp(prefix=f".{target.name}-", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(picture.getbuffer())
        os.replace(partial, target)
    except BaseException:
        Path(partial).unlink(missing_ok=True)
        raise
    return target


def _map(
    cells: Mapping[str, pd.DataFrame],
    problem: Problem | None,
    flagged: ArrayLike | None,
    value: str,
    title: str | None,
    limits: tuple[float, float] | None,
) -> ggplot:
    """One panel a surface, the records in each, one colour scale."""
    p9 = _plotnine()

    if flagged is not None and problem is None:
        raise InputError("flagged needs problem, which holds the places of the records")
    table = pd.concat([c.assign(panel=name) for name, c in cells.items()], ignore_index=True)
    table["panel"] = pd.Categorical(table["panel"], list(cells))
    ratio = 1.0
    if problem is not None and problem.distance == "degrees":
        ratio = 1.0 / np.cos(np.deg2rad(0.5 * (table["y"].min() + table["y"].max())))
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
        for layer in _record_layers(places, "x", "y", _flags(flagged, problem.n_records)):
            plot += layer
    if list(cells) != [""]:
        plot += p9.facet_wrap("panel", ncol=min(len(cells), 3))
    return plot


def _record_layers(points: pd.DataFrame, x: str, y: str, flagged: NDArray[np.bool_]) -> list[Any]:
    """Small circles, and above them red triangles for the flagged, with their legend."""
    p9 = _plotnine()

    look = {
        _RECORD: {"shape": "o", "fill": "white", "color": _GREY, "size": 0.9, "stroke": 0.35},
        _FLAGGED: {"shape": "^", "fill": _RED, "color": "white", "size": 3.2, "stroke": 0.5},
    }
    chosen = {_RECORD: points[~flagged], _FLAGGED: points[flagged]}
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
    p9 = _plotnine()
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
    return p9.scale_fill_cmap("viridis", name=_plain(value), **common)


def _cells(surface: pd.DataFrame, value: str, name: str) -> pd.DataFrame:
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


def _flags(flagged: ArrayLike | None, n: int) -> NDArray[np.bool_]:
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


def _check_record(record: int, n: int) -> None:
    """A position in the table."""
    whole = isinstance(record, int | np.integer) and not isinstance(record, bool)
    if not whole or not 0 <= record < n:
        raise InputError(
            f"record must be a whole number from 0 to {n - 1}, the record's position in the "
            f"table; got {record!r}"
        )


def _bin_width(values: Floats) -> float:
    """Freedman and Diaconis' width, with 10 to 60 bins over the range."""
    span = float(np.ptp(values))
    if span == 0.0:
        return 0.02 * max(1.0, abs(float(values[0])))
    q25, q75 = np.quantile(values, [0.25, 0.75])
    width = 2.0 * (q75 - q25) / values.size ** (1 / 3)
    return float(np.clip(width, span / _BINS[1], span / _BINS[0]))


def _axes(problem: Problem | None) -> tuple[str, str]:
    """Names of the axes of a map."""
    if problem is None:
        return "x", "y"
    if problem.distance == "projected":
        return "easting (km)", "northing (km)"
    return _plain(problem.coord_names[0]), _plain(problem.coord_names[1])


def _map_layout(shape: float, panels: int) -> list[Any]:
    """Theme and ticks of maps whose panels are ``shape`` times as high as wide."""
    p9 = _plotnine()
    from mizani.breaks import breaks_extended

    columns = min(panels, 3)
    rows = -(-panels // columns)
    long = 4.4 if columns == 1 else 3.6
    wide, high = (long, long * shape) if shape <= 1 else (long / shape, long)
    wide, high = max(wide, 0.9), max(high, 0.6)
    # The legend needs 3 inches of height.
    size = (columns * (wide + 0.25) + 2.0, max(rows * (high + 0.35) + 0.6, 3.0))
    # Few enough labels along x, and panels far enough apart, that no two labels touch.
    ticks = breaks_extended(n=int(np.clip(wide / 0.75, 3, 5)))
    return [
        _theme(size),
        p9.theme(panel_spacing_x=0.3 / size[0]),
        p9.scale_x_continuous(breaks=ticks),
    ]


def _plotnine() -> Any:
    """The module plotnine, many of whose functions have no types."""
    import plotnine

    return plotnine


def _theme(size: tuple[float, float]) -> theme:
    """The look that all pictures share, at a size in inches."""
    p9 = _plotnine()

    look: theme = p9.theme_bw(base_size=10) + p9.theme(
        figure_size=size,
        panel_grid_minor=p9.element_blank(),
        strip_background=p9.element_rect(fill="#eeeeee", color="#7f7f7f"),
        legend_key=p9.element_blank(),
    )
    return look


def _whole_breaks(limits: tuple[float, float]) -> Floats:
    """Whole numbers between the limits, about five."""
    from mizani.breaks import breaks_extended

    return np.unique(np.rint(breaks_extended(n=5)(limits)))


def _percent(breaks: list[float]) -> list[str]:
    """Labels of shares."""
    return [f"{100 * share:.3g}%" for share in breaks]


def _plain(text: str) -> str:
    """Text that matplotlib does not read as mathematics."""
    return text.replace("$", r"\$")
