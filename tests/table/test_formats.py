"""Every format gives back what stood in the file: values, missing values, types and labels."""

from __future__ import annotations

import datetime
import gzip
import sqlite3
import warnings
import zipfile
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from conftest import case_file
from dsstan.core.errors import InputError, ReleaseError
from dsstan.core.spelling import COMMAND, options_typed_in
from dsstan.release.copy_files import check_copies, how_written
from dsstan.release.reading import read_table
from dsstan.table.as_read import AS_READ, Asked
from dsstan.table.formats import labelled
from dsstan.table.formats.excel import write_excel
from dsstan.table.formats.kinds import FORMATS, format_named, format_of, stem_of
from dsstan.table.formats.round_trip import differing_rows
from dsstan.table.sizes import RowsError

geopandas = pytest.importorskip("geopandas")
openpyxl = pytest.importorskip("openpyxl")
pyreadstat = pytest.importorskip("pyreadstat")

N = 6
N_1 = [Decimal("1.25")] * 5
MADE = ["rent"]


def plain() -> pd.DataFrame:
    """Columns of every kind, with values missing at other rows in each."""
    day = datetime.date
    return pd.DataFrame(
        {
            "rent": [800.5, 950.25, 1200.0, 1100.125, 820.0, 1e-3],
            "rooms": [1, 2, 3, 4, 5, -6],
            "floor": pd.array([1, None, 3, 4, 2**40, 0], dtype="Int64"),
            "share": [0.1, 1 / 3, np.nan, 2.0, 1e300, -5e-324],
            "lift": [True, False, True, True, False, False],
            "pets": pd.array([True, None, False, True, None, False], dtype="boolean"),
            "kind": pd.Categorical(["a", "b", None, "a", "c", "b"], ["c", "b", "a"], ordered=True),
            "note": ["=1+1", None, 'ü, "q"', "line\nbreak", "007", " x "],
            "built": [
                day(1970, 1, 1),
                None,
                day(2020, 2, 29),
                day(1899, 12, 31),
                *2 * [day(2001, 2, 3)],
            ],
            "sold": pd.to_datetime(
                pd.Series(["2020-01-01 12:13:14", None, *4 * ["1999-12-31 00:00:00"]])
            ),
        }
    )


def placed(table: pd.DataFrame, crs: str = "EPSG:27700"):
    """The table with a point a record."""
    x, y = 530000.1 + 1000.3 * np.arange(N), 180000.7 + np.pi * np.arange(N)
    if crs == "OGC:CRS84":
        x, y = np.linspace(-0.1, 0.1, N) / 3, 51 + np.linspace(0, 1, N) / 7
    return geopandas.GeoDataFrame(table, geometry=geopandas.points_from_xy(x, y), crs=crs)


def again(path, folder, change=lambda table: table):
    """The table of a file, and that of a copy of it with other values of the response."""
    table = read_table(path)
    how = how_written(table, None, "keep")
    assert how.format is format_of(path)
    check_copies(table, how, MADE)
    copy = change(table.copy())
    copy["rent"] = copy["rent"] + 1
    target = folder / f"copy.{how.format.name}"
    how.format.write(copy, target, how.as_read, MADE)
    return table, read_table(target), target


def assert_same(table: pd.DataFrame, back: pd.DataFrame) -> None:
    """All columns but the response are equal, with their types."""
    pd.testing.assert_frame_equal(
        pd.DataFrame(table.drop(columns=MADE)),
        pd.DataFrame(back.drop(columns=MADE)),
        check_exact=True,
    )
    assert np.allclose(back["rent"] - table["rent"], 1)
    assert getattr(table, "crs", None) == getattr(back, "crs", None)


def test_parquet_and_feather_keep_the_types_that_arrow_has(tmp_path):
    import pyarrow as pa
    import pyarrow.feather
    import pyarrow.parquet as pq

    table = plain()
    arrow = pa.Table.from_pandas(table).replace_schema_metadata({"secret": "Smith"})
    arrow = arrow.set_column(1, "rooms", arrow.column("rooms").cast(pa.int16()))
    arrow = arrow.append_column("big", pa.array([2**60 + 1, None, 1, 2, 3, 4], pa.int64()))
    arrow = arrow.append_column("money", pa.array([None, *N_1], pa.decimal128(9, 2)))
    pq.write_table(arrow, tmp_path / "a.parquet")
    pyarrow.feather.write_feather(arrow, tmp_path / "a.feather")
    for ending, read in (("parquet", pq.read_table), ("feather", pyarrow.feather.read_table)):
        table, back, target = again(tmp_path / f"a.{ending}", tmp_path)
        assert_same(table, back)
        assert table["big"].iloc[0] == 2**60 + 1
        found = read(target)
        assert found.drop_columns(["rent", "kind"]).equals(arrow.drop_columns(["rent", "kind"]))
        assert found.schema.field("kind").type.ordered
        assert b"secret" not in found.schema.metadata


