"""How well the two panels of the adaptive surface interpolate.

``python tests/benchmarks/adaptive_error.py [N ...]`` prints, for each rule, protection and number
of nodes, the largest error of the log density at 144 held-out points.
"""

from __future__ import annotations

import sys

import numpy as np
from scipy.spatial.distance import cdist

from dsstan.covariance.correlation import decay_bounds
from dsstan.models.adaptive.rules import AdaptiveRule
from dsstan.models.adaptive.surface import Setting, build_adaptive_surface

RULES = {"ratio": AdaptiveRule(), "alpha 0.2": AdaptiveRule("alpha", alpha=0.2)}
NODES = ((32, 28), (32, 36), (48, 42))


def main(sizes: list[int]) -> None:
    """Print the table."""
    for n in sizes:
        rng = np.random.default_rng(1)
        sites = rng.uniform(size=(n, 2))
        sites[:6] = sites[6:12]
        d = cdist(sites, sites)
        X = np.column_stack([np.ones(n), rng.standard_normal(n)])
        V = np.exp(-6.0 * d) + 0.1 * np.eye(n)
        y = X @ [1.0, 0.5] + np.linalg.cholesky(V) @ rng.standard_normal(n)
        bounds = {"phi_bounds": decay_bounds(float(d.max())), "r_bounds": (1e-4, 1e4)}
        for name, rule in RULES.items():
            for protection in ("paper", "preserving"):
                setting = Setting(d, np.sort(d, axis=1)[:, 1], rule, protection, "exponential")
                found = [
                    build_adaptive_surface(setting, X, y, **bounds, nodes=k, tolerance=np.inf).error
                    for k in NODES
                ]
                print(n, name, protection, *(f"{e:.0e}" for e in found), flush=True)


if __name__ == "__main__":
    main([int(v) for v in sys.argv[1:]] or [60, 200])
