"""Kill the demo at random moments: ``python tests/kills.py [--runs 100] [--seed 1]``.

Each run is killed with SIGKILL at a moment drawn over the whole of an undisturbed run. At the
end ``dsstan doctor --clean`` is called once, without being told where the releases are. Then no
folder may hold a half release, and no file of a run may be left anywhere but in whole releases.
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
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from faults import state_of

from conftest import small_table

WAIT = 600.0
"""Longest an undisturbed run may take, in seconds."""

ORPHAN = 3.0
"""Seconds in which a sampler notices that its parent is gone; it looks once a second."""


@dataclass
class Tally:
    """What became of the runs."""

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


def demo(base: Path, number: int, small: bool) -> subprocess.Popen[bytes]:
    """One demo, or a release of a small table, in a process of its own."""
    folder = base / "releases" / f"run-{number:03d}"
    options = ["demo", "--dataset", "simulated", "--copies", "20", "--out", str(folder)]
    if small:
        environment(base)
        folder.mkdir()
        small_table(30).to_csv(base / "in.csv", index=False)
        options = ["synthesise", str(base / "in.csv"), "--formula", "log(value) ~ x"]
        options += ["--coords", "east", "north", "--threshold", "0.15", "--accept-failed"]
        options += ["--chains", "2", "--warmup", "200", "--samples", "300", "--copies", "20"]
        options += ["--out", str(folder / "simulated")]
    return subprocess.Popen(
        [sys.executable, "-m", "dsstan", *options, "--engine", "embedded"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment(base),
    )


def files_left(base: Path) -> list[Path]:
    """Files of the runs that are not in a release."""
    found = [p for name in ("tmp", "work") for p in (base / name).rglob("*") if not p.is_dir()]
    for path in (base / "releases").rglob("*"):
        in_release = path.relative_to(base / "releases").parts[1:2] == ("simulated",)
        if not path.is_dir() and not in_release:
            found.append(path)
    return found


def kill_at_random(base: Path, runs: int, seed: int, *, small: bool = False) -> Tally:
    """Run and kill; the first run is not killed and sets the time."""
    rng, tally = random.Random(seed), Tally()
    begin = time.monotonic()
    assert demo(base, 0, small).wait(WAIT) == 0
    whole_time = time.monotonic() - begin
    for number in range(1, runs + 1):
        process = demo(base, number, small)
        tally.runs += 1
        try:
            process.wait(rng.uniform(0.0, 1.05 * whole_time))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            tally.killed += 1
        state = state_of(base / "releases" / f"run-{number:03d}" / "simulated")
        setattr(tally, state.lower(), getattr(tally, state.lower()) + 1)
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
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tally = kill_at_random(Path(folder), arguments.runs, arguments.seed)
    text = json.dumps(asdict(tally), indent=2)
    print(text)
    if arguments.out:
        arguments.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
