"""Two processes at once, a file system without locks, a clock that was moved."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from conftest import leave_out
from dsstan.core.files.workspace import leftovers, private_folder

NO_LOCKS = """
#include <errno.h>
int flock(int file, int how) { errno = ENOLCK; return -1; }
"""

ENDS = 60.0
"""Seconds, far above what a refusal takes: filelock alone would wait for ever."""

USES = {
    "the ledger": """
from dsstan.release.publication.ledger import open_ledger
with open_ledger(place / "ledger", make=True).locked(): print("went on")
""",
    "a publication": """
from dsstan.release.publication.publish import _locked
with _locked(place): print("went on")
""",
    "the program cache": """
from dsstan.engines.cmdstan import _locked
with _locked(place / "cache" / "one"): print("went on")
""",
    "a working folder": """
from dsstan.core.files.workspace import private_folder
with private_folder(place): print("went on")
""",
    "a release": """
from dsstan.release.whole_folder import whole_folder
with whole_folder(place / "out", 0o700) as folder: print("went on")
""",
}


def start(program, place, **more):
    head = "import sys\nfrom pathlib import Path\nplace = Path(sys.argv[1])\n"
    return subprocess.Popen(
        [sys.executable, "-c", head + program, str(place)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **more},
    )


@pytest.fixture(scope="module")
def no_locks(tmp_path_factory):
    """A library in front of the system's, under which every file system refuses locks."""
    if sys.platform != "linux" or shutil.which("gcc") is None:
        leave_out("gcc is needed to build a library that refuses locks")
    folder = tmp_path_factory.mktemp("no_locks")
    (folder / "no_locks.c").write_text(NO_LOCKS)
    library = folder / "no_locks.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, folder / "no_locks.c"], check=True)
    return library


@pytest.mark.parametrize("use", USES)
def test_where_locks_are_refused_nothing_is_done_without_them_and_nobody_waits(
    use, no_locks, tmp_path
):
    with start(USES[use], tmp_path, LD_PRELOAD=str(no_locks)) as child:
        out, said = child.communicate(timeout=ENDS)
    assert out == ""
    assert child.returncode == 1
    last = said.strip().splitlines()[-1]
    assert "refuses locks (No locks available)" in last
    assert "choose a folder on a local disk" in last


@pytest.mark.parametrize("use", USES)
def test_with_locks_the_same_goes_on(use, tmp_path):
    with start(USES[use], tmp_path) as child:
        out, said = child.communicate(timeout=ENDS)
    assert (out.strip(), child.returncode) == ("went on", 0), said


WRITES = """
import time
from dsstan.core.errors import ReleaseError
from dsstan.release.whole_folder import whole_folder
name = sys.argv[0] + str(__import__("os").getpid())
(place / "ready").mkdir(exist_ok=True)
(place / "ready" / name).touch()
while len(list((place / "ready").iterdir())) < 4: time.sleep(0.01)
try:
    with whole_folder(place / "out", 0o700) as folder:
        for number in range(20): (folder / str(number)).write_text(name)
except ReleaseError as error:
    print(error)
else:
    print("mine")
"""


def test_of_processes_that_write_one_release_at_once_one_wins_and_it_is_whole(tmp_path):
    children = [start(WRITES, tmp_path) for _ in range(4)]
    said = [child.communicate(timeout=ENDS)[0].strip() for child in children]
    assert sorted(child.returncode for child in children) == [0, 0, 0, 0]
    assert said.count("mine") == 1, said
    assert sum("exists and is not overwritten" in text for text in said) == 3
    files = sorted((tmp_path / "out").iterdir(), key=lambda p: int(p.name))
    assert [p.name for p in files] == [str(number) for number in range(20)]
    assert len({p.read_text() for p in files}) == 1
    assert {p.name for p in tmp_path.iterdir()} == {"out", "ready"}


@pytest.mark.parametrize("years", [-20, 20])
def test_no_clock_decides_what_is_a_leftover(years, tmp_path):
    """The times of files say anything where a clock was moved or a server's differs."""
    when = time.time() + years * 365.25 * 86400
    killed = "import os, signal\nfrom dsstan.core.files.workspace import private_folder\n"
    killed += "with private_folder(place): os.kill(os.getpid(), signal.SIGKILL)"
    with start(killed, tmp_path) as child:
        child.communicate(timeout=ENDS)
    [left] = tmp_path.iterdir()
    with private_folder(tmp_path) as living:
        for folder in (left, living):
            for path in (*folder.iterdir(), folder):
                os.utime(path, (when, when))
        found = [one.folder for one in leftovers([tmp_path])]
        assert [folder for folder in found if folder.parent == tmp_path] == [left]
    assert not Path(living).exists()


ENTERS = """
from dsstan.release.publication.ledger import Entry, open_ledger
import datetime
year = str(datetime.date.today().year)
book = open_ledger(place / "ledger", make=True)
with book.locked():
    book.enter(Entry(year, "value", "homes", 3, 2, "log", "0a", "0b", None, False), None)
print(year, [entry.release for entry in book.entries()])
"""


def test_a_ledger_keeps_the_order_of_entering_when_the_clock_goes_back(tmp_path):
    """Under a library that moves the clock of a process: 2031, then 2011."""
    found = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
    if not found:
        leave_out("libfaketime is needed to move the clock (apt-get install libfaketime)")
    said = []
    for year in (2031, 2011):
        clock = {"LD_PRELOAD": str(found[0]), "FAKETIME": f"@{year}-06-01 12:00:00"}
        with start(ENTERS, tmp_path, **clock) as child:
            out, error = child.communicate(timeout=ENDS)
        assert child.returncode == 0, error
        said.append(out.strip())
    assert said == ["2031 ['2031']", "2011 ['2031', '2011']"]
