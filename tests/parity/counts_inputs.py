"""Settings and data of the twins of counts: 80 records at 72 sites, three outcomes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Array = NDArray[np.float64]

N, SHARED = 80, 8
PHI, SIGMA_SQ, BETA, SIZE = 6.0, 0.6, (1.2, 0.4), 4.0
FLAGGED = (3, 20, 41, 60)
CHAINS = 4


def raw(seed: int, *shape: int) -> Array:
    """Uniform numbers rounded to six decimals."""
    return np.round(np.random.Generator(np.random.PCG64(seed)).random(shape), 6)


def table() -> dict[str, list[float]]:
    """Sites, a covariate, an exposure and the three responses.

    Predictors are rounded before a count is drawn, so that every machine draws the same.
    """
    sites = raw(51, N, 2)
    sites[:SHARED] = sites[SHARED : 2 * SHARED]
    places, site = np.unique(sites, axis=0, return_inverse=True)
    x = np.round(stats.norm.ppf(np.clip(raw(52, N), 1e-6, 1 - 1e-6)), 3)
    exposure = np.round(0.5 + 1.5 * raw(53, N), 2)
    d = np.sqrt(((places[:, None] - places[None]) ** 2).sum(-1))
    z = stats.norm.ppf(np.clip(raw(54, len(places)), 1e-6, 1 - 1e-6))
    w = np.sqrt(SIGMA_SQ) * (np.linalg.cholesky(np.exp(-PHI * d)) @ z)
    eta = np.round(BETA[0] + BETA[1] * x + w[site], 4)
    share = np.clip(raw(55, N), 1e-6, 1 - 1e-6)
    mean = np.round(exposure * np.exp(eta), 4)
    return {
        "s1": sites[:, 0].tolist(),
        "s2": sites[:, 1].tolist(),
        "x": x.tolist(),
        "exposure": exposure.tolist(),
        "poisson": stats.poisson.ppf(share, mean).tolist(),
        "negative binomial": stats.nbinom.ppf(share, SIZE, SIZE / (SIZE + mean)).tolist(),
        "bernoulli": (share < 1 / (1 + np.exp(-2.0 * (eta - BETA[0])))).astype(float).tolist(),
    }


def counts() -> dict[str, Any]:
    """Everything the twins read."""
    a = np.zeros(N)
    a[list(FLAGGED)] = 1.0
    w = np.round(0.7 * stats.norm.ppf(np.clip(raw(56, 3, N - SHARED), 1e-6, 1 - 1e-6)), 4)
    return {
        "words": "80 simulated counts at 72 sites",
        "columns": table(),
        "a": a.tolist(),
        "beta_scale": [10.0, 5.0],
        "sigma": 1.0,
        "sigma_bounds": [0.01, 10.0],
        "phi_bounds": [2.0, 60.0],
        "size": [10.0, 2.0],
        "inverse_gamma": [3.0, 1.0],
        "phi": PHI,
        "watched": [3, 0, 40, 70],
        "copied": 3,
        "chains": CHAINS,
        "seed": 700000,
        "points": {
            "beta": [[1.2, 0.4], [0.3, -0.2], [2.0, 1.0]],
            "sigma_sq": [0.6, 2.5, 0.05],
            "phi": [25.0, 40.0, 55.0],
            "size": [4.0, 0.7, 90.0],
            "w": w.tolist(),
        },
        "posteriors": {
            "poisson/free": {"outcome": "poisson", "free": True, "flags": False, "offset": True},
            "poisson/flagged": {"outcome": "poisson", "free": False, "flags": True, "offset": True},
            "negative binomial/held": {
                "outcome": "negative binomial",
                "free": False,
                "flags": False,
                "offset": True,
            },
            "bernoulli/flagged": {
                "outcome": "bernoulli",
                "free": False,
                "flags": True,
                "offset": False,
            },
        },
        "lengths": {
            "free": {"warmup": 300, "kept": 1500},
            "held": {"warmup": 200, "kept": 1500},
        },
    }
