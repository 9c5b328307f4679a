"""What is on this machine, what is missing, and how to get it."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from importlib.metadata import version

from dsstan._version import __version__
from dsstan.core.errors import DsstanError, InputError
from dsstan.core.optional import place_of
from dsstan.engines import CmdStanEngine, EmbeddedEngine
from dsstan.engines.cmdstan import program_cache
from dsstan.engines.programs import PROGRAMS, Program
from dsstan.table.datasets import san_francisco_source
from dsstan.table.formats.kinds import LIBRARIES

OPTIONAL = (
    ("libpysal", "examples", "the Baltimore example"),
    ("rdata", "examples", "the San Francisco example"),
    *LIBRARIES,
    ("distributed", "distributed", "worker processes"),
    ("arviz", "arviz", "posteriors for ArviZ"),
)
"""Libraries that only some users need, the extra that installs each, and what it is for."""


@dataclass(frozen=True)
class MachineCheck:
    """One thing looked for.

    Attributes
    ----------
    what
        Its name.
    there
        Whether it was found.
    detail
        Version or place; where it is missing, how to get it.
    needed_for
        What does not work without it.
    """

    what: str
    there: bool
    detail: str
    needed_for: str


Finding = MachineCheck
"""Old name of :class:`MachineCheck`."""


def examine() -> list[MachineCheck]:
    """Look for everything the package can use."""
    checks = [
        MachineCheck("dsstan", True, __version__, "everything"),
        MachineCheck("python", True, sys.version.split()[0], "everything"),
    ]
    for kind, purpose in (
        (EmbeddedEngine, "fits without a compiler"),
        (CmdStanEngine, "fits with CmdStan, the reference"),
    ):
        missing = kind.missing()
        detail = kind().version if missing is None else missing
        checks.append(MachineCheck(f"engine {kind.name}", missing is None, detail, purpose))
    for tool, package, purpose in (
        ("g++", "g++", "compiling under CmdStan"),
        ("make", "make", "compiling under CmdStan"),
        ("Rscript", "r-base-core", "the parity tests"),
        ("jags", "jags", "the parity tests"),
    ):
        place = shutil.which(tool)
        checks.append(
            MachineCheck(tool, place is not None, place or f"apt-get install {package}", purpose)
        )
    checks.append(_programs())
    checks += [_library(*optional) for optional in OPTIONAL]
    source = san_francisco_source()
    checks.append(
        MachineCheck(
            "San Francisco file",
            source is not None,
            source or "set DSSTAN_DATA to the folder that holds it, or let it be downloaded",
            "the San Francisco example",
        )
    )
    checks.append(MachineCheck("program cache", True, str(program_cache()), "compiled programs"))
    return checks


def _programs() -> MachineCheck:
    """The Stan programs of this installation."""
    try:
        for name in PROGRAMS:
            Program(name).fingerprint  # noqa: B018
        where = str(Program(PROGRAMS[0]).folder)
        return MachineCheck("Stan programs", True, where, "every fit")
    except (DsstanError, OSError) as error:
        return MachineCheck("Stan programs", False, str(error), "every fit")


def _library(package: str, extra: str, purpose: str) -> MachineCheck:
    """A library that only some users need."""
    try:
        place_of(package, extra)
    except InputError as missing:
        return MachineCheck(package, False, str(missing), purpose)
    return MachineCheck(package, True, version(package), purpose)
