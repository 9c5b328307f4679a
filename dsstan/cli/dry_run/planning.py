"""``--dry-run``: everything that is checked before sampling, and what a run would do and take."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dsstan.analysis.marginals import foreseen_heaps
from dsstan.cli.dry_run.estimate import Estimate, estimate_comparison, estimate_release
from dsstan.cli.dry_run.plan import Plan
from dsstan.cli.dry_run.rehearsal import Rehearsal, rehearse
from dsstan.cli.release_screen import neighbour_in_words
from dsstan.comparison.frontier import check_comparison
from dsstan.comparison.scores import grid_of
from dsstan.copies.options import ReleaseOptions
from dsstan.copies.protect import prepare_release
from dsstan.copies.published import check_published, columns_going_out
from dsstan.core.arrays import Floats
from dsstan.core.errors import DsstanError, DsstanWarning, InputError
from dsstan.core.progress import phase
from dsstan.core.spelling import spelled
from dsstan.covariance.approximations import choose_covariance
from dsstan.covariance.protection import protection_of
from dsstan.engines import gaussian_engine, get_engine, refuse_ridge, slow_design
from dsstan.models.arguments import check_cut, program_of
from dsstan.models.checks.advice import lone_records, shared_places
from dsstan.models.checks.conditions import most_flagged
from dsstan.models.heaps.fit import MORE
from dsstan.models.heaps.limits import range_ends
from dsstan.models.priors import Priors
from dsstan.models.weights import PAPER_CORRELATION, neighbour_distances, own_weights
from dsstan.risk.assessment import OF_A_HEAP, OF_MISSING, check_judgeable
from dsstan.risk.floors import Floor
from dsstan.risk.intruder.former import Former, published_before
from dsstan.risk.intruder.leave_one_out import leave_one_out
from dsstan.table.column_roles import column_roles
from dsstan.table.problem import Problem
from dsstan.table.weights_in_formula import missed_in_words

FARTHEST = 5
"""Largest distances to a neighbour that are shown."""

FEW = 5
"""Records for each column of the design, below which the dry run advises a shorter formula."""

_NOT_JUDGED = "DISCLOSURE will be NOT JUDGED, and publishing takes a reason"

CLEARLY = 0.98
"""Share of a floor below which other draws leave it missed."""

SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5)
"""Shares of the records that would be flagged by the distances that are shown beside the rule."""

THRESHOLDS = 5
"""Distances that are shown, the longest; two shares of few records may have one."""


def plan_release(
    table: Any,
    formula: str,
    options: ReleaseOptions,
    *,
    floor: Floor | None,
    target: Path,
    searches: bool = False,
) -> Plan:
    """Check what :func:`dsstan.protect` would, and say what a release would be.

    ``floor`` and ``target`` are checked by the caller; ``searches`` says that the records to flag
    are searched for. Raises what the run itself would before it samples, and DsstanError for
    columns that reveal the response.
    """
    begin = time.perf_counter()
    problem = prepare_release(table, formula, options)
    seconds = time.perf_counter() - begin
    check_judgeable(problem, floor, heaped=options.heaped)
    most = options.chains * options.sampler.samples
    if options.copies > most:
        raise InputError(
            f"{options.copies} copies need as many posterior draws; there will be {most}"
        )
    going = columns_going_out(problem)
    check_published([problem], going)
    nearest = neighbour_distances(problem, neighbour=options.neighbour, by_site=options.by_site)
    what = _model(problem, options) | {
        "protection": options.protection,
        "gamma": options.gamma if math.isfinite(options.gamma) else "infinity",
        "rule": _rule(problem, options),
        "flagged": _flagged(problem, options, nearest),
        "largest_distances": [float(f"{d:.4g}") for d in np.sort(nearest)[::-1][:FARTHEST]],
        "unit": problem.unit,
        "thresholds": _thresholds(nearest),
        "copies": options.copies,
        "floor": None if floor is None else floor.as_given,
        "folder": str(target),
    }
    if floor is not None:
        of = problem.original(), problem.transform, problem.response
        what["floor_meaning"] = floor.meaning(*of)
    former = published_before(problem)
    what["ledger"] = "no former release of this table"
    if former is not None:
        what["ledger"] = ", ".join(filter(None, [str(former), former.uncounted]))
    bare = () if former is None or floor is None else former.laid_bare
    what["columns"] = _columns(problem, going)
    judged = tuple(filter(None, [missed_in_words(problem)]))
    if problem.n_missing:
        what["missing"] = problem.n_missing
        reason = "each completed table is fitted anew, which no rehearsal measures"
        judged = (f"{_NOT_JUDGED}: {OF_MISSING}", *judged)
        return Plan(what, None, reason, judged, missed=bare)
    if options.heaped:
        reason = "a model with a heap or a range is not rehearsed"
        judged = (f"{_NOT_JUDGED}: {OF_A_HEAP}", *judged, *foreseen_heaps(problem))
        return Plan(what, None, reason, judged, missed=bare)
    if floor is None:
        judged = (f'{_NOT_JUDGED}: no floor is given, such as "10%" (--floor 10%)', *judged)
    elif former is not None and former.alike and not bare:
        judged = (f"{_NOT_JUDGED}: {former.uncounted}", *judged)
    runner, columns = get_engine(what["engine"]), problem.n_terms
    refuse_ridge(runner, "surface", columns, problem.n_records)
    slow = slow_design(runner, "surface", columns, options.sampler)
    if slow is not None:
        return Plan(what, None, slow, judged, missed=bare)
    try:
        with _rehearsal():
            rehearsed = rehearse(problem, options)
            estimate = estimate_release(rehearsed, options.copies, seconds)
    except DsstanError as error:
        return Plan(what, None, str(error), judged, missed=bare)
    # The direct engine's draws of the whole table are the posterior that the run will find; of a
    # part they say how far the effect reaches.
    what["flagged"] = rehearsed.weights.n_flagged
    warned, failed = _foreseen(rehearsed, searches=searches)
    missed = (*bare, *_hopeless(rehearsed, floor, former))
    if not missed and not searches:
        missed = _below(rehearsed, estimate, floor)
    return Plan(what, estimate, None, (*judged, *warned), failed, missed)


def _hopeless(rehearsed: Rehearsal, floor: Floor | None, former: Former | None) -> tuple[str, ...]:
    """How many records miss the floor whatever is released, in words, if any do."""
    if floor is None or not rehearsed.whole:
        return ()
    problem = rehearsed.model.problem
    precision = leave_one_out(rehearsed.part.free).sd ** -2.0
    precision += 0.0 if former is None else former.fixed
    hopeless = int(np.sum(precision**-0.5 < floor.least_sd(problem)))
    if not hopeless:
        return ()
    out = " and the former releases" if former is not None and former.releases else ""
    return (
        f"about {hopeless} of {problem.n_records} records are known better than the floor {floor} "
        f"without any copy, from the others{out}: no release keeps it for them",
    )


def _below(rehearsed: Rehearsal, estimate: Estimate, floor: Floor | None) -> tuple[str, ...]:
    """How many records such copies leave below the floor even by the upper bound, in words."""
    found = estimate.found
    if floor is None or not rehearsed.whole or found is None or found.after is None:
        return ()
    sd, problem = found.after.sd(variances="fixed"), rehearsed.model.problem
    below = int(np.sum(sd < CLEARLY * floor.least_sd(problem)))
    if not below:
        return ()
    auto = spelled("protection", "auto")
    return (
        f"about {below} of {problem.n_records} records would be below the floor {floor}: fewer "
        f"copies or more protection may keep it; {auto} looks for that",
    )


def _foreseen(rehearsed: Rehearsal, *, searches: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What the verdict on the fits will warn of, and what will fail it."""
    weights, problem = rehearsed.weights, rehearsed.model.problem
    # A search flags by its own rule.
    found = [] if searches else [most_flagged(weights.n_flagged, problem.n_records, chosen=False)]
    if rehearsed.whole:
        for fitted in (rehearsed.part.free, *(() if searches else (rehearsed.part.kept,))):
            found += [*fitted.verdict.failures, *fitted.verdict.warnings]
    said = {check.condition: check for check in found}.values()
    warned = [str(check) for check in said if check.severity == "warning"]
    warned += foreseen_heaps(problem)
    if problem.n_records < FEW * problem.n_terms:
        warned.append(
            f"{problem.n_terms} columns are estimated from {problem.n_records} records, and copies "
            "say little of each: pool levels that have few records, or leave the category out of "
            "the formula, since the spatial effect knows the place"
        )
    warned += filter(None, [lone_records(problem.X)])
    if weights.n_flagged == 0 and not searches:
        warned.append(
            "no record is flagged, so nothing is smoothed: "
            + (
                "all weights are 0"
                if weights.rule == "own"
                else shared_places(problem, weights)
                or f"the largest distance to a neighbour is {weights.nearest.max():.4g} "
                f"{problem.unit}s, the rule asks for {weights.threshold:.4g}"
            )
        )
    return tuple(warned), tuple(str(check) for check in said if check.severity == "failure")


