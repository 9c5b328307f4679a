"""Python's side of ``latent.R``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from dsstan.covariance.base import Parameters
from dsstan.covariance.latent import LatentModel
from dsstan.models.predictive import carried_effect
from dsstan.models.result import Fit

from .cases import GAMMAS, PROTECTIONS, Case, case, restricted_fit
from .golden import Floats, Values


def values() -> Values:
    """Each quantity by its key."""
    out: dict[str, Callable[[], ArrayLike]] = {}
    for name in ("hand", "simulated", "baltimore"):
        c = case(name)
        for protection in PROTECTIONS:
            for gamma_name, gamma in GAMMAS.items():
                if name == "baltimore" and protection != "paper":
                    continue
                key = f"{protection}/{gamma_name}/{name}"
                for system in ("gstat", "fields"):
                    out[f"mean/{system}/{key}"] = partial(mean, c, protection, gamma)
                    out[f"places/{system}/{key}"] = partial(places, c, protection, gamma)
                out[f"variance/{key}"] = partial(variance, c, protection, gamma)
                if name == "hand":
                    out[f"covariance/{key}"] = partial(covariance, c, protection, gamma)
                out[f"copy/mean/{key}"] = partial(copy_mean, c, protection, gamma)
                out[f"copy/variance/{key}"] = partial(copy_variance, c, protection, gamma)
    c = case("hand")
    for cov_model in ("matern32", "matern52"):
        for protection in PROTECTIONS:
            for gamma_name, gamma in GAMMAS.items():
                key = f"{protection}/{gamma_name}"
                out[f"{cov_model}/mean/{key}"] = partial(mean, c, protection, gamma, cov_model)
                out[f"{cov_model}/places/{key}"] = partial(places, c, protection, gamma, cov_model)
    return out


def _model(
    c: Case, protection: str, gamma: float, cov_model: str = "exponential"
) -> tuple[Fit, LatentModel, Parameters]:
    p = c.off_nodes[0]
    fit = restricted_fit(c, protection, gamma, p, cov_model=cov_model)
    return fit, LatentModel(fit), p


def mean(c: Case, protection: str, gamma: float, cov_model: str = "exponential") -> Floats:
    """E[w | y] at the records."""
    _, model, p = _model(c, protection, gamma, cov_model)
    return model.mean(p)


def places(c: Case, protection: str, gamma: float, cov_model: str = "exponential") -> Floats:
    """E[w | y] at the case's places."""
    _, model, p = _model(c, protection, gamma, cov_model)
    assert c.places is not None
    return model.mean(p, c.places)


def covariance(c: Case, protection: str, gamma: float) -> Floats:
    """Cov[w | y] at the records."""
    _, model, p = _model(c, protection, gamma)
    return model.covariance(p)


def variance(c: Case, protection: str, gamma: float) -> Floats:
    """Var[w | y] at the records."""
    return np.diag(covariance(c, protection, gamma))


def copy_mean(c: Case, protection: str, gamma: float) -> Floats:
    """Mean of a synthetic value on the modelled scale."""
    fit, model, p = _model(c, protection, gamma)
    carried, _ = carried_effect(fit)
    return np.asarray(c.problem.X @ p.beta + carried * model.mean(p))


def copy_variance(c: Case, protection: str, gamma: float) -> Floats:
    """Variance of a synthetic value on the modelled scale."""
    fit, model, p = _model(c, protection, gamma)
    carried, _ = carried_effect(fit)
    return np.asarray(carried**2 * np.diag(model.covariance(p)) + p.tau_sq)
