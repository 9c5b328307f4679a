"""Prediction at places from the records around each."""

from __future__ import annotations

import numpy as np
from scipy.spatial import cKDTree

from dsstan.core.arrays import Floats, Indices
from dsstan.covariance.vecchia.factor_kernels import conditional_weights
from dsstan.covariance.vecchia.kernels import PARALLEL
from dsstan.covariance.vecchia.neighbours import Neighbours
from dsstan.covariance.vecchia.statistics import VecchiaStatistics

__all__ = ["AROUND", "around_places", "krige", "universal_kriging"]

AROUND = 60
"""Records that a place is predicted from, on all its sides."""


def krige(
    places: Floats,
    sites: Floats,
    values: Floats,
    *,
    phi: float,
    r: float,
    code: int,
    around: int = AROUND,
    own: Floats | None = None,
) -> Floats:
    """Conditional means at places of a process of zero mean, each from its nearest sites, (q,).

    Parameters
    ----------
    places, sites
        Planar coordinates, shapes (q, 2) and (n, 2).
    values
        At the sites, with a nugget of r times the partial sill, shape (n,).
    phi, r, code
        Decay, nugget ratio and code of the correlation function.
    around
        Number of distinct sites that each place is given.
    own
        Variance of each site's value without the nugget, 1 where it is not given, shape (n,).
    """
    if r > 0.0:
        sites, values, own = _by_site(sites, values, r if own is None else own - 1.0 + r, r)
    near, weights, _ = around_places(places, sites, phi=phi, r=r, code=code, around=around, own=own)
    return np.asarray((weights * values[near]).sum(axis=1))


def around_places(
    places: Floats,
    sites: Floats,
    *,
    phi: float,
    r: float,
    code: int,
    around: int = AROUND,
    own: Floats | None = None,
) -> tuple[Indices, Floats, Floats]:
    """The nearest sites of places, their weights, and the variances given them, of 1.

    Shapes (q, m), (q, m) and (q,); arguments as of :func:`krige`, the sites distinct.
    """
    m = min(around, len(sites))
    near = cKDTree(sites).query(places, k=np.arange(1, m + 1), workers=-1)[1]
    # Places come after all sites; only their own weights are asked for.
    used, number = np.unique(near, return_inverse=True)
    both = np.vstack([sites[used], places])
    earlier = np.full((len(both), m), -1, dtype=np.int32)
    earlier[used.size :] = number.reshape(near.shape)
    ones = np.ones(len(both))
    variances = ones.copy()
    if own is not None:
        variances[: used.size] = own[used]
    with PARALLEL:
        weights, left = conditional_weights(both, ones, variances, earlier, phi, r, code)
    return near, np.asarray(weights[used.size :]), np.asarray(left[used.size :])


def universal_kriging(
    places: Floats,
    X: Floats,
    y: Floats,
    sites: Floats,
    near: Neighbours,
    covariance: tuple[float, float, float],
    cov_model: str = "exponential",
    own: Floats | None = None,
) -> tuple[Floats, Floats]:
    """Coefficients by Vecchia's approximation, and what their residuals say at places.

    Parameters
    ----------
    places
        Shape (q, 2).
    X, y, sites, near, cov_model, own
        See :meth:`dsstan.covariance.vecchia.statistics.VecchiaStatistics.plain`.
    covariance
        sigma_sq, tau_sq and phi, the first above 0.

    Returns
    -------
    tuple
        beta, shape (P,), and the conditional mean of the spatial effect, shape (q,).
    """
    sigma_sq, tau_sq, phi = covariance
    source = VecchiaStatistics.plain(X, y, sites, near, cov_model, own)
    beta, _ = source.coefficients(sigma_sq, tau_sq, phi)
    r = tau_sq / sigma_sq
    return beta, krige(places, sites, y - X @ beta, phi=phi, r=r, code=source.code, own=own)


def _by_site(
    sites: Floats, values: Floats, noise: Floats | float, r: float
) -> tuple[Floats, Floats, Floats]:
    """Distinct sites, the mean of each by precision, and its own variance beside a nugget of r."""
    distinct, number = np.unique(sites, axis=0, return_inverse=True)
    precision = np.broadcast_to(1.0 / np.asarray(noise), values.shape)
    total = np.bincount(number.ravel(), weights=precision)
    mean = np.bincount(number.ravel(), weights=precision * values) / total
    return distinct, mean, 1.0 + 1.0 / total - r
