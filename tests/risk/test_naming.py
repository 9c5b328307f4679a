"""The chance of naming a value exactly: closed form, simulation, attacks on public files."""

from __future__ import annotations

import json

import jsonschema
import numpy as np
import pandas as pd
import pytest
from scipy.special import ndtr

import dsstan as ds
from conftest import ROOT, small_table
from dsstan.core.errors import DisclosureError, InputError
from dsstan.release.write import write_release
from dsstan.risk.chance_named import (
    chance_in_cell,
    chance_named,
    least_sd_unnamed,
    own_steps,
    surest_named,
)
from dsstan.risk.naming import naming
from dsstan.table.formulas.formula import ResponseTransform
from mc import z_limit

STEP = 50_000.0
QUICK = {"chains": 4, "samples": 2000, "seed": 1, "engine": "embedded", "progress": False}
LOG = ResponseTransform("log")


@pytest.fixture(scope="module")
def coarse():
    """120 prices in steps of 50,000, simulated as tests/risk/coarse_prices.csv says."""
    table = pd.read_csv(ROOT / "tests" / "risk" / "coarse_prices.csv")
    problem = ds.prepare(table, "log(price) ~ 1", coords=("x", "y"))
    fit = ds.fit(problem, **QUICK)
    return ds.synthesise(fit, 16, seed=2, accept_failed=True, progress=False)


@pytest.mark.parametrize("name", ["identity", "log", "log1p", "log2"])
@pytest.mark.parametrize("sd", [0.01, 0.05, 0.3])
def test_the_chance_is_that_of_a_simulated_intruder(name, sd):
    transform = ResponseTransform(name)
    values = np.array([50_000.0, 250_000.0, 900_000.0])
    wide = sd * 400_000 if name == "identity" else sd
    chance = chance_named(values, np.full(3, STEP), np.full(3, wide), transform)
    rng, draws = np.random.default_rng(1), 40_000
    estimate = transform.inverse(transform.forward(values) + wide * rng.normal(size=(draws, 3)))
    # The nearest multiple; half a step above zero and below there is only zero.
    named = np.mean(np.abs(estimate - values) <= STEP / 2, axis=0)
    assert np.all(np.abs(named - chance) < z_limit(36) * np.sqrt(0.25 / draws))


@pytest.mark.parametrize("name", ["identity", "log", "log1p"])
@pytest.mark.parametrize("sd", [0.02, 0.08, 0.3, 1.0])
def test_how_sure_an_intruder_is_by_bayes_rule_over_all_price_points(name, sd):
    """The mass of the true value where their law has its middle there, all values summed here."""
    transform = ResponseTransform(name)
    values = np.array([50_000.0, 250_000.0, 900_000.0])
    wide = sd * 400_000 if name == "identity" else sd
    surest = surest_named(values, np.full(3, STEP), np.full(3, wide), transform)
    points = STEP * np.arange(-4_000.0 if name == "identity" else 1.0, 4_000.0)
    np.testing.assert_allclose(
        surest, believed(points, values, wide, transform), rtol=2e-3 if sd < 1 else 0.02
    )


@pytest.mark.parametrize("unit", [1e-6, 0.25, 1e6])
def test_the_unit_of_the_column_changes_no_chance(unit):
    values, steps, sds = np.array([125.0, 400.0]), np.full(2, 25.0), np.full(2, 0.1)
    same = surest_named(values, steps, sds, LOG)
    assert np.all((same > 0.1) & (same < 0.9))
    np.testing.assert_allclose(surest_named(unit * values, unit * steps, sds, LOG), same)


@pytest.mark.parametrize("sd", [0.1, 0.3])
def test_price_points_that_begin_at_half_a_step_are_no_harder_to_name(sd):
    """25,000, 75,000, 125,000: below the lowest of them a logarithm has no end."""
    values = np.array([125_000.0, 225_000.0, 625_000.0])
    surest = surest_named(values, np.full(3, STEP), np.full(3, sd), LOG)
    points = STEP * (np.arange(4_000.0) + 0.5)
    np.testing.assert_allclose(surest, believed(points, values, sd, LOG), rtol=2e-3)


