"""Files as others make them: read right, or refused with a sentence that says what to type."""

from __future__ import annotations

import gzip
import json
import sqlite3
import tomllib
from contextlib import closing

import pandas as pd
import pytest
from test_command_line import inside  # noqa: F401

from conftest import case_file, small_table
from dsstan.core.errors import CoordinateError, InputError, TableError
from dsstan.core.spelling import COMMAND, options_typed_in
from dsstan.release.reading import read_table
from dsstan.table.prepare import prepare

geopandas = pytest.importorskip("geopandas")
openpyxl = pytest.importorskip("openpyxl")
pyreadstat = pytest.importorskip("pyreadstat")
shapely = pytest.importorskip("shapely")

FORMULA = "log(value) ~ x"
COORDS = ("east", "north")


@pytest.fixture
def homes():
    return small_table(30, seed=9)


def placed(homes, crs="EPSG:27700"):
    points = geopandas.points_from_xy(5e5 + 1e4 * homes["east"], 2e5 + 1e4 * homes["north"])
    return geopandas.GeoDataFrame(homes.drop(columns=[*COORDS]), geometry=points, crs=crs)


def refusal(path, kind=InputError, **how):
    """What a command says of a file that it does not take."""
    with options_typed_in(COMMAND), pytest.raises(kind) as refused:
        prepare(
            read_table(path, **how), FORMULA, **({} if how.get("placed") else {"coords": COORDS})
        )
    return str(refused.value)


def sheet_of(path, rows, title="homes"):
    book = openpyxl.Workbook()
    book.active.title = title
    for row in rows:
        book.active.append(row)
    return book


def rows_of(table):
    return [list(table.columns), *([v.item() for v in row] for row in table.to_numpy())]


def test_a_merged_header_above_the_names_is_refused(homes, tmp_path):
    book = sheet_of(
        None, [["Place", None, "Home", None], *rows_of(homes[["east", "north", "value", "x"]])]
    )
    book.active.merge_cells("A1:B1")
    book.active.merge_cells("C1:D1")
    book.save(tmp_path / "a.xlsx")
    said = refusal(tmp_path / "a.xlsx")
    assert "must hold one name a column: take out titles and rows above the names" in said


def test_a_title_beside_the_table_a_formula_and_an_error_are_refused(homes, tmp_path):
    for cell, value, said in (
        ("F9", "checked by A. Smith", "has a cell beside its columns, in row 9 of the sheet"),
        ("C9", "=SUM(A1:A3)", "'value' of a.xlsx holds formulas in 1 row (position 7"),
        ("C9", "#N/A", "'value' of a.xlsx holds error values such as #N/A in 1 row (position 7"),
        ("C9", "about 900", "'value' of a.xlsx holds numbers, and text in 1 row (position 7"),
    ):
        book = sheet_of(None, rows_of(homes[["east", "north", "value", "x"]]))
        book.active[cell] = value
        book.save(tmp_path / "a.xlsx")
        found = refusal(tmp_path / "a.xlsx")
        assert said in found
        assert "Smith" not in found


def test_empty_cells_far_beside_a_sheet_are_not_counted_for_long(homes, tmp_path, monkeypatch):
    book = sheet_of(None, rows_of(homes))
    for row in range(2, 32):
        book.active.cell(row, 400).number_format = "0.00"
    book.save(tmp_path / "a.xlsx")
    assert len(read_table(tmp_path / "a.xlsx")) == 30
    monkeypatch.setattr("dsstan.table.formats.excel._MOST_BESIDE", 10_000)
    assert "delete the columns to the right of the table" in refusal(tmp_path / "a.xlsx")


def test_features_that_share_no_property_make_no_vast_table(tmp_path):
    place = {"type": "Point", "coordinates": [1, 2]}
    features = [
        {"type": "Feature", "properties": {f"p{i}": 1}, "geometry": place} for i in range(5000)
    ]
    path = tmp_path / "a.geojson"
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    assert "export it with the same properties for all features" in refusal(path)