@pytest.mark.parametrize("ending", ["parquet", "feather", "gpkg", "shp"])
def test_geographic_files_keep_places_system_and_types(tmp_path, ending):
    table = placed(plain())
    if ending == "shp":  # no time, no text that is missing, 15 digits after the point
        table = table.drop(columns=["sold", "pets", "floor"]).assign(
            share=[0.1, 0.25, np.nan, 2.0, 1e6, 0.5], kind="a", note=list("abcdef")
        )
    table["rooms"] = table["rooms"].astype("int32")
    path = tmp_path / f"a.{ending}"
    if ending in ("parquet", "feather"):
        getattr(table, f"to_{ending}")(path)
    else:
        table["kind"] = table["kind"].astype(object)
        table.to_file(path, layer="flats", engine="pyogrio")
    first, back, target = again(path, tmp_path)
    assert_same(first, back)
    assert first.attrs[AS_READ].format == ending
    assert first["rooms"].dtype == np.int32
    assert first["lift"].dtype == np.bool_
    assert not differing_rows(first["note"], table["note"]).any()
    if ending == "gpkg":
        assert first["floor"].dtype == "Int64"
        assert first["pets"].dtype == "boolean"
        with sqlite3.connect(target) as file:
            assert file.execute("SELECT table_name FROM gpkg_contents").fetchall() == [("flats",)]


@pytest.mark.parametrize("crs", ["OGC:CRS84", "EPSG:27700"])
def test_geojson_keeps_every_number_and_names_a_system_only_where_it_did(tmp_path, crs):
    table = placed(plain().drop(columns=["built", "sold"]).astype({"kind": object}), crs)
    how = how_written(table, "geojson", "keep")
    how.format.write(table, tmp_path / "a.geojson", None, MADE)
    first, back, target = again(tmp_path / "a.geojson", tmp_path)
    assert_same(first, back)
    assert ("crs" in target.read_text()) == (crs == "EPSG:27700")
    for name in table.columns.drop(["rent", "geometry"]):
        assert not differing_rows(table[name], back[name]).any()
    assert first["floor"].dtype == "Int64"
    assert first["pets"].dtype == "boolean"
    assert first.crs == back.crs


@pytest.mark.parametrize("name", ["geo.parquet", "table.gpkg", "table.geojson"])
def test_the_cases_give_their_places_and_round_trip(tmp_path, name):
    first, back, _ = again(case_file(name), tmp_path)
    assert_same(first, back)
    assert first["zip"].str.len().eq(5).all()
    assert first.crs.to_string() == ("OGC:CRS84" if "json" in name else "EPSG:27700")


def test_excel_keeps_kinds_formats_and_text_that_begins_like_a_formula(tmp_path):
    table = plain().drop(columns=["built"]).astype({"kind": object})
    table["share"] = [0.1, 1 / 3, np.nan, 2.5, 1e300, 0.0]
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = "flats"
    sheet.append(list(table.columns))
    for row in table.itertuples(index=False):
        cells = [None if pd.isna(v) else v for v in row]
        cells = [v.to_pydatetime() if isinstance(v, pd.Timestamp) else v for v in cells]
        sheet.append([v.item() if isinstance(v, np.generic) else v for v in cells])
    sheet["H2"].data_type = "s"
    for row in range(2, N + 2):
        sheet.cell(row, 4).number_format = "0.0%"
    book.save(tmp_path / "a.xlsx")
    first, back, target = again(tmp_path / "a.xlsx", tmp_path)
    assert_same(first, back)
    assert first["note"].iloc[0] == "=1+1"
    assert str(first["floor"].dtype) == "Int64"
    assert str(first["pets"].dtype) == "boolean"
    assert str(first["sold"].dtype).startswith("datetime64")
    found = openpyxl.load_workbook(target)["flats"]
    assert found["H2"].data_type == "s"
    assert found["D2"].number_format == "0.0%"
    assert found["I2"].is_date


def test_a_workbook_keeps_every_digit_of_a_number(tmp_path):
    values = [0.1 + 0.2, 1 / 3, 1e-300, 123456.789012345678, 2.0]
    write_excel(pd.DataFrame({"v": values}), tmp_path / "v.xlsx", None, ())
    assert pd.read_excel(tmp_path / "v.xlsx")["v"].tolist() == values


