"""Known weaknesses of the pinned packages: ``python tests/advisories.py``, or ``make audit``.

An index is asked first, by pip-audit. Where none answers the locks are compared with
``requirements/advisories.json``, which has OSV's form: for each advisory the packages and the
ranges of versions that it affects. The list is made from OSV's export of PyPI (``all.zip``), which
holds the advisories of PyPA and of GitHub, and keeps those of pinned packages:
``make advisories OSV=all.zip``.

Exit code 0: nothing is known against the locks. 1: something is. 2: nobody knows, because no index
answers and the list is old or not whole.
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "requirements" / "advisories.json"

OLDEST = 30
"""Days after which a list no longer clears a lock."""


def pinned(*locks: Path) -> dict[str, str]:
    """Name and version of every package of locks."""
    text = "".join(path.read_text() for path in locks)
    return dict(re.findall(r"^([a-z0-9._-]+)==(\S+)", text, re.MULTILINE))


def known_of(pins: Mapping[str, str], advisories: Iterable[Mapping[str, Any]]) -> list[str]:
    """What is known against pinned versions, one line an advisory."""
    found = []
    for one in advisories:
        for affected in one.get("affected", ()):
            name = canonicalize_name(affected["package"]["name"])
            if name in pins and affects(affected, pins[name]):
                names = ", ".join([one["id"], *one.get("aliases", ())])
                found.append(f"{name} {pins[name]}: {names}")
    return sorted(set(found))


def affects(affected: Mapping[str, Any], version: str) -> bool:
    """Whether a version is listed, or lies in a range of its own package index."""
    if version in affected.get("versions", ()):
        return True
    return any(
        within(span["events"], Version(version))
        for span in affected.get("ranges", ())
        if span["type"] == "ECOSYSTEM"
    )


def within(events: Iterable[Mapping[str, str]], version: Version) -> bool:
    """Whether a version lies in a range: the latest event up to it decides."""
    order = {"introduced": 1, "fixed": 0, "last_affected": 0}
    last = None
    for event in events:
        [(kind, text)] = event.items()
        if kind == "limit":
            continue
        at = Version(text)
        passed = at < version if kind == "last_affected" else at <= version
        if passed and (last is None or (at, order[kind]) > last[:2]):
            last = (at, order[kind], kind)
    return last is not None and last[2] == "introduced"


def refreshed(export: Path, pins: Mapping[str, str]) -> dict[str, Any]:
    """The list of an export of OSV: a zip file with one JSON file an advisory."""
    kept, latest = [], ""
    with zipfile.ZipFile(export) as archive:
        for name in sorted(archive.namelist()):
            record = json.loads(archive.read(name))
            latest = max(latest, record["modified"][:10])
            ours = [
                {
                    "package": {"ecosystem": "PyPI", "name": one["package"]["name"]},
                    "ranges": [r for r in one.get("ranges", ()) if r["type"] == "ECOSYSTEM"],
                    "versions": one.get("versions", []) if not one.get("ranges") else [],
                }
                for one in record.get("affected", ())
                if one["package"]["ecosystem"] == "PyPI"
                and canonicalize_name(one["package"]["name"]) in pins
            ]
            if ours and "withdrawn" not in record:
                head = {"id": record["id"], "modified": record["modified"][:10]}
                kept.append({**head, "aliases": record.get("aliases", []), "affected": ours})
    return {"source": "OSV, PyPI", "as_of": latest, "whole": True, "advisories": kept}


def from_index(locks: Iterable[Path]) -> list[str] | None:
    """What the index knows against the locks, or None where it does not answer for every one."""
    found = []
    for lock in locks:
        with tempfile.NamedTemporaryFile(suffix=".json") as answer:
            command = ["pip_audit", "-r", str(lock), "--require-hashes", "--disable-pip"]
            command += ["-f", "json", "-o", answer.name, "--progress-spinner", "off"]
            subprocess.run([sys.executable, "-m", *command], capture_output=True, check=False)
            text = Path(answer.name).read_text()
        told = json.loads(text)["dependencies"] if text.strip() else [{"skip_reason": "no answer"}]
        if any("skip_reason" in one for one in told):
            return None
        found += [
            f"{one['name']} {one['version']}: {', '.join([known['id'], *known['aliases']])}"
            for one in told
            for known in one["vulns"]
        ]
    return sorted(set(found))


def judged(found: list[str], unsure: str = "") -> tuple[int, str]:
    """Exit code and last line of what was found."""
    if found:
        return 1, "\n".join(["Known weaknesses:", *found, unsure]).strip()
    return (2, unsure) if unsure else (0, "No known weakness")


def doubt(content: Mapping[str, Any], today: datetime.date) -> str:
    """Why a list does not clear a lock; empty where it does."""
    age = (today - datetime.date.fromisoformat(content["as_of"])).days
    reasons = []
    if not content["whole"]:
        reasons.append(f"holds {len(content['advisories'])} advisories of many")
    if age > OLDEST:
        reasons.append(f"is {age} days old, more than {OLDEST}")
    if not reasons:
        return ""
    return (
        f"Nobody knows: no index answers, and the list of advisories {' and '.join(reasons)}. "
        "Fetch OSV's export of PyPI where there is a network: make advisories OSV=all.zip"
    )


def main(arguments: list[str] | None = None) -> int:
    """Audit, or write the list again."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--refresh", type=Path, metavar="ZIP", help="Write the list again.")
    parser.add_argument("--list-only", action="store_true", help="Ask no index.")
    options = parser.parse_args(arguments)
    locks = sorted((ROOT / "requirements").glob("*.txt"))
    pins = pinned(*locks)
    if options.refresh:
        content = refreshed(options.refresh, pins)
        LIST.write_text(json.dumps(content, indent=1) + "\n")
        print(f"{len(content['advisories'])} advisories, the latest of {content['as_of']}")
        return 0
    found = None if options.list_only else from_index(locks)
    if found is not None:
        code, said = judged(found)
    else:
        content = json.loads(LIST.read_text())
        reason = doubt(content, datetime.date.today())
        code, said = judged(known_of(pins, content["advisories"]), reason)
    print(said)
    return code


if __name__ == "__main__":
    sys.exit(main())
