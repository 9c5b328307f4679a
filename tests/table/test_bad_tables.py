"""Bad tables: each is told what is wrong and where, and no message repeats a value."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from test_problem import GEOGRAPHIC, PLAIN, PLANTED, N, table

from dsstan.core.errors import CoordinateError, FormulaError, TableError
from dsstan.table.prepare import prepare


def put(column: str, value: Any, rows: tuple[int, ...] = (1, 3)) -> Callable[[], pd.DataFrame]:
    """A table with a value in some rows of a column."""

    def make() -> pd.DataFrame:
        frame = table().astype({column: object if isinstance(value, str) else float})
        frame.iloc[list(rows), frame.columns.get_loc(column)] = value
        return frame

    return make


def assign(**columns: Any) -> Callable[[], pd.DataFrame]:
    """A table with some columns replaced, by a value or a function of the table."""
    return lambda: table().assign(**columns)


ROWS_1_3 = r"2 rows \(positions 1, 3, counted from 0\)"

BAD: dict[str, tuple[Callable[[], Any], dict[str, Any], type[Exception], str]] = {
    "a name with an escape in it": (
        lambda: table().assign(**{"a\x1b]0;x\x07": 1.0}),
        PLAIN,
        TableError,
        "holds control characters",
    ),
    "a category with a level a record": (
        lambda: pd.concat([table()] * 6, ignore_index=True).assign(
            code=[f"c{i}" for i in range(72)]
        ),
        {**PLAIN, "formula": "price ~ code"},
        TableError,
        "makes 72 columns, and at most 60",
    ),
    "not a table": (lambda: {"price": [1]}, PLAIN, TableError, "builtins.dict"),
    "empty table": (lambda: table().iloc[:0], PLAIN, TableError, "0 rows; at least 3"),
    "two rows": (lambda: table().iloc[:2], PLAIN, TableError, "2 rows; at least 3"),
    "fewer records than columns and two": (
        lambda: table().iloc[:4],
        {**PLAIN, "formula": "price ~ area + east"},
        TableError,
        "4 records .* gives 3 columns; at least 5",
    ),
    "repeated index labels": (
        lambda: table().set_axis(["Smithee"] * 2 + [f"p{i}" for i in range(10)]),
        PLAIN,
        TableError,
        r"2 rows \(positions 0, 1, .*reset_index",
    ),
    "repeated column names": (
        lambda: table().rename(columns={"zone": "area"}),
        PLAIN,
        TableError,
        "'area' occurs more than once",
    ),
    "column names of several levels": (
        lambda: pd.concat({"top": table()}, axis=1),
        PLAIN,
        TableError,
        "several levels",
    ),
    "no coords": (table, {"formula": "price ~ area"}, CoordinateError, "coords is needed"),
    "coords is one name": (table, {**PLAIN, "coords": "east"}, CoordinateError, "two columns"),
    "coords has three names": (
        table,
        {**PLAIN, "coords": ("east", "north", "lon")},
        CoordinateError,
        "two columns",
    ),
    "coords of columns instead of names": (
        table,
        {**PLAIN, "coords": (table()["east"], table()["north"])},
        CoordinateError,
        "got .'Series', 'Series'.",
    ),
    "coords not in the table": (
        table,
        {**PLAIN, "coords": ("east", "nrth")},
        CoordinateError,
        "'nrth' is not in the table",
    ),
    "the same coordinate twice": (
        table,
        {**PLAIN, "coords": ("east", "east")},
        CoordinateError,
        "'east' twice",
    ),
    "text as coordinate": (
        put("east", "zanzibar"),
        PLAIN,
        CoordinateError,
        "'east' must hold numbers and has dtype object",
    ),
    "truth values as coordinate": (
        assign(east=[True, False] * 6),
        PLAIN,
        CoordinateError,
        "'east' must hold numbers and has dtype bool",
    ),
    "missing coordinate": (
        put("north", np.nan),
        PLAIN,
        CoordinateError,
        f"'north' has missing values in {ROWS_1_3}",
    ),
    "infinite coordinate": (
        put("north", np.inf),
        PLAIN,
        CoordinateError,
        f"'north' has infinite values in {ROWS_1_3}",
    ),
    "longitude and latitude without a distance": (
        table,
        GEOGRAPHIC,
        CoordinateError,
        "(?s)distance=.projected.*kilometres.*distance=.degrees",
    ),
    "longitude and latitude as planar": (
        table,
        {**GEOGRAPHIC, "distance": "planar"},
        CoordinateError,
        'distance="projected"',
    ),
    "geographic CRS without a distance": (
        table,
        {**PLAIN, "crs": "EPSG:4326"},
        CoordinateError,
        'distance="projected"',
    ),
    "latitude named first": (
        table,
        {**PLAIN, "coords": ("lat", "lon")},
        CoordinateError,
        r"Use coords=\('lon', 'lat'\)",
    ),
    "coordinates that look swapped": (
        assign(lon=lambda t: t["lat"], lat=lambda t: t["lat"] - 160.0),
        {**GEOGRAPHIC, "distance": "degrees"},
        CoordinateError,
        "'lat' is outside .* 12 rows .*look swapped",
    ),
    "latitude out of range": (
        put("lat", 91.0),
        {**GEOGRAPHIC, "distance": "degrees", "formula": "price ~ 1"},
        CoordinateError,
        f"'lat' is outside .* {ROWS_1_3}",
    ),
    "longitude out of range": (
        put("lon", -181.0),
        {**GEOGRAPHIC, "distance": "projected"},
        CoordinateError,
        f"'lon' is outside .* {ROWS_1_3}",
    ),
    "unknown distance": (
        table,
        {**PLAIN, "distance": "miles"},
        CoordinateError,
        "planar, degrees, projected",
    ),
    "a projected CRS for longitude and latitude": (
        table,
        {**GEOGRAPHIC, "crs": "EPSG:32618"},
        CoordinateError,
        "EPSG:32618 is not geographic",
    ),
    "degrees in a projected CRS": (
        table,
        {**PLAIN, "crs": "EPSG:32618", "distance": "degrees"},
        CoordinateError,
        "EPSG:32618 is not geographic",
    ),
    "projection without a CRS": (
        table,
        {**PLAIN, "distance": "projected"},
        CoordinateError,
        'such as crs="EPSG:4326"',
    ),
    "an unreadable CRS": (
        table,
        {**PLAIN, "crs": "nowhere"},
        CoordinateError,
        "pyproj can read",
    ),
    "web Mercator without a distance": (
        assign(east=lambda t: t["east"] - 8.5e6, north=lambda t: t["north"] + 4.7e6),
        {**PLAIN, "crs": "EPSG:3857"},
        CoordinateError,
        'times the true ones.*distance="projected".*distance="planar"',
    ),
    "coordinates beyond their CRS": (
        put("north", 1e9),
        {**PLAIN, "crs": "EPSG:3035", "distance": "projected"},
        CoordinateError,
        f"are no place in EPSG:3035.* {ROWS_1_3}",
    ),
    "all records at one site": (
        assign(east=1.0, north=2.0),
        PLAIN,
        TableError,
        "All 12 records are at one site",
    ),
    "response not in the table": (
        table,
        {**PLAIN, "formula": "prize ~ area"},
        FormulaError,
        "'prize'.*Did you mean 'price'",
    ),
    "response of text": (
        assign(price=lambda t: t["price"].astype(str)),
        PLAIN,
        TableError,
        "'price' must hold integers or floats",
    ),
    "response of complex numbers": (
        assign(price=lambda t: t["price"] + 1j),
        PLAIN,
        TableError,
        "'price' must hold .* complex128",
    ),
    "constant response": (
        assign(price=987654),
        PLAIN,
        TableError,
        "'price' has the same value in every row",
    ),
    "missing response": (
        put("price", np.nan),
        PLAIN,
        TableError,
        f"'price' has missing values in {ROWS_1_3}",
    ),
    "missing response in a nullable column": (
        lambda: put("price", np.nan)().astype({"price": "Int64"}),
        PLAIN,
        TableError,
        f"'price' has missing values in {ROWS_1_3}",
    ),
    "infinite response": (
        put("price", np.inf),
        PLAIN,
        TableError,
        f"'price' has infinite values in {ROWS_1_3}",
    ),
    "log of zero": (
        put("price", 0.0),
        PLAIN,
        TableError,
        rf"'price' must be above 0 for log\(\); it is not in {ROWS_1_3}",
    ),
    "log of a negative response": (
        put("price", -987654.0, (0, 1, 2, 3, 4, 5, 6)),
        PLAIN,
        TableError,
        "7 rows .positions 0, 1, 2, 3, 4 and 2 more",
    ),
    "log1p of minus one": (
        put("price", -1.0),
        {**PLAIN, "formula": "log1p(price) ~ area"},
        TableError,
        "above -1",
    ),
    "response that is a coordinate": (
        table,
        {**PLAIN, "formula": "east ~ area"},
        FormulaError,
        "'east' is the response and a coordinate",
    ),
    "response on the right side": (
        table,
        {**PLAIN, "formula": "log(price) ~ price"},
        FormulaError,
        "'price' is the response and stands on the right",
    ),
    "missing covariate": (
        put("area", np.nan),
        PLAIN,
        TableError,
        f"'area' of the formula has missing values in {ROWS_1_3}",
    ),
    "missing category": (
        lambda: table().assign(zone=lambda t: t["zone"].where(t["zone"] != "zanzibar")),
        {**PLAIN, "formula": "price ~ zone"},
        TableError,
        r"'zone' of the formula has missing values in 3 rows \(positions 0, 2, 5",
    ),
    "log of a negative covariate": (
        put("area", -3141.59265),
        {**PLAIN, "formula": "price ~ log(area)"},
        TableError,
        rf"'log\(area\)' .* {ROWS_1_3}",
    ),
    "infinite covariate": (
        put("area", np.inf),
        PLAIN,
        TableError,
        f"'area' of the formula is infinite or undefined in {ROWS_1_3}",
    ),
    "scaled constant covariate": (
        assign(area=3141.59265),
        {**PLAIN, "formula": "price ~ scale(area)"},
        TableError,
        r"'scale\(area\)'.*constant",
    ),
    "constant covariate": (
        assign(area=3141.59265),
        PLAIN,
        TableError,
        "'area' of the formula has the same value in every row",
    ),
    "a single category": (
        assign(zone="zanzibar"),
        {**PLAIN, "formula": "price ~ zone"},
        TableError,
        "'zone' of the formula has a single category",
    ),
    "collinear covariates": (
        assign(double=lambda t: 2 * t["area"] + 1),
        {**PLAIN, "formula": "price ~ area + double"},
        TableError,
        "collinear: a column of '(area|double)' is a combination of .*Intercept",
    ),
    "collinear categories": (
        assign(copy=lambda t: t["zone"]),
        {**PLAIN, "formula": "price ~ zone + copy"},
        TableError,
        "collinear: a column of '(zone|copy)' is a combination of columns of '(zone|copy)'",
    ),
    "a category without a record": (
        assign(zone=lambda t: pd.Categorical(t["zone"], ["zanzibar", "a", "b", "c", "d"])),
        {**PLAIN, "formula": "price ~ zone"},
        TableError,
        "'zone' has 1 of 5 categories without a record",
    ),
    "a covariate of dates": (
        assign(area=pd.date_range("2020-01-01", periods=N)),
        PLAIN,
        TableError,
        "'area' has dtype datetime64",
    ),
    "a covariate of mixed kind": (
        put("area", "zanzibar"),
        PLAIN,
        TableError,
        "'area' has dtype object",
    ),
    "a function of text": (
        table,
        {**PLAIN, "formula": "price ~ log(zone)"},
        FormulaError,
        "cannot be computed from columns 'zone'",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_table_is_told_what_is_wrong_and_where(case: str) -> None:
    make, arguments, kind, words = BAD[case]
    with pytest.raises(kind, match=words):
        prepare(make(), **arguments)


@pytest.mark.parametrize("case", BAD)
def test_no_error_repeats_a_value_of_the_data(case: str) -> None:
    make, arguments, kind, _ = BAD[case]
    with pytest.raises(kind) as caught:
        prepare(make(), **arguments)
    shown = "".join(traceback.format_exception_only(caught.value))
    assert not [value for value in PLANTED if value in shown]
    # Nor does an error that the traceback would show as its cause.
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
