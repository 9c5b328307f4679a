"""What else was looked at before this release was chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from dsstan.comparison.frontier_result import Frontier
from dsstan.release.report.tables import Table
from dsstan.release.report.words import NOTHING, figure
from dsstan.risk.placing import placed_within

if TYPE_CHECKING:
    from dsstan.comparison.meet_floor import MetFloor

MOST = 40
"""Settings that are listed at most."""


def alternatives_table(found: MetFloor | Frontier | None) -> Table | None:
    """The settings that a search or a comparison looked at; None where there was none."""
    if found is None:
        return None
    compared = isinstance(found, Frontier)
    rows = _compared(found.table) if isinstance(found, Frontier) else _searched(found.trail)
    left_out = f", {MOST} of {len(rows)}" if len(rows) > MOST else ""
    done = "compared" if compared else "searched"
    return Table(rows[:MOST], f"Settings {done}{left_out}", stub="setting", left=("what came",))


def _searched(trail: pd.DataFrame) -> list[dict[str, str]]:
    """The settings of a search, in its order."""
    return [
        {
            "setting": str(row["setting"]),
            "copies": f"{int(row['copies']):,}",
            "weakest sd over its floor": figure(float(row["weakest"])),
            "cost to the analyst": figure(float(row["cost"])),
            "what came": f"{row['stage']}, {'met' if row['met'] else 'missed'}"
            + (f": {row['reason']}" if row["reason"] else ""),
        }
        for row in trail.to_dict("records")
    ]


def _compared(table: pd.DataFrame) -> list[dict[str, str]]:
    """The settings of a comparison, in its order."""
    return [
        {
            "setting": str(row["setting"]),
            "copies": f"{int(row['copies']):,}",
            "weakest record placed within": NOTHING
            if pd.isna(row["within_all"])
            else placed_within(float(row["within_all"])),
            "overlap of intervals": figure(float(row["overlap"])),
            "what came": "fit passed" if row["passed"] else "fit failed",
        }
        for row in table.to_dict("records")
    ]
