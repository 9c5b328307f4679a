"""Python's side of ``places.R``."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from dsstan.analysis.places.neighbours import largest_gap, nearest_distances
from dsstan.analysis.places.ripley import PairCurves, ripley
from dsstan.table.mask.mask import Mask

from .cases import inputs
from .golden import Floats, Values


def values() -> Values:
    """Each quantity by its key."""
    return {
        "K/rectangle": lambda: whole().k,
        "cross/rectangle": lambda: on(places(), mask(), first=~second(), second=second()).k,
        "pcf/rectangle": lambda: whole().g,
        "K/corner": corner,
        "nearest/rectangle": lambda: nearest_distances(places()),
        "nearest/gap": gap,
    }


def places() -> Floats:
    """All places."""
    return np.array(inputs("places")["places"])


def second() -> Any:
    """Members of the second group."""
    return np.array(inputs("places")["second"]) == 1


def mask() -> Mask:
    """The rectangle of cells."""
    width = float(inputs("places")["width"])
    x, y = (width * (np.arange(n) + 0.5) for n in (8, 6))
    centres = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
    return Mask(centres, width, np.ones(len(centres)))


def on(at: Floats, where: Mask, **groups: Any) -> PairCurves:
    """The curves at the radii of the inputs."""
    own = inputs("places")
    return ripley(at, where, reach=own["reach"], steps=own["steps"], **groups)


@cache
def whole() -> PairCurves:
    """Those of all places."""
    return on(places(), mask())


def corner() -> Floats:
    """K of the places on the L."""
    whole_mask = mask()
    kept = ~np.all(whole_mask.centres > [2.0, 1.5], axis=1)
    part = Mask(whole_mask.centres[kept], whole_mask.width, np.ones(int(kept.sum())))
    return on(places()[part.cell_of(places()) >= 0], part).k


def gap() -> float:
    """Largest gap of the distribution functions of nearest distances."""
    return largest_gap(*(nearest_distances(places()[g]) for g in (~second(), second())))
