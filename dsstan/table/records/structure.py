"""What records have beside a place that ties their spatial effects: a time, and a group."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dsstan.core.arrays import Floats, Indices
from dsstan.core.errors import InputError, TableError, describe_rows
from dsstan.core.spelling import spelled
from dsstan.table.columns import did_you_mean

__all__ = ["Structure", "read_structure"]


@dataclass(frozen=True, eq=False)
class Structure:
    """Times and groups of the records of one table; at least one of the two is there.

    Attributes
    ----------
    time, times
        Column of the time and its values, shape (N,), in ``time_unit``; None without one.
    time_unit
        ``"day"`` of dates, else the unit of the column.
    group, groups
        Column of the random intercept and the number of each record's group, shape (N,); None
        without one.
    """

    time: str | None = None
    times: Floats | None = field(repr=False, default=None)
    time_unit: str = ""
    group: str | None = None
    groups: NDArray[np.int64] | None = field(repr=False, default=None)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it was read from."""
        return tuple(name for name in (self.time, self.group) if name is not None)

    @property
    def n_times(self) -> int:
        """Number of distinct times; 0 without a time."""
        return 0 if self.times is None else np.unique(self.times).size

    @property
    def n_groups(self) -> int:
        """Number of groups; 0 without any."""
        return 0 if self.groups is None else int(self.groups.max()) + 1

    @property
    def latest(self) -> float | None:
        """The last time; None without a time."""
        return None if self.times is None else float(self.times.max())

    @property
    def lines(self) -> tuple[tuple[str, str], ...]:
        """What it holds, as names and values."""
        time = (("time", f"{self.time}, {self.n_times} distinct"),) if self.time else ()
        groups = (("groups", f"{self.n_groups} of {self.group}"),) if self.group else ()
        return (*time, *groups)

    def of(self, rows: Indices) -> Structure:
        """The same of some of the records."""
        groups = None
        if self.groups is not None:
            groups = np.unique(self.groups[rows], return_inverse=True)[1].astype(np.int64)
        times = None if self.times is None else self.times[rows]
        return Structure(self.time, times, self.time_unit, self.group, groups)

    def numbered(self, site_index: NDArray[np.int64]) -> NDArray[np.int64]:
        """Number of the distinct place, time and group of each record, by first appearance."""
        keys = [site_index]
        if self.times is not None:
            keys.append(np.unique(self.times, return_inverse=True)[1])
        if self.groups is not None:
            keys.append(self.groups)
        _, first, number = np.unique(
            np.column_stack(keys), axis=0, return_index=True, return_inverse=True
        )
        return np.argsort(np.argsort(first))[number.ravel()].astype(np.int64)


def read_structure(
    frame: pd.DataFrame,
    *,
    time: str | None,
    group: str | None,
    response: str,
    coords: Collection[str],
    categories: Collection[str] = (),
) -> Structure | None:
    """Times and groups from the columns of a table; None where there are none.

    Parameters
    ----------
    frame
        The table.
    time
        Column of the time, numbers or dates.
    group
        Column of the random intercept, of any kind.
    response, coords
        Columns that can be neither.
    categories
        Columns whose levels have fixed effects.

    Raises
    ------
    InputError
        If a column is not there, or is the response or a coordinate.
    TableError
        If a time or a group is missing, times are no numbers or dates or all the same, or there
        is one group or as many as records.
    """
    if time is None and group is None:
        return None
    for what, name in (("time", time), ("the random intercept", group)):
        if name is None:
            continue
        if name not in frame.columns:
            guess = did_you_mean(str(name), frame.columns)
            raise InputError(f"{what} names {name!r}, which is no column of the table.{guess}")
        if name == response or name in coords:
            kind = "the response" if name == response else "a coordinate"
            raise InputError(f"{what} names {name!r}, which is {kind}: name another column")
        _no_gaps(frame[name], f"{what[0].upper()}{what[1:]}")
    times, unit = (None, "") if time is None else _times(frame[time], time)
    groups = None if group is None else _groups(frame[group], group, group in categories)
    return Structure(time, times, unit, group, groups)


def _no_gaps(column: pd.Series, what: str) -> None:
    """Every record needs its own."""
    missing = column.isna().to_numpy(dtype=bool)
    if missing.any():
        raise TableError(
            f"{what} {column.name!r} is missing in {describe_rows(missing)}. Fill it in, or drop "
            "these rows."
        )


def _times(column: pd.Series, name: str) -> tuple[Floats, str]:
    """Times as numbers, and their unit."""
    kind, unit = pd.api.types, f"unit of {name}"
    dtype: Any = column.dtype
    if kind.is_datetime64_any_dtype(dtype) or not kind.is_numeric_dtype(dtype):
        written = None if kind.is_datetime64_any_dtype(dtype) else "ISO8601"
        try:
            dates = pd.to_datetime(column, format=written, utc=True)
        except (TypeError, ValueError):
            raise TableError(
                f"Time {name!r} must hold numbers, such as years, or dates, such as 2018-03-31, "
                f"and has dtype {dtype}. Convert it first."
            ) from None
        days = (dates - dates.min()) / pd.Timedelta(days=1)
        values, unit = np.asarray(days, dtype=np.float64), "day"
    elif kind.is_bool_dtype(dtype) or kind.is_complex_dtype(dtype):
        raise TableError(f"Time {name!r} must hold numbers or dates and has dtype {dtype}.")
    else:
        values = column.to_numpy(dtype=np.float64)
    if not np.isfinite(values).all():
        raise TableError(f"Time {name!r} is infinite in {describe_rows(~np.isfinite(values))}.")
    if np.ptp(values) == 0.0:
        raise TableError(
            f"Time {name!r} is the same in every row, so nothing can be learnt about time: leave "
            f"{spelled('time', name)} out."
        )
    values.setflags(write=False)
    return values, unit


def _groups(column: pd.Series, name: str, fixed: bool) -> NDArray[np.int64]:
    """Number of each record's group."""
    term = f"(1 | {name})"
    if fixed:
        raise TableError(
            f"Column {name!r} is a category of the formula and the group of {term}: each of its "
            "levels has an effect already. Take one of the two out."
        )
    groups, levels = pd.factorize(column)
    if not 1 < len(levels) < len(column):
        why = "one group" if len(levels) == 1 else "as many groups as records"
        raise TableError(
            f"Column {name!r} of {term} makes {why}, so nothing can be learnt about groups: take "
            f"{term} out of the formula."
        )
    found = groups.astype(np.int64)
    found.setflags(write=False)
    return found
