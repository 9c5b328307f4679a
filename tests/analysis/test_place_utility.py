"""Counts, nearest records, variogram, regression, and all of it in one result."""

from __future__ import annotations

import numpy as np
import pytest

from dsstan.analysis.places.areas import areas_of_cells, compare_counts, counts_on, squares
from dsstan.analysis.places.curves import compare_regression, variogram_of
from dsstan.analysis.places.marked import MarkedPlaces
from dsstan.analysis.places.neighbours import compare_nearest, largest_gap, nearest_distances
from dsstan.analysis.places.utility import apart, place_utility
from dsstan.analysis.spatial_statistics import variogram
from dsstan.analysis.utility import ols
from dsstan.core.errors import InputError
from dsstan.table.mask.mask import Mask
from mc import z_limit

SIDE = 8
CENTRES = np.stack(np.meshgrid(np.arange(SIDE), np.arange(SIDE)), axis=-1).reshape(-1, 2) + 0.5
SQUARE = Mask(CENTRES, 1.0, np.ones(SIDE**2))


def table(seed, n=120):
    """Places with a trend in the values and a covariate."""
    rng = np.random.default_rng(seed)
    places, x = SIDE * rng.random((n, 2)), rng.normal(size=n)
    y = 1 + 0.5 * x + 0.3 * places[:, 0] + 0.2 * rng.normal(size=n)
    design = np.column_stack([np.ones(n), x])
    return MarkedPlaces(places, y, design, (x > 0).astype(int), ("Intercept", "x"))


def test_the_variogram_of_many_records_is_the_one_of_all_pairs():
    data = table(1)
    found = variogram_of(data, SQUARE, reach=2.0, bins=8)
    expected = variogram(data.values, data.places, np.arange(9) / 4)
    np.testing.assert_allclose(found["gamma"], expected["gamma"], rtol=1e-12)
    np.testing.assert_array_equal(found["pairs"], expected["pairs"])


def test_a_record_without_a_value_leaves_the_variogram_and_the_regression_alone():
    data = table(1)
    values = np.append(data.values, np.nan)
    more = MarkedPlaces(
        np.vstack([data.places, [1.0, 1.0]]),
        values,
        np.vstack([data.X, [1.0, 5.0]]),
        terms=data.terms,
    )
    assert variogram_of(more, SQUARE).equals(variogram_of(data, SQUARE))
    slopes = [compare_regression(d, [d]).loc["x", "original"] for d in (data, more)]
    assert slopes[0] == pytest.approx(slopes[1], rel=1e-10)


def test_places_with_error_attenuate_the_trend_by_the_share_that_theory_gives():
    """Errors in variables: the slope on u + e is the slope times var(u) / (var(u) + var(e))."""
    rng, n, tries, error = np.random.default_rng(7), 400, 60, 2.0
    found = []
    for _ in range(tries):
        u = rng.normal(size=n)
        places = np.column_stack([u, rng.normal(size=n)])
        original = MarkedPlaces(places, u, np.ones((n, 1)), terms=("Intercept",))
        moved = MarkedPlaces(places + error * rng.normal(size=(n, 2)), u, np.ones((n, 1)))
        rows = compare_regression(original, [moved])
        scale = np.sqrt(places.var(axis=0).mean())
        assert rows.loc["east", "original"] == pytest.approx(scale, rel=1e-8)
        found.append(rows.loc["east", "copies"] / scale)
    expected = 1 / (1 + error**2)
    z = (np.mean(found) - expected) / (np.std(found, ddof=1) / np.sqrt(tries))
    # The quadratic terms and the estimated centre add an error of order 1 / n.
    assert abs(z) < z_limit(1) + np.sqrt(tries) / n * 10


def test_the_regression_beside_that_of_copies_is_least_squares_and_its_bias_their_difference():
    original, copies = table(2), [table(3), table(4), table(5)]
    found = compare_regression(original, copies)
    centre = original.places.mean(axis=0)
    scale = np.sqrt(original.places.var(axis=0).mean())

    def by_hand(data):
        u, v = ((data.places - centre) / scale).T
        return ols(np.column_stack([data.X, u, v, u * u, u * v, v * v]), data.values)

    q, variance = by_hand(original)
    mean = np.mean([by_hand(c)[0] for c in copies], axis=0)
    np.testing.assert_allclose(found["original"], q, rtol=1e-10)
    np.testing.assert_allclose(found["bias_in_se"], (mean - q) / np.sqrt(variance), rtol=1e-8)
    assert found.index[:3].tolist() == ["Intercept", "x", "east"]


