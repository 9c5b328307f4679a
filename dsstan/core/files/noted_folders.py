"""Where this user's private folders have been made, so that leftovers are found later.

A text file in the user's state folder, for its owner alone, with one path a line as JSON. It
holds paths of working folders and nothing of any run.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

from platformdirs import user_state_path

from dsstan.core.files.private_file import write_private

_MOST = 100
_LARGEST = 1_000_000


def _file() -> Path:
    return user_state_path("dsstan") / "working-folders"


def noted_places() -> list[Path]:
    """Every working folder noted that is still there."""
    try:
        if _file().stat().st_size > _LARGEST:
            return []
        lines = _file().read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        with suppress(ValueError):
            path = json.loads(line)
            if isinstance(path, str) and os.path.isabs(path) and os.path.isdir(path):
                found.append(Path(path))
    return found


def note_place(folder: Path) -> None:
    """Note a working folder; one that can't be noted is only not found by itself later."""
    before = noted_places()
    if folder in before:
        return
    with suppress(OSError):
        place = _file()
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lines = [json.dumps(str(path)) for path in (*before[1 - _MOST :], folder)]
        # Two runs may note at once.
        write_private(place, "".join(f"{line}\n" for line in lines).encode())
