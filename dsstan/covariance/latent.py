"""The spatial effect given the data: draws at the records, a surface on a grid."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, cholesky
from scipy.spatial.distance import cdist
from threadpoolctl import threadpool_limits

from dsstan.core.errors import InputError
from dsstan.core.progress import progress_bar
from dsstan.core.seeds import LATENT, root_seed, stream
from dsstan.covariance.approximations import PredictiveProcess, Vecchia, is_approximated
from dsstan.covariance.correlation import correlation
from dsstan.covariance.likelihood_surface import removed_variance, smoothed_correlation
from dsstan.table.geo import as_cells, planar

if TYPE_CHECKING:
    from dsstan.copies.synthesis import Synthesis
    from dsstan.models.fit import Fit
    from dsstan.table.problem import Problem

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Parameters:
    """One posterior draw: beta (P,), sigma_sq, tau_sq, phi."""

    beta: Floats
    sigma_sq: float
    tau_sq: float
    phi: float


def parameters_at(fit: Fit, chain: int, iteration: int) -> Parameters:
    """The draw of one chain at one iteration."""
    return Parameters(
        fit.draws["beta"][chain, iteration],
        float(fit.draws["sigma_sq"][chain, iteration]),
        float(fit.draws["tau_sq"][chain, iteration]),
        float(fit.draws["phi"][chain, iteration]),
    )


def correlation_factor(R: Floats) -> Floats:
    """F with R = F F', by Cholesky, or by eigenvectors where R is singular to rounding.

    No jitter is added: eigenvalues that rounding made negative are set to zero.
    """
    try:
        return np.asarray(cholesky(R, lower=True, check_finite=False))
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(R)
        return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


def require_gaussian(fit: Fit) -> None:
    """Refuse a fit whose response is not Gaussian given the spatial effect.

    Raises
    ------
    InputError
        If so: the closed forms of the attacker and of kriging hold for the Gaussian alone.
    """
    if fit.outcome != "Gaussian":
        raise InputError(
            f"this needs a Gaussian response and the fit is of another model ({fit.outcome}): "
            "disclosure() measures its copies"
        )


def require_exact(fit: Fit) -> None:
    """Refuse a fit whose covariance is approximated.

    Raises
    ------
    InputError
        If so: what needs it inverts an N x N matrix.
    """
    if is_approximated(fit.covariance):
        raise InputError(
            f"this reckons with the exact covariance and the fit with another ({fit.covariance}): "
            "disclosure(), attack() and utility() take such a fit; for this, take a smaller table "
            'or fit with covariance="exact"'
        )


def require_complete(problem: Problem) -> None:
    """Refuse a problem whose response is missing in some records.

    Raises
    ------
    InputError
        If so: measures that hold a copy against each record's truth need one.
    """
    if problem.n_missing:
        raise InputError(
            f"this needs the response of every record and {problem.n_missing} have none: "
            "disclosure() and utility() take those that have one"
        )


def require_one_column(release: Synthesis) -> None:
    """Refuse a release of several synthetic columns, and gaps in the response.

    Raises
    ------
    InputError
        If there are: the measure takes each record's covariates and its truth as they are.
    """
    require_complete(release.problem)
    if len(release.steps) > 1:
        raise InputError(
            "this takes the covariates as they were collected, and the release has several "
            "synthetic columns: disclosure(), utility() and pool() know of them"
        )


class LatentModel:
    """Conditional law of w given y for the draws of one fit.

    Section 2 of the paper, w integrated out:
    ``w | y ~ N(K A V^-1 (y - X beta), K - K A V^-1 A K)``, K = sigma_sq R(phi),
    V = A K A + D; under ``cut`` from the unflagged rows. One formula serves
    gamma = 0, finite and infinite: given the other w, a record with A_ii = 0 has
    exactly its conditional prior.
    """

    def __init__(self, fit: Fit) -> None:
        require_gaussian(fit)
        require_exact(fit)
        if fit.smoothing_moves:
            raise InputError(
                "A of this fit changes from draw to draw, which this does not reckon with: "
                "disclosure() measures its copies and attack() its release"
            )
        self.fit = fit
        problem = fit.problem
        self.rows = fit.informing
        self.a_rows = fit.A[self.rows]
        self.y = problem.y[self.rows]
        self.X = problem.X[self.rows]
        self.sites = problem.unique_sites
        self.site = problem.site
        self.site_rows = problem.site[self.rows]
        self._parts = lru_cache(maxsize=1)(self._factor)

    def _factor(self, phi: float) -> tuple[Floats, Floats, Floats]:
        """R among the sites, its factor, and M among the informing records."""
        d = cdist(self.sites, self.sites)
        R = correlation(d, phi, self.fit.cov_model)
        d_rows = d[np.ix_(self.site_rows, self.site_rows)]
        M = smoothed_correlation(d_rows, phi, self.a_rows, self.fit.protection, self.fit.cov_model)
        return R, correlation_factor(R), M

    def _solve(self, M: Floats, p: Parameters, right: Floats) -> Floats:
        """V^-1 right."""
        V = p.sigma_sq * M
        V[np.diag_indices_from(V)] += p.tau_sq
        factor = cho_factor(V, lower=True, overwrite_a=True, check_finite=False)
        return np.asarray(cho_solve(factor, right, check_finite=False))

    def draw(self, p: Parameters, rng: np.random.Generator) -> Floats:
        """One draw of w at all records, shape (N,).

        A prior draw corrected by its own residual: w0 + K A V^-1 (y - X beta -
        A w0 - e), with w0 from N(0, K) and e from N(0, D).
        """
        R, factor, M = self._parts(p.phi)
        w0 = np.sqrt(p.sigma_sq) * (factor @ rng.standard_normal(len(self.sites)))
        removed = removed_variance(self.a_rows, self.fit.protection)
        variance = p.tau_sq + p.sigma_sq * removed
        noise = np.sqrt(variance) * rng.standard_normal(self.rows.size)
        residual = self.y - self.X @ p.beta - self.a_rows * w0[self.site_rows] - noise
        weight = self.a_rows * self._solve(M, p, residual)
        by_site = np.bincount(self.site_rows, weights=weight, minlength=len(self.sites))
        return np.asarray((w0 + p.sigma_sq * (R @ by_site))[self.site])

    def mean(self, p: Parameters, places: Floats | None = None) -> Floats:
        """E[w | y, parameters] at the records (N,), or at planar places (m, 2)."""
        R, _, M = self._parts(p.phi)
        weight = self.a_rows * self._solve(M, p, self.y - self.X @ p.beta)
        by_site = np.bincount(self.site_rows, weights=weight, minlength=len(self.sites))
        if places is None:
            return np.asarray(p.sigma_sq * (R @ by_site)[self.site])
        there = correlation(cdist(places, self.sites), p.phi, self.fit.cov_model)
        return np.asarray(p.sigma_sq * (there @ by_site))

    def covariance(self, p: Parameters) -> Floats:
        """Cov[w | y, parameters] at the records, shape (N, N)."""
        R, _, M = self._parts(p.phi)
        K = p.sigma_sq * R[np.ix_(self.site, self.site)]
        KA = K[:, self.rows] * self.a_rows
        return np.asarray(K - KA @ self._solve(M, p, KA.T))


class Conditional(Protocol):
    """The law of w given y: :class:`LatentModel`, or that of an approximation."""

    def draw(self, p: Parameters, rng: np.random.Generator) -> Floats:
        """One draw of w at all records, shape (N,)."""

    def mean(self, p: Parameters, places: Floats | None = None) -> Floats:
        """E[w | y, parameters] at the records (N,), or at planar places (m, 2)."""


def latent_model(fit: Fit) -> Conditional:
    """The law of w given y under the covariance that the fit reckons with."""
    covariance = fit.covariance
    if isinstance(covariance, Vecchia):
        from dsstan.covariance.vecchia.latent import SparseLatentModel

        # In max-min order whatever that of the likelihood: the effect has no nugget, and its law
        # in coordinate order is far from the exact one.
        return SparseLatentModel(fit, covariance.neighbours)
    if isinstance(covariance, PredictiveProcess):
        from dsstan.covariance.predictive_process import ProcessLatentModel

        return ProcessLatentModel(fit, covariance.knots, covariance.placement)
    return LatentModel(fit)


def latent_models(fit: Fit) -> Callable[[Parameters], Conditional]:
    """The law of w given y for any draw: one for all, or where A changes one a draw."""
    if fit.smoothing_moves:
        return lambda p: LatentModel(fit.at(p))
    model = latent_model(fit)
    return lambda p: model


def spread_draws(fit: Fit, count: int) -> NDArray[np.intp]:
    """Positions (chain, iteration) of draws spread evenly over all chains, none twice.

    Returns
    -------
    ndarray
        Shape (count, 2).

    Raises
    ------
    InputError
        If there are not that many draws.
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


