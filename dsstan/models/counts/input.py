"""What a fit of counts refuses before anything is sampled."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dsstan.core.arrays import Floats
from dsstan.core.errors import FormulaError, InputError, TableError, describe_rows
from dsstan.models.counts.outcomes import OUTCOMES, Outcome
from dsstan.table.problem import Problem

LARGEST = 2**31 - 1
"""The largest count that a Stan program reads."""
OFFSETS = ("exposure", "log")


def check_counts(problem: Problem, outcome: str) -> Outcome:
    """The outcome by name, if the response is one.

    Raises InputError if there is none of this name, or the response has a transform, negative
    values, fractions, values beyond Stan's integers, or for ``"bernoulli"`` others than 0 and 1.
    """
    if outcome not in OUTCOMES:
        raise InputError(f"outcome must be one of {', '.join(OUTCOMES)}, got {outcome!r}")
    name, y = problem.response, problem.original()
    if problem.transform.name != "identity":
        raise FormulaError(
            f"A {outcome} response is modelled as it is: the link takes the place of "
            f"{problem.transform.name}({name}). Write '{name} ~ ...' in prepare()."
        )
    if outcome == "bernoulli":
        other = (y != 0) & (y != 1)
        if other.any():
            kinds = np.unique(y).size
            raise TableError(
                f"A bernoulli response needs the values 0 and 1 (or truth values), and {name!r} "
                f"has {kinds} different values, others than these in {describe_rows(other)}. "
                "Recode it as 0 and 1, or choose another outcome."
            )
        return OUTCOMES[outcome]
    for bad, what in (
        (y < 0, "negative values"),
        (y != np.rint(y), "fractions"),
        (y > LARGEST, f"values above {LARGEST}"),
    ):
        if bad.any():
            raise TableError(
                f"A {outcome} response needs whole numbers from 0 to {LARGEST}, and {name!r} has "
                f"{what} in {describe_rows(bad)}. Correct them, or use dsstan.fit for a "
                "continuous response."
            )
    return OUTCOMES[outcome]


def read_offset(problem: Problem, offset: str | None, offset_is: str) -> Floats:
    """The offset on the link scale, shape (N,); zeros where there is none.

    Raises InputError if there is no such column, it is the response or the same as it, or a value
    is missing, infinite, or as an exposure not above 0.
    """
    if offset_is not in OFFSETS:
        raise InputError(f"offset_is must be one of {', '.join(OFFSETS)}, got {offset_is!r}")
    if offset is None:
        return np.zeros(problem.n_records)
    if offset not in problem.table.columns:
        raise InputError(
            f"offset names column {offset!r}, which the table does not have. Its columns: "
            f"{', '.join(map(str, problem.table.columns[:10]))}."
        )
    column = problem.table[offset]
    kind = pd.api.types
    if not kind.is_numeric_dtype(column.dtype) or kind.is_bool_dtype(column.dtype):
        raise TableError(f"Offset {offset!r} must hold numbers and has dtype {column.dtype}.")
    values = column.to_numpy(dtype=np.float64, na_value=np.nan)
    if offset == problem.response or np.array_equal(values, problem.original()):
        raise InputError(
            f"offset {offset!r} is the response or a copy of it: it would be published and give "
            "the response away. Give the exposure, such as persons or years."
        )
    checks = [(np.isnan(values), "missing values"), (np.isinf(values), "infinite values")]
    if offset_is == "exposure":
        checks.append((values <= 0, "values that are not above 0"))
    for bad, what in checks:
        if bad.any():
            advice = (
                "Drop or correct these rows; where the column holds the log of the exposure, give "
                'offset_is="log".'
                if what.endswith("above 0")
                else "Drop or correct these rows."
            )
            raise TableError(f"Offset {offset!r} has {what} in {describe_rows(bad)}. {advice}")
    return np.log(values) if offset_is == "exposure" else values
