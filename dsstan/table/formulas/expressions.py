"""Which pieces of Python a formula may hold.

formulaic evaluates pieces such as ``scale(log(x))`` as Python. Before it may, each piece is
walked here as a syntax tree, and anything but columns, numbers, arithmetic and calls of the
listed functions is refused. So a formula from a configuration file cannot run code.
"""

from __future__ import annotations

import ast
import re
from typing import Any, NoReturn

import numpy as np
from formulaic.transforms import TRANSFORMS

from dsstan.core.errors import FormulaError
from dsstan.table.formulas.names import Names
from dsstan.table.formulas.splines import ns

ELEMENTWISE = {
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "exp": np.exp,
    "sqrt": np.sqrt,
    "abs": np.abs,
}
# Options that each remaining function takes after its first argument, in order.
_OPTIONS: dict[str, tuple[str, ...]] = {
    "scale": ("center", "scale", "ddof"),
    "center": (),
    "poly": ("degree", "raw"),
    "bs": ("df", "knots", "degree", "include_intercept", "lower_bound", "upper_bound"),
    "ns": ("df", "knots", "lower_bound", "upper_bound"),
    "C": (),
    "I": (),
}
_OUTERMOST = {"poly", "bs", "ns", "C"}
_TRANSFORMS = {**TRANSFORMS, "ns": ns}
CONTEXT: dict[str, Any] = {**ELEMENTWISE, **{name: _TRANSFORMS[name] for name in _OPTIONS}}

ALLOWED_FUNCTIONS = (*ELEMENTWISE, "scale", "center", "poly", "bs", "ns", "C")
"""Functions that a formula may call."""

_MAX_COUNT = 16
_MAX_CROSSINGS = 10
_MAX_PRODUCTS = 1_000_000


def check_expansion(text: str) -> None:
    """Refuse operators that would multiply out into more terms than can be listed."""
    bare = re.sub(r"`[^`]*`|\w+\([^()]*\)|\{[^}]*\}", "", text)
    powers = [float(power) for power in re.findall(r"(?:\*\*|\^)\s*(\d{1,9})", bare)]
    if len(powers) < len(re.findall(r"\*\*|\^", bare)):
        raise FormulaError(f"A power in {text!r} is no plain number: write one, as in (a + b)^2.")
    summands = bare.count("+") + 1
    crossings = len(re.findall(r"(?<!\*)\*(?!\*)|/", bare))
    # Powers may stand inside one another.
    products = float(np.prod(powers)) * np.log(max(summands, 2))
    if crossings > _MAX_CROSSINGS or products > np.log(_MAX_PRODUCTS):
        raise FormulaError(
            f"The operators '*', '/' and '^' of {text!r} multiply out into too many terms. "
            "Write the interactions that are needed with ':'. (A power of a column is I(x**2).)"
        )


def columns_of(factor: Any, text: str, names: Names) -> list[str]:
    """Columns that one factor of a formula uses, after a check that it does nothing else.

    Raises FormulaError if the factor holds anything that is not on the list; the message names the
    piece.

    Parameters
    ----------
    factor
        A formulaic ``Factor``.
    text
        The whole formula, for the message.
    names
        What stands for column names that Python cannot read.
    """
    expr = str(factor.expr)
    if factor.eval_method.value == "literal":
        return []
    if factor.eval_method.value == "lookup":
        if expr.startswith("__"):
            _refuse(expr, text)
        return [names.column(expr)]
    if any(mark in expr for mark in "\"'\\"):
        _refuse(names.written(expr), text, "text in quotes is not allowed")
    # The names that are left in backticks are words that Python reads.
    code = re.sub(r"`([^`]*)`", r" \1 ", expr).strip()
    try:
        tree = ast.parse(code, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        _refuse(names.written(expr), text, "it is not a complete expression")
    try:
        columns = [names.column(name) for name in _walk(tree.body, text, outermost=True)]
    except FormulaError as error:
        raise FormulaError(names.written(str(error))) from None
    if not columns:
        _refuse(names.written(expr), text, "it uses no column")
    return columns


def _walk(node: ast.expr, text: str, *, outermost: bool = False) -> list[str]:
    """Names of the columns in a syntax tree; anything not on the list is refused."""
    match node:
        case ast.Name(id=name) if not name.startswith("__"):
            return [name]
        case ast.Constant() if _number(node) is not None:
            return []
        case ast.UnaryOp(op=ast.UAdd() | ast.USub(), operand=operand):
            return _walk(operand, text)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            base, power = _walk(left, text), _number(right)
            if not base or power is None or abs(power) > _MAX_COUNT:
                _refuse(
                    ast.unparse(node), text, f"a power is a column to a number up to {_MAX_COUNT}"
                )
            return base
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div(), right=right):
            return _walk(left, text) + _walk(right, text)
        case ast.Call(func=ast.Name(id=name), args=[first, *rest], keywords=keywords):
            piece = ast.unparse(node)
            if name not in (*ALLOWED_FUNCTIONS, "I"):
                _refuse(piece, text)
            options = _OPTIONS.get(name, ())
            given = [*zip(options, rest, strict=False), *((k.arg, k.value) for k in keywords)]
            if len(rest) > len(options) or any(option not in options for option, _ in given):
                _refuse(piece, text, f"options of {name}(): {', '.join(options) or 'none'}")
            if not all(_is_option(option, value) for option, value in given):
                _refuse(
                    piece,
                    text,
                    f"an option is a number (degree and df to {_MAX_COUNT}), True, False or None",
                )
            if name in _OUTERMOST and not outermost:
                _refuse(piece, text, f"{name}() cannot stand inside another piece")
            if name == "C" and not isinstance(first, ast.Name):
                _refuse(piece, text, "C() takes one column")
            return _walk(first, text)
    _refuse(ast.unparse(node), text)


def _number(node: ast.expr) -> float | None:
    """Value of a number written out, with or without a minus; None for anything else."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _number(node.operand)
        return None if value is None else -value
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        if isinstance(node.value, bool):
            return None
        try:
            return float(node.value)
        except OverflowError:
            return None
    return None


def _is_option(option: str | None, node: ast.expr) -> bool:
    """Whether an option's value is a number, True, False, None or a list of numbers."""
    if isinstance(node, ast.List):
        return option == "knots" and all(_number(item) is not None for item in node.elts)
    if isinstance(node, ast.Constant) and (node.value is None or isinstance(node.value, bool)):
        return True
    number = _number(node)
    return number is not None and (option not in ("degree", "df") or abs(number) <= _MAX_COUNT)


def _refuse(piece: str, text: str, reason: str = "it is not on the list") -> NoReturn:
    raise FormulaError(
        f"{piece!r} is not allowed in a formula: {reason}. A formula may hold columns, numbers, "
        f"+ - * / ** and these functions: {', '.join(ALLOWED_FUNCTIONS)}. Formula: {text!r}. "
        "Compute anything else as a new column first."
    )
