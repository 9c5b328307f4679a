"""Inject faults into real runs and say what happened: ``python tests/faults.py``.

Each fault is done to the command line in a process of its own: a small file system is filled,
processes are killed, limits are set. Whatever happens there must be a whole release or none, an
error that says what to do, and nothing left but what ``dsstan doctor --clean`` takes away. The
command writes ``docs/trust-table.md``; ``tests/cli/test_faults.py`` runs the same faults.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from conftest import small_table
from dsstan.core.errors import ReleaseError
from dsstan.release.reading import read_release

WAIT = 120.0
"""Seconds for a process to reach a point, on a busy machine."""

QUICK = {"chains": 2, "warmup": 300, "samples": 500, "accept_failed": True}
ENDLESS = {"chains": 2, "warmup": 100_000_000, "samples": 100}


class LeftOut(Exception):
    """Raised where this machine does not allow a fault."""


@dataclass(frozen=True)
class Outcome:
    """What a fault led to.

    Attributes
    ----------
    code
        Exit code of the command.
    release
        ``"none"``, ``"whole"`` or ``"HALF"``.
    left
        Files of the run that were left outside the release, ``doctor --clean`` run where the
        fault is a kill that nothing can catch.
    said
        The last line on standard error.
    """

    code: int
    release: str
    left: int
    said: str


@dataclass(frozen=True)
class Place:
    """A folder with a table, a job, and folders for everything a run may write to."""

    base: Path

    def __post_init__(self) -> None:
        for name in ("releases", "work", "tmp", "cache", "home"):
            (self.base / name).mkdir(parents=True)
        small_table(30, seed=9, shared=4).to_csv(self.base / "in.csv", index=False)

    @property
    def out(self) -> Path:
        return self.base / "releases" / "out"

    def environment(self, **more: str) -> dict[str, str]:
        base = {
            "TMPDIR": str(self.base / "tmp"),
            "DSSTAN_WORKDIR": str(self.base / "work"),
            "XDG_CACHE_HOME": str(self.base / "cache"),
            "DSSTAN_CACHE": str(self.base / "cache"),
            "HOME": str(self.base / "home"),
            "COLUMNS": "300",
            "OPENBLAS_NUM_THREADS": "1",
        }
        kept = {k: v for k, v in os.environ.items() if k != "CMDSTAN"}
        return {**kept, **base, **more}

    def job(self, **more: object) -> Path:
        """Write a job file."""
        keys = {
            "table": "in.csv",
            "formula": "log(value) ~ x",
            "coords": ["east", "north"],
            "out": "releases/out",
            "threshold": 0.15,
            "copies": 3,
            "seed": 5,
            "engine": "embedded",
            **(QUICK if "warmup" not in more else {}),
            **more,
        }
        path = self.base / "job.toml"
        path.write_text("".join(f"{k} = {json.dumps(v)}\n" for k, v in keys.items()))
        return path

    def start(self, job: Path, **more: object) -> subprocess.Popen[str]:
        """The command on a job, in a process of its own."""
        options: dict[str, object] = {"env": self.environment(), **more}
        return subprocess.Popen(
            [sys.executable, "-m", "dsstan", "run", str(job)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            cwd=self.base,
            **options,  # type: ignore[arg-type]
        )

    def end(self, process: subprocess.Popen[str]) -> Outcome:
        """Wait for a run and look at what there is."""
        _, errors = process.communicate(timeout=300)
        return self.outcome(process.returncode, errors)

    def outcome(self, code: int, errors: str) -> Outcome:
        lines = [line for line in errors.strip().splitlines() if line.strip()]
        said = next(
            (line for line in lines if line.startswith("dsstan:")), lines[-1] if lines else ""
        )
        left = [p for p in self.base.rglob("*") if p.is_file() and self._is_left(p)]
        return Outcome(code, state_of(self.out), len(left), said.replace(str(self.base), "."))

    def _is_left(self, path: Path) -> bool:
        parts = path.relative_to(self.base).parts
        if parts[0] in ("releases", "work", "tmp"):
            return self.out not in path.parents
        return False

    def clean(self) -> None:
        """``dsstan doctor --clean``, as the user would call it after a kill."""
        subprocess.run(
            [sys.executable, "-m", "dsstan", "doctor", "--clean", str(self.out.parent)],
            env=self.environment(),
            check=True,
            capture_output=True,
        )


def state_of(out: Path) -> str:
    """Whether a release is there."""
    if not os.path.lexists(out):
        return "none"
    try:
        read_release(out)
    except ReleaseError:
        return "HALF"
    needed = {"summary.json", "settings.json", "risks.csv", "copies.csv"}
    whole = needed <= {p.name for p in (out / "confidential").iterdir()}
    return "whole" if whole else "HALF"


def children_of(pid: int) -> list[int]:
    """Process numbers of a process's children, of all its threads."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += [int(p) for p in (task / "children").read_text().split()]
    return found


