"""A folder that appears under its name whole, or not at all.

It is made under a temporary name beside its place, brought to the disk and renamed, so that
whoever is killed in between leaves no half folder.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from dsstan.core.errors import InputError, ReleaseError
from dsstan.core.files.private_file import check_parent
from dsstan.core.files.workspace import private_folder

_LATER = "-" * 40
"""As long as what names of temporary folders, and of files in a folder, add."""

_SHOWN = 60


def check_target(folder: str | os.PathLike[str]) -> Path:
    """The folder as an absolute path, if it can be made there.

    Raises ReleaseError if its name is too long, it exists, its parent does not or can't be written
    to, or other users could replace it while it is made.
    """
    target = Path(folder).expanduser().absolute()
    try:
        os.lstat(target.parent / f".{target.name}.partial{_LATER}" / _LATER)
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise ReleaseError(
                f"{str(target)[:_SHOWN]}... is too long a name for a folder that is made under a "
                "longer one first: choose a shorter one"
            ) from None
    if os.path.lexists(target):
        raise ReleaseError(f"{target} exists and is not overwritten; choose another folder")
    if not target.parent.is_dir():
        raise ReleaseError(f"{target.parent} is no folder; make it first")
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise ReleaseError(f"{target.parent} can't be written to")
    try:
        check_parent(target.parent)
    except InputError as error:
        raise ReleaseError(str(error)) from None
    return target


@contextmanager
def whole_folder(target: Path, mode: int) -> Iterator[Path]:
    """An empty private folder to fill; it gets its name and its permissions when the block ends.

    ``target`` has passed :func:`check_target`. Raises ReleaseError if it exists by then.
    """
    with _partial(target) as partial:
        whole = partial / "whole"
        whole.mkdir(mode=0o700)
        yield whole
        _sync(whole)
        whole.chmod(mode)
        check_target(target)
        try:
            whole.rename(target)
        except OSError as error:
            if error.errno in (errno.EEXIST, errno.ENOTEMPTY):
                check_target(target)
            raise
        with suppress(OSError):  # it is there, whole
            _sync_one(target.parent)


@contextmanager
def _partial(target: Path) -> Iterator[Path]:
    """A private folder beside the target, and a note in the working folder that leads there."""
    with ExitStack() as stack:
        partial = stack.enter_context(private_folder(target.parent, name=f".{target.name}.partial"))
        with suppress(OSError, InputError):  # without the note it is still found beside the target
            stack.enter_context(private_folder(beside=partial))
        yield partial


def _sync(folder: Path) -> None:
    """Have a folder on the disk before its name says that it is whole."""
    for place, _, names in os.walk(folder):
        for name in names:
            _sync_one(Path(place) / name)
        _sync_one(Path(place))


def _sync_one(path: Path) -> None:
    """Have one file or folder on the disk; some file systems can't do it for folders."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(file)


@contextmanager
def release_folder(target: Path) -> Iterator[Path]:
    """The same for the owner alone; what keeps a release from being written is said in words.

    Raises ReleaseError.
    """
    try:
        with whole_folder(target, 0o700) as whole:
            yield whole
    except OSError as error:
        raise ReleaseError(
            f"the release could not be written to {target}: "
            f"{error.strerror or type(error).__name__}. Nothing was left "
            "behind; free some space or choose another folder"
        ) from None
    except UnicodeError:
        raise ReleaseError(
            "the release could not be written: a column holds text that is no Unicode (a lone "
            "surrogate). Read the table in its right encoding"
        ) from None


def inner_folder(path: Path) -> Path:
    """Make a folder that only its owner may enter."""
    path.mkdir()
    path.chmod(0o700)
    return path


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write readable JSON without NaN; NumPy's numbers, which callers may pass, as plain ones."""
    text = json.dumps(content, indent=2, allow_nan=False, default=lambda value: value.item())
    path.write_text(text + "\n", encoding="utf-8")
