"""The release folder: what is in it, who may read it, and what never gets into it."""

from __future__ import annotations

import dataclasses
import json
import os
import pickle
import re
import signal
import stat
import subprocess
import sys
from pathlib import Path

import geopandas
import jsonschema
import numpy as np
import pandas as pd
import pyarrow.parquet
import pytest

import dsstan as ds
from conftest import ROOT, small_table
from dsstan.core.errors import (
    DisclosureError,
    DsstanDeprecationWarning,
    InputError,
    ReleaseError,
)
from dsstan.engines import ENGINES
from dsstan.release import write as module
from dsstan.release.acceptance import NO_REASON
from dsstan.release.public import metadata
from dsstan.release.whole_folder import check_target
from dsstan.release.write import write_release
from dsstan.risk import assessment as assessment_module
from dsstan.risk.assessment import assess

# Older pandas reads floats exactly only when asked to, which newer pandas deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:The 'float_precision'")

ROUNDING = 1e-14
"""A mean of equal numbers may differ from them in the last digit."""

PUBLIC = {"copy_001", "copy_002", "copy_003"}
METADATA = {
    "format",
    "software",
    "synthesis",
    "synthetic_column",
    "columns",
    "coordinates",
    "index_columns",
    "rounding",
    "csv_text",
    "records",
    "copies",
    "files",
    "model",
    "combining_rule",
    "imputations",
    "chain",
    "notes",
}
MODEL = {"formula", "outcome", "spatial_effect", "distance", "unit", "protection", "effect"}
PARAMETERS = {"beta_0", "beta_1", "sigma_sq", "tau_sq", "phi"}
QUICK = {"chains": 2, "warmup": 300, "samples": 500, "engine": "embedded", "progress": False}


@pytest.fixture(scope="module")
def release(kept):
    """Three copies of the restricted fit."""
    return ds.synthesise(kept, 3, seed=31)


@pytest.fixture(scope="module")
def folder(release, tmp_path_factory):
    """A release with copies as CSV, and an absolute tolerance."""
    target = tmp_path_factory.mktemp("written") / "release"
    return write_release(release, target, absolute=10.0)


@pytest.fixture(scope="module")
def content(folder):
    """The parsed summary."""
    return json.loads((folder / "confidential" / "summary.json").read_text())


def names(folder):
    return {path.name for path in folder.iterdir()}


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


# What is there, and who may read it


def test_the_folder_holds_a_public_and_a_confidential_part_and_nothing_else(folder):
    assert names(folder) == {"public", "confidential"}
    assert names(folder / "public") == {f"{c}.csv" for c in PUBLIC} | {
        "metadata.json",
        "README.md",
        "factsheet.html",
    }
    assert names(folder / "confidential") == {
        "summary.json",
        "settings.json",
        "public.sha256",
        "ledger.json",
        "ledger.parquet",
        "draws_unrestricted.parquet",
        "draws_restricted.parquet",
        "flags.csv",
        "risks.csv",
        "copies.csv",
        "report.html",
    }


def test_an_unrestricted_release_has_no_flags_and_one_set_of_draws(free, tmp_path):
    target = ds.synthesise(free, 3, seed=1).write(tmp_path / "r")
    assert names(target / "confidential") == {
        "summary.json",
        "settings.json",
        "public.sha256",
        "ledger.json",
        "ledger.parquet",
        "draws_unrestricted.parquet",
        "risks.csv",
        "copies.csv",
        "report.html",
    }


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o000])
def test_only_its_owner_may_enter_either_part_before_it_is_published_whatever_the_umask(
    release, tmp_path, mask
):
    before = os.umask(mask)
    try:
        target = release.write(tmp_path / "r")
    finally:
        os.umask(before)
    for part in (target / "public", target / "confidential"):
        assert {mode(target), mode(part)} == {0o700}
        assert {mode(p) for p in part.iterdir()} == {0o600}


def test_file_names_sort_in_the_order_of_the_copies(free, tmp_path):
    release = ds.synthesise(free, 12, seed=1)
    target = release.write(tmp_path / "r")
    files = sorted(p.name for p in (target / "public").glob("copy_*"))
    assert files == json.loads((target / "public" / "metadata.json").read_text())["files"]
    last = pd.read_csv(target / "public" / files[-1], float_precision="round_trip")
    np.testing.assert_array_equal(last["value"], release.values[11])


