"""Survey weights: how many members of the population each record stands for.

They are no risk weights: those say who is protected, lie from 0 to 1 and stay confidential. Survey
weights are published as they are, since no analyst can do without them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from dsstan.core.arrays import Floats
from dsstan.core.errors import InputError, TableError, describe_rows
from dsstan.table.columns import did_you_mean, to_numbers_in_words

__all__ = ["check_survey_column", "survey_weights_of"]


def survey_weights_of(table: pd.DataFrame, column: str) -> Floats:
    """The survey weights of a table, shape (N,).

    Raises
    ------
    InputError
        If there is no such column.
    TableError
        If it holds no numbers, or a weight is missing, infinite, 0 or negative.
    """
    check_survey_column(column, table.columns)
    kind, values = pd.api.types, table[column]
    if not kind.is_numeric_dtype(values.dtype) or kind.is_bool_dtype(values.dtype):
        raise TableError(
            f"Survey weights must be positive numbers, and column {column!r} has dtype "
            f"{values.dtype}. {to_numbers_in_words(values)}"
        )
    weights: Floats = values.to_numpy(dtype=np.float64, na_value=np.nan)
    for bad, what in (
        (np.isnan(weights), "missing"),
        (np.isinf(weights), "infinite"),
        (weights <= 0.0, "0 or negative"),
    ):
        if bad.any():
            raise TableError(
                f"Survey weights of column {column!r} are {what} in {describe_rows(bad)}; each "
                "record needs a positive one, the number of members of the population that it "
                "stands for. Correct these rows, or leave them out."
            )
    return weights


def check_survey_column(column: Any, columns: Any) -> None:
    """Raise InputError unless survey weights are the name of a column of the table."""
    if not isinstance(column, str):
        raise InputError(
            f'survey_weights must be the name of a column, such as "weight", got {column!r}'
        )
    if column not in columns:
        guess = did_you_mean(column, columns)
        raise InputError(f"survey_weights names {column!r}, which is no column.{guess}")
