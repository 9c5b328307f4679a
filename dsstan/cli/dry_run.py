"""``--dry-run``: everything that is checked before sampling, and what a run would do and take."""

from __future__ import annotations

import math
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dsstan.cli.rehearsal import Estimate, estimate_comparison, estimate_release, rehearse
from dsstan.cli.screens import out, say
from dsstan.cli.session import document, emit
from dsstan.comparison.frontier import check_comparison
from dsstan.comparison.scores import grid_of
from dsstan.copies.imputation import check_imputations
from dsstan.copies.protect import check_choices
from dsstan.copies.published import check_public
from dsstan.core.errors import DsstanError, DsstanWarning, InputError
from dsstan.core.progress import phase
from dsstan.core.seeds import root_seed
from dsstan.covariance.approximations import choose_covariance
from dsstan.engines import SamplerSettings, get_engine
from dsstan.models.arguments import check_cut, program_of
from dsstan.models.priors import Priors
from dsstan.models.weights import neighbour_distances
from dsstan.table.order_leaks import check_order
from dsstan.table.parquet import prepare_parquet
from dsstan.table.problem import Problem, prepare

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
    table: Any, formula: str, settings: dict[str, Any], *, floor: float | None, target: Path
) -> Plan:
    """Check what :func:`dsstan.protect` would, and say what a release would be.

    Parameters
    ----------
    table, formula, settings
        As :func:`dsstan.protect` takes them.
    floor, target
        As asked for; checked by the caller.

    Raises
    ------
    DsstanError
        The same as the run itself would raise before it samples, and for columns that give the
        response away.
    """
    names = ("threshold", "correlation", "gamma", "protection", "copies", "rounding", "cov_model")
    settings = {"cov_model": "exponential", "covariance": "auto", **settings}
    check_choices(*(settings[name] for name in names))
    choose_covariance(settings["covariance"], 0)
    root_seed(settings["seed"])
    sampler = _sampler(settings)
    begin = time.perf_counter()
    problem = _prepared(table, formula, settings)
    covariance = choose_covariance(settings["covariance"], int(problem.observed.sum()))
    check_order(problem)
    seconds = time.perf_counter() - begin
    most = sampler.chains * sampler.samples
    if settings["copies"] > most:
        raise InputError(
            f"{settings['copies']} copies need as many posterior draws; there will be {most}"
        )
    flagged = _flagged(problem, settings)
    what = {
        **_data(problem),
        "cov_model": settings.get("cov_model", "exponential"),
        "covariance": covariance.name,
        "protection": settings["protection"],
        "gamma": settings["gamma"] if math.isfinite(settings["gamma"]) else "infinity",
        "flagged": flagged,
        "copies": settings["copies"],
        "floor": floor,
        **_fits(problem, settings),
        "sampler": f"{sampler.chains} chains of {sampler.warmup} + {sampler.samples}",
        "folder": str(target),
    }
    rule = {
        "distance": settings["threshold"],
        "correlation": settings["correlation"],
        "neighbour": settings["neighbour"],
    }
    restricted = {"gamma": settings["gamma"], "protection": settings["protection"]}
    if problem.n_missing or settings.get("imputations") is not None:
        check_imputations(problem, settings["copies"], settings["imputations"])
        what["missing"] = problem.n_missing
        return Plan(what, None, "each completed table is fitted anew, which no rehearsal measures")
    release = None
    try:
        with phase("rehearsal"), warnings.catch_warnings():
            warnings.simplefilter("ignore", DsstanWarning)
            rehearsed = rehearse(problem, rule, restricted, _common(settings))
            estimate, release = estimate_release(rehearsed, settings["copies"], seconds)
    except DsstanError as error:
        return Plan(what, None, str(error))
    check_public(release)
    return Plan(what, estimate, None)


