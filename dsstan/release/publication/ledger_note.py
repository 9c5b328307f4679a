"""What a release that is written notes for the ledger, on its confidential side."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dsstan.copies.published import as_collected
from dsstan.core.errors import DsstanWarning, InputError
from dsstan.release.publication.earlier import add_up, alike, collected, laid_bare
from dsstan.release.publication.ledger import (
    VARIABLE,
    Entry,
    Ledger,
    ledger_folder,
    open_ledger,
    read_entry,
    same_release,
)
from dsstan.release.publication.ledger_information import (
    GROUPS,
    PLACE,
    information_bytes,
    read_information,
    read_place_risks,
    read_places,
    sd_left,
)
from dsstan.release.publication.record_order import RecordOrder, record_order
from dsstan.risk.assessment import Assessment

if TYPE_CHECKING:
    from dsstan.copies.result import Synthesis

_NOTE, _INFORMATION, _PLACE_RISKS = "ledger.json", "ledger.parquet", "ledger_places.parquet"


@dataclass(frozen=True, eq=False)
class LedgerNote:
    """What a written release would enter.

    Attributes
    ----------
    folder, ledger
        Where the ledger was, and its name.
    entries
        One for each synthetic column.
    information
        What the release reveals of every record, of the column that was judged; else None.
    places
        A number for the place of each record, shape (N,); None where they were not noted.
    place_risks
        What the release says of each record's place, where places are synthetic.
    """

    folder: str
    ledger: str
    entries: tuple[Entry, ...]
    information: pd.DataFrame | None
    places: NDArray[np.uint64] | None
    place_risks: pd.DataFrame | None = None

    def noted(self, entry: Entry) -> pd.DataFrame | None:
        """What the ledger keeps of every record beside an entry."""
        if entry.judged:
            return self.information
        return None if self.places is None else pd.DataFrame({PLACE: self.places})


def note_for_ledger(
    release: Synthesis, risks: Assessment, confidential: Path
) -> tuple[str | None, ...]:
    """Write ``ledger.json`` and ``ledger.parquet``: of a release that was judged what it reveals of
    every record, of another the numbers of its places alone.

    Where the ledger can't be made there is a warning, and the release can't be published
    without one. What comes back is the name of each synthetic column's copies, as the ledger has
    it, or None for each without a ledger.
    """
    ledger = ledger_to_note()
    if ledger is None:
        return (None,) * len(release.steps)
    key, entries = ledger.key, []
    going = collected(release.problem, as_collected(release), key)
    for step in release.steps:
        problem, order = step.problem, record_order(step.problem)
        responses, places = order.fingerprints(key)
        name = order.name_of(step.values, key)
        if risks.after is not None:  # what the verdict knew of
            former = risks.after.former.seen if risks.after.former is not None else ()
        else:
            former = counted_before(ledger, responses, name)
        entry = Entry(
            release=name,
            column=problem.response,
            table=problem.name,
            records=problem.n_records,
            copies=step.copies,
            transform=problem.transform.name,
            responses=responses,
            places=places,
            floor=None if risks.asked is None else str(risks.asked),
            judged=risks.after is not None,
            counted=former,
            collected=going,
        )
        entries.append(entry)
        if risks.after is not None:
            noted = _information_of(risks, order)
        else:  # in an order that says nothing of the responses
            noted = pd.DataFrame({PLACE: np.sort(order.place_numbers)})
        (confidential / _INFORMATION).write_bytes(information_bytes(noted))
    write_note(ledger, entries, confidential)
    return tuple(entry.release for entry in entries)


def ledger_to_note() -> Ledger | None:
    """The ledger that a release is noted for; None, with a warning, where it can't be made."""
    try:
        ledger = open_ledger(make=True)
        assert ledger is not None
        _ = ledger.key  # which is read here
    except InputError as error:
        warnings.warn(f"{error}. The release is written without it", DsstanWarning, stacklevel=5)
        return None
    return ledger


def counted_before(ledger: Ledger, responses: str, name: str) -> tuple[str, ...]:
    """Names of the releases of the same responses that the ledger has, but for this one."""
    return tuple(
        one.release
        for one in ledger.entries()
        if one.responses == responses and one.release != name
    )


