"""Any analysis pooled over the copies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from dsstan.analysis.combining import LEVEL, Pooled, check_two, combine
from dsstan.analysis.joint_test import (
    REFUSED_RULES,
    JointTest,
    check_rule,
    combine_many,
    joint_statistic,
)
from dsstan.analysis.utility import Utility, term_rows
from dsstan.copies.result import Synthesis
from dsstan.core.arrays import Floats
from dsstan.core.display import Card
from dsstan.core.errors import InputError
from dsstan.models.result import Fit
from dsstan.risk.disclosure import sides

__all__ = [
    "REFUSED_RULES",
    "SMOOTHING_BIAS",
    "JointTest",
    "PooledAnalysis",
    "check_rule",
    "combine_many",
    "joint_statistic",
    "pool",
]

Estimator = Callable[[pd.DataFrame], tuple[ArrayLike, ArrayLike]]

SMOOTHING_BIAS = (
    "No combining rule covers smoothing bias: the intervals count sampling and synthesis, "
    "not what protection itself moves. Compare the restricted estimates with the original's."
)
"""What every table of pooled estimates says below itself."""


@dataclass(frozen=True, eq=False, repr=False)
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

    def _line(self) -> str:
        return f"{self.formula}, {100 * self.level:.0f}% intervals"

    def _card(self) -> Card:
        return Card(blocks=(*super()._card().blocks, SMOOTHING_BIAS))


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
    hide_gaps: bool = False,
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
    imputation, hide_gaps
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
    check_two(min(map(len, groups.values())))
    label = name or str(getattr(estimator, "__name__", type(estimator).__name__))
    rows: list[dict[str, object]] = []
    estimates, covariances = {}, {}
    reference: tuple[Floats, Floats] | None = None
    names = None if terms is None else tuple(terms)
    if first is not None:
        q, u, names = _apply(estimator, first, "the original", names)
        half = stdtrit(df, 0.5 + level / 2) * np.sqrt(np.diag(u))
        reference = (q - half, q + half)
        alone = Pooled(q, np.diag(u), np.full(q.size, float(df)), *reference)
        rows += term_rows("original", names, alone, reference)
    for source, tables in groups.items():
        found = []
        for number, table in enumerate(tables):
            q, u, names = _apply(estimator, table, f"{source} copy {number}", names)
            found.append((q, u))
        estimates[source] = np.stack([f[0] for f in found])
        covariances[source] = np.stack([f[1] for f in found])
        variances = np.diagonal(covariances[source], axis1=1, axis2=2)
        nest = nests.get(source, imputation)
        hidden = release.hide_gaps if isinstance(release, Synthesis) else hide_gaps
        pooled = combine(
            estimates[source], variances, level=level, imputation=nest, hide_gaps=hidden
        )
        assert names is not None
        rows += term_rows(source, names, pooled, reference)
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
        return groups, release.problem.table[release.problem.known], nests
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