def test_several_sheets_ask_for_one_and_the_one_named_is_read(homes, tmp_path):
    book = sheet_of(None, rows_of(homes))
    book.create_sheet("read me").append(["made by us"])
    book.save(tmp_path / "a.xlsx")
    assert "has 2 sheets: 'homes', 'read me'. Say which: --layer homes" in refusal(
        tmp_path / "a.xlsx"
    )
    assert len(read_table(tmp_path / "a.xlsx", layer="homes")) == 30
    assert "has no sheet 'flats'" in refusal(tmp_path / "a.xlsx", layer="flats")


def test_an_old_workbook_under_a_new_name_is_refused(tmp_path):
    (tmp_path / "a.xlsx").write_bytes(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600))
    assert "locked by a password" in refusal(tmp_path / "a.xlsx")


def test_geojson_without_a_system_is_degrees_and_metres_there_have_none(homes, tmp_path):
    table = placed(homes)
    path = tmp_path / "a.geojson"
    path.write_text(json.dumps(json.loads(table.to_json(drop_id=True))))
    content = json.loads(path.read_text())
    content.pop("crs", None)
    path.write_text(json.dumps(content))
    found = read_table(path)
    assert found.crs is None
    assert prepare(found, FORMULA, crs="EPSG:27700").unit == "metre"
    path.write_text(json.dumps({**json.loads(table.to_crs(4326).to_json()), "crs": None}))
    assert read_table(path).crs.is_geographic
    with options_typed_in(COMMAND), pytest.raises(CoordinateError, match="--distance projected"):
        prepare(read_table(path), FORMULA)


def test_polygons_and_empty_places_are_refused_with_rows_and_advice(homes, tmp_path):
    for name, change, said in (
        (
            "polygon",
            lambda p: p.buffer(10),
            "something else than a point in 1 row (position 4",
        ),
        ("empty", lambda p: shapely.Point(), "has no point in 1 row (position 4"),
        ("none", lambda p: None, "has no point in 1 row (position 4"),
    ):
        table = placed(homes)
        places = list(table.geometry)
        places[4] = change(places[4])
        table = table.set_geometry(geopandas.GeoSeries(places, crs=table.crs))
        table.to_file(tmp_path / f"{name}.gpkg", engine="pyogrio")
        with options_typed_in(COMMAND), pytest.raises(CoordinateError) as refused:
            prepare(read_table(tmp_path / f"{name}.gpkg"), FORMULA)
        assert said in str(refused.value)
        assert "--coords x y" in str(refused.value) or "Drop these rows" in str(refused.value)


def test_two_layers_ask_for_one_and_the_one_named_is_read(homes, tmp_path):
    path = tmp_path / "a.gpkg"
    for layer in ("old", "new"):
        placed(homes).to_file(path, layer=layer, engine="pyogrio")
    said = refusal(path)
    assert "has 2 layers: 'old', 'new'. Say which: --layer old" in said
    assert len(read_table(path, layer="new")) == 30


ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"


@pytest.mark.parametrize(
    "statements",
    [
        (
            f"CREATE VIEW more AS {ENDLESS} SELECT count(*) AS n, 1 AS geom FROM n",
            "INSERT INTO gpkg_contents (table_name, data_type, identifier, srs_id) "
            "VALUES ('more', 'features', 'more', 0)",
            "INSERT INTO gpkg_geometry_columns VALUES ('more', 'geom', 'POINT', 0, 0, 0)",
        ),
        (f"CREATE VIEW layer_styles AS {ENDLESS} SELECT count(*) AS n FROM n",),
        (
            "ALTER TABLE gpkg_contents RENAME TO kept",
            f"CREATE VIEW gpkg_contents AS {ENDLESS} SELECT kept.* FROM kept, n WHERE n.i < 0",
        ),
        ("CREATE VIRTUAL TABLE more USING fts5(a)",),
        ("ALTER TABLE gpkg_contents ADD COLUMN big GENERATED ALWAYS AS (hex(zeroblob(9)))",),
        ("ALTER TABLE homes ADD COLUMN big GENERATED ALWAYS AS (hex(zeroblob(9)))",),
    ],
    ids=["another layer", "styles", "own list", "virtual table", "computed list", "computed"],
)
def test_a_geopackage_with_anything_that_runs_is_refused(
    homes, tmp_path, opened_by_gdal, statements
):
    path = tmp_path / "a.gpkg"
    placed(homes).to_file(path, layer="homes", engine="pyogrio")
    with closing(sqlite3.connect(path)) as file, file:
        for statement in statements:
            file.execute(statement)
    opened_by_gdal.clear()
    assert "which is not run here: save the layer in a file of its own" in refusal(path)
    assert "which is not run here" in refusal(path, layer="homes")
    assert not opened_by_gdal


