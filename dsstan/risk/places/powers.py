"""Expected powers of the chances of cells, by the law itself or one cell at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

from dsstan.core.arrays import Floats, Indices
from dsstan.models.intensity.cell_law import CellLaw, Powers, PowersOfChances

__all__ = ["log_powers", "own_log_powers"]


def log_powers(
    law: CellLaw, counts: Floats, group: int, cells: Indices, taken: Floats, power: Powers
) -> Floats:
    """log E[p_k(c)^power | counts less what is taken from each of the cells], shape (n, C).

    A law without powers is asked for the counts with one record less or more at a time: exact
    where the record that is more is in the cell that lost some; elsewhere the record that is more
    is added to the counts of the whole table, which changes the result by about one part in N_k.

    Parameters
    ----------
    law, counts, group, cells, taken, power
        As in :meth:`~dsstan.models.intensity.cell_law.PowersOfChances.log_powers`.
    """
    if isinstance(law, PowersOfChances):
        return law.log_powers(counts, group, cells, taken, power)
    rows = np.arange(len(cells))
    chances = np.empty(power.shape)
    one = taken == 1
    if one.any():
        chances[one] = law.without(counts, group, cells[one])
    if (taken == 0).any():
        chances[taken == 0] = law.expected(counts, group)
    for row in np.flatnonzero(taken < 0):
        chances[row] = law.expected(_changed(counts, group, cells[row], -taken[row]), group)
    for row in np.flatnonzero(taken > 1):
        less = _changed(counts, group, cells[row], 1.0 - taken[row])
        chances[row] = law.without(less, group, cells[row : row + 1])[0]
    out = np.where(power > 0, power * np.log(chances), 0.0)
    for cell in np.flatnonzero((power > 1).any(axis=0)):
        base = np.log(law.expected(counts, group)[cell])
        most = int(power[:, cell].max())
        more = [
            np.log(law.expected(_changed(counts, group, cell, s), group)[cell]) - base
            for s in range(1, most)
        ]
        gained = np.concatenate([[0.0, 0.0], np.cumsum(more)])
        out[:, cell] += gained[power[:, cell].astype(np.intp)]
    for row in np.flatnonzero(power[rows, cells] > 1):
        start = _changed(counts, group, cells[row], -taken[row])
        steps = range(int(power[row, cells[row]]))
        out[row, cells[row]] = sum(
            np.log(law.expected(_changed(start, group, cells[row], s), group)[cells[row]])
            for s in steps
        )
    return np.asarray(out)


def own_log_powers(
    law: CellLaw,
    counts: Floats,
    group: int,
    cells: Indices,
    taken: Floats,
    power: Floats | None = None,
) -> Floats:
    """The same of each cell itself, shape (n,); by default the power is what is taken from it."""
    rows = np.arange(len(cells))
    of_all = np.zeros((len(cells), counts.shape[1]), dtype=np.int16)
    of_all[rows, cells] = taken if power is None else power
    return np.asarray(log_powers(law, counts, group, cells, taken, of_all)[rows, cells])


def _changed(counts: Floats, group: int, cell: np.signedinteger[Any] | int, by: float) -> Floats:
    """Counts with more or fewer records in one cell."""
    out = counts.copy()
    out[group, cell] += by
    return out
