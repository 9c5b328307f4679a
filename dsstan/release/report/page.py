"""Make the two pages from their templates."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from dsstan.analysis.marginals import marginals
from dsstan.core.files.workspace import write_private
from dsstan.release.metadata import synthetic_columns
from dsstan.release.report import content as _content
from dsstan.release.report import pictures as _pictures
from dsstan.release.report import records as _records
from dsstan.release.report import tables as _tables
from dsstan.release.report.alternatives import alternatives_table
from dsstan.release.report.public_view import PublicView
from dsstan.release.report.rendering import environment
from dsstan.release.report.usefulness import usefulness
from dsstan.release.report.words import figure
from dsstan.release.verdicts import GUESSES, PAPER_SHARES, answer, meanings, verdict_lines
from dsstan.risk.assessment import Assessment

if TYPE_CHECKING:
    from dsstan.analysis.utility import Utility
    from dsstan.comparison.frontier_result import Frontier
    from dsstan.comparison.meet_floor import MetFloor
    from dsstan.copies.result import Synthesis


def write_report(
    release: Synthesis,
    risks: Assessment,
    kept: Utility | None,
    path: str | os.PathLike[str],
    *,
    accepted: str | None = None,
    alternatives: MetFloor | Frontier | None = None,
    name: str | None = None,
) -> Path:
    """Write the data steward's report, one HTML page that asks nothing of any network; its path.

    Confidential: it shows single records. Only its owner may read the file.

    Parameters
    ----------
    release
        The copies.
    risks
        From :func:`dsstan.assess`, or :func:`dsstan.risk.assessment.measured` where there is no
        intruder.
    kept
        From :func:`dsstan.utility`; None for a release of one copy.
    path
        The file. One that exists is replaced at once.
    accepted
        The reason why records below the floor are accepted, if they are.
    alternatives
        What :func:`dsstan.protect_to` or :func:`dsstan.compare` looked at before, if anything.
    name
        Of the release, as ``summary.json`` and the ledger have it.
    """
    shown = _context(release, risks, kept, accepted)
    shown |= {"name": name, "alternatives": alternatives_table(alternatives)}
    page = environment().get_template("report.html").render(shown)
    target = Path(path).expanduser()
    write_private(target, page.encode("utf-8"))
    return target


def factsheet(metadata: Mapping[str, Any], view: PublicView | None = None) -> str:
    """The public fact sheet as HTML.

    It is made of what ``metadata.json`` holds and of the copies, and of nothing else: that list
    of what may be published and the published values are the only ways in.

    Parameters
    ----------
    metadata
        From :func:`dsstan.release.public.metadata`.
    view
        What the copies alone show (:func:`dsstan.release.report.public_view.public_view`).
    """
    return (
        environment()
        .get_template("factsheet.html")
        .render(about=metadata, made=synthetic_columns(metadata), view=view)
    )


def _context(
    release: Synthesis, risks: Assessment, kept: Utility | None, accepted: str | None
) -> dict[str, Any]:
    """Everything that the report's template names of the release."""
    problem, fits = release.problem, release.fits
    whole = None if risks.after is None else risks
    records = _records.record_table(release, risks)
    weakest = _records.weakest(records)
    ringed = None if whole is None else whole.rose_most
    useful, found = usefulness(release), _content.findings(release, risks)
    own = kept is not None and kept.formula == problem.formula
    return {
        "problem": problem,
        "release": release,
        "assessment": whole,
        "verdicts": (lines := verdict_lines(release, risks, accepted)),
        "meanings": meanings(release),
        "answer": answer(lines, [f.title for f in found if f.severity == "warning"], "below"),
        "placing": _tables.placing(risks),
        "guesses": GUESSES,
        "paper_shares": PAPER_SHARES,
        "absence": risks.absence,
        "exact": None if whole is None else _tables.exact(whole),
        "most_learnt": risks.most_learnt_in_words(),
        "effect": risks.effect_of_protection() if risks.before is not None else None,
        "findings": found,
        **_content.data_and_settings(release, risks),
        "posterior": _tables.posterior(fits),
        "checks": _tables.checks(fits),
        "surface_error": figure(max(f.surface_error for f in fits.values())),
        "shares": _tables.shares(risks.shares),
        "worst": _records.worst(records).to_dict("records"),
        "columns": _records.columns(records, problem.unit, f"{100 * risks.shares.relative:g}%"),
        "weakest": None if whole is None else _tables.weakest(weakest, whole),
        "strips": _strips(release, records),
        "distribution": _tables.distribution(marginals(release)),
        "estimates": None
        if kept is None
        else _tables.estimates(kept, useful.spatial if own else None),
        "useful": useful,
        "subgroups": _tables.subgroups(useful.groups, problem.response, problem.survey_weights),
        "provenance": _content.provenance(release),
        "has_flags": bool(np.any(release.fit.flagged)),
        "two_fits": release.fit.kind == "restricted" and whole is not None,
        "ringed": ringed,
        "drawn": _pictures.drawn_of(records),
        "map": _pictures.site_map(problem, records, ringed, weakest),
        "scatter": None if whole is None else _pictures.before_after(problem, records),
        "sizes": {} if whole is None else _pictures.release_size(whole),
        "attacker": None if whole is None else _tables.attacker(whole),
        "floors": None if whole is None else _tables.release_sizes(whole),
        "rose": None if whole is None or ringed is None else whole.remarks()[0],
    }


def _strips(release: Synthesis, records: pd.DataFrame) -> dict[str, Any]:
    """The copies of the weakest flagged and of the weakest other record, by what they are."""
    shown = {}
    flagged = records["flagged"].astype(bool)
    for words, members in (("flagged", flagged), ("not flagged", ~flagged)):
        for row in _records.weakest(records[members], 1).to_dict("records"):
            name = f"Record {row['label']} (row {row['row']}), {words}"
            shown[name] = _pictures.copies_of(release, int(row["row"]))
    return shown
