"""A release goes out in the format that its table came in, or another, and is read back."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import dsstan as ds
from conftest import small_table
from dsstan.core.errors import InputError, ReleaseError
from dsstan.release.reading import read_release, read_table
from dsstan.release.write import write_release
from dsstan.risk.assessment import unassessed
from dsstan.table.formats.kinds import FORMAT_NAMES, FORMATS, format_named
from factory import fit_from

geopandas = pytest.importorskip("geopandas")
pytest.importorskip("openpyxl")
pytest.importorskip("pyreadstat")


@pytest.fixture(scope="module")
def homes():
    table = small_table(20, seed=9).assign(zip=[f"{k:05d}" for k in range(20)])
    places = geopandas.points_from_xy(5e5 + 1e4 * table["east"], 2e5 + 1e4 * table["north"])
    return geopandas.GeoDataFrame(table, geometry=places, crs="EPSG:27700")


def released(path, folder, **how):
    """A release of the table of a file, its copies from given draws."""
    table = read_table(path)
    placed = "geometry" in map(str, table.dtypes)
    problem = ds.prepare(
        table,
        "log(value) ~ x",
        coords=None if placed else ("east", "north"),
        publish=["zip"],
    )
    rng = np.random.default_rng(1)
    draws = {name: rng.uniform(0.5, 1.0, (2, 20)) for name in ("sigma_sq", "tau_sq", "phi")}
    draws["beta"] = rng.normal(0, 0.1, (2, 20, 2))
    release = ds.synthesise(
        fit_from(problem, draws), 3, seed=2, accept_failed=True, accept_few_draws=True
    )
    write_release(release, folder, assessment=unassessed(release), report=False, **how)
    return table, release


@pytest.mark.parametrize("name", FORMAT_NAMES)
def test_a_release_comes_back_as_its_table_came(homes, tmp_path, name):
    format = format_named(name)
    given = homes if format.shapes == "must" else pd.DataFrame(homes.drop(columns="geometry"))
    path = tmp_path / f"homes.{name}"
    format.write(given, path, None, [])
    table, made = released(path, tmp_path / "r")
    found = read_release(tmp_path / "r")
    assert found.metadata["files"] == [f"copy_00{k}.{name}" for k in (1, 2, 3)]
    for number, copy in enumerate(found.copies):
        others = copy.columns.drop("value")
        assert set(others) < set(table.columns)
        pd.testing.assert_frame_equal(
            pd.DataFrame(copy[others]), pd.DataFrame(table[others]), check_exact=True
        )
        np.testing.assert_allclose(copy["value"], made.values[number], rtol=1e-12)
        assert getattr(copy, "crs", None) == getattr(table, "crs", None)
    readme = (tmp_path / "r" / "public" / "README.md").read_text()
    assert name in ("csv", "csv.gz") or f"copy_001.{name}" in readme.partition("To read one")[2]


def test_another_format_may_be_asked_for_and_an_unknown_one_is_refused(homes, tmp_path):
    homes.to_file(tmp_path / "homes.gpkg", engine="pyogrio")
    table, _ = released(tmp_path / "homes.gpkg", tmp_path / "r", format="csv")
    copy = read_release(tmp_path / "r").copies[0]
    assert copy["zip"].tolist() == table["zip"].tolist()
    assert copy["geom"].str.startswith("POINT (").all()
    with pytest.raises(ReleaseError, match="an Excel workbook can't hold geometry"):
        released(tmp_path / "homes.gpkg", tmp_path / "s", format="xlsx")
    with pytest.raises(InputError, match="format must be one of csv"):
        released(tmp_path / "homes.gpkg", tmp_path / "s", format="docx")
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("name", [f.name for f in FORMATS if not f.is_text and f.name != "shp"])
def test_a_copy_with_more_rows_than_it_should_have_is_refused(homes, tmp_path, name):
    format = format_named(name)
    given = homes if format.shapes == "must" else pd.DataFrame(homes.drop(columns="geometry"))
    format.write(given, tmp_path / f"homes.{name}", None, [])
    released(tmp_path / f"homes.{name}", tmp_path / "r")
    about = tmp_path / "r" / "public" / "metadata.json"
    said = json.loads(about.read_text())
    about.write_text(json.dumps(said | {"records": 19}))
    with pytest.raises(ReleaseError, match="another number of records"):
        read_release(tmp_path / "r")


def test_a_link_beside_a_shapefile_is_not_followed(homes, tmp_path):
    homes.to_file(tmp_path / "homes.shp", engine="pyogrio")
    released(tmp_path / "homes.shp", tmp_path / "r")
    beside = tmp_path / "r" / "public" / "copy_002.dbf"
    beside.unlink()
    beside.symlink_to("/etc/passwd")
    with pytest.raises(ReleaseError, match=r"copy_002\.dbf .* is no plain file"):
        read_release(tmp_path / "r")
