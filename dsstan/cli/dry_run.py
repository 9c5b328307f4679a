"""``--dry-run``: everything that is checked before sampling, and what a run would do and take."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dsstan.cli.rehearsal import Estimate, estimate_comparison, estimate_release, rehearse
from dsstan.cli.screens import out, say
from dsstan.cli.session import document, emit
from dsstan.comparison.frontier import check_comparison
from dsstan.comparison.scores import grid_of
from dsstan.copies.options import ReleaseOptions
from dsstan.copies.protect import prepare_release
from dsstan.copies.published import check_public
from dsstan.core.errors import DsstanError, DsstanWarning, InputError
from dsstan.core.progress import phase
from dsstan.covariance.approximations import choose_covariance
from dsstan.covariance.protection import protection_of
from dsstan.engines import get_engine
from dsstan.models.arguments import check_cut, program_of
from dsstan.models.priors import Priors
from dsstan.models.weights import neighbour_distances
from dsstan.table.problem import Problem

__all__ = ["METHOD", "Plan", "plan_comparison", "plan_release"]

METHOD = (
    "An estimate: short real runs of the sampler, and one surface node, copy and decomposition "
    "of this table, timed on this machine and scaled. Other work on the machine adds to it, and "
    "so do pages, pictures and the first compilation of a program under CmdStan."
)


@dataclass(frozen=True)
class Plan:
    """What a run would do. Confidential: it says how many records are flagged."""

    what: dict[str, Any]
    estimate: Estimate | None
    reason: str | None

    def show(self, command: str, *, as_json: bool) -> None:
        """Print the plan, or write it as one JSON document."""
        if as_json:
            emit(
                document(
                    command,
                    confidential=True,
                    dry_run=True,
                    plan=self.what,
                    estimate=None
                    if self.estimate is None
                    else {
                        "seconds": {**self.estimate.seconds, "total": self.estimate.total},
                        "peak_mib": self.estimate.peak_mib,
                        "method": METHOD,
                    },
                    no_estimate=self.reason,
                )
            )
            return
        say("All that can be checked before sampling is in order; nothing was written.")
        width = max(len(key) for key in self.what)
        for key, value in self.what.items():
            if value is not None:
                say(f"  {key.replace('_', ' '):<{width}}  {_words(value)}")
        if self.estimate is None:
            say(f"Time and memory can't be estimated: {self.reason}", "yellow")
            return
        stages = ", ".join(f"{name} {_time(s)}" for name, s in self.estimate.seconds.items())
        say(f"About {_time(self.estimate.total)} ({stages})")
        say(f"About {self.estimate.peak_mib:.0f} MiB at the peak, in the larger process")
        out.print(METHOD, style="dim")


def _words(value: Any) -> str:
    """A value of the plan for a reader."""
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _time(seconds: float) -> str:
    """Seconds to two digits, minutes and hours where there are many."""
    if seconds < 120:
        return f"{float(f'{seconds:.2g}'):g} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def plan_release(
    table: Any, formula: str, options: ReleaseOptions, *, floor: float | None, target: Path
) -> Plan:
    """Check what :func:`dsstan.protect` would, and say what a release would be.

    Parameters
    ----------
    table, formula, options
        As :func:`dsstan.copies.protect.make_release` takes them.
    floor, target
        As asked for; checked by the caller.

    Raises
    ------
    DsstanError
        The same as the run itself would raise before it samples, and for columns that reveal the
        response.
    """
    begin = time.perf_counter()
    problem = prepare_release(table, formula, options)
    seconds = time.perf_counter() - begin
    most = options.chains * options.samples
    if options.copies > most:
        raise InputError(
            f"{options.copies} copies need as many posterior draws; there will be {most}"
        )
    flagged = _flagged(problem, options)
    what = _model(problem, options) | {
        "protection": options.protection,
        "gamma": options.gamma if math.isfinite(options.gamma) else "infinity",
        "flagged": flagged,
        "copies": options.copies,
        "floor": floor,
        "folder": str(target),
    }
    if problem.n_missing:
        what["missing"] = problem.n_missing
        return Plan(what, None, "each completed table is fitted anew, which no rehearsal measures")
    try:
        with _rehearsal():
            rehearsed = rehearse(problem, options)
            estimate, release = estimate_release(rehearsed, options.copies, seconds)
    except DsstanError as error:
        return Plan(what, None, str(error))
    check_public(release)
    return Plan(what, estimate, None)


def plan_comparison(
    table: Any, formula: str, options: ReleaseOptions, grid: Mapping[str, Any], *, folder: Path
) -> Plan:
    """Check what :func:`dsstan.compare` would, and say what the grid would be.

    Parameters
    ----------
    table, formula, options
        The table, and how it is prepared and fitted.
    grid
        ``distances``, ``correlations``, ``continuous``, ``gammas``, ``protections``, ``copies``,
        ``workers``.
    folder
        Where the comparison would be kept.
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


def _flagged(problem: Problem, options: ReleaseOptions) -> int | None:
    """How many records the rule flags, where a distance decides; else the fit must come first."""
    nearest = neighbour_distances(problem, neighbour=options.neighbour)
    if options.threshold is None:
        return None
    flagged = nearest >= options.threshold
    if protection_of(options.protection).flagged_leave:
        check_cut(problem.X[~flagged], int(np.sum(~flagged)), problem)
    return int(np.sum(flagged))


def _model(problem: Problem, options: ReleaseOptions) -> dict[str, Any]:
    """What the table is to the model, and what fits it."""
    engine = get_engine(options.engine)
    there = problem.observed
    (options.priors or Priors()).resolve(
        problem.y[there], problem.X[there], problem.d_max, cov_model=options.cov_model
    )
    return {
        "formula": problem.formula,
        "records": problem.n_records,
        "sites": problem.n_sites,
        "terms": list(problem.terms),
        "distance": f"{problem.distance}, in {problem.unit}",
        "cov_model": options.cov_model,
        "engine": engine.name,
        "covariance": choose_covariance(options.covariance, int(there.sum())).name,
        "programs": [program_of(problem, restricted=kept) for kept in (False, True)],
        "sampler": f"{options.chains} chains of {options.warmup} + {options.samples}",
    }
