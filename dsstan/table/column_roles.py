"""What each column of a table is to the response: a guess, with its reason.

A column that is published as it is may reveal the response. An identifier can be looked up, a
code (a hash, an encryption, a key into a list of prices) names the response to whoever can read
it, and a proxy (the assessed value beside the price) predicts it. The guess looks at values, not at
what they mean: an identifier and a hash of distinct values look alike.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dsstan.core.arrays import Floats
from dsstan.core.errors import ReleaseError
from dsstan.table.columns import factorized
from dsstan.table.order_leaks import as_numbers
from dsstan.table.problem import Problem

__all__ = [
    "PROXY",
    "ROLES",
    "ColumnRole",
    "check_proxies",
    "column_roles",
    "guess_roles",
]

Codes = NDArray[np.int64]

ROLES = ("response", "coordinate", "formula", "code", "identifier", "proxy", "covariate")

PROXY = 0.8
"""Correlation with the ranks of the response from which on a column is a proxy. Rank correlation,
or the root of the cross-validated share of variance that groups of the column's values explain."""

FEWEST = 10
"""Records with both values from which on a column can be a code or a proxy."""

CODE, SURPRISE = 0.95, 10.0
"""From which share of agreement in the response on, beyond chance, among records of one value a
column is a code; and the log of the odds against as much by chance."""

MOSTLY_OWN = 0.95
"""Share of distinct values from which on text counts as an identifier."""

FOLDS, SAMPLE, BINS = 5, 50_000, 50
"""Folds of the cross-validation, records that it looks at at most, and groups of numbers."""

_NAMED = re.compile(r"(^|[^a-z])(id|ids|uid|uuid|guid|apn|ssn|name|address|phone|email)($|[^a-z])")


@dataclass(frozen=True)
class ColumnRole:
    """What a column is guessed to be.

    Attributes
    ----------
    name
        The column.
    role
        ``"response"``, ``"coordinate"``, ``"formula"`` (used on its right side), ``"code"``,
        ``"identifier"``, ``"proxy"`` or ``"covariate"``.
    reason
        Why, in words. It holds no value of the table.
    correlation
        From 0 to 1, how well the column predicts the ranks of the response; None where there is
        too little to tell. Confidential.
    names_response
        Whether every value of the column stands for one value of the response, so that whoever
        can read it as a code knows the response: codes, and columns with distinct values.
    """

    name: str
    role: str
    reason: str
    correlation: float | None = None
    names_response: bool = False


def column_roles(problem: Problem) -> tuple[ColumnRole, ...]:
    """A guess at the role of every column of a problem's table, in their order.

    Parameters
    ----------
    problem
        The table with its formula and coordinates.
    """
    columns = ((name, _whole(problem.pieces(name))) for name in problem.columns)
    parsed = problem.design.formula
    used = [*parsed.columns, *(() if problem.structure is None else problem.structure.columns)]
    return _roles(columns, problem.original(), parsed.response, used, problem.coord_names)


def possible_codes(problem: Problem, names: Sequence[str]) -> tuple[str, ...]:
    """Those of some columns that may be codes of the response, of which no number can tell.

    A key, a hash or an encryption has its own value for every value of the response; so has a
    parcel's number. Measurements with fractions are left out.
    """
    values = problem.original()
    roles = (_role(name, _whole(problem.pieces(name)), values, False) for name in names)
    return tuple(r.name for r in roles if r.role in ("code", "identifier") and r.names_response)


def check_proxies(
    problem: Problem, accepted: Collection[str] = (), published: Collection[str] | None = None
) -> None:
    """Refuse to publish a column outside the formula that predicts the response well.

    Parameters
    ----------
    problem
        The table.
    accepted
        Columns that may predict it.
    published
        Columns that would go out; by default all.

    Raises
    ------
    ReleaseError
        If there is another proxy, or a column that is accepted is not in the table.
    """
    unknown = [name for name in accepted if name not in problem.columns]
    if unknown:
        raise ReleaseError(f"accept_proxy names column {unknown[0]!r}, which the table has not")
    found = [
        role for role in column_roles(problem) if role.role == "proxy" and role.name not in accepted
    ]
    found = [role for role in found if published is None or role.name in published]
    if found:
        listed = ", ".join(f"{role.name!r} (correlation {role.correlation:.2f})" for role in found)
        first = found[0].name
        raise ReleaseError(
            f"published columns predict the response {problem.response!r}: {listed}. Take them out "
            f"of publish, bring them into the formula, or accept each by name: "
            f"accept_proxy=[{first!r}] (--accept-proxy {first})"
        )


def guess_roles(
    table: pd.DataFrame,
    *,
    response: str | None = None,
    formula: Collection[str] = (),
    coords: Collection[str] = (),
) -> tuple[ColumnRole, ...]:
    """A guess at the role of every column of a table that has not been prepared.

    Parameters
    ----------
    table
        N rows.
    response
        Its column of numbers, if it is known. Without it there is neither a code nor a proxy.
    formula, coords
        Columns of the formula's right side, and coordinates.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> price = rng.normal(size=100)
    >>> table = pd.DataFrame({"price": price, "assessed": price + rng.normal(size=100) / 10})
    >>> [role.role for role in guess_roles(table, response="price")]
    ['response', 'proxy']
    """
    known = None if response is None else as_numbers(table[response])
    columns = ((name, table[name]) for name in table.columns)
    return _roles(columns, known, response, formula, coords)


