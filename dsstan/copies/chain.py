"""Several synthetic columns, each drawn given the synthetic values of the former.

The models are fitted to the real table: age by its covariates, price by age and others. Copy l of
price is then drawn at the ages of copy l (section 6 of Quick, Holan and Wikle 2018), so that the
copies hold the joint law that the models describe, and the rule of Reiter (2003) serves any
analysis of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pandas as pd

from dsstan.copies.draw import Drawing, draw_column
from dsstan.copies.result import Synthesis
from dsstan.core.arrays import Floats
from dsstan.core.errors import InputError
from dsstan.models.result import Fit
from dsstan.table.formulas.formula import Design, ParsedFormula
from dsstan.table.problem import Problem

__all__ = ["GivenSynthesis", "check_chain", "check_columns", "synthesise_given"]


@dataclass(frozen=True, eq=False, repr=False)
class GivenSynthesis(Synthesis):
    """Copies of one column drawn at the synthetic values of others, and those with it.

    It is the release of all of them: its tables hold every synthetic column.

    Attributes
    ----------
    given
        The copies of the columns before, in the order in which they were drawn.
    """

    given: tuple[Synthesis, ...] = field(repr=False, default=())

    def _line(self) -> str:
        names = ", ".join(repr(step.problem.response) for step in self.given)
        return f"{super()._line()}, given {names}"

    @property
    def steps(self) -> tuple[Synthesis, ...]:
        """Every synthetic column's copies, in the order in which they were drawn."""
        return (*self.given, self)

    def table(self, copy: int) -> pd.DataFrame:
        """Copy number ``copy``, from 0: the input table with every synthetic column replaced."""
        table = self.given[-1].table(copy)
        response = self.problem.response
        table[response] = super().table(copy)[response]
        return table

    def designs(self, design: Design) -> Iterator[Floats]:
        """Design matrix of each copy: its synthetic covariates differ from copy to copy."""
        for number in range(self.copies):
            yield design.X_of(self.table(number))

    def _from(self, fit: Fit) -> Synthesis:
        """As many copies from another fit, at the same synthetic covariates."""
        return self._as_many(fit, given=self.given[-1])


def synthesise_given(
    fit: Fit,
    given: Synthesis,
    how: Drawing,
) -> GivenSynthesis:
    """Copies of the next column of a chain; see :func:`dsstan.synthesise`.

    Parameters
    ----------
    fit
        Of the real table.
    given
        The copies before, as many as are drawn.
    how
        See :func:`dsstan.synthesise`.

    Raises
    ------
    InputError
        If the two are not of one table, a column is synthetic already, a step before used the
        real values of this one, or the formula takes a synthetic column as a category.
    TableError
        If a synthetic covariate takes a term of the formula out of its range.
    ConvergenceError
        If the fit failed its verdict.
    """
    steps = given.steps
    check_chain([step.problem for step in steps], fit.problem)
    made = [step.problem.response for step in steps]
    check_columns(made, fit.other_columns, len(steps) + 1)
    for number, step in enumerate(steps, 1):
        check_columns([fit.problem.response], step.fit.other_columns, number)
    for one in (*(step.fit for step in steps), fit):
        column = None if one.weights is None else one.weights.column
        if column in (*made, fit.problem.response):
            raise InputError(
                f"column {column!r} holds the weights of a step, so it is withheld, and can't be "
                "synthetic too: give the weights as numbers, own_weights(problem, values)"
            )
    design = fit.problem.design
    uses = set(design.formula.columns) & set(made)
    return draw_column(
        fit,
        given.copies,
        how,
        GivenSynthesis,
        designs=(lambda k: design.X_of(given.table(k))) if uses else None,
        given=steps,
    )


def check_chain(before: list[Problem], last: Problem) -> None:
    """Refuse steps that make no chain.

    Parameters
    ----------
    before
        The problems whose copies are drawn first, in their order.
    last
        The problem whose copies are drawn next.

    Raises
    ------
    InputError
        See :func:`synthesise_given`.
    """
    made: list[str] = []
    for number, problem in enumerate(before, 1):
        formula = problem.design.formula
        if problem.response == last.response:
            raise InputError(
                f"column {last.response!r} is synthetic already, by step {number} of the chain"
            )
        if last.response in formula.columns:
            raise InputError(
                f"step {number} of the chain, {formula.text!r}, uses {last.response!r}, which is "
                "synthesised only after it: its copies hold the real values of that column. Draw "
                f"{last.response!r} first, or take it out of that formula"
            )
        if not (problem.table.index.equals(last.table.index) and problem.table.equals(last.table)):
            raise InputError(
                f"step {number} of the chain was prepared from another table: prepare all steps "
                "from the same one"
            )
        taken = {*problem.coord_names, *last.coord_names}
        for structure in filter(None, (problem.structure, last.structure)):
            taken |= set(structure.columns)
        if {problem.response, last.response} & taken:
            raise InputError(
                "a synthetic column can't be a coordinate, the time or the group of another step: "
                "these are released as they are"
            )
        if problem.n_missing or last.n_missing:
            raise InputError(
                "a response that is missing in some records can't be part of a chain: leave those "
                "records out"
            )
        made.append(problem.response)
    for problem in (*before, last):
        if problem.survey_weights in (*made, last.response):
            raise InputError(
                f"column {problem.survey_weights!r} holds the survey weights, which are published "
                "as they are, and can't be synthetic too"
            )
    _check_kinds(last.design.formula, made)


def check_columns(made: list[str], others: tuple[str, ...], number: int) -> None:
    """Refuse a step that takes a synthetic column as its offset, its groups or its brackets.

    Parameters
    ----------
    made
        Synthetic columns.
    others
        Such columns of the step.
    number
        Of the step, from 1.

    Raises
    ------
    InputError
        If so: its copies would hold the real values of that column.
    """
    shared = [name for name in others if name in made]
    if shared:
        raise InputError(
            f"step {number} of the chain takes the synthetic column {shared[0]!r} as its offset, "
            "its groups or its brackets, and would take the real values: use another column there"
        )


def _check_kinds(formula: ParsedFormula, made: list[str]) -> None:
    """A synthetic column is a number: its copies may lack a level, or have a new one."""
    named = [name for name in made if name in formula.coded]
    if named:
        raise InputError(
            f"the formula {formula.text!r} takes the synthetic column {named[0]!r} as a category; "
            "its copies may have other levels than the table: use it as a number"
        )
