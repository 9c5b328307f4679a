"""The options of the commands, as Typer and job files take them.

Those of a release are stated in :class:`~dsstan.copies.options.ReleaseOptions`, the others here in
the same way. A command names the ones it has, in the order of its help, with :func:`takes`.
"""

from __future__ import annotations

import inspect
import os
import typing
from collections.abc import Callable, Collection, Container, Mapping
from contextlib import ExitStack
from dataclasses import MISSING, dataclass, fields
from functools import update_wrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import pandas as pd
import typer

from dsstan.copies.option_fields import COPIES, MODEL, RUN, Option, option, options_of
from dsstan.copies.options import ReleaseOptions
from dsstan.copies.result import Synthesis
from dsstan.core.files.workspace import temporaries, work_parent
from dsstan.core.progress import phase
from dsstan.covariance.approximations import covariance_of
from dsstan.models.priors import DECAYS, Priors
from dsstan.release.copy_files import check_copies, how_written
from dsstan.release.publication.ledger import VARIABLE, ledger_folder
from dsstan.release.reading import needed_columns, read_table
from dsstan.release.write import write_release
from dsstan.risk.assessment import Assessment
from dsstan.risk.floors import FloorLike
from dsstan.table.formats.kinds import FORMAT_NAMES, stem_of
from dsstan.table.places.coordinates import geometry_name
from dsstan.table.text.cells import CSV_TEXT
from dsstan.table.text.dialect import TAB, Dialect

if TYPE_CHECKING:
    from dsstan.comparison.meet_floor import MetFloor

TEMPORARIES = ExitStack()

DIALECT = tuple(one.name for one in fields(Dialect))
"""The options that say how a text file is written."""

Kind = TypeVar("Kind")


def work_in(folder: Path | None) -> Path | None:
    """Keep all temporary files of this command in a private folder."""
    if folder is not None:
        os.environ["DSSTAN_WORKDIR"] = str(work_parent(folder))
    TEMPORARIES.enter_context(temporaries())
    return folder


def ledger_in(folder: Path | None) -> Path | None:
    """Take the ledger of this command from a folder."""
    if folder is not None:
        os.environ[VARIABLE] = str(ledger_folder(folder))
    return folder


def among(*words: str) -> Callable[[str], list[str]]:
    """What a shell may complete a value to; a wrong one is still refused by dsstan itself."""

    def complete(incomplete: str) -> list[str]:
        return [word for word in words if word.startswith(incomplete)]

    return complete


@dataclass(frozen=True, kw_only=True)
class TableFile:
    """A file with a table, and how it is written."""

    table: Path = option(
        ...,
        "File with the confidential table: CSV, Parquet, GeoPackage, GeoJSON, shapefile, Excel, "
        "Stata, SPSS and others.",
        None,
        metavar="TABLE",
    )
    sep: str | None = option(
        None, "Sign between the cells of a CSV, by default a comma; tab for a tab.", MODEL
    )
    decimal: str | None = option(
        None, "Decimal sign of a CSV: a point (the default) or a comma.", MODEL
    )
    thousands: str | None = option(
        None, "Sign between thousands in numbers of a CSV; by default there is none.", MODEL
    )
    encoding: str | None = option(
        None, "Encoding of a CSV, by default utf-8; such as latin-1 or cp1252.", MODEL
    )
    na: list[str] | None = option(
        None, "Text that means a missing value, beside the empty cell; once for each.", MODEL
    )
    layer: str | None = option(
        None, "Layer of a GeoPackage or sheet of a workbook, where there are several.", MODEL
    )

    @property
    def dialect(self) -> Dialect | None:
        """How a CSV is written; None where nothing was said."""
        given = {name: getattr(self, name) for name in DIALECT}
        stated = {name: value for name, value in given.items() if value is not None}
        if self.sep in (TAB, "\\t"):
            stated["sep"] = "\t"
        return Dialect(**stated) if stated else None

    def read_used(self, used: Collection[str] | None) -> pd.DataFrame:
        """The table with the numbers of these columns."""
        return read_table(self.table, used, dialect=self.dialect, layer=self.layer)


@dataclass(frozen=True, kw_only=True)
class Source(TableFile):
    """What a model is fitted to, and which."""

    formula: str = option(..., "Such as 'log(price) ~ scale(log(squarefeet))'.", MODEL)

    def read(self, options: ReleaseOptions) -> pd.DataFrame:
        """The table with the numbers of the columns that the release needs."""
        with phase("reading"):
            used = needed_columns(self.formula, options.coords or ())
            return self.read_used(used.union(options.columns_beside_formula))


