"""The README followed literally, in a fresh clone in another folder."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from markdown_it import MarkdownIt
from scipy.spatial.distance import cdist

from conftest import ROOT, leave_out, tidy_environment
from dsstan.cli.command_line import synthesise
from dsstan.cli.job import read_job
from dsstan.release.reading import read_table

TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
"""The page that shows a job file."""

LINES = 110
"""A reader sees whether the package is for them within so many lines."""

LONGEST = 1800.0
"""Seconds that a block may take: the first one installs the package and fits three models."""


def blocks() -> list[tuple[str, str]]:
    """Every block of code, in order: python in fences, shell where it is only indented."""
    tokens = MarkdownIt().parse(TEXT)
    kinds = {"fence": "python", "code_block": "shell"}
    assert {token.info for token in tokens if token.type == "fence"} == {"python"}
    return [(kinds[t.type], t.content) for t in tokens if t.type in kinds]


def job() -> str:
    """The job file that the page on the command line shows."""
    [text] = [t.content for t in MarkdownIt().parse(COMMANDS) if t.info == "toml"]
    return text


def own_table(path: Path) -> None:
    """The reader's own table, as the README's commands name it: places in degrees.

    Prices hang together over some ten kilometres and have noise of their own, so that the fit has
    no warning and can be published without a reason.
    """
    rng = np.random.default_rng(5)
    places = np.vstack([rng.uniform(0, 40, (200, 2)), [[70.0, 0.0]]])  # kilometres
    d = cdist(places, places)
    area = np.exp(4.5 + 0.3 * rng.normal(size=len(d)))
    deviation = np.linalg.cholesky(0.25 * np.exp(-0.15 * d) + 0.08 * np.eye(len(d)))
    log_price = 9.3 + 0.7 * np.log(area) + deviation @ rng.normal(size=len(d))
    pd.DataFrame(
        {
            "price": np.rint(np.exp(log_price)).astype(int),
            "area": np.rint(area).astype(int),
            "longitude": np.round(-122.4 + places[:, 0] / 88, 5),
            "latitude": np.round(37.7 + places[:, 1] / 111, 5),
        }
    ).to_csv(path, index=False)


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone as it would be after the next commit."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        leave_out("this is no git checkout, so there is nothing to clone; apt-get install git")
    folder = tmp_path_factory.mktemp("clone") / "dsstan"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(folder)], check=True)
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z", "-m", "-o", "--exclude-standard"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
        else:
            (folder / name).unlink(missing_ok=True)
    return folder


def environment(clone: Path) -> dict[str, str]:
    """As after `. .venv/bin/activate`, with nothing of this run's own Python."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "PYTHON", "COV"))}
    bin_folder = clone / ".venv" / "bin"
    own = {"VIRTUAL_ENV": str(clone / ".venv"), "DSSTAN_LEDGER": str(clone.parent / "ledger")}
    return {**kept, **own, "PATH": f"{bin_folder}:{kept['PATH']}"}


def steps() -> list[tuple[str, str]]:
    """The blocks to run; Python's go on where the one before ended, so they are one program."""
    found = blocks()
    first = next(number for number, (kind, _) in enumerate(found) if kind == "python")
    program = "\n".join(text for kind, text in found if kind == "python")
    commands = [(number, step) for number, step in enumerate(found) if step[0] == "shell"]
    before = [step for number, step in commands if number < first]
    return [*before, ("python", program), *(step for n, step in commands if n > first)]


@pytest.mark.nightly("installs the package in a fresh clone and runs every command")
def test_every_block_of_the_readme_runs_as_written(clone, san_francisco):
    own_table(clone / "sales.csv")
    for kind, text in steps():
        command = ["python", "-c", text] if kind == "python" else ["sh", "-euc", text]
        done = subprocess.run(
            command,
            cwd=clone,
            env=environment(clone),
            capture_output=True,
            text=True,
            timeout=LONGEST,
            check=False,
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
    for name in ("town-release", "release", "demo-out"):
        assert (clone / name).is_dir(), name
    assert (clone / "release" / "confidential" / "report.html").is_file()


def test_the_job_that_the_page_on_commands_shows_is_one(tmp_path):
    own_table(tmp_path / "sales.csv")
    (tmp_path / "job.toml").write_text(job())
    arguments = read_job(tmp_path / "job.toml", synthesise)
    table = read_table(arguments["table"])
    assert set(arguments["coords"]) <= set(table.columns)
    assert arguments["floor"] == "10%"
    assert list(arguments["publish"]) == []


def test_the_readme_has_the_blocks_that_this_file_thinks_it_has():
    kinds = [kind for kind, _ in steps()]
    assert kinds.count("python") == 1
    assert kinds.count("shell") >= 2


def test_the_readme_is_short_and_every_file_that_it_links_is_there():
    assert len(TEXT.splitlines()) <= LINES
    links = {target.split("#")[0] for target in re.findall(r"\]\(([^)]+)\)", TEXT)}
    assert {target for target in links if not (ROOT / target).exists()} == set()


@pytest.mark.nightly("fits the town of the picture and assesses it exactly")
def test_the_script_of_the_picture_finds_the_numbers_below_it(tmp_path):
    script = ROOT / "docs" / "pictures" / "lonely_record.py"
    command = [sys.executable, str(script), "--out", str(tmp_path / "again.svg")]
    done = subprocess.run(
        command, env=tidy_environment(), capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout)
    assert found["within_unprotected"] in TEXT
    assert found["within_protected"] == found["within_without_a_copy"]
    assert "no closer than without any copy" in TEXT
    assert f"all {found['copies']} copies" in TEXT
    committed = script.with_suffix(".svg").read_text(encoding="utf-8")
    assert (tmp_path / "again.svg").read_text(encoding="utf-8").count("<use ") == committed.count(
        "<use "
    )