def test_a_geopackage_with_a_vast_text_in_its_lists_is_refused(homes, tmp_path, opened_by_gdal):
    path = tmp_path / "a.gpkg"
    placed(homes).to_file(path, layer="homes", engine="pyogrio")
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("UPDATE gpkg_contents SET identifier = hex(zeroblob(1000000))")
    assert "its own lists hold texts of more than 1 MiB" in refusal(path)
    assert not opened_by_gdal


@pytest.fixture
def opened_by_gdal(monkeypatch):
    """Files whose layers GDAL was asked for."""
    pyogrio = pytest.importorskip("pyogrio")
    asked, real = [], pyogrio.list_layers
    monkeypatch.setattr(pyogrio, "list_layers", lambda path: asked.append(path) or real(path))
    return asked


def test_another_file_under_the_name_of_a_geopackage_or_shapefile_is_not_opened(tmp_path):
    virtual = "<OGRVRTDataSource><OGRVRTLayer name='x'><SrcDataSource>/etc/passwd</SrcDataSource>"
    for name in ("a.gpkg", "a.shp"):
        (tmp_path / name).write_text(virtual)
        assert "whatever its name says" in refusal(tmp_path / name)


def test_a_shapefile_without_the_files_beside_it_is_refused(homes, tmp_path):
    placed(homes).to_file(tmp_path / "a.shp", engine="pyogrio")
    (tmp_path / "a.dbf").unlink()
    assert "lacks a.dbf beside it" in refusal(tmp_path / "a.shp")


def test_letters_of_stata_and_values_of_spss_that_mean_missing_are_missing(homes, tmp_path):
    table = homes.assign(x=homes["x"].astype(object))
    table.loc[3, "x"], table.loc[5, "x"] = "a", "b"
    pyreadstat.write_dta(table, tmp_path / "a.dta", missing_user_values={"x": ["a", "b"]})
    assert "'x' of the formula has missing values in 2 rows (positions 3, 5" in refusal(
        tmp_path / "a.dta"
    )
    table.loc[[3, 5], "x"] = [-99.0, -98.0]
    pyreadstat.write_sav(
        *(table.astype({"x": float}), tmp_path / "a.sav"),
        missing_ranges={"x": [{"lo": -99, "hi": -98}]},
    )
    assert "'x' of the formula has missing values in 2 rows (positions 3, 5" in refusal(
        tmp_path / "a.sav"
    )


