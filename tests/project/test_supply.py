"""What the package is built from and tested with."""

from __future__ import annotations

import datetime
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile

import pytest
from advisories import LIST, doubt, from_index, judged, known_of, pinned, refreshed, within
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from test_package import NOT_SHIPPED

from conftest import ROOT, leave_out

REQUIREMENTS = ROOT / "requirements"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCKS = {
    "demo": ("examples",),
    "test": ("test", "dev", "examples", "docs", "arviz"),
    "supply": ("supply",),
}
"""Each lock, and the extras that it pins beside what every install needs."""

ON_DEBIAN = {"python_version": "3.11", "python_full_version": "3.11.2", "sys_platform": "linux"}


def stated(*extras):
    """What pyproject asks for: of every install, of its build, and of extras."""
    project = PROJECT["project"]
    texts = [*project["dependencies"], *PROJECT["dependency-groups"]["build"]]
    texts += [text for extra in extras for text in project["optional-dependencies"][extra]]
    return [Requirement(text) for text in texts]


def applies(requirement, extra=""):
    return requirement.marker is None or requirement.marker.evaluate({**ON_DEBIAN, "extra": extra})


def needed_by(name, extras):
    """What an installed package asks for, as a lock of Debian's Python 3.11 must have it."""
    texts = importlib.metadata.requires(name) or []
    wanted = [Requirement(text) for text in texts]
    return [r for r in wanted if any(applies(r, extra) for extra in ("", *extras))]


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_meets_the_ranges_of_the_project(lock):
    pins = pinned(REQUIREMENTS / f"{lock}.txt")
    for requirement in filter(applies, stated(*LOCKS[lock])):
        assert requirement.specifier.contains(pins[canonicalize_name(requirement.name)])


def test_a_lock_has_what_its_packages_need_and_nothing_that_none_needs():
    """Followed through the packages that are installed here, which are those of the lock."""
    pins = pinned(REQUIREMENTS / "test.txt")
    seen, todo = set(), [r for r in stated(*LOCKS["test"]) if applies(r)]
    while todo:
        requirement = todo.pop()
        name = canonicalize_name(requirement.name)
        assert requirement.specifier.contains(pins[name], prereleases=True), requirement
        if (name, *sorted(requirement.extras)) in seen:
            continue
        seen.add((name, *sorted(requirement.extras)))
        try:
            todo += needed_by(name, requirement.extras)
        except importlib.metadata.PackageNotFoundError:
            leave_out(f"{name} of requirements/test.txt is not installed (make test installs it)")
    assert {name for name, *_ in seen} == set(pins)


def test_all_locks_pin_the_same_versions_so_that_one_environment_holds_them():
    first = pinned(REQUIREMENTS / "test.txt")
    for lock in ("demo", "supply"):
        pins = pinned(REQUIREMENTS / f"{lock}.txt")
        assert {n: v for n, v in pins.items() if n in first and first[n] != v} == {}


@pytest.mark.parametrize("lock", LOCKS)
def test_every_pinned_package_has_hashes_and_no_place_of_its_own(lock):
    text = (REQUIREMENTS / f"{lock}.txt").read_text()
    entries = re.split(r"\n(?=[a-z0-9])", text)
    assert len(entries) == len(pinned(REQUIREMENTS / f"{lock}.txt"))
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}", entry) for entry in entries)
    assert "://" not in text
    assert "--index-url" not in text


@pytest.mark.parametrize("target", ["demo", "test", "check", "docs", "audit"])
def test_make_installs_by_hash_unless_ranges_are_asked_for(target, tmp_path):
    """As on a machine without an environment; nothing is run."""
    shutil.copytree(REQUIREMENTS, tmp_path / "requirements")
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)

    def installs(*more):
        told = subprocess.run(
            ["make", "--dry-run", target, *more], cwd=tmp_path, capture_output=True, text=True
        )
        assert told.returncode == 0, told.stderr
        return [line for line in told.stdout.splitlines() if "pip install" in line]

    for line in installs():
        if " -r " in line:
            assert "--require-hashes --only-binary :all:" in line
        else:
            assert "--no-deps --no-build-isolation --no-index -e ." in line
    assert "--require-hashes" not in " ".join(installs("LOCKED=no"))
    assert " -e '.[" in " ".join(installs("LOCKED=no"))


