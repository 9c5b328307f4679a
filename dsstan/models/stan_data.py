"""Data and starting values of the Stan programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dsstan.core.seeds import STARTS, stream
from dsstan.covariance.correlation import correlation_code
from dsstan.covariance.likelihood_surface import Surface
from dsstan.models.priors import ResolvedPriors
from dsstan.table.problem import Problem

if TYPE_CHECKING:
    from dsstan.models.result import Fit

Floats = NDArray[np.float64]

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
        number = {"paper": 1, "preserving": 2, "cut": 3}[protection]
        data |= {"A": A, "protection": number, "phi": held}
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
            "phi_lower": priors.phi_bounds[0],
            "phi_upper": priors.phi_bounds[1],
            "G": surface.nodes[0],
            "check_phi": np.exp(rng.uniform(low, high, STAN_CHECKS)),
        }
    return data


def initial_values(
    start: Fit | None,
    surface: Surface,
    priors: ResolvedPriors,
    held: float | None,
    chains: int,
    root: int,
    natural: bool,
) -> list[dict[str, Any]]:
    """Natural parameters at which the chains begin, one mapping a chain."""
    rng = np.random.default_rng(stream(root, STARTS))
    rotation = surface.rotation
    residual = rotation.Z[:, -1]
    variance = float(residual @ residual) / max(1, len(residual) - rotation.b.size)
    se = np.sqrt(variance) * np.linalg.norm(np.linalg.inv(rotation.T), axis=1)
    inits = []
    for _ in range(chains):
        if start is not None:
            pick = np.unravel_index(rng.integers(start.n_draws), start.draws["sigma_sq"].shape)
            beta = start.draws["beta"][pick]
            sigma_sq, tau_sq = (float(start.draws[k][pick]) for k in ("sigma_sq", "tau_sq"))
            phi = float(start.draws["phi"][pick])
        else:
            beta = rotation.b + se * rng.uniform(-1, 1, se.size)
            sigma_sq, tau_sq = variance * np.exp(rng.uniform(-1.5, 0.5, 2))
            phi = float(np.exp(np.mean(np.log(priors.phi_bounds)) + rng.uniform(-0.5, 0.5)))
        r_low, r_high = priors.r_bounds
        tau_sq = float(np.clip(tau_sq / sigma_sq, 1.01 * r_low, 0.99 * r_high)) * float(sigma_sq)
        low, high = priors.phi_bounds
        phi = float(np.clip(phi, low * 1.01, high * 0.99))
        init: dict[str, Any] = {
            "beta": np.asarray(beta),
            "sigma_sq": float(sigma_sq),
            "tau_sq": tau_sq,
        }
        if not natural:
            init["phi_free"] = [] if held is not None else [phi]
        elif held is None:
            init["phi"] = phi
        inits.append(init)
    return inits
