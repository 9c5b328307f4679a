"""The report's pictures: the map, sd against L, before against after, intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from markupsafe import Markup
from numpy.typing import NDArray

from dsstan.release.report import svg as svg
from dsstan.release.report.records import facts, pictured
from dsstan.release.report.words import figure

if TYPE_CHECKING:
    from dsstan.risk.assessment import Assessment
    from dsstan.table.problem import Problem

Floats = NDArray[np.float64]

TOLD = 4
"""Records at one place that the map tells of."""
MOST = 500
"""Largest L of the picture."""


def site_map(problem: Problem, records: pd.DataFrame, ringed: int | None) -> Markup:
    """The places of the records, with one scale on both axes.

    A place with a flagged record is a triangle; the others are circles. Pointing at one
    shows its records.
    """
    places = problem.unique_sites
    stretch = np.ones(2)
    if problem.distance == "degrees":
        middle = 0.5 * (places[:, 1].min() + places[:, 1].max())
        stretch[0] = np.cos(np.deg2rad(middle))
    flat = places * stretch
    low, span = flat.min(axis=0), np.ptp(flat, axis=0)
    size, edge, foot = 460.0, 18.0, 40.0
    scale = size / float(max(span.max(), np.finfo(float).tiny))
    width, height = max(span[0] * scale, 0.35 * size), max(span[1] * scale, 0.12 * size)
    shift = 0.5 * (np.array([width, height]) - span * scale)
    x = edge + shift[0] + (flat[:, 0] - low[0]) * scale
    y = edge + height - shift[1] - (flat[:, 1] - low[1]) * scale
    shown = pictured(records)
    marks = _marks(problem, shown, x, y, ringed)
    frame = Markup('<rect class="frame" x="2" y="2" width="{}" height="{}"/>').format(
        svg.number(width + 2 * edge - 4), svg.number(height + 2 * edge - 4)
    )
    below = height + 2 * edge
    bar = svg.round_length(0.4 * width / scale / stretch[0]) if span.max() > 0 else None
    parts = [frame, *marks]
    if bar is not None:
        end = edge + bar * stretch[0] * scale
        parts += [
            svg.line(edge, below + 10, end, below + 10, "bar"),
            svg.text(edge, below + 28, f"{bar:g} {problem.unit}", anchor="start"),
        ]
    parts.append(svg.text(width + 2 * edge - 2, below + 28, "north is up", anchor="end"))
    if problem.distance == "planar":
        parts[-1] = svg.text(
            width + 2 * edge - 2,
            below + 28,
            f"{problem.coord_names[0]} to the right, {problem.coord_names[1]} up"[:60],
            anchor="end",
        )
    return svg.picture(
        width + 2 * edge, below + foot, _map_words(problem, records, len(shown)), parts, "map"
    )


def _marks(
    problem: Problem, records: pd.DataFrame, x: Floats, y: Floats, ringed: int | None
) -> list[Markup]:
    """One mark a place: circles first, so that no triangle is hidden."""
    order = records.sort_values("sd_after", kind="stable")
    told: dict[int, list[str]] = {}
    count = np.bincount(problem.site, minlength=len(x))
    for row in order.to_dict("records"):
        place = told.setdefault(int(problem.site[row["row"]]), [])
        if len(place) < TOLD:
            place.append(facts({str(k): v for k, v in row.items()}, problem.unit))
    flagged = np.zeros(len(x), dtype=bool)
    flagged[problem.site[records.loc[records["flagged"], "row"]]] = True
    radius = float(np.clip(70.0 / np.sqrt(len(told)), 2.2, 4.5))
    marks = []
    places = np.array(sorted(told), dtype=np.intp)
    for site in places[np.argsort(flagged[places], kind="stable")]:
        words = "\n\n".join(told[int(site)])
        if count[site] > TOLD:
            words += f"\n\nand {count[site] - TOLD} more at this place"
        draw = svg.triangle if flagged[site] else svg.circle
        size = 1.2 * radius + 3.0 if flagged[site] else radius
        marks.append(svg.titled(draw(x[site], y[site], size), words))
    if ringed is not None:
        site = problem.site[ringed]
        marks.append(svg.ring(x[site], y[site], radius + 7.0))
    return marks


def _map_words(problem: Problem, records: pd.DataFrame, shown: int) -> str:
    flagged = int(records["flagged"].sum())
    return (
        f"Map of {problem.n_records} records at {problem.n_sites} places; {flagged} flagged "
        f"records are triangles, the others circles. {_drawn(shown, len(records))}The table "
        "of worst records has the numbers."
    )


def drawn_of(records: pd.DataFrame) -> str:
    """What the pictures leave out of so many records; nothing, if nothing."""
    return _drawn(len(pictured(records)), len(records)).strip()


def _drawn(shown: int, records: int) -> str:
    """What a picture of some of the records leaves out; nothing, if nothing."""
    if shown == records:
        return ""
    return f"{shown} records are drawn: the worst, flagged ones, and a random sample of the rest. "


@dataclass(frozen=True)
class Axes:
    """A square of two logarithmic axes."""

    x: tuple[float, float]
    y: tuple[float, float]
    words: tuple[str, str]
    width: float = 400.0
    height: float = 270.0
    left: float = 76.0
    top: float = 12.0
    foot: float = 50.0
    right: float = 20.0

    def place(self, x: Floats, y: Floats) -> tuple[Floats, Floats]:
        """Positions on the picture."""
        inside = (self.width - self.left - self.right, self.height - self.top - self.foot)
        u = np.log(x / self.x[0]) / np.log(self.x[1] / self.x[0])
        v = np.log(y / self.y[0]) / np.log(self.y[1] / self.y[0])
        return (
            np.asarray(self.left + u * inside[0]),
            np.asarray(self.top + (1.0 - v) * inside[1]),
        )

    def draw(self) -> list[Markup]:
        """Grid, ticks and names."""
        parts = []
        corner = np.array([self.x[0]]), np.array([self.y[0]])
        left, bottom = (float(v[0]) for v in self.place(*corner))
        for tick in svg.decades(*self.x):
            at = float(self.place(np.array([tick]), corner[1])[0][0])
            parts += [
                svg.line(at, self.top, at, bottom, "grid"),
                svg.text(at, bottom + 18, f"{tick:g}"),
            ]
        for tick in svg.decades(*self.y):
            at = float(self.place(corner[0], np.array([tick]))[1][0])
            parts += [
                svg.line(left, at, self.width - self.right, at, "grid"),
                svg.text(left - 6, at + 5, f"{tick:g}", anchor="end"),
            ]
        middle = (0.5 * (left + self.width - self.right), 0.5 * (self.top + bottom))
        parts.append(svg.text(middle[0], bottom + 40, self.words[0]))
        parts.append(svg.text(14, middle[1], self.words[1], turn=True))
        return parts


def release_size(found: Assessment) -> dict[str, Markup]:
    """The smallest sd left against L, one picture a group of records."""
    counts = sorted({int(c) for c in np.round(np.geomspace(1, MOST, 30))} | {found.after.copies})
    table = found.curve(counts)
    low, high = float(table["known"].min()), float(table["fixed"].max())
    if found.floor is not None:
        low, high = min(low, found.floor), max(high, found.floor)
    axes = Axes(
        (1.0, float(max(counts))), (low / 1.1, high * 1.1), ("copies released, L", "sd left")
    )
    return {
        str(group): _size_panel(found, rows, axes, str(group))
        for group, rows in table.groupby("group", sort=False)
    }


def _size_panel(found: Assessment, table: pd.DataFrame, axes: Axes, group: str) -> Markup:
    """One group: a band from known to untold variances for each fit."""
    parts, words = axes.draw(), []
    for name, rows in table.groupby("fit", sort=False):
        colour = svg.AFTER if name == _last(found) else svg.BEFORE
        x = rows["copies"].to_numpy(dtype=float)
        ends = [axes.place(x, rows[bound].to_numpy()) for bound in ("known", "fixed")]
        band = svg.points(
            np.concatenate([ends[0][0], ends[1][0][::-1]]),
            np.concatenate([ends[0][1], ends[1][1][::-1]]),
        )
        parts.append(
            Markup('<polygon points="{}" fill="{}" fill-opacity="0.22"/>').format(band, colour)
        )
        parts += [
            Markup(
                '<polyline class="curve" points="{}" stroke="{}" stroke-dasharray="{}"/>'
            ).format(svg.points(*end), colour, svg.DASH[colour])
            for end in ends
        ]
        first, last = float(rows["known"].iloc[0]), float(rows["known"].iloc[-1])
        when = "after" if colour == svg.AFTER else "before"
        words.append(f"{when} protection from {figure(first)} to {figure(last)}")
    planned = np.array([float(found.after.copies)])
    at = float(axes.place(planned, np.array([axes.y[0]]))[0][0])
    parts.append(svg.line(at, axes.top, at, axes.height - axes.foot, "planned"))
    if found.floor is not None:
        at = float(axes.place(planned, np.array([found.floor]))[1][0])
        parts.append(svg.line(axes.left, at, axes.width - axes.right, at, "floor"))
    label = (
        f"Smallest sd left to the intruder, {group} records, from 1 copy to {int(axes.x[1])}, "
        f"variances known to him: {'; '.join(words)}."
    )
    return svg.picture(axes.width, axes.height, label, parts, "chart")


def _last(found: Assessment) -> str:
    """The fit that the release comes from."""
    return "unrestricted" if found.before is None else "restricted"


def before_after(records: pd.DataFrame, unit: str) -> Markup | None:
    """Sd left before protection against after it; below the diagonal the risk rose."""
    if records["sd_before"].isna().any():
        return None
    rose = int(np.sum(records["sd_after"] < records["sd_before"]))
    every, records = len(records), pictured(records)
    x, y = records["sd_before"].to_numpy(), records["sd_after"].to_numpy()
    low, high = float(min(x.min(), y.min())) / 1.15, float(max(x.max(), y.max())) * 1.15
    axes = Axes(
        (low, high), (low, high), ("sd left before protection", "sd left after"), height=360
    )
    at_x, at_y = axes.place(x, y)
    ends = axes.place(np.array([low, high]), np.array([low, high]))
    parts = [*axes.draw(), svg.line(ends[0][0], ends[1][0], ends[0][1], ends[1][1], "planned")]
    flagged = records["flagged"].to_numpy(dtype=bool)
    rows = records.to_dict("records")
    for i in np.argsort(flagged, kind="stable"):
        draw, size = (svg.triangle, 6.5) if flagged[i] else (svg.circle, 3.0)
        words = facts({str(k): v for k, v in rows[i].items()}, unit)
        parts.append(svg.titled(draw(at_x[i], at_y[i], size), words))
    label = (
        f"Sd left to the intruder after protection against before it, {every} records; "
        f"{rose} lie below the diagonal, where it is smaller after protection."
        f"{' ' + _drawn(len(x), every) if len(x) < every else ''}"
    )
    return svg.picture(axes.width, axes.height, label, parts, "chart")


def interval(row: pd.Series, rows: pd.DataFrame) -> Markup:
    """One interval on the scale of all intervals of its term."""
    low, high = float(rows["low"].min()), float(rows["high"].max())
    width = (high - low) or 1.0

    def at(value: float) -> float:
        return 8.0 + 184.0 * (value - low) / width

    original = rows[rows["source"] == "original"]["estimate"]
    mark = [svg.line(at(v), 1, at(v), 21, "planned") for v in original]
    label = (
        f"{figure(row['estimate'], 4)}, from {figure(row['low'], 4)} to {figure(row['high'], 4)}"
    )
    parts = [
        *mark,
        svg.line(at(row["low"]), 11, at(row["high"]), 11, "interval"),
        svg.line(at(row["low"]), 6, at(row["low"]), 16, "interval"),
        svg.line(at(row["high"]), 6, at(row["high"]), 16, "interval"),
        Markup('<circle class="estimate" cx="{}" cy="11" r="4"/>').format(
            svg.number(at(row["estimate"]))
        ),
    ]
    return svg.picture(200, 22, label, parts, "spark")
