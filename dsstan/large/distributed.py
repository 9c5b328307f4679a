"""Work spread over worker processes, on this machine or on many, by ``dask.distributed``.

:func:`connect` takes a number of workers, the address of a scheduler or a ``distributed.Client``,
and whatever follows is the same for all three. Results come back as they are ready; a worker that
is lost costs the tasks it had, which run again on another. Everything here is confidential: the
workers hold records.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import secrets
import sys
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from dsstan._version import __version__
from dsstan.errors import EngineError, InputError
from dsstan.workspace import private_folder

__all__ = ["Cluster", "Shared", "connect", "held_arrays", "single_threaded"]

_LOG = logging.getLogger("dsstan")

RETRIES = 3
"""Times that a task whose worker was lost, or that failed for want of its data, runs again."""

WAIT = 30
"""Seconds within which a scheduler must answer, and its first worker be there."""

_MOST_HELD = 8
"""Sets of arrays that a worker keeps."""

_THREADS = (
    "NUMBA_NUM_THREADS",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
)


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
        shared: Shared | None = None,
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
            Arrays whose mark and whereabouts are put before the arguments.
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
            if shared is not None:
                if attempt:
                    shared.place()
                before = (shared.mark, shared.where)
            elif first is not None:
                before = (self.scatter(first),)
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="Sending large graph")
                futures = {
                    self.client.submit(
                        *(single_threaded, function, *before, *calls[number]),
                        key=f"{name}-{attempt}-{number}",
                        retries=0 if shared is None else RETRIES,
                        pure=False,
                    ): number
                    for number in waiting
                }
            lost: list[int] = []
            try:
                for future in as_completed(list(futures), loop=self.client.loop):
                    number = futures.pop(future)
                    if future.status == "finished":
                        yield number, future.result()
                    elif future.cancelled():
                        lost.append(number)
                    else:
                        error = future.exception()
                        if _is_killed(error):
                            yield (
                                number,
                                EngineError(
                                    "a task ended the worker processes it ran in, again and again: "
                                    "they may lack memory, or were killed"
                                ),
                            )
                        elif _is_lost(error):
                            lost.append(number)
                        else:
                            yield number, error
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


def single_threaded(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function with one thread for BLAS and one for numba."""
    import numba

    before = numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        with threadpool_limits(limits=1):
            return function(*arguments)
    finally:
        numba.set_num_threads(before)


@contextmanager
def connect(cluster: Any) -> Iterator[Cluster]:
    """Workers to spread work over.

    Parameters
    ----------
    cluster
        A whole number: that many single-threaded worker processes are started on this machine and
        ended with the block. They talk over loopback, encrypted and with a key of their own,
        since otherwise any user of this machine could have them run code; there is no dashboard.
        Their temporary folder is private and is removed. Or the address of a scheduler
        (``"tcp://host:port"``, ``"tls://host:port"``), or a ``distributed.Client``, which stays
        open. Or what this function has yielded before, so that several calls share workers.

    Yields
    ------
    Cluster

    Raises
    ------
    InputError
        If ``distributed`` is not installed, there is no scheduler or no worker, or the workers
        have another version of dsstan.
    """
    if isinstance(cluster, Cluster):
        yield cluster
        return
    _require_distributed()
    from distributed import Client

    if isinstance(cluster, Client):
        if cluster.asynchronous:
            raise InputError("cluster is an asynchronous Client; give one that is not")
    elif isinstance(cluster, bool) or not isinstance(cluster, str | int | np.integer):
        raise InputError(
            "cluster must be a number of worker processes, the address of a scheduler or a "
            f"distributed.Client, got {type(cluster).__name__}"
        )
    elif not isinstance(cluster, str) and cluster < 1:
        raise InputError(f"cluster must be at least 1 worker process, got {cluster}")
    with ExitStack() as stack:
        folder = stack.enter_context(private_folder())
        if isinstance(cluster, Client):
            client = cluster
        elif isinstance(cluster, str):
            client = stack.enter_context(_client_of(cluster))
        else:
            client = stack.enter_context(_local(int(cluster), folder))
        _check_workers(client)
        yield Cluster(client, folder, _reads(client, folder))


