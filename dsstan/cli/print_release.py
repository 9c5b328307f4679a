"""Print what ``dsstan synthesise`` and ``dsstan run`` report about a written release."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dsstan.analysis.marginals import marginals
from dsstan.analysis.utility import Utility, utility
from dsstan.cli.release_screen import (
    column_lines,
    ledger_used,
    place_lines,
    release_screen,
    step_screen,
    values_line,
    verdict_screen,
)
from dsstan.cli.screens import (
    say,
    say_wrapped,
    show_attacker,
    show_estimates,
    show_fits,
    show_head,
    show_lines,
    show_shares,
)
from dsstan.cli.session import document, emit
from dsstan.copies.published import as_collected
from dsstan.copies.result import Synthesis
from dsstan.release.verdicts import NAMED, unmet
from dsstan.risk.assessment import Assessment, unassessed


def summary_of(target: Path) -> Any:
    """What ``summary.json`` of a release holds."""
    return json.loads((target / "confidential" / "summary.json").read_text(encoding="utf-8"))


def print_release(
    release: Synthesis,
    found: Assessment,
    target: Path,
    *,
    report: bool,
    as_json: bool,
    verbose: bool,
    searched: Sequence[str] = (),
) -> None:
    """Print one screen, or with ``verbose`` everything, or one JSON document."""
    page = target / "confidential" / "report.html" if report else None
    if as_json:
        _emit(release, target, page)
        return
    accepted = summary_of(target)["accepted_below_floor"]
    estimates = utility(release) if release.copies > 1 else None
    if not verbose:
        show_lines(
            release_screen(
                *(release, found, estimates),
                accepted=accepted,
                searched=searched,
                target=target,
                page=page,
            )
        )
        return
    _print_all(release, found, estimates, accepted, searched)
    _print_end(release, found, target, page)


def print_refused(
    release: Synthesis,
    found: Assessment,
    searched: Sequence[str] = (),
    *,
    as_json: bool,
    verbose: bool,
) -> None:
    """Print the same for a release that misses its floor, which was not written; no document."""
    if as_json:
        return
    estimates = utility(release) if release.copies > 1 else None
    if verbose:
        _print_all(release, found, estimates, None, searched)
    else:
        show_lines(release_screen(release, found, estimates, searched=searched))


def print_steps(
    release: Synthesis, target: Path, *, report: bool, as_json: bool, verbose: bool
) -> None:
    """Print the same for a release with several synthetic columns, column by column."""
    page = target / "confidential" / "report.html" if report else None
    if as_json:
        _emit(release, target, page)
        return
    whole = unassessed(release)
    show_lines(verdict_screen(release, whole))
    if len(unmet(release)) > NAMED:
        say_wrapped(f"Conditions not met: {', '.join(unmet(release))}", "yellow")
    for number, step in enumerate(release.steps, 1):
        say(f"Step {number}, {step.problem.response}: {step.problem.formula}", "bold")
        found, estimates = unassessed(step), utility(step) if step.copies > 1 else None
        if verbose:
            _print_measures(step, found, estimates)
        else:
            show_lines(step_screen(step, found, estimates))
    _print_end(release, whole, target, page, verbose=verbose)


def _print_all(
    release: Synthesis,
    found: Assessment,
    estimates: Utility | None,
    accepted: str | None,
    searched: Sequence[str],
) -> None:
    """Print everything but the columns and what to do next."""
    show_head(release, found, accepted)
    for sentence in searched:
        say_wrapped(sentence)
    _print_measures(release, found, estimates)


def _print_measures(release: Synthesis, found: Assessment, estimates: Utility | None) -> None:
    """Print all that was measured of one synthetic column."""
    show_fits(release)
    if found.after is not None:
        show_attacker(found)
    show_shares(found.shares)
    if estimates is not None:
        show_estimates(estimates)
    say(values_line(release))
    for check in marginals(release).checks:
        if check.severity != "ok":
            say(str(check), "yellow")


def _print_end(
    release: Synthesis, found: Assessment, target: Path, page: Path | None, *, verbose: bool = True
) -> None:
    """Print which columns leave with the copies, which stay, and what to do next."""
    for text in [*column_lines(release, whole=verbose), ledger_used(found, target)]:
        say(text)
    show_lines(place_lines(release, found, target, page))


def _emit(release: Synthesis, target: Path, page: Path | None) -> None:
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
            published_as_collected=as_collected(release),
            summary=summary_of(target),
        )
    )
