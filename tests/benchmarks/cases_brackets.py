"""The bracketed model on simulated records, for the table of speeds."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

import dsstan as ds
from dsstan.covariance.vecchia.neighbours import Neighbours
from dsstan.covariance.vecchia.site_process import SiteProcess
from dsstan.models.brackets.fit import fit_bracketed
from dsstan.models.brackets.result import BracketedFit
from dsstan.models.result import Fit

Floats = NDArray[np.float64]

SIGMA_SQ, TAU_SQ, PHI = 4.0, 0.0625, 12.7
"""The paper's simulated study."""


DENSE = 2000
"""Most records whose values are drawn from a matrix of all pairs, beyond by Vecchia's process."""


def simulate(n: int, seed: int) -> tuple[ds.Problem, list[float]]:
    """n records on the unit square, and cut points at the thirds of their values."""
    rng = np.random.default_rng(seed)
    sites = rng.uniform(size=(n, 2))
    x = rng.standard_normal(n)
    if n <= DENSE:
        V = SIGMA_SQ * np.exp(-PHI * cdist(sites, sites)) + TAU_SQ * np.eye(n)
        away = np.linalg.cholesky(V) @ rng.standard_normal(n)
    else:
        process = SiteProcess(sites, Neighbours.of(sites, 30), "exponential")
        w = process.colour(process.weights(float(np.log(PHI))), rng.standard_normal(n))
        away = np.sqrt(SIGMA_SQ) * w[np.argsort(process.order)]
        away = away + np.sqrt(TAU_SQ) * rng.standard_normal(n)
    y = 11.0 + 0.5 * x + away
    table = pd.DataFrame({"s1": sites[:, 0], "s2": sites[:, 1], "x": x, "y": y})
    problem = ds.prepare(table, "y ~ x", coords=("s1", "s2"))
    return problem, [float(c) for c in np.quantile(y, [1 / 3, 2 / 3])]


def fit_case(n: int, seed: int = 1) -> Fit:
    """The truncated likelihood with phi held at its true value; the plain one is ``dsstan.fit``."""
    problem, cuts = simulate(n, seed)
    return fit_bracketed(problem, cuts, likelihood="truncated", phi=PHI, seed=seed, progress=False)


def plain_case(n: int, seed: int = 1) -> BracketedFit:
    """The default likelihood on the same records."""
    problem, cuts = simulate(n, seed)
    return fit_bracketed(problem, cuts, seed=seed, progress=False)
