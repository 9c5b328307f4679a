"""What published columns give an intruder beyond the model: the assessed value beside the price.

Columns of the formula count too, in other shapes than the formula's: a response that follows the
log of a covariate reveals more to an intruder who sees that than a straight line shows.

The intruder knows all other y and every published column. For each column they make a covariate,
the column itself, its logarithm, or a prediction of y by it (isotonic for numbers, group means for
categories, each record's from other records), and add it to X where that lowers the leave-one-out
error of the unrestricted model, which is exact given the variances::

    e_i = (P y)_i / P_ii,    variance s^2 / P_ii,    s^2 = mean(e_i^2 P_ii),

P with the covariate among the columns of X. The ratio r of nugget and partial sill is chosen anew,
since a proxy may explain the spatial effect. What the variance is with the proxies, over what it is
without, is the factor by which the leave-one-out variance of each record shrinks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from threadpoolctl import threadpool_limits

from dsstan.copies.published import columns_beside_the_model, public_columns, synthetic
from dsstan.copies.result import Synthesis
from dsstan.core.arrays import Floats, Indices, Truths
from dsstan.covariance.pairs import pairs_of
from dsstan.models.result import Fit
from dsstan.risk.intruder.attacker import Attack
from dsstan.risk.intruder.exact import ExactIntruder
from dsstan.table.columns import factorized
from dsstan.table.order_leaks import as_numbers

__all__ = ["Proxies", "exact_with_proxies", "proxies_of", "with_proxies"]


MOST_RECORDS = 1000
"""Of more records, so many around one are looked at, and the factor of all is that which a tenth of
them are below."""

RATIOS = (0.1, 0.3, 1.0, 3.0, 10.0, 1000.0)
"""Multiples of the posterior mean of r at which the leave-one-out error is compared."""

GAIN, ERRORS = 0.02, 2.0
"""Share of the leave-one-out error that a covariate must take off to be used, and in how many
standard errors of the difference."""

FOLDS, FEWEST = 20, 20
"""Folds of predictions by one column, and records with a value that it takes."""


@dataclass(frozen=True, eq=False)
class Proxies:
    """What the published columns say of the response beyond the model. Confidential.

    Attributes
    ----------
    explained
        Share of the leave-one-out variance that each column explains by itself, by name.
    used
        Columns that the intruder uses together, in the order in which they were found.
    factor
        What is left of each record's leave-one-out variance, shape (N,), at most 1.
    """

    explained: dict[str, float]
    used: tuple[str, ...]
    factor: Floats = field(repr=False)

    def __str__(self) -> str:
        if not self.used:
            return "No published column says more of the response than the model"
        names = ", ".join(f"{name} ({self.explained[name]:.0%} by itself)" for name in self.used)
        left = float(np.sqrt(np.median(self.factor)))
        return (
            f"Published columns predict the response beyond the model: {names}; they leave "
            f"an intruder who knows all other records {left:.0%} of the sd before any copy, "
            "which is counted"
        )

    def summary(self) -> dict[str, Any]:
        """For ``summary.json``."""
        return {
            "explained": self.explained,
            "used": list(self.used),
            "sd_left": float(np.sqrt(np.median(self.factor))),
        }


def proxies_of(release: Synthesis, free: Fit) -> Proxies:
    """How well the published columns predict the response beyond the model.

    Parameters
    ----------
    release
        The copies.
    free
        The unrestricted fit.
    """
    problem = free.problem
    modelled = {*problem.design.formula.columns}
    modelled |= set(() if problem.structure is None else problem.structure.columns)
    inside = modelled & {*public_columns(release)}
    names = [*columns_beside_the_model(release), *sorted(inside - {*synthetic(release)})]
    if not names:
        return Proxies({}, (), np.ones(problem.n_records))
    rows = _some_rows(free)
    with threadpool_limits(limits=1, user_api="blas"):
        others = _Others(free, rows)
        made = {
            str(name): _covariates(_rows_of(problem.pieces(name), rows), others.y) for name in names
        }
        candidates = {name: columns for name, columns in made.items() if columns}
        base = others.fitted([])
        explained = {
            name: 1.0 - others.best(base, columns).error / base.error
            for name, columns in candidates.items()
        }
        found = base
        used: list[str] = []
        while len(used) < len(candidates):
            trials = {
                name: others.best(found, columns)
                for name, columns in candidates.items()
                if name not in used
            }
            name = min(trials, key=lambda n: trials[n].error)
            if not trials[name].beats(found):
                break
            found = trials[name]
            used.append(name)
    ratio = np.minimum(1.0, found.variance / base.variance) if used else np.ones(rows.size)
    if rows.size == problem.n_records:
        factor = ratio
    else:
        factor = np.full(problem.n_records, float(np.quantile(ratio, 0.1)))
    return Proxies({k: max(0.0, float(v)) for k, v in explained.items()}, tuple(used), factor)


def with_proxies(found: Attack, proxies: Proxies) -> Attack:
    """An attack by an intruder who uses the proxies as well."""
    if not proxies.used:
        return found
    root = np.sqrt(proxies.factor)
    error = found.leave_one_out_error
    return replace(
        found,
        leave_one_out=found.leave_one_out * root,
        leave_one_out_error=None if error is None else error * root,
    )


def exact_with_proxies(found: ExactIntruder, bounds: Attack, proxies: Proxies) -> ExactIntruder:
    """The exact posterior of records for an intruder who uses the proxies as well.

    As if it were normal, with the spread of its middle where that is less than the sd: a far second
    place for y_i is one that the proxies may rule out. The precision of the proxies is added, and
    the interval shrinks with the sd. ``bounds`` is the attack with them.
    """
    if not proxies.used:
        return found
    table, rows = found.records.copy(), found.records["position"].to_numpy()
    factor = proxies.factor[rows]
    table["sd_leave_one_out"] *= np.sqrt(factor)
    more = (1.0 - factor) * table["sd_leave_one_out"] ** -2.0
    table["sd"] = np.minimum(table["sd"], table["middle"])
    shrinks = 1.0 / np.sqrt(1.0 + more * table["sd"] ** 2)
    table["sd"] *= shrinks
    table["interval"] /= np.sqrt(1.0 + more * table["interval"] ** 2)
    for end in ("low", "high"):
        table[end] = table["mean"] + shrinks * (table[end] - table["mean"])
    table["sd_known"], table["sd_fixed"] = bounds.sd(variances="known")[rows], bounds.sd()[rows]
    return replace(found, records=table.sort_values("sd"))


@dataclass(frozen=True, eq=False)
class _Fitted:
    """The leave-one-out law with some covariates: squared errors and variances, shape (n,)."""

    columns: list[Floats]
    squares: Floats
    variance: Floats

    @property
    def error(self) -> float:
        """Mean squared leave-one-out error."""
        return float(self.squares.mean())

    def beats(self, other: _Fitted) -> bool:
        """Whether it is better by more than a little and more than by chance."""
        gain = other.squares - self.squares
        chance = gain.std(ddof=1) / np.sqrt(gain.size)
        return bool(gain.mean() > max(GAIN * other.error, ERRORS * chance))


class _Others:
    """The unrestricted model of some records at the posterior mean of phi, and a few ratios r."""

    def __init__(self, free: Fit, rows: Indices) -> None:
        problem = free.problem
        self.X, self.y = problem.X[rows], problem.y[rows]
        phi = float(np.mean(free.draws["phi"]))
        ratio = float(np.mean(free.draws["tau_sq"]) / np.mean(free.draws["sigma_sq"]))
        R = pairs_of(free, rows).at(phi)
        self.inverses = []
        for times in RATIOS:
            V = R + times * ratio * np.eye(rows.size)
            factor = cho_factor(V, lower=True, overwrite_a=True, check_finite=False)
            self.inverses.append(cho_solve(factor, np.eye(rows.size), check_finite=False))

    def fitted(self, columns: list[Floats]) -> _Fitted:
        """The law with these covariates, at the ratio with the smallest error."""
        X = np.column_stack([self.X, *columns])
        return min(
            (self._at(inverse, X, columns) for inverse in self.inverses), key=lambda f: f.error
        )

    def best(self, found: _Fitted, columns: list[Floats]) -> _Fitted:
        """The best law with one more covariate, or with all of them."""
        trials = [[column] for column in columns] + ([columns] if len(columns) > 1 else [])
        return min((self.fitted([*found.columns, *t]) for t in trials), key=lambda f: f.error)

    def _at(self, inverse: Floats, X: Floats, columns: list[Floats]) -> _Fitted:
        VX = inverse @ X
        solve = np.linalg.pinv(X.T @ VX, hermitian=True)
        diagonal = np.diag(inverse) - np.einsum("ij,jk,ik->i", VX, solve, VX)
        own = diagonal <= 1e-9 * np.diag(inverse)  # a coefficient of its own
        diagonal = np.where(own, np.diag(inverse), diagonal)
        Py = inverse @ self.y - VX @ (solve @ (VX.T @ self.y))
        squares = np.where(own, 0.0, (Py / diagonal) ** 2)
        scale = float(np.mean((squares * diagonal)[~own]))
        return _Fitted(columns, squares, scale / diagonal)


def _some_rows(free: Fit) -> Indices:
    """Records looked at: all, or those around the one in the middle of the table's order."""
    problem = free.problem
    n = problem.n_records
    if n <= MOST_RECORDS:
        return np.arange(n)
    distance = np.sum((problem.sites - problem.sites[n // 2]) ** 2, axis=1)
    return np.sort(np.argpartition(distance, MOST_RECORDS)[:MOST_RECORDS])


def _rows_of(pieces: Iterable[pd.Series], rows: Indices) -> pd.Series:
    """Some rows of a column that comes in pieces."""
    found, start = [], 0
    for piece in pieces:
        inside = rows[(rows >= start) & (rows < start + len(piece))] - start
        found.append(piece.iloc[inside])
        start += len(piece)
    return found[0] if len(found) == 1 else pd.concat(found)


def _covariates(column: pd.Series, y: Floats) -> list[Floats]:
    """Covariates that a column makes, each of shape (n,), centred and of length 1."""
    numbers = as_numbers(column)
    codes, levels = factorized(column)
    found = []
    if 1 < len(levels) < np.sum(codes >= 0):
        found.append(_by_groups(codes + 1, y))
    if numbers is not None:
        there = np.isfinite(numbers)
        if there.sum() >= FEWEST and np.ptp(numbers[there]) > 0:
            found.append(np.where(there, numbers, numbers[there].mean()))
            if (numbers[there] > 0).all():
                logs = np.log(np.where(there, numbers, 1.0))
                found.append(np.where(there, logs, logs[there].mean()))
            found.append(_isotonic(numbers, there, y))
    centred = [each - each.mean() for each in found]
    return [each / np.linalg.norm(each) for each in centred if np.linalg.norm(each) > 0]


def _folds(n: int) -> Indices:
    """The fold of each record, shape (n,)."""
    return np.random.default_rng(n).permutation(n) % min(FOLDS, n)


def _by_groups(codes: NDArray[Any], y: Floats) -> Floats:
    """Mean of y of the other folds' records in the same group, shape (n,)."""
    fold, size = _folds(y.size), int(codes.max()) + 1
    out = np.empty(y.size)
    for k in range(int(fold.max()) + 1):
        away = fold != k
        total = np.bincount(codes[away], weights=y[away], minlength=size)
        count = np.bincount(codes[away], minlength=size)
        out[~away] = ((total + y[away].mean()) / (count + 1.0))[codes[~away]]
    return out


def _isotonic(numbers: Floats, there: Truths, y: Floats) -> Floats:
    """Isotonic prediction of y from the other folds, rising or falling, shape (n,)."""
    from scipy.optimize import isotonic_regression  # a fifth of a second to import

    ranks = pd.Series(numbers[there]).rank().corr(pd.Series(y[there]).rank())
    sign = -1.0 if ranks < 0 else 1.0
    fold, out = _folds(y.size), np.full(y.size, y[there].mean())
    for k in range(int(fold.max()) + 1):
        kept = there & (fold != k)
        values, place = np.unique(sign * numbers[kept], return_inverse=True)
        weights = np.bincount(place)
        means = np.bincount(place, weights=y[kept]) / weights
        fitted = isotonic_regression(means, weights=weights.astype(np.float64)).x
        own = there & (fold == k)
        out[own] = np.interp(sign * numbers[own], values, fitted)
    return out