def believed(points, values, sd, transform):
    """The mass of each value by Bayes' rule over all price points, where their law has its middle
    there or an sd beside it, whichever gives more."""
    at, there = transform.forward(points), transform.forward(values)[:, None]
    upper = transform.forward(points + STEP / 2) - at
    with np.errstate(divide="ignore"):
        lower = at - transform.forward(points - STEP / 2)
    room = upper + np.where(np.isfinite(lower), lower, upper)
    masses = []
    for middle in (-1, 0, 1):
        dense = room * np.exp(-0.5 * ((at - there) / sd - middle) ** 2)
        masses.append(dense[points == values[:, None]] / dense.sum(axis=1))
    return np.max(masses, axis=0)


def test_certain_and_ignorant_intruders_are_the_ends():
    values, steps = np.array([250_000.0, 250_000.0, 250_000.0]), np.array([STEP, STEP, 0.0])
    sd = np.array([0.0, np.inf, 0.0])
    np.testing.assert_array_equal(chance_named(values, steps, sd, LOG), [1.0, 0.0, 0.0])


@pytest.mark.parametrize("limit", [0.1, 0.5, 0.9])
def test_the_least_sd_names_every_value_with_the_chance_of_the_limit(coarse, limit):
    problem = coarse.problem
    least = least_sd_unnamed(problem, limit)
    surest = surest_named(problem.original(), own_steps(problem), least, problem.transform)
    np.testing.assert_allclose(surest, limit, rtol=1e-9)
    assert not least_sd_unnamed(problem, 1).any()


def test_each_record_has_the_coarsest_step_that_divides_it():
    rng = np.random.default_rng(1)
    table = small_table(300)
    own = np.arange(300) % 3 == 0
    table["value"] = np.where(own, rng.integers(200, 900, 300) + 0.37, 0.0) + np.where(
        own, 0.0, 50.0 * rng.integers(4, 20, 300)
    )
    problem = ds.prepare(table, "log(value) ~ x", coords=("east", "north"))
    steps = own_steps(problem)
    assert set(steps[~own]) == {50.0}
    assert set(steps[own]) == {1.0}  # of whole numbers and 0.37 each


@pytest.mark.parametrize("offset", [0, -1_000, -1, 25_000, 0.37])
@pytest.mark.parametrize("odd", [0, 2])
def test_the_chance_does_not_depend_on_where_the_steps_begin(offset, odd):
    """Price points of 249,000 and midpoints of brackets are named as round prices are."""
    table = pd.read_csv(ROOT / "tests" / "risk" / "coarse_prices.csv")[:60]
    table["price"] += offset
    table.loc[table.index[:odd], "price"] += [7_777, 23_457][:odd]
    problem = ds.prepare(table, "price ~ 1", coords=("x", "y"))
    sd = np.full(60, 30_000.0)
    chance = chance_named(problem.original(), own_steps(problem), sd, problem.transform)
    np.testing.assert_allclose(chance[odd:], 2 * ndtr(STEP / 2 / 30_000) - 1, atol=1e-6)
    np.testing.assert_allclose(chance[:odd], 0.0, atol=1e-4)


@pytest.mark.parametrize("decimals", [0, 2, 6])
def test_a_column_without_a_step_has_only_its_last_digit(decimals):
    values = np.exp(np.random.default_rng(3).normal(12, 0.5, 60)).round(decimals)
    table = small_table(60).assign(value=values)
    problem = ds.prepare(table, "log(value) ~ x", coords=("east", "north"))
    assert own_steps(problem).max() <= 1.01 * 10.0**-decimals


def test_rounding_the_copies_to_price_points_does_not_beat_the_printed_chance():
    """Written here, on published values alone: prices are 50,000s less 1,000."""
    table = pd.read_csv(ROOT / "tests" / "risk" / "coarse_prices.csv")[:60]
    table["price"] -= 1_000
    problem = ds.prepare(table, "log(price) ~ 1", coords=("x", "y"))
    release = ds.synthesise(
        *(ds.fit(problem, **QUICK), 16), seed=2, accept_failed=True, progress=False
    )
    found = ds.assess(release, floor=0.001, exact=0, progress=False)
    assert found.verdict == "missed"
    estimate = np.median(release.values, axis=0)
    named = np.mean(np.rint((estimate + 1_000) / STEP) * STEP - 1_000 == problem.original())
    chance = found.naming.public.mean()
    error = np.sqrt(chance * (1 - chance) / estimate.size)  # of a share of 60 records
    assert 0.5 < named <= chance + 3 * error
    assert named <= found.naming.named + 0.05


