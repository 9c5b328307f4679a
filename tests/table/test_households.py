"""Persons of one household as one record."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from test_command_line import inside  # noqa: F401

import dsstan as ds
from conftest import case
from dsstan.core.errors import InputError, TableError
from dsstan.release.reading import read_release
from dsstan.table.records.households import Households


@pytest.fixture
def persons() -> pd.DataFrame:
    """Sixty households of one to three persons, in no order."""
    rng = np.random.default_rng(8)
    sizes = rng.integers(1, 4, 60)
    home = np.repeat(np.arange(60), sizes)
    x, y = rng.uniform(0, 9, (2, 60)).round(3)
    income = np.exp(8 + np.sin(x) * np.cos(y) / 2 + rng.normal(0, 0.2, 60)).round(2)
    table = pd.DataFrame(
        {
            "home": [f"{one:03}" for one in home],
            "x": x[home],
            "y": y[home],
            "rooms": rng.integers(1, 6, 60)[home],
            "age": rng.integers(0, 90, len(home)),
            "income": income[home],
        }
    )
    return table.sample(frac=1, random_state=1)


FORMULA = "log(income) ~ rooms"
AT = {"coords": ("x", "y")}


def test_a_household_is_one_record_and_what_differs_within_it_is_left_out(persons) -> None:
    problem = ds.prepare(persons, FORMULA, household="home", **AT)
    once = persons.drop(columns="age").drop_duplicates("home")
    pd.testing.assert_frame_equal(problem.table, once)
    np.testing.assert_array_equal(problem.y, np.log(once["income"]))
    assert problem.households == Households("home", len(persons), ("age",))
    assert f"one record for each home, from {len(persons)} rows; without age" in str(problem)


def test_the_household_of_a_place_needs_no_column(persons) -> None:
    by_place = ds.prepare(persons, FORMULA, household="site", **AT)
    pd.testing.assert_frame_equal(
        by_place.table, ds.prepare(persons, FORMULA, household="home", **AT).table
    )
    assert str(by_place.households).startswith("one record for each place")
    points = pytest.importorskip("geopandas")
    mapped = points.GeoDataFrame(
        persons.drop(columns=["x", "y"]), geometry=points.points_from_xy(persons.x, persons.y)
    )
    by_point = ds.prepare(mapped, FORMULA, household="site", distance="planar")
    np.testing.assert_array_equal(by_point.y, by_place.y)


def test_another_kind_of_table_comes_back_as_one(persons) -> None:
    polars = pytest.importorskip("polars")
    given = polars.from_pandas(persons)
    problem = ds.prepare(given, FORMULA, household="home", **AT)
    fit = ds.fit(problem, engine="direct", seed=1, progress=False)
    copy = ds.synthesise(fit, 2, seed=2, accept_failed=True).native(0)
    assert isinstance(copy, polars.DataFrame)
    assert copy.columns == ["home", "x", "y", "rooms", "income"]
    assert copy["home"].to_list() == problem.table["home"].to_list()


@pytest.mark.parametrize(
    ("household", "formula", "more", "kind", "said"),
    [
        (
            "home",
            "log(income) ~ age",
            {},
            TableError,
            "from the first row of their household: 'age' in ",
        ),
        ("home", FORMULA, {"publish": ["age"]}, TableError, "leave 'age' out of the release"),
        ("hme", FORMULA, {}, InputError, "Did you mean 'home'"),
        (3, FORMULA, {}, InputError, "household=3 must be the name of a column"),
        ("row", FORMULA, {}, InputError, 'leave household="row" out'),
        ("gap", FORMULA, {}, TableError, "is missing in 1 row (position 0"),
    ],
)
def test_what_is_no_household_is_refused(persons, household, formula, more, kind, said) -> None:
    persons["row"], persons["gap"] = range(len(persons)), persons["home"]
    persons.iloc[0, persons.columns.get_loc("gap")] = None
    with pytest.raises(kind) as refused:
        ds.prepare(persons, formula, household=household, **AT, **more)
    assert said in str(refused.value)
    assert not any(value in str(refused.value) for value in persons["home"])


def test_a_place_that_differs_within_a_household_is_named_with_its_row(persons) -> None:
    repeated = persons["home"].duplicated().to_numpy().nonzero()[0]
    persons.iloc[repeated[0], persons.columns.get_loc("x")] += 0.5
    persons.iloc[repeated[3], persons.columns.get_loc("income")] += 1
    with pytest.raises(TableError) as refused:
        ds.prepare(persons, FORMULA, household="home", **AT)
    for name, row in (("x", repeated[0]), ("income", repeated[3])):
        assert f"'{name}' in 1 row (position {row}, counted from 0)" in str(refused.value)
    assert "out of the release" not in str(refused.value)


def test_repeated_rows_that_left_no_nugget_leave_one_as_households() -> None:
    table = case("duprows.csv")
    problem = ds.prepare(table, "log(rent) ~ log(area)", household="site", **AT)
    assert (problem.n_records, problem.households.rows) == (80, 100)
    fit = ds.fit(problem, engine="direct", seed=1, progress=False)
    assert not [one for one in fit.verdict.failures if one.condition == "no-nugget"]


def test_the_command_writes_one_row_each_as_it_stood(inside, persons, tmp_path) -> None:  # noqa: F811
    lines = persons.assign(income=persons["income"].map("{:.2f}".format), rooms=persons["rooms"])
    lines.to_csv(tmp_path / "persons.csv", index=False, float_format="%.3f")
    stood = pd.read_csv(tmp_path / "persons.csv", dtype=str).drop_duplicates("home")
    options = ("--coords", "x", "y", "--household", "home", "--publish", "home", "--copies", "3")
    made = inside(
        "synthesise", tmp_path / "persons.csv", "--formula", FORMULA, *options,
        "--threshold", "1", "--engine", "direct", "--out", tmp_path / "out", "-v",
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    assert f"one record for each home, from {len(persons)} rows" in " ".join(made.stdout.split())
    copy = pd.read_csv(next((tmp_path / "out" / "public").glob("copy*1.csv")), dtype=str)
    for name in ("home", "x", "y", "rooms"):
        assert list(copy[name]) == list(stood[name]), name
    assert len(read_release(tmp_path / "out").copies[0]) == 60
    assert "Each record is a household" in (tmp_path / "out" / "public" / "README.md").read_text()
    summary = json.loads((tmp_path / "out" / "confidential" / "summary.json").read_text())
    assert summary["records"] == 60
    assert "age" in summary["not_published"]
    assert summary["households"] == {"column": "home", "rows": len(persons), "dropped": ["age"]}
