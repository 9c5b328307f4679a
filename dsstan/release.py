"""Write a release: a public folder, and a confidential one beside it.

The whole is written under a temporary name and renamed, so that a killed run
leaves no half release.
"""

from __future__ import annotations

import json
import math
import os
import platform
import shutil
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from dsstan._version import __version__
from dsstan.disclosure import Disclosure, disclosure
from dsstan.errors import InputError, ReleaseError
from dsstan.fit import Fit
from dsstan.public import analyst_readme, check_public, metadata, public_table
from dsstan.utility import Utility, utility

if TYPE_CHECKING:
    from dsstan.synthesis import Synthesis

FORMATS = ("csv", "parquet")


def write_release(
    release: Synthesis,
    folder: str | os.PathLike[str],
    *,
    format: str = "csv",
    absolute: float | None = None,
) -> Path:
    """Write the copies for the public, and all the rest for the data steward.

    ``public/`` holds the L copies with the original columns, order and types,
    ``metadata.json`` and a README for the analyst. ``confidential/`` (only its
    owner may enter) holds draws, flags, record-level risks, ``summary.json``,
    ``settings.json`` with seeds and versions.

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

    Returns
    -------
    Path
        The folder.

    Raises
    ------
    ReleaseError
        If the folder exists or can't be written.
    """
    target = check_target(folder)
    check_public(release)
    if format not in FORMATS:
        raise InputError(f"format must be csv or parquet, got {format!r}")
    risks = disclosure(release, absolute=absolute)
    kept = utility(release) if release.copies > 1 else None
    partial: Path | None = None
    try:
        partial = Path(tempfile.mkdtemp(prefix=f".{target.name}.partial-", dir=target.parent))
        _write_public(release, _folder(partial / "public", 0o755), format)
        _write_confidential(release, risks, kept, _folder(partial / "confidential", 0o700))
        partial.chmod(0o755)
        check_target(target)
        partial.rename(target)
    except OSError as error:
        raise ReleaseError(
            f"the release could not be written to {target}: "
            f"{error.strerror or type(error).__name__}. Nothing was left "
            "behind; free some space or choose another folder"
        ) from None
    finally:
        if partial is not None and partial.exists():
            shutil.rmtree(partial, ignore_errors=True)
    return target


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


def summary(release: Synthesis, risks: Disclosure, kept: Utility | None) -> dict[str, Any]:
    """What ``summary.json`` holds; its schema is described in the docs and kept stable."""
    problem, fit = release.problem, release.fit
    free = fit.start if fit.kind == "restricted" else fit
    restricted = fit if fit.kind == "restricted" else None
    fits = {"unrestricted": free, "restricted": restricted}
    verdicts = [f.verdict for f in fits.values() if f is not None]
    seconds: dict[str, float | None] = {"prepare": problem.seconds}
    seconds |= {name: f.seconds if f else None for name, f in fits.items()}
    seconds |= {"synthesis": release.seconds, "disclosure": risks.seconds}
    return {
        "dataset": problem.name,
        "records": problem.n_records,
        "sites": problem.n_sites,
        "flagged": int(fit.flagged.sum()),
        "copies": release.copies,
        "engine": fit.engine,
        "protection": fit.protection,
        "moved_share": release.moved_share,
        "gamma": "infinity" if math.isinf(fit.gamma) else fit.gamma,
        "effect": release.effect,
        "threshold": None if fit.weights is None else _number(fit.weights.threshold),
        "unit": problem.unit,
        "surface_error": max(f.surface_error for f in fits.values() if f is not None),
        "verdict": {
            "passed": all(v.passed for v in verdicts),
            "failures": [str(c) for v in verdicts for c in v.failures],
            "warnings": [str(c) for v in verdicts for c in v.warnings]
            + [note for f in fits.values() if f is not None for note in f.notes],
        },
        "seconds": {key: _number(value) for key, value in seconds.items()},
        "terms": {f"beta_{j}": term for j, term in enumerate(problem.terms)},
        **{name: None if f is None else _posterior(f) for name, f in fits.items()},
        "disclosure": _shares(risks),
        "utility": None if kept is None else _estimates(kept),
    }


def _posterior(fit: Fit) -> dict[str, dict[str, float | None]]:
    """Posterior summary by parameter."""
    columns = ["mean", "sd", "q025", "q50", "q975", "ess_bulk", "ess_tail", "rhat"]
    table = fit.summary()
    return {
        str(name): {column: _number(float(row[column])) for column in columns}
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
            key: _number(row[key]) for key in ("estimate", "low", "high")
        }
    return out


