"""Publish a written release: its public part goes to where others may read it.

A release is as private as the table until somebody decides that it may go out. Who decided, when,
on which verdicts and with what reason stays with the release, in ``confidential/published.json``.
"""

from __future__ import annotations

import getpass
import json
import os
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dsstan._version import __version__
from dsstan.core.errors import CONTROL, DisclosureError, InputError, ReleaseError
from dsstan.core.files.locks import locked_file
from dsstan.core.files.private_file import write_private
from dsstan.release.publication.ledger_note import (
    entered,
    is_noted,
    ledger_of,
    not_counted,
    published_since,
    read_note,
    true_values,
)
from dsstan.release.publication.public_hashes import copied, hashes_of, noted_hashes
from dsstan.release.whole_folder import check_target, whole_folder

if TYPE_CHECKING:
    from dsstan.copies.result import Synthesis

__all__ = ["PUBLISHED", "Publication", "publications", "publish", "publish_synthesis"]

PUBLISHED = "published.json"

_LOCK = "published.lock"
_KEYS = ("fit_verdict", "disclosure_verdict", "disclosure_reason")
_LARGEST = 1_000_000_000


@dataclass(frozen=True)
class Publication:
    """One publication of a release, as ``confidential/published.json`` keeps it.

    Attributes
    ----------
    to
        Where the public part went.
    by, at
        Name of the user, and the time in UTC.
    fit_verdict, disclosure_verdict, floor
        As ``summary.json`` has them.
    reason
        Why it went out although something was against it; None where nothing was.
    software
        The version that published it.
    files
        SHA-256 of each published file by its name.
    complete
        False between the note and the moment the folder has its name. It stays False only where
        a process was killed there; the folder may then be there or not.
    against
        What stood against it, in words, for all of which the reason was given.
    """

    to: str
    by: str
    at: str
    fit_verdict: str
    disclosure_verdict: str
    floor: Any
    reason: str | None
    software: str
    files: Mapping[str, str]
    complete: bool
    against: tuple[str, ...] = ()


def publish(
    folder: str | os.PathLike[str],
    *,
    to: str | os.PathLike[str],
    reason: str | None = None,
    ledger: str | os.PathLike[str] | None = None,
) -> Publication:
    """Copy the public part of a written release to where others may read it.

    Parameters
    ----------
    folder
        The release, as :func:`dsstan.release.write.write_release` wrote it.
    to
        The folder to make (0755, its files 0644); nothing is overwritten.
    reason
        Why the release may go out although its fit has warnings or failed, or its disclosure
        misses the floor or was not judged. It is kept.
    ledger
        Where the ledger is that the release was judged with
        (:mod:`dsstan.release.publication.ledger`), if it is not where it was then.

    Returns
    -------
    Publication
        What was noted.

    Raises
    ------
    DisclosureError
        If a verdict is against it, or what was published of the table since, and no reason is
        given.
    ReleaseError
        If the public part is not as it was written, an earlier version of dsstan wrote it, or the
        folder exists or can't be made. Nothing was published then.
    InputError
        If there is no release, the reason is empty, or the ledger is not found.
    """
    source = Path(folder).expanduser().absolute()
    confidential = source / "confidential"
    verdicts, against = _judged(source)
    reason = _checked_reason(reason)
    target = check_target(to)
    if target.resolve().is_relative_to(source.resolve()):
        raise InputError(
            f"{target} lies in the release, which only its owner may enter: choose a folder "
            "beside it"
        )
    note = read_note(confidential)
    book = None if note is None else ledger_of(note, ledger)
    try:
        with nullcontext() if book is None else book.locked(), _locked(confidential):
            check_target(target)
            if note is None or book is None:
                against.append("it was written without a ledger")
            else:
                against += published_since(note, book)
                against += not_counted(note, book)
                said = " ".join(against)
                against += [one for one in true_values(note, book) if one not in said]
            if against and reason is None:
                raise DisclosureError(
                    f"{source} is not published: {' and '.join(against)}. Make it again with "
                    "other settings, or accept it with a reason (in Python reason=...): "
                    f"{_command(source, target)}"
                )
            files = noted_hashes(confidential)
            mine = Publication(
                to=str(target),
                by=_user(),
                at=datetime.now(UTC).isoformat(timespec="seconds"),
                **verdicts,
                reason=reason if against else None,
                software=__version__,
                files=files,
                complete=False,
                against=tuple(against),
            )
            there = partial(_holds, target, files)
            with (
                _noted(confidential, mine, there),
                entered(note, book, mine, there) as enter,
                whole_folder(target, 0o755) as whole,
            ):
                copied(source / "public", files, whole)
                _note(confidential, mine)
                enter()
    except OSError as error:
        raise ReleaseError(
            f"the release could not be published to {target}: "
            f"{error.strerror or type(error).__name__}. Nothing was published"
        ) from None
    return replace(mine, complete=True)


def publish_synthesis(
    release: Synthesis,
    folder: str | os.PathLike[str],
    *,
    to: str | os.PathLike[str],
    reason: str | None = None,
) -> Publication:
    """Publish what :meth:`dsstan.Synthesis.write` wrote to a folder; see :func:`publish`.

    Raises
    ------
    InputError
        If the folder holds another release.
    """
    settings = _json(Path(folder).expanduser() / "confidential" / "settings.json")
    same = settings.get("synthesis", {}).get("seed") == str(release.seed)
    if not same or not is_noted(release, Path(folder).expanduser() / "confidential"):
        raise InputError(f"{folder} holds another release than this one: write this one first")
    return publish(folder, to=to, reason=reason)


