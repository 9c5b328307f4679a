"""What is shipped: the wheel, the public names, one version everywhere."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from email.parser import Parser

import pytest

import dsstan as ds
from conftest import ROOT
from dsstan.engines.programs import PROGRAMS, REFERENCE_PROGRAMS

MOST_NAMES = 21
"""The design's limit, so that a newcomer can read them all."""

NOT_SHIPPED = (".*", "__pycache__", "tests", "docs", "examples", "*.egg-info", "dist", "build")


def pip(*arguments):
    """Run pip and show what it said where it failed."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built from a copy of the tree so that nothing is written into it."""
    folder = tmp_path_factory.mktemp("wheel")
    shutil.copytree(ROOT, folder / "tree", ignore=shutil.ignore_patterns(*NOT_SHIPPED))
    # Without hatchling here, pip fetches it as it does for anybody who builds.
    alone = ["--no-build-isolation"] if importlib.util.find_spec("hatchling") else []
    pip("wheel", "--quiet", "--no-deps", *alone, "-w", folder, folder / "tree")
    [path] = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The wheel, installed into a folder of its own."""
    target = tmp_path_factory.mktemp("installed") / "site"
    pip("install", "--quiet", "--no-deps", "--no-index", "--target", target, wheel)
    return target


def read(wheel, name):
    with zipfile.ZipFile(wheel) as archive:
        return archive.read(name)


def names_in(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def metadata_of(wheel):
    [name] = [n for n in names_in(wheel) if n.endswith(".dist-info/METADATA")]
    return Parser().parsestr(read(wheel, name).decode())


def test_the_wheel_carries_every_stan_program_and_function_file_unchanged(wheel):
    sources = sorted((ROOT / "stan").rglob("*.stan*"))
    assert {p.relative_to(ROOT / "stan").with_suffix("").as_posix() for p in sources} >= {
        *PROGRAMS,
        *REFERENCE_PROGRAMS,
        "functions/covariance",
        "functions/surface",
        "shared/count_data",
    }
    for path in sources:
        name = f"dsstan/_stan/{path.relative_to(ROOT / 'stan').as_posix()}"
        assert read(wheel, name) == path.read_bytes()


def test_the_wheel_carries_the_simulated_data_unchanged(wheel):
    path = ROOT / "data" / "simulated" / "simulated.csv"
    assert read(wheel, "dsstan/_data/simulated/simulated.csv") == path.read_bytes()


def test_the_wheel_says_that_it_is_typed(wheel):
    assert "dsstan/py.typed" in names_in(wheel)


def test_the_wheel_carries_every_module(wheel):
    modules = {p.relative_to(ROOT).as_posix() for p in (ROOT / "dsstan").rglob("*.py")}
    assert modules <= set(names_in(wheel))
    assert "dsstan/engines/embedded_worker.py" in modules


def test_the_wheel_carries_the_templates_of_the_report_unchanged(wheel):
    sources = sorted((ROOT / "dsstan" / "release" / "report" / "templates").iterdir())
    assert {p.name for p in sources} == {
        *("report.html", "factsheet.html", "pictures.html", "tables.html", "placed.html"),
        *("parts.html", "report.js", "style.css"),
    }
    for path in sources:
        assert read(wheel, path.relative_to(ROOT).as_posix()) == path.read_bytes()


def test_the_wheel_carries_no_tests_and_nothing_outside_the_package(wheel):
    tops = {name.split("/")[0] for name in names_in(wheel)}
    assert tops == {"dsstan", f"dsstan-{ds.__version__}.dist-info"}
    unwanted = re.compile(r"(^|/)(tests?|conftest|test_\w+|__pycache__)(/|\.|$)")
    assert [name for name in names_in(wheel) if unwanted.search(name)] == []


def test_the_wheel_names_its_command_its_licence_and_its_python(wheel):
    found = metadata_of(wheel)
    assert found["License-Expression"] == "BSD-3-Clause"
    assert found["Requires-Python"] == ">=3.11"
    [points] = [n for n in names_in(wheel) if n.endswith("entry_points.txt")]
    assert "dsstan = dsstan.cli.command_line:main" in read(wheel, points).decode()
    assert any(n.endswith("licenses/LICENSE") for n in names_in(wheel))


FIT = """
import sys
from pathlib import Path
import dsstan as ds
from dsstan.engines.programs import Program
target = Path(sys.argv[1])
assert Path(ds.__file__).is_relative_to(target), ds.__file__
assert Program("restricted").path.is_relative_to(target), Program("restricted").path
table = ds.load_simulated().iloc[:40]
problem = ds.prepare(table, "log(income) ~ 1", coords=("s1", "s2"))
quick = dict(chains=2, warmup=100, samples=100, engine="embedded", progress=False)
free = ds.fit(problem, seed=1, **quick)
kept = ds.fit(problem, weights=ds.flag_isolated(free), start=free, seed=2, **quick)
print(free.program, kept.program, kept.draws["sigma_sq"].shape)
"""


def test_an_installed_wheel_fits_from_any_folder_with_its_own_programs(installed, tmp_path):
    result = subprocess.run(
        [sys.executable, "-P", "-c", FIT, str(installed)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed)},
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "surface surface (2, 100)"
    assert list(tmp_path.iterdir()) == []


def test_few_names_are_public_and_each_exists():
    public = [name for name in ds.__all__ if not name.startswith("__")]
    assert len(public) <= MOST_NAMES
    assert len(set(ds.__all__)) == len(ds.__all__)
    assert all(getattr(ds, name) is not None for name in ds.__all__)


def test_every_public_name_has_a_docstring():
    bare = [n for n in ds.__all__ if n != "__version__" and not getattr(ds, n).__doc__]
    assert bare == []


def test_the_version_is_stated_once_and_is_a_release_number():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" in project["project"]["dynamic"]
    stated = (ROOT / project["tool"]["hatch"]["version"]["path"]).read_text()
    assert f'__version__ = "{ds.__version__}"' in stated
    assert re.fullmatch(r"\d+\.\d+\.\d+", ds.__version__)


def test_the_wheel_has_the_packages_version(wheel):
    assert metadata_of(wheel)["Version"] == ds.__version__


def test_the_citation_has_the_packages_version():
    [stated] = re.findall(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert stated.strip("\"'") == ds.__version__


def test_the_changelog_begins_with_the_packages_version():
    text = (ROOT / "CHANGELOG.md").read_text()
    headings = re.findall(r"^## \[?v?(\d+\.\d+\.\d+)", text, re.MULTILINE)
    assert headings[0] == ds.__version__
