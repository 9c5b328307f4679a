"""Tables on which Vecchia's approximation is compared with the exact covariance."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
from scipy.spatial.distance import cdist

import dsstan as ds
from dsstan.covariance.correlation import correlation


@dataclasses.dataclass(frozen=True)
class Layout:
    """A kind of table: where its records are, and the law of the response there."""

    ratio: float  # tau_sq / sigma_sq
    cov_model: str = "exponential"
    phi: float = 12.7
    clustered: bool = False
    towers: bool = False


LAYOUTS = {
    "uniform": Layout(0.0625),
    "clustered": Layout(0.0625, clustered=True),
    "towers, small nugget": Layout(0.01, towers=True),
    "towers, large nugget": Layout(1.0, towers=True),
    "Matern 3/2": Layout(0.002, "matern32", 20.0),
    "Matern 5/2": Layout(0.002, "matern52", 26.0),
}
"""By name; the effective range is about 0.24 of the unit square in each."""


def places(layout: Layout, n: int, rng: np.random.Generator) -> np.ndarray:
    """n records; in towers on 0.3 n sites, of which a few have very many."""
    if layout.clustered:
        middles = rng.uniform(size=(12, 2))
        spread = rng.choice([0.01, 0.03, 0.1], size=12)
        which = rng.integers(12, size=n)
        return middles[which] + spread[which, None] * rng.standard_normal((n, 2))
    if not layout.towers:
        return rng.uniform(size=(n, 2))
    count = round(0.3 * n)
    size = rng.pareto(1.2, count) + 0.05
    more = rng.choice(count, n - count, p=size / size.sum())
    return rng.uniform(size=(count, 2))[np.concatenate([np.arange(count), more])]


def problem_on(layout: Layout, n: int, seed: int) -> ds.Problem:
    """A table of this layout with sigma_sq 4, an intercept and one covariate."""
    rng = np.random.default_rng(seed)
    sites, x = places(layout, n, rng), rng.standard_normal(n)
    distinct, at = np.unique(sites, axis=0, return_inverse=True)
    K = 4.0 * correlation(cdist(distinct, distinct), layout.phi, layout.cov_model)
    values, vectors = np.linalg.eigh(K)
    w = vectors @ (np.sqrt(np.maximum(values, 0.0)) * rng.standard_normal(len(distinct)))
    noise = np.sqrt(4.0 * layout.ratio) * rng.standard_normal(n)
    table = pd.DataFrame(
        {"s1": sites[:, 0], "s2": sites[:, 1], "x": x, "y": 11.0 + 0.5 * x + w[at.ravel()] + noise}
    )
    return ds.prepare(table, "y ~ x", coords=("s1", "s2"))


def quantities(fit: ds.Fit) -> dict[str, np.ndarray]:
    """What is compared: draws of the logs of the covariance's parameters, and of beta."""
    draws = {
        f"log {name}": np.log(fit.draws[name]).ravel() for name in ("phi", "sigma_sq", "tau_sq")
    }
    if fit.phi_held is not None:
        del draws["log phi"]
    beta = fit.draws["beta"].reshape(-1, fit.problem.n_terms)
    return draws | {term: column for term, column in zip(fit.problem.terms, beta.T, strict=True)}


def shift(exact: ds.Fit, near: ds.Fit) -> dict[str, float]:
    """By how much each posterior mean is off, in sds of the exact posterior."""
    want, found = quantities(exact), quantities(near)
    return {name: (found[name].mean() - want[name].mean()) / want[name].std() for name in want}


class Unit:
    """A source of normals that are zero, or one at one place."""

    def __init__(self, place=None):
        self.place, self.used = place, 0

    def standard_normal(self, size):
        out = np.zeros(size)
        if self.place is not None and self.used <= self.place < self.used + size:
            out[self.place - self.used] = 1.0
        self.used += size
        return out


def linear_law(model, p):
    """A draw is mean + root z with z standard normal: both, exactly."""
    mean = model.draw(p, Unit())
    count = len(model.sites) + model.rows.size
    return mean, np.column_stack([model.draw(p, Unit(i)) - mean for i in range(count)])