def _roles(
    columns: Iterable[tuple[Any, pd.Series]],
    values: Floats | None,
    response: str | None,
    formula: Collection[str],
    coords: Collection[str],
) -> tuple[ColumnRole, ...]:
    """The roles of some columns beside a response of N values, NaN where it is missing."""
    out = []
    for name, column in columns:
        if name == response:
            out.append(ColumnRole(str(name), "response", "left side of the formula"))
        elif name in coords:
            out.append(ColumnRole(str(name), "coordinate", "one of the two coordinates"))
        else:
            out.append(_role(str(name), column, values, name in formula))
    return tuple(out)


def _role(name: str, column: pd.Series, values: Floats | None, in_formula: bool) -> ColumnRole:
    """The role of one column that is neither the response nor a coordinate."""
    codes, values_of = factorized(column)
    known, distinct = int(np.sum(codes >= 0)), len(values_of)
    own = distinct == known and known >= FEWEST
    correlation, names, code = None, own, False
    if values is not None:
        both = (codes >= 0) & np.isfinite(values)
        correlation = _correlation(column, codes, values)
        names, code = _names(codes[both], values[both])
    reason = (
        ""
        if correlation is None
        else f"correlation with the ranks of the response {correlation:.2f}"
    )

    def role(kind: str, why: str) -> ColumnRole:
        return ColumnRole(name, kind, why, correlation, own or names or code)

    if in_formula:
        return role("formula", "right side of the formula" + (reason and f"; {reason}"))
    if code:
        return role("code", "records with one value of it have one value of the response")
    if correlation is not None and correlation >= PROXY:
        return role("proxy", f"{reason}, and {PROXY:g} counts as a proxy")
    kinds = pd.api.types
    continuous = kinds.is_float_dtype(column.dtype) and _fractions(column)
    if own and not continuous:
        return role("identifier", "its own value in every record; a hash would look alike")
    text = not (kinds.is_numeric_dtype(column.dtype) or kinds.is_datetime64_any_dtype(column.dtype))
    if text and known >= FEWEST and distinct >= MOSTLY_OWN * known:
        return role("identifier", "its own value in nearly every record")
    if _NAMED.search(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()) and distinct > 1:
        return role("identifier", "its name")
    if own:
        return role("covariate", "its own value in every record, as a measurement has")
    return role("covariate", reason or "none of the others")


def _whole(pieces: Iterable[pd.Series]) -> pd.Series:
    """One column of its pieces."""
    found = list(pieces)
    return found[0] if len(found) == 1 else pd.concat(found, ignore_index=True)


def _fractions(column: pd.Series) -> bool:
    """Whether a column of floats holds more than whole numbers."""
    values = column.to_numpy(dtype=np.float64, na_value=np.nan)
    with np.errstate(invalid="ignore"):
        return bool(np.any(values[np.isfinite(values)] % 1.0))


def _names(codes: Codes, values: Floats) -> tuple[bool, bool]:
    """Whether each code stands for one value of the response; whether that is more than chance.

    Of the records that share a code with an earlier one, nearly all have the value most common
    with that code. By chance as many would as share a value with another record anyhow.
    """
    if codes.size < FEWEST:
        return False, False
    response, distinct = pd.factorize(values)
    pairs, counts = np.unique(codes * len(distinct) + response, return_counts=True)
    starts = np.flatnonzero(np.diff(pairs // len(distinct), prepend=-1))
    followers = codes.size - starts.size
    agreeing = int(np.maximum.reduceat(counts, starts).sum()) - starts.size
    chance = float(np.sum((np.bincount(response) / codes.size) ** 2))
    beyond = (agreeing / max(followers, 1) - chance) / (1.0 - chance) if chance < 1.0 else 0.0
    surprise = -agreeing * np.log(chance)
    return agreeing == followers, bool(beyond >= CODE and surprise > SURPRISE)


def _correlation(column: pd.Series, codes: Codes, values: Floats) -> float | None:
    """How well a column predicts the ranks of the response, from 0 to 1."""
    rows = np.flatnonzero(np.isfinite(values))
    if rows.size > SAMPLE:
        rows = np.sort(np.random.default_rng(rows.size).choice(rows, SAMPLE, replace=False))
    if rows.size < FEWEST or np.ptp(values[rows]) == 0.0:
        return None
    column, groups = column.iloc[rows], codes[rows]
    ranks = np.asarray(pd.Series(values[rows]).rank(), dtype=np.float64)
    numbers = as_numbers(column)
    found = [0.0]
    if numbers is not None:
        there = np.isfinite(numbers)
        if there.sum() >= FEWEST and np.ptp(numbers[there]) > 0:
            own = pd.DataFrame({"a": numbers[there], "b": ranks[there]}).rank()
            if own["b"].nunique() > 1:
                found.append(abs(float(np.corrcoef(own["a"], own["b"])[0, 1])))
            bins = min(BINS, max(2, int(np.sqrt(there.sum()) / 2)))
            cut = pd.qcut(numbers[there], bins, labels=False, duplicates="drop")
            groups = np.full(rows.size, -1, dtype=np.int64)
            groups[there] = cut
    found.append(float(np.sqrt(max(0.0, _explained(groups + 1, ranks)))))
    return max(found)


def _explained(groups: Codes, ranks: Floats) -> float:
    """Share of the variance that means of groups explain in records left out, fold by fold."""
    fold = np.random.default_rng(ranks.size).permutation(ranks.size) % FOLDS
    size = int(groups.max()) + 1
    error = 0.0
    for k in range(FOLDS):
        out = fold == k
        kept = groups[~out]
        centre = float(ranks[~out].mean())
        total = np.bincount(kept, weights=ranks[~out], minlength=size)
        # One record more, at the mean of all, so that a group seen once says little.
        mean = (total + centre) / (np.bincount(kept, minlength=size) + 1.0)
        error += float(np.sum((ranks[out] - mean[groups[out]]) ** 2))
    return 1.0 - error / float(np.sum((ranks - ranks.mean()) ** 2))