# The copies


def varied_table():
    """A table with every common kind of column, and an index of its own."""
    table = small_table(30, seed=9, shared=4)
    table["value"] = (1000 * table["value"]).round().astype("int32")
    table["single"] = table["x"].astype("float32")
    table["gaps"] = pd.array([1, None, 3] * 10, dtype="Int64")
    table["kind"] = pd.Categorical(["a", "b", "c"] * 10, categories=["c", "b", "a"])
    table["when"] = pd.date_range("2020-02-28", periods=30)
    table["yes"] = [True, False] * 15
    table["text"] = ["007", 'with, "quotes"', "été"] * 10
    table.index = pd.Index([f"id{i}" for i in range(30)], name="id")
    return table[["when", "value", "x", "text", "east", "kind", "gaps", "north", "yes", "single"]]


@pytest.fixture(scope="module")
def varied():
    """Three copies of the varied table."""
    table = varied_table()
    table.attrs["note"] = "planted attribute"
    others = [name for name in table.columns if name not in ("value", "x", "east", "north")]
    problem = ds.prepare(table, "log(value) ~ x", coords=("east", "north"), publish=others)
    fit = ds.fit(problem, seed=1, **QUICK)
    return ds.synthesise(fit, 3, seed=2, accept_failed=True)


def read_csv(path, like):
    """A copy as CSV, with the types of a table."""
    table = pd.read_csv(
        path,
        index_col=like.index.name,
        dtype={c: t for c, t in like.dtypes.items() if t.kind != "M"},
        parse_dates=[c for c, t in like.dtypes.items() if t.kind == "M"],
        float_precision="round_trip",
    )
    return table.astype(like.dtypes)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_copies_read_back_as_they_were_with_types_order_and_index(varied, tmp_path, kind):
    public = varied.write(tmp_path / "r", format=kind) / "public"
    for number, name in enumerate(json.loads((public / "metadata.json").read_text())["files"]):
        expected = varied.table(number)
        path = public / name
        found = pd.read_parquet(path) if kind == "parquet" else read_csv(path, expected)
        pd.testing.assert_frame_equal(found, expected, check_exact=True)


def test_metadata_states_the_type_of_each_column(varied, tmp_path):
    public = varied.write(tmp_path / "r") / "public"
    found = json.loads((public / "metadata.json").read_text())["columns"]
    assert found == {name: str(dtype) for name, dtype in varied_table().dtypes.items()}
    assert list(found) == list(varied_table().columns)


@pytest.mark.parametrize(
    ("index", "written"),
    [
        (pd.RangeIndex(30), False),
        (pd.RangeIndex(1, 31), True),
        (pd.RangeIndex(30, name="id"), True),
        (pd.Index([f"id{i}" for i in range(30)], name="id"), True),
    ],
)
def test_the_index_is_written_unless_it_is_the_plain_count(varied, tmp_path, index, written):
    table = varied_table().set_axis(index, axis=0)
    problem = dataclasses.replace(varied.problem, table=table)
    fit = dataclasses.replace(varied.fit, problem=problem)
    target = dataclasses.replace(varied, fit=fit).write(tmp_path / "r")
    header = (target / "public" / "copy_001.csv").read_text().splitlines()[0].split(",")
    assert len(header) == table.shape[1] + written
    assert header[-table.shape[1] :] == list(table.columns)


def test_attributes_of_the_table_do_not_leak_into_parquet(varied, tmp_path):
    assert varied.problem.table.attrs
    target = varied.write(tmp_path / "r", format="parquet")
    for path in (target / "public").glob("*.parquet"):
        assert pd.read_parquet(path).attrs == {}
        assert b"planted attribute" not in path.read_bytes()


