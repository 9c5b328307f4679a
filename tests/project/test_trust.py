"""The page of promises: each has a test, and the tests exist."""

from __future__ import annotations

import ast
import re

from conftest import ROOT

PAGE = (ROOT / "docs" / "explain" / "trust.md").read_text()


def test_every_test_named_on_the_page_exists():
    there = {
        node.name
        for path in (ROOT / "tests").rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
    }
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    assert len(named) > 40
    assert named <= there, named - there


def test_every_promise_names_a_test():
    sections = re.split(r"^## ", PAGE, flags=re.MULTILINE)
    rows = [
        line
        for section in sections
        for line in section.splitlines()
        if line.startswith("| ") and "| promise | test |" in section
    ]
    promises = [row for row in rows if not row.startswith("| promise")]
    assert len(promises) > 30
    assert [row for row in promises if "`test_" not in row] == []


def test_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)#]+)", PAGE):
        assert (ROOT / "docs" / "explain" / target).is_file(), target
