"""What is required, and what an error says where an optional library is not installed."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
import tomllib

import pytest

import dsstan as ds
from conftest import ROOT
from dsstan.cli.doctor import OPTIONAL, examine
from dsstan.core.errors import InputError
from dsstan.core.optional import needed

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
MOST_REQUIRED = 18

COMES_WITH = {"mizani": "plotnine", "markupsafe": "jinja2"}
"""Imported, and installed by a requirement that can't do without it."""
AFTER_NEEDED = {"arviz_base", "dask", "distributed"}
"""Imported where another line has already made sure of them."""


def names(requirements):
    return {re.match(r"[\w.-]+", text)[0].replace("-", "_") for text in requirements}


def imported(path):
    """Every package that a module imports, wherever the import stands; types aside."""
    tree = ast.parse(path.read_text())
    aside = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in aside:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module.partition(".")[0]


def test_the_package_imports_what_it_requires_and_requires_no_more():
    required = names(PROJECT["dependencies"])
    assert len(required) <= MOST_REQUIRED
    found = {package for path in (ROOT / "dsstan").rglob("*.py") for package in imported(path)}
    found -= {*sys.stdlib_module_names, "dsstan", "__future__"}
    assert {COMES_WITH.get(package, package) for package in found - AFTER_NEEDED} == required


def test_every_optional_library_is_in_the_extra_that_the_error_names():
    calls = re.findall(
        r'(?:needed|place_of)\("(\w+)[\w.]*", "(\w+)"\)',
        "".join(p.read_text() for p in (ROOT / "dsstan").rglob("*.py")),
    )
    extras = PROJECT["optional-dependencies"]
    for package, extra in {*calls, *(found[:2] for found in OPTIONAL)} - {
        ("shapely", "geo"),  # these two come with geopandas
        ("pyogrio", "geo"),
        ("nosuchlibrary", "geo"),
    }:
        assert {"sklearn": "scikit_learn"}.get(package, package) in names(extras[extra])
    assert len(calls) > len(OPTIONAL)


def without(monkeypatch, package):
    """As if a package were not installed."""
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name == package else find(name, *a)
    )


@pytest.mark.parametrize("package", ["rdata", "libpysal"])
def test_example_data_say_what_to_install(monkeypatch, package):
    without(monkeypatch, package)
    load = {"rdata": ds.load_san_francisco, "libpysal": ds.load_baltimore}[package]
    with pytest.raises(InputError, match=rf'{package}, .* pip install "dsstan\[examples\]"'):
        load()


def test_the_doctor_says_what_is_missing_and_how_to_get_it(monkeypatch):
    without(monkeypatch, "geopandas")
    [finding] = [f for f in examine() if f.what == "geopandas"]
    assert not finding.there
    assert 'pip install "dsstan[geo]"' in finding.detail


def test_an_error_inside_an_installed_library_is_not_taken_for_its_absence(tmp_path, monkeypatch):
    (tmp_path / "broken_library.py").write_text("import no_such_module_at_all\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_module_at_all"):
        needed("broken_library", "geo")


# The import


def test_the_package_imports_nothing_until_a_name_is_used():
    code = (
        "import sys, dsstan; heavy = {'numpy', 'pandas', 'scipy', 'plotnine', 'numba', 'rich'};"
        "print(sorted(heavy & set(sys.modules))); dsstan.prepare;"
        "print(sorted({'scipy.stats', 'plotnine', 'matplotlib', 'numba'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.splitlines() == ["[]", "[]"], done.stderr


def test_types_and_the_table_of_names_say_the_same():
    tree = ast.parse((ROOT / "dsstan" / "__init__.py").read_text())
    [block] = [node for node in tree.body if isinstance(node, ast.If)]
    typed = {
        alias.name: node.module.removeprefix("dsstan.")
        for node in block.body
        for alias in node.names
    }
    assert typed == ds._HOME
    assert set(ds.__all__) == {*typed, "__version__"}
    assert set(ds.__all__) <= set(dir(ds))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        ds.nothing  # noqa: B018


@pytest.mark.parametrize("name", ["fit", "disclosure", "protect", "utility"])
def test_a_function_stays_itself_when_the_module_of_its_name_is_imported(name):
    code = f"import dsstan, dsstan.{name}; from dsstan import {name}; print(callable({name}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.strip() == "True", done.stderr
