"""Text files as programs write them: refused with advice, read as stated, written as they came."""

from __future__ import annotations

import io

import numpy as np
import pandas as pd
import pytest

import dsstan as ds
from conftest import case_file, small_table
from dsstan.core.errors import DsstanWarning, InputError, ReleaseError, TableError
from dsstan.core.spelling import COMMAND, JOB, PYTHON, options_typed_in
from dsstan.release.reading import read_table
from dsstan.table.as_read import AS_READ
from dsstan.table.text.csv import write_csv
from dsstan.table.text.dialect import Dialect, DialectError, TextAsRead

PLANTED = "460"
"""Of a response; no message may show it."""

HEAD, ROWS = "x,y,area,zip,rent", ["12.5,3.8,133,03400,460.06", "1.25,8.5,82,03769,336.4"]

GERMAN = "x;y;area;zip;rent\n12,5019;3,8493;133;03400;460,06\n17,9443;18,5581;82;03769;336,4\n"

NOTHING_SAID = Dialect()

CASES = {
    "semicolons": (GERMAN, {"sep": ";", "decimal": ","}, "semicolons between cells and decimal"),
    "tabs": ("x\ty\trent\n1.5\t2.5\t460.06\n2.5\t1.0\t336.4\n", {"sep": "\t"}, "tabs between"),
    "bars": ("x|y|rent\n1.5|2.5|460.06\n2.5|1.0|336.4\n", {"sep": "|"}, "bars between"),
    "thousands": (
        'x,y,rent\n1.5,2.5,"460,060"\n2.5,1.0,"1,336,400"\n',
        {"thousands": ","},
        "commas between thousands in 'rent'",
    ),
    "German thousands": (
        "x;y;rent\n1,5;2,5;1.460,06\n2,5;1,0;336,4\n",
        {"sep": ";", "decimal": ",", "thousands": "."},
        "points between thousands in 'x', 'y' and 'rent'",
    ),
    "thin spaces": (
        "x;y;rent\n1,5;2,5;1\u202f460,06\n2,5;1,0;336,4\n",
        {"sep": ";", "decimal": ",", "thousands": " "},
        "spaces between thousands",
    ),
    "Swiss": ("x,y,rent\n1.5,2.5,4'600\n2.5,1.0,336\n", {"thousands": "'"}, "' between thousands"),
    "NA": ("x,y,rent\n1.5,2.5,460.06\n2.5,1.0,NA\n", {"na": ("NA",)}, "'NA' for a missing value"),
}


def written(tmp_path, text, encoding="utf-8", name="in.csv"):
    path = tmp_path / name
    path.write_bytes(text.encode(encoding))
    return path


@pytest.mark.parametrize("name", CASES)
def test_another_dialect_is_refused_with_what_to_type_and_read_as_told(tmp_path, name):
    text, options, said = CASES[name]
    path = written(tmp_path, text)
    with pytest.raises(DialectError) as caught:
        read_table(path, ["x", "y", "rent"])
    assert said in str(caught.value)
    assert PLANTED not in str(caught.value)
    assert caught.value.found == Dialect(**options)
    table = read_table(path, ["x", "y", "rent"], dialect=caught.value.found)
    assert all(pd.api.types.is_numeric_dtype(table[c]) for c in ("x", "y", "rent"))
    write_csv(table, tmp_path / "out.csv", table.attrs[AS_READ])
    assert (tmp_path / "out.csv").read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    ("surface", "said"),
    [
        (PYTHON, 'dialect=Dialect(sep=";", decimal=",")'),
        (COMMAND, "--sep ';' --decimal ','"),
        (JOB, 'sep = ";", decimal = ","'),
    ],
)
def test_the_advice_is_spelled_as_the_reader_types(tmp_path, surface, said):
    path = written(tmp_path, GERMAN)
    with options_typed_in(surface), pytest.raises(DialectError) as caught:
        read_table(path)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("semicolon", {"sep": ";", "decimal": ","}),
        ("tab", {"sep": "\t"}),
        ("latin1", {"encoding": "latin-1"}),
        ("na", {"na": ("NA",)}),
        ("thousands", {"thousands": ","}),
    ],
)
def test_tables_as_people_have_them_are_read_as_told_and_repeated(tmp_path, name, options):
    path = case_file(f"{name}.csv")
    with pytest.raises(DialectError) as caught:
        read_table(path)
    assert caught.value.found == Dialect(**options)
    table = read_table(path, dialect=caught.value.found)
    assert list(table["zip"][:2]) == ["03400", "03769"]
    assert all(pd.api.types.is_numeric_dtype(table[c]) for c in table if c != "zip")
    write_csv(table, tmp_path / "out.csv", table.attrs[AS_READ])
    assert (tmp_path / "out.csv").read_bytes() == path.read_bytes()


