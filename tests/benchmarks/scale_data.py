"""The records of ``scale.py``, simulated in time linear in their number."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

PHI, SIGMA_SQ, TAU_SQ, BETA = 12.7, 1.0, 0.25, (2.0, 0.5)
EXACT = 2000
"""Most records whose effect is drawn by a Cholesky factor."""

DRAWN_FROM = 30
"""Neighbours of the process that more records are drawn from."""


def effect(sites: Floats, normals: Floats, neighbours: int, phi: float = PHI) -> Floats:
    """A nearest-neighbour process of unit variance at sites (n, 2), in time linear in n."""
    from dsstan.covariance.vecchia.factor_kernels import conditional_weights, unwind
    from dsstan.covariance.vecchia.neighbours import Neighbours

    near = Neighbours.of(sites, neighbours)
    ones = np.ones(len(sites))
    B, F = conditional_weights(
        np.ascontiguousarray(sites[near.order]), ones, ones, near.earlier, phi, 0.0, 1
    )
    w = np.sqrt(F) * normals[near.order]
    unwind(B, near.earlier, w)
    out: Floats = np.empty_like(w)
    out[near.order] = w
    return out


def simulate(n: int) -> dict[str, Floats]:
    """Sites uniform on the unit square, design matrix and response of n records."""
    rng = np.random.default_rng(n)
    sites, x = rng.uniform(size=(n, 2)), rng.normal(size=n)
    normals, noise = rng.normal(size=n), rng.normal(size=n)
    if n <= EXACT:
        d = np.hypot(*(sites[:, None, k] - sites[None, :, k] for k in (0, 1)))
        w = np.linalg.cholesky(np.exp(-PHI * d)) @ normals
    else:
        w = effect(sites, normals, DRAWN_FROM)
    X = np.column_stack([np.ones(n), x])
    y = X @ BETA + np.sqrt(SIGMA_SQ) * w + np.sqrt(TAU_SQ) * noise
    return {"sites": sites, "X": X, "y": y}


def with_priors(data: dict[str, Floats]) -> dict[str, Any]:
    """The records and dsstan's default priors of them as numbers, for every program."""
    import pandas as pd

    import dsstan as ds

    s = data["sites"]
    table = pd.DataFrame({"s1": s[:, 0], "s2": s[:, 1], "x": data["X"][:, 1], "y": data["y"]})
    problem = ds.prepare(table, "y ~ x", coords=("s1", "s2"))
    priors = ds.Priors().resolve(problem.y, problem.X, problem.d_max)
    return {
        **data,
        "beta_scale": np.asarray(priors.beta_scale),
        "scale": priors.sigma[0],
        "phi_bounds": np.asarray(priors.phi_bounds),
        "r_bounds": np.asarray(priors.r_bounds),
    }
