"""Regressions that know of space: generalised least squares, maximum likelihood, Conley."""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.optimize import minimize
from scipy.sparse import csr_array
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist

from dsstan.analysis.utility import ols
from dsstan.core.arrays import Floats
from dsstan.core.errors import DsstanWarning, InputError
from dsstan.covariance.approximations import EXACT_LIMIT, Vecchia
from dsstan.covariance.correlation import decay_bounds
from dsstan.covariance.likelihood_surface import Surface
from dsstan.covariance.pairs import Pairs
from dsstan.covariance.surface_statistics import best_at, coefficients_at, statistics_of_pairs
from dsstan.covariance.vecchia.neighbours import Neighbours
from dsstan.covariance.window import exact_surface, narrowed_surface
from dsstan.table.places.coordinates import largest_distance
from dsstan.table.problem import Problem

R_BOUNDS = (1e-4, 1e4)
_PAIRS = 10_000_000
"""Pairs of records that are held at a time."""

_LEANS = 0.98
_STEP, _LEAST_STEP = 0.02, 1e-3  # of a second difference of the log density, on a log scale
PARAMETERS = ("sigma_sq", "tau_sq", "phi")


def near_for(sites: Floats) -> Neighbours | None:
    """Ordering and neighbours by which many records are analysed; None where all pairs do."""
    return None if len(sites) <= EXACT_LIMIT else Neighbours.of(sites, Vecchia().neighbours)


def near_of(problem: Problem) -> Neighbours | None:
    """The same of a problem's records.

    Raises InputError if there are many and they have a time or groups: all pairs are needed then.
    """
    near = near_for(problem.sites)
    if near is not None and problem.structure is not None:
        raise InputError(
            f"regressions that count spatial correlation know a time and groups of up to "
            f"{EXACT_LIMIT:,} records, and there are {problem.n_records:,}"
        )
    return near


def gls(X: Floats, y: Floats, V: Floats) -> tuple[Floats, Floats]:
    """Generalised least squares with a known covariance.

    Parameters
    ----------
    X, y
        Design matrix (N, P) of full rank; response (N,).
    V
        Covariance of y, shape (N, N), positive definite.

    Returns
    -------
    tuple
        (X' V^-1 X)^-1 X' V^-1 y, shape (P,), and (X' V^-1 X)^-1, shape (P, P).

    Raises
    ------
    InputError
        If V is not positive definite.
    """
    try:
        factor = np.linalg.cholesky(V)
    except np.linalg.LinAlgError:
        raise InputError(
            "V is not positive definite: a nugget (tau_sq) above 0 is needed"
        ) from None
    white = solve_triangular(factor, np.column_stack([X, y]), lower=True)
    q, t = np.linalg.qr(white[:, :-1])
    inverse = np.linalg.inv(t)
    return np.asarray(inverse @ (q.T @ white[:, -1])), np.asarray(inverse @ inverse.T)


class MaximumLikelihood(NamedTuple):
    """The maximum: beta (P,), its covariance (P, P) given the rest, and the rest."""

    beta: Floats
    cov: Floats
    sigma_sq: float
    tau_sq: float
    phi: float


def maximum_likelihood(
    X: Floats,
    y: Floats,
    sites: Floats,
    *,
    phi_bounds: tuple[float, float] | None = None,
    r_bounds: tuple[float, float] = R_BOUNDS,
    cov_model: str = "exponential",
) -> MaximumLikelihood:
    """Maximum likelihood of y ~ N(X beta, sigma_sq R(phi) + tau_sq I).

    beta and sigma_sq are profiled out; the interpolated log density of
    :class:`dsstan.covariance.likelihood_surface.Surface` is maximised over (log phi, log r). Of
    more than 2000 records the likelihood is Vecchia's, as in a fit.

    Parameters
    ----------
    X, y
        Design matrix (N, P) of full rank; response (N,).
    sites
        Planar coordinates, shape (N, 2); two records may share one.
    phi_bounds, r_bounds
        Ranges searched; of phi by default that of
        :func:`dsstan.covariance.correlation.decay_bounds`.
    cov_model
        Correlation function, one of :data:`dsstan.covariance.correlation.CORRELATIONS`.

    Raises
    ------
    InputError
        If X explains y entirely, all sites are the same, or a value is not finite.

    Warns
    -----
    DsstanWarning
        If the maximum lies at the end of a range.
    """
    near = near_for(sites)
    found, _ = _maximise(X, y, sites, phi_bounds, r_bounds, cov_model, near)
    ranges = (phi_bounds or decay_bounds(largest_distance(sites), cov_model), r_bounds)
    if _leans(found, ranges):
        warnings.warn(
            "the likelihood is largest at an end of the range of phi or tau_sq / sigma_sq: "
            "these data don't identify the covariance parameters",
            DsstanWarning,
            stacklevel=2,
        )
    return found


