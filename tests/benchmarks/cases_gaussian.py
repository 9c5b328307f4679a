"""The Gaussian model, for comparison."""

from __future__ import annotations

from run import table_of

import dsstan as ds


def fit_case(n: int, seed: int = 1) -> ds.Fit:
    """Fit n simulated records with the surface."""
    problem = ds.prepare(table_of(n), "y ~ x1 + x2", coords=("s1", "s2"))
    return ds.fit(problem, seed=seed, engine="embedded", progress=False)
