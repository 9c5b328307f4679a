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
from dsstan.cli.screen_lines import wrapped
from dsstan.cli.screens import say, show_lines
from dsstan.cli.session import document, emit
from dsstan.core.errors import InputError, ReleaseError
from dsstan.models.checks.conditions import CONDITIONS
from dsstan.release.publication.publish import publications
from dsstan.release.reading import PublicRelease, read_release
from dsstan.release.verdicts import FIT_WORDS
from dsstan.risk.placing import placed_within

NEEDED = ("summary.json", "settings.json", "risks.csv", "copies.csv")
"""What every confidential part holds; ``flags.csv`` and the draws depend on the fits."""

NEEDED_OF_PLACES = ("summary.json", "settings.json", "places.csv", "cells.parquet")
"""The same where places are synthetic."""

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

    Raises InputError if there is no release, or a part of it is missing or damaged.
    """
    folder = folder.expanduser().absolute()
    if not folder.is_dir():
        raise InputError(f"{folder} is no folder, so it is no release")
    try:
        public = read_release(folder)
    except ReleaseError as error:
        raise InputError(f"{folder} holds no whole release: {error}") from None
    place = folder / "public" if (folder / "public").is_dir() else folder
    manual = place / "README.md"
    if manual.is_symlink():
        raise InputError(f"{manual} is a link, which may lead anywhere: get the release again")
    if not manual.is_file():
        raise InputError(f"{place} lacks README.md, which shows an analyst how to combine copies")
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
        "published": [
            {key: getattr(one, key) for key in ("to", "at", "by", "reason", "complete")}
            for one in publications(folder)
        ],
    }


def _public(release: PublicRelease) -> dict[str, Any]:
    """What the public part says of itself."""
    metadata = release.metadata
    sizes = [len(copy) for copy in release]
    keys = ("software", "synthetic_column", "records", "copies", "model", "rounding")
    return {
        **{key: metadata[key] for key in keys},
        "synthetic_columns": list(release.synthetic_columns),
        "columns": list(metadata["columns"]),
        "combining_rule": metadata["combining_rule"],
        "chain": metadata["chain"],
        "survey_weights": release.survey_weights,
        "places": metadata.get("places"),
        "copy_records": [min(sizes), max(sizes)],
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
    placed = metadata.get("places")
    if placed:
        needed = [*NEEDED_OF_PLACES]
    else:
        smoothed = metadata["model"]["protection"] not in ("none", "noise")
        needed = [*NEEDED, "draws_restricted.parquet", "flags.csv"] if smoothed else [*NEEDED]
    missing = [name for name in needed if not (secret / name).is_file()]
    if missing:
        raise InputError(f"{secret} lacks {', '.join(missing)}: the release is not whole")
    try:
        summary = json.loads((secret / "summary.json").read_text(encoding="utf-8"))
        keys = ["records", "copies"]
        if placed and placed["number"] == "drawn":
            keys = ["copies"]  # each copy has a number of its own, which is not the table's
        if [summary[key] for key in keys] != [metadata[key] for key in keys]:
            raise InputError(
                f"{secret / 'summary.json'} is of another release than the public part: records or "
                "copies differ"
            )
        verdict, attacker = summary["verdict"], summary["attacker"]
        words = {
            name: None if summary.get(name) is None else str(summary[name])
            for name in (
                "fit_verdict",
                "disclosure_verdict",
                "disclosure_reason",
                "accepted_below_floor",
            )
        }
        if placed:
            return _steward_of_places(summary, words, secret)
        return {
            "dataset": summary["dataset"],
            "sites": summary["sites"],
            "engine": summary["engine"],
            **words,
            "passed": verdict["passed"],
            "conditions": list(dict.fromkeys(str(c["condition"]) for c in verdict["conditions"])),
            "flagged": summary["flagged"],
            "gamma": summary["gamma"],
            "threshold": summary["threshold"],
            "smallest_sd": None if attacker is None else _smallest(attacker, summary["copies"]),
            "weakest_within": _weakest_within(summary),
            "floor": None if attacker is None else _floor(attacker["floor"]),
            "report": str(secret / "report.html") if (secret / "report.html").is_file() else None,
        }
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"{secret / 'summary.json'} is damaged ({type(error).__name__}): restore the release"
        ) from None


def _steward_of_places(
    summary: Mapping[str, Any], words: Mapping[str, Any], secret: Path
) -> dict[str, Any]:
    """The same of a release with synthetic places."""
    verdict, attacker = summary["verdict"], summary["attacker"]
    return {
        "dataset": summary["dataset"],
        "sites": summary["sites"],
        **words,
        "passed": verdict["passed"],
        "conditions": list(dict.fromkeys(str(c["condition"]) for c in verdict["conditions"])),
        "records": int(summary["records"]),
        "flagged": max(map(int, summary["flagged"]), default=0),
        "lonely": int(summary["lonely"]),
        "cells": int(summary["cells"]),
        "limits": None if attacker is None else attacker["floor"],
        **dict.fromkeys(("smallest_sd", "weakest_within", "floor")),
        "report": str(secret / "report.html") if (secret / "report.html").is_file() else None,
    }


def _limits(asked: str | None) -> str:
    """What was asked of synthetic places, and that nothing was of values."""
    if asked is None:
        return "none was asked for, of presence, finding or values"
    return asked if "values" in asked else f"{asked}; values are not judged"


def _floor(floor: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The floor in words, and the records below it."""
    if floor is None:
        return None
    asked = floor["asked"] if "asked" in floor else f"{floor['sd']:g}"
    return {**floor, "asked": str(asked), "records_below": int(floor["records_below"])}