def test_euro_signs_as_people_have_them_are_named():
    with pytest.raises(TableError, match="has € beside each number of column 'rent'"):
        read_table(case_file("currency.csv"), ["x", "y", "rent"])


def test_a_tab_is_typed_by_its_name(tmp_path):
    path = written(tmp_path, CASES["tabs"][0])
    with options_typed_in(COMMAND), pytest.raises(DialectError, match="--sep tab"):
        read_table(path)


def test_an_encoding_is_recognised_and_said(tmp_path):
    text = "x,y,Fläche,Miete\n1.5,2.5,70,460\n2.5,1.0,80,500\n"
    path = written(tmp_path, text, "latin-1")
    with pytest.raises(DialectError, match=r"text in latin-1, not utf-8.*encoding=\"latin-1\""):
        read_table(path)
    assert "Fläche" in read_table(path, dialect=Dialect(encoding="latin-1"))
    euro = written(tmp_path, text.replace("Fläche", "Miete in €"), "cp1252")
    with pytest.raises(DialectError, match="cp1252"):
        read_table(euro)
    wide = written(tmp_path, text, "utf-16")
    with pytest.raises(DialectError, match="utf-16"):
        read_table(wide)


def test_commas_before_three_figures_each_are_not_decided_in_silence(tmp_path):
    path = written(tmp_path, "a;b;rent\n1;2;1,460\n2;1;2,336\n")
    with options_typed_in(COMMAND), pytest.raises(DialectError) as caught:
        read_table(path)
    assert "--thousands ',' if they part thousands, --decimal ',' if they are" in str(caught.value)


def test_one_decimal_sign_decides_for_the_whole_file(tmp_path):
    path = written(tmp_path, "a;b;rent\n1,5;2;1,460\n2;1;2,336\n")
    with pytest.raises(DialectError) as caught:
        read_table(path)
    assert caught.value.found == Dialect(sep=";", decimal=",")
    assert "part thousands" not in str(caught.value)


def test_a_dialect_that_is_wrong_is_told_from_the_right_one(tmp_path):
    path = written(tmp_path, "\n".join([HEAD, *ROWS]) + "\n")
    with options_typed_in(COMMAND), pytest.raises(DialectError, match=r"commas between.*--sep ','"):
        read_table(path, dialect=Dialect(sep=";"))


@pytest.mark.parametrize("cell", ["€{}", "{} €", "CHF {}", "{}%"])
def test_a_currency_sign_is_named_with_what_to_do(tmp_path, cell):
    rows = [f"{i}.5,{i * i},{cell.format(460 + i)}" for i in range(4)]
    path = written(tmp_path, "\n".join(["x,y,rent", *rows]) + "\n")
    with pytest.raises(TableError, match=r"beside each number of column 'rent'") as caught:
        read_table(path, ["rent", "x", "y"])
    assert PLANTED not in str(caught.value)
    assert read_table(path, ["x", "y"])["rent"].iloc[0] == cell.format(460)


