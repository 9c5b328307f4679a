"""Write a release with synthetic places: a public folder, and a confidential one beside it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd

from dsstan.analysis.places.utility import PlaceUtility
from dsstan.copies.places.result import PlacedRelease
from dsstan.core.errors import DisclosureError, InputError
from dsstan.release.acceptance import words_of
from dsstan.release.copy_files import HowWritten, check_copies, format_for, how_written
from dsstan.release.placed.confidential import write_confidential
from dsstan.release.placed.ledger import note_placed
from dsstan.release.placed.public import placed_metadata, placed_readme
from dsstan.release.placed.report import write_placed_report
from dsstan.release.public import without_traces
from dsstan.release.publication.public_hashes import note_hashes
from dsstan.release.whole_folder import check_target, inner_folder, release_folder, write_json
from dsstan.risk.places.result import PlaceAssessment
from dsstan.table.as_read import as_read_of
from dsstan.table.formats.text import dialect_for
from dsstan.table.planes import place_columns
from dsstan.table.text.cells import quote
from dsstan.table.text.dialect import PLAIN, Dialect

__all__ = ["PlacesJudged", "nothing_written", "write_placed"]

_EXACT = 2.0**53


class PlacesJudged(Protocol):
    """What an assessment of places must have; ``why`` and a table ``records`` it may have."""

    @property
    def verdict(self) -> str:
        """``"met"``, ``"missed"`` or ``"not judged"``."""
        ...

    def summary(self) -> dict[str, Any]:
        """Plain numbers for ``summary.json``, without a value of a single record.

        ``floor`` is what was asked for, in words.
        """
        ...


def write_placed(
    release: PlacedRelease,
    folder: str | os.PathLike[str],
    *,
    format: str | None = None,
    csv_text: str = "refuse",
    dialect: Dialect | None = None,
    assessment: PlacesJudged | None = None,
    utility: PlaceUtility | None = None,
    accept_below_floor: bool = False,
    reason: str | None = None,
) -> Path:
    """Write the copies for the public, and all the rest for the data steward.

    ``public/`` holds the L copies, ``metadata.json`` and a README for the analyst;
    ``confidential/`` the draws, the counts by cell, who is lonely, ``summary.json``,
    ``settings.json`` with the seeds, and ``public.sha256``. Only the owner may enter either;
    :func:`dsstan.release.publication.publish.publish` lets the public part out.

    Parameters
    ----------
    release
        The copies.
    folder
        Must not exist: nothing is overwritten.
    format, csv_text, dialect
        As :func:`dsstan.release.write.write_release` takes them.
    assessment
        What intruders learn of places. Without one the release is not judged, and goes out with a
        reason only.
    utility
        What the copies keep, from :func:`dsstan.analysis.places.utility.place_utility`: with it
        ``confidential/`` has a ``report.html`` too, and the curves in ``utility.csv``.
    accept_below_floor, reason
        Write the release although the assessment misses a floor; it takes a reason.

    Returns
    -------
    Path
        The folder.

    Raises
    ------
    DisclosureError
        If the assessment misses a floor.
    ReleaseError
        If the folder exists or can't be written, or the format does not hold a column.
    """
    target = check_target(folder)
    how = _how(release, format, csv_text, dialect)
    made = [*place_columns(release.problem), *(fit.problem.response for fit in release.fits)]
    tables = _published(release, made)
    check_copies(tables[0], how, made)
    accepted = _accepted(assessment, accept_below_floor, reason)
    with release_folder(target) as whole:
        public = inner_folder(whole / "public")
        _write_public(release, tables, public, how, made)
        confidential = inner_folder(whole / "confidential")
        note_hashes(public, confidential)
        judged = assessment if isinstance(assessment, PlaceAssessment) else None
        name = note_placed(release, confidential, judged)
        if utility is not None:
            write_placed_report(
                release, assessment, utility, confidential, name=name, accepted=accepted
            )
        write_confidential(release, assessment, confidential, accepted, name)
    return target


def _how(
    release: PlacedRelease, name: str | None, csv_text: str, dialect: Dialect | None
) -> HowWritten:
    """How the copies are written: in the format and the dialect of the table's file.

    Nothing else of how the table stood in its file is repeated, since that knows its rows.
    """
    found = as_read_of(release.problem.table)
    format = format_for(name, found)
    if dialect is None and format.is_text:
        dialect = dialect_for(format.name, found)
        dialect = None if dialect == PLAIN else dialect
    return how_written(release.tables[0], format.name, csv_text, dialect)


def _published(release: PlacedRelease, made: list[str]) -> list[pd.DataFrame]:
    """The tables as they stand in their files: whole numbers alone are written as such.

    The type of a float column would else show that some record has a fraction.
    """
    tables = [without_traces(table) for table in release.tables]
    for name in made:
        columns = [table[name] for table in tables]
        if all(c.dtype == np.float64 and _whole(c.to_numpy()) for c in columns):
            for table in tables:
                table[name] = table[name].astype(np.int64)
    return tables


def _whole(values: Any) -> bool:
    return bool(np.array_equal(values, np.rint(values)) and (np.abs(values) < _EXACT).all())


def _accepted(assessment: PlacesJudged | None, accept: bool, reason: str | None) -> str | None:
    """The reason why a release that misses a floor is written all the same, or None."""
    words = words_of(reason)
    if bool(words) != accept or words == "":
        raise InputError(
            "accept_below_floor and its reason belong together: give both (--accept-below-floor "
            "--reason TEXT), or neither"
        )
    if assessment is None or str(assessment.verdict).lower() != "missed":
        return None
    if not accept:
        why = str(getattr(assessment, "why", "")) or "it misses a floor of places"
        raise DisclosureError(f"{why}. {nothing_written(assessment)}")
    return words


def nothing_written(assessment: PlacesJudged) -> str:
    """What to do where a limit is missed."""
    return (
        f"Nothing was written: {_remedies(assessment)}, or accept it with accept_below_floor and a "
        "reason (--accept-below-floor --reason TEXT)"
    )


def _remedies(assessment: PlacesJudged) -> str:
    """What helps against the limits that are missed."""
    if not isinstance(assessment, PlaceAssessment):
        return "release fewer copies"
    present, found = (bool(one.any()) for one in assessment.too_sure)
    wider, narrower = "fewer and wider cells", "more and narrower cells"
    cells = {(True, False): wider, (False, True): wider if assessment.by_address else narrower}
    out = ["release fewer copies"] if present or found else []
    out += [f"make {cells[present, found]}"] if (present, found) in cells else []
    if present:
        out.append("hold back more records of each cell")
    values = assessment.values
    if values is not None and values.verdict == "missed":
        out.append("smooth more values, by a smaller threshold")
    return ", ".join(out)


def _write_public(
    release: PlacedRelease,
    tables: list[pd.DataFrame],
    folder: Path,
    how: HowWritten,
    made: list[str],
) -> None:
    """The copies, their metadata and the analyst's README."""
    width = max(3, len(str(release.copies)))
    files = [f"copy_{i + 1:0{width}d}.{how.format.name}" for i in range(release.copies)]
    for name, table in zip(files, tables, strict=True):
        how.format.write(quote(table) if how.quoted else table, folder / name, how.as_read, made)
    described = placed_metadata(release, tables, files, quoted=how.quoted, dialect=how.dialect)
    write_json(folder / "metadata.json", described)
    readme = placed_readme(release, files, how.format, how.dialect)
    (folder / "README.md").write_text(readme, encoding="utf-8")
    for path in folder.iterdir():
        path.chmod(0o600)
