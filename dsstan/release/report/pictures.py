"""The report's pictures: the map, sd against L, before against after, intervals.

Here it is decided what is drawn, and where; ``templates/pictures.html`` writes it as SVG.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from dsstan.core.arrays import Floats
from dsstan.release.report.records import facts, pictured
from dsstan.release.report.rendering import pictures
from dsstan.release.report.words import figure

if TYPE_CHECKING:
    from dsstan.risk.assessment import Assessment
    from dsstan.table.problem import Problem

Mark = tuple[float, float, float, bool, str]
"""A record or place: x, y, size, whether it is flagged, and what pointing at it shows."""

SHOWN = 4
"""Records at one place whose numbers the map shows."""
MOST = 500
"""Largest L of the picture."""


def site_map(problem: Problem, records: pd.DataFrame, ringed: int | None) -> Any:
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
    size, edge = 460.0, 18.0
    scale = size / float(max(span.max(), np.finfo(float).tiny))
    frame = np.maximum(span * scale, [0.35 * size, 0.12 * size])
    at = edge + 0.5 * (frame - span * scale) + (flat - low) * scale
    at[:, 1] = frame[1] + 2 * edge - at[:, 1]  # SVG counts downwards
    shown = pictured(records)
    drawn = np.unique(problem.site_index[shown["row"]]).size
    radius = float(np.clip(70.0 / np.sqrt(drawn), 2.2, 4.5))
    marks = _marks(problem, shown, at, radius)
    bar = None
    if span.max() > 0:
        length = round_length(0.4 * frame[0] / scale / stretch[0])
        bar = length * stretch[0] * scale, f"{length:g} {problem.unit}"
    below = "north is up"
    if problem.distance == "planar":
        below = f"{problem.coord_names[0]} to the right, {problem.coord_names[1]} up"[:60]
    flagged = int(records["flagged"].sum())
    label = (
        f"Map of {problem.n_records} records at {problem.n_sites} places; {flagged} flagged "
        f"records are triangles, the others circles. {drawn_of(records)} The table "
        "of worst records has the numbers."
    ).replace("  ", " ")
    ring = None if ringed is None else (*at[problem.site_index[ringed]], radius + 7.0)
    size_of = (*(frame + 2 * edge), 40.0, edge)
    return pictures().map(*size_of, label, marks, ring, bar, below)


def _marks(problem: Problem, records: pd.DataFrame, at: Floats, radius: float) -> list[Mark]:
    """One mark a place: circles first, so that no triangle is hidden."""
    texts: dict[int, list[str]] = {}
    count = np.bincount(problem.site_index, minlength=len(at))
    for row in records.sort_values("sd_after", kind="stable").to_dict("records"):
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


@dataclass(frozen=True)
class Axes:
    """Two logarithmic axes, from the first to the second of two numbers each."""

    x: tuple[float, float]
    y: tuple[float, float]
    words: tuple[str, str]
    width: float = 400.0
    height: float = 270.0
    left: float = 76.0
    top: float = 12.0
    foot: float = 50.0
    right: float = 20.0

    def place(self, x: Any, y: Any) -> list[tuple[float, float]]:
        """Positions on the picture."""
        inside = (self.width - self.left - self.right, self.height - self.top - self.foot)
        u = np.log(np.asarray(x) / self.x[0]) / np.log(self.x[1] / self.x[0])
        v = np.log(np.asarray(y) / self.y[0]) / np.log(self.y[1] / self.y[0])
        across, down = self.left + u * inside[0], self.top + (1.0 - v) * inside[1]
        return list(zip(*map(np.atleast_1d, np.broadcast_arrays(across, down)), strict=True))

    def ticks(self, axis: int) -> list[tuple[float, str]]:
        """Where an axis, 0 for x and 1 for y, has its ticks, and their labels."""
        from mizani.breaks import breaks_log

        ends = (self.x, self.y)[axis]
        inside = [t for t in breaks_log(n=5)(ends) if ends[0] <= t * (1 + 1e-9) <= ends[1]]
        places = [(t, self.y[0]) if axis == 0 else (self.x[0], t) for t in inside]
        return [(self.place(*p)[0][axis], f"{t:g}") for p, t in zip(places, inside, strict=True)]

    def line(self, name: str, x: tuple[float, float], y: tuple[float, float]) -> Any:
        """A straight line of a class that the style sheet knows."""
        return name, *self.place(x[0], y[0])[0], *self.place(x[1], y[1])[0]


def release_size(found: Assessment) -> dict[str, Any]:
    """The smallest sd left against L, one picture a group of records."""
    counts = sorted({int(c) for c in np.round(np.geomspace(1, MOST, 30))} | {found.release.copies})
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


def _size_panel(found: Assessment, table: pd.DataFrame, axes: Axes, group: str) -> Any:
    """One group: a band from known to untold variances for each fit."""
    last = "unrestricted" if found.before is None else "restricted"  # what the release is from
    bands, words = [], []
    for name, rows in table.groupby("fit", sort=False):
        when = "after" if name == last else "before"
        bands.append((when, *(axes.place(rows["copies"], rows[b]) for b in ("known", "fixed"))))
        first, final = float(rows["known"].iloc[0]), float(rows["known"].iloc[-1])
        words.append(f"{when} protection from {figure(first)} to {figure(final)}")
    planned = float(found.release.copies)
    lines = [axes.line("planned", (planned, planned), axes.y)]
    if found.floor is not None:
        lines.append(axes.line("floor", axes.x, (found.floor, found.floor)))
    label = (
        f"Smallest sd left to the intruder, {group} records, from 1 copy to {int(axes.x[1])}, "
        f"variances known to them: {'; '.join(words)}."
    )
    return pictures().chart(axes, label, bands, lines)


def before_after(records: pd.DataFrame, unit: str) -> Any:
    """Sd left before protection against after it; below the diagonal the risk rose."""
    if records["sd_before"].isna().any():
        return None
    rose = int(np.sum(records["sd_after"] < records["sd_before"]))
    every, left_out = len(records), drawn_of(records)
    records = pictured(records).sort_values("flagged", kind="stable")
    both = records[["sd_before", "sd_after"]].to_numpy()
    ends = float(both.min()) / 1.15, float(both.max()) * 1.15
    axes = Axes(ends, ends, ("sd left before protection", "sd left after"), height=360)
    marks = [
        (*at, 6.5 if row["flagged"] else 3.0, row["flagged"], facts(row, unit))
        for at, row in zip(axes.place(*both.T), records.to_dict("records"), strict=True)
    ]
    label = (
        f"Sd left to the intruder after protection against before it, {every} records; "
        f"{rose} lie below the diagonal, where it is smaller after protection. {left_out}"
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


def round_length(most: float) -> float:
    """The largest of 1, 2 and 5 times a power of ten that is not above a length.

    Examples
    --------
    >>> round_length(0.37), round_length(1200.0)
    (0.2, 1000.0)
    """
    power = 10.0 ** math.floor(math.log10(most))
    return float(f"{max(m for m in (1, 2, 5) if m * power <= most * (1 + 1e-9)) * power:.1g}")
