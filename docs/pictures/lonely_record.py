"""Draw ``lonely_record.svg``: the copies of one lonely record, before and after protection.

``python docs/pictures/lonely_record.py`` writes it beside this file and prints its numbers. The
table is the simulated town of the package, so its true incomes are no secret.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

import dsstan as ds
from dsstan.copies.result import Synthesis
from dsstan.risk.placing import placed_within

OUT = Path(__file__).with_suffix(".svg")
RED, BLUE, GREY = "#b2182b", "#2166ac", "#9a9a9a"


def lonely_release() -> Synthesis:
    """Twenty copies of the simulated town, its one lonely record protected."""
    problem = ds.prepare(ds.load_simulated(), "log(income) ~ 1", coords=("s1", "s2"))
    free = ds.fit(problem, engine="direct", seed=1, progress=False)
    flags = ds.flag_isolated(free, distance=0.2)
    kept = ds.fit(
        problem,
        weights=flags,
        protection="cut",
        start=free,
        engine="direct",
        seed=2,
        progress=False,
    )
    return ds.synthesise(kept, copies=20, seed=3, progress=False)


def reach(release: Synthesis) -> dict[str, str]:
    """Half of the intruder's 95% interval for the lonely record, by stage, as it is printed."""
    table = ds.assess(release, progress=False).placing()
    flagged = table[table["group"] == "flagged"].set_index("stage")["within"]
    return {str(s): placed_within(within).replace("+/-", "±") for s, within in flagged.items()}


def town(axes: Axes, release: Synthesis) -> None:
    """The places of all records, the lonely one ringed."""
    x, y = release.problem.sites.T
    lonely = release.fit.flagged
    axes.scatter(x[~lonely], y[~lonely], s=7, color=GREY, linewidths=0)
    axes.scatter(x[lonely], y[lonely], s=22, color=RED, linewidths=0)
    axes.scatter(x[lonely], y[lonely], s=190, facecolors="none", edgecolors=RED, linewidths=1.4)
    axes.annotate(
        "stands alone",
        (float(x[lonely][0]), float(y[lonely][0])),
        (14, -4),
        textcoords="offset points",
        color=RED,
        fontsize=9.5,
    )
    axes.set(aspect="equal", xticks=[], yticks=[], xlim=(-0.04, 1.04), ylim=(-0.06, 1.04))
    axes.set_title(f"A town: {release.problem.n_records} incomes", loc="left", fontsize=11)


def strip(axes: Axes, copies: np.ndarray, truth: float, colour: str, said: tuple[str, str]) -> None:
    """One row: a dot a copy, the truth as a line, what it means beside the title."""
    lift = np.tile([0.0, 0.5, -0.5, 0.25, -0.25], len(copies))[: len(copies)]
    axes.scatter(np.sort(copies), lift, s=34, color=colour, alpha=0.75, linewidths=0, zorder=3)
    axes.axvline(truth, color=RED, linewidth=1.6, zorder=2)
    axes.set(xscale="log", ylim=(-1, 1), yticks=[])
    axes.set_title(said[0], loc="left", fontsize=11)
    axes.set_title(said[1], loc="right", fontsize=9.5, color=colour)
    axes.grid(axis="x", color="#e6e6e6", zorder=0)


def protected_in_words(within: dict[str, str]) -> str:
    """How near the intruder comes after protection, beside how near without any copy."""
    if within["restricted"] == within["no_release"]:
        return "no closer than without any copy"
    return f"an intruder comes within {within['restricted']}"


def draw(release: Synthesis, within: dict[str, str]) -> Figure:
    """The town on the left; on the right the copies of its lonely record, before and after."""
    before = release.unprotected
    assert before is not None
    record = int(np.flatnonzero(release.fit.flagged)[0])
    truth = float(release.problem.original()[record])
    figure = Figure(figsize=(9.2, 3.5), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=[1.0, 1.75])
    town(left.subplots(), release)
    upper, lower = right.subplots(2, 1, sharex=True)
    strip(
        upper,
        before.values[:, record],
        truth,
        "#404040",
        (
            "Its income in 20 copies, unprotected",
            f"an intruder comes within {within['unrestricted']}",
        ),
    )
    strip(
        lower,
        release.values[:, record],
        truth,
        BLUE,
        ("The same, protected", protected_in_words(within)),
    )
    upper.annotate(
        f"the truth, ${truth:,.0f}",
        (truth, 0.62),
        (6, 0),
        textcoords="offset points",
        color=RED,
        fontsize=9.5,
    )
    lower.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"${v:,.0f}"))
    lower.minorticks_off()
    for axes in figure.get_axes():
        for side in axes.spines.values():
            side.set_color("#cccccc")
    return figure


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    town_release = lonely_release()
    found = reach(town_release)
    mpl.rcParams.update({"svg.hashsalt": "dsstan", "font.family": "DejaVu Sans"})
    draw(town_release, found).savefig(arguments.out, format="svg", metadata={"Date": None})
    numbers = {
        "copies": town_release.copies,
        "within_without_a_copy": found["no_release"],
        "within_unprotected": found["unrestricted"],
        "within_protected": found["restricted"],
    }
    print(json.dumps(numbers, ensure_ascii=False))
