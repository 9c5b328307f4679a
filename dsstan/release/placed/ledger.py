"""What a release with synthetic places notes for the ledger."""

from __future__ import annotations

from pathlib import Path

from dsstan.copies.places.result import MOVED, PlacedRelease
from dsstan.release.publication.earlier import collected
from dsstan.release.publication.earlier_places import name_of_placed, place_risks_of
from dsstan.release.publication.ledger import Entry
from dsstan.release.publication.ledger_note import counted_before, ledger_to_note, write_note
from dsstan.release.publication.record_order import record_order
from dsstan.risk.places.result import PlaceAssessment
from dsstan.table.planes import place_columns

__all__ = ["note_placed"]


def note_placed(
    release: PlacedRelease, confidential: Path, assessment: PlaceAssessment | None = None
) -> str | None:
    """Write ``ledger.json`` and, with an assessment, what the release says of each record's place;
    the name of the release, or None without a ledger.

    One entry for each modelled column, or one for the table's response where none is. Places are
    confidential here, so that no number of them is noted. What the release tells of values is
    judged by nobody yet, so that a later release of the table goes out with a reason only.
    """
    ledger = ledger_to_note()
    if ledger is None:
        return None
    key = ledger.key
    going: dict[str, str] = {}
    if release.places == MOVED:
        made = {*place_columns(release.problem), *(fit.problem.response for fit in release.fits)}
        kept = [name for name in release.tables[0].columns if name not in made]
        going = collected(release.problem, kept, key)
    entries = []
    for problem in [fit.problem for fit in release.fits] or [release.problem]:
        responses, places = record_order(problem).fingerprints(key)
        name = name_of_placed(release.tables, problem.response, key)
        entry = Entry(
            release=name,
            column=problem.response,
            table=problem.name,
            records=problem.n_records,
            copies=release.copies,
            transform=problem.transform.name,
            responses=responses,
            places=places,
            floor=None,
            judged=False,
            counted=counted_before(ledger, responses, name),
            collected=going,
        )
        entries.append(entry)
    place_risks = None if assessment is None else place_risks_of(assessment, release.problem)
    write_note(ledger, entries, confidential, place_risks)
    return entries[-1].release
