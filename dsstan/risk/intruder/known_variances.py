"""The posterior of each value for an intruder who knows which variances made each copy.

Such an intruder's posterior of y_i needs no sum over the variances of a copy::

    p(y_i | y_-i) prod_l  p(copy_l | theta_l, y) p(theta_l | y),

and log p(copy_l, y | theta_l) is quadratic in y_i. What is left, p(y_i | y_-i) and p(y), comes from
the grid of :mod:`dsstan.risk.intruder.variance_grid`. So all records cost little, and no posterior
is taken as normal around the value that is true.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from threadpoolctl import threadpool_limits

from dsstan.core.arrays import Floats, Indices
from dsstan.covariance.base import Parameters
from dsstan.covariance.eigenbasis import alone
from dsstan.models.result import Fit
from dsstan.risk.intruder.value_posterior import (
    REACH,
    joint_spectrum,
    laws_without_copies,
    normalised,
    wide_spline,
)
from dsstan.risk.intruder.variance_grid import VarianceGrid, integrable

MOST_DECAYS = 64 * 600**3
"""Most decays of released draws times N^3: each needs a decomposition."""


@dataclass(frozen=True, eq=False)
class KnownVariances:
    """Posterior sds of each y_i, shape (N,); infinite where a record has its own coefficient.

    Attributes
    ----------
    alone
        Without any copy.
    sd
        With all copies, the draw behind each known.
    """

    alone: Floats
    sd: Floats


def affordable(fit: Fit, free: Fit, decays: int) -> bool:
    """Whether all records of a release can be looked at without a long wait."""
    able = integrable(fit) and integrable(free) and not fit.smoothing_moves
    return able and decays * fit.problem.n_records**3 <= MOST_DECAYS


def known_variances(
    fit: Fit, free: Fit, copies: Floats, points: Sequence[Parameters], carried: Floats
) -> KnownVariances:
    """The posterior sds of all records.

    Parameters
    ----------
    fit, free
        Of the copies, and the unrestricted one of the belief without them.
    copies
        On the modelled scale, shape (L, N).
    points
        The draw behind each copy.
    carried
        Factor on w in the copies, shape (N,).
    """
    n = fit.problem.n_records
    rows = np.flatnonzero(~alone(fit.problem.X)).astype(np.intp)
    with threadpool_limits(limits=1, user_api="blas"):
        laws = laws_without_copies(free, rows)
        own = None if free is fit else VarianceGrid(fit, rows)
        precision, score = _quadratics(fit, rows, copies, points, carried)
    found = np.full((2, n), np.inf)
    for k, i in enumerate(rows):
        law = laws[k]
        prior = law.log_density
        values = prior if own is None else wide_spline(own, k, law.mean, law.sd)
        density = _Density(prior, values, len(copies), precision[k], score[k])
        x, weight = normalised(density, law.sd, abs(law.mean) + REACH * law.sd)
        found[:, i] = law.sd, np.sqrt(weight @ (x - weight @ x) ** 2)
    return KnownVariances(*found)


@dataclass(frozen=True, eq=False)
class _Density:
    """Log density of y_k, a constant left out, as a function of its shift."""

    prior: Callable[[Floats], Floats]
    values: Callable[[Floats], Floats]
    copies: int
    precision: float
    score: float

    def __call__(self, x: Floats) -> Floats:
        quadratic = x * (self.score + 0.5 * self.precision * x)
        return np.asarray(self.prior(x) - quadratic - self.copies * self.values(x))


def _quadratics(
    fit: Fit, rows: Indices, copies: Floats, points: Sequence[Parameters], carried: Floats
) -> tuple[Floats, Floats]:
    """Precision and score of each y_i in y and a copy together, summed over the copies, (M,)."""
    precision, score = np.zeros(rows.size), np.zeros(rows.size)
    decays = np.array([p.phi for p in points])
    for phi in np.unique(decays):
        of = np.flatnonzero(decays == phi)
        both = joint_spectrum(fit, rows, float(phi), copies=copies[of], carried=carried)
        for column, number in enumerate(of.tolist()):
            p = points[number]
            found = replace(both, Z=both.Z[:, [column]]).at(np.array([p.tau_sq / p.sigma_sq]))
            precision += found.precision[0] / p.sigma_sq
            score += found.score[0, :, 0] / p.sigma_sq
    return precision, score
