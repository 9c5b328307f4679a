"""What copies say about the cell of each record: likelihood ratios, without a sampler.

Given the number of records of a group, one more record in cell c multiplies the likelihood by
p_k(c), so that the ratio of a copy's probability with and without it is
``E[p_k(c) | informing + copy] / E[p_k(c) | informing]``. What makes it longer than that is that
whether a record is lonely depends on all others: a record that comes or goes can make others inform
the release, or stop. See "What an intruder learns" in the explanation of places.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dsstan.core.arrays import Floats
from dsstan.models.intensity.cell_law import MomentsOfChances
from dsstan.risk.places.known import KnownPlaces, Pairs
from dsstan.risk.places.loneliness import change_of
from dsstan.risk.places.powers import log_powers, own_log_powers

__all__ = ["Evidence", "evidence_of"]

SKEW = 0.015
"""Added to a log likelihood ratio for every two records that come together, each copy, under a law
that is not in closed form: its powers of the chances of an empty cell were up to so much too high.
"""


@dataclass(frozen=True, eq=False)
class Evidence:
    """What an intruder learns about the records of one group, by the cell that they are in.

    Attributes
    ----------
    pairs
        The occupied cells.
    prior
        Chance of each cell for the record that the intruder looks for, by all other records, lonely
        ones included, shape (n, C).
    log_factor
        Log likelihood of all copies where that record is in each cell, up to a constant of the
        row, shape (n, C).
    log_present
        Log ratio of the probability of the cells of all copies with the record and without it,
        given how many records each copy has, shape (n,).
    """

    pairs: Pairs
    prior: Floats = field(repr=False)
    log_factor: Floats = field(repr=False)
    log_present: Floats = field(repr=False)

    @property
    def posterior(self) -> Floats:
        """Chance of each cell after the release, shape (n, C)."""
        weight = np.log(self.prior) + self.log_factor
        weight -= weight.max(axis=1, keepdims=True)
        np.exp(weight, out=weight)
        weight /= weight.sum(axis=1, keepdims=True)
        return weight


def evidence_of(known: KnownPlaces, released: Floats) -> list[Evidence]:
    """What copies say about the records of each group that has any.

    A law is asked for one copy's groups one after another, as it may keep what it worked out.

    Parameters
    ----------
    known
        The table.
    released
        Records of each group in each cell of each copy, shape (L, K, C).

    Raises
    ------
    InputError
        If the counts are not of the same groups and cells.
    """
    known.check_released(released)
    sums = [_Sum(known, pairs) for pairs in known.pairs]
    for weight, counts in (
        (-float(len(released)), known.informing),
        *((1.0, known.informing + copy) for copy in released),
    ):
        for one in sums:
            one.add(counts, weight)
    return [one.evidence(len(released)) for one in sums]


class _Sum:
    """Log expected powers of the chances of one group, summed over the copies."""

    def __init__(self, known: KnownPlaces, pairs: Pairs) -> None:
        k, cells = pairs.group, pairs.cells
        self.law, self.pairs = known.law, pairs
        self.prior = known.law.without(known.everyone, k, cells)
        change = self.change = change_of(known, pairs, self.prior)
        self.informs = known.informing[k, cells]
        self.factor = np.zeros_like(self.prior)
        self.other = np.flatnonzero(change.taken != change.taken_fewer)
        self.own_fewer = np.zeros(len(self.other))
        self.beside_at = np.flatnonzero(change.others)
        self.beside = np.zeros(len(self.beside_at))
        self.leaving = np.flatnonzero((change.away | change.fewer).any(axis=0))
        joining = {j: change.joining(j) for j in np.flatnonzero(pairs.alone).tolist()}
        self.joining = {j: columns for j, columns in joining.items() if columns.size}
        self.where = np.zeros((len(self.joining), self.prior.shape[1]), dtype=np.int16)
        for at, columns in zip(self.where, self.joining.values(), strict=True):
            at[columns] = 1
        self.tied = np.zeros(self.where.shape)
        self.reach = np.array([*self.leaving, *self.joining], dtype=np.intp)
        self.there = known.everyone[k, cells[self.reach]]
        self.together = np.zeros(len(self.reach))
        self.moved = np.zeros((len(cells), len(self.reach)))
        self.exact: dict[int, float] = {}
        if isinstance(known.law, MomentsOfChances):
            self.exact = dict.fromkeys(np.flatnonzero(change.fewer.any(axis=1)).tolist(), 0.0)

    def add(self, counts: Floats, weight: float) -> None:
        """Add what the law says of these counts, as often as ``weight``."""
        law, k, cells, change = self.law, self.pairs.group, self.pairs.cells, self.change
        found = log_powers(law, counts, k, cells, change.taken, change.gained)
        found *= weight
        self.factor += found
        if self.other.size:
            taken = change.taken_fewer[self.other]
            self.own_fewer += weight * own_log_powers(law, counts, k, cells[self.other], taken)
        if self.beside_at.size:
            at, taken = cells[self.beside_at], change.taken[self.beside_at]
            others = change.others[self.beside_at]
            self.beside += weight * own_log_powers(law, counts, k, at, taken, others)
        if self.reach.size:
            self._add_elsewhere(counts, weight)
        if isinstance(law, MomentsOfChances):
            for row in self.exact:
                self.exact[row] += weight * self._all_that_go(law, counts, row)

    def _add_elsewhere(self, counts: Floats, weight: float) -> None:
        """Add to what is said of the records of other cells, which inform it or not by the place
        of the record in question."""
        law, k, cells = self.law, self.pairs.group, self.pairs.cells
        at, there = cells[self.reach], self.there
        informs = self.informs[self.reach]
        self.together += weight * own_log_powers(law, counts, k, at, informs, there)
        expected = np.log(law.expected(counts, k))
        once = np.zeros_like(self.change.gained)
        once[:, at] = 1
        left = log_powers(law, counts, k, cells, self.change.taken, once)[:, at]
        self.moved += weight * (left - expected[at])
        if self.joining:
            at, there = at[len(self.leaving) :], there[len(self.leaving) :]
            tie = log_powers(law, counts, k, at, -there, self.where) - expected
            self.tied += np.where(self.where, weight * tie, 0.0)

    def _all_that_go(self, law: MomentsOfChances, counts: Floats, row: int) -> float:
        """Log moment of a record and all that inform the counts with it only."""
        k, cells = self.pairs.group, self.pairs.cells
        which = np.append(np.flatnonzero(self.change.fewer[row]), row)
        come = self.informs[which]
        come[-1] = self.change.taken_fewer[row]
        less = counts.copy()
        less[k, cells[which]] -= come
        return law.log_moment(less, k, cells[which], come)

    def evidence(self, copies: int) -> Evidence:
        """What so many copies come to."""
        cells, change = self.pairs.cells, self.change
        rows = np.arange(len(cells))
        present = self.factor[rows, cells].copy()
        present[self.other] = self.own_fewer
        # the record of a row goes, and with it those of the columns that it kept from being lonely
        both = self.together + self.there * self.moved
        goes = change.fewer[:, self.leaving]
        more = np.where(goes, both[:, : len(self.leaving)], 0.0).sum(axis=1)
        present += np.maximum(more, 0.0)  # to first order, so that no less risk is taken from it
        for row, log_ratio in self.exact.items():
            present[row] = log_ratio
        if not isinstance(self.law, MomentsOfChances):
            together = change.gained[rows, cells].astype(np.float64)
            self.factor[rows, cells] += SKEW * copies * together * (together - 1.0) / 2.0
            together = change.taken_fewer
            present += SKEW * copies * together * np.maximum(together - 1.0, 0.0) / 2.0
        self._elsewhere(both)
        return Evidence(self.pairs, self.prior, self.factor, present)

    def _elsewhere(self, both: Floats) -> None:
        """Add the records of other cells that the place of the record in question decides on."""
        change = self.change
        for row, column in np.argwhere(change.away[:, self.leaving]):
            self.factor[row, change.lost(row, self.leaving[column])] -= both[row, column]
        for row, value in zip(self.beside_at.tolist(), self.beside, strict=True):
            self.factor[row, change.rejoining(row)] += value
        for at, (other, columns) in enumerate(self.joining.items()):
            more = self.tied[at, columns] * (change.gained[:, columns] > 0)
            more += both[:, [len(self.leaving) + at]]
            self.factor[:, columns] += np.where(change.kept(other, columns), more, 0.0)
