"""Within which curves a summary of places may lie by chance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from dsstan.analysis.combining import LEVEL
from dsstan.analysis.places.ripley import STEPS, block_contributions, checked_reach, ripley
from dsstan.core.arrays import Floats
from dsstan.core.errors import InputError, check_count
from dsstan.table.mask.mask import Mask

CELLS, TABLES = "bootstrap of blocks of cells", "simulated tables"
"""Where the curves of an envelope come from."""

RESAMPLES = 499
"""Default number of resamples of blocks."""

_BLOCKS = 5
"""Default blocks along the longer side of the rectangle around the mask."""


@dataclass(frozen=True, eq=False)
class Envelope:
    """A band that holds a whole curve with the stated probability.

    Attributes
    ----------
    low, high
        Ends at each radius, shape (m,).
    source
        :data:`CELLS` or :data:`TABLES`.
    level
        Probability that a curve of that source stays within at every radius.
    """

    low: Floats = field(repr=False)
    high: Floats = field(repr=False)
    source: str
    level: float

    def inside(self, curve: Floats) -> float:
        """Share of the radii at which a curve, shape (m,), is inside."""
        return float(np.mean((curve >= self.low) & (curve <= self.high)))


def global_envelope(
    simulated: Floats, *, level: float = LEVEL, centre: Floats | None = None, source: str = TABLES
) -> Envelope:
    """Envelope of equal width in standard deviations: a curve of the same law stays inside it.

    The studentised maximum absolute deviation of Myllymaki, Mrkvicka, Grabarnik, Seijo and Hahn
    (2017), Journal of the Royal Statistical Society B 79. With S simulated curves the deviation of
    rank ceil(level (S + 1)) is its half width, so that one more curve stays inside with
    probability ``level`` or more.

    Parameters
    ----------
    simulated
        Curves, shape (S, m).
    level
        Probability.
    centre
        Middle of the band, shape (m,); by default the mean of the simulated curves.
    source
        What is written beside it.

    Raises
    ------
    InputError
        If there are too few curves for the level.
    """
    if not 0 < level < 1:
        raise InputError("level must lie between 0 and 1")
    rank = int(np.ceil(level * (len(simulated) + 1) - 1e-9))
    if len(simulated) < 2 or rank > len(simulated):
        least = int(np.ceil(level / (1.0 - level)))
        raise InputError(
            f"an envelope at level {level:g} needs {max(2, least)} simulated curves at least; "
            f"there are {len(simulated)}"
        )
    middle = simulated.mean(axis=0) if centre is None else centre
    sd = simulated.std(axis=0, ddof=1)
    away = np.abs(simulated - middle)
    # Where all curves agree, so does the band.
    deviations = np.divide(away, sd, out=np.zeros_like(away), where=sd > 0).max(axis=1)
    half = np.sort(deviations)[rank - 1] * sd
    return Envelope(middle - half, middle + half, source, level)


def bootstrap_envelope(
    places: Floats,
    mask: Mask,
    *,
    reach: float | None = None,
    steps: int = STEPS,
    side: float | None = None,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
    seed: int = 0,
) -> Envelope:
    """Envelope of K about the K of the original, from the original alone.

    Square blocks of the study area are drawn with replacement; each brings what its records add to
    K, pairs across its edge included (Loh 2008, Astrophysical Journal 681). It is what another
    table from the same process might show, not what a copy must.

    Parameters
    ----------
    places
        Planar coordinates, shape (N, 2), all in the mask.
    mask
        The study area.
    reach, steps
        See :func:`dsstan.analysis.places.ripley.ripley`.
    side
        Of a block, in the mask's unit; by default a fifth of the longer side of the rectangle
        around the mask.
    resamples, level, seed
        Number of resamples; probability; of the random numbers.

    Raises
    ------
    InputError
        If fewer than two blocks hold a record, or an argument is impossible.
    """
    check_count("resamples", resamples)
    far = checked_reach(mask, reach, steps, len(places))
    low = mask.centres.min(axis=0) - 0.5 * mask.width
    width = float(np.ptp(mask.centres, axis=0).max() + mask.width)
    length = width / _BLOCKS if side is None else side
    if not length > 0:
        raise InputError("side is the length of a block, above 0")
    number = np.floor((places - low) / length).astype(np.int64)
    block = np.unique(number, axis=0, return_inverse=True)[1].ravel()
    records = np.bincount(block).astype(np.float64)
    if len(records) < 2:
        raise InputError("the records lie in one block: take smaller blocks with side")
    sums = block_contributions(places, mask, block, reach=far, steps=steps)
    rng = np.random.default_rng(seed)
    times = rng.multinomial(len(records), np.full(len(records), 1.0 / len(records)), resamples)
    area, n = mask.n_cells * mask.width**2, len(places)
    scale = area**2 / (n * (n - 1.0))
    curves = scale * n * (times @ sums) / (times @ records)[:, None]
    return global_envelope(curves, level=level, centre=scale * sums.sum(axis=0), source=CELLS)


def simulated_envelope(
    tables: Sequence[Floats],
    mask: Mask,
    *,
    reach: float | None = None,
    steps: int = STEPS,
    level: float = LEVEL,
) -> Envelope:
    """Envelope of K from simulated tables of places, such as Poisson ones from an intensity.

    Parameters
    ----------
    tables
        Places of each table, shape (N, 2), all in the mask; 19 or more at level 0.95.
    mask, reach, steps, level
        See :func:`bootstrap_envelope`.
    """
    far = checked_reach(mask, reach, steps, max(map(len, tables), default=0))
    curves = [ripley(places, mask, reach=far, steps=steps).k for places in tables]
    return global_envelope(np.stack(curves), level=level)
