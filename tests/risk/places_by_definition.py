"""An intruder of places written from the definitions alone, for a Dirichlet law of the cells.

Nothing here is from the package: tables are lists of (group, cell), a copy's probability is the
Dirichlet-multinomial of scipy, and what the release knows is worked out anew for every table that
the intruder thinks of.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.stats import dirichlet_multinomial, nbinom

Table = Sequence[tuple[int, int]]


def counts_of(table: Table, shape):
    """Records by group and cell, shape (K, C)."""
    out = np.zeros(shape)
    for group, cell in table:
        out[group, cell] += 1
    return out


def informing_of(table: Table, prior, held_back):
    """Counts that the release is drawn from, shape (K, C)."""
    return np.maximum(counts_of(table, prior.shape) - held_back, 0)


def log_cells(released, table: Table, prior, held_back):
    """Log probability of the cells of the copies, given how many records each has."""
    weight = informing_of(table, prior, held_back) + prior
    return sum(
        dirichlet_multinomial.logpmf(row, alpha, int(row.sum()))
        for copy in released
        for row, alpha in zip(copy.astype(int), weight, strict=True)
        if row.sum() > 0
    )


def log_numbers(released, table: Table, groups):
    """Log probability of the numbers in the copies: Poisson of a gamma of shape N_k, rate 1."""
    out = 0.0
    for group in range(groups):
        total = sum(one == group for one, _ in table)
        for copy in released:
            n = int(copy[group].sum())
            if total:
                out += nbinom.logpmf(n, total, 0.5)
            elif n:
                return -np.inf
    return out


def present(released, table: Table, prior, held_back, at):
    """Bayes factor of a record: the table with it against the table without it."""
    without = [*table[:at], *table[at + 1 :]]
    return np.exp(
        log_cells(released, table, prior, held_back)
        + log_numbers(released, table, len(prior))
        - log_cells(released, without, prior, held_back)
        - log_numbers(released, without, len(prior))
    )


def chances_of(released, table: Table, prior, held_back, at):
    """Chance of each cell for a record, before and after the release, each (C,)."""
    group = table[at][0]
    others = [*table[:at], *table[at + 1 :]]
    before = counts_of(others, prior.shape)[group] + prior[group]
    before /= before.sum()
    worlds = [[*others, (group, cell)] for cell in range(prior.shape[1])]
    seen = np.array([log_cells(released, world, prior, held_back) for world in worlds])
    after = before * np.exp(seen - seen.max())
    return before, after / after.sum()
