"""The groups of a multivariate fit: which record belongs to which."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from dsstan.core.arrays import Floats, Indices
from dsstan.core.errors import InputError, describe_rows
from dsstan.table.problem import Problem

Label = str | int | bool

MAX_GROUPS = 8
"""Most groups of a fit. T has J (J + 1) / 2 entries, 36 at J = 8: more than records determine."""

_ESTIMABLE = 1e-8


@dataclass(frozen=True, eq=False)
class Groups:
    """Groups by a column of the table.

    Attributes
    ----------
    column
        Name of the column.
    labels
        Its distinct values in ascending order, J of them.
    index
        Number of each record's group, from 0, shape (N,).
    """

    column: str
    labels: tuple[Label, ...]
    index: Indices = field(repr=False)

    @property
    def n(self) -> int:
        """J, the number of groups."""
        return len(self.labels)

    @property
    def sizes(self) -> Indices:
        """Records of each group, shape (J,)."""
        return np.bincount(self.index, minlength=self.n)

    def number(self, label: object) -> int:
        """Number of a group by its label, from 0.

        Raises
        ------
        InputError
            If no record of the fit belongs to it.
        """
        for number, known in enumerate(self.labels):
            if known == label:
                return number
        raise InputError(
            f"there is no record of a group {label!r} of column {self.column!r} in this fit, so "
            "nothing says how its effect goes with the others: take a group of fit.groups.labels"
        )


def read_groups(problem: Problem, column: str) -> Groups:
    """Groups from a column of whole numbers, text, categories or true and false.

    Raises InputError if the column is missing, is the response, has gaps or is of another kind, or
    if there are more than :data:`MAX_GROUPS` groups.
    """
    table = problem.table
    if not isinstance(column, str):
        raise InputError(f"groups must be the name of a column, got {type(column).__name__}")
    if column not in table.columns:
        raise InputError(f"there is no column {column!r} to take groups from")
    if column == problem.response:
        raise InputError(
            f"groups can't be the response {column!r}: copies replace it, and the groups with it"
        )
    values = table[column]
    gaps = values.isna().to_numpy(dtype=bool)
    if gaps.any():
        raise InputError(
            f"groups need a value in every row; column {column!r} has none in "
            f"{describe_rows(gaps)}. Fill these in, or leave the rows out"
        )
    if pd.api.types.is_float_dtype(values.dtype):
        raise InputError(
            f"groups are names or whole numbers, and column {column!r} is of type {values.dtype}: "
            'convert it first, for example with .astype("int64")'
        )
    labels, index = _labels(values, column)
    if len(labels) > MAX_GROUPS:
        raise InputError(
            f"column {column!r} has {len(labels)} groups; at most {MAX_GROUPS} are taken, because "
            f"the covariance between {MAX_GROUPS} groups has {MAX_GROUPS * (MAX_GROUPS + 1) // 2} "
            "entries to learn. Join the rare groups"
        )
    return Groups(column, labels, index)


def _labels(values: pd.Series, column: str) -> tuple[tuple[Label, ...], Indices]:
    """Distinct values, ascending, and the number of each row's."""
    plain = [v.item() if isinstance(v, np.generic) else v for v in values.tolist()]
    kinds = {type(v) for v in plain}
    if len(kinds) > 1 or not kinds <= {int, str, bool}:
        raise InputError(
            f"groups are names, whole numbers, or true and false, all of one kind; column "
            f"{column!r} holds {', '.join(sorted(kind.__name__ for kind in kinds))}"
        )
    labels = tuple(sorted(set(plain)))
    number = {label: k for k, label in enumerate(labels)}
    return labels, np.array([number[v] for v in plain], dtype=np.intp)


def not_estimable(groups: Groups, X: Floats, rows: Indices) -> list[tuple[int, int]]:
    """Groups whose own records do not determine all P coefficients: number, rank of its rows of X.

    X is the whole design matrix, shape (N, P); ``rows`` are the informing records.
    """
    found = []
    size = np.linalg.norm(X, axis=0)
    for k in range(groups.n):
        own = X[rows[groups.index[rows] == k]] / np.where(size > 0, size, 1.0)
        rank = int(np.linalg.matrix_rank(own, tol=_ESTIMABLE)) if len(own) else 0
        if rank < X.shape[1]:
            found.append((k, rank))
    return found
