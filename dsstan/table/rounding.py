"""Round the copies as the response's column is rounded.

A column of whole thousands, or of prices with two decimals, would otherwise differ visibly from its
copies, and a value that is equal to the original to the last digit would stand out. What is learnt
from the column is its step, the greatest number of which all values are multiples (25,000, 12.5,
0.25), and how often values are multiples of a coarser one (one price in three in whole thousands),
never which.

Even how often would reveal whether one record has cents to somebody who knows all others, since
many copies show the share exactly. So a release draws the shares once, from their posterior, and
how many records must show a step for copies to have it (:meth:`Rounding.redrawn`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsstan.core.arrays import Floats, Truths

__all__ = ["FEWEST", "ROUNDINGS", "Rounding", "find_rounding"]


ROUNDINGS = ("auto", "none")
FEWEST, MORE = 3, 10
"""A step that fewer records than this show is not copied, since it would reveal them. A release
draws its own such number, up to so many more."""

_MOST_DECIMALS = 12
_EXACT = 2.0**53

_ULPS, _LOOSE = 16, 1e11
"""A value below so many units counts as a decimal that is so many units in the last place away, as
what went through a logarithm and back is."""

_CHANCE = 1e-3
"""False alarms of heaping where there is none, for each step."""

_ACCIDENT = 0.01
"""Share of values with all digits of their type that look like shorter decimals by accident."""

_TIMES = (2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 60, 80, 100, 200, 250, 500, 1000)
"""How many times one step the next may be."""


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
    records
        Values that the shares were found in; 0 where they are given.

    Examples
    --------
    >>> find_rounding(np.array([1000.0, 2000.0, 4500.0, 3000.0, 7500.0, 500.0])).steps
    (500.0,)
    """

    decimals: int
    units: tuple[int, ...]
    shares: tuple[float, ...]
    records: int = 0

    @property
    def steps(self) -> tuple[float, ...]:
        """The steps in the response's own unit."""
        return tuple(unit / 10**self.decimals for unit in self.units)

    def redrawn(self, rng: np.random.Generator) -> Rounding:
        """The same steps with shares drawn from their posterior, once for a release.

        Dirichlet, of the numbers of values and Jeffreys' prior. Its spread is that of sampling N
        records, so one record more or less with cents makes no share much more likely.
        """
        if len(self.shares) == 1:
            return self
        shares = rng.dirichlet(self.records * np.asarray(self.shares) + 0.5)
        return replace(self, shares=tuple(float(share) for share in shares))

    def apply(
        self,
        values: Floats,
        rng: np.random.Generator,
        inside: Callable[[Floats], Truths] | None = None,
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
            times = whole(values * 10.0**self.decimals / units)
            counted = times * units
            # Whole numbers may be large: of decimals floats hold so many digits only.
            held = times if self.decimals == 0 else counted
            fits = (units > 0) & (np.abs(held) < _EXACT)
            return np.where(fits, counted / 10.0**self.decimals, values)


def find_rounding(values: Floats, dtype: Any = np.float64, *, fewest: int = FEWEST) -> Rounding:
    """How the values of a column are rounded.

    The finest step is the greatest common divisor of all values, but for fewer than ``fewest``. A
    coarser one is looked for among its multiples: with m_j the share of values rounded to step
    s_j, each a divisor of the next, the multiples of s_k number
    ``q_k = sum_{j >= k} m_j + sum_{j < k} m_j s_j / s_k``: those rounded so, and those that are
    multiples by chance. This is solved from the finest step on. A coarser step counts only where
    its multiples are more than chance gives.

    Parameters
    ----------
    values
        The response on its own scale, shape (N,). Zeros, multiples of everything, are left out.
    dtype
        Its type: digits of a single-precision column are those of single precision.
    fewest
        Records that must show a step.

    Returns
    -------
    Rounding
        One step of 0 where the values have all the digits that their type holds.
    """
    width = np.dtype(dtype if np.dtype(dtype).kind == "f" else np.float64)
    values = values[np.isfinite(values) & (values != 0)]
    decimals = _decimals(values, width)
    known = decimals >= 0
    if known.sum() < max(min(fewest, FEWEST), _ACCIDENT * len(values)) or not known.any():
        return Rounding(0, (0,), (1.0,))
    finest = int(decimals.max())
    counts = _counts(values[known], finest)
    spread = float(np.subtract(*np.quantile(values, [0.75, 0.25]))) * 10.0**finest
    units = _chain(counts, spread, fewest)
    if not finest and units[0] < np.spacing(np.abs(values[known]).max()):
        return Rounding(0, (0,), (1.0,))  # whole because floats of that size are
    shares = _shares(units, counts, len(values), fewest)
    unrounded = 1.0 - len(counts) / len(values)
    if unrounded * len(values) >= fewest:
        units, shares = [0, *units], [unrounded, *shares]
    total = sum(shares)
    kept = [(unit, share / total) for unit, share in zip(units, shares, strict=True) if share > 0]
    return Rounding(
        finest, tuple(u for u, _ in kept), tuple(s for _, s in kept), records=len(values)
    )


def _decimals(values: Floats, width: np.dtype[Any]) -> NDArray[np.int64]:
    """Decimals that each value needs, shape (N,); -1 where it has all that its type holds."""
    most = 10.0 ** (np.finfo(width).precision - 1)
    near = _ULPS * np.finfo(np.float64).eps * np.abs(values)
    loose = _LOOSE if width == np.float64 else 0.0
    needed = np.full(values.shape, -1)
    with np.errstate(all="ignore"):
        for k in range(_MOST_DECIMALS, -1, -1):
            counted = np.rint(values * 10.0**k)
            back = (counted / 10.0**k).astype(width).astype(np.float64)
            same = (back == values) & ((np.abs(counted) < most) | (k == 0))
            same |= (np.abs(back - values) <= near) & (np.abs(counted) < loose)
            needed[same] = k
    return needed


def _counts(values: Floats, decimals: int) -> NDArray[Any]:
    """Values in units of their last decimal, whole numbers that may be very large, shape (N,)."""
    if np.abs(values).max() * 10.0**decimals < _EXACT:
        return np.abs(np.rint(values * 10.0**decimals)).astype(np.int64)
    if not decimals and np.abs(values).max() < 2.0**63:
        return np.abs(values).astype(np.int64)
    # Whole numbers keep their digits, however many.
    ten = 10**decimals
    exact = [int(v) * ten if v == int(v) else round(float(v) * ten) for v in values]
    return np.array([abs(n) for n in exact], dtype=object)


def _chain(counts: NDArray[Any], spread: float, fewest: int) -> list[int]:
    """The steps, finest first, each a divisor of the next."""
    from scipy.stats import binom  # half a second to import

    units = [_common(counts, fewest)]
    while True:
        unit = units[-1]
        own = counts[counts % unit == 0]
        found: list[tuple[int, float, float]] = []
        for times in _TIMES:
            hits = int(np.sum(own % (unit * times) == 0)) if unit * times <= spread / 4 else 0
            alarm = _CHANCE / len(_TIMES)
            if (
                hits - len(own) / times >= fewest
                and binom.sf(hits - 1, len(own), 1 / times) < alarm
            ):
                share = hits / len(own)
                excess = (share - 1 / times) / (1 - 1 / times)
                found.append((unit * times, excess, np.sqrt(share * (1 - share) / len(own))))
        if not found:
            return units
        # Divisors of the step that values are heaped at show the same excess, multiples less.
        most = max(excess for _, excess, _ in found)
        units.append(max(u for u, excess, error in found if excess >= most - 2.0 * error - 1e-9))


def _common(counts: NDArray[Any], fewest: int) -> int:
    """The greatest number that divides all but a few, at most a quarter.

    Of so many blocks of records that one has none of the few, the greatest common divisor of each
    block is a multiple of it.
    """
    left_out = min(fewest - 1, len(counts) // 4)
    best = 1
    for block in np.array_split(counts, left_out + 1):
        divisor = np.gcd.reduce(block)
        shared, times = np.unique(np.gcd(counts, divisor), return_counts=True)
        candidates = {int(n) for n in shared}
        while True:
            closed = {math.gcd(a, b) for a in candidates for b in candidates}
            if len(closed) == len(candidates) or len(closed) > _MOST_DIVISORS:
                break
            candidates = closed
        for candidate in candidates:
            if candidate > best and times[shared % candidate != 0].sum() <= left_out:
                best = candidate
    return best


_MOST_DIVISORS = 400
"""Divisors beyond which no more of them are looked for."""


def _shares(units: list[int], counts: NDArray[Any], n: int, fewest: int) -> list[float]:
    """Share of n values that are rounded to each step."""
    found = [int(np.sum(counts % unit == 0)) for unit in units]
    shares: list[float] = []
    for k, unit in enumerate(units[:-1]):
        following = units[k + 1]
        left = found[0] / n - sum(shares)
        # The multiples of the next step that are so by chance go back to this one.
        finer = sum(s * u / following for s, u in zip(shares, units[:k], strict=True))
        own = (left + finer - found[k + 1] / n) / (1.0 - unit / following)
        accident = 3.0 * math.sqrt(
            n * sum(s * u / unit for s, u in zip(shares, units, strict=False))
        )
        enough = found[k] - found[k + 1] >= fewest and n * own > accident
        shares.append(min(max(own, 0.0), left) if enough else 0.0)
    return [*shares, found[0] / n - sum(shares)]
