"""``dsstan run`` of a job with steps: several synthetic columns, one drawn given another."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from dsstan.cli.dry_run import Plan
from dsstan.cli.job import arguments_of
from dsstan.cli.options import (
    AcceptFailed,
    AdaptDelta,
    Chains,
    Coords,
    CopiesOf,
    Correlation,
    CovModel,
    Crs,
    CsvText,
    Distance,
    Engine,
    Format,
    Formula,
    Gamma,
    Neighbour,
    NoReport,
    OutFolder,
    PhiBounds,
    Protection,
    RoundingOf,
    Samples,
    Seed,
    Strict,
    TableFile,
    Threshold,
    WorkDir,
)
from dsstan.cli.outcome import tell_chain
from dsstan.cli.phases import phases
from dsstan.cli.session import SESSION
from dsstan.copies.chain import check_chain, check_columns
from dsstan.copies.protect import check_choices, stage_seeds
from dsstan.copies.result import Synthesis
from dsstan.copies.step_models import check_model, check_step, fit_step, other_columns
from dsstan.copies.synthesis import synthesise
from dsstan.core.errors import ConvergenceError, InputError
from dsstan.core.progress import phase
from dsstan.core.seeds import root_seed, seed_bits
from dsstan.release.reading import needed_columns, read_table
from dsstan.release.write import FORMATS, check_target, write_release
from dsstan.table.cells import check_cells
from dsstan.table.order_leaks import check_order
from dsstan.table.problem import Problem, prepare

__all__ = ["OF_A_STEP", "chain_job", "chain_step", "chain_workdir", "run_chain"]


def chain_job(
    table: TableFile,
    coords: Coords,
    out_folder: OutFolder,
    crs: Crs = None,
    distance: Distance = None,
    copies: CopiesOf = 20,
    seed: Seed = None,
    engine: Engine = "auto",
    format: Format = "csv",
    chains: Chains = 4,
    warmup: Annotated[int | None, typer.Option(help="Warm-up iterations of a chain.")] = None,
    samples: Samples = 1000,
    adapt_delta: AdaptDelta = 0.9,
    accept_failed: AcceptFailed = False,
    strict: Strict = False,
    csv_text: CsvText = "refuse",
    no_report: NoReport = False,
    workdir: WorkDir = None,
) -> dict[str, Any]:
    """What the whole job may say; its parameters are the keys beside ``steps``."""
    return dict(locals())


def chain_step(
    formula: Formula,
    outcome: Annotated[str, typer.Option(help="How the column is modelled.")] = "gaussian",
    threshold: Threshold = None,
    correlation: Correlation = None,
    neighbour: Neighbour = 1,
    gamma: Gamma = float("inf"),
    protection: Protection = "paper",
    cov_model: CovModel = "exponential",
    phi_bounds: PhiBounds = None,
    rounding: RoundingOf = "auto",
    offset: Annotated[str | None, typer.Option(help="Of a count: column of the exposure.")] = None,
    cuts: Annotated[
        list[float] | None, typer.Option(help="Bracketed: ends of the brackets, ascending.")
    ] = None,
    closed: Annotated[
        str | None, typer.Option(help="Bracketed: the end that belongs to it, left or right.")
    ] = None,
    likelihood: Annotated[str | None, typer.Option(help="Bracketed: plain or truncated.")] = None,
    groups: Annotated[str | None, typer.Option(help="Grouped: column of the groups.")] = None,
) -> dict[str, Any]:
    """What a step may say; its parameters are the keys of ``[[steps]]``."""
    return dict(locals())


OF_A_STEP = "models other than the Gaussian belong into a step: begin one with [[steps]]"
_OF_STEPS = "it belongs into a step, below [[steps]]"
_NOT_HERE = "a job with steps has none: the attacker is not reckoned there, and no gap is drawn"
_ELSEWHERE = {
    **dict.fromkeys(inspect.signature(chain_step).parameters, _OF_STEPS),
    **dict.fromkeys(
        ("missing", "imputations", "floor", "accept_below_floor", "absolute"), _NOT_HERE
    ),
    "by_row_groups": "a job with steps reads the whole table",
}
"""Keys that do not stand above the steps, and why."""


def run_chain(
    content: Mapping[str, Any], path: Path, *, dry_run: bool, as_json: bool, verbose: bool
) -> None:
    """Make the release that a job with steps describes.

    Parameters
    ----------
    content
        Of the job file.
    path
        The file.

    Raises
    ------
    InputError
        If the job can't be read, or its steps make no chain; before any sampling.
    """
    told = _head(content, path)
    steps = _steps(content["steps"], path)
    target = check_target(told["out_folder"])
    if told["format"] not in FORMATS:
        raise InputError(f"format must be csv or parquet, got {told['format']!r}")
    SESSION.targets.append(target)
    names = [f"step {number}" for number in range(1, len(steps) + 1)]
    with phases(["reading"] if dry_run else ["reading", *names, "writing"]):
        with phase("reading"):
            problems = _prepared(told, steps)
        if not dry_run:
            release = _release(told, steps, problems, names)
            with phase("writing"):
                write_release(
                    release,
                    target,
                    format=told["format"],
                    csv_text=told["csv_text"],
                    report=not told["no_report"],
                )
    if dry_run:
        _plan(told, steps, problems, target).show("run", as_json=as_json)
        return
    tell_chain(release, target, report=not told["no_report"], as_json=as_json, verbose=verbose)


def chain_workdir(content: Mapping[str, Any], path: Path) -> Path | None:
    """The working folder that a job names, if any."""
    folder: Path | None = _head(content, path)["workdir"]
    return folder


def _head(content: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The checked settings above the steps."""
    whole = {key: value for key, value in content.items() if key != "steps"}
    return chain_job(**arguments_of(whole, chain_job, path, _ELSEWHERE))


