"""What a release with synthetic places notes for the ledger."""

from __future__ import annotations

import hashlib
import hmac
import warnings
from pathlib import Path

import pandas as pd

from dsstan.copies.places.result import MOVED, PlacedRelease
from dsstan.core.errors import DsstanWarning, InputError
from dsstan.release.publication.earlier import collected
from dsstan.release.publication.ledger import Entry, open_ledger
from dsstan.release.publication.ledger_note import write_note
from dsstan.release.publication.record_order import NAME_DIGITS, record_order
from dsstan.table.planes import place_columns

__all__ = ["note_placed"]


def note_placed(release: PlacedRelease, confidential: Path) -> str | None:
    """Write ``ledger.json``; the name of the release, or None without a ledger.

    One entry for each modelled column, or one for the table's response where none is. Places are
    confidential here, so that no number of them is noted. What the release tells of values is
    judged by nobody yet, so that a later release of the table goes out with a reason only.
    """
    try:
        ledger = open_ledger(make=True)
        assert ledger is not None
        key = ledger.key
    except InputError as error:
        warnings.warn(f"{error}. The release is written without it", DsstanWarning, stacklevel=4)
        return None
    going: dict[str, str] = {}
    if release.places == MOVED:
        made = {*place_columns(release.problem), *(fit.problem.response for fit in release.fits)}
        kept = [name for name in release.tables[0].columns if name not in made]
        going = collected(release.problem, kept, key)
    content = b"dsstan ledger 1, synthetic places" + b"".join(map(_bytes, release.tables))
    entries = []
    for problem in [fit.problem for fit in release.fits] or [release.problem]:
        responses, places = record_order(problem).fingerprints(key)
        mine = content + problem.response.encode(errors="surrogatepass")
        name = hmac.new(key, mine, hashlib.sha256).hexdigest()[:NAME_DIGITS]
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
            counted=tuple(
                one.release
                for one in ledger.entries()
                if one.responses == responses and one.release != name
            ),
            collected=going,
        )
        entries.append(entry)
    write_note(ledger, entries, confidential)
    return entries[-1].release


def _bytes(table: pd.DataFrame) -> bytes:
    """The content of a copy."""
    flat = pd.DataFrame({str(name): table[name].astype(str) for name in table.columns})
    return pd.util.hash_pandas_object(flat, index=False).to_numpy().tobytes()
