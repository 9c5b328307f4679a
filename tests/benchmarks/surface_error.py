"""How well the surface interpolates under each correlation function.

``python tests/benchmarks/surface_error.py [N ...]`` prints one row a function and protection:
the largest error of the log density at held-out points over the default range of phi and the
whole range of r, for rising numbers of nodes. A tenth of the records share a site.
"""

from __future__ import annotations

import sys

import numpy as np
from scipy.spatial.distance import cdist

from dsstan.covariance.correlation import CORRELATIONS, decay_bounds
from dsstan.covariance.likelihood_surface import build_surface

NODES = ((32, 56), (48, 84), (64, 112))


def errors(n: int, cov_model: str, protection: str, seed: int = 1) -> list[float]:
    """Error at each of ``NODES``, at 144 held-out points."""
    rng = np.random.default_rng(seed)
    sites = rng.uniform(size=(n, 2))
    sites[: n // 10] = sites[n // 10 : 2 * (n // 10)]
    d = cdist(sites, sites)
    X = np.column_stack([np.ones(n), rng.standard_normal(n)])
    V = np.exp(-6.0 * d) + 0.1 * np.eye(n)
    y = X @ [1.0, 0.5] + np.linalg.cholesky(V) @ rng.standard_normal(n)
    A = np.ones(n)
    if protection != "none":
        A[::40], A[1::40] = 0.0, 0.6
    return [
        build_surface(
            d,
            X,
            y,
            a_diag=A,
            protection=protection,
            phi_bounds=decay_bounds(float(d.max()), cov_model),
            r_bounds=(1e-4, 1e4),
            cov_model=cov_model,
            nodes=nodes,
            tolerance=np.inf,
            seed=3,
        ).error
        for nodes in NODES
    ]


def main(sizes: list[int]) -> None:
    """Print the table."""
    print("N cov_model protection", *(f"{g}x{h}" for g, h in NODES))
    for n in sizes:
        for cov_model in CORRELATIONS:
            for protection in ("none", "paper", "preserving"):
                found = errors(n, cov_model, protection)
                print(n, cov_model, protection, *(f"{e:.0e}" for e in found), flush=True)


if __name__ == "__main__":
    main([int(v) for v in sys.argv[1:]] or [100, 300])
