"""Vecchia's sums over records, computed by an executor and kept for a run that goes on.

They are sums over blocks of records, at each node of phi by itself. A task is one node and some
blocks; it returns the sum of each block, and these are added in the order of the blocks. So the
bytes are the same for any executor, however the blocks are dealt out and whichever worker is lost.

The sums of a finished node can be kept in a folder. A run that is started again computes the rest.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from dsstan._version import __version__
from dsstan.core.arrays import Floats
from dsstan.core.distributed import connect
from dsstan.core.errors import InputError
from dsstan.core.executors import Executor, ThisProcess
from dsstan.core.files.workspace import keep_private, lasting_folder
from dsstan.core.seeds import root_seed
from dsstan.covariance.base import Covariance
from dsstan.covariance.vecchia.statistics import VecchiaStatistics

if TYPE_CHECKING:
    from dsstan.covariance.window import PartialStatistics
    from dsstan.table.problem import Problem

__all__ = ["DistributedStatistics", "KeptSums", "kept_seed", "spread"]

Records = NDArray[np.int64]

_LOG = logging.getLogger("dsstan")

MOST_BLOCKS = 64
"""Blocks of a task, at most: a second or so. A task costs some milliseconds."""

TASKS_EACH = 8
"""Tasks for each worker, at least where there are blocks enough, so that none waits for long."""

_FORMAT = "2"
"""Changes with the meaning of what is kept."""


@dataclass(frozen=True, eq=False)
class DistributedStatistics(VecchiaStatistics):
    """Vecchia's statistics, computed by an executor unless they are kept.

    Attributes
    ----------
    executor, kept
        What computes the sums of a node, and where those of finished nodes are.
    shared
        Handle of the arrays that a task needs.
    """

    executor: Executor
    kept: KeptSums
    shared: Any = field(repr=False)

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
        phis, k = [float(value) for value in phi], self.z.shape[1]
        r = np.ascontiguousarray(r, dtype=np.float64)
        names = {value: self.kept.name(value, r, records) for value in phis}
        shape = (1 + k * (k + 1) // 2, r.size)
        done = {value: self.kept.read(name, shape) for value, name in names.items()}
        rest = [value for value, found in done.items() if found is None]
        with closing(self._compute(rest, r, records)) as computed:
            for value in phis:
                while (sums := done[value]) is None:
                    at, found = next(computed)
                    done[at] = found
                    self.kept.write(names[at], found)
                yield sums

    def _compute(
        self, phi: Sequence[float], r: Floats, records: Records | None
    ) -> Generator[tuple[float, Floats], None, None]:
        """Each phi and its sums, as they are ready."""
        from dsstan.covariance.vecchia.kernels import BLOCK

        count, workers = len(self.sites) if records is None else records.size, self.executor.workers
        blocks = -(-count // BLOCK)
        fair = -(-blocks * len(phi) // (TASKS_EACH * workers))
        most = blocks if workers == 1 else min(MOST_BLOCKS, max(1, fair))
        size = BLOCK * -(-blocks // -(-blocks // most))  # of all pieces but the last
        pieces = [(low, min(low + size, count)) for low in range(0, count, size)]
        parts: dict[float, dict[int, Floats]] = {value: {} for value in phi}
        with nullcontext() if records is None else self.executor.share((records,)) as places:
            calls = {
                (value, piece[0]): (self.shared, places, *piece, value, r, self.code)
                for value in phi
                for piece in pieces
            }
            with closing(self.executor.each(block_sums, calls)) as each:
                for (value, low), result in each:
                    if isinstance(result, BaseException):
                        raise result
                    parts[value][low] = result
                    if len(parts[value]) == len(pieces):
                        of_all = [part for _, part in sorted(parts.pop(value).items())]
                        yield value, np.concatenate(of_all).sum(axis=0)


def block_sums(
    arrays: tuple[NDArray[Any], ...],
    places: tuple[Records] | None,
    low: int,
    high: int,
    phi: float,
    r: Floats,
    code: int,
) -> Floats:
    """The sums of some blocks at one value of phi, shape (blocks, K, H).

    Parameters
    ----------
    arrays
        Sites, a, own, z and neighbours.
    places
        The places in the ordering that are summed over, if not all are.
    low, high
        From which of them to before which, low at the beginning of a block.
    phi, r, code
        See :func:`dsstan.covariance.vecchia.kernels.node_sums`.
    """
    from dsstan.covariance.vecchia.kernels import PARALLEL, node_sums

    some = np.arange(low, high) if places is None else np.array(places[0][low:high])
    with PARALLEL:
        return np.asarray(node_sums(*arrays, some, np.array([phi]), r, code)[:, 0])


class KeptSums:
    """Sums of finished nodes in a private folder, one file each, or nowhere. Confidential.

    A file is an archive of NumPy's, which has a checksum, written whole and then renamed. Its
    name is a hash of all that the sums depend on, so that sums of other data never match.

    Parameters
    ----------
    folder
        Made if need be; for its owner alone. None keeps none.
    source
        The statistics that the sums are of.
    """

    def __init__(self, folder: Path | None, source: VecchiaStatistics) -> None:
        import numba

        from dsstan.covariance.vecchia.kernels import BLOCK

        self.folder, self.read_count, self.written_count = folder, 0, 0
        if folder is not None:
            words = (_FORMAT, __version__, np.__version__, numba.__version__, source.code, BLOCK)
            self.fingerprint = _hash(words, source.arrays)
            lasting_folder(folder)

    def name(self, phi: float, r: Floats, records: Records | None) -> str:
        """Name of the sums at one value of phi."""
        if self.folder is None:
            return ""
        digest = hashlib.sha256(self.fingerprint)
        digest.update(np.array([float(phi), *r]).tobytes())
        if records is not None:
            digest.update(b"records" + np.asarray(records, dtype=np.int64).tobytes())
        return digest.hexdigest()

    def read(self, name: str, shape: tuple[int, int]) -> Floats | None:
        """Kept sums; None where there are none, or the file is damaged."""
        if self.folder is None:
            return None
        try:
            with np.load(self.folder / f"{name}.npz", allow_pickle=False) as archive:
                found = archive["sums"]
        except (OSError, ValueError, EOFError, KeyError, BadZipFile):
            return None
        if found.shape != shape or found.dtype != np.float64:
            return None
        self.read_count += 1
        return np.asarray(found)

    def write(self, name: str, values: Floats) -> None:
        """Keep sums."""
        if self.folder is not None:
            body = io.BytesIO()
            np.savez(body, sums=values)
            keep_private(self.folder / f"{name}.npz", body.getvalue())
            self.written_count += 1


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
    path = lasting_folder(Path(folder)) / f"{name}.json"
    try:
        return root_seed(int(json.loads(path.read_text(encoding="utf-8"))["seed"]))
    except (OSError, ValueError, KeyError, TypeError):
        keep_private(path, json.dumps({"seed": str(root)}).encode())
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
    if given and not covariance.sums_over_records:
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
        The statistics; any but Vecchia's, or of no records, are returned as they are.
    cluster
        See :func:`dsstan.core.distributed.connect`; None computes in this process.
    resume
        Folder of finished sums, for its owner alone; None keeps none. Confidential.
    """
    nothing = cluster is None and resume is None
    if nothing or not isinstance(source, VecchiaStatistics) or not len(source.sites):
        yield source
        return
    kept = KeptSums(None if resume is None else Path(resume), source)
    with (
        connect(ThisProcess() if cluster is None else cluster) as executor,
        executor.share(source.arrays) as shared,
    ):
        yield DistributedStatistics(**vars(source), executor=executor, kept=kept, shared=shared)
    if resume is not None:
        _LOG.info("sums: %d nodes read, %d computed and kept", kept.read_count, kept.written_count)
