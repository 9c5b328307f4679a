"""The command ``dsstan synthesise``: a release from a confidential table."""

from __future__ import annotations

from typing import Any

import typer

from dsstan.cli.commands.placed import synthesise_placed
from dsstan.cli.commands.search import check_search, plan_search, search_release, write_trail
from dsstan.cli.dry_run.planning import plan_release
from dsstan.cli.exit_codes import exit_code_of
from dsstan.cli.options import Run, Source, Writing, check_table, takes
from dsstan.cli.phases import RELEASE_PHASES, SEARCH_PHASES, phases
from dsstan.cli.print_release import print_refused, print_release
from dsstan.cli.session import SESSION
from dsstan.copies.options import SEARCH, ReleaseOptions
from dsstan.copies.placed import PlacesOptions
from dsstan.copies.protect import prepare_release, release_of
from dsstan.core.errors import ConvergenceError, DisclosureError
from dsstan.core.progress import phase
from dsstan.release.acceptance import check_reason
from dsstan.release.copy_files import format_for
from dsstan.release.reading import needed_columns
from dsstan.release.whole_folder import check_target
from dsstan.risk.assessment import check_judgeable, measured
from dsstan.risk.chance_named import check_attribution
from dsstan.risk.disclosure import check_tolerances
from dsstan.risk.floors import as_floor
from dsstan.table.formulas.formula import parse


@takes(
    "table formula coords out_folder sep decimal thousands encoding na layer crs distance "
    "survey_weights household copies seed threshold correlation neighbour by_site weights gamma "
    "protection engine format absolute chains warmup samples adapt_delta cov_model covariance "
    "neighbours phi_bounds decay time time_decay group_share accept_failed strict rounding missing "
    "heap range imputations hide_gaps publish csv_text accept_proxy floor attribution "
    "accept_below_floor reason places mask addresses cells surface held_back places_groups number "
    "accept_place presence finding no_report by_row_groups workdir ledger dry_run as_json verbose"
)
def synthesise(
    source: Source, options: ReleaseOptions, writing: Writing, places: PlacesOptions, how: Run
) -> None:
    """Make a release from a confidential table."""
    if places.synthetic:
        synthesise_placed(source, options, writing, places, how)
        return
    target = check_target(writing.out_folder)
    format_for(writing.format, None, by_row_groups=options.by_row_groups)
    floor = as_floor(writing.floor)
    check_attribution(writing.attribution)
    check_tolerances(None, writing.absolute)
    check_search(options, writing)
    check_reason(writing.accept_below_floor, writing.reason)
    if floor is not None:
        floor.check_scale(parse(source.formula).transform)
    SESSION.targets.append(target)
    if how.dry_run:
        with phases(("reading", "rehearsal")):
            table = _table(source, options, writing)
            planned = plan_search if options.protection == SEARCH else plan_release
            plan = planned(table, source.formula, options, floor=floor, target=target)
        plan.show("synthesise", as_json=how.as_json)
        if plan.failures and not options.accept_failed:
            raise typer.Exit(exit_code_of(ConvergenceError))
        if plan.missed and not writing.accept_below_floor:
            raise typer.Exit(exit_code_of(DisclosureError))
        return
    searches = options.protection == SEARCH
    searched: tuple[str, ...] = ()
    refused: DisclosureError | None = None
    with phases(SEARCH_PHASES if searches else RELEASE_PHASES):
        table = _table(source, options, writing)
        if searches:
            met = search_release(table, source.formula, options, writing)
            release, found, searched = met.release, met.assessment, met.sentences
        else:
            problem = prepare_release(table, source.formula, options)
            check_judgeable(problem, floor, heaped=options.heaped)
            release = release_of(problem, options)
            with phase("disclosure"):
                found = measured(
                    release,
                    absolute=writing.absolute,
                    floor=floor,
                    attribution=writing.attribution,
                )
        with phase("writing"):
            try:
                writing.write(release, found, met if searches else None)
            except DisclosureError as error:
                refused = error
            else:
                if searches:
                    write_trail(met, writing)
    if refused is not None:
        print_refused(release, found, searched, as_json=how.as_json, verbose=how.verbose)
        raise refused
    print_release(
        *(release, found, target),
        report=not writing.no_report,
        as_json=how.as_json,
        verbose=how.verbose,
        searched=searched,
    )


def _table(source: Source, options: ReleaseOptions, writing: Writing) -> Any:
    """The needed columns, checked as they will be written; the path, for a table by row groups."""
    if options.by_row_groups:
        return source.table
    table = source.read(options)
    used = needed_columns(source.formula, options.coords or ())
    check_table(table, used, options, writing, {parse(source.formula).response})
    return table
