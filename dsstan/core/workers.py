"""Tasks on worker processes, and what these hold: results as they come, arrays moved once.

A worker that is lost costs the tasks it had. Dask runs them again on another; where the records
that it was sent went with it, they are sent again.
"""

from __future__ import annotations

import logging
import os
import secrets
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from dsstan.core.errors import EngineError

__all__ = ["Cluster", "Shared", "held_arrays", "single_threaded"]

_LOG = logging.getLogger("dsstan")

RETRIES = 3
"""Times that a task that failed for want of its data runs again."""

WAIT = 30
"""Seconds within which workers that were all lost must be there again."""

_MOST_HELD = 8
"""Sets of arrays that a worker keeps."""


@dataclass(frozen=True, eq=False)
class Cluster:
    """Workers that :func:`connect` found or started.

    Attributes
    ----------
    client
        The ``distributed.Client``.
    folder
        Private folder of this process, for what is shared through files.
    files
        Whether every worker can read that folder. If not, data are sent.
    """

    client: Any = field(repr=False)
    folder: Path = field(repr=False)
    files: bool

    @property
    def workers(self) -> int:
        """Number of workers at this moment, at least 1."""
        return max(1, len(self.client.scheduler_info(n_workers=-1)["workers"]))

    @contextmanager
    def share(self, arrays: Sequence[NDArray[Any]]) -> Iterator[Shared]:
        """Put arrays where workers get at them, until the block ends.

        Parameters
        ----------
        arrays
            C-contiguous, none of them empty.
        """
        mark = secrets.token_hex(16)
        shared = Shared(self, mark, tuple(arrays))
        try:
            shared.place()
            yield shared
        finally:
            shared.forget()

    def scatter(self, thing: Any) -> Any:
        """A future of something that every worker gets once."""
        return self.client.scatter(thing, broadcast=True, hash=False)

    def each(
        self,
        function: Callable[..., Any],
        calls: Sequence[tuple[Any, ...]],
        *,
        shared: Sequence[Shared] = (),
        first: Any = None,
    ) -> Generator[tuple[int, Any], None, None]:
        """Results of a function on the workers, as they come.

        BLAS and numba run on one thread each.

        Parameters
        ----------
        function
            A function of a module that the workers can import.
        calls
            The arguments of each task, small.
        shared
            Arrays; a list of their marks and whereabouts is put before the arguments.
        first
            An object that goes before the arguments instead; moved once.

        Yields
        ------
        number, result
            Place among ``calls``; the result, or the exception that the task raised.

        Raises
        ------
        EngineError
            If workers are lost again and again, or the scheduler is.
        """
        from distributed import as_completed

        waiting = list(range(len(calls)))
        name = f"dsstan-{secrets.token_hex(8)}"
        for attempt in range(RETRIES + 1):
            if self.client.status not in ("running", "newly-created"):
                raise EngineError("the scheduler of the workers was lost")
            if attempt:
                _LOG.warning("%d tasks lost their data and run again", len(waiting))
            before: tuple[Any, ...] = ()
            if attempt:
                self._wait()
            if shared:
                for one in shared if attempt else ():
                    one.place()
                before = ([(one.mark, one.where) for one in shared],)
            elif first is not None:
                before = (self.scatter(first),)
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="Sending large graph")
                futures = {
                    self.client.submit(
                        *(single_threaded, function, *before, *calls[number]),
                        key=f"{name}-{attempt}-{number}",
                        retries=RETRIES if shared else 0,
                        pure=False,
                    ): number
                    for number in waiting
                }
            lost: list[int] = []
            try:
                for future in as_completed(list(futures), loop=self.client.loop):
                    number, outcome = futures.pop(future), _outcome(future)
                    if outcome is _LOST:
                        lost.append(number)
                    else:
                        yield number, outcome
            except (OSError, TimeoutError) as error:
                raise EngineError(
                    f"the scheduler of the workers was lost ({type(error).__name__})"
                ) from None
            finally:
                if futures:
                    with suppress(Exception):
                        self.client.cancel(list(futures), force=True)
            if not lost:
                return
            waiting = sorted(lost)
        raise EngineError("workers were lost, and what they held, more often than work is repeated")

    def _wait(self) -> None:
        """Wait for a worker."""
        try:
            self.client.wait_for_workers(1, timeout=WAIT)
        except TimeoutError:
            raise EngineError("all workers were lost") from None


Where: TypeAlias = list[Any]


@dataclass(eq=False)
class Shared:
    """Arrays that workers read from files of the private folder, or were sent once.

    Attributes
    ----------
    cluster
        The workers.
    mark
        A random name, under which a worker keeps them.
    arrays
        The arrays.
    where
        Paths, or futures of the arrays.
    """

    cluster: Cluster
    mark: str
    arrays: tuple[NDArray[Any], ...] = field(repr=False)
    where: Where = field(default_factory=list, repr=False)

    def place(self) -> None:
        """Write or send the arrays, unless they are there."""
        if not self.cluster.files:
            self.where = [self.cluster.scatter(one) for one in self.arrays]
        elif not self.where:
            for number, one in enumerate(self.arrays):
                path = self.cluster.folder / f"{self.mark}-{number}.npy"
                with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as f:
                    np.save(f, one, allow_pickle=False)
                self.where.append(str(path))

    def forget(self) -> None:
        """Have the workers forget the arrays, and remove the files."""
        if self.cluster.files:
            for path in self.where:
                Path(path).unlink(missing_ok=True)
        self.where = []
        with suppress(Exception):  # a worker or the scheduler that is gone holds nothing
            self.cluster.client.run(_forget, self.mark, on_error="ignore")


_HELD: OrderedDict[str, tuple[NDArray[Any], ...]] = OrderedDict()
"""On a worker: arrays by mark."""

_HELD_LOCK = threading.Lock()


def held_arrays(mark: str, where: Where) -> tuple[NDArray[Any], ...]:
    """On a worker: shared arrays, opened once.

    Files are mapped, so that workers of one machine share the memory. Writable, for those are
    what the compiled loops are compiled for; a write would stay with this worker.

    Parameters
    ----------
    mark, where
        Of :class:`Shared`; a future has become its array.
    """
    with _HELD_LOCK:
        if mark not in _HELD:
            _HELD[mark] = tuple(
                np.asarray(np.load(one, mmap_mode="c", allow_pickle=False))
                if isinstance(one, str)
                else np.require(one, requirements=["C", "W"])
                for one in where
            )
            while len(_HELD) > _MOST_HELD:
                _HELD.popitem(last=False)
        _HELD.move_to_end(mark)
        return _HELD[mark]


def _forget(mark: str) -> None:
    """On a worker: drop arrays."""
    with _HELD_LOCK:
        _HELD.pop(mark, None)


# Looking for the libraries takes longer than many a task.
_libraries = cache(ThreadpoolController)


def single_threaded(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function with one thread for BLAS and one for numba."""
    import numba

    before = numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        with _libraries().limit(limits=1):
            return function(*arguments)
    finally:
        numba.set_num_threads(before)


_LOST = object()


def _outcome(future: Any) -> Any:
    """What a task gave back or raised; ``_LOST`` where that, or its data, went with a worker."""
    from concurrent.futures import CancelledError

    from distributed import KilledWorker

    try:
        return future.result()
    except CancelledError:
        return _LOST
    except KilledWorker:
        return EngineError(
            "a task ended the worker processes it ran in, again and again: they may lack memory, "
            "or were killed"
        )
    except Exception as error:
        return error
