"""Survey weights beside the model or inside it: the numbers of docs/explain/survey-weights.md.

``python tests/benchmarks/survey.py`` makes one population, draws samples whose inclusion depends on
the response given the covariate, and asks of ten copies of each what an analyst would: the weighted
mean of y, and the weighted slope of y on x, pooled by Reiter (2003). The truth is that of the
population. Copies are made by a formula that leaves the weights w out, or has ``log(w)``, ``w``
too, or both and their products with x; and by a likelihood in which each record counts as often as
its weight says, its draws spread as the sandwich says, with the variances that the fit without
weights found.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

import dsstan as ds
from dsstan.analysis.combining import combine
from dsstan.analysis.survey import weighted_least_squares

Floats = NDArray[np.float64]

MEMBERS, SLOPE, PHI, SIGMA_SQ, TAU_SQ = 4000, 0.5, 6.0, 0.5, 0.5
FORMULAS = {
    "left out": "y ~ x",
    "+ log(w)": "y ~ x + log(w)",
    "+ log(w) + w": "y ~ x + log(w) + w",
    "* log(w) + w": "y ~ x * log(w) + x * w",
}
WAYS = ("sample", *FORMULAS, "likelihood")

LOG_SIZES: dict[str, Callable[[Floats, Floats, Floats], Floats]] = {
    "straight": lambda own, x, noise: 0.7 * own + 0.5 * noise,
    "curved": lambda own, x, noise: 0.8 * np.maximum(0.7 * own + 0.7 * noise, -0.5) ** 2,
    "by x": lambda own, x, noise: 0.5 * own * (1.0 + np.tanh(x)) + 0.5 * noise,
}
"""Log size of a member, from what its y has beyond x (in sds), from x and from noise."""


def population(design: str, rng: np.random.Generator) -> pd.DataFrame:
    """A population with its places, and the size by which its members are drawn."""
    at = rng.uniform(size=(MEMBERS, 2))
    R = np.exp(-PHI * np.linalg.norm(at[:, None] - at[None], axis=2))
    effect = np.sqrt(SIGMA_SQ) * np.linalg.cholesky(R) @ rng.normal(size=MEMBERS)
    x = rng.normal(size=MEMBERS)
    own = effect + np.sqrt(TAU_SQ) * rng.normal(size=MEMBERS)
    own_sds, noise = (own - own.mean()) / own.std(), rng.normal(size=MEMBERS)
    size = np.exp(LOG_SIZES[design](own_sds, x, noise))
    y = 1.0 + SLOPE * x + own
    return pd.DataFrame({"a": at[:, 0], "b": at[:, 1], "x": x, "y": y, "size": size})


def sample(members: pd.DataFrame, n: int, rng: np.random.Generator) -> pd.DataFrame:
    """Systematic sample in random order, chances by size, with weights 1 / chance."""
    size = members["size"].to_numpy()
    chance = np.minimum(1.0, n * size / size.sum())
    order = rng.permutation(len(members))
    ends = np.cumsum(chance[order])
    rows = order[np.searchsorted(ends, np.arange(rng.uniform(), ends[-1], 1.0))]
    drawn = members.iloc[rows].drop(columns="size").reset_index(drop=True)
    return drawn.assign(w=1.0 / chance[rows])


def estimates(y: Floats, table: pd.DataFrame) -> tuple[Floats, Floats]:
    """Weighted mean and weighted slope, and their variances."""
    w, one = table["w"].to_numpy(), np.ones((len(table), 1))
    mean, of_mean = weighted_least_squares(one, y, w)
    X = np.column_stack([one, table["x"]])
    coef, of_coef = weighted_least_squares(X, y, w)
    return np.array([mean[0], coef[1]]), np.array([of_mean[0, 0], of_coef[1, 1]])


def by_formula(table: pd.DataFrame, formula: str, L: int, seed: int) -> tuple[Floats, Any]:
    """Copies of y, shape (L, N), from the model of the package, and its fit."""
    problem = ds.prepare(table, formula, coords=("a", "b"), survey_weights="w")
    fit = ds.fit(problem, engine="direct", chains=1, samples=400, seed=seed, progress=False)
    release = ds.synthesise(fit, L, seed=seed + 1, progress=False, accept_failed=True)
    return release.values, fit


def by_likelihood(table: pd.DataFrame, fit: Any, L: int, rng: np.random.Generator) -> Floats:
    """Copies from a likelihood in which a record counts as often as its weight says."""
    sigma_sq, tau_sq, phi = (float(np.median(fit.draws[k])) for k in ("sigma_sq", "tau_sq", "phi"))
    n, y = len(table), table["y"].to_numpy()
    share = table["w"].to_numpy() / table["w"].mean()
    at = table[["a", "b"]].to_numpy()
    K = sigma_sq * np.exp(-phi * np.linalg.norm(at[:, None] - at[None], axis=2))
    V = cho_factor(K + np.diag(tau_sq / share), lower=True)
    X = np.column_stack([np.ones(n), table["x"]])
    bread = np.linalg.inv(X.T @ cho_solve(V, X))
    beta = bread @ X.T @ cho_solve(V, y)
    nugget = tau_sq / share * cho_solve(V, y - X @ beta)
    scores = X * (share * nugget / tau_sq)[:, None]
    spread = np.linalg.cholesky(bread @ scores.T @ scores @ bread)
    of_effect = np.linalg.cholesky(K - K @ cho_solve(V, K) + 1e-9 * sigma_sq * np.eye(n))
    copies = []
    for _ in range(L):
        drawn = beta + spread @ rng.normal(size=2)
        effect = K @ cho_solve(V, y - X @ drawn) + of_effect @ rng.normal(size=n)
        copies.append(X @ drawn + effect + np.sqrt(tau_sq) * rng.normal(size=n))
    return np.stack(copies)


def one_sample(members: pd.DataFrame, n: int, L: int, seed: int) -> dict[str, Floats]:
    """By way: estimate, low and high of the two targets, shape (3, 2)."""
    rng = np.random.default_rng(seed)
    table = sample(members, n, rng)
    q, u = estimates(table["y"].to_numpy(), table)
    half = 1.96 * np.sqrt(u)
    found = {"sample": np.stack([q, q - half, q + half])}
    copies = {}
    for way, formula in FORMULAS.items():
        copies[way], fit = by_formula(table, formula, L, 10 * seed)
        if way == "left out":
            copies["likelihood"] = by_likelihood(table, fit, L, rng)
    for way, values in copies.items():
        both = [estimates(y, table) for y in values]
        pooled = combine([b[0] for b in both], [b[1] for b in both])
        found[way] = np.stack([pooled.estimate, pooled.low, pooled.high])
    return found


def study(design: str, *, samples: int, n: int, L: int, seed: int) -> pd.DataFrame:
    """Bias (in sds of the sample's own estimate), width and coverage, by way and target."""
    members = population(design, np.random.default_rng(seed))
    X = np.column_stack([np.ones(MEMBERS), members["x"]])
    slope = np.linalg.lstsq(X, members["y"].to_numpy(), rcond=None)[0][1]
    truth = np.array([members["y"].mean(), slope])
    runs = [one_sample(members, n, L, seed + 1 + k) for k in range(samples)]
    sd = np.std([run["sample"][0] for run in runs], axis=0, ddof=1)
    rows = []
    for way in WAYS:
        q, low, high = np.stack([run[way] for run in runs], axis=1)
        bias = (q.mean(axis=0) - truth) / sd
        covered = np.mean((low <= truth) & (truth <= high), axis=0)
        width = np.mean(high - low, axis=0) / (2 * 1.96 * sd)
        for k, target in enumerate(("mean", "slope")):
            rows.append((design, target, way, bias[k], width[k], covered[k]))
    names = ["design", "target", "weights", "bias / sd", "width", "coverage"]
    return pd.DataFrame(rows, columns=names)


def main() -> None:
    """Print one row a design, target and way."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--samples", type=int, default=200)
    parser.add_argument("--records", type=int, default=150)
    parser.add_argument("--copies", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    print("| design | target | weights | bias / sd | width | coverage |")
    print("|---|---|---|---|---|---|")
    for design in LOG_SIZES:
        found = study(
            *(design,), samples=given.samples, n=given.records, L=given.copies, seed=given.seed
        )
        for row in found.itertuples(index=False):
            bias, width, covered = row[3:]
            print(f"| {' | '.join(row[:3])} | {bias:+.2f} | {width:.2f} | {100 * covered:.0f}% |")


if __name__ == "__main__":
    main()
