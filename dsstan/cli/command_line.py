"""The command line: ``dsstan init``, ``run``, ``inspect`` and the other commands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import typer

from dsstan._version import __version__
from dsstan.cli.commands.compare import compare_command
from dsstan.cli.commands.demo import demo_command
from dsstan.cli.commands.init import init_command
from dsstan.cli.commands.inspect import inspect_command
from dsstan.cli.commands.ledger import ledger_command
from dsstan.cli.commands.publish import publish_command
from dsstan.cli.commands.steps import NO_SUCH_LAW, OF_A_STEP, chain_folders, run_chain
from dsstan.cli.commands.synthesise import synthesise
from dsstan.cli.doctor import MachineCheck, examine
from dsstan.cli.engine_check import EngineAgreement, check_engines
from dsstan.cli.exit_codes import run_command
from dsstan.cli.job import arguments_of, parsed_job
from dsstan.cli.options import AsJson, Run, among, ledger_in, takes, work_in
from dsstan.cli.screen_lines import WIDTH, ScreenLine, wrapped
from dsstan.cli.screens import out, say, show_lines
from dsstan.cli.session import LOG_LEVELS, SESSION, document, emit, set_log_level
from dsstan.copies.option_fields import option
from dsstan.copies.step_models import StepModel
from dsstan.core.errors import EngineError, ReleaseError
from dsstan.core.files.workspace import Leftover, leftovers, remove
from dsstan.core.spelling import COMMAND, JOB, options_typed_in

EPILOG = (
    "Exit codes: 0 done; 1 another error; 2 wrong input; 3 a fit that must not reach synthesis; "
    "4 a release that can't be written or published; 5 one that misses its floor (DISCLOSURE: "
    "MISSED), or may not be published without a reason; 130 interrupted; "
    "129 and 143 ended by a signal."
)

FIRST, MORE = "A first release, in this order", "More"

app = typer.Typer(
    help="Synthetic copies of a geocoded table, with what they reveal and what they are good for "
    "measured.",
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
    context: typer.Context,
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
    context.with_resource(options_typed_in(COMMAND))
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
    with options_typed_in(JOB):
        _run(content, file, how)


def _run(content: Mapping[str, Any], file: JobFile, how: Run) -> None:
    """Make the release that the content of a job file describes."""
    if "steps" in content:
        workdir, ledger = chain_folders(content, file.job)
        work_in(workdir)
        ledger_in(ledger)
        run_chain(content, file.job, how)
        return
    of_a_step = dict.fromkeys((one.name for one in fields(StepModel)), OF_A_STEP)
    arguments = arguments_of(content, synthesise, file.job, NO_SUCH_LAW | of_a_step)
    work_in(arguments["workdir"])
    ledger_in(arguments["ledger"])
    synthesise(**arguments, dry_run=how.dry_run, as_json=how.as_json, verbose=how.verbose)


app.command("inspect", rich_help_panel=FIRST)(inspect_command)
app.command("publish", rich_help_panel=FIRST)(publish_command)
app.command("ledger", rich_help_panel=FIRST)(ledger_command)
app.command("synthesise", rich_help_panel=MORE)(synthesise)
app.command("compare", rich_help_panel=MORE)(compare_command)
app.command("demo", rich_help_panel=MORE)(demo_command)


@app.command(rich_help_panel=MORE)
def doctor(
    clean: Annotated[
        bool, typer.Option("--clean", help="Remove what killed runs left behind.")
    ] = False,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Also compare the engines' draws of one small fit; exit code 1 if they disagree.",
        ),
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
    agreement = check_engines() if check else None
    if as_json:
        key = "removed" if clean else "leftovers"
        there = [vars(finding) for finding in findings]
        lost = [vars(leftover) for leftover in found]
        engines = {} if agreement is None else {"engines": agreement.as_json()}
        emit(document("doctor", confidential=False, findings=there, **{key: lost}, **engines))
    for finding in findings:
        say_finding(finding)
    if agreement is not None:
        say_agreement(agreement)
    if found and not clean:
        say(f"{len(found)} folders of killed runs are left; dsstan doctor --clean removes them:")
        for leftover in found:
            say(f"  {leftover.folder} (run {leftover.pid}, {leftover.age / 3600:.1f} hours ago)")
    if agreement is not None and not agreement.agree:
        raise EngineError(
            "direct draws and the embedded sampler do not agree on this machine, so one of them is "
            "wrong here. Make no release; install the locked versions (make demo), and if it stays "
            "so report it with this screen"
        )


def say_finding(finding: MachineCheck) -> None:
    """One thing looked for; where it is missing, what it is needed for and how to get it."""
    mark, colour = ("there", None) if finding.there else ("missing", "yellow")
    texts = [finding.detail] if finding.there else [f"for {finding.needed_for}", finding.detail]
    first = f"{mark:<9}{finding.what:<20}"
    if len(first + texts[0]) > WIDTH:
        texts = ["", *texts]
    show_lines([ScreenLine(first + texts[0], colour)])
    for text in texts[1:]:
        show_lines(wrapped(" " * 9 + text, colour, indent=9))


def say_agreement(agreement: EngineAgreement) -> None:
    """Whether the engines agree, and how far they are apart."""
    mark, colour = ("agree", None) if agreement.agree else ("DISAGREE", "red")
    show_lines([ScreenLine(f"{mark:<9}engines direct and embedded", colour)])
    show_lines(wrapped(" " * 9 + str(agreement), colour, indent=9))


def clean_up(found: list[Leftover]) -> None:
    """Remove leftovers and say which.

    Raises ReleaseError if one can't be removed.
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
