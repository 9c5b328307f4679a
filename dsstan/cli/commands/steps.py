"""``dsstan run`` of a job with steps: several synthetic columns, one drawn given another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dsstan.cli.commands.placed import (
    addresses_of,
    check_placed,
    judge_and_write,
    write_and_print,
)
from dsstan.cli.dry_run.placed import placed_plan
from dsstan.cli.dry_run.plan import Plan
from dsstan.cli.job import arguments_of
from dsstan.cli.options import (
    Run,
    Source,
    TableFile,
    Writing,
    built,
    check_table,
    signature_of,
)
from dsstan.cli.phases import PLACED_PHASES, phases
from dsstan.cli.print_release import print_steps
from dsstan.cli.session import SESSION
from dsstan.copies.chain import check_chain, check_columns
from dsstan.copies.options import ReleaseOptions
from dsstan.copies.placed import PlacesOptions, draw_placed
from dsstan.copies.placed import check_columns as check_placed_columns
from dsstan.copies.protect import draw_release, prepare_release, stage_seeds
from dsstan.copies.result import Synthesis
from dsstan.copies.step_models import StepModel
from dsstan.core.errors import InputError, named
from dsstan.core.progress import phase
from dsstan.core.seeds import root_seed
from dsstan.release.acceptance import check_reason
from dsstan.release.copy_files import format_for
from dsstan.release.reading import needed_columns
from dsstan.release.whole_folder import check_target
from dsstan.table.formulas.formula import parse
from dsstan.table.problem import Problem
from dsstan.table.weights_in_formula import missed_in_words

_HEAD = signature_of(
    "table coords out_folder sep decimal thousands encoding na layer crs distance survey_weights "
    "household copies seed engine format chains warmup samples adapt_delta accept_failed strict "
    "publish accept_proxy csv_text no_report workdir ledger time places mask addresses cells "
    "surface held_back places_groups number accept_place presence finding "
    "floor accept_below_floor reason",
    *(Source, ReleaseOptions, Writing, PlacesOptions, Run),
)
"""What stands above the steps."""

_STEP = signature_of(
    "formula outcome threshold correlation neighbour by_site weights gamma protection cov_model "
    "phi_bounds decay time_decay group_share rounding heap range offset cuts closed likelihood "
    "groups",
    *(Source, StepModel, ReleaseOptions),
)
"""What a step may say."""

OF_A_STEP = "models other than the Gaussian belong into a step: begin one with [[steps]]"
NO_SUCH_LAW = {"bounds": "range = [0, inf] keeps copies within it"}
"""Keys that a job might be thought to have, and what to do instead."""

_OF_STEPS = "it belongs into a step, below [[steps]]"
_NO_GAP = "a job with steps draws no gap"
_NO_INTRUDER = "a job with steps has none"
_OF_PLACES = ("floor", "accept_below_floor", "reason")
"""Keys above the steps that have no meaning where places are kept."""
_ELSEWHERE = {
    **NO_SUCH_LAW,
    **dict.fromkeys(_STEP.parameters, _OF_STEPS),
    **dict.fromkeys(("missing", "imputations", "hide_gaps"), _NO_GAP),
    **dict.fromkeys(("attribution", "absolute"), _NO_INTRUDER),
    "by_row_groups": "a job with steps reads the whole table",
}
"""Keys that do not stand above the steps, and why."""


@dataclass(frozen=True)
class _Step:
    """One synthetic column of the chain."""

    name: str
    formula: str
    options: ReleaseOptions
    model: StepModel


def run_chain(content: Mapping[str, Any], path: Path, how: Run) -> None:
    """Make the release that the content of a job file with steps describes.

    Raises InputError if the job can't be read, or its steps make no chain; before any sampling.
    """
    head = _head(content, path)
    writing, options = built(Writing, head), built(ReleaseOptions, head)
    places = built(PlacesOptions, head)
    steps = _steps(content["steps"], head, path)
    target = check_target(writing.out_folder)
    format_for(writing.format, None)
    SESSION.targets.append(target)
    if places.synthetic:
        _run_placed(head, steps, writing, places, how)
        return
    for name in _OF_PLACES:
        if name in content:
            raise InputError(
                f"{path.name} has the key {name!r} here: where places are kept, no intruder is "
                "assessed in a job with steps, so leave it out"
            )
    names = [step.name for step in steps]
    with phases(["reading"] if how.dry_run else ["reading", *names, "writing"]):
        problems = _prepared(head, steps)
        if not how.dry_run:
            release = _release(options.seed, steps, problems)
            with phase("writing"):
                writing.write(release)
    if how.dry_run:
        _plan(steps, problems, target).show("run", as_json=how.as_json)
        return
    print_steps(
        *(release, target),
        report=not writing.no_report,
        as_json=how.as_json,
        verbose=how.verbose,
    )


def _run_placed(
    head: Mapping[str, Any],
    steps: list[_Step],
    writing: Writing,
    places: PlacesOptions,
    how: Run,
) -> None:
    """Make the release with synthetic places that a job with steps describes."""
    target, options = check_target(writing.out_folder), steps[-1].options
    check_reason(writing.accept_below_floor, writing.reason)
    for step in steps:
        with named(step.name):
            check_placed(step.options, writing)
            step.model.check_new_places()
    last = steps[-1]
    if writing.floor is not None and last.model.outcome != "gaussian":
        raise InputError(
            f"a floor is about the column drawn last, and {last.name} has the outcome "
            f"{last.model.outcome!r}, of which no intruder is computed: leave the floor out"
        )
    with phases(("reading",) if how.dry_run else PLACED_PHASES):
        problems = _prepared(head, steps, places.columns)
        with phase("reading"):
            check_placed_columns(problems, [step.options for step in steps], places)
            mask = places.mask_for(problems[-1], addresses_of(built(TableFile, head), places))
        if not how.dry_run:
            pairs = zip(steps, problems, strict=True)
            runs = [
                (step.model.fit_of(problem, step.options), step.options) for step, problem in pairs
            ]
            root = root_seed(options.seed)
            release = draw_placed(runs, problems[-1], places, mask, root)
            found, refused = judge_and_write(release, writing, places)
    if how.dry_run:
        plan = placed_plan(problems, options, places, mask, writing)
        plan.show("run", as_json=how.as_json)
        return
    write_and_print(release, found, target, refused, how, writing.reason)


def chain_folders(content: Mapping[str, Any], path: Path) -> tuple[Path | None, Path | None]:
    """The working folder and the ledger that a job names, if any."""
    head = _head(content, path)
    return head["workdir"], head["ledger"]


def _head(content: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The settings above the steps."""
    whole = {key: value for key, value in content.items() if key != "steps"}
    return arguments_of(whole, _HEAD, path, _ELSEWHERE)


