"""The command ``dsstan ledger``: what went out of each table, and what is left."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from dsstan.cli.options import AsJson, LedgerDir
from dsstan.cli.screens import say
from dsstan.cli.session import document, emit
from dsstan.release.publication.ledger import Entry, ledger_folder, open_ledger
from dsstan.release.publication.ledger_report import TableInLedger, tables_in
from dsstan.risk.intruder.planned import MOST_COPIES

SECRET = ("responses", "places", "collected")
"""Of an entry, what is of no use to a reader."""


def ledger_command(ledger: LedgerDir = None, as_json: AsJson = False) -> None:
    """Show what was published of each table, and how many copies are left under its floor."""
    folder = ledger_folder(ledger)
    found = open_ledger(folder)
    tables = [] if found is None else tables_in(found)
    if as_json:
        content = [
            {
                "left": one.left,
                "true_values_in": one.bare_in,
                "releases": [_plain(entry) for entry in one.releases],
            }
            for one in tables
        ]
        emit(document("ledger", confidential=True, folder=folder, tables=content))
        return
    say(f"Ledger: {folder}")
    if not tables:
        say("Nothing was published yet")
    for one in tables:
        _show(one)


def _plain(entry: Entry) -> dict[str, Any]:
    """An entry for JSON."""
    return {key: value for key, value in asdict(entry).items() if key not in SECRET}


def _show(table: TableInLedger) -> None:
    """Print one table."""
    last = table.last
    say("")
    say(f"{last.table}, {last.column} ({last.records} records)", "bold")
    for entry, placed in zip(table.releases, table.placed, strict=True):
        copies = f"{entry.copies} cop{'ies' if entry.copies != 1 else 'y'}"
        floor = f"floor {entry.floor}" if entry.floor else "no floor"
        judged = "" if entry.judged else ", not judged"
        terms = "synthetic places" if placed else f"{floor}{judged}"
        for place in entry.published:
            cut = "" if place["complete"] else ", interrupted: look whether it is there"
            say(f"  {place['at'][:10]}  {copies}, {terms}, by {place['by']}{cut}")
            say(f"              {place['to']}")
    say(f"  {_left(table)}", "yellow" if table.left in (None, 0) else None)


def _left(table: TableInLedger) -> str:
    """What is left, in words."""
    if table.bare_in is not None:
        return f"Nothing is left: the release of {table.bare_in} published its true values"
    if table.left is None:
        if all(entry.judged for entry in table.releases):
            why = "the last release had no floor"
        elif any(table.placed):
            why = "what a release with synthetic places tells of values is not counted"
        else:
            why = "a release of it was not judged"
        return f"What is left is not known: {why}"
    floor = f"its floor of {table.last.floor}"
    if table.left == 0:
        return f"Nothing is left: by the bounds one more copy like the last may miss {floor}"
    if table.left == MOST_COPIES:
        return f"Any number of copies like the last would meet {floor}"
    copies = "copy" if table.left == 1 else "copies"
    return f"Left: {table.left} more {copies} like the last would still meet {floor}"
