"""The paper's rule: records whose neighbour is farther than M are flagged."""

from __future__ import annotations

import numpy as np

from dsstan.core.arrays import Floats, Indices
from dsstan.core.errors import InputError, is_number
from dsstan.covariance.correlation import correlation as correlation_at
from dsstan.models.result import Fit
from dsstan.models.weights import (
    PAPER_CORRELATION,
    Weights,
    isolation_distance,
    neighbour_distances,
)
from dsstan.table.problem import Problem


def flag_isolated(
    fit: Fit,
    *,
    correlation: float | None = None,
    distance: float | None = None,
    neighbour: int = 1,
    by_site: bool = False,
    within_group: bool = False,
) -> Weights:
    """Flag the records that stand alone, by the paper's rule.

    A record is flagged where the distance to its nearest neighbour is at least
    M, at which the correlation has fallen to c: M = -log(c) / phi for the exponential, phi
    the posterior median (section 3.2 of Quick, Holan and Wikle 2018); for other
    functions see :func:`dsstan.covariance.correlation.correlation_distance`. P(flag) is the share
    of posterior draws of phi under which the same c flags it.

    Parameters
    ----------
    fit
        The unrestricted fit.
    correlation
        c, by default 0.20.
    distance
        M itself, in the coordinates' unit, instead of c.
    neighbour, by_site
        See :func:`dsstan.models.weights.neighbour_distances`: the nearest neighbour misses isolated
        pairs and shared addresses.
    within_group
        Count neighbours of the record's own group only, in a fit of several groups
        (:func:`dsstan.models.groups.fit.fit_multivariate`): a rare kind of home stands alone
        among homes of other kinds, too. A record without a neighbour of its group is flagged.

    Raises
    ------
    InputError
        If both c and M are given, one is out of range, or within_group is asked of a fit
        without groups.
    """
    groups = getattr(fit, "groups", None)
    if within_group and groups is None:
        raise InputError("within_group needs a fit of several groups, as fit_multivariate gives")
    return isolated_records(
        fit.problem,
        fit.draws["phi"],
        fit.cov_model,
        correlation=correlation,
        distance=distance,
        neighbour=neighbour,
        by_site=by_site,
        groups=groups.index if within_group and groups is not None else None,
    )


def isolated_records(
    problem: Problem,
    phi: Floats,
    cov_model: str,
    *,
    correlation: float | None = None,
    distance: float | None = None,
    neighbour: int = 1,
    by_site: bool = False,
    groups: Indices | None = None,
) -> Weights:
    """The records that stand alone by the paper's rule, at draws of the decay of any shape.

    ``groups`` is the group of each record, shape (N,), where only its own group are neighbours;
    the other settings are those of :func:`flag_isolated`.
    """
    phi = phi.ravel()
    phi_hat = float(np.median(phi))
    if correlation is not None and distance is not None:
        raise InputError("give correlation or distance, not both")
    if distance is None:
        c = PAPER_CORRELATION if correlation is None else correlation
        threshold, rule = isolation_distance(c, phi_hat, cov_model), "correlation"
    else:
        if not (is_number(distance) and np.isfinite(distance) and distance > 0):
            raise InputError("distance must be positive and finite")
        threshold, rule = float(distance), "distance"
        c = float(correlation_at(np.asarray(threshold), phi_hat, cov_model))
    nearest = neighbour_distances(problem, neighbour=neighbour, by_site=by_site, within=groups)
    # Every correlation function is one of phi d: M at another decay is M phi_hat / phi.
    thresholds = np.sort(threshold * phi_hat / phi)
    probability = np.searchsorted(thresholds, nearest, side="right") / thresholds.size
    return Weights(
        a=(nearest >= threshold).astype(np.float64),
        rule=rule,
        threshold=threshold,
        correlation=c,
        nearest=nearest,
        probability=np.asarray(probability, dtype=np.float64),
        neighbour=int(neighbour),
        by_site=by_site,
        within_group=groups is not None,
    )
