"""An analyst in R reads a public folder and finds what dsstan finds."""

from __future__ import annotations

import io
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import dsstan as ds
from conftest import ROOT, leave_out
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


def test_the_script_has_at_most_ten_lines():
    assert len(SCRIPT.read_text(encoding="utf-8").splitlines()) <= 10
