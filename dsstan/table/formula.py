"""Read a formula, refuse what is not a formula, and build y and X from it.

formulaic splits the formula into terms. Each piece of Python it finds is walked as a syntax
tree (``_expressions``) before anything is evaluated.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass, field
from typing import Any

import formulaic
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dsstan.core.errors import FormulaError, TableError, describe_rows
from dsstan.table.columns import check_matrix, covariate, require_column, response_values
from dsstan.table.expressions import (
    ALLOWED_FUNCTIONS,
    CONTEXT,
    ELEMENTWISE,
    check_expansion,
    columns_of,
)

__all__ = [
    "ALLOWED_FUNCTIONS",
    "Design",
    "ParsedFormula",
    "ResponseTransform",
    "build_design",
    "design",
    "parse",
]

Array = NDArray[np.float64]

_RESPONSE_FUNCTIONS = ("log", "log2", "log10", "log1p")
_MAX_LENGTH = 2000


@dataclass(frozen=True)
class ResponseTransform:
    """Transform that takes the response from its own scale to the modelled scale.

    Attributes
    ----------
    name
        ``"identity"``, ``"log"``, ``"log2"``, ``"log10"`` or ``"log1p"``.

    Examples
    --------
    >>> log = ResponseTransform("log")
    >>> log.inverse(log.forward(np.array([1.0, 2.0])))
    array([1., 2.])
    """

    name: str

    def forward(self, values: Array) -> Array:
        """Values on the modelled scale, same shape; NaN or -inf where undefined."""
        if self.name == "identity":
            return np.array(values, dtype=np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(ELEMENTWISE[self.name](values), dtype=np.float64)

    def inverse(self, values: Array) -> Array:
        """Values on the response's own scale, same shape."""
        with np.errstate(over="ignore"):
            if self.name == "log":
                return np.exp(values)
            if self.name == "log2":
                return np.exp2(values)
            if self.name == "log10":
                return np.power(10.0, values)
            if self.name == "log1p":
                return np.expm1(values)
        return np.array(values, dtype=np.float64)


