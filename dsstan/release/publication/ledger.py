"""The ledger: what of each table went out, so that several releases of it are counted together.

It is a private folder of this user (0700, files 0600): ``key``, the secret of the fingerprints;
``releases.json``, one entry for each published release; and for each a Parquet file with what it
reveals of every record. No value of a table is in it. A release that is
written notes the same on its confidential side, and enters the ledger when it is published.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from platformdirs import user_state_path

from dsstan.core.errors import InputError
from dsstan.core.files.locks import locked_file
from dsstan.core.files.private_file import (
    check_own_file,
    check_parent,
    is_own,
    keep_private,
    lasting_folder,
)
from dsstan.release.publication.ledger_information import (
    information_bytes,
    read_information,
    read_place_risks,
    read_places,
)
from dsstan.table.formulas.formula import ResponseTransform

__all__ = [
    "ENTRIES",
    "VARIABLE",
    "Entry",
    "Ledger",
    "ledger_folder",
    "open_ledger",
    "read_entry",
    "same_release",
]


VARIABLE = "DSSTAN_LEDGER"
"""The environment variable that names the folder."""

ENTRIES = "releases.json"

_KEY, _LOCK = "key", "lock"
_KEY_BYTES = 32
_LARGEST = 100_000_000


@dataclass(frozen=True)
class Entry:
    """One release of one column of a table, as the ledger keeps it.

    Attributes
    ----------
    release, column
        Name of the release, by a keyed hash of its copies, and the synthetic column.
    table, records, copies
        What the table is called, N and L.
    transform
        Of the response to the modelled scale.
    responses, places
        Fingerprints of the table (:mod:`dsstan.release.publication.record_order`).
    floor
        As it was asked for, or None.
    judged
        Whether there is a file of what it reveals of every record.
    counted
        Former releases that its verdict counts, by name.
    published
        Each publication: ``to``, ``at``, ``by``, ``complete``.
    collected
        Fingerprints of the columns of numbers that go out as they were collected, by name.
    """

    release: str
    column: str
    table: str
    records: int
    copies: int
    transform: str
    responses: str
    places: str
    floor: str | None
    judged: bool
    counted: tuple[str, ...] = ()
    published: tuple[Mapping[str, Any], ...] = field(default=())
    collected: Mapping[str, str] = field(default_factory=dict)

    def same_table(self, other: Entry) -> bool:
        """Whether two entries are of one column of one table."""
        return self.responses == other.responses and self.records == other.records


@dataclass(frozen=True)
class Ledger:
    """The folder of a ledger."""

    folder: Path

    @property
    def key(self) -> bytes:
        """The secret of the fingerprints.

        Raises
        ------
        InputError
            If it can't be read.
        """
        path = self.folder / _KEY
        try:
            key = path.read_bytes()
        except OSError as error:
            raise InputError(f"the ledger's {path} can't be read: {error.strerror}") from None
        if len(key) != _KEY_BYTES:
            raise InputError(f"the ledger's {path} is damaged: restore it")
        return key

    @property
    def name(self) -> str:
        """A name that distinguishes this ledger from others and reveals nothing of its key."""
        return hashlib.sha256(b"dsstan ledger name" + self.key).hexdigest()[:16]

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One process at a time."""
        try:
            lock = locked_file(self.folder / _LOCK)
        except InputError as error:
            raise InputError(f"{error} for the ledger, with --ledger or {VARIABLE}") from None
        except OSError as error:
            raise InputError(
                f"the ledger {self.folder} can't be written to ({error.strerror}): name another "
                f"place with --ledger or {VARIABLE}"
            ) from None
        try:
            yield
        finally:
            lock.release()

    def entries(self) -> tuple[Entry, ...]:
        """Every entry, the first published first.

        Raises
        ------
        InputError
            If they can't be read.
        """
        path = self.folder / ENTRIES
        if not path.exists():
            if not any(self.folder.glob("*.parquet")):  # each release left one: there was none
                return ()
            raise InputError(
                f"the ledger {self.folder} lacks {ENTRIES}, so that what was published is not "
                "known: restore it"
            )
        try:
            if path.stat().st_size > _LARGEST:
                raise ValueError
            content = json.loads(path.read_text(encoding="utf-8"))
            return tuple(read_entry(one) for one in content["releases"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            raise InputError(f"the ledger's {path} can't be read: restore it") from None

    def information(self, entry: Entry) -> pd.DataFrame:
        """What a release reveals of every record; see
        :func:`dsstan.release.publication.ledger_information.read_information`.

        Raises
        ------
        InputError
            If it can't be read.
        """
        return read_information(self.folder / _file(entry), entry.records)

    def places(self, entry: Entry) -> NDArray[np.uint64] | None:
        """A number for the place of each record of a release; None where they are not known."""
        return read_places(self.folder / _file(entry), entry.records)

    def place_risks(self, entry: Entry) -> pd.DataFrame | None:
        """What a release with synthetic places says of each record's place, in the ledger's order;
        None where it has none, or was not assessed. See
        :mod:`dsstan.release.publication.earlier_places`.

        Raises
        ------
        InputError
            If it can't be read.
        """
        return read_place_risks(self.folder / _file(entry, "-places"), entry.records)

    def enter(
        self,
        entry: Entry,
        information: pd.DataFrame | None,
        place_risks: pd.DataFrame | None = None,
    ) -> None:
        """Add an entry, or replace that of the same release; the caller holds the lock.

        ``information`` is what was noted of every record: of a release that was not judged the
        numbers of its places (``ledger_information.PLACE``) alone. ``place_risks`` is what it says
        of places, where they are synthetic.
        """
        others = [one for one in self.entries() if not same_release(one, entry)]
        if information is not None:
            keep_private(self.folder / _file(entry), information_bytes(information))
        if place_risks is not None:
            keep_private(self.folder / _file(entry, "-places"), information_bytes(place_risks))
        self._write([*others, entry])

    def remove(self, entry: Entry) -> None:
        """Take an entry out; the caller holds the lock."""
        self._write([one for one in self.entries() if not same_release(one, entry)])
        for kind in ("", "-places"):
            (self.folder / _file(entry, kind)).unlink(missing_ok=True)

    def _write(self, entries: Sequence[Entry]) -> None:
        content = {"format": "dsstan ledger 1", "releases": [asdict(one) for one in entries]}
        keep_private(self.folder / ENTRIES, (json.dumps(content, indent=2) + "\n").encode())


def ledger_folder(named: str | os.PathLike[str] | None = None) -> Path:
    """Where the ledger is: the folder named, ``DSSTAN_LEDGER``, the user's state folder."""
    named = named if named is not None else os.environ.get(VARIABLE) or None
    if named is None:
        return user_state_path("dsstan") / "ledger"
    return Path(named).expanduser().absolute()


def open_ledger(
    named: str | os.PathLike[str] | None = None, *, make: bool = False
) -> Ledger | None:
    """The ledger; None where there is none and none is to be made.

    Raises
    ------
    InputError
        If it can't be made, or another user could change it.
    """
    ledger = Ledger(ledger_folder(named))
    if not ledger.folder.exists() and not make:
        return None
    if ledger.folder.exists():
        check_parent(ledger.folder)
        if not is_own(ledger.folder):
            raise InputError(
                f"the ledger {ledger.folder} belongs to another user, who could take releases out "
                f"of it: name one of your own with --ledger or {VARIABLE}"
            )
        for part in ledger.folder.iterdir():
            check_own_file(part)
    if (ledger.folder / _KEY).exists():
        return ledger
    if (ledger.folder / ENTRIES).exists() and ledger.entries():
        raise InputError(
            f"the ledger {ledger.folder} lacks its {_KEY}, without which no table in it is "
            "recognised: restore it"
        )
    if not make:
        return None
    lasting_folder(ledger.folder)
    with ledger.locked():
        if not (ledger.folder / _KEY).exists():
            ledger._write(())
            keep_private(ledger.folder / _KEY, secrets.token_bytes(_KEY_BYTES))
    return ledger


def read_entry(content: Mapping[str, Any]) -> Entry:
    """An entry from JSON.

    Raises KeyError, TypeError or ValueError if it is none.
    """
    lists = {name: tuple(content[name]) for name in ("counted", "published")}
    entry = Entry(**{**content, **lists, "collected": dict(content.get("collected", {}))})
    texts = [entry.column, entry.table, entry.transform, *entry.counted]
    texts += [one[key] for one in entry.published for key in ("to", "at", "by")]
    texts += [] if entry.floor is None else [entry.floor]
    texts += [text for pair in entry.collected.items() for text in pair]
    truths = [entry.judged, *(one["complete"] for one in entry.published)]
    kinds = ((str, texts), (bool, truths), (int, [entry.records, entry.copies]))
    if not all(type(one) is kind for kind, those in kinds for one in those):
        raise TypeError
    if min(entry.records, entry.copies) < 1:
        raise ValueError
    for name in (entry.release, entry.responses, entry.places, *entry.collected.values()):
        bytes.fromhex(name)  # one of them names a file
    ResponseTransform(entry.transform).forward(np.ones(1))  # KeyError if there is none
    return entry


def _file(entry: Entry, kind: str = "") -> str:
    """Name of the file of an entry, whatever its column is called."""
    column = hashlib.sha256(entry.column.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{entry.release}-{column}{kind}.parquet"


def same_release(one: Entry, other: Entry) -> bool:
    """Whether two entries are of one column of one release."""
    return (one.release, one.column) == (other.release, other.column)
