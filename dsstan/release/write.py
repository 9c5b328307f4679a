"""Write a release: a public folder, and a confidential one beside it.

All of it is for its owner alone until it is published (:mod:`dsstan.release.publication.publish`).
"""

from __future__ import annotations

import logging
import math
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from dsstan.analysis.marginals import marginals
from dsstan.analysis.utility import Utility, utility
from dsstan.copies.chain import GivenSynthesis
from dsstan.copies.published import (
    as_collected,
    check_public,
    held_columns,
    synthetic,
    unpublished_columns,
)
from dsstan.models.result import Fit
from dsstan.release.acceptance import accepted_reason
from dsstan.release.conditions import conditions, fit_verdict
from dsstan.release.copy_files import HowWritten, check_copies, how_written, write_copy_files
from dsstan.release.exchange import draws_table
from dsstan.release.pictures.draw import draw_pictures
from dsstan.release.public import analyst_readme, metadata
from dsstan.release.publication.ledger_note import note_for_ledger
from dsstan.release.publication.public_hashes import note_hashes
from dsstan.release.report import factsheet, public_view, write_report
from dsstan.release.settings import finite, settings
from dsstan.release.whole_folder import check_target, inner_folder, release_folder, write_json
from dsstan.risk.assessment import Assessment, measured, unassessed
from dsstan.risk.disclosure import Disclosure
from dsstan.risk.floors import FloorLike
from dsstan.risk.joint_disclosure import joint_disclosure
from dsstan.risk.placing import NEAR
from dsstan.table.formats.arrow import write_parquet
from dsstan.table.text.cells import quoting_of
from dsstan.table.text.dialect import Dialect
from dsstan.table.weights_in_formula import weights_missed

if TYPE_CHECKING:
    from dsstan.comparison.frontier_result import Frontier
    from dsstan.comparison.meet_floor import MetFloor
    from dsstan.copies.result import Synthesis

_LOG = logging.getLogger("dsstan.release")


def write_release(
    release: Synthesis,
    folder: str | os.PathLike[str],
    *,
    format: str | None = None,
    absolute: float | None = None,
    csv_text: str = "refuse",
    floor: FloorLike | None = None,
    attribution: float | None = None,
    assessment: Assessment | None = None,
    accept_below_floor: bool = False,
    reason: str | None = None,
    report: bool = True,
    analysis: Utility | None = None,
    dialect: Dialect | None = None,
    alternatives: MetFloor | Frontier | None = None,
    pictures: bool = False,
) -> Path:
    """Write the copies for the public, and all the rest for the data steward.

    ``public/`` holds the L copies, ``metadata.json``, a README and a fact sheet for the
    analyst. ``confidential/`` holds draws, flags, record-level risks, ``summary.json``,
    ``settings.json`` with seeds and versions, ``report.html`` for the data steward, and
    ``public.sha256``. Only the owner may enter either;
    :func:`dsstan.release.publication.publish.publish` copies the public part to where others may
    read it.

    Parameters
    ----------
    release
        The copies.
    folder
        Must not exist: nothing is overwritten.
    format
        Of the copies, one of :data:`dsstan.table.formats.kinds.FORMAT_NAMES`; by default that of
        the file from which :func:`dsstan.release.reading.read_table` read the table, else CSV.
    absolute
        Absolute tolerance of the disclosure measures.
    csv_text
        What to do with text that a spreadsheet would run as a formula; see
        :func:`dsstan.table.text.cells.check_cells`.
    floor
        What an intruder must be left with, such as ``"10%"`` or 0.05; see :func:`dsstan.assess`.
    attribution
        Largest chance of naming a value exactly; see :func:`dsstan.assess`.
    assessment
        Of this release, if it is made already; ``absolute``, ``floor`` and ``attribution`` are
        then its own.
    accept_below_floor
        Write the release although records are below the floor; it takes a reason.
    reason
        Why that is accepted, kept in ``settings.json`` and ``summary.json``.
    report
        Whether to make the two pages, ``report.html`` and ``factsheet.html``.
    analysis
        The regression that the report shows, by default that of the problem's formula.
    dialect
        How copies in CSV are written, by default as the table was that
        :func:`dsstan.release.reading.read_table` read, else as plain CSV.
    alternatives
        What :func:`dsstan.protect_to` or :func:`dsstan.compare` looked at before; the report
        lists it.
    pictures
        Draw pictures as PNG into ``confidential/pictures``
        (``draw_pictures`` of ``dsstan.release.pictures.draw``).

    Returns
    -------
    Path
        The folder.

    Raises
    ------
    DisclosureError
        If a record is below the floor.
    ReleaseError
        If the folder exists or can't be written, the copies would reveal the response or hold
        text that a spreadsheet runs, or their format does not hold a column as it is.
    """
    target = check_target(folder)
    problem = release.problem
    how = how_written(problem.table, format, csv_text, dialect, by_row_groups=problem.by_row_groups)
    check_public(release)
    _log_columns(release)
    check_copies(problem.table[held_columns(release)], how, synthetic(release))
    risks = assessment or measured(
        release, absolute=absolute, floor=floor, attribution=attribution, progress=False
    )
    accepted = accepted_reason(risks, accept_below_floor, reason)
    kept = utility(release) if release.copies > 1 else None
    with release_folder(target) as whole:
        public = inner_folder(whole / "public")
        _write_public(release, public, how, page=report)
        confidential = inner_folder(whole / "confidential")
        note_hashes(public, confidential)
        names = note_for_ledger(release, risks, confidential)
        _write_confidential(release, risks, kept, confidential, accepted, names[-1])
        if report:
            write_report(
                *(release, risks, analysis or kept, confidential / "report.html"),
                accepted=accepted,
                alternatives=alternatives,
                name=names[-1],
            )
        if pictures:
            draw_pictures(release, risks, analysis or kept, confidential / "pictures")
        for number, step in enumerate(release.steps[:-1], 1):
            inner = inner_folder(confidential / f"step_{number}")
            found, own = unassessed(step), utility(step) if step.copies > 1 else None
            name = names[number - 1]
            _write_confidential(step, found, own, inner, known_as=name)
            if report:
                write_report(step, found, own, inner / "report.html", name=name)
    return target


