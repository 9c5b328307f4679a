"""One model a stratum, here or on worker processes, and copies of the whole table.

Every stratum goes the whole way of :func:`dsstan.protect` by itself: its own coefficients,
variances, range, flags and seed. One that fails costs itself alone; whether the others may be
released without it is for the caller to say.
"""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, Unpack

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from dsstan.copies.keywords import StrataKeywords
from dsstan.copies.options import ReleaseOptions
from dsstan.copies.protect import protect
from dsstan.copies.published import check_public
from dsstan.copies.result import Synthesis
from dsstan.core.arrays import Floats, Indices
from dsstan.core.distributed import connect
from dsstan.core.errors import (
    DsstanError,
    DsstanWarning,
    InputError,
    ReleaseError,
    check_count,
    describe_rows,
)
from dsstan.core.executors import ThisProcess
from dsstan.core.progress import progress_bar
from dsstan.core.seeds import STRATA, root_seed, seed_bits, seed_of, stream
from dsstan.engines import get_engine
from dsstan.table.columns import as_pandas, check_frame
from dsstan.table.formulas.formula import parse
from dsstan.table.order_leaks import check_rows, ranks_like_response

__all__ = ["LEAST_RECORDS", "Failure", "StrataRelease", "fit_strata"]


LEAST_RECORDS = 50
"""A stratum of fewer records is too small by default, since the priors would decide."""

ON_FAILURE = ("refuse", "leave out")

_POSITIONS = re.compile(r"\s*\(positions? [^)]*\)")


@dataclass(frozen=True)
class Failure:
    """A stratum without copies.

    Attributes
    ----------
    rows
        How many records it has.
    reason
        Why; no word about a single record.
    """

    rows: int
    reason: str

    def __str__(self) -> str:
        return f"{self.rows} rows, {self.reason}"


@dataclass(frozen=True, eq=False)
class StrataRelease:
    """L copies of a table whose strata were modelled each by itself.

    Attributes
    ----------
    by, response
        The column of the strata, and the synthetic one.
    values
        Synthetic response on its own scale, shape (L, N), in the order of the table; N counts
        the rows of the strata that are not left out.
    rows
        Their positions in the table that was given, shape (N,).
    parts
        The copies of every stratum by name, with its fits. Confidential.
    failed
        Strata without copies by name, left out.
    seed, seeds
        Root seed, and that of every stratum by name. Confidential.
    seconds
        Wall time.
    """

    by: str
    response: str
    values: Floats = field(repr=False)
    rows: Indices = field(repr=False)
    parts: Mapping[str, Synthesis] = field(repr=False)
    failed: Mapping[str, Failure]
    seed: int = field(repr=False)
    seeds: Mapping[str, int] = field(repr=False)
    seconds: float
    _frame: pd.DataFrame = field(repr=False)
    _order: Indices = field(repr=False)

    @property
    def copies(self) -> int:
        """L, the number of copies."""
        return len(self.values)

    def table(self, copy: int) -> pd.DataFrame:
        """Copy number ``copy``, from 0: the table, its response replaced.

        Index, columns, types and the order of the rows are those of the table; the rows of strata
        that were left out are not there.
        """
        found = pd.concat([part.table(copy)[self.response] for part in self.parts.values()])
        table = self._frame.iloc[self.rows].copy()
        table[self.response] = found.iloc[self._order].array
        return table

    def __repr__(self) -> str:
        missing = sum(failure.rows for failure in self.failed.values())
        left = f", {len(self.failed)} left out with {missing} rows" if self.failed else ""
        return (
            f"StrataRelease by {self.by!r}: {self.copies} copies of {len(self.rows)} records in "
            f"{len(self.parts)} strata{left}"
        )


