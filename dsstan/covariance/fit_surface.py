"""The surface of a fit, by the covariance that it reckons with."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from dsstan.core.seeds import STARTS, stream
from dsstan.covariance.approximations import Covariance, PredictiveProcess, Vecchia
from dsstan.covariance.likelihood_surface import Surface, best_at, build_surface
from dsstan.covariance.predictive_process import PredictiveProcessStatistics, place_knots
from dsstan.covariance.vecchia.spread import spread
from dsstan.covariance.vecchia.statistics import VecchiaStatistics
from dsstan.covariance.window import PartialStatistics, Window, narrowed_surface
from dsstan.models.priors import ResolvedPriors
from dsstan.table.problem import Problem

__all__ = ["FitSurface", "fit_surface"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class FitSurface:
    """A surface and the part of the prior's range that it covers.

    Attributes
    ----------
    surface
        The statistics.
    window
        Where the posterior lies; None for the exact covariance, whose surface covers all.
    """

    surface: Surface
    window: Window | None = None

    def sampled(self, priors: ResolvedPriors) -> ResolvedPriors:
        """The priors cut to the window, as the program takes them."""
        if self.window is None:
            return priors
        held = self.window.phi_bounds[0] == self.window.phi_bounds[1]
        phi = priors.phi_bounds if held else self.window.phi_bounds
        return replace(priors, phi_bounds=phi, r_bounds=self.window.r_bounds)

    def starts(self, chains: int, root: int, held: bool) -> list[dict[str, Any]]:
        """Values about the top of the density, one mapping a chain.

        The posterior of many records is narrow: chains that began in the prior would spend
        their warm-up on the way.
        """
        surface, window = self.surface, self.window
        assert window is not None
        rng = np.random.default_rng(stream(root, STARTS))
        out = []
        for _ in range(chains):
            phi = _near(window.phi, window.phi_bounds, rng)
            r = _near(window.r, window.r_bounds, rng)
            u, sigma_sq = best_at(surface.at(phi, r), surface.n, r)
            out.append(
                {
                    "beta": surface.rotation.b - np.linalg.solve(surface.rotation.T, u),
                    "sigma_sq": sigma_sq,
                    "tau_sq": r * sigma_sq,
                    "phi_free": [] if held else [phi],
                }
            )
        return out


def _near(value: float, bounds: tuple[float, float], rng: np.random.Generator) -> float:
    """A value within a tenth of the range about one inside it, in logs."""
    low, high = np.log(bounds)
    if high <= low:
        return value
    at = np.log(value) + 0.1 * (high - low) * rng.uniform(-1, 1)
    pad = 0.02 * (high - low)
    return float(np.exp(np.clip(at, low + pad, high - pad)))


def fit_surface(
    covariance: Covariance,
    problem: Problem,
    rows: NDArray[np.intp],
    *,
    A: Floats,
    protection: str,
    phi_bounds: tuple[float, float],
    r_bounds: tuple[float, float],
    cov_model: str,
    nodes: tuple[int, int] | None,
    seed: int,
    advance: Callable[[float], None] | None = None,
    cluster: Any = None,
    resume: str | os.PathLike[str] | None = None,
) -> FitSurface:
    """The surface of the informing records; see
    :func:`dsstan.covariance.likelihood_surface.build_surface`.

    Parameters
    ----------
    covariance
        What the fit reckons with.
    problem, rows
        The prepared table and the positions of its informing records.
    A
        Diagonal of A, shape (N,).
    protection, phi_bounds, r_bounds, cov_model, nodes, seed, advance
        As there.
    cluster, resume
        See :func:`dsstan.covariance.vecchia.spread.spread`; only Vecchia's approximation takes
        them.

    Raises
    ------
    SurfaceError
        If the interpolation error is not below its tolerance.
    """
    smoothing: dict[str, Any] = {
        "a_diag": A[rows],
        "protection": protection,
        "cov_model": cov_model,
    }
    source: PartialStatistics | None = None
    if isinstance(covariance, Vecchia):
        source = VecchiaStatistics.of(
            *(problem, rows),
            **smoothing,
            neighbours=covariance.neighbours,
            ordering=covariance.ordering,
        )
    elif isinstance(covariance, PredictiveProcess):
        source = PredictiveProcessStatistics.of(
            *(problem.sites[rows], problem.X[rows], problem.y[rows]),
            **smoothing,
            # Among all sites, so that every fit of the problem has the same knots.
            knots=place_knots(problem.sites, covariance.knots, covariance.placement),
        )
    if source is not None:
        with spread(source, cluster, resume) as spread_out:
            surface, window = narrowed_surface(
                *(spread_out, phi_bounds, r_bounds),
                nodes=nodes,
                cov_model=cov_model,
                seed=seed,
                advance=advance,
            )
        return FitSurface(surface, window)
    sites = problem.sites[rows]
    surface = build_surface(
        *(cdist(sites, sites), problem.X[rows], problem.y[rows]),
        **smoothing,
        phi_bounds=phi_bounds,
        r_bounds=r_bounds,
        nodes=nodes,
        seed=seed,
        advance=advance,
    )
    return FitSurface(surface)
