"""The command ``dsstan inspect``: what a release folder holds, and whether it is whole."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from dsstan.cli.options import AsJson
from dsstan.cli.screens import say
from dsstan.cli.session import document, emit
from dsstan.core.errors import InputError, ReleaseError
from dsstan.release.reading import PublicRelease, read_release

NEEDED = ("summary.json", "settings.json", "risks.csv", "copies.csv")
"""What every confidential part holds; ``flags.csv`` and the draws depend on the fits."""

OTHERS = 0o077


def inspect_command(
    release: Annotated[
        Path, typer.Argument(metavar="RELEASE", help="A release folder, or its public part alone.")
    ],
    as_json: AsJson = False,
) -> None:
    """Check a release folder and show what it is."""
    found = inspect_release(release)
    if as_json:
        emit(document("inspect", **found))
        return
    _show(found)


def inspect_release(folder: Path) -> dict[str, Any]:
    """What a release is, as plain values; confidential where its confidential part is read.

    Raises
    ------
    InputError
        If there is no release, or a part of it is missing or damaged.
    """
    folder = folder.expanduser().absolute()
    if not folder.is_dir():
        raise InputError(f"{folder} is no folder, so it is no release")
    try:
        public = read_release(folder)
    except ReleaseError as error:
        raise InputError(f"{folder} holds no whole release: {error}") from None
    place = folder / "public" if (folder / "public").is_dir() else folder
    if not (place / "README.md").is_file():
        raise InputError(f"{place} lacks README.md, which tells an analyst how to combine copies")
    secret = folder / "confidential"
    what = {"path": folder, "public": _public(public)}
    if place == folder or not secret.is_dir():
        return {"confidential": False, "parts": ["public"], **what}
    if not os.access(secret, os.R_OK | os.X_OK):
        return {"confidential": False, "parts": ["public", "confidential (not readable)"], **what}
    return {
        "confidential": True,
        "parts": ["public", "confidential"],
        **what,
        "open_to_others": _open_to_others(secret),
        "steward": _steward(secret, public.metadata),
    }


def _public(release: PublicRelease) -> dict[str, Any]:
    """What the public part says of itself."""
    metadata = release.metadata
    keys = ("software", "synthetic_column", "records", "copies", "model", "rounding")
    return {
        **{key: metadata[key] for key in keys},
        "synthetic_columns": list(release.synthetic_columns),
        "columns": list(metadata["columns"]),
        "combining_rule": metadata["combining_rule"],
        "chain": metadata["chain"],
    }


def _open_to_others(secret: Path) -> list[str]:
    """What others than the owner may read or enter, and must not."""
    found = []
    for path in (secret, *sorted(secret.rglob("*"))):
        mode = path.lstat().st_mode
        if mode & OTHERS and not path.is_symlink():
            found.append(f"{path.relative_to(secret.parent)} ({mode & 0o777:04o})")
    return found


def _steward(secret: Path, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """What the confidential part says first, once all of it is there."""
    protected = metadata["model"]["protection"] != "none"
    needed = [*NEEDED, "draws_restricted.parquet", "flags.csv"] if protected else [*NEEDED]
    missing = [name for name in needed if not (secret / name).is_file()]
    if missing:
        raise InputError(f"{secret} lacks {', '.join(missing)}: the release is not whole")
    try:
        summary = json.loads((secret / "summary.json").read_text(encoding="utf-8"))
        same = [summary["records"], summary["copies"]] == [metadata["records"], metadata["copies"]]
        if not same:
            raise InputError(
                f"{secret / 'summary.json'} is of another release than the public part: records or "
                "copies differ"
            )
        verdict, attacker = summary["verdict"], summary["attacker"]
        return {
            "dataset": summary["dataset"],
            "sites": summary["sites"],
            "engine": summary["engine"],
            "passed": verdict["passed"],
            "conditions": list(dict.fromkeys(c["condition"] for c in verdict["conditions"])),
            "flagged": summary["flagged"],
            "gamma": summary["gamma"],
            "threshold": summary["threshold"],
            "smallest_sd": None if attacker is None else _smallest(attacker, summary["copies"]),
            "floor": None if attacker is None else attacker["floor"],
            "report": str(secret / "report.html") if (secret / "report.html").is_file() else None,
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"{secret / 'summary.json'} is damaged ({type(error).__name__}): restore the release"
        ) from None


def _smallest(attacker: Mapping[str, Any], copies: int) -> float | None:
    """Least sd for an intruder who knows all others and the variances, over all records."""
    groups = attacker["restricted"] or attacker["unrestricted"]
    sds = [group[str(copies)]["known"]["smallest"] for group in groups.values()]
    least = min((math.inf if sd is None else float(sd) for sd in sds), default=math.inf)
    return least if math.isfinite(least) else None


def _show(found: Mapping[str, Any]) -> None:
    """One screen."""
    public = found["public"]
    model = public["model"]
    say(f"Release:    {found['path']} ({' and '.join(found['parts'])})")
    say(f"Records:    {public['records']}, {public['copies']} copies, made by {public['software']}")
    made = ", then ".join(public["synthetic_columns"])
    say(f"Synthetic:  {made}; all other columns are as collected")
    steps = public["chain"] or [{"model": model}]
    for number, step in enumerate(steps, 1):
        mark = f" {number}" if len(steps) > 1 else "  "
        own = step["model"]
        say(f"Model:{mark}    {own['formula']}; {own['outcome']}; {own['spatial_effect']}")
        say(f"Protection:{mark.rstrip()} {own['protection']}, carrying {own['effect']}")
    say(f"Distance:   {model['distance']}, in {model['unit']}")
    say(f"Rounding:   {public['rounding']}")
    say(f"Combine by: {public['combining_rule'] or 'nothing, there is one copy'}")
    if not found["confidential"]:
        return
    mine = found["steward"]
    names = ", ".join(mine["conditions"])
    say(
        f"Verdict:    {'passed' if mine['passed'] else 'FAILED, and accepted by its maker'}"
        + (f" ({names})" if names else ""),
        None if mine["passed"] else "yellow",
    )
    say(f"Flagged:    {mine['flagged']} of {public['records']} records")
    sd = mine["smallest_sd"]
    if sd is not None:
        say(f"Smallest sd left to an intruder who knows all others: {sd:.2g}, modelled scale")
    floor = mine["floor"]
    if floor is not None:
        say(f"Floor:      {floor['sd']:g}, {floor['records_below']} records below it")
    if mine["report"]:
        say(f"Read first: {mine['report']}")
    for name in found["open_to_others"]:
        say(f"OPEN TO OTHERS: {name}; chmod go-rwx it", "yellow")
