"""Stages of a release with moved places of many records, into ``docs/benchmarks-places.md``.

Each size runs in a process of its own: ``python tests/benchmarks/places_scale.py``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from release_scale import peak

HERE = Path(__file__).resolve().parent
OUT = HERE.parents[1] / "docs" / "benchmarks-places.md"
SIZES = ((10_000, 1_024), (100_000, 3_969))
"""Records, and cells of a square mask."""
COPIES = 20
STAGES = ("intensity", "values", "copies", "intruders")


def table_of(n: int, cells: int) -> tuple[Any, Any]:
    """A table on the unit square whose records cluster, and its mask."""
    import numpy as np
    import pandas as pd
    from scale_data import BETA, SIGMA_SQ, TAU_SQ, effect

    from dsstan.table.mask.mask import Mask

    side, rng = int(np.sqrt(cells)), np.random.default_rng(n)
    middle = (np.arange(side) + 0.5) / side
    mask = Mask(np.array([(a, b) for a in middle for b in middle]), 1.0 / side, np.ones(side**2))
    chance = np.exp(effect(mask.centres, rng.standard_normal(side**2), 30))
    sites = mask.draw(rng.choice(side**2, n, p=chance / chance.sum()), rng)
    x, noise = rng.standard_normal((2, n))
    w = np.sqrt(SIGMA_SQ) * effect(sites, rng.standard_normal(n), 30)
    y = BETA[0] + BETA[1] * x + w + np.sqrt(TAU_SQ) * noise
    return pd.DataFrame({"s1": sites[:, 0], "s2": sites[:, 1], "x": x, "y": y}), mask


def measure(n: int, cells: int) -> dict[str, Any]:
    """One release, in this process."""
    import dsstan as ds
    from dsstan.copies.places.draw import move_places
    from dsstan.models.intensity.fit import fit_intensity
    from dsstan.risk.places.assessment import assess_places

    wall, cpu, gib = {}, {}, {}

    def timed(n: int, stage: str, call: Any) -> Any:
        begin, busy = time.perf_counter(), sum(os.times()[:4])
        found = call()
        wall[stage] = time.perf_counter() - begin
        cpu[stage] = sum(os.times()[:4]) - busy
        gib[stage] = peak()
        print(
            f"{n:,} records, {stage}: {wall[stage]:.1f} s, of processors {cpu[stage]:.1f} s, "
            f"peak {gib[stage]:.2f} GiB",
            file=sys.stderr,
            flush=True,
        )
        return found

    def restricted(problem: ds.Problem, lonely: Any) -> ds.Fit:
        free = ds.fit(problem, seed=2, progress=False)
        weights = ds.own_weights(problem, lonely.astype(float))
        return ds.fit(problem, weights=weights, start=free, seed=4, progress=False)

    def run(n: int, cells: int) -> tuple[Any, Any]:
        table, mask = table_of(n, cells)
        problem = ds.prepare(table, "y ~ x", coords=("s1", "s2"), distance="planar")
        where = timed(n, "intensity", lambda: fit_intensity(problem, mask, seed=1, progress=False))
        values = timed(n, "values", lambda: restricted(problem, where.lonely))
        how = {"seed": 3, "accept_failed": True, "accept_few_draws": True, "progress": False}
        release = timed(n, "copies", lambda: move_places(where, values, COPIES, **how))
        found = timed(
            n,
            "intruders",
            lambda: assess_places(release, finding=0.1, floor="10%", earlier=()),
        )
        return values, found

    run(3000, 400)  # compilation, which happens once on a machine
    values, found = run(n, cells)
    return {
        "n": n,
        "cells": cells,
        "wall": wall,
        "cpu": cpu,
        "gib": gib,
        "fit": str(values.verdict).splitlines()[0],
        "verdict": found.verdict,
    }


def report(rows: list[dict[str, Any]]) -> str:
    """The table, as Markdown."""
    lines = [
        "# Benchmark of a release with moved places",
        "",
        "Made by `python tests/benchmarks/places_scale.py`: seconds of a wall clock and, in "
        "brackets, of processors, of each stage of a release of simulated records with moved "
        f"places and values, {COPIES} copies, on a square of cells, each size in a fresh process "
        f"on {os.cpu_count()} cores ({platform.machine()}), embedded engine, 4 chains, Vecchia's "
        "approximation. Other work on the machine prolongs the wall clock, not the seconds of "
        "processors. Intensity: one fit of a shared surface. Values: the unrestricted fit, and the "
        "one in which records alone in their cell are flagged. Intruders: of finding, and of "
        "values as if places were kept, of every record. Compilation, once on a machine, is left "
        "out. Memory: peak of the larger of the process and its children.",
        "",
        "| N | cells | " + " | ".join(STAGES) + " | all | peak GiB |",
        "|---" * (len(STAGES) + 4) + "|",
    ]
    for row in rows:
        wall, cpu = ([row[name][s] for s in STAGES] for name in ("wall", "cpu"))
        pairs = [*zip(wall, cpu, strict=True), (sum(wall), sum(cpu))]
        times = " | ".join(f"{a:.0f} ({b:.0f})" for a, b in pairs)
        gib = max(row["gib"].values())
        lines.append(f"| {row['n']:,} | {row['cells']:,} | {times} | {gib:.2f} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure every size in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--one", type=int, nargs=2, help="records and cells; print JSON")
    parser.add_argument("--out", type=Path, default=OUT)
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(measure(*asked.one)))
        return
    rows = []
    for size in SIZES:
        command = [sys.executable, __file__, "--one", *map(str, size)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        rows.append(json.loads(done.stdout.splitlines()[-1]))
        print(rows[-1], flush=True)
    asked.out.write_text(report(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
