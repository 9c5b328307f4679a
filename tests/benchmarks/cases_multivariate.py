"""The multivariate model in the benchmark table."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.spatial.distance import cdist

from dsstan.models.groups.fit import fit_multivariate
from dsstan.models.result import Fit
from dsstan.table.prepare import prepare
from dsstan.table.problem import Problem

SHARES = (0.3, 0.5, 0.2)
SIGMA, TAU, PHI = (1.0, 0.8, 1.2), (0.3, 0.4, 0.35), 6.0
CORRELATION = ((1.0, 0.7, 0.5), (0.7, 1.0, 0.6), (0.5, 0.6, 1.0))
BETA = ((2.0, 0.5), (3.0, 0.7), (4.0, 0.4))


def simulate(n: int, seed: int = 1) -> Problem:
    """n records of three groups on the unit square."""
    rng = np.random.default_rng(seed)
    sites, group = rng.uniform(size=(n, 2)), rng.choice(3, n, p=SHARES)
    x = rng.standard_normal(n)
    T = np.array(CORRELATION) * np.outer(SIGMA, SIGMA)
    V = T[np.ix_(group, group)] * np.exp(-PHI * cdist(sites, sites))
    V += np.diag(np.array(TAU)[group] ** 2)
    beta = np.array(BETA)[group]
    y = beta[:, 0] + beta[:, 1] * x + np.linalg.cholesky(V) @ rng.standard_normal(n)
    table = pd.DataFrame({"s1": sites[:, 0], "s2": sites[:, 1], "x": x, "group": group, "y": y})
    return prepare(table, "y ~ x", coords=("s1", "s2"), name="three groups")


def fit_case(n: int, seed: int = 1) -> Fit:
    """Simulate n records of three groups and fit them, 4 chains of 1000 + 1000."""
    return fit_multivariate(simulate(n, seed), "group", seed=seed, progress=False)
