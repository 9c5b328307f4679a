"""Write a release: a public folder, and a confidential one beside it.

The whole is written under a temporary name and renamed, so that a killed run
leaves no half release.
"""

from __future__ import annotations

import errno
import json
import math
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pandas as pd

from dsstan.analysis.utility import Utility, utility
from dsstan.copies.chain import GivenSynthesis
from dsstan.copies.published import check_public, held_columns, public_columns, synthetic
from dsstan.core.errors import DisclosureError, InputError, ReleaseError
from dsstan.core.workspace import private_folder
from dsstan.models.result import Fit
from dsstan.release.conditions import conditions
from dsstan.release.exchange import draws_table
from dsstan.release.parquet_copies import write_copies
from dsstan.release.public import analyst_readme, metadata, plain_index, public_table
from dsstan.release.report import factsheet, write_report
from dsstan.release.settings import finite, settings
from dsstan.risk.assessment import Assessment, assess, check_floor
from dsstan.risk.disclosure import Disclosure, disclosure
from dsstan.risk.joint_disclosure import joint_disclosure
from dsstan.table.cells import check_cells, quote, texts
from dsstan.table.parquet import ParquetProblem

if TYPE_CHECKING:
    from dsstan.copies.result import Synthesis

FORMATS = ("csv", "parquet")


def write_release(
    release: Synthesis,
    folder: str | os.PathLike[str],
    *,
    format: str = "csv",
    absolute: float | None = None,
    csv_text: str = "refuse",
    floor: float | None = None,
    assessment: Assessment | None = None,
    accept_below_floor: bool = False,
    report: bool = True,
    analysis: Utility | None = None,
) -> Path:
    """Write the copies for the public, and all the rest for the data steward.

    ``public/`` holds the L copies with the original columns, order and types,
    ``metadata.json``, a README and a fact sheet for the analyst. ``confidential/`` (only its
    owner may enter) holds draws, flags, record-level risks, ``summary.json``,
    ``settings.json`` with seeds and versions, and ``report.html`` for the data steward.

    Parameters
    ----------
    release
        The copies.
    folder
        Must not exist: nothing is overwritten.
    format
        ``"csv"`` or ``"parquet"``, of the copies.
    absolute
        Absolute tolerance of the disclosure measures.
    csv_text
        What to do with text that a spreadsheet would run as a formula; see
        :func:`dsstan.table.cells.check_cells`.
    floor
        Least sd that an intruder should be left with; see :func:`dsstan.assess`.
    assessment
        Of this release, if it is made already; ``absolute`` and ``floor`` are then its own.
    accept_below_floor
        Write the release although records are below the floor.
    report
        Whether to make the two pages, ``report.html`` and ``factsheet.html``.
    analysis
        The regression that the report shows, by default that of the problem's formula.

    Returns
    -------
    Path
        The folder.

    Raises
    ------
    DisclosureError
        If a record is below the floor.
    ReleaseError
        If the folder exists or can't be written, or the copies would reveal the response
        or hold text that a spreadsheet runs.
    """
    target = check_target(folder)
    check_format(format, release.problem.by_row_groups)
    check_public(release)
    check_cells(release.problem.table[held_columns(release)], format, csv_text)
    risks = assessment or measured(release, absolute=absolute, floor=floor, progress=False)
    if isinstance(risks, Assessment) and not accept_below_floor:
        check_reached(risks)
    kept = utility(release) if release.copies > 1 else None
    try:
        with _partial(target) as partial:
            whole = _folder(partial / "whole", 0o700)
            public = _folder(whole / "public", 0o755)
            _write_public(release, public, format, csv_text, page=report)
            confidential = _folder(whole / "confidential", 0o700)
            _write_confidential(release, risks, kept, confidential)
            if report:
                write_report(release, risks, analysis or kept, confidential / "report.html")
            for number, step in enumerate(release.steps[:-1], 1):
                inner = _folder(confidential / f"step_{number}", 0o700)
                shares, own = disclosure(step), utility(step) if step.copies > 1 else None
                _write_confidential(step, shares, own, inner)
                if report:
                    write_report(step, shares, own, inner / "report.html")
            _sync(whole)
            whole.chmod(0o755)
            check_target(target)
            whole.rename(target)
            with suppress(OSError):  # it is there, whole
                _sync_folder(target.parent)
    except OSError as error:
        raise ReleaseError(
            f"the release could not be written to {target}: "
            f"{error.strerror or type(error).__name__}. Nothing was left "
            "behind; free some space or choose another folder"
        ) from None
    except UnicodeError:
        raise ReleaseError(
            "the release could not be written: a column holds text that is no Unicode (a lone "
            "surrogate). Read the table in its right encoding"
        ) from None
    return target


