"""Python's side of ``multivariate.R`` and of ``multivariate_jags.R``.

Stan's log density has the Jacobians of its own parameters in it; they are taken away by formula.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import numpy as np
import pandas as pd

from dsstan.covariance.correlation import CORRELATIONS, correlation_code
from dsstan.engines import EmbeddedEngine
from dsstan.engines.programs import Program
from dsstan.models.groups.fit import fit_multivariate
from dsstan.models.groups.result import MultivariateFit
from dsstan.models.priors import Priors
from dsstan.models.weights import Weights, own_weights, smoothing
from dsstan.table.prepare import prepare
from dsstan.table.problem import Problem

from .cases import GAMMAS, PROTECTIONS, inputs
from .golden import Floats, Values

NUMBERS = {"paper": 1, "preserving": 2, "cut": 3}


@cache
def problem() -> Problem:
    """The records of the twins."""
    own = inputs("multivariate")
    table = pd.DataFrame(own["columns"])
    return prepare(table, own["formula"], coords=tuple(own["coords"]), name="three groups")


def flags() -> Weights:
    """The records that the twins flag."""
    a = np.zeros(problem().n_records)
    a[inputs("multivariate")["flagged"]] = 1.0
    return own_weights(problem(), a)


def prior_settings() -> Priors:
    """The priors of the twins."""
    own = inputs("multivariate")["priors"]
    return Priors(
        beta_scale=own["beta_scale"],
        sigma=own["sigma"],
        tau=own["tau"],
        phi_bounds=tuple(own["phi_bounds"]),
        r_bounds=tuple(own["r_bounds"]),
    )


def values() -> Values:
    """Each quantity by its key."""
    free = {f"free/{name}": partial(log_density, 0.0, "paper", name) for name in CORRELATIONS}
    held = {
        f"held/{protection}/{name}": partial(log_density, gamma, protection, None)
        for name, gamma in GAMMAS.items()
        for protection in PROTECTIONS
    }
    return {**free, **held}


def log_density(gamma: float, protection: str, free: str | None) -> Floats:
    """Log density at every point; phi is free where its correlation function is named."""
    own = inputs("multivariate")
    A = smoothing(gamma, flags().a) if free is None else np.ones(problem().n_records)
    return np.array([_at(point, A, protection, free) for point in own["points"]])


def _at(point: dict[str, Any], A: Floats, protection: str, free: str | None) -> float:
    own = inputs("multivariate")["priors"]
    p = problem()
    resolved = prior_settings().resolve(p.y, p.X, p.d_max)
    sigma, tau = np.array(point["sigma"]), np.array(point["tau"])
    low, high = own["phi_bounds"] if free else (point["phi"], point["phi"])
    data = {
        "N": p.n_records,
        "P": p.n_terms,
        "n_groups": 3,
        "X": p.X,
        "y": p.y,
        "coords": p.sites,
        "group": p.table["group"].to_numpy() + 1,
        "A": A,
        "protection": NUMBERS[protection],
        "cov_model": correlation_code(free or "exponential"),
        "phi_lower": low,
        "phi_upper": high,
        "phi_rate": 0.0,
        **resolved.stan_data(),
        "group_scale": own["group_scale"],
        "lkj_eta": own["lkj_eta"],
    }
    root, angle = np.hypot(sigma, tau), np.arctan2(sigma, tau)
    ends = np.arctan(1 / np.sqrt(np.array(own["r_bounds"][::-1])))
    z = np.array(point["partial"])
    rest = np.sqrt(1 - z**2)
    L = [[1, 0, 0], [z[0], rest[0], 0], [z[1], rest[1] * z[2], rest[1] * rest[2]]]
    given = {"root": root, "angle": angle, "L": np.array(L, dtype=float)}
    given["phi_free"] = [point["phi"]] if free else []
    (got,) = EmbeddedEngine().log_density(Program("multivariate"), data, [given])
    jacobian = np.sum(np.log(root)) + np.sum(
        np.log(angle - ends[0]) + np.log(ends[1] - angle) - np.log(ends[1] - ends[0])
    )
    # From (root, angle) to the two variances.
    jacobian += np.sum(np.log(4 * sigma * tau * root))
    # From the unconstrained reals by tanh to partial correlations, and on to the correlation.
    jacobian += np.sum(np.log(1 - z**2)) + 0.5 * np.sum(np.log(1 - z[:2] ** 2))
    if free:
        phi = point["phi"]
        jacobian += np.log(phi - low) + np.log(high - phi) - np.log(high - low)
    return float(got - jacobian)


@cache
def fitted(model: str, samples: int = 300, engine: str = "direct") -> MultivariateFit:
    """The fit beside the JAGS run of that name."""
    own = inputs("multivariate")
    settings: dict[str, Any] = {
        "priors": prior_settings(),
        "group_scale": own["priors"]["group_scale"],
        "lkj_eta": own["priors"]["lkj_eta"],
        "engine": engine,
        "warmup": 250,
        "samples": samples,
        "progress": False,
    }
    if model == "unrestricted":
        return fit_multivariate(problem(), "group", seed=1, **settings)
    return fit_multivariate(
        problem(), "group", weights=flags(), phi=own["held"], seed=2, **settings
    )
