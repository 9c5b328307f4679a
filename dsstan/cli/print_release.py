"""Print what ``dsstan synthesise`` and ``dsstan run`` report about a written release."""

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


def print_release(
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
    _print_column(release, found, verbose=verbose)
    _print_places(same, target, page if report else None, whole=verbose)


def print_steps(
    release: Synthesis, target: Path, *, report: bool, as_json: bool, verbose: bool
) -> None:
    """Print the same for a release with several synthetic columns, column by column."""
    same = _as_collected(release)
    page = target / "confidential" / "report.html"
    if as_json:
        _emit(release, target, page if report else None, same)
        return
    for number, step in enumerate(release.steps, 1):
        say(f"Step {number}, {step.problem.response}: {step.problem.formula}", "bold")
        _print_column(step, disclosure(step), verbose=verbose)
    _print_places(same, target, page if report else None, whole=verbose)


def _print_column(release: Synthesis, found: Assessment | Disclosure, *, verbose: bool) -> None:
    """Print what was measured of one synthetic column."""
    estimates = utility(release) if release.copies > 1 else None
    if not verbose:
        show_short(release, found, estimates)
        return
    show_verdict(release)
    show_fits(release)
    show_shares(found.shares if isinstance(found, Assessment) else found)
    if isinstance(found, Assessment):
        show_attacker(found)
    if estimates is not None:
        show_estimates(estimates)


def _as_collected(release: Synthesis) -> list[str]:
    """Columns that are published as they are."""
    made = synthetic(release)
    return [str(name) for name in public_columns(release) if name not in made]


def _emit(release: Synthesis, target: Path, page: Path | None, same: list[str]) -> None:
    """Print the release as one JSON document."""
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


def _print_places(same: list[str], target: Path, page: Path | None, *, whole: bool) -> None:
    """Print where the parts of the release are."""
    listed = ", ".join(same)
    if not whole and len(listed) > MOST_COLUMNS:
        listed = f"{listed[:MOST_COLUMNS].rpartition(', ')[0]}, ... ({len(same)} columns)"
    say(f"Published as collected: {listed}")
    say(f"Copies to publish: {target / 'public'}")
    say(f"Keep to yourself:  {target / 'confidential'}")
    if page is not None:
        say(f"Read first:        {page}")
