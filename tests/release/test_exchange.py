"""Posteriors for ArviZ, xarray and Parquet; copies as the kind of table that came in."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dsstan as ds
from conftest import small_table
from dsstan.core.errors import InputError, ReleaseError
from dsstan.release.exchange import draws_table, to_arviz, write_draws

SHORT = {"chains": 2, "warmup": 200, "samples": 100, "engine": "embedded", "progress": False}


def prepared(table: Any) -> ds.Problem:
    return ds.prepare(table, "log(value) ~ x", coords=("east", "north"))


@pytest.fixture(scope="module")
def copies() -> ds.Synthesis:
    fit = ds.fit(prepared(small_table(30)), seed=1, **SHORT)
    return ds.synthesise(fit, 3, seed=2, accept_failed=True, progress=False)


@pytest.fixture(params=["arviz", "arviz-base"])
def which(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """ArviZ as it is installed, or arviz-base alone."""
    if request.param == "arviz-base":
        monkeypatch.setitem(sys.modules, "arviz", None)
    return str(request.param)


def test_arviz_has_every_draw_under_its_name(copies, which):
    found = to_arviz(copies.fit)
    posterior = found["posterior"]
    assert posterior["beta"].dims == ("chain", "draw", "term")
    assert list(posterior["term"].values) == ["Intercept", "x"]
    for name in ("beta", "sigma_sq", "tau_sq", "phi"):
        np.testing.assert_array_equal(posterior[name].values, copies.fit.draws[name])
    np.testing.assert_array_equal(found["observed_data"]["y"].values, copies.problem.y)


def test_copies_are_the_posterior_predictive_by_record(copies, which):
    found = copies.to_arviz()["posterior_predictive"]["y"]
    assert found.dims == ("chain", "draw", "record")
    np.testing.assert_array_equal(found.values[0], copies.modelled())
    np.testing.assert_array_equal(found["record"].values, copies.problem.table.index)


def test_arviz_works_on_it_as_on_any_posterior(copies):
    import arviz

    table = arviz.summary(copies.fit.to_arviz())
    assert {"beta[Intercept]", "beta[x]", "sigma_sq", "tau_sq", "phi"} == set(table.index)


def test_without_arviz_one_error_says_what_to_install(copies, monkeypatch):
    for name in ("arviz", "arviz_base"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(InputError, match=r'pip install "dsstan\[arviz\]"'):
        to_arviz(copies.fit)


def test_draws_go_to_parquet_and_back_for_their_owner_alone(copies, tmp_path):
    path = write_draws(copies.fit, tmp_path / "draws.parquet")
    assert path.stat().st_mode & 0o777 == 0o600
    pd.testing.assert_frame_equal(pd.read_parquet(path), draws_table(copies.fit))
    with pytest.raises(ReleaseError, match="not overwritten"):
        write_draws(copies.fit, path)
    with pytest.raises(ReleaseError, match="can't be written"):
        write_draws(copies.fit, tmp_path / "no" / "draws.parquet")


@pytest.mark.parametrize("kind", ["polars", "pyarrow"])
def test_a_copy_comes_back_as_the_kind_of_table_that_went_in(kind):
    import polars
    import pyarrow

    plain = small_table(30)
    plain["value"] = np.rint(100 * plain["value"]).astype(np.int32)
    given = polars.from_pandas(plain) if kind == "polars" else pyarrow.Table.from_pandas(plain)
    fit = ds.fit(prepared(given), seed=1, **SHORT)
    release = ds.synthesise(fit, 2, seed=2, accept_failed=True, progress=False)
    found = release.native(1)
    assert type(found) is type(given)
    assert found.schema == given.schema
    back = found.to_pandas()
    np.testing.assert_array_equal(back["value"], release.table(1)["value"])
    others = [name for name in plain if name != "value"]
    pd.testing.assert_frame_equal(back[others], plain[others])


def test_a_pandas_copy_is_the_table_itself(copies):
    pd.testing.assert_frame_equal(copies.native(0), copies.table(0))
