"""How long a run will take and how much memory it needs: measured on real pieces of it.

Up to :data:`SMALL` records the rehearsal has all of the table, else as many of its records. The
direct engine draws from their posterior, so what it finds of them, the run will find. What grows
with the cube of N (a node of the surface, a copy) is then measured once at full N. What is measured
of the part alone is carried on from a quarter of it: linearly where the covariance is approximated,
else by the square of N, which the measures of risk follow up to the 2,000 records that an exact
covariance takes. Iterations of the sampler do not depend on N: they are timed on a few records.
"""

from __future__ import annotations

import resource
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist
from threadpoolctl import threadpool_limits

from dsstan.analysis.utility import utility
from dsstan.comparison.scores import measure
from dsstan.copies.options import ReleaseOptions
from dsstan.copies.result import Synthesis
from dsstan.copies.synthesis import synthesise
from dsstan.core.arrays import Indices
from dsstan.core.chebyshev import chebyshev_nodes, log_position_inv
from dsstan.core.errors import DsstanWarning
from dsstan.covariance.approximations import choose_covariance
from dsstan.covariance.base import SpatialModel
from dsstan.covariance.eigenbasis import alone
from dsstan.covariance.likelihood_surface import HELD_OUT_PHI
from dsstan.covariance.surface_statistics import (
    MANY,
    node_statistics,
    rotate,
    smoothed_correlation,
)
from dsstan.models.arguments import diagonal
from dsstan.models.fit import fit
from dsstan.models.posterior import centre_of, parameters_at, spread_draws
from dsstan.models.predictive import carried_effect
from dsstan.models.priors import Priors
from dsstan.models.result import Fit
from dsstan.models.weights import Weights
from dsstan.risk.assessment import Assessment, assess, most_integrated
from dsstan.risk.disclosure import disclosure
from dsstan.risk.intruder.attacker import Attack
from dsstan.risk.intruder.exact import exact_intruder
from dsstan.risk.intruder.variance_grid import integrable
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

FEW = 4
"""Copies drawn to separate the cost of each copy from the cost that occurs once."""

FEW_EXACT, MORE_EXACT = 2, 10
"""Records integrated exactly, for the cost of each and of what they share."""


@dataclass(frozen=True)
class Estimate:
    """Wall time by stage in seconds, and peak memory in MiB of the larger process. An estimate."""

    seconds: dict[str, float]
    peak_mib: float
    found: Assessment | None = field(repr=False, default=None)
    """What such copies of the records rehearsed disclose, by bounds."""

    @property
    def total(self) -> float:
        """Wall time of the whole."""
        return sum(self.seconds.values())


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
    direct |= {"chains": max(4, options.chains), "samples": max(1000, options.samples)}
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


def _fits(rehearsed: Rehearsal) -> tuple[float, float]:
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
    iterations = options.sampler.warmup + options.samples
    return brief + each * (iterations - sum(SHORT))


def estimate_release(rehearsed: Rehearsal, copies: int, seconds_before: float) -> Estimate:
    """What a release takes."""
    model, kept = rehearsed.model, rehearsed.part.kept
    first, _ = _timed(lambda: _draw_effects(model, kept, 1))
    several, _ = _timed(lambda: _draw_effects(model, kept, FEW))
    each = max(0.0, several - first) / (FEW - 1)
    drawn = first + each * (copies - 1)
    records = model.problem.n_records
    draws = kept.covariance.draws_by_default(kept, carried_effect(kept)[0], records)
    judged = partial(_judge, draws=min(draws, kept.n_draws), number=min(copies, kept.n_draws))
    free, restricted = _fits(rehearsed)
    found: list[tuple[Synthesis, Assessment]] = []

    def bounds(part: Part) -> float:
        seconds, release, judgement = judged(part)
        found[:] = [(release, judgement)]
        return seconds

    disclosed = rehearsed.of_table(bounds)  # the part last
    if integrable(model):
        disclosed += _integrals(model, *found[0])
    seconds = {
        "reading": seconds_before,
        "unrestricted fit": free,
        "restricted fit": restricted,
        "copies": drawn,
        "disclosure": disclosed + drawn,
    }
    return Estimate(seconds, _peak_mib(records, copies), found[0][1])


