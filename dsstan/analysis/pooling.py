"""Any analysis pooled over the copies, and tests of several coefficients at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit

from dsstan.analysis.overlap import interval_overlap
from dsstan.analysis.utility import LEVEL, Utility, combine
from dsstan.copies.result import Synthesis
from dsstan.core.errors import InputError
from dsstan.models.result import Fit
from dsstan.risk.disclosure import sides

Floats = NDArray[np.float64]
Estimator = Callable[[pd.DataFrame], tuple[ArrayLike, ArrayLike]]

SMOOTHING_BIAS = (
    "No combining rule covers smoothing bias: the intervals count sampling and synthesis, "
    "not what protection itself moves. Compare the restricted estimates with the original's."
)
"""What every table of pooled estimates says below itself."""

REFUSED_RULES = {
    "rubin": (
        "Rubin's rule, u_bar + (1 + 1/L) b, is for values that nobody observed. Here the model "
        "has seen every value that it replaces, so u_bar alone is the sampling variance and the "
        "copies add b / L; Rubin's intervals would be too wide"
    ),
    "full": (
        "the rule for full synthesis, (1 + 1/L) b - u_bar, is for copies that are new samples "
        "from the population. These copies hold the same records at the same places; that "
        "variance would be wrong and may be negative"
    ),
}
"""Combining rules that are refused, each with the reason."""

_SINGULAR = 1e-12
"""Smallest eigenvalue that a covariance may have once its diagonal is scaled to 1."""


def check_rule(rule: str) -> None:
    """Raise InputError, with the reason, for a rule other than ``"partial"``."""
    if rule in REFUSED_RULES:
        raise InputError(
            f'rule "{rule}" does not fit partially synthetic copies: '
            f'{REFUSED_RULES[rule]}. Use rule="partial"'
        )
    if rule != "partial":
        raise InputError(f'the only combining rule is "partial" (Reiter 2003, 2005), got {rule!r}')


@dataclass(frozen=True, eq=False)
class JointTest:
    """Test of several coefficients at once (Reiter 2005).

    Attributes
    ----------
    statistic
        S = (q_bar - q0)' u_bar^-1 (q_bar - q0) / (p (1 + r)).
    df1, df2
        p and w of the F distribution; w is infinite where the copies agree.
    p_value
        P(F(p, w) > S).
    estimate, covariance
        q_bar (p,) and u_bar + b / L (p, p). The statistic weighs by
        (1 + r) u_bar instead, since b from few copies is a poor matrix.
    null
        q0, shape (p,).
    relative_increase
        r = tr(b u_bar^-1) / (L p).
    level
        1 less the size of the test.
    """

    statistic: float
    df1: int
    df2: float
    p_value: float
    estimate: Floats
    covariance: Floats
    null: Floats
    relative_increase: float
    level: float

    @property
    def rejected(self) -> bool:
        """Whether q0 is rejected at size 1 - level."""
        return self.p_value < 1.0 - self.level

    def __str__(self) -> str:
        verdict = "rejected" if self.rejected else "not rejected"
        return (
            f"F({self.df1}, {self.df2:.4g}) = {self.statistic:.4g}, p = {self.p_value:.3g}: "
            f"{verdict} at {100 * (1 - self.level):.3g}%"
        )


def combine_many(
    estimates: ArrayLike,
    covariances: ArrayLike,
    *,
    null: ArrayLike | None = None,
    level: float = LEVEL,
    rule: str = "partial",
) -> JointTest:
    """Test whether several coefficients equal q0, from L partially synthetic copies.

    Section 2.3 of Reiter (2005), Journal of Statistical Planning and Inference
    131. With t = p (L - 1), the second degrees of freedom are
    4 + (t - 4)(1 + (1 - 2/t) / r)^2 for t > 4, else t (1 + 1/p)(1 + 1/r)^2 / 2.
    The F distribution is exact to second order where b is proportional to u_bar.
    For p = 1 the statistic is the square of the t of :func:`dsstan.combine`; the
    degrees of freedom are the same up to L = 5 and another approximation beyond.

    Parameters
    ----------
    estimates
        Each copy's coefficients, shape (L, p).
    covariances
        Each copy's covariance of them, shape (L, p, p).
    null
        q0, shape (p,); zero by default.
    level
        1 less the size of the test.
    rule
        ``"partial"``; any other is refused with the reason.

    Raises
    ------
    InputError
        If there are fewer than two copies, shapes differ, a value is not
        finite, or the mean covariance is not positive definite.

    Warns
    -----
    DsstanWarning
        With two copies that vary more than their own variance says.

    Examples
    --------
    >>> q = [[1.0, 0.0], [2.0, 1.0], [3.0, 0.5]]
    >>> print(combine_many(q, [np.eye(2)] * 3))
    F(2, 100.9) = 1.759, p = 0.178: not rejected at 5%
    """
    check_rule(rule)
    q, u = np.asarray(estimates, dtype=np.float64), np.asarray(covariances, dtype=np.float64)
    if q.ndim != 2 or q.shape[1] < 1 or u.shape != (*q.shape, q.shape[1]):
        raise InputError(
            "estimates need shape (copies, terms) and covariances (copies, terms, terms); "
            f"got {q.shape} and {u.shape}"
        )
    single = combine(q, np.diagonal(u, axis1=1, axis2=2), level=level)  # its checks hold here
    copies, p = q.shape
    q0 = np.zeros(p) if null is None else np.asarray(null, dtype=np.float64)
    if q0.shape != (p,) or not np.all(np.isfinite(q0)):
        raise InputError(f"null needs one finite value a term, shape ({p},)")
    u_bar = u.mean(axis=0)
    _check_covariance(u_bar, "the mean covariance")
    from scipy import stats  # half a second to import

    statistic, r, df2 = (float(v) for v in joint_statistic(q, u, q0))
    deviation = q - q[0]  # exactly 0 where all copies agree
    between = np.atleast_2d(np.cov(deviation, rowvar=False))
    # F(p, w) is a chi-square over p for so large a w, where the beta integral fails.
    large = df2 > 1e10
    p_value = stats.chi2.sf(p * statistic, p) if large else stats.f.sf(statistic, p, df2)
    total = u_bar + between / copies
    return JointTest(statistic, p, df2, float(p_value), single.estimate, total, q0, r, level)


def joint_statistic(q: Floats, u: Floats, null: Floats) -> tuple[Floats, Floats, Floats]:
    """S, r and w of Reiter (2005); leading axes, if any, are separate data sets.

    Parameters
    ----------
    q, u
        Shapes (..., L, p) and (..., L, p, p); the mean of u positive definite.
    null
        q0, shape (p,).

    Returns
    -------
    tuple
        S, r and w, each of the leading shape.
    """
    copies, p = q.shape[-2:]
    u_bar = u.mean(axis=-3)
    scale = np.sqrt(np.diagonal(u_bar, axis1=-2, axis2=-1))
    u_bar = u_bar / (scale[..., :, None] * scale[..., None, :])
    deviation = (q - q[..., :1, :]) / scale[..., None, :]  # exactly 0 where all copies agree
    deviation = deviation - deviation.mean(axis=-2, keepdims=True)
    solved = np.linalg.solve(u_bar, np.swapaxes(deviation, -1, -2))
    r = np.sum(np.swapaxes(deviation, -1, -2) * solved, axis=(-1, -2)) / (copies - 1)
    r = r / (copies * p)
    distance = (q.mean(axis=-2) - null) / scale
    weighed = np.linalg.solve(u_bar, distance[..., None])[..., 0]
    statistic = np.sum(distance * weighed, axis=-1) / (p * (1.0 + r))
    t = p * (copies - 1)
    with np.errstate(divide="ignore", over="ignore"):
        inverse = 1.0 / np.asarray(r)
        if t > 4:
            w = 4.0 + (t - 4.0) * (1.0 + (1.0 - 2.0 / t) * inverse) ** 2
        else:
            w = 0.5 * t * (1.0 + 1.0 / p) * (1.0 + inverse) ** 2
    return np.asarray(statistic), np.asarray(r), np.asarray(w)


@dataclass(frozen=True, eq=False)
class PooledAnalysis(Utility):
    """An analysis of the original and of the copies, side by side.

    ``table`` has the columns of :class:`dsstan.analysis.utility.Utility`, and where the
    original was analysed ``overlap`` (raw), ``overlap_truncated`` and
    ``width_ratio`` against it; ``formula`` is the name of the analysis.

    Attributes
    ----------
    estimates, covariances
        By source, each copy's, shapes (L, p) and (L, p, p).
    nested
        Whether the copies come from several imputations of a missing response.
    """

    estimates: Mapping[str, Floats] = field(repr=False)
    covariances: Mapping[str, Floats] = field(repr=False)
    nested: bool = False

    def joint(self, source: str, *, null: ArrayLike | None = None) -> JointTest:
        """Test all terms of one source's copies at once; see :func:`combine_many`."""
        if source not in self.estimates:
            raise InputError(
                f"there are no copies {source!r}; there are {', '.join(self.estimates)}"
            )
        if self.nested:
            raise InputError(
                "the joint test of Reiter (2005) is for copies of one table; for copies of several "
                "imputations each term has its interval alone"
            )
        return combine_many(
            self.estimates[source], self.covariances[source], null=null, level=self.level
        )

    def __str__(self) -> str:
        body = super().__str__().partition("\n")[2]
        head = f"{self.formula}, {100 * self.level:.0f}% intervals"
        return f"{head}\n{body}\n{SMOOTHING_BIAS}"


