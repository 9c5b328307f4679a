"""Which columns a release with synthetic places has."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import pandas as pd
from scipy.spatial import cKDTree

from dsstan.copies.published import check_columns_published, columns_going_out
from dsstan.core.arrays import Floats, Indices
from dsstan.core.errors import InputError, ReleaseError
from dsstan.core.spelling import PYTHON, spelled, surface
from dsstan.models.intensity.result import Intensity
from dsstan.table.planes import place_columns
from dsstan.table.problem import Problem

__all__ = ["GATHERS", "TELLS", "check_tells_nothing", "group_table", "kept_columns", "made_columns"]

TELLS = 0.9
"""From here on a number tells where a record is: by how much it varies less between neighbours
than between any two records, 0 where places say nothing of it and 1 where they say all."""

GATHERS = 0.5
"""From here on a category does: the share of the variance of the places that lies between its
levels, which is that of halves or quarters of the study area."""


def kept_columns(
    problem: Problem,
    steps: Sequence[Problem],
    accepted: Collection[str],
    *,
    others: Collection[str] = (),
    withheld: Collection[str | None] = (),
) -> list[str]:
    """Columns that moved records keep, in the order of the table.

    Parameters
    ----------
    problem
        Whose table it is.
    steps
        The modelled columns in their order.
    accepted
        Columns that may tell where a record was.
    others
        Columns that models take beside their formulas.
    withheld
        Columns of risk weights.

    Raises
    ------
    ReleaseError
        If one would reveal a response, holds risk weights, or tells where a record was.
    """
    going = set(others)
    for one in (problem, *steps):
        going |= set(columns_going_out(one))
    made = {step.response for step in steps} | set(place_columns(problem))
    columns = [name for name in problem.columns if name in going and name not in withheld]
    if not steps:
        # Without a model of it the response stays with the table.
        columns = [name for name in columns if name != problem.response]
    if steps:
        check_columns_published(steps, columns)
    check_tells_nothing(problem, [name for name in columns if name not in made], accepted)
    return columns


def check_tells_nothing(
    problem: Problem, columns: Sequence[str], accepted: Collection[str] = ()
) -> None:
    """Refuse columns that moved records would keep and that tell where they were.

    A postcode would show it at once. Each column is compared between records of sites that are
    nearest to one another.

    Raises ReleaseError if so.
    """
    distinct = np.unique(problem.site_index, return_index=True)[1]
    sites = problem.sites[distinct]
    near = cKDTree(sites).query(sites, k=2)[1][:, 1]
    for name in columns:
        if name in accepted:
            continue
        column = problem.table[name].iloc[distinct]
        if varies_less(column, near) > TELLS or gathers(column, sites) > GATHERS:
            raise ReleaseError(
                f"column {name!r} is much the same at neighbouring places, so it tells where a "
                "record was although its place moves: take it out of the formula and of publish, "
                f"or accept that it does with {spelled('accept_place', [name])}"
            )


def varies_less(column: pd.Series, near: Indices) -> float:
    """By how much less a number varies between a record and its neighbour, by ranks, at most 1.

    Parameters
    ----------
    column
        n values; 0 comes back where they are no numbers.
    near
        Position of the neighbour of each, shape (n,).
    """
    if not pd.api.types.is_numeric_dtype(column.dtype) or column.nunique() < 2:
        return 0.0
    values = column.rank().to_numpy(dtype=np.float64, na_value=np.nan)
    between = np.nanmean((values - values[near]) ** 2)
    return float(1.0 - between / (2.0 * np.nanvar(values)))


def gathers(column: pd.Series, sites: Floats) -> float:
    """Share of the variance of places that lies between levels, adjusted for their number.

    0 where a column has hardly more records than levels, as names have.

    Parameters
    ----------
    column, sites
        n values, and the places, shape (n, 2).
    """
    codes, n = pd.factorize(column, use_na_sentinel=False)[0], len(column)
    sizes = np.bincount(codes)
    if not 1 < len(sizes) <= n / 2:
        return 0.0
    means = np.column_stack([np.bincount(codes, weights=x) / sizes for x in sites.T])
    within = np.sum((sites - means[codes]) ** 2) / (n - len(sizes))
    return float(1.0 - within / (np.sum((sites - sites.mean(axis=0)) ** 2) / (n - 1)))


def group_table(problem: Problem, intensity: Intensity, groups: Sequence[str]) -> pd.DataFrame:
    """What the columns of the groups hold for each of the K groups, with the types of the table.

    A group that no record is in has a row that nothing is drawn from.

    Raises
    ------
    InputError
        If a column is not there, or differs within a group.
    """
    table, index = problem.table, intensity.group_index
    K = len(intensity.groups)
    if K > 1 and not groups:
        raise InputError(
            f"the intensity has {K} groups and no column says which record is of which: name the "
            'columns that make them, such as groups=("kind",)'
        )
    first = np.zeros(K, dtype=np.int64)
    there, rows = np.unique(index, return_index=True)
    first[there] = rows
    for name in groups:
        if name not in table.columns:
            raise InputError(f"groups names {name!r}, which is no column of the table")
        codes = pd.factorize(table[name])[0]
        if np.any(codes != codes[first][index]):
            raise InputError(
                f"column {name!r} differs within a group of the intensity: name the columns that "
                "its groups were made from"
            )
    return pd.DataFrame(table[list(groups)]).iloc[first].reset_index(drop=True)


def made_columns(problem: Problem, steps: Sequence[Problem], groups: Sequence[str]) -> list[str]:
    """Columns of a synthetic population, in the order of the table.

    Raises
    ------
    InputError
        If a formula takes, or ``publish`` names, a column that nothing makes.
    """
    made = [*place_columns(problem), *groups]
    for step in steps:
        formula = step.design.formula
        lacking = [name for name in formula.columns if name not in (*made, *problem.coord_names)]
        if lacking:
            raise InputError(
                f"the formula {formula.text!r} takes {lacking[0]!r}, which a synthetic population "
                "has only if something makes it: a model, in a step before this one, or the groups "
                f"({_as_group(lacking[0])}); else take it out of the formula"
            )
        made.append(step.response)
    lost = [name for name in problem.publish or () if name not in made]
    if lost:
        raise InputError(
            f"publish names {lost[0]!r}, which a synthetic population has only if something makes "
            f"it: a model, in a step of its own, or the groups ({_as_group(lost[0])}); else take "
            "it out of publish"
        )
    return [name for name in problem.columns if name in made]


def _as_group(column: str) -> str:
    """How a column is made one of those of the groups."""
    return spelled("groups" if surface() == PYTHON else "places_groups", [column])
