"""Stages of a whole release of many records, into ``docs/benchmarks-release.md``.

Each size runs in a process of its own: ``python tests/benchmarks/release_scale.py``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
OUT = HERE.parents[1] / "docs" / "benchmarks-release.md"
SIZES = (20_000, 100_000, 1_000_000)
COPIES = 20
STAGES = ("prepare", "posterior", "restricted fit", "copies", "disclosure", "report")


FLOOR = 0.2
"""sd asked of every record."""


def peak() -> float:
    """Largest memory so far of this process or a child of it, GiB."""
    used = (
        resource.getrusage(who).ru_maxrss
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return max(used) / 1024**2


def measure(n: int) -> dict[str, Any]:
    """One release, in this process."""
    sys.path.insert(0, str(HERE))
    import numpy as np
    import pandas as pd
    from scale_data import simulate

    import dsstan as ds
    from dsstan.models.weights import neighbour_distances
    from dsstan.release.report.page import write_report
    from dsstan.risk.intruder.attacker import attack

    def simulated(count: int) -> pd.DataFrame:
        found = simulate(count)
        places = {"s1": found["sites"][:, 0], "s2": found["sites"][:, 1]}
        return pd.DataFrame({**places, "x": found["X"][:, 1], "y": found["y"]})

    # Compilation, which happens once on a machine.
    warm = ds.prepare(simulated(2500), "y ~ x", coords=("s1", "s2"))
    first = ds.fit(warm, seed=0, warmup=100, samples=50, progress=False)
    ds.synthesise(first, 2, accept_failed=True, accept_few_draws=True, progress=False)
    attack(first, draws=2, progress=False)
    table, seconds, processors = simulated(n), {}, {}

    def timed(stage: str, call: Any) -> Any:
        begin, busy = time.perf_counter(), time.process_time()
        found = call()
        seconds[stage] = time.perf_counter() - begin
        processors[stage] = time.process_time() - busy
        print(
            f"{n:,} records, {stage}: {seconds[stage]:.1f} s, of processors "
            f"{processors[stage]:.1f} s, "
            f"peak {peak():.2f} GiB",
            file=sys.stderr,
            flush=True,
        )
        return found

    problem = timed("prepare", lambda: ds.prepare(table, "y ~ x", coords=("s1", "s2")))
    free = timed("posterior", lambda: ds.fit(problem, seed=1, progress=False))
    alone = float(np.quantile(neighbour_distances(problem), 0.99))
    flags = ds.flag_isolated(free, distance=alone)
    kept = timed(
        "restricted fit",
        lambda: ds.fit(problem, weights=flags, start=free, seed=2, progress=False),
    )
    release = timed(
        "copies",
        lambda: ds.synthesise(kept, COPIES, seed=3, workers=os.cpu_count() or 1, progress=False),
    )
    solved = release.fit.predictive().model
    found = timed("disclosure", lambda: ds.assess(release, floor=FLOOR, progress=False))
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        timed("report", lambda: write_report(release, found, None, page))
    print(f"{n:,} records, DISCLOSURE: {found.verdict}: {found.why}", file=sys.stderr, flush=True)
    return {
        "n": n,
        **seconds,
        "ess": free.worst_ess,
        "verdict": str(free.verdict).splitlines()[0],
        "processors": processors["disclosure"],
        "disclosure_verdict": found.verdict,
        "draws": found.after.draws,
        "left_out": found.after.left_out,
        "gib": peak(),
        "neighbours": solved.neighbours,
    }


def report(rows: list[dict[str, Any]]) -> str:
    """The table, as Markdown."""
    lines = [
        "# Benchmark of a release",
        "",
        "Made by `python tests/benchmarks/release_scale.py`: seconds of each stage of a release of "
        f"simulated records with {COPIES} copies, one in a hundred records flagged, on "
        f"the unit square as in `scale_data.py`, each size in a fresh process on {os.cpu_count()} "
        f"cores ({platform.machine()}), embedded engine, 4 chains of 1000 + 1000, Vecchia's "
        "approximation with 15 neighbours. Compilation, once on a machine, is left out. "
        f"Disclosure: `ds.assess` with a floor of {FLOOR:g}, before and after protection, copies "
        "to compare with included, and the seconds of processors that it takes, which other work "
        "on the machine does not prolong as it does the others; report: its page. Draws: posterior "
        "draws behind the intruder's sds; left out: how much smaller an sd is at most, in a "
        "sample, with three times as many records around. Memory: peak of the larger of the two "
        "processes.",
        "",
        "| N | "
        + " | ".join(STAGES)
        + " | of processors | worst ESS | fit | floor | draws | left out | peak GiB |",
        "|---" * (len(STAGES) + 8) + "|",
    ]
    for row in rows:
        times = " | ".join(f"{row[s]:.1f}" for s in STAGES)
        lines.append(
            f"| {row['n']:,} | {times} | {row['processors']:.0f} | {row['ess']:.0f} | "
            f"{row['verdict']} | "
            f"{row['disclosure_verdict']} | {row['draws']} | {100 * row['left_out']:.2g}% | "
            f"{row['gib']:.2f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure every size in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--one", type=int, help="measure one size, print JSON")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--out", type=Path, default=OUT)
    told = parser.parse_args()
    if told.one:
        print(json.dumps(measure(told.one)))
        return
    rows = []
    for n in told.sizes:
        command = [sys.executable, __file__, "--one", str(n)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        rows.append(json.loads(done.stdout.splitlines()[-1]))
        print(rows[-1], flush=True)
    told.out.write_text(report(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
