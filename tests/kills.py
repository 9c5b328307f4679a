"""Kill commands at random moments: ``python tests/kills.py [--runs 100] [--seed 1]``.

A third of the runs each is ``dsstan run``, ``publish`` and ``compare``; ``--command demo`` kills
the demo. Each is killed with SIGKILL at a moment drawn over the whole of an undisturbed run of its
command. At the end ``dsstan doctor --clean`` is called once, without being told where the releases
are. Then no folder may hold a half release, publication or table of a comparison, and no file of a
run may be left anywhere but in these. A comparison that was killed goes on, and ends in the bytes
of one that was not.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from faults import state_of

from conftest import small_table

WAIT = 600.0
"""Longest an undisturbed run may take, in seconds."""

ORPHAN = 3.0
"""Seconds in which a sampler notices that its parent is gone; it looks once a second."""

COMMANDS = ("run", "publish", "compare")
"""What is killed by default, in turn."""


@dataclass
class Tally:
    """What became of the runs."""

    commands: str = ""
    runs: int = 0
    killed: int = 0
    whole: int = 0
    none: int = 0
    half: int = 0
    leftovers: int = 0
    left_after_clean: int = 0
    folders_after_clean: int = 0


def environment(base: Path) -> dict[str, str]:
    """Every place that a run may write to, below one folder."""
    folders = {"TMPDIR": "tmp", "DSSTAN_WORKDIR": "work", "HOME": "home", "XDG_CACHE_HOME": "cache"}
    for name in (*folders.values(), "releases"):
        (base / name).mkdir(exist_ok=True)
    places = {key: str(base / name) for key, name in folders.items()}
    return {**os.environ, **places, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


MODEL = {"formula": "log(value) ~ x", "coords": ["east", "north"], "threshold": 0.15}
SAMPLER = {"chains": 2, "warmup": 200, "samples": 300, "seed": 7}


def prepare(base: Path) -> None:
    """A table, a job without its target, and a release that can be published."""
    environment(base)
    small_table(30).to_csv(base / "in.csv", index=False)
    finished(base, "run", base / "judged")


def options_of(base: Path, command: str, out: Path) -> list[str]:
    """The arguments of a command that writes to a folder."""
    if command == "demo":
        return ["demo", "--dataset", "simulated", "--copies", "20", "--out", str(out.parent)]
    if command == "publish":
        return ["publish", str(base / "judged"), "--to", str(out), "--accept", "killed at random"]
    if command == "run":
        job = {"table": str(base / "in.csv"), "out": str(out), **MODEL, **SAMPLER}
        job |= {"engine": "embedded", "copies": 20, "accept_failed": True}
        path = base / f"{out.parent.name}.toml"
        path.write_text("\n".join(f"{key} = {json.dumps(value)}" for key, value in job.items()))
        return ["run", str(path)]
    model = ["--formula", MODEL["formula"], "--coords", *MODEL["coords"], "--threshold", "0.15"]
    sampler = [f"--{key}={value}" for key, value in SAMPLER.items()]
    grid = ["--protection", "paper", "--copies", "5"]
    return ["compare", str(base / "in.csv"), *map(str, model), *sampler, *grid, "--out", str(out)]


def started(base: Path, command: str, out: Path) -> subprocess.Popen[bytes]:
    """A command in a process of its own."""
    engine = ["--engine", "embedded"] if command == "demo" else []
    return subprocess.Popen(
        [sys.executable, "-m", "dsstan", *options_of(base, command, out), *engine],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment(base),
    )


def finished(base: Path, command: str, out: Path) -> float:
    """Run a command to its end; the seconds that it took."""
    begin = time.monotonic()
    assert started(base, command, out).wait(WAIT) == 0, command
    return time.monotonic() - begin


def outcome(base: Path, command: str, out: Path) -> str:
    """What is at the target: ``whole``, ``none`` or ``HALF``."""
    if command == "publish":
        if not out.exists():
            return "none"
        sides = (base / "judged" / "public", out)
        first, second = ({p.name: p.read_bytes() for p in side.iterdir()} for side in sides)
        return "whole" if first == second else "HALF"
    if command == "compare":
        table = out / "frontier.csv"
        if not table.exists():
            return "none"
        return "whole" if table.read_bytes() == frontier(base) else "HALF"
    return state_of(out)


def frontier(base: Path) -> bytes:
    """The table of the comparison that nobody killed."""
    return (target(base, "compare", 0) / "frontier.csv").read_bytes()


def target(base: Path, command: str, number: int) -> Path:
    """Where a run writes to."""
    folder = base / "releases" / f"{command}-{number:03d}"
    if command != "demo":
        folder.mkdir(exist_ok=True)
    return folder / "simulated"


def files_left(base: Path) -> list[Path]:
    """Files of the runs that are not in a release."""
    found = [p for name in ("tmp", "work") for p in (base / name).rglob("*") if not p.is_dir()]
    for path in (base / "releases").rglob("*"):
        in_release = path.relative_to(base / "releases").parts[1:2] == ("simulated",)
        if not path.is_dir() and not in_release:
            found.append(path)
    return found


def kill_at_random(base: Path, runs: int, seed: int, commands: Sequence[str]) -> Tally:
    """Run and kill; the first run of each command is not killed and sets its time."""
    rng, tally = random.Random(seed), Tally(", ".join(commands))
    environment(base)
    if set(commands) != {"demo"}:
        prepare(base)
    takes = {command: finished(base, command, target(base, command, 0)) for command in commands}
    for number in range(1, runs + 1):
        command = commands[number % len(commands)]
        out = target(base, command, number)
        process = started(base, command, out)
        tally.runs += 1
        try:
            process.wait(rng.uniform(0.0, 1.05 * takes[command]))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            tally.killed += 1
        state = outcome(base, command, out).lower()
        setattr(tally, state, getattr(tally, state) + 1)
        print(f"{number} {command} {state}", file=sys.stderr, flush=True)
        if command == "compare":
            last = out
    if "compare" in commands and runs >= len(commands):
        finished(base, "compare", last)
        assert outcome(base, "compare", last) == "whole", "a comparison goes on after a kill"
    time.sleep(ORPHAN)
    tally.leftovers = len(files_left(base))
    done = subprocess.run(
        [sys.executable, "-m", "dsstan", "doctor", "--clean"],
        env=environment(base),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    tally.left_after_clean = len(files_left(base))
    tally.folders_after_clean = sum(1 for name in ("tmp", "work") for _ in (base / name).iterdir())
    return tally


def main() -> None:
    """Kill and print the tally as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, help="Also write the tally there, for the table.")
    parser.add_argument("--command", choices=[*COMMANDS, "demo"], action="append")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tally = kill_at_random(
            Path(folder), arguments.runs, arguments.seed, arguments.command or COMMANDS
        )
    text = json.dumps(asdict(tally), indent=2)
    print(text)
    if arguments.out:
        arguments.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
