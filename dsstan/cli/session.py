"""What all commands share: global options, standard error, the log, the one JSON document."""

from __future__ import annotations

import json
import logging
import math
import re
import sys
import unicodedata
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import pandas as pd
from rich.console import Console
from rich.markup import escape

from dsstan._version import __version__
from dsstan.core.errors import InputError

LOG_LEVELS = ("debug", "info", "warning", "error")

err = Console(stderr=True)
"""The one way to standard error, so that progress and messages do not write over each other."""

_UNSEEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Unicode's categories of signs that a terminal obeys, that turn the direction of text, that show
nothing, or that no text holds."""

_BLANK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u2800\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufff8"
    "\U000e0000-\U000e0fff]"
)
"""Signs of other categories that show nothing: the rest of Unicode's property
Default_Ignorable_Code_Point, and the empty pattern of braille."""


def as_text(foreign: object) -> str:
    """Text for a Rich console that shows every sign of it and obeys none: no markup, no escape
    sequence, no change of direction, nothing invisible; line breaks stay.
    """
    seen = (
        s if s == "\n" or unicodedata.category(s) not in _UNSEEN else "\ufffd" for s in str(foreign)
    )
    return escape(_BLANK.sub("\ufffd", "".join(seen)))


@dataclass
class Session:
    """The options of one call of the command, and what is known of its outcome.

    Attributes
    ----------
    debug, quiet, json
        The global options, and whether one JSON document is all that goes to standard output.
    targets
        The releases under way: where one is there, it is there whole.
    resumable
        The folder in which a comparison keeps its finished settings.
    """

    debug: bool = False
    quiet: bool = False
    json: bool = False
    targets: list[Path] = field(default_factory=list)
    resumable: Path | None = None
    stdout: TextIO | None = None

    @property
    def warns(self) -> bool:
        """Whether warnings are shown, by the level of the log."""
        return logging.getLogger("dsstan").isEnabledFor(logging.WARNING)

    def reset(self, **values: Any) -> None:
        """Begin a new call."""
        vars(self).update(vars(Session(**values)))


SESSION = Session()


class _ToStderr(logging.Handler):
    """Log records as lines on standard error, above the progress."""

    def emit(self, record: logging.LogRecord) -> None:
        err.print(as_text(self.format(record)), soft_wrap=True, highlight=False)


class _Stamped(logging.Formatter):
    """One line a record: time, level, logger, message; no traceback, which may hold values."""

    def format(self, record: logging.LogRecord) -> str:
        stamp = self.formatTime(record, "%H:%M:%S")
        return f"{stamp} {record.levelname.lower()} {record.name}: {record.getMessage()}"


@contextmanager
def logging_to_stderr() -> Iterator[None]:
    """Show the log of dsstan while a command runs; cmdstanpy's, which may quote data, never.

    As quiet as before at the end, for a caller that goes on.
    """
    ours, theirs = logging.getLogger("dsstan"), logging.getLogger("cmdstanpy")
    before = ours.level, ours.propagate, theirs.disabled
    handler = _ToStderr()
    handler.setFormatter(_Stamped())
    ours.addHandler(handler)
    ours.propagate, theirs.disabled = False, True
    ours.setLevel(logging.WARNING)
    try:
        yield
    finally:
        ours.removeHandler(handler)
        ours.setLevel(before[0])
        ours.propagate, theirs.disabled = before[1:]


def set_log_level(name: str) -> None:
    """Show the log from this level on.

    Raises InputError if there is no such level.
    """
    if name not in LOG_LEVELS:
        raise InputError(f"--log-level must be one of {', '.join(LOG_LEVELS)}, got {name!r}")
    logging.getLogger("dsstan").setLevel(name.upper())


def document(command: str, *, confidential: bool, **content: Any) -> dict[str, Any]:
    """What a command says in JSON: its head, then its content."""
    return {"dsstan": __version__, "command": command, "confidential": confidential, **content}


def emit(content: Mapping[str, Any]) -> None:
    """Write the one JSON document of this call to standard output."""
    text = json.dumps(_plain(content), indent=2, allow_nan=False, ensure_ascii=True)
    stream = SESSION.stdout or sys.stdout
    stream.write(text + "\n")
    stream.flush()


def _plain(value: Any) -> Any:
    """As JSON has it: numbers that are not finite or missing are null, paths are text."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Path):
        return str(value)
    if value is pd.NA or (isinstance(value, float) and not math.isfinite(value)):
        return None
    return value
