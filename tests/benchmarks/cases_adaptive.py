"""A simulated case of the adaptive model for the benchmark table."""

from __future__ import annotations

import numpy as np
import pandas as pd

import dsstan as ds
from dsstan.models.adaptive.fit import AdaptiveFit, fit_adaptive


def fit_case(n: int, seed: int = 1) -> AdaptiveFit:
    """Simulate n records from the unrestricted model and fit the paper's rule to them."""
    rng = np.random.default_rng(seed)
    sites = rng.uniform(size=(n, 2))
    d = np.sqrt(((sites[:, None] - sites[None]) ** 2).sum(-1))
    x = rng.normal(size=n)
    V = 4.0 * np.exp(-12.7 * d) + 0.25 * np.eye(n)
    y = 11.0 + 0.5 * x + np.linalg.cholesky(V) @ rng.normal(size=n)
    table = pd.DataFrame({"s1": sites[:, 0], "s2": sites[:, 1], "x": x, "y": y})
    problem = ds.prepare(table, "y ~ x", coords=("s1", "s2"))
    return fit_adaptive(problem, seed=seed, engine="embedded", progress=False)
