"""Round the copies as the response's column is rounded.

A column of whole thousands, or of prices with two decimals, would otherwise differ visibly from its
copies, and a value that is equal to the original to the last digit would stand out.
What is learnt from the column is how often its values are multiples of 1, 5, 10, 50, ... (or of
0.01, 0.05, 0.1, ...), never which.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["FEWEST", "ROUNDINGS", "Rounding", "find_rounding"]

Floats = NDArray[np.float64]

ROUNDINGS = ("auto", "none")
FEWEST = 3
"""A step that fewer records than this show is not copied, since it would reveal them."""

_MOST_DECIMALS = 12
_CHANCE = 1e-3  # false alarms of heaping where there is none, for each step
_EXACT = 2.0**53


@dataclass(frozen=True)
class Rounding:
    """How often a copy's value is rounded to each step.

    Attributes
    ----------
    decimals
        The steps are counted in units of ``10 ** -decimals``.
    units
        Steps in these units, each a divisor of the next; 0 means a value that is not
        rounded.
    shares
        Share of values that is rounded to each step; they add up to 1.

    Examples
    --------
    >>> find_rounding(np.array([1000.0, 2000.0, 4500.0, 3000.0, 7500.0, 500.0])).steps
    (500.0,)
    """

    decimals: int
    units: tuple[int, ...]
    shares: tuple[float, ...]

    @property
    def steps(self) -> tuple[float, ...]:
        """The steps in the response's own unit."""
        return tuple(unit / 10**self.decimals for unit in self.units)

    def apply(
        self,
        values: Floats,
        rng: np.random.Generator,
        inside: Callable[[Floats], NDArray[np.bool_]] | None = None,
    ) -> Floats:
        """Round values, each to a step drawn by the shares.

        Parameters
        ----------
        values
            On the response's own scale, shape (N,).
        rng
            Decides which value goes to which step; not used where there is one step.
        inside
            Tells which values the model allows. A value that rounding would take out (a price
            of 0 under log, one beyond the end of its bracket) goes up to the next multiple of
            the finest step, or where that is out too, down to it.
        """
        units = np.asarray(self.units, dtype=np.float64)
        if len(units) == 1:
            drawn = np.full(values.shape, units[0])
        else:
            drawn = units[rng.choice(len(units), size=values.shape, p=self.shares)]
        rounded = self._to(values, drawn, np.rint)
        if inside is None:
            return rounded
        finest = np.full(values.shape, units[units > 0].min() if (units > 0).any() else 0.0)
        for nearest in (lambda share: np.floor(share) + 1.0, np.floor):
            rounded = np.where(inside(rounded), rounded, self._to(values, finest, nearest))
        return np.where(inside(rounded), rounded, values)

    def _to(self, values: Floats, units: Floats, whole: Callable[[Floats], Floats]) -> Floats:
        """Values as multiples of units, where floats can hold such a multiple."""
        with np.errstate(all="ignore"):
            counted = whole(values * 10.0**self.decimals / units) * units
            fits = (units > 0) & (np.abs(counted) < _EXACT)
            return np.where(fits, counted / 10.0**self.decimals, values)


def find_rounding(values: Floats, dtype: Any = np.float64) -> Rounding:
    """How the values of a column are rounded.

    The steps 1, 5, 10, 50, ... times a power of ten divide one another, so with m_j the share of
    values rounded to step s_j, the multiples of s_k number
    ``q_k = sum_{j >= k} m_j + sum_{j < k} m_j s_j / s_k``: those rounded so, and those that
    are multiples by chance. This is solved from the finest step on. A coarser step counts as
    heaping only where its multiples are more than chance gives.

    Parameters
    ----------
    values
        The response on its own scale, shape (N,). Zeros, multiples of everything, are left out.
    dtype
        Its type: digits of a single-precision column are those of single precision.

    Returns
    -------
    Rounding
        One step of 0 where the values have all the digits that their type holds.
    """
    width = np.dtype(dtype if np.dtype(dtype).kind == "f" else np.float64)
    values = values[np.isfinite(values) & (values != 0)]
    decimals = _decimals(values, width)
    known = decimals >= 0
    if not known.any() or np.sum(known) < FEWEST:
        return Rounding(0, (0,), (1.0,))
    finest = int(decimals.max())
    counts = [
        round(float(v) * 10 ** int(d)) * 10 ** (finest - int(d))
        for v, d in zip(values[known], decimals[known], strict=True)
    ]
    units = _chain(counts, float(np.subtract(*np.quantile(values, [0.75, 0.25]))), finest)
    found = [sum(n % unit == 0 for n in counts) for unit in units]
    # A step that only one or two show is left out before anything else is asked.
    while len(units) > 1 and found[0] - found[1] < FEWEST and 2 * found[1] > len(values):
        units, found = units[1:], found[1:]
    shares = _shares(units, found, len(values))
    unrounded = 1.0 - len(counts) / len(values)
    if unrounded * len(values) >= FEWEST:
        units, shares = [0, *units], [unrounded, *shares]
    total = sum(shares)
    kept = [(unit, share / total) for unit, share in zip(units, shares, strict=True) if share > 0]
    return Rounding(finest, tuple(u for u, _ in kept), tuple(s for _, s in kept))


def _decimals(values: Floats, width: np.dtype[Any]) -> NDArray[np.int64]:
    """Decimals that each value needs, shape (N,); -1 where it has all that its type holds."""
    most = 10.0 ** (np.finfo(width).precision - 1)
    needed = np.full(values.shape, -1)
    with np.errstate(all="ignore"):
        for k in range(_MOST_DECIMALS, -1, -1):
            counted = np.rint(values * 10.0**k)
            back = (counted / 10.0**k).astype(width).astype(np.float64)
            same = (back == values) & (np.abs(counted) < (most if k else _EXACT))
            needed[same] = k
    return needed


def _chain(counts: list[int], spread: float, decimals: int) -> list[int]:
    """The steps to look at: up to a quarter of the spread, or as far as all are multiples."""
    units, unit, factor = [1], 1, 5
    while True:
        unit *= factor
        factor = 7 - factor  # 5, 2, 5, 2, ...
        odd = sum(n % unit != 0 for n in counts)
        if (odd >= FEWEST and unit / 10**decimals > spread / 4) or unit > max(map(abs, counts)):
            return units
        units.append(unit)


def _shares(units: list[int], found: list[int], n: int) -> list[float]:
    """Share of values rounded to each step, by the count of multiples of each, of n values."""
    from scipy.stats import binom  # half a second to import

    shares: list[float] = []
    for k, unit in enumerate(units):
        left = found[0] / n - sum(shares)

        def chance(coarser: int, rest: float, k: int = k, unit: int = unit) -> float:
            """Share of multiples of a coarser step if the rest were rounded to this one."""
            finer = sum(s * u / coarser for s, u in zip(shares, units[:k], strict=True))
            return finer + rest * unit / coarser

        heaped = any(
            binom.sf(found[j] - 1, n, min(1.0, chance(units[j], left))) < _CHANCE
            and found[j] - n * chance(units[j], left) >= FEWEST
            for j in range(k + 1, len(units))
        )
        if not heaped:
            return [*shares, left, *[0.0] * (len(units) - k - 1)]
        following = units[k + 1]
        # The multiples of the next step that are so by chance go back to this one.
        own = (left + chance(following, 0.0) - found[k + 1] / n) / (1.0 - unit / following)
        enough = found[k] - found[k + 1] >= FEWEST
        shares.append(min(max(own, 0.0), left) if enough else 0.0)
    return shares