def test_a_column_of_text_that_the_formula_needs_stays_text(tmp_path):
    table = pd.DataFrame({"v": [1.0, 2.0, 3.0], "kind": ["a", "b", "a"]})
    write_excel(table, tmp_path / "v.xlsx", None, ())
    assert read_table(tmp_path / "v.xlsx", used=["v", "kind"])["kind"].tolist() == ["a", "b", "a"]


def stata(folder):
    """A file of Stata, with letters for missing values and labels of them."""
    cells = pd.DataFrame(
        {
            "rent": [800.5, 950.25, 1200.0, 1100.125, 820.0, 0.5],
            "kids": [1, "a", 3, np.nan, "b", 2],
            "zip": ["00123", "", "a", "bb", "ccc", "ü"],
            "built": pd.to_datetime(pd.Series(["2020-02-29", None, *4 * ["1950-01-02"]])).dt.date,
            "sold": pd.to_datetime(
                pd.Series(["2020-02-29 01:02:03", None, *4 * ["1950-01-02 00:00:00"]])
            ),
        }
    )
    pyreadstat.write_dta(
        cells,
        folder / "a.dta",
        column_labels={"kids": "children at home"},
        missing_user_values={"kids": ["a", "b"]},
        variable_value_labels={"kids": {1: "one", 2: "two", 3: "three", "a": "refused"}},
        variable_format={"rent": "%9.2f"},
    )
    return folder / "a.dta"


def test_stata_keeps_letters_labels_formats_and_dates(tmp_path):
    path = stata(tmp_path)
    first, back, target = again(path, tmp_path)
    assert_same(first, back)
    assert first["kids"].isna().tolist() == [False, True, False, True, True, False]
    assert first["built"].iloc[0] == datetime.date(2020, 2, 29)
    for user_missing in (False, True):
        (one, a), (two, b) = (
            pyreadstat.read_dta(p, user_missing=user_missing) for p in (path, target)
        )
        pd.testing.assert_frame_equal(one.drop(columns="rent"), two.drop(columns="rent"))
        assert a.variable_value_labels == b.variable_value_labels
        assert a.column_names_to_labels["kids"] == b.column_names_to_labels["kids"]
        assert a.original_variable_types == b.original_variable_types
        assert a.readstat_variable_types == b.readstat_variable_types


def test_stata_keeps_the_types_that_pandas_writes_and_long_text(tmp_path):
    table = plain()[["rent", "share"]].assign(
        one=np.array([1, 2, 3, 4, 5, -6], np.int8),
        two=np.array([1, 2, 3, 4, 5, 3000], np.int16),
        four=np.array([1, 2, 3, 4, 5, 10**6], np.int32),
        single=np.array([0.1, 2, 3, 4, 5, 6], np.float32),
        text=["é" * 3000, "", "a", "b", "c", "d"],
    )
    table["share"] = [0.1, 1 / 3, np.nan, 2.0, 1e300, 0.0]
    table.to_stata(tmp_path / "a.dta", write_index=False, version=118, convert_strl=["text"])
    first, back, target = again(tmp_path / "a.dta", tmp_path)
    assert_same(first, back)
    ours = pd.read_stata(target)
    pd.testing.assert_frame_equal(
        ours.drop(columns="rent"), pd.read_stata(tmp_path / "a.dta").drop(columns="rent")
    )


@pytest.mark.parametrize(("measured", "warned"), [(50, 1), (3, 0)])
def test_a_measured_column_with_labels_on_a_few_values_is_said(tmp_path, measured, warned):
    table = pd.DataFrame({"income": [-9, -9, *range(measured)]})
    path = tmp_path / "t.dta"
    pyreadstat.write_dta(table, path, variable_value_labels={"income": {-9: "refused"}})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        read_table(path)
    said = [str(one.message) for one in caught if "labels on a few" in str(one.message)]
    assert len(said) == warned
    assert all("in 2 rows (positions 0, 1, counted from 0)" in one for one in said)


