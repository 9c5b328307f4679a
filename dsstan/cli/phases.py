"""What the command line shows while it works: its phases, and the time left in the running one."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from threading import Event, Thread

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn
from rich.text import Text

from dsstan.cli.session import SESSION, as_text, err
from dsstan.core.progress import Advance, Watcher, watched_by

RELEASE_PHASES = (
    "reading",
    "unrestricted fit",
    "restricted fit",
    "copies",
    "disclosure",
    "writing",
)
"""Of a release, in their order."""

SEARCH_PHASES = (*RELEASE_PHASES[:2], "plans", *RELEASE_PHASES[2:])
"""Of a release whose protection is searched for; the last but one come once for each setting."""

PLACED_PHASES = ("reading", "places", "fits", "copies", "disclosure", "writing")
"""Of a release with synthetic places."""

_PHASE_OF = {"synthesis": "copies", "attack": "disclosure", "compare": "settings"}
"""Where a step is called otherwise than its phase."""

_LEAST_SHARE = 0.02
"""Below, the time left would be a guess from next to nothing."""


LINE_EVERY = 30.0
"""Seconds between the lines of a long run whose standard error is a file or a pipe."""


@contextmanager
def phases(names: Sequence[str], *, line_every: float = LINE_EVERY) -> Iterator[None]:
    """Show these phases on standard error while the block runs.

    Where standard error is no terminal, one line every ``line_every`` seconds says what goes on.
    Silent under ``--quiet``.
    """
    watcher: AbstractContextManager[Watcher]
    if SESSION.quiet:
        watcher = nullcontext(_Silent())
    elif err.is_terminal:
        watcher = _Display(err, names)
    else:
        watcher = _Lines(err, line_every)
    with watcher as watching, watched_by(watching):
        yield


def _nothing(share: float) -> None:
    """Tell nobody."""


class _Silent:
    """A watcher that shows nothing."""

    @contextmanager
    def step(self, label: str) -> Iterator[Advance]:
        yield _nothing


class _Lines:
    """One line now and then: the time since the start, the running step and the share done."""

    def __init__(self, console: Console, every: float) -> None:
        self._console, self._every = console, every
        self._running: list[tuple[str, list[float]]] = []
        self._over = Event()
        self._thread = Thread(target=self._tell, daemon=True)

    def __enter__(self) -> _Lines:
        self._begin = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    @contextmanager
    def step(self, label: str) -> Iterator[Advance]:
        """A step that lines name until it ends."""
        shares = [0.0]
        self._running.append((label, shares))
        try:
            yield lambda share: shares.__setitem__(0, share)
        finally:
            self._running[:] = [one for one in self._running if one[1] is not shares]

    def _tell(self) -> None:
        """Print the lines until the block is left."""
        while not self._over.wait(self._every):
            running = self._running[-1:]
            for label, (share,) in running:
                name, colon, detail = label.partition(": ")
                shown = _PHASE_OF.get(name, name) + colon + detail
                done = f", {share:.0%} done" if share > 0 else ""
                spent = _clock(time.monotonic() - self._begin)
                self._console.print(
                    as_text(f"{spent} {shown}{done}"), soft_wrap=True, highlight=False
                )


class _Left(ProgressColumn):
    """The time left in the running step, from the share done in the time since it began."""

    max_refresh = 0.5

    def render(self, task: Task) -> Text:
        share = task.completed if task.total else 0.0
        if not task.fields["running"] or not _LEAST_SHARE <= share < 1.0:
            return Text("")
        spent = time.monotonic() - task.fields["since"]
        return Text(f"{_clock(spent * (1.0 - share) / share)} left", style="cyan")


class _Spent(ProgressColumn):
    """The time since a phase began, or that it took."""

    def render(self, task: Task) -> Text:
        elapsed = task.finished_time if task.finished else task.elapsed
        return Text("" if elapsed is None else _clock(elapsed), style="dim")


def _clock(seconds: float) -> str:
    """Minutes and seconds, hours where there are any."""
    whole = round(seconds)
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{hours}:{minutes:02d}:{whole % 60:02d}" if hours else f"{minutes}:{whole % 60:02d}"


class _Display:
    """One line a phase: a mark, its name and step, a bar, the times."""

    def __init__(self, console: Console, names: Sequence[str]) -> None:
        self._progress = Progress(
            TextColumn("{task.fields[mark]}"),
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            _Spent(),
            _Left(),
            console=console,
            transient=True,
        )
        self._tasks: dict[str, TaskID] = {name: self._add(name) for name in names}

    def _add(self, name: str) -> TaskID:
        return self._progress.add_task(
            name, total=1.0, start=False, mark=" ", running=False, since=0.0
        )

    def __enter__(self) -> _Display:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    @contextmanager
    def step(self, label: str) -> Iterator[Advance]:
        """Show a step under its phase; the phases before it are done."""
        name, _, detail = label.partition(": ")
        name = _PHASE_OF.get(name, name)
        if name not in self._tasks:
            self._tasks[name] = self._add(name)
        task = self._tasks[name]
        for other, identity in self._tasks.items():
            if other == name:
                break
            self._done(other, identity)
        shown = f"{name}: {detail}" if detail else name
        self._progress.start_task(task)
        self._progress.update(
            task,
            total=None,  # the bar pulses until the share done is known
            completed=0.0,
            description=shown,
            mark="[cyan]>[/]",
            running=True,
            since=time.monotonic(),
        )

        def advance(share: float) -> None:
            # Not quite 1: a phase of several steps is done when the next one begins.
            self._progress.update(task, total=1.0, completed=min(0.999, max(0.0, share)))

        yield advance
        self._progress.update(task, total=None, running=False)

    def _done(self, name: str, task: TaskID) -> None:
        """Mark a phase as done."""
        state = self._progress.tasks[self._progress.task_ids.index(task)]
        if not state.finished and state.start_time is not None:
            self._progress.update(
                task, description=name, total=1.0, completed=1.0, mark="[green]done[/]"
            )
