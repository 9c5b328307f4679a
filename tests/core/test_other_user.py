"""What another user of the host can do, tried by a process that is another user."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_ledger import copies_of, fit_of

from conftest import leave_out, small_table
from dsstan.core.errors import InputError, ReleaseError
from dsstan.core.files.workspace import private_folder, work_parent
from dsstan.engines import cmdstan
from dsstan.release.publication import publish as publication
from dsstan.release.publication.ledger import open_ledger
from dsstan.release.publication.public_hashes import copied
from dsstan.release.whole_folder import check_target

STRANGER = "54321"


def as_stranger(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """A shell script run by another user, who is in none of our groups."""
    command = ["setpriv", f"--reuid={STRANGER}", f"--regid={STRANGER}", "--clear-groups"]
    return subprocess.run(
        [*command, "sh", "-c", script, "sh", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd="/",
    )


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that others may enter and list, as a home often is."""
    if shutil.which("setpriv") is None or as_stranger("true").returncode:
        leave_out("another user is needed (root and setpriv)")
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    folder.chmod(0o755)
    assert as_stranger('ls "$1"', folder).returncode == 0
    yield folder
    shutil.rmtree(folder)


READ = 'cat "$1"/* "$1"/*/* "$1"/*/*/* 2>/dev/null; ls -R "$1" 2>&1'


def test_another_user_reads_nothing_of_a_release_before_it_is_published(place):
    release = copies_of(fit_of(small_table(30)))
    before = os.umask(0)
    try:
        folder = release.write(place / "out", report=False)
    finally:
        os.umask(before)
    told = as_stranger(READ, folder).stdout
    assert "Permission denied" in told
    assert "copy_" not in told
    assert "settings" not in told


def test_another_user_neither_reads_nor_replaces_a_working_folder(place):
    with private_folder(place) as work:
        (work / "draws").write_text("secret")
        assert "secret" not in as_stranger(READ, work).stdout
        moved = as_stranger('mv "$1" "$2"; rm -r "$1"; touch "$1"/x', work, place / "theirs")
        assert moved.returncode != 0
        assert (work / "draws").read_text() == "secret"
        assert sorted(p.name for p in place.iterdir()) == [work.name]


def test_a_folder_that_another_user_can_swap_is_refused_and_the_swap_shown_to_work(place):
    """The attack is real where it is not refused: the parent may be written to by all."""
    open_to_all = place / "shared"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    (open_to_all / "out").mkdir(mode=0o700)
    swap = 'mv "$1" "$1.gone" && mkdir "$1"'
    assert as_stranger(swap, open_to_all / "out").returncode == 0
    assert (open_to_all / "out").stat().st_uid == int(STRANGER)
    program = "import sys\nfrom dsstan.release.whole_folder import check_target\n"
    done = subprocess.run(
        [sys.executable, "-c", program + "check_target(sys.argv[1])", open_to_all / "new"],
        capture_output=True,
        text=True,
    )
    assert "could replace what is made there" in done.stderr
    open_to_all.chmod(0o1777)
    (open_to_all / "kept").mkdir(mode=0o700)
    assert as_stranger(swap, open_to_all / "kept").returncode != 0


@pytest.mark.parametrize("sticky", [False, True])
@pytest.mark.parametrize(
    "swap",
    [
        'mv "$1" "$1.gone" && ln -s "$2" "$1"',
        'mv "$1" "$1.gone" && mkdir "$1" && ln -s "$2" "$1/whole"',
    ],
)
def test_a_publication_touches_nothing_that_another_user_puts_in_its_way(
    place, monkeypatch, swap, sticky
):
    """In a folder without the sticky bit the swap would work, so nothing is made there."""
    release = copies_of(fit_of(small_table(30))).write(place / "out", report=False)
    precious = place / "precious"
    precious.mkdir(mode=0o700)
    (precious / "data").write_text("mine")
    shared = place / "shared"
    shared.mkdir()
    shared.chmod(0o1777 if sticky else 0o777)
    swaps = []

    def swapped(source, files, whole):
        swaps.append(as_stranger(swap, whole.parent, precious).returncode)
        copied(source, files, whole)

    monkeypatch.setattr(publication, "copied", swapped)
    try:
        publication.publish(release, to=shared / "pub", reason="a test")
        said = ""
    except (OSError, ReleaseError) as error:
        said = str(error)
    assert [path.name for path in precious.iterdir()] == ["data"]
    assert precious.stat().st_mode & 0o777 == 0o700
    assert (shared / "pub").is_dir() == sticky
    if sticky:
        assert (len(swaps), 0 in swaps) == (1, False)
    else:
        assert swaps == []
        assert f"every user may write to {shared} and could replace what is made there" in said


def test_a_link_that_another_user_makes_in_a_sticky_folder_leads_nowhere(place):
    """They could turn it elsewhere at any moment, though nobody else could."""
    shared, mine = place / "shared", place / "mine"
    mine.mkdir(mode=0o700)
    shared.mkdir()
    shared.chmod(0o1777)
    link = shared / "link"
    assert as_stranger('ln -s "$1" "$2"', mine, link).returncode == 0
    said = f"another user owns the link {link}"
    with pytest.raises(ReleaseError, match=said):
        check_target(link / "out")
    with pytest.raises(InputError, match=said):
        work_parent(link)
    for ledger in (link, link / "ledger"):
        with pytest.raises(InputError, match=said):
            open_ledger(ledger, make=True)
    assert list(mine.iterdir()) == []
    assert as_stranger('ln -sfn / "$1"', link).returncode == 0


def test_a_program_that_another_user_plants_in_a_shared_cache_is_not_run(place):
    cache = place / "cache"
    cache.mkdir()
    cache.chmod(0o1777)
    plant = 'mkdir "$1" && printf "#!/bin/sh\\n" > "$1/surface" && chmod 755 "$1/surface"'
    plant += ' && sha256sum "$1/surface" | cut -d" " -f1 | tr -d "\\n" > "$1/ok"'
    theirs = cache / "one"
    assert as_stranger(plant, theirs).returncode == 0
    assert (theirs / "ok").read_text() == cmdstan._digest(theirs / "surface")
    assert not cmdstan._intact(theirs / "surface", theirs / "ok")
