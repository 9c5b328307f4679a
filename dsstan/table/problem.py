"""A checked table with the arrays of the model, which every later stage takes as they are."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dsstan.core.arrays import Floats, Indices, Truths
from dsstan.core.display import Card, Shown
from dsstan.core.errors import (
    InputError,
    describe_rows,
)
from dsstan.table.columns import (
    response_values,
    to_width,
)
from dsstan.table.formulas.formula import Design, ResponseTransform
from dsstan.table.places.coordinates import largest_distance
from dsstan.table.records.households import Households
from dsstan.table.records.structure import Structure
from dsstan.table.records.survey_weights import survey_weights_of

UNNAMED = "table"
"""What a table is called that has no name."""


@dataclass(frozen=True, eq=False, repr=False)
class Problem(Shown):
    """A table that has been checked, with the arrays of the model.

    Every array is read-only, float64 and C-contiguous, except ``site_index``, which is int64.

    Attributes
    ----------
    table
        Copy of the table as pandas, with its index, column order and dtypes.
    name
        What the table is called in reports.
    formula
        The formula as given.
    response
        Column that is modelled and synthesised.
    transform
        Transform from the response's own scale to the modelled scale.
    design
        Design matrix and formula, reusable for copies of the table.
    y
        Response on the modelled scale, shape (N,); NaN where it is missing.
    coords
        Coordinates as given, shape (N, 2).
    coord_names
        Their columns, x (or longitude) first.
    sites
        Planar coordinates in ``unit``, shape (N, 2).
    unit
        ``"degree"``, ``"kilometre"``, ``"metre"`` or ``"coordinate unit"``.
    distance
        ``"planar"``, ``"degrees"`` or ``"projected"``.
    crs
        Coordinate reference system of ``coords``, if known.
    sites_crs
        That of ``sites``, if known. Under ``"projected"`` it is the CRS before its
        coordinates are turned into kilometres.
    site_index
        Number of the distinct site of each record, shape (N,), in order of first appearance.
    seconds
        Wall time of the checks.
    source
        The table as it was given, where that was not pandas; else None.
    publish
        Columns that go out beside those of the formula and the coordinates; None where the
        caller named none.
    survey_weights
        Column with the survey weights, which goes out as it is; None where there are none.
    heap
        The value at which records are heaped, which have y = NaN; None without a heap.
    structure
        Times and groups of the records; None without any.
    households
        What was made of the rows of a household; None where each row is a record.
    """

    table: pd.DataFrame = field(repr=False)
    name: str
    formula: str
    response: str
    transform: ResponseTransform
    design: Design = field(repr=False)
    y: Floats = field(repr=False)
    coords: Floats = field(repr=False)
    coord_names: tuple[str, str]
    sites: Floats = field(repr=False)
    unit: str
    distance: str
    crs: str | None
    sites_crs: str | None
    site_index: NDArray[np.int64] = field(repr=False)
    seconds: float = field(repr=False, default=0.0)
    source: Any = field(repr=False, default=None)
    publish: tuple[str, ...] | None = field(repr=False, default=None)
    survey_weights: str | None = field(repr=False, default=None)
    heap: float | None = None
    structure: Structure | None = field(repr=False, default=None)
    households: Households | None = None

    by_row_groups: ClassVar[bool] = False
    """Whether ``table`` holds a part of the columns, and the others stay in their file."""

    @property
    def columns(self) -> list[Any]:
        """Names of all columns of the table that was given, in their order."""
        return list(self.table.columns)

    @property
    def types(self) -> dict[Any, str]:
        """Type of each of them, as pandas names it."""
        return {name: str(dtype) for name, dtype in self.table.dtypes.items()}

    def pieces(self, name: str) -> Iterator[pd.Series]:
        """One column of the table that was given, in pieces that follow one another."""
        yield self.table[name]

    @property
    def X(self) -> Floats:
        """Design matrix, shape (N, P)."""
        return self.design.X

    @property
    def terms(self) -> tuple[str, ...]:
        """Names of the P columns of X."""
        return self.design.terms

    @property
    def n_records(self) -> int:
        """N, the number of records."""
        return len(self.y)

    @property
    def n_terms(self) -> int:
        """P, the number of columns of X."""
        return len(self.terms)

    @property
    def n_sites(self) -> int:
        """Number of distinct sites."""
        return int(self.site_index.max()) + 1

    @property
    def n_coincident(self) -> int:
        """Number of records that share their site with another record."""
        counts = np.bincount(self.site_index)
        return int(counts[counts > 1].sum())

    @property
    def site(self) -> NDArray[np.int64]:
        """Old name of ``site_index``."""
        warnings.warn("Problem.site is now site_index", DeprecationWarning, stacklevel=2)
        return self.site_index

    @cached_property
    def effect_index(self) -> NDArray[np.int64]:
        """Number of the spatial effect of each record, shape (N,), in order of first appearance.

        Records that share their place, and their time and group where there are any, share it.
        """
        structure = self.structure
        return self.site_index if structure is None else structure.numbered(self.site_index)

    @cached_property
    def unique_sites(self) -> Floats:
        """Distinct sites, shape (n_sites, 2), in order of first appearance."""
        _, first = np.unique(self.site_index, return_index=True)
        return frozen(self.sites[first])

    @cached_property
    def d_max(self) -> float:
        """Largest distance between two sites, in ``unit``."""
        return largest_distance(self.unique_sites)

    @cached_property
    def observed(self) -> Truths:
        """Records whose response is there and not in the heap, shape (N,)."""
        return np.asarray(~np.isnan(self.y))

    @cached_property
    def in_heap(self) -> Truths:
        """Records in the heap, shape (N,)."""
        if self.heap is None:
            return np.zeros(self.n_records, dtype=bool)
        return np.asarray(self.original() == self.heap)

    @property
    def known(self) -> Truths:
        """Records whose response is there, in the heap or not, shape (N,)."""
        return np.asarray(self.observed | self.in_heap)

    @property
    def n_missing(self) -> int:
        """Records whose response is missing, to be drawn with the model."""
        return int(np.sum(~self.known))

    @cached_property
    def survey_weight_values(self) -> Floats | None:
        """How many members of the population each record stands for, shape (N,)."""
        if self.survey_weights is None:
            return None
        return frozen(survey_weights_of(self.table, self.survey_weights))

    def original(self) -> Floats:
        """Response of the table on its own scale, shape (N,); NaN where it is missing."""
        return response_values(self.table[self.response], self.response, missing=True)

    def without_heap(self) -> pd.DataFrame:
        """The table with a response that is missing in the heap."""
        return without(self.table, self.response, self.heap)

    def with_response(self, values: Floats) -> pd.DataFrame:
        """Copy of the table with another response.

        Parameters
        ----------
        values
            On the response's own scale, shape (N,). For an integer column they are rounded,
            halves to even, and clipped to the range of its dtype; for a float column they are
            brought to its width and clipped to its largest finite value; for a column of truth
            values they become True from above one half.

        Returns
        -------
        DataFrame
            With the index, column order and dtypes of ``table``.

        Raises
        ------
        InputError
            If there are not N values, or some are not finite.
        """
        values = np.asarray(values, dtype=np.float64)
        if values.shape != (self.n_records,):
            raise InputError(
                f"Needed one value a record, shape ({self.n_records},), and got shape "
                f"{values.shape}."
            )
        copy = self.table.copy()
        copy[self.response] = self.response_column(values)
        return copy

    def response_column(self, values: Floats) -> Any:
        """Any number of values as the response's column holds them; see :meth:`with_response`."""
        if not np.isfinite(values).all():
            raise InputError(
                f"The new values of {self.response!r} are missing or infinite in "
                f"{describe_rows(~np.isfinite(values))}. On the modelled scale they were too "
                f"large to be taken back through the inverse of {self.transform.name}."
            )
        dtype: Any = self.table[self.response].dtype
        width = np.dtype(getattr(dtype, "numpy_dtype", dtype))
        return pd.array(to_width(values, width), dtype=dtype)

    def _line(self) -> str:
        return f"Problem {self.name!r}: {self.formula}, {self.n_records} records"

    def _card(self) -> Card:
        gaps = f", response missing in {self.n_missing}" if self.n_missing else ""
        shared = f", {self.n_coincident} records share one" if self.n_coincident else ""
        crs = "".join(f", {crs}" for crs in dict.fromkeys([self.crs, self.sites_crs]) if crs)
        more = () if self.structure is None else self.structure.lines
        one = () if self.households is None else (("households", str(self.households)),)
        return Card(
            (
                ("formula", self.formula),
                ("response", f"{self.response}, modelled as {self.transform.name}"),
                ("records", f"{self.n_records}, design columns {self.n_terms}{gaps}"),
                ("sites", f"{self.n_sites} distinct{shared}"),
                ("distance", f"{self.distance}, in {self.unit}{crs}"),
                *(*more, *one),
            )
        )


