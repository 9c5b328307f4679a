"""Python's side of ``truncated.R``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import norm, truncnorm

from dsstan.models.brackets.truncation import truncated_normal

from .cases import inputs
from .golden import Floats, Values


def values() -> Values:
    """Each quantity by its key."""
    out: dict[str, Callable[[], ArrayLike]] = {}
    for i in range(len(inputs("truncated")["mean"])):
        out[f"density/{i + 1}"] = partial(log_density, i)
        out[f"moments/{i + 1}"] = partial(moments, i)
        out[f"quantile/{i + 1}"] = partial(quantiles, i)
    return out


def _law(i: int) -> Any:
    own = inputs("truncated")
    mean, sd = own["mean"][i], own["sd"][i]
    low, high = ((float(own[end][i]) - mean) / sd for end in ("low", "high"))
    return truncnorm(low, high, loc=mean, scale=sd)


def quantiles(i: int) -> Floats:
    """Quantiles at the shares asked for, by the package's own function."""
    own = inputs("truncated")
    ends = (np.array(float(own[end][i])) for end in ("low", "high"))
    return truncated_normal(norm.ppf(own["share"]), own["mean"][i], own["sd"][i], *ends)


def log_density(i: int) -> Floats:
    """Log density at those quantiles."""
    return np.asarray(_law(i).logpdf(quantiles(i)))


def moments(i: int) -> Floats:
    """Mean and variance."""
    return np.array(_law(i).stats(moments="mv"))