def grid(fit: Fit, *, cells: int = 60, margin: float = 0.03) -> Floats:
    """Centres of a regular grid over the sites in planar coordinates, shape (m, 2)."""
    sites = fit.problem.unique_sites
    low, high = sites.min(axis=0), sites.max(axis=0)
    pad = margin * float((high - low).max())
    low, high = low - pad, high + pad
    size = _cell_size(fit, cells, margin=margin)
    axes = [
        np.arange(max(1, int(np.ceil((high[k] - low[k]) / size)))) * size + low[k] + size / 2
        for k in range(2)
    ]
    x, y = np.meshgrid(*axes)
    return np.column_stack([x.ravel(), y.ravel()])


def _cell_size(fit: Fit, cells: int, *, margin: float = 0.03) -> float:
    """Width of a cell of :func:`grid`."""
    span = float(np.ptp(fit.problem.unique_sites, axis=0).max())
    return span * (1.0 + 2.0 * margin) / cells


def surface_on_grid(
    fit: Fit,
    places: Any = None,
    *,
    draws: int = 100,
    cells: int = 60,
    progress: bool | None = None,
) -> pd.DataFrame:
    """Posterior mean of the spatial effect on a grid: the map of the paper's figures.

    Parameters
    ----------
    fit
        Any fit.
    places
        Planar coordinates in the problem's unit, shape (m, 2), or a GeoDataFrame of points;
        by default a grid.
    draws
        Posterior draws to average over.
    cells
        Cells along the longer side of the default grid.

    Returns
    -------
    DataFrame
        Columns ``x``, ``y``, ``w`` (posterior mean), m rows. Where the prepared table is a
        GeoDataFrame this is one too, of square cells (of points, with ``places``).
        Confidential: near a record that stands alone it gives the record away.

    Raises
    ------
    CoordinateError
        If ``places`` are not finite pairs of numbers or points.
    """
    where = grid(fit, cells=cells) if places is None else planar(places, fit.problem)
    models = latent_models(fit)
    total = np.zeros(len(where))
    picks = spread_draws(fit, min(draws, fit.n_draws))
    with (
        threadpool_limits(limits=1, user_api="blas"),
        progress_bar("prediction surface", progress) as advance,
    ):
        for i, (chain, iteration) in enumerate(picks):
            p = parameters_at(fit, int(chain), int(iteration))
            total += models(p).mean(p, where)
            advance((i + 1) / len(picks))
    found = pd.DataFrame({"x": where[:, 0], "y": where[:, 1], "w": total / len(picks)})
    return as_cells(found, fit.problem, _cell_size(fit, cells) if places is None else None)
