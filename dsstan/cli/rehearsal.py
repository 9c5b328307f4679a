"""How long a run will take and how much memory it needs: measured on short real pieces of it.

Up to :data:`SMALL` records the rehearsal has all of the table, else as many of its records. What
grows with the cube of N (a node of the surface, a copy, a decomposition of the attack) is then
measured once at full N, and the rest is scaled by it. The sampler runs the real program with the
real number of chains for few iterations; its cost does not depend on N beyond the surface.
"""

from __future__ import annotations

import resource
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from threadpoolctl import threadpool_limits

from dsstan.analysis.utility import utility
from dsstan.comparison.scores import measure
from dsstan.copies.options import ReleaseOptions
from dsstan.copies.result import Synthesis
from dsstan.copies.synthesis import synthesise
from dsstan.core.chebyshev import chebyshev_nodes, log_position_inv
from dsstan.core.errors import DsstanWarning
from dsstan.covariance.approximations import choose_covariance
from dsstan.covariance.eigenbasis import FreeSurface
from dsstan.covariance.likelihood_surface import (
    HELD_OUT_PHI,
    first_nodes,
    node_statistics,
    rotate,
    smoothed_correlation,
)
from dsstan.models.arguments import diagonal
from dsstan.models.fit import fit
from dsstan.models.posterior import parameters_at
from dsstan.models.predictive import carried_effect
from dsstan.models.priors import Priors
from dsstan.models.result import Fit
from dsstan.models.weights import Weights
from dsstan.risk.assessment import assess
from dsstan.risk.disclosure import disclosure
from dsstan.table.problem import Problem

__all__ = ["SMALL", "Estimate", "Rehearsal", "rehearse"]

SMALL = 300
"""Most records that are rehearsed as they are."""

SMALL_OF_MANY = 4000
"""Most records that are rehearsed of a table whose covariance is approximated."""

SHORT, LONG = (10, 10), (100, 50)
"""Warm-up and kept iterations of the two short runs, whose difference is that of iterations."""

CHECKS = HELD_OUT_PHI + 1
"""Values of phi at which the surface is checked, as costly as nodes; and one for the held phi."""

FEW = 4
"""Copies drawn to separate the cost of each copy from the cost that occurs once."""


@dataclass(frozen=True)
class Estimate:
    """Wall time by stage in seconds, and peak memory in MiB of the larger process. An estimate."""

    seconds: dict[str, float]
    peak_mib: float

    @property
    def total(self) -> float:
        """Wall time of the whole."""
        return sum(self.seconds.values())


@dataclass(frozen=True, eq=False)
class Rehearsal:
    """The pieces that ran: fits of few iterations, and the same as if of the whole table.

    Attributes
    ----------
    free, kept
        Of the records rehearsed.
    whole
        The restricted one with the whole table behind it, the unrestricted as its start.
    free_seconds, kept_seconds
        Wall time of a fit of the real length, expected.
    """

    free: Fit
    kept: Fit
    whole: Fit
    free_seconds: float
    kept_seconds: float


