"""How an option is stated: its default and type as a dataclass field, with what a reader needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

GROUPS = (
    "Table and model",
    "Protection",
    "Copies and what they disclose",
    "Sampler",
    "This run",
)
"""Groups of options, in the help and in a job file."""

MODEL, PROTECT, COPIES, SAMPLER, RUN = GROUPS


@dataclass(frozen=True)
class Option:
    """What the command line and job files need to know of an option beside its default.

    Attributes
    ----------
    meaning, group
        The help, and the one of :data:`GROUPS` it stands in; None for a positional argument.
    choices
        The values of a choice.
    typed
        The type in which the value is typed, where the field takes more.
    metavar, flags
        The placeholder of the value in the help, and the flags, where they are not the name.
    in_job
        Whether a job file has it as a key.
    free_form
        Whether a job file may have a number or text: whoever takes the value checks it.
    """

    meaning: str
    group: str | None
    choices: Sequence[str] = ()
    typed: Any = None
    metavar: str | None = None
    flags: tuple[str, ...] = ()
    in_job: bool = True
    free_form: bool = False


def option(
    default: Any, meaning: str, group: str | None, *more: Any, repr: bool = True, **others: Any
) -> Any:
    """A dataclass field with an :class:`Option`; without a default where that is ``...``."""
    stated = {"option": Option(meaning, group, *more, **others)}
    return field(default=MISSING if default is ... else default, repr=repr, metadata=stated)


def options_of(table: Any) -> dict[str, Option]:
    """The options that a dataclass states, by name."""
    return {f.name: f.metadata["option"] for f in fields(table) if "option" in f.metadata}
