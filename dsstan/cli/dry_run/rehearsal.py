"""How long a run will take and how much memory it needs: measured on real pieces of it.

Up to :data:`SMALL` records the rehearsal has all of the table, else as many of its records. The
direct engine draws from their posterior, so what it finds of them, the run will find. What grows
with the cube of N (a node of the surface, a copy) is then measured once at full N. What is measured
of the part alone is carried on from a quarter of it: linearly where the covariance is approximated,
else by the square of N, which the measures of risk follow up to the 2,000 records that an exact
covariance takes. Iterations of the sampler do not depend on N: they are timed on a few records.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist
from threadpoolctl import threadpool_limits

from dsstan.copies.options import ReleaseOptions
from dsstan.core.arrays import Indices
from dsstan.core.chebyshev import chebyshev_nodes, log_position_inv
from dsstan.core.errors import DsstanWarning
from dsstan.covariance.approximations import choose_covariance
from dsstan.covariance.base import SpatialModel
from dsstan.covariance.likelihood_surface import HELD_OUT_PHI
from dsstan.covariance.surface_statistics import (
    MANY,
    node_statistics,
    rotate,
    smoothed_correlation,
)
from dsstan.models.arguments import diagonal
from dsstan.models.fit import fit
from dsstan.models.priors import Priors
from dsstan.models.result import Fit
from dsstan.models.weights import Weights
from dsstan.table.problem import Problem

SMALL = 300
"""Most records that are rehearsed as they are."""

SMALL_OF_MANY = 1000
"""Most records that are rehearsed of a table whose covariance is approximated."""

TINY = 60
"""Records on which the sampler is timed."""

SHORT, LONG = (10, 10), (100, 50)
"""Warm-up and kept iterations of two short runs, whose difference is that of iterations."""

CHECKS = HELD_OUT_PHI + 1
"""Values of phi at which the surface is checked, as costly as nodes; and one for the held phi."""


@dataclass(frozen=True, eq=False)
class Part:
    """The posteriors of some records, drawn directly."""

    free: Fit
    kept: Fit

    @property
    def records(self) -> int:
        """How many."""
        return self.kept.problem.n_records


@dataclass(frozen=True, eq=False)
class Rehearsal:
    """The pieces that ran: posteriors of some records, and the model of the whole table.

    Attributes
    ----------
    part
        The records rehearsed.
    smaller
        Fewer of them, of which what is carried on to N is timed again; None where the part is the
        table.
    weights
        Of the whole table, by the phi of the part.
    model
        The restricted model of the whole table, which has not been fitted.
    sampler_seconds
        Wall time of the sampler of one fit, expected.
    """

    part: Part
    smaller: Part | None
    weights: Weights
    model: SpatialModel
    sampler_seconds: float

    @property
    def whole(self) -> bool:
        """Whether the records rehearsed are all of the table."""
        return self.part.kept.problem is self.model.problem

    def of_table(self, seconds: Callable[[Part], float]) -> float:
        """Seconds of a measure for the whole table: linear in N, or by its square."""
        if self.model.covariance.approximate:
            return self.linear(seconds)
        return self._carried_on(seconds, 2)

    def linear(self, seconds: Callable[[Part], float]) -> float:
        """Seconds of what is linear in N, for the whole table."""
        if self.smaller is not None:
            seconds(self.smaller)  # compiles, and fills what is kept
        return self._carried_on(seconds, 1)

    def _carried_on(self, seconds: Callable[[Part], float], power: int) -> float:
        """Seconds at the whole table of a constant and a multiple of a power of N."""
        if self.smaller is None:
            return seconds(self.part)
        fewer, more = seconds(self.smaller), seconds(self.part)
        small, large = (part.records**power for part in (self.smaller, self.part))
        each = max(0.0, more - fewer) / (large - small)
        return float(more + each * (self.model.problem.n_records**power - large))


def rehearse(problem: Problem, options: ReleaseOptions) -> Rehearsal:
    """Draw from the posteriors of the prepared table or a part of it, and time the sampler."""
    large = choose_covariance(options.covariance, problem.n_records, options.cov_model)
    direct: dict[str, Any] = {**options.fitting, "progress": False, "seed": 0}
    direct |= {"engine": "direct", "program": "surface", "covariance": large}
    # Independent draws cost little: enough of them that no verdict hangs on their number.
    direct |= {"chains": max(4, options.chains), "samples": max(1000, options.sampler.samples)}
    protection: dict[str, Any] = {"gamma": options.gamma, "protection": options.protection}

    def drawn(rows: Indices) -> tuple[Part, Weights]:
        whole = rows.size == problem.n_records
        free = fit(problem if whole else _part(problem, rows), **direct)
        weights = options.flag(free, problem)
        kept = fit(
            free.problem, start=free, weights=_rows_of(weights, rows), **protection, **direct
        )
        return Part(free, kept), weights

    rows = _some_rows(problem, SMALL_OF_MANY if large.approximate else SMALL)
    smaller = None
    quarter = _some_rows(problem, rows.size // 4)
    if quarter.size < rows.size < problem.n_records:
        for _ in range(2 if large.approximate else 1):  # the first time compiles
            smaller, _ = drawn(quarter)
    part, weights = drawn(rows)
    A = diagonal(weights, part.kept.gamma, part.kept.protection)
    return Rehearsal(
        part=part,
        smaller=smaller,
        weights=weights,
        model=part.kept.model_with(problem=problem, A=A),
        sampler_seconds=_sampler_seconds(problem, options),
    )


def fit_seconds(rehearsed: Rehearsal) -> tuple[float, float]:
    """Wall time of the unrestricted and of the restricted fit."""
    if rehearsed.model.covariance.approximate:
        free = rehearsed.linear(lambda part: part.free.seconds)
        kept = rehearsed.linear(lambda part: part.kept.seconds)
    else:
        part, more = rehearsed.part, 0.0
        if not rehearsed.whole:
            more = _node_seconds(rehearsed.model.problem, part.free) - _node_seconds(
                part.free.problem, part.free
            )
        all_nodes = part.free.nodes[0] + CHECKS - 1
        # Of many sites the surface covers the box of the posterior.
        halved = 2 if rehearsed.model.problem.n_sites >= MANY else 1
        free, kept = (
            one.seconds + more * (2 if one.phi_held else all_nodes / halved)
            for one in (part.free, part.kept)
        )
    return free + rehearsed.sampler_seconds, kept + rehearsed.sampler_seconds


def _sampler_seconds(problem: Problem, options: ReleaseOptions) -> float:
    """Wall time of the sampler and its start, timed on few records: it does not know how many."""
    few = _part(problem, _some_rows(problem, TINY))

    def lasts(length: tuple[int, int]) -> float:
        short = {"warmup": length[0], "samples": length[1], "progress": False, "seed": 0}
        return fit(few, **{**options.fitting, **short}).seconds

    brief, longer = lasts(SHORT), lasts(LONG)
    each = max(0.0, longer - brief) / (sum(LONG) - sum(SHORT))
    iterations = options.sampler.warmup + options.sampler.samples
    return brief + each * (iterations - sum(SHORT))


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Wall time of a call, its warnings kept back, and what it returns."""
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DsstanWarning)
        found = call()
    return time.perf_counter() - begin, found