def rehearse(problem: Problem, options: ReleaseOptions) -> Rehearsal:
    """Run short fits of the prepared table and time them."""
    large = choose_covariance(options.covariance, problem.n_records)
    rows = _some_rows(problem, SMALL_OF_MANY if large.approximate else SMALL)
    part = problem if rows.size == problem.n_records else _part(problem, rows)
    iterations = options.sampler.warmup + options.samples

    def short(length: tuple[int, int], **more: Any) -> Fit:
        sampler = {"warmup": length[0], "samples": length[1], "progress": False, "seed": 0}
        return fit(part, covariance=large, **{**options.fitting, **sampler, **more})

    brief = short(SHORT)
    free = short(LONG)
    whole = _of(problem, free)
    weights = options.flag(whole)
    kept = short(
        LONG,
        start=free,
        weights=_rows_of(weights, rows),
        gamma=options.gamma,
        protection=options.protection,
    )
    each = max(0.0, free.seconds - brief.seconds) / (sum(LONG) - sum(SHORT))
    fixed = max(0.0, brief.seconds - each * sum(SHORT))
    # The restricted run starts as the unrestricted one does, but for its surface of one node.
    if large.approximate:
        # Everything before the sampler is linear in N, and the sampler does not know N.
        more = problem.n_records / part.n_records
        return Rehearsal(
            free=free,
            kept=kept,
            whole=_whole(problem, kept, whole, weights),
            free_seconds=fixed * more + each * iterations,
            kept_seconds=max(0.0, kept.seconds - each * sum(LONG)) * more + each * iterations,
        )
    nodes = free.nodes[0] + CHECKS - 1
    surface = nodes * _node_seconds(part, free.nodes[1], free.cov_model)
    begins = max(0.0, fixed - surface)
    later = max(0.0, kept.seconds - begins) / sum(LONG)
    more = 0.0
    if part is not problem:
        h = first_nodes(free.cov_model)[1]
        more = _node_seconds(problem, h, free.cov_model) - surface / nodes
    return Rehearsal(
        free=free,
        kept=kept,
        whole=_whole(problem, kept, whole, weights),
        free_seconds=fixed + each * iterations + more * nodes,
        kept_seconds=begins + later * iterations + more * 2,
    )


def _whole(problem: Problem, kept: Fit, start: Fit, weights: Weights) -> Fit:
    """The restricted fit as if it were of the whole table."""
    return replace(
        _of(problem, kept),
        start=start,
        weights=weights,
        A=diagonal(weights, kept.gamma, kept.protection),
    )


def estimate_release(
    rehearsed: Rehearsal, copies: int, seconds_before: float
) -> tuple[Estimate, Synthesis]:
    """What a release takes, and the few copies that were drawn of the whole table."""
    whole, kept = rehearsed.whole, rehearsed.kept
    first, _ = _timed(lambda: _copies(whole, 1))
    several, few = _timed(lambda: _copies(whole, FEW))
    each = max(0.0, several - first) / (FEW - 1)
    drawn = first + each * (copies - 1)
    ratio = _ratio(whole, kept)
    small, carried = _copies(kept, FEW), carried_effect(kept)[0]
    draws = kept.covariance.draws_by_default(kept, carried, whole.problem.n_records)
    draws = min(draws, kept.n_draws)
    attack, _ = _timed(lambda: assess(small, draws=draws, progress=False))
    tables, _ = _timed(lambda: (disclosure(few), utility(few)))
    seconds = {
        "reading": seconds_before,
        "unrestricted fit": rehearsed.free_seconds,
        "restricted fit": rehearsed.kept_seconds,
        "copies": drawn,
        "disclosure": attack * ratio + drawn + tables,
    }
    return Estimate(seconds, _peak_mib(few, copies)), few


def _ratio(whole: Fit, kept: Fit) -> float:
    """Cost of the attack on the whole table by that on the part rehearsed."""
    if kept.problem is whole.problem:
        return 1.0
    if whole.covariance.approximate:
        return whole.problem.n_records / kept.problem.n_records
    return _decomposition(whole) / _decomposition(kept)


def estimate_comparison(
    rehearsed: Rehearsal, settings: int, copies: list[int], seconds_before: float
) -> Estimate:
    """What a comparison takes where settings are judged one at a time."""
    whole, kept = rehearsed.whole, rehearsed.kept
    most = min(max(copies), kept.n_draws)
    judged, _ = _timed(lambda: measure(kept, rehearsed.free, [max(2, most)], 0.1, None, 0))
    ratio = 1.0
    few = _copies(whole, FEW)
    if kept.problem is not whole.problem:
        mine, _ = _timed(lambda: _copies(kept, FEW))
        theirs, few = _timed(lambda: _copies(whole, FEW))
        ratio = max(theirs / mine, _ratio(whole, kept))
    seconds = {
        "reading": seconds_before,
        "unrestricted fit": rehearsed.free_seconds,
        "settings": settings * rehearsed.kept_seconds
        + (settings + 1) * judged * ratio * len(copies),
    }
    return Estimate(seconds, _peak_mib(few, max(copies)))