@pytest.mark.parametrize("ending", ["sav", "zsav"])
def test_spss_keeps_labels_widths_and_values_that_mean_missing(tmp_path, ending):
    cells = pd.DataFrame(
        {
            "rent": [800.5, 950.25, 1200.0, 1100.125, 820.0, 0.5],
            "kids": [1.0, 99, 3, np.nan, 98, 2],
            "zip": ["00123", "", "a", "bb", "ccc", "ü"],
            "built": pd.to_datetime(pd.Series(["2020-02-29", None, *4 * ["1950-01-02"]])).dt.date,
        }
    )
    path = tmp_path / f"a.{ending}"
    pyreadstat.write_sav(
        *(cells, path),
        compress=ending == "zsav",
        column_labels={"kids": "children at home"},
        missing_ranges={"kids": [{"lo": 98, "hi": 99}]},
        variable_value_labels={"kids": {1: "one", 99: "refused"}},
        variable_measure={"kids": "ordinal"},
        variable_format={"kids": "F3.0"},
    )
    first, back, target = again(path, tmp_path)
    assert_same(first, back)
    assert str(first["kids"].dtype) == "Int64"
    assert first["kids"].isna().sum() == 3
    one, a = pyreadstat.read_sav(path, user_missing=True)
    two, b = pyreadstat.read_sav(target, user_missing=True)
    pd.testing.assert_frame_equal(one.drop(columns="rent"), two.drop(columns="rent"))
    for key in (
        *("variable_value_labels", "missing_ranges", "variable_measure", "original_variable_types"),
        *("column_names_to_labels", "variable_display_width", "variable_storage_width"),
    ):
        assert getattr(a, key) == getattr(b, key), key


@pytest.mark.parametrize("version", [5, 8])
def test_sas_transport_keeps_its_version_names_and_dates(tmp_path, version):
    cells = plain()[["rent", "share", "rooms", "built", "sold"]].assign(zip="00123")
    cells["share"] = [0.1, 1 / 3, np.nan, 2.0, 1e30, 0.0]
    path = tmp_path / "a.xpt"
    pyreadstat.write_xport(
        *(cells, path),
        column_labels={"rooms": "rooms but the kitchen"},
        table_name="FLATS",
        file_format_version=version,
    )
    first, back, target = again(path, tmp_path)
    assert_same(first, back)
    (one, a), (two, b) = (pyreadstat.read_xport(p) for p in (path, target))
    pd.testing.assert_frame_equal(one.drop(columns="rent"), two.drop(columns="rent"))
    assert a.original_variable_types == b.original_variable_types
    assert a.column_names_to_labels["rooms"] == b.column_names_to_labels["rooms"]
    assert a.table_name == b.table_name
    assert path.read_bytes()[:80] == target.read_bytes()[:80]


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "tsv", "tsv.gz"])
def test_text_comes_back_byte_for_byte_packed_or_not(tmp_path, ending):
    sep = "\t" if "tsv" in ending else ","
    text = f"rent{sep}zip{sep}x\r\n800.50{sep}00123{sep}1.50\r\n900{sep}{sep}2\r\n"
    content = text.encode("utf-8-sig")
    path = tmp_path / f"a.{ending}"
    path.write_bytes(gzip.compress(content) if ending.endswith("gz") else content)
    table = read_table(path)
    how = how_written(table, None, "refuse")
    how.format.write(table, tmp_path / f"b.{ending}", how.as_read, [])
    back = (tmp_path / f"b.{ending}").read_bytes()
    assert (gzip.decompress(back) if ending.endswith("gz") else back) == content
    assert b"b.csv" not in back


def test_a_letter_is_kept_where_rows_of_the_table_were_changed_in_python(tmp_path):
    path = stata(tmp_path)
    first = read_table(path)
    first["kids"] = first["kids"].fillna(0)
    how = how_written(first, None, "keep")
    how.format.write(first, tmp_path / "b.dta", how.as_read, MADE)
    assert read_table(tmp_path / "b.dta")["kids"].tolist() == [1, 0, 3, 0, 0, 2]


@pytest.mark.parametrize("format", [one.name for one in FORMATS if one.shapes != "must"])
def test_a_table_of_numbers_and_text_goes_out_in_every_format(tmp_path, format):
    table = pd.DataFrame({"rent": [1.5, 2.5, 3.5], "n": [1, 2, 3], "zip": ["007", "b", "c"]})
    how = how_written(table, format, "keep")
    check_copies(table, how, MADE)
    path = tmp_path / f"a.{format}"
    how.format.write(table, path, how.as_read, MADE)
    back = read_table(path)
    assert list(back.columns) == list(table.columns)
    for name in table.columns:
        assert not differing_rows(table[name], back[name]).any()
    assert stem_of(path) == "a"


