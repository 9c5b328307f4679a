"""The command line as people run it: options, exit codes, messages, what is left behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import dsstan as ds
from conftest import small_table
from dsstan.cli import command_line as cli
from dsstan.cli.doctor import Finding, examine
from dsstan.cli.screen_lines import WIDTH
from dsstan.copies.protect import stage_seeds
from dsstan.core.errors import InputError
from dsstan.release.reading import read_table

# Older pandas reads floats exactly only when asked to, which newer pandas deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:The 'float_precision'")

PLANTED = 4321.123456789
"""A response that can be recognised in any message."""

FAST_SECONDS = 60.0
"""Far below the hours that the run would take if it sampled first."""

WAIT_SECONDS = 60.0
"""For a process to reach its first fit, on a busy machine."""

END_SECONDS = 30.0
"""For an interrupted process to clean up and go."""

QUICK = ("--chains", "2", "--warmup", "300", "--samples", "500", "--engine", "embedded")
"""So few draws may fail the verdict on some machine, so the tests accept that."""

ENDLESS = ("--chains", "2", "--warmup", "100000000", "--samples", "100", "--engine", "embedded")

MODEL = ("--formula", "log(value) ~ x", "--coords", "east", "north", "--threshold", "0.15")

OPTIONS = {
    "synthesise": (
        "TABLE --formula --coords --crs --distance --copies --seed --threshold --correlation "
        "--protection --engine --no-report --out"
    ),
    "compare": (
        "TABLE --formula --coords --crs --distance --copies --seed --threshold --correlation "
        "--continuous --gamma --protection --floor --workers --engine --out"
    ),
    "demo": "--dataset --out simulated san-francisco baltimore",
    "doctor": "missing",
}


def environment(**more):
    """Wide and without colour, so that lines and words stay whole."""
    return {**os.environ, "COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb", **more}


def run(*arguments, **kwargs):
    """The command line in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "dsstan", *map(str, arguments)],
        capture_output=True,
        text=True,
        env=environment(**kwargs),
        timeout=300,
    )


@pytest.fixture(scope="module")
def table():
    """Thirty records, one response planted."""
    table = small_table(30, seed=9, shared=4)
    table.loc[5, "value"] = PLANTED
    table.insert(1, "label", [f"r{i}" for i in range(30)])
    return table


@pytest.fixture
def file(table, tmp_path):
    """The table as CSV."""
    path = tmp_path / "homes.csv"
    table.to_csv(path, index=False)
    return path


def bytes_of_copies(folder):
    return {p.name: p.read_bytes() for p in sorted((folder / "public").glob("copy_*"))}


@pytest.fixture(scope="module")
def releases(table, tmp_path_factory):
    """The same table through the command line three times: CSV twice, then Parquet."""
    folder = tmp_path_factory.mktemp("releases")
    table.to_csv(folder / "homes.csv", index=False)
    table.to_parquet(folder / "homes.parquet", index=False)
    done = {}
    for name, source, more in (
        ("csv", "homes.csv", ()),
        ("again", "homes.csv", ()),
        ("parquet", "homes.parquet", ("--format", "parquet", "--absolute", "50", "--no-report")),
    ):
        result = run(
            *("synthesise", folder / source, *MODEL, "--copies", "3", "--seed", "77"),
            *("--accept-failed", "--verbose", "--publish", "label"),
            *(*more, *QUICK, "--out", folder / name),
        )
        assert result.returncode == 0, result.stderr
        done[name] = result, folder / name
    return done


@pytest.fixture
def inside(capsys, monkeypatch):
    """The same entry point in this process, which saves the start of another."""

    def call(*arguments):
        for name, value in environment().items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(sys, "argv", ["dsstan", *map(str, arguments)])
        before = signal.getsignal(signal.SIGTERM)
        with warnings.catch_warnings():
            try:
                with pytest.raises(SystemExit) as end:
                    cli.main()
            finally:
                signal.signal(signal.SIGTERM, before)
        seen = capsys.readouterr()
        return subprocess.CompletedProcess(arguments, end.value.code, seen.out, seen.err)

    return call


# Help and doctor


@pytest.mark.parametrize("command", OPTIONS)
def test_help_names_every_option_that_is_promised(inside, command):
    result = inside(command, "--help")
    assert result.returncode == 0
    missing = [word for word in OPTIONS[command].split() if word not in result.stdout]
    assert not missing


