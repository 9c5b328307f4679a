"""Rate of the sums at the nodes by one and by two single-threaded worker processes.

``python tests/benchmarks/workers.py [N]`` prints nodes a second by each, and their ratio. It wants
two idle cores; the goal is a ratio of at least 1.7 at N = 100,000. Ordering the records, starting
the workers and a first node, which has them open the records, are not counted. One and two take
turns, and the best of their runs counts.
"""

from __future__ import annotations

import sys
import time

import numpy as np
import pandas as pd

import dsstan as ds
from dsstan.core.distributed import connect
from dsstan.covariance.vecchia.spread import spread
from dsstan.covariance.vecchia.statistics import VecchiaStatistics

NEIGHBOURS, NODES, RATIOS, REPEATS = 15, 24, 24, 3
GOAL = 1.7


def statistics(n: int, seed: int = 1) -> VecchiaStatistics:
    """Of n records with a smooth surface."""
    rng = np.random.default_rng(seed)
    s, x = rng.uniform(size=(n, 2)), rng.normal(size=n)
    y = 1 + 0.5 * x + np.sin(6 * s[:, 0]) + np.cos(5 * s[:, 1]) + 0.4 * rng.normal(size=n)
    table = pd.DataFrame({"east": s[:, 0], "north": s[:, 1], "x": x, "value": y})
    problem = ds.prepare(table, "value ~ x", coords=("east", "north"))
    return VecchiaStatistics.of(
        problem, np.arange(n), a_diag=np.ones(n), protection="none", neighbours=NEIGHBOURS
    )


def rate(source: VecchiaStatistics, workers: int) -> float:
    """Nodes a second."""
    phi, r = np.geomspace(5.0, 50.0, NODES), np.geomspace(0.01, 10.0, RATIOS)
    with connect(workers) as cluster, spread(source, cluster) as spread_out:
        spread_out.sums(phi[:1], r)
        begin = time.perf_counter()
        spread_out.sums(phi, r)
        return NODES / (time.perf_counter() - begin)


def main(n: int) -> None:
    """Print the rates."""
    source = statistics(n)
    rates = [(rate(source, 1), rate(source, 2)) for _ in range(REPEATS)]
    one, two = (max(each) for each in zip(*rates, strict=True))
    print(f"N = {n}, {NEIGHBOURS} neighbours, {RATIOS} nugget ratios a node")
    print(f"one worker   {one:.3g} nodes a second")
    print(f"two workers  {two:.3g} nodes a second")
    print(f"ratio        {two / one:.2f} (goal {GOAL})")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
