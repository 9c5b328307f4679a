"""Progress of the command line: phases, the time left, and who is told instead of a bar."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from rich.console import Console
from test_command_line import MODEL, QUICK, environment

import dsstan as ds
from conftest import small_table
from dsstan.cli import phases as _phases
from dsstan.cli.session import SESSION
from dsstan.core import progress
from dsstan.core.progress import phase, progress_bar, watched_by

STEPS_SEEN = 5
"""Of the forty shares that two chains tell, so many at least on a machine however busy."""


class Recorder:
    """A watcher that keeps what it is told."""

    def __init__(self):
        self.told = {}

    @contextmanager
    def step(self, label):
        self.told[label] = []
        yield self.told[label].append


def test_a_fit_tells_its_steps_and_the_iterations_of_the_child_process(tiny):
    seen = Recorder()
    with watched_by(seen):
        ds.fit(tiny, seed=1, chains=2, warmup=200, samples=200, engine="embedded")
    surface, sampling = seen.told.values()
    assert list(seen.told) == ["unrestricted fit: surface", "unrestricted fit: sampling (embedded)"]
    for shares in (surface, sampling):
        assert len(shares) >= STEPS_SEEN
        assert shares == sorted(shares)
        assert shares[-1] == pytest.approx(1.0)


def test_who_asked_for_no_progress_is_not_told_of():
    seen = Recorder()
    with watched_by(seen), progress_bar("copies", show=False) as advance:
        advance(0.5)
    assert seen.told == {}


def test_a_watcher_leaves_with_its_block():
    with watched_by(Recorder()):
        assert progress._watcher is not None
    assert progress._watcher is None


@pytest.mark.parametrize(
    ("terminal", "show", "shown"),
    [(True, None, True), (True, False, False), (False, None, False), (False, True, True)],
)
def test_a_bar_is_shown_in_a_terminal_by_default(monkeypatch, terminal, show, shown):
    text = io.StringIO()
    text.isatty = lambda: terminal
    monkeypatch.setattr(sys, "stderr", text)
    monkeypatch.setenv("TERM", "xterm")
    with progress_bar("copies", show) as advance, progress_bar("inside", show) as inner:
        inner(1.0)
        advance(0.5)
    assert all((label in text.getvalue()) == shown for label in ("copies", "inside"))
    assert progress._watcher is None


@pytest.fixture
def screen(monkeypatch):
    """A terminal of 80 columns; what it shows."""
    text = io.StringIO()
    console = Console(file=text, force_terminal=True, width=80, height=24, color_system=None)
    monkeypatch.setattr(_phases, "err", console)
    return text


def test_phases_before_the_running_one_are_done_and_those_after_it_wait(screen, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(_phases, "time", SimpleNamespace(monotonic=lambda: now[0]))
    with _phases.phases(_phases.RELEASE_PHASES):
        with phase("reading"):
            pass
        with progress_bar("unrestricted fit: sampling (embedded)") as advance:
            now[0] += 30.0
            advance(0.25)
            progress._watcher._progress.refresh()
    lines = [
        re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", x).rstrip() for x in screen.getvalue().split("\n")
    ]
    text = "\n".join(lines)
    assert "done reading" in text
    assert ">    unrestricted fit: sampling (embedded)" in text
    assert "1:30 left" in text  # three times the thirty seconds that a quarter took
    assert "     restricted fit" in text
    assert max(len(line.rpartition("\r")[2]) for line in lines) <= 80


@pytest.mark.parametrize("why", ["no terminal", "quiet"])
def test_nothing_is_shown_without_a_terminal_or_under_quiet(screen, monkeypatch, why):
    if why == "quiet":
        monkeypatch.setattr(SESSION, "quiet", True)
    else:
        monkeypatch.setattr(_phases, "err", Console(file=screen, force_terminal=False))
    with _phases.phases(_phases.RELEASE_PHASES), progress_bar("synthesis") as advance:
        advance(0.5)
    assert screen.getvalue() == ""


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs a terminal to be made")
def test_a_run_shows_its_phases_in_a_real_terminal_and_clears_them(tmp_path):
    small_table(30, seed=9, shared=4).to_csv(tmp_path / "homes.csv", index=False)
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "dsstan", "synthesise", str(tmp_path / "homes.csv"), *MODEL]
    command += [*QUICK, "--copies", "3", "--accept-failed", "--out", str(tmp_path / "out")]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=theirs,
        env={**environment(), "TERM": "xterm", "COLUMNS": "100", "LINES": "30"},
    ) as process:
        os.close(theirs)
        seen = b""
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # Linux tells so that the other side is gone
                break
            if not piece:
                break
            seen += piece
        told = process.stdout.read().decode()
    os.close(ours)
    assert process.returncode == 0, seen
    for name in _phases.RELEASE_PHASES:
        assert name.encode() in seen, name
    assert b"unrestricted fit: sampling (embedded)" in seen
    assert b"writing" not in seen.rpartition(b"\x1b[2K")[2]
    assert "reading" not in told


def lines_of(monkeypatch, work, **how):
    """What a block of phases writes to a standard error that is no terminal."""
    text = io.StringIO()
    monkeypatch.setattr(_phases, "err", Console(file=text, width=80))
    with _phases.phases(("reading", "copies"), **how):
        work()
    return text.getvalue().splitlines()


def test_a_long_run_in_a_file_says_now_and_then_what_it_does(monkeypatch):
    told = threading.Event()

    def work():
        with progress_bar("synthesis: exact") as advance:
            advance(0.4)
            told.wait(0.5)

    found = lines_of(monkeypatch, work, line_every=0.05)
    assert found
    assert set(found) <= {"0:00 copies: exact, 40% done", "0:01 copies: exact, 40% done"}
    assert not [one for one in threading.enumerate() if "_tell" in str(one.name)]


def test_a_step_of_unknown_length_is_named_alone_and_one_that_ended_not_at_all(monkeypatch):
    def work():
        with phase("reading"), progress_bar("inner"):
            pass
        with phase("writing"):
            time.sleep(0.3)

    found = lines_of(monkeypatch, work, line_every=0.05)
    assert set(found) == {"0:00 writing"}


def test_a_quick_run_in_a_file_is_silent_and_so_is_a_quiet_one(monkeypatch):
    assert lines_of(monkeypatch, lambda: None) == []
    monkeypatch.setattr(SESSION, "quiet", True)
    assert lines_of(monkeypatch, lambda: time.sleep(0.2), line_every=0.05) == []