@dataclass(frozen=True)
class ParsedFormula:
    """Formula that has passed the checks which need no data.

    Attributes
    ----------
    text
        The formula as given.
    response
        Column on the left side.
    transform
        Transform of that column.
    rhs
        Right side in a standard form, for example ``"1 + x"``.
    columns
        Columns that the right side uses, in order of appearance.
    categories
        Those of them that it uses inside ``C()`` only.
    coded
        Those that it uses inside ``C()`` anywhere.
    """

    text: str
    response: str
    transform: ResponseTransform
    rhs: str
    columns: tuple[str, ...]
    categories: tuple[str, ...]
    coded: tuple[str, ...]
    _terms: Any = field(repr=False, compare=False)


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
    """

    formula: ParsedFormula
    X: Array = field(repr=False)
    terms: tuple[str, ...]
    y: Array = field(repr=False)
    _spec: Any = field(repr=False, default=None)

    def X_of(self, table: pd.DataFrame) -> Array:
        """Design matrix of a table whose covariates differ, shape (N, P), read-only.

        Terms keep what they learnt from the first table: the mean and sd of ``scale()``, for
        example, are those of the real covariate.

        Raises
        ------
        FormulaError
            If a term can't be computed from the table.
        TableError
            If a term is not finite there.
        """
        matrix = _matrix(self._spec, _covariates(self.formula, table), self.formula)
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

    def y_of(self, table: pd.DataFrame) -> Array:
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


def parse(formula: str) -> ParsedFormula:
    """Read a formula and check all that can be checked without data.

    Parameters
    ----------
    formula
        For example ``"log(price) ~ scale(log(squarefeet))"``. The left side is one column,
        or log, log2, log10 or log1p of one column. The right side takes the operators of
        formulaic (``+ - : * / ^ %in%``), columns, and the functions of
        ``ALLOWED_FUNCTIONS``; write ``1`` for an intercept only and ``- 1`` for none. As in R,
        ``x^2`` is about interactions and a square is ``I(x**2)``. Put a column name with
        blanks in backticks.

    Returns
    -------
    ParsedFormula

    Raises
    ------
    FormulaError
        If the text is not a formula or holds anything else; the message names the piece.

    Examples
    --------
    >>> parsed = parse("log(price) ~ scale(log(squarefeet))")
    >>> parsed.response, parsed.transform.name, parsed.rhs
    ('price', 'log', '1 + scale(log(squarefeet))')
    """
    if not isinstance(formula, str) or not formula.strip():
        raise FormulaError(
            "Needed a formula as text, such as 'log(price) ~ squarefeet', and got "
            f"{'empty text' if isinstance(formula, str) else type(formula).__name__}."
        )
    text = formula.strip()
    if len(text) > _MAX_LENGTH:
        raise FormulaError(f"The formula is longer than {_MAX_LENGTH} characters: shorten it.")
    check_expansion(text)
    left, right = _split(text)
    if len(left) != 1 or len(left[0].factors) != 1:
        raise FormulaError(
            "The left side must be one column, or log, log2, log10 or log1p of one column; "
            f"it has {len(left)} terms: {' + '.join(map(str, left))!r}. Model one response "
            "at a time."
        )
    response, transform = _left_side(left[0].factors[0], text)
    coded: dict[str, None] = {}
    columns: dict[str, bool] = {}  # each with whether it is used inside C() only
    for term in right:
        for factor in term.factors:
            category = factor.expr.startswith("C(")
            for column in columns_of(factor, text):
                if category:
                    coded.setdefault(column)
                columns[column] = columns.get(column, True) and category
    if response in columns:
        raise FormulaError(
            f"Column {response!r} is the response and stands on the right side too. Take it "
            f"off the right side of {text!r}."
        )
    names = [":".join(map(_written, term.factors)) for term in right]
    rhs = " + ".join(names if "1" in names else ["0", *names])
    categories = tuple(column for column, category in columns.items() if category)
    return ParsedFormula(
        text, response, transform, rhs, tuple(columns), categories, tuple(coded), right
    )


def _written(factor: Any) -> str:
    """A factor as it must be written in a formula."""
    lookup = factor.eval_method.value == "lookup"
    if lookup and not re.fullmatch(r"[^\W\d][\w.]*", factor.expr):
        return f"`{factor.expr}`"
    call = re.fullmatch(r"\w+\(.*\)", factor.expr)
    python = factor.eval_method.value == "python"
    return f"{{{factor.expr}}}" if python and not call else str(factor.expr)


def _split(text: str) -> tuple[list[Any], Any]:
    """Terms of the left and of the right side, as formulaic finds them."""
    try:
        found = formulaic.Formula(text)
    except Exception as error:  # formulaic raises many kinds
        what = str(error.msg) if isinstance(error, SyntaxError) else str(error)
        first = re.sub(r"\x1b\[[0-9;]*m|[⧛⧚]", "", what).split("\n")[0].rstrip(".") + "."
        if "`.` operator" in first:
            first = "'.' for all other columns is not allowed: name the columns."
        raise FormulaError(f"The formula {text!r} cannot be read. {first}") from None
    if not hasattr(found, "lhs"):
        raise FormulaError(
            f"The formula {text!r} has no left side. Write the response and '~' before it, "
            "as in 'log(price) ~ squarefeet'."
        )
    if isinstance(found.rhs, tuple) or isinstance(found.lhs, tuple):
        raise FormulaError(
            f"The formula {text!r} has several parts, split by '|'. One part is needed: use "
            "'+' or ':'."
        )
    if text.endswith("~") or not len(found.rhs):
        raise FormulaError(
            f"The formula {text!r} has nothing on its right side. Write '1' for an intercept only."
        )
    return list(found.lhs), found.rhs


def _left_side(factor: Any, text: str) -> tuple[str, ResponseTransform]:
    """Column and transform of the left side."""
    if factor.eval_method.value == "lookup":
        return factor.expr, ResponseTransform("identity")
    columns = columns_of(factor, text)
    match = re.fullmatch(r"(\w+)\((`[^`]+`|[^\W\d]\w*)\)", factor.expr)
    if match is None or match[1] not in _RESPONSE_FUNCTIONS:
        raise FormulaError(
            "The left side must be one column, or log, log2, log10 or log1p of one column; "
            f"it is {factor.expr!r}. Compute anything else as a new column first."
        )
    return columns[0], ResponseTransform(match[1])


def design(parsed: ParsedFormula, table: pd.DataFrame) -> tuple[Array, Array, tuple[str, ...]]:
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
    matrix = _matrix(parsed._terms, _covariates(parsed, table), parsed)
    X = np.array(matrix, dtype=np.float64, order="C")
    owner = {
        column: str(term) for term, _, columns in matrix.model_spec.structure for column in columns
    }
    terms = tuple(matrix.model_spec.column_names)
    names = [str(term) for term in parsed._terms]
    check_matrix(X, [owner[term] for term in terms], names, parsed.text)
    X.setflags(write=False)
    y = _response(parsed, table, missing=missing)
    return Design(parsed, X, terms, y, matrix.model_spec)


def _covariates(parsed: ParsedFormula, table: pd.DataFrame) -> pd.DataFrame:
    """The columns of the right side, checked."""
    return pd.DataFrame(
        {
            name: covariate(table[name], name, category=name in parsed.categories)
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


def _response(parsed: ParsedFormula, table: pd.DataFrame, *, missing: bool = False) -> Array:
    """Checked response on the modelled scale."""
    name = parsed.response
    require_column(name, table, parsed.text)
    own = response_values(table[name], name, missing=missing)
    y = parsed.transform.forward(own)
    bad = ~np.isfinite(y) & ~np.isnan(own)
    if bad.any():
        needs = "above -1" if parsed.transform.name == "log1p" else "above 0"
        raise TableError(
            f"Response {name!r} must be {needs} for {parsed.transform.name}(); it is not in "
            f"{describe_rows(bad)}. Correct or drop these rows, or model {name!r} "
            "itself."
        )
    y.setflags(write=False)
    return y
