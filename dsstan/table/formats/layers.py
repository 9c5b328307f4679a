"""Files that hold several tables: layers of a GeoPackage, sheets of a workbook."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dsstan.core.errors import CONTROL, InputError
from dsstan.core.spelling import spelled

__all__ = ["one_layer"]

_SHOWN = 5


def one_layer(path: Path, names: Sequence[str], asked: str | None, what: str) -> str:
    """The table that was asked for, or the only one.

    Raises InputError if there is no such table, or there are several and none was named.
    """
    if not names:
        raise InputError(f"{path.name} has no {what} with a table")
    shown = [CONTROL.sub("?", name) for name in names[:_SHOWN]]
    listed = ", ".join(map(repr, shown)) + (", ..." if len(names) > _SHOWN else "")
    if asked is None and len(names) > 1:
        raise InputError(
            f"{path.name} has {len(names)} {what}s: {listed}. Say which: "
            f"{spelled('layer', shown[0])}"
        )
    if asked is not None and asked not in names:
        raise InputError(f"{path.name} has no {what} {asked!r}; it has {listed}")
    return names[0] if asked is None else asked
