"""The report's tables, as texts by row and heading."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from dsstan.models.checks.conditions import CONDITIONS
from dsstan.release.report.pictures import interval
from dsstan.release.report.records import named
from dsstan.release.report.words import NOTHING, between, figure, percent, plural
from dsstan.release.verdicts import placing_rows
from dsstan.risk.assessment import Assessment
from dsstan.risk.disclosure import Disclosure, reduction_text
from dsstan.risk.floors import Floor
from dsstan.risk.placing import half_width, placed_between, placed_within

if TYPE_CHECKING:
    from dsstan.analysis.marginals import Marginals
    from dsstan.analysis.utility import Utility
    from dsstan.copies.result import Synthesis
    from dsstan.models.result import Fit

WHEN = {"unrestricted": "before protection", "restricted": "after protection"}
LIMITS = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.5)
"""Floors, as shares of a value, whose largest release is reported."""


@dataclass(frozen=True)
class Table:
    """A table of texts; ``templates/tables.html`` writes it as HTML.

    Attributes
    ----------
    rows
        One mapping a row, heading to text or to a picture.
    caption
        What the table shows.
    stub
        Column that names the row.
    group
        Column whose value heads the rows that follow one another and share it.
    left
        Columns of words, which start at the left.
    """

    rows: list[dict[str, Any]]
    caption: str
    stub: str
    group: str | None = None
    left: tuple[str, ...] = ()

    @property
    def columns(self) -> list[str]:
        """Headings of the columns but the stub and the group, in their order."""
        heads = dict.fromkeys(head for row in self.rows for head in row)
        return [head for head in heads if head not in (self.stub, self.group)]

    @property
    def groups(self) -> list[tuple[str | None, list[dict[str, Any]]]]:
        """The rows by their group."""
        grouped = groupby(self.rows, key=lambda row: self.group and row[self.group])
        return [(name, list(rows)) for name, rows in grouped]


def posterior(fits: Mapping[str, Fit]) -> Table:
    """Posterior of each fit, with R-hat and effective sample sizes."""
    rows = []
    for name, fit in fits.items():
        for parameter, row in fit.summary().iterrows():
            held = parameter == "phi" and fit.phi_held is not None
            low, high = figure(row["q025"], 4), figure(row["q975"], 4)
            rows.append(
                {
                    "fit": _titled(name, fits),
                    "parameter": f"{parameter}: {row['term']}",
                    "mean": figure(row["mean"], 4),
                    "sd": "held" if held else figure(row["sd"]),
                    "95% interval": "held" if held else f"{low} to {high}",
                    "R-hat": NOTHING if held else f"{row['rhat']:.3f}",
                    "ESS bulk": figure(row["ess_bulk"], 4),
                    "ESS tail": figure(row["ess_tail"], 4),
                }
            )
    return Table(rows, "Posterior, modelled scale", stub="parameter", group="fit")


def checks(fits: Mapping[str, Fit]) -> Table:
    """Everything that a verdict looks at."""
    rows = [
        {
            "fit": _titled(name, fits),
            "check": check.name + (f" ({check.where})" if check.where else ""),
            "worst value": figure(check.value),
            "should be": check.limit,
            "result": check.severity,
        }
        for name, fit in fits.items()
        for check in fit.verdict.checks
    ]
    caption = "Checks of each fit"
    return Table(rows, caption, stub="check", group="fit", left=("should be", "result"))


def _titled(name: str, fits: Mapping[str, Fit]) -> str:
    if name.startswith("imputation"):
        return f"fit to {name.replace('_', ' ')}"
    when = f" ({WHEN[name]})" if "restricted" in fits else ""
    return f"{name} fit{when}"


def shares(found: Disclosure) -> Table:
    """Mean share of copies near the truth, before and after."""
    fits = [c for c in WHEN if c in set(found.summary["fit"])]
    labels = {"within_relative": f"within {100 * found.relative:g}% of the truth"}
    if found.absolute is not None:
        labels["within_absolute"] = f"within {found.absolute:,g} of the truth"
    rows = []
    for measure, label in labels.items():
        for group in ("flagged", "unflagged", "all"):
            if found.share(measure, fits[0], group) is None:
                continue
            row = {"copies": label, "records": group}
            row |= {_when(f, fits): percent(found.share(measure, f, group)) for f in fits}
            change = found.reduced(measure, group)
            if change is not None:
                row["reduced by"] = reduction_text(change)
            rows.append(row)
    caption = "Mean share of a record's copies that come near its true value"
    return Table(rows, caption, stub="records", group="copies")


def placing(found: Assessment) -> Table:
    """How near to the truth intruders place records, without and with the release."""
    rows = [
        {"records": f"{row.group} records", "": row.text} | row.cells
        for row in sorted(placing_rows(found), key=lambda row: row.group)
    ]
    caption = "What the public files alone give"
    if found.after is not None:
        caption = "What an intruder works out who knows all other records"
    return Table(rows, caption, stub="", group="records")


def weakest(table: pd.DataFrame, found: Assessment) -> Table:
    """The records that an intruder places most narrowly, numbered as on the map."""
    done = set() if found.exact is None else set(found.exact.records["position"])
    rows = [
        {
            "no.": str(number),
            "record": named(row) + (", flagged" if row["flagged"] else ""),
            **{
                found.stages[stage]: placed_between(row[f"within_{low}"], row[f"within_{high}"])
                for stage, low, high in _STAGES
                if not np.isnan(row[f"within_{high}"])
            },
            "by": "exact" if row["row"] in done else "bound",
        }
        for number, row in enumerate(table.to_dict("records"), 1)
    ]
    return Table(rows, "Placed within, 95% certain", stub="no.", left=("record",))


_STAGES = (
    ("no_release", "known", "none"),
    ("unrestricted", "least", "before"),
    ("restricted", "after", "after"),
)
"""Stages, and of each the lower and the upper bound."""


def subgroups(table: pd.DataFrame, response: str, weights: str | None = None) -> Table:
    """The mean of the response in groups of records, data beside copies."""
    weighted = "" if weights is None else f", weighted by {weights}"
    rows = [
        {
            "by": str(row["by"]),
            "group": str(row["group"]),
            "records": f"{row['records']:,}",
            "data": figure(row["data"], 4),
            "copies": figure(row["copies"], 4),
            "from, to": f"{figure(row['least'], 4)} to {figure(row['most'], 4)}",
        }
        for row in table.to_dict("records")
    ]
    return Table(rows, f"Mean {response} by subgroup{weighted}", stub="group", group="by")


def exact(found: Assessment) -> Table | None:
    """The exact intruder of the weakest records; None where none was computed."""
    if found.exact is None:
        return None
    records = found.exact.records
    records = records.iloc[found.sd[records["position"]].argsort(kind="stable")]
    within = half_width(found.release.problem, found.sd)
    rows = [
        {
            "record": str(label),
            "flagged": "yes" if row["flagged"] else "no",
            "placed within": placed_within(within[row["position"]]),
            "exact sd": figure(found.sd[row["position"]]),
            "bounds of the sd": between(row["sd_known"], row["sd_fixed"]),
            "sd without any copy": figure(row["sd_leave_one_out"]),
        }
        for label, row in zip(records.index, records.to_dict("records"), strict=True)
    ]
    caption = f"Exact intruder of {len(rows)} records, the weakest of all and of each group"
    return Table(rows, caption, stub="record")


def attacker(found: Assessment) -> Table:
    """The sd left after 0, 1, L and 500 copies, smallest and median of each group."""
    table = found.table().set_index(["fit", "group", "copies", "variances"])
    levels = table.index
    fits = [c for c in WHEN if c in levels.get_level_values("fit")]
    rows = []
    for group in dict.fromkeys(levels.get_level_values("group")):
        for count in (0, *found.copies):
            row = {
                "group": f"{group} records",
                "copies seen": plural(count, "copy", "copies") if count else "no copy",
            }
            for which in ("smallest", "median"):
                for name in fits:
                    known, fixed = (
                        float(table[which][name, group, count, v]) for v in ("known", "fixed")
                    )
                    row[f"{which}, {_when(name, fits)}"] = between(known, fixed)
            rows.append(row)
    caption = "Sd left to an intruder who knows all other records (modelled scale)"
    return Table(rows, caption, stub="copies seen", group="group")


def release_sizes(found: Assessment) -> Table:
    """Most copies that leave every record a floor, for some floors."""
    problem, intruder = found.release.problem, found.intruder
    rows = []
    for share in LIMITS:
        least = Floor(share=share).least_sd(problem)
        most = intruder.largest_release(least)
        below = int((found.sd < least).sum())
        rows.append(
            {
                "nobody placed within": f"+/-{100 * share:g}%",
                "copies that surely keep it for all": "any number" if most >= 1e9 else f"{most:,}",
                f"records below it at L = {intruder.copies}": f"{below:,}",
            }
        )
    caption = "How many copies a floor allows by the lower bounds; exact sds may allow more"
    return Table(rows, caption, stub="nobody placed within")


def distribution(found: Marginals) -> Table:
    """The response's distribution in the data and in the copies."""
    rows = [
        {
            "values of": str(source),
            **{str(k): figure(row[k], 4) for k in row.index[:7]},
            "zeros": percent(row["zeros"]),
            "negative": percent(row["negative"]),
        }
        for source, row in found.table().iterrows()
    ]
    caption = f"{found.response} on its own scale, data beside all copies"
    return Table(rows, caption, stub="values of")


