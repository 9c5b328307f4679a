"""Tests of dsstan.table.converted_step."""

from __future__ import annotations

import numpy as np
import pytest

from dsstan.table.converted_step import converted_step


def prices(rng: np.random.Generator, n: int, spread: float = 0.5, centre: float = 12.5):
    return np.exp(rng.normal(centre, spread, n))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("share", [1.0, 0.6])
@pytest.mark.parametrize(
    ("rate", "offset", "unit"),
    [(1.0837, 0.0, 1.0), (1.0837, 333.0, 1.0), (7.5345, 0.0, 1.0), (1.0837, 0.0, 0.01), (1, 0, 1)],
)
def test_round_prices_in_another_currency_show_their_step(rate, offset, unit, share, seed):
    """All, or three in five; the others have all digits."""
    rng = np.random.default_rng(seed)
    rounded = 25_000 * np.maximum(np.rint(prices(rng, 150) / 25_000), 1) * rate + offset
    mine = rng.random(150) < share
    values = np.round(np.where(mine, rounded, rate * prices(rng, 150)) / unit) * unit
    step, on = converted_step(values, unit)
    assert step == pytest.approx(25_000 * rate, rel=1e-4)
    assert on[mine].mean() > 0.95
    assert on[~mine].mean() < 0.05 if (~mine).any() else on.all()


def test_values_that_are_a_fine_step_apart_beside_one_that_is_far_show_it_too():
    rng = np.random.default_rng(9)
    values = np.round(2_500 * rng.integers(20, 90, 60) * 1.0837)
    step, on = converted_step(np.append(values, 4e9), 1.0)
    assert step == pytest.approx(2_500 * 1.0837, rel=1e-4)
    assert on[:-1].all()


def test_where_there_is_no_step_none_is_found():
    """120 columns, each with a false alarm of one in a thousand at most."""
    rng = np.random.default_rng(3)
    alarms = 0
    for _ in range(120):
        n, unit = int(rng.integers(12, 500)), float(rng.choice([0.01, 1.0, 10.0]))
        values = prices(rng, n, rng.uniform(0.1, 1.2), rng.uniform(5, 13))
        alarms += converted_step(np.round(values / unit) * unit, unit)[0] > 0
    assert alarms <= 2  # more than two of 120 have a chance of 3 in 10,000


@pytest.mark.parametrize(
    "values",
    [
        np.array([]),
        np.full(50, np.nan),
        np.full(50, 3.0),
        np.arange(9.0),
        np.array([0.0, 1.0, np.nan] * 20),
        np.r_[np.zeros(30), np.arange(11.0)],
        1e300 * np.arange(1.0, 60.0),
    ],
)
def test_columns_that_can_not_show_one_are_let_be(values):
    with np.errstate(all="raise", under="ignore"):
        step, on = converted_step(values, 1.0)
    assert step == 0.0 or on.any()
    assert on.shape == values.shape
