"""Workers by their number, or on a Dask cluster that runs already."""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Generator, Iterator, Mapping
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from typing import Any

from dsstan.core.errors import DsstanWarning, EngineError, InputError, check_count, is_number
from dsstan.core.executors import (
    KILLED,
    Executor,
    LocalProcesses,
    Name,
    Shared,
    Task,
    single_threaded,
)
from dsstan.core.optional import needed

__all__ = ["DaskCluster", "connect"]

WAIT = 30
"""Seconds within which a scheduler must answer, and its first worker be there."""

VERSIONS = ("python", "dsstan", "numpy", "scipy", "numba", "stanli", "cmdstanpy")
"""Packages whose versions the bytes of a result depend on."""

_LOST = "the scheduler of the workers was lost, or the work was cancelled there"


class DaskCluster(Executor):
    """Tasks on the workers of a Dask cluster, by its ``distributed.Client``.

    Dask runs a task again whose worker is lost, and sends what is shared to workers that join.
    """

    def __init__(self, client: Any) -> None:
        self.client = client

    @property
    def workers(self) -> int:  # type: ignore[override]
        """Number of workers at this moment, at least 1."""
        with _scheduler():
            return max(1, len(self.client.nthreads()))

    def each(
        self, function: Task, calls: Mapping[Name, tuple[Any, ...]]
    ) -> Generator[tuple[Name, Any], None, None]:
        """See ``Executor.each``."""
        from distributed import KilledWorker, as_completed

        if not calls:
            return
        columns = zip(*((function, *call) for call in calls.values()), strict=True)
        with _scheduler(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sending large graph")
            futures = self.client.map(single_threaded, *columns, pure=False)
        names = dict(zip(futures, calls, strict=True))
        del futures  # results are released as they are taken
        try:
            for future in as_completed(list(names), loop=self.client.loop):
                name = names.pop(future)
                try:
                    outcome = future.result()
                except KilledWorker:
                    outcome = EngineError(KILLED)
                except CancelledError:
                    raise EngineError(_LOST) from None
                except Exception as error:
                    outcome = error
                yield name, outcome
        finally:
            with suppress(Exception):
                self.client.cancel(list(names), force=True)

    @contextmanager
    def share(self, thing: Any) -> Iterator[Any]:
        """See ``Executor.share``; a plugin of the workers holds the thing."""
        from distributed import WorkerPlugin

        plugin = WorkerPlugin()
        plugin.name, plugin.thing = f"dsstan-{secrets.token_hex(8)}", thing
        try:
            with _scheduler():
                self.client.register_plugin(plugin)
            yield _OfPlugin(plugin.name)
        finally:
            with suppress(Exception):  # a worker or a scheduler that is gone holds nothing
                self.client.unregister_worker_plugin(plugin.name)


@contextmanager
def _scheduler() -> Iterator[None]:
    """Say so where the scheduler does not answer."""
    try:
        yield
    except (OSError, TimeoutError):
        raise EngineError(_LOST) from None


class _OfPlugin(Shared):
    """Handle of a thing that a plugin of the workers holds."""

    def open(self) -> Any:
        """On a worker: the thing itself."""
        from distributed import get_worker

        return get_worker().plugins[self.mark].thing


@contextmanager
def connect(cluster: Any) -> Iterator[Executor]:
    """Workers to spread work over.

    Parameters
    ----------
    cluster
        A whole number: that many single-threaded worker processes are started on this machine and
        ended with the block. They have pipes and no port, so nobody else reaches them. Or the
        address of a Dask scheduler (``"tcp://host:port"``, ``"tls://host:port"``), or a
        ``distributed.Client``, which stays open. Or what this function has yielded before, so that
        several calls share workers.

    Yields
    ------
    Executor

    Raises
    ------
    InputError
        If there is no scheduler or no worker, the workers have another version of dsstan, or
        ``distributed``, which a cluster needs, is not installed.
    EngineError
        If the processes can't be started.

    Warns
    -----
    DsstanWarning
        If what goes to the workers is not encrypted.
    """
    if isinstance(cluster, Executor):
        yield cluster
    elif is_number(cluster):
        processes = LocalProcesses(check_count("cluster", cluster))
        try:
            processes.start()
            yield processes
        finally:
            processes.end()
    else:
        with _client_of(cluster) as client:
            _check_workers(client)
            if client.scheduler.address.startswith(("tcp:", "ws:")):
                warnings.warn(
                    "the traffic with the workers is not encrypted, and whoever reaches their "
                    "scheduler can run code there: set up TLS (docs/howto/many-machines.md)",
                    DsstanWarning,
                    stacklevel=3,
                )
            yield DaskCluster(client)


@contextmanager
def _client_of(cluster: Any) -> Iterator[Any]:
    """The client given, or one of the scheduler at an address."""
    Client = needed("distributed", "distributed").Client

    if isinstance(cluster, Client):
        if cluster.asynchronous:
            raise InputError("cluster is an asynchronous Client; give one that is not")
        yield cluster
        return
    if not isinstance(cluster, str):
        raise InputError(
            "cluster must be a number of worker processes, the address of a scheduler or a "
            f"distributed.Client, got {type(cluster).__name__}"
        )
    try:
        client = Client(cluster, timeout=WAIT, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        raise InputError(
            f"there is no scheduler at the address that cluster names ({type(error).__name__})"
        ) from None
    with client:
        yield client


def _check_workers(client: Any) -> None:
    """There must be workers, with the versions of this process."""
    try:
        client.wait_for_workers(1, timeout=WAIT)
    except TimeoutError:
        raise InputError("the scheduler has no worker: start some first") from None
    found = client.get_versions(packages=[name for name in VERSIONS if name != "python"])
    for worker in found["workers"].values():
        check_versions(found["client"]["packages"], worker["packages"])


def check_versions(mine: Mapping[str, str | None], theirs: Mapping[str, str | None]) -> None:
    """A worker may lack an engine that sums don't need, but not have another version."""
    for name in VERSIONS:
        here, there = (found.get(name) for found in (mine, theirs))
        if name == "python":  # "3.11.7.final.0"
            here, there = (".".join(str(one).split(".")[:2]) for one in (here, there))
        if name == "dsstan" and there is None is not here:
            raise InputError(f"the workers lack dsstan: install {here} there")
        if None not in (here, there) and here != there:
            raise InputError(
                f"a worker has {name} {there} and this process {here}: install the same one "
                "everywhere"
            )
