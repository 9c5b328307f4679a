"""Information of a release of many records on each record, from the records around it.

The exact attacker (:mod:`dsstan.risk.intruder.attacker`) needs the N x N covariance of a copy. The
effect of a record on a copy through w falls off with distance, so that part is computed from the
records nearest to it. The effect through the coefficients reaches every copy: that part is exact,
with the coefficients' covariance and estimate of the whole table, and the information that a copy
holds on them summed over all records. With H = C + J B (C through w) and Vs = S + J G J', S given
the coefficients, Woodbury's identity parts a record's information into

    h' Vs^-1 h = c'u - t'W t + 2 b' G^-1 W t + b' (Q - Q W Q) b,
    S u = c,  t = J'u,  Q = J'S^-1 J,  W = (G^-1 + Q)^-1,

of which u and t are local, and Q is one small matrix. With all records in the surroundings the
terms are the exact ones. What is left out is measured: a sample of records is worked out again
with more of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.spatial import cKDTree

from dsstan.core.arrays import Floats, Indices
from dsstan.covariance.base import Parameters, SpatialModel, Terms
from dsstan.covariance.correlation import correlation_code
from dsstan.covariance.protection import removed_variance
from dsstan.covariance.vecchia.neighbours import NEIGHBOURS, ORDERINGS
from dsstan.covariance.vecchia.statistics import VecchiaStatistics

__all__ = ["SURROUNDINGS", "left_out", "local_draws", "local_terms"]

SURROUNDINGS = 40
"""Records that each record's terms are taken from, itself among them."""

MOST_DRAWS, FEWEST_DRAWS, TERMS = 20, 4, 400_000
"""Most and fewest posterior draws to average over, and about how many terms of all records."""

CHECKED = 200
"""Records of the sample that is worked out again with more surroundings."""

MORE = 3
"""How many times more."""

QUERIES = 200_000
"""Records that are worked out at a time, which bounds the memory."""


def local_draws(n: int) -> int:
    """Default number of posterior draws that the terms of n records are averaged over."""
    return max(FEWEST_DRAWS, min(MOST_DRAWS, TERMS // n))


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
    who, each = np.concatenate(some), np.concatenate(counts)
    ones = np.ones(model.problem.n_records)
    sources = [_Source.of(model, [p], carried), _Source.of(free, [unrestricted], ones)]
    sds = []
    for count in (SURROUNDINGS, MORE * SURROUNDINGS):
        own, alone = (source.terms(who, count, each)[0] for source in sources)
        assert alone.precision is not None
        sds.append(1.0 / np.sqrt(alone.precision + copies * own.information))
    return float(np.max(sds[0] / sds[1] - 1.0, initial=0.0))


def local_terms(
    model: SpatialModel,
    points: Sequence[Parameters],
    carried: Floats,
    *,
    surroundings: int = SURROUNDINGS,
) -> list[Terms]:
    """Terms of all records at each of some draws, from the records around each.

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

    Returns
    -------
    list of Terms
        One a draw, arrays of one value a record; ``precision`` is P_ii of the fitted model, 0 for
        records that do not inform it.
    """
    return _Source.of(model, points, carried).terms(None, surroundings)


@dataclass(frozen=True, eq=False)
class _Source:
    """What the terms at some draws are made from.

    ``beta`` (S, P) and ``cov`` (S, P, P) are the coefficients and their covariance by Vecchia's
    approximation of the whole table; ``theta`` (S, 3) is sigma_sq, tau_sq and phi.
    """

    model: SpatialModel
    carried: Floats
    beta: Floats
    cov: Floats
    theta: Floats

    @classmethod
    def of(cls, model: SpatialModel, points: Sequence[Parameters], carried: Floats) -> _Source:
        usual: dict[str, Any] = {"neighbours": NEIGHBOURS, "ordering": ORDERINGS[0]}
        settings = usual | model.covariance.settings
        source = VecchiaStatistics.of_model(model, settings["neighbours"], settings["ordering"])
        theta = np.array([[p.sigma_sq, p.tau_sq, p.phi] for p in points])
        found = source.coefficients_at(theta)
        beta, cov = (np.stack(part) for part in zip(*found, strict=True))
        return cls(model, carried, beta, cov, theta)

    def terms(
        self,
        records: Indices | None,
        surroundings: int,
        sample_weight: Floats | None = None,
    ) -> list[Terms]:
        """Terms of some records, by default all, at each draw.

        Of a sample, ``sample_weight`` is how many records of the table each represents in the sum
        over all records.
        """
        n = self.model.problem.n_records
        tree = cKDTree(self.model.problem.sites)
        # All records, those that are near one another in turn: what they share is at hand.
        who = tree.indices if records is None else records
        to = who if records is None else np.arange(len(who))
        parts = self._parts(tree, who, to, min(surroundings, n))
        each = np.ones(len(who)) if sample_weight is None else sample_weight
        return [_whole(part, cov, each) for part, cov in zip(parts, self.cov, strict=True)]

    def _parts(self, tree: cKDTree, who: Indices, to: Indices, count: int) -> Floats:
        """What the terms of records ``who`` are made of, in the rows ``to``; see
        ``dsstan.covariance.vecchia.exposure_kernel.surroundings_sums``."""
        # numba takes half a second to import, and a table of a few hundred records needs none.
        from dsstan.covariance.vecchia.exposure_kernel import surroundings_sums
        from dsstan.covariance.vecchia.kernels import PARALLEL

        model, problem = self.model, self.model.problem
        there = np.zeros(problem.n_records, dtype=bool)
        there[model.informing] = True
        removed = removed_variance(model.A, model.protection)
        out = np.empty((len(self.theta), len(who), 4 + 4 * problem.n_terms))
        for begin in range(0, len(who), QUERIES):
            some = slice(begin, begin + QUERIES)
            near = _around(tree, who[some], count)
            with PARALLEL:
                out[:, to[some]] = surroundings_sums(
                    *(near, problem.sites, model.A, self.carried, removed, there),
                    *(problem.X, problem.y, self.beta, self.cov, self.theta),
                    correlation_code(model.cov_model),
                )
        return out


def _around(tree: cKDTree, who: Indices, count: int) -> Indices:
    """The nearest records of each, itself first, shape (len(who), count)."""
    near = np.asarray(tree.query(tree.data[who], k=np.arange(1, count + 1), workers=-1)[1])
    itself = near == who[:, None]
    # Where many share a site the record may not be among its own nearest.
    near[~itself.any(axis=1), -1] = who[~itself.any(axis=1)]
    place = np.argmax(near == who[:, None], axis=1)
    rows = np.arange(len(who))
    near[rows, place], near[:, 0] = near[:, 0].copy(), who
    return near.astype(np.intp)


def _whole(found: Floats, cov: Floats, sample_weight: Floats) -> Terms:
    """The terms at one draw, from parts of each record of shape (n, 4 + 4 P)."""
    k = len(cov)
    information, exposure, score, precision = found[:, :4].T.copy()
    t, J, SJ, b = (found[:, 4 + i * k : 4 + (i + 1) * k] for i in range(4))
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
