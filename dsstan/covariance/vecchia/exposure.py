"""Information of a release of many records on each record, from the records around it.

The exact attacker (:mod:`dsstan.risk.attacker`) needs the N x N covariance of a copy. The effect of
a record on a copy through w falls off with distance, so that part is computed from the records
nearest to it. The effect through the coefficients reaches every copy: that part is exact, with the
coefficients' covariance and estimate of the whole table, and the information that a copy holds on
them summed over all records. With H = C + J B (C through w) and Vs = S + J G J', S given the
coefficients, Woodbury's identity parts a record's information into

    h' Vs^-1 h = c'u - t'W t + 2 b' G^-1 W t + b' (Q - Q W Q) b,
    S u = c,  t = J'u,  Q = J'S^-1 J,  W = (G^-1 + Q)^-1,

of which u and t are local, and Q is one small matrix. With all records in the surroundings the
terms are the exact ones. What is left out is measured: a sample of records is worked out again
with more of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from dsstan.covariance.base import Parameters, SpatialModel, Terms
from dsstan.covariance.correlation import correlation_code
from dsstan.covariance.protection import removed_variance
from dsstan.covariance.vecchia.neighbours import NEIGHBOURS, ORDERINGS
from dsstan.covariance.vecchia.statistics import VecchiaStatistics

__all__ = ["SURROUNDINGS", "left_out", "local_draws", "local_terms"]

Floats = NDArray[np.float64]

SURROUNDINGS = 40
"""Records that each record's terms are taken from, itself among them."""

LOCAL_DRAWS, FEW_DRAWS, MANY_RECORDS = 8, 4, 20_000
"""Posterior draws to average over, and beyond so many records."""

CHECKED = 200
"""Records of the sample that is worked out again with more surroundings."""

MORE = 3
"""How many times more."""


def local_draws(n: int) -> int:
    """Default number of posterior draws that the terms of n records are averaged over."""
    return FEW_DRAWS if n > MANY_RECORDS else LOCAL_DRAWS


def left_out(
    model: SpatialModel,
    p: Parameters,
    carried: Floats,
    copies: int,
    free: SpatialModel,
    unrestricted: Parameters,
) -> float:
    """How much larger the sd is for want of surroundings, by itself; 0 if it is smaller.

    Parameters
    ----------
    model, p, carried
        As :func:`local_terms` takes them, of one draw.
    copies
        L.
    free, unrestricted
        The unrestricted model of the leave-one-out precision, and one draw of it.

    Returns
    -------
    float
        Largest relative fall of ``1 / sqrt(P_ii + L information)`` over a sample of 200
        records, half of them flagged where there are so many, when each is given three times
        the surroundings.
    """
    rng = np.random.default_rng(0)
    some, counts = [], []
    for group in (np.flatnonzero(model.A != 1.0), np.flatnonzero(model.A == 1.0)):
        chosen = rng.permutation(group)[: CHECKED // 2]
        some.append(chosen)
        counts.append(np.full(chosen.size, group.size / max(1, chosen.size)))
    who, sample_weight = np.concatenate(some), np.concatenate(counts)
    ones = np.ones(model.problem.n_records)
    sds = []
    for count in (SURROUNDINGS, MORE * SURROUNDINGS):
        more: dict[str, Any] = {
            "surroundings": count,
            "records": who,
            "sample_weight": sample_weight,
        }
        found = local_terms(model, [p], carried, **more)[0]
        alone = local_terms(free, [unrestricted], ones, **more)[0].precision
        assert alone is not None
        sds.append(1.0 / np.sqrt(alone + copies * found.information))
    return float(np.max(sds[0] / sds[1] - 1.0, initial=0.0))


def local_terms(
    model: SpatialModel,
    points: Sequence[Parameters],
    carried: Floats,
    *,
    surroundings: int = SURROUNDINGS,
    records: NDArray[np.intp] | None = None,
    sample_weight: Floats | None = None,
) -> list[Terms]:
    """Terms of records at each of some draws, from the records around them.

    Parameters
    ----------
    model
        Of a Gaussian response.
    points
        Draws; their coefficients are integrated out under flat priors.
    carried
        Factor on w in the copies, shape (N,).
    surroundings
        Number of records, the record itself among them.
    records
        Positions; by default all.
    sample_weight
        Of a sample, how many records of the table each represents in the sum over all records.

    Returns
    -------
    list of Terms
        One a draw, arrays of one value a record; ``precision`` is P_ii of the fitted model, 0 for
        records that do not inform it.
    """
    problem = model.problem
    who = np.arange(problem.n_records) if records is None else records
    near = _around(problem.sites, who, min(surroundings, problem.n_records))
    usual: dict[str, Any] = {"neighbours": NEIGHBOURS, "ordering": ORDERINGS[0]}
    settings = usual | model.covariance.settings
    source = VecchiaStatistics.of_model(model, settings["neighbours"], settings["ordering"])
    each = np.ones(len(who)) if sample_weight is None else sample_weight
    return [_at_draw(model, p, carried, near, source, each) for p in points]


def _around(sites: Floats, who: NDArray[np.intp], count: int) -> NDArray[np.intp]:
    """The nearest records of each, itself first, shape (len(who), count)."""
    near = np.asarray(cKDTree(sites).query(sites[who], k=np.arange(1, count + 1), workers=-1)[1])
    itself = near == who[:, None]
    # Where many share a site the record may not be among its own nearest.
    near[~itself.any(axis=1), -1] = who[~itself.any(axis=1)]
    place = np.argmax(near == who[:, None], axis=1)
    rows = np.arange(len(who))
    near[rows, place], near[:, 0] = near[:, 0].copy(), who
    return near.astype(np.intp)


def _at_draw(
    model: SpatialModel,
    p: Parameters,
    carried: Floats,
    near: NDArray[np.intp],
    source: VecchiaStatistics,
    sample_weight: Floats,
) -> Terms:
    """Terms at one draw."""
    # numba takes half a second to import, and a table of a few hundred records needs none.
    from dsstan.covariance.vecchia.exposure_kernel import surroundings_sums
    from dsstan.covariance.vecchia.kernels import PARALLEL

    problem = model.problem
    beta, cov = source.coefficients(p.sigma_sq, p.tau_sq, p.phi)
    k = len(beta)
    there = np.zeros(problem.n_records, dtype=bool)
    there[model.informing] = True
    removed = removed_variance(model.A, model.protection)
    with PARALLEL:
        found = surroundings_sums(
            *(near, problem.sites, model.A, carried, p.tau_sq + p.sigma_sq * removed, there),
            *(problem.X, np.where(there, problem.y - problem.X @ beta, 0.0), cov),
            *(p.sigma_sq, p.tau_sq, p.phi, correlation_code(model.cov_model)),
        ).T
    information, exposure, score, precision = found[:4]
    t, J, SJ, b = (found[4 + i * k : 4 + (i + 1) * k].T for i in range(4))
    Q = (J * sample_weight[:, None]).T @ SJ
    Q = 0.5 * (Q + Q.T)
    outer = np.linalg.inv(cov)
    W = np.linalg.inv(outer + Q)
    information = (
        information
        - np.einsum("ij,jk,ik->i", t, W, t)
        + 2.0 * np.einsum("ij,jk,ik->i", b, outer @ W, t)
        + np.einsum("ij,jk,ik->i", b, Q - Q @ W @ Q, b)
    )
    return Terms(information, exposure, score, precision)
