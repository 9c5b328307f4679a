"""The command ``dsstan publish``: a written release goes to where others may read it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from dsstan.cli.options import AsJson, LedgerDir
from dsstan.cli.screens import say
from dsstan.cli.session import SESSION, document, emit
from dsstan.release.publication.ledger_note import (
    former_releases,
    ledger_line,
    ledger_of,
    read_note,
)
from dsstan.release.publication.publish import PUBLISHED, publish


def publish_command(
    release: Annotated[
        Path, typer.Argument(metavar="RELEASE", help="A release folder, as dsstan run writes it.")
    ],
    to: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder to publish it to; must not exist.")
    ],
    accept: Annotated[
        str | None,
        typer.Option(metavar="REASON", help="Why it may go out although a verdict is against it."),
    ] = None,
    ledger: LedgerDir = None,
    as_json: AsJson = False,
) -> None:
    """Publish a release that met its floor: copy its public part, and note who did so."""
    SESSION.targets.append(to.expanduser().absolute())
    done = publish(release, to=to, reason=accept, ledger=ledger)
    note = read_note(release.expanduser() / "confidential")
    book = None if note is None else ledger_of(note, ledger)
    former = 0 if note is None or book is None else former_releases(note, book)
    if as_json:
        used = None if book is None else {"folder": book.folder, "former": former}
        emit(document("publish", confidential=True, publication=asdict(done), ledger=used))
        return
    say(f"Published:  {done.to} ({len(done.files)} files, readable by all)")
    of = f" ({done.floor})" if isinstance(done.floor, str) else ""
    say(f"Verdicts:   fit {done.fit_verdict}, disclosure {done.disclosure_verdict}{of}")
    for one in done.against:
        say(f"Against it: {one}", "yellow")
    if done.reason is not None:
        say(f"Accepted:   {done.reason}")
    say("Ledger: none" if book is None else ledger_line(book.folder, former))
    say(f"Noted:      {release.expanduser().absolute() / 'confidential' / PUBLISHED}")