def write_note(
    ledger: Ledger,
    entries: Sequence[Entry],
    confidential: Path,
    place_risks: pd.DataFrame | None = None,
) -> None:
    """Write ``ledger.json``: what a release would enter, and into which ledger; and what it says of
    places, where they are synthetic."""
    if place_risks is not None:
        (confidential / _PLACE_RISKS).write_bytes(information_bytes(place_risks))
    content = {
        "folder": str(ledger.folder),
        "ledger": ledger.name,
        "releases": [asdict(entry) for entry in entries],
    }
    text = json.dumps(content, indent=2) + "\n"
    (confidential / _NOTE).write_text(text, encoding="utf-8")


def _information_of(risks: Assessment, order: RecordOrder) -> pd.DataFrame:
    """What this release alone reveals of every record, in the ledger's order.

    The information is that behind the bounds, without their margin. Where a record's exact sd is
    smaller than that says, it counts, and an exact sd needs no margin.
    """
    after = risks.intruder
    alone, count = after.leave_one_out**-2.0, after.copies
    fixed, known = (after.own_information(count, variances) for variances in ("fixed", "known"))
    before = 0.0 if after.former is None else after.former.known
    margin = np.full(alone.size, after.margin[1])
    if risks.exact is not None:
        rows = risks.exact.records["position"].to_numpy()
        known[rows] = np.maximum(known, risks.sd**-2.0 - alone - before)[rows]
        margin[rows] = 1.0
    least = np.full(alone.size, np.nan)
    if risks.least_kept is not None:
        least = risks.least_kept * (1.0 + (after.left_out or 0.0))
    found = pd.DataFrame(
        {
            "alone": alone,
            "fixed": fixed,
            "known": known,
            "margin": margin,
            "least": least,
            "next_copy": np.maximum(after.planned(1), known / count),
            "next_release": np.maximum(after.planned(count), known),
        }
    )
    found = found.iloc[order.rows].reset_index(drop=True)
    groups = {"same_value": order.same_value, "same_place": order.same_place}
    return found.assign(**groups, **{PLACE: order.place_numbers})


def read_note(confidential: Path) -> LedgerNote | None:
    """What a written release noted; None where it noted nothing.

    Raises InputError if it can't be read.
    """
    path = confidential / _NOTE
    if not path.exists():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        entries = tuple(read_entry(one) for one in content["releases"])
        judged = [one for one in entries if one.judged]
        return LedgerNote(
            content["folder"],
            content["ledger"],
            entries,
            read_information(confidential / _INFORMATION, judged[0].records) if judged else None,
            read_places(confidential / _INFORMATION, entries[0].records),
            read_place_risks(confidential / _PLACE_RISKS, entries[0].records),
        )
    except (OSError, ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} can't be read: the release is not whole") from None


def is_noted(release: Synthesis, confidential: Path) -> bool:
    """Whether a note is of this release, by its copies; True where that can't be told."""
    note = read_note(confidential)
    ledger = None if note is None else open_ledger(note.folder)
    if note is None or ledger is None or ledger.name != note.ledger:
        return True
    named = [record_order(s.problem).name_of(s.values, ledger.key) for s in release.steps]
    return named == [entry.release for entry in note.entries]


def former_releases(note: LedgerNote, ledger: Ledger) -> int:
    """How many other releases of a release's table are in a ledger; of its columns the most."""
    return max(len(_others(entry, ledger)) for entry in note.entries)


def not_counted(note: LedgerNote, ledger: Ledger) -> list[str]:
    """What was published since of tables that may be of a release's own records, in words.

    The ledger knows a table by its values, so that one corrected value makes another table of it,
    and so does another column.
    """
    found = {
        one.release: one
        for entry in note.entries
        for one in alike(
            ledger, entry.column, entry.table, entry.records, entry.responses, note.places
        )
        if one.release not in entry.counted
    }
    if not found:
        return []
    names = ", ".join(
        dict.fromkeys(f"{one.table} ({one.records} records)" for one in found.values())
    )
    several = "s" if len(found) > 1 else ""
    return [
        f"{len(found)} release{several} of {names} with other values, or of another column, went "
        "out since: if the records are the same people's, what those copies tell is not counted "
        "here"
    ]


def true_values(note: LedgerNote, ledger: Ledger) -> list[str]:
    """Columns of which true values and copies go out; see
    :func:`dsstan.release.publication.earlier.laid_bare`."""
    found = []
    for entry in note.entries:
        others = [one for one in ledger.entries() if one.release != entry.release]
        found += laid_bare(others, entry.column, entry.responses, entry.collected)
    return list(dict.fromkeys(found))


