"""Python's side of ``panel.R``."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.optimize import minimize_scalar

from dsstan.covariance.approximations import EXACT
from dsstan.covariance.base import SpatialModel
from dsstan.covariance.most_likely import most_likely
from dsstan.covariance.surface_statistics import best_at, response_log_density
from dsstan.table.prepare import prepare

from .cases import inputs
from .golden import Floats, Values

APART = 1e6
"""A decay so large that different places, or times, are unrelated."""


def values() -> Values:
    """Each quantity by its key."""
    given = inputs("panel")
    c, q, phi, r = (float(given[name]) for name in ("c", "q", "phi", "r"))
    laws = {"group": (APART, APART, q), "time": (APART, c, 0.0), "space": (phi, APART, 0.0)}
    out: dict[str, Callable[[], ArrayLike]] = {"response/all": partial(densities, given["points"])}
    for name, law in laws.items():
        out[f"profile/{name}"] = partial(profile, *law, r)
        out[f"beta/{name}"] = partial(coefficients, *law, r)
    out["highest/time"] = highest_of_time
    out["highest/group"] = partial(highest_of_groups, r)
    return out


@cache
def model(time_decay: float | None, group_share: float | None) -> SpatialModel:
    """The table with these values held; None is to be found."""
    table = pd.DataFrame(inputs("panel")["columns"])
    problem = prepare(table, "y ~ x + (1 | zip)", coords=("a", "b"), time="year")
    return SpatialModel(
        problem=problem,
        A=np.ones(problem.n_records),
        covariance=EXACT,
        time_decay=time_decay,
        group_share=group_share,
    )


def statistics(phi: float, c: float, q: float, r: float) -> tuple[Any, Floats]:
    """The source of the surface and its statistics at one point."""
    source = EXACT.statistics(model(c, q))
    (s,) = source.at(np.array([phi]), np.array([r]))
    return source.rotation, s[0]


def densities(points: list[dict[str, float]]) -> list[float]:
    """The response's log density at each point."""
    out = []
    for p in points:
        rotation, s = statistics(p["phi"], p["c"], p["q"], p["r"])
        u = rotation.T @ (rotation.b - np.array([2.0, 0.5]))
        out.append(response_log_density(s, u, len(rotation.Z), p["sigma_sq"], p["r"]))
    return out


def profile(phi: float, c: float, q: float, r: float) -> float:
    """The log density at the best coefficients and sigma_sq."""
    rotation, s = statistics(phi, c, q, r)
    u, sigma_sq = best_at(s, len(rotation.Z), r)
    return response_log_density(s, u, len(rotation.Z), sigma_sq, r)


def coefficients(phi: float, c: float, q: float, r: float) -> Floats:
    """The best coefficients."""
    rotation, s = statistics(phi, c, q, r)
    u, _ = best_at(s, len(rotation.Z), r)
    return np.asarray(rotation.b - np.linalg.solve(rotation.T, u))


def highest_of_time() -> float:
    """The likelihood at the most likely decay in time, at the best r."""
    c = most_likely(model(None, 0.0), (APART, APART), (1e-4, 1e4)).time_decay
    assert c is not None
    found = minimize_scalar(
        lambda log_r: -profile(APART, c, 0.0, float(np.exp(log_r))),
        bounds=(-9.0, 9.0),
        method="bounded",
        options={"xatol": 1e-9},
    )
    return -float(found.fun)


def highest_of_groups(r: float) -> float:
    """The likelihood at the most likely share of the groups."""
    q = most_likely(model(APART, None), (APART, APART), (r, r)).group_share
    assert q is not None
    return profile(APART, APART, q, r)
