"""Simulation-based calibration of the truncated likelihood, and the law of bracketed copies.

``python tests/bracketed_calibration.py --replicates 200`` prints the long version. The brackets
are a part of the design: parameters and w from the prior, each y from its normal cut to a bracket
that is fixed beforehand, then ``fit_bracketed`` with ``likelihood="truncated"``. Ranks are judged
as in ``calibration.py``. The likelihood ``plain`` is the Gaussian fit, which ``calibration.py``
calibrates; what is its own is the law of the copies, held here at parameters that are known.
"""

from __future__ import annotations

import argparse
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pandas as pd
from calibration import FAMILY_ALPHA, THINNED, Uniformity, in_parallel, uniformity
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

import dsstan as ds
from dsstan.models.brackets.fit import fit_bracketed
from dsstan.models.brackets.limits import find_brackets
from dsstan.models.brackets.result import BracketedFit
from dsstan.models.brackets.truncation import truncated_normal
from dsstan.models.posterior import spread_draws
from dsstan.models.result import Fit
from factory import fit_from

Floats = NDArray[np.float64]

N, PHI = 12, 4.0
CUTS = (-0.7, 0.8)
PRIORS = ds.Priors(beta_scale=(1.0, 1.0), sigma=1.0, tau=0.7)
SAMPLER: dict[str, Any] = {"chains": 1, "samples": 500}
FLAGGED, ORDINARY = N - 1, 8
NAMES = ("beta_0", "beta_1", "sigma_sq", "tau_sq", "w", "w, flagged")


def table() -> pd.DataFrame:
    """Fixed sites, two of them shared, one far away, and a covariate."""
    rng = np.random.default_rng(12)
    xy = rng.uniform(size=(N, 2))
    xy[:2], xy[FLAGGED] = xy[2:4], (1.5, 0.4)
    return pd.DataFrame({"east": xy[:, 0], "north": xy[:, 1], "x": rng.normal(size=N)})


def problem_of(y: Floats) -> ds.Problem:
    """The table with this response, prepared."""
    return ds.prepare(table().assign(y=y), "y ~ x", coords=("east", "north"))


Replicate = tuple[dict[str, float], dict[str, Floats]]
"""True values, and THINNED posterior draws of each."""


def truncated_replicate(seed: int) -> Replicate:
    """One table drawn from the prior within its brackets, fitted."""
    rng = np.random.default_rng([seed, 2])
    xy = table()[["east", "north"]].to_numpy()
    design = np.column_stack([np.ones(N), table()["x"]])
    low, high = PRIORS.r_bounds
    while True:
        sigma_sq, tau_sq = (np.array([1.0, 0.7]) * rng.standard_normal(2)) ** 2
        if low < tau_sq / sigma_sq < high:
            break
    beta = rng.standard_normal(2)
    values, vectors = np.linalg.eigh(sigma_sq * np.exp(-PHI * cdist(xy, xy)))
    w = vectors @ (np.sqrt(np.maximum(values, 0.0)) * rng.standard_normal(N))
    A = np.where(np.arange(N) == FLAGGED, 0.0, 1.0)
    # A design of brackets that owes nothing to the parameters.
    ends = np.concatenate([[-np.inf], CUTS, [np.inf]])
    bracket = np.arange(N) % 3
    y = truncated_normal(
        rng.standard_normal(N),
        design @ beta + A * w,
        np.sqrt(tau_sq),
        ends[bracket],
        ends[bracket + 1],
    )
    problem = problem_of(y)
    fit = fit_bracketed(
        problem,
        CUTS,
        likelihood="truncated",
        weights=ds.own_weights(problem, 1.0 - A),
        phi=PHI,
        priors=PRIORS,
        seed=seed,
        progress=False,
        **SAMPLER,
    )
    chain, iteration = spread_draws(fit, THINNED).T
    effects = fit.draws["w"][chain, iteration][:, problem.site_index]
    draws = {
        **{name: fit.scalars[name][chain, iteration] for name in NAMES[:4]},
        "w": effects[:, ORDINARY],
        "w, flagged": effects[:, FLAGGED],
    }
    truth = dict(zip(NAMES, (*beta, sigma_sq, tau_sq, w[ORDINARY], w[FLAGGED]), strict=True))
    return {name: float(value) for name, value in truth.items()}, draws


