"""One table of methods that change places: what intruders find, and what is kept."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from dsstan.analysis.places.envelopes import Envelope, bootstrap_envelope
from dsstan.analysis.places.marked import MarkedPlaces
from dsstan.analysis.places.ripley import STEPS, checked_reach
from dsstan.analysis.places.utility import PlaceUtility, place_utility
from dsstan.comparison.places.result import ProtectedPlaces
from dsstan.core.display import Card, Part, Shown
from dsstan.core.errors import InputError
from dsstan.table.mask.mask import Mask

FLOOR = 0.1
"""Default chance of the right cell above which a record counts as found."""

_HALVINGS = 12
"""Steps by which a setting is looked for."""


@dataclass(frozen=True, eq=False, repr=False)
class PlaceComparison(Shown):
    """Methods side by side. Confidential.

    Attributes
    ----------
    table
        One row a method: ``setting``, the intruder's chance of the right cell (``finding mean``,
        ``finding max``, and ``found``, the share of records above the floor), ``presence max``
        (the largest Bayes factor), and how far the copies are from the original: of K, of the
        variogram (:func:`dsstan.analysis.places.utility.apart`), and the largest bias of a
        coefficient in its standard errors.
    utilities
        By method, all that is kept.
    notes
        By method, what its numbers leave out.
    floor
        Chance above which a record counts as found.
    """

    table: pd.DataFrame = field(repr=False)
    utilities: dict[str, PlaceUtility] = field(repr=False)
    notes: dict[str, str] = field(repr=False)
    floor: float = FLOOR

    def _line(self) -> str:
        return f"Places by {len(self.table)} methods; found: above a chance of {self.floor:g}"

    def _card(self) -> Card:
        notes = [f"{name}: {note}" for name, note in self.notes.items() if note]
        return Card(blocks=(Part(self.table), *notes))


def compare_places(
    original: MarkedPlaces,
    mask: Mask,
    methods: Sequence[ProtectedPlaces],
    *,
    floor: float = FLOOR,
    reach: float | None = None,
    steps: int = STEPS,
    seed: int = 0,
) -> PlaceComparison:
    """Compare methods that change places by one table. Confidential.

    Parameters
    ----------
    original, mask
        The table, and its study area.
    methods
        Their tables and intruders, each method once; the prior of all should be the same.
    floor
        Chance of the right cell above which a record counts as found.
    reach, steps, seed
        See :func:`dsstan.analysis.places.utility.place_utility`.

    Raises
    ------
    InputError
        If a method is there twice, or an argument is impossible.
    """
    names = [m.method for m in methods]
    if len(set(names)) < len(names) or not names:
        raise InputError("methods needs one method or more, each once")
    if not 0 < floor < 1:
        raise InputError("floor is a chance, between 0 and 1")
    far = checked_reach(mask, reach, steps, len(original.places))
    band = bootstrap_envelope(original.places, mask, reach=far, steps=steps, seed=seed)
    kept = {m.method: _kept(original, m, mask, far, steps, band) for m in methods}
    rows = [_row(m, kept[m.method], floor) for m in methods]
    notes = {m.method: m.note for m in methods}
    return PlaceComparison(pd.DataFrame(rows, index=names), kept, notes, floor)


def _kept(
    original: MarkedPlaces,
    method: ProtectedPlaces,
    mask: Mask,
    reach: float,
    steps: int,
    band: Envelope,
) -> PlaceUtility:
    return place_utility(original, method.tables, mask, reach=reach, steps=steps, envelope=band)


def _row(method: ProtectedPlaces, kept: PlaceUtility, floor: float) -> dict[str, object]:
    """Risk and utility of one method."""
    distances = kept.distances()
    bias = math.nan
    if kept.regression is not None:
        bias = float(kept.regression["bias_in_se"].abs().max())
    return {
        "setting": method.setting,
        "finding mean": method.mean_finding,
        "finding max": float(method.finding.max()),
        "found": float(np.mean(method.finding > floor)),
        "presence max": float(method.presence.max()),
        "K": float(distances["K"]),
        "variogram": float(distances.get("variogram", math.nan)),
        "bias": bias,
    }


def at_equal_risk(
    make: Callable[[float], ProtectedPlaces],
    aim: float,
    bounds: tuple[float, float],
    *,
    whole: bool = False,
) -> ProtectedPlaces:
    """A method at the weakest setting found whose mean chance of the right cell meets an aim.

    The risk must fall as the setting grows, but for the chance of the draws; the setting is looked
    for by halving on the log scale.

    Parameters
    ----------
    make
        The method at a setting, such as a radius.
    aim
        Mean chance of the right cell, such as that of a release.
    bounds
        Weakest and strongest setting.
    whole
        Whether settings are whole numbers.

    Returns
    -------
    ProtectedPlaces
        At the setting with the largest risk up to the aim among those that were tried; where none
        meets the aim, at the strongest.

    Raises
    ------
    InputError
        If the bounds do not ascend from above 0.
    """
    low, high = bounds
    if not 0 < low < high < math.inf:
        raise InputError("bounds are the weakest and the strongest setting, ascending from above 0")
    tried: dict[float, ProtectedPlaces] = {}

    def at(setting: float) -> ProtectedPlaces:
        value = float(round(setting)) if whole else setting
        if value not in tried:
            tried[value] = make(value)
        return tried[value]

    if at(high).mean_finding > aim or at(low).mean_finding <= aim:
        return at(high) if at(high).mean_finding > aim else at(low)
    for _ in range(_HALVINGS):
        middle = math.sqrt(low * high)
        if at(middle).mean_finding <= aim:
            high = middle
        else:
            low = middle
    met = [m for m in tried.values() if m.mean_finding <= aim]
    return max(met, key=lambda m: m.mean_finding)
