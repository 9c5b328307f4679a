"""Python's side of ``survey.R``."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from dsstan.analysis.survey import weighted_mean, weighted_regression, weighted_total

from .cases import inputs
from .golden import Floats, Values

ESTIMATORS = {"mean": weighted_mean, "total": weighted_total}


def values() -> Values:
    """Each quantity by its key."""
    out: dict[str, Callable[[], ArrayLike]] = {
        "regression/estimate": lambda: regression()[0],
        "regression/covariance": lambda: regression()[1],
    }
    for name in ESTIMATORS:
        out[f"{name}/all"] = partial(whole, name)
        out[f"{name}/groups"] = partial(groups, name)
        out[f"{name}/covariance"] = partial(covariance, name)
    return out


@cache
def table() -> pd.DataFrame:
    """The Baltimore houses with weights and groups."""
    return pd.DataFrame(inputs("cases")["baltimore"]["columns"]).assign(**inputs("survey"))


def regression() -> tuple[Floats, Floats]:
    """Coefficients and their covariance."""
    q, u = weighted_regression(inputs("cases")["baltimore"]["formula"], "weight")(table())
    return q.to_numpy(), u


def whole(name: str) -> Floats:
    """Estimate and variance of all records."""
    q, u = ESTIMATORS[name]("price", "weight")(table())
    return np.array([q["all"], u[0, 0]])


def groups(name: str) -> Floats:
    """Estimates of the groups."""
    return np.asarray(ESTIMATORS[name]("price", "weight", by="group")(table())[0])


def covariance(name: str) -> Floats:
    """Covariance of the estimates of the groups."""
    return ESTIMATORS[name]("price", "weight", by="group")(table())[1]
