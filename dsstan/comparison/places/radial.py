"""Displacement by a random distance: plain, Gaussian, and donut masking, with its intruder."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist

from dsstan.analysis.places.marked import MarkedPlaces
from dsstan.analysis.places.pairs import lattice_of, require_inside
from dsstan.comparison.places.result import ProtectedPlaces, of_cells
from dsstan.core.arrays import Floats, Indices, Truths
from dsstan.core.errors import InputError, check_count, describe_rows
from dsstan.table.mask.mask import OUTSIDE, Mask

UNIFORM, GAUSSIAN = LAWS = ("uniform", "gaussian")
"""A displacement is uniform in a disc or ring, or normal in both coordinates."""

INNER = 0.1
"""Inner ring of a donut holds this share of the addresses of the outer."""

_TRIES = 1000
"""Displacements that are drawn for a place before it is called impossible."""

_MOST = 9
"""Points along a cell by which an intruder integrates over it."""

_RADII, _ANGLES = 8, 16
"""Displacements by which the chance of leaving the mask is computed."""

_PAIRS = 4_000_000
"""Pairs of a record and a candidate that are held at a time."""


@dataclass(frozen=True, eq=False)
class Rings:
    """Where a displacement may go from some places.

    Attributes
    ----------
    inner, outer
        Radii, shape (n,); for the Gaussian law ``outer`` is the standard deviation.
    law
        ``"uniform"`` or ``"gaussian"``.
    """

    inner: Floats = field(repr=False)
    outer: Floats = field(repr=False)
    law: str = UNIFORM

    def radius(self, u: Floats) -> Floats:
        """Distance whose distribution function is u, shape (n, ...)."""
        shape = (-1, *(1,) * (u.ndim - 1))
        inner, outer = self.inner.reshape(shape), self.outer.reshape(shape)
        if self.law == GAUSSIAN:
            return np.asarray(outer * np.sqrt(-2.0 * np.log1p(-u)))
        return np.asarray(np.sqrt(inner**2 + u * (outer**2 - inner**2)))

    def density(self, distance: Floats) -> Floats:
        """Density in the plane at distances from the places, shape (m, n)."""
        if self.law == GAUSSIAN:
            s = self.outer**2
            return np.asarray(np.exp(-0.5 * distance**2 / s) / (2.0 * np.pi * s))
        inside = (distance >= self.inner) & (distance <= self.outer)
        area = np.pi * (self.outer**2 - self.inner**2)
        # A ring of no area moves nothing, and has no density.
        return np.asarray(inside / np.where(area > 0.0, area, np.inf))


@dataclass(frozen=True, eq=False)
class RadialMask:
    """A mechanism that moves each place by a random distance and direction, within the mask.

    A displacement that leaves the mask is drawn again.

    Attributes
    ----------
    mask
        The study area.
    radius
        Of the disc, or the standard deviation; None for a donut.
    nearest
        Addresses in the outer ring of a donut; None for a displacement.
    law
        ``"uniform"`` or ``"gaussian"``.
    """

    mask: Mask
    radius: float | None = None
    nearest: int | None = None
    law: str = UNIFORM

    def rings(self, places: Floats) -> Rings:
        """Where places, shape (n, 2), may go."""
        n = len(places)
        if self.nearest is None:
            assert self.radius is not None
            return Rings(np.zeros(n), np.full(n, self.radius), self.law)
        inner, outer = (self._reach(places, k) for k in (INNER * self.nearest, self.nearest))
        return Rings(inner, outer)

    def _reach(self, places: Floats, number: float) -> Floats:
        """Radius within which there are so many addresses of the mask, or so much exposure."""
        if self.mask.addresses is not None:
            k = min(max(math.ceil(number), 1), len(self.mask.addresses))
            return np.asarray(cKDTree(self.mask.addresses).query(places, k=[k])[0][:, 0])
        here = self.mask.exposure[self.mask.cell_of(places)] / self.mask.width**2
        return np.asarray(np.sqrt(number / (np.pi * here)))

    def move(self, places: Floats, rng: np.random.Generator) -> Floats:
        """Displaced places, shape (N, 2).

        Raises InputError where no displacement of a place was found that stays in the mask.
        """
        out, left = np.array(places, dtype=np.float64), np.arange(len(places))
        rings = self.rings(places)
        for _ in range(_TRIES):
            own = replace(rings, inner=rings.inner[left], outer=rings.outer[left])
            u = rng.random((2, len(left)))
            out[left] = places[left] + _around(own.radius(u[0]), 2.0 * np.pi * u[1])
            left = left[self.mask.cell_of(out[left]) == OUTSIDE]
            if not left.size:
                return out
        stuck = np.isin(np.arange(len(places)), left)
        raise InputError(
            f"no place at this distance from {describe_rows(stuck)} lies in the mask: take a "
            "shorter one"
        )

    def staying(self, places: Floats) -> Floats:
        """Chance that one displacement of each place stays in the mask, shape (n,)."""
        u = (np.arange(_RADII) + 0.5) / _RADII
        angle = 2.0 * np.pi * (np.arange(_ANGLES) + 0.5) / _ANGLES
        u, angle = (a.ravel() for a in np.meshgrid(u, angle))
        radius = self.rings(places).radius(np.tile(u, (len(places), 1)))
        goes = places[:, None, :] + _around(radius, angle)
        inside = self._inside(goes)
        return np.asarray(np.maximum(inside.mean(axis=1), 0.5 / len(u)))

    @cached_property
    def _lattice(self) -> Truths:
        """Cells of the mask on a rectangle with a margin, which is outside."""
        return np.pad(lattice_of(self.mask) > 0, 1)

    def _inside(self, places: Floats) -> Truths:
        """Whether places, shape (..., 2), are in the mask; quicker than looking for the cell."""
        low = self.mask.centres.min(axis=0) - 0.5 * self.mask.width
        at = np.floor((places - low) / self.mask.width).astype(np.int64) + 1
        column, row = (np.clip(at[..., k], 0, self._lattice.shape[1 - k] - 1) for k in (0, 1))
        return np.asarray(self._lattice[row, column])


def _around(radius: Floats, angle: Floats) -> Floats:
    """Displacements of given lengths and directions, shape (..., 2)."""
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=-1)


def candidates(mask: Mask, finest: float) -> tuple[Floats, Indices, Floats]:
    """Places where a person may be: of each, the cell and its share of the cell's chance.

    The addresses where the mask has them, else points of a lattice in every cell whose step is at
    most a quarter of ``finest``, nine along a cell at most.
    """
    if mask.addresses is not None:
        cell = mask.cell_of(mask.addresses)
        there = cell != OUTSIDE
        share = 1.0 / np.bincount(cell[there], minlength=mask.n_cells)[cell[there]]
        return mask.addresses[there], cell[there], share
    along = int(np.clip(math.ceil(4.0 * mask.width / finest), 5, _MOST))
    steps = mask.width * ((np.arange(along) + 0.5) / along - 0.5)
    offsets = np.stack(np.meshgrid(steps, steps), axis=-1).reshape(-1, 2)
    points = (mask.centres[:, None, :] + offsets).reshape(-1, 2)
    cell = np.repeat(np.arange(mask.n_cells), along**2)
    return points, cell, np.full(len(cell), 1.0 / along**2)


def posterior_of_cells(mechanism: RadialMask, published: Floats, prior: Floats) -> Floats:
    """Chances of the cells for who sees a displaced place and knows the mechanism.

    Proportional to the prior times the mean over the cell of the density of the displacement that
    was published, given that it stayed in the mask.

    Parameters
    ----------
    mechanism
        The displacement.
    published
        Places, shape (n, 2).
    prior
        Chances of the cells before, shape (C,) or (n, C).

    Returns
    -------
    ndarray
        Shape (n, C); rows sum to 1.
    """
    mask = mechanism.mask
    finest = float(mechanism.rings(mask.centres).outer.min())
    points, cell, share = candidates(mask, finest)
    rings, staying = mechanism.rings(points), mechanism.staying(points)
    prior = np.broadcast_to(prior, (len(published), mask.n_cells))
    out = np.empty((len(published), mask.n_cells))
    begins = np.flatnonzero(np.diff(cell, prepend=-1)) if mask.addresses is None else None
    at_once = max(1, _PAIRS // len(points))
    for low in range(0, len(published), at_once):
        some = slice(low, low + at_once)
        d = cdist(published[some], points)
        weight = rings.density(d) * (share / staying)
        if begins is not None:
            mean = np.add.reduceat(weight, begins, axis=1)
        else:
            mean = np.stack(
                [np.bincount(cell, weights=row, minlength=mask.n_cells) for row in weight]
            )
        mean *= prior[some]
        total = mean.sum(axis=1)
        # A displacement shorter than the lattice resolves has no point within its reach.
        lost = np.flatnonzero(total == 0.0)
        mean[lost, cell[d[lost].argmin(axis=1)]] = 1.0
        out[some] = mean / mean.sum(axis=1, keepdims=True)
    return out


def displace(
    original: MarkedPlaces,
    mask: Mask,
    radius: float,
    *,
    law: str = UNIFORM,
    prior: Floats | None = None,
    seed: int = 0,
) -> ProtectedPlaces:
    """Random displacement: each place uniform in a disc, or normal, around the true one.

    Parameters
    ----------
    original, mask
        The table, and its study area: displacements that leave it are drawn again.
    radius
        Of the disc, in the mask's unit, or the standard deviation of the Gaussian law.
    law
        ``"uniform"`` or ``"gaussian"``.
    prior
        Chances of the cells before any release, shape (C,) or (N, C); by default in proportion to
        the exposure.
    seed
        Of the displacements.

    Raises
    ------
    InputError
        If an argument is impossible.
    CoordinateError
        If a place is not in the mask.
    """
    if law not in LAWS or not (math.isfinite(radius) and radius > 0):
        raise InputError('radius is a distance above 0, and law is "uniform" or "gaussian"')
    mechanism = RadialMask(mask, radius=float(radius), law=law)
    words = "radius" if law == UNIFORM else "sd"
    name = "displacement" if law == UNIFORM else "Gaussian displacement"
    return _published(original, mechanism, name, f"{words} {radius:.4g}", prior, seed)


def donut(
    original: MarkedPlaces,
    mask: Mask,
    nearest: int,
    *,
    prior: Floats | None = None,
    seed: int = 0,
) -> ProtectedPlaces:
    """Donut masking: uniform in a ring that reaches as far as the ``nearest`` addresses.

    The inner radius holds a tenth of them (Hampton et al. 2010, American Journal of Epidemiology
    172). Without addresses the ring has so much exposure at the density of the place's cell.

    Parameters
    ----------
    original, mask, prior, seed
        See :func:`displace`.
    nearest
        Number of addresses, or amount of exposure, within the outer radius.

    Raises
    ------
    InputError
        If an argument is impossible.
    CoordinateError
        If a place is not in the mask.
    """
    check_count("nearest", nearest)
    mechanism = RadialMask(mask, nearest=nearest)
    return _published(original, mechanism, "donut", f"{nearest} nearest", prior, seed)


def _published(
    original: MarkedPlaces,
    mechanism: RadialMask,
    method: str,
    setting: str,
    prior: Floats | None,
    seed: int,
) -> ProtectedPlaces:
    """One table with displaced places, and its intruder."""
    mask, n = mechanism.mask, len(original.places)
    require_inside(original.places, mask)
    chances = mask.exposure if prior is None else prior
    moved = mechanism.move(original.places, np.random.default_rng(seed))
    cells = mask.cell_of(original.places)
    finding = posterior_of_cells(mechanism, moved, chances)[np.arange(n), cells]
    tables = (replace(original, places=moved),)
    return ProtectedPlaces(method, setting, tables, finding, of_cells(chances, cells))
