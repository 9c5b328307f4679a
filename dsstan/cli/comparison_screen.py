"""What ``dsstan compare`` prints: every setting, and which damages least under a floor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from dsstan.cli.screen_lines import ScreenLine, table_lines, wrapped
from dsstan.comparison.frontier_result import Frontier
from dsstan.copies.options import SEARCH
from dsstan.core.display import per_cent
from dsstan.risk.placing import NEAR, placed_within

Row = Mapping[Any, Any]
Key = tuple[str, int]

MEASURED = (
    *("copies", "flagged", "gamma", "protection", "passed"),
    *("sd_at_risk_known", "sd_all", "share_at_risk", "overlap", "surface"),
)
"""Columns in which settings that flag the same records agree."""

HEAD = ("setting", "L", "flagged", "at risk", "of all", "near", "overlap")


def comparison_screen(found: Frontier, floor: str | None, least: float | None) -> list[ScreenLine]:
    """The settings in the order of the grid, or with a floor those that leave it first.

    Parameters
    ----------
    found
        The comparison.
    floor, least
        The floor as it was asked for, and the sd that is enough for every record; or None.
    """
    rows, same = _distinct(found.table)
    best = best_settings(found) if least is None else _keys(found.envelope(least))
    kept = rows if least is None else _among(rows, _keys(found.leaving(least)))
    lines = []
    for title, part in _parts(rows, kept, floor).items():
        lines += [ScreenLine(title, "bold")] if title and part else []
        table = table_lines([HEAD, *(_cells(row, best) for row in part)])
        lines += [ScreenLine(text) for text in table if part]
    lines += [part for text in [*same, *_legend(found, least)] for part in wrapped(text)]
    if least is not None:
        lines += wrapped(_advice(found, str(floor), least), "bold")
    for name, reason in found.failed.items():
        lines += wrapped(f"{name} could not be judged: {reason}", "yellow")
    return lines


def best_settings(found: Frontier) -> set[Key]:
    """Settings, with their L, that no other of the same L beats; none whose fit failed."""
    if not found.at_risk.any():
        return set()
    return _keys(found.best())


def _key(row: Row) -> Key:
    """What distinguishes a row from the others."""
    return str(row["setting"]), int(row["copies"])


def _keys(table: pd.DataFrame) -> set[Key]:
    """The same of every row."""
    return {_key(row) for row in table.to_dict("records")}


def _among(rows: Sequence[Row], keys: set[Key]) -> list[Row]:
    """Those of some rows that are among others."""
    return [row for row in rows if _key(row) in keys]


def _distinct(table: pd.DataFrame) -> tuple[list[Row], list[str]]:
    """Rows, one of those whose rules flag the same records; and a sentence on these rules."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in table.to_dict("records"):
        groups.setdefault(tuple(str(row[name]) for name in MEASURED), []).append(row)
    rules = [[str(row["setting"]).split(", ")[0] for row in group] for group in groups.values()]
    same = [f"{' and '.join(group)} flag the same records" for group in rules if len(group) > 1]
    return [group[0] for group in groups.values()], list(dict.fromkeys(same))


def _parts(rows: Sequence[Row], kept: Sequence[Row], floor: str | None) -> dict[str, list[Row]]:
    """The rows of each table by its title."""
    passed = [row for row in rows if row["passed"]]
    failed = {"Fit failed, so not to be trusted:": [row for row in rows if not row["passed"]]}
    if floor is None:
        return {"": passed, **failed}
    return {
        f"Leave every record the floor of {floor}, the least damaging first:": sorted(
            kept, key=lambda row: -float(row["overlap"])
        ),
        f"Miss the floor of {floor}:": [row for row in passed if row not in kept],
        **failed,
    }


def _cells(row: Row, best: set[Key]) -> list[str]:
    """One row as text."""
    star = " *" if _key(row) in best else ""
    within = [row["within_at_risk"], row["within_all"]]
    near = row["share_at_risk"]
    return [
        f"{row['setting']}{star}",
        f"{row['copies']}",
        f"{row['flagged']}",
        *("-" if pd.isna(share) else placed_within(float(share)) for share in within),
        "-" if pd.isna(near) else per_cent(float(near)),
        f"{row['overlap']:.2f}",
    ]


def _legend(found: Frontier, least: float | None) -> list[str]:
    """What the columns are, and the star."""
    risk = "at risk" if found.usual_risk.startswith("sd") else "near"
    star = f"no other setting of this L is better in {risk} and overlap, by more than chance"
    if least is not None:
        star = "no other setting, whatever its L, leaves the weakest record more and is as useful"
    lines = [
        f"At risk: the {int(found.at_risk.sum())} records that any rule of this grid flags. The "
        "columns at risk and of all say within how much of its value an intruder who knows all "
        "other records places the weakest record; near: which share of the copies of those at "
        f"risk is within {100 * NEAR:g}% of the truth; overlap: of the regression's intervals. "
        f"*: {star}."
    ]
    left_out = found.table["left_out"].max()
    if left_out > 0:
        lines.append(
            "The sds come from the records around each, and may be too large by "
            f"{100 * left_out:.2g}%: a floor is compared with sds smaller by that much."
        )
    return lines


def _advice(found: Frontier, floor: str, least: float) -> str:
    """The least damaging setting that leaves every record the floor."""
    line = found.envelope(least)
    search = f"synthesise --protection {SEARCH} --floor {floor}"
    if line.empty:
        return f"No setting leaves every record the floor of {floor}: {search} adds noise"
    top = line.iloc[-1]
    return (
        f"The least damaging of those for every record, by the overlap: {top['setting']} "
        f"(L = {top['copies']}). {search} searches on, with added noise"
    )