def pool(
    release: Synthesis | Sequence[pd.DataFrame],
    estimator: Estimator,
    *,
    original: pd.DataFrame | None = None,
    against: Fit | Synthesis | None = None,
    terms: Sequence[str] | None = None,
    name: str | None = None,
    df: float = np.inf,
    level: float = LEVEL,
    rule: str = "partial",
    imputation: ArrayLike | None = None,
) -> PooledAnalysis:
    """Apply any estimator to the original and to each copy, and combine (Reiter 2003).

    Parameters
    ----------
    release
        The copies; or the tables of a published release.
    estimator
        Takes a table; returns an estimate (p,) and its covariance (p, p).
    original
        The original table, where ``release`` is a list of tables and it is known.
    against
        See :func:`dsstan.disclosure`.
    terms
        Names of the p estimates; by default the index where the estimate is a
        Series, else numbers.
    name
        Of the analysis; by default the estimator's.
    df
        Degrees of freedom of the original's interval.
    level
        Of the intervals.
    rule
        ``"partial"``; any other is refused with the reason.
    imputation
        See :func:`dsstan.combine`; a synthesis knows its own.

    Raises
    ------
    InputError
        If there are fewer than two copies, or an estimate or covariance is of
        another shape than the others or not finite.
    """
    check_rule(rule)
    if not df > 0 or not 0 < level < 1:
        raise InputError("df must be above 0, and level between 0 and 1")
    groups, first, nests = _tables(release, original, against)
    if any(len(tables) < 2 for tables in groups.values()):
        raise InputError(
            "the combining rule needs at least two copies: from one, the variance between "
            "copies can't be estimated"
        )
    label = name or str(getattr(estimator, "__name__", type(estimator).__name__))
    rows: list[dict[str, object]] = []
    estimates, covariances = {}, {}
    reference: tuple[Floats, Floats] | None = None
    names = None if terms is None else tuple(terms)
    if first is not None:
        q, u, names = _apply(estimator, first, "the original", names)
        half = stdtrit(df, 0.5 + level / 2) * np.sqrt(np.diag(u))
        reference = (q - half, q + half)
        ends = (*reference, np.full(q.size, float(df)))
        rows += _rows("original", names, q, np.diag(u), ends, reference)
    for source, tables in groups.items():
        found = []
        for number, table in enumerate(tables):
            q, u, names = _apply(estimator, table, f"{source} copy {number}", names)
            found.append((q, u))
        estimates[source] = np.stack([f[0] for f in found])
        covariances[source] = np.stack([f[1] for f in found])
        variances = np.diagonal(covariances[source], axis1=1, axis2=2)
        nest = nests.get(source, imputation)
        pooled = combine(estimates[source], variances, level=level, imputation=nest)
        assert names is not None
        ends = (pooled.low, pooled.high, pooled.df)
        rows += _rows(source, names, pooled.estimate, pooled.variance, ends, reference)
    nested = imputation is not None or any(nest is not None for nest in nests.values())
    return PooledAnalysis(pd.DataFrame(rows), label, level, estimates, covariances, nested)