def plan_comparison(
    table: Any, formula: str, settings: dict[str, Any], grid: dict[str, Any], *, folder: Path
) -> Plan:
    """Check what :func:`dsstan.compare` would, and say what the grid would be.

    Parameters
    ----------
    table, formula, settings
        The table, and the arguments of ``prepare`` and of the fits.
    grid
        ``distances``, ``correlations``, ``continuous``, ``gammas``, ``protections``, ``copies``,
        ``workers``.
    folder
        Where the comparison would be kept.
    """
    names = ("distances", "correlations", "continuous", "gammas", "protections")
    cells = grid_of(*(grid[name] for name in names))
    root_seed(settings["seed"])
    sampler = _sampler(settings)
    begin = time.perf_counter()
    problem = _prepared(table, formula, settings)
    seconds = time.perf_counter() - begin
    check_comparison(problem, grid["copies"], grid["workers"], None)
    covariance = choose_covariance(settings.get("covariance", "auto"), problem.n_records)
    what = {
        **_data(problem),
        "cov_model": settings.get("cov_model", "exponential"),
        "covariance": covariance.name,
        "settings": len(cells) + 1,
        "copies": list(grid["copies"]),
        **_fits(problem, settings),
        "sampler": f"{sampler.chains} chains of {sampler.warmup} + {sampler.samples}",
        "workers": grid["workers"],
        "folder": str(folder.absolute()),
    }
    one = cells[0]
    rule = {} if one.rule == "continuous" else {one.rule: one.value}
    restricted = {
        "gamma": np.inf if one.rule == "continuous" else one.gamma,
        "protection": one.protection,
    }
    try:
        with phase("rehearsal"), warnings.catch_warnings():
            warnings.simplefilter("ignore", DsstanWarning)
            rehearsed = rehearse(problem, rule, restricted, _common(settings))
            counts = sorted(set(grid["copies"]))
            estimate = estimate_comparison(rehearsed, len(cells), counts, seconds)
    except DsstanError as error:
        return Plan(what, None, str(error))
    return Plan(what, estimate, None)


def _prepared(table: Any, formula: str, settings: dict[str, Any]) -> Problem:
    """The checked problem, its priors and its engine found."""
    get_engine(settings["engine"])
    keys = ("coords", "distance", "crs", "name", "missing")
    prepared = prepare_parquet if settings.get("by_row_groups") else prepare
    problem = prepared(table, formula, **{key: settings[key] for key in keys if key in settings})
    usual = settings["priors"] or Priors()
    there = problem.observed
    usual.resolve(
        problem.y[there],
        problem.X[there],
        problem.d_max,
        cov_model=settings.get("cov_model", "exponential"),
    )
    return problem


def _sampler(settings: dict[str, Any]) -> SamplerSettings:
    """The sampler's settings, checked."""
    adapt_delta = settings.get("adapt_delta", SamplerSettings.adapt_delta)
    return SamplerSettings(settings["chains"], settings["warmup"], settings["samples"], adapt_delta)


def _common(settings: dict[str, Any]) -> dict[str, Any]:
    """Arguments of both fits."""
    keys = (
        "engine",
        "priors",
        "cov_model",
        "covariance",
        "chains",
        "warmup",
        "samples",
        "adapt_delta",
    )
    return {key: settings[key] for key in keys if key in settings}


def _flagged(problem: Problem, settings: dict[str, Any]) -> int | None:
    """How many records the rule flags, where a distance decides; else the fit must come first."""
    nearest = neighbour_distances(problem, neighbour=settings["neighbour"])
    if settings["threshold"] is None:
        return None
    flagged = nearest >= settings["threshold"]
    if settings["protection"] == "cut":
        check_cut(problem.X[~flagged], int(np.sum(~flagged)), problem)
    return int(np.sum(flagged))


def _data(problem: Problem) -> dict[str, Any]:
    """What the table is to the model."""
    return {
        "formula": problem.formula,
        "records": problem.n_records,
        "sites": problem.n_sites,
        "terms": list(problem.terms),
        "distance": f"{problem.distance}, in {problem.unit}",
    }


def _fits(problem: Problem, settings: dict[str, Any]) -> dict[str, Any]:
    """Which engine and which programs."""
    programs = [program_of(problem, restricted=kept) for kept in (False, True)]
    return {"engine": get_engine(settings["engine"]).name, "programs": programs}
