"""What the command line shows while it works: its phases, and the time left in the running one."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn
from rich.text import Text

from dsstan.cli.session import SESSION, err
from dsstan.core.progress import Advance, watched_by

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

_PHASE_OF = {"synthesis": "copies", "attack": "disclosure", "compare": "settings"}
"""Where a step is called otherwise than its phase."""

_LEAST_SHARE = 0.02
"""Below, the time left would be a guess from next to nothing."""


@contextmanager
def phases(names: Sequence[str]) -> Iterator[None]:
    """Show these phases on standard error while the block runs.

    Silent where standard error is no terminal, and under ``--quiet``.
    """
    if SESSION.quiet or not err.is_terminal:
        with watched_by(_Silent()):
            yield
        return
    with _Display(err, names) as display, watched_by(display):
        yield


def _nothing(share: float) -> None:
    """Tell nobody."""


class _Silent:
    """A watcher that shows nothing."""

    @contextmanager
    def step(self, label: str) -> Iterator[Advance]:
        yield _nothing


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
