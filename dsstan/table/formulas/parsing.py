"""The text of a formula, taken apart and checked."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import formulaic
import numpy as np

from dsstan.core.arrays import Floats
from dsstan.core.errors import FormulaError
from dsstan.table.formulas.expressions import (
    CONTEXT,
    ELEMENTWISE,
    check_expansion,
    columns_of,
)
from dsstan.table.formulas.names import INTERCEPT, Names, stood_in

_RESPONSE_FUNCTIONS = ("log", "log2", "log10", "log1p")


_MAX_LENGTH = 2000

_BARRED = re.compile(r"`[^`]*`|\(([^()|`]*)\|+\s*(`[^`]+`|[^()`]*)\)")
"""A name in backticks, or what stands in brackets about a bar."""

_HERE = "\x00"
"""What stands for a random intercept while the formula is taken apart."""


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

    def forward(self, values: Floats) -> Floats:
        """Values on the modelled scale, same shape; NaN or -inf where undefined."""
        if self.name == "identity":
            return np.array(values, dtype=np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(ELEMENTWISE[self.name](values), dtype=np.float64)

    def inverse(self, values: Floats) -> Floats:
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

    def half_length(self, values: Floats, half: Floats | float) -> Floats:
        """Half the length, own scale, of the interval around a value that is ``2 half`` long on
        the modelled scale, shape of the values.

        Under log it is ``v tanh(half)``: from ``v (1 - p)`` to ``v (1 + p)`` are
        ``log((1 + p) / (1 - p))``.

        Examples
        --------
        >>> ResponseTransform("log").half_length(np.array([200.0]), np.log(1.1 / 0.9) / 2)
        array([20.])
        """
        if self.name == "identity":
            return np.asarray(half + np.zeros_like(values))
        base = {"log2": np.log(2.0), "log10": np.log(10.0)}.get(self.name, 1.0)
        lowest = -1.0 if self.name == "log1p" else 0.0
        return np.asarray((values - lowest) * np.tanh(base * half))


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
    group
        Column of the random intercept ``(1 | group)``; None without one.
    """

    text: str
    response: str
    transform: ResponseTransform
    rhs: str
    columns: tuple[str, ...]
    categories: tuple[str, ...]
    coded: tuple[str, ...]
    _terms: Any = field(repr=False, compare=False)
    group: str | None = None
    _names: Names = field(repr=False, compare=False, default=Names())


