"""Floors: what is taken for one, and the least sd that each transform makes of it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy.stats import norm

import dsstan as ds
from conftest import small_table
from dsstan.core.errors import InputError
from dsstan.core.spelling import JOB, options_typed_in
from dsstan.risk.assessment import assess
from dsstan.risk.floors import Floor, as_floor
from dsstan.table.formulas.parsing import ResponseTransform

ALIKE = 1e-12
"""Rounding of a few additions and one logarithm."""


@pytest.mark.parametrize("given", [0.05, "0.05", " 5e-2 ", np.float32(0.05)])
def test_an_sd_is_read_from_a_number_or_text(given):
    assert Floor.parse(given).sd == pytest.approx(0.05, rel=1e-6)
    assert Floor.parse(given).share is None


@pytest.mark.parametrize("given", ["10%", " 10 % ", "1e1%"])
def test_a_percentage_is_read_from_text(given):
    assert Floor.parse(given) == Floor(share=0.1)
    assert str(Floor.parse(given)) == "10%"


@pytest.mark.parametrize(
    "given",
    [0.0, -1.0, np.nan, np.inf, True, "nan", "inf", "0%", "-5%", "100%", "ten", "%", "", "5%%"],
)
def test_anything_else_has_one_clear_error(given):
    with pytest.raises(InputError, match=r"an sd such as 0\.05, or a percentage"):
        Floor.parse(given)


def test_no_floor_stays_none_and_a_floor_itself():
    assert as_floor(None) is None
    assert as_floor(Floor(share=0.2)) == Floor(share=0.2)


def problem_of(formula, values=None):
    table = small_table(30, shared=2)
    if values is not None:
        table = table.assign(value=values)
    return ds.prepare(table, formula, coords=("east", "north"))


@pytest.mark.parametrize("formula", ["value ~ x", "log(value) ~ x", "log10(value) ~ x"])
@pytest.mark.parametrize("floor", [0.1, 0.5])
def test_no_interval_of_the_percentage_holds_95_percent(formula, floor):
    """The best an intruder can do: an interval from v - p v to v + p v centred where it holds the
    most of a normal belief."""
    problem = problem_of(formula)
    sd = Floor.parse(f"{100 * floor:g}%").least_sd(problem)
    forward, value = problem.transform.forward, problem.original()
    low, high = forward(value - floor * np.abs(value)), forward(value + floor * np.abs(value))
    shifts = np.linspace(-2.0, 2.0, 401)[:, None] * sd
    held = norm.cdf((high - problem.y + shifts) / sd) - norm.cdf((low - problem.y + shifts) / sd)
    np.testing.assert_allclose(held.max(axis=0), 0.95, atol=1e-4)


def test_under_log_it_is_one_number_for_all_records():
    sd = Floor.parse("10%").least_sd(problem_of("log(value) ~ x"))
    np.testing.assert_allclose(sd, np.log(1.1 / 0.9) / 2 / 1.96, rtol=ALIKE * 100)


def test_a_value_of_zero_needs_nothing_and_a_negative_one_as_much_as_its_size():
    values = np.linspace(-2.0, 3.0, 30)
    values[4] = 0.0
    sd = Floor.parse("10%").least_sd(problem_of("value ~ x", values))
    np.testing.assert_allclose(sd, 0.1 * np.abs(values) / 1.96, atol=1e-15)


def test_where_the_transform_ends_no_one_sided_interval_holds_more_than_95_percent():
    values = np.linspace(-0.99, 3.0, 30)
    problem = problem_of("log1p(value) ~ x", values)
    sd = Floor.parse("50%").least_sd(problem)
    ends = values - 0.5 * np.abs(values) <= -1.0
    assert 0 < ends.sum() < 30
    upper = np.log1p(values[ends] + 0.5 * np.abs(values[ends]))
    held = norm.cdf((upper - problem.y[ends]) / sd[ends])
    np.testing.assert_allclose(held, 0.95, atol=1e-4)


def test_the_verdict_counts_the_zeros_of_which_a_percentage_asks_nothing():
    table = small_table(30, shared=2)
    table.loc[[3, 8], "value"] = 0.0
    problem = ds.prepare(table, "value ~ x", coords=("east", "north"))
    fit = ds.fit(problem, seed=1, engine="direct", progress=False)
    release = ds.synthesise(fit, 2, seed=1, progress=False)
    text = "of 2 values of 0 a percentage asks nothing: give an sd"
    met, sd = (assess(release, floor=floor, exact=0, draws=50) for floor in ("0.001%", 1e-6))
    assert met.verdict == sd.verdict == "met"
    assert text in met.why
    assert text in met.floor_remarks()[0]
    assert text not in sd.why


def test_an_assessment_counts_by_record(kept):
    """On the identity scale the percentage asks for another sd of every record."""
    release = ds.synthesise(kept, 5, seed=1, progress=False)
    found = assess(release, floor="3%", exact=0, draws=50)
    least = 0.03 * np.abs(kept.problem.original()) / 1.96
    if kept.problem.transform.name == "log":
        least = np.full(60, np.log(1.03 / 0.97) / 2 / 1.96)
    np.testing.assert_allclose(found.least_sd, least, rtol=1e-9)
    assert found.below_floor.tolist() == np.flatnonzero(found.sd < least).tolist()
    assert found.summary()["floor"]["asked"] == "3%"


def test_the_verdict_is_met_missed_or_not_judged(kept):
    release = ds.synthesise(kept, 5, seed=1, progress=False)
    found = assess(release, floor=1e-6, exact=0, draws=50)
    assert found.verdict == "met"
    assert dataclasses.replace(found, least_sd=np.full(60, 1e6)).verdict == "missed"
    assert assess(release, exact=0, draws=50).verdict == "not judged"


def test_the_sd_reported_is_exact_where_it_was_computed_and_never_above_the_upper_bound(kept):
    release = ds.synthesise(kept, 5, seed=1, progress=False)
    found = assess(release, exact=4, draws=50)
    rows = found.exact.records["position"].to_numpy()
    rest = np.setdiff1d(np.arange(60), rows)
    lower = found.after.sd(variances="known")
    np.testing.assert_array_equal(found.sd[rest], lower[rest])
    exact = found.exact.records
    expected = exact[["sd", "interval", "sd_fixed", "sd_leave_one_out"]].min(axis=1)
    np.testing.assert_array_equal(found.sd[rows], expected)
    higher = exact.assign(sd=1e3, interval=1e3, sd_leave_one_out=1e3)
    made = dataclasses.replace(found, exact=dataclasses.replace(found.exact, records=higher))
    np.testing.assert_array_equal(made.sd[rows], found.exact.records["sd_fixed"])


def test_a_percentage_that_was_typed_as_a_number_is_refused_with_what_to_type():
    log = ResponseTransform("log")
    with pytest.raises(InputError, match=r'an sd on the scale of log.*for 20% type floor="20%"'):
        Floor.parse(20).check_scale(log)
    with options_typed_in(JOB), pytest.raises(InputError, match='type floor = "20%"'):
        Floor.parse(20).check_scale(log)
    Floor.parse(20).check_scale(ResponseTransform("identity"))
    Floor.parse(0.2).check_scale(log)
    Floor.parse("20%").check_scale(log)


@pytest.mark.parametrize(
    ("floor", "name", "within"),
    [
        ("10%", "log", "20,000"),
        (5_000.0, "identity", "9,800"),
        # 200,000 p, the ends p below and above the value being 2 x 1.96 x 0.5 apart in logs.
        (0.5, "log", "150,000"),
    ],
)
def test_what_a_floor_means_is_told_in_the_columns_own_units(floor, name, within):
    prices = np.array([100_000.0, 200_000.0, 300_000.0])
    meaning = Floor.parse(floor).meaning(prices, ResponseTransform(name), "price")
    assert meaning.endswith(f"nobody may be placed within +/-{within} at 95%")


def test_a_floor_in_values_of_the_table_repeats_nobodys_value():
    incomes = np.array([4_130.0, 5_741.0, 9_020.0])
    said = Floor.parse("10%").meaning(incomes, ResponseTransform("log"), "income")
    assert said.startswith("at the median income of 5,700 nobody may be placed within +/-570")
