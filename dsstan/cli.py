"""The command line: ``dsstan synthesise``, ``run``, ``compare``, ``demo``, ``doctor``."""

from __future__ import annotations

import os
import signal
import sys
import traceback
import warnings
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dsstan._compare_command import compare_command
from dsstan._options import (
    TEMPORARIES,
    Chains,
    Coords,
    Crs,
    Distance,
    Engine,
    Formula,
    PhiBounds,
    Samples,
    Seed,
    TableFile,
    Warmup,
    WorkDir,
    work_in,
)
from dsstan._terminal import (
    out,
    say,
    show_attacker,
    show_demo,
    show_estimates,
    show_fits,
    show_shares,
)
from dsstan.assessment import assess, check_floor
from dsstan.cells import check_cells
from dsstan.demo import EXAMPLES, run_example
from dsstan.doctor import examine
from dsstan.errors import (
    ConvergenceError,
    DisclosureError,
    DsstanError,
    DsstanWarning,
    InputError,
    ReleaseError,
    SurfaceError,
)
from dsstan.fit import PROTECTIONS
from dsstan.job import read_job
from dsstan.priors import Priors
from dsstan.protect import protect
from dsstan.public import public_columns
from dsstan.reading import read_table
from dsstan.release import FORMATS, check_target, write_release
from dsstan.utility import utility
from dsstan.workspace import Leftover, leftovers, remove

EXIT_INPUT, EXIT_CONVERGENCE, EXIT_RELEASE, EXIT_DISCLOSURE, EXIT_OTHER = 2, 3, 4, 5, 1

