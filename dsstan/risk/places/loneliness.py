"""Who informs a release with a record and without it, as an intruder works it out.

Whether a record is lonely depends on all others. A record that comes to a cell, or goes, can so
make others inform the release or stop.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dsstan.core.arrays import Floats, Indices, Truths
from dsstan.models.intensity.cell_law import Powers, too_few
from dsstan.risk.places.known import KnownPlaces, Pairs
from dsstan.risk.places.powers import log_powers

__all__ = ["Change", "change_of"]


@dataclass(frozen=True, eq=False)
class Change:
    """How the records that inform a release change with the record in question, of one group.

    That a record in c raises what is expected in j is, as E[p_j p_c] has no order, by the factor
    by which taking one from j lowers what is expected in c. So with X all records but one of j,

        ``E[p_j | X - i + c] = E[p_j | X] near_i(c_j) / near_j(c)``,

    near_i(c) the factor by which taking the record of row i changes E[p(c)]; exact but for what i
    and c have to do with each other.

    Attributes
    ----------
    taken, taken_fewer
        Records of its cell that inform the release and would not if it were elsewhere, or in no
        cell at all, shape (n,).
    gained
        Records that would inform it in addition if the record were in cell c: itself unless it
        were lonely there, and others of that cell that no longer were, shape (n, C).
    others
        Records beside it in its cell that are lonely while it is in some other cells, shape (n,).
    away, fewer
        Whether the records in the cell of a column, another, are lonely without that of the row,
        which is in some other cell, or in none, shape (n, n).
    """

    taken: Floats
    taken_fewer: Floats
    gained: Powers = field(repr=False)
    others: Floats
    away: Truths = field(repr=False)
    fewer: Truths = field(repr=False)
    _near: Floats = field(repr=False)
    _own: Floats = field(repr=False)
    _beside: Floats = field(repr=False)
    _two: Indices = field(repr=False)
    _cells: Indices = field(repr=False)
    _least: float

    def joining(self, of: int) -> Indices:
        """Cells in which one more record may keep those of a lonely cell from being so."""
        most = np.delete(self._near[:, self._cells[of]], of).max(initial=0.0)
        enough = ~too_few(self._own[of] * most / self._near[of], self._least)
        enough[self._cells[of]] = False
        return np.flatnonzero(enough)

    def kept(self, of: int, columns: Indices) -> Truths:
        """Whether the record of each row, put into the columns, does so, shape (n, len(columns)).

        Nobody keeps oneself from being lonely; where the record is already all is as it is.
        """
        raised = self._own[of] * self._near[:, self._cells[of], None] / self._near[of, columns]
        enough = ~too_few(raised, self._least)
        enough &= columns != self._cells[:, None]
        enough[of] = False
        return enough

    def lost(self, row: int, other: int) -> Truths:
        """Cells in which the record of a row would leave those of ``other`` lonely, shape (C,)."""
        raised = self._own[other] * self._near[row, self._cells[other]] / self._near[other]
        out = too_few(raised, self._least)
        out[self._cells[row]] = False
        return out

    def rejoining(self, row: int) -> Truths:
        """Cells in which the record of a row would still keep those beside it from being lonely,
        shape (C,)."""
        return ~too_few(self._beside[np.searchsorted(self._two, row)], self._least)


def change_of(known: KnownPlaces, pairs: Pairs, prior: Floats) -> Change:
    """How who informs the release changes with each record of a group.

    Parameters
    ----------
    known, pairs
        The table, and the occupied cells of the group.
    prior
        Expected chances by all other records, shape (n, C).
    """
    k, cells = pairs.group, pairs.cells
    n, rows = known.everyone[k], np.arange(len(cells))
    total, least = known.totals[k], known.lonely_below
    near = prior / known.law.expected(known.everyone, k)

    two = np.flatnonzero((n[cells] > 1) & ~pairs.alone)
    here, at = cells[two], np.arange(len(two))
    power = np.ones((len(two), len(n)), dtype=np.int16)
    beside = np.full(len(two), 2.0)
    beside = log_powers(known.law, known.everyone, k, here, beside, power)
    np.exp(beside, out=beside)
    stays, stays_fewer = np.zeros((2, len(cells)), dtype=bool)
    without_two = beside[at, here]
    stays_fewer[two] = ~too_few((total - 2) * without_two, least)
    np.divide(prior[two], beside, out=beside)  # by how much one more in c raises the own cell
    beside *= (total - 1) * without_two[:, None]
    beside[at, here] = np.inf
    stays[two] = ~too_few(beside.min(axis=1, initial=np.inf), least)
    beside[at, here] = 0.0  # where the record is already, nothing changes
    left, left_fewer = (np.where(one, n[cells] - 1.0, 0.0) for one in (stays, stays_fewer))

    lonely = too_few((total - 1) * prior, least)
    gained = np.where(lonely, 0.0, n + 1.0 - known.informing[k])
    gained[rows, cells] = np.where(pairs.alone, 0.0, n[cells] - left)

    own = (total - 1) * prior[rows, cells]
    informing = ~pairs.alone & ~np.eye(len(cells), dtype=bool)
    lowered = own * near[:, cells]
    away = informing & too_few(lowered / near.max(axis=1), least)
    # a second record lowers the total of prior and counts further, which far cells show
    far = _of_others(near, cells)
    far *= np.maximum(2.0 - far, np.finfo(float).eps)
    lowered *= (total - 2) / max(total - 1, 1.0) / far[:, None]
    fewer = informing & too_few(lowered, least)
    informs = known.informing[k, cells]
    return Change(
        informs - left,
        informs - left_fewer,
        np.maximum(gained, 0.0).astype(np.int16),
        np.where(pairs.alone | stays, 0.0, n[cells] - 1.0),
        away,
        fewer,
        near,
        own,
        beside,
        two,
        cells,
        least,
    )


def _of_others(ratio: Floats, cells: Indices) -> Floats:
    """Median of each row beside its own cell: how far all chances move with the total, (n,)."""
    if ratio.shape[1] < 2:
        return np.ones(len(ratio))
    out = np.empty(len(ratio))
    for row, cell in enumerate(cells):
        out[row] = np.median(np.delete(ratio[row], cell))
    return out
