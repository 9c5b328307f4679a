"""The truncated likelihood of brackets: data, starting values and the run."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

from dsstan.core.arrays import Floats
from dsstan.covariance.correlation import correlation_code
from dsstan.engines import get_engine
from dsstan.models.brackets.limits import Brackets
from dsstan.models.finish import Run, run_program
from dsstan.models.priors import ResolvedPriors
from dsstan.models.request import Request
from dsstan.models.starts import Begin, Pick, point_near
from dsstan.table.problem import Problem

_LOG = logging.getLogger("dsstan")


def fit_truncated(request: Request, kept: Brackets, *, engine: str) -> Run:
    """Run ``bracketed.stan``."""
    problem, priors, runner = request.problem, request.priors, get_engine(engine)
    _LOG.info("%s, truncated: program bracketed on %s", request.label, runner.name)
    return run_program(
        request,
        "bracketed",
        bracketed_data(problem, kept, request.A, priors, request.phi_held, request.cov_model),
        _near_least_squares(problem, priors),
        runner=runner,
        names=("beta", "sigma_sq", "tau_sq", "w"),
        latent=problem.n_sites,
    )


def bracketed_data(
    problem: Problem,
    kept: Brackets,
    A: Floats,
    priors: ResolvedPriors,
    held: float | None,
    cov_model: str = "exponential",
) -> dict[str, Any]:
    """Data of ``bracketed.stan``; A has shape (N,), and ``held`` is the decay where it is held."""
    low, high = kept.low_modelled, kept.high_modelled
    bounds = priors.phi_bounds if held is None else (held, held)
    return {
        "N": problem.n_records,
        "P": problem.n_terms,
        "n_sites": problem.n_sites,
        "X": problem.X,
        "y": problem.y,
        "coords": problem.unique_sites,
        "site": problem.site_index + 1,
        "A": A,
        "has_low": np.isfinite(low).astype(int),
        "has_high": np.isfinite(high).astype(int),
        "low": np.where(np.isfinite(low), low, 0.0),
        "high": np.where(np.isfinite(high), high, 0.0),
        "cov_model": correlation_code(cov_model),
        "phi_lower": bounds[0],
        "phi_upper": bounds[1],
        **priors.stan_data(),
        "draw_latent": 1,
    }


def _near_least_squares(problem: Problem, priors: ResolvedPriors) -> Begin:
    """Points of the untruncated model: draws of the start, else about least squares."""
    X, y = problem.X, problem.y
    b = np.asarray(np.linalg.lstsq(X, y, rcond=None)[0], dtype=np.float64)
    variance = float(np.sum((y - X @ b) ** 2)) / max(1, y.size - b.size)
    se: Floats = np.sqrt(variance * np.diag(np.linalg.pinv(X.T @ X)))
    low, high = priors.phi_bounds

    def begin(rng: np.random.Generator, pick: Pick) -> dict[str, Any]:
        point = point_near(rng, pick(), (b, se, variance), priors)
        phi = np.sqrt(low * high) * np.exp(rng.uniform(-0.5, 0.5))
        return {**point, "phi": float(np.clip(phi, low, high))}

    return begin
