"""Files and folders for their owner alone, to stay."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from dsstan.core.errors import InputError

__all__ = ["keep_private", "lasting_folder", "write_private"]


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


def lasting_folder(folder: Path) -> Path:
    """A folder that stays, for its owner alone (0700), made if need be.

    Raises
    ------
    InputError
        If it can't be made, or belongs to somebody else.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
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
