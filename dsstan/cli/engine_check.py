"""Whether two ways to one posterior agree on this machine: direct draws and the embedded sampler.

They share the likelihood surface and nothing after it, neither code nor random numbers. Means and
quantiles of every parameter are compared within their Monte Carlo errors.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from dsstan.core.arrays import Floats
from dsstan.core.errors import DsstanWarning, EngineError
from dsstan.engines import EmbeddedEngine
from dsstan.models.fit import fit
from dsstan.models.result import Fit
from dsstan.table.datasets import load_simulated
from dsstan.table.prepare import prepare

FALSE_ALARM = 1e-5
"""Chance that engines which draw from one posterior are said to disagree."""

RECORDS = 60
"""Of the simulated town: enough for a posterior of the usual shape, few enough for seconds."""

QUANTILES = (0.025, 0.5, 0.975)


@dataclass(frozen=True)
class EngineAgreement:
    """How far the two engines' answers lie apart.

    Attributes
    ----------
    differences
        Absolute difference of each compared number over the standard error of the difference,
        the Monte Carlo errors of both sides included.
    limit
        What none may reach: that of a normal deviate at ``FALSE_ALARM`` for all together.
    seconds
        How long the check took.
    """

    differences: Mapping[str, float]
    limit: float
    seconds: float

    @property
    def worst(self) -> str:
        """The number that differs most."""
        return max(self.differences, key=lambda name: self.differences[name])

    @property
    def agree(self) -> bool:
        """Whether all differences are below the limit."""
        return all(z < self.limit for z in self.differences.values())

    def __str__(self) -> str:
        return (
            f"{len(self.differences)} means and quantiles, furthest apart by "
            f"{self.differences[self.worst]:.1f} standard errors ({self.worst}; limit "
            f"{self.limit:.1f}, passed by chance once in {1 / FALSE_ALARM:,.0f} checks), "
            f"{self.seconds:.0f} seconds"
        )

    def as_json(self) -> dict[str, Any]:
        """For the document of the command."""
        return {
            "agree": self.agree,
            "compared": len(self.differences),
            "worst": self.worst,
            "standard_errors": self.differences[self.worst],
            "limit": self.limit,
            "false_alarm": FALSE_ALARM,
            "seconds": self.seconds,
        }


def check_engines(seed: int = 1) -> EngineAgreement:
    """Fit one small table with both engines and compare.

    Raises
    ------
    EngineError
        If the embedded engine is not installed or can't run.
    """
    missing = EmbeddedEngine.missing()
    if missing is not None:
        raise EngineError(f"the engines can't be compared: {missing}")
    began = time.monotonic()
    town = prepare(load_simulated().iloc[:RECORDS], "log(income) ~ 1", coords=("s1", "s2"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DsstanWarning)  # nothing is released from these draws
        direct, stan = (
            fit(town, engine=engine, warmup=500, seed=seed + number, progress=False)
            for number, engine in enumerate(("direct", "embedded"))
        )
    return compared(direct, stan, began)


def compared(first: Fit, second: Fit, began: float) -> EngineAgreement:
    """Two fits of one posterior, side by side; ``began`` on the monotonic clock."""
    one, other = _estimates(first), _estimates(second)
    differences = {
        name: abs(value - other[name][0]) / float(np.hypot(error, other[name][1]))
        for name, (value, error) in one.items()
    }
    limit = float(stats.norm.isf(FALSE_ALARM / (2 * len(differences))))
    return EngineAgreement(differences, limit, time.monotonic() - began)


def _estimates(fitted: Fit) -> dict[str, tuple[float, float]]:
    """Mean and quantiles of every parameter, each with its Monte Carlo standard error."""
    from arviz_stats.base import array_stats  # a second to import

    draws: dict[str, Floats] = {
        name: np.log(fitted.draws[name]) for name in ("sigma_sq", "tau_sq", "phi")
    }
    for column, term in enumerate(fitted.problem.terms):
        draws[term] = fitted.draws["beta"][:, :, column]
    axes = {"chain_axis": 0, "draw_axis": 1}
    found = {}
    for name, d in draws.items():
        error = array_stats.mcse(d, **axes, method="mean")
        found[f"mean of {name}"] = (float(d.mean()), float(error))
        for p in QUANTILES:
            error = array_stats.mcse(d, **axes, method="quantile", prob=p)
            found[f"{p:.1%} quantile of {name}"] = (float(np.quantile(d, p)), float(error))
    return found
