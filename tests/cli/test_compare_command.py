"""``dsstan compare`` and ``--floor`` as people run them."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pandas as pd
import pytest

from conftest import small_table
from dsstan.cli.screen_lines import WIDTH

GRID = (
    *("--formula", "log(value) ~ x", "--coords", "east", "north", "--threshold", "0.1"),
    *("--threshold", "0.15", "--protection", "paper", "--protection", "cut", "--copies", "3"),
    *("--chains", "2", "--warmup", "300", "--samples", "800", "--engine", "embedded"),
)


def run(*arguments):
    """The command line in a process of its own."""
    environment = {**os.environ, "COLUMNS": "160", "NO_COLOR": "1", "TERM": "dumb"}
    return subprocess.run(
        [sys.executable, "-m", "dsstan", *map(str, arguments)],
        capture_output=True,
        text=True,
        env=environment,
        timeout=300,
    )


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("table") / "homes.csv"
    small_table().to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def grid(file, tmp_path_factory):
    folder = tmp_path_factory.mktemp("grid") / "grid"
    result = run("compare", file, *GRID, "--seed", "5", "--floor", "0.05", "--out", folder)
    assert result.returncode == 0, result.stderr
    return result, folder


def test_it_writes_table_and_picture_for_the_owner_alone(grid):
    _, folder = grid
    table = pd.read_csv(folder / "frontier.csv")
    assert len(table) == 1 + 4
    assert (folder / "frontier.png").stat().st_size > 10_000
    assert folder.stat().st_mode & 0o777 == 0o700
    for path in folder.iterdir():
        assert path.stat().st_mode & 0o777 == 0o600


def parts(text):
    """The lines of each table by the first word of its title."""
    found, at = {}, None
    for line in text.splitlines():
        if line.startswith(("Leave every", "Miss the", "Fit failed")):
            at = line.split()[0]
        elif line.startswith("At risk: "):
            return found
        elif at:
            found.setdefault(at, []).append(line)
    return found


def test_it_prints_every_setting_and_which_meet_the_floor(grid):
    result, folder = grid
    table = pd.read_csv(folder / "frontier.csv")
    keeping = table[(table["sd_all"] >= 0.05) & table["passed"]]
    groups = {
        "Leave": keeping,
        "Miss": table[(table["sd_all"] < 0.05) & table["passed"]],
        "Fit": table[~table["passed"]],
    }
    said = parts(result.stdout)
    for name, rows in groups.items():
        shown = said.get(name, ["head"])[1:]
        assert len(shown) == len(rows)
        for setting in rows["setting"]:
            assert any(line.startswith(setting) for line in shown)
    overlaps = [float(line.split()[-1]) for line in said["Leave"][1:]]
    assert overlaps == sorted(overlaps, reverse=True)
    top = keeping.sort_values("overlap", kind="stable")["setting"].iloc[-1]
    advice = " ".join(result.stdout.splitlines())
    assert f"The least damaging of those for every record, by the overlap: {top} (L = 3)" in advice
    values = [f"{v:.4f}" for v in small_table()["value"]]
    assert not [v for v in values if v in result.stdout + result.stderr]


def test_its_screen_has_80_columns(grid):
    result, folder = grid
    assert [x for x in result.stdout.splitlines() if len(x) > WIDTH and str(folder) not in x] == []


def test_a_second_run_goes_on_and_says_the_same(grid, file):
    first, folder = grid
    kept = {p.name: p.stat().st_mtime_ns for p in folder.glob("*.json")}
    again = run("compare", file, *GRID, "--floor", "0.05", "--out", folder)
    assert again.returncode == 0, again.stderr
    assert again.stdout == first.stdout
    assert {p.name: p.stat().st_mtime_ns for p in folder.glob("*.json")} == kept


def test_a_folder_with_other_files_is_refused(file, tmp_path):
    (tmp_path / "mine").write_text("mine")
    result = run("compare", file, *GRID, "--out", tmp_path)
    assert result.returncode == 2
    assert "holds other files" in result.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--floor", "0"), "floor must be positive"),
        (("--copies", "1"), "at least 2"),
        (("--protection", "armour"), "armour"),
        (("--threshold", "-1"), "distances must be positive"),
        (("--gamma", "-1"), "gamma"),
    ],
)
def test_a_wrong_argument_ends_with_two_and_leaves_no_setting(file, tmp_path, arguments, said):
    out = tmp_path / "out"
    result = run("compare", file, *GRID, *arguments, "--out", out)
    assert result.returncode == 2
    assert said in result.stderr
    assert "Traceback" not in result.stderr
    assert not out.exists()


def test_a_release_that_misses_its_floor_is_refused_and_verbose_shows_all(file, tmp_path):
    out = tmp_path / "release"
    result = run(
        *("synthesise", file, "--formula", "log(value) ~ x", "--coords", "east", "north"),
        *("--threshold", "0.15", "--copies", "4", "--floor", "0.6", "--accept-failed"),
        *("--chains", "2", "--warmup", "300", "--samples", "400", "--engine", "embedded"),
        *("--seed", "3", "--out", out, "--verbose"),
    )
    assert result.returncode == 5
    assert "largest distances to a neighbour: " in " ".join(result.stdout.split())
    assert "Least squares log(value) ~ x" in result.stdout
    assert "below the floor 0.6 at 4 copies" in result.stderr
    assert "--accept-below-floor" in result.stderr
    assert not out.exists()


def test_synthesise_reports_the_attacker_and_the_floor(file, tmp_path):
    out = tmp_path / "release"
    result = run(
        *("synthesise", file, "--formula", "log(value) ~ x", "--coords", "east", "north"),
        *(
            "--threshold",
            "0.15",
            "--copies",
            "4",
            "--floor",
            "0.6",
            "--accept-failed",
            "--accept-below-floor",
            "--reason",
            "shown in a test",
        ),
        *("--chains", "2", "--warmup", "300", "--samples", "400", "--engine", "embedded"),
        *("--seed", "3", "--verbose", "--out", out),
    )
    assert result.returncode == 0, result.stderr
    attacker = json.loads((out / "confidential" / "summary.json").read_text())["attacker"]
    assert "Published as collected: east, north, x" in result.stdout
    assert "smallest sd left to an intruder who knows all other records" in result.stdout
    assert (
        f"{attacker['floor']['records_below']} of 60 records are below the floor" in result.stdout
    )
    for group in ("flagged", "unflagged"):
        least = attacker["restricted"][group]["4"]["known"]["smallest"]
        assert f"{least:.2g}" in result.stdout
    risks = pd.read_csv(out / "confidential" / "risks.csv", index_col=0)
    flagged = risks["flagged"]
    assert (
        risks.loc[flagged, "sd_known_4_restricted"].min()
        == attacker["restricted"]["flagged"]["4"]["known"]["smallest"]
    )
