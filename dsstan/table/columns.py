"""Tables as pandas and their columns as arrays, with the checks that keep y and X fit to model."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.linalg import qr, solve_triangular

from dsstan.core.arrays import Floats, Indices, Truths
from dsstan.core.errors import CONTROL, FormulaError, InputError, TableError, describe_rows
from dsstan.core.spelling import PYTHON, spelled, surface

LARGEST = 1e100
"""Absolute value of a response beyond which its square overflows."""

COLLINEAR_TOLERANCE = 1e-10
"""A column is dependent when this share of its length, or less, is new to the others."""


MIN_RECORDS = 3
"""Fewest records that can be modelled."""

MOST_TERMS = 60
"""Most columns of X: the surface interpolates (P + 1)(P + 2) / 2 statistics at each node."""


_NUMBER = re.compile(r"[-+]?\W{0,2}\d[\d\s.,'’]*(e[-+]?\d+)?\W{0,2}", re.IGNORECASE)
"""What a reader takes for a number, whatever its decimal sign and its unit."""


def check_names(names: Sequence[Any]) -> None:
    """Refuse names that a terminal would obey: of the columns, then of the index."""
    odd = [k for k, name in enumerate(names, 1) if isinstance(name, str) and CONTROL.search(name)]
    if odd:
        raise TableError(
            f"The name of column {odd[0]} (the names of the index count after the columns) holds "
            "control characters, such as a line break or an escape. Rename it."
        )


def did_you_mean(name: str, columns: Iterable[Any]) -> str:
    """The column whose name is nearest, as the end of an error; empty where none is near."""
    close = difflib.get_close_matches(name, map(str, columns), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def columns_named(publish: Sequence[str] | None, columns: Iterable[Any]) -> tuple[str, ...] | None:
    """The columns that a caller names for publication, each once; None where nothing was said.

    Raises InputError if they are no list of names, or the table lacks one.
    """
    if publish is None:
        return None
    if isinstance(publish, str) or not all(isinstance(name, str) for name in publish):
        raise InputError(f'publish must be a list of columns, such as ["year"], got {publish!r}')
    there = list(columns)
    for name in publish:
        if name not in there:
            guess = did_you_mean(name, there)
            raise InputError(f"publish names {name!r}, which is no column of the table.{guess}")
    return tuple(dict.fromkeys(publish))


def require_column(name: str, table: pd.DataFrame, text: str) -> None:
    """Raise FormulaError unless a column of the formula is in the table."""
    if name not in table.columns:
        columns = [str(column) for column in table.columns]
        guess = did_you_mean(name, columns)
        listed = ", ".join(columns[:10]) + (", ..." if len(columns) > 10 else "")
        raise FormulaError(
            f"The formula {text!r} uses column {name!r}, which the table does not have.{guess} "
            f"Its columns: {listed}."
        )


def covariate(column: pd.Series, name: str, *, category: bool = False) -> Any:
    """One column of the right side, N rows, as float64 numbers or as categories.

    With ``category`` its numbers are used as categories only.

    Raises TableError if values are missing, a category has no record, or the kind cannot be used.
    """
    missing = column.isna().to_numpy(dtype=bool)
    if missing.any():
        raise TableError(
            f"Column {name!r} of the formula has missing values in {describe_rows(missing)}. "
            "Drop or impute these rows, or take the column out of the formula."
        )
    if isinstance(column.dtype, pd.CategoricalDtype):
        unused = len(column.cat.categories) - column.nunique()
        if unused:
            raise TableError(
                f"Column {name!r} has {unused} of {len(column.cat.categories)} categories "
                "without a record, so their effect cannot be estimated. Use "
                f"table[{name!r}].cat.remove_unused_categories() first."
            )
        return pd.Categorical(column)
    if column.dtype == object:
        try:
            column = column.infer_objects()
        except UnicodeError:
            raise TableError(
                f"Column {name!r} holds text that is no Unicode (a lone surrogate), as a file read "
                "in a wrong encoding does. Read it in the right one."
            ) from None
    kind = pd.api.types
    if category and kind.is_integer_dtype(column.dtype):
        return pd.Categorical(column.to_numpy(dtype=np.int64))  # named 2, not 2.0
    if kind.is_numeric_dtype(column.dtype) and not kind.is_complex_dtype(column.dtype):
        return column.to_numpy(dtype=np.float64)
    if kind.infer_dtype(column, skipna=False) == "string":
        return pd.Categorical(column.astype(object))
    raise TableError(
        f"Column {name!r} has dtype {column.dtype}; the formula needs numbers, text or "
        "categories. Convert it, for example with astype(float) or astype('category')."
    )


def factorized(column: pd.Series) -> tuple[NDArray[np.int64], Any]:
    """The number of each value, shape (N,), -1 where it is missing; and the values."""
    try:
        codes, values = pd.factorize(column)
    except TypeError:  # cells that can't be hashed, such as lists or shapes
        codes, values = pd.factorize(column.astype(str).where(column.notna()))
    return codes.astype(np.int64), values


def to_numbers_in_words(column: pd.Series) -> str:
    """What to do with a column that must hold numbers and does not; none of its values is shown."""
    text = column.map(lambda value: isinstance(value, str)).to_numpy(dtype=bool)
    no_number = (
        text & ~column.map(lambda value: bool(_NUMBER.fullmatch(str(value).strip()))).to_numpy()
    )
    if not no_number.any() or no_number.all():
        return "Convert it first, for example with astype(float)."
    missing = 'make it missing with pd.to_numeric(column, errors="coerce")'
    if surface() != PYTHON:
        missing = f"empty the cell, or in a text file say so: {spelled('na', ['TEXT'])}"
    return (
        f"It holds text that is no number in {describe_rows(no_number)}: correct it or, where it "
        f"means that the value is missing, {missing}."
    )


def response_values(column: pd.Series, name: str, *, missing: bool = False) -> Floats:
    """Response on its own scale as float64, shape (N,); NaN where it may be missing and is.

    Raises TableError if the column holds neither numbers nor truth values, or has missing or
    infinite values.
    """
    kind = pd.api.types
    numeric = any(
        is_kind(column.dtype)
        for is_kind in (kind.is_integer_dtype, kind.is_float_dtype, kind.is_bool_dtype)
    )
    if not numeric or isinstance(column.dtype, pd.SparseDtype):
        raise TableError(
            f"Response {name!r} must hold integers or floats and has dtype {column.dtype}. "
            f"{to_numbers_in_words(column)}"
        )
    values: Floats = column.to_numpy(dtype=np.float64, na_value=np.nan)
    for bad, what in ((np.isnan(values), "missing"), (np.isinf(values), "infinite")):
        if bad.any() and not (missing and what == "missing"):
            draw = (
                f", or have them drawn: {spelled('missing', 'draw')}" if what == "missing" else ""
            )
            raise TableError(
                f"Response {name!r} has {what} values in {describe_rows(bad)}. Drop or correct "
                f"these rows first{draw}."
            )
    large = np.abs(values) > LARGEST
    if large.any():
        raise TableError(
            f"Response {name!r} has values beyond {LARGEST:g} in {describe_rows(large)}, whose "
            "squares no computer holds. Correct them, or take another unit."
        )
    return values


def check_matrix(X: Floats, owners: list[str], names: list[str], text: str) -> None:
    """Refuse a design matrix with infinite values, or of less than full column rank.

    Raises FormulaError if X has no column; TableError if X has too few rows, values that are not
    finite, or a constant or collinear column.

    Parameters
    ----------
    X
        Design matrix, shape (N, P).
    owners
        Formula term that each column of X belongs to, P of them. Columns are named by their
        term in messages, because a column's own name may hold a category of the data.
    names
        Every term of the formula's right side.
    text
        The formula.
    """
    if X.shape[1] > MOST_TERMS:
        raise TableError(
            f"The formula {text!r} makes {X.shape[1]} columns, and at most {MOST_TERMS} can be "
            "fitted: a category with many levels, such as a postcode, makes one for each. Merge "
            "levels, or leave it out; the spatial effect knows the place."
        )
    if not X.shape[1]:
        raise FormulaError(f"The right side of {text!r} gives no column. Use '1' at least.")
    if len(X) < X.shape[1] + 2:
        raise TableError(
            f"The table has {len(X)} records and the formula {text!r} gives {X.shape[1]} "
            f"columns; at least {X.shape[1] + 2} records are needed. Use a shorter formula."
        )
    finite: Truths = np.isfinite(X)
    rows = np.asarray(np.logical_not(finite).any(axis=1))
    if not finite.all():
        term = owners[int(np.argmin(finite.all(axis=0)))]
        raise TableError(
            f"Term {term!r} of the formula is infinite or undefined in {describe_rows(rows)}: a "
            "log or root of a value out of range, a division by zero, or a constant column that "
            "was scaled. Correct the column, or take the term out."
        )
    for j, term in enumerate(owners):
        constant = np.ptp(X[:, j]) == 0.0 if len(X) else False
        if constant and term != "1" and ("1" in owners or X[0, j] == 0.0):
            raise TableError(
                f"Term {term!r} of the formula has the same value in every row, so its effect "
                "cannot be separated from the intercept. Take it out."
            )
    missing = [name for name in names if name not in owners]
    if missing:
        raise TableError(
            f"Term {missing[0]!r} of the formula has a single category, so it has no effect to "
            "estimate. Take it out."
        )
    lengths = np.linalg.norm(X, axis=0)
    _, R, order = qr(X / lengths, mode="economic", pivoting=True)
    rank = int(np.sum(np.abs(np.diag(R)) > COLLINEAR_TOLERANCE))
    if rank < X.shape[1]:
        weights = solve_triangular(R[:rank, :rank], R[:rank, rank])
        involved = [owners[order[k]] for k in np.flatnonzero(np.abs(weights) > 1e-6)]
        dependent = owners[order[rank]]
        others = dict.fromkeys("Intercept" if term == "1" else term for term in involved)
        raise TableError(
            f"Terms are collinear: a column of {dependent!r} is a combination of columns of "
            f"{', '.join(map(repr, others))} (to a relative {COLLINEAR_TOLERANCE:g}). Take one "
            "of them out, or centre a column that varies little for its size."
        )


def to_width(values: Floats, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Values in an integer or float dtype, rounded half to even and clipped to its range."""
    if dtype.kind == "f":
        top = float(np.finfo(dtype).max)
        return np.clip(values, -top, top).astype(dtype)
    if dtype.kind == "b":
        return np.clip(np.rint(values), 0.0, 1.0).astype(dtype)
    bounds = np.iinfo(dtype)
    rounded = np.clip(np.rint(values), float(bounds.min), float(bounds.max))
    # float(bounds.max) of a 64-bit dtype is one more than it can hold.
    at_top = rounded >= float(bounds.max)
    whole = np.where(at_top, 0.0, rounded).astype(dtype)
    whole[at_top] = bounds.max
    return whole


