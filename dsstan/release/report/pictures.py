"""The report's pictures of risk: the map, the copies of one record, what each further copy adds.

Here it is decided what is drawn, and where; ``templates/pictures.html`` writes it as SVG. Axes are
in the reader's units: prices, and within how many per cent of a price a record is placed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from dsstan.core.arrays import Floats
from dsstan.release.report.axes import LOG, Axes, Axis, around, plain, share
from dsstan.release.report.basemap import basemap
from dsstan.release.report.records import facts, pictured
from dsstan.release.report.rendering import pictures
from dsstan.release.report.words import figure
from dsstan.risk.placing import half_width, placed_within

if TYPE_CHECKING:
    from dsstan.copies.result import Synthesis
    from dsstan.risk.assessment import Assessment
    from dsstan.table.problem import Problem

Mark = tuple[float, float, float, bool, str]
"""A record or place: x, y, size, whether it is flagged, and what pointing at it shows."""

SHOWN = 4
"""Records at one place whose numbers the map shows."""
MOST = 500
"""Largest L of the picture."""
DOTS = 100
"""Copies of one record that are drawn at most."""
_LIFTS = (0.0, 0.5, -0.5, 0.25, -0.25)
_APART = 16.0
"""Numbers on the map that are nearer to each other are written as one list."""


def site_map(
    problem: Problem, records: pd.DataFrame, ringed: int | None, weakest: pd.DataFrame
) -> Any:
    """The places of the records, with the weakest numbered as in their table.

    A place with a flagged record is a triangle; the others are circles. Pointing at one
    shows its records.
    """
    base = basemap(problem)
    shown = pictured(records)
    drawn = np.unique(problem.site_index[shown["row"]]).size
    radius = float(np.clip(70.0 / np.sqrt(drawn), 2.2, 4.5))
    marks = _marks(problem, shown, base.at, radius)
    flagged = int(records["flagged"].sum())
    label = (
        f"Map of {problem.n_records} records at {problem.n_sites} places; {flagged} flagged "
        f"records are triangles, the others circles. {drawn_of(records)} The table "
        "of weakest records has the numbers."
    ).replace("  ", " ")
    ring = None if ringed is None else (*base.at[problem.site_index[ringed]], radius + 7.0)
    numbered = problem.site_index[weakest["row"].to_numpy(dtype=int)]
    numbers = _numbers(base.at[numbered], base.width)
    return pictures().map(base, label, marks, ring, numbers)


def _numbers(places: Floats, width: float) -> list[tuple[float, float, str, str]]:
    """Numbers from 1 on beside places, one list for those that would cover each other.

    Each with its position and the end that it is anchored at.
    """
    groups: list[tuple[Floats, list[int]]] = []
    for number, place in enumerate(places, 1):
        near = [g for g in groups if np.hypot(*(g[0] - place)) < _APART]
        if near:
            near[0][1].append(number)
        else:
            groups.append((place, [number]))
    right = [place[0] > width - 40.0 for place, _ in groups]
    return [
        (
            float(place[0]) + (-7.0 if left else 7.0),
            float(place[1]) - 7.0,
            ", ".join(map(str, members)),
            "end" if left else "start",
        )
        for (place, members), left in zip(groups, right, strict=True)
    ]


def _marks(problem: Problem, records: pd.DataFrame, at: Floats, radius: float) -> list[Mark]:
    """One mark a place: circles first, so that no triangle is hidden."""
    texts: dict[int, list[str]] = {}
    count = np.bincount(problem.site_index, minlength=len(at))
    for row in records.sort_values("within_after", kind="stable").to_dict("records"):
        place = texts.setdefault(int(problem.site_index[row["row"]]), [])
        if len(place) < SHOWN:
            place.append(facts(row, problem.unit))
    flagged = set(problem.site_index[records.loc[records["flagged"], "row"]])
    marks = []
    for site in sorted(texts, key=lambda site: (site in flagged, site)):
        words = "\n\n".join(texts[site])
        if count[site] > SHOWN:
            words += f"\n\nand {count[site] - SHOWN} more at this place"
        size = 1.2 * radius + 3.0 if site in flagged else radius
        marks.append((*at[site], size, site in flagged, words))
    return marks


def drawn_of(records: pd.DataFrame) -> str:
    """What the pictures leave out of so many records; nothing, if nothing."""
    shown = len(pictured(records))
    if shown == len(records):
        return ""
    return f"{shown} records are drawn: the worst, flagged ones, and a random sample of the rest."


def copies_of(release: Synthesis, record: int) -> Any:
    """The copies of one record before and after protection, with its true value: a dot a copy."""
    problem = release.problem
    truth = float(problem.original()[record])
    sides = {"protected": release}
    if release.unprotected is not None:
        sides = {"unprotected": release.unprotected, **sides}
    elif not release.protected:
        sides = {"unprotected": release}
    shown = {name: side.values[:DOTS, record].astype(float) for name, side in sides.items()}
    low, high = around(truth, *shown.values(), scale=problem.transform)
    count = min(release.copies, DOTS)
    axes = Axes(
        Axis(low, high, f"{problem.response} in {count} copies", problem.transform),
        Axis(0.0, float(len(shown)), "", label=None),
        height=62.0 + 62.0 * len(shown),
        left=36.0,
        right=36.0,
    )
    dots, rows = [], []
    for place, (name, values) in enumerate(reversed(shown.items())):
        lift = np.resize(_LIFTS, values.size)
        dots += [(name, *at) for at in axes.place(np.sort(values), place + 0.42 + 0.4 * lift)]
        rows.append((8.0, axes.place(low, place + 0.84)[0][1], name))
    name = problem.table.index[record]
    label = f"Copies of record {name} (row {record}, counted from 0): " + "; ".join(
        f"{which} from {plain(float(v.min()))} to {plain(float(v.max()))}"
        for which, v in shown.items()
    )
    mark = axes.line("truth", (truth, truth), (0.0, float(len(shown))))
    return pictures().strip(axes, f"{label}; the truth is {plain(truth)}.", dots, rows, mark)


def release_size(found: Assessment) -> dict[str, Any]:
    """Within what an intruder places the weakest record against L, one picture a group."""
    counts = sorted({int(c) for c in np.round(np.geomspace(1, MOST, 15))} | {found.release.copies})
    table = found.placing_curve(counts)
    table = table[np.isfinite(table[["known", "fixed"]].to_numpy()).all(axis=1)]
    if table.empty:
        return {}
    asked = found.floor_share
    ends = around(table["known"], table["fixed"], asked or table["known"], scale=LOG)
    axes = Axes(
        Axis(1.0, float(max(counts)), "copies released, L", LOG),
        Axis(*ends, "weakest placed within +/-", LOG, share),
    )
    return {
        str(group): _size_panel(found, rows, axes, str(group))
        for group, rows in table.groupby("group", sort=False)
    }


def _size_panel(found: Assessment, table: pd.DataFrame, axes: Axes, group: str) -> Any:
    """One group: a band from known to untold variances for each fit."""
    last = "unrestricted" if found.before is None else "restricted"  # what the release is from
    bands, words = [], []
    for name, rows in table.groupby("fit", sort=False):
        when = "after" if name == last else "before"
        bands.append((when, *(axes.place(rows["copies"], rows[b]) for b in ("known", "fixed"))))
        first, final = float(rows["known"].iloc[0]), float(rows["known"].iloc[-1])
        words.append(f"{when} protection {placed_within(first)} to {placed_within(final)}")
    planned = float(found.release.copies)
    lines = [axes.line("planned", (planned, planned), (axes.y.low, axes.y.high))]
    asked = found.floor_share
    if asked is not None:
        lines.append(axes.line("floor", (axes.x.low, axes.x.high), (asked, asked)))
    label = (
        f"Within what the weakest of the {group} records is placed, from 1 copy to "
        f"{int(axes.x.high)}, variances known to the intruder: {'; '.join(words)}."
    )
    return pictures().chart(axes, label, bands, lines)


def before_after(problem: Problem, records: pd.DataFrame) -> Any:
    """Within what each record is placed before against after; below the diagonal the risk rose."""
    if records["sd_before"].isna().any():
        return None
    rose = int(np.sum(records["sd_after"] < records["sd_before"]))
    every, left_out = len(records), drawn_of(records)
    both = np.column_stack(
        [half_width(problem, records[name].to_numpy()) for name in ("sd_before", "sd_after")]
    )
    records = records.assign(before=both[:, 0], after=both[:, 1])
    records = pictured(records).sort_values("flagged", kind="stable")
    records = records[np.isfinite(records[["before", "after"]].to_numpy()).all(axis=1)]
    if records.empty:
        return None
    ends = around(records["before"], records["after"], scale=LOG)
    words = ("placed within +/-, before protection", "placed within +/-, after protection")
    before, after = (Axis(*ends, said, LOG, share) for said in words)
    axes = Axes(before, after, height=360)
    marks = [
        (*at, 6.5 if row["flagged"] else 3.0, row["flagged"], facts(row, problem.unit))
        for at, row in zip(
            axes.place(records["before"], records["after"]),
            records.to_dict("records"),
            strict=True,
        )
    ]
    label = (
        "Within what share of its value the intruder places each record after protection against "
        f"before it, {every} records; {rose} lie below the diagonal, where they are placed more "
        f"narrowly after protection. {left_out}"
    ).strip()
    return pictures().chart(axes, label, [], [axes.line("planned", ends, ends)], marks)


def interval(row: pd.Series, rows: pd.DataFrame) -> Any:
    """One interval on the scale of all intervals of its term."""
    low, high = float(rows["low"].min()), float(rows["high"].max())
    width = (high - low) or 1.0

    def at(value: float) -> float:
        return 8.0 + 184.0 * (value - low) / width

    shown = [figure(row[end], 4) for end in ("estimate", "low", "high")]
    original = rows[rows["source"] == "original"]["estimate"]
    return pictures().interval(
        f"{shown[0]}, from {shown[1]} to {shown[2]}",
        *(at(row[end]) for end in ("low", "high", "estimate")),
        [at(value) for value in original],
    )