def _some_rows(problem: Problem, count: int = SMALL) -> Indices:
    """Rows spread over the table, enough for the design to keep its rank."""
    n = problem.n_records
    if n <= count:
        return np.arange(n)
    order = np.random.default_rng(0).permutation(n)
    while count < n:
        rows = np.sort(order[:count])
        apart = len(np.unique(problem.site_index[rows])) > 1
        if apart and np.linalg.matrix_rank(problem.X[rows]) == problem.n_terms:
            return rows
        count *= 2
    return np.arange(n)


def _part(problem: Problem, rows: Indices) -> Problem:
    """The problem of some of the records, its design as it is."""
    y, X = problem.y[rows], problem.X[rows]
    _, site = np.unique(problem.site_index[rows], return_inverse=True)
    return replace(
        problem,
        table=problem.table.iloc[rows],
        design=replace(problem.design, X=X, y=y),
        y=y,
        coords=problem.coords[rows],
        sites=problem.sites[rows],
        site_index=site.astype(np.int64),
        structure=None if problem.structure is None else problem.structure.of(rows),
    )


def _rows_of(weights: Weights, rows: Indices) -> Weights:
    """The weights of some of the records."""
    return replace(
        weights,
        a=weights.a[rows],
        nearest=weights.nearest[rows],
        probability=weights.probability[rows],
    )


def _node_seconds(problem: Problem, fitted: Fit) -> float:
    """Wall time of one node of the surface in log phi, with all its nodes in log r."""
    cov_model, h = fitted.cov_model, fitted.nodes[1]
    usual = Priors().resolve(problem.y, problem.X, problem.d_max, cov_model=cov_model)
    phi = float(np.sqrt(np.prod(usual.phi_bounds)))
    r = log_position_inv(chebyshev_nodes(h), usual.r_bounds)
    d, rotation = cdist(problem.sites, problem.sites), rotate(problem.X, problem.y)
    ones = np.ones(problem.n_records)

    def node() -> None:
        with threadpool_limits(limits=1, user_api="blas"):
            m = smoothed_correlation(d, phi, ones, "none", cov_model)
            node_statistics(m, rotation.Z, r)

    return timed(node)[0]
