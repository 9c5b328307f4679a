"""Lines of the screens: their style, and text that ends between words."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

LINES, WIDTH = 20, 80
"""Lines of the screen, and characters of a line; paths are as long as they are."""


@dataclass(frozen=True)
class ScreenLine:
    """One line, and the colour it has in a terminal."""

    text: str
    style: str | None = None


def table_lines(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of cells as lines: the first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows
    ]


def wrapped(
    text: str, style: str | None = None, *, width: int = WIDTH, indent: int = 0
) -> list[ScreenLine]:
    """Text in lines that end between words, all but the first indented; none without text."""
    parts = textwrap.wrap(
        text,
        width,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [ScreenLine(part, style) for part in parts]


def clipped(text: str) -> str:
    """Text that is cut where it is longer than a line."""
    return text if len(text) <= WIDTH else text[: WIDTH - 4].rstrip() + " ..."
