"""How a command ends: exit codes, plain errors, the JSON of an error, what an interrupt leaves."""

from __future__ import annotations

import os
import signal
import sys
import traceback
import warnings
from contextlib import ExitStack, redirect_stdout
from pathlib import Path
from types import FrameType
from typing import Any

import typer

from dsstan.cli.options import TEMPORARIES
from dsstan.cli.screens import out
from dsstan.cli.session import SESSION, as_text, emit, err, logging_to_stderr
from dsstan.core.errors import (
    ConvergenceError,
    DisclosureError,
    DsstanError,
    DsstanWarning,
    InputError,
    ReleaseError,
    SurfaceError,
)
from dsstan.release.publication.ledger import VARIABLE

NAME = "dsstan"
"""What the command is called in its help and in completion, however it was started."""

EXIT_OTHER, EXIT_INTERRUPTED = 1, 130
EXIT_CODES: tuple[tuple[type[DsstanError], int], ...] = (
    (InputError, 2),
    (ConvergenceError, 3),
    (SurfaceError, 3),
    (ReleaseError, 4),
    (DisclosureError, 5),
    (DsstanError, EXIT_OTHER),
)
"""The first class that an error is of decides."""

_CommandLineError: type[Exception] = next(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"
)
"""What Typer raises for a wrong command line; it is public by its children only."""


def run_command(app: typer.Typer) -> None:
    """Run the command line with plain errors and documented exit codes.

    Ends in ``SystemExit``, as a command does.
    """
    SESSION.reset(
        json="--json" in sys.argv[1:],
        debug=os.environ.get("DSSTAN_DEBUG") == "1",
        stdout=sys.stdout,
    )
    out.quiet = SESSION.json
    warnings.showwarning = _show_warning
    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), _terminate)
    before = {name: os.environ.get(name) for name in ("DSSTAN_WORKDIR", VARIABLE)}
    try:
        with ExitStack() as stack:
            stack.enter_context(logging_to_stderr())
            if SESSION.json:  # whoever prints beside the document does not spoil it
                stack.enter_context(redirect_stdout(sys.stderr))
            stack.enter_context(TEMPORARIES)
            _call(app)
    except DsstanError as error:
        _fail(type(error).__name__, str(error), exit_code_of(type(error)))
    except MemoryError as error:
        text = "the machine's memory does not suffice; nothing was published"
        _fail(type(error).__name__, text, EXIT_OTHER)
    except OSError as error:
        why = error.strerror or type(error).__name__
        text = (
            f"a file could not be written or read: {why}. Free some space, or look at who may "
            "write there"
        )
        _fail(type(error).__name__, text, EXIT_OTHER)
    except KeyboardInterrupt:
        _interrupted()
    except Exception as error:
        _fail(type(error).__name__, _unforeseen(error), EXIT_OTHER)
    finally:
        out.quiet = False
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def exit_code_of(error: type[DsstanError]) -> int:
    """The exit code of a class of errors."""
    return next(code for kind, code in EXIT_CODES if issubclass(error, kind))


def _call(app: typer.Typer) -> None:
    """Run the command; separate an interrupt from an exit, and report a wrong option as JSON."""
    try:
        if SESSION.json:
            sys.exit(app(prog_name=NAME, standalone_mode=False) or 0)
        app(prog_name=NAME)
    except _CommandLineError as error:
        _fail(type(error).__name__, error.format_message(), error.exit_code)  # type: ignore[attr-defined]
    except SystemExit as end:
        if end.code == EXIT_INTERRUPTED:
            raise KeyboardInterrupt from None
        raise


def _fail(kind: str, text: str, code: int) -> None:
    """Say what went wrong on standard error, in JSON too where that was asked for, and end."""
    if SESSION.debug and sys.exc_info()[0] is not None:
        err.print("[yellow]warning:[/] the traceback may show values of your data", soft_wrap=True)
        err.print(as_text(traceback.format_exc()), soft_wrap=True, highlight=False)
    _tell(f"[red]dsstan:[/] {as_text(text)}")
    if SESSION.json:
        emit({"error": {"type": kind, "message": text, "exit_code": code}})
    sys.exit(code)


def _tell(text: str) -> None:
    """Text on standard error, broken between words in a terminal and nowhere else."""
    err.print(text, soft_wrap=not err.is_terminal, highlight=False)


def _interrupted() -> None:
    """Say what an interrupt left. A release is renamed whole, so where it is there it is whole."""
    text = "interrupted; nothing was published"
    there = [str(target) for target in SESSION.targets if target.is_dir()]
    if there:
        text = f"interrupted; what is there is whole: {', '.join(there)}"
    elif SESSION.resumable is not None and (SESSION.resumable / "run.json").is_file():
        text += f"; the same command goes on from the finished settings in {SESSION.resumable}"
    SESSION.debug = False
    _fail("Interrupted", text, EXIT_INTERRUPTED)


def _unforeseen(error: Exception) -> str:
    """An error of another kind by its place: its text may hold values of the data."""
    frames = traceback.extract_tb(error.__traceback__)
    where = " < ".join(f"{Path(f.filename).name}:{f.lineno}" for f in frames[:-4:-1])
    return (
        f"an unforeseen {type(error).__name__} at {where}; a release that is there is whole. "
        "Please report these places. dsstan --debug, or DSSTAN_DEBUG=1, shows the whole, which may "
        "hold values of your data"
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
    """Show the package's own warnings, without source lines, as far as the log shows warnings."""
    if issubclass(category, DsstanWarning) and SESSION.warns:
        _tell(f"[yellow]warning:[/] {as_text(message)}")
