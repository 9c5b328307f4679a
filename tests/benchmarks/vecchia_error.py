"""How far Vecchia's posterior is from the exact one, by neighbours and ordering.

Root mean squares over simulated data sets of 1000 records, and by how much the log density is lower
in the mean, as Markdown tables: ``python tests/benchmarks/vecchia_error.py``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from test_vecchia import divergences, shifts

NEIGHBOURS = (5, 10, 15, 20, 30)
ORDERINGS = ("maxmin", "coordinate")
NUGGETS = (0.0625, 0.25, 1.0)
SEEDS = range(4)


def main() -> None:
    """Print the table."""
    print("| tau_sq, of sigma_sq 4 | order | " + " | ".join(f"m = {m}" for m in NEIGHBOURS) + " |")
    print("|---" * (len(NEIGHBOURS) + 2) + "|")
    for nugget in NUGGETS:
        for ordering in ORDERINGS:
            found = shifts(1000, SEEDS, NEIGHBOURS, tau_sq=nugget, ordering=ordering)
            size = np.sqrt(np.mean(found**2, axis=(0, 2)))
            print(
                f"| {nugget:g} | {ordering} | " + " | ".join(f"{s:.3f}" for s in size) + " |",
                flush=True,
            )
    print("\n| N | tau_sq | " + " | ".join(f"m = {m}" for m in NEIGHBOURS) + " |")
    print("|---" * (len(NEIGHBOURS) + 2) + "|")
    for n in (1000, 2000):
        for nugget in NUGGETS:
            fall = divergences(n, SEEDS, NEIGHBOURS, tau_sq=nugget).mean(axis=0)
            print(f"| {n} | {nugget:g} | " + " | ".join(f"{f:.2f}" for f in fall) + " |")


if __name__ == "__main__":
    main()
