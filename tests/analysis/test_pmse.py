"""The propensity score's mean squared error: the classifier, the null and the two readings."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize
from scipy.spatial.distance import cdist

import dsstan as ds
from dsstan.analysis.pmse import (
    Pmse,
    classifier_columns,
    fitted_propensity,
    pmse,
    pmse_of,
    propensity_mse,
)
from dsstan.core.errors import DsstanWarning, InputError
from mc import z_limit

REPLICATES = 700

FIRST_ORDER = 0.02
"""Allowance for the F law of the ratio, exact only to first order and where copies vary alike
in every column: the square of a residual doesn't (measured at L = 3 to 10 and N = 120 to 400:
0.04 to 0.07 where 0.05 is nominal)."""

SIZE_LIMIT = z_limit(2) * np.sqrt(0.05 * 0.95 / REPLICATES) + FIRST_ORDER


def tables(n=80, seed=1, shift=0.4):
    """Two sets of classifier columns."""
    rng = np.random.default_rng(seed)
    first, second = rng.normal(size=n), shift + rng.normal(size=n)
    base = np.column_stack([np.ones(n), rng.normal(40, 3, n)])
    return classifier_columns(first, base), classifier_columns(second, base)


def test_fitted_probabilities_agree_with_a_general_optimiser():
    first, second = tables()
    D = np.vstack([first, second])
    D = D / np.sqrt(np.mean(D**2, axis=0))
    target = np.repeat([0.0, 1.0], 80)

    def loss(beta):
        eta = D @ beta
        return np.sum(np.logaddexp(0, eta) - target * eta), D.T @ (1 / (1 + np.exp(-eta)) - target)

    best = minimize(loss, np.zeros(D.shape[1]), jac=True, method="BFGS", options={"gtol": 1e-9})
    expected = 1 / (1 + np.exp(-D @ best.x))
    # BFGS stops at a gradient of 1e-9 along a basis of condition 1e3.
    np.testing.assert_allclose(fitted_propensity(D, target), expected, atol=1e-5)


def test_at_the_maximum_the_score_is_zero():
    first, second = tables()
    D = np.vstack([first, second])
    target = np.repeat([0.0, 1.0], 80)
    score = D.T @ (target - fitted_propensity(D, target))
    np.testing.assert_allclose(score / np.abs(D).sum(axis=0), 0.0, atol=1e-7)


def test_one_column_of_groups_gives_the_groups_shares():
    """Two cells, 3 of 4 and 1 of 4 from the second table: p_hat 3/4 and 1/4."""
    first = np.column_stack([np.ones(4), [1.0, 0.0, 0.0, 0.0]])
    second = np.column_stack([np.ones(4), [1.0, 1.0, 1.0, 0.0]])
    assert propensity_mse(first, second) == pytest.approx(1 / 16, rel=1e-10)


def test_the_value_does_not_depend_on_which_table_comes_first_or_on_units():
    first, second = tables()
    value = propensity_mse(first, second)
    assert propensity_mse(second, first) == pytest.approx(value, rel=1e-8)
    units = np.array([1.0, 1e-3, 1e4, -50.0, 1e-6])
    assert propensity_mse(first * units, second * units) == pytest.approx(value, rel=1e-8)


def test_tables_that_are_the_same_or_separated_give_the_ends_of_the_range():
    first, second = tables(shift=50.0)
    assert propensity_mse(first, first) == 0.0
    assert propensity_mse(first, second) == pytest.approx(0.25, abs=1e-6)


@pytest.mark.filterwarnings("error")
def test_columns_that_others_determine_are_left_out():
    first, second = tables()
    doubled = [np.column_stack([t, t[:, 2], np.zeros(80)]) for t in (first, second)]
    assert propensity_mse(*doubled) == pytest.approx(propensity_mse(first, second), rel=1e-8)


class Scene:
    """Sixty sites, a covariate, and responses with and without a spatial effect."""

    def __init__(self, seed, n=100):
        self.rng = np.random.default_rng(seed)
        self.n = n
        self.sites = self.rng.uniform(size=(n, 2))
        self.X = np.column_stack([np.ones(n), self.rng.normal(size=n)])
        self.mean = self.X @ [1.0, 0.5]
        self.K = 2.0 * np.exp(-6.0 * cdist(self.sites, self.sites))
        self.root = np.linalg.cholesky(self.K)

    def noise(self, *shape):
        return self.rng.normal(size=(*shape, self.n))

    def pmse(self, original, copies, **options):
        return pmse_of(original, copies, self.X, self.sites, **{"degree": 1, **options})


def test_sizes_are_nominal_where_the_original_is_one_more_independent_copy():
    """Fresh noise around one regression: both tests are at their null."""
    scene = Scene(1)
    found = [
        scene.pmse(scene.mean + scene.noise(), scene.mean + scene.noise(4))
        for _ in range(REPLICATES)
    ]
    for name in ("p_poor", "p_near"):
        size = np.mean([getattr(f, name) < 0.05 for f in found])
        assert abs(size - 0.05) < SIZE_LIMIT, name
    ratios = np.array([f.independent_ratio for f in found])
    error = ratios.std() / np.sqrt(REPLICATES)
    # 1 in expectation to first order; the second order is k / N of it.
    assert abs(ratios.mean() - 1.0) < z_limit(1) * error + found[0].terms / scene.n


def test_sizes_where_copies_are_posterior_draws_of_the_right_model():
    """Known parameters, w given y: the original lies in the middle of its copies.

    So the test for poor utility is conservative, the ratio is between 1/2 and 1,
    and the kept spatial effect shows as nearness.
    """
    scene = Scene(2)
    solve = np.linalg.inv(scene.K + np.eye(scene.n))
    mean_of = scene.K @ solve
    root = np.linalg.cholesky(scene.K - mean_of @ scene.K)
    found = []
    for _ in range(60):
        y = scene.mean + scene.root @ scene.noise() + scene.noise()
        w = mean_of @ (y - scene.mean) + scene.noise(4) @ root.T
        found.append(scene.pmse(y, scene.mean + w + scene.noise(4)))
    assert np.mean([f.poor for f in found]) < 0.05
    assert 0.5 < np.mean([f.ratio for f in found]) < 1.0
    assert np.mean([f.independent_ratio for f in found]) < 0.75


@pytest.mark.parametrize("copies", [3, 6])
def test_the_ratio_to_pairs_cannot_fall_far_below_its_floor_however_near_the_copies(copies):
    """The mean of the copies is never nearer to them than they to one another allow."""
    scene = Scene(3)
    y = scene.mean + scene.root @ scene.noise() + scene.noise()
    noise = 1e-3 * scene.noise(copies)
    found = scene.pmse(y, y + noise - noise.mean(axis=0))
    assert found.ratio == pytest.approx((copies - 1) / (2 * copies), rel=0.01)


def test_near_copies_are_a_disclosure_warning_and_not_praise():
    scene = Scene(4)
    y = scene.mean + scene.noise()
    found = scene.pmse(y, y + 0.05 * scene.noise(5))
    assert found.near
    assert not found.poor
    assert "no praise: whether they are too near is for the disclosure" in found.reading
    assert found.independent_ratio < 0.1


def test_copies_of_another_law_are_of_poor_utility():
    scene = Scene(5)
    found = scene.pmse(scene.mean + scene.noise(), scene.mean + 1.0 + 2.0 * scene.noise(5))
    assert found.poor
    assert not found.near
    assert found.ratio > 2
    assert "poor utility" in found.reading
    assert found.reading in str(found)


def test_near_copies_that_all_err_alike_are_both():
    scene = Scene(6)
    y = scene.mean + scene.noise()
    found = scene.pmse(y, y + 0.1 + 0.01 * scene.noise(5))
    assert (found.near, found.poor) == (True, True)


def test_good_copies_have_neither_reading():
    scene = Scene(7)
    found = scene.pmse(scene.mean + scene.noise(), scene.mean + scene.noise(5))
    assert "about as they differ from one another" in found.reading


def test_copies_equal_to_the_original_give_zero_and_the_warning():
    scene = Scene(8)
    y = -5.0 + scene.noise()
    found = scene.pmse(y, np.tile(y, (3, 1)))
    assert (found.value, found.null, found.ratio, found.p_poor) == (0.0, 0.0, 0.0, 1.0)
    assert found.near


def test_copies_equal_to_one_another_only_give_an_infinite_ratio():
    scene = Scene(9)
    found = scene.pmse(scene.noise(), np.tile(scene.noise(), (3, 1)))
    assert (found.ratio, found.p_poor) == (np.inf, 0.0)
    assert found.poor


@pytest.mark.parametrize("constants", [(2.0, 2.0, 2.0), (1.0, 2.0, 3.0)])
def test_constant_copies_give_numbers(constants):
    scene = Scene(10)
    found = scene.pmse(scene.noise(), np.outer(constants, np.ones(scene.n)))
    numbers = [v for v in dataclasses.astuple(found)]
    assert not np.isnan(numbers).any()
    assert 0 < found.value <= 0.25


def test_ties_and_shared_sites_give_numbers():
    scene = Scene(11)
    scene.sites[:50] = scene.sites[50:]
    found = scene.pmse(np.round(scene.noise()), np.round(scene.noise(3)))
    assert not np.isnan([v for v in dataclasses.astuple(found)]).any()


def test_two_copies_warn():
    scene = Scene(12)
    with pytest.warns(DsstanWarning, match="one pair"):
        scene.pmse(scene.noise(), scene.noise(2))


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"copies": np.zeros((1, 100))}, "at least two copies"),
        ({"copies": np.zeros((3, 99))}, "shapes"),
        ({"copies": np.full((3, 100), np.nan)}, "finite"),
        ({"degree": 12}, "more than the 100 records"),
        ({"degree": -1}, "degree"),
        ({"degree": True}, "degree"),
    ],
)
def test_what_cannot_be_classified_is_refused(change, match):
    scene = Scene(13)
    given = {"original": scene.noise(), "copies": scene.noise(3), **change}
    with pytest.raises(InputError, match=match):
        scene.pmse(**given)


def test_p_near_is_the_law_of_its_sum_of_chi_squares():
    """Simulated, for k = 4 and L = 3, at the quantiles of the draws themselves."""
    from dsstan.analysis.pmse import _p_near

    rng = np.random.default_rng(14)
    draws = 4 / 3 * rng.chisquare(4, 100_000) + rng.chisquare(8, 100_000) / 3
    for probability in (0.01, 0.05, 0.5, 0.95):
        x = np.quantile(draws, probability)
        error = np.sqrt(probability * (1 - probability) / 100_000)
        assert abs(_p_near(x, 4, 3) - probability) < z_limit(4) * error


def test_p_poor_is_the_law_of_the_ratio_for_normal_means():
    """The identity in the docstring, with squared distances in place of pMSE."""
    rng = np.random.default_rng(15)
    k, copies, count = 3, 4, 50_000
    t = rng.normal(size=(count, copies + 1, k))
    to_original = ((t[:, 1:] - t[:, :1]) ** 2).sum(axis=(1, 2)) / copies
    centred = t[:, 1:] - t[:, 1:].mean(axis=1, keepdims=True)
    pairs = 2 * (centred**2).sum(axis=(1, 2)) / (copies - 1)
    f = (2 * copies * to_original / pairs - (copies - 1)) / (copies + 1)
    size = np.mean(stats.f.sf(f, k, k * (copies - 1)) < 0.05)
    assert abs(size - 0.05) < z_limit(1) * np.sqrt(0.05 * 0.95 / count)


@pytest.fixture(scope="module")
def release(kept):
    """Four copies of the restricted fit."""
    return ds.synthesise(kept, 4, seed=21)


def test_a_release_is_judged_on_the_modelled_scale(release):
    p = release.problem
    found = pmse(release)
    again = pmse_of(p.y, release.modelled(), p.X, p.sites)
    assert dataclasses.astuple(found) == dataclasses.astuple(again)
    assert isinstance(found, Pmse)
    assert found.copies == 4
    assert found.terms == 8  # e, e x, e times five monomials, e squared


def test_another_formula_and_degree_make_other_columns(release):
    assert pmse(release, "log(value) ~ 1", degree=0).terms == 2
    assert pmse(release, "value ~ x", degree=1).terms == 5


def test_a_covariate_that_is_a_coordinate_counts_once(release):
    assert pmse(release, "log(value) ~ x + east", degree=1).terms == 5


def test_a_formula_of_another_response_is_refused(release):
    with pytest.raises(InputError, match="unchanged in every copy"):
        pmse(release, "x ~ east")


def test_one_copy_of_a_release_is_refused(kept):
    with pytest.raises(InputError, match="at least two copies"):
        pmse(ds.synthesise(kept, 1, seed=1))
