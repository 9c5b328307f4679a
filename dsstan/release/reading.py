"""Read what others wrote: the steward's table, and a public release.

Both are taken as data and as possibly hostile. Nothing is unpickled, evaluated or fetched, and
whatever is wrong ends in one of dsstan's own errors.
"""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pandas as pd

from dsstan.core.arrays import Indices
from dsstan.core.errors import InputError, ReleaseError
from dsstan.core.optional import needed
from dsstan.release.metadata import check_metadata, dialect_of, synthetic_columns
from dsstan.table.cells import unquote
from dsstan.table.csv import check_rows, parsed_csv, read_csv
from dsstan.table.dialect import PLAIN, Dialect
from dsstan.table.formulas.formula import parse

__all__ = ["PublicRelease", "needed_columns", "read_release", "read_table"]

_MOST_METADATA = 10_000_000
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
    return {parsed.response, *parsed.columns, *coords}


def read_table(
    path: Path | str, used: Collection[str] | None = None, *, dialect: Dialect | None = None
) -> pd.DataFrame:
    """The table of a CSV or Parquet file.

    A CSV is read so that the copies can repeat it, in its dialect.

    Parameters
    ----------
    path
        Of kind ``.csv``, ``.tsv``, ``.parquet`` or ``.pq``.
    used
        Columns whose numbers are needed: of a CSV, any other becomes numbers only where they are
        written again exactly as they stand there. None takes all as needed.
    dialect
        How a CSV is written; by default with commas (tabs in a ``.tsv``), decimal points and UTF-8.

    Raises
    ------
    InputError
        If there is no such file, its kind is unknown, or it can't be read without a guess: rows
        longer or shorter than the header, or column names that repeat.
    DialectError
        An InputError too: if the file looks like one of another dialect. It says of which.
    """
    path = Path(path)
    kind = path.suffix.lower()
    if kind not in (".csv", ".tsv", ".parquet", ".pq"):
        _refuse_kind(path, kind)
    if not path.is_file():
        raise InputError(f"there is no file {path}")
    if dialect is not None and kind in (".parquet", ".pq"):
        raise InputError(f"{path.name} is Parquet and not a text file: leave out {dialect.typed()}")
    if dialect is None:
        dialect = Dialect(sep="\t") if kind == ".tsv" else PLAIN
    try:
        if kind in (".csv", ".tsv"):
            return read_csv(path, used, dialect)
        return _read_parquet(path)
    except (InputError, MemoryError):
        raise
    except Exception as error:  # of many kinds, and their texts may hold values
        raise InputError(f"{path.name} can't be read as {kind}: {type(error).__name__}") from None


_IN_PYTHON = {
    **dict.fromkeys((".gpkg", ".geojson", ".shp", ".fgb", ".kml"), "geopandas.read_file"),
    **dict.fromkeys((".xlsx", ".xls", ".ods"), "pandas.read_excel"),
    **dict.fromkeys((".feather", ".arrow"), "pandas.read_feather"),
    **dict.fromkeys((".sav", ".zsav", ".por"), "pandas.read_spss"),
    **dict.fromkeys((".sas7bdat", ".xpt"), "pandas.read_sas"),
    ".dta": "pandas.read_stata",
    ".gz": "pandas.read_csv",
}
"""What reads other files; :func:`dsstan.protect` takes what they give, points with their CRS."""


def _refuse_kind(path: Path, kind: str) -> NoReturn:
    """Refuse a file of another kind, and say how its table comes in."""
    message = f"{path.name} is neither .csv nor .parquet nor .tsv"
    reader = _IN_PYTHON.get(kind)
    if reader is not None:
        name = json.dumps(path.name, ensure_ascii=False)
        call = f"dsstan.protect({reader}({name}), ...)"
        message += f": save it as one of these, or read it in Python: {call}"
        if reader.startswith("geopandas"):
            message += ", which takes coordinates and CRS from the points"
    raise InputError(message)


def _read_parquet(path: Path) -> pd.DataFrame:
    """A Parquet file; opened first, since Arrow takes no path that is not UTF-8."""
    with open(path, "rb") as stream:
        return pd.read_parquet(stream)


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

    @property
    def synthetic_column(self) -> str:
        """The column whose values are synthetic; of several the one drawn last."""
        return str(self.metadata["synthetic_column"])

    @property
    def synthetic_columns(self) -> tuple[str, ...]:
        """Every column whose values are synthetic, in the order in which they were drawn."""
        return synthetic_columns(self.metadata)

    @property
    def imputation(self) -> Indices | None:
        """Number, from 1, of the imputation behind each copy, for :func:`dsstan.combine`; None
        where the response was missing nowhere."""
        made = self.metadata["imputations"]
        if made is None:
            return None
        return np.repeat(np.arange(1, made["count"] + 1), made["copies_each"])

    def __repr__(self) -> str:
        return (
            f"PublicRelease: {len(self.copies)} copies of {self.metadata['records']} records, "
            f"{', '.join(map(repr, self.synthetic_columns))} synthetic"
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
    copies = tuple(_copy(public, name, metadata) for name in metadata["files"])
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
    """One checked copy."""
    path = _plain_file(public / name)
    columns = metadata["columns"]
    try:
        if name.endswith(".csv"):
            copy = _csv_copy(path, columns, metadata["index_columns"], dialect_of(metadata))
        else:
            copy = _parquet_copy(path, metadata["records"])
    except (MemoryError, ReleaseError):
        raise
    except Exception as error:  # of many kinds
        _no(name, f"can't be read ({type(error).__name__})")
    if list(map(str, copy.columns)) != list(columns):
        _no(name, "has other columns than metadata.json says")
    if len(copy) != metadata["records"]:
        _no(name, "has another number of records than metadata.json says")
    if metadata["csv_text"] == "quoted" and name.endswith(".csv"):
        copy = unquote(copy)
    for response in synthetic_columns(metadata):
        values = copy[response]
        if (
            not pd.api.types.is_numeric_dtype(values.dtype)
            or not np.isfinite(values.to_numpy(dtype=np.float64, na_value=np.nan)).all()
        ):
            _no(name, f"has no finite numbers in {response!r}")
    return copy


def _csv_copy(
    path: Path, columns: Mapping[str, Any], leading: int, dialect: Dialect
) -> pd.DataFrame:
    """A copy in CSV, with the types that CSV can carry."""
    types = {}
    for name, dtype in columns.items():
        if _PLAIN.fullmatch(dtype):
            types[name] = dtype
        elif dtype == "object" or dtype.startswith("geometry"):
            types[name] = "str"

    def as_said(header: list[str]) -> None:
        if len(header) != leading + len(columns):
            _no(path.name, "has other columns than metadata.json says")

    check_rows(path, as_said, dialect)
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


def _parquet_copy(path: Path, records: int) -> pd.DataFrame:
    """A copy in Parquet; with its points where it has any. Its rows are counted before it is read:
    a small file may unpack to any size."""
    import pyarrow.parquet

    with open(path, "rb") as stream:
        head = pyarrow.parquet.read_metadata(stream)
    if head.num_rows != records:
        _no(path.name, "has another number of records than metadata.json says")
    geographic = b"geo" in (head.metadata or {})
    if not geographic:
        return _read_parquet(path)
    geopandas = needed("geopandas", "geo")
    with open(path, "rb") as stream:
        table: pd.DataFrame = geopandas.read_parquet(stream)
    return table
