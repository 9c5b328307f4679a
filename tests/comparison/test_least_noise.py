"""The cheapest noise and what a setting costs, against a general optimiser and copies by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from dsstan.comparison.copy_laws import Analyst, CopyLaws
from dsstan.comparison.least_noise import INSIDE, least_noise
from dsstan.models.posterior import parameters_at, spread_draws
from mc import z_limit

COPIES = 10
NEAR = 0.02
"""Share by which the cost may be above the least: the penalty aims a little inside the bounds."""


@pytest.fixture(scope="module")
def laws(free):
    points = [parameters_at(free, int(c), int(i)) for c, i in spread_draws(free, 3)]
    return CopyLaws.at(free, points, np.ones(free.problem.n_records))


@pytest.fixture(scope="module")
def analyst(small, laws):
    return Analyst(small, laws)


def told(laws, variance):
    return COPIES * laws.information(laws.solved(variance))


def test_the_slope_is_the_derivative_of_the_information(laws):
    rng = np.random.default_rng(1)
    n = laws.H.shape[1]
    s, weight, step = rng.uniform(0.05, 0.1, n), rng.uniform(0, 1, n), 1e-6
    slope = laws.slope(laws.solved(s), weight)
    for k in (0, 7, n - 1):
        unit = step * (np.arange(n) == k)
        up, down = (laws.information(laws.solved(s + d)) @ weight for d in (unit, -unit))
        assert slope[k] == pytest.approx((up - down) / (2 * step), rel=1e-5)


@pytest.mark.parametrize("more", [1.1, 1.6])
def test_the_noise_is_the_cheapest_that_a_general_optimiser_finds(laws, analyst, more):
    n = laws.H.shape[1]
    before = told(laws, np.zeros(n))
    room = np.full(n, np.median(before) / more**2)
    price = analyst.price(COPIES)
    found = least_noise(laws, np.full(n, float(COPIES)), room, price)
    assert np.all(told(laws, found) <= room * (1 + 1e-9))
    unit = price @ found / price.sum()

    def slack(x):
        return 1 - told(laws, unit * x) / room

    def slopes(x):
        squares = (laws.solved(unit * x) ** 2).mean(axis=0)
        return (COPIES * unit * squares / room).T

    best = minimize(
        lambda x: (price @ x / price.sum(), price / price.sum()),
        np.full(n, 2.0),
        jac=True,
        method="SLSQP",
        bounds=[(0, None)] * n,
        constraints={"type": "ineq", "fun": slack, "jac": slopes},
        options={"maxiter": 300},
    )
    assert best.success
    assert price @ found <= (1 + NEAR) * unit * price @ best.x


def test_no_noise_is_added_where_none_is_needed_and_none_found_where_there_is_no_room(
    laws, analyst
):
    n = laws.H.shape[1]
    factor, price = np.full(n, float(COPIES)), analyst.price(COPIES)
    before = told(laws, np.zeros(n))
    np.testing.assert_array_equal(least_noise(laws, factor, before * 1.01, price), 0.0)
    room = before.copy()
    room[3] = 0.0
    assert least_noise(laws, factor, room, price) is None
    factor[3] = 0.0  # nobody hears of it, so that it needs no room
    np.testing.assert_array_equal(least_noise(laws, factor, room, price), 0.0)
    assert 0.9 < INSIDE < 1.0


def test_the_cost_is_what_copies_cost_on_average(small, laws, analyst):
    """Copies drawn from the laws, analysed by least squares and combined by Reiter's rule."""
    X, y, n, sets = small.X, small.y, small.n_records, 4000
    rng = np.random.default_rng(3)
    s = rng.uniform(0.0, 0.3, n)
    roots = [np.linalg.cholesky(Vs + np.diag(s)) for Vs in laws.Vs]
    inverse = np.linalg.inv(X.T @ X)
    errors, apart = [], []
    ols = inverse @ X.T @ y
    shift = np.mean([inverse @ X.T @ H @ y for H in laws.H], axis=0) - ols
    for _ in range(sets):
        which = rng.integers(len(laws.H), size=COPIES)
        copies = np.stack([laws.H[d] @ y + roots[d] @ rng.standard_normal(n) for d in which])
        q = copies @ X @ inverse
        residual = np.sum((copies - q @ X.T) ** 2, axis=1) / (n - X.shape[1])
        u = residual[:, None] * np.diag(inverse)
        errors.append(u.mean(axis=0) + q.var(axis=0, ddof=1) / COPIES + shift**2)
        apart.append(np.mean((copies - y) ** 2))
    own = np.sum((y - X @ ols) ** 2) / (n - X.shape[1]) * np.diag(inverse)
    found = analyst.cost(laws, COPIES, s)
    ratio = np.mean(np.array(errors) / own, axis=1) - 1.0
    # With 3 draws their sample variance is that of 3 given values, not of a sample of them.
    means = np.stack([H @ y for H in laws.H]) @ X @ inverse
    surplus = np.mean(means.var(axis=0, ddof=1) / 3 / COPIES / own)
    error = ratio.std(ddof=1) / np.sqrt(sets)
    assert abs(found.regression - surplus - ratio.mean()) < z_limit(2) * error
    residual = np.sum((y - X @ ols) ** 2) / (n - X.shape[1])
    distance = (np.array(apart) - analyst.bare) / residual
    assert abs(found.copies - distance.mean()) < z_limit(2) * distance.std() / np.sqrt(sets)


def test_the_price_is_the_slope_of_the_cost(laws, analyst):
    n = laws.H.shape[1]
    price, none = analyst.price(COPIES), analyst.cost(laws, COPIES, np.zeros(n)).total
    for k in (0, 20):
        unit = 0.1 * (np.arange(n) == k)
        assert analyst.cost(laws, COPIES, unit).total - none == pytest.approx(0.1 * price[k])
