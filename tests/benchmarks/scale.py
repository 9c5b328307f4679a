"""Seconds, memory and effective sample size against the number of records, beside other programs.

``python tests/benchmarks/scale.py --peers PYTHON`` simulates records, gives the same ones to every
program of ``scale_programs.py``, each in a process of its own, and writes
``docs/benchmarks-scale.md`` with its picture. PYTHON is an interpreter that has the peers
(``pip install gpboost numpyro pymc nutpie numba``). ``--redraw`` writes the page again from the
rows of the last run.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scale_data import simulate, with_priors
from scale_page import write
from scale_programs import PROGRAMS

HERE = Path(__file__).resolve().parent
Floats = NDArray[np.float64]
Row = dict[str, Any]

DOCS = HERE.parents[1] / "docs"
ROWS = HERE / "scale.jsonl"
PEERS = ("numpyro", "nutpie", "gpboost", "gpboost-vecchia")

SIZES = (200, 500, 1000, 2000, 5000, 20_000, 100_000)
LIMIT = 1800.0
"""Seconds after which a program is stopped, imports included."""

SHARE = 0.8
"""Of the machine's memory; a program that takes more is stopped."""

EVERY = 0.1
"""Seconds between two looks at a program's memory."""

FIRST = 2500
"""Records of a first fit of dsstan that is not told."""


@dataclass(frozen=True)
class Limits:
    """What a program may take: seconds, MiB of memory, and whether its chains are short."""

    seconds: float
    mib: float
    quick: bool = False


def machine_mib() -> float:
    """Memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**20


def measure(program: str, n: int, folder: Path, interpreter: str, limits: Limits) -> Row:
    """One program on the records of ``folder``, in a process of its own."""
    draws = folder / "draws.npz"
    draws.unlink(missing_ok=True)
    command = [interpreter, str(HERE / "scale_programs.py"), program]
    command += [str(folder / f"{n}.npz"), str(draws)]
    command += ["--quick"] if limits.quick else []
    row: Row = {"program": program, "n": n}
    with (folder / "out").open("w+") as out, (folder / "err").open("w+") as err:
        begin = time.perf_counter()
        child = subprocess.Popen(
            command, stdout=out, stderr=err, env=_environment(program), start_new_session=True
        )
        try:
            peak, why = _watch(child, begin, limits)
        finally:
            _end(child)
        out.seek(0)
        err.seek(0)
        said, wrong = out.read().splitlines(), err.read().splitlines()
    if why is not None:
        spent = time.perf_counter() - begin
        return {**row, "status": "stopped", "why": why, "seconds": spent, "mib": peak}
    if child.returncode != 0 or not said:
        reason = wrong[-1] if wrong else f"exit status {child.returncode}"
        return {**row, "status": "failed", "why": reason[:200], "mib": peak}
    told = json.loads(said[-1])
    if "missing" in told:
        return {**row, "status": "not installed", "why": told["missing"]}
    row |= {**told, "status": "done", "mib": max(peak, told["mib"])}
    if draws.exists():
        with np.load(draws) as held:
            row |= of_draws(dict(held))
    return row


def _environment(program: str) -> dict[str, str]:
    """One thread of linear algebra a chain; a program without chains has all cores."""
    names = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")
    if program.startswith("gpboost"):
        return {k: v for k, v in os.environ.items() if k not in names}
    return {**os.environ, **dict.fromkeys(names, "1")}


def _watch(
    child: subprocess.Popen[bytes], begin: float, limits: Limits
) -> tuple[float, str | None]:
    """Most memory seen in MiB, and which limit was passed, if one was."""
    peak = 0.0
    while child.poll() is None:
        time.sleep(EVERY)
        peak = max(peak, _session_mib(child.pid))
        if time.perf_counter() - begin > limits.seconds:
            return peak, "time"
        if peak > limits.mib:
            return peak, "memory"
    return peak, None


def _session_mib(leader: int) -> float:
    """Memory of a process and of all that it started; 0 where there is no /proc."""
    total = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The fields after the name, which may hold spaces: state, parent, group, session.
            session = int(stat.read_text().rpartition(")")[2].split()[3])
            if session == leader:
                lines = (stat.parent / "smaps_rollup").read_text().splitlines()
                total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
        except (OSError, IndexError, ValueError):
            continue  # It ended meanwhile.
    return total / 1024


def _end(child: subprocess.Popen[bytes]) -> None:
    """End what is left of a program's processes."""
    if child.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def of_draws(draws: dict[str, Floats]) -> Row:
    """Worst effective sample size, and the means that show which posterior it is."""
    from dsstan.models.checks.diagnostics import ess

    return {
        "ess": min(ess(d) for d in draws.values()),
        "log_phi": float(np.mean(np.log(draws["phi"]))),
        "log_tau_sq": float(np.mean(np.log(draws["tau_sq"]))),
    }


def run(
    programs: Sequence[str], sizes: Iterable[int], peers: str, limits: Limits, kept: Path
) -> list[Row]:
    """Every program at every size, smallest first; each row is kept as soon as it is there."""
    machine = {"machine": platform.machine(), "cores": os.cpu_count(), "load": os.getloadavg()[0]}
    rows: list[Row] = [{**machine, "limit": limits.seconds}]
    over: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as name, kept.open("w", encoding="utf-8") as lines:
        print(json.dumps(rows[0]), file=lines)
        if "dsstan" in programs:
            # Not told: it has numba keep the compiled loops on disk, as after a user's first fit.
            np.savez(Path(name) / f"{FIRST}.npz", **with_priors(simulate(FIRST)))
            measure("dsstan", FIRST, Path(name), sys.executable, limits)
        for n in sorted(sizes):
            np.savez(Path(name) / f"{n}.npz", **with_priors(simulate(n)))
            for program in programs:
                if program in over:
                    row = {"program": program, "n": n, "status": over[program]}
                else:
                    interpreter = peers if program in PEERS else sys.executable
                    row = measure(program, n, Path(name), interpreter, limits)
                if row["status"] == "stopped":
                    over[program] = f"not tried: {row['why']}"
                elif row["status"] == "not installed":
                    over[program] = "not installed"
                rows.append(row)
                print(json.dumps(row), file=lines, flush=True)
                print(row, file=sys.stderr)
    return rows


def main() -> None:
    """Measure, keep the rows, write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES, help="numbers of records")
    parser.add_argument("--only", nargs="+", choices=PROGRAMS, default=list(PROGRAMS))
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds a program may take")
    parser.add_argument("--quick", action="store_true", help="short chains of the other samplers")
    parser.add_argument("--peers", default=sys.executable, help="interpreter that has the peers")
    parser.add_argument("--rows", type=Path, default=ROWS, help="rows as JSON lines")
    parser.add_argument("--out", type=Path, default=DOCS / "benchmarks-scale.md")
    parser.add_argument("--redraw", action="store_true", help="only write the page from --rows")
    told = parser.parse_args()
    # A program is in a session of its own and would outlive this process.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    if told.redraw:
        rows = [json.loads(line) for line in told.rows.read_text(encoding="utf-8").splitlines()]
    else:
        limits = Limits(told.limit, SHARE * machine_mib(), told.quick)
        rows = run(told.only, told.sizes, told.peers, limits, told.rows)
    write(rows, told.out)


if __name__ == "__main__":
    main()
