"""Where the chains of every model begin."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dsstan.core.arrays import Floats
from dsstan.core.seeds import STARTS, stream
from dsstan.covariance.surface_statistics import Rotation
from dsstan.engines.whitening import NODES
from dsstan.models.priors import ResolvedPriors
from dsstan.models.result import Fit

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

    ``start`` is the fit to start from and ``held`` the decay, None where there is none. A
    ``natural`` program takes ``phi`` rather than ``phi_free``; ``latent`` is the length of the
    standard normal parameter ``z``, 0 without one.
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

    Least squares are coefficients and standard errors, (P,) each, and the residual variance. The
    stream moves on only where nothing was drawn; tau_sq / sigma_sq lies in the priors' range.
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


def whitened_starts(terms: int, held: float | None, chains: int, root: int) -> list[dict[str, Any]]:
    """Points of ``surface.stan``: about the middle, twice as far apart as the posterior is wide.

    None is beyond the nodes of the functions of z, where phi and r leave the ranges of their
    priors.
    """
    rng = np.random.default_rng(stream(root, STARTS))
    size = terms + (3 if held is None else 2)
    starts = 2.0 * rng.standard_normal((chains, size))
    return [{"whitened": z} for z in np.clip(starts, NODES[1], NODES[-2])]
