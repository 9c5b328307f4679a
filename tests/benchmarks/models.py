"""Time and effective sample size of every model, into ``docs/benchmarks-models.md``.

Each ``cases_<model>.py`` beside this file has ``fit_case(n, seed)``. Every fit runs in a process
of its own: ``python tests/benchmarks/models.py``.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
OUT = HERE.parents[1] / "docs" / "benchmarks-models.md"
SIZES = (200, 500)
LIMIT = 1500.0
"""Seconds after which a fit is stopped, and its row says so."""


def cases() -> list[str]:
    """Names of the models that have a case."""
    return sorted(path.stem.removeprefix("cases_") for path in HERE.glob("cases_*.py"))


def measure(name: str, n: int) -> dict[str, Any]:
    """One fit, in this process."""
    sys.path.insert(0, str(HERE))
    begin = time.perf_counter()
    fit = importlib.import_module(f"cases_{name}").fit_case(n)
    seconds = time.perf_counter() - begin
    peak = max(
        resource.getrusage(who).ru_maxrss
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return {
        "model": name,
        "outcome": fit.outcome,
        "n": fit.problem.n_records,
        "fit": fit.seconds,
        "seconds": seconds,
        "ess": fit.worst_ess,
        "divergent": divergent(fit),
        "passed": fit.verdict.passed,
        "mib": peak / 1024,
    }


def divergent(fit: Any) -> float | None:
    """Share of divergent iterations, where the sampler has any such thing."""
    found = [check.value for check in fit.verdict.checks if check.name == "divergent share"]
    return float(found[0]) if found else None


def report(rows: list[dict[str, Any]]) -> str:
    """The table, as Markdown."""
    lines = [
        "# Benchmarks of the models",
        "",
        "Made by `python tests/benchmarks/models.py`: each row one fit of simulated records in a "
        f"fresh process on {os.cpu_count()} cores ({platform.machine()}), 4 chains of 1000 + 1000 "
        "iterations unless the model's page says otherwise, phi free but for the brackets, which "
        "are under the truncated likelihood. Seconds are those of the "
        "fit, checks included. Worst effective sample size: the smallest bulk ESS of any "
        "parameter. Memory: peak of the larger of the two processes. A fit that had not ended "
        "after the seconds given was stopped. Compare rows of one run.",
        "",
        "| model | law of the response | N | seconds | worst ESS | worst ESS a second "
        "| divergent | verdict | peak MiB |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for r in rows:
        if "stopped" in r:
            gone = f"stopped after {r['stopped']:.0f}"
            lines.append(f"| {r['model']} | | {r['n']} | {gone} | | | | | |")
            continue
        apart = "–" if r["divergent"] is None else f"{100 * r['divergent']:.2g}%"
        lines.append(
            f"| {r['model']} | {r['outcome']} | {r['n']} | {r['fit']:.1f} | {r['ess']:.0f} | "
            f"{r['ess'] / r['fit']:.1f} | {apart} | {'passed' if r['passed'] else 'failed'} | "
            f"{r['mib']:.0f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run every case in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--one", nargs=2, metavar=("MODEL", "N"), help="measure one, print JSON")
    parser.add_argument("--models", nargs="+", default=cases(), help="which models")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds a fit may take")
    parser.add_argument("--out", type=Path, default=OUT)
    told = parser.parse_args()
    if told.one:
        print(json.dumps(measure(told.one[0], int(told.one[1]))))
        return
    rows = []
    for name in told.models:
        for n in SIZES:
            command = [sys.executable, __file__, "--one", name, str(n)]
            try:
                done = subprocess.run(
                    command, stdout=subprocess.PIPE, text=True, check=True, timeout=told.limit
                )
                rows.append(json.loads(done.stdout.splitlines()[-1]))
            except subprocess.TimeoutExpired:
                rows.append({"model": name, "n": n, "stopped": told.limit})
            print(rows[-1], flush=True)
    told.out.write_text(report(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
