"""Private temporary folders for what must not outlive a run, and what killed runs left of them.

A private folder holds a marker that its run keeps locked. The lock goes with the run,
whatever ended it, so a folder whose marker can be locked is a leftover.

The lock is the system's own rather than filelock's, which empties the file that it has locked: a
leftover's marker says where its other folder is.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

try:
    import fcntl
except ImportError:  # not on Windows, where no leftover is ever taken for one
    fcntl = None  # type: ignore[assignment]

from dsstan.core.errors import InputError
from dsstan.core.files.locks import check_locks
from dsstan.core.files.noted_folders import note_place, noted_places
from dsstan.core.files.private_file import check_parent, keep_private, lasting_folder, write_private

__all__ = [
    "Leftover",
    "end_processes",
    "keep_private",
    "lasting_folder",
    "leftovers",
    "private_folder",
    "remove",
    "temporaries",
    "work_parent",
    "write_private",
]

MARKER = ".dsstan-run"
_OURS = re.compile(r"(?:dsstan|\..+\.partial)-(\d+)-\w+", re.DOTALL)
_MOST_MARKER = 10_000


def work_parent(named: str | os.PathLike[str] | None = None) -> Path:
    """Where private folders are made: the folder named, ``DSSTAN_WORKDIR``, the system's own.

    Raises
    ------
    InputError
        If a folder is named that is not there or can't be written to, or other users could
        replace what is made there.
    """
    named = named if named is not None else os.environ.get("DSSTAN_WORKDIR") or None
    if named is None:
        path = Path(tempfile.gettempdir())
        check_parent(path)
        return path
    path = Path(named).expanduser().absolute()
    if not path.is_dir():
        raise InputError(f"the working folder {path} is not there: make it, or name another")
    if not os.access(path, os.W_OK | os.X_OK):
        raise InputError(f"the working folder {path} can't be written to: name another")
    check_parent(path)
    return path


@contextmanager
def private_folder(
    parent: str | os.PathLike[str] | None = None,
    *,
    name: str = "dsstan",
    beside: Path | None = None,
) -> Iterator[Path]:
    """A folder only its owner can enter, removed however the block is left.

    Files made meanwhile, by this process and those it starts, are for their owner alone.
    SIGTERM and SIGHUP leave the block by an exception where nothing else handles them.

    Parameters
    ----------
    parent
        Where to make it; by default ``DSSTAN_WORKDIR``, else the system's
        folder for temporary files.
    name
        What its name begins with.
    beside
        Another private folder of this run, in a place where nobody would look; a
        leftover leads there.
    """
    base = work_parent(parent)
    if base != Path(tempfile.gettempdir()):
        note_place(base.absolute())
    with _owner_only(), _by_exception():
        folder = base / f"{name}-{os.getpid()}-{secrets.token_hex(8)}"
        lock = None
        try:  # a signal may come as soon as it is there
            folder.mkdir(0o700)
            folder.chmod(0o700)  # whatever the folder it is in hands down
            lock = _mark(folder, beside)
            yield folder
        finally:
            if fcntl is not None:  # the marker last; Windows opens no folder
                with suppress(OSError), _opened(folder) as inside:
                    _empty(inside)
            shutil.rmtree(folder, ignore_errors=True)
            if lock is not None:
                os.close(lock)


@contextmanager
def temporaries() -> Iterator[Path]:
    """Let all temporary files of this process and its children be made in a private folder."""
    names = ("TMPDIR", "TEMP", "TMP")
    before = tempfile.tempdir, {key: os.environ.get(key) for key in names}
    base = work_parent()
    with ExitStack() as stack:
        try:
            folder = stack.enter_context(private_folder(base))
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise InputError(
                f"the working folder {base} can't be used: {why}. Free some space there, or name "
                "another folder with --workdir or DSSTAN_WORKDIR"
            ) from None
        try:
            tempfile.tempdir = str(folder)
            os.environ.update(dict.fromkeys(names, str(folder)))
            yield folder
        finally:
            tempfile.tempdir = before[0]
            for key, value in before[1].items():
                if value is None:
                    os.environ.pop(key, None)
                else:
                    os.environ[key] = value


@dataclass(frozen=True)
class Leftover:
    """A private folder whose run is gone.

    Attributes
    ----------
    folder
        Its place.
    files, size
        How many files it holds, the marker aside, and their bytes.
    pid
        Number of the process it was made by.
    age
        Seconds since anything in its top level changed.
    """

    folder: Path
    files: int
    size: int
    pid: int
    age: float


def leftovers(places: Iterable[str | os.PathLike[str]] = ()) -> list[Leftover]:
    """Private folders of this user whose run was killed.

    Parameters
    ----------
    places
        Folders to look in beside the working folder, the system's for temporary files, and
        those that earlier runs of this user worked in or wrote releases to.
    """
    found: dict[Path, None] = {}
    named = [os.environ.get("DSSTAN_WORKDIR"), tempfile.gettempdir(), *noted_places(), *places]
    for place in dict.fromkeys(Path(p).expanduser().absolute() for p in named if p):
        with suppress(OSError):
            for path in sorted(place.iterdir()):
                if _is_leftover(path):
                    found[path] = None
                    beside = _noted(path)
                    if beside is not None and _is_leftover(beside):
                        found[beside] = None
    return [_measured(path) for path in found]


def remove(leftover: Leftover) -> None:
    """Remove a leftover, and end what still runs in it.

    Raises
    ------
    OSError
        If it can't be removed.
    """
    with suppress(FileNotFoundError), _opened(leftover.folder) as inside:
        if not _is_abandoned(inside, leftover.pid):  # another process has locked it meanwhile
            return
        end_processes(leftover.folder)
        _empty(inside)
        _empty(inside, ignore_errors=False)  # says why, where something is left
        os.rmdir(leftover.folder)


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    """A folder by a descriptor, which stays with it whatever is put in its place; no link."""
    inside = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        yield inside
    finally:
        os.close(inside)


def _empty(folder: int, *, ignore_errors: bool = True) -> None:
    """Empty a private folder, its marker last, so that a kill meanwhile leaves a leftover."""
    with os.scandir(folder) as inside:
        entries = sorted(inside, key=lambda entry: entry.name == MARKER)
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.name, ignore_errors=ignore_errors, dir_fd=folder)
        else:
            with suppress(OSError) if ignore_errors else nullcontext():
                os.unlink(entry.name, dir_fd=folder)


def end_processes(folder: Path) -> None:
    """End this user's processes that name a private folder among their arguments.

    CmdStan's chains do. Found in ``/proc``; where there is none nothing is ended.
    """
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            mine = command.parent.stat().st_uid == os.getuid()
            other = int(command.parent.name) != os.getpid()
            if mine and other and _names(command.read_bytes(), folder):
                os.kill(int(command.parent.name), signal.SIGKILL)


def _names(arguments: bytes, folder: Path) -> bool:
    """Whether an argument is a chain's ``file=`` with a path inside a folder."""
    inside = b"file=" + os.fsencode(folder) + b"/"
    return any(argument.startswith(inside) for argument in arguments.split(b"\0"))


