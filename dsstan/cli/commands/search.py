"""A release whose protection is searched for: ``--protection auto`` with a floor."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from dsstan.cli.dry_run.plan import Plan
from dsstan.cli.dry_run.planning import plan_release
from dsstan.cli.options import Writing
from dsstan.comparison.floor_search import TRIED
from dsstan.comparison.meet_floor import MetFloor, protect_to
from dsstan.copies.options import SEARCH, ReleaseOptions
from dsstan.copies.protect import prepare_release
from dsstan.core.errors import InputError
from dsstan.core.files.workspace import write_private
from dsstan.risk.floors import Floor

TRAIL = "floor_trail.csv"
"""The settings tried, on the confidential side."""


def check_search(options: ReleaseOptions, writing: Writing) -> None:
    """Refuse a search without a floor."""
    if options.protection == SEARCH and writing.floor is None:
        raise InputError(
            f'protection "{SEARCH}" searches for a release that keeps a floor: give one, such as '
            "--floor 10%"
        )


def plan_search(
    table: Any, formula: str, options: ReleaseOptions, *, floor: Floor | None, target: Path
) -> Plan:
    """What a search would do: the plan of one of the releases that it may try."""
    one = replace(options, protection="preserving")
    plan = plan_release(table, formula, one, floor=floor, target=target, searches=True)
    tried = f"the times are those of one setting, and up to {TRIED} are fitted"
    return replace(plan, what={**plan.what, "protection": SEARCH, "search": tried})


def search_release(table: Any, formula: str, options: ReleaseOptions, writing: Writing) -> MetFloor:
    """The release that keeps the floor at the least cost to the analyst, or the closest."""
    assert writing.floor is not None
    problem = prepare_release(table, formula, options)
    return protect_to(
        problem,
        writing.floor,
        copies=options.copies,
        least_copies=min(2, options.copies),
        distance=options.threshold,
        neighbour=options.neighbour,
        rounding=options.rounding,
        strict=options.strict,
        absolute=writing.absolute,
        attribution=writing.attribution,
        seed=options.seed,
        covariance=options.covariance,
        **options.fitting,
    )


def write_trail(found: MetFloor, writing: Writing) -> None:
    """Write the settings that the search tried, beside the release."""
    folder = writing.out_folder / "confidential"
    write_private(folder / TRAIL, found.trail.to_csv(index=False).encode())
