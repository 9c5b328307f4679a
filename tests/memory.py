"""Peak memory of a whole release: ``python tests/memory.py [--records 2000]``, as JSON.

``--out tests/benchmarks/memory.json`` states it for ``docs/trust-table.md``.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import dsstan as ds

COPIES = 20


def table_of(n: int) -> pd.DataFrame:
    """N records uniform on the unit square with an exponential covariance."""
    rng = np.random.default_rng(n)
    s = rng.uniform(size=(n, 2))
    d = np.sqrt(((s[:, None] - s[None]) ** 2).sum(-1))
    w = np.linalg.cholesky(np.exp(-8.0 * d) + 0.1 * np.eye(n)) @ rng.normal(size=n)
    return pd.DataFrame({"s1": s[:, 0], "s2": s[:, 1], "value": np.exp(9.0 + w).round(2)})


def measure(table: pd.DataFrame, folder: Path) -> dict[str, Any]:
    """One release in this process; peaks of this process and of its largest child."""
    release = ds.protect(
        table,
        "log(value) ~ 1",
        coords=("s1", "s2"),
        threshold=0.02,
        copies=COPIES,
        engine="embedded",
        seed=1,
        chains=2,
        warmup=200,
        samples=200,
        accept_failed=True,
        progress=False,
    )
    release.write(folder / "out")
    peaks = [
        resource.getrusage(who).ru_maxrss / 1024
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    ]
    return {
        "records": len(table),
        "copies": COPIES,
        "peak_mib": round(max(peaks), 1),
        "own_mib": round(peaks[0], 1),
        "child_mib": round(peaks[1], 1),
    }


def main() -> None:
    """Measure and print; the table comes from a file, so that making it costs no memory here."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=2000)
    parser.add_argument("--table", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        if arguments.table is None:
            import subprocess

            path = Path(name) / "table.parquet"
            table_of(arguments.records).to_parquet(path)
            done = subprocess.run(
                [sys.executable, __file__, "--table", str(path)],
                check=True,
                capture_output=True,
                text=True,
            )
            text = done.stdout
        else:
            text = (
                json.dumps(measure(pd.read_parquet(arguments.table), Path(name)), indent=2) + "\n"
            )
    sys.stdout.write(text)
    if arguments.out:
        arguments.out.write_text(text)


if __name__ == "__main__":
    main()
