"""Python's side of ``bracketed.R``: the program, and its normalising constant."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dsstan.covariance.correlation import CORRELATIONS
from dsstan.models.brackets.limits import find_brackets
from dsstan.models.brackets.truncated import bracketed_data
from dsstan.models.weights import smoothing

from .cases import GAMMAS, case, inputs, stan_function
from .density import log_density, prior_settings
from .golden import Floats, Values

SMOOTHNESS = dict(zip(("0.5", "1.5", "2.5"), CORRELATIONS, strict=True))


def values() -> Values:
    """Each quantity by its key."""
    out: dict[str, Callable[[], ArrayLike]] = {}
    for name, gamma in GAMMAS.items():
        for nu, cov_model in SMOOTHNESS.items():
            out[f"held/{name}/{nu}"] = partial(held, gamma, cov_model)
        out[f"free/{name}"] = partial(free, gamma)
    for i in range(len(inputs("bracketed")["tails"]["mean"])):
        out[f"mass/{i + 1}"] = partial(mass, i)
    return out


def _data(gamma: float, phi: float | None, cov_model: str) -> dict[str, Any]:
    c = case("hand")
    kept = find_brackets(c.problem, inputs("bracketed")["cuts"])
    return bracketed_data(c.problem, kept, smoothing(gamma, c.a), prior_settings(c), phi, cov_model)


def held(gamma: float, cov_model: str) -> Floats:
    """Phi held at each point's own."""
    c = case("hand")
    extra = {"z": inputs("bracketed")["z"], "phi_free": []}
    found = [
        log_density(
            "bracketed", _data(gamma, p.phi, cov_model), [p], prior_settings(c), None, extra
        )
        for p in c.off_nodes
    ]
    return np.concatenate(found)


def free(gamma: float) -> Floats:
    """Phi free, at the points that the twin takes."""
    c = case("hand")
    extra = {"z": inputs("bracketed")["z"]}
    data = _data(gamma, None, "exponential")
    return log_density("bracketed", data, c.off_nodes[1:3], prior_settings(c), "phi_free", extra)


def mass(i: int) -> Floats:
    """Stan's log probability of one bracket."""
    own = inputs("bracketed")["tails"]
    low, high = float(own["low"][i]), float(own["high"][i])
    kind = ("below", "above", "between")[
        0 if not np.isfinite(low) else 1 if not np.isfinite(high) else 2
    ]
    numbers = {each: np.zeros(0, dtype=int) for each in ("below", "above", "between")}
    return stan_function(
        "bracket_log_mass",
        mu=np.array([own["mean"][i]]),
        tau=own["sd"][i],
        low=np.array([low if np.isfinite(low) else 0.0]),
        high=np.array([high if np.isfinite(high) else 0.0]),
        **{**numbers, kind: np.ones(1, dtype=int)},
    )
