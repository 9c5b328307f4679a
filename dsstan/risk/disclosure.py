"""What an intruder could learn: the paper's measures.

The share of copies within a tolerance of the truth, per record, before and
after protection (sections 4 and 5 of Quick, Holan and Wikle 2018).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import pandas as pd

from dsstan.copies.result import Synthesis
from dsstan.core.arrays import Floats
from dsstan.core.display import Part
from dsstan.core.errors import InputError, is_number
from dsstan.models.result import Fit

RELATIVE = 0.10
"""The paper's relative tolerance."""


@dataclass(frozen=True, eq=False)
class Disclosure:
    """Shares of copies near the truth.

    Attributes
    ----------
    records
        One row a record: ``flagged``, and for each measure and fit the share of
        copies within the tolerance. Confidential.
    summary
        One row a measure, fit and group (``flagged``, ``unflagged``, ``all``):
        number of records and mean share. Groups without records are left out.
    reduction
        One row a measure and group: percentage by which protection lowered the
        mean share, minus infinity where it rose from 0; empty where there is
        nothing to compare with.
    relative, absolute
        The tolerances; the absolute one is None where none was asked for.
    seconds
        Wall time.
    """

    records: pd.DataFrame = field(repr=False)
    summary: pd.DataFrame
    reduction: pd.DataFrame
    relative: float
    absolute: float | None
    seconds: float

    def share(self, measure: str, fit: str, group: str) -> float | None:
        """Mean share of one cell of the summary; None where there is no such record."""
        s = self.summary
        row = s[(s["measure"] == measure) & (s["fit"] == fit) & (s["group"] == group)]
        return None if row.empty else float(row["share"].iloc[0])

    def reduced(self, measure: str, group: str) -> float | None:
        """Percentage by which protection lowered a group's mean share; None without a pair."""
        r = self.reduction
        row = r[(r["measure"] == measure) & (r["group"] == group)]
        return None if row.empty else float(row["percent"].iloc[0])

    def part(self) -> Part:
        """The summary as it is printed, one row a measure and group."""
        wide = self.summary.pivot(index=["measure", "group"], columns="fit", values="share")
        wide = wide[[c for c in ("unrestricted", "restricted") if c in wide.columns]]
        lines = {}
        for key, row in wide.iterrows():
            measure, group = cast("tuple[str, str]", key)
            cells = {str(name): f"{100 * value:.1f}%" for name, value in row.items()}
            if not self.reduction.empty:
                cells["reduced by"] = reduction_text(self.reduced(measure, group))
            lines[f"{measure}, {group}"] = cells
        return Part(pd.DataFrame(lines).T, "Copies near the truth")

    def __str__(self) -> str:
        return self.part().text().strip("\n")


def reduction_text(percent: float | None) -> str:
    """A reduction for a table."""
    if percent is None:
        return "-"
    return f"{round(percent):d}%" if np.isfinite(percent) else "rose from 0"


def within(values: Floats, truth: Floats, tolerance: Floats | float) -> Floats:
    """Share of copies within a tolerance of the truth, shape (N,).

    Parameters
    ----------
    values
        Copies, shape (L, N), on the response's own scale.
    truth
        Original values, shape (N,).
    tolerance
        One number, or one a record, shape (N,).
    """
    return np.asarray(np.mean(np.abs(values - truth) <= tolerance, axis=0), dtype=np.float64)


def disclosure(
    release: Synthesis,
    *,
    against: Fit | Synthesis | None = None,
    relative: float = RELATIVE,
    absolute: float | None = None,
) -> Disclosure:
    """Share of copies within a tolerance of the truth, per record.

    Parameters
    ----------
    release
        The copies to judge.
    against
        The unrestricted fit, from which as many copies are drawn for comparison
        (with a stream of its own), or copies already drawn. By default the fit
        that the release's fit started from, if any.
    relative
        Tolerance as a share of the true value.
    absolute
        Tolerance on the response's own scale, e.g. 10,000 dollars.

    Raises
    ------
    InputError
        If a tolerance is negative, or ``against`` is of another problem or not
        unrestricted.
    """
    begin = time.perf_counter()
    check_tolerances(relative, absolute)
    problem = release.problem
    truth = problem.original()
    known = problem.known  # a value that nobody knows can't be disclosed
    tolerances: dict[str, Floats | float] = {"within_relative": relative * np.abs(truth)}
    if absolute is not None:
        tolerances["within_absolute"] = absolute
    compared = {name: s.values for name, s in sides(release, against).items()}
    flagged = release.fit.flagged
    records = pd.DataFrame({"flagged": flagged}, index=problem.table.index)
    rows, reductions = [], []
    groups = {"flagged": flagged & known, "unflagged": ~flagged & known, "all": known}
    for measure, tolerance in tolerances.items():
        for name, values in compared.items():
            share = np.where(known, within(values, truth, tolerance), np.nan)
            records[f"{measure}_{name}"] = share
            for group, members in groups.items():
                if members.any():
                    rows.append((measure, name, group, int(members.sum()), share[members].mean()))
        if len(compared) == 2:
            for group, members in groups.items():
                if members.any():
                    before = records.loc[members, f"{measure}_unrestricted"].mean()
                    after = records.loc[members, f"{measure}_restricted"].mean()
                    # A risk that rose from nothing is a reduction of minus infinity per cent.
                    percent = (
                        100.0 * (1.0 - after / before)
                        if before > 0
                        else (-np.inf if after > 0 else 0.0)
                    )
                    reductions.append((measure, group, percent))
    return Disclosure(
        records=records,
        summary=pd.DataFrame(rows, columns=["measure", "fit", "group", "records", "share"]),
        reduction=pd.DataFrame(reductions, columns=["measure", "group", "percent"]),
        relative=float(relative),
        absolute=None if absolute is None else float(absolute),
        seconds=time.perf_counter() - begin,
    )


def check_tolerances(relative: float | None, absolute: float | None) -> None:
    """Refuse tolerances that are none."""
    for name, value in (("relative", relative), ("absolute", absolute)):
        if value is not None and not (is_number(value) and np.isfinite(value) and value >= 0):
            raise InputError(f"the {name} tolerance must be finite and not negative, got {value!r}")


def sides(release: Synthesis, against: Fit | Synthesis | None = None) -> dict[str, Synthesis]:
    """The unrestricted copies, if there are any, and the release's own, by name.

    Raises InputError if the two are not of the same problem, or one is not of the kind that its
    name would say.
    """
    if against is not None:
        fit = against.fit if isinstance(against, Synthesis) else against
        if fit.problem is not release.problem:
            raise InputError(
                "against is of another problem; both must come from the same prepare()"
            )
        if fit.kind != "unrestricted":
            raise InputError("against must be the unrestricted fit, or copies drawn from it")
        if release.fit.kind == "unrestricted":
            raise InputError("the release itself comes from an unrestricted fit: leave against out")
    other = release.comparison(against)
    if other is None:
        return {release.fit.kind: release}
    return {"unrestricted": other, "restricted": release}