def test_help_of_the_whole_names_every_command():
    result = run("--help")
    assert all(command in result.stdout for command in OPTIONS)


def test_doctor_prints_each_piece_and_ends_well():
    result = run("doctor")
    assert result.returncode == 0
    for finding in examine():
        assert finding.what in result.stdout
        assert ("there" if finding.there else "missing") in result.stdout
    assert result.stdout.count("\n") >= len(examine())
    paths = [finding.detail for finding in examine() if finding.detail.startswith("/")]
    paths += ["(run "]  # folders of killed runs, where there are some
    long = [line for line in result.stdout.splitlines() if len(line) > WIDTH]
    assert [line for line in long if not any(path in line for path in paths)] == []


def test_doctor_shows_brackets_as_they_are(monkeypatch, capsys):
    """Rich takes [examples] for one of its own marks."""
    advice = 'pip install "dsstan[examples]"'
    finding = Finding("libpysal", False, advice, "the Baltimore example")
    monkeypatch.setattr(cli, "examine", lambda: [finding])
    cli.doctor()
    assert "[examples]" in capsys.readouterr().out


# A release


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_table_becomes_a_release_with_the_copies_asked_for(releases, table, kind):
    _, folder = releases[kind]
    files = sorted((folder / "public").glob("copy_*"))
    assert [p.name for p in files] == [f"copy_00{i}.{kind}" for i in (1, 2, 3)]
    for path in files:
        copy = pd.read_parquet(path) if kind == "parquet" else read_table(path)
        pd.testing.assert_frame_equal(
            copy.drop(columns="value"), table.drop(columns="value"), check_exact=True
        )
        assert not np.isin(copy["value"], table["value"]).any()


def test_the_summary_says_what_was_asked_for(releases):
    _, folder = releases["parquet"]
    content = json.loads((folder / "confidential" / "summary.json").read_text())
    wanted = {
        "dataset": "homes",
        "records": 30,
        "copies": 3,
        "engine": "embedded",
        "protection": "paper",
        "threshold": 0.15,
    }
    assert {key: content[key] for key in wanted} == wanted
    assert set(content["disclosure"]) == {"within_relative_10pct", "within_absolute_50"}


def test_the_same_seed_gives_the_same_bytes(releases):
    first, again = (bytes_of_copies(releases[name][1]) for name in ("csv", "again"))
    assert len(first) == 3
    assert first == again


def test_csv_and_parquet_of_one_table_give_the_same_copies(releases):
    """So a CSV is read to the last digit."""
    csv = read_table(releases["csv"][1] / "public" / "copy_002.csv")
    parquet = pd.read_parquet(releases["parquet"][1] / "public" / "copy_002.parquet")
    pd.testing.assert_frame_equal(csv, parquet, check_exact=True)


def test_a_release_has_both_pages_unless_they_are_left_out(releases):
    result, folder = releases["csv"]
    pages = {"public/factsheet.html", "confidential/report.html"}
    assert {p.relative_to(folder).as_posix() for p in folder.rglob("*.html")} == pages
    assert str(folder / "confidential" / "report.html") in result.stdout
    assert list(releases["parquet"][1].rglob("*.html")) == []


def test_the_report_shows_posterior_shares_estimates_and_both_folders(releases):
    result, folder = releases["csv"]
    for text in (
        "30 records at",
        "posterior mean (95% interval)",
        "beta_0 (Intercept)",
        "share of copies near the truth",
        "within 10%, unflagged",
        "Least squares log(value) ~ x",
        f"dsstan publish {folder} --to DIR",
        str(folder / "confidential"),
    ):
        assert text in result.stdout, text


def test_the_report_shows_no_progress_bar_where_there_is_no_terminal(releases):
    result, _ = releases["csv"]
    assert "|" not in result.stderr
    assert "\r" not in result.stderr


def test_the_report_holds_no_response_of_the_table(releases, table):
    result, _ = releases["csv"]
    printed = set(re.findall(r"\d+\.\d{3,}", result.stdout + result.stderr))
    assert not printed & {f"{v:.3f}" for v in table["value"]}


# Exit codes


def one_line(result, code):
    """A run that ended with this code and one readable line, nothing else."""
    assert result.returncode == code, result.stdout + result.stderr
    [line] = result.stderr.strip().splitlines()
    assert line.startswith("dsstan: ")
    assert "Traceback" not in result.stdout + result.stderr
    assert "4321" not in result.stdout + result.stderr
    return line