def test_a_text_for_missing_that_is_nowhere_is_said(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("x,value\n1,99999999.0\n2,k.A.\n3,5.5\n")
    with pytest.warns(DsstanWarning, match=r"99999999.* is in no cell of t\.csv"):
        found = read_table(path, dialect=Dialect(na=("99999999", "k.A.")))
    assert found["value"].isna().tolist() == [False, True, False]


def test_codes_and_categories_are_no_numbers(tmp_path):
    text = "x,y,zip,kind,iso\n1.5,2.5,03400,a1,NA\n2.5,1.0,01234,b2,DE\n"
    table = read_table(written(tmp_path, text))
    assert list(table["zip"]) == ["03400", "01234"]
    assert list(table["iso"]) == ["NA", "DE"]


STYLES = {
    "R": '"x","zip","rent"\n12.50,"03400",460.06\n1.25,"0,3",336.40\n',
    "everything quoted": '"x","zip","rent"\n"12.50","03400","460.06"\n"1.25","","336.40"\n',
    "Windows": "x,zip,rent\r\n12.50,03400,460.06\r\n1.25,a,336.40\r\n",
    "digits": "x,zip,rent\n+12.50,03400,1E3\n 1.250 ,a,336.40\n",
}


@pytest.mark.parametrize("name", STYLES)
def test_cells_quotes_and_line_ends_stay_as_they_are(tmp_path, name):
    path = written(tmp_path, STYLES[name])
    table = read_table(path, ["x", "rent"])
    write_csv(table, tmp_path / "out.csv", table.attrs[AS_READ])
    assert (tmp_path / "out.csv").read_bytes() == path.read_bytes()


def test_a_byte_order_mark_stays(tmp_path):
    path = written(tmp_path, "\ufeff" + STYLES["R"])
    table = read_table(path)
    assert list(table) == ["x", "zip", "rent"]
    write_csv(table, tmp_path / "out.csv", table.attrs[AS_READ])
    assert (tmp_path / "out.csv").read_bytes() == path.read_bytes()


def test_a_value_that_changed_is_never_written_as_it_stood(tmp_path):
    path = written(tmp_path, STYLES["digits"])
    table = read_table(path, ["x", "rent"])
    table.loc[1, "x"] = 7.0
    write_csv(table, tmp_path / "out.csv", table.attrs[AS_READ], ["rent"])
    rows = [line.split(",") for line in (tmp_path / "out.csv").read_text().splitlines()]
    assert [row[0] for row in rows] == ["x", "12.5", "7.0"]
    assert [row[2] for row in rows] == ["rent", "1000.0", "336.4"]


def test_synthetic_numbers_have_the_thousands_of_their_column(tmp_path):
    text = 'x,rent\n1.5,"460,060"\n2.5,"1,336,400"\n'
    table = read_table(written(tmp_path, text), dialect=Dialect(thousands=","))
    table["rent"] = [1234567, -89]
    write_csv(table, tmp_path / "out.csv", table.attrs[AS_READ], ["rent"])
    assert (tmp_path / "out.csv").read_text() == 'x,rent\n1.5,"1,234,567"\n2.5,-89\n'


def test_an_encoding_that_lacks_a_sign_is_an_error(tmp_path):
    table = pd.DataFrame({"a": ["€"]})
    with pytest.raises(ReleaseError, match="latin-1, which lacks a sign"):
        write_csv(table, tmp_path / "out.csv", TextAsRead("csv", Dialect(encoding="latin-1")))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"sep": ";;"}, "sep must be one sign"),
        ({"sep": '"'}, "sep must be one sign"),
        ({"decimal": ";"}, "decimal must be"),
        ({"thousands": "."}, "thousands must be one sign"),
        ({"thousands": "7"}, "thousands must be one sign"),
        ({"encoding": "klingon"}, "encoding must be the name of one"),
        ({"encoding": "base64"}, "encoding must be the name of one"),
        ({"na": ("",)}, "na must be texts"),
    ],
)
def test_a_dialect_that_is_none_is_refused(options, said):
    with pytest.raises(InputError, match=said):
        Dialect(**options)


