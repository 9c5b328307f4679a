"""Continuous risk weights: the other choice of the paper's discussion, in two stages.

Section 6 of Quick, Holan and Wikle (2018) suggests, in place of flags, weights that grow
with the distance to the nearest neighbour, and a global parameter set by the data:

    a_i = 1 - exp(-phi min_j d_ij),    gamma = sigma_sq / tau_sq - 1

The paper would have both inside the sampler. Here they are taken at the posterior
medians of the unrestricted fit and held, like phi and the flags of the restricted model.

What is known against it: given the first fit's variances even a record infinitely far
from all others keeps half of its own deviation (alpha = 1/2), so the very records at risk stay
exposed, while every record with no neighbour at its own place is smoothed, safe ones too.
The second fit then makes up for what A removes, in sigma_sq or in tau_sq, and a larger
sigma_sq undoes the smoothing. :func:`continuous_effect` measures all this for a fit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dsstan.core.errors import InputError
from dsstan.covariance.correlation import dissimilarity
from dsstan.models.result import Fit
from dsstan.models.weights import Weights, alpha_from_gamma, neighbour_distances


def continuous_gamma(free: Fit) -> float:
    """gamma = sigma_sq / tau_sq - 1 at the posterior medians.

    Raises InputError if the nugget is not below the partial sill: gamma would be negative.
    """
    sigma_sq, tau_sq = (float(np.median(free.draws[name])) for name in ("sigma_sq", "tau_sq"))
    if tau_sq > sigma_sq:
        raise InputError(
            "continuous weights need sigma_sq of at least tau_sq, so that gamma = "
            f"sigma_sq / tau_sq - 1 is not negative; the posterior medians are {sigma_sq:.3g} "
            f"and {tau_sq:.3g}. Flag isolated records instead"
        )
    return sigma_sq / tau_sq - 1.0


def continuous_weights(
    free: Fit, *, neighbour: int = 1, by_site: bool = False
) -> tuple[Weights, float]:
    """Weights and gamma of the paper's discussion, for :func:`dsstan.fit`.

    Parameters
    ----------
    free
        The unrestricted fit, whose posterior medians are held.
    neighbour, by_site
        See :func:`dsstan.models.weights.neighbour_distances`. A record that shares its place
        with another has weight 0 unless neighbours are counted by site.

    Returns
    -------
    Weights, float
        a_i = 1 - exp(-phi d_i), or 1 less the fit's own correlation, and gamma. Copies of
        the fit made with them carry w*.

    Raises
    ------
    InputError
        If the fit is restricted, or gamma would be negative.
    """
    if free.kind != "unrestricted":
        raise InputError("continuous weights come from the unrestricted fit")
    gamma = continuous_gamma(free)
    phi = float(np.median(free.draws["phi"]))
    nearest = neighbour_distances(free.problem, neighbour=neighbour, by_site=by_site)
    a = dissimilarity(nearest, phi, free.cov_model)
    nan = float("nan")
    weights = Weights(
        a=a,
        rule="continuous",
        threshold=nan,
        correlation=nan,
        nearest=nearest,
        probability=a.copy(),
        neighbour=int(neighbour),
        by_site=by_site,
    )
    return weights, gamma


@dataclass(frozen=True)
class ContinuousEffect:
    """What continuous weights do, from the fit that uses them. Nothing record-level.

    Attributes
    ----------
    smoothed
        Share of the records with a weight above 0.
    safe_smoothed
        Share of those whose neighbour's correlation is above 0.8 that lose more than
        a tenth of their effect's variance; None where there is no such record.
    kept_by_the_farthest
        alpha of the record with the largest weight at this fit's variances: the part of its
        own deviation that its copies keep (at the first fit's, 1/2 at weight 1).
    sill_ratio, nugget_ratio
        Posterior means of sigma_sq and tau_sq over those of the unrestricted fit.
    """

    smoothed: float
    safe_smoothed: float | None
    kept_by_the_farthest: float
    sill_ratio: float
    nugget_ratio: float

    def __str__(self) -> str:
        safe = (
            ""
            if self.safe_smoothed is None
            else f"{100 * self.safe_smoothed:.0f}% of the records with a close neighbour lose more "
            "than a tenth of their effect's variance; "
        )
        return (
            f"Continuous weights: {100 * self.smoothed:.0f}% of the records are smoothed; {safe}"
            "the record farthest from others keeps "
            f"{100 * self.kept_by_the_farthest:.0f}% of its own deviation; sigma_sq is "
            f"{self.sill_ratio:.2g} times and tau_sq {self.nugget_ratio:.2g} times that of the "
            "unrestricted fit"
        )


SAFE_CORRELATION, LOST = 0.8, 0.1
"""Correlation with its neighbour from which a record counts as safe; lost share of variance."""


def continuous_effect(kept: Fit) -> ContinuousEffect:
    """Measure what continuous weights did to a fit.

    Raises InputError if the fit was not made with continuous weights, or started from no other.
    """
    if kept.weights is None or kept.weights.rule != "continuous" or kept.start is None:
        raise InputError("this is of fits made with continuous weights and start")
    a, free = kept.weights.a, kept.start
    safe = 1.0 - a > SAFE_CORRELATION
    lost = 1.0 - kept.A[safe] ** 2 > LOST
    sigma_sq, tau_sq = (float(np.median(kept.draws[name])) for name in ("sigma_sq", "tau_sq"))
    strongest = float(a.max() * kept.gamma)
    return ContinuousEffect(
        smoothed=float(np.mean(a > 0)),
        safe_smoothed=float(lost.mean()) if safe.any() else None,
        kept_by_the_farthest=alpha_from_gamma(strongest, sigma_sq, tau_sq),
        sill_ratio=float(kept.draws["sigma_sq"].mean() / free.draws["sigma_sq"].mean()),
        nugget_ratio=float(kept.draws["tau_sq"].mean() / free.draws["tau_sq"].mean()),
    )
