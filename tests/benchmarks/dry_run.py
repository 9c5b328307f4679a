"""The estimate of ``--dry-run`` beside real runs: ``python tests/benchmarks/dry_run.py``.

Prints a line for each table and ends with 1 where a ratio of estimate to run is beyond the factor.
Not a test of the suite: other work on the machine comes and goes between the two.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from memory import table_of

ROOT = Path(__file__).resolve().parents[2]

FACTOR = 2.0
"""Between estimate and run, either way: who plans needs minutes told from hours."""


def command(folder: Path, n: int, *more: str) -> tuple[float, float, dict]:
    """One call on a table of n records; wall time, peak memory in MiB, and its document."""
    begin = time.perf_counter()
    arguments = [
        *(sys.executable, "-m", "dsstan", "synthesise", str(folder / f"{n}.csv")),
        *("--formula", "log(value) ~ 1", "--coords", "s1", "s2", "--threshold", "0.05"),
        *("--accept-failed", "--json", "--out", str(folder / f"out{n}"), *more),
    ]
    with open(folder / "document", "w+") as told:
        with subprocess.Popen(arguments, stdout=told, stderr=subprocess.DEVNULL, cwd=ROOT) as run:
            _, status, usage = os.wait4(run.pid, 0)  # with the children that it waited for
            run.returncode = os.waitstatus_to_exitcode(status)
        took = time.perf_counter() - begin
        told.seek(0)
        found = json.load(told)
    if run.returncode != 0:
        raise SystemExit(str(found))
    return took, usage.ru_maxrss / 1024, found


def main() -> int:
    """Compare stage by stage and as a whole."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, nargs="+", default=[60, 250, 600])
    worst = 1.0
    print("records  dry run  estimate     run   ratio  estimate    run   ratio")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for n in parser.parse_args().records:
            table_of(n).to_csv(folder / f"{n}.csv", index=False)
            dry, _, planned = command(folder, n, "--dry-run")
            _, peak, made = command(folder, n)
            stages = sum(s for s in made["summary"]["seconds"].values() if s is not None)
            about, memory = (
                planned["estimate"]["seconds"]["total"],
                planned["estimate"]["peak_mib"],
            )
            ratios = about / stages, memory / peak
            worst = max(worst, *ratios, *(1.0 / ratio for ratio in ratios))
            print(
                f"{n:7d}  {dry:5.1f} s  {about:6.1f} s {stages:5.1f} s   {ratios[0]:5.2f}  "
                f"{memory:4.0f} MiB {peak:4.0f} MiB {ratios[1]:5.2f}",
                flush=True,
            )
    return int(worst > FACTOR)


if __name__ == "__main__":
    sys.exit(main())
