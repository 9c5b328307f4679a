"""Tests of several coefficients at once, over the copies (Reiter 2005)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dsstan.analysis.combining import LEVEL, combine
from dsstan.core.arrays import Floats
from dsstan.core.errors import InputError

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

    Raises InputError if there are fewer than two copies, shapes differ, a value is not finite, or
    the mean covariance is not positive definite.

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
    """S, r and w of Reiter (2005), each of the shape of the leading axes, which are data sets.

    Parameters
    ----------
    q, u
        Shapes (..., L, p) and (..., L, p, p); the mean of u positive definite.
    null
        q0, shape (p,).
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