def calibrate_truncated(replicates: int, *, seed: int, workers: int = 1) -> list[Replicate]:
    """All replicates; one depends on the seed and its number alone."""
    seeds = [int(s) for s in np.random.SeedSequence(seed).generate_state(replicates)]
    return in_parallel(truncated_replicate, seeds, workers)


def judge(found: list[Replicate], spoil: dict[str, float] | None = None) -> dict[str, Uniformity]:
    """Every quantity; all together raise a false alarm with probability FAMILY_ALPHA.

    ``spoil`` multiplies draws, to show that it is seen.
    """
    spoil = spoil or {}
    ranks = {
        name: [int(np.sum(spoil.get(name, 1.0) * d[name] < t[name])) for t, d in found]
        for name in NAMES
    }
    return {name: uniformity(r, FAMILY_ALPHA / len(NAMES)) for name, r in ranks.items()}


TRUE = {"beta": np.array([0.3, 0.8]), "sigma_sq": 1.2, "tau_sq": 0.25}
"""Parameters at which the law of the copies is held."""


def statistics(y: Floats, w: Floats, sites: Floats) -> Floats:
    """What is compared: moments, products of neighbours, and products with w."""
    near = np.exp(-PHI * cdist(sites, sites)) - np.eye(N)
    return np.array([y.mean(), y @ y / N, y @ near @ y / N, y @ w / N, w @ near @ y / N])


def copy_differences(replicates: int, *, seed: int, spoil: float = 1.0) -> Floats:
    """Statistics of a copy less those of its original, shape (replicates, 5).

    y and w0 from the model at TRUE; brackets those of y; w given y; a copy given w in the brackets
    of y. If the copy's law is right, (w, brackets, copy) has the law of (w0, brackets, y), so that
    each difference has mean 0. ``spoil`` multiplies the copy's nugget.
    """
    rng = np.random.default_rng(seed)
    base = problem_of(rng.standard_normal(N))
    sites, X = base.sites, base.X
    values, vectors = np.linalg.eigh(TRUE["sigma_sq"] * np.exp(-PHI * cdist(sites, sites)))
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    out = []
    for number in range(replicates):
        w0 = root @ rng.standard_normal(N)
        y = X @ TRUE["beta"] + w0 + np.sqrt(TRUE["tau_sq"]) * rng.standard_normal(N)
        fit = known_fit(with_response(base, y))
        law: Any = fit.predictive()
        stream = np.random.default_rng([seed, number])
        w = law.effect_at(0, 0, stream)
        kept = fit.brackets
        copy = truncated_normal(
            stream.standard_normal(N),
            X @ TRUE["beta"] + w,
            np.sqrt(spoil * TRUE["tau_sq"]),
            kept.low_modelled,
            kept.high_modelled,
        )
        if spoil == 1.0:  # then this is what the fit itself draws
            again = law.draw(0, 0, np.random.default_rng([seed, number]))
            np.testing.assert_array_equal(again, copy)
        out.append(statistics(copy, w, sites) - statistics(y, w0, sites))
    return np.array(out)


def with_response(base: ds.Problem, y: Floats) -> ds.Problem:
    """The same records with another response; far quicker than to prepare them."""
    return replace(base, table=base.table.assign(y=y), y=y)


def known_fit(problem: ds.Problem) -> BracketedFit:
    """A bracketed fit whose one draw is TRUE."""
    draws = {
        "beta": TRUE["beta"][None, None],
        "sigma_sq": np.full((1, 1), TRUE["sigma_sq"]),
        "tau_sq": np.full((1, 1), TRUE["tau_sq"]),
        "phi": np.full((1, 1), PHI),
    }
    gaussian = fit_from(problem, draws)
    own = {each.name: getattr(gaussian, each.name) for each in fields(Fit)}
    return BracketedFit(**own, brackets=find_brackets(problem, CUTS), gaussian=gaussian)


def main() -> None:
    """Print the long version."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--replicates", type=int, default=200)
    parser.add_argument("--workers", type=int, default=1)
    given = parser.parse_args()
    replicates = calibrate_truncated(given.replicates, seed=5, workers=given.workers)
    for name, found in judge(replicates).items():
        word = "inside" if found.passed else "OUTSIDE"
        print(f"{name:12s} largest deviation {found.deviation:.3f}, limit {found.limit:.3f} {word}")
    differences = copy_differences(20 * given.replicates, seed=6)
    z = differences.mean(axis=0) / differences.std(axis=0, ddof=1) * np.sqrt(len(differences))
    print("copies against originals, in standard errors:", np.round(z, 2))


if __name__ == "__main__":
    main()