def _number(value: float | None) -> float | None:
    """A finite number, or None: JSON knows no NaN."""
    return float(value) if value is not None and math.isfinite(value) else None


def _write_public(release: Synthesis, folder: Path, format: str) -> None:
    """The copies, their metadata and the analyst's README."""
    width = max(3, len(str(release.copies)))
    files = [f"copy_{i + 1:0{width}d}.{format}" for i in range(release.copies)]
    index = release.problem.table.index
    plain_index = index.name is None and index.equals(pd.RangeIndex(len(index)))
    for number, name in enumerate(files):
        table = public_table(release, number)
        if format == "csv":
            table.to_csv(folder / name, index=not plain_index)
        else:
            table.to_parquet(folder / name, index=None if plain_index else True)
    _json(folder / "metadata.json", metadata(release, files))
    (folder / "README.md").write_text(analyst_readme(release, files), encoding="utf-8")
    for path in folder.iterdir():
        path.chmod(0o644)  # readable by all, whatever the umask


def _write_confidential(
    release: Synthesis, risks: Disclosure, kept: Utility | None, folder: Path
) -> None:
    """Everything that must not be published."""
    fit = release.fit
    fits = [f for f in (fit.start, fit) if f is not None]
    for f in fits:
        draws_table(f).to_parquet(folder / f"draws_{f.kind}.parquet", index=False)
    if fit.weights is not None:
        fit.weights.table(release.problem).to_csv(folder / "flags.csv")
    risks.records.to_csv(folder / "risks.csv")
    picks = pd.DataFrame(release.draw_index, columns=["chain", "iteration"])
    picks.index = pd.RangeIndex(1, release.copies + 1, name="copy")
    picks.to_csv(folder / "copies.csv")
    _json(folder / "summary.json", summary(release, risks, kept))
    _json(folder / "settings.json", settings(release))
    for path in folder.iterdir():
        path.chmod(0o600)


def draws_table(fit: Fit) -> pd.DataFrame:
    """Posterior draws, one row a draw: chain, iteration, parameters. Confidential."""
    chains, samples = fit.draws["sigma_sq"].shape
    frame = {
        "chain": np.repeat(np.arange(chains), samples),
        "iteration": np.tile(np.arange(samples), chains),
    }
    return pd.DataFrame(frame | {name: d.ravel() for name, d in fit.scalars.items()})


def settings(release: Synthesis) -> dict[str, Any]:
    """Everything needed to make the same release again. Confidential: it holds the seeds."""
    fit = release.fit
    packages = ("numpy", "scipy", "pandas", "formulaic", "arviz-stats")
    return {
        "versions": {
            "dsstan": __version__,
            "python": platform.python_version(),
            **{name: version(name) for name in packages},
        },
        "synthesis": {
            "seed": str(release.seed),
            "copies": release.copies,
            "effect": release.effect,
            "accepted_failed_fit": release.accepted[0],
            "accepted_few_draws": release.accepted[1],
        },
        "fits": {f.kind: _fit_settings(f) for f in (fit.start, fit) if f is not None},
    }


def _fit_settings(fit: Fit) -> dict[str, Any]:
    """Settings of one fit."""
    weights = fit.weights
    return {
        "seed": str(fit.seed),
        "engine": fit.engine_version,
        "program": fit.program,
        "program_sha256": fit.fingerprint,
        "sampler": vars(fit.settings),
        "nodes": list(fit.nodes),
        "protection": fit.protection,
        "gamma": "infinity" if math.isinf(fit.gamma) else fit.gamma,
        "phi_held": fit.phi_held,
        "priors": vars(fit.priors),
        "weights": None
        if weights is None
        else {
            "rule": weights.rule,
            "threshold": _number(weights.threshold),
            "correlation": _number(weights.correlation),
            "neighbour": weights.neighbour,
            "by_site": weights.by_site,
        },
        "verdict": str(fit.verdict),
    }


def _folder(path: Path, mode: int) -> Path:
    """Make a folder with exactly these permissions."""
    path.mkdir()
    path.chmod(mode)
    return path


def _json(path: Path, content: dict[str, Any]) -> None:
    """Write readable JSON without NaN; NumPy's numbers, which callers may pass, as plain ones."""
    text = json.dumps(content, indent=2, allow_nan=False, default=lambda value: value.item())
    path.write_text(text + "\n", encoding="utf-8")