@contextmanager
def _partial(target: Path) -> Iterator[Path]:
    """A private folder beside the target, and a note in the working folder that leads there."""
    with ExitStack() as stack:
        partial = stack.enter_context(private_folder(target.parent, name=f".{target.name}.partial"))
        with suppress(OSError, InputError):  # without the note it is still found beside the target
            stack.enter_context(private_folder(beside=partial))
        yield partial


def _sync(folder: Path) -> None:
    """Have a folder on the disk before its name says that it is whole."""
    for place, _, names in os.walk(folder):
        for name in names:
            _sync_folder(Path(place) / name)
        _sync_folder(Path(place))


def _sync_folder(path: Path) -> None:
    """Have one file or folder on the disk; some file systems can't do it for folders."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(file)


def check_reached(found: Assessment) -> None:
    """Refuse a release that misses its floor.

    Raises
    ------
    DisclosureError
        If a record is below it.
    """
    if found.below_floor.size:
        raise DisclosureError(
            f"{found.floor_remarks()[0]}. Nothing was written: release fewer copies, smooth more, "
            "lower the floor, or accept it with accept_below_floor (--accept-below-floor)"
        )


def measured(
    release: Synthesis,
    *,
    absolute: float | None = None,
    floor: float | None = None,
    progress: bool | None = None,
) -> Assessment | Disclosure:
    """The assessment of a release, or where there can be none the shares near the truth.

    Raises
    ------
    InputError
        If there is a floor, and no assessment to hold it against.
    """
    if can_assess(release):
        return assess(release, absolute=absolute, floor=floor, progress=progress)
    check_floor(floor)
    if floor is not None:
        raise InputError(
            "a floor is compared with the attacker's sd, which needs a Gaussian response without "
            "gaps and an unrestricted fit: leave the floor out"
        )
    return disclosure(release, absolute=absolute)


def can_assess(release: Synthesis) -> bool:
    """Whether the closed forms hold: one Gaussian response without gaps, an unrestricted fit, and
    no predictive process."""
    fits = release.fits.values()
    gaussian = all(fit.outcome == "Gaussian" for fit in fits)
    single = release.problem.n_missing == 0 and len(release.steps) == 1
    free = release.fit.kind == "unrestricted" or release.fit.start is not None
    attacked = all(fit.covariance.has_attacker for fit in fits)
    return gaussian and single and free and attacked


def check_format(format: str, by_row_groups: bool = False) -> None:
    """Refuse a format that is unknown, or that can't be written by row groups."""
    if format not in FORMATS:
        raise InputError(f"format must be csv or parquet, got {format!r}")
    if by_row_groups and format != "parquet":
        raise InputError(
            'a table that is read by row groups is released as Parquet: give format="parquet" '
            "(--format parquet)"
        )


def check_target(folder: str | os.PathLike[str]) -> Path:
    """The folder as an absolute path, if a release can be written there.

    Raises
    ------
    ReleaseError
        If it exists, or its parent does not or can't be written to.
    """
    target = Path(folder).expanduser().absolute()
    if os.path.lexists(target):
        raise ReleaseError(f"{target} exists and is not overwritten; choose another folder")
    if not target.parent.is_dir():
        raise ReleaseError(f"{target.parent} is no folder; make it first")
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise ReleaseError(f"{target.parent} can't be written to")
    return target


