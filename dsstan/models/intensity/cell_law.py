"""The posterior of where a record is, given counts on cells.

Given their number, the records of group k are independent draws of cells with chances p_k. One
more record in cell c multiplies the likelihood by p_k(c), which is all that the intruders of
places need: see ``dsstan.risk.places``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from dsstan.core.arrays import Floats, Indices, Truths

Powers: TypeAlias = NDArray[np.int16]
"""How many records come to a cell, the powers of its chance."""

ROUNDING = 1e-9
"""Relative distance from a threshold that is rounding."""


def too_few(expected: Floats, threshold: float) -> Truths:
    """Whether so few others expected in its cell make a record lonely; a tie does not."""
    return np.asarray(expected < threshold * (1.0 - ROUNDING))


class CellLaw(Protocol):
    """Posterior of the chances p_k(c) of group k and cell c, given any counts, shape (K, C)."""

    def expected(self, counts: Floats, group: int) -> Floats:
        """E[p_k(c) | counts] of ``group``, shape (C,); they sum to 1."""
        ...

    def without(self, counts: Floats, group: int, cells: Indices) -> Floats:
        """Expected chances of all cells where one record of ``group`` is taken from ``counts``.

        Parameters
        ----------
        counts
            Records of each group in each cell, shape (K, C).
        group
            k.
        cells
            Cells from which the record is taken, one at a time, shape (n,).

        Returns
        -------
        ndarray
            E[p_k(c) | counts less one in each of the cells], shape (n, C); rows sum to 1.
        """
        ...


@runtime_checkable
class PowersOfChances(Protocol):
    """A law that also knows powers of the chances: of several records that come or go together.

    The intruders need them where one record decides whether others in its cell are lonely. For a
    law without them they call :meth:`CellLaw.without` once for each such cell.
    """

    def log_powers(
        self, counts: Floats, group: int, cells: Indices, taken: Floats, power: Powers
    ) -> Floats:
        """Logarithms of expected powers of the chances, records taken from the counts.

        Parameters
        ----------
        counts
            Records of each group in each cell, shape (K, C).
        group
            k.
        cells
            Cells from which records are taken, one at a time, shape (n,).
        taken
            How many records of ``group`` are taken from each, or with a minus are put there, shape
            (n,).
        power
            g of each cell, 0 or more, shape (n, C).

        Returns
        -------
        ndarray
            log E[p_k(c)^g | counts less what is taken from each of the cells], shape (n, C).
        """
        ...


@runtime_checkable
class MomentsOfChances(Protocol):
    """A law in closed form: of any records of a group that come together."""

    def log_moment(self, counts: Floats, group: int, cells: Indices, come: Floats) -> float:
        """log E of the product of p_k(c)^come over some cells, given ``counts``.

        Parameters
        ----------
        counts
            Records of each group in each cell, shape (K, C).
        group
            k.
        cells, come
            The cells, none twice, and how many records of the group come to each, shape (n,).
        """
        ...


@dataclass(frozen=True, eq=False)
class IndependentCells:
    """Chances without a surface: p_k ~ Dirichlet(prior_k), in closed form.

    The same as independent gamma intensities given the number of records (Machanavajjhala,
    Kifer, Abowd, Gehrke and Vilhuber 2008, *Privacy: theory meets practice on the map*).

    Attributes
    ----------
    prior
        Prior counts, above 0, shape (K, C).
    """

    prior: Floats = field(repr=False)

    def expected(self, counts: Floats, group: int) -> Floats:
        """See :class:`CellLaw`."""
        total = counts[group] + self.prior[group]
        return np.asarray(total / total.sum())

    def without(self, counts: Floats, group: int, cells: Indices) -> Floats:
        """See :class:`CellLaw`."""
        total = counts[group] + self.prior[group]
        out = np.tile(total, (len(cells), 1))
        out[np.arange(len(cells)), cells] -= 1.0
        return np.asarray(out / (total.sum() - 1.0))

    def log_powers(
        self, counts: Floats, group: int, cells: Indices, taken: Floats, power: Powers
    ) -> Floats:
        """See :class:`PowersOfChances`."""
        total = counts[group] + self.prior[group]
        rows = np.arange(len(cells))
        left = total.sum() - taken
        out = np.where(power == 1, np.log(total) - np.log(left)[:, None], 0.0)
        several = power > 1
        several[rows, cells] = True  # what is taken changes this one
        row, cell = np.nonzero(several)
        start = total[cell] - np.where(cell == cells[row], taken[row], 0.0)
        g, all_left = power[row, cell], left[row]
        out[row, cell] = gammaln(start + g) - gammaln(start)
        out[row, cell] -= gammaln(all_left + g) - gammaln(all_left)
        return np.asarray(out)

    def log_moment(self, counts: Floats, group: int, cells: Indices, come: Floats) -> float:
        """See :class:`MomentsOfChances`."""
        total = counts[group] + self.prior[group]
        rise = gammaln(total[cells] + come) - gammaln(total[cells])
        return float(rise.sum() - gammaln(total.sum() + come.sum()) + gammaln(total.sum()))

    def draw(self, counts: Floats, rng: np.random.Generator) -> Floats:
        """One draw of the chances, shape (K, C)."""
        return np.asarray(self.draws(counts, 1, rng)[0])

    def draws(self, counts: Floats, number: int, rng: np.random.Generator) -> Floats:
        """Several independent draws, shape (number, K, C)."""
        drawn = [rng.dirichlet(row, number) for row in counts + self.prior]
        return np.stack(drawn, axis=1)
