"""How near to the truth an intruder can place a record, in the reader's units.

An sd on the modelled scale says little to whoever has to sign. Here it becomes an interval around
the value, "this price within +/-12%", and the chance that the intruder's estimate lies within 10%
of the truth.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import ndtr

from dsstan.core.arrays import Floats, Truths
from dsstan.risk.floors import QUANTILE_95
from dsstan.table.problem import Problem

__all__ = [
    "NEAR",
    "STAGES",
    "chance_near",
    "half_width",
    "placed_between",
    "placed_within",
    "placing_by_stage",
    "placing_table",
    "protection_in_words",
]


STAGES = {
    "no_release": "no release",
    "unrestricted": "unprotected",
    "restricted": "protected",
}
"""What an intruder sees, in words."""

NEAR = 0.10
"""An estimate is near the truth within this share of it."""


def half_width(problem: Problem, sd: Floats) -> Floats:
    """Within what share of its value an intruder can place a record at 95%, shape (N,).

    The p of the p-percent rule: the interval from ``v - p |v|`` to ``v + p |v|`` is as long, on the
    modelled scale, as the intruder's 95% interval. Under log it is ``tanh(1.96 sd)``, and a
    :class:`~dsstan.risk.floors.Floor` that is just met is its own p. Infinite for a value of 0.

    Parameters
    ----------
    problem
        The prepared table.
    sd
        The sd left to the intruder, modelled scale, shape (N,).
    """
    value = problem.original()
    with np.errstate(divide="ignore", invalid="ignore"):
        share = problem.transform.half_length(value, QUANTILE_95 * sd) / np.abs(value)
    return np.asarray(np.where(np.isnan(share), np.inf, share))


def chance_near(problem: Problem, sd: Floats, share: float = NEAR) -> Floats:
    """Chance that the intruder's best estimate lies within a share of the truth, shape (N,).

    Their estimate is normal around y with this sd. The mean over records is the share of records
    that they can be expected to place so near.

    Parameters
    ----------
    problem, sd
        As in :func:`half_width`.
    share
        Of the value, 0.1 for 10%.
    """
    value, y = problem.original(), problem.y
    reach = share * np.abs(value)
    with np.errstate(invalid="ignore"):
        above = (problem.transform.forward(value + reach) - y) / sd
        below = (y - problem.transform.forward(value - reach)) / sd
    # A lower end beyond the transform's domain is no limit.
    below = np.where(np.isnan(below) & ~np.isnan(above), np.inf, below)
    return np.asarray(ndtr(above) - ndtr(-below))


def placing_table(
    problem: Problem,
    flagged: Truths,
    sds: Mapping[str, Floats | None],
    public: Mapping[str, Mapping[str, float]],
    alike: Mapping[str, Floats],
) -> pd.DataFrame:
    """How near to the truth intruders place records, one row a group and stage.

    Parameters
    ----------
    problem
        The prepared table.
    flagged
        Shape (N,).
    sds
        By stage, which is what an intruder sees, the sd left to an intruder who knows all others,
        modelled scale, shape (N,), or None. The last stage is the release.
    public
        By stage and group the share that the public files alone place near the truth.
    alike
        By stage the sds behind ``near`` and ``least`` where they are others than those behind
        ``within``, which may be upper bounds: of the same kind, exact or lower bounds, as those of
        the stage it is compared with.

    Returns
    -------
    DataFrame
        Columns ``group``, ``stage``; ``within`` and ``sd``, half the 95% interval as a share of the
        value and the sd of the record that the release leaves most narrowly placed, the same record
        at every stage; ``least``, the least ``within`` can be, where it is a bound; ``near``, the
        share of records placed within 10% of the truth, by their own estimate or by the public
        files alone, whichever does better; ``public``. NaN where there is no number.
    """
    rows = []
    known = problem.observed
    *_, released = sds.values()
    for group, members in (("flagged", flagged & known), ("unflagged", ~flagged & known)):
        if not members.any():
            continue
        weakest = None if released is None else weakest_of(problem, released, members)
        for stage, sd in sds.items():
            share = public.get(stage, {}).get(group, np.nan)
            row: dict[str, Any] = {"group": group, "stage": stage, "public": share}
            row |= dict.fromkeys(("within", "least", "sd", "near"), np.nan)
            if sd is not None and weakest is not None:
                least = alike.get(stage, sd)
                row["within"], row["sd"] = half_width(problem, sd)[weakest], sd[weakest]
                row["least"] = half_width(problem, least)[weakest]
                row["near"] = chance_near(problem, least)[members].mean()
                row["near"] = np.fmax(row["near"], share)  # they have the public files too
            rows.append(row)
    return pd.DataFrame(rows)


def weakest_of(problem: Problem, sd: Floats, members: Truths) -> int:
    """Position of the member that an intruder places most narrowly, as a share of its value."""
    rows = np.flatnonzero(members)
    return int(rows[np.argmin(half_width(problem, sd)[rows])])


def placed_within(share: float) -> str:
    """A half width for a reader, to two digits.

    Examples
    --------
    >>> placed_within(0.1234), placed_within(0.0056), placed_within(19.1), placed_within(np.inf)
    ('+/-12%', '+/-0.56%', '+/-1,900%', 'no limit')
    """
    if not share < 1000.0:
        return "no limit"
    return f"+/-{float(f'{100 * share:.2g}'):,.10g}%"


def placed_between(low: float, high: float) -> str:
    """A half width, or its two bounds where they read differently.

    Examples
    --------
    >>> placed_between(0.12, 0.12), placed_between(0.27, 0.42)
    ('+/-12%', '+/-27% to 42%')
    """
    least, most = placed_within(low), placed_within(high)
    return most if least == most else f"{least} to {most.removeprefix('+/-')}"


def placing_by_stage(table: pd.DataFrame, stages: Mapping[str, str] = STAGES) -> pd.DataFrame:
    """The half widths of a :func:`placing_table` as they are printed, one row a group that has any.

    Returns
    -------
    DataFrame
        One column a stage, by its name in ``stages``.
    """
    shown = table.dropna(subset="within")
    said = list(map(placed_between, shown["least"], shown["within"]))
    wide = shown.assign(within=said).pivot(index="group", columns="stage", values="within")
    there = [stage for stage in stages if stage in wide.columns]
    wide = wide[there].rename(columns=stages).rename_axis(index=None, columns=None)
    return wide.rename(index=lambda group: f"{group} record")


def protection_in_words(rise: Floats, material: int, exact: bool) -> str:
    """How many records protection made safer and less safe, in a sentence.

    Parameters
    ----------
    rise
        The sd left before protection over that after it, shape (N,).
    material
        For how many records it fell by more than 5% and beyond Monte Carlo error.
    exact
        Whether the sds are exact, which only those of some records are, or lower bounds.

    Examples
    --------
    >>> protection_in_words(np.array([0.5, 0.9, 1.01]), 0, True)
    'Protection, 3 records computed exactly: 2 safer, 1 less safe (0 by over 5%)'
    """
    safer, less = int(np.sum(rise < 1.0)), int(np.sum(rise > 1.0))
    by = f" ({material} by over 5%)" if less else ""
    which = "computed exactly" if exact else "by their lower bounds"
    return f"Protection, {rise.size} records {which}: {safer} safer, {less} less safe{by}"
