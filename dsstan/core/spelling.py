"""Options in messages, spelled as the reader types them: in Python, at a command or in a job."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

PYTHON, COMMAND, JOB = "python", "command", "job"
"""Where options are typed: as keywords in Python, as flags of a command, as keys of a job file."""

_typed_in = [PYTHON]


@contextmanager
def options_typed_in(surface: str) -> Iterator[None]:
    """Spell options for this surface until the end of the block."""
    _typed_in.append(surface)
    try:
        yield
    finally:
        _typed_in.pop()


def surface() -> str:
    """Where the reader types options."""
    return _typed_in[-1]


def _quoted(value: Any) -> str:
    """A value as a shell takes it; a lone sign is quoted, or it reads as one of the sentence."""
    text = str(value)
    lone = len(text) == 1 and not text.isalnum() and text != "'"
    return f"'{text}'" if lone else shlex.quote(text)


def spelled(name: str, value: Any, *, of: str | None = None) -> str:
    """An option with its value, as the reader would type it.

    Parameters
    ----------
    name
        Of the option, as a keyword in Python.
    value
        Text, a number, a truth value or a tuple of these; a list where a flag is typed once
        for each.
    of
        Keyword in Python whose object holds the option, ``"priors"``; None where it is a keyword
        itself.

    Examples
    --------
    >>> spelled("distance", "projected")
    'distance="projected"'
    >>> with options_typed_in(COMMAND):
    ...     spelled("phi_bounds", (0.1, 3)), spelled("csv_text", True)
    ('--phi-bounds 0.1 3', '--csv-text')
    >>> with options_typed_in(JOB):
    ...     spelled("phi_bounds", (0.1, 3)), spelled("csv_text", True)
    ('phi_bounds = [0.1, 3]', 'csv_text = true')
    """
    if surface() == COMMAND:
        flag = f"--{name.replace('_', '-')}"
        if isinstance(value, list):
            return " ".join(f"{flag} {_quoted(one)}" for one in value)
        parts = value if isinstance(value, tuple) else () if value is True else (value,)
        return " ".join([flag, *map(_quoted, parts)])
    if surface() == JOB:
        return f"{name} = {json.dumps(value, default=str)}"
    whole = json.dumps(value) if isinstance(value, str) else repr(value)
    return f"{name}={whole}" if of is None else f"{of}={of.title()}({name}={whole})"
