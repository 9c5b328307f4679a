"""Prior scales of the groups' coefficients, and where the chains of a multivariate fit begin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsstan.core.errors import InputError
from dsstan.models.groups.groups import Groups
from dsstan.models.groups.result import MultivariateFit
from dsstan.models.priors import ResolvedPriors
from dsstan.models.starts import Begin, Pick, decay_near
from dsstan.table.problem import Problem

Floats = NDArray[np.float64]

GROUP_SCALE = 2.5
"""Default sd of a group's coefficient about the common one, in residual sd / sd(x_j)."""


def group_scales(
    given: float | Sequence[float] | None,
    start: MultivariateFit | None,
    problem: Problem,
    rows: NDArray[np.intp],
) -> tuple[float, ...]:
    """Prior sd of a group's coefficients about the common ones, P numbers."""
    if given is None and start is not None and len(rows) == problem.n_records:
        return start.group_scale
    if given is None:
        X, y = problem.X[rows], problem.y[rows]
        residual = y - X @ np.linalg.lstsq(X, y, rcond=None)[0]
        sd = float(np.sqrt(residual @ residual / (len(y) - X.shape[1])))
        spread = np.std(X, axis=0)
        size = np.abs(X).max(axis=0)
        unit = np.where(spread <= 1e-12 * np.maximum(1.0, size), size, spread)
        return tuple(float(v) for v in GROUP_SCALE * sd / unit)
    values = np.asarray(given, dtype=np.float64)
    if values.ndim > 1 or values.size not in (1, problem.n_terms):
        raise InputError(
            f"group_scale needs one number or one a coefficient ({problem.n_terms}); "
            f"got {values.size}"
        )
    if not (np.isfinite(values).all() and (values > 0).all()):
        raise InputError("group_scale must be positive and finite")
    return tuple(float(v) for v in np.broadcast_to(values, (problem.n_terms,)))


def group_starts(problem: Problem, groups: Groups, priors: ResolvedPriors) -> Begin:
    """Points of the multivariate model: draws of the start, else about the residual variance."""
    X, y = problem.X, problem.y
    residual = y - X @ np.linalg.lstsq(X, y, rcond=None)[0]
    sd = np.sqrt(residual @ residual / max(1, len(y) - X.shape[1]))
    bounds = np.arctan(1.0 / np.sqrt(np.array(priors.r_bounds[::-1])))
    low, high = bounds + np.diff(bounds) * [0.01, -0.01]

    def begin(rng: np.random.Generator, pick: Pick) -> dict[str, Any]:
        drawn = pick()
        if drawn is None:
            size = sd * np.exp(rng.uniform(-0.4, 0.4, groups.n))
            angle = np.pi * rng.uniform(0.15, 0.35, groups.n)
            factor = np.eye(groups.n)
        else:
            sigma, tau = np.sqrt(drawn["sigma_sq"]), np.sqrt(drawn["tau_sq"])
            size, angle = np.hypot(sigma, tau), np.arctan2(sigma, tau)
            factor = np.linalg.cholesky(drawn["T"] / np.outer(sigma, sigma))
            factor /= np.linalg.norm(factor, axis=1, keepdims=True)
        phi = decay_near(rng, drawn, priors.phi_bounds)
        return {"root": size, "angle": np.clip(angle, low, high), "L": factor, "phi": phi}

    return begin
