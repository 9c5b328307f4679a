"""Axes of the report's pictures: where a value lies, and the ticks in the reader's units."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dsstan.core.arrays import Floats
from dsstan.table.formulas.parsing import ResponseTransform

LOG = ResponseTransform("log")
EVEN = ResponseTransform("identity")

_LOGS = ("log", "log2", "log10")


def plain(value: float) -> str:
    """A tick in the column's own units.

    Examples
    --------
    >>> plain(1e6), plain(0.25), plain(-3.0)
    ('1,000,000', '0.25', '−3')
    """
    return f"{value:,.10g}".replace("-", "−")


def share(value: float) -> str:
    """A tick that is a share, in per cent.

    Examples
    --------
    >>> share(0.125), share(2.0)
    ('12.5%', '200%')
    """
    return f"{100 * value:,.4g}%"


@dataclass(frozen=True)
class Axis:
    """One axis, from ``low`` to ``high`` on the reader's scale.

    Attributes
    ----------
    low, high
        Its ends.
    words
        What stands beside it.
    scale
        How values are spread along it: evenly after this transform.
    label
        A tick in words; None for an axis without ticks.
    """

    low: float
    high: float
    words: str
    scale: ResponseTransform = EVEN
    label: Callable[[float], str] | None = plain

    def at(self, values: Any) -> Floats:
        """Where values lie, 0 at the low end and 1 at the high one."""
        ends = self.scale.forward(np.array([self.low, self.high]))
        span = float(ends[1] - ends[0]) or 1.0
        return np.asarray((self.scale.forward(np.asarray(values, float)) - ends[0]) / span)

    def ticks(self) -> list[float]:
        """Round values between the ends."""
        from mizani.breaks import breaks_extended, breaks_log

        if self.label is None:
            return []
        logs = self.scale.name in _LOGS and self.low > 0 and self.high / self.low > 3.0
        found = (breaks_log(n=4) if logs else breaks_extended(n=4))((self.low, self.high))
        slack = 1e-9 * (self.high - self.low)
        return [float(t) for t in found if self.low - slack <= t <= self.high + slack]


@dataclass(frozen=True)
class Axes:
    """Two axes and the size of their picture."""

    x: Axis
    y: Axis
    width: float = 400.0
    height: float = 270.0
    left: float = 76.0
    top: float = 12.0
    foot: float = 50.0
    right: float = 20.0

    def place(self, x: Any, y: Any) -> list[tuple[float, float]]:
        """Positions on the picture."""
        across = self.left + self.x.at(x) * (self.width - self.left - self.right)
        down = self.top + (1.0 - self.y.at(y)) * (self.height - self.top - self.foot)
        return list(zip(*map(np.atleast_1d, np.broadcast_arrays(across, down)), strict=True))

    def ticks(self, axis: int) -> list[tuple[float, str]]:
        """Where an axis, 0 for x and 1 for y, has its ticks, and their labels."""
        own = (self.x, self.y)[axis]
        places = [(t, self.y.low) if axis == 0 else (self.x.low, t) for t in own.ticks()]
        label = own.label or plain
        return [
            (self.place(*p)[0][axis], label(t)) for p, t in zip(places, own.ticks(), strict=True)
        ]

    def line(self, name: str, x: tuple[float, float], y: tuple[float, float]) -> Any:
        """A straight line of a class that the style sheet knows."""
        return name, *self.place(x[0], y[0])[0], *self.place(x[1], y[1])[0]


def around(*values: Any, by: float = 0.05, scale: ResponseTransform = EVEN) -> tuple[float, float]:
    """Ends of an axis that holds all finite values, with some room on both sides.

    Raises ValueError if none is finite on the axis.
    """
    spread = scale.forward(np.concatenate([np.ravel(np.asarray(v, float)) for v in values]))
    spread = spread[np.isfinite(spread)]
    if spread.size == 0:
        raise ValueError("nothing to draw")
    room = by * float(np.ptp(spread)) or 0.5 * max(abs(float(spread[0])), 1.0) * by
    low, high = scale.inverse(np.array([spread.min() - room, spread.max() + room]))
    return float(low), float(high)
