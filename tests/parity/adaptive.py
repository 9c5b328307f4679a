"""Python's side of ``adaptive.R``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial.distance import cdist

from dsstan.covariance.correlation import correlation_code
from dsstan.covariance.likelihood_surface import response_log_density, rotate
from dsstan.models.adaptive.rules import AdaptiveRule
from dsstan.models.adaptive.surface import Setting, build_adaptive_surface
from dsstan.models.weights import neighbour_distances

from .cases import Case, case
from .density import _natural, log_density, prior_settings
from .golden import Floats, Values

RULES = {
    "ratio": AdaptiveRule(),
    "alpha": AdaptiveRule("alpha", alpha=0.2),
    "step": AdaptiveRule("step", gamma=4.0),
}
NODES = {"ratio": (64, 56, 56), "alpha": (64, 56, 56), "step": (96, 84, 1)}
"""Nodes (G, H, H above the kink) at which the program's interpolation is below 1e-8."""


def values() -> Values:
    """Each quantity by its key."""
    out: dict[str, Callable[[], ArrayLike]] = {}
    for name in ("hand", "simulated"):
        models = ("exponential", "matern32", "matern52") if name == "hand" else ("exponential",)
        for model in models:
            for rule in RULES:
                for protection in ("paper", "preserving"):
                    key = f"{model}/{rule}/{protection}"
                    out[f"response/{name}/{key}"] = partial(
                        response, case(name), model, rule, protection
                    )
                    if name == "hand" and model != "matern52":
                        out[f"program/{key}"] = partial(
                            program, case(name), model, rule, protection
                        )
    return out


def response(c: Case, model: str, rule: str, protection: str) -> Floats:
    """Log density of the response from exact statistics at each point's own node."""
    sites = c.problem.sites
    setting = Setting(
        cdist(sites, sites), neighbour_distances(c.problem), RULES[rule], protection, model
    )
    rotation = rotate(c.problem.X, c.problem.y)
    out = []
    for p in c.points:
        r = p.tau_sq / p.sigma_sq
        s = setting.statistics(rotation.Z, p.phi, np.array([r]))[0]
        u = rotation.T @ (rotation.b - p.beta)
        out.append(response_log_density(s, u, c.problem.n_records, p.sigma_sq, r))
    return np.array(out)


def program(c: Case, model: str, rule: str, protection: str) -> Floats:
    """``adaptive.stan``, or ``surface.stan`` for a step, at every point."""
    priors = prior_settings(c)
    g, h, above = NODES[rule]
    if rule == "step":
        sites, nearest = c.problem.sites, neighbour_distances(c.problem)
        built = build_adaptive_surface(
            Setting(cdist(sites, sites), nearest, RULES[rule], protection, model),
            c.problem.X,
            c.problem.y,
            phi_bounds=c.phi_bounds,
            r_bounds=priors.r_bounds,
            nodes=(g, h),
        )
        data = priors.on_surface(built)
        return log_density("surface", data, c.points, priors, "phi_free")
    data = {
        **_natural(c),
        **priors.stan_data(),
        **priors.decay_data(),
        "kink": RULES[rule].kink,
        "cov_model": correlation_code(model),
        "nearest": neighbour_distances(c.problem),
        "protection": 1 if protection == "paper" else 2,
        "G": g,
        "H": h,
        "H_above": above,
        "n_check": 0,
        "check_phi": [],
        "check_r": [],
    }
    return log_density("adaptive", data, c.points, priors, "phi")
