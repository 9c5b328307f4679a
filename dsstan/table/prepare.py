"""The only door into the package: a table is checked once, and every later stage has its arrays."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any

import numpy as np
import pandas as pd

from dsstan.core.arrays import Floats, Indices
from dsstan.core.errors import CoordinateError, FormulaError, InputError, TableError
from dsstan.core.spelling import spelled
from dsstan.table.columns import (
    MIN_RECORDS,
    as_pandas,
    check_frame,
    columns_named,
    require_column,
    taken,
)
from dsstan.table.formulas.formula import Design, build_design, parse
from dsstan.table.places.coordinates import geometry_name, largest_distance, locate, site_numbers
from dsstan.table.problem import UNNAMED, Problem, frozen, without
from dsstan.table.records.heaps import HeapLike, read_heap
from dsstan.table.records.households import one_row_each
from dsstan.table.records.structure import read_structure
from dsstan.table.records.survey_weights import survey_weights_of

MISSING = ("refuse", "draw")


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
        :func:`dsstan.risk.keys.identification.identification` use it, and the model only if the
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
        used = [*parsed.columns, *(publish or ())]
        used += filter(None, [parsed.group, time, survey_weights])
        frame, households, rows = one_row_each(frame, household, [*places], parsed.response, used)
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
    design = build_design(parsed, without(frame, parsed.response, at), missing=gaps)
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
        coords=frozen(located.coords),
        coord_names=located.coord_names,
        sites=frozen(located.sites),
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
