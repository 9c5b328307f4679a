"""CPU seconds of ``import dsstan`` and of the first use of some names, the median of five.

From the root of the repository: ``python tests/benchmarks/import_time.py``.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RUNS = 5
STATEMENTS = (
    "import pandas",
    "import dsstan",
    "import dsstan; dsstan.fit",
    "import dsstan; [getattr(dsstan, name) for name in dsstan.__all__]",
    "import dsstan.cli",
)


def cpu_seconds(statement: str) -> float:
    """CPU seconds, of user and system, of a fresh interpreter that runs a statement."""
    before = os.times()
    subprocess.run([sys.executable, "-c", statement], cwd=ROOT, check=True)
    after = os.times()
    return (
        after.children_user + after.children_system - before.children_user - before.children_system
    )


if __name__ == "__main__":
    for statement in STATEMENTS:
        cpu_seconds(statement)  # writes the bytecode, and warms the disk's cache
        median = statistics.median(cpu_seconds(statement) for _ in range(RUNS))
        print(f"{median:6.2f} s  {statement}", flush=True)