@pytest.fixture(scope="module")
def geographic():
    """Copies of a GeoDataFrame."""
    table = small_table(30, seed=9, shared=4)
    points = geopandas.points_from_xy(5e5 + 1000 * table["east"], 4e6 + 1000 * table["north"])
    frame = geopandas.GeoDataFrame(table[["x", "value"]], geometry=points, crs="EPSG:32610")
    frame.attrs["note"] = "planted attribute"
    problem = ds.prepare(frame, "log(value) ~ x")
    fit = ds.fit(problem, seed=1, **QUICK)
    return ds.synthesise(fit, 3, seed=2, accept_failed=True)


def test_a_geodataframe_goes_to_geoparquet_with_its_crs(geographic, tmp_path):
    public = geographic.write(tmp_path / "r", format="parquet") / "public"
    found = geopandas.read_parquet(public / "copy_002.parquet")
    expected = geographic.table(1)
    assert found.crs == expected.crs
    assert found.geometry.geom_equals(expected.geometry).all()
    np.testing.assert_array_equal(found["value"], geographic.values[1])
    assert b"planted attribute" not in (public / "copy_002.parquet").read_bytes()


def test_a_geodataframe_goes_to_csv_with_its_points_as_exact_text(geographic, tmp_path):
    public = geographic.write(tmp_path / "r") / "public"
    found = pd.read_csv(public / "copy_002.csv", float_precision="round_trip")
    points = geopandas.GeoSeries.from_wkt(found["geometry"], crs="EPSG:32610")
    assert points.geom_equals(geographic.table(1).geometry).all()
    np.testing.assert_array_equal(found["value"], geographic.values[1])


# The confidential files


def test_summary_holds_every_key_that_is_promised(content):
    assert set(content) >= {
        "dataset",
        "records",
        "sites",
        "flagged",
        "copies",
        "engine",
        "protection",
        "surface_error",
        "fit_verdict",
        "disclosure_verdict",
        "disclosure_reason",
        "accepted_below_floor",
        "placing",
        "verdict",
        "seconds",
        "unrestricted",
        "restricted",
        "disclosure",
        "utility",
    }
    assert set(content["seconds"]) == {
        "prepare",
        "unrestricted",
        "restricted",
        "synthesis",
        "disclosure",
    }


def test_summary_counts_records_sites_flags_and_copies(content, release):
    problem = release.problem
    assert [content[k] for k in ("dataset", "records", "sites", "flagged", "copies")] == [
        "small",
        60,
        problem.n_sites,
        int(release.fit.flagged.sum()),
        3,
    ]
    assert (content["engine"], content["protection"]) == ("embedded", "paper")


@pytest.mark.parametrize("kind", ["unrestricted", "restricted"])
def test_summary_holds_the_posterior_of_each_fit(content, kept, kind):
    fit = kept if kind == "restricted" else kept.start
    assert set(content[kind]) == PARAMETERS
    table = fit.summary()
    for name, row in content[kind].items():
        assert set(row) >= {"mean", "sd", "q025", "q50", "q975", "ess_bulk", "rhat"}
        for column, value in row.items():
            expected = table.loc[name, column]
            assert value == (None if np.isnan(expected) else expected)


def test_summary_says_nothing_about_the_mixing_of_a_held_decay(content, kept):
    phi = content["restricted"]["phi"]
    assert phi["mean"] == pytest.approx(kept.phi_held, rel=ROUNDING)
    assert (phi["sd"], phi["ess_bulk"], phi["rhat"]) == (0.0, None, None)


def test_summary_holds_the_shares_near_the_truth(content, release):
    risks = ds.disclosure(release, absolute=10.0)
    assert set(content["disclosure"]) == {"within_relative_10pct", "within_absolute_10"}
    for label, measure in (
        ("within_relative_10pct", "within_relative"),
        ("within_absolute_10", "within_absolute"),
    ):
        for fit in ("unrestricted", "restricted"):
            for group in ("flagged", "unflagged"):
                assert content["disclosure"][label][fit][group] == risks.share(measure, fit, group)


def test_summary_holds_the_analysts_regression(content, release):
    kept = ds.utility(release)
    assert set(content["utility"]) == {"original", "unrestricted", "restricted"}
    for source, terms in content["utility"].items():
        assert set(terms) == {"Intercept", "x"}
        for term, row in terms.items():
            expected = kept.get(source, term)
            assert row == {k: expected[k] for k in ("estimate", "low", "high")}