def test_the_public_files_alone_name_most_coarse_prices_though_a_floor_may_be_met(coarse):
    """Attacks written here, on published values alone, do not beat the printed chance by 10%."""
    truth, values = coarse.problem.original(), coarse.values
    found = ds.assess(coarse, floor=0.001, exact=0, progress=False)
    assert found.below_floor.size == 0
    assert found.verdict == "missed"
    printed = found.naming.public.mean()
    for estimate in (
        values.mean(axis=0),
        np.median(values, axis=0),
        np.exp(np.log(values).mean(axis=0)),
    ):
        named = np.mean(np.rint(estimate / STEP) * STEP == truth)
        assert named <= 1.1 * printed
        assert named <= found.naming.named + 0.05
    assert found.naming.named > 0.5
    assert found.naming.without.mean() < 0.5 * printed
    assert found.naming.chance.min() >= found.naming.without.min()


def test_a_limit_of_one_allows_any_and_none_is_not_judged(coarse):
    allowed = ds.assess(coarse, floor=0.001, attribution=1, exact=0, progress=False)
    assert allowed.verdict == "met"
    without = ds.assess(coarse, exact=0, progress=False)
    assert (without.verdict, without.naming.limit) == ("not judged", None)
    assert ds.assess(coarse, floor=0.001, exact=0, progress=False).naming.limit == 0.5


@pytest.mark.parametrize("limit", [0, -0.5, 1.5, "half", True])
def test_a_limit_that_is_no_chance_is_refused(coarse, limit):
    with pytest.raises(InputError, match="attribution"):
        ds.assess(coarse, attribution=limit, exact=0)


def test_a_release_that_names_values_is_not_written_and_its_summary_says_why(coarse, tmp_path):
    with pytest.raises(DisclosureError, match="can be named exactly"):
        write_release(coarse, tmp_path / "no", floor=0.001, report=False)
    found = ds.assess(coarse, floor=0.001, exact=0, progress=False)
    target = write_release(
        *(coarse, tmp_path / "out"),
        assessment=found,
        accept_below_floor=True,
        reason="test",
        report=False,
    )
    summary = json.loads((target / "confidential" / "summary.json").read_text())
    jsonschema.validate(summary, json.loads((ROOT / "docs" / "summary.schema.json").read_text()))
    assert summary["disclosure_verdict"] == "missed"
    assert summary["attacker"]["naming"]["step"] == STEP
    assert summary["attacker"]["naming"]["records_above"] > 60


def test_a_column_with_all_digits_has_no_value_to_name(kept):
    release = ds.synthesise(kept, 2, seed=5, accept_failed=True, progress=False)
    assert own_steps(release.problem).max() < 0.01
    found = naming(release, np.full(60, 0.1), np.full(60, 0.2), limit=0.5)
    assert not found.coarse
    assert found.above_limit.size == 0
    assert found.remarks() == []


def test_an_estimate_without_width_at_the_end_of_an_interval_counts_as_within():
    """Two copies that agree, half a step from the value: on the safe side, and no NaN."""
    values, steps = np.array([2.0, 2.0, 2.0]), np.ones(3)
    mean, none = np.array([1.5, 2.5, 3.5]), np.zeros(3)
    chance = chance_in_cell(values, steps, mean, none, ResponseTransform("identity"))
    np.testing.assert_array_equal(chance, [1.0, 1.0, 0.0])


def test_of_fine_steps_the_least_sd_is_in_proportion_to_them():
    """Whole dollars: many values, of which none is halved for; a little more than is needed."""
    values = np.random.default_rng(4).integers(100_000, 900_000, 200).astype(float)
    table = small_table(200).assign(value=values)
    problem = ds.prepare(table, "log(value) ~ x", coords=("east", "north"))
    least = least_sd_unnamed(problem, 0.5)
    surest = surest_named(values, np.ones(200), least, LOG)
    assert np.all((surest <= 0.5) & (surest > 0.48))


def test_a_step_that_was_rounded_again_after_a_conversion_counts():
    """Whole 25,000 euros in dollars to the dollar: no number divides them."""
    euros = 25_000 * np.random.default_rng(2).integers(4, 60, 100)
    table = small_table(100).assign(value=np.round(1.0837 * euros))
    problem = ds.prepare(table, "log(value) ~ x", coords=("east", "north"))
    np.testing.assert_allclose(own_steps(problem), 25_000 * 1.0837, rtol=1e-5)
    same = ds.prepare(table.assign(value=euros), "log(value) ~ x", coords=("east", "north"))
    np.testing.assert_allclose(
        least_sd_unnamed(problem, 0.5), least_sd_unnamed(same, 0.5), rtol=1e-3
    )
