"""The spatial effect at new places, given a draw of it at the records.

Given w at the sites of a table the effect at other places is normal, whatever the response was. It
is drawn jointly at all of them: exactly where there are few, else place by place, each given the
nearest of the sites and of the places before it (Datta, Banerjee, Finley and Gelfand 2016,
*JASA* 111, section 3.2, where places depend on sites alone).
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.spatial.distance import cdist

from dsstan.core.arrays import Floats, Truths
from dsstan.core.errors import InputError
from dsstan.core.spelling import spelled
from dsstan.covariance.base import Covariance, Parameters, SpatialModel
from dsstan.covariance.correlation import correlation, correlation_code
from dsstan.covariance.latent import correlation_factor
from dsstan.covariance.vecchia.factor_kernels import conditional_weights, unwind
from dsstan.covariance.vecchia.kernels import PARALLEL
from dsstan.covariance.vecchia.neighbours import earlier_neighbours
from dsstan.table.places.coordinates import site_numbers
from dsstan.table.problem import Problem

__all__ = ["EXACT_PLACES", "check_carries_on", "effect_at", "joint_effect", "sequential_effect"]

EXACT_PLACES = 2000
"""Most sites and new places together of which the joint law is exact."""

AROUND = 2
"""Neighbours of a new place, by those of a record in Vecchia's approximation."""


def check_carries_on(problem: Problem, covariance: Covariance) -> None:
    """Refuse a spatial effect that is not carried on to new places.

    Raises InputError if it depends on more than the distance, or lives on the knots of a
    predictive process.
    """
    if problem.structure is not None:
        raise InputError(
            "synthetic places need a spatial effect of the distance alone: leave time and "
            "(1 | group) out, or keep the places"
        )
    if covariance.approximate and not hasattr(covariance, "neighbours"):
        raise InputError(
            "synthetic places need the exact covariance or Vecchia's approximation, and there is "
            f"another ({covariance}): take {spelled('covariance', 'auto')}, or keep the places"
        )


def effect_at(
    model: SpatialModel,
    p: Parameters,
    w: Floats,
    places: Floats,
    rng: np.random.Generator,
    *,
    given: Truths | None = None,
) -> Floats:
    """One draw of w at new places, given one at the records.

    Parameters
    ----------
    model
        Of the records; its covariance is exact or Vecchia's.
    p
        The posterior draw.
    w
        The effect at the records, shape (N,).
    places
        Planar, shape (q, 2). Two at one place share their effect, and one at the site of a record
        has the effect of that site.
    rng
        Of this draw.
    given
        Records whose effect is known, shape (N,); by default all.

    Returns
    -------
    ndarray
        Shape (q,).
    """
    problem = model.problem
    known = np.ones(problem.n_records, dtype=bool) if given is None else given
    site, first = np.unique(problem.site_index[known], return_index=True)
    sites, values = problem.unique_sites[site], w[known][first]
    number = site_numbers(places)
    new = places[np.unique(number, return_index=True)[1]]
    neighbours = getattr(model.covariance, "neighbours", None)
    draw = (
        joint_effect(sites, values, new, p, model.cov_model, rng)
        if (len(sites) + len(new) <= EXACT_PLACES)
        else sequential_effect(
            sites, values, new, p, model.cov_model, rng, neighbours=AROUND * (neighbours or 15)
        )
    )
    return draw[number]


def joint_effect(
    sites: Floats,
    values: Floats,
    places: Floats,
    p: Parameters,
    cov_model: str,
    rng: np.random.Generator,
) -> Floats:
    """The exact joint draw at distinct places, shape (q,), from dense matrices.

    Parameters
    ----------
    sites, values
        Distinct sites, shape (n, 2), and the effect there, shape (n,).
    places, p, cov_model, rng
        As :func:`effect_at` takes them.
    """
    z = rng.standard_normal(len(places))
    both = np.vstack([sites, places])
    R = correlation(cdist(both, both), p.phi, cov_model)
    n = len(sites)
    mean, left = np.zeros(len(places)), R[n:, n:]
    if n:
        known, cross = R[:n, :n], R[:n, n:]
        try:
            half = cho_solve(cho_factor(known, lower=True, check_finite=False), cross)
        except np.linalg.LinAlgError:  # sites that are all but the same
            half = np.linalg.pinv(known, hermitian=True) @ cross
        mean, left = half.T @ values, left - cross.T @ half
    factor = correlation_factor(0.5 * (left + left.T))
    return np.asarray(mean + np.sqrt(p.sigma_sq) * (factor @ z))


def sequential_effect(
    sites: Floats,
    values: Floats,
    places: Floats,
    p: Parameters,
    cov_model: str,
    rng: np.random.Generator,
    *,
    neighbours: int,
) -> Floats:
    """The same, each place given its nearest sites and places before it; memory linear in both.

    Parameters
    ----------
    neighbours
        How many each place is given. The places come in a random order of their own.
    """
    order = rng.permutation(len(places))
    n, both = len(sites), np.ascontiguousarray(np.vstack([sites, places[order]]))
    near = earlier_neighbours(both, neighbours, begin=n)
    ones = np.ones(len(both))
    code = correlation_code(cov_model)
    with PARALLEL:
        weights, variance = conditional_weights(both, ones, ones, near, p.phi, 0.0, code)
    w = np.sqrt(p.sigma_sq * variance) * rng.standard_normal(len(both))
    w[:n] = values  # which have no neighbours here, so that they stay as they are
    unwind(weights, near, w)
    out = np.empty(len(places))
    out[order] = w[n:]
    return out
