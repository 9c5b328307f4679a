"""What the package is built from and tested with."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib

from test_package import NOT_SHIPPED

from conftest import ROOT

LOCK = ROOT / "requirements" / "test.txt"


def pinned():
    """Name and version of every package of the locked test environment."""
    return dict(re.findall(r"^([a-z0-9._-]+)==(\S+)", LOCK.read_text(), re.MULTILINE))


def test_the_locked_environment_holds_all_that_the_tests_need():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    needed = [*project["dependencies"], *extras["test"], *extras["dev"], *extras["examples"]]
    names = {re.match(r"[\w.-]+", text)[0].lower().replace("_", "-") for text in needed}
    assert names <= set(pinned())


def test_every_pinned_package_has_hashes_and_no_place_of_its_own():
    entries = re.split(r"\n(?=[a-z0-9])", LOCK.read_text())
    assert len(entries) == len(pinned())
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}", entry) for entry in entries)
    assert "://" not in LOCK.read_text()
    assert "--index-url" not in LOCK.read_text()


def test_two_builds_of_the_wheel_are_the_same_bytes(tmp_path):
    digests = set()
    # Without hatchling here, pip fetches it as it does for anybody who builds.
    alone = ["--no-build-isolation"] if importlib.util.find_spec("hatchling") else []
    for number, mask in enumerate((0o022, 0o077)):
        tree, out = tmp_path / f"tree{number}", tmp_path / f"out{number}"
        before = os.umask(mask)
        try:
            shutil.copytree(
                ROOT,
                tree,
                ignore=shutil.ignore_patterns(*NOT_SHIPPED),
                copy_function=shutil.copyfile,
            )
        finally:
            os.umask(before)
        os.utime(tree / "pyproject.toml", (1e9 + number, 1e9 + number))
        done = subprocess.run(
            [
                *(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"),
                *("--disable-pip-version-check", *alone, "-w", out, tree),
            ],
            capture_output=True,
            text=True,
            env={**os.environ, "SOURCE_DATE_EPOCH": "1600000000"},
        )
        assert done.returncode == 0, done.stderr
        [wheel] = out.glob("*.whl")
        digests.add(hashlib.sha256(wheel.read_bytes()).hexdigest())
    assert len(digests) == 1


def test_the_security_policy_leads_to_the_promises_and_says_how_to_report():
    text = (ROOT / "SECURITY.md").read_text()
    assert "docs/explain/trust.md" in text
    assert "confidential data" in text
