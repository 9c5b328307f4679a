"""Releases whose records are looked at exactly, to see how good the bounds of an attack are.

``python tests/risk/bound_cases.py [rounds]`` prints how often the exact sd lies between bounds with
other margins, from which :data:`dsstan.risk.intruder.attacker.MARGIN` was chosen.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from scipy.spatial.distance import cdist

import dsstan as ds
from dsstan.copies.result import Synthesis
from dsstan.models.weights import own_weights
from dsstan.risk.intruder.attacker import Attack, attack
from dsstan.risk.intruder.exact import exact_intruder

NUGGETS = (0.01, 0.25, 2.0)
PROTECTIONS = (
    ("none", 0.0),
    ("paper", np.inf),
    ("preserving", np.inf),
    ("cut", np.inf),
    ("paper", 3.0),
)
SIZES = ((30, 5), (45, 10), (30, 20))
"""Numbers of records and of copies, in turn by round."""

FAST = {"engine": "embedded", "progress": False, "chains": 4, "warmup": 500, "samples": 500}


def table(nugget: float, n: int, seed: int) -> pd.DataFrame:
    """A third of the records share sites in pairs; two share one far away, and one is farther."""
    rng = np.random.default_rng(seed)
    sites, pairs = rng.uniform(0, 1, (n, 2)), n // 6
    sites[:pairs] = sites[pairs : 2 * pairs]
    sites[-3:] = (-0.7, 1.2), (-0.7, 1.2), (1.8, 1.8)
    x = rng.normal(size=n)
    root = np.linalg.cholesky(np.exp(-4.0 * cdist(sites, sites)) + nugget * np.eye(n))
    y = 2.0 + 0.5 * x + root @ rng.standard_normal(n)
    return pd.DataFrame({"a": sites[:, 0], "b": sites[:, 1], "x": x, "y": y})


def release(
    nugget: float, protection: str, gamma: float, n: int, copies: int, seed: int
) -> Synthesis:
    """Copies of such a table, the far records and a pair at one site flagged."""
    problem = ds.prepare(table(nugget, n, seed), "y ~ x", coords=("a", "b"))
    fit = ds.fit(problem, seed=seed + 1, **FAST)
    if protection != "none":
        flagged = np.isin(np.arange(n), [0, n // 6, n - 3, n - 2, n - 1])
        weights = own_weights(problem, flagged.astype(float))
        how = {"weights": weights, "protection": protection, "gamma": gamma, "start": fit}
        fit = ds.fit(problem, seed=seed + 2, **how, **FAST)
    how = {"accept_failed": True, "accept_few_draws": True, "progress": False}
    return ds.synthesise(fit, copies, seed=seed + 3, rounding="none", **how)


def looked_at(found: Attack, seed: int) -> list[int]:
    """The three weakest records, five flagged or of the same places, and five at random."""
    n = found.exposure.size
    weakest = np.argsort(found.sd(variances="known"))[:3]
    some = np.random.default_rng(seed).choice(n, 5, replace=False)
    return sorted({0, n // 6, n - 3, n - 2, n - 1, *weakest.tolist(), *some.tolist()})


EVERY = tuple(itertools.product(NUGGETS, PROTECTIONS))


def cases(rounds: Sequence[int], some: Sequence[Any] = EVERY) -> Iterator[pd.DataFrame]:
    """A release at a time: exact sds and both bounds, with the margin and without."""
    for number in rounds:
        n, copies = SIZES[number % len(SIZES)]
        for place, (nugget, how) in enumerate(some):
            seed = 1000 * number + 10 * place
            made = release(nugget, *how, n, copies, seed)
            bounds = attack(made, progress=False)
            rows = looked_at(bounds, seed)
            exact = exact_intruder(made, records=rows, bounds=bounds, progress=False).records
            rows = exact["position"].to_numpy()
            bare = replace(bounds, margin=(1.0, 1.0))
            yield pd.DataFrame(
                {
                    "protection": how[0],
                    "nugget": nugget,
                    "position": rows,
                    "exact": exact["sd"].to_numpy(),
                    "low": bounds.sd(variances="known")[rows],
                    "high": bounds.sd()[rows],
                    "bare_low": bare.sd(variances="known")[rows],
                    "bare_high": bare.sd()[rows],
                }
            )


def main(rounds: int) -> None:
    """Print how often the exact sd is outside bounds with other factors."""
    found = pd.concat(list(cases(range(rounds))), ignore_index=True)
    silent = found["low"] == found["high"]  # copies say nothing of a record, and nothing is added
    found = found[~silent]
    print(f"{len(found)} record-cases, and {int(silent.sum())} of which copies say nothing")
    for factor in (1.0, 0.95, 0.9, 0.85, 0.8, 0.75):
        ratio = found["exact"] / (factor * found["bare_low"])
        share, worst = float((ratio < 1).mean()), float(ratio.min())
        print(f"lower times {factor:4.2f}: below in {share:6.1%}, by {1 - worst:5.1%} at worst")
    for factor in (1.0, 1.1, 1.2, 1.25, 1.3, 1.4):
        ratio = found["exact"] / (factor * found["bare_high"])
        share, worst = float((ratio > 1).mean()), float(ratio.max())
        print(f"upper times {factor:4.2f}: above in {share:6.1%}, by {worst - 1:5.1%} at worst")
    below, above = found["exact"] / found["low"], found["exact"] / found["high"]
    for side, missed, worst in (
        ("below", below < 1, 1 - below.min()),
        ("above", above > 1, above.max() - 1),
    ):
        print(f"as printed: {side} in {float(missed.mean()):.1%}, by {worst:.1%} at worst")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 6)
