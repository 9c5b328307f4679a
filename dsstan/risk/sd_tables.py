"""Tables of the sds left to an intruder who knows all other records, by fit, group and L."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from dsstan.risk.intruder.attacker import Attack
from dsstan.risk.placing import half_width
from dsstan.table.problem import Problem


def smallest_and_median(attacks: Mapping[str, Attack], copies: Sequence[int]) -> pd.DataFrame:
    """Smallest and median sd by fit, group, copies and what the intruder knows of the variances."""
    table = pd.concat([a.curve(copies).assign(fit=f) for f, a in attacks.items()])
    columns = ["fit", "group", "copies", "variances", "smallest", "median"]
    return table[columns].reset_index(drop=True)


def smallest_by_copies(attacks: Mapping[str, Attack], copies: Sequence[int]) -> pd.DataFrame:
    """Smallest sd by fit, group and L: columns ``known`` and ``fixed``, the two bounds."""
    wides = []
    for name, found in attacks.items():
        long = found.curve(copies)
        wide = long.pivot(index=["group", "copies"], columns="variances", values="smallest")
        wides.append(wide.reset_index().assign(fit=name))
    return pd.concat(wides, ignore_index=True)


def narrowest_by_copies(
    problem: Problem, attacks: Mapping[str, Attack], copies: Sequence[int]
) -> pd.DataFrame:
    """Within what the record that is placed most narrowly is placed, by fit, group and L.

    Columns ``known`` and ``fixed``, by the two bounds: half the 95% interval as a share of the
    value.
    """
    rows = []
    for name, found in attacks.items():
        for group, members in (("flagged", found.flagged), ("unflagged", ~found.flagged)):
            for count in copies if members.any() else ():
                within = {
                    v: float(half_width(problem, found.sd(count, variances=v))[members].min())
                    for v in ("known", "fixed")
                }
                rows.append({"fit": name, "group": group, "copies": count, **within})
    return pd.DataFrame(rows)


def nested(rows: pd.DataFrame) -> dict[str, Any]:
    """group -> copies -> known or fixed -> smallest and median; None where infinite."""
    out: dict[str, Any] = {}
    for row in rows.to_dict("records"):
        by_copies = out.setdefault(row["group"], {})
        by_copies.setdefault(str(row["copies"]), {})[row["variances"]] = {
            key: row[key] if math.isfinite(row[key]) else None for key in ("smallest", "median")
        }
    return out
