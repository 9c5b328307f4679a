"""Progress of long work, for whoever watches: one bar, the command line's phases, or a log.

By default a bar where standard error is a terminal. The command line puts a watcher in its place,
which is told of each step. The log names steps and seconds, never a value of the data.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Protocol

from tqdm import tqdm

Advance = Callable[[float], None]

_LOG = logging.getLogger("dsstan")


class Watcher(Protocol):
    """Whoever is told of each step instead of a bar."""

    def step(self, label: str) -> AbstractContextManager[Advance]:
        """A step begins; it ends with the block. Yields what takes the share done."""
        ...


_watcher: Watcher | None = None


@contextmanager
def watched_by(watcher: Watcher) -> Iterator[None]:
    """Tell this watcher of every step of the block."""
    global _watcher
    before, _watcher = _watcher, watcher
    try:
        yield
    finally:
        _watcher = before


def is_watched() -> bool:
    """Whether a watcher shows progress, so that nobody else should."""
    return _watcher is not None


@contextmanager
def progress_bar(label: str, show: bool | None = None) -> Iterator[Advance]:
    """A bar with the time left; yields a function that takes the share done.

    Parameters
    ----------
    label
        What is going on.
    show
        True or False; by default only in a terminal.
    """
    with _logged(label):
        if _watcher is not None and show is not False:
            with _watcher.step(label) as advance:
                yield advance
            return
        hide = None if show is None else not show
        shape = "{l_bar}{bar}| {elapsed}<{remaining}"
        with tqdm(total=1.0, desc=label, disable=hide, bar_format=shape, leave=False) as bar:

            def tell(share: float) -> None:
                bar.update(max(0.0, min(1.0, share) - bar.n))

            yield tell


@contextmanager
def phase(label: str) -> Iterator[None]:
    """A step of unknown length: for a watcher and the log, no bar of its own."""
    watcher = nullcontext() if _watcher is None else _watcher.step(label)
    with _logged(label), watcher:
        yield


@contextmanager
def _logged(label: str) -> Iterator[None]:
    """Say in the log when a step begins, and how long it took."""
    begin = time.perf_counter()
    _LOG.debug("%s: begins", label)
    yield
    _LOG.info("%s: done in %.1f s", label, time.perf_counter() - begin)
