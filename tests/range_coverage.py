"""Coverage of 95% intervals by the prior of the decay, where the true range is short or long.

``python tests/range_coverage.py`` prints the table of docs/explain/correlation.md. Tables are drawn
from fixed parameters; the true effective range is a share of the largest distance.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats
from scipy.spatial.distance import cdist

import dsstan as ds
from dsstan.models.priors import DECAYS

N, TABLES = 120, 80
RANGES = (0.2, 0.64, 1.33)
"""True effective range over the largest distance."""
TERMS = ("intercept", "spatial slope")
BETA, SIGMA_SQ, TAU_SQ = np.array([2.0, 0.5]), 1.0, 0.1
LEVEL, GOAL = 0.95, 0.92
FALSE_ALARM = 1e-4


@dataclass(frozen=True)
class Coverage:
    """How many intervals of each term held the truth, and their mean width, shapes (2,)."""

    decay: str
    reach: float
    covered: np.ndarray
    width: np.ndarray
    tables: int

    def __str__(self) -> str:
        share = self.covered / self.tables
        each = [f"{share[j]:.3f} | {self.width[j]:.2f}" for j in range(2)]
        return f"| {self.decay} | {self.reach} | {' | '.join(each)} |"


def table(reach: float, seed: int) -> pd.DataFrame:
    """Places on the unit square, a smooth covariate and a response."""
    rng = np.random.default_rng([seed, round(100 * reach)])
    sites = rng.uniform(size=(N, 2))
    d = cdist(sites, sites)
    trend = np.sin(2.5 * sites[:, 0]) + sites[:, 1]
    trend = (trend - trend.mean()) / trend.std(ddof=1)
    V = SIGMA_SQ * np.exp(-3.0 / (reach * d.max()) * d) + TAU_SQ * np.eye(N)
    y = BETA[0] + BETA[1] * trend + np.linalg.cholesky(V) @ rng.standard_normal(N)
    return pd.DataFrame({"a": sites[:, 0], "b": sites[:, 1], "trend": trend, "y": y})


def coverage(decay: str, reach: float, tables: int = TABLES) -> Coverage:
    """Of the intervals of the coefficients, from the direct engine."""
    ends = []
    for seed in range(tables):
        problem = ds.prepare(table(reach, seed), "y ~ trend", coords=("a", "b"))
        priors = ds.Priors(decay=decay)
        fit = ds.fit(problem, priors=priors, engine="direct", seed=seed, progress=False)
        ends.append(np.quantile(fit.draws["beta"], [(1 - LEVEL) / 2, (1 + LEVEL) / 2], (0, 1)))
    low, high = np.moveaxis(np.array(ends), 1, 0)
    held = (low <= BETA) & (high >= BETA)
    return Coverage(decay, reach, held.sum(axis=0), (high - low).mean(axis=0), tables)


def fewest(tables: int, share: float) -> int:
    """Fewest intervals that hold the truth where that share does, but for a false alarm."""
    return int(stats.binom(tables, share).ppf(FALSE_ALARM))


def study(tables: int) -> Iterator[Coverage]:
    """Each prior at each range."""
    for decay in DECAYS:
        for reach in RANGES:
            yield coverage(decay, reach, tables)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--tables", type=int, default=TABLES)
    print("| decay | range / d_max | intercept covered | width | slope covered | width |")
    print("|---|---|---|---|---|---|")
    for found in study(parser.parse_args().tables):
        print(found, flush=True)


if __name__ == "__main__":
    main()
