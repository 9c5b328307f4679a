"""The text of a job file: every key with its help, default or example."""

from __future__ import annotations

import json
import math
import textwrap
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from typer.models import ParameterInfo

from dsstan.cli.job import job_keys
from dsstan.copies.option_fields import GROUPS, MODEL
from dsstan.core.seeds import root_seed
from dsstan.covariance.vecchia.neighbours import NEIGHBOURS
from dsstan.engines import SamplerSettings
from dsstan.models.weights import PAPER_CORRELATION

WIDTH = 96
"""Of the comments."""

FLOOR = "10%"
"""The floor that a new job asks for."""

PLACEHOLDERS = {
    "table": "table.csv",
    "formula": "log(value) ~ 1",
    "coords": ("x", "y"),
    "out": "release",
}
"""Placeholders of required options, until the user fills them in."""

EXAMPLES: dict[str, Any] = {
    "sep": ";",
    "decimal": ",",
    "thousands": " ",
    "encoding": "latin-1",
    "na": ["NA"],
    "layer": "homes",
    "coords": ("x", "y"),
    "format": "csv",
    "warmup": SamplerSettings.warmup,
    "samples": SamplerSettings.samples,
    "crs": "EPSG:4326",
    "distance": "projected",
    "workdir": "work",
    "phi_bounds": (0.1, 10.0),
    "correlation": PAPER_CORRELATION,
    "floor": FLOOR,
    "absolute": 10_000.0,
    "accept_proxy": ["assessed"],
    "imputations": 5,
    "publish": ["year"],
    "weights": "risk",
    "survey_weights": "weight",
    "household": "household",
    "time": "year",
    "heap": 0,
    "range": (0.0, math.inf),
    "neighbours": NEIGHBOURS,
    "reason": "agreed with the data owner",
    "ledger": "ledger",
    "mask": "area.gpkg",
    "addresses": "addresses.csv",
    "cells": 1000,
    "places_groups": ["kind"],
    "number": "kept",
    "accept_place": ["district"],
    "presence": 3.0,
    "finding": 0.1,
}
"""For options without a default; of the others the example is a number of their type."""

NOTES = {"seed": " Never one that can be guessed: the one below has 128 bits, drawn for this file."}
"""What the help of a command need not say, and a line that is uncommented must."""

UNLESS_GIVEN = {"correlation": " Unless a threshold is given, this is the rule:"}
"""Of options that are left out, what the line under the comment is if it is no mere example."""

HEAD = """A job for `dsstan run`. Keys are the options of `dsstan synthesise`; those with a # \
before them are left out: their line shows the default or, where there is none, an example. Paths \
are taken from the folder of this file. \
Check it with `dsstan run {name} --dry-run`. Keep this file to yourself if it holds a seed: \
whoever knows the seed can subtract the noise of the copies."""


@dataclass(frozen=True)
class ColumnGuess:
    """What the names and types of a table's columns suggest. No value of the data is in it."""

    coords: tuple[str, str] | None
    distance: str | None
    numbers: tuple[str, ...]
    others: tuple[str, ...]


def job_text(
    command: Callable[..., Any],
    filled: dict[str, Any],
    proposal: ColumnGuess | None = None,
    to_fill: Mapping[str, Any] = PLACEHOLDERS,
    *,
    name: str = "job.toml",
    notes: Mapping[str, str] | None = None,
) -> str:
    """A job file with every key that a job may have, in the groups of the command's help.

    Parameters
    ----------
    command
        The function behind ``dsstan synthesise``: keys, defaults and help are its own.
    filled
        Values by key.
    proposal
        What to say of the table's columns.
    to_fill
        Placeholders of the keys that the user must fill in.
    name
        Of the file, for the head.
    notes
        By key, what is added to its help.
    """
    notes = NOTES | dict(notes or {})
    hints = typing.get_type_hints(command, include_extras=True)
    groups: dict[str, list[str]] = {group: [] for group in GROUPS}
    for key, parameter in job_keys(command).items():
        kind, info = _annotated(hints[parameter.name])
        group = info.rich_help_panel or MODEL
        text = str(info.help or "") + notes.get(key, "")
        entry = _entry(key, kind, text, parameter.default, filled, proposal, to_fill)
        groups.setdefault(str(group), []).append(entry)
    parts = [_comment(HEAD.format(name=printable(name)))]
    for group, entries in groups.items():
        if entries:
            parts.append(f"## {group}\n\n" + "\n\n".join(entries))
    return "\n\n".join(parts) + "\n"


def _annotated(hint: Any) -> tuple[Any, ParameterInfo]:
    """The type of a parameter, and its Typer settings."""
    kind, *more = typing.get_args(hint)
    info = next(item for item in more if isinstance(item, ParameterInfo))
    return kind, info


def _entry(
    key: str,
    kind: Any,
    text: str,
    default: Any,
    filled: dict[str, Any],
    proposal: ColumnGuess | None,
    to_fill: Mapping[str, Any],
) -> str:
    """Help and value of one key; commented out where it is not filled in and not required."""
    if key in filled:
        line = f"{key} = {_toml(filled[key])}"
    elif key in to_fill:
        line = f"{key} = {_toml(to_fill[key])}"
        text += " To be filled in."
    elif default is None:
        example = root_seed(None) if key == "seed" else EXAMPLES.get(key, _example(kind))
        line = f"# {key} = {_toml(example)}"
        text += UNLESS_GIVEN.get(key, " Left out by default; an example of its form:")
    else:
        line = f"# {key} = {_toml(default)}"
    if key == "formula" and proposal is not None:
        text += _columns(proposal)
    return f"{_comment(text)}\n{line}"


def _columns(proposal: ColumnGuess) -> str:
    """Which columns a formula may name."""
    numbers = ", ".join(map(printable, proposal.numbers)) or "none"
    others = ", ".join(map(printable, proposal.others)) or "none"
    return f" Columns of numbers: {numbers}. Other columns: {others}."


def _comment(text: str) -> str:
    """Text as lines of a comment."""
    lines = []
    for part in text.split("\n"):
        lines += textwrap.wrap(part, WIDTH, break_long_words=False, break_on_hyphens=False)
    return "\n".join(f"# {line}" for line in lines)


def printable(text: str) -> str:
    """A name that may come from a table, as one line without control characters."""
    return "".join(c if c.isprintable() else "?" for c in text)


def _example(kind: Any) -> Any:
    """A value of an optional parameter's type."""
    if isinstance(kind, types.UnionType):
        [kind] = [k for k in typing.get_args(kind) if k is not types.NoneType]
    return {int: 1, float: 0.5}.get(kind)


def _toml(value: Any) -> str:
    """A value as TOML writes it; text as a basic string."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and math.isinf(value):
        return "inf"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    # JSON's escapes are TOML's too; DEL alone TOML wants escaped and JSON does not.
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
