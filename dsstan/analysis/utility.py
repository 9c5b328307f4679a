"""What an analyst could still estimate: the copies analysed and combined."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from dsstan.analysis.combining import (
    LEVEL,
    Pooled,
    combine,
)
from dsstan.analysis.combining import combine_nested as combine_nested  # its path of before
from dsstan.analysis.overlap import interval_overlap
from dsstan.analysis.survey import weighted_least_squares
from dsstan.copies.result import Synthesis
from dsstan.core.arrays import Floats
from dsstan.core.display import Card, Part, Shown
from dsstan.core.errors import InputError
from dsstan.models.result import Fit
from dsstan.risk.disclosure import sides
from dsstan.table.formulas.formula import Design, ParsedFormula, build_design, parse
from dsstan.table.problem import Problem


def ols(X: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Ordinary least squares: coefficients (P,) and squared standard errors (P,)."""
    n, p = X.shape
    q, t = np.linalg.qr(X)
    coef = np.linalg.solve(t, q.T @ y)
    residual = y - X @ coef
    inverse = np.linalg.inv(t)
    return coef, np.asarray(np.sum(inverse**2, axis=1) * (residual @ residual) / (n - p))


def regressed(X: Floats, y: Floats, weights: Floats | None = None) -> tuple[Floats, Floats]:
    """Coefficients and squared standard errors: :func:`ols`, or with survey weights those of
    :func:`dsstan.analysis.survey.weighted_least_squares`."""
    if weights is None:
        return ols(X, y)
    coef, covariance = weighted_least_squares(X, y, weights)
    return coef, np.diag(covariance)


def least_squares(
    X: Floats, y: Floats, *, level: float = LEVEL, weights: Floats | None = None
) -> Pooled:
    """Least squares with intervals, of one data set; survey weights have shape (N,)."""
    coef, u = regressed(X, y, weights)
    df = np.full(coef.size, float(len(y) - coef.size))
    half = stdtrit(df, 0.5 + level / 2) * np.sqrt(u)
    return Pooled(coef, u, df, coef - half, coef + half)


def least_squares_of_copies(
    X: Floats, copies: Iterable[Floats], *, level: float = LEVEL, weights: Floats | None = None
) -> Pooled:
    """The same of each copy, combined; two copies at least."""
    coefs, variances = zip(*(regressed(X, y, weights) for y in copies), strict=True)
    return combine(np.stack(coefs), np.stack(variances), level=level)


@dataclass(frozen=True, eq=False, repr=False)
class Utility(Shown):
    """A regression on the original and on the copies, side by side.

    Attributes
    ----------
    table
        One row a source (``original``, ``unrestricted``, ``restricted``) and
        term: estimate, standard error, degrees of freedom, interval.
    formula
        The regression.
    level
        Of the intervals.
    weights
        The column of survey weights by which it is weighted; None where there is none.
    """

    table: pd.DataFrame = field(repr=False)
    formula: str
    level: float
    weights: str | None = field(default=None, kw_only=True)

    def get(self, source: str, term: str) -> pd.Series[float]:
        """The row of one source and term.

        Raises
        ------
        InputError
            If there is no such row.
        """
        t = self.table
        row = t[(t["source"] == source) & (t["term"] == term)]
        if row.empty:
            raise InputError(
                f"there is no row {source!r}, {term!r}; sources are "
                f"{', '.join(t['source'].unique())}, terms {', '.join(t['term'].unique())}"
            )
        return row.iloc[0]

    def _line(self) -> str:
        return f"{self.method}, {100 * self.level:.0f}% intervals"

    @property
    def method(self) -> str:
        """The regression in words."""
        return method_in_words(self.formula, self.weights)

    def _card(self) -> Card:
        lines = {}
        for term in self.table["term"].unique():
            rows = self.table[self.table["term"] == term]
            lines[term] = {
                r.source: f"{r.estimate:.4g} ({r.low:.4g}, {r.high:.4g})" for r in rows.itertuples()
            }
        return Card(blocks=(Part(pd.DataFrame(lines).T),))


def method_in_words(formula: str, weights: str | None) -> str:
    """Least squares of a formula, and by which survey weights."""
    by = "" if weights is None else f", weighted by {weights}"
    return f"Least squares {formula}{by}"


