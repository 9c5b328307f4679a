"""Files and folders for their owner alone, to stay."""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from dsstan.core.errors import InputError


def write_private(path: Path, content: bytes) -> None:
    """Write a file whole, for its owner alone (0600); one that exists is replaced at once."""
    # mkstemp makes a file that only its owner can read, whatever the umask.
    handle, partial = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(partial, path)
    except BaseException:
        Path(partial).unlink(missing_ok=True)
        raise


def check_parent(folder: Path) -> None:
    """Refuse a folder in which another user could put something else in the place of ours.

    Whoever may write to a folder may rename what is in it, also what they can't read, unless the
    folder has the sticky bit. The same holds for each folder above it.

    Raises InputError if another user may write to one of them.
    """
    if not hasattr(os, "getuid"):  # Windows has other rights
        return
    for place in (folder := folder.resolve(), *folder.parents):
        with suppress(FileNotFoundError):
            there = place.stat()
            others = there.st_mode & stat.S_IWOTH
            group = there.st_mode & stat.S_IWGRP and not _own_group(there.st_gid)
            if (others or group) and not there.st_mode & stat.S_ISVTX:
                who, right = ("every user", "o-w") if others else ("its group", "g-w")
                raise InputError(
                    f"{who} may write to {place} and could replace what is made there: set its "
                    f"sticky bit (chmod +t {place}), take the right away (chmod {right} {place}), "
                    "or choose another folder"
                )


def is_own(path: Path) -> bool:
    """Whether a file or folder belongs to this user; True where the system has no owners."""
    return not hasattr(os, "getuid") or path.stat().st_uid == os.getuid()


def _own_group(number: int) -> bool:
    """Whether a group holds this user alone, as the group that many systems make for each user."""
    import grp
    import pwd

    try:
        group, user = grp.getgrgid(number), pwd.getpwuid(os.getuid())
    except KeyError:
        return False
    return group.gr_gid == user.pw_gid and not set(group.gr_mem) - {user.pw_name}


def lasting_folder(folder: Path) -> Path:
    """A folder that stays, for its owner alone (0700), made if need be.

    Raises InputError if it can't be made, belongs to somebody else, or could be replaced by another
    user.
    """
    folder = folder.absolute()
    check_parent(folder.parent)
    try:
        for place in (*reversed(folder.parents), folder):
            if not place.is_dir():
                place.mkdir(mode=0o700, exist_ok=True)
        if not is_own(folder):
            raise PermissionError(None, "it belongs to another user")
        folder.chmod(0o700)
    except OSError as error:
        raise InputError(
            f"the folder {folder} can't be made: {error.strerror or type(error).__name__}"
        ) from None
    return folder


def keep_private(path: Path, content: bytes) -> None:
    """Write a file as :func:`write_private` does; InputError where that can't be done."""
    try:
        write_private(path, content)
    except OSError as error:
        raise InputError(
            f"the folder {path.parent} can't be written to: "
            f"{error.strerror or type(error).__name__}"
        ) from None