def summary(
    release: Synthesis, risks: Disclosure | Assessment, kept: Utility | None
) -> dict[str, Any]:
    """What ``summary.json`` holds; its schema is described in the docs and kept stable."""
    shares = risks.shares if isinstance(risks, Assessment) else risks
    problem, fit = release.problem, release.fit
    free = fit.start if fit.kind == "restricted" else fit
    restricted = fit if fit.kind == "restricted" else None
    fits = {"unrestricted": free, "restricted": restricted}
    verdicts = [f.verdict for step in release.steps for f in step.fits.values()]
    seconds: dict[str, float | None] = {"prepare": problem.seconds}
    seconds |= {name: f.seconds if f else None for name, f in fits.items()}
    seconds |= {"synthesis": release.seconds, "disclosure": risks.seconds}
    return {
        "dataset": problem.name,
        "records": problem.n_records,
        "missing": problem.n_missing,
        "sites": problem.n_sites,
        "flagged": int(fit.flagged.sum()),
        "copies": release.copies,
        "engine": fit.engine,
        "protection": fit.protection,
        "moved_share": release.moved_share,
        "gamma": "infinity" if math.isinf(fit.gamma) else fit.gamma,
        "effect": release.effect,
        "threshold": None if fit.weights is None else finite(fit.weights.threshold),
        "unit": problem.unit,
        "surface_error": max(f.surface_error for f in release.fits.values()),
        "verdict": {
            "passed": all(v.passed for v in verdicts),
            "conditions": conditions(release),
            "failures": [str(c) for v in verdicts for c in v.failures],
            "warnings": [str(c) for v in verdicts for c in v.warnings]
            + list(dict.fromkeys(note for f in release.fits.values() for note in f.notes)),
        },
        "seconds": {key: finite(value) for key, value in seconds.items()},
        "terms": {f"beta_{j}": term for j, term in enumerate(problem.terms)},
        **{name: None if f is None else _posterior(f) for name, f in fits.items()},
        "disclosure": _shares(shares),
        "attacker": risks.summary() if isinstance(risks, Assessment) else None,
        "utility": None if kept is None else _estimates(kept),
        "chain": _chain(release),
    }


def _chain(release: Synthesis) -> dict[str, Any] | None:
    """Columns of a chain, and the mean shares of copies near the truth of all at once."""
    if not isinstance(release, GivenSynthesis):
        return None
    joint = joint_disclosure(release)
    groups = {"flagged": joint["flagged"], "unflagged": ~joint["flagged"]}
    return {
        "columns": [step.problem.response for step in release.steps],
        "all_within_relative": {
            name: finite(float(joint.loc[members, "all"].mean()))
            for name, members in groups.items()
        },
    }


def _posterior(fit: Fit) -> dict[str, dict[str, float | None]]:
    """Posterior summary by parameter."""
    columns = ["mean", "sd", "q025", "q50", "q975", "ess_bulk", "ess_tail", "rhat"]
    table = fit.summary()
    return {
        str(name): {column: finite(float(row[column])) for column in columns}
        for name, row in table.iterrows()
    }


def _shares(risks: Disclosure) -> dict[str, Any]:
    """Mean shares by measure, fit and group."""
    names = {"within_relative": f"within_relative_{100 * risks.relative:g}pct"}
    if risks.absolute is not None:
        names["within_absolute"] = f"within_absolute_{risks.absolute:g}"
    return {
        label: {
            fit: {group: risks.share(measure, fit, group) for group in ("flagged", "unflagged")}
            for fit in ("unrestricted", "restricted")
            if risks.share(measure, fit, "all") is not None
        }
        for measure, label in names.items()
    }


def _estimates(kept: Utility) -> dict[str, Any]:
    """Estimate and interval by source and term."""
    out: dict[str, Any] = {}
    for row in kept.table.to_dict("records"):
        out.setdefault(row["source"], {})[row["term"]] = {
            key: finite(row[key]) for key in ("estimate", "low", "high")
        }
    return out


