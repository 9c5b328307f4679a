"""How long a run takes, and how much memory: its rehearsal carried on to the whole."""

from __future__ import annotations

import resource
import sys
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from threadpoolctl import threadpool_limits

from dsstan.analysis.utility import utility
from dsstan.cli.dry_run.rehearsal import Part, Rehearsal, fit_seconds, timed
from dsstan.comparison.scores import measure
from dsstan.copies.result import Synthesis
from dsstan.copies.synthesis import synthesise
from dsstan.covariance.base import SpatialModel
from dsstan.covariance.eigenbasis import alone
from dsstan.models.posterior import centre_of, parameters_at, spread_draws
from dsstan.models.predictive import carried_effect
from dsstan.models.result import Fit
from dsstan.risk.assessment import Assessment, assess, most_integrated
from dsstan.risk.disclosure import disclosure
from dsstan.risk.intruder.attacker import Attack
from dsstan.risk.intruder.exact import exact_intruder
from dsstan.risk.intruder.variance_grid import integrable

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


def estimate_release(rehearsed: Rehearsal, copies: int, seconds_before: float) -> Estimate:
    """What a release takes."""
    model, kept = rehearsed.model, rehearsed.part.kept
    first, _ = timed(lambda: _draw_effects(model, kept, 1))
    several, _ = timed(lambda: _draw_effects(model, kept, FEW))
    each = max(0.0, several - first) / (FEW - 1)
    drawn = first + each * (copies - 1)
    records = model.problem.n_records
    draws = kept.covariance.draws_by_default(kept, carried_effect(kept)[0], records)
    judged = partial(_judge, draws=min(draws, kept.n_draws), number=min(copies, kept.n_draws))
    free, restricted = fit_seconds(rehearsed)
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
    bounds, found = timed(lambda: assess(release, draws=draws, exact=0, progress=False))
    return bounds + timed(lambda: (disclosure(release), utility(release)))[0], release, found


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
    return timed(lambda: exact_intruder(copies, records=rows, bounds=bounds, progress=False))[0]


def estimate_comparison(
    rehearsed: Rehearsal, settings: int, copies: list[int], seconds_before: float
) -> Estimate:
    """What a comparison takes where settings are judged one at a time."""
    model, part = rehearsed.model, rehearsed.part
    most = max(2, min(max(copies), part.kept.n_draws))

    def judged(some: Part) -> float:
        return timed(lambda: measure(some.kept, some.free, [most], 0.1, None, 0))[0]

    each = rehearsed.of_table(judged)
    free, restricted = fit_seconds(rehearsed)
    seconds = {
        "reading": seconds_before,
        "unrestricted fit": free,
        "settings": settings * restricted + (settings + 1) * each * len(copies),
    }
    return Estimate(seconds, _peak_mib(model.problem.n_records, max(copies)))


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
