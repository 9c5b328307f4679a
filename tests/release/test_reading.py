"""What others wrote is read as data: tables, public releases, job files, text in cells."""

from __future__ import annotations

import ast
import dataclasses
import json
import shutil
from pathlib import Path

import jsonschema
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dsstan as ds
from conftest import ROOT, small_table
from dsstan.cli.command_line import synthesise as command
from dsstan.cli.job import read_job
from dsstan.core.errors import InputError, ReleaseError
from dsstan.release.metadata import SCHEMA, check_metadata
from dsstan.release.reading import read_release, read_table
from dsstan.table.text.cells import is_formula

QUICK = {"chains": 2, "warmup": 300, "samples": 500, "engine": "embedded", "progress": False}

JOB = """
table = "in.csv"
formula = "log(value) ~ x"
coords = ["east", "north"]
out = "out"
"""


# Tables


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("a,b\n1,2,3\n4,5,6\n", r"more or fewer cells in 2 rows"),
        ("id,price\n0,88000,\n1,90000,\n2,91000,\n", r"more or fewer cells in 3 rows"),
        ("x,price\n0,0.3,88000\n1,0.4,90000\n", r"more or fewer cells in 2 rows"),
        ("a,b\n1,2\n3,4,5\n", r"1 row \(position 1"),
        ("a,b\n1,2\n3\n", r"1 row \(position 1"),
        ("a,a\n1,2\n", "columns 1 and 2 of in.csv have the same name"),
        ("\na,a\n1,2\n", "begins with a blank line"),
        ("a,b\n1,2\n\n3,4\n", "blank line, line 3"),
        ("a,\n1,2\n", "no name for column 2"),
        ("a,b\n", "no record"),
        ("", "is empty"),
    ],
)
def test_a_table_that_needs_a_guess_is_refused(tmp_path, content, said):
    path = tmp_path / "in.csv"
    path.write_text(content)
    with pytest.raises(InputError, match=said):
        read_table(path)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("flats.xls", r"save it as \.xlsx$"),
        ("flats.sas7bdat", r"save it as \.xpt$"),
        ("flats.kml", r"save it as \.gpkg$"),
        ("flats.doc", r"is of no kind that is read \(\.csv, .*\.xpt\): save it as one of these$"),
    ],
)
def test_a_file_of_another_kind_is_refused_with_what_to_save_it_as(tmp_path, name, said):
    with pytest.raises(InputError, match=said):
        read_table(tmp_path / name)


@pytest.mark.parametrize(
    "text",
    [
        "0,88000,8.05\n1,90000,7.25\n",
        '"1 Elm St","37.1N","$88,000"\n"2 Elm St","37.2N","$90,000"\n',
    ],
)
def test_a_file_without_a_header_is_refused_and_its_first_record_is_not_shown(tmp_path, text):
    path = tmp_path / "in.csv"
    path.write_text(text)
    with pytest.raises(InputError, match="numbers where names of columns are needed") as caught:
        read_table(path)
    assert not any(part in str(caught.value) for part in ("88000", "88,000", "Elm"))


ODD = """zip,parcel,iso,phone,flag,code,amount,open,x
01000,9007199254740993,NA,+4412,TRUE,12E4,1.50,True,1.50
,,None,+4413,FALSE,13E4,,,2
02000,3,DE,,TRUE,,2.25,False,3.0
"""


def test_columns_that_are_not_needed_are_repeated_to_the_letter(tmp_path):
    """What pandas guesses of a code, an identifier or a country is another value."""
    path, back = tmp_path / "in.csv", tmp_path / "back.csv"
    path.write_text(ODD)
    read_table(path, used=["x"]).to_csv(back, index=False)
    rows = [line.split(",") for line in back.read_text().splitlines()]
    assert [row[:-1] for row in rows] == [line.split(",")[:-1] for line in ODD.splitlines()]
    assert [row[-1] for row in rows[1:]] == ["1.5", "2.0", "3.0"]


