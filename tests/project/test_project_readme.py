"""The README followed literally, in a fresh clone in another folder."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from markdown_it import MarkdownIt

from conftest import ROOT, leave_out, small_table
from dsstan.cli.command_line import synthesise
from dsstan.cli.job import read_job
from dsstan.release.reading import read_table

TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
LEFT_OUT = {"make test": "it is what is running now"}
"""Commands that are not run, and why."""

LONGEST = 1800.0
"""Seconds that a block may take: the first one installs the package and fits three models."""


def blocks() -> list[tuple[str, str]]:
    """Every block of code, in order: python in fences, shell where it is only indented."""
    tokens = MarkdownIt().parse(TEXT)
    kinds = {"fence": "python", "code_block": "shell"}
    shown = {token.info for token in tokens if token.type == "fence"}
    assert shown == {"python", "toml"}
    return [(kinds[t.type], t.content) for t in tokens if t.type in kinds and t.info != "toml"]


def job() -> str:
    """The job file that is shown."""
    [text] = [t.content for t in MarkdownIt().parse(TEXT) if t.info == "toml"]
    return text


def own_table(path: Path) -> None:
    """The reader's own table, as the README's commands name it: places in degrees."""
    table = small_table(120)
    pd.DataFrame(
        {
            "price": np.rint(1000 * table["value"]).astype(int),
            "area": np.rint(100 * np.exp(0.3 * table["x"])).astype(int),
            "longitude": np.round(-122.4 + 0.3 * table["east"], 5),
            "latitude": np.round(37.7 + 0.3 * table["north"], 5),
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
    return {**kept, "VIRTUAL_ENV": str(clone / ".venv"), "PATH": f"{bin_folder}:{kept['PATH']}"}


def steps() -> list[tuple[str, str]]:
    """The blocks to run; Python's go on where the one before ended, so they are one program."""
    found = [(kind, text) for kind, text in blocks() if text.strip() not in LEFT_OUT]
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
    for name in ("baltimore-release", "release", "grid", "demo-baltimore", "demo-out"):
        assert (clone / name).is_dir(), name
    assert (clone / "release" / "confidential" / "report.html").is_file()
    assert not (clone / "release-2").exists()  # a dry run


def test_the_job_that_the_readme_shows_is_one(tmp_path):
    own_table(tmp_path / "sales.csv")
    (tmp_path / "job.toml").write_text(job())
    arguments = read_job(tmp_path / "job.toml", synthesise)
    table = read_table(arguments["table"])
    assert set(arguments["coords"]) <= set(table.columns)
    assert arguments["floor"] == 0.05


def test_the_readme_has_the_blocks_that_this_file_thinks_it_has():
    kinds = [kind for kind, _ in steps()]
    assert kinds.count("python") == 1
    assert kinds.count("shell") >= 2
    assert set(LEFT_OUT) <= {text.strip() for _, text in blocks()}
