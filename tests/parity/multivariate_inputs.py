"""Inputs of the multivariate twins: records of three groups, settings, points, lengths of runs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

Array = NDArray[np.float64]

SIZES = (34, 34, 16)
PAIRS = 30
"""Sites that two records share: they tell the nugget from the spatial effect."""
SIGMA, TAU, PHI = (1.0, 0.8, 1.1), (0.35, 0.3, 0.4), 5.0
CORRELATION = ((1.0, 0.8, 0.6), (0.8, 1.0, 0.7), (0.6, 0.7, 1.0))
BETA = ((2.0, 0.5), (2.6, 0.7), (3.2, 0.4))


def _uniforms(seed: int, *shape: int) -> Array:
    return np.asarray(np.round(np.random.Generator(np.random.PCG64(seed)).random(shape), 6))


def _normals(seed: int, *shape: int) -> Array:
    return np.asarray(np.round(norm.ppf(np.clip(_uniforms(seed, *shape), 1e-6, 1 - 1e-6)), 6))


def records() -> dict[str, list[Any]]:
    """The table: coordinates, covariate, group from 0, response."""
    n = sum(SIZES)
    order = np.argsort(_uniforms(71, n), kind="stable")
    group = np.repeat(np.arange(3), SIZES)[order]
    sites = np.round(_uniforms(72, n, 2), 3)
    sites[PAIRS : 2 * PAIRS] = sites[:PAIRS]
    x = np.round(_normals(73, n), 2)
    d = np.sqrt(((sites[:, None] - sites[None]) ** 2).sum(-1))
    T = np.array(CORRELATION) * np.outer(SIGMA, SIGMA)
    V = T[np.ix_(group, group)] * np.exp(-PHI * d) + np.diag(np.array(TAU)[group] ** 2)
    beta = np.array(BETA)[group]
    y = beta[:, 0] + beta[:, 1] * x + np.linalg.cholesky(V) @ _normals(74, n)
    return {
        "s1": sites[:, 0].tolist(),
        "s2": sites[:, 1].tolist(),
        "x": x.tolist(),
        "group": group.tolist(),
        # Three decimals: the same whichever LAPACK factors V.
        "y": np.round(y, 3).tolist(),
    }


def multivariate() -> dict[str, Any]:
    """Everything that the two twins share."""
    return {
        "words": "84 made records of three groups, 30 sites shared",
        "columns": records(),
        "coords": ["s1", "s2"],
        "formula": "y ~ x",
        "flagged": [61, 70, 80, 83],
        "priors": {
            "beta_scale": [10.0, 5.0],
            "group_scale": [2.0, 1.0],
            "sigma": 1.5,
            "tau": 0.8,
            "lkj_eta": 2.0,
            "phi_bounds": [1.0, 60.0],
            "r_bounds": [1e-4, 1e4],
        },
        "points": [
            {
                "sigma": [1.0, 0.8, 1.1],
                "tau": [0.35, 0.3, 0.4],
                "partial": [0.8, 0.6, 0.3],
                "phi": 5.0,
            },
            {
                "sigma": [0.4, 2.0, 0.1],
                "tau": [0.9, 0.05, 0.6],
                "partial": [-0.3, 0.1, 0.9],
                "phi": 30.0,
            },
            {
                "sigma": [2.5, 1.5, 3.0],
                "tau": [0.2, 0.6, 0.1],
                "partial": [0.95, 0.0, -0.7],
                "phi": 1.4,
            },
        ],
        "held": 5.0,
        "posterior": {
            "chains": 4,
            "seed": 700000,
            "start": {"sigma": 1.0, "tau": 0.4, "phi": 5.0},
            "lengths": {
                "infinite": {"warmup": 50, "kept": 160},
            },
        },
    }
