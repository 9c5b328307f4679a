"""Read what others wrote: the steward's table, and a public release.

Both are taken as data and as possibly hostile. Nothing is unpickled, evaluated or fetched, and
whatever is wrong ends in one of dsstan's own errors.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pandas as pd

from dsstan.core.arrays import Indices
from dsstan.core.errors import InputError, ReleaseError
from dsstan.core.spelling import spelled
from dsstan.release.metadata import check_metadata, dialect_of, synthetic_columns
from dsstan.table.as_read import AS_READ, Asked
from dsstan.table.formats.kinds import format_of
from dsstan.table.formulas.formula import parse
from dsstan.table.sizes import MOST_CELLS, RowsError
from dsstan.table.text.cells import unquote
from dsstan.table.text.csv import check_rows, parsed_csv
from dsstan.table.text.dialect import Dialect

__all__ = ["PublicRelease", "needed_columns", "read_release", "read_table"]

_MOST_METADATA = 10_000_000
LAYERED = ("gpkg", "xlsx")
"""Formats that may hold several tables."""

_PLAIN = re.compile(r"[uU]?[iI]nt(8|16|32|64)|[fF]loat(16|32|64)|bool|boolean|str|string|category")
_DATE = re.compile(r"datetime64\[\w+\]")


def needed_columns(formula: str, coords: Collection[str]) -> set[str]:
    """Columns whose numbers the model needs: response, covariates, coordinates.

    Raises
    ------
    FormulaError
        If the formula can't be read.
    """
    parsed = parse(formula)
    group = () if parsed.group is None else (parsed.group,)
    return {parsed.response, *parsed.columns, *group, *coords}


def read_table(
    path: Path | str,
    used: Collection[str] | None = None,
    *,
    dialect: Dialect | None = None,
    layer: str | None = None,
) -> pd.DataFrame:
    """The table of a file, read so that the copies can repeat it.

    Parameters
    ----------
    path
        Of one of the :data:`dsstan.table.formats.kinds.FORMATS`, by its ending.
    used
        Columns whose numbers are needed: of a CSV, any other becomes numbers only where they are
        written again exactly as they stand there. None takes all as needed.
    dialect
        How a CSV is written; by default with commas (tabs in a ``.tsv``), decimal points and UTF-8.
    layer
        Layer of a GeoPackage or sheet of a workbook; needed where there are several.

    Returns
    -------
    DataFrame
        A GeoDataFrame where the file has geometry. Its attribute ``as_read`` is how it stood there.

    Raises
    ------
    InputError
        If there is no such file, its kind is unknown, a library for it is missing, or it can't be
        read without a guess: rows longer or shorter than the header, or column names that repeat.
    DialectError
        An InputError too: if the file looks like one of another dialect. It says of which.
    """
    path = Path(path)
    format = format_of(path)
    if not path.is_file():
        raise InputError(f"there is no file {path}")
    if dialect is not None and not format.is_text:
        raise InputError(
            f"{path.name} is {format.what} and not a text file: leave out {dialect.typed()}"
        )
    if layer is not None and format.name not in LAYERED:
        raise InputError(f"{path.name} holds one table: leave out {spelled('layer', layer)}")
    try:
        table = format.read(path, Asked(used, dialect, layer))
    except (InputError, MemoryError):
        raise
    except Exception as error:  # of many kinds, and their texts may hold values
        raise InputError(
            f"{path.name} can't be read as {format.what} ({type(error).__name__}): look whether it "
            "opens elsewhere, and save it again"
        ) from None
    found = table.attrs[AS_READ]
    table.attrs[AS_READ] = replace(found, format=format.name)
    return table


@dataclass(frozen=True, eq=False)
class PublicRelease:
    """A public release as an analyst gets it.

    Attributes
    ----------
    metadata
        What ``metadata.json`` holds; its schema is ``docs/metadata.schema.json``.
    copies
        The L copies, with their index.
    """

    metadata: Mapping[str, Any] = field(repr=False)
    copies: tuple[pd.DataFrame, ...] = field(repr=False)

    def __iter__(self) -> Iterator[pd.DataFrame]:
        """The copies, so that ``pool`` takes the release."""
        return iter(self.copies)

    @property
    def synthetic_column(self) -> str:
        """The column whose values are synthetic; of several the one drawn last."""
        return str(self.metadata["synthetic_column"])

    @property
    def synthetic_columns(self) -> tuple[str, ...]:
        """Every modelled column whose values are synthetic, in the order in which they were
        drawn."""
        return synthetic_columns(self.metadata)

    @property
    def places(self) -> str:
        """``"kept"``, ``"moved"`` or ``"population"``; in the latter every column is synthetic."""
        return str(self.metadata["places"]["kind"]) if "places" in self.metadata else "kept"

    @property
    def survey_weights(self) -> str | None:
        """The column with survey weights, where there is one."""
        name = self.metadata.get("survey_weights")
        return None if name is None else str(name)

    @property
    def imputation(self) -> Indices | None:
        """Number, from 1, of the imputation behind each copy, for :func:`dsstan.combine`; None
        where the response was missing nowhere."""
        made = self.metadata["imputations"]
        if made is None:
            return None
        return np.repeat(np.arange(1, made["count"] + 1), made["copies_each"])

    @property
    def hide_gaps(self) -> bool:
        """Whether every record was drawn in each imputation, for :func:`dsstan.combine`."""
        return "drawn" in (self.metadata["imputations"] or {})

    def __repr__(self) -> str:
        return (
            f"PublicRelease: {len(self.copies)} copies of {self.metadata['records']} records, "
            f"{', '.join(map(repr, self.synthetic_columns))} synthetic"
            + ("" if self.places == "kept" else f", places {self.places}")
        )


def read_release(folder: Path | str) -> PublicRelease:
    """Read the public side of a release and check that it is whole.

    Parameters
    ----------
    folder
        The release, or its ``public`` part alone.

    Returns
    -------
    PublicRelease
        In CSV, points stay the text they are, and the types that CSV can't carry (categories
        in an order of their own, for example) are those that pandas finds.

    Raises
    ------
    ReleaseError
        If there is no release, or one of its files is missing, not a plain file, or not what
        the metadata say. The message names the file.
    """
    public = Path(folder)
    inner = public / "public"
    if inner.is_symlink():
        _no("public", "is a link, which may lead anywhere")
    if inner.is_dir():
        public = inner
    metadata = _metadata(public)
    if metadata["copies"] * metadata["records"] * len(metadata["columns"]) > MOST_CELLS:
        _no("metadata.json", "describes more than is read at once")
    placed = metadata.get("places")
    sizes = placed["records"] if placed else [metadata["records"]] * metadata["copies"]
    copies = tuple(
        _copy(public, name, {**metadata, "records": size})
        for name, size in zip(metadata["files"], sizes, strict=True)
    )
    if placed:
        return PublicRelease(metadata, copies)
    for name, copy in zip(metadata["files"], copies, strict=True):
        others = copy.drop(columns=list(synthetic_columns(metadata)))
        first = copies[0].drop(columns=list(synthetic_columns(metadata)))
        if not (others.equals(first) and others.index.equals(first.index)):
            _no(name, "differs from the first copy in a column that is not synthetic")
    return PublicRelease(metadata, copies)


def _no(name: str, why: str) -> NoReturn:
    raise ReleaseError(f"{name} is not that of a whole release: it {why}. Get the release again")


def _plain_file(path: Path) -> Path:
    """The path, if a plain file is there; a link may lead anywhere."""
    try:
        mode = path.lstat().st_mode
    except (OSError, ValueError):
        _no(path.name, "is missing")
    if not stat.S_ISREG(mode):
        _no(path.name, "is no plain file")
    return path


def _metadata(public: Path) -> dict[str, Any]:
    """The checked metadata."""
    path = _plain_file(public / "metadata.json")
    try:
        if path.stat().st_size > _MOST_METADATA:
            raise ValueError("too large")
        content = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse_constant)
    except (OSError, ValueError, RecursionError):
        _no(path.name, "can't be read as JSON")
    wrong = check_metadata(content)
    if wrong is not None:
        _no(path.name, wrong)
    checked: dict[str, Any] = content
    return checked


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(text)


def _copy(public: Path, name: str, metadata: Mapping[str, Any]) -> pd.DataFrame:
    """One checked copy; its rows are counted before it is read, where it says how many it has: a
    small file may unpack to any size."""
    path, format = _plain_file(public / name), format_of(Path(name))
    for number, part in enumerate(format.parts):
        beside = path.with_suffix(f".{part}")
        if number < 2 or os.path.lexists(beside):
            _plain_file(beside)
    columns, records, leading = (metadata[k] for k in ("columns", "records", "index_columns"))
    try:
        if format.is_text:
            copy = _csv_copy(path, metadata)
        else:
            copy = format.read(path, Asked(used=synthetic_columns(metadata), most_rows=records))
            copy.attrs = {}
            if not format.is_arrow:
                copy = _as_said(copy, columns, leading)
    except (MemoryError, ReleaseError):
        raise
    except RowsError:
        _no(name, "has another number of records than metadata.json says")
    except Exception as error:  # of many kinds
        _no(name, f"can't be read ({type(error).__name__})")
    if list(map(str, copy.columns)) != list(columns):
        _no(name, "has other columns than metadata.json says")
    if len(copy) != metadata["records"]:
        _no(name, "has another number of records than metadata.json says")
    if metadata["csv_text"] == "quoted" and format.is_text:
        copy = unquote(copy)
    for response in () if metadata["model"] is None else synthetic_columns(metadata):
        values = copy[response]
        if (
            not pd.api.types.is_numeric_dtype(values.dtype)
            or not np.isfinite(values.to_numpy(dtype=np.float64, na_value=np.nan)).all()
        ):
            _no(name, f"has no finite numbers in {response!r}")
    return copy


def _csv_copy(path: Path, metadata: Mapping[str, Any]) -> pd.DataFrame:
    """A copy in CSV, with the types that CSV can carry."""
    columns, leading, dialect = metadata["columns"], metadata["index_columns"], dialect_of(metadata)
    types = {}
    for name, dtype in columns.items():
        if _PLAIN.fullmatch(dtype):
            types[name] = dtype
        elif dtype == "object" or dtype.startswith("geometry"):
            types[name] = "str"

    def as_said(header: list[str]) -> None:
        if len(header) != leading + len(columns):
            _no(path.name, "has other columns than metadata.json says")

    check_rows(path, as_said, dialect, metadata["records"])
    table = parsed_csv(
        path,
        dialect,
        dtype=types,
        decimal=dialect.decimal,
        thousands=dialect.thousands,
        index_col=list(range(leading)) or False,
        parse_dates=[name for name, dtype in columns.items() if _DATE.fullmatch(dtype)],
        keep_default_na=False,
        na_values=["", *dialect.na],
        float_precision="round_trip",
        low_memory=False,
    )
    for name, dtype in columns.items():
        if _DATE.fullmatch(dtype):
            table[name] = table[name].astype(dtype)
    return table


def _as_said(copy: pd.DataFrame, columns: Mapping[str, Any], leading: int) -> pd.DataFrame:
    """A copy with its index, and the plain types that its format does not tell apart."""
    if leading:
        copy = copy.set_index(list(copy.columns[:leading]))
    for name in copy.columns.intersection(list(columns)):
        dtype = columns[name]
        if _PLAIN.fullmatch(dtype) and str(copy[name].dtype) != dtype:
            with suppress(TypeError, ValueError):
                copy[name] = copy[name].astype(dtype)
    there = [name for name in columns if name in copy.columns]
    return copy[there] if len(there) == len(copy.columns) else copy
