"""What the public files alone give: an intruder who knows no other record's value.

They have the L copies, the places and the covariates. The plain estimate of a record is the mean of
its copies on the modelled scale. Where the covariance is exact and the table is not too large they
also undo the smoothing: given the variances, all y and all copies are normal, and the posterior
mean of y given the copies is::

    (P + L H' Vs^-1 H)^-1 H' Vs^-1 sum_l copy_l,

P the unrestricted model's precision with flat coefficients, H and Vs of
``dsstan.covariance.copy_law.copy_law``. The variances are set to their posterior means, which
an intruder could estimate from the copies.

The estimates are made, and compared with the truth: nothing here is an expectation.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy import ma
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from threadpoolctl import threadpool_limits

from dsstan.copies.result import Synthesis
from dsstan.core.arrays import Floats, Truths
from dsstan.covariance.base import Parameters
from dsstan.covariance.copy_law import copy_law, projection
from dsstan.covariance.latent import LatentModel
from dsstan.models.predictive import carried_effect
from dsstan.models.result import Fit
from dsstan.risk.placing import NEAR
from dsstan.table.problem import Problem

__all__ = ["PublicFiles", "public_files", "smoothing_undone"]


MOST_RECORDS = 1000
"""With more records the smoothing is not undone, which takes matrices of all pairs."""


@dataclass(frozen=True, eq=False)
class PublicFiles:
    """Estimates from the public files alone, and how many come near the truth. Confidential.

    Attributes
    ----------
    near
        Whether the estimate lies within ``share`` of the truth, shape (N,), by the name of the
        estimate: ``"mean of the copies"`` and, where it was computed, ``"smoothing undone"``.
    flagged
        Shape (N,).
    known
        Records that have a value, shape (N,).
    share
        Of the value, 0.1 for 10%.
    """

    near: dict[str, Truths] = field(repr=False)
    flagged: Truths = field(repr=False)
    known: Truths = field(repr=False)
    share: float = NEAR

    def placed(self) -> dict[str, float]:
        """Share of the ``flagged`` and the ``unflagged`` near the truth, by the better estimate;
        a group without records is left out."""
        groups = {"flagged": self.known & self.flagged, "unflagged": self.known & ~self.flagged}
        return {
            group: float(max(near[members].mean() for near in self.near.values()))
            for group, members in groups.items()
            if members.any()
        }


def public_files(
    release: Synthesis,
    *,
    share: float = NEAR,
    flagged: Truths | None = None,
) -> PublicFiles:
    """Estimate every record from the public files alone, and compare with the truth.

    Parameters
    ----------
    release
        The copies; of a chain those of its last column.
    share
        How near the truth counts, as a share of it.
    flagged
        The groups, shape (N,); by default those of the release.
    """
    problem = release.problem
    # Values in a heap say nothing of the others: a mean of those that are beside it is nearer.
    beside = ma.masked_invalid(release.beside_heap())
    estimates = {"mean of the copies": beside.mean(axis=0).filled(np.nan)}
    undone = smoothing_undone(release)
    if undone is not None:
        estimates["smoothing undone"] = undone[0]
    near = {name: _near(problem, estimate, share) for name, estimate in estimates.items()}
    groups = release.fit.flagged if flagged is None else flagged
    return PublicFiles(near, groups, problem.observed, share)


def _near(problem: Problem, estimate: Floats, share: float) -> Truths:
    """Whether estimates on the modelled scale lie near the truth on the response's own."""
    truth = problem.original()
    return np.asarray(np.abs(problem.transform.inverse(estimate) - truth) <= share * np.abs(truth))


def smoothing_undone(release: Synthesis) -> tuple[Floats, Floats] | None:
    """Posterior mean and sd of y given all copies, shape (N,); None where it can't be done so."""
    fit = release.fit
    free = fit if fit.kind == "unrestricted" else fit.start
    n = fit.problem.n_records
    if free is None or n > MOST_RECORDS or not (_plain(fit) and _plain(free)):
        return None
    if fit.problem.n_missing or len(release.steps) > 1:
        return None
    carried = carried_effect(fit, release.effect)[0]
    with threadpool_limits(limits=1, user_api="blas"):
        law = copy_law(LatentModel(fit), _means(fit), carried, release.noise)
        precision = np.zeros((n, n))
        latent = LatentModel(free)
        precision[np.ix_(latent.rows, latent.rows)] = projection(latent, _means(free))
        try:
            weighted = cho_solve(cho_factor(law.Vs), law.H).T
            precision += release.copies * (weighted @ law.H)
            covariance = cho_solve(cho_factor(precision), np.eye(n))
        except LinAlgError:  # a record with a coefficient of its own that left the fit
            return None
    mean = covariance @ (weighted @ release.modelled().sum(axis=0))
    return mean, np.sqrt(np.diag(covariance))


def _plain(fit: Fit) -> bool:
    """Whether the copies are normal under the exact covariance with fixed weights."""
    gaussian = fit.outcome == "Gaussian" and not fit.smoothing_moves
    return gaussian and not fit.covariance.approximate


def _means(fit: Fit) -> Parameters:
    """The posterior means of the variances and the decay; coefficients are integrated out."""
    zero = np.zeros(fit.problem.n_terms)
    means = (float(np.mean(fit.draws[name])) for name in ("sigma_sq", "tau_sq", "phi"))
    return Parameters(zero, *means)
