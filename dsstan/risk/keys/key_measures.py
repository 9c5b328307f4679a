"""repU, DiSCO and TCAP: what a copy says to somebody who looks a record up by its keys.

Raab, Nowok and Dibben (2024), "Practical privacy metrics for synthetic data", the vignette
``disclosure`` of the R package synthpop 1.9, appendices 1 and 2. The intruder knows some columns
of a record, the keys, looks for them in one copy as if it were the original, and reads off the
target. Copies are judged one at a time, and a number counts as a category unless it is grouped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from dsstan.copies.result import Synthesis, require_one_column
from dsstan.core.arrays import Floats, Indices
from dsstan.core.display import Card, Part, Shown
from dsstan.core.errors import InputError, check_count

MEASURES = {
    "UiO": "unique in the original, by their keys",
    "UiS": "unique in the copy, of the copy's records",
    "UiOiS": "unique in the original, and their keys are in the copy",
    "repU": "unique in the original and in the copy",
    "Dorig": "their keys have one target alone in the original",
    "iS": "their keys are in the copy",
    "DiS": "their keys have one target alone in the copy",
    "DiSCO": "the same, and it is their own target",
    "DiSDiO": "the same, and it is the only one in the original too",
    "DCAP": "the copy's share of their target among their keys",
    "TCAP": "DiSCO as a percentage of DiS",
}
"""Percentages of the original's records, unless said otherwise."""


def measures_of(
    keys: Indices, target: Indices, copy_keys: Indices, copy_target: Indices
) -> dict[str, float]:
    """All of :data:`MEASURES` for one copy, in percent.

    Parameters
    ----------
    keys, target
        Number of each original record's combination of keys and of its target's category,
        shape (N,).
    copy_keys, copy_target
        The same of the copy's records, in the same numbers; their count may be another.

    Examples
    --------
    Two of four records are unique by their keys; one of them is found in the copy, alone, with its
    own target:

    >>> found = measures_of(
    ...     np.array([0, 1, 2, 2]), np.array([0, 1, 0, 1]), np.array([0, 3]), np.array([0, 1])
    ... )
    >>> found["UiO"], found["repU"], found["DiSCO"], found["TCAP"]
    (50.0, 25.0, 25.0, 100.0)
    """
    shape = (
        int(max(keys.max(), copy_keys.max())) + 1,
        int(max(target.max(), copy_target.max())) + 1,
    )
    d, s = (_crossed(k, t, shape) for k, t in ((keys, target), (copy_keys, copy_target)))
    d_key, s_key = (table.groupby(level="key").sum() for table in (d, s))
    one_in_d = (d.groupby(level="key").size() == 1).reindex(d_key.index)
    one_in_s = (s.groupby(level="key").size() == 1).reindex(d_key.index, fill_value=False)
    in_s = s_key.reindex(d_key.index, fill_value=0)
    own_in_s = s.reindex(d.index, fill_value=0).to_numpy()
    cell_key = d.index.get_level_values("key")
    count, per_key = d.to_numpy(), in_s.loc[cell_key].to_numpy()
    right = one_in_s.loc[cell_key].to_numpy() & (own_in_s > 0)
    alone = (d_key == 1).to_numpy()
    found = (in_s > 0).to_numpy()
    n = float(d_key.sum())
    share = np.divide(own_in_s, per_key, out=np.zeros(count.size), where=per_key > 0)
    sums = {
        "UiO": alone.sum(),
        "UiOiS": (alone & found).sum(),
        "repU": (alone & (in_s == 1).to_numpy()).sum(),
        "Dorig": d_key[one_in_d].sum(),
        "iS": d_key[found].sum(),
        "DiS": d_key[one_in_s].sum(),
        "DiSCO": count[right].sum(),
        "DiSDiO": count[right & one_in_d.loc[cell_key].to_numpy()].sum(),
        "DCAP": share @ count,
    }
    out = {name: 100.0 * float(value) / n for name, value in sums.items()}
    out["UiS"] = 100.0 * float((s_key == 1).sum()) / float(s_key.sum())
    out["TCAP"] = 100.0 * out["DiSCO"] / out["DiS"] if out["DiS"] > 0 else float("nan")
    return {name: out[name] for name in MEASURES}


