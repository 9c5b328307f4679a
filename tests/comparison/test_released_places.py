"""A release of synthetic places beside the other methods."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import dsstan as ds
from dsstan.analysis.places.marked import marked, marked_release
from dsstan.comparison.places.compare import compare_places
from dsstan.comparison.places.fixed import aggregate
from dsstan.comparison.places.released import prior_of, released
from dsstan.copies.places.draw import move_places
from dsstan.models.intensity.cell_law import IndependentCells
from dsstan.models.intensity.result import Intensity
from dsstan.risk.places.assessment import assess_places
from dsstan.risk.places.result import NOT_JUDGED
from dsstan.table.mask.mask import Mask
from factory import fit_from

CENTRES = np.stack(np.meshgrid(np.arange(5), np.arange(5)), axis=-1).reshape(-1, 2) + 0.5
MASK = Mask(CENTRES, 1.0, np.ones(25))


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(1)
    at = 5 * rng.random((60, 2)) ** 1.5
    x = rng.normal(size=60)
    y = x + 0.3 * rng.normal(size=60)
    return ds.prepare(
        pd.DataFrame({"u": at[:, 0], "v": at[:, 1], "x": x, "y": y}),
        "y ~ x",
        coords=("u", "v"),
        distance="planar",
    )


@pytest.fixture(scope="module")
def intensity(problem):
    cells = MASK.cell_of(problem.sites)
    groups = np.zeros(60, dtype=np.int64)
    law = IndependentCells(np.full((1, 25), 0.5))
    return Intensity(MASK, ("all",), groups, cells, law)


def test_the_prior_is_the_leave_one_out_chance_by_hand(problem, intensity):
    found = prior_of(intensity)
    for i in (0, 17):
        counts = intensity.counts[0].copy()
        counts[intensity.cell_index[i]] -= 1
        np.testing.assert_allclose(found[i], (counts + 0.5) / (59 + 12.5), rtol=1e-10)


def test_a_release_enters_the_table_with_its_own_assessment(problem, intensity):
    draws = {"beta": np.tile([0.0, 1.0], (1, 8, 1))}
    draws |= {k: np.full((1, 8), v) for k, v in (("sigma_sq", 0.2), ("tau_sq", 0.1), ("phi", 1.0))}
    release = move_places(
        intensity, fit_from(problem, draws), 4, seed=1, accept_few_draws=True, progress=False
    )
    row = released(release)
    found = assess_places(release)
    np.testing.assert_array_equal(row.finding, found.found.cell)
    np.testing.assert_array_equal(row.presence, found.bayes_factor)
    np.testing.assert_allclose(
        row.before, prior_of(intensity)[np.arange(60), intensity.cell_index], rtol=1e-10
    )
    # Moved records are known to be in the table, whatever the factor.
    assert assess_places(release, presence=1.0 + 1e-9).verdict == NOT_JUDGED
    copies = marked_release(release)
    for copy, table, sites in zip(copies, release.tables, release.sites, strict=True):
        np.testing.assert_array_equal(copy.places, sites)
        np.testing.assert_allclose(copy.values, table["y"])
        np.testing.assert_allclose(copy.X[:, 1], table["x"])
    original = marked(problem)
    other = aggregate(original, MASK, 2, prior=prior_of(intensity))
    both = compare_places(original, MASK, [row, other], steps=8)
    assert both.table.index.tolist() == ["synthetic", "aggregation"]
    assert both.table.loc["synthetic", "setting"] == "moved, 4 copies"
    assert both.table[["K", "variogram", "bias"]].notna().all(axis=None)
    np.testing.assert_allclose(row.before, other.before)