def utility(
    release: Synthesis,
    formula: str | None = None,
    *,
    against: Fit | Synthesis | None = None,
    level: float = LEVEL,
) -> Utility:
    """Least squares on the original table and on the copies, combined.

    Of a response with a heap it is that of the values beside it, those of each copy.
    The analyses of sections 4 and 5 of Quick, Holan and Wikle (2018), pooled by
    Reiter (2003). Least squares ignores spatial correlation, so all these
    intervals, the original's too, may be far too narrow, the intercept's above all.
    With survey weights (:func:`dsstan.prepare`) it is that of the population: weighted, with the
    variance of :func:`dsstan.analysis.survey.weighted_least_squares`.

    Parameters
    ----------
    release
        The copies.
    formula
        The regression, by default the one the problem was prepared with.
    against
        See :func:`dsstan.disclosure`.
    level
        Of the intervals.

    Raises
    ------
    InputError
        If there is only one copy, the formula's response is another, or a synthetic covariate
        leaves a term without an effect in a copy, such as a level that none of its records has.
    """
    problem = release.problem
    parsed = parsed_for(problem, formula)
    design = build_design(parsed, problem.without_heap(), missing=not bool(problem.observed.all()))
    there = problem.observed  # the original's estimates are those of the records that have one
    weights = problem.survey_weight_values
    known = None if weights is None else weights[there]
    found = least_squares(design.X[there], design.y[there], level=level, weights=known)
    rows = term_rows("original", design.terms, found)
    for name, synthesis in sides(release, against).items():
        copies = zip(
            synthesis.designs(design),
            parsed.transform.forward(synthesis.values),
            synthesis.in_heap(),
            strict=True,
        )
        fitted = []
        for number, (X, y, heaped) in enumerate(copies, 1):
            _check_terms(X, design, f"copy {number}")
            own = None if weights is None else weights[~heaped]
            fitted.append(regressed(X[~heaped], y[~heaped], own))
        coefs, variances = zip(*fitted, strict=True)
        pooled = combine(
            np.stack(coefs),
            np.stack(variances),
            level=level,
            imputation=synthesis.imputation,
            hide_gaps=synthesis.hide_gaps,
        )
        rows += term_rows(name, design.terms, pooled)
    return Utility(
        pd.DataFrame(rows), formula or problem.formula, level, weights=problem.survey_weights
    )


def _check_terms(X: Floats, design: Design, where: str) -> None:
    """Refuse the design of a copy from which a term cannot be estimated."""
    if X is design.X or np.linalg.matrix_rank(X) == X.shape[1]:
        return
    empty = [term for term, column in zip(design.owners, X.T, strict=True) if not column.any()]
    term = repr(empty[0]) if empty else "a term"
    what = f"no record of {where} has one of its levels" if empty else f"{where} makes it collinear"
    raise InputError(
        f"the effect of {term} can't be estimated from every copy: {what}. Take a synthetic column "
        "as a number, or merge its levels into a few that every copy has and analyse the tables "
        "with dsstan.analysis.pooling.pool"
    )


def parsed_for(problem: Problem, formula: str | None) -> ParsedFormula:
    """An analyst's formula, by default the problem's; refused where its response is another."""
    parsed = parse(formula or problem.formula)
    if parsed.response != problem.response:
        raise InputError(
            f"the copies replace {problem.response!r}; the formula's response is "
            f"{parsed.response!r}, which is unchanged in every copy"
        )
    return parsed


def term_rows(
    source: str,
    terms: tuple[str, ...],
    pooled: Pooled,
    reference: tuple[Floats, Floats] | None = None,
) -> list[dict[str, object]]:
    """One row a term, with what an interval has in common with a reference, where there is one."""
    columns = {
        "estimate": pooled.estimate,
        "se": np.sqrt(pooled.variance),
        "df": pooled.df,
        "low": pooled.low,
        "high": pooled.high,
    }
    if reference is not None:
        overlap = interval_overlap(reference, (pooled.low, pooled.high))
        columns["overlap"] = overlap.raw
        columns["overlap_truncated"] = overlap.truncated
        columns["width_ratio"] = overlap.width_ratio
    return [
        {"source": source, "term": term, **{k: float(v[j]) for k, v in columns.items()}}
        for j, term in enumerate(terms)
    ]
