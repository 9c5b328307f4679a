"""The reference engine: CmdStan through cmdstanpy.

Programs are compiled into the user's cache, keyed by a hash of the program, its
function files and the CmdStan version. Data and draws live in a private folder
that is removed when the call ends, however it ends.
"""

from __future__ import annotations

import glob
import hashlib
import json
import logging
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import platformdirs

from dsstan.core.arrays import Floats
from dsstan.core.errors import EngineError, InputError
from dsstan.core.files.locks import locked_file
from dsstan.core.files.private_file import is_own, lasting_folder
from dsstan.core.files.workspace import end_processes, private_folder, work_parent
from dsstan.engines.base import (
    SAMPLER_COLUMNS,
    Advance,
    Draws,
    IterationCount,
    SamplerSettings,
    StanData,
    check_seed,
    jsonable,
)
from dsstan.engines.programs import Program

if TYPE_CHECKING:
    import cmdstanpy

_DIGITS = 17
_LEAST_FREE = 2**20


def _cmdstanpy() -> Any:
    """The package cmdstanpy, imported when first needed: it makes a folder at once.

    That folder is then made where the running command keeps its temporary files.
    """
    import cmdstanpy

    with suppress(OSError):  # one that a cleaner of temporary files has removed
        os.mkdir(cmdstanpy._TMPDIR, 0o700)
    return cmdstanpy


def program_cache() -> Path:
    """Folder of compiled programs: ``DSSTAN_CACHE``, else the user's cache."""
    base = os.environ.get("DSSTAN_CACHE") or platformdirs.user_cache_dir("dsstan")
    return Path(base) / "programs"


class CmdStanEngine:
    """Runs the programs as CmdStan compiles them."""

    name = "cmdstan"

    @property
    def version(self) -> str:
        """Version of CmdStan and of cmdstanpy."""
        return f"CmdStan {_cmdstan_version()}, cmdstanpy {_cmdstanpy().__version__}"

    @classmethod
    def missing(cls) -> str | None:
        """None where CmdStan and a compiler are found, otherwise what to install."""
        try:
            _cmdstanpy().cmdstan_path()
        except ValueError:
            return "CmdStan is not installed; run install_cmdstan, or set CMDSTAN to its folder"
        for tool, package in (("make", "make"), ("g++", "g++")):
            if shutil.which(tool) is None:
                return f"{tool} is missing; on Debian: apt-get install {package}"
        return None

    def prepare(self, program: Program) -> None:
        """Compile the program unless the cache holds it."""
        self.executable(program)

    def executable(self, program: Program) -> Path:
        """The compiled program in the cache, to be run by CmdStan's own command line.

        Raises EngineError if it can't be compiled.
        """
        return Path(str(self._model(program).exe_file))

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
        """Sample in CmdStan processes; see :class:`dsstan.engines.base.Engine`."""
        model = self._model(program)
        count = IterationCount(settings, advance)
        run = model._run_cmdstan

        def run_and_count(**arguments: Any) -> None:
            """One chain's process; cmdstanpy by itself shows progress by bars of its own only."""
            arguments["progress_hook"] = lambda line, chain: count.read(f"Chain [{chain}] {line}")
            run(**arguments)

        model._run_cmdstan = run_and_count
        with _room(), private_folder() as folder, _quiet(), _ending_runs(folder):
            fit = _run(
                program,
                model.sample,
                data=_write_json(folder / "data.json", data),
                inits=[
                    _write_json(folder / f"init-{i + 1}.json", init) for i, init in enumerate(inits)
                ],
                chains=settings.chains,
                parallel_chains=min(settings.chains, os.cpu_count() or 1),
                iter_warmup=settings.warmup,
                iter_sampling=settings.samples,
                adapt_delta=settings.adapt_delta,
                max_treedepth=settings.max_treedepth,
                metric=settings.metric,
                seed=check_seed(seed),
                output_dir=str(folder),
                sig_figs=_DIGITS,
                show_progress=False,
            )
            table = np.swapaxes(fit.draws(), 0, 1)
            names = list(fit.column_names)
        sampler = [names.index(name) for name in SAMPLER_COLUMNS]
        columns = [i for i, name in enumerate(names) if not name.endswith("__")]
        if advance is not None:
            advance(1.0)
        return Draws(
            tuple(names[i] for i in columns),
            np.ascontiguousarray(table[:, :, columns]),
            np.ascontiguousarray(table[:, :, sampler]),
        )

    def log_density(
        self, program: Program, data: StanData, points: Sequence[Mapping[str, Any]]
    ) -> Floats:
        """Evaluate in CmdStan; see :class:`dsstan.engines.base.Engine`."""
        model = self._model(program)
        values = []
        with _room(), private_folder() as folder, _quiet():
            data_file = _write_json(folder / "data.json", data)
            for point in points:
                frame = _run(
                    program,
                    model.log_prob,
                    params=_write_json(folder / "point.json", point),
                    data=data_file,
                    jacobian=True,
                    sig_figs=_DIGITS,
                )
                values.append(float(frame["lp__"].iloc[0]))
                _empty_own_folder(model)
        return np.array(values)

    def _model(self, program: Program) -> cmdstanpy.CmdStanModel:
        """The compiled program, from the cache where its mark is there."""
        key = hashlib.sha256(
            f"{program.fingerprint} {_cmdstan_version()} {_cmdstanpy().cmdstan_path()}".encode()
        ).hexdigest()[:16]
        folder = program_cache() / f"{program.name.replace('/', '-')}-{key}"
        executable, mark = folder / Path(program.name).name, folder / "ok"
        with _room(program_cache(), "DSSTAN_CACHE"), _locked(folder), _quiet():
            if not _intact(executable, mark):
                shutil.rmtree(folder)  # nothing that somebody else may have put there stays
                folder.mkdir(mode=0o700)
                source = executable.with_suffix(".stan")
                source.write_text(program.source, encoding="utf-8")
                for name in program.includes:
                    target = folder / name
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes((program.folder / name).read_bytes())
                model = _run(
                    program,
                    _cmdstanpy().CmdStanModel,
                    stan_file=str(source),
                    force_compile=True,
                    stanc_options={"include-paths": [str(folder)]},
                )
                mark.write_text(_digest(executable), encoding="utf-8")
                return model
            return _cmdstanpy().CmdStanModel(exe_file=str(executable))


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """A folder of the cache, for this process alone; no other user may write to it."""
    try:
        lasting_folder(folder.parent)
        lasting_folder(folder)
        lock = locked_file(Path(f"{folder}.lock"))
    except InputError as error:
        raise EngineError(f"{error} (DSSTAN_CACHE)") from None
    try:
        yield
    finally:
        lock.release()