def _tables(
    release: Synthesis | Sequence[pd.DataFrame],
    original: pd.DataFrame | None,
    against: Fit | Synthesis | None,
) -> tuple[dict[str, list[pd.DataFrame]], pd.DataFrame | None, dict[str, ArrayLike | None]]:
    """Copies by source, the original where it is known, and the imputations by source."""
    if isinstance(release, Synthesis):
        if original is not None:
            raise InputError("the release knows its original table: leave original out")
        found = sides(release, against)
        groups = {
            source: [s.table(number) for number in range(s.copies)] for source, s in found.items()
        }
        nests: dict[str, ArrayLike | None] = {k: s.imputation for k, s in found.items()}
        return groups, release.problem.table[release.problem.observed], nests
    if against is not None:
        raise InputError("against needs a Synthesis; tables carry no fit to compare with")
    tables = list(release)
    if not all(isinstance(table, pd.DataFrame) for table in tables):
        raise InputError("release must be a Synthesis or a list of pandas tables, one a copy")
    return {"copies": tables}, original, {}


def _apply(
    estimator: Estimator, table: pd.DataFrame, where: str, names: tuple[str, ...] | None
) -> tuple[Floats, Floats, tuple[str, ...]]:
    """Estimate, covariance and names of the terms, checked."""
    answer = estimator(table)
    if not isinstance(answer, tuple) or len(answer) != 2:
        raise InputError("the estimator must return (estimate, covariance)")
    q = np.atleast_1d(np.asarray(answer[0], dtype=np.float64))
    u = np.asarray(answer[1], dtype=np.float64)
    u = u.reshape(1, 1) if q.size == 1 and u.size == 1 else u
    if names is None:
        index = answer[0].index if isinstance(answer[0], pd.Series) else range(q.size)
        names = tuple(str(term) for term in index)
    if q.shape != (len(names),) or u.shape != (len(names), len(names)):
        raise InputError(
            f"on {where} the estimator gave shapes {q.shape} and {u.shape}; it must give "
            f"({len(names)},) and ({len(names)}, {len(names)})"
        )
    if not (np.all(np.isfinite(q)) and np.all(np.isfinite(u)) and np.all(np.diag(u) >= 0)):
        raise InputError(
            f"on {where} the estimator gave a value that is not finite, or a negative variance"
        )
    return q, u, names


