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
        floor of the last release; None where it had none or was not judged.
    """

    releases: tuple[Entry, ...]
    left: int | None

    @property
    def last(self) -> Entry:
        """The last release."""
        return self.releases[-1]


def tables_in(ledger: Ledger) -> list[TableInLedger]:
    """Every table of a ledger, the first published first.

    Raises InputError if the ledger can't be read.
    """
    tables: list[list[Entry]] = []
    for entry in ledger.entries():
        mine = next((table for table in tables if table[0].same_table(entry)), None)
        if mine is None:
            tables.append([entry])
        else:
            mine.append(entry)
    return [TableInLedger(tuple(table), _left(ledger, table)) for table in tables]


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