def _crossed(keys: Indices, target: Indices, shape: tuple[int, int]) -> pd.Series[int]:
    """Numbers of records by key and target; pairs that do not occur are left out."""
    cells, count = np.unique(np.ravel_multi_index((keys, target), shape), return_counts=True)
    index = pd.MultiIndex.from_arrays(np.unravel_index(cells, shape), names=["key", "target"])
    return pd.Series(count, index=index)


@dataclass(frozen=True, eq=False, repr=False)
class KeyMeasures(Shown):
    """repU, DiSCO, TCAP and what they are made of, copy by copy.

    Attributes
    ----------
    table
        One row a copy, one column each of :data:`MEASURES`, in percent.
    keys, target
        Columns that the intruder knows, and the one they read off.
    groups, key_groups
        Into how many groups the target and each numeric key were cut; None where they were not.
    """

    table: pd.DataFrame = field(repr=False)
    keys: tuple[str, ...]
    target: str
    groups: int | None
    key_groups: int | None

    def _line(self) -> str:
        mean = self.table[["repU", "DiSCO", "TCAP"]].mean()
        said = ", ".join(f"{name} {value:.1f}%" for name, value in mean.items())
        return f"{said} (mean of {len(self.table)} copies)"

    def _card(self) -> Card:
        rows = pd.DataFrame({"mean": self.table.mean(), "largest": self.table.max()})
        rows = rows.rename(index={name: f"{name}: {what}" for name, what in MEASURES.items()})
        grouped = "as they are" if self.key_groups is None else f"in {self.key_groups} groups"
        values = "as it is" if self.groups is None else f"in {self.groups} groups"
        return Card(
            (
                ("keys", f"{', '.join(self.keys)}, {grouped}"),
                ("target", f"{self.target}, {values}"),
            ),
            (Part(rows, digits=lambda v: f"{v:.1f}"),),
        )


def key_measures(
    release: Synthesis,
    keys: Sequence[str] | None = None,
    *,
    groups: int | None = None,
    key_groups: int | None = None,
) -> KeyMeasures:
    """RepU, DiSCO and TCAP of each copy, as synthpop defines them.

    Parameters
    ----------
    release
        The copies.
    keys
        Columns that the intruder knows, published as they are; by default the coordinates.
    groups
        Into how many groups of about as many original records the target is cut; by default its
        values count as categories, and a copy must repeat one exactly.
    key_groups
        The same for each numeric key.

    Raises
    ------
    InputError
        If there is no such column, the response is among the keys, or there are several synthetic
        columns or gaps in the response.
    """
    require_one_column(release)
    problem = release.problem
    names = tuple(problem.coord_names if keys is None else keys)
    missing = [name for name in names if name not in problem.table.columns]
    if missing or not names or problem.response in names:
        raise InputError(
            "keys must be columns of the table other than the response "
            f"{problem.response!r}, such as keys={list(problem.coord_names)!r}; got "
            f"{list(names)!r}"
        )
    groups = None if groups is None else check_count("groups", groups, 2)
    key_groups = None if key_groups is None else check_count("key_groups", key_groups, 2)
    known = problem.table[list(names)].copy()
    for name in names:
        if key_groups is not None and pd.api.types.is_numeric_dtype(known[name]):
            known[name] = _cut(known[name].to_numpy(np.float64), key_groups)
    numbers = known.groupby(list(names), dropna=False, sort=False, observed=True).ngroup()
    of_key, truth = np.asarray(numbers, dtype=np.intp), problem.original()
    rows = []
    for values in release.values:
        both = np.concatenate([truth, values])
        category = both if groups is None else _cut(both, groups, truth)
        codes = np.unique(category, return_inverse=True)[1].astype(np.intp)
        rows.append(measures_of(of_key, codes[: truth.size], of_key, codes[truth.size :]))
    table = pd.DataFrame(rows, index=pd.RangeIndex(len(rows), name="copy"))
    return KeyMeasures(table, names, problem.response, groups, key_groups)


def _cut(values: Floats, groups: int, of: Floats | None = None) -> Indices:
    """Number of each value's group; the groups hold about as many of ``of`` each."""
    known = values if of is None else of
    inner = np.quantile(known[~np.isnan(known)], np.arange(1, groups) / groups)
    return np.searchsorted(np.unique(inner), values, side="right")
