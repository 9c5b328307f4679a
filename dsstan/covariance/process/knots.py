"""Knots of a predictive process: where they lie, and what the process at them says elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist

from dsstan.core.arrays import Floats
from dsstan.core.errors import InputError, check_count
from dsstan.covariance.correlation import correlation

__all__ = ["Basis", "basis_at", "knots_of", "place_knots"]

PLACEMENTS = ("kmeans", "grid")

BLOCK = 1024
"""Places that are taken at a time."""

NEAREST = 1e-4
"""Least distance between two knots, by the span of all: nearer ones make R_kk all but singular."""

_ROUNDS = 30
"""Rounds of k-means."""

_FINEST = 2**20
"""Most cells along the longer side of a grid."""


def place_knots(
    sites: Floats, knots: int, placement: str = "kmeans", seed: int | np.random.SeedSequence = 0
) -> Floats:
    """Places of knots, none twice, shape (K, 2); under ``"grid"`` at most K of them.

    Parameters
    ----------
    sites
        Planar coordinates, shape (N, 2); sites shared by several records count once.
    knots
        K, at least 1 and at most the number of distinct sites.
    placement
        ``"kmeans"``: the centres of K groups of near sites (k-means++, then Lloyd's rounds), each
        with a site of its own. ``"grid"``: the centres of square cells over the bounding box
        that have a site within a cell's width, as many as there are below K.
    seed
        Of the k-means; the grid needs none.

    Raises
    ------
    InputError
        If an argument cannot be used as it stands.

    Examples
    --------
    >>> sites = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [0.5, 0.5]])
    >>> place_knots(sites, 4, "grid")
    array([[0.25, 0.25],
           [0.25, 0.75],
           [0.75, 0.25],
           [0.75, 0.75]])
    """
    check_count("knots", knots)
    if placement not in PLACEMENTS:
        raise InputError(f"placement must be one of {', '.join(PLACEMENTS)}, got {placement!r}")
    distinct = np.unique(np.asarray(sites, dtype=np.float64), axis=0)
    if knots > len(distinct):
        raise InputError(
            f"{knots} knots were asked for and there are {len(distinct)} distinct sites: ask for "
            "at most as many knots as sites"
        )
    if knots == len(distinct):
        return np.asarray(distinct)
    if placement == "grid":
        return _grid(distinct, int(knots))
    middle = distinct.mean(axis=0)
    centres = _kmeans(distinct - middle, int(knots), np.random.default_rng(seed))
    return np.asarray(centres + middle)


def knots_of(sites: Floats, knots: int | Floats, placement: str, seed: int = 0) -> Floats:
    """Knots placed by :func:`place_knots`, or the caller's own places, checked.

    Raises
    ------
    InputError
        If the places are not finite pairs of numbers, or two knots all but coincide.
    """
    if np.ndim(knots) == 0:
        number: Any = knots
        where = place_knots(sites, number, placement, seed)
    else:
        where = np.array(knots, dtype=np.float64)
        if where.ndim != 2 or where.shape[1] != 2 or not (where.size and np.isfinite(where).all()):
            raise InputError(
                "knots must be a number, or places of shape (K, 2) that are finite, got shape "
                f"{where.shape}"
            )
    if len(where) > 1:
        apart = cKDTree(where).query(where, k=2)[0][:, 1]
        if apart.min() < NEAREST * np.ptp(where, axis=0).max() or apart.min() == 0.0:
            raise InputError(
                f"two knots lie nearer to each other than {NEAREST:g} of the distance that all "
                "span, so that they carry the same information: take fewer knots, or place them "
                "farther apart"
            )
    return where


@dataclass(frozen=True, eq=False)
class Basis:
    """B = R_sk R_kk^(-1/2) at some places: what knots predict there of a process of variance 1.

    Attributes
    ----------
    rows
        B, shape (n, k), k at most the number of knots.
    rest
        Variance of the remainder, shape (n,); exactly 0 at a knot.
    """

    rows: Floats
    rest: Floats


def knot_factor(knots: Floats, phi: float, cov_model: str) -> Floats:
    """F with R_kk^+ = F F', shape (K, k): eigenvectors over the roots of their eigenvalues.

    Eigenvalues that are zero to rounding are left out: what they would add to B is noise.
    """
    values, vectors = np.linalg.eigh(correlation(cdist(knots, knots), phi, cov_model))
    there = values > values[-1] * len(values) * np.finfo(np.float64).eps
    return np.asarray(vectors[:, there] / np.sqrt(values[there]))


def basis_at(places: Floats, knots: Floats, phi: float, cov_model: str) -> Basis:
    """B at places (n, 2), block by block: memory of n by K at most."""
    factor = knot_factor(knots, phi, cov_model)
    rows, rest = np.empty((len(places), factor.shape[1])), np.empty(len(places))
    for first in range(0, len(places), BLOCK):
        some = slice(first, first + BLOCK)
        d = cdist(places[some], knots)
        rows[some] = correlation(d, phi, cov_model) @ factor
        left = 1.0 - np.einsum("ij,ij->i", rows[some], rows[some])
        rest[some] = np.where(d.min(axis=1) == 0.0, 0.0, np.maximum(left, 0.0))
    return Basis(rows, rest)


def _kmeans(sites: Floats, k: int, rng: np.random.Generator) -> Floats:
    """Centres of k groups, none of them empty, of more than k distinct sites."""
    from scipy.cluster.vq import kmeans2, vq  # slow to import

    centres = np.empty((k, 2))
    centres[0] = sites[rng.integers(len(sites))]
    square = np.full(len(sites), np.inf)
    for i in range(1, k):
        # k-means++ (Arthur and Vassilvitskii 2007): far sites are likelier.
        square = np.minimum(square, np.sum((sites - centres[i - 1]) ** 2, axis=1))
        centres[i] = sites[rng.choice(len(sites), p=square / square.sum())]
    for _ in range(_ROUNDS):
        before = centres
        # One round at a time: kmeans2 leaves the centre of an empty group where it was.
        label = vq(sites, centres)[0]
        if np.bincount(label, minlength=k).all():
            centres, _ = kmeans2(sites, centres, iter=1, minit="matrix", missing="raise")
        centres = _seated(sites, centres)
        if np.array_equal(before, centres):
            break
    return centres


def _seated(sites: Floats, centres: Floats) -> Floats:
    """Centres of which each is the nearest to some site.

    One that is not moves to the site that is farthest from its own; every move puts one more
    centre on a site, so this ends.
    """
    from scipy.cluster.vq import vq

    centres = centres.copy()
    while True:
        label, distance = vq(sites, centres)
        empty = np.flatnonzero(np.bincount(label, minlength=len(centres)) == 0)
        if empty.size == 0:
            return centres
        centres[empty[0]] = sites[int(np.argmax(distance))]


def _grid(sites: Floats, most: int) -> Floats:
    """Centres of the cells of the finest grid that has at most so many near a site."""
    fits, beyond = 1, 2
    while beyond < _FINEST and len(_cells(sites, beyond)) <= most:
        fits, beyond = beyond, 2 * beyond
    while beyond - fits > 1:
        between = (fits + beyond) // 2
        if len(_cells(sites, between)) <= most:
            fits = between
        else:
            beyond = between
    found = _cells(sites, fits)
    return found if len(found) <= most else sites.mean(axis=0, keepdims=True)


def _cells(sites: Floats, along: int) -> Floats:
    """Centres of square cells near a site, ``along`` of them on the longer side of the box."""
    low, span = sites.min(axis=0), np.ptp(sites, axis=0)
    size = float(span.max()) / along
    counts = np.maximum(1, np.ceil(span / size - 1e-9)).astype(np.int64)
    start = low - 0.5 * (counts * size - span)
    inside = np.minimum(((sites - start) / size).astype(np.int64), counts - 1)
    step = np.array([(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1)])
    near = np.unique((np.unique(inside, axis=0)[:, None] + step).reshape(-1, 2), axis=0)
    near = near[np.all((near >= 0) & (near < counts), axis=1)]
    centres = start + (near + 0.5) * size
    return np.asarray(centres[cKDTree(sites).query(centres)[0] <= size])
