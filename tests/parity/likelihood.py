"""Python's side of ``likelihood.R``: the surface's likelihood, and its maximum."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize
from scipy.spatial.distance import cdist

from dsstan.covariance.likelihood_surface import Surface, build_surface

from .cases import Case, case, case_of, inputs
from .golden import Floats, Values

NODES = (32, 56)
REACH = (4.0, 50.0)
"""Factors by which phi and r may leave the start; the surface covers no more than that."""
CASES = ("baltimore", "first", "second")


@dataclass(frozen=True)
class Profile:
    """beta and sigma_sq at their best for a decay and a nugget ratio."""

    beta: Floats
    covariance: Floats
    sigma_sq: float
    tau_sq: float
    phi: float
    log_density: float


def values() -> Values:
    """Each quantity by its key."""
    out: dict[str, Callable[[], ArrayLike]] = {}
    for name in CASES:
        out |= _of_case(name)
    return out


def _of_case(name: str) -> dict[str, Callable[[], ArrayLike]]:
    def variances() -> Floats:
        best = maximum(name)
        return np.array([best.sigma_sq, best.tau_sq, best.phi])

    def total() -> float:
        known = profile_known(name)
        return known.sigma_sq + known.tau_sq

    return {
        f"known/beta/{name}": lambda: profile_known(name).beta,
        f"known/total/{name}": total,
        f"known/covariance/{name}": lambda: profile_known(name).covariance,
        f"known/likelihood/{name}": lambda: profile_known(name).log_density,
        f"nlme/beta/{name}": lambda: maximum(name).beta,
        f"nlme/variances/{name}": variances,
        f"nlme/maximum/{name}": lambda: maximum(name).log_density,
        f"fields/variances/{name}": variances,
        f"fields/maximum/{name}": lambda: maximum(name).log_density,
    }


def _case(name: str) -> Case:
    return case(name) if name == "baltimore" else case_of(inputs("likelihood")[name])


def _start(name: str) -> tuple[float, float]:
    """Range and nugget share at which R starts."""
    start = inputs("likelihood")[name]["start"]
    return float(start["range"]), float(start["nugget"])


def _surface(c: Case, phi: tuple[float, float], r: tuple[float, float]) -> Surface:
    p = c.problem
    return build_surface(
        cdist(p.sites, p.sites),
        p.X,
        p.y,
        a_diag=np.ones(p.n_records),
        protection="none",
        phi_bounds=phi,
        r_bounds=r,
        nodes=NODES,
    )


def profile(surface: Surface, phi: float, r: float) -> Profile:
    """The best beta and sigma_sq on a surface, from its statistics at (phi, r)."""
    s = surface.at(phi, r)
    k = surface.rotation.b.size + 1
    lower = np.zeros((k, k))
    lower[np.tril_indices(k)] = s[1:] / (1.0 + r)
    z = lower + np.tril(lower, -1).T
    u = -np.linalg.solve(z[:-1, :-1], z[:-1, -1])
    sigma_sq = float(z[-1, -1] + u @ z[:-1, -1]) / surface.n
    back = np.linalg.inv(surface.rotation.T)
    beta = surface.rotation.b - back @ u
    covariance = sigma_sq * back @ np.linalg.inv(z[:-1, :-1]) @ back.T
    log_density = surface.log_density(beta, sigma_sq, r * sigma_sq, phi)
    return Profile(beta, covariance, sigma_sq, r * sigma_sq, phi, log_density)


@cache
def profile_known(name: str) -> Profile:
    """The profile at the range and nugget share that R is given too."""
    spread, nugget = _start(name)
    phi, r = 1.0 / spread, nugget / (1.0 - nugget)
    return profile(_surface(_case(name), (phi, phi), (r / REACH[1], r * REACH[1])), phi, r)


@cache
def maximum(name: str) -> Profile:
    """The largest log likelihood over the decay and the nugget ratio."""
    spread, nugget = _start(name)
    start = np.array([1.0 / spread, nugget / (1.0 - nugget)])
    low, high = start / REACH, start * REACH
    surface = _surface(_case(name), (low[0], high[0]), (low[1], high[1]))

    def cost(x: Floats) -> float:
        at = np.exp(x)
        inside = np.all((low <= at) & (at <= high))
        return -profile(surface, at[0], at[1]).log_density if inside else np.inf

    options = {"xatol": 1e-10, "fatol": 1e-12, "maxiter": 4000, "maxfev": 4000}
    found = np.exp(minimize(cost, np.log(start), method="Nelder-Mead", options=options).x)
    assert np.all((low * 1.1 < found) & (found < high / 1.1)), "the maximum is at the range's end"
    return profile(surface, found[0], found[1])