def parse(formula: str) -> ParsedFormula:
    """Read a formula and check all that can be checked without data.

    Raises FormulaError if the text is not a formula or holds anything else; the message names the
    piece.

    Parameters
    ----------
    formula
        For example ``"log(price) ~ scale(log(squarefeet))"``. The left side is one column,
        or log, log2, log10 or log1p of one column. The right side takes the operators of
        formulaic (``+ - : * / ^ %in%``), columns, and the functions of
        ``ALLOWED_FUNCTIONS``, splines (``bs``, ``ns``) among them; write ``1`` for an
        intercept only and ``- 1`` for none. ``(1 | zip)``, once, gives the levels of a column
        a random intercept. As in R, ``x^2`` is about interactions and a square
        is ``I(x**2)``. Any column name may stand in backticks, as in
        ``log(`floor area (m²)`)``; one that is no plain word must.

    Returns
    -------
    ParsedFormula

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
    fixed, group = _random_intercept(text)
    check_expansion(fixed)
    code, names = stood_in(fixed, CONTEXT)
    left, right = _split(code, text, names)
    if len(left) != 1 or len(left[0].factors) != 1:
        came = names.written(" + ".join(map(str, left)))
        raise FormulaError(
            "The left side must be one column, or log, log2, log10 or log1p of one column; "
            f"it has {len(left)} terms: {came!r}. Model one response at a time."
        )
    response, transform = _left_side(left[0].factors[0], text, names)
    coded: dict[str, None] = {}
    columns: dict[str, bool] = {}  # each with whether it is used inside C() only
    for term in right:
        for factor in term.factors:
            category = factor.expr.startswith("C(")
            for column in columns_of(factor, text, names):
                if category:
                    coded.setdefault(column)
                columns[column] = columns.get(column, True) and category
    if INTERCEPT in columns and INTERCEPT not in names.names:
        raise FormulaError(
            f"{INTERCEPT} is a term of every formula: write the column of that name in {text!r} in "
            f"backticks, `{INTERCEPT}`."
        )
    if response == group:
        raise FormulaError(
            f"Column {response!r} is the response and the group of the random intercept too. Take "
            f"one of the two out of {text!r}."
        )
    if response in columns:
        raise FormulaError(
            f"Column {response!r} is the response and stands on the right side too. Take it "
            f"off the right side of {text!r}."
        )
    terms = [names.written(":".join(map(_written, term.factors))) for term in right]
    rhs = " + ".join(terms if "1" in terms else ["0", *terms])
    categories = tuple(column for column, category in columns.items() if category)
    used = tuple(columns), categories, tuple(coded)
    return ParsedFormula(text, response, transform, rhs, *used, right, group, names)


def _random_intercept(text: str) -> tuple[str, str | None]:
    """The formula without its random intercept, and the column of its groups."""
    groups: list[str] = []

    def found(match: re.Match[str]) -> str:
        left, right = match[1], match[2]
        if left is None:
            return match[0]
        column = right.strip()
        if not re.fullmatch(r"`[^`]+`|[^\W\d]\w*", column):
            raise FormulaError(
                f"{match[0]!r} is not allowed in a formula: a random intercept is (1 | column), "
                f"for the groups of one column, as in (1 | zip). Formula: {text!r}. Compute a "
                "column of the groups first."
            )
        if left.strip() != "1":
            raise FormulaError(
                f"{match[0]!r} is not allowed in a formula: of the levels of a column only the "
                f"intercept can vary. Write (1 | {column}). Formula: {text!r}."
            )
        groups.append(column.strip("`"))
        return _HERE

    marked = _BARRED.sub(found, text)
    if not groups:
        return text, None
    if len(groups) > 1:
        raise FormulaError(
            f"The formula {text!r} has {len(groups)} random intercepts and may have one: keep "
            f"(1 | {groups[0]}), or add the levels of another column as C({groups[1]})."
        )
    fixed = re.sub(rf"\+\s*{_HERE}(?=\s*(?:[+-]|$))", "", marked)
    fixed = re.sub(rf"(?<=~)\s*{_HERE}\s*\+", "", fixed)
    fixed = re.sub(rf"(?<=~)\s*{_HERE}(?=\s*(?:-|$))", " 1", fixed)
    if _HERE in fixed:
        raise FormulaError(
            f"A random intercept is added with '+', as in y ~ x + (1 | {groups[0]}). "
            f"Formula: {text!r}."
        )
    return fixed.strip(), groups[0]


def _written(factor: Any) -> str:
    """A factor as it must be written in a formula."""
    lookup = factor.eval_method.value == "lookup"
    if lookup and not re.fullmatch(r"[^\W\d][\w.]*", factor.expr):
        return f"`{factor.expr}`"
    call = re.fullmatch(r"\w+\(.*\)", factor.expr)
    python = factor.eval_method.value == "python"
    return f"{{{factor.expr}}}" if python and not call else str(factor.expr)


def _split(code: str, text: str, names: Names) -> tuple[list[Any], Any]:
    """Terms of the left and of the right side, as formulaic finds them."""
    try:
        found = formulaic.Formula(code)
    except Exception as error:  # formulaic raises many kinds
        what = str(error.msg) if isinstance(error, SyntaxError) else str(error)
        first = re.sub(r"\x1b\[[0-9;]*m|[⧛⧚]", "", what).split("\n")[0].rstrip(".") + "."
        if "`.` operator" in first:
            first = "'.' for all other columns is not allowed: name the columns."
        first = names.written(first)
        if "`" not in text:
            first += (
                " A column whose name is more than letters, digits and _ stands in backticks, as "
                "in log(`floor area (m²)`); in a shell, put the formula in single quotes."
            )
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


def _left_side(factor: Any, text: str, names: Names) -> tuple[str, ResponseTransform]:
    """Column and transform of the left side."""
    if factor.eval_method.value == "lookup":
        return names.column(factor.expr), ResponseTransform("identity")
    columns = columns_of(factor, text, names)
    match = re.fullmatch(r"(\w+)\((`[^`]+`|[^\W\d]\w*)\)", factor.expr)
    if match is None or match[1] not in _RESPONSE_FUNCTIONS:
        raise FormulaError(
            "The left side must be one column, or log, log2, log10 or log1p of one column; "
            f"it is {names.written(factor.expr)!r}. Compute anything else as a new column first."
        )
    return columns[0], ResponseTransform(match[1])
