"""The command line: ``dsstan init``, ``run``, ``inspect`` and the other commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from dsstan._version import __version__
from dsstan.cli.commands.compare import compare_command
from dsstan.cli.commands.demo import demo_command
from dsstan.cli.commands.init import init_command
from dsstan.cli.commands.inspect import inspect_command
from dsstan.cli.commands.steps import OF_A_STEP, chain_workdir, run_chain
from dsstan.cli.doctor import examine
from dsstan.cli.dry_run import plan_release
from dsstan.cli.exit_codes import run_command
from dsstan.cli.job import arguments_of, parsed_job
from dsstan.cli.options import (
    Absolute,
    AcceptBelowFloor,
    AcceptFailed,
    AdaptDelta,
    AsJson,
    ByRowGroups,
    Chains,
    Coords,
    CopiesOf,
    Correlation,
    CovarianceOf,
    CovModel,
    Crs,
    CsvText,
    Distance,
    DryRun,
    Engine,
    Floor,
    Format,
    Formula,
    Gamma,
    Imputations,
    Missing,
    Neighbour,
    Neighbours,
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
    Verbose,
    Warmup,
    WorkDir,
    among,
    work_in,
)
from dsstan.cli.outcome import tell
from dsstan.cli.phases import RELEASE_PHASES, phases
from dsstan.cli.screens import out, say
from dsstan.cli.session import LOG_LEVELS, SESSION, document, emit, set_log_level
from dsstan.copies.protect import protect
from dsstan.core.errors import ReleaseError
from dsstan.core.progress import phase
from dsstan.core.workspace import Leftover, leftovers, remove
from dsstan.covariance.approximations import covariance_of
from dsstan.models.priors import Priors
from dsstan.release.reading import needed_columns, read_table
from dsstan.release.write import check_format, check_target, measured, write_release
from dsstan.risk.assessment import Assessment, check_floor
from dsstan.table.cells import check_cells

EPILOG = (
    "Exit codes: 0 done; 1 another error; 2 wrong input; 3 a fit that must not reach synthesis; "
    "4 a release that can't be written; 5 one that misses its floor; 130 interrupted; "
    "129 and 143 ended by a signal."
)

FIRST, MORE = "A first release, in this order", "More"

app = typer.Typer(
    help="Publish exact locations without publishing people: synthetic copies of a geocoded "
    "table, with the risk and the use of them measured.",
    epilog=EPILOG,
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)


def _version(asked: bool) -> None:
    """Print the version and end."""
    if asked:
        out.print(f"dsstan {__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def for_all(
    debug: Annotated[
        bool,
        typer.Option("--debug", help="Show tracebacks, which may hold values; as DSSTAN_DEBUG=1."),
    ] = False,
    log_level: Annotated[
        str,
        typer.Option(
            help="What the log on standard error says: debug, info, warning or error.",
            autocompletion=among(*LOG_LEVELS),
        ),
    ] = "warning",
    quiet: Annotated[
        bool,
        typer.Option("--quiet", "-q", help="Errors alone: no progress, warnings or summary."),
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options that stand before the command."""
    SESSION.debug = SESSION.debug or debug
    SESSION.quiet = quiet
    out.quiet = out.quiet or quiet
    set_log_level(log_level)
    if quiet:
        set_log_level("error")


app.command("init", rich_help_panel=FIRST)(init_command)


