"""The embedded engine: Stan's compiler and sampler in one library (stanli).

Every call runs in the main thread of a child process. A crash then costs a fit
and not the user's session, and nothing confidential touches the disk: data and
draws travel through pipes.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import io
import json
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dsstan.core.arrays import Floats
from dsstan.core.errors import EngineError
from dsstan.engines.base import (
    Advance,
    Draws,
    IterationCount,
    SamplerSettings,
    StanData,
    check_seed,
    jsonable,
)
from dsstan.engines.programs import Program

_WORKER = Path(__file__).with_name("embedded_worker.py")


class EmbeddedEngine:
    """Runs the programs without a C++ compiler."""

    name = "embedded"

    @property
    def version(self) -> str:
        """Version of the library."""
        return f"stanli {importlib.metadata.version('stanli')}"

    @classmethod
    def missing(cls) -> str | None:
        """None where the library is installed, otherwise how to get it."""
        if importlib.util.find_spec("stanli") is None:
            return 'the Python package stanli is not installed; pip install "stanli>=0.24,<0.25"'
        return None

    def prepare(self, program: Program) -> None:
        """Nothing to do: the program is read when it runs."""

    def sample(
        self,
        program: Program,
        data: StanData,
        *,
        settings: SamplerSettings,
        seed: int,
        inits: Sequence[Mapping[str, Any]],
        advance: Advance | None = None,
    ) -> Draws:
        """Sample in a child process; see :class:`dsstan.engines.base.Engine`."""
        request = {
            "task": "sample",
            "chains": settings.chains,
            "warmup": settings.warmup,
            "samples": settings.samples,
            "delta": settings.adapt_delta,
            "max_depth": settings.max_treedepth,
            "metric": settings.metric,
            "seed": check_seed(seed),
            "inits": inits,
        }
        reply = _ask(program, data, request, IterationCount(settings, advance))
        return Draws(tuple(reply["names"].tolist()), reply["values"], reply["sampler"])

    def log_density(
        self, program: Program, data: StanData, points: Sequence[Mapping[str, Any]]
    ) -> Floats:
        """Evaluate in a child process; see :class:`dsstan.engines.base.Engine`."""
        reply = _ask(program, data, {"task": "log_density", "points": points}, None)
        return np.asarray(reply["log_density"], dtype=np.float64)


def _ask(
    program: Program, data: StanData, request: Mapping[str, Any], progress: IterationCount | None
) -> dict[str, Any]:
    """Send one request to a fresh child and return the arrays it answers with."""
    message = {
        "source": program.source,
        "include": str(program.folder),
        "data": jsonable(data),
        **jsonable(request),
    }
    with subprocess.Popen(
        [sys.executable, "-P", str(_WORKER)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=program.folder,  # the library looks for includes there too, and needs it in UTF-8
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stderr is not None
        lines: list[str] = []
        reader = threading.Thread(target=_follow, args=(child.stderr, lines, progress))
        reader.start()
        try:
            try:
                child.stdin.write(json.dumps(message).encode())
                child.stdin.close()
            except BrokenPipeError:
                pass
            answer = child.stdout.read()
            code = child.wait()
        except BaseException:
            child.kill()
            raise
        finally:
            reader.join()
    if code != 0:
        raise EngineError(_reason(program, code, lines))
    with np.load(io.BytesIO(answer), allow_pickle=False) as archive:
        return {key: archive[key] for key in archive.files}


def _follow(stream: Any, lines: list[str], progress: IterationCount | None) -> None:
    """Read the child's messages as they come."""
    for raw in stream:
        line = raw.decode(errors="replace").rstrip()
        if progress is None or not progress.read(line):
            lines.append(line)


def _reason(program: Program, code: int, lines: list[str]) -> str:
    """Why a child ended, without any of its data."""
    stated = [line.removeprefix("dsstan: ") for line in lines if line.startswith("dsstan: ")]
    if stated:
        return f"the embedded engine could not run {program.name}.stan: {stated[-1]}"
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    return (
        f"the embedded engine's process for {program.name}.stan ended with {how}; "
        'your session is unharmed. Try again, or use engine="cmdstan"'
    )
