"""Where another user could put something in the place of ours, nothing is made."""

from __future__ import annotations

import os
import pwd
import stat
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dsstan.core.errors import InputError, ReleaseError
from dsstan.core.files.private_file import check_own_file, check_parent, is_own, lasting_folder
from dsstan.core.files.workspace import private_folder, work_parent
from dsstan.engines import cmdstan
from dsstan.release.whole_folder import check_target

STRANGER = 54321
"""Number of a user and of a group that are not ours."""

root = pytest.mark.skipif(os.getuid() != 0, reason="gives files to another user")


@pytest.fixture
def shared(tmp_path):
    """A folder that every user may write to."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o777)
    return folder


def test_a_release_a_working_folder_and_a_lasting_one_refuse_a_folder_that_all_may_write_to(shared):
    said = r"every user may write to .*shared and could replace .*chmod o-w"
    with pytest.raises(ReleaseError, match=said):
        check_target(shared / "release")
    with pytest.raises(InputError, match=said):
        work_parent(shared)
    with pytest.raises(InputError, match=said), private_folder(shared):
        pass
    with pytest.raises(InputError, match=said):
        lasting_folder(shared / "comparison")
    assert list(shared.iterdir()) == []


def test_a_folder_below_such_a_one_is_no_better(shared):
    (shared / "own").mkdir(mode=0o700)
    with pytest.raises(InputError, match="could replace"):
        check_parent(shared / "own")


def test_the_sticky_bit_makes_it_safe(shared):
    shared.chmod(0o1777)
    assert check_target(shared / "release") == shared / "release"


@root
def test_so_does_a_group_that_nobody_else_is_in_and_no_other(tmp_path):
    tmp_path.chmod(0o770)
    check_parent(tmp_path)
    os.chown(tmp_path, -1, STRANGER)
    with pytest.raises(InputError, match=r"its group may write to .*chmod g-w"):
        check_parent(tmp_path)


def test_a_link_that_another_user_could_turn_elsewhere_is_no_better(shared, tmp_path):
    (tmp_path / "mine").mkdir(mode=0o700)
    (shared / "link").symlink_to(tmp_path / "mine")
    with pytest.raises(InputError, match="could replace"):
        check_parent(shared / "link")
    with pytest.raises(ReleaseError, match="could replace"):
        check_target(shared / "link" / "release")
    (tmp_path / "safe").symlink_to(shared / "link")  # one link leads to the other
    with pytest.raises(InputError, match="could replace"):
        check_parent(tmp_path / "safe" / "below")


def test_a_lasting_folder_is_not_made_through_a_link_into_such_a_folder(shared, tmp_path):
    (shared / "mine").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(shared / "mine")
    with pytest.raises(InputError, match="could replace"):
        lasting_folder(tmp_path / "link")


@root
def test_a_link_that_another_user_owns_is_refused_wherever_it_lies(shared, tmp_path):
    (tmp_path / "mine").mkdir(mode=0o700)
    shared.chmod(0o1777)
    for place in (shared, tmp_path):
        link = place / "link"
        link.symlink_to(tmp_path / "mine")
        check_parent(link)
        os.lchown(link, STRANGER, STRANGER)
        said = f"another user owns the link {link} and could turn it elsewhere"
        for refused in (check_parent, work_parent, lasting_folder):
            with pytest.raises(InputError, match=said):
                refused(link)
        with pytest.raises(InputError, match=said):
            lasting_folder(link / "below")
        with pytest.raises(ReleaseError, match=said):
            check_target(link / "release")
    assert list((tmp_path / "mine").iterdir()) == []


@root
def test_a_file_of_our_own_that_others_may_write_to_or_of_another_user_is_refused(tmp_path):
    file = tmp_path / "key"
    check_own_file(file)  # not there
    file.touch(mode=0o600)
    check_own_file(file)
    (tmp_path / "link").symlink_to(file)
    with pytest.raises(InputError, match="link is no plain file"):
        check_own_file(tmp_path / "link")
    for mode in (0o620, 0o602):
        file.chmod(mode)
        with pytest.raises(InputError, match="key may be written to by other users"):
            check_own_file(file)
    file.chmod(0o600)
    os.chown(file, STRANGER, -1)
    with pytest.raises(InputError, match=r"key belongs to another user.*chmod 600"):
        check_own_file(file)


@root
def test_a_group_that_is_another_users_own_is_no_better(tmp_path, monkeypatch):
    tmp_path.chmod(0o770)
    check_parent(tmp_path)
    me = pwd.getpwuid(os.getuid())
    other = pwd.struct_passwd((*("other", "x", STRANGER, me.pw_gid), "", "/", "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwall", lambda: [me, other])
    with pytest.raises(InputError, match="its group may write"):
        check_parent(tmp_path)


@pytest.mark.parametrize(("right", "refused"), [(7, True), (5, False)])
def test_an_access_list_that_lets_another_user_write_is_refused(tmp_path, right, refused):
    entries = [(1, 7, 2**32 - 1), (2, right, STRANGER), (4, 0, 2**32 - 1)]
    entries += [(16, 7, 2**32 - 1), (32, 0, 2**32 - 1)]
    listed = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *one) for one in entries)
    tmp_path.chmod(0o700)
    try:
        os.setxattr(tmp_path, "system.posix_acl_access", listed)
    except OSError as error:
        pytest.skip(f"no access lists on this file system: {error.strerror}")
    tmp_path.chmod(0o770)  # the mask of the list, which lets it hold
    if refused:
        with pytest.raises(InputError, match="an access list lets others write"):
            check_parent(tmp_path)
    else:
        check_parent(tmp_path)


@root
def test_a_lasting_folder_of_another_user_is_refused(tmp_path):
    (tmp_path / "theirs").mkdir()
    os.chown(tmp_path / "theirs", STRANGER, STRANGER)
    with pytest.raises(InputError, match="belongs to another user"):
        lasting_folder(tmp_path / "theirs")


def test_what_is_made_on_the_way_is_private_whatever_the_mask(tmp_path):
    before = os.umask(0)
    try:
        with cmdstan._locked(tmp_path / "cache" / "programs" / "one"):
            pass
    finally:
        os.umask(before)
    made = [p for p in tmp_path.rglob("*") if p.is_dir()]
    assert len(made) == 3
    assert {stat.S_IMODE(p.stat().st_mode) for p in made} == {0o700}


@root
def test_a_program_that_another_user_has_planted_does_not_count_as_compiled(tmp_path):
    program, mark = tmp_path / "surface", tmp_path / "ok"
    program.write_bytes(b"#!/bin/sh\n")
    mark.write_text(cmdstan._digest(program))
    assert cmdstan._intact(program, mark)
    os.chown(program, STRANGER, STRANGER)
    assert not is_own(program)
    assert not cmdstan._intact(program, mark)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_sampler_ends_with_a_run_that_is_killed():
    run = (
        "import numpy as np, pandas as pd, dsstan as ds\n"
        "rng = np.random.default_rng(1)\n"
        "t = pd.DataFrame(rng.uniform(size=(40, 3)), columns=['e', 'n', 'y'])\n"
        "p = ds.prepare(t, 'y ~ 1', coords=('e', 'n'))\n"
        "ds.fit(p, engine='embedded', warmup=10**7, progress=False)\n"
    )
    with subprocess.Popen([sys.executable, "-c", run]) as parent:
        children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
        end = time.monotonic() + 120
        while not (found := children.read_text().split()) and time.monotonic() < end:
            time.sleep(0.05)
        child = Path(f"/proc/{found[0]}")
        time.sleep(1.0)  # until it has asked to end with its parent
        parent.kill()
        parent.wait()
        end = time.monotonic() + 0.5
        while child.exists() and time.monotonic() < end:
            time.sleep(0.01)
        assert not child.exists() or "State:\tZ" in (child / "status").read_text()
