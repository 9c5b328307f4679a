"""Check a table once and hand every later stage the same arrays.

``prepare`` is the only door into the package: what it returns has been checked, so the later
stages need no checks of their own.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from time import perf_counter
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dsstan.core.arrays import Floats, Indices, Truths
from dsstan.core.display import Card, Shown
from dsstan.core.errors import (
    CoordinateError,
    FormulaError,
    InputError,
    TableError,
    describe_rows,
)
from dsstan.core.spelling import spelled
from dsstan.table.columns import (
    MIN_RECORDS,
    as_pandas,
    check_frame,
    columns_named,
    require_column,
    response_values,
    taken,
    to_width,
)
from dsstan.table.coordinates import geometry_name, largest_distance, locate, site_numbers
from dsstan.table.formulas.formula import Design, ResponseTransform, build_design, parse
from dsstan.table.heaps import HeapLike, read_heap
from dsstan.table.households import Households, one_row_each
from dsstan.table.structure import Structure, read_structure
from dsstan.table.survey_weights import survey_weights_of

UNNAMED = "table"
"""What a table is called that has no name."""

MISSING = ("refuse", "draw")


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
        return _frozen(self.sites[first])

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
        return _frozen(survey_weights_of(self.table, self.survey_weights))

    def original(self) -> Floats:
        """Response of the table on its own scale, shape (N,); NaN where it is missing."""
        return response_values(self.table[self.response], self.response, missing=True)

    def without_heap(self) -> pd.DataFrame:
        """The table with a response that is missing in the heap."""
        return _without(self.table, self.response, self.heap)

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
        if not np.isfinite(values).all():
            raise InputError(
                f"The new values of {self.response!r} are missing or infinite in "
                f"{describe_rows(~np.isfinite(values))}. On the modelled scale they were too "
                f"large to be taken back through the inverse of {self.transform.name}."
            )
        copy = self.table.copy()
        dtype: Any = copy[self.response].dtype
        width = np.dtype(getattr(dtype, "numpy_dtype", dtype))
        copy[self.response] = pd.array(to_width(values, width), dtype=dtype)
        return copy

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


def prepare(
    table: Any,
    formula: str,
    *,
    coords: tuple[str, str] | None = None,
    distance: str | None = None,
    crs: Any = None,
    name: str | None = None,
    missing: str = "refuse",
    publish: Sequence[str] | None = None,
    survey_weights: str | None = None,
    heap: HeapLike | None = None,
    time: str | None = None,
    household: str | None = None,
) -> Problem:
    """Check a table against a formula and build the arrays of the model.

    Parameters
    ----------
    table
        pandas DataFrame; GeoDataFrame of points; or any eager table that narwhals reads,
        such as polars or pyarrow. Taken as it is: no row is dropped (but by ``household``) and
        nothing rescaled.
    formula
        Such as ``"log(price) ~ scale(log(squarefeet))"``; see
        :func:`dsstan.table.formulas.formula.parse`. ``(1 | zip)`` adds a random intercept.
    coords
        The two coordinate columns, x (or longitude) first. Leave out for a GeoDataFrame.
    distance
        How distance is measured. ``"planar"`` (the default) takes the coordinates as they
        are. Longitudes and latitudes need a choice: ``"projected"`` projects them to the UTM
        zone of their middle, in kilometres, or where distances there are more than 0.5% off
        to the truest of some planes about their middle; ``"degrees"`` takes them as planar,
        in degrees, as the paper does. With a projected CRS ``"projected"`` turns its unit into
        kilometres, and projects anew, with a warning, where its distances are more than 0.5%
        off. Coordinates count as longitude and latitude when ``crs`` is geographic,
        or when it is None, a column's name says so (``lon``, ``site_lat``, ``gpsLongitude``) and
        most values could be degrees. Other columns whose values look like degrees need a word:
        ``crs``, or ``distance="planar"``.
    crs
        Coordinate reference system of the coordinates, anything pyproj reads. Without it
        ``"projected"`` takes longitudes and latitudes as EPSG:4326.
    name
        What the table is called in reports; by default what the loader of an example
        called it (``table.attrs["name"]``), else ``"table"``.
    missing
        What to do where the response is missing: ``"refuse"``, or ``"draw"``: the fit takes
        the records that have it, and the others are drawn with the model; see
        :func:`dsstan.synthesise`.
    publish
        Columns to publish as they are, beside those of the formula, the coordinates and the time.
        No other column leaves with the copies.
    survey_weights
        Column that says how many members of the population each record stands for, not to be
        confused with risk weights. It goes out as it is; :func:`dsstan.utility` and
        :func:`dsstan.risk.identification.identification` use it, and the model only if the
        formula does.
    heap
        A value that many records share, such as 0: a number, ``"cap"`` for the largest value or
        ``"floor"`` for the smallest. The formula, a ``log()`` included, is then for the other
        records; see :func:`dsstan.models.heaps.fit.fit_heaped`.
    time
        Column of the time of each record, numbers or dates, where a place has records of several:
        the correlation of the spatial effect then falls with the time between two records as well.
        The column is published as it is.
    household
        Column that numbers the households, where a row is a person and the response and whatever
        else is published belong to the household; ``"site"``, where there is no such column, takes
        the rows of a place for one. Each household is one record then, in the model, in the copies
        and in every measure. A column that differs within a household is refused if the release
        needs it, and else left out.

    Returns
    -------
    Problem

    Raises
    ------
    FormulaError
        If the formula cannot be read or does not fit the table.
    CoordinateError
        If coordinates are missing, impossible, swapped, or of an undecided unit; or if distances
        in their CRS are more than 5% off and ``distance`` is left out.
    TableError
        If rows or columns do not allow the model to be fitted.

    Warns
    -----
    DsstanWarning
        If distances between the sites are more than 0.5% off, or are measured in another CRS
        than the one given for that reason; or if degrees are used beyond 60 degrees of latitude.

    Examples
    --------
    >>> table = pd.DataFrame(
    ...     {
    ...         "x": [0.0, 1.0, 1.0, 0.0, 0.0],
    ...         "y": [0.0, 0.0, 1.0, 1.0, 0.0],
    ...         "rent": [800, 950, 1200, 1100, 820],
    ...     }
    ... )
    >>> problem = prepare(table, "log(rent) ~ 1", coords=("x", "y"), name="flats")
    >>> print(problem)
    Problem 'flats': log(rent) ~ 1, 5 records
      formula   log(rent) ~ 1
      response  rent, modelled as log
      records   5, design columns 1
      sites     4 distinct, 2 records share one
      distance  planar, in coordinate unit
    """
    begin = perf_counter()
    frame, source = as_pandas(table), None if isinstance(table, pd.DataFrame) else table
    check_frame(frame)
    parsed = parse(formula)
    households = None
    if household is not None:
        places = coords or filter(None, [geometry_name(frame)])
        used = [parsed.response, *parsed.columns, *(publish or ())]
        used += filter(None, [parsed.group, time, survey_weights])
        frame, households, rows = one_row_each(frame, household, [*places], used)
        check_frame(frame)
        if source is not None:
            source = taken(source, rows, frame.columns)
    located = locate(frame, coords, distance, crs)
    if parsed.response in located.coord_names:
        raise FormulaError(
            f"Column {parsed.response!r} is the response and a coordinate too. Coordinates are "
            "released as they are, so a response must be another column."
        )
    if missing not in MISSING:
        raise InputError(f"missing must be one of {', '.join(MISSING)}, got {missing!r}")
    at, gaps = None, missing == "draw" or heap is not None
    if heap is not None:
        require_column(parsed.response, frame, parsed.text)
        at = read_heap(frame[parsed.response], heap, missing)
    design = build_design(parsed, _without(frame, parsed.response, at), missing=gaps)
    there = np.flatnonzero(~np.isnan(design.y))
    _check_observed(design, there)
    if np.ptp(design.y[there]) == 0.0:
        raise TableError(
            f"Response {parsed.response!r} has the same value in every row. A response that "
            "varies is needed."
        )
    site = site_numbers(located.sites)
    if site.max() == 0:
        raise TableError(
            f"All {len(frame)} records are at one site, so nothing can be learnt about space. "
            f"Check the coordinates {located.coord_names[0]!r} and {located.coord_names[1]!r}."
        )
    _check_extent(located.sites, located.coord_names)
    structure = read_structure(
        frame,
        time=time,
        group=parsed.group,
        response=parsed.response,
        coords=located.coord_names,
        categories=design.levels,
    )
    site.setflags(write=False)
    if survey_weights is not None:
        _check_survey_weights(survey_weights, frame, parsed.response, located.coord_names)
    return Problem(
        table=frame,
        name=name if name is not None else str(frame.attrs.get("name", UNNAMED)),
        formula=parsed.text,
        response=parsed.response,
        transform=parsed.transform,
        design=design,
        y=design.y,
        coords=_frozen(located.coords),
        coord_names=located.coord_names,
        sites=_frozen(located.sites),
        unit=located.unit,
        distance=located.distance,
        crs=located.crs,
        sites_crs=located.sites_crs,
        site_index=site,
        seconds=perf_counter() - begin,
        source=source,
        publish=columns_named(publish, frame.columns),
        survey_weights=survey_weights,
        heap=at,
        structure=structure,
        households=households,
    )


def _without(frame: pd.DataFrame, response: str, heap: float | None) -> pd.DataFrame:
    """The table with a response that is missing in the heap."""
    if heap is None:
        return frame
    values = response_values(frame[response], response)
    return frame.assign(**{response: np.where(values == heap, np.nan, values)})


def _check_survey_weights(
    column: str, frame: pd.DataFrame, response: str, coords: tuple[str, str]
) -> None:
    """Refuse a column that can't hold survey weights, or has another part in the problem."""
    survey_weights_of(frame, column)
    if column == response or column in coords:
        part = "the response" if column == response else "a coordinate"
        raise InputError(
            f"column {column!r} is {part}, and can't hold the survey weights too: leave "
            f"{spelled('survey_weights', column)} out, or name another column"
        )


def _check_observed(design: Design, there: Indices) -> None:
    """The records that have a response must carry the regression by themselves."""
    X = design.X[there]
    if len(there) < len(design.y) and (
        len(there) < max(MIN_RECORDS, X.shape[1] + 2) or np.linalg.matrix_rank(X) < X.shape[1]
    ):
        raise TableError(
            f"Response {design.formula.response!r} is there in {len(there)} of "
            f"{len(design.y)} records, too few to estimate every term of the formula from. "
            "Take a term out, or find more values."
        )


def _check_extent(sites: Floats, names: tuple[str, str]) -> None:
    """Distances between sites, and their squares, must be numbers that floats hold."""
    farthest = largest_distance(sites)
    if not (np.isfinite(farthest**2) and farthest**2 > np.finfo(np.float64).tiny):
        raise CoordinateError(
            f"The distances between the sites of {names[0]!r} and {names[1]!r} are too large or "
            "too small to compute with. Give the coordinates in another unit."
        )


def _frozen(values: Floats) -> Floats:
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
