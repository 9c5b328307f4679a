"""What a release reveals of every record, as the ledger and a written release keep it: numbers in a
Parquet file, records in an order of their own. No value of a table is among them.
"""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dsstan.core.arrays import Floats
from dsstan.core.errors import InputError
from dsstan.risk.intruder.planned import sd_with

__all__ = [
    "COLUMNS",
    "GROUPS",
    "PLACE",
    "PLACE_RISKS",
    "information_bytes",
    "read_information",
    "read_places",
    "read_place_risks",
    "sd_left",
]

GROUPS = ("same_value", "same_place")
COLUMNS = ("alone", "fixed", "known", "margin", "least", "next_copy", "next_release", *GROUPS)
"""Columns of the file of a release; see :func:`read_information`."""

PLACE_RISKS = ("log_presence", "log_odds")
"""Columns of what a release says of each record's place; see
:class:`dsstan.risk.places.result.EarlierPlaces`."""

PLACE = "place"
"""A further column, a number for the place of each record. Earlier versions had none."""


def read_information(path: Path, records: int) -> pd.DataFrame:
    """What a release reveals of every record, in the ledger's order.

    Columns, each of N rows: ``alone``, the precision without any release; ``fixed`` and ``known``,
    what the release adds for an intruder who can't use the variances or knows them, without margin;
    ``margin``, the factor on an sd by ``known`` that makes it a lower bound, see :func:`sd_left`;
    ``least``, the least sd that the floor and the limit on naming want, NaN without a floor;
    ``next_copy`` and ``next_release``, what one more copy and as many more as the release has are
    planned to add;
    ``same_value``, ``same_place`` and ``place`` (``PLACE``), as in
    :class:`dsstan.release.publication.record_order.RecordOrder`. Modelled scale.

    Raises
    ------
    InputError
        If it can't be read.
    """
    try:
        with open(path, "rb") as stream:
            found = pd.read_parquet(stream)
    except ImportError:
        raise  # pyarrow can't be loaded: the file may be fine
    except Exception as error:  # of many kinds
        raise InputError(f"{path} can't be read ({type(error).__name__}): restore it") from None
    columns = [name for name in found.columns if name != PLACE]
    if columns != list(COLUMNS) or len(found) != records or not _sound(found):
        raise InputError(f"{path} is not what a release reveals of {records} records: restore it")
    return found


def _sound(information: pd.DataFrame) -> bool:
    """Whether what a release reveals is numbers that can be: with one that is none, as with one
    below zero, every comparison with a floor would come out well."""
    numbers, groups = information.drop(columns=list(GROUPS)), information[list(GROUPS)]
    numbers = numbers.drop(columns=PLACE, errors="ignore")
    if any(one.kind != "f" for one in numbers.dtypes) or any(
        one.kind not in "iu" for one in groups.dtypes
    ):
        return False
    there = (numbers >= 0) | (numbers.isna() & (numbers.columns == "least"))
    inside = (groups >= 0) & (groups < len(information))
    return bool(there.all(axis=None) and inside.all(axis=None))


def read_places(path: Path, records: int) -> NDArray[np.uint64] | None:
    """A number for the place of each record, shape (N,); None where they were not noted."""
    try:
        with open(path, "rb") as stream:
            found = pd.read_parquet(stream, columns=[PLACE])[PLACE].to_numpy(np.uint64)
    except ImportError:
        raise  # as above: the places may well be known
    except Exception:  # of many kinds: an earlier version, or none
        return None
    return found if found.size == records else None


def read_place_risks(path: Path, records: int) -> pd.DataFrame | None:
    """What a release says of each record's place, columns ``PLACE_RISKS``; None without a file.

    Raises
    ------
    InputError
        If it can't be read.
    """
    if not path.exists():
        return None
    try:
        with open(path, "rb") as stream:
            found = pd.read_parquet(stream)
    except ImportError:
        raise  # as above
    except Exception as error:  # of many kinds
        raise InputError(f"{path} can't be read ({type(error).__name__}): restore it") from None
    sound = list(found.columns) == list(PLACE_RISKS) and len(found) == records
    if not sound or any(one.kind != "f" for one in found.dtypes) or found.isna().any(axis=None):
        raise InputError(f"{path} is not what a release says of {records} places: restore it")
    return found


def sd_left(information: pd.DataFrame, gain: Floats) -> Floats:
    """sd that releases leave of every record, shape (N,), as the last of them judged it.

    Precisions are added first, then the margin is taken once.

    Parameters
    ----------
    information
        What the last release reveals; see :func:`read_information`.
    gain
        Precision that all add together, shape (N,).
    """
    alone, margin = information["alone"].to_numpy(), information["margin"].to_numpy()
    return sd_with(alone, gain, margin)


def information_bytes(information: pd.DataFrame) -> bytes:
    """The content of the Parquet file."""
    stream = BytesIO()
    information.to_parquet(stream, index=False)
    return stream.getvalue()