def test_needed_columns_are_numbers_and_codes_stay_text(tmp_path):
    path = tmp_path / "in.csv"
    path.write_text(ODD)
    table = read_table(path)
    assert list(table["amount"].dropna()) == [1.5, 2.25]
    assert table["parcel"].dtype == "Int64"
    assert table["parcel"][0] == 9007199254740993
    assert list(table["zip"].dropna()) == ["01000", "02000"]
    assert list(table["iso"]) == ["NA", "None", "DE"]


def test_a_whole_number_that_no_integer_holds_stays_text(tmp_path):
    path = tmp_path / "in.csv"
    path.write_text("a,b\n123456789012345678901234567890,1\n2,2\n")
    assert list(read_table(path)["a"]) == ["123456789012345678901234567890", "2"]


def test_leading_zeros_stay(tmp_path):
    path = tmp_path / "in.csv"
    path.write_text("code,n,x\n01234,1,0.50\n00999,20,1\n")
    table = read_table(path)
    assert list(table["code"]) == ["01234", "00999"]
    assert list(table["n"]) == [1, 20]
    assert list(table["x"]) == [0.5, 1.0]


# Releases


@pytest.fixture(scope="module")
def releases(tmp_path_factory, small):
    """A release in each format, with text that a spreadsheet would run, quoted in CSV."""
    table = small_table(30, seed=9, shared=4)
    table["note"] = ["=1+1", "'=x", "@a", "-5", "plain", "+b"] * 5
    table["kind"] = pd.Categorical(["=c", "d", "e"] * 10)
    table["when"] = pd.date_range("2020-02-28", periods=30)
    table["gaps"] = pd.array([1, None, 3] * 10, dtype="Int64")
    table.index = pd.Index([f"=i{i}" for i in range(30)], name="id")
    named = ["note", "kind", "when", "gaps"]
    problem = ds.prepare(table, "log(value) ~ x", coords=("east", "north"), publish=named)
    release = ds.synthesise(ds.fit(problem, seed=1, **QUICK), 3, seed=2, accept_failed=True)
    folder = tmp_path_factory.mktemp("releases")
    written = {
        kind: release.write(folder / kind, format=kind, csv_text="quote")
        for kind in ("csv", "parquet")
    }
    return release, written


@pytest.fixture
def public(releases, tmp_path):
    """A copy of the public side in CSV, to be damaged."""
    return Path(shutil.copytree(releases[1]["csv"] / "public", tmp_path / "public"))


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("part", ["", "public"])
def test_a_release_is_read_back_with_all_it_holds(releases, kind, part):
    release, written = releases
    back = read_release(written[kind] / part)
    assert back.metadata["copies"] == 3
    assert back.synthetic_column == "value"
    for number, copy in enumerate(back):
        wanted = release.table(number)
        pd.testing.assert_frame_equal(
            copy, wanted, check_exact=True, check_index_type=False, check_categorical=kind != "csv"
        )


def test_metadata_meets_its_schema(releases):
    schema = json.loads((ROOT / "docs" / "metadata.schema.json").read_text())
    assert schema == SCHEMA, "python -m dsstan.release.metadata > docs/metadata.schema.json"
    jsonschema.Draft202012Validator.check_schema(schema)
    for folder in releases[1].values():
        content = json.loads((folder / "public" / "metadata.json").read_text())
        jsonschema.Draft202012Validator(schema).validate(content)
        assert check_metadata(content) is None


def change(public, **keys):
    path = public / "metadata.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **keys}))


def test_read_release_follows_no_link(public, tmp_path):
    secret = tmp_path / "secret.csv"
    (public / "copy_002.csv").rename(secret)
    (public / "copy_002.csv").symlink_to(secret)
    with pytest.raises(ReleaseError, match=r"copy_002\.csv .* is no plain file"):
        read_release(public)


def test_read_release_follows_no_link_to_its_public_side(public, tmp_path):
    (tmp_path / "whole").mkdir()
    (tmp_path / "whole" / "public").symlink_to(public)
    with pytest.raises(ReleaseError, match="is a link"):
        read_release(tmp_path / "whole")


