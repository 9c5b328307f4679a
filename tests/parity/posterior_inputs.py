"""Settings of the posterior twins: which records, which are watched, how long chains run.

The San Francisco cases hold rules and positions, never a value of the data.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dsstan.table.datasets import load_simulated

CHAINS = 4
ALONE = 4
"""Simulated records that are taken because they stand furthest from any other."""

HOMES = {
    "table": "san_francisco",
    "formula": "log(price) ~ scale(log(squarefeet))",
    "coords": ["longitude", "latitude"],
    "distance": 0.01,
}


def simulated_rows(count: int = 120) -> list[int]:
    """The four records furthest from all others, and the closest pairs.

    Pairs tell the nugget from the spatial effect, so that a sampler of the latent effect mixes.
    """
    table = load_simulated()
    sites = table[["s1", "s2"]].to_numpy(float)
    d = np.sqrt(((sites[:, None] - sites[None]) ** 2).sum(-1))
    np.fill_diagonal(d, np.inf)
    chosen = {int(i) for i in np.argsort(-d.min(axis=1), kind="stable")[:ALONE]}
    first, second = np.triu_indices(len(sites), 1)
    for k in np.argsort(d[first, second], kind="stable"):
        pair = {int(first[k]), int(second[k])}
        if len(chosen) < count and not pair & chosen:
            chosen |= pair
    return sorted(chosen)


def run(long: tuple[int, int], short: tuple[int, int]) -> dict[str, dict[str, int]]:
    """Warm-up and kept iterations a chain of both runs."""
    return {
        name: {"warmup": warmup, "kept": kept}
        for name, (warmup, kept) in (("long", long), ("short", short))
    }


def posterior() -> dict[str, Any]:
    """The three cases."""
    return {
        "chains": CHAINS,
        "simulated": {
            "table": "simulated",
            "words": "120 simulated incomes",
            "formula": "log(income) ~ 1",
            "coords": ["s1", "s2"],
            "rows": simulated_rows(),
            "distance": 0.13,
            "phi": 14.0,
            "outlier": 119,
            "watched": [119, 116, 0, 40, 80],
            "start": {"sigma": 2.1, "tau": 0.25},
            "seed": 100000,
            "lengths": {
                "unrestricted": run((500, 2700), (40, 60)),
                "infinite": run((200, 1200), (40, 80)),
                "four": run((200, 2000), (40, 80)),
            },
        },
        "subset": {
            **HOMES,
            "words": "100 San Francisco homes",
            "keep": 100,
            "phi": 40.0,
            "outlier": 13,
            "watched": [13, 0, 3, 40, 50],
            "start": {"sigma": 0.28, "tau": 0.17},
            "seed": 200000,
            "lengths": {
                "unrestricted": run((500, 2000), (40, 80)),
                "infinite": run((200, 3000), (40, 100)),
                "four": run((200, 4000), (40, 100)),
            },
        },
        "homes": {
            **HOMES,
            "words": "214 San Francisco homes",
            "keep": 214,
            "phi": 60.0,
            "outlier": 27,
            "watched": [27, 3, 38, 9, 107],
            "start": {"sigma": 0.3, "tau": 0.15},
            "seed": 300000,
            "lengths": {
                "unrestricted": run((500, 8000), (60, 120)),
                "infinite": run((200, 3000), (60, 120)),
                "four": run((200, 4000), (60, 120)),
            },
        },
    }
