"""``heap`` and ``range`` at the command line, in job files and in their steps."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from jsonschema import validate
from test_command_line import inside  # noqa: F401

from conftest import ROOT, case

MODEL = ("--formula", "log(rent) ~ log(area)", "--coords", "x", "y", "--threshold", "2.2")
BRIEF = ("--engine", "direct", "--copies", "4", "--seed", str(2**100), "--accept-failed")
BRIEF += ("--samples", "200")
JOB = """table = "zeros.csv"
out = "out"
coords = ["x", "y"]
engine = "direct"
copies = 4
accept_failed = true
samples = 200
"""
LAW = """formula = "log(rent) ~ log(area)"
threshold = 2.2
heap = 0
range = [0, 2000]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the table of which a fifth are zeros."""
    monkeypatch.chdir(tmp_path)
    case("zeros.csv").to_csv("zeros.csv", index=False)
    return tmp_path


def rents(folder: Path) -> np.ndarray:
    """Rents of all copies, shape (L, N)."""
    files = sorted((folder / "public").glob("copy_*.csv"))
    return np.array([pd.read_csv(file)["rent"] for file in files])


@pytest.mark.parametrize("way", ["command", "job", "step"])
def test_a_heap_and_a_range_reach_the_copies(inside, folder, way):  # noqa: F811
    if way == "command":
        asked = ("--heap", "0", "--range", "0", "2000", "--out", "out")
        ran = inside("synthesise", "zeros.csv", *MODEL, *BRIEF, *asked)
    else:
        (folder / "job.toml").write_text(JOB + ("" if way == "job" else "[[steps]]\n") + LAW)
        ran = inside("run", "job.toml")
    assert ran.returncode == 0, ran.stderr
    assert "NOT JUDGED" in ran.stdout
    found = rents(folder / "out")
    assert 0.05 < np.mean(found == 0.0) < 0.4
    assert found.min() == 0.0
    assert found.max() <= 2000.0
    schema = json.loads((ROOT / "docs" / "summary.schema.json").read_text())
    summary = json.loads((folder / "out" / "confidential" / "summary.json").read_text())
    validate(summary, schema)
    assert summary["restricted"]["heap_phi"]["rhat"] is None  # held, as phi is


def test_a_dry_run_says_what_it_found_and_advises_a_heap_where_there_is_none(
    inside,  # noqa: F811
    folder,
):
    asked = ("synthesise", "zeros.csv", *MODEL, "--out", "out", "--dry-run", "--json")
    found = json.loads(inside(*asked, "--heap", "floor").stdout)
    assert found["plan"]["heap"].startswith("16 of 80 records are at one value; ")
    assert "not rehearsed" in found["no_estimate"]
    plain = tuple(word.replace("log(rent)", "log1p(rent)") for word in asked)
    said = json.loads(inside(*plain).stdout)["warnings"]
    assert any("--heap 0" in line for line in said)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--heap", "883"), "--heap 883 is no heap: 0 of 80 records"),
        (("--heap", "none"), "heap must be a number"),
        (("--heap", "0", "--floor", "10%"), "no intruder is computed"),
        (("--heap", "0", "--range", "0", "500"), "'rent' is outside the range"),
        (("--heap", "0", "--protection", "cut"), "--protection paper"),
        (("--heap", "0", "--protection", "auto", "--floor", "10%"), "leave heap out"),
    ],
)
@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_what_can_not_be_is_refused_before_sampling(inside, folder, more, said, dry):  # noqa: F811
    asked = MODEL[:-2] if "auto" in more else MODEL
    result = inside("synthesise", "zeros.csv", *asked, *more, "--out", "out", *dry)
    assert result.returncode == 2
    assert said in " ".join(result.stderr.split())


def test_a_count_has_no_heap_in_a_job(inside, folder):  # noqa: F811
    step = '[[steps]]\nformula = "rent ~ 1"\noutcome = "poisson"\nheap = 0\n'
    (folder / "steps.toml").write_text(JOB + step)
    result = inside("run", "steps.toml", "--dry-run")
    assert result.returncode == 2
    assert "'heap' belongs to the outcome 'gaussian'" in " ".join(result.stderr.split())
