"""Displacement, donut and Voronoi masking, aggregation: places, and an intruder by closed forms."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom, norm

from dsstan.analysis.places.marked import MarkedPlaces
from dsstan.comparison.places.fixed import aggregate, blocks_of, voronoi, voronoi_places
from dsstan.comparison.places.radial import RadialMask, displace, donut, posterior_of_cells
from dsstan.core.errors import CoordinateError, InputError
from dsstan.table.mask.mask import Mask
from mc import FALSE_ALARM, z_limit

LATTICE = 0.02
"""An intruder takes a cell's mean of a density by the midpoint rule: with steps h of a quarter of
the sd its relative error is h^2 / 24 times the relative second derivative, 10 / sd^2 at most here,
in each of two directions; and the density of far cells is a little larger near the edge."""


def grid(columns, rows, width=1.0, **more):
    """A rectangle of cells from (0, 0)."""
    x, y = (width * (np.arange(n) + 0.5) for n in (columns, rows))
    centres = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
    return Mask(centres, width, more.pop("exposure", np.ones(len(centres))), **more)


SQUARE = grid(9, 9)


def places_in(mask, n, seed=0):
    """Places uniform in the mask."""
    rng = np.random.default_rng(seed)
    return MarkedPlaces(mask.draw(rng.integers(0, mask.n_cells, n), rng))


def test_a_uniform_displacement_is_uniform_in_the_disc_and_stays_in_the_mask():
    start = np.tile([4.5, 4.5], (4000, 1))
    moved = RadialMask(SQUARE, radius=2.0).move(start, np.random.default_rng(1))
    distance = np.hypot(*(moved - start).T)
    assert distance.max() <= 2.0
    low, high = binom.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], 4000, 0.25)
    assert low <= (distance < 1.0).sum() <= high
    corner = RadialMask(SQUARE, radius=3.0).move(np.zeros((500, 2)) + 0.1, np.random.default_rng(1))
    assert (SQUARE.cell_of(corner) >= 0).all()


def test_a_donut_reaches_from_the_tenth_part_of_the_addresses_to_all_of_them():
    """Equal exposure of 1 a cell: k of them lie within sqrt(k / pi)."""
    start = np.tile([4.5, 4.5], (3000, 1))
    moved = RadialMask(SQUARE, nearest=20).move(start, np.random.default_rng(2))
    distance = np.hypot(*(moved - start).T)
    assert distance.min() >= np.sqrt(2 / np.pi)
    assert distance.max() <= np.sqrt(20 / np.pi)
    addresses = np.array([[1.5, 1.5], [2.5, 1.5], [4.5, 1.5], [8.5, 1.5]])
    rings = RadialMask(grid(9, 3, addresses=addresses), nearest=3).rings(addresses[:1])
    assert (rings.inner[0], rings.outer[0]) == (0.0, 3.0)


def test_the_gaussian_posterior_is_the_product_of_normal_probabilities_in_a_wide_mask():
    sd, z = 0.8, np.array([[4.2, 4.9]])
    found = posterior_of_cells(RadialMask(SQUARE, radius=sd, law="gaussian"), z, np.ones(81))[0]
    low = SQUARE.centres - 0.5
    each = norm.cdf((low + 1 - z) / sd) - norm.cdf((low - z) / sd)
    expected = each.prod(axis=1)
    expected /= expected.sum()
    # Far cells, from where a displacement leaves the mask more often, have little chance.
    near = expected > 0.01
    np.testing.assert_allclose(found[near], expected[near], rtol=LATTICE)
    assert found.sum() == pytest.approx(1.0)


def test_a_disc_about_a_corner_is_in_four_cells_alike_and_the_prior_weighs_them():
    mechanism = RadialMask(SQUARE, radius=0.9)
    z = np.array([[4.0, 4.0]])
    four = [SQUARE.cell_of(z + d)[0] for d in ([-0.5, -0.5], [0.5, -0.5], [-0.5, 0.5], [0.5, 0.5])]
    np.testing.assert_allclose(posterior_of_cells(mechanism, z, np.ones(81))[0, four], 0.25)
    prior = np.ones(81)
    prior[four[0]] = 5.0
    found = posterior_of_cells(mechanism, z, prior)[0]
    np.testing.assert_allclose(found[four], [5 / 8, 1 / 8, 1 / 8, 1 / 8])


def test_a_hidden_address_is_as_likely_as_all_others_within_the_radius():
    addresses = np.array([[0.5, 0.5], [1.5, 0.5], [1.6, 0.5], [8.5, 0.5]])
    mask = Mask(np.array([[0.5, 0.5], [1.5, 0.5], [8.5, 0.5]]), 1.0, [1, 2, 1], addresses=addresses)
    mechanism = RadialMask(mask, radius=1.2)
    found = posterior_of_cells(mechanism, np.array([[1.1, 0.5]]), np.array([1.0, 2.0, 1.0]))[0]
    stays = mechanism.staying(addresses)
    weight = np.array([1 / stays[0], 1 / stays[1] + 1 / stays[2], 0.0])
    np.testing.assert_allclose(found, weight / weight.sum())


@pytest.mark.parametrize(
    "mechanism",
    [
        RadialMask(grid(6, 4), radius=1.5),
        RadialMask(grid(6, 4), radius=1.0, law="gaussian"),
        RadialMask(grid(6, 4), nearest=5),
    ],
    ids=["uniform", "gaussian", "donut"],
)
def test_the_chances_of_an_intruder_are_calibrated(mechanism):
    """Over persons drawn by the prior, the mean chance of the right cell is the mean sum of
    squared chances, at the edge of the mask too."""
    rng, n = np.random.default_rng(3), 3000
    prior = 1.0 + np.arange(24) % 3
    cells = rng.choice(24, n, p=prior / prior.sum())
    moved = mechanism.move(mechanism.mask.draw(cells, rng), rng)
    chances = posterior_of_cells(mechanism, moved, prior)
    difference = chances[np.arange(n), cells] - (chances**2).sum(axis=1)
    z = difference.mean() / (difference.std(ddof=1) / np.sqrt(n))
    assert abs(z) < z_limit(3)


def test_the_bayes_factor_of_presence_is_the_rise_of_the_chance_over_the_prior():
    data = places_in(SQUARE, 40)
    found = displace(data, SQUARE, 2.0, seed=1)
    np.testing.assert_allclose(found.before, 1 / 81)
    np.testing.assert_allclose(found.presence, 81 * found.finding)
    assert 1 / 81 < found.mean_finding < 0.5
    assert "radius 2" in repr(found)


def test_a_larger_radius_hides_more_and_a_tiny_one_hides_nothing():
    data = places_in(SQUARE, 60)
    means = [displace(data, SQUARE, r, seed=1).mean_finding for r in (0.01, 0.5, 2.0, 8.0)]
    assert means == sorted(means, reverse=True)
    assert means[0] > 0.9
    donuts = [donut(data, SQUARE, k, seed=1).mean_finding for k in (2, 20)]
    assert donuts[0] > donuts[1]


def test_a_voronoi_mask_is_half_way_to_the_neighbour_and_no_other_place_of_the_edge_is_nearer():
    places = places_in(SQUARE, 30, seed=4).places
    masked = voronoi_places(places)
    moved = np.hypot(*(masked - places).T)
    # Along any direction the edge of the cell is where another place becomes as near.
    for angle in np.linspace(0, 2 * np.pi, 50):
        step = np.array([np.cos(angle), np.sin(angle)])
        inside = places + 0.999 * moved[:, None] * step
        d = np.hypot(*(inside[:, None] - places).transpose(2, 0, 1))
        assert (d.argmin(axis=1) == np.arange(30)).all()
    d = np.hypot(*(masked[:, None] - places).transpose(2, 0, 1))
    d.sort(axis=1)
    np.testing.assert_allclose(d[:, 0], d[:, 1])


def test_who_knows_all_others_undoes_a_voronoi_mask():
    data = places_in(SQUARE, 200, seed=5)
    found = voronoi(data, SQUARE)
    assert (found.finding == 1).all()
    assert "NOT DEFINED" in str(found)
    shared = MarkedPlaces(np.repeat(data.places[:20], 2, axis=0))
    assert (voronoi(shared, SQUARE).finding == 1).all()


def test_aggregation_leaves_the_prior_within_the_block():
    data = places_in(SQUARE, 50, seed=6)
    prior = 1.0 + np.arange(81) % 4
    found = aggregate(data, SQUARE, 3, prior=prior)
    block, cells = blocks_of(SQUARE, 3), SQUARE.cell_of(data.places)
    sums = np.bincount(block, weights=prior)
    np.testing.assert_allclose(found.finding, prior[cells] / sums[block[cells]])
    np.testing.assert_allclose(found.before, prior[cells] / prior.sum())
    centres = np.unique(found.tables[0].places, axis=0)
    assert set(map(tuple, centres)) <= {(a, b) for a in (1.5, 4.5, 7.5) for b in (1.5, 4.5, 7.5)}


def test_a_block_with_its_middle_outside_is_put_at_a_cell_of_the_mask():
    ring = grid(3, 3)
    mask = Mask(np.delete(ring.centres, 4, axis=0), 1.0, np.ones(8))
    data = MarkedPlaces(np.array([[0.2, 0.2], [2.9, 2.9]]))
    assert (mask.cell_of(aggregate(data, mask, 3).tables[0].places) >= 0).all()


def test_impossible_settings_and_places_outside_are_refused():
    data = places_in(SQUARE, 5)
    with pytest.raises(InputError, match="radius"):
        displace(data, SQUARE, 0.0)
    with pytest.raises(InputError, match="nearest"):
        donut(data, SQUARE, 0)
    with pytest.raises(CoordinateError, match="must lie in the mask"):
        displace(MarkedPlaces(np.array([[99.0, 0.0]])), SQUARE, 1.0)
    single = grid(1, 1)
    with pytest.raises(InputError, match="shorter one"):
        donut(MarkedPlaces(np.array([[0.5, 0.5]])), single, 40)
