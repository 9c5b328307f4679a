"""Read a formula, refuse what is not a formula, and build y and X from it.

formulaic splits the formula into terms. Each piece of Python it finds is walked as a syntax
tree (``_expressions``) before anything is evaluated.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from dsstan.core.arrays import Floats
from dsstan.core.errors import FormulaError, TableError, describe_rows
from dsstan.core.spelling import spelled
from dsstan.table.columns import check_matrix, covariate, require_column, response_values
from dsstan.table.formulas.expressions import (
    ALLOWED_FUNCTIONS,
    CONTEXT,
)
from dsstan.table.formulas.parsing import ParsedFormula, ResponseTransform, parse

__all__ = [
    "ALLOWED_FUNCTIONS",
    "Design",
    "ParsedFormula",
    "ResponseTransform",
    "build_design",
    "design",
    "parse",
]


@dataclass(frozen=True, eq=False)
class Design:
    """Design matrix of one table, reused for tables that differ in the response only.

    Attributes
    ----------
    formula
        The formula it was built from.
    X
        Design matrix, shape (N, P), read-only.
    terms
        Name of each column of X, P of them; the intercept is ``"Intercept"``.
    y
        Response of that table on the modelled scale, shape (N,), read-only.
    levels
        The levels of each column that the formula takes as a category.
    """

    formula: ParsedFormula
    X: Floats = field(repr=False)
    terms: tuple[str, ...]
    y: Floats = field(repr=False)
    levels: Mapping[str, frozenset[Any]] = field(repr=False, default_factory=dict)
    _spec: Any = field(repr=False, default=None)

    @property
    def owners(self) -> tuple[str, ...]:
        """The formula's term that each column of X belongs to; it holds no level of the data."""
        shown, structure = self.formula._names.term, self._spec.structure
        return tuple(shown(str(term)) for term, _, columns in structure for _ in columns)

    def X_of(self, table: pd.DataFrame) -> Floats:
        """Design matrix of a table whose covariates differ, shape (N, P), read-only.

        Terms keep what they learnt from the first table: the mean and sd of ``scale()``, for
        example, are those of the real covariate.

        Raises
        ------
        FormulaError
            If a term can't be computed from the table.
        TableError
            If a term is not finite there, or a category has a level that the first table lacks,
            whose effect is unknown.
        """
        frame = _covariates(self.formula, table)
        for name, levels in self.levels.items():
            new = ~pd.Series(frame[self.formula._names.word(name)]).isin(levels).to_numpy()
            if new.any():
                raise TableError(
                    f"Column {name!r} has a level in {describe_rows(new)} that no record had when "
                    f"the formula {self.formula.text!r} met its table, so nothing tells its "
                    f"effect. Take {name!r} as a number, or merge its levels into a few that "
                    "every table has."
                )
        matrix = _matrix(self._spec, frame, self.formula)
        X = np.array(matrix, dtype=np.float64, order="C")
        finite = np.asarray(np.isfinite(X), dtype=np.bool_)
        if not finite.all():
            term = self.terms[int(np.argmin(finite.all(axis=0)))]
            where = describe_rows(np.asarray(~finite.all(axis=1)))
            raise TableError(
                f"Term {term!r} of the formula is infinite or undefined in {where} of a copy: "
                "a synthetic covariate is out of its range there. Take the term as it is, or "
                "model the covariate on a scale that keeps it in range."
            )
        X.setflags(write=False)
        return X

    def y_of(self, table: pd.DataFrame) -> Floats:
        """Response of a table on the modelled scale, shape (N,), read-only.

        Raises
        ------
        TableError
            If the table has another number of rows, or its response cannot be used.
        """
        if len(table) != len(self.X):
            raise TableError(
                f"The design matrix was built for {len(self.X)} rows and this table has "
                f"{len(table)}. Build a new design for a table with other rows."
            )
        return _response(self.formula, table)


