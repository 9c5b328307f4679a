"""Sums over records, spread over workers and kept for a run that goes on.

The statistics of Vecchia's approximation are sums over blocks of records, at each node of phi by
itself. A task is one node and some blocks; it gives back the sum of each block, and these are
added in the order of the blocks, as without workers. So the bytes are the same for any
number of workers, however the blocks are dealt out and whichever worker was lost.

The sums of a finished node can be kept in a folder. Whoever starts the run again computes the
rest. Both are confidential: sums over the records tell of them.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dsstan._version import __version__
from dsstan.core.distributed import connect
from dsstan.core.errors import InputError
from dsstan.core.seeds import root_seed
from dsstan.core.workers import Cluster, Shared, held_arrays
from dsstan.core.workspace import write_private
from dsstan.covariance.approximations import Covariance, Vecchia
from dsstan.covariance.vecchia.statistics import VecchiaStatistics

if TYPE_CHECKING:
    from dsstan.covariance.window import PartialStatistics
    from dsstan.table.problem import Problem

__all__ = ["DistributedStatistics", "KeptSums", "kept_seed", "spread"]

Floats = NDArray[np.float64]
Records = NDArray[np.int64]

_LOG = logging.getLogger("dsstan")

MOST_BLOCKS = 64
"""Blocks of a task, at most: a second or so. A task costs Dask some milliseconds."""

TASKS_EACH = 8
"""Tasks for each worker, at least where there are blocks enough, so that none waits for long."""

_FORMAT = "1"
"""Changes with the meaning of what is kept."""


@dataclass(frozen=True, eq=False)
class DistributedStatistics(VecchiaStatistics):
    """Vecchia's statistics, computed by workers, read from a folder, or both.

    Attributes
    ----------
    cluster
        Workers; None computes in this process.
    shared
        What the workers read: sites, a, own, z, neighbours.
    kept
        Sums of finished nodes; None keeps none.
    """

    cluster: Cluster | None = None
    shared: Shared | None = field(default=None, repr=False)
    kept: KeptSums | None = None

    def sums(self, phi: Floats, r: Floats, records: Records | None = None) -> Floats:
        """Statistics at every node; see
        :meth:`dsstan.covariance.vecchia.statistics.VecchiaStatistics.sums`."""
        return self.finished(np.stack(list(self._nodes(phi, r, records))), r, records)

    def at(self, phi: Floats, r: Floats) -> Iterator[Floats]:
        """Scaled statistics at each phi, shape (H, K)."""
        for found in self._nodes(phi, r, None):
            yield self.finished(found[None], r, None)[0]

    def _nodes(self, phi: Floats, r: Floats, records: Records | None) -> Iterator[Floats]:
        """Sums at each phi in its order, shape (K, H)."""
        phi = np.ascontiguousarray(phi, dtype=np.float64)
        r = np.ascontiguousarray(r, dtype=np.float64)
        kept = self.kept
        names = ["" if kept is None else kept.name(value, r, records) for value in phi]
        k = self.z.shape[1]
        shape = (1 + k * (k + 1) // 2, r.size)
        known = {} if kept is None else {name: kept.read(name, shape) for name in names}
        rest = [g for g, name in enumerate(names) if known.get(name) is None]
        compute = self._compute(phi[rest], r, records)
        done: dict[int, Floats] = {}
        for g, name in enumerate(names):
            found = known.get(name)
            while found is None and g not in done:
                at, values = next(compute)
                done[rest[at]] = values
                if kept is not None:
                    kept.write(names[rest[at]], values)
            yield done.pop(g) if found is None else found

    def _compute(
        self, phi: Floats, r: Floats, records: Records | None
    ) -> Iterator[tuple[int, Floats]]:
        """Number and sums of each node, as they are ready."""
        from dsstan.covariance.vecchia.kernels import BLOCK

        some = np.arange(len(self.sites)) if records is None else records
        if self.cluster is None or self.shared is None or some.size == 0:
            for g in range(phi.size):
                yield g, self.block_sums(phi[g : g + 1], r, some).sum(axis=0)[0]
            return
        blocks = -(-some.size // BLOCK)
        fair = -(-blocks * phi.size // (TASKS_EACH * self.cluster.workers))
        # Pieces of one size, but for the last.
        size = BLOCK * -(-blocks // -(-blocks // min(MOST_BLOCKS, max(1, fair))))
        pieces = [(low, min(low + size, some.size)) for low in range(0, some.size, size)]
        with ExitStack() as stack:
            shared = [self.shared]
            if records is not None:
                places = [np.ascontiguousarray(records)]
                shared.append(stack.enter_context(self.cluster.share(places)))
            calls = [(*piece, float(value), r, self.code) for value in phi for piece in pieces]
            each = stack.enter_context(closing(self.cluster.each(block_sums, calls, shared=shared)))
            parts_of: dict[int, dict[int, Floats]] = {}
            for number, result in each:
                if isinstance(result, BaseException):
                    raise result
                g, piece_number = divmod(number, len(pieces))
                mine = parts_of.setdefault(g, {})
                mine[piece_number] = result
                if len(mine) == len(pieces):
                    parts = np.concatenate([mine[i] for i in range(len(pieces))])
                    del parts_of[g]
                    yield g, parts.sum(axis=0)


def block_sums(
    held: list[tuple[str, list[Any]]],
    low: int,
    high: int,
    phi: float,
    r: Floats,
    code: int,
) -> Floats:
    """On a worker: the sums of some blocks at one value of phi.

    Parameters
    ----------
    held
        Marks and whereabouts, see :func:`dsstan.core.workers.held_arrays`: of sites, a, own,
        z and neighbours; and of the places in the ordering that are summed over, if not all are.
    low, high
        From which of them to before which, low at the beginning of a block.
    phi, r, code
        See :func:`dsstan.covariance.vecchia.kernels.node_sums`.

    Returns
    -------
    ndarray
        Shape (blocks, K, H).
    """
    from dsstan.covariance.vecchia.kernels import PARALLEL, node_sums

    data, *places = (held_arrays(*one) for one in held)
    some = np.array(places[0][0][low:high]) if places else np.arange(low, high)
    with PARALLEL:
        return np.asarray(node_sums(*data, some, np.array([phi]), r, code)[:, 0])


class KeptSums:
    """Sums of finished nodes in a private folder, one file each. Confidential.

    A file is an array of NumPy's format and its checksum, written whole and then renamed. Its
    name is a hash of all that the sums depend on, so that sums of other data never match.

    Parameters
    ----------
    folder
        Made if need be; for its owner alone.
    source
        The statistics that the sums are of.
    """

    def __init__(self, folder: Path, source: VecchiaStatistics) -> None:
        self.folder = open_folder(folder)
        self.fingerprint = fingerprint(source)
        self.read_count = self.written_count = 0

    def name(self, phi: float, r: Floats, records: Records | None) -> str:
        """Name of the sums at one value of phi."""
        digest = hashlib.sha256(self.fingerprint)
        digest.update(np.array([float(phi), *r]).tobytes())
        if records is not None:
            digest.update(b"records" + np.asarray(records, dtype=np.int64).tobytes())
        return digest.hexdigest()

    def read(self, name: str, shape: tuple[int, int]) -> Floats | None:
        """Kept sums; None where there are none, or the file is damaged."""
        try:
            content = (self.folder / f"{name}.npy").read_bytes()
            body, checksum = content[:-32], content[-32:]
            if hashlib.sha256(body).digest() != checksum:
                return None
            found = np.load(io.BytesIO(body), allow_pickle=False)
        except (OSError, ValueError, EOFError):
            return None
        if found.shape != shape or found.dtype != np.float64:
            return None
        self.read_count += 1
        return np.asarray(found)

    def write(self, name: str, values: Floats) -> None:
        """Keep sums."""
        body = io.BytesIO()
        np.save(body, np.ascontiguousarray(values), allow_pickle=False)
        content = body.getvalue()
        _write(self.folder / f"{name}.npy", content + hashlib.sha256(content).digest())
        self.written_count += 1


def open_folder(folder: Path) -> Path:
    """A folder for its owner alone, made if need be.

    Raises
    ------
    InputError
        If it can't be made, or belongs to somebody else.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
    except OSError as error:
        raise InputError(
            f"the folder {folder} can't be used to resume: {error.strerror or type(error).__name__}"
        ) from None
    return folder


