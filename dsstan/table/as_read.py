"""How a table stood in its file, so that the copies can repeat it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import pandas as pd

from dsstan.core.arrays import Indices

__all__ = ["AS_READ", "AsRead", "Asked", "as_read_of"]

AS_READ = "as_read"
"""The attribute of a table that says how its file was written."""


@dataclass(frozen=True)
class Asked:
    """What is asked of a file when it is read.

    Attributes
    ----------
    used
        Columns whose numbers are needed; None for all.
    dialect
        How a text file is written; None where nothing was said.
    layer
        Layer of a geographic file or sheet of a workbook; None where there is one.
    most_rows
        Rows that the file may have, where that is known.
    """

    used: Collection[str] | None = None
    dialect: Any = None
    layer: str | None = None
    most_rows: int | None = None


@dataclass(eq=False, repr=False)
class AsRead(dict[str, Any]):
    """How a table stood in its file, kept in ``table.attrs["as_read"]``.

    An empty dict for pandas, which writes the attributes of a table into Parquet.

    Attributes
    ----------
    format
        Name of the format, one of :data:`dsstan.table.formats.kinds.FORMATS`.
    """

    format: str

    def of(self, rows: Indices) -> AsRead:
        """How these rows stood there."""
        return self

    def __deepcopy__(self, memo: Any) -> AsRead:
        return self  # pandas copies the attributes with every table


def as_read_of(table: pd.DataFrame) -> AsRead | None:
    """How a table stood in its file; None where it was not read from one."""
    found = table.attrs.get(AS_READ)
    return found if isinstance(found, AsRead) else None