def none_flagged(release):
    """The release as if no record had been flagged."""
    problem = release.problem
    weights = ds.own_weights(problem, np.zeros(problem.n_records))
    fit = dataclasses.replace(release.fit, weights=weights, A=np.ones(problem.n_records))
    return dataclasses.replace(release, fit=fit)


def all_flagged(release):
    """The release as if every record had been flagged, at a finite gamma."""
    problem = release.problem
    weights = ds.own_weights(problem, np.ones(problem.n_records))
    fit = dataclasses.replace(
        release.fit, weights=weights, gamma=3.0, A=np.full(problem.n_records, 0.5)
    )
    return dataclasses.replace(release, fit=fit)


def alone(release):
    """A restricted release whose fit started from none."""
    return dataclasses.replace(release, fit=dataclasses.replace(release.fit, start=None))


def one_copy(release):
    return dataclasses.replace(
        release, values=release.values[:1], draw_index=release.draw_index[:1]
    )


def unrestricted(release):
    return release.unprotected


def as_it_is(release):
    return release


def refuse_constant(text):
    raise AssertionError(f"{text} is not JSON")


@pytest.mark.parametrize(
    "case", [as_it_is, none_flagged, all_flagged, alone, one_copy, unrestricted]
)
def test_every_kind_of_release_has_a_strict_json_summary_that_meets_its_schema(
    release, tmp_path, case
):
    target = case(release).write(tmp_path / "r")
    schema = json.loads((ROOT / "docs" / "summary.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    for path in target.rglob("*.json"):
        json.loads(path.read_text(), parse_constant=refuse_constant)
    content = json.loads((target / "confidential" / "summary.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(content)


def test_the_schema_and_its_page_know_every_engine():
    schema = json.loads((ROOT / "docs" / "summary.schema.json").read_text())
    assert set(schema["properties"]["engine"]["enum"]) == {*ENGINES, "dsstan"}
    [row] = [
        line
        for line in (ROOT / "docs" / "summary.md").read_text().splitlines()
        if line.startswith("| `engine` |")
    ]
    assert [name for name in (*ENGINES, "dsstan") if f"`{name}`" not in row] == []


def test_a_group_without_records_is_null_in_the_summary(release, tmp_path):
    target = none_flagged(release).write(tmp_path / "r")
    content = json.loads((target / "confidential" / "summary.json").read_text())
    shares = content["disclosure"]["within_relative_10pct"]["restricted"]
    assert shares["flagged"] is None
    assert 0 <= shares["unflagged"] <= 1


def test_settings_given_as_numpy_numbers_are_written(varied, tmp_path):
    settings = dataclasses.replace(varied.fit.settings, chains=np.int64(2))
    fit = dataclasses.replace(varied.fit, settings=settings, nodes=(np.int64(32), np.int64(56)))
    target = dataclasses.replace(varied, fit=fit).write(tmp_path / "r")
    found = json.loads((target / "confidential" / "settings.json").read_text())
    assert found["fits"]["unrestricted"]["sampler"]["chains"] == 2


def test_the_seeds_in_the_settings_give_the_same_copies_again(folder, release, kept):
    settings = json.loads((folder / "confidential" / "settings.json").read_text())
    seed, copies = settings["synthesis"]["seed"], settings["synthesis"]["copies"]
    again = ds.synthesise(kept, copies, seed=int(seed))
    np.testing.assert_array_equal(again.values, release.values)
    assert settings["fits"]["restricted"]["seed"] == str(kept.seed)


def test_draws_flags_and_risks_are_those_of_the_release(folder, release, kept):
    confidential = folder / "confidential"
    for fit in (kept, kept.start):
        draws = pd.read_parquet(confidential / f"draws_{fit.kind}.parquet")
        for name, values in fit.scalars.items():
            np.testing.assert_array_equal(draws[name], values.ravel())
    flags = pd.read_csv(confidential / "flags.csv", index_col=0)
    np.testing.assert_array_equal(flags["flagged"], kept.flagged)
    risks = pd.read_csv(confidential / "risks.csv", index_col=0)
    expected = ds.assess(release, absolute=10.0).records
    pd.testing.assert_frame_equal(risks, expected)
    picks = pd.read_csv(confidential / "copies.csv", index_col="copy")
    np.testing.assert_array_equal(picks, release.draw_index)


# What is refused, and what a failure leaves behind


@pytest.mark.parametrize("what", ["folder", "file", "dangling link"])
def test_an_existing_target_is_refused_and_left_as_it_was(release, tmp_path, what):
    target = tmp_path / "taken"
    if what == "folder":
        target.mkdir()
        (target / "mine").write_text("mine")
    elif what == "file":
        target.write_text("mine")
    else:
        target.symlink_to(tmp_path / "nowhere")
    before = {p: p.lstat().st_mtime_ns for p in tmp_path.rglob("*")}
    with pytest.raises(ReleaseError, match="exists and is not overwritten"):
        release.write(target)
    assert {p: p.lstat().st_mtime_ns for p in tmp_path.rglob("*")} == before


def test_a_missing_parent_is_named_and_not_made(release, tmp_path):
    with pytest.raises(ReleaseError, match=re.escape(f"{tmp_path / 'no'} is no folder")):
        release.write(tmp_path / "no" / "release")
    assert names(tmp_path) == set()


def test_a_parent_without_permission_is_refused_before_any_work(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "access", lambda path, wanted: Path(path) != tmp_path)
    with pytest.raises(ReleaseError, match="can't be written to"):
        check_target(tmp_path / "release")


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder nobody can write to")
def test_a_parent_that_refuses_to_be_written_gives_one_clear_error(release):
    with pytest.raises(ReleaseError, match="written"):
        release.write("/proc/dsstan-release")


def test_an_unknown_format_is_refused(release, tmp_path):
    with pytest.raises(InputError, match=r"one of csv, .*xlsx"):
        release.write(tmp_path / "r", format="wk1")
    assert names(tmp_path) == set()


def fail_at(monkeypatch, where, error):
    """Let one writer fail, at its second call where it has several."""
    holder, name = {
        "copies": (pd.DataFrame, "to_csv"),
        "metadata": (module, "metadata"),
        "confidential": (module, "_write_confidential"),
        "draws": (module, "write_parquet"),
        "settings": (module, "settings"),
        "rename": (Path, "rename"),
    }[where]
    calls, right = [], getattr(holder, name)

    def writer(*args, **kwargs):
        calls.append(name)
        if len(calls) == (2 if where in ("copies", "draws") else 1):
            raise error
        return right(*args, **kwargs)

    monkeypatch.setattr(holder, name, writer)
    return calls


@pytest.mark.parametrize(
    "where", ["copies", "metadata", "confidential", "draws", "settings", "rename"]
)
def test_a_full_disk_in_the_middle_leaves_nothing_behind(release, tmp_path, monkeypatch, where):
    calls = fail_at(monkeypatch, where, OSError(28, "No space left on device"))
    with pytest.raises(ReleaseError, match=r"No space left on device.*Nothing was left"):
        release.write(tmp_path / "release")
    assert calls
    assert names(tmp_path) == set()


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(143), ValueError("bad")])
@pytest.mark.parametrize("where", ["copies", "draws", "rename"])
def test_an_interruption_in_the_middle_leaves_nothing_behind(
    release, tmp_path, monkeypatch, where, error
):
    fail_at(monkeypatch, where, error)
    with pytest.raises(type(error)):
        release.write(tmp_path / "release")
    assert names(tmp_path) == set()


def test_an_error_without_a_reason_of_the_system_still_reads_well(release, tmp_path, monkeypatch):
    fail_at(monkeypatch, "draws", OSError("arrow says so"))
    with pytest.raises(ReleaseError) as caught:
        release.write(tmp_path / "release")
    assert "None" not in str(caught.value)


@pytest.mark.parametrize("kill", [signal.SIGTERM, signal.SIGKILL])
def test_a_process_killed_in_the_middle_never_leaves_the_target(release, tmp_path, kill):
    parcel, home = tmp_path / "release.pickle", tmp_path / "home"
    parcel.write_bytes(pickle.dumps(release))
    home.mkdir()
    script = (
        "import pickle, sys, time\n"
        "from dsstan.release import write as module\n"
        "def wait(*arguments):\n"
        "    print('writing', flush=True)\n"
        "    time.sleep(60)\n"
        "module.settings = wait\n"
        "pickle.load(open(sys.argv[1], 'rb')).write(sys.argv[2])\n"
    )
    command = [sys.executable, "-c", script, str(parcel), str(home / "release")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        assert child.stdout.readline() == b"writing\n"
        child.send_signal(kill)
    left = list(home.iterdir())
    if kill == signal.SIGTERM:
        assert child.returncode == 128 + kill
        assert left == []
        return
    assert child.returncode == -kill
    assert all(p.name.startswith(".release.partial-") and mode(p) == 0o700 for p in left)
    assert len(left) == 1


def test_a_left_over_of_a_killed_process_does_not_stop_the_next_release(release, tmp_path):
    (tmp_path / ".release.partial-abc").mkdir()
    assert release.write(tmp_path / "release").is_dir()


# What must never be public


@pytest.fixture(scope="module")
def planted():
    """A table whose responses can be recognised in any file, protected and released."""
    table = small_table(30, seed=9, shared=4)
    table["value"] = table["value"] * 1.000000123456789 + 7e-9
    problem = ds.prepare(table, "log(value) ~ x", coords=("east", "north"))
    free = ds.fit(problem, seed=987654321987654321, **QUICK)
    weights = ds.flag_isolated(free, distance=0.15)
    kept = ds.fit(problem, weights=weights, start=free, seed=876543210876543210, **QUICK)
    return ds.synthesise(kept, 3, seed=765432109765432109, accept_failed=True)


def confidential_texts(release):
    """Everything confidential that could turn up as text, by what it is."""
    fit = release.fit
    draws = np.concatenate([d.ravel() for f in (fit.start, fit) for d in f.scalars.values()])
    truth = np.concatenate([release.problem.original(), release.problem.y])
    return {
        "seeds": {str(s) for s in (release.seed, fit.seed, fit.start.seed)},
        # Twelve digits: what any rounding beyond that would still hold.
        "truth": {repr(float(v))[:13] for v in truth},
        "draws": {repr(float(v))[:13] for v in draws},
        "rule": {repr(fit.weights.correlation)[:13]},
        "words": {"flag", "seed", "gamma", "threshold", "risk", "draw_", "phi"},
    }


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_public_files_hold_nothing_confidential_as_text(planted, tmp_path, kind):
    target = planted.write(tmp_path / "r", format=kind)
    everything = b"\n".join(p.read_bytes() for p in (target / "public").iterdir())
    for what, texts in confidential_texts(planted).items():
        found = [text for text in texts if text.encode() in everything]
        assert not found, what


def test_the_search_would_find_what_is_confidential(planted, tmp_path):
    """The same search over the confidential part and the input finds every kind."""
    target = planted.write(tmp_path / "r")
    planted.problem.table.to_csv(tmp_path / "input.csv")
    confidential = target / "confidential"
    pd.read_parquet(confidential / "draws_restricted.parquet").to_csv(tmp_path / "draws.csv")
    files = [*confidential.glob("*.json"), tmp_path / "draws.csv", tmp_path / "input.csv"]
    everything = b"\n".join(path.read_bytes() for path in files)
    for what, texts in confidential_texts(planted).items():
        assert any(text.encode() in everything for text in texts), what


def test_public_parquet_holds_no_original_response_in_any_column_or_statistic(planted, tmp_path):
    target = planted.write(tmp_path / "r", format="parquet")
    truth = planted.problem.original()
    for path in (target / "public").glob("*.parquet"):
        table = pd.read_parquet(path)
        assert not np.isin(table.select_dtypes("number"), truth).any()
        group = pyarrow.parquet.read_metadata(path).row_group(0)
        for j in range(group.num_columns):
            statistics = group.column(j).statistics
            assert not np.isin([statistics.min, statistics.max], truth).any()
        everything = path.read_bytes()
        assert not any(np.float64(v).tobytes() in everything for v in truth)


def test_metadata_is_exactly_the_allowed_keys(folder):
    found = json.loads((folder / "public" / "metadata.json").read_text())
    assert set(found) == METADATA
    assert set(found["model"]) == MODEL


def test_metadata_does_not_depend_on_responses_flags_seeds_or_draws(release):
    problem = release.problem
    shuffled = problem.with_response(problem.original()[::-1])
    other = none_flagged(release)
    fit = dataclasses.replace(
        other.fit,
        problem=dataclasses.replace(problem, table=shuffled, y=problem.y[::-1]),
        draws={name: d + 1.0 for name, d in other.fit.draws.items()},
        seed=5,
        start=None,
    )
    other = dataclasses.replace(other, fit=fit, seed=6, values=release.values + 1.0)
    assert metadata(other, ["copy"]) == metadata(release, ["copy"])


def test_the_analysts_readme_states_the_rule_and_names_no_number_of_the_data(folder, release):
    text = (folder / "public" / "README.md").read_text()
    assert "T = u + b / L" in text
    assert "Reiter" in text
    numbers = {float(n) for n in re.findall(r"\d+\.?\d*", text)}
    # Copies, records, file names, and those of the rule and its reference.
    assert numbers <= {3, 60, 1, 2, 2003, 29, 181, 188}


def _released(table, weights, folder, **options):
    """A release of all of a small table by own weights, its public folder."""
    all_of_it = [name for name in table.columns if not isinstance(weights, str) or name != weights]
    problem = ds.prepare(table, "log(value) ~ x", coords=("east", "north"), publish=all_of_it)
    fit = ds.fit(problem, weights=ds.own_weights(problem, weights), phi=4.0, seed=1, **QUICK)
    release = ds.synthesise(fit, 2, seed=1, accept_failed=True, accept_few_draws=True)
    return release.write(folder, **options) / "public"


@pytest.mark.filterwarnings("ignore:two copies")
def test_the_column_of_the_weights_is_withheld_from_the_copies(tmp_path):
    table = small_table(30)
    table["risk"] = [0, 1, 0] * 10
    public = _released(table, "risk", tmp_path / "out")
    assert "risk" not in pd.read_csv(public / "copy_001.csv").columns
    assert b"risk" not in (public / "metadata.json").read_bytes()


@pytest.mark.parametrize("make", [lambda y: 2 * y, lambda y: -np.sqrt(y), np.log])
def test_a_column_that_is_a_function_of_the_response_is_refused(tmp_path, make):
    table = small_table(30)
    table["other"] = make(table["value"])
    with pytest.raises(ReleaseError, match="'other' puts the records in the order of the response"):
        _released(table, np.eye(30)[0], tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("ascending", [True, False])
@pytest.mark.parametrize("moved", [0, 1])
def test_rows_in_the_order_of_the_response_are_refused(tmp_path, ascending, moved):
    table = small_table(30).sort_values("value", ascending=ascending, ignore_index=True)
    if moved:  # two neighbours change places
        table.loc[[10, 11], "value"] = table.loc[[11, 10], "value"].to_numpy()
    with pytest.raises(ReleaseError, match=r"order of the response 'value'.*shuffle"):
        _released(table, np.eye(30)[0], tmp_path / "out")
    with pytest.raises(ReleaseError, match="order of the response 'value'"):
        ds.protect(table, "log(value) ~ x", coords=("east", "north"), **QUICK)
    assert not (tmp_path / "out").exists()


def test_an_index_in_the_order_of_the_response_is_refused(tmp_path):
    table = small_table(30)
    table.index = pd.Index(table["value"].rank().astype(int), name="id")
    with pytest.raises(ReleaseError, match="index is in the order of the response"):
        _released(table, np.eye(30)[0], tmp_path / "out")


@pytest.mark.filterwarnings("ignore:two copies")
def test_rows_in_another_order_are_published(tmp_path):
    table = small_table(30).sort_values("x", ignore_index=True)
    assert _released(table, np.eye(30)[0], tmp_path / "out").is_dir()


def test_levels_that_no_record_has_are_not_published(tmp_path):
    table = small_table(30)
    table["kind"] = pd.Categorical(["a", "b"] * 15, categories=["a", "b", "PLANTED"])
    public = _released(table, np.eye(30)[0], tmp_path / "out", format="parquet")
    for path in public.iterdir():
        assert b"PLANTED" not in path.read_bytes()


def test_one_copy_comes_without_a_combining_rule(tmp_path, kept):
    public = ds.synthesise(kept, 1, seed=2).write(tmp_path / "out") / "public"
    assert json.loads((public / "metadata.json").read_text())["combining_rule"] is None
    assert "at least two" in (public / "README.md").read_text()


# The floor


@pytest.fixture(scope="module")
def missed(release):
    """An assessment of the release whose floor no record keeps."""
    return assess(release, floor=2.9, exact=0, draws=20, progress=False)


def test_a_release_below_its_floor_is_written_with_a_reason_that_is_kept(release, missed, tmp_path):
    folder = write_release(
        *(release, tmp_path / "r"),
        assessment=missed,
        accept_below_floor=True,
        reason="an older table  is public\nalready",
        report=False,
    )
    secret = folder / "confidential"
    found = json.loads((secret / "summary.json").read_text())
    assert found["disclosure_verdict"] == "missed"
    assert found["accepted_below_floor"] == "an older table is public already"
    kept = json.loads((secret / "settings.json").read_text())["floor"]
    assert kept == {
        "asked": 2.9,
        "accepted_below": True,
        "reason": "an older table is public already",
    }
    public = "".join(p.read_text() for p in (folder / "public").iterdir())
    assert "older table" not in public


def test_without_a_reason_it_is_accepted_for_one_version_with_a_warning(release, missed, tmp_path):
    with pytest.warns(DsstanDeprecationWarning, match="next version of dsstan refuses"):
        folder = write_release(
            release, tmp_path / "r", assessment=missed, accept_below_floor=True, report=False
        )
    found = json.loads((folder / "confidential" / "summary.json").read_text())
    assert found["accepted_below_floor"] == NO_REASON


def test_it_is_refused_where_it_is_not_accepted(release, missed, tmp_path):
    with pytest.raises(DisclosureError, match="--accept-below-floor --reason"):
        write_release(release, tmp_path / "r", assessment=missed)
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize("given", [{"reason": "why"}, {"reason": " ", "accept_below_floor": True}])
def test_a_reason_that_is_empty_or_for_nothing_is_refused(release, missed, tmp_path, given):
    with pytest.raises(InputError, match="the reason says why"):
        write_release(release, tmp_path / "r", assessment=missed, **given)


def test_a_floor_that_is_kept_needs_no_reason_and_none_is_noted(release, tmp_path):
    folder = release.write(tmp_path / "r", floor="0.001%", accept_below_floor=True, report=False)
    found = json.loads((folder / "confidential" / "summary.json").read_text())
    assert found["disclosure_verdict"] == "met"
    assert found["accepted_below_floor"] is None


def test_the_same_question_of_the_same_copies_is_answered_once(kept, tmp_path, monkeypatch):
    release = ds.synthesise(kept, 3, seed=31)
    asked = assess(release, floor="10%")
    calls, real = [], assessment_module.attack
    monkeypatch.setattr(
        assessment_module, "attack", lambda *a, **k: calls.append(a) or real(*a, **k)
    )
    assert assess(release, floor=" 10% ") is asked
    accept = {"accept_below_floor": True, "reason": "a test"}
    target = release.write(tmp_path / "once", floor="10%", report=False, **accept)
    assert calls == []
    again = dataclasses.replace(release)  # the same copies, which nobody has asked about yet
    other = again.write(tmp_path / "twice", floor="10%", report=False, **accept)
    assert len(calls) == 2  # protected and not
    risks = [(folder / "confidential" / "risks.csv").read_bytes() for folder in (target, other)]
    assert risks[0] == risks[1]
    numbers = [
        json.loads((folder / "confidential" / "summary.json").read_text())
        for folder in (target, other)
    ]
    for each in numbers:
        del each["seconds"]
    assert numbers[0] == numbers[1]
    assert assess(release, floor="11%") is not asked
    assert assess(release, floor="10%", former=False) is asked  # nothing was published before