def plan_comparison(
    table: Any, formula: str, options: ReleaseOptions, grid: Mapping[str, Any], *, folder: Path
) -> Plan:
    """Check what :func:`dsstan.compare` would, and say what the grid would be.

    ``grid`` holds its ``distances``, ``correlations``, ``continuous``, ``gammas``, ``protections``,
    ``copies`` and ``workers``; in ``folder`` the comparison would be kept.
    """
    names = ("distances", "correlations", "continuous", "gammas", "protections")
    cells = grid_of(*(grid[name] for name in names))
    begin = time.perf_counter()
    problem = options.prepare(table, formula)
    seconds = time.perf_counter() - begin
    check_comparison(problem, grid["copies"], grid["workers"], None)
    what = _model(problem, options) | {
        "settings": len(cells) + 1,
        "copies": list(grid["copies"]),
        "workers": grid["workers"],
        "folder": str(folder.absolute()),
    }
    one = cells[0]
    first = replace(
        options,
        threshold=one.value if one.rule == "distance" else None,
        correlation=one.value if one.rule == "correlation" else None,
        gamma=np.inf if one.rule == "continuous" else one.gamma,
        protection=one.protection,
    )
    try:
        with _rehearsal():
            counts = sorted(set(grid["copies"]))
            estimate = estimate_comparison(rehearse(problem, first), len(cells), counts, seconds)
    except DsstanError as error:
        return Plan(what, None, str(error))
    return Plan(what, estimate, None)