app = typer.Typer(
    help="Publish exact locations without publishing people: synthetic copies of a geocoded "
    "table, with the risk and the use of them measured.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)
err = Console(stderr=True)


@app.command()
def synthesise(
    table: TableFile,
    formula: Formula,
    coords: Coords,
    out_folder: Annotated[Path, typer.Option("--out", help="Release folder; must not exist.")],
    crs: Crs = None,
    distance: Distance = None,
    copies: Annotated[int, typer.Option(help="L, the number of copies.")] = 20,
    seed: Seed = None,
    threshold: Annotated[
        float | None,
        typer.Option(help="M: flag records with no neighbour nearer than this distance."),
    ] = None,
    correlation: Annotated[
        float | None,
        typer.Option(help="c: flag where the neighbour's correlation is at most this (0.20)."),
    ] = None,
    neighbour: Annotated[int, typer.Option(help="Look at the k-th nearest neighbour.")] = 1,
    gamma: Annotated[float, typer.Option(help="Global risk parameter, 0 to inf.")] = float("inf"),
    protection: Annotated[str, typer.Option(help=", ".join(PROTECTIONS) + ".")] = "paper",
    engine: Engine = "auto",
    format: Annotated[str, typer.Option(help="Of the copies: csv or parquet.")] = "csv",
    absolute: Annotated[
        float | None,
        typer.Option(help="Also count copies within this distance of the truth, response's unit."),
    ] = None,
    chains: Chains = 4,
    warmup: Warmup = 1000,
    samples: Samples = 1000,
    adapt_delta: Annotated[float, typer.Option(help="Acceptance the sampler aims at.")] = 0.9,
    phi_bounds: PhiBounds = None,
    accept_failed: Annotated[
        bool, typer.Option("--accept-failed", help="Go on although a fit failed its verdict.")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Stop at a verdict's warnings too.")
    ] = False,
    rounding: Annotated[
        str, typer.Option(help="auto: round the copies like the input; none: all digits.")
    ] = "auto",
    csv_text: Annotated[
        str,
        typer.Option(help="Text that a spreadsheet would run: refuse, quote or keep."),
    ] = "refuse",
    floor: Annotated[
        float | None,
        typer.Option(
            help="Least sd to leave to an intruder about every record, modelled scale; a release "
            "that leaves less is refused."
        ),
    ] = None,
    accept_below_floor: Annotated[
        bool, typer.Option("--accept-below-floor", help="Go on although the floor is missed.")
    ] = False,
    no_report: Annotated[
        bool, typer.Option("--no-report", help="Leave out report.html and factsheet.html.")
    ] = False,
    workdir: WorkDir = None,
) -> None:
    """Make a release from a confidential table."""
    check_target(out_folder)
    if format not in FORMATS:
        raise InputError(f"--format must be csv or parquet, got {format!r}")
    check_floor(floor)
    content = read_table(table)
    check_cells(content, format, csv_text)
    release = protect(
        content,
        formula,
        coords=coords,
        distance=distance,
        crs=crs,
        name=table.stem,
        copies=copies,
        seed=seed,
        threshold=threshold,
        correlation=correlation,
        neighbour=neighbour,
        gamma=gamma,
        protection=protection,
        engine=engine,
        accept_failed=accept_failed,
        strict=strict,
        rounding=rounding,
        chains=chains,
        warmup=warmup,
        samples=samples,
        adapt_delta=adapt_delta,
        priors=None if phi_bounds is None else Priors(phi_bounds=phi_bounds),
    )
    found = assess(release, absolute=absolute, floor=floor)
    target = write_release(
        release,
        out_folder,
        format=format,
        csv_text=csv_text,
        assessment=found,
        accept_below_floor=accept_below_floor,
        report=not no_report,
    )
    show_fits(release)
    show_shares(found.shares)
    show_attacker(found)
    if release.copies > 1:
        show_estimates(utility(release))
    same = [name for name in public_columns(release) if name != release.problem.response]
    say(f"Published as collected: {', '.join(map(str, same))}")
    say(f"Copies to publish: {target / 'public'}")
    say(f"Keep to yourself:  {target / 'confidential'}")
    if not no_report:
        say(f"Read first:        {target / 'confidential' / 'report.html'}")


@app.command()
def demo(
    out_folder: Annotated[
        Path, typer.Option("--out", help="Folder for the releases; made if need be.")
    ],
    dataset: Annotated[str, typer.Option(help=", ".join(EXAMPLES) + ", or all.")] = "simulated",
    copies: Annotated[int, typer.Option(help="L, the number of copies.")] = 100,
    seed: Annotated[int, typer.Option(help="Root seed.")] = 20180,
    engine: Engine = "auto",
    workdir: WorkDir = None,
) -> None:
    """Run the worked examples and print them before and after protection."""
    names = list(EXAMPLES) if dataset == "all" else [dataset]
    for name in names:
        if name not in EXAMPLES:
            raise InputError(
                f"there is no example {name!r}; choose from {', '.join(EXAMPLES)} or all"
            )
        check_target(out_folder / name if out_folder.is_dir() else out_folder.absolute())
    out_folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        out.rule(f"[bold]{name}")
        try:
            result = run_example(name, out_folder / name, copies=copies, seed=seed, engine=engine)
        except DsstanError as error:
            if dataset != "all" or name != "san-francisco":
                with suppress(OSError):
                    out_folder.rmdir()  # only an empty one
                raise
            say(f"Left out: {error}")
            continue
        show_demo(result)


app.command("compare")(compare_command)


@app.command()
def run(
    job: Annotated[Path, typer.Argument(metavar="JOB", help="TOML file that describes it.")],
) -> None:
    """Make a release that a job file describes, in the names of synthesise's options."""
    arguments = read_job(job, synthesise)
    work_in(arguments.get("workdir"))
    synthesise(**arguments)


@app.command()
def doctor(
    clean: Annotated[
        bool, typer.Option("--clean", help="Remove what killed runs left behind.")
    ] = False,
    places: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FOLDER]...", help="Also look for leftovers in these folders."),
    ] = None,
) -> None:
    """Say what is on this machine, what is missing and how to get it."""
    found = leftovers([Path.cwd(), *(places or [])])
    if clean:
        clean_up(found)
        return
    table = Table("", "what", "found or how to get it", "needed for", box=None)
    for finding in examine():
        mark = "[green]there[/]" if finding.there else "[yellow]missing[/]"
        table.add_row(mark, finding.what, escape(finding.detail), finding.needed_for)
    out.print(table)
    if found:
        say(f"{len(found)} folders of killed runs are left; dsstan doctor --clean removes them:")
        for leftover in found:
            say(f"  {leftover.folder}")


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
    """Run the command line with plain errors and documented exit codes.

    Exit codes: 0 done; 1 another error; 2 wrong input; 3 a fit that must
    not reach synthesis; 4 a release that can't be written; 5 one that misses its floor;
    130 interrupted.
    """
    warnings.showwarning = _show_warning
    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), _terminate)
    before = os.environ.get("DSSTAN_WORKDIR")
    try:
        with TEMPORARIES:
            app()
    except InputError as error:
        _fail(error, EXIT_INPUT)
    except (ConvergenceError, SurfaceError) as error:
        _fail(error, EXIT_CONVERGENCE)
    except ReleaseError as error:
        _fail(error, EXIT_RELEASE)
    except DisclosureError as error:
        _fail(error, EXIT_DISCLOSURE)
    except DsstanError as error:
        _fail(error, EXIT_OTHER)
    except MemoryError:
        _fail("the machine's memory does not suffice; nothing was published", EXIT_OTHER)
    except OSError as error:
        why = error.strerror or type(error).__name__
        _fail(
            f"a file could not be written or read: {why}. Free some space, or look at who may "
            "write there",
            EXIT_OTHER,
        )
    except Exception as error:
        if os.environ.get("DSSTAN_DEBUG") == "1":
            raise
        _fail(_unforeseen(error), EXIT_OTHER)
    finally:
        os.environ.pop("DSSTAN_WORKDIR", None)
        if before is not None:
            os.environ["DSSTAN_WORKDIR"] = before


def _fail(error: DsstanError | str, code: int) -> None:
    err.print(f"[red]dsstan:[/] {escape(str(error))}", soft_wrap=True, highlight=False)
    sys.exit(code)


def _unforeseen(error: Exception) -> str:
    """An error of another kind by its place: its text may hold values of the data."""
    frames = traceback.extract_tb(error.__traceback__)
    where = " < ".join(f"{Path(f.filename).name}:{f.lineno}" for f in frames[:-4:-1])
    return (
        f"an unforeseen {type(error).__name__} at {where}; a release that is there is whole. "
        "Please report these places. DSSTAN_DEBUG=1 shows the whole, which may hold values of "
        "your data"
    )


def _terminate(number: int, frame: FrameType | None) -> None:
    """Leave by an exception, so that private folders are removed."""
    sys.exit(128 + number)


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: Any = None,
    line: str | None = None,
) -> None:
    """Show the package's own warnings, without source lines."""
    if issubclass(category, DsstanWarning):
        text = escape(str(message))
        err.print(f"[yellow]warning:[/] {text}", soft_wrap=True, highlight=False)
