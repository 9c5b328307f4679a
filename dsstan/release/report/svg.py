"""Parts of the pictures: axes, marks and colours. All text is escaped by markupsafe."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from markupsafe import Markup, escape

# Okabe and Ito's colours, told apart by the colour-blind; shape or dash says the same again.
BLUE, ORANGE, VERMILLION, DARK = "#0072B2", "#E69F00", "#D55E00", "#222222"
PALE = "#8a9aa5"

BEFORE, AFTER = ORANGE, BLUE
DASH = {BEFORE: "7 4", AFTER: ""}


def number(value: float) -> str:
    """A coordinate: two decimals are less than a pixel."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def points(xs: Iterable[float], ys: Iterable[float]) -> str:
    """A list of points of a line."""
    return " ".join(f"{number(x)},{number(y)}" for x, y in zip(xs, ys, strict=True))


def picture(width: float, height: float, label: str, parts: Sequence[Markup], name: str) -> Markup:
    """An SVG with its text alternative, as wide as its place."""
    return Markup(
        '<svg class="{}" viewBox="0 0 {} {}" role="img" aria-label="{}" '
        'preserveAspectRatio="xMidYMid meet">{}</svg>'
    ).format(name, number(width), number(height), label, Markup("\n").join(parts))


def text(x: float, y: float, words: str, *, anchor: str = "middle", turn: bool = False) -> Markup:
    """One line of text."""
    rotate = f' transform="rotate(-90 {number(x)} {number(y)})"' if turn else ""
    return Markup('<text x="{}" y="{}" text-anchor="{}"{}>{}</text>').format(
        number(x), number(y), anchor, Markup(rotate), words
    )


def line(x1: float, y1: float, x2: float, y2: float, name: str) -> Markup:
    """A straight line of a class that the style sheet knows."""
    return Markup('<line class="{}" x1="{}" y1="{}" x2="{}" y2="{}"/>').format(
        name, *(number(v) for v in (x1, y1, x2, y2))
    )


def titled(mark: Markup, words: str) -> Markup:
    """A mark that shows text when the reader points at it."""
    return Markup('<g class="place">{}<title>{}</title></g>').format(mark, escape(words))


def circle(x: float, y: float, radius: float) -> Markup:
    """A record that is not flagged."""
    return Markup('<circle class="record" cx="{}" cy="{}" r="{}"/>').format(
        number(x), number(y), number(radius)
    )


def triangle(x: float, y: float, radius: float) -> Markup:
    """A flagged record."""
    corners = points(
        [x, x + 0.9 * radius, x - 0.9 * radius],
        [y - radius, y + 0.7 * radius, y + 0.7 * radius],
    )
    return Markup('<polygon class="flagged" points="{}"/>').format(corners)


def ring(x: float, y: float, radius: float) -> Markup:
    """Around a record to look at."""
    return Markup('<circle class="ring" cx="{}" cy="{}" r="{}"/>').format(
        number(x), number(y), number(radius)
    )


def decades(low: float, high: float) -> list[float]:
    """Three to six ticks of a logarithmic axis, at round numbers.

    Examples
    --------
    >>> decades(1, 500)
    [1.0, 10.0, 100.0]
    >>> decades(0.02, 0.3)
    [0.03, 0.1, 0.3]
    >>> decades(0.03, 0.19)
    [0.03, 0.05, 0.1]
    >>> decades(0.57, 1.41)
    [0.6, 0.8, 1.0, 1.2, 1.4]
    """
    steps = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    every = max(1, len(steps) // 5)
    edge = 1e-9
    for choice in ((1,), (1, 3), (1, 2, 5), (1, 2, 3, 5), (1, 1.5, 2, 3, 4, 6)):
        ticks = [float(f"{m}e{e}") for e in steps if e % every == 0 for m in choice]
        inside = [t for t in ticks if low * (1 - edge) <= t <= high * (1 + edge)]
        if 3 <= len(inside) <= 6:
            return inside
    step = round_length((high - low) / 3)
    return [float(f"{step * k:.6g}") for k in range(math.ceil(low / step), int(high / step) + 1)]


def round_length(most: float) -> float:
    """The largest of 1, 2 and 5 times a power of ten that is not above a length.

    Examples
    --------
    >>> round_length(0.37), round_length(1200.0)
    (0.2, 1000.0)
    """
    power = 10.0 ** math.floor(math.log10(most))
    return float(f"{max(m for m in (1, 2, 5) if m * power <= most * (1 + 1e-9)) * power:.1g}")
