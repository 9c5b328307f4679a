"""Natural cubic splines for formulas, with the knots of R's ``splines::ns``."""

from __future__ import annotations

from typing import Any

import numpy as np
from formulaic.transforms.cubic_spline import natural_cubic_spline
from formulaic.utils.stateful_transforms import stateful_transform

__all__ = ["ns"]


def _ns(
    x: Any,
    df: int | None = None,
    knots: Any = None,
    lower_bound: float | None = None,
    upper_bound: float | None = None,
    *,
    _state: dict[str, Any],
) -> Any:
    """Natural cubic spline: a line beyond the outer knots, ``df`` columns beside the intercept.

    The columns span what those of ``splines::ns(x, df, knots, Boundary.knots)`` in R do, and so
    give the same fitted values; their coefficients differ.

    Parameters
    ----------
    x
        A column, shape (N,).
    df
        Number of columns, 1 or more: ``df - 1`` inner knots at quantiles of x.
    knots
        The inner knots themselves.
    lower_bound, upper_bound
        The outer knots, by default the range of x.
    """
    if df is not None and knots is None and "knots" not in _state:
        values = np.asarray(x, dtype=np.float64)
        low = values.min() if lower_bound is None else lower_bound
        high = values.max() if upper_bound is None else upper_bound
        inside = values[(values >= low) & (values <= high)]
        knots, df = np.quantile(inside, np.linspace(0.0, 1.0, df + 1)[1:-1]), None
    bounds = {"lower_bound": lower_bound, "upper_bound": upper_bound}
    return natural_cubic_spline(
        x, df=df, knots=knots, **bounds, constraints="center", extrapolation="extend", _state=_state
    )


ns: Any = stateful_transform(_ns)
"""The same for formulas; formulaic keeps its knots for other tables."""
