"""A plain basemap made from the extent of the data: a frame, a graticule, a scale bar and north.

It asks nothing of any network, and shows nothing that is not in the coordinates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dsstan.core.arrays import Floats
from dsstan.table.problem import Problem

_EDGE = 18.0
_LEAST = (0.35, 0.22)
"""Width and height of the frame, at least so much of the longer side: places on a line need one."""


@dataclass(frozen=True)
class Basemap:
    """Where places lie on a picture, and what is drawn beneath them.

    Attributes
    ----------
    at
        Position of each site, shape (S, 2).
    width, height
        Of the frame.
    lines
        Of the graticule: x1, y1, x2, y2, and its label with its position and anchor.
    bar
        Length of the scale bar and its words; None where all records are at one place.
    north
        Whether up is north.
    below
        What the axes are.
    """

    at: Floats
    width: float
    height: float
    lines: list[tuple[float, float, float, float, str, float, float, str]]
    bar: tuple[float, str] | None
    north: bool
    below: str


def basemap(problem: Problem, size: float = 460.0) -> Basemap:
    """The basemap of a table's sites, one scale on both axes.

    Parameters
    ----------
    problem
        The prepared table. Under ``distance="degrees"`` a degree of longitude is drawn as long
        as it is at the middle latitude.
    size
        Of the longer side.
    """
    places = problem.unique_sites
    stretch = np.ones(2)
    if problem.distance == "degrees":
        middle = 0.5 * (places[:, 1].min() + places[:, 1].max())
        stretch[0] = np.cos(np.deg2rad(middle))
    flat = places * stretch
    low, span = flat.min(axis=0), np.ptp(flat, axis=0)
    scale = size / float(max(span.max(), np.finfo(float).tiny))
    frame = np.maximum(span * scale, np.array(_LEAST) * size)
    shift = _EDGE + 0.5 * (frame - span * scale)
    width, height = (float(v) for v in frame + 2 * _EDGE)
    at = shift + (flat - low) * scale
    at[:, 1] = height - at[:, 1]  # SVG counts downwards
    if span.max() == 0:
        return Basemap(at, width, height, [], None, False, "all records are at one place")
    lines = []
    for axis in (0, 1):
        ends = low[axis] + (np.array([0.0, (width, height)[axis]]) - shift[axis]) / scale
        for value in _round_values(*(float(v) for v in ends / stretch[axis])):
            where = shift[axis] + (value * stretch[axis] - low[axis]) * scale
            words = _degrees(value, axis) if problem.distance == "degrees" else f"{value:,.6g}"
            if axis == 0:
                words = words if where < width - 70.0 else ""  # it would be cut there
                lines.append((where, 2.0, where, height - 2, words, where + 3, height - 6, "start"))
            else:
                down = height - where
                lines.append((2.0, down, width - 2, down, words, 6.0, down - 3, "start"))
    length = round_length(0.4 * frame[0] / scale / stretch[0])
    bar = float(length * stretch[0] * scale), f"{length:g} {problem.unit}"
    names = [str(name)[:24] for name in problem.coord_names]
    axes = {
        "degrees": "longitude and latitude",
        "projected": "kilometres east and north",
    }
    below = axes.get(problem.distance, f"{names[0]} to the right, {names[1]} up")
    return Basemap(at, width, height, lines, bar, problem.distance in axes, below)


def _round_values(low: float, high: float) -> list[float]:
    """About four round values between two, none at the very ends."""
    from mizani.breaks import breaks_extended

    room = 0.03 * (high - low)
    return [float(v) for v in breaks_extended(n=4)((low, high)) if low + room < v < high - room]


def _degrees(value: float, axis: int) -> str:
    """A longitude (axis 0) or latitude.

    Examples
    --------
    >>> _degrees(-122.45, 0), _degrees(37.75, 1)
    ('122.45° W', '37.75° N')
    """
    side = ("EW", "NS")[axis][value < 0]
    return f"{abs(value):.8g}° {side}"


def round_length(most: float) -> float:
    """The largest of 1, 2 and 5 times a power of ten that is not above a length.

    Examples
    --------
    >>> round_length(0.37), round_length(1200.0)
    (0.2, 1000.0)
    """
    power = 10.0 ** math.floor(math.log10(most))
    return float(f"{max(m for m in (1, 2, 5) if m * power <= most * (1 + 1e-9)) * power:.1g}")