@pytest.mark.parametrize(
    ("format", "change", "said"),
    [
        ("shp", {}, "needs the places"),
        ("xlsx", {"big": [2**60 + 1, 1, 2]}, "'big' holds whole numbers of more digits"),
        ("xlsx", {"t": pd.to_datetime(["2020-01-01"] * 3, utc=True)}, r"can't hold column 't'"),
        ("dta", {"floor area": 1.0}, "'floor area' has a name that Stata does not allow"),
        ("dta", {"note": ["", None, "a"]}, "does not keep column 'note'"),
        ("sav", {"2nd": 1.0}, "'2nd' has a name that SPSS"),
        ("xpt", {"größe": 1.0}, "'größe' has a name that SAS"),
        ("dta", {"long": 1.0}, "'long' has a name that Stata does not allow"),
        ("dta", {"p": pd.period_range("2020", periods=3, freq="M")}, "'p'"),
    ],
)
def test_what_a_format_can_not_hold_is_refused_with_what_to_type(format, change, said):
    table = pd.DataFrame({"rent": [1.5, 2.5, 3.5]}).assign(**change)
    with options_typed_in(COMMAND), pytest.raises(ReleaseError, match=said) as refused:
        check_copies(table, how_written(table, format, "keep"), MADE)
    assert "--format " in str(refused.value) or "take it out" in str(refused.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"floor_area_m2": 1.0}, "names of at most 10 letters"),
        ({"sold": pd.to_datetime(["2020-01-01 12:13:14"] * N)}, "does not keep column 'sold'"),
        ({"tiny": 1e-20}, "does not keep column 'tiny'"),
    ],
)
def test_what_a_shapefile_can_not_hold_is_refused(change, said):
    table = placed(plain()[["rent"]]).assign(**change)
    with options_typed_in(COMMAND), pytest.raises(ReleaseError, match=said) as refused:
        check_copies(table, how_written(table, "shp", "keep"), MADE)
    assert "--format gpkg" in str(refused.value)


def test_rows_are_counted_before_a_file_is_read(tmp_path):
    table = placed(plain()[["rent", "rooms"]])
    for one in FORMATS:
        if one.is_text:
            continue
        given = table if one.shapes == "must" else pd.DataFrame(table.drop(columns="geometry"))
        path = tmp_path / f"a.{one.name}"
        one.write(given, path, None, MADE)
        with pytest.raises(RowsError):
            one.read(path, Asked(most_rows=N - 1))
        assert len(one.read(path, Asked(most_rows=N))) == N


def test_a_workbook_that_unpacks_to_too_much_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("dsstan.table.sizes.MOST_UNPACKED", 10_000)
    with zipfile.ZipFile(tmp_path / "a.xlsx", "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("xl/workbook.xml", "0" * 20_000)
    with pytest.raises(InputError, match="unpacks to"):
        read_table(tmp_path / "a.xlsx")


def test_a_packed_text_that_unpacks_to_too_much_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("dsstan.table.text.text_file.MOST_UNPACKED", 10_000)
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"a,b\n" + b"1,2\n" * 5_000))
    with pytest.raises(InputError, match="unpacks to more"):
        read_table(tmp_path / "a.csv.gz")


def test_a_packed_text_that_unpacks_to_many_times_its_size_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("dsstan.table.text.text_file.ANY_TIMES", 10_000)
    plain = b"a,b\n" + b"1,2\n" * 50_000
    packed = gzip.compress(plain)
    assert len(plain) > 200 * len(packed)
    (tmp_path / "a.csv.gz").write_bytes(packed)
    with pytest.raises(InputError, match="unpacks to more"):
        read_table(tmp_path / "a.csv.gz")
    monkeypatch.undo()
    assert len(read_table(tmp_path / "a.csv.gz")) == 50_000


def test_a_workbook_with_endless_styles_and_a_text_with_endless_columns_are_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.xlsx", "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("xl/styles.xml", "0" * (2**25 + 1))
    with pytest.raises(InputError, match="unpacks to"):
        read_table(tmp_path / "a.xlsx")
    names = [f"c{k}" for k in range(10_001)]
    (tmp_path / "a.csv").write_text(",".join(names) + "\n" + ",".join("1" * 10_001) + "\n")
    with pytest.raises(InputError, match="has 10001 columns, more than the 10000"):
        read_table(tmp_path / "a.csv")


def test_a_missing_library_is_named_with_how_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    (tmp_path / "a.dta").write_bytes(b"")
    with pytest.raises(InputError, match=r'pip install "dsstan\[stats\]"'):
        read_table(tmp_path / "a.dta")


def test_every_name_of_a_format_is_known_and_no_other(tmp_path):
    assert format_named("dta").extra == "stats"
    assert labelled.read_labelled is not None
    with pytest.raises(InputError, match="format must be one of csv"):
        format_named("docx")
    with pytest.raises(InputError, match=r"save it as \.xlsx"):
        format_of(tmp_path / "a.xls")
