"""The confidential side of a release with synthetic places."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dsstan.copies.places.result import PlacedRelease
from dsstan.models.result import Fit
from dsstan.release.exchange import draws_table
from dsstan.release.placed.verdict import conditions_of, judged_of, placed_verdict, surfaces_of
from dsstan.release.settings import finite, fit_settings, versions
from dsstan.release.whole_folder import write_json
from dsstan.table.formats.arrow import write_parquet
from dsstan.table.text.cells import quoting_of

__all__ = ["placed_settings", "placed_summary", "write_confidential"]


def placed_summary(
    release: PlacedRelease, assessment: Any, accepted: str | None, name: str | None
) -> dict[str, Any]:
    """What ``summary.json`` holds."""
    intensity, problem = release.intensity, release.problem
    found = None if assessment is None else assessment.summary()
    conditions = conditions_of(release)
    verdict, why = judged_of(assessment)
    return {
        "release": name,
        "dataset": problem.name,
        "places": release.places,
        "number": release.number,
        "records": problem.n_records,
        "sites": problem.n_sites,
        "cells": intensity.mask.n_cells,
        "mask": intensity.mask.source,
        "groups": dict(
            zip(intensity.groups, intensity.counts.sum(axis=1).astype(int).tolist(), strict=True)
        ),
        "lonely": int(intensity.lonely.sum()),
        "flagged": [int(fit.flagged.sum()) for fit in release.fits],
        "copies": release.copies,
        "published": [str(column) for column in release.tables[0].columns],
        "not_published": list(release.left_out),
        "fit_verdict": placed_verdict(release),
        "disclosure_verdict": verdict,
        "disclosure_reason": why,
        "accepted_below_floor": accepted,
        "verdict": {
            "passed": placed_verdict(release) != "failed",
            "conditions": conditions,
            "warnings": [str(one["condition"]) for one in conditions],
        },
        "attacker": None if found is None else {"floor": found.get("floor")},
        "places_at_risk": found,
        "seconds": {"synthesis": finite(release.seconds)},
    }


def placed_settings(
    release: PlacedRelease, assessment: Any, accepted: str | None
) -> dict[str, Any]:
    """Everything needed to make the same release again. Confidential: it holds the seeds."""
    mask, law = release.intensity.mask, release.intensity.law
    return {
        "versions": versions(),
        "synthesis": {
            "seed": str(release.seed),
            "copies": release.copies,
            "places": release.places,
            "number": release.number,
            "rounding": release.rounding,
            "accepted_failed_fit": release.accepted[0],
            "accepted_few_draws": release.accepted[1],
        },
        "mask": {
            "source": mask.source,
            "cells": mask.n_cells,
            "width": mask.width,
            "addresses": None if mask.addresses is None else len(mask.addresses),
        },
        "intensity": {
            "law": type(law).__name__,
            "held_back": release.intensity.held_back,
        },
        "floor": None
        if assessment is None
        else {
            "asked": assessment.summary().get("floor"),
            "accepted_below": accepted is not None,
            "reason": accepted,
        },
        "fits": [
            {one.kind: fit_settings(one) for one in (fit.start, fit) if one is not None}
            for fit in release.fits
        ],
    }


def write_confidential(
    release: PlacedRelease, assessment: Any, folder: Path, accepted: str | None, name: str | None
) -> None:
    """Everything that must not be published.

    ``cells.parquet`` has the cells with their counts, by group; ``places.csv`` the group, the cell
    and loneliness of each record; ``risks.csv`` what an intruder learns of each, where the
    assessment has such a table.
    """
    intensity, table = release.intensity, release.problem.table
    write_parquet(_cells(release), folder / "cells.parquet")
    records = pd.DataFrame(
        {
            "group": np.asarray(intensity.groups, dtype=object)[intensity.group_index],
            "cell": intensity.cell_index,
            "lonely": intensity.lonely,
        },
        index=table.index,
    )
    quoting = quoting_of(table)
    records.to_csv(folder / "places.csv", quoting=quoting)
    risks = getattr(assessment, "records", None)
    if isinstance(risks, pd.DataFrame):
        risks.to_csv(folder / "risks.csv", quoting=quoting)
    for number, fit in enumerate(release.fits, 1):
        _write_fit(fit, folder, "" if len(release.fits) == 1 else f"_{number}", quoting)
    for kind, fit in surfaces_of(release).items():
        if isinstance(fit, Fit):
            draws = draws_table(fit).reset_index(drop=True)
            write_parquet(draws, folder / f"draws_intensity_{kind}.parquet")
    write_json(folder / "summary.json", placed_summary(release, assessment, accepted, name))
    write_json(folder / "settings.json", placed_settings(release, assessment, accepted))
    for path in folder.iterdir():
        path.chmod(0o600)


def _write_fit(fit: Fit, folder: Path, of: str, quoting: Any) -> None:
    """Draws and flags of the fits behind one column."""
    for one in (fit.start, fit):
        if one is not None:
            draws = draws_table(one).reset_index(drop=True)
            write_parquet(draws, folder / f"draws_{one.kind}{of}.parquet")
    if fit.weights is not None:
        flags = fit.weights.table(fit.problem).drop(columns="geometry", errors="ignore")
        flags.to_csv(folder / f"flags{of}.csv", quoting=quoting)


def _cells(release: PlacedRelease) -> pd.DataFrame:
    """The cells, and how many records of each group are in each and inform it."""
    intensity = release.intensity
    mask = intensity.mask
    columns = {"x": mask.centres[:, 0], "y": mask.centres[:, 1], "exposure": mask.exposure}
    for k, group in enumerate(intensity.groups):
        columns[f"records {group}"] = intensity.counts[k]
        columns[f"informing {group}"] = intensity.informing[k]
    return pd.DataFrame(columns)
