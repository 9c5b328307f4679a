"""Masks of places: public addresses, the records themselves, or a table of cells."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.spatial import cKDTree

from dsstan.core.arrays import Floats, Indices, Truths
from dsstan.core.errors import CoordinateError, DsstanWarning, InputError, TableError, describe_rows
from dsstan.table.geo import planar
from dsstan.table.mask.grid import MOST, cells_aimed, centres_of, check_size, numbers_of, width_for
from dsstan.table.mask.mask import Mask
from dsstan.table.problem import Problem

NEAREST = 1e-6
"""Rounding of the distance between two centres, a share of the width."""
NEAR_ADDRESS = 1e-6
"""Distance that is none, a share of the extent of the records."""


def mask_of_addresses(
    addresses: Any, problem: Problem, *, cells: int | None = None, width: float | None = None
) -> Mask:
    """The cells that hold public addresses; the exposure is how many.

    Synthetic places are addresses of the list. Addresses at the same place count once.

    Parameters
    ----------
    addresses
        Planar coordinates in the problem's unit, shape (A, 2), or a GeoDataFrame or GeoSeries of
        points. The list must be public: whether a record's place is on it is not kept secret.
    problem, cells, width
        As for :func:`dsstan.table.mask.polygons.mask_of_polygons`.

    Returns
    -------
    Mask

    Raises
    ------
    CoordinateError
        If there is no finite pair of numbers for each address, or a CRS is not known.
    InputError
        If there are fewer than two addresses, or too many cells.
    """
    check_size(cells, width)
    places = np.unique(planar(addresses, problem), axis=0)
    if len(places) < 2:
        raise InputError("addresses needs two different places at least")
    source = _check_list(places, problem)
    width = width or width_for(
        lambda w: len(_occupied(places, w)),
        cells_aimed(cells, problem.n_records),
        np.ptp(places, axis=0),
    )
    centres = _few(centres_of(_occupied(places, width), places, width))
    count = np.bincount(Mask(centres, width, np.ones(len(centres))).cell_of(places))
    count = np.pad(count, (0, len(centres) - count.size))
    some = count > 0  # an address on an edge may have gone to the neighbour
    return Mask(
        centres[some],
        width,
        count[some].astype(np.float64),
        addresses=places,
        source=source,
    )


def _check_list(addresses: Floats, problem: Problem) -> str:
    """What the cells come from: the addresses, or the table where most of these are its places.

    Warns of that, and where records live at no address.
    """
    sites = problem.unique_sites
    away = at_no_address(sites, addresses)
    there = int(np.sum(~away))
    if 2 * there > len(addresses):
        warnings.warn(
            f"{there} of {len(addresses)} addresses are places of the table: synthetic "
            "places would say where its records are. Give a list that was made without the table",
            DsstanWarning,
            stacklevel=3,
        )
        return "table"
    if away.any():
        warnings.warn(
            f"{int(away.sum())} of {len(sites)} places of the table are at no address of the list: "
            "for their records the chance of the right cell counts in place of the address's. Take "
            "the coordinates of the list where a record lives at one of its addresses",
            DsstanWarning,
            stacklevel=3,
        )
    return "addresses"


def at_no_address(sites: Floats, addresses: Floats) -> Truths:
    """Whether each of n places is at none of the addresses, shape (n,)."""
    near = NEAR_ADDRESS * float(np.ptp(sites, axis=0).max())
    return np.asarray(cKDTree(addresses).query(sites)[0] > near)


def known_addresses(mask: Mask, sites: Floats) -> tuple[Floats | None, Truths]:
    """How many addresses each cell has, shape (C,), None where places are no addresses; and whether
    each of n places is at none of them though there are some, shape (n,)."""
    if mask.addresses is None:
        return None, np.zeros(len(sites), dtype=bool)
    counts = np.diff(mask.addresses_by_cell[1]).astype(np.float64)
    return counts, at_no_address(sites, mask.addresses)


def mask_of_table(
    problem: Problem, *, cells: int | None = None, width: float | None = None, around: int = 1
) -> Mask:
    """The cells that hold records of the table, and those around them; the exposure is their area.

    Parameters
    ----------
    problem
        The prepared table.
    cells, width
        As for :func:`dsstan.table.mask.polygons.mask_of_polygons`.
    around
        How many cells about one with a record belong to the area.

    Returns
    -------
    Mask

    Warns
    -----
    DsstanWarning
        Always: the area of the synthetic places tells where records are.
    """
    check_size(cells, width)
    warnings.warn(
        "the mask is drawn from the table: that synthetic places keep to it tells where records "
        "are. Use polygons or public addresses of the study area for a release",
        DsstanWarning,
        stacklevel=2,
    )
    sites = problem.unique_sites
    width = width or width_for(
        lambda w: len(_widened(_occupied(sites, w), around)),
        cells_aimed(cells, problem.n_records),
        np.ptp(sites, axis=0),
    )
    centres = _few(centres_of(_widened(_occupied(sites, width), around), sites, width))
    return Mask(centres, width, np.full(len(centres), width**2), source="table")


def mask_of_cells(
    table: pd.DataFrame,
    problem: Problem | None = None,
    *,
    coords: tuple[str, str] | None = None,
    width: float | None = None,
    exposure: str | None = None,
    covariates: Sequence[str] | None = None,
) -> Mask:
    """The cells of a table, one row each, such as a population grid.

    Parameters
    ----------
    table
        Columns with the planar centres of the cells in the problem's unit, or a GeoDataFrame of
        points.
    problem
        The prepared table; only a GeoDataFrame needs it.
    coords
        The two columns, x first. Leave out for a GeoDataFrame.
    width
        Side of a cell in the problem's unit; by default the smallest distance between two centres.
    exposure
        Column with the land, addresses or population of each cell, above 0; by default 1.
    covariates
        Columns with covariates of the cells; by default all others.

    Returns
    -------
    Mask

    Raises
    ------
    CoordinateError
        If centres are missing or two cells overlap; the message names the rows.
    TableError
        If a column is missing, or an exposure is not above 0.
    """
    wanted = [*(coords or ()), *filter(None, [exposure]), *(covariates or ())]
    lost = [name for name in wanted if name not in table.columns]
    if lost:
        raise TableError(f"the table of cells has no column {lost[0]!r}")
    if coords is not None:
        centres = table[list(coords)].to_numpy(dtype=np.float64, na_value=np.nan)
        bad = ~np.isfinite(centres).all(axis=1)
        if bad.any():
            raise CoordinateError(
                f"centres of cells are missing or infinite in {describe_rows(bad)}"
            )
    elif problem is not None:
        centres = planar(table, problem)
    else:
        raise InputError("give coords, the two columns with the centres of the cells")
    check_size(None, width)
    near = _nearest(centres)
    width = float(near.min()) if width is None else width
    close = near < width * (1.0 - NEAREST)
    if width == 0.0 or close.any():
        close = close | (near == 0.0)
        raise CoordinateError(
            f"cells overlap: centres nearer than the width in {describe_rows(close)}"
        )
    amount = np.ones(len(table))
    if exposure is not None:
        amount = table[exposure].to_numpy(dtype=np.float64, na_value=np.nan)
        bad = ~(np.isfinite(amount) & (amount > 0))
        if bad.any():
            raise TableError(
                f"exposure {exposure!r} is not above 0 in {describe_rows(bad)}: leave out the "
                "cells in which nobody can be"
            )
    if covariates is None:
        spatial = getattr(table, "active_geometry_name", None)
        skip = {*(coords or ()), exposure, spatial}
        covariates = [name for name in table.columns if name not in skip]
    kept = pd.DataFrame(table[list(covariates)]).reset_index(drop=True)
    return Mask(_few(centres), width, amount, kept)


def _occupied(places: Floats, width: float) -> Indices:
    """Column and row of the cells that hold places, shape (n, 2), in order."""
    return np.unique(numbers_of(places, width), axis=0)


def _widened(numbers: Indices, around: int) -> Indices:
    """The cells and those about them, in order."""
    step = np.arange(-around, around + 1)
    steps = np.stack(np.meshgrid(step, step), axis=-1).reshape(-1, 2)
    return np.unique((numbers[:, None] + steps).reshape(-1, 2), axis=0)


def _nearest(centres: Floats) -> Floats:
    """Distance to the nearest other centre along an axis, shape (C,)."""
    if len(centres) < 2:
        raise CoordinateError("a mask of a table needs two cells at least")
    return np.asarray(cKDTree(centres).query(centres, k=2, p=np.inf)[0][:, 1])


def _few(centres: Floats) -> Floats:
    """The centres, where they are not too many; raises InputError."""
    if len(centres) > MOST:
        raise InputError(
            f"the mask has {len(centres)} cells, more than {MOST}: give a larger width"
        )
    return centres
