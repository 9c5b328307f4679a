"""What copies say about the cell of each record: likelihood ratios, without a sampler.

Given the number of records of a group, one more informing record in cell c multiplies the
likelihood by p_k(c), so that the ratio of a copy's probability with and without it is
``E[p_k(c) | informing + copy] / E[p_k(c) | informing]``. Where a cell holds no more records than
are held back, one more informs nothing and the ratio is 1. See "What an intruder learns" in the
explanation of places.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dsstan.core.arrays import Floats, Truths
from dsstan.risk.places.known import KnownPlaces, Pairs

__all__ = ["Evidence", "evidence_of"]


@dataclass(frozen=True, eq=False)
class Evidence:
    """What an intruder learns about the records of one group, by the cell that they are in.

    Attributes
    ----------
    pairs
        The occupied cells.
    prior
        Chance of each cell for the record that the intruder looks for, by all other records,
        shape (n, C).
    log_factor
        Log ratio of the probability of all copies where that record is in each cell and that
        without it, given how many records each copy has, shape (n, C); minus infinity in cells
        that the release rules out.
    certain
        Whether the release could not be without that record, shape (n,).
    """

    pairs: Pairs
    prior: Floats = field(repr=False)
    log_factor: Floats = field(repr=False)
    certain: Truths = field(repr=False)

    @property
    def posterior(self) -> Floats:
        """Chance of each cell after the release, shape (n, C)."""
        weight = np.log(self.prior) + self.log_factor
        weight -= weight.max(axis=1, keepdims=True)
        np.exp(weight, out=weight)
        weight /= weight.sum(axis=1, keepdims=True)
        return weight

    def of_true_cell(self, values: Floats) -> Floats:
        """What each row of (n, C) values says of the cell that the record is in, shape (n,)."""
        return np.asarray(values[np.arange(len(values)), self.pairs.cells])


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
    factors = [np.zeros((len(pairs.cells), known.everyone.shape[1])) for pairs in known.pairs]
    for weight, counts in (
        (-float(len(released)), known.informing),
        *((1.0, known.informing + copy) for copy in released),
    ):
        for pairs, factor in zip(known.pairs, factors, strict=True):
            chances = _others(known, pairs, counts)
            np.log(chances, out=chances)
            chances *= weight
            factor += chances
    out = []
    for pairs, factor in zip(known.pairs, factors, strict=True):
        would = _would_inform(known, pairs)
        factor[~would] = 0.0
        only = _informs_alone(known, pairs)
        # Of a group, or a table, that nobody informs there would be another release, or none.
        factor[only[:, None] & (would == pairs.alone[:, None])] = -np.inf
        prior = known.law.without(known.everyone, pairs.group, pairs.cells)
        out.append(Evidence(pairs, prior, factor, only & ~pairs.alone))
    return out


def _others(known: KnownPlaces, pairs: Pairs, counts: Floats) -> Floats:
    """Expected chances given counts without the record of each row, shape (n, C)."""
    out = np.empty((len(pairs.cells), counts.shape[1]))
    if pairs.alone.any():
        out[pairs.alone] = known.law.expected(counts, pairs.group)
    if not pairs.alone.all():
        out[~pairs.alone] = known.law.without(counts, pairs.group, pairs.cells[~pairs.alone])
    return out


def _informs_alone(known: KnownPlaces, pairs: Pairs) -> Truths:
    """Whether no other record informs what the law can't do without, shape (n,)."""
    own, whole = known.informing[pairs.group].sum(), known.informing.sum()
    others = {"nobody": np.inf, "table": whole, "group": own}[known.law.informed_by]
    return np.asarray(others - ~pairs.alone == 0.0)


def _would_inform(known: KnownPlaces, pairs: Pairs) -> Truths:
    """Whether the record of a row would inform a release if it were in a cell, shape (n, C)."""
    beside = np.tile(known.everyone[pairs.group], (len(pairs.cells), 1))
    beside[np.arange(len(pairs.cells)), pairs.cells] -= 1.0
    return np.asarray(beside >= known.held_back)
