"""Pairs of places by distance, with the edge of the study area corrected for."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.signal import fftconvolve

from dsstan.analysis.places.pair_kernel import pair_sums
from dsstan.core.arrays import Floats, Indices, Truths
from dsstan.core.errors import CoordinateError, InputError, describe_rows
from dsstan.table.mask.mask import OUTSIDE, Mask

_OFF_LATTICE = 1e-6
"""Largest distance of a centre from the lattice, in cells."""

_LARGEST_LATTICE = 50_000_000
"""Most cells of the rectangle around a mask."""


class PairSums(NamedTuple):
    """What pairs of places add up to, bin by bin.

    Attributes
    ----------
    weights
        Sum over ordered pairs of ``1 / |W n (W + d)|``, by the block of the first place, shape
        (blocks, bins).
    pairs, distances, squares
        Number of pairs, sum of their distances and of the squared differences of their values,
        each pair once, shape (bins,).
    density
        Density over distance of the same weights at the end of each bin, shape (bins,); 0 without
        a band.
    """

    weights: Floats
    pairs: Floats
    distances: Floats
    squares: Floats
    density: Floats


def lattice_of(mask: Mask) -> Floats:
    """1 where a cell is in the mask, else 0, on the rectangle around it; rows go up with y.

    Raises
    ------
    InputError
        If the cells are on no lattice, or it is too large.
    """
    at = (mask.centres - mask.centres.min(axis=0)) / mask.width
    number = np.rint(at).astype(np.int64)
    if np.abs(at - number).max() > _OFF_LATTICE:
        raise InputError(
            "K functions need a mask whose square cells lie on one lattice: the centres differ by "
            "a fraction of the width"
        )
    shape = number.max(axis=0)[::-1] + 1
    if shape.prod() > _LARGEST_LATTICE:
        raise InputError(
            f"the rectangle around the mask has {shape.prod():,} cells, more than "
            f"{_LARGEST_LATTICE:,}: take wider cells"
        )
    there = np.zeros(shape, dtype=np.float64)
    there[number[:, 1], number[:, 0]] = 1.0
    return there


def overlap_of(mask: Mask, reach: float) -> Floats:
    """Cells that the mask has in common with itself shifted by whole cells.

    Parameters
    ----------
    mask
        Its cells must lie on one lattice.
    reach
        Largest shift along an axis, in the mask's unit.

    Returns
    -------
    ndarray
        Shape (2m + 1, 2m + 1), shifts of y by rows and of x by columns, from -m to m cells.

    Raises
    ------
    InputError
        If the cells are on no lattice, or it is too large.
    """
    there = lattice_of(mask)
    m = int(np.floor(reach / mask.width)) + 2
    whole = np.rint(fftconvolve(there, there[::-1, ::-1]))
    rows, columns = (np.arange(-m, m + 1) + size - 1 for size in there.shape)
    out = np.zeros((2 * m + 1, 2 * m + 1))
    y, x = ((i >= 0) & (i < n) for i, n in zip((rows, columns), whole.shape, strict=True))
    out[np.ix_(y, x)] = whole[np.ix_(rows[y], columns[x])]
    return out


def sums_of_pairs(
    places: Floats,
    mask: Mask,
    *,
    step: float,
    bins: int,
    band: float = 0.0,
    values: Floats | None = None,
    first: Truths | None = None,
    second: Truths | None = None,
    block: Indices | None = None,
) -> PairSums:
    """Sums over the pairs of places up to ``bins * step`` apart.

    Each pair is visited once, and only pairs that are so near in x.

    Parameters
    ----------
    places
        Planar coordinates, shape (N, 2), all in the mask.
    mask
        The study area W.
    step, bins
        Width and number of the bins; bin b ends at (b + 1) ``step``, which it holds.
    band
        Half width of Epanechnikov's kernel, for ``density``.
    values
        Shape (N,), for ``squares``.
    first, second
        Which places may be first and second of an ordered pair, shape (N,); by default all.
    block
        Number of a block of each place, shape (N,), for ``weights``; by default one block.

    Raises
    ------
    CoordinateError
        If a place is not in the mask.
    InputError
        See :func:`overlap_of`.
    """
    require_inside(places, mask)
    n = len(places)
    order = np.argsort(places[:, 0], kind="stable")
    every = np.ones(n, dtype=bool)
    own = np.zeros(n, dtype=np.int64) if block is None else block
    found = pair_sums(
        np.ascontiguousarray(places[order], dtype=np.float64),
        np.zeros(n) if values is None else np.asarray(values, dtype=np.float64)[order],
        (every if first is None else first)[order],
        (every if second is None else second)[order],
        own[order],
        overlap_of(mask, step * bins + band),
        float(mask.width),
        float(step),
        bins,
        int(own.max(initial=0)) + 1,
        float(band),
    )
    return PairSums(*found)


def require_inside(places: Floats, mask: Mask) -> None:
    """Refuse places that are in no cell of the mask, with their rows."""
    outside = mask.cell_of(places) == OUTSIDE
    if outside.any():
        raise CoordinateError(
            f"places must lie in the mask, and {describe_rows(outside)} do not: take the mask that "
            "they were drawn in"
        )