def longer(public):
    """One cell too many in every row of a copy."""
    path = public / "copy_001.csv"
    header, *rows = path.read_text().splitlines()
    path.write_text("\n".join([header, *(f"{row},1" for row in rows)]) + "\n")


@pytest.mark.parametrize(
    "name", ["../secret.csv", "/etc/passwd", "copy_1.csv", "copy_001.pickle", "copy_001.csv\n"]
)
def test_read_release_reads_no_file_outside_its_folder(public, name):
    change(public, files=["copy_001.csv", "copy_002.csv", name])
    with pytest.raises(ReleaseError, match="'files' that is not allowed"):
        read_release(public)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda p: (p / "metadata.json").unlink(), "metadata.json .* is missing"),
        (lambda p: (p / "copy_003.csv").unlink(), "copy_003.csv .* is missing"),
        (lambda p: (p / "metadata.json").write_text("{"), "can't be read as JSON"),
        (lambda p: (p / "metadata.json").write_text("[" * 9999), "can't be read as JSON"),
        (lambda p: (p / "metadata.json").write_text('{"a": NaN}'), "can't be read as JSON"),
        (lambda p: change(p, seed=1), "a key that is not allowed"),
        (lambda p: change(p, copies=2), "each copy once"),
        (lambda p: change(p, records=29), "another number of records"),
        (lambda p: change(p, synthetic_column="no"), "among the columns"),
        (lambda p: change(p, synthetic_column="note"), "finite numbers|can't be read"),
        (lambda p: (p / "copy_001.csv").write_bytes(b"\xff\xfe"), "can't be read"),
        (lambda p: (p / "copy_001.csv").write_text("a\n1\n"), "can't be read|other columns"),
        (longer, "can't be read"),
        (lambda p: change(p, index_columns=10**9), "other columns"),
    ],
)
def test_a_damaged_release_is_refused_by_the_name_of_its_file(public, damage, said):
    damage(public)
    with pytest.raises(ReleaseError, match=said):
        read_release(public)


def test_the_rows_of_a_parquet_copy_are_counted_before_it_is_read(releases, tmp_path, monkeypatch):
    """A small file may unpack to any size."""
    public = Path(shutil.copytree(releases[1]["parquet"] / "public", tmp_path / "public"))
    many = pa.table({"value": np.zeros(1_000_000)})
    path = public / "copy_001.parquet"
    with pq.ParquetWriter(path, many.schema) as writer:
        for _ in range(50):
            writer.write_table(many)
    assert path.stat().st_size < 1_000_000
    monkeypatch.setattr(pq, "read_table", pytest.fail)
    with pytest.raises(ReleaseError, match="another number of records"):
        read_release(public)


def test_rows_of_a_csv_copy_are_counted_no_further_than_the_metadata_say(public):
    path = public / "copy_001.csv"
    head, first, *rest = path.read_text().splitlines()
    unread = ["", first]  # else the blank line would be what is wrong
    path.write_text("\n".join([head, first, *rest, *[first] * 1000, *unread]) + "\n")
    with pytest.raises(ReleaseError, match="another number of records"):
        read_release(public)


def test_a_release_that_says_it_is_vast_is_not_read(public, monkeypatch):
    monkeypatch.setattr("dsstan.release.reading._copy", pytest.fail)
    change(public, records=2**30)
    with pytest.raises(ReleaseError, match="describes more than is read at once"):
        read_release(public)


def test_copies_that_differ_in_what_is_not_synthetic_are_refused(public):
    path = public / "copy_002.csv"
    path.write_text(path.read_text().replace("plain", "other", 1))
    with pytest.raises(ReleaseError, match=r"copy_002\.csv .* differs from the first copy"):
        read_release(public)


# Text that a spreadsheet would run


