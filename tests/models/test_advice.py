"""What a verdict advises: an option, its value and the value now, as the reader types them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dsstan as ds
from conftest import case
from dsstan.core.spelling import COMMAND, JOB, PYTHON, options_typed_in
from dsstan.engines import SamplerSettings
from dsstan.models.checks.advice import repeated_values, shared_places
from dsstan.models.checks.conditions import few_draws, most_flagged
from dsstan.models.checks.verdict import diagnose

FORMULA = "log(rent) ~ log(area)"


def prepared(table: pd.DataFrame) -> ds.Problem:
    return ds.prepare(table, FORMULA, coords=("x", "y"))


def verdict(**change: Any) -> str:
    """Of a run that is all that a run should not be."""
    rng = np.random.default_rng(1)
    wander = np.exp(0.1 * np.cumsum(rng.normal(size=(4, 1000)), axis=1))
    sampler = np.zeros((4, 1000, 4))
    sampler[:, :, 1] = 10
    sampler[:, :100, 2] = 1
    sampler[:, :, 3] = np.cumsum(rng.normal(size=(4, 1000)), axis=1)
    draws = {"sigma_sq": wander, "tau_sq": wander[::-1], "phi": np.full((4, 1000), 0.1)}
    draws["phi"] = draws["phi"] * np.exp(1e-3 * rng.random((4, 1000)))
    return str(
        diagnose(
            draws,
            sampler,
            settings=SamplerSettings(),
            surface_error=0.0,
            phi_bounds=(0.1, 10.0),
            r_bounds=(1e-4, 1e4),
            **change,
        )
    )


@pytest.mark.parametrize(
    ("surface", "said"),
    [
        (
            PYTHON,
            [
                "warmup=2000 (1000 now) and samples=2000 (1000 now)",
                "adapt_delta=0.99 (0.9 now)",
                "priors=Priors(phi_bounds=(0.01, 10.0)) (0.1 to 10 now)",
            ],
        ),
        (
            COMMAND,
            [
                "--warmup 2000 (1000 now) and --samples 2000 (1000 now)",
                "--adapt-delta 0.99 (0.9 now)",
                "--phi-bounds 0.01 10.0 (0.1 to 10 now)",
            ],
        ),
        (
            JOB,
            [
                "warmup = 2000 (1000 now) and samples = 2000 (1000 now)",
                "adapt_delta = 0.99 (0.9 now)",
                "phi_bounds = [0.01, 10.0] (0.1 to 10 now)",
            ],
        ),
    ],
)
def test_every_advice_names_the_key_and_the_value_now(surface: str, said: list[str]) -> None:
    with options_typed_in(surface):
        text = verdict()
    assert [one for one in said if one not in text] == []
    lines = [line for line in text.splitlines()[1:] if "not-converged" in line]
    assert len(lines) == 6
    assert all(re.search(r"\(\S+ now\)", line) for line in lines)


def test_copies_beyond_the_draws_name_both_ways_out() -> None:
    check = few_draws(300, 120.5, SamplerSettings(samples=100))
    assert check.advice == "samples=300 (100 now), or copies=120 (300 now)"


def test_a_rule_that_flags_most_names_the_distance_that_flags_half_at_most() -> None:
    nearest = np.arange(1.0, 10.0)
    check = most_flagged(7, 9, chosen=False, nearest=nearest, threshold=3.0, unit="kilometre")
    [threshold] = map(float, re.findall(r"threshold=([\d.]+)", check.advice))
    assert np.sum(nearest >= threshold) == 4
    assert "in kilometres, which" in check.advice
    assert "(3 kilometres now)" in check.advice


@pytest.mark.parametrize(
    ("name", "said", "todo"),
    [
        (
            "duprows.csv",
            "20 of 100 records repeat another one whole",
            'make them one record: household="site"',
        ),
        (
            "const_in_site.csv",
            "60 of the 60 records beyond one a site have the response of another record there, "
            "at 20 sites",
            'household="site", once each has one value of every column that it needs',
        ),
    ],
)
def test_records_that_repeat_their_site_are_the_cause_of_no_nugget(
    name: str, said: str, todo: str
) -> None:
    problem = prepared(case(name))
    fit = ds.fit(problem, engine="direct", seed=1, progress=False)
    [check] = [c for c in fit.verdict.failures if c.condition == "no-nugget"]
    assert said in check.advice
    assert check.advice.endswith(todo)


def test_the_column_that_numbers_the_households_is_named() -> None:
    table = case("duprows.csv")
    table["family"] = [f"F{k}" for k in pd.factorize(table["x"])[0]]
    table["street"] = "the same"
    said = repeated_values(prepared(table))
    assert said is not None
    assert "The records of each 'family' have one place and one response" in said
    assert said.endswith('make them one record, household="family"')
    table.loc[0, "family"] = table.loc[1, "family"]
    assert "family" not in (repeated_values(prepared(table)) or "")


def test_the_time_of_a_panel_is_named() -> None:
    problem = prepared(case("panel.csv"))
    none = ds.flag_isolated(
        ds.fit(problem, engine="direct", seed=1, progress=False), correlation=0.2
    )
    said = shared_places(problem, none)
    assert said is not None
    assert said.endswith("(by_site=True); if 'year' is when, say so too (time=\"year\")")


def test_one_row_a_site_has_nothing_to_explain() -> None:
    table = case("duprows.csv").drop_duplicates(["x", "y"])
    assert repeated_values(prepared(table)) is None


def test_two_flats_of_one_rent_among_many_explain_nothing() -> None:
    rng = np.random.default_rng(3)
    site = np.repeat(np.arange(20), 4)
    table = pd.DataFrame({"x": site % 5, "y": site // 5}, dtype=float)
    table["area"], table["rent"] = rng.uniform(40, 90, 80), rng.uniform(300, 900, 80)
    table.loc[1, "rent"] = table.loc[0, "rent"]
    assert repeated_values(prepared(table)) is None
