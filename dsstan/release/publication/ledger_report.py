"""What went out of each table in a ledger, and what is left."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dsstan.release.publication.earlier import add_up
from dsstan.release.publication.ledger import Entry, Ledger
from dsstan.release.publication.ledger_information import GROUPS, sd_left
from dsstan.risk.intruder.planned import most_copies


@dataclass(frozen=True)
class TableInLedger:
    """One column of one table.

    Attributes
    ----------
    releases
        Its releases, the first published first.
    left
        How many more copies like those of the last release would still leave every record the
        floor of the last release; None where it had none or was not judged, 0 where true values
        are out.
    bare_in
        The column whose release published the true values of this one; None without any.
    placed
        For each release, whether its places are synthetic and were assessed. What it tells of
        values is then not among what is counted.
    """

    releases: tuple[Entry, ...]
    left: int | None
    bare_in: str | None = None
    placed: tuple[bool, ...] = ()

    @property
    def last(self) -> Entry:
        """The last release."""
        return self.releases[-1]


def tables_in(ledger: Ledger) -> list[TableInLedger]:
    """Every table of a ledger, the first published first.

    Raises InputError if the ledger can't be read.
    """
    tables: list[list[Entry]] = []
    entries = ledger.entries()
    for entry in entries:
        mine = next((table for table in tables if table[0].same_table(entry)), None)
        if mine is None:
            tables.append([entry])
        else:
            mine.append(entry)
    found = []
    for table in tables:
        values = table[0].responses
        bare = next((one.column for one in entries if values in one.collected.values()), None)
        left = _left(ledger, table) if bare is None else 0
        placed = tuple(ledger.place_risks(one) is not None for one in table)
        found.append(TableInLedger(tuple(table), left, bare, placed))
    return found


def _left(ledger: Ledger, releases: list[Entry]) -> int | None:
    """More copies that meet the floor, by what is planned for them.

    So many copies reveal no more than as many times one, and no more than the releases like the
    last that hold them; a plan errs on the safe side (:mod:`dsstan.risk.intruder.planned`).
    """
    last = releases[-1]
    if not last.judged or last.floor is None:
        return None
    information = ledger.information(last)
    groups = (information[name].to_numpy(dtype=np.int64) for name in GROUPS)
    out = add_up(ledger, releases, last.places, (next(groups), next(groups)), last.transform)
    assert out is not None
    if out.unjudged:
        return None
    known, size = out.known, last.copies
    # The limit may fall short of a whole number by rounding alone.
    least = information["least"].to_numpy() * (1 - 1e-12)
    one, several = information["next_copy"].to_numpy(), information["next_release"].to_numpy()

    def kept(count: int) -> bool:
        more = np.minimum(count * one, -(-count // size) * several)
        return bool(np.all(sd_left(information, known + more) >= least))

    return most_copies(kept)
