"""What ``dsstan synthesise`` and ``dsstan run`` say of a release that is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dsstan.analysis.utility import utility
from dsstan.cli.screens import (
    say,
    show_attacker,
    show_estimates,
    show_fits,
    show_shares,
    show_short,
    show_verdict,
)
from dsstan.cli.session import document, emit
from dsstan.copies.published import public_columns, synthetic
from dsstan.copies.result import Synthesis
from dsstan.risk.assessment import Assessment
from dsstan.risk.disclosure import Disclosure, disclosure

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
    same = _as_collected(release)
    page = target / "confidential" / "report.html"
    if as_json:
        _emit(release, target, page if report else None, same)
        return
    _tell_one(release, found, verbose=verbose)
    _tell_places(same, target, page if report else None, whole=verbose)


def tell_chain(
    release: Synthesis, target: Path, *, report: bool, as_json: bool, verbose: bool
) -> None:
    """The same of a release with several synthetic columns, column by column."""
    same = _as_collected(release)
    page = target / "confidential" / "report.html"
    if as_json:
        _emit(release, target, page if report else None, same)
        return
    for number, step in enumerate(release.steps, 1):
        say(f"Step {number}, {step.problem.response}: {step.problem.formula}", "bold")
        _tell_one(step, disclosure(step), verbose=verbose)
    _tell_places(same, target, page if report else None, whole=verbose)


def _tell_one(release: Synthesis, found: Assessment | Disclosure, *, verbose: bool) -> None:
    """What was measured of one synthetic column."""
    kept = utility(release) if release.copies > 1 else None
    if not verbose:
        show_short(release, found, kept)
        return
    show_verdict(release)
    show_fits(release)
    show_shares(found.shares if isinstance(found, Assessment) else found)
    if isinstance(found, Assessment):
        show_attacker(found)
    if kept is not None:
        show_estimates(kept)


def _as_collected(release: Synthesis) -> list[str]:
    """Columns that are published as they are."""
    made = synthetic(release)
    return [str(name) for name in public_columns(release) if name not in made]


def _emit(release: Synthesis, target: Path, page: Path | None, same: list[str]) -> None:
    """The one JSON document."""
    paths = {
        "release": target,
        "public": target / "public",
        "confidential": target / "confidential",
        "report": page,
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


def _tell_places(same: list[str], target: Path, page: Path | None, *, whole: bool) -> None:
    """Where the parts of the release are."""
    listed = ", ".join(same)
    if not whole and len(listed) > MOST_COLUMNS:
        listed = f"{listed[:MOST_COLUMNS].rpartition(', ')[0]}, ... ({len(same)} columns)"
    say(f"Published as collected: {listed}")
    say(f"Copies to publish: {target / 'public'}")
    say(f"Keep to yourself:  {target / 'confidential'}")
    if page is not None:
        say(f"Read first:        {page}")