def _smallest(attacker: Mapping[str, Any], copies: int) -> float | None:
    """Least sd for an intruder who knows all others and the variances, over all records."""
    groups = attacker["restricted"] or attacker["unrestricted"]
    sds = [group[str(copies)]["known"]["smallest"] for group in groups.values()]
    least = min((math.inf if sd is None else float(sd) for sd in sds), default=math.inf)
    return least if math.isfinite(least) else None


def _weakest_within(summary: Mapping[str, Any]) -> float | None:
    """Within which share of its value an intruder who knows all others places the weakest."""
    placing = summary.get("placing") or {}
    groups = [placing[name] for name in ("flagged", "unflagged") if name in placing]
    last = [one.get("restricted", one.get("unrestricted", {})) for one in groups]
    shares = [one["weakest_within"] for one in last if one.get("weakest_within") is not None]
    return min(map(float, shares), default=None)


def _show(found: Mapping[str, Any]) -> None:
    """One screen."""
    _show_public(found)
    if not found["confidential"]:
        return
    mine = found["steward"]
    names = ", ".join(mine["conditions"])
    fit = FIT_WORDS.get(mine["fit_verdict"], "not noted by the version that wrote it")
    _line("FIT", fit + (f" ({names})" if names else ""), None if mine["passed"] else "yellow")
    for name in mine["conditions"]:
        _line("", f"{name}: {CONDITIONS.get(name, 'not met')}", "yellow")
    disclosure = (mine["disclosure_verdict"] or "not judged").upper()
    reason = mine["accepted_below_floor"]
    _line(
        "DISCLOSURE",
        disclosure + (f"; accepted: {reason}" if reason else ""),
        None if disclosure == "MET" else "yellow",
    )
    if disclosure != "MET" and mine["disclosure_reason"]:
        _line("", mine["disclosure_reason"], "yellow")
    records = mine.get("records", found["public"]["records"])
    _line("Flagged", f"{mine['flagged']} of {records} records")
    if "lonely" in mine:
        _line(
            "Lonely", f"{mine['lonely']} of {records} places inform nothing; {mine['cells']} cells"
        )
        _line("Limits", _limits(mine["limits"]))
    within, sd, floor = (mine[name] for name in ("weakest_within", "smallest_sd", "floor"))
    if within is not None:
        _line(
            "Weakest", f"placed within {placed_within(within)} by an intruder who knows the others"
        )
    if sd is not None and within is None:
        _line("Smallest sd", f"{sd:.2g}, modelled scale, by the lower bound of every record")
    if floor is not None:
        below = floor["records_below"]
        _line("Floor", f"{floor['asked']}, {below} record{'' if below == 1 else 's'} below it")
    if mine["report"]:
        say(f"{'Read first:':<13}{mine['report']}")
    for one in found["published"]:
        what = "Published: " if one["complete"] else "Interrupted while published:"
        say(f"{what} {one['to']}, {one['at'][:16].replace('T', ' ')} UTC, by {one['by']}")
        if one["reason"]:
            _line("", f"accepted: {one['reason']}", "yellow")
    if not found["published"]:
        _line("Published", "never; dsstan publish RELEASE --to DIR")
    for name in found["open_to_others"]:
        say(f"OPEN TO OTHERS: {name}; chmod go-rwx it", "yellow")


def _show_public(found: Mapping[str, Any]) -> None:
    """What the public part says of itself."""
    public = found["public"]
    model = public["model"]
    say(f"{'Release:':<13}{found['path']} ({' and '.join(found['parts'])})")
    made = f"made by {public['software']}"
    low, high = public["copy_records"]
    each = f" with {low} to {high} records" if low < high else ""
    whole = found["steward"].get("records") if found["confidential"] else None
    records = whole or (low if low == high else None)
    head = "" if records is None else f"{records}, "
    _line("Records", f"{head}{public['copies']} copies{each}, {made}")
    _line("Synthetic", _synthetic(public))
    if public["places"] is not None:
        _line("Places", f"{public['places']['kind']}, {public['places']['at']}")
    if public["survey_weights"] is not None:
        _line("Weights", f"survey weights in {public['survey_weights']}, as collected")
    steps = public["chain"] or ([] if model is None else [{"model": model}])
    for number, step in enumerate(steps, 1):
        mark = f" {number}" if len(steps) > 1 else ""
        own = step["model"]
        _line(f"Model{mark}", f"{own['formula']}; {own['outcome']}; {own['spatial_effect']}")
        _line(f"Protection{mark}", f"{own['protection']}, carrying {own['effect']}")
    if model is not None:
        _line("Distance", f"{model['distance']}, in {model['unit']}s")
    _line("Rounding", public["rounding"])
    _line("Combine by", public["combining_rule"] or "nothing, there is one copy")


def _synthetic(public: Mapping[str, Any]) -> str:
    """Which columns are synthetic, in words."""
    columns, places = ", then ".join(public["synthetic_columns"]), public["places"]
    if places is None:
        return f"{columns}; all other columns are as collected"
    if places["kind"] == "population":
        return "every column"
    if public["model"] is None:
        return "the places; all other columns are as collected"
    return f"the places, then {columns}; all other columns are as collected"


def _line(label: str, text: str, style: str | None = None) -> None:
    """A label and its text, in lines that end between words."""
    start = f"{label}:" if label else ""
    show_lines(wrapped(f"{start:<13}{text}", style, indent=13))