def _maximise(
    X: Floats,
    y: Floats,
    sites: Floats,
    phi_bounds: tuple[float, float] | None = None,
    r_bounds: tuple[float, float] = R_BOUNDS,
    cov_model: str = "exponential",
    near: Neighbours | None = None,
    pairs: Pairs | None = None,
) -> tuple[MaximumLikelihood, Surface]:
    """The maximum and the surface it was found on, exact or given neighbours.

    ``pairs`` are those of the records where more than distance relates them.
    """
    if not (np.all(np.isfinite(y)) and np.all(np.isfinite(sites)) and np.all(np.isfinite(X))):
        raise InputError("X, y and sites must be finite")
    d_max = largest_distance(sites)
    if d_max == 0.0:
        raise InputError("all records are at one site, so nothing can be learnt about space")
    residual = y - X @ ols(X, y)[0]
    if not _varies(residual, y):
        raise InputError(
            "the regression leaves no residual (a constant response, or as many terms as "
            "records), so there is no covariance to estimate"
        )
    phi_range = phi_bounds or decay_bounds(d_max, cov_model)
    if near is None:
        among = Pairs(cdist(sites, sites), cov_model) if pairs is None else pairs
        ones = np.ones(len(y))
        exact = statistics_of_pairs(among, X, y, a_diag=ones, protection="none", places=sites)
        surface, _ = exact_surface(exact, phi_range, r_bounds, cov_model=cov_model)
    else:
        from dsstan.covariance.vecchia.statistics import VecchiaStatistics

        source = VecchiaStatistics.plain(X, y, sites, near, cov_model)
        surface, _ = narrowed_surface(source, phi_range, r_bounds, cov_model=cov_model)
    ends = np.log([surface.phi_bounds, surface.r_bounds])

    def loss(at: Floats) -> float:
        phi, r = np.exp(np.clip(at, ends[:, 0], ends[:, 1]))
        sigma_sq, beta, _ = _profile(surface, phi, r)
        return -surface.log_density(beta, sigma_sq, r * sigma_sq, phi)

    (a, b), (c, d) = ends.tolist()
    axes = np.linspace(a, b, 12), np.linspace(c, d, 18)
    heights = np.array([[loss(np.array([u, v])) for v in axes[1]] for u in axes[0]])
    # The likelihood may have two hills, one without space: climb each from its lattice point.
    from scipy.ndimage import minimum_filter  # slow to import

    hills = np.argwhere(heights == minimum_filter(heights, size=3, mode="nearest"))
    climbed = [
        minimize(
            loss,
            np.array([axes[0][i], axes[1][j]]),
            method="L-BFGS-B",
            bounds=ends,
            options={"ftol": 1e-14, "gtol": 1e-7},
        )
        for i, j in hills
    ]
    best = min(climbed, key=lambda c: float(c.fun)).x
    phi, r = (float(v) for v in np.exp(np.clip(best, ends[:, 0], ends[:, 1])))
    sigma_sq, beta, cov = _profile(surface, phi, r)
    return MaximumLikelihood(beta, cov, sigma_sq, r * sigma_sq, phi), surface


def _varies(residual: Floats, y: Floats) -> bool:
    """Whether a residual is more than rounding."""
    return float(np.abs(residual).max()) > 1e-12 * float(np.abs(y).max())


def _profile(surface: Surface, phi: float, r: float) -> tuple[float, Floats, Floats]:
    """Best sigma_sq and beta at (phi, r), and the covariance of beta there."""
    s = surface.at(phi, r)
    _, sigma_sq = best_at(s, surface.n, r)
    return sigma_sq, *coefficients_at(surface.rotation, s, sigma_sq, r)


Ranges = tuple[tuple[float, float], tuple[float, float]]