def _empty_own_folder(model: cmdstanpy.CmdStanModel) -> None:
    """Remove what cmdstanpy keeps of an evaluation in its own folder until the process ends."""
    for folder in Path(_cmdstanpy()._TMPDIR).glob(f"{glob.escape(model.name)}*"):
        shutil.rmtree(folder, ignore_errors=True)


def _digest(file: Path) -> str:
    """SHA-256 of a file."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _intact(executable: Path, mark: Path) -> bool:
    """Whether an executable of this user is there whole: its mark holds its SHA-256."""
    return all(file.is_file() and is_own(file) for file in (mark, executable)) and mark.read_text(
        encoding="utf-8", errors="replace"
    ) == _digest(executable)


def _cmdstan_version() -> str:
    """Version of the CmdStan found, as major.minor."""
    version = _cmdstanpy().utils.cmdstan_version()
    return ".".join(str(part) for part in version) if version else "of unknown version"


def _write_json(path: Path, content: Mapping[str, Any]) -> str:
    """Write a JSON file for its owner alone and return its path."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as stream:
        json.dump(jsonable(content), stream)
    return str(path)


def _run(program: Program, call: Any, /, **arguments: Any) -> Any:
    """Call cmdstanpy and turn its failures into one clear error."""
    try:
        return call(**arguments)
    except (RuntimeError, ValueError) as error:
        reason = _plain(str(error)) + _if_full(work_parent())
        raise EngineError(f"CmdStan could not run {program.name}.stan: {reason}") from None


def _if_full(place: Path) -> str:
    """What to add to an error where the disk is full: CmdStan itself doesn't notice."""
    with suppress(OSError):
        if shutil.disk_usage(place).free < _LEAST_FREE:
            return (
                f". The disk of {place} is full: free some space there, or name another "
                "folder with DSSTAN_WORKDIR"
            )
    return ""


def _plain(text: str) -> str:
    """The reason in a message of cmdstanpy, without paths and numbers of the data."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if re.search(r"exception|error|reject|fail", line, re.I)]
    reason = " ".join((telling or lines)[:3])
    reason = re.sub(r"\S*/\S+", "<file>", reason)
    return re.sub(r"(?<![\w\[])[-+]?\d+(\.\d+)?([eE][-+]?\d+)?(?![\w\]])", "#", reason)


@contextmanager
def _room(place: Path | None = None, setting: str = "DSSTAN_WORKDIR") -> Iterator[None]:
    """Turn what the file system refuses into an error that says where, and what to do."""
    try:
        yield
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise EngineError(
            f"CmdStan's files could not be written to {place or work_parent()}: {why}. Free some "
            f"space there, or name another folder with {setting}"
        ) from None


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep cmdstanpy's log (which names files) to itself while it runs."""
    logger = _cmdstanpy().utils.get_logger()  # sets its level when first asked for
    level = logger.level
    logger.setLevel(logging.CRITICAL if not sys.flags.dev_mode else level)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextmanager
def _ending_runs(folder: Path) -> Iterator[None]:
    """End CmdStan's processes when a run is interrupted.

    cmdstanpy starts them from threads that go on, and that the interpreter waits for before it
    ends. The folder goes first, so that a chain which starts in the meantime fails. Found in
    ``/proc``; where there is none the chains run to their end.
    """
    try:
        yield
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        end_processes(folder)
        raise