def _steps(given: Any, head: Mapping[str, Any], path: Path) -> list[_Step]:
    """The steps with their checked settings."""
    if not isinstance(given, list) or not given or not all(isinstance(s, dict) for s in given):
        raise InputError(f"steps in {path.name} must be tables, each begun by [[steps]]")
    steps = []
    for number, one in enumerate(given, 1):
        name = f"step {number}"
        with named(name):
            own = arguments_of(one, _STEP, path, NO_SUCH_LAW)
            model, options = built(StepModel, own), built(ReleaseOptions, {**head, **own})
            model.check_options(options)
        steps.append(_Step(name, own["formula"], options, model))
    return steps


def _prepared(
    head: Mapping[str, Any], steps: list[_Step], beside: Sequence[str] = ()
) -> list[Problem]:
    """The problems of the steps, checked as a chain; ``beside`` are further columns to read."""
    with phase("reading"):
        used = set().union(*(needed_columns(step.formula, head["coords"]) for step in steps))
        used |= set(beside)
        for step in steps:
            used |= {*step.model.other_columns, *step.options.columns_beside_formula}
        table = built(TableFile, head).read_used(used)
        problems: list[Problem] = []
        made = []
        for step in steps:
            with named(step.name):
                made.append(parse(step.formula).response)
        check_table(table, used, built(ReleaseOptions, head), built(Writing, head), made)
        for step in steps:
            with named(step.name):
                # A column that is synthetic itself goes out as copies.
                accepted = [*(step.options.accept_proxy or ()), *made]
                options = replace(
                    step.options,
                    accept_proxy=[name for name in accepted if name in table.columns],
                )
                problem = prepare_release(table, step.formula, options)
                check_chain(problems, problem)
                step.model.check_problem(problem)
            problems.append(problem)
        for number, step in enumerate(steps, 1):
            check_columns(made, step.model.other_columns, number)
        return problems


def _release(seed: int | None, steps: list[_Step], problems: list[Problem]) -> Synthesis:
    """Fit, flag, fit again and synthesise, step by step."""
    release: Synthesis | None = None
    roots = stage_seeds(root_seed(seed), len(steps))
    for root, step, problem in zip(roots, steps, problems, strict=True):
        with phase(step.name), named(step.name):
            run = step.model.fit_of(problem, step.options)
            release = draw_release(run, step.options, root, given=release)
    assert release is not None
    return release


def _plan(steps: list[_Step], problems: list[Problem], target: Path) -> Plan:
    """What a run would do."""
    what: dict[str, Any] = {
        "records": problems[0].n_records,
        "sites": problems[0].n_sites,
        "copies": steps[0].options.copies,
        "folder": str(target),
    }
    warned: list[str] = []
    for step, problem in zip(steps, problems, strict=True):
        what[step.name] = f"{problem.formula} ({step.model.outcome})"
        missed = missed_in_words(problem)
        warned += [] if missed is None else [f"{step.name}: {missed}"]
    return Plan(what, None, "a chain of several models is not rehearsed", tuple(warned))
