"""What earlier releases of a table tell, by the ledger: counted, or named where it is not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dsstan.copies.published import columns_going_out
from dsstan.core.arrays import Floats
from dsstan.release.publication.ledger import Entry, Ledger, open_ledger
from dsstan.release.publication.record_order import fingerprint_of, largest_of_each, record_order
from dsstan.risk.intruder.former import Former
from dsstan.table.formulas.formula import ResponseTransform
from dsstan.table.order_leaks import numbers_of
from dsstan.table.problem import UNNAMED, Problem

__all__ = ["add_up", "alike", "collected", "laid_bare", "published_before"]

SHARED = 0.1
"""Share of the places that two tables have in common, from which on they may be one table."""


def published_before(problem: Problem, values: Floats | None = None) -> Former | None:
    """The former releases of a table's response, by the ledger of this user; None where there are
    none. With ``values``, shape (L, N), that release itself is left out.

    Precision on another modelled scale (a release of ``price`` beside one of ``log(price)``) is
    taken to this one at the value of each record.
    """
    ledger = open_ledger()
    if ledger is None:
        return None
    key, entries = ledger.key, ledger.entries()
    if not entries:
        return None
    order = record_order(problem)
    responses, places = order.fingerprints(key)
    mine = None if values is None else order.name_of(values, key)
    former_ones = [one for one in entries if one.release != mine]
    found = [one for one in former_ones if one.responses == responses]
    own = problem.response, problem.name, problem.n_records, responses, order.place_numbers
    others = alike(ledger, *own)
    going = [name for name in columns_going_out(problem) if name != problem.response]
    going_out = collected(problem, going, key)
    bare = laid_bare(former_ones, problem.response, responses, going_out)
    truth = problem.original()[order.rows]

    def factor(name: str) -> Floats | float:
        step = 1e-4 * np.maximum(np.abs(truth), 1e-12)
        scales = (ResponseTransform(name), problem.transform)
        slopes = [s.forward(truth + step) - s.forward(truth) for s in scales]
        return np.asarray((slopes[0] / slopes[1]) ** 2)

    groups = order.same_value, order.same_place
    seen = tuple(dict.fromkeys(one.release for one in (*found, *others)))
    former = add_up(ledger, found, places, groups, problem.transform.name, factor)
    if former is None:
        if not others and not bare:
            return None
        none = np.zeros(problem.n_records)
        former = Former(none, none, releases=0, copies=0)
    fixed, known = np.empty((2, problem.n_records))
    fixed[order.rows], known[order.rows] = former.fixed, former.known
    return replace(
        former,
        fixed=fixed,
        known=known,
        alike=len({one.release for one in others}),
        laid_bare=tuple(bare),
        seen=seen,
    )


def add_up(
    ledger: Ledger,
    entries: Sequence[Entry],
    places: str,
    groups: tuple[NDArray[np.int64], NDArray[np.int64]],
    transform: str,
    factor: Callable[[str], Floats | float] | None = None,
) -> Former | None:
    """What releases of one table reveal together, records in the ledger's order.

    Parameters
    ----------
    ledger, entries
        Releases of this table.
    places
        The table's fingerprint with its places. Where a release has another, its records of one
        response can't be distinguished, and each counts as the one of which most was revealed.
    groups
        ``same_value`` and ``same_place`` as in
        :class:`dsstan.release.publication.record_order.RecordOrder`.
    transform
        Of the modelled scale that is wanted.
    factor
        Precision on that scale for one of precision on another, shape (N,); without it a
        release on another scale counts as not judged.
    """
    if not entries:
        return None
    total = np.zeros((2, groups[0].size))
    counted: list[Entry] = []
    for entry in entries:
        same_scale = entry.transform == transform
        if not entry.judged or (factor is None and not same_scale):
            continue
        information = ledger.information(entry)[["fixed", "known"]].to_numpy(dtype=np.float64).T
        if factor is not None and not same_scale:
            information = information * factor(entry.transform)
        total += largest_of_each(information, groups[int(entry.places == places)])
        counted.append(entry)
    copies = sum(one.copies for one in counted)
    return Former(total[0], total[1], len(counted), copies, len(entries) - len(counted))


def alike(
    ledger: Ledger,
    column: str,
    table: str,
    records: int,
    responses: str,
    places: NDArray[np.uint64] | None,
) -> list[Entry]:
    """Releases that may be of the same records, but of other values, so that the fingerprints
    differ: before or after a value was corrected, or of another column.

    They share a tenth of the places of the smaller table, or have as many records and either the
    name of the table or that of the column; where the places of one are not known, both names will
    do as well.

    Parameters
    ----------
    places
        A number for the place of each record, shape (N,); None where they are not known.
    """
    found = []
    mine = None if places is None else np.unique(places)
    for entry in ledger.entries():
        if entry.responses == responses:
            continue
        named, as_many = table == entry.table != UNNAMED, records == entry.records
        of_column = column.casefold() == entry.column.casefold()
        theirs = ledger.places(entry)
        if mine is None or theirs is None:
            same = named and of_column
        else:
            other = np.unique(theirs)
            shared = np.intersect1d(mine, other, assume_unique=True).size
            same = shared >= SHARED * min(mine.size, other.size)
        if same or (as_many and (named or of_column)):
            found.append(entry)
    return found


def collected(problem: Problem, names: Iterable[str], key: bytes) -> dict[str, str]:
    """Fingerprints of the columns of numbers among those that go out as they were collected,
    numbers written as text and amounts of money among them."""
    columns = {name: numbers_of(problem.pieces(name), problem.n_records) for name in names}
    return {
        name: fingerprint_of(numbers, key)
        for name, numbers in columns.items()
        if numbers is not None
    }


def laid_bare(
    others: Sequence[Entry], column: str, responses: str, collected: Mapping[str, str]
) -> list[str]:
    """Columns of which true values and copies go out, in one release or in two, in words.

    They are known by their values, whatever they are called.

    Parameters
    ----------
    others
        Other releases.
    column, responses, collected
        As in the entry of this one in the ledger.
    """
    protected = {one.responses for one in others}
    found = [
        f"it publishes the true values of {name}, of which an earlier release has copies"
        for name, values in collected.items()
        if values in protected
    ]
    if any(responses in one.collected.values() for one in others):
        found.append(f"an earlier release published the true values of {column}")
    return found
