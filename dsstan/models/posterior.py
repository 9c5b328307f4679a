"""Draws of a fit, and of its spatial effect."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from threadpoolctl import threadpool_limits

from dsstan.core.arrays import Floats, Indices
from dsstan.core.errors import InputError
from dsstan.core.seeds import LATENT, root_seed, stream
from dsstan.covariance.base import Conditional, Parameters
from dsstan.covariance.latent import require_gaussian
from dsstan.models.result import Fit

__all__ = [
    "Parameters",
    "centre_of",
    "latent_draws",
    "latent_model",
    "latent_models",
    "parameters_at",
    "require_gaussian",
    "spread_draws",
]


def parameters_at(fit: Fit, chain: int, iteration: int) -> Parameters:
    """The draw of one chain at one iteration."""
    return Parameters(
        fit.draws["beta"][chain, iteration],
        float(fit.draws["sigma_sq"][chain, iteration]),
        float(fit.draws["tau_sq"][chain, iteration]),
        float(fit.draws["phi"][chain, iteration]),
    )


def centre_of(fit: Fit) -> Parameters:
    """Posterior medians: of phi, and of the two variances with the median ratio."""
    draws = fit.draws
    r = float(np.median(draws["tau_sq"] / draws["sigma_sq"]))
    beta = np.median(draws["beta"], axis=(0, 1))
    return Parameters(beta, 1.0, r, float(np.median(draws["phi"])))


def latent_model(fit: Fit) -> Conditional:
    """The law of w given y under the covariance of the fit."""
    return fit.covariance.latent(fit, centre_of(fit))


def latent_models(fit: Fit) -> Callable[[Parameters], Conditional]:
    """The law of w given y for any draw: one for all, or where A changes one a draw."""
    if fit.smoothing_moves:
        centre = centre_of(fit)
        return lambda p: fit.covariance.latent(fit.with_smoothing_at(p), centre)
    model = latent_model(fit)
    return lambda p: model


def spread_draws(fit: Fit, count: int) -> Indices:
    """Positions (chain, iteration) of draws spread evenly over all chains, none twice.

    Returns shape (count, 2). Raises InputError if there are not that many draws.
    """
    chains, samples = fit.shape
    if not 1 <= count <= chains * samples:
        raise InputError(f"there are {chains * samples} draws; {count} can't be taken from them")
    chain = np.arange(count) % chains
    rank = np.arange(count) // chains
    size = np.bincount(chain, minlength=chains)[chain]
    return np.column_stack([chain, ((rank + 0.5) * samples / size).astype(np.intp)])


def latent_draws(fit: Fit, *, draws: int = 200, seed: int = 0) -> Floats:
    """Draws of w at the records, shape (draws, N). Confidential.

    Parameters
    ----------
    fit
        Any fit.
    draws
        How many posterior draws to use, spread over all chains.
    seed
        One child stream a draw is spawned from it.
    """
    models = latent_models(fit)
    out = np.empty((draws, fit.problem.n_records))
    children = stream(root_seed(seed), LATENT).spawn(draws)
    with threadpool_limits(limits=1, user_api="blas"):
        for i, (chain, iteration) in enumerate(spread_draws(fit, draws)):
            p = parameters_at(fit, int(chain), int(iteration))
            out[i] = models(p).draw(p, np.random.default_rng(children[i]))
    return out