def _write(path: Path, content: bytes) -> None:
    """Write a file whole."""
    try:
        write_private(path, content)
    except OSError as error:
        raise InputError(
            f"the folder {path.parent} can't be written to: "
            f"{error.strerror or type(error).__name__}"
        ) from None


def fingerprint(source: VecchiaStatistics) -> bytes:
    """Hash of the records, the model and the software that sums depend on."""
    import numba

    from dsstan.covariance.vecchia.kernels import BLOCK

    words = (_FORMAT, __version__, np.__version__, numba.__version__, source.code, BLOCK)
    return _hash(words, source.arrays)


def _hash(words: Sequence[Any], arrays: Sequence[NDArray[Any]]) -> bytes:
    """Hash of words and arrays, each with its shape."""
    digest = hashlib.sha256("\n".join(map(str, words)).encode())
    for one in arrays:
        digest.update(f"\n{one.dtype.str} {one.shape}\n".encode())
        digest.update(np.ascontiguousarray(one).data)
    return digest.digest()


def kept_seed(
    folder: str | os.PathLike[str] | None,
    seed: int | None,
    root: int,
    problem: Problem,
    A: Floats,
    settings: Sequence[Any],
) -> int:
    """The root seed of a fit that may go on: the one given, else that of its first run.

    The nodes depend on the seed, so a fit without one keeps the seed it drew.

    Parameters
    ----------
    folder
        Where finished sums are kept; None keeps none.
    seed, root
        As the caller gave it, and what was made of it.
    problem, A
        The prepared table; the diagonal of A, shape (N,).
    settings
        What else makes another fit.
    """
    if folder is None or seed is not None:
        return root
    words = (_FORMAT, __version__, problem.formula, *settings)
    name = _hash(words, (problem.y, problem.X, problem.sites, A)).hex()
    path = open_folder(Path(folder)) / f"{name}.json"
    try:
        return root_seed(int(json.loads(path.read_text(encoding="utf-8"))["seed"]))
    except (OSError, ValueError, KeyError, TypeError):
        _write(path, json.dumps({"seed": str(root)}).encode())
        return root