def design(parsed: ParsedFormula, table: pd.DataFrame) -> tuple[Floats, Floats, tuple[str, ...]]:
    """Response, design matrix and the names of its columns.

    Parameters
    ----------
    parsed
        Formula from :func:`parse`.
    table
        Table with N rows.

    Returns
    -------
    y
        Response on the modelled scale, shape (N,).
    X
        Design matrix, shape (N, P).
    terms
        Names of the P columns of X.

    Raises
    ------
    FormulaError
        If a column or a piece of the formula does not fit the table.
    TableError
        If values are missing, infinite, constant or collinear.

    Examples
    --------
    >>> table = pd.DataFrame({"y": [1.0, 2.0, 4.0, 3.0], "x": [0.0, 1.0, 2.0, 5.0]})
    >>> y, X, terms = design(parse("y ~ x"), table)
    >>> X.shape, terms
    ((4, 2), ('Intercept', 'x'))
    """
    built = build_design(parsed, table)
    return built.y, built.X, built.terms


def build_design(parsed: ParsedFormula, table: pd.DataFrame, *, missing: bool = False) -> Design:
    """Design matrix of a table, to be reused for copies of it with other responses.

    Parameters
    ----------
    parsed
        Formula from :func:`parse`.
    table
        Table with N rows.
    missing
        Whether the response may have gaps; y is NaN there.

    Returns
    -------
    Design
        With X, terms and y; :meth:`Design.y_of` gives the response of a copy of the table.

    Raises
    ------
    FormulaError
        If a column or a piece of the formula does not fit the table.
    TableError
        If a column of the right side has missing or infinite values, is constant, or makes
        X collinear: a pivoted QR of X with columns of length 1 leaves a diagonal entry at
        or below ``COLLINEAR_TOLERANCE``.
    """
    for name in (parsed.response, *parsed.columns):
        require_column(name, table, parsed.text)
    frame = _covariates(parsed, table)
    matrix = _matrix(parsed._terms, frame, parsed)
    shown = parsed._names.term
    X = np.array(matrix, dtype=np.float64, order="C")
    spec = matrix.model_spec
    owner = {name: shown(str(term)) for term, _, names in spec.structure for name in names}
    columns = tuple(spec.column_names)
    terms = tuple(map(shown, columns))
    names = [shown(str(term)) for term in parsed._terms]
    check_matrix(X, [owner[column] for column in columns], names, parsed.text)
    X.setflags(write=False)
    y = _response(parsed, table, missing=missing)
    category = pd.CategoricalDtype
    levels = {
        name: frozenset(column.unique())
        for name in parsed.columns
        if isinstance((column := frame[parsed._names.word(name)]).dtype, category)
        or name in parsed.coded
    }
    return Design(parsed, X, terms, y, levels, spec)


def _covariates(parsed: ParsedFormula, table: pd.DataFrame) -> pd.DataFrame:
    """The columns of the right side, checked."""
    return pd.DataFrame(
        {
            parsed._names.word(name): covariate(
                table[name], name, category=name in parsed.categories
            )
            for name in parsed.columns
        },
        index=pd.RangeIndex(len(table)),
    )


def _matrix(terms: Any, frame: pd.DataFrame, parsed: ParsedFormula) -> Any:
    """Model matrix of terms, or of a model specification, as formulaic has it."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return terms.get_model_matrix(frame, context=CONTEXT, na_action="ignore")
    except Exception:  # of any kind, and its text may hold values
        clash = [name for name in parsed.columns if name in CONTEXT]
        raise FormulaError(
            f"The right side of {parsed.text!r} cannot be computed from columns "
            f"{', '.join(map(repr, parsed.columns))}. "
            + (
                f"Column {clash[0]!r} has the name of a function: rename it."
                if clash
                else "Check that each function gets the kind of column it needs (C() takes "
                "categories, the others numbers) and sensible options."
            )
        ) from None


def _response(parsed: ParsedFormula, table: pd.DataFrame, *, missing: bool = False) -> Floats:
    """Checked response on the modelled scale."""
    name = parsed.response
    require_column(name, table, parsed.text)
    own = response_values(table[name], name, missing=missing)
    y = parsed.transform.forward(own)
    bad = ~np.isfinite(y) & ~np.isnan(own)
    if bad.any():
        needs = "above -1" if parsed.transform.name == "log1p" else "above 0"
        zeros = int(np.sum(own[bad] == 0.0))
        heap = (
            f" Where these 0 are true values, {spelled('heap', 0)} gives them a law of their own."
            if zeros >= 5
            else ""
        )
        raise TableError(
            f"Response {name!r} must be {needs} for {parsed.transform.name}(); it is not in "
            f"{describe_rows(bad)}. Correct or drop these rows, or model {name!r} "
            f"itself.{heap}"
        )
    y.setflags(write=False)
    return y
