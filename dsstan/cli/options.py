"""The options of the commands, as Typer and job files take them.

Those of a release are stated in :class:`~dsstan.copies.options.ReleaseOptions`, the others here in
the same way. A command names the ones it has, in the order of its help, with :func:`takes`.
"""

from __future__ import annotations

import inspect
import os
import typing
from collections.abc import Callable, Container, Mapping
from contextlib import ExitStack
from dataclasses import MISSING, dataclass, fields
from functools import update_wrapper
from pathlib import Path
from typing import Annotated, Any, TypeVar

import pandas as pd
import typer

from dsstan.copies.options import COPIES, MODEL, RUN, Option, ReleaseOptions, option, options_of
from dsstan.copies.result import Synthesis
from dsstan.core.progress import phase
from dsstan.core.workspace import temporaries, work_parent
from dsstan.covariance.approximations import covariance_of
from dsstan.models.priors import Priors
from dsstan.release.reading import needed_columns, read_table
from dsstan.release.write import FORMATS, write_release
from dsstan.risk.assessment import Assessment
from dsstan.table.cells import CSV_TEXT

TEMPORARIES = ExitStack()

Kind = TypeVar("Kind")


def work_in(folder: Path | None) -> Path | None:
    """Keep all temporary files of this command in a private folder."""
    if folder is not None:
        os.environ["DSSTAN_WORKDIR"] = str(work_parent(folder))
    TEMPORARIES.enter_context(temporaries())
    return folder


def among(*words: str) -> Callable[[str], list[str]]:
    """What a shell may complete a value to; a wrong one is still refused by dsstan itself."""

    def complete(incomplete: str) -> list[str]:
        return [word for word in words if word.startswith(incomplete)]

    return complete


@dataclass(frozen=True, kw_only=True)
class Source:
    """What a model is fitted to, and which."""

    table: Path = option(
        ..., "CSV or Parquet file with the confidential table.", None, metavar="TABLE"
    )
    formula: str = option(..., "Such as 'log(price) ~ scale(log(squarefeet))'.", MODEL)

    def read(self, coords: tuple[str, str] | None) -> pd.DataFrame:
        """The table with the numbers of the columns that the model needs."""
        assert coords is not None  # no command goes without
        with phase("reading"):
            return read_table(self.table, needed_columns(self.formula, coords))


@dataclass(frozen=True, kw_only=True)
class Plain:
    """A covariance and priors in plain numbers."""

    neighbours: int | None = option(
        None, "Neighbours a record in Vecchia's approximation, by default 15.", MODEL
    )
    phi_bounds: tuple[float, float] | None = option(
        None, "Prior range of the decay, inverse of the unit.", MODEL, metavar="LOW HIGH"
    )


@dataclass(frozen=True, kw_only=True)
class Writing:
    """How a release is written, and what it must be for that."""

    out_folder: Path = option(..., "Release folder; must not exist.", COPIES, flags=("--out",))
    format: str = option("csv", "Of the copies: csv or parquet.", COPIES, choices=FORMATS)
    absolute: float | None = option(
        None, "Also count copies within this distance of the truth, response's unit.", COPIES
    )
    csv_text: str = option(
        *("refuse", "Text that a spreadsheet would run: refuse, quote or keep.", COPIES, CSV_TEXT)
    )
    floor: float | None = option(
        None,
        "Least sd to leave to an intruder about every record, modelled scale; a release "
        "that leaves less is refused.",
        COPIES,
    )
    accept_below_floor: bool = option(False, "Go on although the floor is missed.", COPIES)
    no_report: bool = option(False, "Leave out report.html and factsheet.html.", COPIES)

    def write(self, release: Synthesis, assessment: Assessment | None = None) -> None:
        """Write the release; see :func:`dsstan.release.write.write_release`."""
        write_release(
            release,
            self.out_folder,
            format=self.format,
            csv_text=self.csv_text,
            absolute=self.absolute,
            assessment=assessment,
            accept_below_floor=self.accept_below_floor,
            report=not self.no_report,
        )