def _timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Wall time of a call, its warnings kept back, and what it returns."""
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DsstanWarning)
        found = call()
    return time.perf_counter() - begin, found


def _copies(fitted: Fit, number: int) -> Synthesis:
    """A few copies, never published, of a fit too short to pass any verdict."""
    return synthesise(
        fitted, number, seed=0, accept_failed=True, accept_few_draws=True, progress=False
    )


def _some_rows(problem: Problem, count: int = SMALL) -> NDArray[np.intp]:
    """Rows spread over the table, enough for the design to keep its rank."""
    n = problem.n_records
    if n <= count:
        return np.arange(n)
    order = np.random.default_rng(0).permutation(n)
    while count < n:
        rows = np.sort(order[:count])
        apart = len(np.unique(problem.site[rows])) > 1
        if apart and np.linalg.matrix_rank(problem.X[rows]) == problem.n_terms:
            return rows
        count *= 2
    return np.arange(n)


def _part(problem: Problem, rows: NDArray[np.intp]) -> Problem:
    """The problem of some of the records, its design as it is."""
    y, X = problem.y[rows], problem.X[rows]
    _, site = np.unique(problem.site[rows], return_inverse=True)
    return replace(
        problem,
        table=problem.table.iloc[rows],
        design=replace(problem.design, X=X, y=y),
        y=y,
        coords=problem.coords[rows],
        sites=problem.sites[rows],
        site=site.astype(np.int64),
    )


def _of(problem: Problem, fitted: Fit) -> Fit:
    """A short fit as if it were of the whole table: its draws, for the cost of what follows."""
    return (
        fitted
        if fitted.problem is problem
        else replace(fitted, problem=problem, A=np.ones(problem.n_records))
    )


def _rows_of(weights: Weights, rows: NDArray[np.intp]) -> Weights:
    """The weights of some of the records."""
    return replace(
        weights,
        a=weights.a[rows],
        nearest=weights.nearest[rows],
        probability=weights.probability[rows],
    )


def _node_seconds(problem: Problem, h: int, cov_model: str) -> float:
    """Wall time of one node of the surface in log phi, with all its nodes in log r."""
    usual = Priors().resolve(problem.y, problem.X, problem.d_max, cov_model=cov_model)
    phi = float(np.sqrt(np.prod(usual.phi_bounds)))
    r = log_position_inv(chebyshev_nodes(h), usual.r_bounds)
    d, rotation = cdist(problem.sites, problem.sites), rotate(problem.X, problem.y)
    ones = np.ones(problem.n_records)

    def node() -> None:
        with threadpool_limits(limits=1, user_api="blas"):
            m = smoothed_correlation(d, phi, ones, "none", cov_model)
            node_statistics(m, rotation.Z, r)

    return _timed(node)[0]


def _decomposition(fitted: Fit) -> float:
    """Wall time of one decomposition of the attack with its draws."""
    at = [parameters_at(fitted, 0, i) for i in (0, 1)]

    def one() -> None:
        with threadpool_limits(limits=1, user_api="blas"):
            FreeSurface(fitted.problem, at, (1, 16), fitted.cov_model)

    return _timed(one)[0]


def _peak_mib(few: Synthesis, copies: int) -> float:
    """Peak of the larger process so far, in which each piece ran at full N, and the copies.

    Three sets of L copies are held at a time: released, without protection, as read for the pages.
    """
    unit = 1024.0**2 if sys.platform == "darwin" else 1024.0
    own, child = (
        resource.getrusage(who).ru_maxrss / unit
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    held = 3 * few.values.nbytes / few.copies * copies / 1024.0**2
    return float(max(own + held, child))