def _leans(found: MaximumLikelihood, ranges: Ranges) -> bool:
    """Whether the maximum lies at an end of either range that was searched, of phi or of r."""
    for value, (low, high) in zip((found.phi, found.tau_sq / found.sigma_sq), ranges, strict=True):
        if abs(2.0 * np.log(value / low) / np.log(high / low) - 1.0) > _LEANS:
            return True
    return False


def _log_variances(
    surface: Surface, found: MaximumLikelihood, ranges: Ranges | None = None
) -> Floats:
    """Inverse information of the logs of PARAMETERS, its diagonal; inf where there is none.

    The surface may cover less than the ranges that were searched, by default its own.
    """
    ends = np.array([surface.phi_bounds, surface.r_bounds])
    at = np.array([found.phi, found.tau_sq / found.sigma_sq])
    # Two steps on either side, within the surface.
    step = min(_STEP, 0.45 * float(np.abs(np.log(ends / at[:, None])).min()))
    if _leans(found, ranges or (surface.phi_bounds, surface.r_bounds)) or step < _LEAST_STEP:
        return np.full(3, np.inf)
    centre = np.log([found.sigma_sq, found.tau_sq, found.phi])

    def height(shift: Floats) -> float:
        sigma_sq, tau_sq, phi = (float(v) for v in np.exp(centre + step * shift))
        beta = _profile(surface, phi, tau_sq / sigma_sq)[1]
        return surface.log_density(beta, sigma_sq, tau_sq, phi)

    e = np.eye(3)
    information = np.empty((3, 3))
    for i in range(3):
        for j in range(3):
            information[i, j] = (
                height(e[i] - e[j])
                + height(e[j] - e[i])
                - height(e[i] + e[j])
                - height(-e[i] - e[j])
            ) / (4.0 * step**2)
    if np.linalg.eigvalsh(information)[0] <= 0:
        return np.full(3, np.inf)
    return np.asarray(np.diag(np.linalg.inv(information)))


def conley(X: Floats, y: Floats, sites: Floats, cutoff: float) -> tuple[Floats, Floats]:
    """Least squares with a spatial covariance robust to correlation up to a distance.

    Conley (1999), Journal of Econometrics 92, with e the residuals:
    ``(X'X)^-1 [sum_ij k(d_ij / cutoff) e_i e_j x_i x_j'] (X'X)^-1``, the Bartlett
    kernel k(u) = max(0, 1 - u) of the distance, and no small-sample factor. At a
    cutoff below every distance it is White's covariance.

    Parameters
    ----------
    X, y
        Design matrix (N, P) of full rank; response (N,).
    sites
        Planar coordinates, shape (N, 2).
    cutoff
        Distance beyond which residuals count as uncorrelated, in their unit.

    Returns
    -------
    tuple
        Coefficients (P,) and their covariance (P, P).

    Raises
    ------
    InputError
        If the cutoff is not positive, or gives a variance that is not: this
        kernel of a distance in the plane may be indefinite.
    """
    if not (np.isfinite(cutoff) and cutoff > 0):
        raise InputError("cutoff must be positive and finite")
    coef, _ = ols(X, y)
    score = X * (y - X @ coef)[:, None]
    inverse = np.linalg.inv(np.linalg.qr(X, mode="r"))
    bread = inverse @ inverse.T
    cov = bread @ _kernel_sum(score, sites, cutoff) @ bread
    if np.any(np.diag(cov) < 0):
        raise InputError("the spatial covariance has a negative variance: use another cutoff")
    return coef, np.asarray(0.5 * (cov + cov.T))


def _kernel_sum(score: Floats, sites: Floats, cutoff: float) -> Floats:
    """sum_ij k(d_ij / cutoff) s_i s_j', of pairs within the cutoff, some records at a time."""
    n, k = score.shape
    tree, total = cKDTree(sites), np.zeros((k, k))
    at_once = max(1, _PAIRS // n)
    for low in range(0, n, at_once):
        some = cKDTree(sites[low : low + at_once])
        pairs = some.sparse_distance_matrix(tree, cutoff, output_type="ndarray")
        kernel = np.maximum(0.0, 1.0 - pairs["v"] / cutoff)
        weights = csr_array((kernel, (pairs["i"], pairs["j"])), shape=(some.n, n))
        total += score[low : low + at_once].T @ (weights @ score)
    return total