@dataclass(frozen=True, kw_only=True)
class Run:
    """How a command runs and what it prints."""

    workdir: Path | None = option(
        None, "Where the private folder of temporary files is made; as DSSTAN_WORKDIR.", RUN
    )
    dry_run: bool = option(
        False, "Check everything, estimate time and memory, write nothing.", RUN, in_job=False
    )
    as_json: bool = option(
        *(False, "One JSON document on standard output, and nothing else there.", RUN),
        flags=("--json",),
        in_job=False,
    )
    verbose: bool = option(
        *(False, "Print posteriors, shares, intruder and regression in full.", RUN),
        flags=("--verbose", "-v"),
        in_job=False,
    )


def _parameters(table: type) -> dict[str, inspect.Parameter]:
    """The options of a dataclass as parameters that Typer understands."""
    kinds, stated, found = typing.get_type_hints(table), options_of(table), {}
    for one in fields(table):
        if one.name in stated:
            what = stated[one.name]
            kind = what.typed or kinds[one.name]
            needed = what.required or one.default is MISSING
            found[one.name] = inspect.Parameter(
                one.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if needed else one.default,
                annotation=Annotated[kind, _typed(one.name, kind, what), what],
            )
    return found


def _typed(name: str, kind: Any, what: Option) -> Any:
    """How a value is typed, for Typer."""
    if what.group is None:
        return typer.Argument(metavar=what.metavar, help=what.meaning)
    # A truth value needs its flag named, or there would be a second one with --no-.
    flags = what.flags or ((f"--{name.replace('_', '-')}",) if kind is bool else ())
    return typer.Option(
        *flags,
        help=what.meaning,
        metavar=what.metavar,
        rich_help_panel=what.group,
        autocompletion=among(*what.choices) if what.choices else None,
        callback=work_in if name == "workdir" else None,
    )


def _alone(table: type, name: str) -> Any:
    """How a value is typed, for Typer, of one option of a dataclass."""
    return typing.get_args(_parameters(table)[name].annotation)[1]


def signature_of(names: str, *tables: type) -> inspect.Signature:
    """The named options, each from the first of the tables that states it."""
    stated: dict[str, inspect.Parameter] = {}
    for table in (*tables, Plain):
        stated = _parameters(table) | stated
    return inspect.Signature([stated[name] for name in names.split()])


def built(kind: type[Kind], given: Mapping[str, Any], claimed: Container[str] = ()) -> Kind:
    """An object of a dataclass of options from what a command or a job gave.

    Options that are ``claimed`` by another dataclass keep their defaults.
    """
    names = [one.name for one in fields(kind)]  # type: ignore[arg-type]
    values = {name: given[name] for name in names if name in given and name not in claimed}
    if kind is ReleaseOptions:
        bounds = given.get("phi_bounds")
        values |= {
            "name": given["table"].stem,
            "covariance": covariance_of(given.get("covariance", "auto"), given.get("neighbours")),
            "priors": None if bounds is None else Priors(phi_bounds=bounds),
        }
    return kind(**values)


def takes(names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a command of a function whose parameters are dataclasses of options.

    Parameters
    ----------
    names
        The options, in the order of the help. Each goes to the first parameter whose dataclass
        states it.
    """

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        kinds = typing.get_type_hints(function)
        del kinds["return"]

        def command(**given: Any) -> None:
            arguments: dict[str, Any] = {}
            claimed: set[str] = set()
            for name, kind in kinds.items():
                arguments[name] = built(kind, given, claimed)
                claimed |= {one.name for one in fields(kind)}
            function(**arguments)

        update_wrapper(command, function)
        signature = signature_of(names, *kinds.values())
        command.__signature__ = signature  # type: ignore[attr-defined]
        command.__annotations__ = {
            name: parameter.annotation for name, parameter in signature.parameters.items()
        }
        return command

    return decorate


AsJson = Annotated[bool, _alone(Run, "as_json")]
Engine = Annotated[str, _alone(ReleaseOptions, "engine")]
WorkDir = Annotated[Path | None, _alone(Run, "workdir")]
"""For commands that state their own options as Typer has them."""
