"""Python's side of ``regression.R``."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache, partial

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from dsstan.analysis.combining import combine
from dsstan.analysis.utility import ols, utility
from dsstan.copies.result import Synthesis
from dsstan.core.errors import DsstanWarning
from dsstan.models.priors import Priors

from .cases import case, inputs, restricted_fit
from .golden import Floats, Values


def values() -> Values:
    """Each quantity by its key."""
    p = case("baltimore").problem
    out: dict[str, Callable[[], ArrayLike]] = {
        "design": lambda: p.X,
        "ols/estimate": lambda: ols(p.X, p.y)[0],
        "ols/variance": lambda: ols(p.X, p.y)[1],
        "ols/interval": lambda: table(5, "original")[["low", "high"]].to_numpy(),
        "ols/scale": _default_scales,
    }
    for number in range(len(inputs("regression")["copies"])):
        out[f"copy/{number + 1}"] = partial(copy_fit, number)
    for copies in (2, 5):
        out |= _of_copies(copies)
    for term in range(3):
        out[f"scalar/{term + 1}"] = partial(scalar, term)
    return out


def _of_copies(copies: int) -> dict[str, Callable[[], ArrayLike]]:
    pooled = partial(table, copies, "restricted")
    return {
        f"syn/{copies}/estimate": lambda: pooled()["estimate"].to_numpy(),
        f"syn/{copies}/variance": lambda: pooled()["se"].to_numpy() ** 2,
        f"syn/{copies}/df": lambda: pooled()["df"].to_numpy(),
        f"syn/{copies}/interval": lambda: pooled()[["low", "high"]].to_numpy(),
    }


def _default_scales() -> tuple[float, float]:
    p = case("baltimore").problem
    resolved = Priors().resolve(p.y, p.X, p.d_max)
    return resolved.sigma[0], resolved.tau[0]


@cache
def table(copies: int, source: str) -> pd.DataFrame:
    """The rows of one source in the utility table of so many copies."""
    c = case("baltimore")
    own = inputs("regression")
    release = Synthesis(
        fit=restricted_fit(c, "paper", np.inf, c.off_nodes[0]),
        values=np.array(own["copies"][:copies], dtype=np.float64),
        effect="w",
        draw_index=np.zeros((copies, 2), dtype=np.intp),
        seed=1,
        seconds=0.0,
    )
    with warnings.catch_warnings():
        # Two copies that differ much: that they cover too little isn't the matter here.
        warnings.simplefilter("ignore", DsstanWarning)
        whole = utility(release, level=own["level"]).table
    rows: pd.DataFrame = whole[whole["source"] == source]
    return rows


def copy_fit(number: int) -> Floats:
    """Least squares estimates and squared standard errors of one copy."""
    p = case("baltimore").problem
    y = np.log(np.array(inputs("regression")["copies"][number]))
    return np.concatenate(ols(p.X, y))


def scalar(term: int) -> Floats:
    """The pooled estimate, T, df and interval of one term given by hand."""
    own = inputs("regression")
    pooled = combine(own["estimates"], own["variances"], level=own["level"])
    parts = (pooled.estimate, pooled.variance, pooled.df, pooled.low, pooled.high)
    return np.array([part[term] for part in parts])