def check_spread(covariance: Covariance, cluster: Any, resume: Any) -> None:
    """Refuse workers and a folder where the covariance has no sums over records.

    Raises
    ------
    InputError
        If there is either, and the covariance is not Vecchia's.
    """
    given = [
        name for name, value in (("cluster", cluster), ("resume", resume)) if value is not None
    ]
    if given and not isinstance(covariance, Vecchia):
        raise InputError(
            f"{' and '.join(given)} need sums over records, which Vecchia's approximation has and "
            f'the covariance {covariance.name!r} has not: ask for covariance="vecchia", or leave '
            f"{' and '.join(given)} out"
        )


@contextmanager
def spread(
    source: PartialStatistics,
    cluster: Any = None,
    resume: str | os.PathLike[str] | None = None,
) -> Iterator[PartialStatistics]:
    """The same statistics, computed by workers and kept in a folder where these are given.

    Parameters
    ----------
    source
        The statistics; any but Vecchia's are given back as they are.
    cluster
        See :func:`dsstan.core.distributed.connect`; None computes in this process.
    resume
        Folder of finished sums, for its owner alone; None keeps none. Confidential.
    """
    if (cluster is None and resume is None) or not isinstance(source, VecchiaStatistics):
        yield source
        return
    with ExitStack() as stack:
        kept = None if resume is None else KeptSums(Path(resume), source)
        workers = shared = None
        if cluster is not None:
            workers = stack.enter_context(connect(cluster))
            if len(source.sites):
                shared = stack.enter_context(workers.share(source.arrays))
        yield DistributedStatistics(**vars(source), cluster=workers, shared=shared, kept=kept)
        if kept is not None:
            _LOG.info(
                "sums: %d nodes read, %d computed and kept", kept.read_count, kept.written_count
            )
