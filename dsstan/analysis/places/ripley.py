"""Ripley's K, cross-K and the pair correlation of places in a mask."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from dsstan.analysis.places.pairs import sums_of_pairs
from dsstan.core.arrays import Floats, Indices, Truths
from dsstan.core.display import Card, Part, Shown
from dsstan.core.errors import InputError, check_count
from dsstan.table.mask.mask import Mask

STEPS = 40
"""Radii at which a curve is computed."""

_CROWD = 1000
"""Records within the default reach of a record, at most, on average."""

_STOYAN = 0.15
"""Half band of the pair correlation, times the mean distance 1 / sqrt(lambda)."""


@dataclass(frozen=True, eq=False, repr=False)
class PairCurves(Shown):
    """K and the pair correlation at some radii.

    Attributes
    ----------
    radii
        In the mask's unit, shape (m,).
    k
        Ripley's K, shape (m,): the expected number of further records within the radius of a
        record, over the density; pi r^2 where records ignore one another.
    g
        The pair correlation, shape (m,); 1 where they do.
    """

    radii: Floats = field(repr=False)
    k: Floats = field(repr=False)
    g: Floats = field(repr=False)

    def _line(self) -> str:
        return f"K and pair correlation at {len(self.radii)} radii up to {self.radii[-1]:.4g}"

    def _card(self) -> Card:
        columns = {"r": self.radii, "K": self.k, "K / (pi r^2)": self.k_ratio, "g": self.g}
        return Card(blocks=(Part(pd.DataFrame(columns)),))

    @property
    def k_ratio(self) -> Floats:
        """K over pi r^2, which is 1 where records ignore one another, shape (m,)."""
        return np.asarray(self.k / (np.pi * self.radii**2))


def default_reach(mask: Mask, n: int) -> float:
    """A quarter of the shorter side of the rectangle around the mask, as spatstat takes it.

    No farther than a circle holds 1000 of the n records at their mean density.
    """
    sides = np.ptp(mask.centres, axis=0) + mask.width
    crowded = math.sqrt(_CROWD / np.pi * mask.n_cells * mask.width**2 / max(n, 1))
    return min(0.25 * float(sides.min()), crowded)


def ripley(
    places: Floats,
    mask: Mask,
    *,
    reach: float | None = None,
    steps: int = STEPS,
    first: Truths | None = None,
    second: Truths | None = None,
) -> PairCurves:
    """Ripley's K and the pair correlation, or with two groups cross-K, of places in a mask.

    With the translation correction of Ohser and Stoyan (1981), which is exact for a mask of square
    cells: ``K(r) = |W|^2 / (n_1 n_2) sum 1(d_ij <= r) / |W n (W + d_ij)|``, n (n - 1) for one
    group. The pair correlation has Epanechnikov's kernel with Stoyan's half band,
    ``0.15 / sqrt(n / |W|)``.

    Parameters
    ----------
    places
        Planar coordinates, shape (N, 2), all in the mask.
    mask
        The study area W.
    reach, steps
        Largest radius, by default :func:`default_reach`, and the number of radii.
    first, second
        Members of two groups, shape (N,), of which no record is in both; both or neither.

    Raises
    ------
    InputError
        If a group has too few records, or an argument is impossible.
    CoordinateError
        If a place is not in the mask.
    """
    far = checked_reach(mask, reach, steps, len(places))
    product, least = _numbers(len(places), first, second)
    area = mask.n_cells * mask.width**2
    band = _STOYAN / math.sqrt(least / area)
    sums = sums_of_pairs(
        places, mask, step=far / steps, bins=steps, band=band, first=first, second=second
    )
    scale = area**2 / product
    radii = far * np.arange(1, steps + 1) / steps
    k = scale * np.cumsum(sums.weights[0])
    return PairCurves(radii, k, np.asarray(scale * sums.density / (2.0 * np.pi * radii)))


def checked_reach(mask: Mask, reach: float | None, steps: int, n: int) -> float:
    """The largest radius, refused unless it is possible."""
    check_count("steps", steps)
    far = default_reach(mask, n) if reach is None else float(reach)
    if not (math.isfinite(far) and far > 0):
        raise InputError("reach is a distance above 0, in the unit of the mask")
    return far


def _numbers(n: int, first: Truths | None, second: Truths | None) -> tuple[float, float]:
    """Number of ordered pairs, and of records of the smaller group."""
    if (first is None) != (second is None):
        raise InputError("cross-K needs two groups: give first and second, or neither")
    if first is None or second is None:
        if n < 2:
            raise InputError(f"K needs two records at least; there are {n}")
        return float(n * (n - 1)), float(n)
    if first.shape != (n,) or second.shape != (n,) or bool(np.any(first & second)):
        raise InputError(
            f"first and second need one truth value a record, shape ({n},), and no record in both"
        )
    a, b = int(first.sum()), int(second.sum())
    if min(a, b) == 0:
        raise InputError("cross-K needs a record of each group; one has none")
    return float(a * b), float(b)


def block_contributions(
    places: Floats, mask: Mask, block: Indices, *, reach: float, steps: int = STEPS
) -> Floats:
    """What the records of each block add to the sum behind K, shape (blocks, steps)."""
    sums = sums_of_pairs(places, mask, step=reach / steps, bins=steps, block=block)
    return np.asarray(np.cumsum(sums.weights, axis=1))
