"""Text files, plain or packed by gzip, opened alike."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TextIO, cast

from dsstan.core.errors import InputError

__all__ = ["PACKED", "opened_text", "text_bytes", "written_text"]

PACKED = ".gz"
"""Ending of a file that is packed by gzip."""

MOST_UNPACKED, MOST_TIMES, ANY_TIMES = 2**32, 200, 2**26
"""Bytes that a packed file may hold, and how many times its own size beyond so many bytes: a small
one can be made to unpack to any size, and a table packs to a tenth or so."""


class _Bounded(io.RawIOBase):
    """What a packed file holds, to the most that may be read."""

    def __init__(self, stream: IO[bytes], path: Path) -> None:
        self._stream, self._path, self._read = stream, path, 0
        self._most = min(MOST_UNPACKED, max(MOST_TIMES * path.stat().st_size, ANY_TIMES))

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count: int = cast(Any, self._stream).readinto(buffer)
        self._read += count
        if self._read > self._most:
            raise InputError(
                f"{self._path.name} unpacks to more than {self._most >> 20} MiB: look at what is "
                "in it, and write a table of that size as Parquet"
            )
        return count


@contextmanager
def _bytes(path: Path) -> Iterator[io.BufferedReader]:
    """The file as bytes, unpacked. Raises InputError if it is packed otherwise than by gzip."""
    if not path.name.lower().endswith(PACKED):
        with open(path, "rb") as stream:
            yield stream
        return
    try:
        with gzip.open(path, "rb") as packed:
            yield io.BufferedReader(_Bounded(cast(IO[bytes], packed), path))
    except gzip.BadGzipFile:
        raise InputError(
            f"{path.name} is not packed by gzip, whatever its name says: if it is a plain text "
            f"file, name it {path.name[: -len(PACKED)]}"
        ) from None
    except (EOFError, zlib.error):
        raise InputError(
            f"{path.name} ends too early or is damaged: get it again (gzip -t {path.name} tests it)"
        ) from None


@contextmanager
def opened_text(path: Path, encoding: str) -> Iterator[TextIO]:
    """The text of a file, its line ends as they are.

    Raises InputError if a packed file is no gzip, is damaged or unpacks to too much.
    """
    with _bytes(path) as stream:
        text = io.TextIOWrapper(stream, encoding=encoding, newline="")
        yield text
        text.detach()


def text_bytes(path: Path) -> bytes:
    """All bytes of a text file, unpacked; raises as :func:`opened_text`."""
    with _bytes(path) as stream:
        return stream.read()


@contextmanager
def written_text(path: Path, encoding: str) -> Iterator[TextIO]:
    """A text file to be written, packed where its name says so; line ends go out as they are."""
    with open(path, "wb") as file:
        if not path.name.lower().endswith(PACKED):
            text = io.TextIOWrapper(file, encoding=encoding, newline="")
            yield text
            text.flush()
            return
        # Neither the time nor the name of the file goes into it.
        with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed:
            text = io.TextIOWrapper(cast(Any, packed), encoding=encoding, newline="")
            yield text
            text.flush()
            text.detach()
