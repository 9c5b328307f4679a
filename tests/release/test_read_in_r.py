"""An analyst in R reads a public folder and finds what dsstan finds."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import dsstan as ds
from conftest import ROOT, leave_out, small_table
from dsstan.copies.result import Synthesis
from dsstan.models.result import Fit

SAME = 1e-8
"""Both sides solve the same least squares in double precision, R from the text of the copies."""

SCRIPT = ROOT / "examples" / "read_release.R"
FORMULA = "log(value) ~ x"
COLUMNS = {"estimate": "estimate", "std.error": "se", "df": "df", "2.5 %": "low", "97.5 %": "high"}


@pytest.fixture(scope="module")
def release(kept: Fit) -> Synthesis:
    return ds.synthesise(kept, copies=5, seed=3)


@pytest.fixture(scope="module")
def public(release: Synthesis, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The public folder alone, as an analyst gets it."""
    folder = release.write(tmp_path_factory.mktemp("release") / "out", report=False)
    alone = tmp_path_factory.mktemp("analyst") / "public"
    shutil.copytree(folder / "public", alone)
    return alone


def pooled_in_r(rscript: str, public: Path) -> pd.DataFrame:
    """What the script prints."""
    for package in ("jsonlite", "mice"):
        found = subprocess.run(
            [rscript, "-e", f'stopifnot(requireNamespace("{package}", quietly = TRUE))'],
            capture_output=True,
            check=False,
        )
        if found.returncode != 0:
            leave_out(f"the R package {package} is missing; apt-get install r-cran-{package}")
    run = subprocess.run(
        [rscript, str(SCRIPT), str(public), FORMULA], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    return pd.read_csv(io.StringIO(run.stdout))


def test_the_script_in_r_finds_what_utility_finds(rscript, release, public):
    found = pooled_in_r(rscript, public)
    table = ds.utility(release, FORMULA).table
    ours = table[table["source"] == "restricted"]
    assert len(found) == len(ours) == 2
    for theirs, mine in COLUMNS.items():
        np.testing.assert_allclose(found[theirs], ours[mine], rtol=SAME)


def test_the_script_has_at_most_a_dozen_lines():
    assert len(SCRIPT.read_text(encoding="utf-8").splitlines()) <= 12


def test_another_folder_is_named_as_what_is_wrong(rscript, tmp_path):
    run = subprocess.run(
        [rscript, str(SCRIPT), str(tmp_path), FORMULA], capture_output=True, text=True, check=False
    )
    assert run.returncode != 0
    assert f"no release: {tmp_path} holds neither metadata.json nor" in run.stderr


def test_r_makes_a_release_and_reads_the_whole_folder_back(rscript, tmp_path):
    """The folder with both parts is taken as its public part is."""
    there = [rscript, "-e", "stopifnot(requireNamespace('reticulate', quietly = TRUE))"]
    if subprocess.run(there, capture_output=True, check=False).returncode != 0:
        leave_out("reticulate is missing; apt-get install r-cran-reticulate")
    small_table(40, seed=9).to_csv(tmp_path / "table.csv", index=False)
    drive = [rscript, str(ROOT / "examples" / "drive_from_r.R"), "table.csv", FORMULA]
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    run = subprocess.run(
        [*drive, "east", "north", "0.15", "out", "0.1%", "5"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "RETICULATE_PYTHON": sys.executable, "PYTHONPATH": paths},
    )
    assert run.returncode == 0, run.stderr
    assert "DISCLOSURE: " in run.stdout
    assert "May it be published? met - every record keeps the floor of 0.1%" in run.stdout
    found = pooled_in_r(rscript, tmp_path / "out")
    report = json.loads((tmp_path / "out" / "confidential" / "summary.json").read_text())
    for term, row in zip(("Intercept", "x"), found.to_dict("records"), strict=True):
        mine = report["utility"]["restricted"][term]
        for theirs, key in (("estimate", "estimate"), ("2.5 %", "low"), ("97.5 %", "high")):
            assert row[theirs] == pytest.approx(mine[key], rel=SAME)
