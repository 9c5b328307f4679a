"""Trees on coordinates: draws from leaves, and their intruder by the likelihood itself."""

from __future__ import annotations

import numpy as np
import pytest

from dsstan.analysis.places.marked import MarkedPlaces
from dsstan.comparison.places.trees import _drawn, _Evidence, _Grown, grow
from dsstan.core.errors import InputError
from dsstan.table.mask.mask import Mask

pytest.importorskip("sklearn")
COLUMNS, ROWS = 5, 4
CENTRES = np.stack(np.meshgrid(np.arange(COLUMNS), np.arange(ROWS)), axis=-1).reshape(-1, 2) + 0.5
MASK = Mask(CENTRES, 1.0, np.ones(len(CENTRES)))


def table(n=24, seed=0):
    """Places that follow a covariate."""
    rng = np.random.default_rng(seed)
    x = rng.random(n)
    at = np.column_stack([np.clip(5 * x + rng.normal(size=n), 0, 4.99), 4 * rng.random(n)])
    return MarkedPlaces(at, rng.normal(size=n), x[:, None])


def log_likelihood(trees, at, drawn, leaves):
    """Of all draws, where records are at given columns and rows in given leaves."""
    total = 0.0
    for copy in drawn:
        where = [trees.leaves[:, 0], trees.second_leaves(np.arange(len(at)), copy[:, 0])]
        for k in (0, 1):
            for leaf, value in zip(where[k], copy[:, k], strict=True):
                members = at[leaves[:, k] == leaf, k]
                with np.errstate(divide="ignore"):
                    total += np.log((members == value).mean() if len(members) else 0.0)
    return total


@pytest.mark.parametrize("least", [3, 8, 24])
def test_the_evidence_is_the_likelihood_of_every_draw_with_the_person_in_each_cell(least):
    data = table()
    at = np.floor(data.places).astype(np.int64)
    known = np.column_stack([data.X, data.values])
    trees = _Grown.of(known, at, least)
    there = np.ones((COLUMNS, ROWS), dtype=bool)
    rng = np.random.default_rng(1)
    drawn = np.stack([_drawn(trees, there, rng) for _ in range(2)])
    evidence = _Evidence.of(trees, drawn, there.shape)
    for i in range(0, 24, 5):
        expected = np.empty((COLUMNS, ROWS))
        for c in range(COLUMNS):
            second = trees.second_leaves(np.array([i]), np.array([c]))[0]
            for r in range(ROWS):
                moved, leaves = at.copy(), trees.leaves.copy()
                moved[i], leaves[i, 1] = (c, r), second
                expected[c, r] = log_likelihood(trees, moved, drawn, leaves)
        found = evidence.log_likelihood(i)
        weights = [np.exp(v - v.max()) / np.exp(v - v.max()).sum() for v in (found, expected)]
        np.testing.assert_allclose(*weights, rtol=1e-8, atol=1e-12)


def test_draws_are_cells_of_the_mask_and_columns_of_the_own_leaf():
    holes = np.delete(CENTRES, [7, 8, 12], axis=0)
    mask = Mask(holes, 1.0, np.ones(len(holes)))
    data = table(60, seed=2)
    inside = mask.cell_of(data.places) >= 0
    data = MarkedPlaces(data.places[inside], data.values[inside], data.X[inside])
    found = grow(data, mask, 5, copies=3, seed=1)
    assert len(found.tables) == 3
    assert all((mask.cell_of(t.places) >= 0).all() for t in found.tables)
    assert found.note.startswith("The intruder takes")


def test_small_leaves_reveal_and_one_leaf_for_all_reveals_less():
    data = table(40, seed=3)
    sharp, blunt = (grow(data, MASK, least, copies=2, seed=1).mean_finding for least in (1, 40))
    assert sharp > 2 * blunt


def test_a_table_of_places_alone_has_nothing_to_grow_a_tree_from():
    with pytest.raises(InputError, match="other columns"):
        grow(MarkedPlaces(table().places), MASK, 5)