def _steps(given: Any, path: Path) -> list[dict[str, Any]]:
    """The checked settings of each step."""
    if not isinstance(given, list) or not given or not all(isinstance(s, dict) for s in given):
        raise InputError(f"steps in {path.name} must be tables, each begun by [[steps]]")
    steps = []
    for number, one in enumerate(given, 1):
        with _named(f"step {number}"):
            step = chain_step(**arguments_of(one, chain_step, path))
            check_step(step)
        steps.append(step)
    return steps


def _prepared(told: Mapping[str, Any], steps: list[dict[str, Any]]) -> list[Problem]:
    """The problems of the steps, checked as a chain."""
    used = set().union(*(needed_columns(step["formula"], told["coords"]) for step in steps))
    used |= {name for step in steps for name in other_columns(step)}
    content = read_table(told["table"], used)
    check_cells(content, told["format"], told["csv_text"])
    root_seed(told["seed"])
    problems: list[Problem] = []
    for number, step in enumerate(steps, 1):
        with _named(f"step {number}"):
            check_choices(
                step["threshold"],
                step["correlation"],
                step["gamma"],
                step["protection"],
                told["copies"],
                step["rounding"],
                step["cov_model"],
            )
            problem = prepare(
                content,
                step["formula"],
                coords=told["coords"],
                distance=told["distance"],
                crs=told["crs"],
                name=told["table"].stem,
            )
            check_order(problem)
            check_chain(problems, problem)
            check_model(problem, step)
        problems.append(problem)
    made = [problem.response for problem in problems]
    for number, step in enumerate(steps, 1):
        check_columns(made, other_columns(step), number)
    return problems


def _release(
    told: Mapping[str, Any],
    steps: list[dict[str, Any]],
    problems: list[Problem],
    names: list[str],
) -> Synthesis:
    """Fit, flag, fit again and synthesise, step by step."""
    root = root_seed(told["seed"])
    keys = ("engine", "chains", "warmup", "samples", "adapt_delta")
    sampler = {key: told[key] for key in keys if told[key] is not None}
    release: Synthesis | None = None
    for seed, step, problem, name in zip(
        stage_seeds(root, len(steps)), steps, problems, names, strict=True
    ):
        seeds = stage_seeds(seed, 3)
        with phase(name), _named(name):
            kept = fit_step(problem, step, sampler, seeds[:2])
            drawn = synthesise(
                kept,
                told["copies"],
                seed=seeds[2],
                accept_failed=told["accept_failed"],
                strict=told["strict"],
                rounding=step["rounding"],
                given=release,
            )
            release = replace(drawn, seed_bits=seed_bits(told["seed"]))
    assert release is not None
    return release


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Errors of a step say which it is."""
    try:
        yield
    except (ConvergenceError, InputError) as error:
        raise type(error)(f"{name}: {error}") from None


def _plan(
    told: Mapping[str, Any], steps: list[dict[str, Any]], problems: list[Problem], target: Path
) -> Plan:
    """What a run would do."""
    what: dict[str, Any] = {
        "records": problems[0].n_records,
        "sites": problems[0].n_sites,
        "copies": told["copies"],
        "folder": str(target),
    }
    for number, (step, problem) in enumerate(zip(steps, problems, strict=True), 1):
        what[f"step {number}"] = f"{problem.formula} ({step['outcome']})"
    return Plan(what, None, "a chain of several models is not rehearsed")
