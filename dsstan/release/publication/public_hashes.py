"""SHA-256 of the public files of a release, noted when they are written.

``confidential/public.sha256`` is what ``sha256sum`` prints, so that ``sha256sum -c`` checks it in
the folder ``public/``.
"""

from __future__ import annotations

import hashlib
import stat
from pathlib import Path

from dsstan.core.errors import ReleaseError

NOTED = "public.sha256"

_PIECE = 1 << 20
_LONGEST = 100_000_000


def note_hashes(public: Path, confidential: Path) -> None:
    """Write the hashes of the files in ``public`` to the confidential side."""
    lines = [f"{digest}  {name}\n" for name, digest in hashes_of(public).items()]
    (confidential / NOTED).write_text("".join(lines), encoding="utf-8")


def hashes_of(public: Path) -> dict[str, str]:
    """SHA-256 of each file of a folder by its name."""
    found = {}
    for path in sorted(public.iterdir()):
        with open(path, "rb") as stream:
            found[path.name] = hashlib.file_digest(stream, "sha256").hexdigest()
    return found


def noted_hashes(confidential: Path) -> dict[str, str]:
    """SHA-256 of each public file by its name, as noted.

    Raises ReleaseError if the note can't be read.
    """
    path = confidential / NOTED
    found = {}
    try:
        if path.stat().st_size > _LONGEST:
            raise ValueError
        for line in path.read_text(encoding="utf-8").splitlines():
            digest, name = line.split("  ", 1)
            whole = len(bytes.fromhex(digest)) == hashlib.sha256().digest_size
            if not whole or Path(name).name != name:
                raise ValueError
            found[name] = digest
    except (OSError, ValueError):
        raise ReleaseError(f"{path} can't be read: make the release again") from None
    return found


def copied(public: Path, hashes: dict[str, str], target: Path) -> None:
    """Copy the public files as they were written, readable by all (0644).

    Each piece is hashed as it is copied, so what is compared is what arrives.

    Raises ReleaseError if a file is missing, changed, not plain or was not written with the
    release; OSError if one can't be copied.
    """
    there = {path.name for path in public.iterdir()}
    for wrong, names in (
        ("is missing from", hashes.keys() - there),
        ("was not written with the release but is in", there - hashes.keys()),
    ):
        if names:
            _changed(f"{min(names)} {wrong} {public}")
    for name, expected in hashes.items():
        source, digest = public / name, hashlib.sha256()
        if not stat.S_ISREG(source.lstat().st_mode):
            _changed(f"{source} is no plain file")
        with open(source, "rb") as reader, open(target / name, "xb") as writer:
            while piece := reader.read(_PIECE):
                digest.update(piece)
                writer.write(piece)
        if digest.hexdigest() != expected:
            _changed(f"{source} was changed since the release was written")
        (target / name).chmod(0o644)


def _changed(what: str) -> None:
    raise ReleaseError(
        f"{what}: nothing was published. Only what was assessed may go out; make the release again"
    )
