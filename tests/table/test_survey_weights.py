"""Survey weights of a table: checked once, kept as they are, told from risk weights."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import dsstan as ds
from conftest import small_table
from dsstan.copies.options import ReleaseOptions
from dsstan.copies.published import columns_going_out
from dsstan.core.errors import InputError, TableError
from dsstan.core.spelling import COMMAND, options_typed_in
from dsstan.table.parquet import prepare_parquet
from dsstan.table.records.survey_weights import survey_weights_of
from dsstan.table.weights_in_formula import missed_in_words, weights_missed

COORDS = ("east", "north")


def surveyed(**columns):
    """A small table with weights."""
    table = small_table(30, seed=9, shared=4)
    return table.assign(**{"weight": 1.0 + np.arange(30) % 7, **columns})


def prepared(table, formula="log(value) ~ x", weights="weight"):
    return ds.prepare(table, formula, coords=COORDS, survey_weights=weights)


def test_weights_are_kept_and_go_out_without_being_named_for_publication():
    table = surveyed()
    problem = prepared(table)
    np.testing.assert_array_equal(problem.survey_weight_values, table["weight"])
    assert {*columns_going_out(problem)} == {*COORDS, "x", "value", "weight"}
    assert not problem.survey_weight_values.flags.writeable


def test_a_problem_without_weights_has_none():
    problem = ds.prepare(surveyed(), "log(value) ~ x", coords=COORDS)
    assert problem.survey_weight_values is None
    assert "weight" not in columns_going_out(problem)


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (np.nan, "missing in 2 rows (positions 3, 5"),
        (np.inf, "infinite in 2 rows (positions 3, 5"),
        (0.0, "0 or negative in 2 rows (positions 3, 5"),
        (-2.0, "0 or negative in 2 rows (positions 3, 5"),
    ],
)
def test_a_weight_that_is_none_is_refused_with_its_rows(value, what):
    table = surveyed()
    table.loc[[3, 5], "weight"] = value
    with pytest.raises(TableError) as error:
        prepared(table)
    assert what in str(error.value)
    assert "'weight'" in str(error.value)


@pytest.mark.parametrize("values", [["a"] * 30, [True] * 30, pd.Categorical([1, 2, 3] * 10)])
def test_weights_that_are_no_numbers_are_refused(values):
    with pytest.raises(TableError, match="'weight' has dtype"):
        survey_weights_of(surveyed(weight=values), "weight")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("wieght", "no column. Did you mean 'weight'?"),
        (3, "must be the name of a column"),
        ("value", "is the response"),
        ("north", "is a coordinate"),
    ],
)
def test_a_column_that_cannot_hold_weights_is_refused(name, message):
    table = surveyed()
    table["north"] += 1.0
    with pytest.raises(InputError) as error:
        prepared(table, weights=name)
    assert message in str(error.value)


def test_risk_weights_and_survey_weights_are_not_one_column():
    with pytest.raises(InputError, match="never published"):
        ReleaseOptions(coords=COORDS, weights="weight", survey_weights="weight")


def test_by_row_groups_the_weights_are_in_memory_and_checked(tmp_path):
    table = surveyed()
    table.to_parquet(tmp_path / "t.parquet", index=False)
    problem = prepare_parquet(
        tmp_path / "t.parquet", "log(value) ~ x", coords=COORDS, survey_weights="weight"
    )
    np.testing.assert_array_equal(problem.survey_weight_values, table["weight"])
    with pytest.raises(InputError, match="Did you mean 'weight'"):
        prepare_parquet(
            tmp_path / "t.parquet", "log(value) ~ x", coords=COORDS, survey_weights="weigth"
        )


@pytest.mark.parametrize(
    ("formula", "held"),
    [
        ("log(value) ~ x", False),
        ("log(value) ~ x + log(weight)", True),
        ("log(value) ~ x + ns(weight, df=3)", True),
        ("log(value) ~ x + stratum", True),
        ("log(value) ~ x + half", False),
        ("log(value) ~ x + chance", False),
        ("log(value) ~ x + log(chance)", True),
    ],
)
def test_a_formula_holds_the_weights_if_they_or_their_logs_are_a_combination_of_its_columns(
    formula, held
):
    table = surveyed()
    stratum = [f"s{int(w)}" for w in table["weight"]]
    table = table.assign(
        stratum=stratum, half=table["weight"] > 3, chance=1.0 / table["weight"]
    ).astype({"half": str})
    assert (weights_missed(prepared(table, formula)) is None) == held


def test_equal_weights_need_no_place_in_the_formula():
    assert weights_missed(prepared(surveyed(weight=4.0))) is None


def test_what_to_type_is_a_formula_that_holds_them():
    problem = prepared(surveyed())
    typed = weights_missed(problem)
    assert typed == "log(value) ~ x + log(weight) + weight"
    assert weights_missed(prepared(problem.table, typed)) is None
    with options_typed_in(COMMAND):
        assert missed_in_words(problem).endswith(f"--formula '{typed}'")
    odd = problem.table.rename(columns={"weight": "my weight"})
    typed = weights_missed(prepared(odd, weights="my weight"))
    assert weights_missed(prepared(odd, typed, weights="my weight")) is None
