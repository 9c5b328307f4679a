"""Trees on coordinates (CART), after Drechsler and Hu (2021), with the intruder who seeks a place.

Journal of Survey Statistics and Methodology 9: coordinates are drawn from the leaves of a tree on
the other columns. Here column and row of the cell are drawn one after the other, and the place is
uniform in the cell: whole coordinates resampled would each be somebody's own.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dsstan.analysis.places.marked import MarkedPlaces
from dsstan.analysis.places.pairs import lattice_of, require_inside
from dsstan.comparison.places.result import ProtectedPlaces, copies_in_words, of_cells
from dsstan.core.arrays import Floats, Indices, Truths
from dsstan.core.errors import InputError, check_count
from dsstan.core.optional import needed
from dsstan.table.mask.mask import OUTSIDE, Mask

NOTE = (
    "The intruder takes the trees as they were fitted with everybody, so they find at least this "
    "much."
)

_TRIES = 50
"""Rows that are drawn for a column before the nearest cell of the mask is taken."""


@dataclass(frozen=True, eq=False)
class _Grown:
    """Two trees and what their leaves hold.

    Attributes
    ----------
    first, second
        Trees of the column of the cell, and of its row given the column too.
    at
        Column and row of each record, shape (N, 2).
    leaves
        Leaf of each record in both, shape (N, 2).
    """

    first: Any = field(repr=False)
    second: Any = field(repr=False)
    known: Floats = field(repr=False)
    at: Indices = field(repr=False)
    leaves: Indices = field(repr=False)

    @classmethod
    def of(cls, known: Floats, at: Indices, least: int) -> _Grown:
        """Fit both trees; leaves hold ``least`` records or more."""
        tree = needed("sklearn.tree", "examples").DecisionTreeRegressor
        grown = [
            tree(min_samples_leaf=least, random_state=0).fit(x, at[:, k])
            for k, x in enumerate((known, np.column_stack([known, at[:, 0]])))
        ]
        leaves = [grown[0].apply(known), grown[1].apply(np.column_stack([known, at[:, 0]]))]
        return cls(grown[0], grown[1], known, at, np.stack(leaves, axis=-1))

    def second_leaves(self, rows: Indices, columns: Indices) -> Indices:
        """Leaf of the second tree of records if they were in given columns, shape (n,)."""
        return np.asarray(self.second.apply(np.column_stack([self.known[rows], columns])))


def grow(
    original: MarkedPlaces,
    mask: Mask,
    least: int,
    *,
    copies: int = 1,
    prior: Floats | None = None,
    seed: int = 0,
) -> ProtectedPlaces:
    """Copies whose places are drawn from the leaves of trees on the other columns.

    The other columns are the design, the values and the group; what they say of the place is kept.

    Parameters
    ----------
    original, mask, prior, seed
        See :func:`dsstan.comparison.places.radial.displace`.
    least
        Records in a leaf, at least.
    copies
        Number of tables.

    Raises
    ------
    InputError
        If scikit-learn is not installed, or there is no other column.
    CoordinateError
        If a place is not in the mask.
    """
    check_count("least", least)
    check_count("copies", copies)
    require_inside(original.places, mask)
    columns = [c for c in (original.X, original.values, original.groups) if c is not None]
    if not columns:
        raise InputError("trees on coordinates need other columns: values, a design or groups")
    known = np.nan_to_num(np.column_stack(columns).astype(np.float64))
    number = np.rint((mask.centres - mask.centres.min(axis=0)) / mask.width).astype(np.int64)
    cells = mask.cell_of(original.places)
    trees = _Grown.of(known, number[cells], least)
    there = lattice_of(mask).T > 0
    cell_at = np.full(there.shape, OUTSIDE)
    cell_at[number[:, 0], number[:, 1]] = np.arange(mask.n_cells)
    rng = np.random.default_rng(seed)
    drawn = np.stack([_drawn(trees, there, rng) for _ in range(copies)])
    tables = tuple(
        replace(original, places=mask.draw(cell_at[d[:, 0], d[:, 1]], rng)) for d in drawn
    )
    chances = mask.exposure if prior is None else prior
    rows = np.broadcast_to(chances, (len(cells), mask.n_cells))
    finding = np.empty(len(cells))
    evidence = _Evidence.of(trees, drawn, there.shape)
    for i, cell in enumerate(cells):
        log = evidence.log_likelihood(i)[number[:, 0], number[:, 1]]
        weight = rows[i] * np.exp(log - log.max())
        finding[i] = weight[cell] / weight.sum()
    setting = f"leaves of {least}, {copies_in_words(copies)}"
    return ProtectedPlaces("CART", setting, tables, finding, of_cells(chances, cells), NOTE)


def _drawn(trees: _Grown, there: Truths, rng: np.random.Generator) -> Indices:
    """Column and row of a cell of the mask for each record, shape (N, 2)."""
    n = len(trees.at)
    every = np.arange(n)
    columns = _resampled(trees.leaves[:, 0], trees.leaves[:, 0], trees.at[:, 0], rng)
    leaves = trees.second_leaves(every, columns)
    rows, left = np.empty(n, dtype=np.int64), every
    for _ in range(_TRIES):
        rows[left] = _resampled(leaves[left], trees.leaves[:, 1], trees.at[:, 1], rng)
        left = left[~there[columns[left], rows[left]]]
        if not left.size:
            break
    for i in left:
        inside = np.flatnonzero(there[columns[i]])
        rows[i] = inside[np.abs(inside - rows[i]).argmin()]
    return np.column_stack([columns, rows])


def _resampled(
    wanted: Indices, leaves: Indices, values: Indices, rng: np.random.Generator
) -> Indices:
    """A value of a random member of each leaf that is wanted, shape of ``wanted``."""
    order = np.argsort(leaves, kind="stable")
    low = np.searchsorted(leaves[order], wanted, side="left")
    high = np.searchsorted(leaves[order], wanted, side="right")
    return np.asarray(values[order[low + rng.integers(0, high - low)]])


@dataclass(frozen=True, eq=False)
class _Evidence:
    """Members and draws of every leaf, for the likelihood of where one record is.

    With m members of a leaf but the person, n of them in column k, and D draws of k among d from
    the leaf: were the person there in k, the draws would be ((n + 1) / n)^D (m / (m + 1))^d as
    likely; where n = 0 < D nobody else can have been drawn.
    """

    trees: _Grown
    members: tuple[Floats, Floats]
    drawn: tuple[Floats, Floats]

    @classmethod
    def of(cls, trees: _Grown, drawn: Indices, shape: tuple[int, ...]) -> _Evidence:
        """Count members and draws, of copies of shape (L, N, 2)."""
        members, draws = [], []
        every = np.arange(len(trees.at))
        for k, tree in enumerate((trees.first, trees.second)):
            own, seen = (np.zeros((tree.tree_.node_count, shape[k])) for _ in range(2))
            np.add.at(own, (trees.leaves[:, k], trees.at[:, k]), 1.0)
            for copy in drawn:
                leaf = trees.leaves[:, 0] if k == 0 else trees.second_leaves(every, copy[:, 0])
                np.add.at(seen, (leaf, copy[:, k]), 1.0)
            seen[own == 0] = 0.0  # rows put into the mask, which no member brought
            members.append(own)
            draws.append(seen)
        return cls(trees, (members[0], members[1]), (draws[0], draws[1]))

    def log_likelihood(self, i: int) -> Floats:
        """Of record i in each column and row, up to a constant, shape (columns, rows)."""
        columns = np.arange(self.members[0].shape[1])
        leaf = self.trees.leaves[i]
        first = self._of_leaves(0, leaf[[0]], i)[0]
        reached = self.trees.second_leaves(np.full(len(columns), i), columns)
        distinct, which = np.unique(reached, return_inverse=True)
        second = self._of_leaves(1, distinct, i)
        out = first[:, None] + second[which.ravel()]
        # A row that only the person can have brought to their leaf rules out all other leaves.
        alone = self._unexplained(1, leaf[1], i)
        if alone.any():
            out[reached != leaf[1]] = -np.inf
        if not np.isfinite(out).any():
            out[tuple(self.trees.at[i])] = 0.0
        return np.asarray(out)

    def _others(self, k: int, leaf: int, i: int) -> Floats:
        """Members of a leaf but the person, by column or row."""
        counts = np.array(self.members[k][leaf])
        if leaf == self.trees.leaves[i, k]:
            counts[self.trees.at[i, k]] -= 1.0
        return counts

    def _unexplained(self, k: int, leaf: int, i: int) -> Truths:
        """Columns or rows that were drawn from a leaf and that none but the person has there."""
        return np.asarray((self._others(k, leaf, i) == 0) & (self.drawn[k][leaf] > 0))

    def _of_leaves(self, k: int, leaves: Indices, i: int) -> Floats:
        """Log likelihood of each column or row where the person is in each leaf."""
        out = np.empty((len(leaves), self.members[k].shape[1]))
        for row, leaf in enumerate(leaves):
            n, d = self._others(k, leaf, i), self.drawn[k][leaf]
            m = n.sum()
            alone = (n == 0) & (d > 0)
            if alone.any() or m == 0:
                out[row] = np.where(alone if alone.any() else n == 0, 0.0, -np.inf)
                continue
            ratio = np.log1p(1.0 / np.maximum(n, 1.0))
            out[row] = d * np.where(n > 0, ratio, 0.0) + d.sum() * np.log(m / (m + 1.0))
        return out