def sampler_of(process: subprocess.Popen[str]) -> int:
    """The child that samples, once it is well under way."""
    end = time.monotonic() + WAIT
    while time.monotonic() < end and process.poll() is None:
        for child in children_of(process.pid):
            with contextlib.suppress(OSError):
                ran = sum(map(int, Path(f"/proc/{child}/stat").read_text().split()[13:15]))
                if ran > 100:  # a second of work, so the library is loaded and runs
                    return child
        time.sleep(0.05)
    raise AssertionError(process.communicate()[1])


@contextlib.contextmanager
def small_disk(where: Path, size: str, options: str = "") -> Iterator[None]:
    """A file system of its own at a folder."""
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(where)], capture_output=True
    )
    if done.returncode != 0:
        raise LeftOut("mounting a file system is not allowed here")
    try:
        if options:
            subprocess.run(["mount", "-o", f"remount,{options}", str(where)], check=True)
        yield
    finally:
        subprocess.run(["umount", "-l", str(where)], check=True)


# The faults


def disk_full(place: Place) -> Outcome:
    with small_disk(place.out.parent, "64k"):
        return place.end(place.start(place.job(copies=100)))


def files_limited(place: Place) -> Outcome:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))

    return place.end(place.start(place.job(), preexec_fn=limit))


def work_folder_full(place: Place) -> Outcome:
    with small_disk(place.base / "work", "4k"):
        (place.base / "work" / "filler").write_bytes(b"x" * 4096)
        process = place.start(place.job())
        process.wait(WAIT)
        (place.base / "work" / "filler").unlink()
        return place.end(process)


def target_read_only(place: Place) -> Outcome:
    with small_disk(place.out.parent, "1m", "ro"):
        return place.end(place.start(place.job(**ENDLESS)))


def work_folder_missing(place: Place) -> Outcome:
    (place.base / "work").rmdir()
    return place.end(place.start(place.job(**ENDLESS)))


def target_taken_meanwhile(place: Place) -> Outcome:
    process = place.start(place.job())
    end = time.monotonic() + WAIT
    while not children_of(process.pid) and time.monotonic() < end:
        time.sleep(0.01)
    place.out.mkdir()
    outcome = place.end(process)
    place.out.rmdir()  # fails were it not empty as we made it
    return Outcome(outcome.code, state_of(place.out), outcome.left, outcome.said)


def sampler_killed(place: Place) -> Outcome:
    process = place.start(place.job(**ENDLESS))
    os.kill(sampler_of(process), signal.SIGKILL)
    return place.end(process)


def sampler_out_of_memory(place: Place) -> Outcome:
    process = place.start(place.job(**ENDLESS))
    end = time.monotonic() + WAIT
    while not (children := children_of(process.pid)) and time.monotonic() < end:
        time.sleep(0.001)
    limit = 200 * 2**20  # less than the library needs
    resource.prlimit(children[0], resource.RLIMIT_AS, (limit, limit))
    return place.end(process)


