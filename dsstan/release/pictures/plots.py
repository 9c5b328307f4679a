"""Pictures for the data steward: surfaces, copies at one record, intervals, risks.

Every function returns a plotnine ``ggplot``, so layers, scales and themes can be added with
``+``. plotnine is imported when a picture is made, which keeps ``import dsstan`` quick.

Most of these pictures are confidential, and each docstring says why. :func:`save` therefore
writes files that only their owner can read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from dsstan.core.arrays import Floats
from dsstan.core.errors import InputError, whole_number
from dsstan.release.pictures.flag_map import plot_flags
from dsstan.release.pictures.maps import (
    BLUE,
    GREEN,
    PROTECTION,
    RED,
    checked_cells,
    picture_theme,
    plain_text,
    plotnine_module,
    record_layers,
    surface_map,
)
from dsstan.release.pictures.risk_plots import plot_frontier, plot_release_size
from dsstan.release.pictures.save import save
from dsstan.risk.disclosure import sides
from dsstan.table.formulas.parsing import ResponseTransform

if TYPE_CHECKING:
    from plotnine import ggplot

    from dsstan.analysis.utility import Utility
    from dsstan.copies.result import Synthesis
    from dsstan.models.result import Fit
    from dsstan.risk.disclosure import Disclosure
    from dsstan.table.problem import Problem

__all__ = [
    "plot_copies",
    "plot_flags",
    "plot_frontier",
    "plot_intervals",
    "plot_release_size",
    "plot_risk",
    "plot_surface",
    "plot_surfaces",
    "save",
]


_LINES = {
    "truth": (RED, "solid"),
    "mean without protection": (GREEN, "dashed"),
    "mean with protection": (BLUE, "dashdot"),
}
# Fewest and most bins of a histogram.
_BINS = (10, 60)


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

    Confidential: near a record that stands alone the surface reveals the record.

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
    cells = checked_cells(surface, value, "surface")
    return surface_map({"": cells}, problem, flagged, value, title, limits)


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

    Confidential: near a record that stands alone a surface reveals the record.

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
    cells = {str(n): checked_cells(s, value, f"surface {n!r}") for n, s in surfaces.items()}
    return surface_map(cells, problem, flagged, value, title, limits)


def plot_copies(
    release: Synthesis, record: int, *, against: Fit | Synthesis | None = None
) -> ggplot:
    """Histograms of the copies of one record (figures 3 and 5 of the paper).

    Confidential: it shows the record's true value.

    The axis is spread as the model sees the values (under log, evenly in logs) and labelled in the
    column's own units. A red line marks the truth; a green one the mean of the copies without
    protection (unrestricted), in both panels for comparison; a blue one the mean of those with
    protection (restricted). Each panel has its own width of bins and its own axis of counts.

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
    p9 = plotnine_module()

    problem = release.problem
    record = _check_record(record, problem.n_records)
    shown = {
        PROTECTION[name]: np.asarray(copies.modelled()[:, record])
        for name, copies in sides(release, against).items()
    }
    means = {f"mean {name}": float(np.mean(v)) for name, v in shown.items()}
    lines = pd.DataFrame(
        [
            (panel, line, at)
            for panel in shown
            for line, at in {"truth": float(problem.y[record]), **means}.items()
            if not (
                panel == PROTECTION["unrestricted"] and line == f"mean {PROTECTION['restricted']}"
            )
        ],
        columns=["fit", "line", "value"],
    )
    names = [name for name in _LINES if name in set(lines["line"])]
    lines["fit"] = pd.Categorical(lines["fit"], [f for f in PROTECTION.values() if f in shown])
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
    name = plain_text(str(problem.table.index[record]))
    plot = (
        plot
        + p9.geom_vline(
            p9.aes(xintercept="value", color="line", linetype="line"), data=lines, size=0.9
        )
        + p9.facet_wrap("fit", ncol=1, scales="free_y")
        + p9.scale_color_manual({n: _LINES[n][0] for n in names}, breaks=names, name=" ")
        + p9.scale_linetype_manual({n: _LINES[n][1] for n in names}, breaks=names, name=" ")
        + p9.scale_y_continuous(breaks=_whole_breaks, expand=(0.0, 0.0, 0.05, 0.0))
        + p9.scale_x_continuous(
            breaks=partial(own_breaks, problem.transform),
            labels=partial(own_labels, problem.transform),
        )
        + p9.labs(
            x=f"{plain_text(problem.response)}{own_spacing(problem.transform)}",
            y="copies",
            title=f"Copies of record {name} (row {record}, counted from 0)",
        )
        + picture_theme((6.4, 1.7 + 1.8 * len(shown)))
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
    p9 = plotnine_module()

    table = utility.table.copy()
    # The first source is drawn at the top, the end of the axis.
    table["source"] = pd.Categorical(table["source"], table["source"].unique()[::-1])
    terms = [plain_text(str(term)) for term in table["term"].unique()]
    table["term"] = pd.Categorical([plain_text(str(term)) for term in table["term"]], terms)
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
        + p9.geom_segment(p9.aes(x="low", xend="high", yend="source"), size=0.9, color=BLUE)
        + p9.geom_point(size=2.5, color=BLUE)
        + p9.facet_wrap("term", ncol=columns, scales="free_x")
        + p9.scale_x_continuous(expand=(0.08, 0.0))
        + p9.labs(
            x=f"estimate and {100 * utility.level:g}% interval",
            y="",
            title="The regression of the original (dashed line) beside the copies'",
        )
        + picture_theme((6.4 if columns == 1 else 9.0, 0.8 + 1.15 * rows))
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
    p9 = plotnine_module()

    records = disclosure.records
    if measure not in ("relative", "absolute"):
        raise InputError(f'measure must be "relative" or "absolute", got {measure!r}')
    names = {f"within_{measure}_{fit}": fit for fit in PROTECTION}
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
    top = float(points[list(PROTECTION)].to_numpy().max())
    bounds = (0.0, max(1.05 * top, 0.05))
    layers = record_layers(points, "unrestricted", "restricted", points["flagged"].to_numpy())
    plot: ggplot = (
        p9.ggplot(points, p9.aes(x="unrestricted", y="restricted"))
        + p9.geom_abline(slope=1, intercept=0, color="#999999", linetype="dashed")
        + p9.coord_fixed(xlim=bounds, ylim=bounds)
        + p9.scale_x_continuous(labels=_percent)
        + p9.scale_y_continuous(labels=_percent)
        + p9.labs(
            x=f"copies {PROTECTION['unrestricted']}",
            y=f"copies {PROTECTION['restricted']}",
            title=f"Copies within {near} of the truth",
        )
        + picture_theme((5.9, 4.4))
    )
    for layer in layers:
        plot += layer
    return plot


def own_breaks(transform: ResponseTransform, ends: tuple[float, float]) -> Floats:
    """Where round values of the column's own units lie on the modelled scale, between two ends."""
    from mizani.breaks import breaks_extended, breaks_log

    low, high = (float(v) for v in transform.inverse(np.array(ends)))
    logs = transform.name in ("log", "log2", "log10") and 0.0 < 3.0 * low < high < np.inf
    found = (breaks_log(n=4) if logs else breaks_extended(n=4))((low, high))
    at = transform.forward(np.asarray([v for v in found if low <= v <= high], dtype=np.float64))
    return at[np.isfinite(at)]


def own_spacing(transform: ResponseTransform) -> str:
    """What an axis with :func:`own_labels` says of its spacing, after the column's name."""
    return "" if transform.name == "identity" else f" (spaced as its {transform.name})"


def own_labels(transform: ResponseTransform, breaks: Sequence[float]) -> list[str]:
    """Places on the modelled scale in the column's own units."""
    return [
        f"{float(f'{v:.9g}'):,.10g}"
        for v in transform.inverse(np.asarray(breaks, dtype=np.float64))
    ]


def _check_record(record: int, n: int) -> int:
    """A position in the table."""
    whole = whole_number(record)
    if whole is None or not 0 <= whole < n:
        raise InputError(
            f"record must be a whole number from 0 to {n - 1}, the record's position in the "
            f"table; got {record!r}"
        )
    return whole


def _bin_width(values: Floats) -> float:
    """Freedman and Diaconis' width, with 10 to 60 bins over the range."""
    span = float(np.ptp(values))
    if span == 0.0:
        return 0.02 * max(1.0, abs(float(values[0])))
    q25, q75 = np.quantile(values, [0.25, 0.75])
    width = 2.0 * (q75 - q25) / values.size ** (1 / 3)
    return float(np.clip(width, span / _BINS[1], span / _BINS[0]))


def _whole_breaks(limits: tuple[float, float]) -> Floats:
    """Whole numbers between the limits, about five."""
    from mizani.breaks import breaks_extended

    return np.unique(np.rint(breaks_extended(n=5)(limits)))


def _percent(breaks: list[float]) -> list[str]:
    """Labels of shares."""
    return [f"{100 * share:.3g}%" for share in breaks]
