"""The command ``dsstan synthesise``: a release from a confidential table."""

from __future__ import annotations

from typing import Any

from dsstan.cli.dry_run import plan_release
from dsstan.cli.options import Run, Source, Writing, takes
from dsstan.cli.phases import RELEASE_PHASES, phases
from dsstan.cli.print_release import print_release
from dsstan.cli.session import SESSION
from dsstan.copies.options import ReleaseOptions
from dsstan.copies.protect import make_release
from dsstan.core.progress import phase
from dsstan.release.write import check_format, check_target, measured
from dsstan.risk.assessment import Assessment, check_floor
from dsstan.table.cells import check_cells


@takes(
    "table formula coords out_folder crs distance copies seed threshold correlation neighbour "
    "gamma protection engine format absolute chains warmup samples adapt_delta cov_model "
    "covariance neighbours phi_bounds accept_failed strict rounding missing imputations csv_text "
    "floor accept_below_floor no_report by_row_groups workdir dry_run as_json verbose"
)
def synthesise(source: Source, options: ReleaseOptions, writing: Writing, how: Run) -> None:
    """Make a release from a confidential table."""
    target = check_target(writing.out_folder)
    check_format(writing.format, options.by_row_groups)
    check_floor(writing.floor)
    SESSION.targets.append(target)
    if how.dry_run:
        with phases(("reading", "rehearsal")):
            table = _table(source, options, writing)
            plan = plan_release(table, source.formula, options, floor=writing.floor, target=target)
        plan.show("synthesise", as_json=how.as_json)
        return
    with phases(RELEASE_PHASES):
        release = make_release(_table(source, options, writing), source.formula, options)
        with phase("disclosure"):
            found = measured(release, absolute=writing.absolute, floor=writing.floor)
        with phase("writing"):
            writing.write(release, found if isinstance(found, Assessment) else None)
    print_release(
        *(release, found, target),
        report=not writing.no_report,
        as_json=how.as_json,
        verbose=how.verbose,
    )


def _table(source: Source, options: ReleaseOptions, writing: Writing) -> Any:
    """The needed columns, checked as they will be written; the path, for a table by row groups."""
    if options.by_row_groups:
        return source.table
    table = source.read(options.coords)
    check_cells(table, writing.format, writing.csv_text)
    return table
