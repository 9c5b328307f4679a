"""Python's side of ``correlation.R``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial.distance import cdist

from dsstan.covariance.correlation import correlation, correlation_distance
from dsstan.covariance.latent import LatentModel
from dsstan.covariance.likelihood_surface import smoothed_correlation
from dsstan.models.weights import smoothing

from .cases import GAMMAS, PROTECTIONS, Case, case, restricted_fit, stan_function
from .density import response
from .golden import Floats, Values


def values() -> Values:
    """Each quantity by its key."""
    c = case("hand")
    phi = c.off_nodes[0].phi
    d = cdist(c.problem.sites, c.problem.sites)
    out: dict[str, Callable[[], ArrayLike]] = {
        "exponential/fields": lambda: stan_function("exponential_correlation", d=d, phi=phi),
        "exponential/gstat": lambda: smoothed_correlation(d, phi, np.ones(len(d)), "paper"),
    }
    for name, gamma in GAMMAS.items():
        out[f"A/{name}"] = partial(smoothing, gamma, c.a)
        out[f"ARA/{name}"] = partial(smoothed_effect, c, gamma)
        for protection in PROTECTIONS:
            out[f"V/{protection}/{name}"] = partial(covariance, c, protection, gamma)
    for model, kind in (("matern32", 2), ("matern52", 3)):
        out[f"{model}/python"] = partial(correlation, d, phi, model)
        out[f"{model}/stan"] = partial(
            stan_function, "spatial_correlation", d=d, phi=phi, kind=kind
        )
        for level in (0.05, 0.20, 0.50):
            out[f"{model}/distance/{level:g}"] = partial(correlation_distance, level, phi, model)
        for name, gamma in GAMMAS.items():
            for protection in PROTECTIONS:
                key = f"{model}/response/{protection}/{name}"
                out[key] = partial(response, c, gamma, protection, model)
    return out


def smoothed_effect(c: Case, gamma: float) -> Floats:
    """sigma_sq A R A by Stan's function."""
    p = c.off_nodes[0]
    d = cdist(c.problem.sites, c.problem.sites)
    A = smoothing(gamma, c.a)
    return p.sigma_sq * stan_function(
        "smoothed_correlation", d=d, phi=p.phi, a_diag=A, protection=1, kind=1
    )


def covariance(c: Case, protection: str, gamma: float) -> Floats:
    """V of the informing records, as a fit's own model of w builds it."""
    p = c.off_nodes[0]
    model = LatentModel(restricted_fit(c, protection, gamma, p))
    sites = model.model.problem.sites[model.rows]
    d = cdist(sites, sites)
    m = smoothed_correlation(d, p.phi, model.a_rows, protection)
    return np.asarray(p.sigma_sq * m + p.tau_sq * np.eye(len(m)))
