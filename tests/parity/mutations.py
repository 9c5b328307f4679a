"""Prove that the parity tests see errors: put one in, expect a test to fail.

``python tests/parity/mutations.py [words]``. The repository is copied to a temporary folder, one
line is replaced, and the named tests run there, without R. Exits with 1 if an error survives.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

if __package__ in (None, ""):
    sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from parity.mutants import MUTATIONS

ROOT = Path(__file__).resolve().parents[2]


def run(folder: Path, words: str) -> tuple[int, str]:
    """Run tests of the copy; exit code, and what pytest says of the first that failed."""
    wanted = f"({words}) and not deliberate and not live_run"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "tests/parity/test_parity.py",
        "-x",
        "-q",
        "-k",
        wanted,
    ]
    plain = ["-o", "addopts=", "-p", "no:cacheprovider", "--no-header", "-rf"]
    done = subprocess.run(
        command + plain,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**environment(folder), "DSSTAN_REQUIRE_ALL": "0", "COLUMNS": "1000"},
    )
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
    if failed:
        return done.returncode, failed[0].split("::", 1)[1]
    return done.returncode, (done.stdout.strip().splitlines() or ["no output"])[-1]


def environment(folder: Path) -> dict[str, str]:
    """Variables under which Python imports the copy and leaves no compiled files there."""
    return {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(folder)}


def copy_tree(folder: Path) -> None:
    """Copy what the tests need, without compiled files."""
    for name in ("dsstan", "stan", "data", "tests"):
        shutil.copytree(
            ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.o", "bin")
        )
    shutil.copy(ROOT / "pyproject.toml", folder)


def uses_the_copy(folder: Path) -> bool:
    """Whether Python run there imports the copy, not an installed package."""
    told = subprocess.run(
        [sys.executable, "-c", "import dsstan; print(dsstan.__file__)"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
        env=environment(folder),
    )
    return Path(told.stdout.strip()).resolve().is_relative_to(folder.resolve())


def main(words: list[str]) -> int:
    """Try every mutation whose name holds all the words; 1 if one survives."""
    chosen = [m for m in MUTATIONS if all(word in m.name for word in words)]
    survived = 0
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "repository"
        copy_tree(folder)
        assert uses_the_copy(folder), "an installed dsstan hides the copy"
        every = " or ".join(f"({tests})" for tests in dict.fromkeys(m.tests for m in chosen))
        code, said = run(folder, every)
        if code != 0:
            print(f"the tests don't pass without any error (exit code {code}): {said}")
            return 1
        print("| error | caught by | which said | seconds |\n|---|---|---|---|")
        for m in chosen:
            path = folder / m.file
            text = path.read_text(encoding="utf-8")
            assert text.count(m.before) == 1, f"{m.name}: its line is not in {m.file} once"
            begin = time.perf_counter()
            path.write_text(text.replace(m.before, m.after), encoding="utf-8")
            code, said = run(folder, m.tests)
            path.write_text(text, encoding="utf-8")
            # Code 1 and an assertion: a test ran and saw a difference. Code that merely breaks
            # proves nothing about the tests.
            test, _, reason = said.partition(" - ")
            caught = code == 1 and reason.lower().startswith("assert")
            survived += not caught
            verdict = f"{test} | {reason}" if caught else f"SURVIVED, exit code {code} | {said}"
            print(f"| {m.name} | {verdict} | {time.perf_counter() - begin:.0f} |", flush=True)
    print(f"{len(chosen)} errors, {survived} survived")
    return 1 if survived or not chosen else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