@pytest.mark.parametrize(
    ("text", "runs"),
    [
        ('=HYPERLINK("http://x","y")', True),
        ("=1", True),
        ("@SUM(1)", True),
        ("+A1", True),
        ("-cmd|' /C calc'!A0", True),
        ("\t=1", True),
        ("\r=1", True),
        (" =1", True),
        ("a;=HYPERLINK(1)", True),
        ("flat\n-cmd|' /C'!A0", True),
        ("\uff1d1+1", True),
        ("\u00a0=1", True),
        ("\u200b\ufeff=1", True),
        ("good; -10% off", False),
        ("a; -small", False),
        ("-5", False),
        ("+44 20 7946 0000", False),
        ("-", False),
        ("--", False),
        ("a=1", False),
        ("", False),
        (5, False),
        (None, False),
    ],
)
def test_what_begins_like_a_formula_is_told_from_what_does_not(text, runs):
    assert is_formula(text) is runs


def with_table(kept, table):
    """Copies of a fit, as if its table had been another with the same responses."""
    problem = dataclasses.replace(kept.problem, table=table, publish=tuple(table.columns))
    start = dataclasses.replace(kept.start, problem=problem)
    fit = dataclasses.replace(kept, problem=problem, start=start)
    return dataclasses.replace(ds.synthesise(kept, 3, seed=1), fit=fit)


def test_every_level_of_an_index_is_looked_at(kept, tmp_path):
    table = kept.problem.table.copy()
    table.index = pd.MultiIndex.from_arrays(
        [[f"=HYPERLINK({i})" for i in range(60)], ["fine"] * 60], names=["a", "b"]
    )
    release = with_table(kept, table)
    with pytest.raises(ReleaseError, match="the index holds text that begins like a formula"):
        release.write(tmp_path / "out")


def test_a_formula_after_a_semicolon_is_refused_where_an_apostrophe_would_not_help(kept, tmp_path):
    table = kept.problem.table.assign(note=["a;=1+1"] * 60)
    release = with_table(kept, table)
    with pytest.raises(ReleaseError, match="after a semicolon"):
        release.write(tmp_path / "out", csv_text="quote")
    assert release.write(tmp_path / "out", csv_text="keep", report=False).is_dir()


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_text_that_is_no_unicode_is_told_and_leaves_nothing(kept, tmp_path, kind):
    table = kept.problem.table.assign(note=pd.Series(["\ud800"] * 60, dtype=object))
    release = with_table(kept, table)
    with pytest.raises(ReleaseError, match="no Unicode"):
        release.write(tmp_path / "out", format=kind)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("where", ["column", "category", "index", "name"])
def test_text_that_a_spreadsheet_would_run_is_refused(kept, tmp_path, where):
    table = kept.problem.table.copy()
    if where == "column":
        table["note"] = ["=4321"] + ["a"] * 59
    elif where == "category":
        table["note"] = pd.Categorical(["=4321"] + ["a"] * 59)
    elif where == "index":
        table.index = pd.Index(["=4321", *map(str, range(59))])
    else:
        table["=4321"] = 1.0
    release = with_table(kept, table)
    with pytest.raises(ReleaseError, match="begins like a formula") as caught:
        release.write(tmp_path / "out")
    assert where == "name" or "4321" not in str(caught.value)
    assert not (tmp_path / "out").exists()
    assert release.write(tmp_path / "kept", csv_text="keep").is_dir()
    assert release.write(tmp_path / "parquet", format="parquet").is_dir()
    with pytest.raises(InputError, match="csv_text must be one of refuse, quote, keep"):
        release.write(tmp_path / "x", csv_text="x")


def test_quoted_text_is_read_back_as_it_was(releases):
    release, written = releases
    raw = (written["csv"] / "public" / "copy_001.csv").read_text()
    assert "'=1+1" in raw
    assert not any(
        is_formula(cell.strip('"')) for line in raw.splitlines() for cell in line.split(",")
    )
    back = read_release(written["csv"])
    assert list(back.copies[0]["note"]) == list(release.problem.table["note"])
    assert list(back.copies[0].index) == list(release.problem.table.index)


# Jobs


@pytest.fixture
def job(tmp_path):
    def write(text):
        path = tmp_path / "job.toml"
        path.write_text(text)
        return path

    return write


