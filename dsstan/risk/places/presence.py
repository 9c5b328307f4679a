"""The intruder who knows every other record and asks whether one person is in the table.

What is measured is a Bayes factor: how many times likelier the release is with the person than
without. An intruder's odds that the person is there are multiplied by it.
"""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln

from dsstan.core.arrays import Floats
from dsstan.risk.places.evidence import Evidence, evidence_of
from dsstan.risk.places.finding import spread
from dsstan.risk.places.known import KnownPlaces

__all__ = ["log_number", "log_presence", "presence"]


def presence(known: KnownPlaces, released: Floats, number: str = "kept") -> Floats:
    """Bayes factor of every record for an intruder who knows all others, shape (N,).

    Parameters
    ----------
    known
        The table.
    released
        Records of each group in each cell of each copy, shape (L, K, C).
    number
        ``"drawn"``: against the table without the person; ``"kept"``: how many there are is
        public, so that one more is known to be there, and the factor is against another person
        of the group, whose place nobody knows.

    Raises
    ------
    InputError
        If the counts are not of the same groups and cells.
    """
    out = [log_presence(known, released, found, number) for found in evidence_of(known, released)]
    return np.exp(spread(known, out))


def log_presence(known: KnownPlaces, released: Floats, found: Evidence, number: str) -> Floats:
    """Logarithms of the same of one group, by occupied cell, shape (n,)."""
    if number == "kept":
        after, before = found.of_true_cell(found.posterior), found.of_true_cell(found.prior)
        return np.asarray(np.log(after) - np.log(before))
    k = found.pairs.group
    log_factor = np.where(found.certain, np.inf, found.of_true_cell(found.log_factor))
    return log_factor + log_number(released[:, k].sum(axis=1), known.totals[k])


def log_number(released: Floats, total: float) -> float:
    """Log ratio of the probability of the numbers in the copies with N_k records and with one less.

    Each is Poisson with a rate drawn from a gamma law of shape N_k, rate 1. A group of one person
    is never in a copy without them: infinite where any copy has it.

    Parameters
    ----------
    released
        How many records of the group each copy has, shape (L,).
    total
        N_k.
    """
    halves = -len(released) * np.log(2.0)
    if total <= 1:
        return float(np.inf if released.any() else halves)
    rises = gammaln(released + total) - gammaln(released + total - 1.0)
    return float(rises.sum() - len(released) * np.log(total - 1.0) + halves)
