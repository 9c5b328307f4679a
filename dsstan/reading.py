"""Read what others wrote: the steward's table, and a public release.

Both are taken as data and as possibly hostile. Nothing is unpickled, evaluated or fetched, and
whatever is wrong ends in one of dsstan's own errors.
"""

from __future__ import annotations

import csv
import json
import re
import stat
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pandas as pd

from dsstan._metadata import check_metadata
from dsstan.cells import unquote
from dsstan.errors import InputError, ReleaseError

__all__ = ["PublicRelease", "read_release", "read_table"]

_MOST_METADATA = 10_000_000
_PLAIN = re.compile(r"[uU]?[iI]nt(8|16|32|64)|[fF]loat(16|32|64)|bool|boolean|str|string|category")
_DATE = re.compile(r"datetime64\[\w+\]")


def read_table(path: Path) -> pd.DataFrame:
    """The table of a CSV or Parquet file.

    A CSV is read so that the copies can repeat it: numbers to the last digit, and a column of
    whole numbers with leading zeros (a postcode) as text.

    Raises
    ------
    InputError
        If there is no such file, its kind is unknown, or it can't be read without a guess: rows
        longer than the header, or column names that repeat.
    """
    readers: dict[str, Any] = {".csv": _read_csv, ".parquet": _read_parquet, ".pq": _read_parquet}
    kind = path.suffix.lower()
    reader = readers.get(kind)
    if reader is None:
        raise InputError(f"{path.name} is neither .csv nor .parquet")
    if not path.is_file():
        raise InputError(f"there is no file {path}")
    try:
        table: pd.DataFrame = reader(path)
    except (InputError, MemoryError):
        raise
    except Exception as error:  # of many kinds, and their texts may hold values
        raise InputError(f"{path.name} can't be read as {kind}: {type(error).__name__}") from None
    return table


def _read_parquet(path: Path) -> pd.DataFrame:
    """A Parquet file; opened first, since Arrow takes no path that is not UTF-8."""
    with open(path, "rb") as stream:
        return pd.read_parquet(stream)


def _read_csv(path: Path) -> pd.DataFrame:
    """A CSV file, its numbers to the last digit: copies repeat all columns but one."""
    with open(path, newline="", encoding="utf-8-sig") as stream:
        header = next(csv.reader(stream), [])
    repeated = sorted({name for name in header if header.count(name) > 1})
    if repeated:
        raise InputError(f"{path.name} has several columns named {repeated[0]!r}: rename them")
    table = _parsed(path, float_precision="round_trip", low_memory=False)
    if not table.index.equals(pd.RangeIndex(len(table))):
        raise InputError(f"{path.name} has rows with more cells than its header has names")
    whole = [name for name in table.columns if pd.api.types.is_integer_dtype(table[name].dtype)]
    if whole:
        texts = _parsed(path, usecols=whole, dtype=str, keep_default_na=False)
        for name in whole:
            if texts[name].str.fullmatch(r"\s*[-+]?0\d+\s*").any():
                table[name] = texts[name]
    return table


def _parsed(path: Path, **options: Any) -> pd.DataFrame:
    """What pandas reads."""
    with warnings.catch_warnings():
        # pandas 3.1 is exact by itself, and deprecates what older ones need.
        warnings.filterwarnings("ignore", "The 'float_precision'")
        table: pd.DataFrame = pd.read_csv(path, **options)
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

    @property
    def synthetic_column(self) -> str:
        """The column whose values are synthetic."""
        return str(self.metadata["synthetic_column"])

    def __repr__(self) -> str:
        return (
            f"PublicRelease: {len(self.copies)} copies of {self.metadata['records']} records, "
            f"{self.synthetic_column!r} synthetic"
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
    if (public / "public").is_dir():
        public = public / "public"
    metadata = _metadata(public)
    copies = tuple(_copy(public, name, metadata) for name in metadata["files"])
    for name, copy in zip(metadata["files"], copies, strict=True):
        others = copy.drop(columns=metadata["synthetic_column"])
        first = copies[0].drop(columns=metadata["synthetic_column"])
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
    columns, response = metadata["columns"], metadata["synthetic_column"]
    try:
        if name.endswith(".csv"):
            copy = _csv_copy(path, columns, metadata["index_columns"])
        else:
            copy = _parquet_copy(path)
    except MemoryError:
        raise
    except Exception as error:  # of many kinds
        _no(name, f"can't be read ({type(error).__name__})")
    if list(map(str, copy.columns)) != list(columns):
        _no(name, "has other columns than metadata.json says")
    if len(copy) != metadata["records"]:
        _no(name, "has another number of records than metadata.json says")
    if metadata["csv_text"] == "quoted" and name.endswith(".csv"):
        copy = unquote(copy)
    values = copy[response]
    if (
        not pd.api.types.is_numeric_dtype(values.dtype)
        or not np.isfinite(values.to_numpy(dtype=np.float64, na_value=np.nan)).all()
    ):
        _no(name, f"has no finite numbers in {response!r}")
    return copy


def _csv_copy(path: Path, columns: Mapping[str, Any], leading: int) -> pd.DataFrame:
    """A copy in CSV, with the types that CSV can carry."""
    types = {}
    for name, dtype in columns.items():
        if _PLAIN.fullmatch(dtype):
            types[name] = dtype
        elif dtype == "object" or dtype.startswith("geometry"):
            types[name] = "str"
    table = _parsed(
        path,
        dtype=types,
        index_col=list(range(leading)) or False,
        parse_dates=[name for name, dtype in columns.items() if _DATE.fullmatch(dtype)],
        keep_default_na=False,
        na_values=[""],
        float_precision="round_trip",
        low_memory=False,
    )
    for name, dtype in columns.items():
        if _DATE.fullmatch(dtype):
            table[name] = table[name].astype(dtype)
    return table


def _parquet_copy(path: Path) -> pd.DataFrame:
    """A copy in Parquet; with its points where it has any."""
    import pyarrow.parquet

    with open(path, "rb") as stream:
        geographic = b"geo" in (pyarrow.parquet.read_schema(stream).metadata or {})
    if not geographic:
        return _read_parquet(path)
    import geopandas

    with open(path, "rb") as stream:
        table: pd.DataFrame = geopandas.read_parquet(stream)
    return table
