"""The estimate of ``--dry-run`` beside real runs: ``python tests/benchmarks/dry_run.py``.

Prints a line for each table and ends with 1 where a ratio of estimate to run is beyond the factor.
Not a test of the suite: other work on the machine comes and goes between the two.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from memory import table_of

ROOT = Path(__file__).resolve().parents[2]

FACTOR = 4.0
"""Between estimate and run, either way: who plans needs minutes told from hours."""


def command(folder: Path, n: int, *more: str) -> tuple[float, dict]:
    """One call on a table of n records; its wall time and document."""
    begin = time.perf_counter()
    done = subprocess.run(
        [
            *(sys.executable, "-m", "dsstan", "synthesise", str(folder / f"{n}.csv")),
            *("--formula", "log(value) ~ 1", "--coords", "s1", "s2", "--threshold", "0.05"),
            *("--accept-failed", "--json", "--out", str(folder / f"out{n}"), *more),
        ],
        check=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    return time.perf_counter() - begin, json.loads(done.stdout)


def main() -> int:
    """Compare stage by stage and as a whole."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, nargs="+", default=[60, 250, 600])
    worst = 1.0
    print("records  dry run took  estimate  stages of the run  whole run  ratio")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for n in parser.parse_args().records:
            table_of(n).to_csv(folder / f"{n}.csv", index=False)
            dry, planned = command(folder, n, "--dry-run")
            whole, made = command(folder, n)
            stages = sum(s for s in made["summary"]["seconds"].values() if s is not None)
            about = planned["estimate"]["seconds"]["total"]
            ratio = about / stages
            worst = max(worst, ratio, 1.0 / ratio)
            print(
                f"{n:7d}  {dry:10.1f} s  {about:6.1f} s  {stages:15.1f} s  {whole:7.1f} s  "
                f"{ratio:5.2f}",
                flush=True,
            )
    return int(worst > FACTOR)


if __name__ == "__main__":
    sys.exit(main())
