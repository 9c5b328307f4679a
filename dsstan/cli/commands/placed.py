"""``dsstan synthesise`` and ``dsstan run`` where places are synthetic."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path

import pandas as pd

from dsstan.analysis.places.marked import marked, marked_release
from dsstan.analysis.places.utility import PlaceUtility, place_utility
from dsstan.cli.dry_run.placed import placed_plan
from dsstan.cli.options import Run, Source, TableFile, Writing, check_table
from dsstan.cli.phases import PLACED_PHASES, phases
from dsstan.cli.placed_screen import print_placed
from dsstan.cli.session import SESSION
from dsstan.copies.options import ReleaseOptions
from dsstan.copies.placed import PlacesOptions, check_columns, draw_placed
from dsstan.copies.places.result import POPULATION, PlacedRelease
from dsstan.copies.protect import prepare_release
from dsstan.copies.step_models import StepModel
from dsstan.core.errors import DisclosureError, InputError
from dsstan.core.progress import phase
from dsstan.core.seeds import root_seed
from dsstan.core.spelling import spelled
from dsstan.release.acceptance import check_reason
from dsstan.release.copy_files import format_for
from dsstan.release.placed.write import nothing_written, write_placed
from dsstan.release.reading import needed_columns, read_table
from dsstan.release.whole_folder import check_target
from dsstan.risk.floors import as_floor
from dsstan.risk.places.assessment import assess_places
from dsstan.risk.places.result import MISSED, PlaceAssessment
from dsstan.table.formulas.formula import parse

_DESCRIBED = 20_000
"""Records up to which a release is described by its curves: each looks at all near pairs."""

_LOG = logging.getLogger("dsstan.report")

__all__ = [
    "addresses_of",
    "check_placed",
    "judge_and_write",
    "synthesise_placed",
    "write_and_print",
]


def synthesise_placed(
    source: Source,
    options: ReleaseOptions,
    writing: Writing,
    places: PlacesOptions,
    how: Run,
) -> None:
    """Make a release with synthetic places from a confidential table."""
    target = check_target(writing.out_folder)
    format_for(writing.format, None)
    check_placed(options, writing)
    check_reason(writing.accept_below_floor, writing.reason)
    SESSION.targets.append(target)
    with phases(("reading",) if how.dry_run else PLACED_PHASES):
        with phase("reading"):
            used = needed_columns(source.formula, options.coords or ())
            used = used.union(options.columns_beside_formula, places.columns)
            table = source.read_used(used)
            check_table(table, used, options, writing, {parse(source.formula).response})
            problem = prepare_release(table, source.formula, options)
            check_columns([problem], [options], places)
            mask = places.mask_for(problem, addresses_of(source, places))
        if how.dry_run:
            plan = placed_plan([problem], options, places, mask, writing)
        else:
            model = StepModel()
            run = partial(model.fit_of(problem, options), covariance=options.covariance)
            runs = [(run, options)]
            release = draw_placed(runs, problem, places, mask, root_seed(options.seed))
            found, refused = judge_and_write(release, writing, places)
    if how.dry_run:
        plan.show("synthesise", as_json=how.as_json)
        return
    write_and_print(release, found, target, refused, how, writing.reason)


def addresses_of(source: TableFile, places: PlacesOptions) -> pd.DataFrame | None:
    """The table of the file of addresses, written as the table is; None where there is none."""
    if places.addresses is None:
        return None
    if not places.addresses.exists():
        raise InputError(
            f"there is no file with addresses: {spelled('addresses', str(places.addresses))}"
        )
    same = places.addresses.suffix == source.table.suffix
    return read_table(places.addresses, dialect=source.dialect if same else None)


def check_placed(options: ReleaseOptions, writing: Writing) -> None:
    """Refuse, before any sampling, what synthetic places do not have.

    Raises InputError if so.
    """
    options.refuse_search()
    as_floor(writing.floor)
    other = "is for places that are kept"
    for name, given, why in (
        ("attribution", writing.attribution, other),
        ("absolute", writing.absolute, other),
        ("imputations", options.imputations, other),
        ("hide_gaps", options.hide_gaps, other),
        ("by_row_groups", options.by_row_groups, other),
        ("heap", options.heap, other),
        ("range", options.range, other),
        ("time", options.time, other),
    ):
        if given is not None and given is not False:
            raise InputError(f"{spelled(name, given)} {why}: leave it out")
    if options.missing != "refuse":
        raise InputError(f"{spelled('missing', options.missing)} {other}: leave it out")


def judge_and_write(
    release: PlacedRelease, writing: Writing, places: PlacesOptions
) -> tuple[PlaceAssessment, DisclosureError | None]:
    """What intruders learn of places, and why the release was not written, if it was not."""
    with phase("disclosure"):
        found = assess_places(
            release, presence=places.presence, finding=places.finding, floor=writing.floor
        )
    with phase("writing"):
        try:
            write_placed(
                release,
                writing.out_folder,
                format=writing.format,
                csv_text=writing.csv_text,
                assessment=found,
                utility=None if writing.no_report else _kept(release),
                accept_below_floor=writing.accept_below_floor,
                reason=writing.reason,
            )
        except DisclosureError as error:
            return found, error
    return found, None


def _kept(release: PlacedRelease) -> PlaceUtility | None:
    """What the copies keep; None of a large table, or of one that has no such curves."""
    if release.problem.n_records > _DESCRIBED:
        return None
    try:
        copies, mask = marked_release(release), release.intensity.mask
        population = release.places == POPULATION
        return place_utility(marked(release.problem), copies, mask, population=population)
    except InputError as error:
        _LOG.warning("the report on places is not written: %s", error)
        return None


def write_and_print(
    release: PlacedRelease,
    found: PlaceAssessment,
    target: Path,
    refused: DisclosureError | None,
    how: Run,
    reason: str | None,
) -> None:
    """Print the screen of a release, or of one that was refused, and raise why; ``reason`` is why
    a missed limit is accepted."""
    print_placed(
        release,
        found,
        None if refused is not None else target,
        accepted=reason if found.verdict == MISSED else None,
        as_json=how.as_json,
        verbose=how.verbose,
    )
    if refused is not None and how.as_json:
        raise refused
    if refused is not None:  # the screen has said why
        raise DisclosureError(nothing_written(found))
