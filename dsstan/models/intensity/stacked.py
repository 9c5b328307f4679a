"""Counts by group and cell as a table, which the models of counts fit."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dsstan.core.arrays import Floats, Truths
from dsstan.core.errors import InputError
from dsstan.models.counts.priors import WIDE, CountPriors
from dsstan.table.mask.mask import Mask
from dsstan.table.prepare import prepare
from dsstan.table.problem import Problem

COUNT, EXPOSURE, GROUP = "records", "exposure_of_cell", "group"
"""Columns that a stacked table adds to the covariates."""
X, Y = "x_of_cell", "y_of_cell"
SLOPE = 2.5
"""Default scale of a coefficient's prior, in 1 / sd of its covariate over the cells."""


def exposure_of(mask: Mask) -> Floats:
    """Exposure of the cells, 1 on average, shape (C,): its unit is part of the intercepts."""
    return np.asarray(mask.exposure / mask.exposure.mean())


def stacked(mask: Mask, counts: Floats, groups: tuple[str, ...], formula: str | None) -> Problem:
    """One row a group and cell, group after group, the cells in the mask's order.

    Each group has its own intercept, and its own coefficients of the covariates of cells.

    Parameters
    ----------
    mask
        C cells.
    counts
        Shape (K, C).
    groups
        Labels of these groups.
    formula
        Right side, of covariates of the mask such as ``"scale(height)"``; None without any.

    Raises
    ------
    InputError
        If a covariate has the name of a column that is added.
    FormulaError, TableError
        If the formula can't be read, or a covariate does not allow the fit.
    """
    ours = {COUNT, EXPOSURE, GROUP, X, Y}
    taken = sorted(ours & set(map(str, mask.covariates.columns)))
    if taken:
        raise InputError(f"rename the covariate {taken[0]!r} of the mask: the name is used here")
    K = len(groups)
    table = pd.concat([mask.covariates] * K, ignore_index=True)
    if not len(table):
        table = pd.DataFrame(index=range(counts.size))
    table[GROUP] = np.repeat(groups, mask.n_cells)
    table[COUNT] = counts.ravel().astype(np.int64)
    table[EXPOSURE] = np.tile(exposure_of(mask), K)
    table[X], table[Y] = np.tile(mask.centres.T, K)
    right = "1" if formula is None else formula.strip().removeprefix("~")
    if K > 1:
        right = GROUP if formula is None else f"{GROUP} * ({right})"
    return prepare(
        table, f"{COUNT} ~ {right}", coords=(X, Y), distance="planar", name="cells of the mask"
    )


def priors_of(problem: Problem, K: int) -> CountPriors:
    """Priors of a stacked table: wide for intercepts, weakly informative for slopes.

    A group of few records would leave its slopes free, and the chances of its cells with them.
    """
    X = np.asarray(problem.X).reshape(K, -1, problem.n_terms)
    slopes = 1.0 / np.maximum(X.std(axis=1).max(axis=0), np.finfo(np.float64).tiny)
    flat = flat_columns(X)
    return CountPriors(beta_scale=[*np.where(flat, WIDE * np.sqrt(K), SLOPE * slopes)])


def flat_columns(X: Floats) -> Truths:
    """Columns of a design (K, C, P) that are constant in each group: intercepts, however coded."""
    return np.asarray((np.ptp(X, axis=1) == 0.0).all(axis=0))