@app.command(rich_help_panel=FIRST)
def run(
    job: Annotated[Path, typer.Argument(metavar="JOB", help="TOML file that describes it.")],
    dry_run: DryRun = False,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Make the release that a job file describes."""
    content = parsed_job(job)
    if "steps" in content:
        work_in(chain_workdir(content, job))
        run_chain(content, job, dry_run=dry_run, as_json=as_json, verbose=verbose)
        return
    own = {"outcome", "offset", "cuts", "closed", "likelihood", "groups"}
    arguments = arguments_of(content, synthesise, job, dict.fromkeys(own, OF_A_STEP))
    work_in(arguments.get("workdir"))
    synthesise(**arguments, dry_run=dry_run, as_json=as_json, verbose=verbose)


app.command("inspect", rich_help_panel=FIRST)(inspect_command)


@app.command(rich_help_panel=MORE)
def synthesise(
    table: TableFile,
    formula: Formula,
    coords: Coords,
    out_folder: OutFolder,
    crs: Crs = None,
    distance: Distance = None,
    copies: CopiesOf = 20,
    seed: Seed = None,
    threshold: Threshold = None,
    correlation: Correlation = None,
    neighbour: Neighbour = 1,
    gamma: Gamma = float("inf"),
    protection: Protection = "paper",
    engine: Engine = "auto",
    format: Format = "csv",
    absolute: Absolute = None,
    chains: Chains = 4,
    warmup: Warmup = 1000,
    samples: Samples = 1000,
    adapt_delta: AdaptDelta = 0.9,
    cov_model: CovModel = "exponential",
    covariance: CovarianceOf = "auto",
    neighbours: Neighbours = None,
    phi_bounds: PhiBounds = None,
    accept_failed: AcceptFailed = False,
    strict: Strict = False,
    rounding: RoundingOf = "auto",
    missing: Missing = "refuse",
    imputations: Imputations = None,
    csv_text: CsvText = "refuse",
    floor: Floor = None,
    accept_below_floor: AcceptBelowFloor = False,
    no_report: NoReport = False,
    by_row_groups: ByRowGroups = False,
    workdir: WorkDir = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Make a release from a confidential table."""
    target = check_target(out_folder)
    check_format(format, by_row_groups)
    check_floor(floor)
    settings: dict[str, Any] = {
        "coords": coords,
        "distance": distance,
        "crs": crs,
        "name": table.stem,
        "copies": copies,
        "seed": seed,
        "threshold": threshold,
        "correlation": correlation,
        "neighbour": neighbour,
        "gamma": gamma,
        "protection": protection,
        "cov_model": cov_model,
        "covariance": covariance_of(covariance, neighbours),
        "engine": engine,
        "accept_failed": accept_failed,
        "strict": strict,
        "rounding": rounding,
        "missing": missing,
        "imputations": imputations,
        "chains": chains,
        "warmup": warmup,
        "samples": samples,
        "adapt_delta": adapt_delta,
        "priors": None if phi_bounds is None else Priors(phi_bounds=phi_bounds),
        "by_row_groups": by_row_groups,
    }
    SESSION.targets.append(target)
    with phases((*RELEASE_PHASES[:1], "rehearsal") if dry_run else RELEASE_PHASES):
        with phase("reading"):
            content: Any = table  # read by prepare_parquet
            if not by_row_groups:
                content = read_table(table, needed_columns(formula, coords))
                check_cells(content, format, csv_text)
        if dry_run:
            plan = plan_release(content, formula, settings, floor=floor, target=target)
        else:
            release = protect(content, formula, **settings)
            with phase("disclosure"):
                found = measured(release, absolute=absolute, floor=floor)
            with phase("writing"):
                write_release(
                    release,
                    out_folder,
                    format=format,
                    csv_text=csv_text,
                    absolute=absolute,
                    assessment=found if isinstance(found, Assessment) else None,
                    accept_below_floor=accept_below_floor,
                    report=not no_report,
                )
    if dry_run:
        plan.show("synthesise", as_json=as_json)
        return
    tell(release, found, target, report=not no_report, as_json=as_json, verbose=verbose)


app.command("compare", rich_help_panel=MORE)(compare_command)
app.command("demo", rich_help_panel=MORE)(demo_command)


@app.command(rich_help_panel=MORE)
def doctor(
    clean: Annotated[
        bool, typer.Option("--clean", help="Remove what killed runs left behind.")
    ] = False,
    places: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FOLDER]...", help="Also look for leftovers in these folders."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say what is on this machine, what is missing and how to get it."""
    found = leftovers([Path.cwd(), *(places or [])])
    if clean:
        clean_up(found)
    findings = [] if clean else examine()
    if as_json:
        key = "removed" if clean else "leftovers"
        there = [vars(finding) for finding in findings]
        lost = [vars(leftover) for leftover in found]
        emit(document("doctor", confidential=False, findings=there, **{key: lost}))
    if clean:
        return
    table = Table("", "what", "found or how to get it", "needed for", box=None)
    for finding in findings:
        mark = "[green]there[/]" if finding.there else "[yellow]missing[/]"
        table.add_row(mark, finding.what, escape(finding.detail), finding.needed_for)
    out.print(table)
    if found:
        say(f"{len(found)} folders of killed runs are left; dsstan doctor --clean removes them:")
        for leftover in found:
            say(f"  {leftover.folder} (run {leftover.pid}, {leftover.age / 3600:.1f} hours ago)")


def clean_up(found: list[Leftover]) -> None:
    """Remove leftovers and say which.

    Raises
    ------
    ReleaseError
        If one can't be removed.
    """
    for leftover in found:
        try:
            remove(leftover)
        except OSError as error:
            raise ReleaseError(
                f"{leftover.folder} of a killed run can't be removed: {error.strerror}. It may "
                "hold confidential data: remove it by hand"
            ) from None
        say(f"Removed {leftover.folder} ({leftover.files} files, {leftover.size} bytes)")
    if not found:
        say("No killed run has left anything")


def main() -> None:
    """Run the command line; ``EPILOG`` has the exit codes."""
    run_command(app)
