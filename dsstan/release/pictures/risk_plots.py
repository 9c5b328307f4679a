"""Pictures of what an intruder learns: over a grid of settings, and against L."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from dsstan.core.errors import InputError
from dsstan.covariance.protection import protection_of
from dsstan.release.pictures.maps import BLUE, GREEN, GREY, RED, picture_theme, plotnine_module

if TYPE_CHECKING:
    from plotnine import ggplot

    from dsstan.comparison.frontier import Frontier
    from dsstan.risk.assessment import Assessment

__all__ = ["plot_frontier", "plot_release_size"]

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

    The better settings are to the right and, where risk is an sd, at the top. The line
    joins those that no other setting of the same L beats in both.

    Parameters
    ----------
    frontier
        From :func:`dsstan.compare`.
    risk, utility
        Columns of its table; see :meth:`dsstan.comparison.frontier.Frontier.best`.
    floor
        A dashed line at the least sd (or largest share) that would do.

    Raises
    ------
    InputError
        If a column is not one of these.
    """
    p9 = plotnine_module()
    risk = risk or frontier.usual_risk
    best = frontier.best(risk, utility).sort_values(utility)
    for table in (points := frontier.table.copy(), best):
        _labelled(table)
    colours = {k: v for k, v in _COLOURS.items() if k in set(points["protection"])}
    for table in (points, best):
        table["protection"] = pd.Categorical(table["protection"], list(colours))
    joined = best[best.groupby("L", observed=True)["L"].transform("size") > 1]  # no line of one
    panels, gammas = points["L"].nunique(), list(points["gamma"].cat.categories)
    shape = p9.aes(color="protection", shape="rule", size="gamma")
    entries = len(colours) + points["rule"].nunique() + len(gammas)
    plot: ggplot = (
        p9.ggplot(points, p9.aes(x=utility, y=risk))
        + p9.geom_line(data=joined, color="#bbbbbb", size=0.8)
        + p9.geom_point(shape, alpha=0.85)
        + p9.facet_wrap("L", nrow=1, scales="free_y")
        + p9.scale_color_manual(values=list(colours.values()), name="protection")
        + p9.scale_size_manual(values=list(np.linspace(1.6, 3.6, len(gammas))))
        + p9.labs(x=_WORDS[utility], y=_WORDS[risk].replace(", ", ",\n"))
        + picture_theme((2.6 + 3.0 * panels, max(4.0, 0.8 + 0.22 * (entries + 6))))
    )
    if floor is not None:
        plot += p9.geom_hline(yintercept=floor, linetype="dashed", color=GREY)
    return plot


def _labelled(table: pd.DataFrame) -> None:
    """Add the words of the legend: L, and the rule with its gamma."""
    counts = sorted(table["copies"].unique())
    table["L"] = pd.Categorical(
        [f"L = {c}" for c in table["copies"]], [f"L = {c}" for c in counts], ordered=True
    )
    rules = [name.split(", ")[0] for name in table["setting"]]
    order = table.assign(rule=rules).sort_values("value", kind="stable")["rule"]
    table["rule"] = pd.Categorical(rules, list(dict.fromkeys(order)))
    # Continuous weights have a gamma of their own.
    own = table["protection"].map(lambda name: protection_of(name).ignores_gamma)
    own |= table["rule"] == "continuous weights"
    words = ["any" if mine else f"{g:.4g}" for mine, g in zip(own, table["gamma"], strict=True)]
    levels = sorted(set(words), key=lambda w: np.inf if w in ("any", "inf") else float(w))
    table["gamma"] = pd.Categorical(words, levels)


def plot_release_size(assessment: Assessment, *, most: int = 500) -> ggplot:
    """The smallest sd left to the intruder against L, before and after. Confidential.

    The band runs from an intruder who knows the variances behind each copy to an intruder to
    whom they are of no use; the dashed line is the floor, if there is one.

    Parameters
    ----------
    assessment
        From :func:`dsstan.assess`.
    most
        Largest L shown.

    Raises
    ------
    InputError
        If ``most`` is below 2.
    """
    p9 = plotnine_module()
    if isinstance(most, bool) or not isinstance(most, int | np.integer) or most < 2:
        raise InputError(f"most must be a whole number of at least 2, got {most!r}")
    counts = np.unique(np.round(np.geomspace(1, most, 40)).astype(int))
    table = assessment.curve([int(c) for c in counts])
    words = {"unrestricted": "without protection", "restricted": "with protection"}
    colours = {"without protection": GREEN, "with protection": BLUE}
    table["fit"] = table["fit"].map(words)
    fits = {k: v for k, v in colours.items() if k in set(table["fit"])}
    table["fit"] = pd.Categorical(table["fit"], list(fits))
    plot: ggplot = (
        p9.ggplot(table, p9.aes(x="copies", ymin="known", ymax="fixed", fill="fit"))
        + p9.geom_ribbon(alpha=0.45)
        + p9.geom_line(p9.aes(y="known", color="fit"))
        + p9.geom_line(p9.aes(y="fixed", color="fit"))
        + p9.facet_wrap("group", nrow=1)
        + p9.scale_x_log10()
        + p9.scale_y_log10()
        + p9.scale_fill_manual(values=list(fits.values()))
        + p9.scale_color_manual(values=list(fits.values()))
        + p9.labs(
            x="copies released, L",
            y="smallest sd left (modelled scale)",
            fill="",
            color="",
            title="Sd left to an intruder who knows all other records",
            caption="Bands: variances behind each copy known (below), or not (above)"
            + ("" if assessment.floor is None else "; dashed: the floor"),
        )
        + picture_theme((8.2, 4.0))
    )
    if assessment.floor is not None:
        plot += p9.geom_hline(yintercept=assessment.floor, linetype="dashed", color=GREY)
    return plot
