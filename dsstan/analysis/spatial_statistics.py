"""Statistics of spatial dependence: variogram and Moran's I."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.optimize import minimize_scalar, nnls
from scipy.sparse import csr_array
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist

from dsstan.core.arrays import Floats
from dsstan.core.errors import InputError
from dsstan.covariance.correlation import correlation

_AT_ONCE = 4096
"""Records whose neighbours are looked for at a time."""


def variogram(values: Floats, sites: Floats, edges: Floats) -> pd.DataFrame:
    """Empirical semivariogram: half the mean squared difference by distance (Matheron).

    Parameters
    ----------
    values
        Shape (N,).
    sites
        Planar coordinates, shape (N, 2).
    edges
        Ends of the bins, ascending from 0, shape (bins + 1,). A bin holds its
        upper end; the first also pairs at one site.

    Returns
    -------
    DataFrame
        ``distance`` (mean over the pairs), ``gamma`` and ``pairs``, one row a
        bin that holds a pair.
    """
    i, j = np.triu_indices(len(values), 1)
    d = np.sqrt(np.sum((sites[i] - sites[j]) ** 2, axis=1))
    number = np.maximum(np.searchsorted(edges, d, side="left") - 1, 0)
    inside = d <= edges[-1]
    number, d = number[inside], d[inside]
    square = (values[i] - values[j])[inside] ** 2
    pairs = np.bincount(number, minlength=len(edges) - 1)
    kept = pairs > 0
    sums = [np.bincount(number, weights=v, minlength=len(pairs))[kept] for v in (d, square)]
    return pd.DataFrame(
        {
            "distance": sums[0] / pairs[kept],
            "gamma": 0.5 * sums[1] / pairs[kept],
            "pairs": pairs[kept],
        }
    )


def fit_variogram(
    distance: Floats,
    gamma: Floats,
    pairs: Floats,
    phi_bounds: tuple[float, float],
    cov_model: str = "exponential",
) -> tuple[float, float, float]:
    """sigma_sq, tau_sq, phi of a curve through a variogram, by least squares.

    The curve is tau_sq + sigma_sq (1 - correlation at h).

    Weights are the numbers of pairs; neither variance is negative.

    Parameters
    ----------
    distance, gamma, pairs
        Columns of :func:`variogram`, shape (bins,).
    phi_bounds
        Range of the decay.
    cov_model
        Correlation function, one of :data:`dsstan.covariance.correlation.CORRELATIONS`.
    """
    root = np.sqrt(np.asarray(pairs, dtype=np.float64))

    def at(log_phi: float) -> tuple[Floats, float]:
        rises = 1.0 - correlation(distance, float(np.exp(log_phi)), cov_model)
        basis = np.column_stack([rises, np.ones(len(root))])
        found, norm_of_rest = nnls(basis * root[:, None], gamma * root)
        return found, float(norm_of_rest)

    lattice = np.linspace(float(np.log(phi_bounds[0])), float(np.log(phi_bounds[1])), 60)
    k = int(np.argmin([at(v)[1] for v in lattice]))
    near = (float(lattice[max(k - 1, 0)]), float(lattice[min(k + 1, 59)]))
    finer = minimize_scalar(
        lambda v: at(v)[1], bounds=near, method="bounded", options={"xatol": 1e-10}
    )
    log_phi = min((float(finer.x), float(lattice[k])), key=lambda v: at(v)[1])
    sigma_sq, tau_sq = at(log_phi)[0]
    return float(sigma_sq), float(tau_sq), float(np.exp(log_phi))


def spatial_weights(sites: Floats, neighbours: int | None = None) -> Floats:
    """Row-standardised weights (N, N), of the k nearest records or by inverse distance.

    Zero on the diagonal, each row of sum 1.

    Parameters
    ----------
    sites
        Planar coordinates, shape (N, 2).
    neighbours
        k; records tied at the k-th distance share what is left, so that the
        order of the rows doesn't matter. None for inverse distance.

    Raises
    ------
    InputError
        If there are not k other records, or inverse distance meets records that
        share a site.
    """
    d = cdist(sites, sites)
    np.fill_diagonal(d, np.inf)
    if neighbours is None:
        if not d.min() > 0:
            raise InputError(
                "records at one site have no inverse distance; give a number of neighbours"
            )
        w = 1.0 / d
    else:
        _check_neighbours(neighbours, len(sites))
        w = _shares(d, neighbours)
    return np.asarray(w / w.sum(axis=1, keepdims=True))


def nearest_weights(sites: Floats, neighbours: int) -> csr_array:
    """The weights of :func:`spatial_weights` for k nearest records, as a sparse matrix.

    Memory is linear in N, unless many records are tied.

    Parameters
    ----------
    sites
        Planar coordinates, shape (N, 2).
    neighbours
        k.

    Raises
    ------
    InputError
        If there are not k other records.
    """
    n = len(sites)
    _check_neighbours(neighbours, n)
    tree, rows, columns, values = cKDTree(sites), [], [], []
    reach = tree.query(sites, k=[neighbours + 1], workers=-1)[0][:, 0]
    for low in range(0, n, _AT_ONCE):
        who = np.arange(low, min(low + _AT_ONCE, n))
        # A little farther than the k-th, so that rounding loses no tie.
        found = tree.query_ball_point(sites[who], reach[who] * (1.0 + 1e-9), workers=-1)
        for i, near in zip(who, found, strict=True):
            j = np.asarray(near, dtype=np.intp)
            j = j[j != i]
            d = np.sqrt(np.sum((sites[j] - sites[i]) ** 2, axis=1))
            w = _shares(d[None], neighbours)[0]
            rows.append(np.full(np.count_nonzero(w), i))
            columns.append(j[w > 0])
            values.append(w[w > 0] / w.sum())
    where = (np.concatenate(rows), np.concatenate(columns))
    return csr_array((np.concatenate(values), where), shape=(n, n))


def _check_neighbours(neighbours: int, n: int) -> None:
    """There must be so many other records."""
    if not 1 <= neighbours < n:
        raise InputError(f"neighbours must lie from 1 to {n - 1}")


def _shares(d: Floats, neighbours: int) -> Floats:
    """1 for each of the k least of a row; those tied at the k-th share what is left."""
    reach = np.partition(d, neighbours - 1, axis=1)[:, [neighbours - 1]]
    closer, tied = d < reach, d == reach
    left = neighbours - closer.sum(axis=1, keepdims=True)
    return np.asarray(closer + tied * (left / tied.sum(axis=1, keepdims=True)))


def morans_i(values: Floats, weights: Floats | csr_array) -> float:
    """Moran's I: (N / sum w) sum_ij w_ij z_i z_j / sum z_i^2, z less its mean.

    Raises
    ------
    InputError
        If all values are the same.
    """
    z = values - values.mean()
    if np.ptp(values) <= 1e-12 * np.abs(values).max():
        raise InputError("Moran's I needs values that vary")
    return float(len(z) / weights.sum() * (z @ (weights @ z)) / (z @ z))
