"""The command ``dsstan init``: a commented job file, with what a table's columns suggest."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

from dsstan.cli.commands.job_template import FLOOR, PLACEHOLDERS, ColumnGuess, job_text, printable
from dsstan.cli.commands.synthesise import synthesise
from dsstan.cli.options import DIALECT
from dsstan.cli.screens import say
from dsstan.core.errors import CoordinateError, InputError, TableError
from dsstan.core.spelling import JOB, options_typed_in
from dsstan.release.reading import read_table
from dsstan.risk.floors import Floor
from dsstan.table.column_roles import guess_roles
from dsstan.table.columns import response_values
from dsstan.table.formats.kinds import format_of
from dsstan.table.formulas.formula import build_design, parse
from dsstan.table.places.coordinates import from_columns, geometry_name
from dsstan.table.places.degrees import could_be_degrees, is_latitude, is_longitude
from dsstan.table.text.dialect import Dialect, DialectError

PLANAR = (
    ("x", "y"),
    ("easting", "northing"),
    ("east", "north"),
    ("s1", "s2"),
    ("xcoord", "ycoord"),
)
"""Names of planar coordinates that are proposed, x first."""

_UNIT = re.compile(r"[ _.]+(m|km|metres?|meters?|feet|ft)$")
"""A unit at the end of their names."""

_WEIGHTS = re.compile(r"(^|[ _.])(p|survey|sample|design)?(weights?|wgt|wt)$")
"""Names of columns that may hold survey weights."""

_MOST_READINGS = 3
"""How often a table is read, each time in the dialect that the last reading found."""

ROLES_MEAN = """ What each column of this table looks like (an identifier can be looked up and \
may be a hash, a code names the response, a proxy predicts it; think twice before you name one):"""


def init_command(
    job: Annotated[Path, typer.Argument(metavar="JOB", help="TOML file to write; must not exist.")],
    table: Annotated[
        Path | None,
        typer.Option(help="Propose coordinates and formula from the columns of this table."),
    ] = None,
    formula: Annotated[str | None, typer.Option(help="The formula to fill in.")] = None,
    coords: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="X Y", help="The coordinate columns to fill in."),
    ] = None,
    out_folder: Annotated[
        Path | None, typer.Option("--out", help="The release folder to fill in.")
    ] = None,
    layer: Annotated[
        str | None,
        typer.Option(help="Layer of a GeoPackage or sheet of a workbook, where there are several."),
    ] = None,
) -> None:
    """Write a commented job file to fill in."""
    job = job.expanduser()
    if os.path.lexists(job):
        raise InputError(f"{job} exists and is not overwritten; choose another name")
    if not job.absolute().parent.is_dir():
        raise InputError(f"{job.absolute().parent} is no folder; make it first")
    filled: dict[str, Any] = {"formula": formula, "coords": coords, "distance": None}
    columns = proposal = None
    said: list[str] = []
    to_fill = dict(PLACEHOLDERS)
    if table is not None:
        columns, dialect, said = _read(table.expanduser(), layer)
        filled |= {"layer": layer, **_options_of(dialect)}
        if geometry_name(columns) is not None:
            del to_fill["coords"]
        proposal = propose(columns)
        filled["table"] = _from_folder_of(job, table)
        filled["coords"] = coords or proposal.coords
        if formula is not None:
            said += _unfit(formula, columns)
        filled["distance"] = proposal.distance
    if out_folder is not None:
        filled["out"] = _from_folder_of(job, out_folder)
    filled["floor"] = FLOOR
    filled["publish"] = []
    known = {key: value for key, value in filled.items() if value is not None}
    notes = {"floor": floor_note(columns, formula), "threshold": unit_note(filled["distance"])}
    if columns is not None:
        notes["survey_weights"] = weights_note(columns)
        notes["publish"] = columns_note(columns, formula, filled["coords"])
    _write(job, job_text(synthesise, known, proposal, to_fill, name=job.name, notes=notes))
    open_keys = [key for key in to_fill if key not in (*known, "out")]
    say(f"Job file:   {job}")
    for line in said:
        say(f"Found:      {line}")
    if open_keys:
        say(f"Fill in:    {', '.join(open_keys)}")
    say(f"Then check: dsstan run {job} --dry-run")
    say(f"And run:    dsstan run {job}")


def _unfit(formula: str, columns: pd.DataFrame) -> list[str]:
    """What is to be mended in the cells of the columns before the formula takes them.

    Raises FormulaError if it does not fit the columns.
    """
    try:
        with options_typed_in(JOB):
            build_design(parse(formula), columns, missing=True)
    except TableError as error:
        return [str(error)]
    return []


def _read(path: Path, layer: str | None) -> tuple[pd.DataFrame, Dialect | None, list[str]]:
    """The table, in the dialect that it looks like, and what was found, in words."""
    dialect, said = None, list[str]()
    # A text file is looked at as a whole; what else there is says itself what its columns are.
    used = None if format_of(path).is_text else ()
    for _ in range(_MOST_READINGS):
        try:
            with options_typed_in(JOB):
                return read_table(path, used, dialect=dialect, layer=layer), dialect, said
        except DialectError as error:
            dialect = error.found
            said.append(error.what)
    return read_table(path, used, dialect=dialect, layer=layer), dialect, said


def _options_of(dialect: Dialect | None) -> dict[str, Any]:
    """The keys of a job that say how its table is written."""
    if dialect is None:
        return {}
    return {name: getattr(dialect, name) for name in DIALECT if dialect.differs(name)}


def floor_note(table: pd.DataFrame | None, formula: str | None) -> str:
    """What the floor means in values of the table, where table and response are known."""
    if table is None or formula is None:
        return " The dry run says what it means in values of your table."
    try:
        parsed = parse(formula)
        values = response_values(table[parsed.response], parsed.response, missing=True)
    except (InputError, KeyError):  # the dry run says what is wrong with the formula
        return ""
    meaning = Floor.parse(FLOOR).meaning(values, parsed.transform, printable(parsed.response))
    return f" In this table: {meaning}."


def unit_note(distance: str | None) -> str:
    """The unit of a threshold, which follows from how distances are measured."""
    units = {"degrees": "degrees", "projected": "kilometres"}
    known = units.get(str(distance), "the unit of the coordinates")
    others = "" if distance in units else '; kilometres under distance = "projected"'
    return f" In {known}{others}."


def weights_note(table: pd.DataFrame) -> str:
    """The columns that by their names may hold survey weights."""
    named = [printable(str(name)) for name in table.columns if _WEIGHTS.search(str(name).lower())]
    return f" By its name it may be {' or '.join(named)}." if named else ""


def columns_note(table: pd.DataFrame, formula: str | None, coords: tuple[str, str] | None) -> str:
    """Every column of a table with its role as it is guessed. No value of the data is in it."""
    response, used = None, set[str]()
    with suppress(InputError):  # the dry run says what is wrong with the formula
        if formula is not None:
            parsed = parse(formula)
            response, used = parsed.response, set(parsed.columns)
    if response not in table.columns:
        response = None
    roles = guess_roles(table, response=response, formula=used, coords=coords or ())
    lines = [f"  {printable(role.name)}: {role.role}" for role in roles]
    if response is None:
        lines.append("The dry run knows the response, and finds the proxies and codes among them.")
    return "\n".join([ROLES_MEAN, *lines])


def propose(table: pd.DataFrame) -> ColumnGuess:
    """Coordinates by the names of columns, and what else there is for a formula."""
    names = [str(name) for name in table.columns]
    lower = {_UNIT.sub("", name.lower()): name for name in names}
    lower |= {name.lower(): name for name in names}
    first = [name for name in names if is_longitude(name)]
    second = [name for name in names if is_latitude(name)]
    coords, distance = None, None
    shape = geometry_name(table)
    if shape is not None:
        crs = table.crs
        distance = "projected" if crs is not None and crs.is_geographic else "planar"
    elif len(first) == len(second) == 1:
        coords = (first[0], second[0])
        with suppress(CoordinateError):  # the dry run says what is wrong with them
            values, _ = from_columns(table, coords)
            distance = "projected" if could_be_degrees(values) else "planar"
    else:
        coords = next(((lower[x], lower[y]) for x, y in PLANAR if x in lower and y in lower), None)
    numeric = {
        str(name)
        for name in table.columns
        if pd.api.types.is_numeric_dtype(table[name].dtype)
        and not pd.api.types.is_bool_dtype(table[name].dtype)
    }
    rest = [name for name in names if name not in (*(coords or ()), shape)]
    return ColumnGuess(
        coords,
        distance,
        tuple(name for name in rest if name in numeric),
        tuple(name for name in rest if name not in numeric),
    )


def _from_folder_of(job: Path, path: Path) -> str:
    """A path as a job file has it, from its own folder."""
    base = job.absolute().parent
    return os.path.relpath(path.expanduser().absolute(), base)


def _write(job: Path, text: str) -> None:
    """Write the file for its owner alone; one that came meanwhile is not overwritten."""
    try:
        content = text.encode("utf-8")
    except UnicodeEncodeError:
        raise InputError(
            "a column's name is no Unicode text (a lone surrogate): rename it"
        ) from None
    try:
        handle = os.open(job, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise InputError(f"{job} exists and is not overwritten; choose another name") from None
    with os.fdopen(handle, "wb") as stream:
        os.fchmod(stream.fileno(), 0o600)  # whatever the umask removed
        stream.write(content)
