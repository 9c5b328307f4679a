"""Where the chains of every model begin."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsstan.core.seeds import STARTS, stream
from dsstan.covariance.likelihood_surface import Rotation, Surface, best_at
from dsstan.covariance.window import Window
from dsstan.models.priors import ResolvedPriors
from dsstan.models.result import Fit

__all__ = [
    "Begin",
    "Pick",
    "decay_near",
    "initial_values",
    "near_least_squares",
    "near_top",
    "point_near",
]

Floats = NDArray[np.float64]
Drawn = Mapping[str, Any] | None
Pick = Callable[[], Drawn]
"""Takes a random draw of the fit to start from; gives None where there is no such fit."""
Begin = Callable[[np.random.Generator, Pick], dict[str, Any]]
"""The point of one chain, ``phi`` among its entries, from its random stream."""


def initial_values(
    begin: Begin,
    *,
    start: Fit | None,
    held: float | None,
    chains: int,
    root: int,
    natural: bool = False,
    latent: int = 0,
) -> list[dict[str, Any]]:
    """Natural parameters at which the chains begin, one mapping a chain.

    Parameters
    ----------
    begin
        Gives the point of one chain.
    start
        Fit to start from; None if there is none.
    held
        The decay where it is held.
    chains, root
        Their number, and the root seed.
    natural
        Whether the program takes ``phi`` itself rather than ``phi_free``.
    latent
        Length of the standard normal parameter ``z``; 0 without one.
    """
    rng = np.random.default_rng(stream(root, STARTS))

    def pick() -> Drawn:
        if start is None:
            return None
        at = np.unravel_index(rng.integers(start.n_draws), start.shape)
        return {name: values[at] for name, values in start.draws.items()}

    points = []
    for _ in range(chains):
        point = begin(rng, pick)
        phi = point.pop("phi")
        if not natural:
            point["phi_free"] = [] if held is not None else [phi]
        elif held is None:
            point["phi"] = phi
        if latent:
            point["z"] = 0.1 * rng.standard_normal(latent)
        points.append(point)
    return points


def point_near(
    rng: np.random.Generator,
    drawn: Drawn,
    least_squares: tuple[Floats, Floats, float],
    priors: ResolvedPriors,
) -> dict[str, Any]:
    """Coefficients and variances of a draw, else near least squares.

    Parameters
    ----------
    rng
        Moved on only where nothing was drawn.
    drawn
        A draw of another fit.
    least_squares
        Coefficients and their standard errors, (P,) each, and the residual variance.
    priors
        The range of tau_sq / sigma_sq, in which the point lies.
    """
    if drawn is None:
        b, se, variance = least_squares
        beta = b + se * rng.uniform(-1, 1, se.size)
        sigma_sq, tau_sq = variance * np.exp(rng.uniform(-1.5, 0.5, 2))
    else:
        beta, sigma_sq, tau_sq = (drawn[name] for name in ("beta", "sigma_sq", "tau_sq"))
    low, high = priors.r_bounds
    r = float(np.clip(tau_sq / sigma_sq, 1.01 * low, 0.99 * high))
    return {"beta": np.asarray(beta), "sigma_sq": float(sigma_sq), "tau_sq": r * float(sigma_sq)}


def decay_near(rng: np.random.Generator, drawn: Drawn, bounds: tuple[float, float]) -> float:
    """The decay of a draw, else one near the middle of its range in logs."""
    if drawn is None:
        phi = float(np.exp(np.mean(np.log(bounds)) + rng.uniform(-0.5, 0.5)))
    else:
        phi = float(drawn["phi"])
    return float(np.clip(phi, 1.01 * bounds[0], 0.99 * bounds[1]))


def near_least_squares(rotation: Rotation, priors: ResolvedPriors) -> Begin:
    """Points of a Gaussian model: draws of the start, else about least squares."""
    residual = rotation.Z[:, -1]
    variance = float(residual @ residual) / max(1, len(residual) - rotation.b.size)
    se = np.sqrt(variance) * np.linalg.norm(np.linalg.inv(rotation.T), axis=1)

    def begin(rng: np.random.Generator, pick: Pick) -> dict[str, Any]:
        drawn = pick()
        point = point_near(rng, drawn, (rotation.b, se, variance), priors)
        return {**point, "phi": decay_near(rng, drawn, priors.phi_bounds)}

    return begin


def near_top(surface: Surface, window: Window) -> Begin:
    """Points about the top of the density, whatever the start.

    The posterior of many records is narrow: chains that began in the prior would spend
    their warm-up on the way.
    """

    def begin(rng: np.random.Generator, pick: Pick) -> dict[str, Any]:
        phi = _inside(window.phi, window.phi_bounds, rng)
        r = _inside(window.r, window.r_bounds, rng)
        u, sigma_sq = best_at(surface.at(phi, r), surface.n, r)
        beta = surface.rotation.b - np.linalg.solve(surface.rotation.T, u)
        return {"beta": beta, "sigma_sq": sigma_sq, "tau_sq": r * sigma_sq, "phi": phi}

    return begin


def _inside(value: float, bounds: tuple[float, float], rng: np.random.Generator) -> float:
    """A value within a tenth of the range about one inside it, in logs."""
    low, high = np.log(bounds)
    if high <= low:
        return value
    at = np.log(value) + 0.1 * (high - low) * rng.uniform(-1, 1)
    pad = 0.02 * (high - low)
    return float(np.exp(np.clip(at, low + pad, high - pad)))