def _check_covariance(u: Floats, what: str) -> None:
    """Refuse a matrix that is not symmetric and positive definite."""
    scale = np.sqrt(np.maximum(np.diag(u), 0.0))
    if np.all(np.isfinite(u)) and np.all(scale > 0):
        scaled = u / np.outer(scale, scale)
        symmetric = np.allclose(scaled, scaled.T, rtol=0, atol=1e-8)
        if symmetric and np.linalg.eigvalsh(scaled)[0] > _SINGULAR:
            return
    raise InputError(
        f"{what} is not symmetric and positive definite: a term has no variance, or terms "
        "determine one another; leave one out"
    )


def _rows(
    source: str,
    terms: tuple[str, ...],
    estimate: Floats,
    variance: Floats,
    ends: tuple[Floats, Floats, Floats],
    reference: tuple[Floats, Floats] | None,
) -> list[dict[str, object]]:
    """One row a term; ends are low, high and degrees of freedom."""
    columns = {
        "estimate": estimate,
        "se": np.sqrt(variance),
        "df": ends[2],
        "low": ends[0],
        "high": ends[1],
    }
    if reference is not None:
        overlap = interval_overlap(reference, ends[:2])
        columns["overlap"] = overlap.raw
        columns["overlap_truncated"] = overlap.truncated
        columns["width_ratio"] = overlap.width_ratio
    return [
        {"source": source, "term": term, **{k: float(v[j]) for k, v in columns.items()}}
        for j, term in enumerate(terms)
    ]
