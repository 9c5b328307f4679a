"""Tables larger than memory: Parquet, read by row groups.

Of the table only what the model needs comes into memory: coordinates, response, covariates and the
index, and from them the arrays of :class:`dsstan.Problem`. Every other column is read when it is
checked, one at a time, and when the copies are written, one row group at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from os import PathLike
from pathlib import Path
from time import perf_counter
from typing import Any, ClassVar

import pandas as pd

from dsstan.core.errors import InputError
from dsstan.core.progress import progress_bar
from dsstan.table.columns import check_names, columns_named, require_column
from dsstan.table.formats.parquet_source import ParquetSource, naming, open_source, wide
from dsstan.table.formulas.formula import parse
from dsstan.table.places.coordinates import from_columns, locate
from dsstan.table.prepare import prepare
from dsstan.table.problem import Problem
from dsstan.table.records.survey_weights import check_survey_column

__all__ = ["ParquetProblem", "prepare_parquet"]


@dataclass(frozen=True, eq=False, repr=False)
class ParquetProblem(Problem):
    """A checked table of which most columns stay in their Parquet file.

    What differs from :class:`dsstan.Problem`: ``table`` holds the index and the columns that the
    model needs, text among the covariates as categories; ``columns`` and ``types`` are of all. So
    ``Synthesis.table`` gives these columns, and ``Synthesis.write`` all.

    Attributes
    ----------
    parquet
        The files. They must stay as they are until the copies are written.
    """

    parquet: ParquetSource = field(kw_only=True)

    by_row_groups: ClassVar[bool] = True

    @property
    def columns(self) -> list[Any]:
        """Names of all columns of the files, but for the index, in their order."""
        return list(self.parquet.empty.columns)

    @property
    def types(self) -> dict[Any, str]:
        """Type of each of them, as pandas reads it."""
        return self.parquet.types

    def pieces(self, name: str) -> Iterator[pd.Series]:
        """One column, a row group or a part of it at a time."""
        if name in self.table.columns:
            yield self.table[name]
        else:
            self.parquet.check_unchanged()
            yield from self.parquet.column(name)


def prepare_parquet(
    path: str | PathLike[str],
    formula: str,
    *,
    coords: tuple[str, str] | None = None,
    distance: str | None = None,
    crs: Any = None,
    name: str | None = None,
    missing: str = "refuse",
    publish: Sequence[str] | None = None,
    survey_weights: str | None = None,
    time: str | None = None,
    also: Sequence[str] = (),
    progress: bool | None = None,
) -> ParquetProblem:
    """Check a Parquet file against a formula, with only the needed columns in memory.

    The files are read a row group at a time, and of a large one a part at a
    time. What is in memory at the end, for N records and P columns of X: ``X`` (N x P), ``y``,
    ``coords`` and ``sites`` (N x 2 each) as float64, ``site`` as int64, and the index and the
    needed columns in the types that the file has. The rest of the table never is. The arrays, the
    checks and their errors are those of :func:`dsstan.prepare`; rows in messages are counted over
    all files.

    Parameters
    ----------
    path
        A Parquet file, or a folder of nothing but Parquet files with the same columns, which are
        taken in the order of their names.
    formula, coords, distance, crs, missing, publish, survey_weights, time
        See :func:`dsstan.prepare`. ``coords`` can't be left out: points of a GeoParquet file are
        not read.
    name
        What the table is called in reports, by default the name of the file or folder.
    also
        Further columns to have in ``table``, such as weights for :func:`dsstan.own_weights` or
        what another regression of :func:`dsstan.utility` uses.
    progress
        Show progress; by default in a terminal.

    Returns
    -------
    ParquetProblem
        A :class:`dsstan.Problem` that every later stage takes. The index is the one that pandas
        stored, or the plain count over all files.

    Raises
    ------
    InputError
        If there is no such file, it can't be read as Parquet, or the files of a folder differ in
        their columns.
    FormulaError, CoordinateError, TableError
        As from :func:`dsstan.prepare`; also if there is no row group.
    """
    begin = perf_counter()
    place = Path(path).expanduser()
    source = open_source(place)
    parsed, empty = parse(formula), source.empty
    check_names([*empty.columns, *empty.index.names])
    if coords is None:
        locate(empty, coords, distance, crs)  # says that they are needed
    from_columns(empty, coords)
    tied = [column for column in (time, parsed.group) if column in empty.columns]
    for column in (parsed.response, *parsed.columns):
        require_column(column, empty, parsed.text)
    for column in also:
        if column not in empty.columns:
            raise InputError(f"there is no column {column!r} to be kept in memory")
    if survey_weights is not None:
        check_survey_column(survey_weights, empty.columns)
        also = (*also, survey_weights)
    named = columns_named(publish, empty.columns)
    needed = {parsed.response, *parsed.columns, *(coords or ()), *also, *tied}
    for column in source.schema:
        if getattr(column.type, "ordered", False):
            source.categories(column.name)  # refuses what has several orders
    table = _read(source, needed, set(parsed.columns), progress)
    problem = prepare(
        table,
        formula,
        coords=coords,
        distance=distance,
        crs=crs,
        name=place.stem if name is None else name,
        missing=missing,
        survey_weights=survey_weights,
        time=time,
    )
    own = {part.name: getattr(problem, part.name) for part in fields(Problem)}
    return replace(
        ParquetProblem(**own, parquet=source),
        publish=named,
        seconds=perf_counter() - begin,
    )


def _read(
    source: ParquetSource, needed: set[str], covariates: set[str], progress: bool | None
) -> pd.DataFrame:
    """The needed columns and the index, as pandas would read them; text in few bytes."""
    import pyarrow as pa
    import pyarrow.types as kind

    names = [name for name in source.schema.names if name in needed or name in source.index]
    types = {name: wide(source.schema.field(name).type) for name in names}
    text = {
        name
        for name in covariates
        if kind.is_string(types[name]) or kind.is_large_string(types[name])
    }
    parts: dict[str, list[Any]] = {name: [] for name in names}
    with progress_bar("reading", progress) as advance:
        for start, batch in source.pieces(names):
            for name, column in zip(names, batch.columns, strict=True):
                parts[name].append(column.dictionary_encode() if name in text else column)
            advance((start + batch.num_rows) / source.n_records)
    with naming(source.files[0]):
        columns = {
            name: pa.chunked_array(parts.pop(name), None if name in text else types[name])
            for name in names
        }
        whole = pa.table(columns).unify_dictionaries()
        del columns
        whole = whole.replace_schema_metadata(source.metadata_without(text))
        table: pd.DataFrame = whole.to_pandas(self_destruct=True, split_blocks=True)
    for name in text:  # in the order in which text becomes categories in dsstan.prepare
        levels = table[name].cat.categories
        table[name] = table[name].cat.reorder_categories(sorted(levels))
    table.attrs = {}
    return table
