"""What copies with synthetic places keep, in one result."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
import pandas as pd

from dsstan.analysis.places.areas import areas_of_cells, compare_counts, counts_on, squares
from dsstan.analysis.places.curves import compare_regression, residuals_of, variogram_of
from dsstan.analysis.places.envelopes import Envelope, bootstrap_envelope
from dsstan.analysis.places.marked import MarkedPlaces
from dsstan.analysis.places.neighbours import compare_nearest, largest_gap, nearest_distances
from dsstan.analysis.places.ripley import STEPS, checked_reach, ripley
from dsstan.core.arrays import Floats
from dsstan.core.display import Card, Part, Shown, per_cent
from dsstan.core.errors import InputError
from dsstan.table.mask.mask import Mask

_DEFAULT_CELLS = 2
"""Cells of the mask along a default square of counts."""

_GROUPS = 3
"""Groups, the largest, of which cross-K is computed."""


@dataclass(frozen=True, eq=False, repr=False)
class PlaceUtility(Shown):
    """The original beside copies whose places are synthetic or masked. Confidential.

    Attributes
    ----------
    curves
        One row a curve and distance: ``curve`` (``"K"``, ``"pair correlation"``, ``"cross-K a-b"``,
        ``"variogram"``), ``distance``, ``original``, ``copies`` (the mean over copies),
        ``smallest`` and ``largest``, and of K ``low`` and ``high`` of the envelope.
    envelope
        That of K.
    inside
        Share of the distances at which K is inside its envelope: ``"mean of copies"``, and
        ``"each copy"`` on average.
    counts
        By what areas: see :func:`dsstan.analysis.places.areas.compare_counts`.
    nearest
        See :func:`dsstan.analysis.places.neighbours.compare_nearest`.
    nearest_gap
        Largest difference of the distribution functions of that distance, mean over copies.
    regression
        See :func:`dsstan.analysis.places.curves.compare_regression`; None without values,
        or where a trend of the place can't be estimated from every table.
    copies
        L.
    no_regression
        Why there is no regression though there are values; empty otherwise.
    """

    curves: pd.DataFrame = field(repr=False)
    envelope: Envelope = field(repr=False)
    inside: Mapping[str, float] = field(repr=False)
    counts: pd.DataFrame = field(repr=False)
    nearest: pd.DataFrame = field(repr=False)
    nearest_gap: float
    regression: pd.DataFrame | None = field(repr=False)
    copies: int
    no_regression: str = field(repr=False, default="")

    def _line(self) -> str:
        noun = "copy" if self.copies == 1 else "copies"
        return (
            f"Places of {self.copies} {noun}: K inside the envelope at "
            f"{per_cent(self.inside['mean of copies'])} of distances"
        )

    def _card(self) -> Card:
        blocks: list[Part | str] = [
            Part(
                self.distances().to_frame("difference"),
                "Mean absolute difference of the copies' mean curve, relative to the original",
            )
        ]
        blocks += [
            f"K of each copy is inside at {per_cent(self.inside['each copy'])} of distances on "
            f"average; the envelope is from {self.envelope.source}, at level "
            f"{self.envelope.level:g}",
            Part(
                self.counts,
                "Counts of records by area: their correlation, the share of records that would "
                "have to move to another area (misplaced), and the share of areas whose count is "
                "within a tenth of the original's or one record (near)",
            ),
            Part(self.nearest, "Distance to the nearest record, quantiles over records"),
        ]
        if self.regression is not None:
            title = "Least squares with a trend of the place, 95% intervals"
            blocks.append(Part(self.regression, title))
        elif self.no_regression:
            blocks.append(f"No regression: {self.no_regression}.")
        return Card(blocks=tuple(blocks))

    def distances(self) -> pd.Series[float]:
        """How far each curve of the copies' mean is from the original's; see :func:`apart`."""
        return pd.Series(
            {
                str(name): apart(c["original"].to_numpy(), c["copies"].to_numpy(), str(name))
                for name, c in self.curves.groupby("curve", sort=False)
            }
        )


def apart(original: Floats, other: Floats, curve: str = "K") -> float:
    """Mean absolute difference of two curves over the mean of the first.

    K functions are compared as sqrt(K), which has about the same error at every radius. Distances
    where either is not known are left out.
    """
    known = np.isfinite(original) & np.isfinite(other)
    a, b = original[known], other[known]
    if curve.startswith(("K", "cross-K")):
        a, b = np.sqrt(np.maximum(a, 0.0)), np.sqrt(np.maximum(b, 0.0))
    return float(np.abs(b - a).mean() / a.mean())


def place_utility(
    original: MarkedPlaces,
    copies: Sequence[MarkedPlaces],
    mask: Mask,
    *,
    reach: float | None = None,
    steps: int = STEPS,
    side: float | None = None,
    areas: Mapping[str, Sequence[Hashable]] | None = None,
    envelope: Envelope | None = None,
    population: bool = False,
    seed: int = 0,
) -> PlaceUtility:
    """Compare copies whose places are synthetic or masked with the original.

    Parameters
    ----------
    original, copies
        The tables. The variogram is that of the residuals of the regression where there is one.
    mask
        The study area; all places must be in it.
    reach, steps
        Largest distance, by default that of
        :func:`dsstan.analysis.places.ripley.default_reach`, and the number of distances.
    side
        Of the squares of the grid for counts, in the mask's unit, such as 1 where it is the
        kilometre; by default two cells of the mask.
    areas
        Names of areas by what they are called, one a cell of the mask.
    envelope
        Of K; by default that of :func:`dsstan.analysis.places.envelopes.bootstrap_envelope`.
    population
        Whether copies are synthetic populations; see
        :func:`dsstan.analysis.places.curves.compare_regression`.
    seed
        Of that bootstrap.

    Raises
    ------
    InputError
        If there is no copy, or an argument is impossible.
    CoordinateError
        If a place is not in the mask.
    """
    if not copies:
        raise InputError("there is no copy to compare with the original")
    far = checked_reach(mask, reach, steps, len(original.places))
    band = envelope or bootstrap_envelope(original.places, mask, reach=far, steps=steps, seed=seed)
    if len(band.low) != steps:
        raise InputError(f"the envelope has {len(band.low)} radii, and steps is {steps}")
    tables = [original, *copies]
    plain = [ripley(t.places, mask, reach=far, steps=steps) for t in tables]
    radii = plain[0].radii
    k = np.stack([p.k for p in plain])
    ends = {"low": band.low, "high": band.high}
    parts = [_curve("K", radii, k, **ends), _curve("pair correlation", radii, [p.g for p in plain])]
    parts += _crossed(tables, mask, far, steps)
    if all(t.values is not None for t in tables):
        found = [variogram_of(residuals_of(t), mask, reach=far, bins=steps // 2) for t in tables]
        at = found[0]["distance"].to_numpy()
        parts.append(_curve("variogram", at, [f["gamma"].to_numpy() for f in found]))
    regression, lacking = None, ""
    if all(t.values is not None and t.X is not None for t in tables):
        try:
            regression = compare_regression(original, copies, population=population)
        except InputError as error:  # places too few or too alike, or a level that a copy lacks
            lacking = str(error)
    own = nearest_distances(original.places)
    gaps = [largest_gap(own, nearest_distances(c.places)) for c in copies]
    return PlaceUtility(
        pd.concat(parts, ignore_index=True),
        band,
        {
            "mean of copies": band.inside(k[1:].mean(axis=0)),
            "each copy": float(np.mean([band.inside(row) for row in k[1:]])),
        },
        _counts(tables, mask, side, areas or {}),
        compare_nearest(original.places, [c.places for c in copies]),
        float(np.mean(gaps)),
        regression,
        len(copies),
        lacking,
    )


def _curve(
    name: str, at: Floats, values: Sequence[Floats] | Floats, **more: Floats
) -> pd.DataFrame:
    """A curve of the original, the first, beside those of the copies."""
    rows = np.asarray(values)
    columns = {
        "distance": at,
        "original": rows[0],
        "copies": rows[1:].mean(axis=0),
        "smallest": rows[1:].min(axis=0),
        "largest": rows[1:].max(axis=0),
    }
    out = pd.DataFrame({**columns, **more})
    out.insert(0, "curve", name)
    return out


def _crossed(
    tables: Sequence[MarkedPlaces], mask: Mask, reach: float, steps: int
) -> list[pd.DataFrame]:
    """Cross-K of each two of the largest groups that every table has."""
    numbers = [t.groups for t in tables if t.groups is not None]
    if len(numbers) < len(tables):
        return []
    common = set.intersection(*(set(n.tolist()) for n in numbers))
    sizes = {g: int((numbers[0] == g).sum()) for g in common}
    largest = sorted(sorted(common, key=lambda g: (-sizes[g], g))[:_GROUPS])
    out = []
    for a, b in combinations(largest, 2):
        found = [
            ripley(t.places, mask, reach=reach, steps=steps, first=n == a, second=n == b)
            for t, n in zip(tables, numbers, strict=True)
        ]
        out.append(_curve(f"cross-K {a}-{b}", found[0].radii, [f.k for f in found]))
    return out


def _counts(
    tables: Sequence[MarkedPlaces],
    mask: Mask,
    side: float | None,
    areas: Mapping[str, Sequence[Hashable]],
) -> pd.DataFrame:
    """Counts on each kind of areas, one row a kind."""
    low = mask.centres.min(axis=0) - 0.5 * mask.width
    length = _DEFAULT_CELLS * mask.width if side is None else side
    kinds: dict[str, Sequence[Sequence[Hashable]]] = {
        f"squares of {length:.4g}": [squares(t.places, length, low) for t in tables]
    }
    for name, area in areas.items():
        kinds[name] = [areas_of_cells(t.places, mask, area) for t in tables]
    rows = {name: compare_counts(*counts_on(c[0], c[1:])) for name, c in kinds.items()}
    return pd.DataFrame(rows).T
