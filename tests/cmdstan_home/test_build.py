"""The CMDSTAN folder is built once, from what it should, and never over other files."""

from __future__ import annotations

import importlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
# tests/conftest.py puts the folder of the tests on the path.
build = importlib.import_module("cmdstan_home.build")


def test_the_folder_is_built_once_and_found_again() -> None:
    home = build.ensure()
    done = subprocess.run(
        [sys.executable, HERE / "build.py"], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == str(home)
    assert "compiling" not in done.stderr


def test_a_changed_source_leads_to_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = build.fingerprint()
    shutil.copytree(HERE / "cli", tmp_path / "cli")
    shutil.copy(HERE / "makefile", tmp_path)
    monkeypatch.setattr(build, "HERE", tmp_path)
    assert build.fingerprint() == before
    with (tmp_path / "cli" / "main.cpp").open("a") as file:
        file.write("\n")
    assert build.fingerprint() != before


def test_a_wheel_with_another_checksum_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build.platform, "machine", lambda: "x86_64")
    wheel = tmp_path / "httpstan-4.17.0-cp312-cp312-manylinux2014_x86_64.whl"
    wheel.write_bytes(b"something else")
    with pytest.raises(build.BuildError, match=r"has SHA-256 .*, expected 7f73e29a"):
        build.ensure(tmp_path / "home", wheel)


def test_a_missing_compiler_is_reported_with_its_debian_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(build.BuildError, match=r"g\+\+ .* install build-essential"):
        build.ensure(tmp_path / "home")


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(build.BuildError, match="was not built by this program"):
        build.ensure(tmp_path)
    assert (tmp_path / "thesis.tex").exists()
