"""Prior scales of the groups' coefficients, and where the chains of a multivariate fit begin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsstan.core.errors import InputError
from dsstan.core.seeds import STARTS, stream
from dsstan.models.groups.groups import Groups
from dsstan.models.groups.result import MultivariateFit
from dsstan.models.priors import ResolvedPriors
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


def starts(
    start: MultivariateFit | None,
    problem: Problem,
    groups: Groups,
    priors: ResolvedPriors,
    held: float | None,
    chains: int,
    root: int,
) -> list[dict[str, Any]]:
    """Where the chains begin, one mapping a chain."""
    rng = np.random.default_rng(stream(root, STARTS))
    X, y = problem.X, problem.y
    residual = y - X @ np.linalg.lstsq(X, y, rcond=None)[0]
    sd = np.sqrt(residual @ residual / max(1, len(y) - X.shape[1]))
    bounds = np.arctan(1.0 / np.sqrt(np.array(priors.r_bounds[::-1])))
    low, high = bounds + np.diff(bounds) * [0.01, -0.01]
    inits = []
    for _ in range(chains):
        if start is None:
            size = sd * np.exp(rng.uniform(-0.4, 0.4, groups.n))
            angle = np.pi * rng.uniform(0.15, 0.35, groups.n)
            factor = np.eye(groups.n)
            phi = float(np.exp(np.mean(np.log(priors.phi_bounds)) + rng.uniform(-0.5, 0.5)))
        else:
            pick = np.unravel_index(rng.integers(start.n_draws), start.shape)
            sigma, tau = (np.sqrt(start.draws[name][pick]) for name in ("sigma_sq", "tau_sq"))
            size, angle = np.hypot(sigma, tau), np.arctan2(sigma, tau)
            factor = np.linalg.cholesky(start.draws["T"][pick] / np.outer(sigma, sigma))
            factor /= np.linalg.norm(factor, axis=1, keepdims=True)
            phi = float(start.draws["phi"][pick])
        ends = priors.phi_bounds
        phi = float(np.clip(phi, 1.01 * ends[0], 0.99 * ends[1]))
        inits.append(
            {
                "root": size,
                "angle": np.clip(angle, low, high),
                "L": factor,
                "phi_free": [] if held is not None else [phi],
            }
        )
    return inits
