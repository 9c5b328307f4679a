"""Households: rows of a table that are one record, such as the persons of one income.

A row of its own for each of them would tell an intruder the income of a neighbour at no distance,
and the model that nothing is left to a nugget.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dsstan.core.arrays import Indices
from dsstan.core.errors import InputError, TableError, describe_rows
from dsstan.core.spelling import spelled
from dsstan.table.as_read import AS_READ, as_read_of
from dsstan.table.columns import did_you_mean, factorized, plain_index

__all__ = ["SITE", "Households", "one_row_each"]

SITE = "site"
"""What takes the place of a column where rows of one place are one household."""


@dataclass(frozen=True)
class Households:
    """The rows that households had, of which one each is left.

    Attributes
    ----------
    column
        The column that numbers them, or ``"site"``.
    rows
        Rows of the table that was given.
    dropped
        Columns that differ between the rows of some household, and are left out.
    """

    column: str
    rows: int
    dropped: tuple[str, ...]

    @property
    def of(self) -> str:
        """What each record is of."""
        return "place" if self.column == SITE else self.column

    def __str__(self) -> str:
        lost = f"; without {', '.join(self.dropped)}, which differ within some" * bool(self.dropped)
        return f"one record for each {self.of}, from {self.rows} rows{lost}"


def one_row_each(
    frame: pd.DataFrame,
    household: Any,
    places: Collection[str],
    response: str,
    needed: Collection[Any],
) -> tuple[pd.DataFrame, Households, Indices]:
    """The first row of each household, in their order.

    Parameters
    ----------
    frame
        The table, a row a person.
    household
        A column that has one value a household; or ``"site"``, where there is no such column, for
        one household a place.
    places
        Columns that hold the place.
    response, needed
        The response, and other columns that the release needs: they and the places must be the same
        in all rows of a household. Of other columns those that are not are dropped.

    Returns
    -------
    tuple
        The table, what was made of it, and the positions of its rows in ``frame``.

    Raises
    ------
    InputError
        If there is no such column, or each household has one row.
    TableError
        If the household of a row is missing, or what the release needs differs within one.
    """
    typed = spelled("household", household)
    if not isinstance(household, str) or household not in (*frame.columns, SITE):
        guess = did_you_mean(str(household), frame.columns)
        raise InputError(
            f'{typed} must be the name of a column, or "{SITE}" where all rows of a place are one '
            f"household.{guess}"
        )
    keys = [household] if household in frame.columns else [*places]
    gone = frame[keys].isna().any(axis=1).to_numpy(dtype=bool)
    if gone.any():
        raise TableError(
            f"The household ({', '.join(keys)}) is missing in {describe_rows(gone)}. Fill it in; "
            "whoever lives alone has a household of one row."
        )
    codes = np.column_stack([factorized(frame[key])[0] for key in keys])
    _, first, number = np.unique(codes, axis=0, return_index=True, return_inverse=True)
    number = number.reshape(-1)
    if len(first) == len(frame):
        raise InputError(f"Each household has one row already: leave {typed} out.")
    others = [name for name in frame.columns if name not in keys]
    differs = {}
    for name in others:
        values = factorized(frame[name])[0]
        unlike = values != values[first][number]
        if unlike.any():
            differs[name] = unlike
    must = {response, *places}
    found = [name for name in dict.fromkeys((*must, *needed)) if name in differs]
    if found:
        each = "; ".join(f"{str(name)!r} in {describe_rows(differs[name])}" for name in found)
        spared = [repr(str(name)) for name in found if name not in must]
        or_else = f", or leave {' and '.join(spared)} out of the release" if spared else ""
        raise TableError(
            f"Columns that the release needs differ from the first row of their household: {each}. "
            "A household is one record: give all its rows one value, such as a sum or a mean"
            f"{or_else}."
        )
    rows = np.sort(first)
    kept = frame.drop(columns=list(differs)).iloc[rows]
    if plain_index(frame.index):
        kept = kept.reset_index(drop=True)
    stood = as_read_of(frame)
    if stood is not None:
        kept.attrs[AS_READ] = stood.of(rows)
    made = Households(household, len(frame), tuple(map(str, differs)))
    return kept, made, rows
