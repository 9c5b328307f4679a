"""Pictures of what an intruder learns: over a grid of settings, and against L."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from dsstan.core.errors import check_count
from dsstan.covariance.protection import protection_of
from dsstan.release.pictures.maps import (
    BLUE,
    GREEN,
    GREY,
    PROTECTION,
    RED,
    picture_theme,
    plain_text,
    plotnine_module,
)
from dsstan.risk.floors import QUANTILE_95
from dsstan.risk.placing import placed_within

if TYPE_CHECKING:
    from plotnine import ggplot

    from dsstan.comparison.frontier_result import Frontier
    from dsstan.risk.assessment import Assessment

_COLOURS = {"none": GREY, "paper": RED, "preserving": BLUE, "cut": GREEN}
_WORDS = {
    "sd_at_risk_known": "smallest sd left to the intruder, records at risk",
    "sd_at_risk_fixed": "smallest sd left to the intruder (variances untold), records at risk",
    "sd_at_risk_median": "median sd left to the intruder, records at risk",
    "sd_all": "smallest sd left to the intruder, all records",
    "share_at_risk": "share of copies near the truth, records at risk",
    "overlap": "overlap of the regression's intervals",
    "surface": "correlation of predicted surfaces",
    "width_ratio": "width of the regression's intervals over the original's",
}


def plot_frontier(
    frontier: Frontier,
    *,
    risk: str | None = None,
    utility: str = "overlap",
    floor: float | None = None,
) -> ggplot:
    """Risk against utility of every setting, one panel for each L. Confidential.

    The better settings are to the right and, where risk is an sd, at the top. The line is the same
    in all panels: the least damaging settings whatever their L, numbered, of those that leave every
    record the floor. It takes no setting whose fit failed; these are crosses.

    Parameters
    ----------
    frontier
        From :func:`dsstan.compare`.
    risk, utility
        Columns of its table; see :meth:`dsstan.comparison.frontier_result.Frontier.best`. By
        default, with a floor, the smallest sd of all records.
    floor
        The least sd that would do: a dashed line. Settings that leave less are pale, and the
        least damaging of the others has a ring.

    Raises
    ------
    InputError
        If a column is not one of these.
    """
    p9 = plotnine_module()
    sds = frontier.usual_risk.startswith("sd")
    risk = risk or ("sd_all" if floor is not None and sds else frontier.usual_risk)
    line = frontier.envelope(floor, risk, utility)
    for table in (points := frontier.table.copy(), line):
        _labelled(table, frontier.table)
    passed = points["passed"].to_numpy(dtype=bool)
    points["keeps"] = passed if floor is None else _keeps(frontier, floor)
    line["number"] = [f" {number}" for number in range(1, len(line) + 1)]
    colours = {k: v for k, v in _COLOURS.items() if k in set(points["protection"])}
    points["protection"] = pd.Categorical(points["protection"], list(colours))
    panels = points["L"].nunique()
    gammas = list(points["gamma"].cat.categories)
    several = len({*gammas} - {"any"}) > 1
    entries = len(colours) + points["rule"].nunique() + len(gammas)
    shape = p9.aes(color="protection", shape="rule", alpha="keeps")
    sizes = []
    if several:
        shape = p9.aes(color="protection", shape="rule", alpha="keeps", size="gamma")
        sizes = [p9.scale_size_manual(values=list(np.linspace(1.6, 3.6, len(gammas))))]
    height = max(4.0, 0.8 + 0.22 * (entries + 6)) + 0.17 * len(line)
    plot: ggplot = (
        p9.ggplot(points, p9.aes(x=utility, y=risk))
        + p9.geom_point(shape, **({} if several else {"size": 2.6}))
        + p9.facet_wrap("L", nrow=1)
        + p9.scale_color_manual(values=list(colours.values()), name="protection")
        + sizes
        + p9.scale_alpha_manual(values={True: 0.85, False: 0.25}, guide=None)
        + p9.scale_y_continuous(labels=_placing_labels(points, risk))
        + p9.labs(
            x=_WORDS[utility],
            y=_WORDS[risk].replace(", ", ",\n"),
            caption=plain_text(_caption(line, points, risk, floor)),
        )
        + picture_theme((2.8 + 3.0 * panels, height))
        + p9.theme(plot_caption=p9.element_text(ha="left"))
    )
    if not passed.all():
        plot += p9.geom_point(data=points[~passed], shape="x", color=GREY, size=2.6)
    return plot + _line_layers(line, utility, risk, floor)


def _placing_labels(points: pd.DataFrame, risk: str) -> Callable[[Sequence[float]], list[str]]:
    """Labels of the risk's axis: where the response is modelled in logs, within how much of a
    value each sd places it."""
    known = points["within_all"].astype("Float64").to_numpy(dtype=np.float64, na_value=np.nan)
    sds = points["sd_all"].astype("Float64").to_numpy(dtype=np.float64, na_value=np.nan)
    logged = np.allclose(known, np.tanh(QUANTILE_95 * sds)) and risk.startswith("sd")

    def label(at: float) -> str:
        sd = f"{at:.3g}"
        return f"{sd}\n{placed_within(float(np.tanh(QUANTILE_95 * at)))}" if logged else sd

    return lambda breaks: [label(at) for at in breaks]


def _line_layers(line: pd.DataFrame, utility: str, risk: str, floor: float | None) -> list[Any]:
    """The least damaging settings: a line in all panels, and a number at each in its own."""
    p9 = plotnine_module()
    layers: list[Any] = []
    path = line[[utility, risk]].astype(np.float64)
    if floor is not None:
        layers.append(p9.geom_hline(yintercept=floor, linetype="dashed", color=GREY))
        ring = {"shape": "o", "fill": "none", "color": "black", "size": 6.5}
        layers.append(p9.geom_point(data=line.tail(1), **ring))
        path = pd.concat([path, path.tail(1).assign(**{risk: floor})])
    if len(path) > 1:
        layers.append(p9.geom_step(data=path, direction="vh", color="#777777", size=0.6))
    if len(line):
        number = p9.aes(label="number")
        layers.append(p9.geom_text(number, data=line, size=8, ha="left", va="bottom"))
    return layers


def _keeps(frontier: Frontier, floor: float) -> list[bool]:
    """Whether each row leaves every record the floor; none whose fit failed does."""
    good = frontier.leaving(floor)
    kept = set(zip(good["setting"], good["copies"], strict=True))
    rows = zip(frontier.table["setting"], frontier.table["copies"], strict=True)
    return [row in kept for row in rows]


def _caption(line: pd.DataFrame, points: pd.DataFrame, risk: str, floor: float | None) -> str:
    """What the line is, its settings by their numbers, and what crosses are."""
    which = "" if floor is None else " that leave every record the floor (dashed)"
    words = [f"Line: the least damaging settings{which}, whatever their L"]
    if line.empty:
        words = ["No setting leaves every record the floor (dashed)"]
    column = {"sd_all": "within_all", "sd_at_risk_known": "within_at_risk"}.get(risk)
    for row in line.to_dict("records"):
        within = f", {placed_within(row[column])}" if column else ""
        words.append(f"{row['number']}  {row['setting']}, {row['L']}{within}")
    if floor is not None and len(line):
        words[-1] += ": damages least of all (ring)"
    if not points["passed"].all():
        words.append("Crosses: settings whose fit failed, which are never recommended")
    return "\n".join(words)


def _labelled(table: pd.DataFrame, whole: pd.DataFrame) -> None:
    """Add the words of the legend: L, and the rule with its gamma, in the order of all rows."""
    counts = sorted(whole["copies"].unique())
    table["L"] = pd.Categorical(
        [f"L = {c}" for c in table["copies"]], [f"L = {c}" for c in counts], ordered=True
    )
    order = [_rule(name) for name in whole.sort_values("value", kind="stable")["setting"]]
    table["rule"] = pd.Categorical(
        [_rule(name) for name in table["setting"]], list(dict.fromkeys(order))
    )
    levels = sorted(set(_gammas(whole)), key=lambda w: np.inf if w in ("any", "inf") else float(w))
    table["gamma"] = pd.Categorical(_gammas(table), levels)


def _rule(setting: str) -> str:
    """The first words of a setting."""
    return setting.split(", ")[0]


def _gammas(table: pd.DataFrame) -> list[str]:
    """The gamma of each row in words; any where the setting has one of its own or none."""
    own = table["protection"].map(lambda name: protection_of(name).ignores_gamma).astype(bool)
    own |= table["setting"].map(_rule) == "continuous weights"
    return ["any" if mine else f"{g:.4g}" for mine, g in zip(own, table["gamma"], strict=True)]


def plot_release_size(assessment: Assessment, *, most: int = 500) -> ggplot:
    """Within what the intruder places the weakest record, against L. Confidential.

    The band runs from an intruder who knows the variances behind each copy to an intruder to
    whom they are of no use; the dashed line is the floor, if there is one.

    Raises InputError if ``most`` is below 2.

    Parameters
    ----------
    assessment
        From :func:`dsstan.assess`.
    most
        Largest L shown.
    """
    p9 = plotnine_module()
    check_count("most", most, 2)
    counts = np.unique(np.round(np.geomspace(1, most, 40)).astype(int))
    table = assessment.placing_curve([int(c) for c in counts])
    colours = dict(zip(PROTECTION.values(), (GREEN, BLUE), strict=True))
    table["fit"] = table["fit"].map(PROTECTION)
    fits = {k: v for k, v in colours.items() if k in set(table["fit"])}
    table["fit"] = pd.Categorical(table["fit"], list(fits))
    plot: ggplot = (
        p9.ggplot(table, p9.aes(x="copies", ymin="known", ymax="fixed", fill="fit"))
        + p9.geom_ribbon(alpha=0.45)
        + p9.geom_line(p9.aes(y="known", color="fit"))
        + p9.geom_line(p9.aes(y="fixed", color="fit"))
        + p9.facet_wrap("group", nrow=1)
        + p9.scale_x_log10()
        + p9.scale_y_log10(labels=lambda breaks: [placed_within(float(b)) for b in breaks])
        + p9.scale_fill_manual(values=list(fits.values()))
        + p9.scale_color_manual(values=list(fits.values()))
        + p9.labs(
            x="copies released, L",
            y="weakest record placed within",
            fill="",
            color="",
            title="What an intruder works out who knows all other records",
            caption="Bands: variances behind each copy known (below), or not (above)"
            + ("" if assessment.floor_share is None else "; dashed: the floor"),
        )
        + picture_theme((8.2, 4.0))
    )
    if assessment.floor_share is not None:
        plot += p9.geom_hline(yintercept=assessment.floor_share, linetype="dashed", color=GREY)
    return plot
