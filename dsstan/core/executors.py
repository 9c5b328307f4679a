"""Where tasks run: in this process, or in processes of this machine.

A Dask cluster (:mod:`dsstan.core.distributed`) has the same interface, so code that has tasks does
not know which it is given. Workers hold records: everything about them is confidential.
"""

from __future__ import annotations

import os
import secrets
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Hashable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context, parent_process
from queue import SimpleQueue
from typing import Any, TypeAlias, TypeVar

from threadpoolctl import ThreadpoolController

from dsstan.core.errors import EngineError

__all__ = ["Executor", "LocalProcesses", "Shared", "ThisProcess", "single_threaded"]

Name = TypeVar("Name", bound=Hashable)
Task: TypeAlias = Callable[..., Any]

ATTEMPTS = 4
"""Times that a task is run whose process dies each time."""

GRACE = 5
"""Seconds in which a task may clean up whose process was left alone."""

KILLED = (
    "a task ended the worker processes it ran in, again and again: they may lack memory, or were "
    "killed"
)


class Executor(ABC):
    """Runs tasks, ``workers`` of them at a time."""

    workers: int

    @abstractmethod
    def each(
        self, function: Task, calls: Mapping[Name, tuple[Any, ...]]
    ) -> Generator[tuple[Name, Any], None, None]:
        """Name and result of each task, as they are ready; an exception in place of a result.

        Worker processes keep BLAS and numba to one thread.

        Parameters
        ----------
        function
            A function of a module that the workers can import.
        calls
            The arguments of each task by its name, small but for what is shared.

        Raises
        ------
        EngineError
            If the scheduler of a cluster is lost.
        """

    @contextmanager
    def share(self, thing: Any) -> Iterator[Any]:
        """A handle to pass among arguments; functions get the thing itself.

        It moves to each worker once, is written nowhere and is released with the block.
        """
        yield thing


class ThisProcess(Executor):
    """Tasks one after another, or in threads."""

    def __init__(self, workers: int = 1) -> None:
        self.workers = workers

    def each(
        self, function: Task, calls: Mapping[Name, tuple[Any, ...]]
    ) -> Generator[tuple[Name, Any], None, None]:
        """See :meth:`Executor.each`."""
        if self.workers == 1:
            for name, call in calls.items():
                yield name, self._outcome(function, *call)
            return
        with ThreadPoolExecutor(self.workers) as pool:
            names = {pool.submit(self._outcome, function, *calls[name]): name for name in calls}
            try:
                for future in as_completed(list(names)):
                    yield names.pop(future), future.result()
            except (KeyboardInterrupt, SystemExit):
                self.end()
                raise
            finally:
                for future in names:
                    future.cancel()

    def _outcome(self, function: Task, *arguments: Any) -> Any:
        """The result of a task, or the exception that it raised."""
        try:
            return self.run(function, *arguments)
        except Exception as error:
            return error

    def run(self, function: Task, *arguments: Any) -> Any:
        """Run a task."""
        return function(*arguments)

    def end(self) -> None:
        """End the tasks that run, where that can be done."""


class LocalProcesses(ThisProcess):
    """Tasks in single-threaded processes of this machine, each reached by pipes of its own.

    A process that dies costs the task it had, which runs again in a new one.
    """

    def __init__(self, workers: int) -> None:
        super().__init__(workers)
        self._idle: SimpleQueue[ProcessPoolExecutor] = SimpleQueue()
        self._pids: dict[ProcessPoolExecutor, int] = {}
        self._shared: dict[str, Any] = {}
        self._ended = False

    def start(self) -> None:
        """Start all processes."""
        with ThreadPoolExecutor(self.workers) as threads:
            for pool in threads.map(lambda _: self._one(), range(self.workers)):
                self._idle.put(pool)

    def _one(self) -> ProcessPoolExecutor:
        """A pool of one process, so that it is known which task a process dies of."""
        pool = ProcessPoolExecutor(1, get_context("spawn"), _begin)
        try:
            self._pids[pool] = pool.submit(os.getpid).result()
        except BrokenProcessPool:
            raise EngineError(
                "the worker processes could not be started. A script that starts some needs the "
                'guard if __name__ == "__main__": around what it runs'
            ) from None
        for mark, thing in self._shared.items():
            pool.submit(_hold, mark, thing)
        return pool

    def run(self, function: Task, *arguments: Any) -> Any:
        """Run a task in a process that has none."""
        pool = self._idle.get()
        try:
            for attempt in range(ATTEMPTS):
                if self._ended:
                    break
                if attempt:
                    del self._pids[pool]
                    pool.shutdown()
                    pool = self._one()
                with suppress(BrokenProcessPool, SystemExit):
                    return pool.submit(single_threaded, function, *arguments).result()
        finally:
            self._idle.put(pool)
        raise EngineError(KILLED)

    def end(self) -> None:
        """End all processes, and what they run."""
        self._ended = True
        for pid in list(self._pids.values()):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        for pool in list(self._pids):
            pool.shutdown()
        self._pids.clear()

    @contextmanager
    def share(self, thing: Any) -> Iterator[Any]:
        """See :meth:`Executor.share`."""
        mark = secrets.token_hex(8)
        self._shared[mark] = thing
        self._everywhere(_hold, mark, thing)
        try:
            yield Shared(mark)
        finally:
            del self._shared[mark]
            self._everywhere(_hold, mark, None)

    def _everywhere(self, function: Task, *arguments: Any) -> None:
        """Call a function in each process, before its next task."""
        for pool in list(self._pids):
            with suppress(BrokenProcessPool):  # it is replaced at its next task
                pool.submit(function, *arguments)


@dataclass(frozen=True)
class Shared:
    """Handle of a thing that a worker holds under a random name."""

    mark: str

    def open(self) -> Any:
        """On a worker: the thing itself."""
        return _HELD[self.mark]


_HELD: dict[str, Any] = {}
"""In a process of :class:`LocalProcesses`: what is shared, by its name."""


def _hold(mark: str, thing: Any) -> None:
    """In a process: hold a thing; None lets it go."""
    _HELD.pop(mark, None)
    if thing is not None:
        _HELD[mark] = thing


def _begin() -> None:
    """In a new process: signals end its task, and it ends with the one that started it."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _leave)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _leave(number: int, _: Any) -> None:
    raise SystemExit(128 + number)


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)  # a task removes what it has written
        time.sleep(GRACE)
        os._exit(1)


# Looking for the libraries takes longer than many a task.
_libraries = cache(ThreadpoolController)


def single_threaded(function: Task, *arguments: Any) -> Any:
    """On a worker: call a function with what is shared, on one thread for BLAS and for numba."""
    import numba

    opened = [one.open() if isinstance(one, Shared) else one for one in arguments]
    before = numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        with _libraries().limit(limits=1):
            return function(*opened)
    finally:
        numba.set_num_threads(before)
