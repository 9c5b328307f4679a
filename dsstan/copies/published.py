"""Which columns leave with the copies, and what keeps a table from leaving."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from dsstan.copies.result import Synthesis
from dsstan.core.errors import ReleaseError
from dsstan.core.progress import progress_bar
from dsstan.table.order_leaks import check_order, numbers_of, ranks_like_response
from dsstan.table.places.coordinates import is_geodataframe
from dsstan.table.problem import Problem


def check_public(release: Synthesis) -> None:
    """Refuse a table whose other columns reveal the response.

    Raises ReleaseError if a column that would be published, the index or the rows themselves put
    the records in the order of the response, or its reverse, or nearly so; or ``publish`` or
    ``survey_weights`` names a column of risk weights.
    """
    problems = [step.problem for step in release.steps]
    for problem in problems:
        named = {name: "publish" for name in problem.publish or ()}
        if problem.survey_weights is not None:
            named[problem.survey_weights] = "survey_weights"
        for name in named.keys() & _weights(release):
            raise ReleaseError(
                f"{named[name]} names {name!r}, which holds weights and would show who is flagged: "
                f"take it out of {named[name]}"
            )
    check_published(problems, public_columns(release))


def check_published(steps: Sequence[Problem], columns: Sequence[str]) -> None:
    """Refuse columns to be published that reveal a response of the steps, all of one table.

    Raises ReleaseError as :func:`check_public` does.
    """
    for step in steps:
        check_order(step)
    check_columns_published(steps, columns)


def check_columns_published(steps: Sequence[Problem], columns: Sequence[str]) -> None:
    """Refuse the same where rows and index are new, so that their order reveals nothing.

    Raises ReleaseError if a column puts the records in the order of a response.
    """
    problem, made = steps[-1], {step.response for step in steps}
    others = [name for name in columns if name not in made]
    with progress_bar(
        "writing: other columns", None if problem.by_row_groups else False
    ) as advance:
        for number, name in enumerate(others, 1):
            column = numbers_of(problem.pieces(name), problem.n_records)
            advance(number / len(others))
            for step in () if column is None else steps:
                response = step.response
                if ranks_like_response(pd.Series(column), step.table[response]):
                    raise ReleaseError(
                        f"column {name!r} puts the records in the order of the response "
                        f"{response!r}, or nearly so, and would be published as it is: take it "
                        "out of publish, or of the formula"
                    )


def public_columns(release: Synthesis) -> list[str]:
    """Columns of the copies, in the order of the table: those of :func:`columns_going_out`, but
    for those that hold weights."""
    going = {n for s in release.steps for n in columns_going_out(s.problem, s.fit.other_columns)}
    withheld = _weights(release)
    return [name for name in release.problem.columns if name in going and name not in withheld]


def columns_beside_the_model(release: Synthesis) -> list[str]:
    """Columns of the copies that are neither synthetic, coordinates nor in the formula."""
    problem = release.problem
    known = {*synthetic(release), *problem.coord_names, *problem.design.formula.columns}
    known |= set(() if problem.structure is None else problem.structure.columns)
    return [name for name in public_columns(release) if name not in known]


def unpublished_columns(release: Synthesis) -> list[str]:
    """Columns of the table that stay with it, in its order."""
    going = set(public_columns(release))
    problem = release.problem
    dropped = () if problem.households is None else problem.households.dropped
    return [*(name for name in problem.columns if name not in going), *dropped]


def as_collected(release: Synthesis) -> list[str]:
    """Columns that leave with the copies as they are."""
    made = synthetic(release)
    return [str(name) for name in public_columns(release) if name not in made]


def columns_going_out(problem: Problem, others: Sequence[str] = ()) -> list[str]:
    """Columns that leave with the copies: an allow-list, in the order of the table.

    They are the columns of the formula, the coordinates, the time, the survey weights, what
    ``publish`` names, and ``others`` that the model takes beside its formula, such as an offset.
    """
    formula = problem.design.formula
    going = {formula.response, *formula.columns, *problem.coord_names, *others}
    going |= set(problem.publish or ())
    going |= set() if problem.survey_weights is None else {problem.survey_weights}
    going |= set(() if problem.structure is None else problem.structure.columns)
    table = problem.table
    if is_geodataframe(table) and problem.coord_names[0] not in table.columns:
        going.add(problem.coord_names[0].removesuffix(".x"))  # its points are the coordinates
    return [name for name in problem.columns if name in going]


def _weights(release: Synthesis) -> set[str | None]:
    """Columns that hold weights, which say who is flagged."""
    return {step.fit.weights.column for step in release.steps if step.fit.weights is not None}


def synthetic(release: Synthesis) -> list[str]:
    """The synthetic columns, in the order in which they were drawn."""
    return [step.problem.response for step in release.steps]


def held_columns(release: Synthesis) -> list[str]:
    """Columns of the copies that are in memory: all, but where the table is read by row groups."""
    there = release.problem.table.columns
    return [name for name in public_columns(release) if name in there]