def test_places_all_at_one_point_have_no_trend():
    data = table(2)
    same = MarkedPlaces(np.ones_like(data.places), data.values, data.X)
    with pytest.raises(InputError, match="one place"):
        compare_regression(same, [data])
    with pytest.raises(InputError, match="collinear on copy 1"):
        compare_regression(data, [same])


def test_nearest_distances_on_a_lattice_and_of_two_places_at_one_site():
    np.testing.assert_array_equal(nearest_distances(CENTRES), 1.0)
    assert nearest_distances(np.array([[0.0, 0.0], [0.0, 0.0], [3.0, 4.0]])).tolist() == [0, 0, 5]
    assert (compare_nearest(CENTRES, [2 * CENTRES])["copies"] == 2.0).all()
    with pytest.raises(InputError, match="two places"):
        nearest_distances(CENTRES[:1])


def test_the_largest_gap_is_one_where_nothing_overlaps():
    assert largest_gap(np.arange(5.0), np.arange(5.0) + 10) == 1.0
    assert largest_gap(np.arange(5.0), np.arange(5.0)) == 0.0


def test_counts_on_squares_and_areas_by_hand():
    places = np.array([[0.5, 0.5], [1.5, 0.5], [2.5, 0.5], [3.5, 3.5]])
    moved = np.array([[0.5, 0.5], [2.5, 0.5], [2.5, 0.5], [2.5, 0.5]])
    low = np.zeros(2)
    own, copies = counts_on(squares(places, 2.0, low), [squares(moved, 2.0, low)])
    assert own.tolist() == [2, 1, 1]
    assert copies.tolist() == [[1, 3, 0]]
    found = compare_counts(own, copies)
    assert found["misplaced"] == 0.5
    assert found["near"] == pytest.approx(2 / 3)
    names = ["west" if x < 2 else "east" for x in CENTRES[:, 0]]
    assert areas_of_cells(places, SQUARE, names) == ["west", "west", "east", "east"]
    with pytest.raises(InputError, match="one name a cell"):
        areas_of_cells(places, SQUARE, names[:3])


def test_copies_that_are_the_original_differ_in_nothing():
    data = table(5)
    found = place_utility(
        data, [data, data], SQUARE, areas={"rows": [int(y) for y in CENTRES[:, 1]]}
    )
    assert (found.distances() == 0).all()
    assert set(found.curves["curve"]) == {"K", "pair correlation", "cross-K 0-1", "variogram"}
    assert found.inside == {"mean of copies": 1.0, "each copy": 1.0}
    assert (found.counts["misplaced"] == 0).all()
    assert found.nearest_gap == 0
    assert (found.regression["bias"].abs() < 1e-12).all()
    assert "K inside the envelope at 100% of distances" in repr(found)
    assert "squares of 2" in str(found)


def test_shuffled_values_leave_k_and_lose_the_variogram():
    data = table(6)
    order = np.random.default_rng(1).permutation(len(data.values))
    other = MarkedPlaces(data.places, data.values[order], data.X, data.groups, data.terms)
    lost = place_utility(data, [other], SQUARE).distances()
    assert lost["K"] == 0
    assert lost["variogram"] > 0.1


def test_a_table_of_places_alone_has_no_regression_and_no_variogram():
    data = MarkedPlaces(table(6).places)
    found = place_utility(data, [MarkedPlaces(table(7).places)], SQUARE)
    assert found.regression is None
    assert set(found.curves["curve"]) == {"K", "pair correlation"}
    same = MarkedPlaces(np.ones_like(data.places), data.places[:, 0], np.ones((120, 1)))
    assert place_utility(same, [same], SQUARE, envelope=found.envelope).regression is None
    with pytest.raises(InputError, match="no copy"):
        place_utility(data, [], SQUARE)


def test_arrays_that_do_not_fit_their_places_are_refused():
    with pytest.raises(InputError, match="values has 3 rows"):
        MarkedPlaces(np.zeros((2, 2)), np.zeros(3))
    with pytest.raises(InputError, match="finite planar"):
        MarkedPlaces(np.array([[0.0, np.nan]]))


def test_two_curves_are_compared_where_both_are_known():
    assert apart(np.array([1.0, 4.0, np.nan]), np.array([4.0, 4.0, 1.0])) == pytest.approx(1 / 3)