def fit_strata(
    table: Any,
    formula: str,
    *,
    by: str,
    coords: tuple[str, str] | None = None,
    copies: int = 20,
    least: int = LEAST_RECORDS,
    on_failure: str = "refuse",
    seed: int | None = None,
    cluster: Any = None,
    progress: bool | None = None,
    **settings: Unpack[StrataKeywords],
) -> StrataRelease:
    """Protect every stratum of a table by itself, and put the copies together.

    Parameters
    ----------
    table, formula, coords
        See :func:`dsstan.prepare`. The response is missing nowhere.
    by
        The column that names the strata. It is published as it is, as if ``publish`` named it:
        it must be one of the table, and not the response.
    copies
        L.
    least
        A stratum of fewer records is too small.
    on_failure
        What happens where a stratum is too small, or its fit fails: ``"refuse"`` releases
        nothing; ``"leave out"`` releases the others, without its rows.
    seed
        Root seed, by default a fresh one of 128 bits. Every stratum has a stream of its own, by
        its name: its copies do not depend on the other strata, nor on ``cluster``.
    cluster
        Worker processes, one stratum each at a time: a number of them on this machine, the address
        of a Dask scheduler or a ``distributed.Client``; see
        :func:`dsstan.core.distributed.connect`. By default strata follow one another here.
    progress
        Show progress; by default in a terminal.
    settings
        Of every stratum: what else :func:`dsstan.protect` takes.

    Returns
    -------
    StrataRelease

    Raises
    ------
    InputError
        If an argument is out of range, or ``by`` is no column that is published.
    ReleaseError
        If a column, the index or the order of the rows reveals the response; or a stratum has
        no copies and none is to be left out. Strata are named, with a reason and the number of
        their rows.

    Warns
    -----
    DsstanWarning
        What a stratum warns of, with its name; and how many rows were left out.
    """
    begin = time.perf_counter()
    frame, response = as_pandas(table), parse(formula).response
    check_frame(frame)
    _check_arguments(copies, least, on_failure, settings)
    labels = _labels(frame, by, response)
    _check_whole(frame, response)
    root = root_seed(seed)
    places = {name: np.flatnonzero(labels == name) for name in sorted(set(labels))}
    seeds = {name: seed_of(stream(root, STRATA, name.encode())) for name in places}
    small = {
        name: Failure(len(rows), f"fewer than the {least} records that are needed")
        for name, rows in places.items()
        if len(rows) < least
    }
    _check_failed(small, places, on_failure)
    # The engine of this process: a worker might choose another, and other draws with it.
    engine = get_engine(settings.pop("engine", "auto")).name
    common = {"coords": coords, "copies": copies, "engine": engine, **settings}
    common["publish"] = [by, *(settings.get("publish") or ())]
    calls = {
        name: (frame.iloc[rows], formula, {**common, "name": name, "seed": seeds[name]})
        for name, rows in places.items()
        if name not in small
    }
    done, errors = _outcomes(calls, cluster, progress)
    failed = small | {name: Failure(len(places[name]), why) for name, why in errors.items()}
    failed = dict(sorted(failed.items()))
    _warn(f"stratum {name!r}: {note}" for name, (_, notes) in done.items() for note in notes)
    _check_failed(failed, places, on_failure)
    if failed:
        missing = sum(failure.rows for failure in failed.values())
        left = f"{missing} of {len(frame)} rows are left out, with their strata: {_listed(failed)}"
        _warn([left])
    # The seed of a part has 128 bits, and no more of chance than the one it comes from.
    parts = {name: replace(part, seed_bits=seed_bits(seed)) for name, (part, _) in done.items()}
    together = np.concatenate([places[name] for name in parts])
    order = np.argsort(together)
    return StrataRelease(
        by=by,
        response=response,
        values=np.concatenate([part.values for part in parts.values()], axis=1)[:, order],
        rows=together[order],
        parts=parts,
        failed=failed,
        seed=root,
        seeds=seeds,
        seconds=time.perf_counter() - begin,
        _frame=frame,
        _order=order,
    )


def _check_arguments(copies: int, least: int, on_failure: str, settings: Mapping[str, Any]) -> None:
    """Refuse at once what every stratum would refuse."""
    if on_failure not in ON_FAILURE:
        raise InputError(f"on_failure must be one of {', '.join(ON_FAILURE)}, got {on_failure!r}")
    check_count("least", least)
    if settings.get("missing", "refuse") != "refuse":
        raise InputError("a response that is missing in some records can't be drawn by strata")
    for name in ("name", "resume", "household"):
        if name in settings:
            raise InputError(f"{name} is no setting of strata: leave it out")
    ReleaseOptions(copies=copies, **settings)  # which checks them


