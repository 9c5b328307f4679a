"""Make the JSON files that the commands of stan/README.md read.

One small table, drawn from the unrestricted model with a fixed seed, and the data that each
program needs to fit it. All but the reference programs' sites come from the package's own
functions, so the files show what a fit hands to Stan.

Run ``python stan/data/make_data.py`` from the top of the repository to write the files again.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from dsstan.covariance.approximations import EXACT
from dsstan.covariance.likelihood_surface import Surface, build_surface
from dsstan.engines import SamplerSettings
from dsstan.engines.base import jsonable
from dsstan.engines.surface_posterior import PosteriorTable
from dsstan.engines.whitening import whitening
from dsstan.models.adaptive.rules import AdaptiveRule
from dsstan.models.brackets.limits import find_brackets
from dsstan.models.brackets.truncated import bracketed_data
from dsstan.models.counts.outcomes import OUTCOMES
from dsstan.models.counts.priors import CountPriors
from dsstan.models.counts.runs import Task
from dsstan.models.priors import Priors, ResolvedPriors
from dsstan.models.stan_data import natural_data, shared_data
from dsstan.models.weights import neighbour_distances, smoothing
from dsstan.table.prepare import prepare
from dsstan.table.problem import Problem

Floats = NDArray[np.float64]

N = 60
SEED = 8
BETA = np.array([2.0, 0.5])
SIGMA_SQ, TAU_SQ, PHI = 1.0, 0.1, 6.0
ALONE = np.array([[0.95, 0.05], [0.93, 0.62]])
"""Sites of the two records that stand alone."""
M = 0.2
"""A record is flagged where its nearest neighbour is at least this far."""
CUTS = (1.5, 2.5)
"""Ends of the three brackets."""
GROUP_SCALE = (2.0, 1.0)
"""Sd of a group's coefficients about the common ones, where a program has groups."""
NODES = (24, 40)
ADAPTIVE_NODES = 28
DECIMALS = 10
"""Of every number in the files: rounding of this size hides which LAPACK wrote the surface."""


def table() -> pd.DataFrame:
    """60 records at 58 sites of the unit square, two of them far from all others."""
    rng = np.random.default_rng(SEED)
    crowd = np.round(rng.uniform([0.0, 0.0], [0.65, 1.0], (N - 4, 2)), 3)
    sites = np.vstack([crowd, crowd[:2], ALONE])
    x = np.round(rng.standard_normal(N), 2)
    cov = SIGMA_SQ * np.exp(-PHI * cdist(sites, sites)) + TAU_SQ * np.eye(N)
    mean = BETA[0] + BETA[1] * x
    y = np.round(mean + np.linalg.cholesky(cov) @ rng.standard_normal(N), 3)
    return pd.DataFrame({"s1": sites[:, 0], "s2": sites[:, 1], "x": x, "y": y})


def counts(outcome: str) -> dict[str, Any]:
    """Data of a program of counts: the same sites and mean, phi free, the lone records smoothed."""
    own = table()
    rng = np.random.default_rng(SEED + 1)
    eta = np.round(own["y"].to_numpy() - 1.0, 3)
    law = OUTCOMES[outcome]
    own["count"] = law.draw(eta if outcome != "bernoulli" else eta - 1.0, np.log(5.0), rng)
    problem = prepare(own.drop(columns="y"), "count ~ x", coords=("s1", "s2"))
    A = smoothing(np.inf, (neighbour_distances(problem) >= M).astype(np.float64))
    priors = CountPriors().resolve(law, np.asarray(problem.X), problem.d_max)
    shift = np.zeros(problem.n_records)
    settings = SamplerSettings()
    task = Task(problem, law, shift, A, "exponential", EXACT, priors, None, settings, 1, "", False)
    return task.stan_data(draw_latent=True)


def surface(problem: Problem, priors: ResolvedPriors) -> Surface:
    """The unrestricted model's surface, held to the tolerance of a fit."""
    return build_surface(
        cdist(problem.sites, problem.sites),
        problem.X,
        problem.y,
        a_diag=np.ones(problem.n_records),
        protection="none",
        phi_bounds=priors.phi_bounds,
        r_bounds=priors.r_bounds,
        nodes=NODES,
    )


def all_data() -> dict[str, dict[str, Any]]:
    """Data of each program by its name below ``stan/``."""
    problem = prepare(table(), "y ~ x", coords=("s1", "s2"))
    priors = Priors().resolve(problem.y, problem.X, problem.d_max)
    made = surface(problem, priors)
    A = smoothing(np.inf, (neighbour_distances(problem) >= M).astype(np.float64))
    on_surface = priors.on_surface(made)
    ones = np.ones(problem.n_records)
    bounds = {"phi_lower": priors.phi_bounds[0], "phi_upper": priors.phi_bounds[1]}
    records = {"N": problem.n_records, "P": problem.n_terms, "X": problem.X, "y": problem.y}
    by_site = {
        **records,
        "n_sites": problem.n_sites,
        "coords": problem.unique_sites,
        "site": problem.site_index + 1,
        "cov_model": 1,
        **priors.stan_data(),
    }
    return {
        "unrestricted": natural_data(problem, ones, "none", None, priors, made),
        "restricted": natural_data(problem, A, "paper", PHI, priors, made, draw_latent=True),
        "surface": {**on_surface, **whitening(PosteriorTable.of(on_surface))},
        "bracketed": bracketed_data(problem, find_brackets(problem, CUTS), A, priors, PHI),
        "multivariate": {
            **records,
            "n_groups": 2,
            "coords": problem.sites,
            "group": np.arange(problem.n_records) % 2 + 1,
            "A": A,
            "protection": 1,
            "cov_model": 1,
            **priors.decay_data(),
            **priors.stan_data(),
            "group_scale": list(GROUP_SCALE),
            "lkj_eta": 2.0,
        },
        **{law.program: counts(name) for name, law in OUTCOMES.items()},
        "adaptive": {
            **shared_data(problem, None, priors, made, "exponential"),
            "nearest": neighbour_distances(problem),
            "protection": 1,
            "kink": AdaptiveRule().kink,
            "H": ADAPTIVE_NODES,
            "H_above": ADAPTIVE_NODES,
        },
        "reference/hier": {**by_site, **bounds},
        "reference/restrict": {**by_site, "A": A, "phi": PHI},
        "reference/cholesky": {
            **records,
            "coords": problem.sites,
            "A": A,
            "protection": 1,
            "cov_model": 1,
            **bounds,
            **priors.stan_data(),
        },
    }


def text(data: dict[str, Any]) -> str:
    """JSON with one data name a line."""
    lines = [f"  {json.dumps(key)}: {json.dumps(rounded(data[key]))}" for key in data]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def rounded(value: Any) -> Any:
    """A value of Stan data with its real numbers rounded."""
    plain = jsonable(value)
    if isinstance(plain, list):
        return [rounded(item) for item in plain]
    return round(plain, DECIMALS) if isinstance(plain, float) else plain


def main() -> None:
    """Write one file a program."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    out = parser.parse_args().out
    for name, data in all_data().items():
        path = out / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text(data), encoding="utf-8")


if __name__ == "__main__":
    main()