def test_wrong_input_ends_with_two_and_one_line(file, tmp_path):
    out = tmp_path / "out"
    result = run("synthesise", file, *MODEL[2:], "--formula", "log(value) ~ z", "--out", out)
    assert "'z'" in one_line(result, 2)
    assert not out.exists()


def test_an_existing_target_ends_with_four_before_any_sampling(file, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine").write_text("mine")
    begin = time.monotonic()
    result = run("synthesise", file, *MODEL, *ENDLESS, "--out", out)
    assert time.monotonic() - begin < FAST_SECONDS
    assert "exists and is not overwritten" in one_line(result, 4)
    assert [p.name for p in out.iterdir()] == ["mine"]


def test_a_failed_fit_ends_with_three_and_leaves_no_release(file, tmp_path):
    out = tmp_path / "out"
    few = ("--chains", "2", "--warmup", "20", "--samples", "20", "--engine", "embedded")
    result = run("synthesise", file, *MODEL, *few, "--seed", "1", "--out", out)
    assert result.returncode == 3
    assert "did not pass" in result.stderr
    assert "Traceback" not in result.stderr
    assert "4321" not in result.stderr
    assert not out.exists()


def test_a_command_without_its_formula_ends_with_two(inside, file, tmp_path):
    result = inside("synthesise", file, "--coords", "east", "north", "--out", tmp_path / "out")
    assert result.returncode == 2
    assert "--formula" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--formula", "log(value) x"), "formula"),
        (("--formula", "log(label) ~ x"), "'label'"),
        (("--formula", "log(value) ~ __import__('os')"), "formula"),
        (("--coords", "east", "south"), "'south'"),
        (("--coords", "east", "label"), "label"),
        (("--crs", "EPSG:0"), "coordinate reference system"),
        (("--distance", "miles"), "distance"),
        (("--copies", "0"), "copies"),
        (("--seed", "-1"), "seed"),
        (("--threshold", "-1"), "threshold"),
        (("--correlation", "0.2"), "threshold or correlation, not both"),
        (("--gamma", "-1"), "gamma"),
        (("--protection", "none"), "protection must be one of paper"),
        (("--engine", "stan"), "engine"),
        (("--format", "wk1"), "format must be one of csv"),
        (("--chains", "0"), "chains"),
    ],
)
def test_a_wrong_argument_ends_with_two_before_any_sampling(
    inside, file, tmp_path, arguments, said
):
    begin = time.monotonic()
    line = one_line(
        inside("synthesise", file, *MODEL, *ENDLESS, *arguments, "--out", tmp_path / "out"), 2
    )
    assert time.monotonic() - begin < FAST_SECONDS
    assert said in line
    assert not (tmp_path / "out").exists()


def damaged(table, what):
    """The table with something wrong in it."""
    other = table.copy()
    match what:
        case "missing":
            other.loc[3, "value"] = np.nan
        case "negative":
            other.loc[3, "value"] = -PLANTED
        case "text":
            other["value"] = other["value"].astype(object)
            other.loc[3, "value"] = "4321 dollars"
        case "no place":
            other.loc[3, "east"] = np.nan
        case "longitudes":
            return other.rename(columns={"east": "lon", "north": "lat"})
        case "short":
            return other.head(2)
    return other


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("missing", "missing values in 1 row (position 3"),
        ("negative", "above 0"),
        ("text", "integers or floats"),
        ("no place", "position 3"),
        ("short", "2 rows"),
        ("longitudes", "distance"),
    ],
)
def test_a_wrong_table_ends_with_two_and_never_shows_a_value(inside, table, tmp_path, what, said):
    path = tmp_path / "bad.csv"
    damaged(table, what).to_csv(path, index=False)
    coords = ("lon", "lat") if what == "longitudes" else ("east", "north")
    line = one_line(
        inside(
            *("synthesise", path, "--formula", "log(value) ~ x", "--coords", *coords),
            *("--out", tmp_path / "out"),
        ),
        2,
    )
    assert said in line


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("none.csv", None, "there is no file"),
        ("homes.xlsx", b"x", "is no .xlsx workbook"),
        ("empty.csv", b"", "is empty"),
        ("ragged.csv", b"a,b\n4321,2\n4321,2,3,4\n", "more or fewer cells in 1 row"),
        ("binary.csv", b"a\n\xff\xfe4321\n", "--encoding latin-1"),
        ("text.parquet", b"value\n4321\n", "can't be read as Parquet"),
    ],
)
def test_a_file_that_cannot_be_read_ends_with_two(inside, tmp_path, name, content, said):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    assert said in one_line(inside("synthesise", path, *MODEL, "--out", tmp_path / "out"), 2)


