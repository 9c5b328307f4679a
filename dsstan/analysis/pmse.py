"""Can a model distinguish copies from the original? The propensity score's mean squared error."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy import stats
from scipy.linalg import qr
from scipy.special import expit

from dsstan.analysis.utility import parsed_for
from dsstan.copies.result import Synthesis, require_one_column
from dsstan.core.arrays import Floats
from dsstan.core.errors import DsstanWarning, InputError, check_count
from dsstan.table.formulas.formula import build_design

SIGNIFICANCE = 0.05
"""Size of either test behind the reading."""

NEAR = 0.5
"""Copies that differ from the original by less than this share of an independent
redraw are called near."""

_RANK = 1e-10
_STEPS = 60


@dataclass(frozen=True, eq=False)
class Pmse:
    """How well a classifier separates the copies from the original, and its reference values.

    Attributes
    ----------
    value
        pMSE: the mean over copies of mean (p_hat - 1/2)^2; 0 if nothing separates
        them, 1/4 if everything does.
    null
        The same between two copies, mean over all pairs.
    ratio
        value / null. Above 1: the original differs from the copies by more than
        they from one another, which is poor utility. Near 1, or between 1/2 and 1
        where the model's own parameters are uncertain: right. **It can barely fall
        below (L - 1) / (2 L)**, whatever the copies, so it can't warn of copies too
        near the original; 0 means that copies and original are the same. ``inf``
        where the copies are the same and the original is another.
    independent_ratio
        value over what a response redrawn independently around the same
        regression would give, k / (8 N). Far below 1 the copies repeat the data's
        own noise or spatial effect: a warning about disclosure, not praise.
    p_poor
        P(a ratio at least as large | original and copies exchangeable).
    p_near
        P(an independent ratio at least as small | an independent redraw).
    terms
        k, columns of the classifier that hold the response.
    copies
        L.
    """

    value: float
    null: float
    ratio: float
    independent_ratio: float
    p_poor: float
    p_near: float
    terms: int
    copies: int

    @property
    def poor(self) -> bool:
        """Whether the original stands out from the copies."""
        return self.p_poor < SIGNIFICANCE

    @property
    def near(self) -> bool:
        """Whether the copies are far nearer the original than a redraw would be."""
        return self.independent_ratio < NEAR and self.p_near < SIGNIFICANCE

    @property
    def reading(self) -> str:
        """What the two ratios say, in words."""
        near = (
            "The copies differ from the original by far less than an independent redraw of the "
            "response would. That is no praise: whether they are too near is for the disclosure "
            "verdict to say."
        )
        poor = (
            "The original differs from the copies by more than they differ from one another: "
            "poor utility in what the classifier sees."
        )
        said = [text for text, true in ((near, self.near), (poor, self.poor)) if true]
        return " ".join(said) or (
            "The original differs from the copies about as they differ from one another, and "
            "they are not unduly near it."
        )

    def __str__(self) -> str:
        return (
            f"pMSE {self.value:.3g}, {self.ratio:.3g} of the mean over pairs of copies "
            f"(p = {self.p_poor:.2g}), {self.independent_ratio:.3g} of an independent redraw "
            f"(p = {self.p_near:.2g})\n{self.reading}"
        )


def pmse(release: Synthesis, formula: str | None = None, *, degree: int = 2) -> Pmse:
    """pMSE of a release against a null for partial synthesis.

    Woo et al. (2009) and Snoke et al. (2018). Their null takes the copy for a new
    sample; here places and covariates are the same in every copy, so the null is
    measured between pairs of copies instead.

    Parameters
    ----------
    release
        The copies; for the unrestricted ones pass ``release.unprotected``.
    formula
        Its response, as transformed, and its right side make the classifier's
        columns; by default the problem's. See :func:`classifier_columns`.
    degree
        Of the polynomial in the coordinates; 0 leaves them out.

    Raises
    ------
    InputError
        If there is only one copy, the formula's response is another, or there are
        more columns than records.

    Warns
    -----
    DsstanWarning
        With two copies: their one pair makes a poor null.
    """
    problem = release.problem
    require_one_column(release)
    parsed = parsed_for(problem, formula)
    design = build_design(parsed, problem.table)
    copies = np.stack([parsed.transform.forward(values) for values in release.values])
    return pmse_of(design.y, copies, design.X, problem.sites, degree=degree)


def pmse_of(original: Floats, copies: Floats, X: Floats, sites: Floats, *, degree: int = 2) -> Pmse:
    """pMSE of copies of a response at the same places with the same covariates.

    To first order pMSE is a squared distance between mean classifier columns.
    If original and copies are exchangeable, ratio = (L - 1) / (2 L) +
    (L + 1) / (2 L) F with F ~ F(k, k (L - 1)), which gives ``p_poor``: exact to
    first order where the copies vary alike in all k columns, else approximate.
    A posterior that is uncertain widens the copies around the original and makes
    it conservative. In an independent redraw 16 N value has the law of
    (1 + 1/L) chi^2(k) + chi^2(k (L - 1)) / L, which gives ``p_near``.

    Parameters
    ----------
    original, copies
        Responses on the modelled scale, shapes (N,) and (L, N).
    X
        Covariates, shape (N, P).
    sites
        Planar coordinates, shape (N, 2).
    degree
        Of the polynomial in the coordinates.
    """
    count = len(copies)
    if copies.ndim != 2 or copies.shape[1:] != original.shape:
        raise InputError("original and copies need shapes (N,) and (L, N)")
    if count < 2:
        raise InputError(
            "the null of the pMSE comes from pairs of copies: at least two copies are needed"
        )
    if not (np.all(np.isfinite(original)) and np.all(np.isfinite(copies))):
        raise InputError("original and copies must be finite")
    degree = check_count("degree", degree, 0)
    if count == 2:
        warnings.warn(
            "two copies make one pair: the null of the pMSE rests on it alone; release more",
            DsstanWarning,
            stacklevel=2,
        )
    base = _fixed_columns(X, sites, degree)
    terms = base.shape[1] + 1
    n = original.size
    if base.shape[1] + terms > n:
        raise InputError(
            f"the classifier has {base.shape[1] + terms} columns, more than the {n} records: "
            "lower degree or shorten the formula"
        )
    tables = np.vstack([original, copies])
    middle = tables.mean(axis=0)
    tables = tables - base @ np.linalg.lstsq(base, middle, rcond=None)[0]
    spread = float(np.abs(tables).max())
    columns = [classifier_columns(e / (spread or 1.0), base) for e in tables]
    value = float(np.mean([propensity_mse(columns[0], c) for c in columns[1:]]))
    pairs = [propensity_mse(a, b) for a, b in combinations(columns[1:], 2)]
    null = float(np.mean(pairs))
    independent = value * 8.0 * n / terms
    ratio = (0.0 if value == 0 else np.inf) if null == 0 else value / null
    f = max(0.0, 2.0 * count * ratio - (count - 1.0)) / (count + 1.0)
    return Pmse(
        value=value,
        null=null,
        ratio=float(ratio),
        independent_ratio=independent,
        p_poor=float(stats.f.sf(f, terms, terms * (count - 1))),
        p_near=_p_near(16.0 * n * value, terms, count),
        terms=terms,
        copies=count,
    )


def classifier_columns(e: Floats, base: Floats) -> Floats:
    """Columns that the classifier sees: base, e times each of base, and e squared.

    Parameters
    ----------
    e
        Response less a regression on base, the same one for every table, shape (N,).
    base
        Columns without the response, the first of ones, shape (N, q).

    Examples
    --------
    >>> classifier_columns(np.array([2.0, 3.0]), np.ones((2, 1)))
    array([[1., 2., 4.],
           [1., 3., 9.]])
    """
    return np.column_stack([base, base * e[:, None], e**2])


def propensity_mse(first: Floats, second: Floats) -> float:
    """Mean (p_hat - 1/2)^2, p_hat of a logistic regression that separates two tables.

    Parameters
    ----------
    first, second
        Columns of either table, the first of ones, shape (N, k) each. Columns
        that others determine are left out.

    Returns
    -------
    float
        From 0 to 1/4, where the tables are separated.
    """
    if np.array_equal(first, second):
        return 0.0
    target = np.repeat([0.0, 1.0], [len(first), len(second)])
    return float(np.mean((fitted_propensity(np.vstack([first, second]), target) - 0.5) ** 2))


def fitted_propensity(D: Floats, target: Floats) -> Floats:
    """Fitted probabilities of a logistic regression, by Newton's method.

    The steps run in an orthonormal basis of D. Where the classes are separated
    there is no maximum; the steps end once the deviance is 0 to rounding.

    Parameters
    ----------
    D
        Design matrix, shape (n, k).
    target
        0 or 1, shape (n,).
    """
    length = np.sqrt(np.sum(D**2, axis=0))
    q, t, _ = qr(D / np.where(length > 0, length, 1.0), mode="economic", pivoting=True)
    q = q[:, np.abs(np.diag(t)) > _RANK * np.abs(t[0, 0])]
    coef = np.zeros(q.shape[1])
    sign = 2.0 * target - 1.0
    loss = float(len(target) * np.log(2.0))
    for _ in range(_STEPS):
        p = expit(q @ coef)
        weight = p * (1.0 - p)
        score = q.T @ (target - p)
        step = np.linalg.lstsq((q.T * weight) @ q, score, rcond=1e-12)[0]
        size, proposed = 1.0, loss
        for _ in range(30):
            proposed = float(np.sum(np.logaddexp(0.0, -sign * (q @ (coef + size * step)))))
            if proposed <= loss:
                break
            size *= 0.5
        else:
            break  # no step lowers the loss: at its minimum to rounding
        coef = coef + size * step
        done = loss - proposed <= 1e-13 * loss or proposed < 1e-9
        loss = proposed
        if done:
            break
    return np.asarray(expit(q @ coef))


def _fixed_columns(X: Floats, sites: Floats, degree: int) -> Floats:
    """Ones, covariates and the coordinates' polynomial, all of them independent."""
    s = sites - sites.mean(axis=0)
    s = s / max(float(np.abs(s).max()), 1e-300)
    powers = [
        s[:, 0] ** (total - k) * s[:, 1] ** k
        for total in range(1, degree + 1)
        for k in range(total + 1)
    ]
    spread = X.std(axis=0)
    varying = X[:, spread > 1e-12 * np.abs(X).max(axis=0)]
    varying = (varying - varying.mean(axis=0)) / varying.std(axis=0)
    kept = np.ones((len(X), 1))
    for column in (*varying.T, *powers):
        q, _ = np.linalg.qr(kept)
        rest = column - q @ (q.T @ column)
        if rest @ rest > 1e-16 * (column @ column):
            kept = np.column_stack([kept, column])
    return kept


def _p_near(x: float, k: int, copies: int) -> float:
    """P((1 + 1/L) A + B / L <= x), A ~ chi^2(k) and B ~ chi^2(k (L - 1))."""
    b = stats.chi2.ppf((np.arange(400) + 0.5) / 400, k * (copies - 1))
    return float(np.mean(stats.chi2.cdf((x - b / copies) / (1.0 + 1.0 / copies), k)))
