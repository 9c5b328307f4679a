"""Columns leave with the copies by an allow-list."""

from __future__ import annotations

import logging

import geopandas
import numpy as np
import pandas as pd
import pytest

import dsstan as ds
from conftest import small_table
from dsstan.copies.published import columns_going_out, public_columns, unpublished_columns
from dsstan.core.errors import InputError, ReleaseError
from dsstan.release.reading import read_release
from dsstan.table.parquet import prepare_parquet
from factory import fit_from

FORMULA, COORDS = "log(value) ~ x", ("east", "north")


@pytest.fixture(scope="module")
def table():
    """Thirty records with an identifier, a hash of the response and two more columns."""
    made = small_table(30, seed=9, shared=4)
    rng = np.random.default_rng(1)
    made.insert(0, "parcel", [f"P{k}" for k in rng.permutation(30)])
    made["code"] = [hash(v) for v in made["value"]]
    made["kind"] = pd.Categorical(np.resize(["b", "a"], 30))
    made["weight"] = (np.arange(30) == 29).astype(float)
    return made


def released(table, **how):
    """Two copies from given draws, no sampler needed."""
    problem = ds.prepare(table, FORMULA, **({"coords": COORDS} | how))
    rng = np.random.default_rng(2)
    draws = {
        "beta": rng.normal([5.0, 0.7], 0.1, (2, 50, 2)),
        "sigma_sq": rng.uniform(1, 2, (2, 50)),
        "tau_sq": rng.uniform(0.1, 0.3, (2, 50)),
        "phi": rng.uniform(3, 5, (2, 50)),
    }
    return ds.synthesise(fit_from(problem, draws), 2, seed=3, accept_few_draws=True)


def test_without_a_word_the_formula_and_the_coordinates_go_out_and_nothing_else(table, tmp_path):
    release = released(table)
    assert public_columns(release) == ["east", "north", "x", "value"]
    assert unpublished_columns(release) == ["parcel", "code", "kind", "weight"]
    for kind in ("csv", "parquet"):
        folder = release.write(tmp_path / kind, format=kind, report=False)
        [one, _] = read_release(folder).copies
        assert list(one.columns) == ["east", "north", "x", "value"]
        public = b"".join(p.read_bytes() for p in (folder / "public").iterdir())
        for word in (b"parcel", *(str(code).encode() for code in table["code"])):
            assert word not in public


def test_what_publish_names_goes_out_in_the_order_and_with_the_types_of_the_table(table, tmp_path):
    release = released(table, publish=["kind", "parcel"])
    folder = release.write(tmp_path / "r", format="parquet", report=False)
    [one, _] = read_release(folder).copies
    assert list(one.columns) == ["parcel", "east", "north", "x", "value", "kind"]
    same = ["parcel", "east", "north", "x", "kind"]
    pd.testing.assert_frame_equal(one[same], table[same])


def test_the_index_goes_out_as_it_is(table, tmp_path):
    named = table.set_index(pd.Index(np.arange(30) * 7 % 31, name="row"))
    [one, _] = read_release(released(named).write(tmp_path / "r", report=False)).copies
    assert one.index.equals(named.index)


def test_the_points_of_a_geodataframe_are_its_coordinates_and_other_shapes_stay(table, tmp_path):
    points = geopandas.points_from_xy(table["east"], table["north"])
    mapped = geopandas.GeoDataFrame(table, geometry=points).rename_geometry("place")
    mapped["parcel shape"] = points.buffer(0.01)
    release = released(mapped, coords=None)
    assert public_columns(release) == ["x", "value", "place"]
    assert "parcel shape" in unpublished_columns(release)


def test_a_table_read_by_row_groups_has_the_same_list(table, tmp_path):
    table.to_parquet(tmp_path / "t.parquet", row_group_size=10)
    problem = prepare_parquet(tmp_path / "t.parquet", FORMULA, coords=COORDS, publish=["kind"])
    assert columns_going_out(problem) == ["east", "north", "x", "value", "kind"]
    with pytest.raises(InputError, match="publish names 'kin'"):
        prepare_parquet(tmp_path / "t.parquet", FORMULA, coords=COORDS, publish=["kin"])


@pytest.mark.parametrize(
    ("publish", "said"),
    [
        (["Kind"], r"publish names 'Kind', which is no column of the table. Did you mean 'kind'"),
        (["nothing"], r"publish names 'nothing', which is no column of the table\."),
        ("kind", "publish must be a list of columns"),
        ([3], "publish must be a list of columns"),
    ],
)
def test_a_name_that_is_no_column_is_refused(table, publish, said):
    with pytest.raises(InputError, match=said):
        ds.prepare(table, FORMULA, coords=COORDS, publish=publish)


def test_a_column_of_weights_stays_even_where_publish_names_it(table, tmp_path, kept):
    problem = ds.prepare(table, FORMULA, coords=COORDS, publish=["weight"])
    weights = ds.own_weights(problem, "weight")
    draws = {
        "beta": np.full((2, 50, 2), 1.0),
        "sigma_sq": np.full((2, 50), 1.5),
        "tau_sq": np.full((2, 50), 0.2),
        "phi": np.full((2, 50), 4.0),
    }
    fit = fit_from(problem, draws, weights=weights)
    release = ds.synthesise(fit, 2, seed=3, accept_few_draws=True, accept_failed=True)
    assert "weight" in unpublished_columns(release)
    with pytest.raises(ReleaseError, match=r"publish names 'weight', which holds weights"):
        release.write(tmp_path / "r")


def test_a_caller_who_names_nothing_reads_once_what_stays(table, tmp_path, caplog):
    with caplog.at_level(logging.WARNING, "dsstan"):
        released(table).write(tmp_path / "a", report=False)
        assert [r.getMessage() for r in caplog.records] == [
            "Not published: parcel, code, kind, weight; name them in publish = [...]"
        ]
        caplog.clear()
        released(table, publish=[]).write(tmp_path / "b", report=False)
        assert not caplog.records


def test_a_column_that_stays_may_order_the_records_like_the_response(table, tmp_path):
    ranked = table.assign(rank=table["value"].rank())
    assert released(ranked).write(tmp_path / "a", report=False).is_dir()
    with pytest.raises(ReleaseError, match="column 'rank' puts the records in the order"):
        released(ranked, publish=["rank"]).write(tmp_path / "b", report=False)
