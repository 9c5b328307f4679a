"""Private temporary folders for what must not outlive a run."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def private_folder(parent: str | os.PathLike[str] | None = None) -> Iterator[Path]:
    """A folder only its owner can enter, removed however the block is left.

    Parameters
    ----------
    parent
        Where to make it; by default ``DSSTAN_WORKDIR``, else the system's
        folder for temporary files.
    """
    base = parent if parent is not None else os.environ.get("DSSTAN_WORKDIR") or None
    folder = Path(tempfile.mkdtemp(prefix="dsstan-", dir=base))
    folder.chmod(0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
