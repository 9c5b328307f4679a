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

from dsstan.core.arrays import Floats, Indices, Truths
from dsstan.models.intensity.cell_law import MomentsOfChances, Powers, too_few
from dsstan.risk.places.known import KnownPlaces, Pairs
from dsstan.risk.places.powers import log_powers, own_log_powers

__all__ = ["Evidence", "evidence_of"]


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


@dataclass(frozen=True, eq=False)
class _Change:
    """How the records that inform a release change with the record in question.

    Attributes
    ----------
    taken, taken_fewer
        Records of its cell that inform the release and would not if it were elsewhere, or in no
        cell at all, shape (n,).
    gained
        Records that would inform it in addition if the record were in cell c, shape (n, C).
    elsewhere, elsewhere_fewer
        Whether the records in the cell of a column are lonely without that of the row, which is
        elsewhere, or in no cell, shape (n, n).
    """

    taken: Floats
    taken_fewer: Floats
    gained: Powers
    elsewhere: Truths
    elsewhere_fewer: Truths


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
    return [one.evidence() for one in sums]


def _change(known: KnownPlaces, pairs: Pairs, prior: Floats) -> _Change:
    k, cells = pairs.group, pairs.cells
    n, rows = known.everyone[k], np.arange(len(cells))
    total, least = known.totals[k], known.lonely_below
    expected = known.law.expected(known.everyone, k)
    own = prior[rows, cells]
    near = prior / expected
    far = _of_others(near, cells)

    two = n[cells] > 1
    without_two, far_two = np.zeros(len(cells)), np.ones(len(cells))
    if two.any():
        here = cells[two]
        power = np.ones((len(here), len(n)), dtype=np.int16)
        twice = np.full(len(here), 2.0)
        rest = np.exp(log_powers(known.law, known.everyone, k, here, twice, power))
        without_two[two] = rest[np.arange(len(here)), here]
        far_two[two] = _of_others(rest / expected, here)
    leaves = too_few((total - 1) * without_two * far / far_two, least)
    stay = ~pairs.alone & two & ~leaves
    stay_fewer = ~pairs.alone & two & ~too_few((total - 2) * without_two, least)
    left, left_fewer = (np.where(one, n[cells] - 1.0, 0.0) for one in (stay, stay_fewer))

    lonely = too_few((total - 1) * prior, least)
    lonely[rows, cells] = pairs.alone
    gained = np.where(lonely, 0.0, n + 1.0 - known.informing[k])
    gained[rows, cells] = np.where(pairs.alone, 0.0, n[cells] - left)

    local = near[:, cells] / far[:, None]
    total_falls = 1.0 / np.maximum(2.0 - far, np.finfo(float).eps)  # by a second record
    informing = ~pairs.alone & ~np.eye(len(cells), dtype=bool)
    away = informing & too_few((total - 1) * own * local, least)
    fewer = informing & too_few((total - 2) * own * local * total_falls[:, None], least)
    informs = known.informing[k, cells]
    gained = np.maximum(gained, 0.0).astype(np.int16)
    return _Change(informs - left, informs - left_fewer, gained, away, fewer)


def _of_others(ratio: Floats, cells: Indices) -> Floats:
    """Median of each row beside its own cell: how far all chances move with the total, (n,)."""
    if ratio.shape[1] < 2:
        return np.ones(len(ratio))
    out = np.empty(len(ratio))
    for row, cell in enumerate(cells):
        out[row] = np.median(np.delete(ratio[row], cell))
    return out


class _Sum:
    """Log expected powers of the chances of one group, summed over the copies."""

    def __init__(self, known: KnownPlaces, pairs: Pairs) -> None:
        k, cells = pairs.group, pairs.cells
        self.law, self.pairs = known.law, pairs
        self.prior = known.law.without(known.everyone, k, cells)
        self.change = _change(known, pairs, self.prior)
        away = self.change.elsewhere | self.change.elsewhere_fewer
        self.leaving = np.flatnonzero(away.any(axis=0))
        self.informs = known.informing[k, cells]
        self.other = np.flatnonzero(self.change.taken != self.change.taken_fewer)
        self.factor = np.zeros_like(self.prior)
        self.fewer = np.zeros(len(self.other))
        self.together = np.zeros(len(self.leaving))
        self.moved = np.zeros((len(cells), len(self.leaving)))
        self.exact: dict[int, float] = {}
        if isinstance(known.law, MomentsOfChances):
            rows = np.flatnonzero(self.change.elsewhere_fewer.any(axis=1))
            self.exact = dict.fromkeys(rows.tolist(), 0.0)

    def add(self, counts: Floats, weight: float) -> None:
        """Add what the law says of these counts, as often as ``weight``."""
        law, k, cells, change = self.law, self.pairs.group, self.pairs.cells, self.change
        found = log_powers(law, counts, k, cells, change.taken, change.gained)
        found *= weight
        self.factor += found
        if self.other.size:
            taken = change.taken_fewer[self.other]
            self.fewer += weight * own_log_powers(law, counts, k, cells[self.other], taken)
        if self.leaving.size:
            there = cells[self.leaving]
            self.together += weight * own_log_powers(
                law, counts, k, there, self.informs[self.leaving]
            )
            once = np.zeros_like(change.gained)
            once[:, there] = 1
            left = log_powers(law, counts, k, cells, change.taken, once)[:, there]
            self.moved += weight * (left - np.log(law.expected(counts, k)[there]))

        if isinstance(law, MomentsOfChances):
            for row in self.exact:
                which = np.append(np.flatnonzero(change.elsewhere_fewer[row]), row)
                come = self.informs[which]
                come[-1] = change.taken_fewer[row]
                less = counts.copy()
                less[k, cells[which]] -= come
                self.exact[row] += weight * law.log_moment(less, k, cells[which], come)

    def evidence(self) -> Evidence:
        """What it comes to."""
        rows, change = np.arange(len(self.pairs.cells)), self.change
        present = self.factor[rows, self.pairs.cells].copy()
        present[self.other] = self.fewer
        # the record of a row goes, and with it those of the columns that it kept from being lonely
        both = self.together + self.informs[self.leaving] * self.moved
        more, fewer = (
            np.maximum(np.where(which[:, self.leaving], both, 0.0).sum(axis=1), 0.0)
            for which in (change.elsewhere, change.elsewhere_fewer)
        )  # to first order, so that no less risk is taken from it
        self.factor[rows, self.pairs.cells] += more
        present += fewer
        for row, log_ratio in self.exact.items():
            present[row] = log_ratio
        return Evidence(self.pairs, self.prior, self.factor, present)
