"""Private folders: for their owner alone, gone in time, and what killed runs leave."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from dsstan.core.errors import InputError
from dsstan.core.files import workspace
from dsstan.core.files.noted_folders import note_place, noted_places
from dsstan.core.files.workspace import (
    MARKER,
    end_processes,
    leftovers,
    private_folder,
    remove,
    temporaries,
    work_parent,
)

WAIT_SECONDS = 60.0
"""For a process to reach a point, on a busy machine."""

HOLD = """
import sys, time
from dsstan.core.files.workspace import private_folder
with private_folder(sys.argv[1], name=sys.argv[2]) as folder:
    (folder / "inside").mkdir()
    (folder / "inside" / "data").write_text("1234")
    print(folder, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A working folder that nothing else uses, the only place where leftovers are looked for."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.setenv("DSSTAN_WORKDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return folder


def mode(path):
    return stat.S_IMODE(path.lstat().st_mode)


def holder(place, name="dsstan"):
    """A process that holds a private folder, and the folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(place), name], stdout=subprocess.PIPE, text=True
    )
    return process, Path(process.stdout.readline().strip())


def forget(tmp_path):
    """Drop the note of where runs worked."""
    (tmp_path / "state" / "dsstan" / "working-folders").unlink()


def killed(place, name="dsstan"):
    """The folder of a run that was killed."""
    process, folder = holder(place, name)
    process.kill()
    process.communicate()
    return folder


# While it is there


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_everything_made_meanwhile_is_for_its_owner_alone(place, mask):
    before = os.umask(mask)
    try:
        with private_folder() as folder:
            assert mode(folder) == 0o700
            (folder / "file").write_text("x")
            subprocess.run(["touch", str(folder / "child")], check=True)
            (folder / "more").mkdir()
            assert {mode(p) for p in folder.iterdir() if p.is_file()} == {0o600}
            assert mode(folder / "more") == 0o700
        assert os.umask(mask) == mask
    finally:
        os.umask(before)


def test_the_mask_comes_back_whatever_the_order_in_which_threads_leave(place):
    before = os.umask(0o022)
    gates = [threading.Event(), threading.Event()]

    def hold(number):
        with private_folder():
            gates[number].wait(WAIT_SECONDS)

    threads = [threading.Thread(target=hold, args=(i,)) for i in (0, 1)]
    try:
        for thread, gate in zip(threads, gates, strict=True):
            thread.start()
            time.sleep(0.05)
            assert not gate.is_set()
        for thread, gate in zip(threads, gates, strict=True):  # first come, first gone
            gate.set()
            thread.join()
        assert os.umask(0o022) == 0o022
    finally:
        os.umask(before)


@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt, SystemExit])
def test_a_private_folder_is_gone_however_its_block_is_left(place, error):
    def use():
        with private_folder() as folder:
            (folder / "file").write_text("x")
            if error is not None:
                raise error

    if error is None:
        use()
    else:
        with pytest.raises(error):
            use()
    assert list(place.iterdir()) == []


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, -2)]
)
def test_a_private_folder_is_gone_after_a_signal(place, number, code):
    process, folder = holder(place)
    process.send_signal(number)
    process.communicate(timeout=WAIT_SECONDS)
    assert process.returncode == code
    assert not folder.exists()


def test_a_private_folder_is_gone_where_a_signal_comes_as_soon_as_it_is_made(place, monkeypatch):
    made = os.mkdir

    def stopped(*arguments, **named):
        made(*arguments, **named)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "mkdir", stopped)
    with pytest.raises(KeyboardInterrupt), private_folder(place):
        pass
    assert not list(place.iterdir())


def test_signals_that_the_caller_handles_are_left_to_him(place):
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        handler = signal.getsignal(signal.SIGTERM)
        with private_folder():
            assert signal.getsignal(signal.SIGTERM) is handler
    finally:
        signal.signal(signal.SIGTERM, before)


def test_temporary_files_of_all_kinds_go_into_the_private_folder(place, monkeypatch):
    monkeypatch.setenv("TMPDIR", "/nowhere")
    with temporaries() as folder:
        with tempfile.NamedTemporaryFile() as file:
            assert Path(file.name).parent == folder
        made = subprocess.run(
            [sys.executable, "-c", "import tempfile; print(tempfile.gettempdir())"],
            capture_output=True,
            text=True,
            check=True,
        )
        assert made.stdout.strip() == str(folder)
    assert os.environ["TMPDIR"] == "/nowhere"
    assert tempfile.gettempdir() == str(place)


@pytest.mark.parametrize("what", ["missing", "file"])
def test_a_working_folder_that_is_none_is_refused(place, what):
    path = place / "x"
    if what == "file":
        path.write_text("")
    with pytest.raises(InputError, match=r"working folder .*x is not there"):
        work_parent(path)


# What a killed run leaves


def test_what_a_killed_run_left_is_found_and_removed(place):
    folder = killed(place)
    [found] = leftovers()
    assert (found.folder, found.files, found.size) == (folder, 1, 4)
    remove(found)
    assert list(place.iterdir()) == []
    assert leftovers() == []


def test_a_living_runs_folder_is_never_taken_for_a_leftover(place):
    process, folder = holder(place)
    try:
        assert leftovers() == []
        with private_folder():
            assert leftovers() == []
        assert folder.is_dir()
    finally:
        process.kill()
        process.communicate()
    assert [found.folder for found in leftovers()] == [folder]


@pytest.mark.parametrize("put", ["link", "folder"])
def test_no_leftover_is_emptied_that_was_put_in_the_place_of_another(
    place, tmp_path, monkeypatch, put
):
    """The swap comes after the last look at it."""
    precious = tmp_path / "precious"
    (precious / "below").mkdir(parents=True)
    for folder in (precious, precious / "below"):
        (folder / "data").write_text("mine")
    folder = killed(place)
    [found] = leftovers()

    def swap(_):
        folder.rename(place / "gone")
        if put == "link":
            folder.symlink_to(precious)
        else:
            precious.rename(folder)

    monkeypatch.setattr(workspace, "end_processes", swap)
    with pytest.raises(OSError, match=r"Not a directory|not empty"):
        remove(found)
    assert (folder / "data").read_text() == (folder / "below" / "data").read_text() == "mine"
    assert list((place / "gone").iterdir()) == []  # what was found is what was emptied


def test_a_private_folder_that_a_link_replaced_leaves_what_the_link_leads_to(place, tmp_path):
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "data").write_text("mine")
    with private_folder() as folder:
        folder.rename(place / "gone")
        folder.symlink_to(precious)
    assert (precious / "data").read_text() == "mine"


def test_a_folder_is_looked_at_again_before_it_is_removed(place):
    """A leftover that a living run has locked meanwhile stays."""
    folder = killed(place)
    [found] = leftovers()
    with open(folder / MARKER) as marker:
        import fcntl

        fcntl.flock(marker, fcntl.LOCK_EX)
        remove(found)
        assert folder.is_dir()
    remove(found)
    assert not folder.exists()


def test_only_our_own_marked_folders_are_taken_for_leftovers(place, tmp_path):
    like = place / "dsstan-99999999-abc"
    like.mkdir()
    (like / "mine").write_text("mine")
    (place / "dsstan-notes").mkdir()
    (place / "dsstan-1-file").write_text("mine")
    elsewhere = killed(tmp_path)
    forget(tmp_path)
    (place / "dsstan-1-link").symlink_to(elsewhere)
    linked = place / "dsstan-99999999-marker"
    linked.mkdir()
    (linked / MARKER).symlink_to(elsewhere / MARKER)
    assert leftovers() == []


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_not_taken_for_a_leftover(place):
    folder = killed(place)
    os.chown(folder, 12345, 12345)
    assert leftovers() == []
    os.chown(folder, 0, 0)
    assert len(leftovers()) == 1


@pytest.mark.parametrize("inside", [[], [f"{MARKER}.new"]])
def test_a_run_killed_before_it_marked_its_folder_leaves_a_leftover_too(place, inside):
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    folder = place / f"dsstan-{process.pid}-abcdefgh"
    folder.mkdir()
    for name in inside:
        (folder / name).write_text("{}")
    assert [found.folder for found in leftovers()] == [folder]
    living = place / f"dsstan-{os.getpid()}-abcdefgh"
    living.mkdir()
    assert [found.folder for found in leftovers()] == [folder]


def test_a_leftover_leads_to_another_folder_of_its_run(place, tmp_path):
    """As the note of a release under way does, whose folder is beside its target."""
    partial = killed(tmp_path, ".release.partial")
    forget(tmp_path)
    noted = killed(place)
    for content in ({"pid": 1, "beside": str(partial)}, {"beside": 3}, [], "x"):
        (noted / MARKER).write_text(json.dumps(content))
        expected = {noted, partial} if isinstance(content, dict) and "pid" in content else {noted}
        assert {found.folder for found in leftovers()} == expected
    (noted / MARKER).write_text(json.dumps({"beside": str(tmp_path)}))
    assert {found.folder for found in leftovers()} == {noted}
    assert {found.folder for found in leftovers([tmp_path])} == {noted, partial}


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks processes up in /proc")
def test_a_process_that_outlived_its_killed_run_is_ended_with_its_folder(place):
    folder = killed(place)
    script = "import sys, time; print('ready', flush=True); time.sleep(600)"
    command = [sys.executable, "-c", script]
    inside = subprocess.Popen([*command, f"file={folder}/data.json"], stdout=subprocess.PIPE)
    outside = subprocess.Popen([*command, f"{folder}-other/data.json"], stdout=subprocess.PIPE)
    try:
        for process in (inside, outside):
            process.stdout.readline()
        [found] = leftovers()
        remove(found)
        assert inside.wait(WAIT_SECONDS) == -signal.SIGKILL
        assert outside.poll() is None
    finally:
        for process in (inside, outside):
            process.kill()
            process.communicate()


def test_a_process_that_only_looks_into_the_folder_is_left_alone(place):
    folder = killed(place)
    reader = subprocess.Popen(["tail", "-f", str(folder / "inside" / "data")])
    try:
        end_processes(folder)
        assert reader.poll() is None
    finally:
        reader.kill()
        reader.wait()


@pytest.mark.parametrize("name", ["dsstan", ".two\nlines.partial"])
def test_what_a_killed_run_left_in_a_folder_of_its_own_is_found_from_anywhere(
    place, tmp_path, monkeypatch, name
):
    other = tmp_path / "other"
    other.mkdir()
    killed(other, name)
    [folder] = other.iterdir()
    assert not any(place.iterdir())
    monkeypatch.chdir(place)
    [found] = [each for each in leftovers() if each.folder == folder]
    assert str(found.pid) in folder.name
    assert 0 <= found.age < WAIT_SECONDS
    remove(found)
    assert not folder.exists()


def test_the_note_of_working_folders_is_for_its_owner_and_short(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for number in range(120):
        (tmp_path / f"p{number}").mkdir()
        note_place(tmp_path / f"p{number}")
    note_place(tmp_path / "p119")
    assert noted_places() == [tmp_path / f"p{n}" for n in range(20, 120)]
    file = tmp_path / "state" / "dsstan" / "working-folders"
    assert mode(file) == 0o600
    file.write_text('no path\n[1]\n"relative"\n' + json.dumps(str(tmp_path)) + "\n")
    assert noted_places() == [tmp_path]
    (tmp_path / "p1").rmdir()
    file.write_text(json.dumps(str(tmp_path / "p1")))
    assert noted_places() == []


def test_no_process_is_ended_that_does_not_name_the_folder(place):
    end_processes(place / "dsstan-1-none")  # this process goes on


def test_the_clock_has_no_say_in_what_a_leftover_is(place):
    folder = killed(place)
    for stamp in (0, 1e10):
        os.utime(folder, (stamp, stamp))
        os.utime(folder / MARKER, (stamp, stamp))
        assert [found.folder for found in leftovers()] == [folder]
