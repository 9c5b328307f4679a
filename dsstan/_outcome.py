"""What ``dsstan synthesise`` and ``dsstan run`` say of a release that is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dsstan._session import document, emit
from dsstan._terminal import (
    say,
    show_attacker,
    show_estimates,
    show_fits,
    show_shares,
    show_short,
    show_verdict,
)
from dsstan.assessment import Assessment
from dsstan.disclosure import Disclosure
from dsstan.public import public_columns
from dsstan.synthesis import Synthesis
from dsstan.utility import utility

MOST_COLUMNS = 55
"""Characters of column names in the short summary; the whole list is in ``--verbose``."""


def summary_of(target: Path) -> Any:
    """What ``summary.json`` of a release holds."""
    return json.loads((target / "confidential" / "summary.json").read_text(encoding="utf-8"))


def tell(
    release: Synthesis,
    found: Assessment | Disclosure,
    target: Path,
    *,
    report: bool,
    as_json: bool,
    verbose: bool,
) -> None:
    """Print one screen, or with ``verbose`` everything, or one JSON document."""
    same = [str(name) for name in public_columns(release) if name != release.problem.response]
    page = target / "confidential" / "report.html"
    if as_json:
        paths = {
            "release": target,
            "public": target / "public",
            "confidential": target / "confidential",
            "report": page if report else None,
        }
        emit(
            document(
                "synthesise",
                confidential=True,
                dry_run=False,
                paths=paths,
                published_as_collected=same,
                summary=summary_of(target),
            )
        )
        return
    kept = utility(release) if release.copies > 1 else None
    if verbose:
        show_verdict(release)
        show_fits(release)
        show_shares(found.shares if isinstance(found, Assessment) else found)
        if isinstance(found, Assessment):
            show_attacker(found)
        if kept is not None:
            show_estimates(kept)
    else:
        show_short(release, found, kept)
    listed = ", ".join(same)
    if not verbose and len(listed) > MOST_COLUMNS:
        listed = f"{listed[:MOST_COLUMNS].rpartition(', ')[0]}, ... ({len(same)} columns)"
    say(f"Published as collected: {listed}")
    say(f"Copies to publish: {target / 'public'}")
    say(f"Keep to yourself:  {target / 'confidential'}")
    if report:
        say(f"Read first:        {page}")