@pytest.fixture(scope="module")
def german(tmp_path_factory):
    """A release of a table with semicolons, decimal commas and trailing zeros, in Latin-1."""
    folder = tmp_path_factory.mktemp("german")
    table = small_table(30, seed=9, shared=4).round(3)
    table["straße"] = [f"Weg {i}; Süd" for i in range(30)]
    rows = ["east;north;x;value;straße"]
    for _, row in table.iterrows():
        numbers = (f"{row[c]:.4f}".replace(".", ",") for c in ("east", "north", "x", "value"))
        rows.append(";".join([*numbers, f'"{row["straße"]}"']))
    path = folder / "in.csv"
    path.write_bytes(("\r\n".join(rows) + "\r\n").encode("latin-1"))
    read = read_table(
        path, ["east", "north", "x", "value"], dialect=Dialect(";", ",", None, "latin-1")
    )
    release = ds.protect(
        *(read, "log(value) ~ x"),
        coords=("east", "north"),
        threshold=0.15,
        copies=4,
        seed=3,
        engine="direct",
        accept_failed=True,
        publish=["straße"],
    )
    return path, release, release.write(folder / "r", report=False)


def test_copies_are_the_file_but_for_the_synthetic_column(german):
    path, _, folder = german
    truth = path.read_bytes().decode("latin-1").split("\r\n")
    for name in ("copy_001.csv", "copy_002.csv"):
        copy = (folder / "public" / name).read_bytes().decode("latin-1").split("\r\n")
        assert len(copy) == len(truth)
        for own, made in zip(truth[:-1], copy[:-1], strict=True):
            ours, theirs = own.split(";"), made.split(";")
            assert [*ours[:3], *ours[4:]] == [*theirs[:3], *theirs[4:]]
        assert [line.split(";")[3] for line in copy[1:-1]] != [
            line.split(";")[3] for line in truth[1:-1]
        ]


def test_a_release_in_another_dialect_is_read_back(german):
    from dsstan.release.reading import read_release

    _, release, folder = german
    found = read_release(folder)
    for number, copy in enumerate(found.copies):
        np.testing.assert_array_equal(copy["value"], release.table(number)["value"])
        assert list(copy["straße"]) == list(release.table(number)["straße"])


def test_the_readme_of_an_analyst_reads_the_copies_in_pandas(german):
    _, release, folder = german
    text = (folder / "public" / "README.md").read_text()
    call = text[text.index("pandas.read_csv(") : text.index("    read.table(")]
    call = call.replace('"copy_001.csv"', "path")
    copy = eval(call.strip(), {"pandas": pd, "path": folder / "public" / "copy_001.csv"})
    np.testing.assert_allclose(copy["value"], release.table(0)["value"], rtol=1e-15)


def test_a_dialect_can_be_asked_for_and_is_of_csv_alone(german, tmp_path):
    _, release, _ = german
    folder = release.write(tmp_path / "r", report=False, dialect=Dialect(sep="\t"))
    copy = pd.read_csv(io.BytesIO((folder / "public" / "copy_001.csv").read_bytes()), sep="\t")
    np.testing.assert_allclose(copy["east"], release.table(0)["east"], rtol=1e-15)
    with pytest.raises(InputError, match="dialect is of CSV"):
        release.write(tmp_path / "p", format="parquet", dialect=Dialect(sep="\t"))


def test_a_line_that_does_not_end_is_not_read_to_its_end(tmp_path, monkeypatch):
    path = tmp_path / "a.csv"
    path.write_text("\n".join([HEAD, *ROWS, "1" * 2000]))
    monkeypatch.setattr("dsstan.table.text.csv._LONGEST_LINE", 1000)
    with pytest.raises(InputError, match="has a line of more than"):
        read_table(path)