def _log_columns(release: Synthesis) -> None:
    """Say which columns stay, to a caller who named none."""
    stay = ", ".join(map(str, unpublished_columns(release)))
    if stay and release.problem.publish is None:
        _LOG.warning("Not published: %s; name them in publish = [...]", stay)


def summary(
    release: Synthesis,
    risks: Assessment,
    kept: Utility | None,
    accepted: str | None = None,
    name: str | None = None,
) -> dict[str, Any]:
    """What ``summary.json`` holds; its schema is described in the docs and kept stable."""
    problem, fit = release.problem, release.fit
    free = fit.start if fit.kind == "restricted" else fit
    restricted = fit if fit.kind == "restricted" else None
    fits = {"unrestricted": free, "restricted": restricted}
    verdicts = [f.verdict for step in release.steps for f in step.fits.values()]
    seconds: dict[str, float | None] = {"prepare": problem.seconds}
    seconds |= {name: f.seconds if f else None for name, f in fits.items()}
    seconds |= {"synthesis": release.seconds, "disclosure": risks.seconds}
    return {
        "release": name,
        "dataset": problem.name,
        "records": problem.n_records,
        "missing": problem.n_missing,
        "sites": problem.n_sites,
        "households": None if problem.households is None else asdict(problem.households),
        "flagged": int(fit.flagged.sum()),
        "copies": release.copies,
        "engine": fit.engine,
        "protection": fit.protection,
        "moved_share": release.moved_share,
        "gamma": "infinity" if math.isinf(fit.gamma) else fit.gamma,
        "effect": release.effect,
        "threshold": None if fit.weights is None else finite(fit.weights.threshold),
        "unit": problem.unit,
        "time": None if problem.structure is None else problem.structure.time,
        "time_decay": finite(fit.time_decay),
        "group": None if problem.structure is None else problem.structure.group,
        "group_share": finite(fit.group_share),
        "published_as_collected": as_collected(release),
        "not_published": [str(name) for name in unpublished_columns(release)],
        "survey_weights": _survey(release),
        "surface_error": max(f.surface_error for f in release.fits.values()),
        "fit_verdict": fit_verdict(release),
        "disclosure_verdict": risks.verdict,
        "disclosure_reason": risks.why,
        "accepted_below_floor": accepted,
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
        "disclosure": _shares(risks.shares),
        "attacker": None if risks.after is None else risks.summary(),
        "placing": _placing(risks),
        "marginals": marginals(release).summary(),
        "utility": None if kept is None else _estimates(kept),
        "chain": _chain(release),
    }


def _survey(release: Synthesis) -> dict[str, Any] | None:
    """The survey weights: their column, their sum, and whether every formula holds them."""
    weights = release.problem.survey_weight_values
    if weights is None:
        return None
    return {
        "column": release.problem.survey_weights,
        "sum": float(weights.sum()),
        "in_formula": not any(weights_missed(step.problem) for step in release.steps),
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


def _placing(risks: Assessment) -> dict[str, Any]:
    """By group and stage, how near to the truth intruders place records."""
    out: dict[str, Any] = {}
    for row in risks.placing().to_dict("records"):
        out.setdefault(row["group"], {})[row["stage"]] = {
            "weakest_within": finite(row["within"]),
            "weakest_sd": finite(row["sd"]),
            "placed_near": finite(row["near"]),
            "placed_near_by_public_files": finite(row["public"]),
        }
    return {"near": NEAR, **out}


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


def _write_public(release: Synthesis, folder: Path, how: HowWritten, *, page: bool) -> None:
    """The copies, their metadata, the analyst's README and the fact sheet."""
    width = max(3, len(str(release.copies)))
    files = [f"copy_{i + 1:0{width}d}.{how.format.name}" for i in range(release.copies)]
    write_copy_files(release, [folder / name for name in files], how)
    described = metadata(release, files, quoted=how.quoted, dialect=how.dialect)
    write_json(folder / "metadata.json", described)
    readme = analyst_readme(release, files, how.format, how.dialect)
    (folder / "README.md").write_text(readme, encoding="utf-8")
    if page:
        (folder / "factsheet.html").write_text(
            factsheet(described, public_view(release)), encoding="utf-8"
        )
    for path in folder.iterdir():
        path.chmod(0o600)


def _write_confidential(
    release: Synthesis,
    risks: Assessment,
    kept: Utility | None,
    folder: Path,
    accepted: str | None = None,
    known_as: str | None = None,
) -> None:
    """Everything that must not be published, but for the report."""
    fit = release.fit
    quoting = quoting_of(release.problem.table)  # for its index, which both CSVs have
    for name, f in release.fits.items():
        write_parquet(draws_table(f).reset_index(drop=True), folder / f"draws_{name}.parquet")
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
    write_json(folder / "summary.json", summary(release, risks, kept, accepted, known_as))
    write_json(folder / "settings.json", settings(release, risks.asked, accepted))
    for path in folder.iterdir():
        path.chmod(0o600)