def test_a_job_gives_every_option_its_value(job, tmp_path):
    found = read_job(
        job(
            JOB + "seed = 340282366920938463463374607431768211455\ngamma = inf\ncopies = 5\n"
            "phi_bounds = [1, 2.5]\nstrict = true\n"
        ),
        command,
    )
    assert found["table"] == tmp_path / "in.csv"
    assert found["out_folder"] == tmp_path / "out"
    assert found["coords"] == ("east", "north")
    assert found["seed"] == 2**128 - 1
    assert found["gamma"] == np.inf
    assert found["phi_bounds"] == (1.0, 2.5)
    assert found["strict"] is True
    assert found["engine"] == "auto"


@pytest.mark.parametrize(
    ("key", "guess"), [("copie", "copies"), ("colour", None), ("Seed", "seed")]
)
def test_an_unknown_key_is_refused_with_the_likely_one(job, key, guess):
    with pytest.raises(InputError, match=f"key '{key}'") as caught:
        read_job(job(JOB + f"{key} = 1"), command)
    assert (f"Did you mean {guess!r}?" in str(caught.value)) is (guess is not None)


BAD_JOBS = [
    (JOB.replace("formula", "#"), "lacks the key 'formula'"),
    (JOB + "copies = 2.5", "copies .* must be a whole number"),
    (JOB + "copies = true", "copies .* must be a whole number"),
    (JOB + 'gamma = "inf"', "gamma .* must be a number"),
    (JOB + "strict = 1", "strict .* must be true or false"),
    (JOB + "engine = 1", "engine .* must be text"),
    (JOB + "phi_bounds = [1]", "phi_bounds .* list of 2"),
    (JOB.replace('["east", "north"]', '"east north"'), "coords .* list of 2"),
    (JOB.replace('"in.csv"', "1"), "table .* must be a path"),
    (JOB + "copies = ", "not TOML: look at end of document"),
    (JOB + 'x = "\\ud800"', "not TOML|can't be read"),
    ("a = " + "[" * 9999, "not TOML|can't be read"),
    ("a = 1" + "0" * 9999, "can't be read as TOML: a number is too long"),
    (JOB.replace('"in.csv"', '"~nobodyatall/in.csv"'), "begins with ~ and an unknown user"),
    ("#" * 1_000_001, "too large"),
]


@pytest.mark.parametrize(("text", "said"), BAD_JOBS)
def test_a_job_that_can_not_be_used_says_why(job, text, said):
    with pytest.raises(InputError, match=said):
        read_job(job(text), command)


def test_a_job_with_a_byte_order_mark_is_read(tmp_path):
    path = tmp_path / "job.toml"
    path.write_bytes(b"\xef\xbb\xbf" + JOB.encode())
    assert read_job(path, command)["formula"] == "log(value) ~ x"


def test_a_job_that_is_not_there_is_named(tmp_path):
    with pytest.raises(InputError, match="no job file"):
        read_job(tmp_path / "no.toml", command)


# The code itself


def test_no_module_unpickles_or_evaluates():
    """Calls that would turn data into code, by name, in every module of the package."""
    forbidden = {
        *("eval", "exec", "compile", "__import__", "read_pickle", "to_pickle", "unsafe_load"),
        *(
            "shell",
            "allow_pickle",
            "yaml",
            "pickle",
            "dill",
            "cloudpickle",
            "joblib",
            "shelve",
            "marshal",
        ),
    }
    found = []
    for path in sorted((ROOT / "dsstan").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name.split(".")[0] for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [(node.module or "").split(".")[0]]
            elif isinstance(node, ast.Call):
                called = node.func
                if isinstance(called, ast.Name):
                    names = [called.id]
                elif isinstance(called, ast.Attribute) and called.attr != "compile":  # re.compile
                    names = [called.attr]
                shell = [k for k in node.keywords if k.arg in ("shell", "allow_pickle")]
                names += [k.arg for k in shell if getattr(k.value, "value", True)]
            found += [
                f"{path.name}: {n}" for n in names if n in {*forbidden, "shell", "allow_pickle"}
            ]
    assert found == []