def _others(entry: Entry, ledger: Ledger) -> list[Entry]:
    """The other releases of a table in a ledger."""
    return [o for o in ledger.entries() if o.same_table(entry) and o.release != entry.release]


def published_since(note: LedgerNote, ledger: Ledger) -> list[str]:
    """What releases that were published since a release was judged change in its verdict, in words.

    The caller holds the lock of the ledger.
    """
    found = []
    for entry in note.entries:
        others = _others(entry, ledger)
        new = [one for one in others if one.release not in entry.counted]
        if not new:
            continue
        since = f"with what was published of this table since it was written ({len(new)}"
        since += f" release{'s' if len(new) > 1 else ''})"
        information = note.information
        if (
            not entry.judged
            or entry.floor is None
            or information is None
            or information["least"].isna().any()
        ):
            found.append(f"{since} nobody knows what all tell")
            continue
        same = (information[name].to_numpy(dtype=np.int64) for name in GROUPS)
        former = add_up(ledger, others, entry.places, (next(same), next(same)), entry.transform)
        assert former is not None
        left = sd_left(information, information["known"].to_numpy() + former.known)
        below = int(np.sum(left < information["least"]))
        if below:
            found.append(
                f"{since} it misses its floor, or names values too surely, for {below} of "
                f"{entry.records} records"
            )
        if former.unjudged:
            found.append(f"{since} it can't be judged")
    return found


@contextmanager
def entered(
    note: LedgerNote | None, ledger: Ledger | None, publication: Any, there: Callable[[], bool]
) -> Iterator[Callable[[], None]]:
    """Give what enters a publication before it is out; complete it when the block ends.

    Where the block fails it is taken back, unless the folder is ``there`` by then. A process that
    is killed leaves it entered, since the copies may be out. The caller holds the lock.
    """
    if note is None or ledger is None:
        yield lambda: None
        return
    entries, before = note.entries, ledger.entries()
    formers = [next((o for o in before if same_release(o, one)), None) for one in entries]
    where = {key: getattr(publication, key) for key in ("to", "at", "by")}
    begun = []

    def write(complete: bool) -> None:
        for entry, former in zip(entries, formers, strict=True):
            known = () if former is None else former.published
            others = [one for one in known if one["complete"] or one["to"] != where["to"]]
            mine = {**where, "complete": complete}
            entry = replace(entry, published=(*others, mine))
            ledger.enter(entry, note.noted(entry), note.place_risks)

    def enter() -> None:
        begun.append(True)
        write(complete=False)

    try:
        yield enter
    except BaseException:
        if begun and there():
            write(complete=True)
        elif begun:
            for entry, former in zip(entries, formers, strict=True):
                ledger.remove(entry)
                if former is not None:
                    ledger.enter(former, note.noted(former))
        raise
    write(complete=True)


def ledger_of(note: LedgerNote, named: str | os.PathLike[str] | None) -> Ledger:
    """The ledger that a release was judged with.

    Raises InputError if it is not at the place named, else in the variable, else in the note or
    the user's state folder.
    """
    named = named if named is not None else os.environ.get(VARIABLE) or None
    places = [ledger_folder(named)] if named is not None else [Path(note.folder), ledger_folder()]
    for place in places:
        ledger = open_ledger(place)
        if ledger is not None and ledger.name == note.ledger:
            return ledger
    raise InputError(
        f"the ledger that the release was judged with is not at {places[0]}: it was at "
        f"{note.folder}. Name its place with --ledger or {VARIABLE}, or make the release again "
        "with the ledger that you want"
    )


def ledger_line(
    folder: str | os.PathLike[str], former: int, uncounted: int = 0, *, sure: bool = False
) -> str:
    """Which ledger was used, and how many former releases of the table it had, or of what may be
    (``sure``: is) the table before a correction, or another column of it."""
    several = "" if former == 1 else "s"
    also = f", {uncounted}{'' if sure else ' perhaps'} of the same records" if uncounted else ""
    book = open_ledger(folder)
    if book is None or not book.entries():
        return f"Ledger, nothing was published with it yet: {folder}"
    return f"Ledger, {former} former release{several} of this table{also}: {folder}"
