"""The command line: ``dsstan init``, ``run``, ``inspect`` and the other commands."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from dsstan._version import __version__
from dsstan.cli.commands.compare import compare_command
from dsstan.cli.commands.demo import demo_command
from dsstan.cli.commands.init import init_command
from dsstan.cli.commands.inspect import inspect_command
from dsstan.cli.commands.steps import OF_A_STEP, chain_workdir, run_chain
from dsstan.cli.commands.synthesise import synthesise
from dsstan.cli.doctor import examine
from dsstan.cli.exit_codes import run_command
from dsstan.cli.job import arguments_of, parsed_job
from dsstan.cli.options import AsJson, Run, among, takes, work_in
from dsstan.cli.screens import out, say
from dsstan.cli.session import LOG_LEVELS, SESSION, document, emit, set_log_level
from dsstan.copies.options import option
from dsstan.copies.step_models import StepModel
from dsstan.core.errors import ReleaseError
from dsstan.core.workspace import Leftover, leftovers, remove

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


@dataclass(frozen=True, kw_only=True)
class JobFile:
    """The argument of ``run``."""

    job: Path = option(..., "TOML file that describes it.", None, metavar="JOB")


@app.command("run", rich_help_panel=FIRST)
@takes("job dry_run as_json verbose")
def run(file: JobFile, how: Run) -> None:
    """Make the release that a job file describes."""
    content = parsed_job(file.job)
    if "steps" in content:
        work_in(chain_workdir(content, file.job))
        run_chain(content, file.job, how)
        return
    of_a_step = dict.fromkeys((one.name for one in fields(StepModel)), OF_A_STEP)
    arguments = arguments_of(content, synthesise, file.job, of_a_step)
    work_in(arguments["workdir"])
    synthesise(**arguments, dry_run=how.dry_run, as_json=how.as_json, verbose=how.verbose)


app.command("inspect", rich_help_panel=FIRST)(inspect_command)
app.command("synthesise", rich_help_panel=MORE)(synthesise)
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