def _require_distributed() -> None:
    """Say how to get what is needed."""
    # cryptography makes the keys that keep other users of this machine out.
    for package in ("distributed", "cryptography"):
        if importlib.util.find_spec(package) is None:
            raise InputError(
                f'a cluster needs the Python package {package}: pip install "dsstan[distributed]"'
            )


@contextmanager
def _client_of(address: str) -> Iterator[Any]:
    """A client of a scheduler that runs already."""
    from distributed import Client

    try:
        client = Client(address, timeout=WAIT, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        raise InputError(
            f"there is no scheduler at the address that cluster names ({type(error).__name__})"
        ) from None
    with client:
        yield client


@contextmanager
def _local(workers: int, folder: Path) -> Iterator[Any]:
    """Worker processes on this machine."""
    import dask
    from distributed import Client, LocalCluster
    from distributed.security import Security

    settings = {
        "temporary-directory": str(folder),
        # No pages about the work, and no spilling: records stay in memory.
        "distributed.scheduler.http.routes": [],
        "distributed.worker.http.routes": [],
        "distributed.worker.profile.enabled": False,
        "distributed.nanny.pre-spawn-environ": dict.fromkeys(_THREADS, "1"),
    }
    with ExitStack() as stack:
        stack.enter_context(dask.config.set(settings))
        try:
            cluster = LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                processes=True,
                host="127.0.0.1",
                dashboard_address=None,
                local_directory=str(folder),
                memory_limit=None,
                silence_logs=logging.ERROR,
                security=Security.temporary(),
                protocol="tls",
                env=dict.fromkeys(_THREADS, "1"),
            )
        except RuntimeError as error:
            raise EngineError(
                f"the worker processes could not be started ({type(error).__name__}). A script "
                'that starts some needs the guard if __name__ == "__main__": around what it runs'
            ) from None
        stack.enter_context(_quietly(cluster))
        yield stack.enter_context(_quietly(Client(cluster, set_as_default=False)))


@contextmanager
def _quietly(thing: Any) -> Iterator[Any]:
    """Close a client or a cluster; workers that were killed are no news by then."""
    logger, level = logging.getLogger("distributed"), logging.getLogger("distributed").level
    try:
        yield thing
    finally:
        logger.setLevel(logging.CRITICAL)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                thing.close()
        finally:
            logger.setLevel(level)


def _check_workers(client: Any) -> None:
    """There must be workers, with this dsstan."""
    try:
        client.wait_for_workers(1, timeout=WAIT)
    except TimeoutError:
        raise InputError("the scheduler has no worker: start some first") from None
    mine = _versions()
    try:
        found = client.run(_versions)
    except ImportError:
        raise InputError(f"the workers lack dsstan: install {mine['dsstan']} there") from None
    for theirs in found.values():
        for package, version in mine.items():
            if theirs[package] != version:
                raise InputError(
                    f"a worker has {package} {theirs[package]} and this process {version}: "
                    "install the same one everywhere"
                )


def _versions() -> dict[str, str]:
    """Versions on which the bytes of a result depend."""
    import numba

    found = {"dsstan": __version__, "numba": numba.__version__, "numpy": np.__version__}
    return {"Python": f"{sys.version_info[0]}.{sys.version_info[1]}", **found}


def _reads(client: Any, folder: Path) -> bool:
    """Whether every worker can read a file of the private folder."""
    word, path = secrets.token_hex(16), folder / "word"
    path.write_text(word)
    try:
        return all(found == word for found in client.run(_word, str(path)).values())
    finally:
        path.unlink()


def _word(path: str) -> str | None:
    """On a worker: what a file says; None where it can't be read."""
    try:
        return Path(path).read_text()
    except (OSError, ValueError):
        return None


def _is_killed(error: BaseException | None) -> bool:
    """Whether a task was given up since it took its workers along."""
    from distributed import KilledWorker

    return isinstance(error, KilledWorker)


def _is_lost(error: BaseException | None) -> bool:
    """Whether what a task needed went with a worker."""
    from concurrent.futures import CancelledError

    return isinstance(error, CancelledError)
