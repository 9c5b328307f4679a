"""Methods without chance: Voronoi masking and aggregation, with their intruders."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.spatial import cKDTree

from dsstan.analysis.places.marked import MarkedPlaces
from dsstan.analysis.places.pairs import require_inside
from dsstan.comparison.places.result import ProtectedPlaces, of_cells
from dsstan.core.arrays import Floats, Indices
from dsstan.core.errors import InputError, check_count
from dsstan.table.mask.mask import Mask


def voronoi_places(places: Floats) -> Floats:
    """Each place at the nearest point of the edge of its Voronoi cell, shape (N, 2).

    That is half way to its nearest neighbour (Seidl, Paulus, Jankowski and Regenfelder 2015).
    """
    if len(places) < 2:
        raise InputError("Voronoi masking needs two records at least")
    near = cKDTree(places).query(places, k=[2])[1][:, 0]
    return np.asarray(0.5 * (places + places[near]))


def reflected(published: Floats, places: Floats) -> Floats:
    """Where who knows all others puts each person after Voronoi masking, shape (N, 2).

    Of the others the one nearest to the published place z is the neighbour s_j of the person: any
    third one is as far from z as half their distance at least. So the person is at 2 z - s_j.
    """
    tree, out = cKDTree(places), np.empty_like(published)
    near = tree.query(published, k=min(3, len(places)))[1]
    for i, row in enumerate(near):
        out[i] = 2.0 * published[i] - places[row[row != i][0]]
    return out


def voronoi(original: MarkedPlaces, mask: Mask, *, prior: Floats | None = None) -> ProtectedPlaces:
    """Voronoi masking: each place snapped to the nearest edge of its Voronoi cell.

    A place that falls out of the mask is put at the nearest place in it.

    Parameters
    ----------
    original, mask, prior
        See :func:`dsstan.comparison.places.radial.displace`.
    """
    require_inside(original.places, mask)
    chances = mask.exposure if prior is None else prior
    exact = voronoi_places(original.places)
    cells = mask.cell_of(original.places)
    published = _within(exact, mask)
    at = mask.cell_of(reflected(published, original.places))
    found = (at == cells).astype(np.float64)
    return ProtectedPlaces(
        "Voronoi",
        "no setting",
        (replace(original, places=published),),
        found,
        of_cells(chances, cells),
        "The intruder computes the place; the Bayes factor of presence is that of the cell, and of "
        "the place itself it is NOT DEFINED (infinite).",
    )


def _within(places: Floats, mask: Mask) -> Floats:
    """The nearest place in the mask's nearest cell: itself where it is in a cell."""
    near = cKDTree(mask.centres).query(places, p=np.inf)[1]
    half = 0.5 * mask.width * (1.0 - 1e-9)
    return np.asarray(np.clip(places, mask.centres[near] - half, mask.centres[near] + half))


def blocks_of(mask: Mask, along: int) -> Indices:
    """Number of the block of ``along`` x ``along`` cells that each cell belongs to, shape (C,)."""
    at = np.rint((mask.centres - mask.centres.min(axis=0)) / mask.width).astype(np.int64) // along
    return np.asarray(np.unique(at, axis=0, return_inverse=True)[1].ravel(), dtype=np.intp)


def aggregate(
    original: MarkedPlaces, mask: Mask, along: int, *, prior: Floats | None = None
) -> ProtectedPlaces:
    """Aggregation: each place at the middle of its block of ``along`` x ``along`` cells.

    Where the middle of a block's cells is outside the mask, the nearest of their centres is taken.

    Parameters
    ----------
    original, mask, prior
        See :func:`dsstan.comparison.places.radial.displace`.
    along
        Cells along the side of a block.
    """
    check_count("along", along)
    require_inside(original.places, mask)
    chances = np.broadcast_to(
        mask.exposure if prior is None else prior, (len(original.places), mask.n_cells)
    )
    cells, block = mask.cell_of(original.places), blocks_of(mask, along)
    size = np.bincount(block)
    middle = np.stack([np.bincount(block, weights=axis) / size for axis in mask.centres.T], axis=-1)
    own = block[cells]
    same = block[None, :] == own[:, None]
    before = of_cells(chances, cells)
    share = (chances * same).sum(axis=1) / chances.sum(axis=1)
    return ProtectedPlaces(
        "aggregation",
        f"{along} x {along} cells",
        (replace(original, places=_within(middle, mask)[own]),),
        np.asarray(before / share),
        before,
    )