def as_pandas(table: Any) -> pd.DataFrame:
    """Copy of a table as pandas."""
    if isinstance(table, pd.DataFrame):  # a GeoDataFrame is one too
        return table.copy()
    import narwhals as nw

    try:
        arrow = nw.from_native(table, eager_only=True).to_arrow()
    except TypeError:
        lazy = hasattr(table, "collect")
        raise TableError(
            "Needed a pandas, GeoPandas, polars or pyarrow table and got "
            f"{type(table).__module__}.{type(table).__name__}. "
            + ("Call collect() on it first." if lazy else "Convert it to one of these first.")
        ) from None
    return arrow_to_pandas(arrow)


def taken(table: Any, rows: Indices, columns: Collection[Any]) -> Any:
    """Rows and columns of a table that narwhals reads."""
    import narwhals as nw

    return nw.from_native(table, eager_only=True)[
        [int(row) for row in rows], [*columns]
    ].to_native()


def arrow_to_pandas(arrow: Any) -> pd.DataFrame:
    """pandas table of an arrow table; whole numbers and booleans with gaps stay what they are."""
    import pyarrow as pa

    nullable = {
        **{getattr(pa, f"int{n}")(): getattr(pd, f"Int{n}Dtype")() for n in (8, 16, 32, 64)},
        **{getattr(pa, f"uint{n}")(): getattr(pd, f"UInt{n}Dtype")() for n in (8, 16, 32, 64)},
        pa.bool_(): pd.BooleanDtype(),
    }
    frame: pd.DataFrame = arrow.to_pandas()
    for name in arrow.column_names:
        column = arrow.column(name)
        if name in frame.columns and column.null_count and column.type in nullable:
            frame[name] = column.to_pandas(types_mapper=nullable.get).array
    return frame


def plain_index(index: pd.Index) -> bool:
    """Whether an index is the plain count, which is not written."""
    return bool(index.name is None and index.equals(pd.RangeIndex(len(index))))


def check_frame(frame: pd.DataFrame) -> None:
    """Rows and labels that every later stage relies on."""
    if frame.columns.nlevels > 1:
        raise TableError("Column names have several levels. Flatten them to one level of text.")
    repeated = frame.columns[frame.columns.duplicated()]
    if len(repeated):
        raise TableError(f"Column {str(repeated[0])!r} occurs more than once. Rename or drop it.")
    check_names([*frame.columns, *frame.index.names])
    if len(frame) < MIN_RECORDS:
        raise TableError(
            f"The table has {len(frame)} rows; at least {MIN_RECORDS} records are needed."
        )
    if frame.index.has_duplicates:
        raise TableError(
            "Index labels must be unique, so that records can be distinguished; they "
            f"repeat in {describe_rows(frame.index.duplicated(keep=False))}. Use "
            "table.reset_index(drop=True) first."
        )
