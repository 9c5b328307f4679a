"""Files and folders for their owner alone, to stay."""

from __future__ import annotations

import os
import stat
import struct
import tempfile
from collections.abc import Iterator
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
    folder has the sticky bit. The same holds for each folder above it, and for those that a link on
    the way lies in. Who owns such a folder is trusted; who owns a link is not, unless it is root.

    Raises InputError if another user may write to one of them, or owns a link on the way.
    """
    if not hasattr(os, "getuid"):  # Windows has other rights
        return
    for place in dict.fromkeys(_on_the_way(folder.absolute())):
        with suppress(FileNotFoundError):
            if place.is_symlink() and place.lstat().st_uid not in (0, os.getuid()):
                raise InputError(
                    f"another user owns the link {place} and could turn it elsewhere: name the "
                    "folder itself that you mean, or choose another"
                )
            there = place.stat()
            others = there.st_mode & stat.S_IWOTH
            group = there.st_mode & stat.S_IWGRP and not _own_group(there.st_gid)
            named = _access_list_names_others(place)
            if (others or group or named) and not there.st_mode & stat.S_ISVTX:
                if named and not others:
                    raise InputError(
                        f"an access list lets others write to {place}, who could replace what is "
                        f"made there: take it away (setfacl -b {place}), or choose another folder"
                    )
                who, right = ("every user", "o-w") if others else ("its group", "g-w")
                raise InputError(
                    f"{who} may write to {place} and could replace what is made there: set its "
                    f"sticky bit (chmod +t {place}), take the right away (chmod {right} {place}), "
                    "or choose another folder"
                )


def is_own(path: Path) -> bool:
    """Whether a file or folder belongs to this user; True where the system has no owners."""
    return not hasattr(os, "getuid") or path.stat().st_uid == os.getuid()


def check_own_file(path: Path) -> None:
    """Refuse a file that another user owns or may write to, or that is a link.

    Raises InputError; a file that is not there passes.
    """
    if not hasattr(os, "getuid"):
        return
    with suppress(FileNotFoundError):
        there = path.lstat()
        if not stat.S_ISREG(there.st_mode):
            why = "is no plain file"
        elif there.st_uid != os.getuid():
            why = "belongs to another user"
        elif there.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            why = "may be written to by other users"
        else:
            return
        raise InputError(
            f"{path} {why}, so another user could have changed it: restore it from a copy of your "
            "own, as a file that you alone may write to (chmod 600)"
        )


def _own_group(number: int) -> bool:
    """Whether a group holds this user alone, as the group that many systems make for each user."""
    import grp
    import pwd

    try:
        group, user = grp.getgrgid(number), pwd.getpwuid(os.getuid())
    except KeyError:
        return False
    if group.gr_gid != user.pw_gid or set(group.gr_mem) - {user.pw_name}:
        return False
    return not any(one.pw_gid == number and one.pw_uid != user.pw_uid for one in pwd.getpwall())


def _on_the_way(path: Path, links: int = 40) -> Iterator[Path]:
    """Every folder that a path leads through, those of its links too, from the root on."""
    for place in (*reversed(path.parents), path):
        yield place
        if links and place.is_symlink():
            yield from _on_the_way(place.parent / os.readlink(place), links - 1)


def _access_list_names_others(place: Path) -> bool:
    """Whether a folder's access list lets a user or group write that its mode does not name."""
    try:
        listed = os.getxattr(place, "system.posix_acl_access")
    except (OSError, AttributeError):  # none, or a system without
        return False
    entries = list(struct.iter_unpack("<HHI", listed[4:]))
    mask = next((right for tag, right, _ in entries if tag == 16), 7)
    return any(
        right & mask & 2 and (tag == 8 or (tag == 2 and who != os.getuid()))
        for tag, right, who in entries
    )


def lasting_folder(folder: Path) -> Path:
    """A folder that stays, for its owner alone (0700), made if need be.

    Raises InputError if it can't be made, belongs to somebody else, or could be replaced by another
    user.
    """
    folder = folder.absolute()
    check_parent(folder if folder.is_symlink() else folder.parent)
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
