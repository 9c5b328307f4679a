"""The Stan programs: where they are, what they include, and their fingerprint."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from dsstan.core.errors import EngineError
from dsstan.core.resources import stan_folder

_INCLUDE = re.compile(r"^\s*#include\s+(\S+)\s*$", re.MULTILINE)


@dataclass(frozen=True)
class Program:
    """A Stan program of this project.

    Parameters
    ----------
    name
        File name below ``stan/`` without its ending, e.g. ``"restricted"`` or
        ``"reference/hier"``.

    Examples
    --------
    >>> Program("restricted").includes[0]
    'functions/covariance.stanfunctions'
    """

    name: str

    @property
    def folder(self) -> Path:
        """The ``stan/`` folder, the one include path that every program needs."""
        return stan_folder()

    @property
    def path(self) -> Path:
        """The program's file."""
        return self.folder / f"{self.name}.stan"

    @cached_property
    def source(self) -> str:
        """Text of the program.

        Raises EngineError if there is no such program.
        """
        if not self.path.is_file():
            raise EngineError(f"there is no Stan program named {self.name!r} in this installation")
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def includes(self) -> tuple[str, ...]:
        """Files that the program includes, in order; they include no others."""
        return tuple(_INCLUDE.findall(self.source))

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the program and of every file it includes."""
        digest = hashlib.sha256(self.source.encode())
        for name in self.includes:
            digest.update(b"\0" + name.encode() + b"\0")
            digest.update((self.folder / name).read_bytes())
        return digest.hexdigest()


PROGRAMS = (
    "unrestricted",
    "restricted",
    "surface",
    "adaptive",
    "bracketed",
    "multivariate",
    "poisson",
    "negative_binomial",
    "bernoulli",
)
"""Programs that a fit may run."""

REFERENCE_PROGRAMS = ("reference/hier", "reference/restrict", "reference/cholesky")
"""The models as the paper writes them, and the plain marginal form."""
