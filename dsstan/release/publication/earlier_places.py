"""What earlier releases with synthetic places said of each record's place, by the ledger.

Kept are logarithms of two factors of every record, in the ledger's order: no place is among them.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

import numpy as np
import pandas as pd

from dsstan.release.publication.ledger import open_ledger
from dsstan.release.publication.ledger_information import PLACE_RISKS
from dsstan.release.publication.record_order import NAME_DIGITS, largest_of_each, record_order
from dsstan.risk.places.earlier import EarlierPlaces
from dsstan.risk.places.result import PlaceAssessment
from dsstan.table.problem import Problem

__all__ = ["name_of_placed", "published_places", "place_risks_of"]


def place_risks_of(found: PlaceAssessment, problem: Problem) -> pd.DataFrame:
    """What a release says of each record's place, in the ledger's order.

    It is of this release alone, as each has a file of its own. Records of one response at one place
    can't be distinguished there, and each counts as the one of which most is said.
    """
    order = record_order(problem)
    place_risks = found.of_this_release
    columns = (place_risks.log_presence, place_risks.log_odds)
    values = [largest_of_each(one[order.rows], order.same_place) for one in columns]
    return pd.DataFrame(dict(zip(PLACE_RISKS, values, strict=True)))


def published_places(
    problem: Problem, tables: Sequence[pd.DataFrame] = ()
) -> tuple[tuple[EarlierPlaces, ...], int]:
    """What published releases of a table said of its places, and how many others nobody assessed.

    Parameters
    ----------
    problem
        The table.
    tables
        Copies that may be in the ledger themselves and are not former ones.
    """
    ledger = open_ledger()
    entries = () if ledger is None else ledger.entries()
    if ledger is None or not entries:
        return (), 0
    order = record_order(problem)
    responses, places = order.fingerprints(ledger.key)
    mine = name_of_placed(tables, problem.response, ledger.key)
    found: dict[str, EarlierPlaces] = {}
    unknown = set()
    for entry in entries:
        if entry.release == mine or entry.responses != responses:
            continue
        place_risks = ledger.place_risks(entry)
        if place_risks is None or entry.places != places:
            unknown.add(entry.release)
            continue
        columns = [np.empty(problem.n_records) for _ in PLACE_RISKS]
        for column, name in zip(columns, PLACE_RISKS, strict=True):
            column[order.rows] = place_risks[name].to_numpy()
        found[entry.release] = EarlierPlaces(*columns)
    return tuple(found.values()), len(unknown - set(found))


def name_of_placed(tables: Sequence[pd.DataFrame], column: str, key: bytes) -> str:
    """Name of a release with synthetic places, by a keyed hash of its copies."""
    content = b"dsstan ledger 1, synthetic places" + b"".join(map(_bytes, tables))
    content += column.encode(errors="surrogatepass")
    return hmac.new(key, content, hashlib.sha256).hexdigest()[:NAME_DIGITS]


def _bytes(table: pd.DataFrame) -> bytes:
    """The content of a copy."""
    flat = pd.DataFrame({str(name): table[name].astype(str) for name in table.columns})
    return pd.util.hash_pandas_object(flat, index=False).to_numpy().tobytes()