def _mark(folder: Path, beside: Path | None) -> int:
    """Write the marker, locked before anybody can see it; the file to keep open."""
    unborn = folder / f"{MARKER}.new"
    file = os.open(unborn, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        note = {"pid": os.getpid(), "beside": None if beside is None else str(beside)}
        os.write(file, json.dumps(note).encode())
        check_locks(file, folder.parent)
        os.rename(unborn, folder / MARKER)
    except BaseException:
        os.close(file)
        raise
    return file


def _is_leftover(path: Path) -> bool:
    """Whether this is a private folder of this user that no run holds."""
    match = _OURS.fullmatch(path.name)
    if match is None or fcntl is None:
        return False
    try:
        with _opened(path) as inside:
            return _is_abandoned(inside, int(match[1]))
    except OSError:
        return False


def _is_abandoned(folder: int, pid: int) -> bool:
    """Whether an open folder is this user's and no run holds it; ``pid`` is of who made it."""
    if os.fstat(folder).st_uid != os.getuid():
        return False
    inside = os.listdir(folder)
    if MARKER not in inside:
        # Killed before it was marked, or while it was being removed.
        return set(inside) <= {f"{MARKER}.new"} and not _alive(pid)
    try:
        file = os.open(MARKER, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=folder)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(file)
    return True


def _noted(folder: Path) -> Path | None:
    """The other folder that a leftover's marker names."""
    try:
        with open(folder / MARKER, "rb") as stream:
            note = json.loads(stream.read(_MOST_MARKER))
        beside = note["beside"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return Path(beside) if isinstance(beside, str) and os.path.isabs(beside) else None


def _measured(folder: Path) -> Leftover:
    """A leftover with what it holds."""
    files, size = 0, 0
    for place, _, names in os.walk(folder):
        for name in names:
            if not name.startswith(MARKER):
                with suppress(OSError):
                    size += os.lstat(os.path.join(place, name)).st_size
                    files += 1
    match = _OURS.fullmatch(folder.name)
    age = time.time() - folder.stat().st_mtime
    return Leftover(folder, files, size, int(match[1]) if match else 0, max(age, 0.0))


def _alive(pid: int) -> bool:
    """Whether there is a process of this number."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


_mask_lock = threading.Lock()
_mask_depth = 0
_mask_before = 0


@contextmanager
def _owner_only() -> Iterator[None]:
    """Let new files be for their owner alone; the mask comes back with the last block."""
    global _mask_depth, _mask_before
    with _mask_lock:
        if _mask_depth == 0:
            _mask_before = os.umask(0o077)
        _mask_depth += 1
    try:
        yield
    finally:
        with _mask_lock:
            _mask_depth -= 1
            if _mask_depth == 0:
                os.umask(_mask_before)


def _leave(number: int, frame: FrameType | None) -> None:
    """Leave by an exception, so that private folders are removed."""
    raise SystemExit(128 + number)


@contextmanager
def _by_exception() -> Iterator[None]:
    """Turn the signals that would end the process at once into an exception."""
    changed: list[int] = []
    if threading.current_thread() is threading.main_thread():
        for name in ("SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, _leave)
                changed.append(number)
    try:
        yield
    finally:
        for number in changed:
            signal.signal(number, signal.SIG_DFL)
