"""Data of the Stan programs that take natural data."""

from __future__ import annotations

from typing import Any

import numpy as np

from dsstan.core.arrays import Floats
from dsstan.covariance.correlation import correlation_code
from dsstan.covariance.likelihood_surface import Surface
from dsstan.covariance.protection import protection_of
from dsstan.models.priors import ResolvedPriors
from dsstan.table.problem import Problem

STAN_CHECKS = 5
"""Held-out points at which a program measures its own surface."""


def natural_data(
    problem: Problem,
    A: Floats,
    protection: str,
    held: float | None,
    priors: ResolvedPriors,
    surface: Surface,
    draw_latent: bool = False,
    cov_model: str = "exponential",
) -> dict[str, Any]:
    """Data of ``unrestricted.stan`` or ``restricted.stan``."""
    data = shared_data(problem, held, priors, surface, cov_model)
    data["draw_latent"] = int(draw_latent)
    if held is not None:
        data |= {"A": A, "protection": protection_of(protection).stan_number, "phi": held}
    return data


def shared_data(
    problem: Problem,
    held: float | None,
    priors: ResolvedPriors,
    surface: Surface,
    cov_model: str,
) -> dict[str, Any]:
    """Data of every program that builds its own surface; those of phi where it is free."""
    rng = np.random.default_rng(0)
    low, high = np.log(priors.r_bounds)
    data: dict[str, Any] = {
        "N": problem.n_records,
        "P": problem.n_terms,
        "X": problem.X,
        "y": problem.y,
        "coords": problem.sites,
        "cov_model": correlation_code(cov_model),
        **priors.stan_data(),
        "H": surface.nodes[1],
        "n_check": STAN_CHECKS,
        "check_r": np.exp(rng.uniform(low, high, STAN_CHECKS)),
    }
    if held is None:
        low, high = np.log(priors.phi_bounds)
        data |= {
            **priors.decay_data(),
            "G": surface.nodes[0],
            "check_phi": np.exp(rng.uniform(low, high, STAN_CHECKS)),
        }
    return data
