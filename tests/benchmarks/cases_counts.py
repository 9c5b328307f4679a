"""A simulated case of counts for the common table of speed."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.spatial.distance import cdist

from dsstan.covariance.vecchia.neighbours import Neighbours
from dsstan.covariance.vecchia.site_process import SiteProcess
from dsstan.models.counts.fit import CountFit, fit_counts
from dsstan.models.counts.outcomes import OUTCOMES
from dsstan.table.prepare import prepare
from dsstan.table.problem import Problem

SETTINGS = {
    "age": ("poisson", np.log(45.0), 0.1),
    "rare": ("poisson", 0.0, 0.5),
    "spread": ("negative binomial", 1.0, 0.5),
    "yes": ("bernoulli", 0.0, 2.0),
}
"""Outcome, intercept and sigma_sq by name."""
PHI, SLOPE, SIZE = 8.0, 0.3, 5.0


def effect(sites: np.ndarray, z: np.ndarray) -> np.ndarray:
    """A draw of the spatial effect of partial sill 1, beyond 2000 sites by 30 neighbours."""
    if len(sites) <= 2000:
        return np.asarray(np.linalg.cholesky(np.exp(-PHI * cdist(sites, sites))) @ z)
    process = SiteProcess(sites, Neighbours.of(sites, 30), "exponential")
    w = np.empty(len(sites))
    w[process.order] = process.colour(process.weights(float(np.log(PHI))), z)
    return w


def problem_case(n: int, seed: int = 1, setting: str = "age") -> tuple[Problem, str]:
    """n records at n sites of the unit square, and the outcome's name."""
    outcome, intercept, sigma_sq = SETTINGS[setting]
    rng = np.random.default_rng(seed)
    sites, x = rng.uniform(size=(n, 2)), rng.standard_normal(n)
    w = np.sqrt(sigma_sq) * effect(sites, rng.standard_normal(n))
    eta = intercept + SLOPE * x + w
    y = OUTCOMES[outcome].draw(eta, float(np.log(SIZE)), rng).astype(int)
    table = pd.DataFrame({"s1": sites[:, 0], "s2": sites[:, 1], "x": x, "y": y})
    return prepare(table, "y ~ x", coords=("s1", "s2"), name="simulated counts"), outcome


def fit_case(n: int, seed: int = 1) -> CountFit:
    """Poisson counts of mean 45 at n sites, phi free, 4 chains of 1000 draws.

    The sampler starts in the approximate posterior, so its warm-up is 100 and not 1000.
    """
    problem, outcome = problem_case(n, seed)
    return fit_counts(problem, outcome, seed=seed, progress=False)