def test_an_unknown_example_ends_with_two_and_names_those_there_are(inside, tmp_path):
    line = one_line(inside("demo", "--dataset", "paris", "--out", tmp_path / "out"), 2)
    assert "simulated, san-francisco, baltimore" in line
    assert not (tmp_path / "out").exists()


def test_an_example_that_exists_already_ends_with_four(inside, tmp_path):
    (tmp_path / "simulated").mkdir()
    line = one_line(inside("demo", "--dataset", "simulated", "--out", tmp_path), 4)
    assert "exists" in line


def test_no_sign_of_a_message_is_obeyed_by_a_terminal(inside, tmp_path):
    """Of a formula: an escape sequence, a mark that turns the direction, and what shows nothing."""
    table = small_table(40, seed=9)
    table.to_csv(tmp_path / "t.csv", index=False)
    unseen = (
        "\x1b\u202e\u200b\ufeff\u2028\u3164\u115f\u1160\uffa0\u17b4\u034f\ufe0f\u2800\U000e0101"
    )
    formula = f"log(value) ~ x{unseen}"
    result = inside(
        *("synthesise", "t.csv", "--formula", formula, "--coords", "east", "north", "--out", "o")
    )
    assert result.returncode == 2
    assert "cannot be read" in result.stderr
    assert not set(unseen) & set(result.stderr + result.stdout)


def test_a_message_with_brackets_is_shown_as_it_is(inside, tmp_path):
    path = tmp_path / "some[bold]thing.csv"
    line = one_line(inside("synthesise", path, *MODEL, "--out", tmp_path / "out"), 2)
    assert "some[bold]thing.csv" in line


@pytest.mark.parametrize("absolute", ["nan", "inf", "-1"])
def test_a_tolerance_that_is_none_is_refused_in_a_dry_run_too(inside, tmp_path, absolute):
    small_table(40, seed=9).to_csv(tmp_path / "t.csv", index=False)
    asked = ("synthesise", tmp_path / "t.csv", *MODEL, "--absolute", absolute, "--dry-run")
    line = one_line(inside(*asked, "--out", tmp_path / "out"), 2)
    assert "the absolute tolerance must be finite and not negative" in line


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"threshold": 0.1, "correlation": 0.2}, "threshold or correlation"),
        ({"threshold": np.nan}, "threshold"),
        ({"correlation": 1.0}, "correlation"),
        ({"gamma": -1.0}, "gamma"),
        ({"protection": "none"}, "protection"),
        ({"copies": 0}, "copies"),
    ],
)
def test_protect_refuses_before_it_looks_at_the_table(wrong, match):
    with pytest.raises(InputError, match=match):
        ds.protect("no table", "no formula", **wrong)


def test_the_command_line_knows_the_stages_of_protect():
    assert stage_seeds(1) != stage_seeds(2)
    assert len(set(stage_seeds(1))) == 3


# Interrupted


def children_of(pid):
    """Process numbers of the children of a process, of all its threads."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += [int(p) for p in (task / "children").read_text().split()]
    return found


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks processes up in /proc")
@pytest.mark.parametrize(("kill", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_run_stopped_in_the_middle_leaves_no_release_no_folder_and_no_child(
    file, tmp_path, kill, code
):
    out, scratch = tmp_path / "releases" / "out", tmp_path / "scratch"
    out.parent.mkdir()
    scratch.mkdir()
    command = [sys.executable, "-m", "dsstan", "synthesise", str(file), *MODEL, *ENDLESS]
    with subprocess.Popen(
        [*command, "--out", str(out)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(TMPDIR=str(scratch), DSSTAN_WORKDIR=str(scratch)),
    ) as process:
        end = time.monotonic() + WAIT_SECONDS
        while not (children := children_of(process.pid)) and time.monotonic() < end:
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.05)
        assert len(children) == 1
        time.sleep(0.5)  # let the child begin to sample
        process.send_signal(kill)
        _, errors = process.communicate(timeout=END_SECONDS)
    assert process.returncode == code
    assert "Traceback" not in errors
    assert list(out.parent.iterdir()) == []
    assert list(scratch.iterdir()) == []
    assert not Path(f"/proc/{children[0]}").exists()