def test_a_gz_that_is_no_gzip_and_one_that_is_cut_off_are_refused(homes, tmp_path):
    homes.to_csv(tmp_path / "a.csv.gz", index=False, compression=None)
    assert "is not packed by gzip" in refusal(tmp_path / "a.csv.gz")
    assert "name it a.csv" in refusal(tmp_path / "a.csv.gz")
    whole = gzip.compress(homes.to_csv(index=False).encode())
    (tmp_path / "a.csv.gz").write_bytes(whole[: len(whole) // 2])
    assert "ends too early or is damaged" in refusal(tmp_path / "a.csv.gz")


def test_a_mark_and_windows_line_ends_are_read_and_names_that_repeat_refused(homes, tmp_path):
    text = homes.to_csv(index=False).replace("\n", "\r\n")
    (tmp_path / "a.csv").write_bytes(text.encode("utf-8-sig"))
    assert prepare(read_table(tmp_path / "a.csv"), FORMULA, coords=COORDS).n_records == 30
    (tmp_path / "b.csv").write_text(text.replace("east,north", "x,north", 1))
    assert "have the same name: rename one" in refusal(tmp_path / "b.csv")
    book = sheet_of(None, [["x", "x"], [1, 2]])
    book.save(tmp_path / "b.xlsx")
    assert "columns 1 and 2 of b.xlsx have the same name" in refusal(tmp_path / "b.xlsx")


def test_json_that_is_no_table_of_places_is_refused(tmp_path):
    for text, said in (
        ("[1, 2]", "is no GeoJSON FeatureCollection"),
        ('{"type": "FeatureCollection", "features": []}', "of at least one feature"),
        ('{"type": "FeatureCollection", "features": [{"type": "Point"}]}', "is no GeoJSON"),
        ('{"type": "FeatureCollection", "features": [3]}', "is no GeoJSON"),
        ("[" * 100_000, "can't be read as JSON"),
        ('{"features": [NaN]}', "can't be read as JSON"),
    ):
        (tmp_path / "a.json").write_text(text)
        assert said in refusal(tmp_path / "a.json")


def test_a_table_without_coordinates_is_told_how_to_name_them(homes, tmp_path):
    homes.to_csv(tmp_path / "a.csv", index=False)
    with options_typed_in(COMMAND), pytest.raises(CoordinateError, match="--coords longitude lat"):
        prepare(read_table(tmp_path / "a.csv"), FORMULA)


@pytest.mark.parametrize("name", ["table.gpkg", "table.geojson"])
def test_a_job_of_a_table_with_geometry_needs_no_coordinates(inside, tmp_path, monkeypatch, name):  # noqa: F811
    monkeypatch.chdir(tmp_path)
    file = case_file(name)
    made = inside("init", "job.toml", "--table", file, "--formula", "log(rent) ~ log(area)")
    assert made.returncode == 0, made.stderr
    assert "Fill in" not in made.stdout
    text = (tmp_path / "job.toml").read_text()
    job = tomllib.loads(text)
    assert "coords" not in job
    assert job["distance"] == ("projected" if "json" in name else "planar")
    near = "1.5" if "json" in name else "1500.0"
    with (tmp_path / "job.toml").open("a") as stream:
        stream.write(f"threshold = {near}\naccept_failed = true\n")
    ran = inside("run", "job.toml", "--dry-run")
    assert ran.returncode == 0, ran.stderr
    assert "goes out" in ran.stdout


def test_a_format_that_can_not_hold_a_column_is_refused_first(inside, homes, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.chdir(tmp_path)
    homes.assign(**{"floor area": 1.0}).to_csv("homes.csv", index=False)
    call = ("synthesise", "homes.csv", "--formula", FORMULA, "--coords", *COORDS, "--out", "out")
    refused = inside(*call, "--format", "dta", "--publish", "floor area")
    said = " ".join(refused.stderr.split())
    assert refused.returncode == 4
    assert "column 'floor area' has a name that Stata does not allow" in said
    assert "--format parquet" in said
    assert "a shapefile needs the places" in " ".join(
        inside(*call, "--format", "shp").stderr.split()
    )


def test_columns_of_several_kinds_are_no_response(homes, tmp_path):
    table = homes.assign(value=homes["value"].astype(object))
    table.loc[2, "value"] = "n/a"
    pd.DataFrame(table).to_csv(tmp_path / "a.csv", index=False)
    with options_typed_in(COMMAND), pytest.raises((InputError, TableError), match="--na n/a"):
        prepare(read_table(tmp_path / "a.csv"), FORMULA, coords=COORDS)


def test_bounds_are_no_key_and_the_job_names_the_range(inside, homes, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.chdir(tmp_path)
    homes.to_csv("homes.csv", index=False)
    job = f'table = "homes.csv"\nformula = "{FORMULA}"\ncoords = ["east", "north"]\nout = "out"\n'
    (tmp_path / "job.toml").write_text(job + "bounds = [0, 9]\n")
    refused = inside("run", "job.toml", "--dry-run")
    assert refused.returncode == 2
    assert "range = [0, inf] keeps copies within it" in " ".join(refused.stderr.split())
