"""Numbers and labels as a reader wants them."""

from __future__ import annotations

import math
from typing import Any

NOTHING = "–"


def figure(value: float | None, digits: int = 3) -> str:
    """A number with some significant digits; a dash where there is none.

    Examples
    --------
    >>> figure(0.0234567), figure(123456.0), figure(None), figure(float("inf"))
    ('0.0235', '123,456', '–', 'no limit')
    """
    if value is None or math.isnan(value):
        return NOTHING
    if math.isinf(value):
        return "no limit" if value > 0 else "−no limit"
    size = abs(value)
    if size != 0 and not 1e-4 <= size < 1e9:
        return minus(f"{value:.{digits - 1}e}")
    whole = len(str(int(size))) if size >= 1 else 0
    if whole >= digits:
        return minus(f"{value:,.0f}")
    lead = 0 if size == 0 or size >= 1 else -math.floor(math.log10(size)) - 1
    return minus(f"{value:,.{digits - whole + lead if size else 0}f}")


def minus(text: str) -> str:
    """With a minus sign that is as wide as a figure."""
    return text.replace("-", "−")


def percent(share: float | None) -> str:
    """A share in per cent.

    Examples
    --------
    >>> percent(0.3934), percent(None)
    ('39.3%', '–')
    """
    return NOTHING if share is None or math.isnan(share) else f"{100 * share:.1f}%"


def between(low: float, high: float) -> str:
    """Two bounds, or one number where they read the same.

    Examples
    --------
    >>> between(0.021, 0.0494), between(0.3, 0.3)
    ('0.0210 to 0.0494', '0.300')
    """
    first, second = figure(low), figure(high)
    return first if first == second else f"{first} to {second}"


def exact(value: Any) -> str:
    """A value for the script that sorts: read back by it, it is the same number.

    Examples
    --------
    >>> exact(0.1), exact(float("inf")), exact(True), exact(3)
    ('0.1', 'Infinity', '1', '3')
    """
    number = float(value)
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    return "NaN" if math.isnan(number) else repr(number).removesuffix(".0")


def plural(count: int, one: str, many: str | None = None) -> str:
    """A count with its noun.

    Examples
    --------
    >>> plural(1, "copy", "copies"), plural(2000, "record")
    ('1 copy', '2,000 records')
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"
