"""What is published tells nothing of flags, single records, or what pandas keeps beside values."""

from __future__ import annotations

import dataclasses
import json
import warnings

import numpy as np
import pandas as pd
import pyarrow
import pytest
from test_write import QUICK, _released

import dsstan as ds
from conftest import small_table
from dsstan.core.errors import DsstanWarning, ReleaseError
from dsstan.release.public import analyst_readme, metadata
from dsstan.release.reading import read_release


@pytest.mark.parametrize("gamma", [np.inf, 5.0, 0.0])
def test_metadata_do_not_tell_whether_anybody_is_flagged(gamma):
    problem = ds.prepare(small_table(30), "log(value) ~ x", coords=("east", "north"))
    told = []
    for a in (np.zeros(30), np.eye(30)[0]):
        weights = ds.own_weights(problem, a)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DsstanWarning)  # a fit that flags nobody warns
            fit = ds.fit(problem, weights=weights, gamma=gamma, phi=4.0, seed=1, **QUICK)
        release = ds.synthesise(fit, 2, seed=1, accept_failed=True, accept_few_draws=True)
        told.append(metadata(release, ["copy"]))
    assert told[0] == told[1]


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_the_type_of_the_response_does_not_tell_that_one_record_has_a_fraction(tmp_path, format):
    """A reader gives a column of whole numbers another type than one with a fraction in it."""
    told = []
    for fraction in (0.0, 0.5):
        table = small_table(60)
        table["value"] = np.rint(table["value"])
        table.loc[5, "value"] += fraction
        public = _released(table, np.eye(60)[0], tmp_path / str(fraction), format=format)
        found = json.loads((public / "metadata.json").read_text())
        copy = read_release(public).copies[0]
        told.append((found["columns"], copy["value"].dtype, (copy["value"] % 1 == 0).all()))
    assert told[0] == told[1]
    assert told[0][0]["value"] == "int64"


def test_parquet_holds_nothing_that_pandas_keeps_beside_the_values(tmp_path):
    table = small_table(30)
    table.columns.name = "PLANTED name"
    levels = [[f"kept {i}" for i in range(30)] + ["PLANTED level"], ["a"]]
    table.index = pd.MultiIndex(levels, [np.arange(30), np.zeros(30, int)], names=["one", "two"])
    words = pyarrow.DictionaryArray.from_arrays(
        np.zeros(30, dtype=np.int32), ["kept", "PLANTED word"]
    )
    table["kind"] = pd.array(words, dtype=pd.ArrowDtype(words.type))
    public = _released(table, np.eye(30)[0], tmp_path / "out", format="parquet")
    for path in public.glob("*.parquet"):
        assert b"PLANTED" not in path.read_bytes()
    assert set(read_release(public).copies[0]["kind"]) == {"kept"}


def test_a_name_with_a_backtick_stays_inside_its_quotes_in_the_readme(tmp_path):
    table = small_table(30).rename(columns={"value": "va`lue"})
    problem = dataclasses.replace(
        ds.prepare(small_table(30), "log(value) ~ x", coords=("east", "north")),
        response="va`lue",
        table=table,
    )
    fit = ds.fit(problem, seed=1, **QUICK)
    release = ds.synthesise(fit, 2, seed=1, accept_failed=True, accept_few_draws=True)
    assert "va`lue" not in analyst_readme(release, ["a", "b"])
    assert "Every column here but `va'lue` is as it was collected" in analyst_readme(
        release, ["a", "b"]
    )


@pytest.mark.parametrize("where", ["column", "index"])
def test_a_carriage_return_in_a_cell_ends_no_row(tmp_path, where):
    table = small_table(30)
    words = pd.Index([f"one{i}\rtwo" for i in range(30)], name="id")
    if where == "index":
        table.index = words
    else:
        table["note"] = words
    public = _released(table, np.eye(30)[0], tmp_path / "out", csv_text="keep")
    copy = read_release(public).copies[0]
    assert list(copy.index if where == "index" else copy["note"]) == list(words)


def test_a_column_of_several_kinds_is_told_before_parquet_is_published(tmp_path):
    table = small_table(30)
    table["odd"] = ["text", 1.5, None] * 10
    with pytest.raises(ReleaseError, match="column 'odd' holds values of several kinds"):
        _released(table, np.eye(30)[0], tmp_path / "out", format="parquet")
    assert list(tmp_path.iterdir()) == []
    assert _released(table, np.eye(30)[0], tmp_path / "out").is_dir()