def without(frame: pd.DataFrame, response: str, heap: float | None) -> pd.DataFrame:
    """The table with a response that is missing in the heap."""
    if heap is None:
        return frame
    values = response_values(frame[response], response)
    return frame.assign(**{response: np.where(values == heap, np.nan, values)})


def frozen(values: Floats) -> Floats:
    """Read-only C-contiguous copy."""
    copy = np.array(values, dtype=np.float64, order="C")
    copy.setflags(write=False)
    return copy


def require_complete(problem: Problem) -> None:
    """Refuse a problem whose response is missing in some records.

    Raises InputError if so: measures that compare a copy with each record's truth need one.
    """
    if problem.n_missing:
        raise InputError(
            f"this needs the response of every record and {problem.n_missing} have none: "
            "disclosure() and utility() take those that have one"
        )
    refuse_heap(problem)


def refuse_heap(problem: Problem) -> None:
    """Refuse a problem whose response has a heap.

    Raises InputError if so.
    """
    if problem.heap is not None:
        raise InputError(
            "this takes a response of one law, and this one has a heap: only "
            "dsstan.models.heaps.fit.fit_heaped fits it, and disclosure() and utility() measure it"
        )


def record_positions(problem: Problem, records: Sequence[int] | None) -> Indices:
    """Positions asked for, all if None; refused unless distinct whole numbers below N."""
    n = problem.n_records
    rows = np.arange(n) if records is None else np.asarray(records)
    whole = rows.ndim == 1 and rows.size > 0 and np.issubdtype(rows.dtype, np.number)
    whole = whole and np.array_equal(rows, np.rint(rows))
    if not (whole and rows.min() >= 0 and rows.max() < n and np.unique(rows).size == rows.size):
        raise InputError(f"records must be distinct positions, whole numbers from 0 to {n - 1}")
    return rows.astype(np.intp)