def estimates(kept: Utility, spatial: Utility | None = None) -> Table:
    """The analyst's regression on the original and on the copies, intervals drawn.

    Beside least squares stands the regression that counts spatial correlation, where it is of the
    same terms.
    """
    beside = {}
    if spatial is not None:
        beside = {(row["source"], row["term"]): row for row in spatial.table.to_dict("records")}
    rows = []
    for term, of_term in kept.table.groupby("term", sort=False):
        for _, row in of_term.iterrows():
            source = str(row["source"])
            rows.append(
                {
                    "term": str(term),
                    "estimated from": source if source == "original" else f"{source} copies",
                    "estimate": figure(row["estimate"], 4),
                    f"{100 * kept.level:g}% interval": (
                        f"{figure(row['low'], 4)} to {figure(row['high'], 4)}"
                    ),
                    "drawn": interval(row, of_term),
                    **_beside(beside.get((row["source"], row["term"]))),
                }
            )
    caption = f"{kept.method}; dashed: estimate from the original"
    return Table(rows, caption, stub="estimated from", group="term", left=("drawn",))


def _beside(row: Mapping[Any, Any] | None) -> dict[str, str]:
    """The same term by generalised least squares."""
    if row is None:
        return {}
    return {
        "GLS estimate": figure(row["estimate"], 4),
        "GLS interval": f"{figure(row['low'], 4)} to {figure(row['high'], 4)}",
    }


def _when(name: str, fits: list[str]) -> str:
    return WHEN[name] if len(fits) > 1 else "this release"


def meaning(condition: str) -> str:
    """What a condition means, for a reader."""
    return CONDITIONS.get(condition, "")


def sampler(release: Synthesis) -> str:
    """How the posterior was sampled."""
    s = release.fit.settings
    return (
        f"{s.chains} chains of {s.warmup:,} + {s.samples:,} iterations, "
        f"adapt_delta {s.adapt_delta:g}"
    )