def _judge(part: Part, *, draws: int, number: int) -> tuple[float, Synthesis, Assessment]:
    """Wall time of the measures of risk and utility of a part but for exact posteriors; the copies
    and what was found."""
    release = synthesise(
        *(part.kept, number), seed=0, accept_failed=True, accept_few_draws=True, progress=False
    )
    bounds, found = _timed(lambda: assess(release, draws=draws, exact=0, progress=False))
    return bounds + _timed(lambda: (disclosure(release), utility(release)))[0], release, found


def _integrals(model: SpatialModel, release: Synthesis, found: Assessment) -> float:
    """Wall time of the exact posteriors of a release of the whole table, by those of a part.

    Nearly as many records are integrated as may be: the weakest by their bounds alone go on until
    one of them is the weakest exactly. A release costs what all records share, which grows as the
    square of N, and a time for each.
    """
    n = model.problem.n_records
    larger, count = (n / release.problem.n_records) ** 2, min(n, most_integrated(n))
    seconds = 0.0
    for copies, bounds in ((release, found.after), (release.unprotected, found.before)):
        if copies is None or bounds is None:
            continue
        few, many = (_integral_seconds(copies, bounds, k) for k in (FEW_EXACT, MORE_EXACT))
        each = max(0.0, many - few) / (MORE_EXACT - FEW_EXACT)
        seconds += larger * max(0.0, few - FEW_EXACT * each) + count * each
    return seconds


def _integral_seconds(copies: Synthesis, bounds: Attack, count: int) -> float:
    """Wall time of the exact posteriors of the first records that have one."""
    rows = np.flatnonzero(~alone(copies.problem.X))[:count].tolist()
    return _timed(lambda: exact_intruder(copies, records=rows, bounds=bounds, progress=False))[0]


def estimate_comparison(
    rehearsed: Rehearsal, settings: int, copies: list[int], seconds_before: float
) -> Estimate:
    """What a comparison takes where settings are judged one at a time."""
    model, part = rehearsed.model, rehearsed.part
    most = max(2, min(max(copies), part.kept.n_draws))

    def judged(some: Part) -> float:
        return _timed(lambda: measure(some.kept, some.free, [most], 0.1, None, 0))[0]

    each = rehearsed.of_table(judged)
    free, restricted = _fits(rehearsed)
    seconds = {
        "reading": seconds_before,
        "unrestricted fit": free,
        "settings": settings * restricted + (settings + 1) * each * len(copies),
    }
    return Estimate(seconds, _peak_mib(model.problem.n_records, max(copies)))


def _timed(call: Callable[[], Any]) -> tuple[float, Any]:
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

    return _timed(node)[0]


def _draw_effects(model: SpatialModel, fitted: Fit, copies: int) -> None:
    """Draw the spatial effects of some copies, nearly all of their cost, at draws of a fit."""
    law = model.covariance.latent(model, centre_of(fitted))
    rng = np.random.default_rng(0)
    with threadpool_limits(limits=1, user_api="blas"):
        for chain, iteration in spread_draws(fitted, copies):
            law.draw(parameters_at(fitted, int(chain), int(iteration)), rng)


def _peak_mib(records: int, copies: int) -> float:
    """Peak of the larger process so far, in which each piece ran at full N, and the copies.

    Three sets of L copies are held at a time: released, without protection, as read for the pages.
    """
    unit = 1024.0**2 if sys.platform == "darwin" else 1024.0
    own, child = (
        resource.getrusage(who).ru_maxrss / unit
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    held = 3 * records * np.dtype(np.float64).itemsize * copies / 1024.0**2
    return float(max(own + held, child))
