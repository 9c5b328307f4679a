"""K, pair correlation and their envelopes: against sums by hand, lattices and Poisson places."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from dsstan.analysis.places.envelopes import (
    CELLS,
    bootstrap_envelope,
    global_envelope,
    simulated_envelope,
)
from dsstan.analysis.places.pairs import overlap_of
from dsstan.analysis.places.ripley import default_reach, ripley
from dsstan.core.errors import CoordinateError, InputError
from dsstan.table.mask.mask import Mask
from mc import FALSE_ALARM, z_limit

ROUNDING = 1e-12
"""The same sums in another order."""

SIDE = 10
"""Cells along the square."""


def mask_of(there, width=1.0):
    """A mask of the cells where a matrix is True, row by row from the bottom."""
    rows, columns = np.nonzero(there)
    centres = width * (np.column_stack([columns, rows]) + 0.5)
    return Mask(centres, width, np.ones(len(centres)))


SQUARE = mask_of(np.ones((SIDE, SIDE)))


def test_k_on_an_odd_mask_is_the_sum_over_pairs_with_areas_by_sampling_no_lattice_shift():
    """The common area of the mask and its shift is counted on a lattice of subcells of a tenth,
    of which every distance here is a multiple."""
    there = np.array([[1, 1, 1, 0], [1, 0, 1, 1], [0, 0, 1, 0]], dtype=bool)
    mask = mask_of(there)
    fine = np.kron(there, np.ones((10, 10)))
    places = np.array([[0.3, 0.4], [2.7, 0.1], [2.1, 1.9], [3.6, 1.2], [0.9, 1.5], [2.5, 2.8]])
    radii = np.array([0.51, 1.02, 1.53, 2.04])
    expected = np.zeros(4)
    for i, a in enumerate(places):
        for j, b in enumerate(places):
            if i != j:
                k, m = np.rint(10 * (b - a)).astype(int)
                shifted = np.zeros_like(fine)
                rows, columns = np.nonzero(fine)
                moved = (rows + m >= 0) & (rows + m < 30) & (columns + k >= 0) & (columns + k < 40)
                shifted[rows[moved] + m, columns[moved] + k] = 1
                common = (fine * shifted).sum() / 100
                expected += (np.hypot(*(b - a)) <= radii) / common
    expected *= there.sum() ** 2 / (6 * 5)
    found = ripley(places, mask, reach=2.04, steps=4)
    np.testing.assert_allclose(found.k, expected, rtol=1e-10)


def test_the_set_covariance_of_a_square_is_a_product_of_lengths():
    shifts = np.arange(-5, 6)
    expected = np.outer(SIDE - np.abs(shifts), SIDE - np.abs(shifts))
    np.testing.assert_array_equal(overlap_of(SQUARE, 3.0), expected)


def test_on_a_large_lattice_k_counts_the_neighbours_of_a_place():
    """4 neighbours at distance 1, 4 more at the diagonal: K = neighbours / density.

    Each pair's weight makes up for the places at the edge exactly, as the lattice and the square
    lose the same share of their pairs by a whole shift.
    """
    places = SQUARE.centres
    found = ripley(places, SQUARE, reach=1.5, steps=3)
    n = len(places)
    # K has n (n - 1) below it where the lattice's pairs make n^2.
    np.testing.assert_allclose(found.k, np.array([0, 4, 8]) * n / (n - 1), rtol=ROUNDING)


def test_k_and_pair_correlation_of_poisson_places_are_those_of_no_interaction():
    rng = np.random.default_rng(1)
    tables = [ripley(SIDE * rng.random((150, 2)), SQUARE, steps=5) for _ in range(400)]
    for name in ("k_ratio", "g"):
        values = np.array([getattr(t, name) for t in tables])
        z = (values.mean(axis=0) - 1) / (values.std(axis=0, ddof=1) / 20)
        assert np.abs(z).max() < z_limit(10)


def test_cross_k_of_two_groups_is_symmetric_and_needs_both():
    rng = np.random.default_rng(2)
    places, first = SIDE * rng.random((60, 2)), np.arange(60) < 20
    one = ripley(places, SQUARE, first=first, second=~first).k
    np.testing.assert_allclose(
        one, ripley(places, SQUARE, first=~first, second=first).k, rtol=1e-12
    )
    with pytest.raises(InputError, match="two groups"):
        ripley(places, SQUARE, first=first)
    with pytest.raises(InputError, match="one has none"):
        ripley(places, SQUARE, first=first, second=np.zeros(60, dtype=bool))


def test_all_pairs_are_those_within_and_between_two_groups():
    rng = np.random.default_rng(3)
    places, a = SIDE * rng.random((80, 2)), np.arange(80) < 30
    pairs = [
        80 * 79 * ripley(places, SQUARE).k,
        30 * 29 * ripley(places[a], SQUARE).k,
        50 * 49 * ripley(places[~a], SQUARE).k,
        2 * 30 * 50 * ripley(places, SQUARE, first=a, second=~a).k,
    ]
    np.testing.assert_allclose(pairs[0], sum(pairs[1:]), rtol=1e-12)


def test_places_outside_the_mask_and_cells_off_a_lattice_are_refused_with_rows_and_no_value():
    places = np.array([[0.5, 0.5], [77.25, 3.0]])
    with pytest.raises(CoordinateError, match=r"1 row \(position 1.*") as caught:
        ripley(places, SQUARE)
    assert "77" not in str(caught.value)
    shaken = Mask(
        SQUARE.centres + np.eye(2)[0] * (np.arange(100) % 2)[:, None] * 0.3, 1.0, np.ones(100)
    )
    with pytest.raises(InputError, match="one lattice"):
        ripley(np.full((2, 2), 0.5), shaken)


def test_a_curve_of_the_same_law_stays_inside_the_envelope_as_often_as_its_level_says():
    rng, level, tries = np.random.default_rng(4), 0.9, 2000
    step = rng.normal(size=(tries, 40, 8)).cumsum(axis=-1)
    within = sum(global_envelope(s[1:], level=level).inside(s[0]) == 1 for s in step)
    # The new curve is not in the mean and sd of the others, so the level is met only nearly:
    # with 39 curves of 8 steps by at most 3 per cent.
    low, high = stats.binom.ppf([FALSE_ALARM, 1 - FALSE_ALARM], tries, [level - 0.03, level + 0.03])
    assert low <= within <= high


def test_an_envelope_of_too_few_curves_says_how_many_it_needs():
    with pytest.raises(InputError, match="needs 19 simulated curves"):
        global_envelope(np.zeros((18, 3)))
    band = global_envelope(np.zeros((19, 3)))
    assert band.inside(np.zeros(3)) == 1


def test_the_bootstrap_envelope_is_about_the_original_and_holds_other_tables_of_the_process():
    """Clustered places: K of another table lies inside at most radii, that of Poisson does not."""
    rng = np.random.default_rng(5)

    def clustered():
        centres = SIDE * rng.random((40, 2))
        near = centres[rng.integers(0, 40, 300)] + 0.3 * rng.normal(size=(300, 2))
        return np.clip(near, 0, SIDE - 1e-9)

    original = clustered()
    band = bootstrap_envelope(original, SQUARE, seed=1)
    assert band.source == CELLS
    np.testing.assert_allclose((band.low + band.high) / 2, ripley(original, SQUARE).k, rtol=1e-10)
    others = [band.inside(ripley(clustered(), SQUARE).k) for _ in range(20)]
    assert np.mean(others) > 0.8
    assert band.inside(ripley(SIDE * rng.random((300, 2)), SQUARE).k) < 0.8


def test_the_envelope_of_simulated_tables_shows_clusters():
    rng = np.random.default_rng(6)
    band = simulated_envelope(
        [SIDE * rng.random((100, 2)) for _ in range(19)], SQUARE, steps=10, reach=0.5
    )
    pairs = SIDE * rng.random((50, 2))
    twins = np.vstack([pairs, np.clip(pairs + 0.05, 0, SIDE - 1e-9)])
    assert band.inside(ripley(SIDE * rng.random((100, 2)), SQUARE, steps=10, reach=0.5).k) > 0.5
    assert band.inside(ripley(twins, SQUARE, steps=10, reach=0.5).k) < 0.5


def test_the_default_reach_is_a_quarter_of_the_side_or_holds_a_thousand_records():
    assert default_reach(SQUARE, 100) == SIDE / 4
    n = 100_000
    assert n * np.pi * default_reach(SQUARE, n) ** 2 / SIDE**2 == pytest.approx(1000)