def _signalled(number: int) -> Callable[[Place], Outcome]:
    def fault(place: Place) -> Outcome:
        process = place.start(place.job(**ENDLESS))
        sampler_of(process)
        process.send_signal(number)
        outcome = place.end(process)
        if number == signal.SIGKILL:
            time.sleep(2.0)  # the sampler looks for its parent once a second
            place.clean()
            return place.outcome(outcome.code, "")
        return outcome

    return fault


def killed_while_writing(place: Place) -> Outcome:
    process = place.start(place.job(copies=400))
    end = time.monotonic() + WAIT
    while not list(place.out.parent.glob(".out.partial-*/whole/public/copy_0*")):
        assert time.monotonic() < end
        assert process.poll() is None, process.communicate()
        time.sleep(0.001)
    process.kill()
    outcome = place.end(process)
    left = outcome.left
    place.clean()
    cleaned = place.outcome(outcome.code, f"{left} files were left and taken away")
    return cleaned


def clock_runs_backwards(place: Place) -> Outcome:
    (place.base / "sitecustomize.py").write_text(
        "import itertools, time\n"
        "now, back = time.time(), itertools.count()\n"
        "time.time = lambda: now - 86400.0 * next(back)\n"
        "time.time_ns = lambda: int(1e9 * time.time())\n"
    )
    os.utime(place.base / "in.csv", (4e9, 4e9))
    return place.end(place.start(place.job(), env=place.environment(PYTHONPATH=str(place.base))))


def odd_paths(place: Place) -> Outcome:
    odd = Place(Path(os.fsdecode(os.fsencode(place.base) + b"/a folder \xff \xc3\xa9 'x'")))
    return odd.end(odd.start(odd.job(), env=odd.environment(LC_ALL="C")))


def nobody_reads_the_report(place: Place) -> Outcome:
    """The reader of standard output is gone, as with ``| head``."""
    reading, writing = os.pipe()
    os.close(reading)
    process = subprocess.Popen(
        [sys.executable, "-m", "dsstan", "run", str(place.job())],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        env=place.environment(),
    )
    os.close(writing)
    return place.end(process)


FAULTS: dict[str, tuple[Callable[[Place], Outcome], int | tuple[int, ...], str]] = {
    "the disk is full when the release is written": (disk_full, 4, "none"),
    "no file may be larger than 8 KiB (`ulimit -f`)": (files_limited, 4, "none"),
    "the working folder is full": (work_folder_full, 2, "none"),
    "the folder of the release is read-only": (target_read_only, 4, "none"),
    "the working folder is not there": (work_folder_missing, 2, "none"),
    "somebody makes the target during the fit": (target_taken_meanwhile, 4, "none"),
    "the sampler is killed": (sampler_killed, 1, "none"),
    "the sampler gets no more memory": (sampler_out_of_memory, 1, "none"),
    "SIGINT during a fit": (_signalled(signal.SIGINT), 130, "none"),
    "SIGTERM during a fit": (_signalled(signal.SIGTERM), 143, "none"),
    "SIGHUP during a fit": (_signalled(signal.SIGHUP), 129, "none"),
    "SIGKILL during a fit, then `doctor --clean`": (_signalled(signal.SIGKILL), -9, "none"),
    "SIGKILL while writing, then `doctor --clean`": (killed_while_writing, -9, "none"),
    "the clock runs backwards": (clock_runs_backwards, 0, "whole"),
    "spaces and bytes that are no UTF-8 in every path": (odd_paths, 0, "whole"),
    "nobody reads the report": (nobody_reads_the_report, (0, 1), "whole"),
}
"""Each fault with the exit code and the state of the release that must follow."""


def inject(name: str, base: Path) -> Outcome:
    """Do one fault in a folder of its own."""
    return FAULTS[name][0](Place(base))


if __name__ == "__main__":
    from trust_table import inject_all, write_table

    with tempfile.TemporaryDirectory() as folder:
        inject_all(Path(folder))
        write_table(Path(folder))
