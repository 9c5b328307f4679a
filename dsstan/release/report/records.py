"""What is known of each record: its place, its neighbour, its risk before and after."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from dsstan.core.arrays import Floats
from dsstan.models.weights import neighbour_distances
from dsstan.release.report.words import exact, figure, percent
from dsstan.risk.assessment import Assessment
from dsstan.risk.placing import half_width, placed_within

if TYPE_CHECKING:
    from dsstan.copies.result import Synthesis


WORST = 20
"""Rows of the table of worst records in the appendix."""

WEAKEST = 10
"""Records that the body of the report shows."""

PICTURED = 3000
"""Records that a picture shows at most."""


@dataclass(frozen=True)
class Column:
    """One column of the table of worst records.

    Attributes
    ----------
    key
        Its column in :func:`record_table`.
    head
        Its heading.
    kind
        ``"text"``, ``"yes"``, ``"count"``, ``"share"`` or ``"number"``.
    """

    key: str
    head: str
    kind: str = "number"

    def shown(self, value: Any) -> str:
        """A value as the reader sees it."""
        if self.kind == "text":
            return str(value)
        number = float(value)
        if self.kind == "yes":
            return "yes" if number else "no"
        if self.kind == "count":
            return f"{number:.0f}"
        return percent(number) if self.kind == "share" else figure(number)

    def sorted_by(self, value: Any) -> str:
        """A value as the script sorts it; text is sorted as text."""
        return "" if self.kind == "text" else exact(value)


def record_table(release: Synthesis, risks: Assessment) -> pd.DataFrame:
    """One row a record, in the order of the table.

    Columns ``label``, ``row``, ``flagged``, ``neighbour``, ``share_before``, ``share_after``
    and, with an assessment, ``sd_none``, ``sd_before``, ``sd_after``, ``sd_fixed``, ``exposure``,
    and half the intruder's 95% interval as a share of the value: without the release by the lower
    and the upper bound (``within_known``, ``within_none``), without protection by both
    (``within_least``, ``within_before``), and with it (``within_after``). What there is not is NaN.
    """
    problem, fit = release.problem, release.fit
    found = risks.records
    protected = fit.kind == "restricted"
    after = "restricted" if protected else "unrestricted"
    none = np.full(problem.n_records, np.nan)

    def column(name: str, wanted: bool = True) -> Floats:
        return np.asarray(found[name], dtype=np.float64) if wanted and name in found else none

    count = release.copies
    return pd.DataFrame(
        {
            "label": [str(label) for label in problem.table.index],
            "row": np.arange(problem.n_records),
            "flagged": fit.flagged,
            "neighbour": neighbour_distances(problem)
            if fit.weights is None
            else np.where(np.isfinite(fit.weights.nearest), fit.weights.nearest, np.nan),
            "share_before": column("within_relative_unrestricted", protected),
            "share_after": column(f"within_relative_{after}"),
            "sd_none": column("sd_leave_one_out"),
            "sd_before": column(f"sd_known_{count}_unrestricted", protected),
            "sd_after": column(f"sd_known_{count}_{after}"),
            "sd_fixed": column(f"sd_fixed_{count}_{after}"),
            "exposure": column("exposure"),
            **_within(release, risks),
        }
    )


def _within(release: Synthesis, risks: Assessment) -> dict[str, Floats]:
    """Within what share of its value each record is placed, by the sds that are reported."""
    sds: dict[str, Floats | None] = dict.fromkeys(("known", "none", "least", "before", "after"))
    if risks.after is not None:
        sds = {"none": risks.sd_alone, "known": risks.least_sd_alone}
        sds |= {"least": risks.least_sd_before}
        sds |= {"before": risks.sd_before, "after": risks.sd}
    none = np.full(release.problem.n_records, np.nan)
    return {
        f"within_{when}": none if sd is None else half_width(release.problem, sd)
        for when, sd in sds.items()
    }


def columns(table: pd.DataFrame, unit: str, near: str) -> list[Column]:
    """The columns that have anything to show."""
    wanted = [
        Column("label", "Record", "text"),
        Column("row", "Row, from 0", "count"),
        Column("flagged", "Flagged", "yes"),
        Column("neighbour", f"Distance to neighbour ({unit})"),
        Column("share_before", f"Copies within {near}, before", "share"),
        Column("share_after", f"Copies within {near}, after", "share"),
        Column("sd_none", "sd without any copy"),
        Column("sd_before", "sd left before"),
        Column("sd_after", "sd left after"),
        Column("sd_fixed", "sd left after, variances untold"),
        Column("exposure", "Exposure"),
    ]
    return [c for c in wanted if c.kind == "text" or not table[c.key].isna().all()]


def worst(table: pd.DataFrame, rows: int = WORST) -> pd.DataFrame:
    """The records at most risk: least sd left, or where there is none most copies near."""
    if table["sd_after"].isna().all():
        return table.sort_values("share_after", ascending=False, kind="stable").head(rows)
    return table.sort_values("sd_after", kind="stable").head(rows)


def weakest(table: pd.DataFrame, rows: int = WEAKEST) -> pd.DataFrame:
    """The records that an intruder places most narrowly; none where there is no intruder."""
    known = table[table["within_after"].notna()]
    return known.sort_values("within_after", kind="stable").head(rows)


def pictured(table: pd.DataFrame) -> pd.DataFrame:
    """The records that a picture shows: all, or of many those at most risk and some others.

    The worst, flagged records (those at most risk, up to half of the picture), and a random
    sample of the others, the same one every time; in the order of the table.
    """
    if len(table) <= PICTURED:
        return table
    flagged = worst(table[table["flagged"]], PICTURED // 2)
    kept = pd.Index(worst(table)["row"]).union(pd.Index(flagged["row"]))
    others = np.setdiff1d(table["row"].to_numpy(), kept.to_numpy())
    chosen = np.random.default_rng(0).permutation(others)[: PICTURED - len(kept)]
    return table.iloc[np.sort(np.concatenate([kept.to_numpy(), chosen]))]


def named(row: Mapping[Any, Any]) -> str:
    """A record by its label, and by its row counted from 0 where that says more."""
    label, number = str(row["label"]), row["row"]
    return label if label == str(number) else f"{label} (row {number})"


def facts(row: Mapping[Any, Any], unit: str) -> str:
    """What the map says of one record."""
    flagged = "flagged" if row["flagged"] else "not flagged"
    lines = [
        f"Record {row['label']} (row {row['row']}), {flagged}",
        f"neighbour at {figure(row['neighbour'])} {unit}",
    ]
    said = {"none": "without any copy", "before": "before protection", "after": "after it"}
    values = [(words, row[f"within_{when}"]) for when, words in said.items()]
    parts = [f"{placed_within(value)} {words}" for words, value in values if not np.isnan(value)]
    if parts:
        lines.append(f"placed within: {', '.join(parts)}")
    return "\n".join(lines)
