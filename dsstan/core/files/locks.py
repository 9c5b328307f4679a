"""Locks on files, and what is said where a file system has none.

Some network file systems refuse locks. To go on without one would let two processes do what only
one may, and filelock would wait for ever.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from filelock import FileLock

from dsstan.core.errors import InputError

try:
    import fcntl
except ImportError:  # Windows, whose locks filelock knows
    fcntl = None  # type: ignore[assignment]

_TAKEN = (errno.EAGAIN, errno.EACCES, errno.EWOULDBLOCK)


def check_locks(file: int, folder: Path) -> bool:
    """Lock an open file at once; False where another process has locked it.

    Raises InputError if the file system refuses locks.
    """
    if fcntl is None:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _TAKEN:
            return False
        raise InputError(
            f"the file system of {folder} refuses locks ({error.strerror}), and without them two "
            "processes at once could undo each other's work: choose a folder on a local disk"
        ) from None
    return True


def locked_file(path: Path) -> FileLock:
    """A lock that this process holds until it releases it, after a wait for those before.

    Raises InputError if the file system refuses locks, OSError if the file can't be made.
    """
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        check_locks(file, path.parent)
    finally:
        os.close(file)
    lock = FileLock(path, mode=0o600)
    lock.acquire()
    return lock
