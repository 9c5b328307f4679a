"""Flags, smoothing and the relations between gamma and alpha."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.spatial.distance import cdist

import dsstan as ds
from dsstan.core.errors import InputError
from dsstan.models.weights import (
    alpha_from_gamma,
    gamma_from_alpha,
    isolation_distance,
    neighbour_distances,
    smoothing,
)


def test_smoothing_is_one_without_weight_and_zero_at_infinity():
    a = np.array([0.0, 0.3, 1.0])
    np.testing.assert_array_equal(smoothing(np.inf, a), [1.0, 0.0, 0.0])
    np.testing.assert_array_equal(smoothing(0.0, a), [1.0, 1.0, 1.0])
    np.testing.assert_allclose(smoothing(4.0, a), 1 / np.sqrt(1 + 4 * a), rtol=1e-15)


@pytest.mark.parametrize(("gamma", "a"), [(-1.0, [0.0]), (np.nan, [0.0]), (1.0, [1.1])])
def test_impossible_gamma_or_weights_are_refused(gamma, a):
    with pytest.raises(InputError):
        smoothing(gamma, np.array(a))


def test_the_paper_s_threshold_is_thirteen_hundredths():
    assert isolation_distance(0.20, 12.7) == pytest.approx(0.1267, abs=5e-5)


def test_alpha_and_gamma_invert_each_other_and_meet_the_paper_s_cases():
    for gamma in (0.0, 0.7, 63.0, 1e6):
        alpha = alpha_from_gamma(gamma, 4.0, 0.0625)
        assert gamma_from_alpha(alpha, 4.0, 0.0625) == pytest.approx(gamma, rel=1e-9, abs=1e-9)
    assert gamma_from_alpha(0.5, 4.0, 0.0625) == pytest.approx(4.0 / 0.0625 - 1)
    assert gamma_from_alpha(0.0, 4.0, 0.0625) == np.inf
    assert alpha_from_gamma(np.inf, 4.0, 0.0625) == 0.0
    with pytest.raises(InputError, match="negative gamma"):
        gamma_from_alpha(0.5, 0.5, 1.0)


def test_alpha_is_the_weight_of_an_isolated_record(small, free):
    """Eq. alpha: E[w*] = alpha (y - mu) for a record that correlates with no other."""
    sigma_sq, tau_sq, gamma = 2.0, 0.5, 3.0
    A = 1 / np.sqrt(1 + gamma)
    V = sigma_sq * A * A + tau_sq
    assert sigma_sq * A * A / V == pytest.approx(alpha_from_gamma(gamma, sigma_sq, tau_sq))


@pytest.mark.parametrize("k", [1, 2, 5])
def test_neighbour_distances_match_a_full_sort_by_record_and_by_site(small, k):
    d = np.sort(cdist(small.sites, small.sites), axis=1)
    np.testing.assert_allclose(neighbour_distances(small, neighbour=k), d[:, k], atol=1e-15)
    u = np.sort(cdist(small.unique_sites, small.unique_sites), axis=1)
    by_site = neighbour_distances(small, neighbour=k, by_site=True)
    np.testing.assert_allclose(by_site, u[:, k][small.site_index], atol=1e-15)
    if k == 1:
        assert by_site.min() > 0
        assert neighbour_distances(small).min() == 0


def test_flags_follow_the_rule_with_equality(free):
    nearest = neighbour_distances(free.problem)
    threshold = float(np.sort(nearest)[-3])
    w = ds.flag_isolated(free, distance=threshold)
    np.testing.assert_array_equal(w.a, (nearest >= threshold).astype(float))
    assert w.n_flagged == 3


def test_correlation_rule_uses_the_posterior_median_of_phi(free):
    w = ds.flag_isolated(free, correlation=0.3)
    phi = np.median(free.draws["phi"])
    assert w.threshold == pytest.approx(-np.log(0.3) / phi)
    assert ds.flag_isolated(free).correlation == 0.20
    same = ds.flag_isolated(free, distance=w.threshold)
    assert same.correlation == pytest.approx(0.3)
    np.testing.assert_array_equal(same.probability, w.probability)


def test_probability_of_a_flag_is_the_share_of_draws_that_flag(free):
    w = ds.flag_isolated(free, correlation=0.3)
    phi = free.draws["phi"].ravel()
    want = [(d >= -np.log(0.3) / phi).mean() for d in w.nearest]
    np.testing.assert_allclose(w.probability, want, atol=2 / phi.size)
    assert 0 < w.probability.max() <= 1


def test_own_weights_come_from_a_column_or_an_array():
    table = pd.DataFrame(
        {"u": [0.0, 1, 2, 3], "v": [0.0, 1, 0, 1], "z": [1.0, 2, 4, 3], "s": [True, False] * 2}
    )
    problem = ds.prepare(table, "z ~ 1", coords=("u", "v"))
    np.testing.assert_array_equal(ds.own_weights(problem, "s").a, [1, 0, 1, 0])
    assert ds.own_weights(problem, [0, 0.5, 0, 0]).n_flagged == 1


@pytest.mark.parametrize(
    ("a", "match"),
    [
        ("nowhere", "no column"),
        ([1.0], "shape"),
        (["x"] * 60, "numbers from 0 to 1"),
        ([2.0] * 60, "rows 0, 1, 2, 3, 4 and 55 more"),
        ([np.nan] * 60, "rows"),
    ],
)
def test_wrong_own_weights_are_refused(small, a, match):
    with pytest.raises(InputError, match=match):
        ds.own_weights(small, a)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"distance": 0.1, "correlation": 0.2}, "not both"),
        ({"distance": 0.0}, "positive"),
        ({"correlation": 1.0}, "between 0 and 1"),
        ({"neighbour": 0}, "whole number"),
        ({"neighbour": 60}, "needs at least"),
    ],
)
def test_wrong_flagging_rules_are_refused(free, arguments, match):
    with pytest.raises(InputError, match=match):
        ds.flag_isolated(free, **arguments)


def test_the_table_of_flags_keeps_the_index(kept):
    table = kept.weights.table(kept.problem)
    assert list(table.index) == list(kept.problem.table.index)
    assert table["flagged"].sum() == kept.weights.n_flagged
