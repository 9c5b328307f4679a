"""Progress of long work, for whoever watches: one bar, the command line's phases, or a log.

By default a bar where standard error is a terminal. The command line puts a watcher in its place,
which is notified of each step. The log names steps and seconds, never a value of the data.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.progress import Progress

Advance = Callable[[float], None]

_LOG = logging.getLogger("dsstan")


class Watcher(Protocol):
    """Receives each step instead of a bar."""

    def step(self, label: str) -> AbstractContextManager[Advance]:
        """A step begins; it ends with the block. Yields what takes the share done."""


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
    with _logged(label), ExitStack() as stack:
        if show is not False and _watcher is None:
            stack.enter_context(_display(show))
        if show is False or _watcher is None:
            yield lambda share: None
        else:
            yield stack.enter_context(_watcher.step(label))


@contextmanager
def _display(show: bool | None) -> Iterator[None]:
    """Bars on standard error as the watcher of the block, so that inner steps join its display."""
    # Imported when the first bar is made, which keeps ``import dsstan`` quick.
    from rich.console import Console
    from rich.progress import Progress, TimeElapsedColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not (show or console.is_terminal):
        yield
        return
    columns = (*Progress.get_default_columns()[:3], TimeElapsedColumn(), TimeRemainingColumn())
    with (
        Progress(*columns, console=console, transient=console.is_terminal) as bars,
        watched_by(_Bars(bars)),
    ):
        yield


class _Bars:
    """A watcher that shows one bar a step."""

    def __init__(self, bars: Progress) -> None:
        self._bars = bars

    @contextmanager
    def step(self, label: str) -> Iterator[Advance]:
        bar = self._bars.add_task(label, total=1.0)
        yield lambda share: self._bars.update(bar, completed=max(0.0, min(1.0, share)))
        self._bars.update(bar, visible=not self._bars.live.transient)


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
