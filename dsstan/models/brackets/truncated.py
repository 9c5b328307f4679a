"""The truncated likelihood of brackets: its run, and the data of the program that states it."""

from __future__ import annotations

from typing import Any

import numpy as np

from dsstan.core.arrays import Floats
from dsstan.covariance.correlation import correlation_code
from dsstan.models.brackets.likelihood import TruncatedNormal, TruncatedPriors
from dsstan.models.brackets.limits import Brackets
from dsstan.models.counts.runs import LatentTask
from dsstan.models.finish import Run
from dsstan.models.priors import ResolvedPriors
from dsstan.models.request import Request
from dsstan.table.problem import Problem


def fit_truncated(request: Request, kept: Brackets) -> tuple[LatentTask, Run, float]:
    """Sample it by :mod:`dsstan.models.counts.laplace`, the value a law of eta = X beta + A w.

    Returns what was sampled, the run, and the smallest share of any chain's steps to the exact
    covariance that were accepted.
    """
    problem = request.problem
    X, y = problem.X, problem.y
    away = y - X @ np.linalg.lstsq(X, y, rcond=None)[0]
    task = LatentTask(
        problem=problem,
        law=TruncatedNormal(kept.low_modelled, kept.high_modelled),
        shift=np.zeros(problem.n_records),
        A=request.A,
        cov_model=request.cov_model,
        covariance=request.covariance,
        priors=TruncatedPriors(request.priors, float(np.mean(away**2))),
        held=request.phi_held,
        settings=request.settings,
        seed=request.seed,
        label=request.label,
        progress=request.progress,
    )
    return task, *task.laplace()


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
        **priors.decay_data(held),
        **priors.stan_data(),
        "draw_latent": 1,
    }