def publications(folder: Path) -> tuple[Publication, ...]:
    """Every publication of a release, in the order in which they were made.

    Raises
    ------
    InputError
        If the note of them can't be read.
    """
    path = folder / "confidential" / PUBLISHED
    if not path.exists():
        return ()
    try:
        found = _json(path)["publications"]
        return tuple(
            Publication(
                **{
                    **one,
                    **{key: os.fspath(one[key]) for key in ("to", "at", "by")},
                    "files": dict(one["files"]),
                    "against": tuple(one.get("against", ())),
                }
            )
            for one in found
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        raise InputError(f"{path} does not hold a list of publications") from None


def _judged(source: Path) -> tuple[dict[str, Any], list[str]]:
    """Verdicts and floor of a release, by ``summary.json``, and what stands against publication."""
    if not (source / "confidential").is_dir() or not (source / "public").is_dir():
        raise InputError(
            f"{source} is no release: one has the folders public and confidential, as dsstan run "
            "writes them"
        )
    summary = _json(source / "confidential" / "summary.json")
    if any(key not in summary for key in _KEYS):
        raise ReleaseError(
            f"{source} was written by an earlier version of dsstan, which noted no verdicts: make "
            "it again with this one (dsstan run), then publish it"
        )
    try:
        floor = (summary["attacker"] or {}).get("floor")
        verdicts = {name: str(summary[name]) for name in ("fit_verdict", "disclosure_verdict")}
        return {**verdicts, "floor": floor}, _against(summary)
    except (AttributeError, KeyError, TypeError):
        raise InputError(
            f"{source / 'confidential' / 'summary.json'} is not as dsstan wrote it: restore it, or "
            "make the release again"
        ) from None


def _json(path: Path) -> dict[str, Any]:
    """A JSON file of the confidential side."""
    try:
        if path.stat().st_size > _LARGEST:
            raise ValueError
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict):
            raise ValueError
    except (OSError, ValueError, RecursionError):
        raise InputError(f"{path} can't be read: the release is not whole") from None
    return content


def _checked_reason(reason: str | None) -> str | None:
    """A reason of one line."""
    if reason is None:
        return None
    words = " ".join(CONTROL.sub(" ", reason).split())
    if not words:
        raise InputError("the reason is empty: say why the release may go out")
    return words


def _against(summary: Mapping[str, Any]) -> list[str]:
    """What stands against publication, in words."""
    found = []
    if summary["fit_verdict"] != "ok":
        named = dict.fromkeys(str(c["condition"]) for c in summary["verdict"]["conditions"])
        failed = "failed" if summary["fit_verdict"] == "failed" else "has warnings"
        found.append(f"its fit {failed}" + (f" ({', '.join(named)})" if named else ""))
    verdict, reason = (str(summary[f"disclosure_{key}"]) for key in ("verdict", "reason"))
    if verdict == "missed":
        found.append(f"it misses its floor ({reason})")
    elif verdict != "met":
        found.append(f"its disclosure was not judged ({reason})")
    return found


def _command(source: Path, target: Path) -> str:
    """What to type to accept it."""
    places = [shlex.quote(str(path)) for path in (source, target)]
    return f'dsstan publish {places[0]} --to {places[1]} --accept "the reason"'


def _user() -> str:
    """Who runs this: by the account of the process, which no variable can change."""
    try:
        import pwd

        return pwd.getpwuid(os.getuid()).pw_name
    except (ImportError, KeyError):
        pass
    try:
        return getpass.getuser()
    except (ImportError, KeyError, OSError):
        return f"user {os.getuid()}" if hasattr(os, "getuid") else "unknown"


@contextmanager
def _locked(confidential: Path) -> Iterator[None]:
    """One publication of a release at a time."""
    try:
        lock = locked_file(confidential / _LOCK)
    except InputError as error:
        raise ReleaseError(f"{error}. Nothing was published") from None
    except OSError as error:
        raise ReleaseError(
            f"{confidential} can't be written to ({error.strerror}), so the publication could not "
            "be noted: nothing was published"
        ) from None
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _noted(confidential: Path, mine: Publication, there: Callable[[], bool]) -> Iterator[None]:
    """Settle the note of a publication, by whether its folder is there."""
    try:
        yield
    except BaseException:
        # Interrupted after the folder had its name, it is published.
        _settle(confidential, mine, there())
        raise
    _settle(confidential, mine, True)


def _settle(confidential: Path, mine: Publication, there: bool) -> None:
    """Complete the note of a publication, or take it back."""
    found = publications(confidential.parent)
    if mine in found:
        others = [one for one in found if one != mine]
        _write(confidential, [*others, replace(mine, complete=True)] if there else others)


def _note(confidential: Path, mine: Publication) -> None:
    """Note a publication that begins, and settle those that were killed."""
    found = [
        one if one.complete else replace(one, complete=_holds(Path(one.to), one.files))
        for one in publications(confidential.parent)
    ]
    again = [one for one in found if one.complete or one.to != mine.to]
    _write(confidential, [*again, mine])


def _holds(target: Path, files: Mapping[str, str]) -> bool:
    """Whether a folder holds exactly these files."""
    try:
        return hashes_of(target) == dict(files)
    except OSError:
        return False


def _write(confidential: Path, found: list[Publication]) -> None:
    """Replace the notes at once."""
    content = {"publications": [asdict(one) for one in found]}
    write_private(confidential / PUBLISHED, (json.dumps(content, indent=2) + "\n").encode())
