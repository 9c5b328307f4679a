"""A fit from given draws, for tests of everything that comes after sampling."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dsstan.engines import SamplerSettings
from dsstan.models.priors import Priors
from dsstan.models.result import Fit
from dsstan.models.verdict import Verdict
from dsstan.models.weights import smoothing
from dsstan.table.problem import Problem


def fit_from(problem: Problem, draws: Mapping[str, ArrayLike], **given: Any) -> Fit:
    """A fit that holds given draws, as if they had been sampled.

    Parameters
    ----------
    problem
        The prepared table.
    draws
        By name, each of shape (chains, samples) or, for ``beta``, (chains, samples, terms).
    given
        Any other fields of the fit. With ``weights`` it is restricted, by default with
        protection paper and gamma infinite.
    """
    weights = given.get("weights")
    gamma = given.get("gamma", 0.0 if weights is None else np.inf)
    arrays = {name: np.asarray(values, dtype=np.float64) for name, values in draws.items()}
    chains, samples = next(iter(arrays.values())).shape[:2]
    priors = Priors()
    fields = {
        "kind": "unrestricted" if weights is None else "restricted",
        "protection": "none" if weights is None else "paper",
        "weights": weights,
        "gamma": gamma,
        "A": np.ones(problem.n_records) if weights is None else smoothing(gamma, weights.a),
        "phi_held": None,
        "priors": priors.resolve(problem.y, problem.X, problem.d_max),
        "prior_settings": priors,
        **dict.fromkeys(("engine", "engine_version", "program", "fingerprint"), "none"),
        "seed": 0,
        "settings": SamplerSettings(chains=chains, warmup=1, samples=samples),
        "surface_error": 0.0,
        "nodes": (1, 1),
        "verdict": Verdict(()),
        "seconds": 0.0,
    }
    return Fit(**{"problem": problem, "draws": arrays, **fields, **given})