ADVISORIES = json.loads(LIST.read_text())


def test_an_advisory_is_found_in_a_lock_that_it_affects_and_in_no_other():
    assert known_of({"pyarrow": "14.0.0"}, ADVISORIES["advisories"]) == [
        "pyarrow 14.0.0: PYSEC-2023-238, CVE-2023-47248, GHSA-5wvp-7f3h-6wmm"
    ]
    assert known_of({"pyarrow": "14.0.1", "jinja2": "3.1.6"}, ADVISORIES["advisories"]) == []
    assert main_of({"pyarrow": "14.0.0"})[0] == 1


def main_of(pins):
    return judged(known_of(pins, ADVISORIES["advisories"]))


@pytest.mark.parametrize(
    ("version", "affected"),
    [("1.26.17", True), ("1.26.18", False), ("2.0.0rc1", False), ("2.0.6", True), ("2.0.7", False)],
)
def test_two_lines_of_versions_are_two_ranges(version, affected):
    assert bool(known_of({"urllib3": version}, ADVISORIES["advisories"])) == affected


def test_the_last_version_affected_is_affected():
    events = [{"introduced": "1.0"}, {"last_affected": "1.4"}]
    assert [within(events, Version(v)) for v in ("0.9", "1.0", "1.4", "1.4.1")] == [
        *(False, True, True, False)
    ]


def test_the_locks_have_no_weakness_that_the_list_knows():
    pins = pinned(*REQUIREMENTS.glob("*.txt"))
    assert known_of(pins, ADVISORIES["advisories"]) == []
    covered = {a["affected"][0]["package"]["name"] for a in ADVISORIES["advisories"]}
    assert covered <= set(pins)


def test_a_list_that_is_old_or_not_whole_clears_nothing(capsys):
    day = datetime.date.fromisoformat(ADVISORIES["as_of"])
    whole = {**ADVISORIES, "whole": True}
    assert doubt(whole, day) == ""
    assert "31 days old" in doubt(whole, day + datetime.timedelta(days=31))
    assert "of many" in doubt({**ADVISORIES, "whole": False}, day)
    assert judged([], doubt({**ADVISORIES, "whole": False}, day))[0] == 2
    assert judged([])[0] == 0


def test_an_index_that_does_not_answer_has_not_said_that_all_is_well(tmp_path):
    """pip-audit itself ends with 0 for packages that it could not look up."""
    if importlib.util.find_spec("pip_audit"):
        pytest.skip("pip-audit is here, and an index may answer it")
    assert from_index([REQUIREMENTS / "demo.txt"]) is None


def test_the_list_is_made_from_an_export_and_keeps_what_concerns_the_locks(tmp_path):
    one = {**ADVISORIES["advisories"][0], "modified": "2026-01-02T00:00:00Z", "details": "long"}
    other = {"package": {"ecosystem": "PyPI", "name": "not-pinned"}, "versions": ["1"]}
    export = tmp_path / "all.zip"
    with zipfile.ZipFile(export, "w") as archive:
        archive.writestr("A.json", json.dumps(one))
        archive.writestr("B.json", json.dumps({**one, "id": "B", "affected": [other]}))
        archive.writestr("C.json", json.dumps({**one, "id": "C", "withdrawn": "2026-01-01"}))
    made = refreshed(export, {"jinja2": "2.11.2"})
    assert [a["id"] for a in made["advisories"]] == [one["id"]]
    assert (made["as_of"], made["whole"]) == ("2026-01-02", True)
    assert known_of({"jinja2": "2.11.2"}, made["advisories"])


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