@contextmanager
def _rehearsal() -> Iterator[None]:
    """The phase of the rehearsal, whose warnings are not those of the run."""
    with phase("rehearsal"), warnings.catch_warnings():
        warnings.simplefilter("ignore", DsstanWarning)
        yield


def _columns(problem: Problem, going: Collection[str]) -> dict[str, dict[str, Any]]:
    """Each column of the table with its role as it is guessed, and whether it goes out."""
    return {
        role.name: {"published": role.name in going, "role": role.role, "reason": role.reason}
        for role in column_roles(problem)
    }


def _heap(problem: Problem) -> str | None:
    """The heap in words."""
    if problem.heap is None:
        return None
    return (
        f"{int(problem.in_heap.sum())} of {problem.n_records} records are at one value; who is, "
        f"takes a sampler of its own, {MORE} times as many iterations and most of the time"
    )


def _rule(problem: Problem, options: ReleaseOptions) -> str:
    """The rule that flags, in words."""
    if options.weights is not None:
        return f"the weights of column {options.weights!r}"
    which = neighbour_in_words(options.neighbour, by_site=options.by_site)
    if options.threshold is not None:
        return f"no {which} within {options.threshold:g} {problem.unit}s"
    correlation = options.correlation or PAPER_CORRELATION
    return (
        f"correlation with {which} at most {correlation:g}; the fit says who is flagged, "
        "about as many as here"
    )


def _thresholds(nearest: Floats) -> list[dict[str, Any]]:
    """Distances that flag some shares of the records, each with how many."""
    longest = np.sort(nearest)[::-1]
    at = [longest[max(0, round(share * longest.size) - 1)] for share in SHARES]
    chosen = sorted({_two_digits_down(distance) for distance in at if distance > 0}, reverse=True)
    return [{"threshold": M, "flagged": int(np.sum(nearest >= M))} for M in chosen[:THRESHOLDS]]


def _two_digits_down(value: float) -> float:
    """The value cut after its second digit."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return float(f"{math.floor(value / unit) * unit:.2g}")


def _flagged(problem: Problem, options: ReleaseOptions, nearest: Floats) -> int | None:
    """How many records are flagged, where a distance or weights decide; else a fit does."""
    if options.weights is not None:
        flagged = own_weights(problem, options.weights).flagged
    elif options.threshold is not None:
        flagged = nearest >= options.threshold
    else:
        return None
    if protection_of(options.protection).flagged_leave:
        check_cut(problem.X[~flagged], int(np.sum(~flagged)), problem)
    return int(np.sum(flagged))


def _survey(problem: Problem) -> str | None:
    """The survey weights in words, where there are any."""
    weights = problem.survey_weight_values
    if weights is None:
        return None
    return (
        f"{problem.survey_weights}: {weights.size} records stand for {weights.sum():,.0f} members "
        f"of the population, and weigh as much as {weights.sum() ** 2 / (weights @ weights):,.0f} "
        "of equal weight"
    )


def _model(problem: Problem, options: ReleaseOptions) -> dict[str, Any]:
    """What the table is to the model, and what fits it."""
    program = program_of(problem, options.program or "auto", restricted=False)
    engine = gaussian_engine(options.engine, program, problem.n_terms)
    there = problem.observed
    (options.priors or Priors()).resolve(
        problem.y[there], problem.X[there], problem.d_max, cov_model=options.cov_model
    )
    length = options.sampler
    return {
        "formula": problem.formula,
        "heap": _heap(problem),
        "range": None if options.range is None else list(range_ends(options.range)),
        "records": problem.n_records,
        "sites": problem.n_sites,
        "terms": list(problem.terms),
        "distance": f"{problem.distance}, in {problem.unit}s",
        "cov_model": options.cov_model,
        "engine": engine.name,
        "covariance": choose_covariance(options.covariance, int(there.sum())).name,
        "survey_weights": _survey(problem),
        "households": None if problem.households is None else str(problem.households),
        "programs": [program_of(problem, restricted=kept) for kept in (False, True)],
        "sampler": f"{options.chains} chains of {length.warmup} + {length.samples}",
    }
