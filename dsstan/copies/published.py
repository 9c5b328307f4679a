"""Which columns leave with the copies, and what keeps a table from leaving."""

from __future__ import annotations

import pandas as pd

from dsstan.copies.result import Synthesis
from dsstan.core.errors import ReleaseError
from dsstan.core.progress import progress_bar
from dsstan.table.order_leaks import check_order, numbers_of, ranks_like_response


def check_public(release: Synthesis) -> None:
    """Refuse a table whose other columns reveal the response.

    Raises
    ------
    ReleaseError
        If a column that would be published, the index or the rows themselves put the records
        in the order of the response, or its reverse, or nearly so.
    """
    for step in release.steps:
        check_order(step.problem)
    problem, made = release.problem, synthetic(release)
    others = [name for name in public_columns(release) if name not in made]
    with progress_bar(
        "writing: other columns", None if problem.by_row_groups else False
    ) as advance:
        for number, name in enumerate(others, 1):
            column = numbers_of(problem.pieces(name), problem.n_records)
            advance(number / len(others))
            for step in () if column is None else release.steps:
                response = step.problem.response
                if ranks_like_response(pd.Series(column), step.problem.table[response]):
                    raise ReleaseError(
                        f"column {name!r} puts the records in the order of the response "
                        f"{response!r}, or nearly so, and would be published as it is: leave it "
                        "out of the table before prepare()"
                    )


def public_columns(release: Synthesis) -> list[str]:
    """Columns of the copies: all of the table's but those that hold weights."""
    all_weights = [step.fit.weights for step in release.steps]
    withheld = {weights.column for weights in all_weights if weights is not None}
    return [name for name in release.problem.columns if name not in withheld]


def synthetic(release: Synthesis) -> list[str]:
    """The synthetic columns, in the order in which they were drawn."""
    return [step.problem.response for step in release.steps]


def held_columns(release: Synthesis) -> list[str]:
    """Columns of the copies that are in memory: all, but where the table is read by row groups."""
    there = release.problem.table.columns
    return [name for name in public_columns(release) if name in there]
