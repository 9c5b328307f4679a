"""The documentation: built without a warning, links that lead somewhere, blocks that run."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import jupytext
import pytest
from test_report_browser import WIDTHS, browser, show  # noqa: F401

from conftest import NIGHTLY, ROOT, leave_out, tidy_environment

DOCS = ROOT / "docs"
PAGES = sorted(p for p in DOCS.rglob("*.md") if "_build" not in p.parts)
NEVER_RUN = {"text", "console", "stata", "toml", "json", "python", "r", "bash", "stan"}
"""Languages of blocks; python, r and bash are run."""


class Page(HTMLParser):
    """Where a page leads, what can be led to, and its pictures."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.anchors: set[str] = set()
        self.pictures: list[str | None] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.anchors |= {v for k, v in attrs if k in ("id", "name") and v}
        if tag == "a" and found.get("href"):
            self.links.append(str(found["href"]))
        if tag in ("script", "img", "iframe", "source") and found.get("src"):
            self.fetched.append(str(found["src"]))
        if tag == "link" and found.get("rel") in ("stylesheet", "icon", "preload"):
            self.fetched.append(str(found.get("href")))
        if tag == "img":
            self.pictures.append(found.get("alt"))


def test_every_link_and_file_of_the_built_pages_is_there_and_none_is_fetched_from_outside(built):
    pages = {path: Page(path) for path in built.rglob("*.html")}
    assert len(pages) > 30
    lost = []
    for path, page in pages.items():
        for target in (*page.links, *page.fetched):
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                if target in page.fetched and parts.scheme != "data":
                    lost.append((path.name, "fetched from outside", target))
                continue
            there = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            there = there / "index.html" if there.is_dir() else there
            if not there.exists():
                lost.append((path.name, "no such file", target))
            elif parts.fragment and there in pages:
                anchors = pages[there].anchors
                if unquote(parts.fragment) not in anchors:
                    lost.append((path.name, "no such place", target))
    assert lost == []


def test_every_picture_of_the_built_pages_has_a_text_in_its_place(built):
    without = {p.name for p in built.rglob("*.html") if None in Page(p).pictures}
    assert without == set()


def test_every_teaching_example_is_a_page_and_at_night_has_its_outputs(built):
    for script in (ROOT / "examples").glob("[0-9]*.py"):
        page = (built / "teach" / f"{script.stem}.html").read_text(encoding="utf-8")
        assert ("cell_output" in page) == NIGHTLY, script.name
        assert "Exercises" in page


@pytest.mark.parametrize("width", WIDTHS)
def test_no_page_is_wider_than_the_window(built, browser, width):  # noqa: F811
    # What fits a phone fits a desktop, whose sidebars leave the text a fixed width: there, and by
    # day when no page has its outputs, one page of each folder will do.
    pages = sorted(built.rglob("*.html"))
    if width > min(WIDTHS) or not NIGHTLY:
        pages = list({path.parent: path for path in pages}.values())
    wide = []
    for path in pages:
        show(browser, path, width)
        sizes = browser.execute_script(
            "const e = document.documentElement; return [e.scrollWidth, e.clientWidth]"
        )
        if sizes[0] > sizes[1]:
            wide.append((path.relative_to(built).as_posix(), sizes))
    assert wide == []


def blocks(page: Path) -> list[tuple[str, str]]:
    """Language and text of every fenced block that is no directive."""
    text = page.read_text(encoding="utf-8")
    return re.findall(r"^```(\w+)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def test_blocks_are_of_a_known_language():
    known = {page.name: {kind for kind, _ in blocks(page)} - NEVER_RUN for page in PAGES}
    assert {name: kinds for name, kinds in known.items() if kinds} == {}


def with_commands() -> list[Path]:
    """Pages with commands or R code."""
    return [page for page in PAGES if {"bash", "r"} & {kind for kind, _ in blocks(page)}]


@pytest.mark.nightly("commands of the pages")
@pytest.mark.parametrize("page", with_commands(), ids=lambda p: p.relative_to(DOCS).as_posix())
def test_the_commands_and_the_r_code_of_a_page_run_in_order(page, tmp_path, request):
    found = blocks(page)
    if "r" in {kind for kind, _ in found}:
        rscript = request.getfixturevalue("rscript")
        if any("library(reticulate)" in text for kind, text in found if kind == "r"):
            there = [rscript, "-e", "stopifnot(requireNamespace('reticulate'))"]
            if subprocess.run(there, capture_output=True, check=False).returncode:
                leave_out("reticulate is missing; apt-get install r-cran-reticulate")
    r_code: list[str] = []
    for kind, text in found:
        if kind == "r":
            # The R of a page is one script.
            r_code.append(text)
            text = "\n".join(r_code)
        commands = {
            "python": [sys.executable, "-c", text],
            "bash": ["bash", "-euo", "pipefail", "-c", text],
            "r": ["Rscript", "-e", text],
        }
        if kind not in commands:
            continue
        done = subprocess.run(
            commands[kind],
            cwd=tmp_path,
            env=tidy_environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"


def test_every_example_is_valid_as_a_notebook():
    for script in (ROOT / "examples").glob("[0-9]*.py"):
        cells = json.loads(jupytext.writes(jupytext.read(script, fmt="py:percent"), fmt="ipynb"))
        kinds = [cell["cell_type"] for cell in cells["cells"]]
        assert kinds[0] == "markdown"
        assert "code" in kinds