def _write_public(
    release: Synthesis, folder: Path, format: str, csv_text: str, *, page: bool
) -> None:
    """The copies, their metadata, the analyst's README and the fact sheet."""
    width = max(3, len(str(release.copies)))
    files = [f"copy_{i + 1:0{width}d}.{format}" for i in range(release.copies)]
    plain = plain_index(release.problem.table.index)
    quoting = _quoting(release.problem.table)
    if isinstance(release.problem, ParquetProblem):
        made = synthetic(release)
        paths, columns = [folder / name for name in files], public_columns(release)
        write_copies(release.problem, paths, columns, lambda k: public_table(release, k)[made])
    for number, name in enumerate(() if release.problem.by_row_groups else files):
        table = public_table(release, number)
        if format == "csv":
            table = quote(table) if csv_text == "quote" else table
            table.to_csv(folder / name, index=not plain, quoting=quoting)
        else:
            _parquet(table, folder / name, index=None if plain else True)
    described = metadata(release, files, csv_text=csv_text, format=format)
    _json(folder / "metadata.json", described)
    (folder / "README.md").write_text(analyst_readme(release, files), encoding="utf-8")
    if page:
        (folder / "factsheet.html").write_text(factsheet(described), encoding="utf-8")
    for path in folder.iterdir():
        path.chmod(0o644)  # readable by all, whatever the umask


def _write_confidential(
    release: Synthesis, risks: Disclosure | Assessment, kept: Utility | None, folder: Path
) -> None:
    """Everything that must not be published, but for the report."""
    fit = release.fit
    quoting = _quoting(release.problem.table)  # for its index, which both CSVs have
    for name, f in release.fits.items():
        _parquet(draws_table(f), folder / f"draws_{name}.parquet", index=False)
    if fit.weights is not None:
        table = fit.weights.table(release.problem).drop(columns="geometry", errors="ignore")
        table.to_csv(folder / "flags.csv", quoting=quoting)
    risks.records.to_csv(folder / "risks.csv", quoting=quoting)
    if isinstance(release, GivenSynthesis):
        joint_disclosure(release).to_csv(folder / "joint_risks.csv", quoting=quoting)
    picks = pd.DataFrame(release.draw_index, columns=["chain", "iteration"])
    if release.imputation is not None:
        picks["imputation"] = release.imputation
    picks.index = pd.RangeIndex(1, release.copies + 1, name="copy")
    picks.to_csv(folder / "copies.csv")
    _json(folder / "summary.json", summary(release, risks, kept))
    _json(folder / "settings.json", settings(release))
    for path in folder.iterdir():
        path.chmod(0o600)


def _parquet(table: pd.DataFrame, path: Path, *, index: bool | None) -> None:
    """Write Parquet; to an open file, since Arrow takes no path that is not UTF-8."""
    from pyarrow import ArrowInvalid, ArrowTypeError

    try:
        with open(path, "wb") as stream:
            table.to_parquet(stream, index=index)
    except (ArrowInvalid, ArrowTypeError):
        mixed = [
            str(name)
            for name in table.columns
            if pd.api.types.infer_dtype(table[name], skipna=True).startswith("mixed")
        ]
        named = f"column {mixed[0]!r}" if mixed else "a column or the index"
        raise ReleaseError(
            f"the release can't be written as Parquet: {named} holds values of several kinds. Make "
            "them one kind, for example with astype(str), or publish CSV"
        ) from None


def _quoting(table: pd.DataFrame) -> Literal[0, 2]:
    """How a CSV of these records is quoted: all text, where a cell holds a carriage return.

    Python before 3.13 writes a lone carriage return without quotes, and a reader takes it for the
    end of a row. 0 is csv.QUOTE_MINIMAL and 2 csv.QUOTE_NONNUMERIC.
    """
    held = (isinstance(cell, str) and "\r" in cell for _, text in texts(table) for cell in text)
    return 2 if any(held) else 0


def _folder(path: Path, mode: int) -> Path:
    """Make a folder with exactly these permissions."""
    path.mkdir()
    path.chmod(mode)
    return path


def _json(path: Path, content: dict[str, Any]) -> None:
    """Write readable JSON without NaN; NumPy's numbers, which callers may pass, as plain ones."""
    text = json.dumps(content, indent=2, allow_nan=False, default=lambda value: value.item())
    path.write_text(text + "\n", encoding="utf-8")
