"""Copies of a table that is read by row groups, written by row groups."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dsstan.core.errors import ReleaseError
from dsstan.core.progress import progress_bar
from dsstan.table.parquet import ParquetProblem

AT_ONCE = 4
"""Copies that one reading of the source writes; each holds its synthetic values."""

_KEPT = ("timezone", "precision", "scale", "encoding")
"""What pandas may say of a type in the metadata of a copy, beside the number of categories."""


def write_copies(
    problem: ParquetProblem,
    paths: Sequence[Path],
    columns: Sequence[str],
    made: Callable[[int], pd.DataFrame],
) -> None:
    """Write the copies, each a row group or a part of it at a time.

    A copy has the columns of the source in their order, with their types, and its rows in their
    order; the index of pandas stays where it is. What is not a value is left out: metadata of the
    schema and of columns, and categories that no record has.

    Raises ReleaseError if the source changed since it was prepared; InputError if it can't be read.

    Parameters
    ----------
    problem
        The prepared table.
    paths
        One for each of the L copies.
    columns
        Those that are published; the index is published too.
    made
        The synthetic columns of a copy by its number, from 0; N rows, as they are published.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    source = problem.parquet
    source.check_unchanged()
    names = [n for n in source.schema.names if n in columns or n in source.index]
    first = made(0)
    with progress_bar("writing: copies") as advance:
        categories = {
            name: source.categories(name)
            for name in names
            if name not in first and pa.types.is_dictionary(source.schema.field(name).type)
        }
        schema = _schema(problem, names, first, categories)
        kept = [name for name in names if name not in first]
        for begin in range(0, len(paths), AT_ONCE):
            numbers = range(begin, min(begin + AT_ONCE, len(paths)))
            values = [_arrays(made(number), schema) for number in numbers]
            with ExitStack() as stack:
                writers = []
                for number in numbers:
                    stream = stack.enter_context(open(paths[number], "wb"))
                    writers.append(stack.enter_context(pq.ParquetWriter(stream, schema)))
                for start, batch in source.pieces(kept):
                    _check_places(problem, batch, start)
                    same = dict(zip(kept, batch.columns, strict=True))
                    same |= {
                        n: _coded(same[n], schema.field(n).type, c) for n, c in categories.items()
                    }
                    for writer, own in zip(writers, values, strict=True):
                        mine = {n: a.slice(start, batch.num_rows) for n, a in own.items()}
                        parts = [mine[n] if n in mine else same[n] for n in names]
                        writer.write_table(pa.Table.from_arrays(parts, schema=schema))
                    done = (start + batch.num_rows) / problem.n_records
                    advance((begin + done * len(numbers)) / len(paths))
    source.check_unchanged()


def _check_places(problem: ParquetProblem, batch: Any, start: int) -> None:
    """The records must be where they were: their coordinates, to the last bit."""
    for k, name in enumerate(problem.coord_names):
        there = batch.column(name).to_numpy(zero_copy_only=False).astype(np.float64)
        if not np.array_equal(there, problem.coords[start : start + batch.num_rows, k]):
            raise ReleaseError(
                "the Parquet files hold other records than were prepared, so the copies would not "
                "fit the model: prepare and fit again"
            )


def _arrays(made: pd.DataFrame, schema: Any) -> dict[str, Any]:
    """Synthetic columns for Arrow."""
    import pyarrow as pa

    return {
        str(name): pa.array(made[name], schema.field(name).type, from_pandas=True) for name in made
    }


def _coded(column: Any, type_: Any, categories: Any) -> Any:
    """Categories of one piece by the codes that all pieces share."""
    import pyarrow as pa
    import pyarrow.compute as pc

    codes = pc.index_in(column.dictionary, value_set=categories).take(column.indices)
    codes = codes.cast(type_.index_type)
    return pa.DictionaryArray.from_arrays(codes, categories, ordered=type_.ordered)


def _schema(
    problem: ParquetProblem, names: Sequence[str], made: pd.DataFrame, categories: dict[str, Any]
) -> Any:
    """Schema of the copies: types of the source, and what pandas needs to read them so."""
    import pyarrow as pa

    own = pa.Schema.from_pandas(made, preserve_index=False)
    fields = []
    for name in names:
        type_ = (own if name in made else problem.parquet.schema).field(name).type
        fields.append(pa.field(name, type_))
    schema = pa.schema(fields)
    said = problem.parquet.schema.pandas_metadata
    if not said:
        return schema
    fresh = {one["field_name"]: one for one in own.pandas_metadata["columns"]}
    stored = {one.get("field_name"): one for one in said["columns"]}
    described = [
        fresh[name] if name in fresh else _described(stored[name], categories.get(name), schema)
        for name in names
        if name in fresh or name in stored
    ]
    index: list[Any] = list(problem.parquet.index)
    counted = problem.table.index
    if not index and isinstance(counted, pd.RangeIndex):
        ends = {"start": counted.start, "stop": counted.stop, "step": counted.step}
        index = [{"kind": "range", "name": counted.name, **ends}]
    content = {
        **{
            key: own.pandas_metadata[key] for key in ("column_indexes", "creator", "pandas_version")
        },
        "index_columns": index,
        "columns": described,
    }
    return schema.with_metadata({b"pandas": json.dumps(content).encode()})


def _described(stored: dict[str, Any], categories: Any, schema: Any) -> dict[str, Any]:
    """What pandas says of one column, without what is not of its type."""
    more = {k: v for k, v in (stored.get("metadata") or {}).items() if k in _KEPT}
    if categories is not None:
        ordered = schema.field(stored["field_name"]).type.ordered
        more = {"num_categories": len(categories), "ordered": ordered}
    same = {key: stored.get(key) for key in ("name", "field_name", "pandas_type", "numpy_type")}
    return {**same, "metadata": more or None}