def _labels(frame: pd.DataFrame, by: str, response: str) -> NDArray[np.object_]:
    """Name of the stratum of each row, shape (N,)."""
    if not isinstance(by, str) or by not in frame.columns:
        raise InputError(
            "by must be the name of a column of the table, so that strata are published with the "
            "copies; copies of strata that nobody can see would reveal them"
        )
    if by == response:
        raise InputError(f"by can't be the response {response!r}, which is not published")
    column = frame[by]
    if column.isna().any():
        raise InputError(
            f"column {by!r} names no stratum in {describe_rows(column.isna().to_numpy())}"
        )
    labels = column.astype(str).to_numpy(dtype=object)
    if len(set(labels)) != column.nunique():
        raise InputError(f"strata of column {by!r} differ, but not as text: rename them")
    return labels


def _check_whole(frame: pd.DataFrame, response: str) -> None:
    """Refuse a table whose other columns, or order, reveal the response across strata."""
    if response not in frame.columns or not pd.api.types.is_numeric_dtype(frame[response].dtype):
        return  # which every stratum will say
    values = frame[response].to_numpy(dtype=np.float64, na_value=np.nan)
    check_rows(values[~np.isnan(values)], response)
    for name in frame.columns:
        if name != response and ranks_like_response(frame[name], frame[response]):
            raise ReleaseError(
                f"column {name!r} puts the records in the order of the response {response!r}, or "
                "nearly so, and would be published as it is: leave it out of the table"
            )


def protect_stratum(
    part: pd.DataFrame, formula: str, settings: Mapping[str, Any]
) -> tuple[Synthesis, list[str]]:
    """The copies of one stratum, and what it warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DsstanWarning)
        with threadpool_limits(limits=1, user_api="blas"):
            release = protect(part, formula, progress=False, **settings)
            check_public(release)
    notes = [str(note.message) for note in caught if issubclass(note.category, DsstanWarning)]
    return release, list(dict.fromkeys(notes))


def _outcomes(
    calls: Mapping[str, tuple[Any, ...]], cluster: Any, progress: bool | None
) -> tuple[dict[str, tuple[Synthesis, list[str]]], dict[str, str]]:
    """Copies of strata with their warnings, and why others have none, in the order of calls."""
    found: dict[str, Any] = {}
    with (
        progress_bar("strata", progress) as advance,
        connect(ThisProcess() if cluster is None or not calls else cluster) as executor,
        closing(executor.each(protect_stratum, calls)) as each,
    ):
        for name, outcome in each:
            found[name] = outcome
            advance(len(found) / len(calls))
    errors = {name: _reason(found[name]) for name in calls if isinstance(found[name], Exception)}
    return {name: found[name] for name in calls if name not in errors}, errors


def _reason(error: Exception) -> str:
    """Why a stratum failed: its own error without positions of rows, or the kind of another."""
    if isinstance(error, DsstanError):
        return _POSITIONS.sub("", str(error))
    return f"an unforeseen error ({type(error).__name__}), whose text may quote the data"


def _check_failed(
    failed: Mapping[str, Failure], places: Mapping[str, Indices], on_failure: str
) -> None:
    """Release nothing where a stratum has no copies, unless it is left out and others have."""
    if failed and on_failure == "refuse":
        raise ReleaseError(
            f"nothing is released, since {len(failed)} strata have no copies: {_listed(failed)}. "
            'Merge such strata, correct them, or leave them out with on_failure="leave out"'
        )
    if len(failed) == len(places):
        raise ReleaseError(f"no stratum has copies: {_listed(failed)}")


def _warn(texts: Iterable[str]) -> None:
    """Warn the caller of :func:`fit_strata`."""
    for text in texts:
        warnings.warn(text, DsstanWarning, stacklevel=3)


def _listed(failed: Mapping[str, Failure]) -> str:
    """Strata with their rows and reasons."""
    return "; ".join(f"{name!r} ({failure})" for name, failure in failed.items())
