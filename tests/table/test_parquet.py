"""Parquet read by row groups: the same problem and the same copies, without the whole table."""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dsstan as ds
from dsstan.copies.draw import find_digits
from dsstan.copies.published import check_public
from dsstan.copies.result import Synthesis
from dsstan.core.errors import CoordinateError, FormulaError, InputError, ReleaseError, TableError
from dsstan.release import parquet_copies as copies_module
from dsstan.release.copy_files import how_written
from dsstan.release.reading import read_release
from dsstan.release.write import _write_public, write_release
from dsstan.table.formats import parquet_source as source_module
from dsstan.table.parquet import ParquetProblem, prepare_parquet

N = 1500
GROUP = 230
"""Rows of a row group: seven of them, the last one short."""

FORMULA = "log(price) ~ scale(area) + C(storeys) + town + heating"
WHERE = {"coords": ("east", "north"), "name": "homes"}

MOST_OF_TABLE, MOST_OF_READING = 0.6, 0.35
"""Peak beyond that of an idle process, as a share of the table as pandas holds it, and of what
reading it with pandas takes at its peak. Measured: 0.48 and 0.26; most of it is pages of 63 columns
that are open at once, which do not grow with the records."""


def homes(n=N):
    """Records with a column of each kind."""
    rng = np.random.default_rng(7)
    text = np.array(["brick", "wood", "stone", "mixed"])[rng.integers(0, 4, n)].astype(object)
    notes = np.array([f"no. {k}: seen" for k in rng.permutation(n)], dtype=object)
    notes[rng.random(n) < 0.1] = None
    table = pd.DataFrame(
        {
            "visits": rng.poisson(3.0, n).astype(np.int16),
            "note": notes,
            "east": rng.uniform(0, 10, n),
            "north": rng.uniform(0, 10, n).astype(np.float32),
            "area": rng.normal(90.0, 20.0, n).astype(np.float32).clip(20),
            "storeys": rng.integers(1, 4, n).astype(np.int8),
            "price": np.exp(rng.normal(7.0, 0.5, n)).round().astype(np.int32),
            "town": pd.Categorical.from_codes(rng.integers(0, 3, n), ["west", "east", "mid"]),
            "grade": pd.Categorical.from_codes(
                rng.integers(0, 3, n), ["low", "mid", "high", "none has it"], ordered=True
            ),
            "heating": text,
            "sold": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 9e7, n), unit="s"),
            "zoned": pd.to_datetime(rng.integers(0, 10**9, n), unit="s", utc=True),
            "day": [datetime.date(2020, 1, 1 + int(k)) for k in rng.integers(0, 28, n)],
            "floor": pd.array(rng.integers(0, 9, n), dtype="Int64"),
            "gaps": pd.array(np.where(rng.random(n) < 0.2, None, 4), dtype="Int32"),
            "garden": rng.random(n) < 0.5,
            "empty": np.full(n, np.nan),
        },
        index=pd.Index([f"id{k}" for k in rng.permutation(n)], name="record"),
    )
    # The first row groups lack a level, so that levels must not be those of a row group.
    table.loc[table.index[: min(2 * GROUP, n // 3)], "heating"] = "wood"
    table.loc[table.index[: min(2 * GROUP, n // 3)], "town"] = "mid"
    table.loc[table.index[3], ["heating", "town"]] = ["brick", "west"]
    table.attrs = {"author": "nobody must read this"}
    return table


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("source") / "homes.parquet"
    homes().to_parquet(path, row_group_size=GROUP)
    assert pq.ParquetFile(path).num_row_groups == 7
    return path


@pytest.fixture(scope="module")
def ordinary(file):
    return ds.prepare(pd.read_parquet(file), FORMULA, **WHERE)


@pytest.fixture(scope="module")
def streamed(file):
    return prepare_parquet(file, FORMULA, **WHERE)


def drawn(problem, copies=3, weights=None):
    """Copies that no model drew, of all columns: what is written does not depend on a model."""
    everything = tuple(name for name in problem.columns if weights is None or name != "garden")
    problem = replace(problem, publish=everything)
    told = {"cov_model": "exponential", "outcome": "Gaussian", "protection": "none"}
    told |= {"other_columns": (), "informing": np.ones(problem.n_records, dtype=bool)}
    fit = SimpleNamespace(problem=problem, weights=weights, start=None, public_note="", **told)
    rng = np.random.default_rng(1)
    y = problem.y[None] + rng.normal(0, 0.3, (copies, problem.n_records))
    width = getattr(problem.table[problem.response].dtype, "numpy_dtype", None)
    values = [problem.with_response(problem.transform.inverse(v))[problem.response] for v in y]
    held = np.stack([v.to_numpy(dtype=np.float64) for v in values])
    assert width is None or held.shape == (copies, problem.n_records)
    picks = np.zeros((copies, 2), dtype=np.intp)
    return Synthesis(fit, held, "w", picks, 0, 0.0, rounding=find_digits(fit, 1))


def written(problem, folder, copies=3, **more):
    folder.mkdir()
    release = drawn(problem, copies, **more)
    check_public(release)
    how = how_written(problem.table, "parquet", "refuse", by_row_groups=problem.by_row_groups)
    _write_public(release, folder, how, page=True)
    return folder


def same_bytes(one, other):
    """Tables equal in columns, types, index, and every value to the last bit."""
    pd.testing.assert_frame_equal(one, other, check_exact=True, check_freq=False)
    for name in one.select_dtypes("number"):
        a, b = (t[name].to_numpy(dtype=np.float64, na_value=np.nan) for t in (one, other))
        assert a.tobytes() == b.tobytes()


# --- the problem


def test_the_arrays_are_those_of_prepare_to_the_last_bit(ordinary, streamed):
    for name in ("y", "X", "coords", "sites", "site", "observed"):
        a, b = getattr(ordinary, name), getattr(streamed, name)
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        assert a.tobytes() == b.tobytes()
    assert repr(streamed) == repr(ordinary)
    assert streamed.terms == ordinary.terms
    assert streamed.d_max == ordinary.d_max
    assert streamed.table.index.equals(ordinary.table.index)
    assert streamed.original().tobytes() == ordinary.original().tobytes()


def test_only_the_needed_columns_are_in_memory_in_narrow_types(streamed, ordinary):
    held = ["east", "north", "area", "storeys", "price", "town", "heating"]
    assert list(streamed.table.columns) == held
    assert streamed.columns == list(ordinary.table.columns)
    types = streamed.table.dtypes.astype(str).to_dict()
    assert types["north"] == "float32"
    assert types["storeys"] == "int8"
    assert types["heating"] == "category"


@pytest.mark.parametrize("rows", [17, 100, 10**6])
def test_levels_and_arrays_do_not_depend_on_the_pieces(file, ordinary, monkeypatch, rows):
    monkeypatch.setattr(source_module, "LEAST", rows)
    monkeypatch.setattr(source_module, "MOST", rows)
    again = prepare_parquet(file, FORMULA, **WHERE)
    assert again.terms == ordinary.terms
    assert again.X.tobytes() == ordinary.X.tobytes()


def test_types_of_all_columns_are_those_that_pandas_reads(streamed, file):
    assert streamed.types == pd.read_parquet(file).dtypes.astype(str).to_dict()


def test_whole_numbers_and_truth_values_with_gaps_are_read_as_pandas_does(tmp_path):
    table = homes(300).reset_index(drop=True)
    arrow = pa.Table.from_pandas(table[["east", "north", "price"]]).replace_schema_metadata({})
    arrow = arrow.append_column("n", pa.array([None if k % 9 == 0 else k % 7 for k in range(300)]))
    arrow = arrow.append_column("b", pa.array([None if k == 299 else True for k in range(300)]))
    path = tmp_path / "plain.parquet"
    pq.write_table(arrow, path, row_group_size=50)
    problem = prepare_parquet(path, "price ~ 1", coords=("east", "north"))
    back = pd.read_parquet(path)
    assert problem.types == back.dtypes.astype(str).to_dict()
    assert problem.table.index.equals(back.index)
    copy = pq.read_table(written(problem, tmp_path / "out") / "copy_001.parquet")
    assert copy.schema.equals(arrow.schema, check_metadata=False)
    assert copy.schema.pandas_metadata is None


# --- the copies


def test_copies_hold_the_bytes_and_types_of_the_ordinary_ones(ordinary, streamed, tmp_path):
    one, other = written(ordinary, tmp_path / "one"), written(streamed, tmp_path / "other")
    assert {p.name for p in one.iterdir()} == {p.name for p in other.iterdir()}
    for k in (1, 2, 3):
        name = f"copy_00{k}.parquet"
        same_bytes(pd.read_parquet(one / name), pd.read_parquet(other / name))
    for name in ("metadata.json", "README.md", "factsheet.html"):
        assert (one / name).read_text() == (other / name).read_text()
    assert read_release(other).metadata["columns"] == streamed.types


def test_copies_have_the_schema_and_row_groups_of_the_source(streamed, file, tmp_path):
    copy = pq.ParquetFile(written(streamed, tmp_path / "out") / "copy_002.parquet")
    source = pq.ParquetFile(file)
    assert copy.schema_arrow.equals(source.schema_arrow, check_metadata=False)
    assert copy.num_row_groups == source.num_row_groups
    ours, theirs = (f.read().drop(["price"]) for f in (copy, source))
    assert ours.to_pandas().equals(theirs.to_pandas().assign(grade=ours.to_pandas()["grade"]))


def test_copies_hold_nothing_of_pandas_own_and_no_level_that_no_record_has(streamed, tmp_path):
    folder = written(streamed, tmp_path / "out")
    content = (folder / "copy_001.parquet").read_bytes()
    assert b"nobody must read this" not in content
    assert b"none has it" not in content
    grade = pd.read_parquet(folder / "copy_001.parquet")["grade"].cat
    assert grade.ordered
    assert list(grade.categories) == ["low", "mid", "high"]


def test_every_value_of_the_response_is_synthetic_in_every_row_group(streamed, tmp_path):
    folder = written(streamed, tmp_path / "out", copies=6)
    values = np.stack([pd.read_parquet(p)["price"] for p in sorted(folder.glob("*.parquet"))])
    np.testing.assert_array_equal(values, drawn(streamed, 6).values)


def test_a_column_of_weights_is_withheld(file, tmp_path):
    problem = prepare_parquet(file, "log(price) ~ 1", also=["garden"], **WHERE)
    weights = ds.own_weights(problem, "garden")
    folder = written(problem, tmp_path / "out", weights=weights)
    assert "garden" not in pq.read_schema(folder / "copy_001.parquet").names
    assert "garden" not in json.loads((folder / "metadata.json").read_text())["columns"]


@pytest.mark.parametrize("index", ["count", "from 100", "named", "two levels"])
def test_an_index_of_pandas_is_published_as_the_ordinary_route_does(tmp_path, index):
    table = homes(300)
    if index != "two levels":
        first = {"count": 0, "from 100": 100, "named": 0}[index]
        name = "number" if index == "named" else None
        table.index = pd.RangeIndex(first, first + 300, name=name)
    else:
        table = table.set_index("note", append=True)
    path = tmp_path / "t.parquet"
    table.to_parquet(path, row_group_size=70)
    one = ds.prepare(pd.read_parquet(path), "log(price) ~ area", **WHERE)
    other = prepare_parquet(path, "log(price) ~ area", **WHERE)
    assert other.table.index.equals(one.table.index)
    folders = written(one, tmp_path / "one"), written(other, tmp_path / "other")
    same_bytes(*(pd.read_parquet(f / "copy_003.parquet") for f in folders))
    described = [json.loads((f / "metadata.json").read_text()) for f in folders]
    assert described[0] == described[1]


def test_a_folder_of_files_is_one_table(tmp_path, ordinary):
    table = homes().reset_index()
    folder = tmp_path / "parts"
    folder.mkdir()
    for k, first in enumerate(range(0, N, 400)):
        part = table.iloc[first : first + 400].reset_index(drop=True)
        part.to_parquet(folder / f"part{k}.parquet", row_group_size=150)
    (folder / "_SUCCESS").touch()
    whole = prepare_parquet(folder, FORMULA, **WHERE)
    assert whole.X.tobytes() == ordinary.X.tobytes()
    assert whole.table.index.equals(pd.RangeIndex(N))
    back = pd.read_parquet(written(whole, tmp_path / "out") / "copy_001.parquet")
    given = pd.read_parquet(folder)
    given["grade"] = given["grade"].cat.remove_unused_categories()
    same_bytes(back.drop(columns="price"), given.drop(columns="price"))


def test_a_whole_release_by_vecchias_approximation(tmp_path):
    from dsstan.covariance.approximations import Vecchia

    file = tmp_path / "few.parquet"
    homes(500).to_parquet(file, row_group_size=80)
    common = dict(coords=("east", "north"), copies=4, threshold=0.5, seed=5, progress=False)
    common |= dict(chains=2, warmup=200, samples=200, engine="embedded", accept_failed=True)
    common |= dict(covariance=Vecchia(neighbours=6), by_row_groups=True)
    release = ds.protect(file, "log(price) ~ scale(area) + town", **common)
    assert isinstance(release.problem, ParquetProblem)
    with pytest.raises(InputError, match="read by row groups is released as Parquet"):
        release.write(tmp_path / "csv", format="csv")
    out = release.write(tmp_path / "out")
    assert (out / "confidential").stat().st_mode & 0o777 == 0o700
    assert (out / "confidential" / "report.html").is_file()
    table = pd.read_parquet(file)
    usual = ds.protect(
        table, "log(price) ~ scale(area) + town", **common | {"by_row_groups": False}
    ).write(tmp_path / "usual", format="parquet")
    for name in ("copy_001.parquet", "copy_002.parquet"):
        same_bytes(*(pd.read_parquet(o / "public" / name) for o in (out, usual)))
    for name in ("flags.csv", "risks.csv", "copies.csv"):
        assert (out / "confidential" / name).read_text() == (
            usual / "confidential" / name
        ).read_text()


def test_the_command_takes_a_file_and_a_folder_by_row_groups(tmp_path):
    parts = tmp_path / "parts"
    parts.mkdir()
    table = homes(400).drop(columns=["note"]).reset_index(drop=True)
    table[:150].to_parquet(parts / "a.parquet")
    table[150:].reset_index(drop=True).to_parquet(parts / "b.parquet")
    command = [
        sys.executable,
        "-m",
        "dsstan",
        "synthesise",
        parts,
        "--formula",
        "log(price) ~ town",
    ]
    command += ["--coords", "east", "north", "--by-row-groups", "--out", tmp_path / "out"]
    command += ["--engine", "embedded", "--covariance", "vecchia", "--threshold", "0.5"]

    def run(*more):
        call = list(map(str, [*command, *more]))
        return subprocess.run(call, capture_output=True, text=True, timeout=300)

    refused = run("--format", "csv")
    assert refused.returncode == 2
    assert "--format parquet" in refused.stderr
    planned = run("--format", "parquet", "--dry-run", "--json")
    assert planned.returncode == 0, planned.stderr
    assert json.loads(planned.stdout)["plan"]["records"] == 400
    quick = ("--chains", 2, "--warmup", 300, "--samples", 300, "--copies", 2, "--accept-failed")
    named = [word for name in table.columns for word in ("--publish", name)]
    done = run("--format", "parquet", "--json", "--no-report", *quick, *named)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["published_as_collected"] == [*table.columns.drop("price")]
    assert read_release(tmp_path / "out").copies[1].columns.equals(table.columns)


# --- refusals


def refusals(table, formula, error, tmp_path, **more):
    """What both routes say."""
    path = tmp_path / "bad.parquet"
    table.to_parquet(path, row_group_size=20_000)
    where = {"coords": ("east", "north"), **more}
    said = []
    for route in (
        lambda: ds.prepare(pd.read_parquet(path), formula, **where),
        lambda: prepare_parquet(path, formula, **where),
    ):
        with pytest.raises(error) as raised:
            route()
        said.append(str(raised.value))
    assert said[0] == said[1]
    return said[1]


def test_a_missing_value_is_told_with_its_row_in_the_whole_file(tmp_path):
    n = 130_000
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.uniform(0.1, 2, (n, 4)), columns=["east", "north", "price", "area"])
    table.loc[123_456, "area"] = np.nan
    said = refusals(table, "price ~ area", TableError, tmp_path)
    assert "position 123456," in said
    table.loc[123_457, "east"] = np.nan
    assert "position 123457," in refusals(table, "price ~ area", CoordinateError, tmp_path)
    table["east"] = 0.0
    table.loc[99_999, "price"] = np.inf
    assert "position 99999," in refusals(table, "price ~ 1", TableError, tmp_path)


def test_other_refusals_are_those_of_prepare(tmp_path):
    table = homes(300)
    refusals(table, "price ~ aera", FormulaError, tmp_path)
    refusals(table, "price ~ note", TableError, tmp_path)
    refusals(table, "note ~ area", TableError, tmp_path)
    refusals(table, "price ~ grade", TableError, tmp_path)
    refusals(table, "price ~ record", FormulaError, tmp_path)
    refusals(table, "price ~ day", TableError, tmp_path)
    refusals(table, "east ~ 1", FormulaError, tmp_path)
    refusals(table, "price ~ 1", CoordinateError, tmp_path, coords=("east", "south"))
    refusals(table, "price ~ 1", CoordinateError, tmp_path, coords=None)
    refusals(table, "price ~ 1", CoordinateError, tmp_path, distance="far")
    refusals(table.iloc[:2], "price ~ 1", TableError, tmp_path)
    again = table.set_axis(["a"] * 300)
    refusals(again, "price ~ 1", TableError, tmp_path)


def test_what_is_no_parquet_or_holds_no_row_group_is_refused(tmp_path, file):
    where = {"coords": ("east", "north")}
    bad = tmp_path / "bad.parquet"
    bad.write_bytes(b"east,north,price\n1,2,3\n")
    with pytest.raises(InputError, match=r"bad\.parquet can't be read as Parquet"):
        prepare_parquet(bad, "price ~ 1", **where)
    bad.write_bytes(file.read_bytes()[:-5000])
    with pytest.raises(InputError, match="can't be read as Parquet"):
        prepare_parquet(bad, "price ~ 1", **where)
    with pytest.raises(InputError, match="there is no file or folder"):
        prepare_parquet(tmp_path / "none.parquet", "price ~ 1", **where)
    with pq.ParquetWriter(bad, pq.read_schema(file)):
        pass
    with pytest.raises(TableError, match="no row group"):
        prepare_parquet(bad, "price ~ 1", **where)
    table = pa.table([pa.array([1.0]), pa.array([2.0])], names=["a", "a"])
    pq.write_table(table, bad)
    with pytest.raises(TableError, match="'a' occurs more than once"):
        prepare_parquet(bad, "price ~ 1", **where)
    with pytest.raises(InputError, match="no column 'nothing'"):
        prepare_parquet(file, FORMULA, also=["nothing"], **where)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda t: t.drop(columns="note"), "lacks column 'note'"),
        (lambda t: t.assign(more=1), "another column, 'more'"),
        (lambda t: t[t.columns[::-1]], "another order"),
        (lambda t: t.astype({"visits": "int64"}), "'visits' as int64 and not int16"),
        (lambda t: t.set_index("note"), "another index"),
    ],
)
def test_a_folder_of_different_schemas_is_refused(tmp_path, change, says):
    table = homes(300).reset_index(drop=True)
    folder = tmp_path / "parts"
    folder.mkdir()
    table.to_parquet(folder / "a.parquet")
    change(table).to_parquet(folder / "b.parquet")
    with pytest.raises(InputError, match=says) as raised:
        prepare_parquet(folder, "price ~ 1", coords=("east", "north"))
    assert "b.parquet" in str(raised.value)


def test_a_folder_of_other_things_is_refused(tmp_path):
    where = {"coords": ("east", "north")}
    with pytest.raises(InputError, match="no Parquet file"):
        prepare_parquet(tmp_path, "price ~ 1", **where)
    (tmp_path / "year=2020").mkdir()
    with pytest.raises(InputError, match="partitioned"):
        prepare_parquet(tmp_path, "price ~ 1", **where)
    (tmp_path / "a.csv").touch()
    with pytest.raises(InputError, match=r"'a\.csv', which is neither"):
        prepare_parquet(tmp_path, "price ~ 1", **where)


def test_ordered_categories_that_differ_between_row_groups_are_refused(tmp_path):
    table = homes(300).reset_index(drop=True)
    folder = tmp_path / "parts"
    folder.mkdir()
    table.to_parquet(folder / "a.parquet")
    table["grade"] = table["grade"].cat.reorder_categories(["high", "mid", "low", "none has it"])
    table.to_parquet(folder / "b.parquet")
    with pytest.raises(InputError, match="'grade' has categories in an order"):
        prepare_parquet(folder, "price ~ 1", coords=("east", "north"))


@pytest.mark.parametrize("kind", ["numbers", "text", "rows", "index"])
def test_a_response_that_another_column_gives_away_is_not_released(tmp_path, kind):
    table = homes(700)
    table["price"] = np.random.default_rng(3).permutation(700) + 50
    if kind == "numbers":
        table["tax"] = (0.1 * table["price"] + 3).astype(np.float32)
    elif kind == "text":
        table["tax"] = [
            None if k % 100 == 1 else f"{v:,} EUR" for k, v in enumerate(table["price"])
        ]
    elif kind == "rows":
        table = table.sort_values("price")
    else:
        table.index = pd.Index(table["price"] * 2, name="record")
    path = tmp_path / "t.parquet"
    table.to_parquet(path, row_group_size=100)
    said = []
    for problem in (
        ds.prepare(pd.read_parquet(path), "log(price) ~ area", **WHERE),
        prepare_parquet(path, "log(price) ~ area", **WHERE),
    ):
        with pytest.raises(ReleaseError) as raised:
            check_public(drawn(problem))
        said.append(str(raised.value))
    assert said[0] == said[1]
    assert kind not in ("numbers", "text") or "'tax'" in said[1]


def test_a_file_that_changed_since_it_was_prepared_is_not_released(tmp_path):
    path = tmp_path / "t.parquet"
    homes(300).to_parquet(path)
    problem = prepare_parquet(path, "price ~ 1", **WHERE)
    homes(300).iloc[::-1].to_parquet(path)
    with pytest.raises(ReleaseError, match=r"t\.parquet was changed"):
        written(problem, tmp_path / "one")
    object.__setattr__(problem.parquet, "stamps", (source_module._stamp(path),))
    with pytest.raises(ReleaseError, match="other records than were prepared"):
        written(problem, tmp_path / "two")
    path.unlink()
    with pytest.raises(ReleaseError, match="was changed, moved or removed"):
        written(problem, tmp_path / "three")


@pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_write_that_fails_midway_leaves_nothing(streamed, tmp_path, monkeypatch, failure):
    from dsstan.release import write as module

    real, calls = copies_module._check_places, []

    def fail(*arguments):
        calls.append(arguments)
        if len(calls) == 5:
            raise failure
        real(*arguments)

    monkeypatch.setattr(copies_module, "_check_places", fail)
    unjudged = SimpleNamespace(verdict="not judged")
    monkeypatch.setattr(module, "measured", lambda *a, **k: unjudged)
    monkeypatch.setattr(module, "utility", lambda *a, **k: None)
    expected = ReleaseError if isinstance(failure, OSError) else KeyboardInterrupt
    with pytest.raises(expected):
        write_release(drawn(streamed), tmp_path / "out", format="parquet")
    assert len(calls) == 5
    assert list(tmp_path.iterdir()) == []


# --- memory

MEASURE = """
import json, re, sys
sys.path[:0] = [sys.argv[3], sys.argv[3] + "/.."]
from test_parquet import drawn, written
from dsstan.table.parquet import prepare_parquet
from pathlib import Path
import pandas as pd

def peak():
    # Not ru_maxrss: a child inherits there what its parent had.
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024

how, path, _, out = sys.argv[1:]
idle = peak()
if how == "pandas":
    table = pd.read_parquet(path)
    print(json.dumps([idle, peak(), table.memory_usage(deep=True).sum() / 2**20]))
else:
    problem = prepare_parquet(path, "y ~ f0", coords=("east", "north"))
    prepared = peak()
    written(problem, Path(out), copies=2)
    print(json.dumps([idle, prepared, peak()]))
"""


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """500,000 records of 30 columns of text and 33 of numbers, in ten row groups."""
    path, rng, rows = (
        tmp_path_factory.mktemp("wide") / "wide.parquet",
        np.random.default_rng(0),
        50_000,
    )
    letters = np.array(list("abcdfghijklm"))
    words = ["".join(word) for word in rng.choice(letters, (20_000, 40))]
    words[:2000] = [f"{word[:20]} {k}" for k, word in enumerate(words[:2000])]
    words, writer = np.array(words), None
    for _ in range(10):
        columns = {f"f{k}": rng.normal(size=rows) for k in range(30)}
        columns |= {"east": rng.uniform(size=rows), "north": rng.uniform(size=rows)}
        columns["y"] = rng.normal(size=rows)
        columns |= {f"t{k}": words[rng.integers(0, len(words), rows)] for k in range(30)}
        table = pa.table(columns)
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    writer.close()
    return path


@pytest.mark.nightly("takes minutes and 2 GB")
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak in /proc")
def test_peak_memory_stays_well_below_the_size_of_the_table(wide, tmp_path):
    found = {}
    for how in ("pandas", "groups"):
        here = Path(__file__).parent
        command = [sys.executable, "-c", MEASURE, how, wide, here, tmp_path / "out"]
        done = subprocess.run(
            list(map(str, command)), capture_output=True, text=True, check=False, timeout=600
        )
        assert done.returncode == 0, done.stderr
        found[how] = json.loads(done.stdout.splitlines()[-1])
    idle, whole, size = found["pandas"]
    mine, prepared, peak = found["groups"]
    print(f"MiB: table {size:.0f}, idle {idle:.0f}, pandas {whole:.0f}")
    print(f"MiB: idle {mine:.0f}, prepared {prepared:.0f}, written {peak:.0f}")
    assert size > 600
    assert prepared - mine < 0.3 * size
    assert peak - mine < MOST_OF_TABLE * size
    assert peak - mine < MOST_OF_READING * (whole - idle)


def test_a_time_and_a_group_are_read_beside_the_formula(tmp_path):
    rng = np.random.default_rng(3)
    table = pd.DataFrame(rng.uniform(size=(40, 3)), columns=["x", "y", "rent"])
    table = table.assign(year=np.arange(40) % 4, zip=[f"z{k % 5}" for k in range(40)], more="kept")
    path = tmp_path / "rents.parquet"
    table.to_parquet(path)
    given = {"coords": ("x", "y"), "time": "year"}
    problem = prepare_parquet(path, "rent ~ 1 + (1 | zip)", **given, progress=False)
    assert set(problem.table.columns) == {"x", "y", "rent", "year", "zip"}
    plain = ds.prepare(table, "rent ~ 1 + (1 | zip)", **given)
    np.testing.assert_array_equal(problem.structure.times, plain.structure.times)
    np.testing.assert_array_equal(problem.effect_index, plain.effect_index)
