"""``--protection auto``: the release that keeps a floor at the least cost, as people ask for it."""

from __future__ import annotations

import json

import pandas as pd
import pytest
from test_compare_command import run

from conftest import small_table

MODEL = (
    *("--formula", "log(value) ~ x", "--coords", "east", "north"),
    *("--chains", "2", "--warmup", "300", "--samples", "1000", "--engine", "embedded"),
    *("--protection", "auto", "--seed", str(2**100 + 7)),
)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("table") / "homes.csv"
    small_table().to_csv(path, index=False)
    return path


@pytest.mark.nightly("a whole search, for minutes")
def test_a_job_with_protection_auto_releases_what_keeps_its_floor(file, tmp_path):
    job = tmp_path / "job.toml"
    job.write_text(
        f'table = "{file}"\nformula = "log(value) ~ x"\ncoords = ["east", "north"]\n'
        'protection = "auto"\nfloor = "35%"\ncopies = 20\nchains = 2\nwarmup = 300\n'
        f'samples = 1000\nengine = "embedded"\nseed = 7\nno_report = true\n'
        f'out = "{tmp_path / "out"}"\n'
    )
    result = run("run", job)
    assert result.returncode == 0, result.stderr
    assert "Floor 35% met: " in result.stdout
    assert "Cost to the analyst: the regression's mean squared error is" in result.stdout
    confidential = tmp_path / "out" / "confidential"
    summary = json.loads((confidential / "summary.json").read_text())
    assert summary["disclosure_verdict"] == "met"
    trail = pd.read_csv(confidential / "floor_trail.csv")
    assert (confidential / "floor_trail.csv").stat().st_mode & 0o777 == 0o600
    last = trail[trail["stage"] == "released"].iloc[-1]
    assert bool(last["met"])
    assert last["copies"] == summary["copies"] <= 20
    assert last["protection"] == summary["protection"]
    assert not list((tmp_path / "out" / "public").glob("*trail*"))


@pytest.mark.nightly("the search itself finds none by day")
def test_a_floor_that_nothing_keeps_is_said_and_nothing_is_written(file, tmp_path):
    result = run("synthesise", file, *MODEL, "--copies", 2, "--floor", "3", "--out", tmp_path / "o")
    assert result.returncode == 5, result.stderr
    assert "missed; the closest that was found" in result.stdout
    assert "known better than that without any copy" in result.stdout
    assert not (tmp_path / "o").exists()


def test_a_dry_run_of_a_search_rehearses_one_release(file, tmp_path):
    result = run(
        *("synthesise", file, *MODEL, "--floor", "10%", "--out", tmp_path / "o", "--dry-run")
    )
    assert result.returncode == 0, result.stderr
    assert "auto" in result.stdout
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ((), "give one, such as --floor 10%"),
        (("--floor", "10%", "--correlation", "0.2"), "leave correlation out"),
        (("--floor", "10%", "--gamma", "3"), "leave gamma out"),
        (("--floor", "10%", "--accept-failed"), "leave accept_failed out"),
        (("--floor", "10%", "--missing", "draw"), "leave missing out"),
    ],
)
def test_what_a_search_can_not_take_is_refused_before_any_fit(file, tmp_path, more, message):
    result = run("synthesise", file, *MODEL, *more, "--out", tmp_path / "o")
    assert result.returncode == 2
    assert message in " ".join(result.stderr.split())