def check_table(
    table: pd.DataFrame, used: Collection[str], options: ReleaseOptions, writing: Writing, made: Any
) -> None:
    """Refuse columns that would go out and that the copies could not hold, before any sampling.

    ``used`` are those of the formulas and the coordinates, ``made`` those that are synthetic.
    """
    going = {*used, *(options.publish or ()), options.survey_weights}
    if options.coords is None:
        going.add(str(geometry_name(table)))
    held = table[[name for name in table.columns if name in going]]
    check_copies(held, how_written(table, writing.format, writing.csv_text), made)


@dataclass(frozen=True, kw_only=True)
class Plain:
    """A covariance and priors in plain numbers."""

    neighbours: int | None = option(
        None, "Neighbours a record in Vecchia's approximation, by default 15.", MODEL
    )
    phi_bounds: tuple[float, float] | None = option(
        None, "Prior range of the decay, inverse of the unit.", MODEL, metavar="LOW HIGH"
    )
    decay: str = option(
        *("uniform", "Prior of the decay: " + " or ".join(DECAYS) + ".", MODEL, DECAYS)
    )


@dataclass(frozen=True, kw_only=True)
class Writing:
    """How a release is written, and what it must be for that."""

    out_folder: Path = option(..., "Release folder; must not exist.", COPIES, flags=("--out",))
    format: str | None = option(
        None,
        "Of the copies, by default that of TABLE: " + ", ".join(FORMAT_NAMES) + ".",
        COPIES,
        choices=FORMAT_NAMES,
    )
    absolute: float | None = option(
        None, "Also count copies within this distance of the truth, response's unit.", COPIES
    )
    csv_text: str = option(
        *("refuse", "Text that a spreadsheet would run: refuse, quote or keep.", COPIES, CSV_TEXT)
    )
    floor: FloorLike | None = option(
        None,
        "What to leave to an intruder about every record: 10% if nobody's value may be placed "
        "within +/-10%, or a least sd such as 0.05, modelled scale; a release that leaves less is "
        "refused.",
        COPIES,
        typed=str | None,
        free_form=True,
    )
    attribution: float | None = option(
        None,
        "Largest chance with which somebody who knows all other records may name a value exactly, "
        "by default 0.5 where there is a floor; 1 allows any.",
        COPIES,
    )
    accept_below_floor: bool = option(
        False, "Write the release although the floor is missed; needs a reason.", COPIES
    )
    reason: str | None = option(None, "Why a missed floor is accepted; it is kept.", COPIES)
    no_report: bool = option(False, "Leave out report.html, factsheet.html and pictures.", COPIES)

    def write(
        self,
        release: Synthesis,
        assessment: Assessment | None = None,
        alternatives: MetFloor | None = None,
    ) -> None:
        """Write the release; see :func:`dsstan.release.write.write_release`."""
        write_release(
            release,
            self.out_folder,
            format=self.format,
            csv_text=self.csv_text,
            absolute=self.absolute,
            assessment=assessment,
            accept_below_floor=self.accept_below_floor,
            reason=self.reason,
            report=not self.no_report,
            alternatives=alternatives,
            pictures=not self.no_report,
        )


@dataclass(frozen=True, kw_only=True)
class Run:
    """How a command runs and what it prints."""

    workdir: Path | None = option(
        None, "Where the private folder of temporary files is made; as DSSTAN_WORKDIR.", RUN
    )
    ledger: Path | None = option(
        None, "Folder of the ledger of what was published; as DSSTAN_LEDGER.", RUN, metavar="DIR"
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
            needed = one.default is MISSING
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
        callback={"workdir": work_in, "ledger": ledger_in}.get(name),
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
        bounds, decay = given.get("phi_bounds"), given.get("decay", "uniform")
        values |= {
            "publish": given.get("publish") or (),
            "name": stem_of(given["table"]),
            "covariance": covariance_of(given.get("covariance", "auto"), given.get("neighbours")),
            "priors": None
            if bounds is None and decay == "uniform"
            else Priors(phi_bounds=bounds, decay=decay),
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
LedgerDir = Annotated[Path | None, _alone(Run, "ledger")]
WorkDir = Annotated[Path | None, _alone(Run, "workdir")]
"""For commands that state their own options as Typer has them."""
