"""What stands for the response is not published beside its copies."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from dsstan.table.order_leaks import as_numbers, nearly_sorted, numbers_of, ranks_like_response

N = 60


def prices(n: int = N) -> pd.Series:
    """Whole thousands, as house prices are."""
    drawn = np.exp(np.random.default_rng(3).normal(12.0, 0.6, n))
    return pd.Series(1000.0 * np.rint(drawn / 1000.0), name="price")


def holed(values: pd.Series) -> pd.Series:
    values = values.astype(float).copy()
    values[7] = np.nan
    return values


def noisy(values: pd.Series) -> pd.Series:
    return values * (1 + 0.01 * np.random.default_rng(4).normal(size=len(values)))


@pytest.mark.parametrize(
    "make",
    [
        holed,
        noisy,
        lambda p: 5000 * np.rint(p / 5000),
        lambda p: "$" + p.astype(int).astype(str),
        lambda p: p.map("{:,.0f} dollars".format),
        lambda p: p.astype(int).astype(str).astype("category"),
        lambda p: pd.Timestamp("1970-01-01") + pd.to_timedelta(p, unit="s"),
        lambda p: p * np.where(np.arange(len(p)) % 2, 1, -1),
        lambda p: -p.rank(),
        lambda p: np.log(p),
        lambda p: pd.array(p.astype(int), dtype="Int64"),
    ],
)
def test_a_column_that_stands_for_the_response_is_found(make):
    response = prices()
    assert ranks_like_response(pd.Series(make(response)), response)


@pytest.mark.parametrize(
    "make",
    [
        lambda p: np.random.default_rng(5).permutation(p),
        lambda p: p * np.exp(0.5 * np.random.default_rng(6).normal(size=len(p))),
        lambda p: pd.Series(["a street", "a road"] * (len(p) // 2)),
        lambda p: p > p.median(),
        lambda p: pd.Series(np.where(np.arange(len(p)) < 3, p, np.nan)),
        lambda p: pd.Series([None] * len(p), dtype=object),
        lambda p: pd.date_range("2020-01-01", periods=len(p)),
    ],
)
def test_other_columns_are_left_alone(make):
    response = prices()
    assert not ranks_like_response(pd.Series(make(response)), response)


def moved(n: int = N) -> np.ndarray:
    """Rows in order but for the first, which has become the last."""
    return np.roll(np.sort(np.random.default_rng(7).normal(size=n)), -1)


def swapped() -> np.ndarray:
    values = np.sort(np.random.default_rng(8).normal(size=N))
    values[[10, 40]] = values[[40, 10]]
    return values


@pytest.mark.parametrize(
    "values", [moved(), moved()[::-1], swapped(), 0.1 * np.arange(4), -0.1 * np.arange(4)]
)
def test_rows_that_are_sorted_but_for_a_few_are_found(values):
    assert nearly_sorted(values)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("n", [20, 200])
def test_shuffled_rows_are_not(seed, n):
    rng = np.random.default_rng(seed)
    assert not nearly_sorted(rng.permutation(prices(n).to_numpy()))
    # Nearly all the same, as counts often are: a long run of equal values is no order.
    assert not nearly_sorted(rng.permutation(np.repeat([0.0, 1.0, 2.0], [n - 6, 3, 3])))


def test_numbers_are_read_out_of_text_and_nothing_else():
    assert as_numbers(pd.Series(["north", "south"])) is None
    assert as_numbers(pd.Series([True, False])) is None
    np.testing.assert_array_equal(as_numbers(pd.Series(["1.5e3", "-2"])), [1500.0, -2.0])
    np.testing.assert_array_equal(as_numbers(pd.Series(["1,200 EUR", "950EUR"])), [1200.0, 950.0])


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        (["1.457,00", "558,00", "12.300,50"], [1457.0, 558.0, 12300.5]),
        (["1,457.00", "558.00", "12,300.5"], [1457.0, 558.0, 12300.5]),
        (["13,4", "13,40182", "-2"], [13.4, 13.40182, -2.0]),
        (["1.457", "558", "1.012.300"], [1457.0, 558.0, 1012300.0]),
        (["0.558 km", "1.457 km", "12 km"], [0.558, 1.457, 12.0]),
        (["1 457,5 €", "558 €", "1’012’300 €"], [1457.5, 558.0, 1012300.0]),
        (["3,5%", "12%", None], [3.5, 12.0, np.nan]),
    ],
)
def test_the_signs_of_numbers_in_text_are_those_of_the_whole_column(text, numbers):
    np.testing.assert_array_equal(as_numbers(pd.Series(text, index=[7] * len(text))), numbers)


@pytest.mark.parametrize("written", ["{:,.2f}", "{:,.0f} EUR", "{:.1f}"])
@pytest.mark.parametrize("comma", [False, True])
def test_a_share_of_the_response_is_known_as_text_too(written, comma):
    rng = np.random.default_rng(3)
    response = pd.Series(np.exp(rng.normal(7.5, 1.0, 80)).round(2))
    text = [written.format(0.31 * v) for v in response]
    if comma:
        text = [t.translate(str.maketrans(",.", ".,")) for t in text]
    assert ranks_like_response(pd.Series(text), response)


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_column_in_pieces_has_the_numbers_of_the_whole(size):
    rng = np.random.default_rng(2)
    text = [None if k % 9 == 0 else f"{k} GBP" for k in range(60)]
    for column in (
        pd.Series(text),
        pd.Series(text[:50] + ["none"] * 10),
        pd.Series(text[:56] + ["none"] * 4),
        pd.Series(rng.normal(size=60)),
        pd.Series(pd.array([None, *range(59)], dtype="Int16")),
        pd.Series(pd.date_range("2020", periods=60)),
        pd.Series([True, False] * 30),
        pd.Series(["a"] * 60),
    ):
        pieces = [column[k : k + size] for k in range(0, 60, size)]
        whole, found = as_numbers(column), numbers_of(pieces, 60)
        assert (whole is None) == (found is None)
        if whole is not None:
            np.testing.assert_array_equal(whole, found)


@pytest.mark.parametrize("rare", [False, True])
def test_many_records_are_judged_as_few_are(rare):
    rng = np.random.default_rng(3)
    response = pd.Series(rng.normal(size=100_000))
    if rare:
        response = response.abs() + 1.0
        response[rng.random(100_000) < 0.999] = 0.0
    near = response + (response != 0) * 0.05 * rng.normal(size=100_000)
    far = response + (response != 0) * rng.normal(size=100_000)
    assert ranks_like_response(near, response)
    assert ranks_like_response(-near, response)
    assert ranks_like_response(np.exp(response), response)
    assert rare or not ranks_like_response(far, response)
    assert not ranks_like_response(pd.Series(rng.permutation(response)), response)


def test_a_short_column_in_exactly_the_opposite_order_is_found():
    """Too short for a correlation of ranks to count."""
    response = np.array([3.0, 1.0, 2.0, 5.0, 4.5])
    assert ranks_like_response(pd.Series(10.0 - response**2), pd.Series(response))
    assert not ranks_like_response(pd.Series([1.0, 2.0, 5.0, 3.0, 4.0]), pd.Series(response))
