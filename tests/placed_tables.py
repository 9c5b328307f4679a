"""A small table with an intensity and a fit, for tests of synthetic places."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from dsstan.core.arrays import Floats
from dsstan.models.intensity.cell_law import IndependentCells
from dsstan.models.intensity.result import Intensity
from dsstan.models.result import Fit
from dsstan.table.mask.mask import Mask
from dsstan.table.prepare import prepare
from dsstan.table.problem import Problem
from factory import fit_from

SLOPE, EAST = 0.3, 1.5
"""Coefficients of size and of x that the values of the table were drawn with."""


def unit_mask(cells: int = 6) -> Mask:
    """A square of cells x cells."""
    middle = (np.arange(cells) + 0.5) / cells
    centres = np.array([(a, b) for a in middle for b in middle])
    return Mask(centres, 1.0 / cells, np.ones(len(centres)))


def homes(n: int = 150, seed: int = 1) -> pd.DataFrame:
    """Homes of two kinds in a unit square, coordinates to three decimals."""
    rng = np.random.default_rng(seed)
    xy = np.clip(np.round(rng.beta(2, 3, (n, 2)), 3), 0.001, 0.999)
    size = rng.integers(1, 6, n)
    mean = 1.0 + SLOPE * size + EAST * xy[:, 0] + 0.2 * np.sin(6 * xy[:, 1])
    return pd.DataFrame(
        {
            "x": xy[:, 0],
            "y": xy[:, 1],
            "kind": np.where(rng.random(n) < 0.3, "flat", "house"),
            "size": size,
            "note": np.arange(n),
            "price": np.round(np.exp(mean + 0.2 * rng.standard_normal(n)), 2),
        }
    )


def home_problem(table: pd.DataFrame, **given: Any) -> Problem:
    """Prices by size and x."""
    how = {"coords": ("x", "y"), "distance": "planar"} | given
    return prepare(table, "log(price) ~ size + x", **how)


def home_intensity(problem: Problem, mask: Mask, law: Any = None, held_back: int = 0) -> Intensity:
    """Kinds as groups, independent cells; every record informs unless some are held back."""
    kinds = ("flat", "house")
    group = (problem.table["kind"] == "house").to_numpy().astype(np.int64)
    return Intensity(
        mask,
        kinds,
        group,
        mask.cell_of(problem.sites),
        law or IndependentCells(np.full((2, mask.n_cells), 0.5)),
        held_back=held_back,
    )


def home_fit(problem: Problem, draws: int = 100, **given: Any) -> Fit:
    """A fit with draws near least squares."""
    rng = np.random.default_rng(3)
    X, y = problem.X, problem.y
    beta = np.linalg.lstsq(X, y, rcond=None)[0]
    root = np.linalg.cholesky(0.05 * np.linalg.inv(X.T @ X))
    some: dict[str, Floats] = {
        "beta": beta + rng.standard_normal((1, draws, len(beta))) @ root.T,
        "sigma_sq": 0.01 + 0.002 * rng.random((1, draws)),
        "tau_sq": 0.04 + 0.002 * rng.random((1, draws)),
        "phi": np.full((1, draws), 6.0),
    }
    return fit_from(problem, some, **({"phi_held": 6.0} | given))
