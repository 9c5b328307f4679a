"""The posterior of where a record is, given counts on cells.

Given their number, the records of group k are independent draws of cells with chances p_k. One
more record in cell c multiplies the likelihood by p_k(c), which is all that the intruders of
places need: see ``dsstan.risk.places``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from dsstan.core.arrays import Floats, Indices


class CellLaw(Protocol):
    """Posterior of the chances p_k(c) of group k and cell c, given any counts, shape (K, C)."""

    @property
    def informed_by(self) -> str:
        """``"table"`` or ``"group"`` where each must have an informing record, else ``"nobody"``.

        One that has none is released by another law, or not at all, so that a release shows that
        there is one.
        """
        ...

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

    @property
    def informed_by(self) -> str:
        """See :class:`CellLaw`."""
        return "nobody"

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

    def draws(self, counts: Floats, number: int, rng: np.random.Generator) -> Floats:
        """Several independent draws, shape (number, K, C)."""
        drawn = [rng.dirichlet(row, number) for row in counts + self.prior]
        return np.stack(drawn, axis=1)
