"""Work spread over worker processes, on this machine or on many, by ``dask.distributed``.

:func:`connect` takes a number of workers, the address of a scheduler or a ``distributed.Client``,
and whatever follows is the same for all three. Everything here is confidential: the workers hold
records.
"""

from __future__ import annotations

import logging
import os
import secrets
import sys
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any

import numpy as np
import scipy

from dsstan._version import __version__
from dsstan.core.errors import DsstanWarning, EngineError, InputError
from dsstan.core.optional import needed
from dsstan.core.workers import Cluster
from dsstan.core.workspace import private_folder

__all__ = ["Cluster", "connect", "outcomes"]

WAIT = 30
"""Seconds within which a scheduler must answer, and its first worker be there."""

_THREADS = ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


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
    EngineError
        If the processes can't be started.

    Warns
    -----
    DsstanWarning
        If what goes to the workers is not encrypted.
    """
    if isinstance(cluster, Cluster):
        yield cluster
        return
    # cryptography makes the keys that keep other users of this machine out.
    needed("cryptography", "distributed")
    Client = needed("distributed", "distributed").Client

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
        if client.scheduler.address.startswith(("tcp:", "ws:")):
            warnings.warn(
                "the traffic with the workers is not encrypted, and whoever reaches their "
                "scheduler can run code there: set up TLS (docs/howto/many-machines.md)",
                DsstanWarning,
                stacklevel=3,
            )
        yield Cluster(client, folder, _reads(client, folder))


def outcomes(
    cluster: Any,
    function: Callable[..., Any],
    calls: Mapping[str, tuple[Any, ...]],
    *,
    first: Any = None,
) -> Generator[tuple[str, Any], None, None]:
    """Results of a function on workers by name, as they are ready; an error in place of a result.

    Parameters
    ----------
    cluster
        See :func:`connect`.
    function, first
        See :meth:`dsstan.core.workers.Cluster.each`.
    calls
        The arguments of each task by its name.
    """
    names = list(calls)
    with (
        connect(cluster) as workers,
        closing(workers.each(function, list(calls.values()), first=first)) as each,
    ):
        for number, outcome in each:
            yield names[number], outcome


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
        # Dask sets these in this process, and leaves them there.
        "distributed.nanny.pre-spawn-environ": {},
    }
    with ExitStack() as stack:
        stack.enter_context(dask.config.set(settings))
        stack.enter_context(_same_environment())
        try:
            cluster = LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                processes=True,
                host="127.0.0.1",
                dashboard_address=None,
                scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},  # any port, no pages
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
def _same_environment() -> Iterator[None]:
    """Take back what Dask adds to the environment of this process when it starts a worker."""
    names = ("PYTHONHASHSEED", "__DASK_PARENT_PID")
    before = {name: os.environ.get(name) for name in names}
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


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
        _check_versions(mine, theirs)


def _check_versions(mine: Mapping[str, str], theirs: Mapping[str, str]) -> None:
    """A worker may lack a package that sums don't need, but not have another version."""
    for package, version in mine.items():
        if theirs.get(package, version) != version:
            raise InputError(
                f"a worker has {package} {theirs[package]} and this process {version}: "
                "install the same one everywhere"
            )


def _versions() -> dict[str, str]:
    """Versions on which the bytes of a result depend."""
    import numba

    found = {
        "Python": f"{sys.version_info[0]}.{sys.version_info[1]}",
        **{"dsstan": __version__, "numba": numba.__version__},
        **{"numpy": np.__version__, "scipy": scipy.__version__},
    }
    for engine in ("stanli", "cmdstanpy"):
        with suppress(PackageNotFoundError):
            found[engine] = version_of(engine)
    return found


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
