"""Python's side of ``diagnostics.R``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from dsstan.engines import SamplerSettings
from dsstan.models.checks.diagnostics import ess, rhat
from dsstan.models.checks.verdict import diagnose
from factory import fit_from

from .cases import case, inputs
from .golden import Floats, Values


def values() -> Values:
    """Each quantity by its key."""
    out: dict[str, Callable[[], ArrayLike]] = {"bfmi": bfmi}
    for name, raw in inputs("diagnostics")["draws"].items():
        draws, key = np.array(raw), name.replace(" ", "-")
        out[f"rhat/{key}"] = partial(rhat, draws)
        out[f"bulk/{key}"] = partial(ess, draws, "bulk")
        out[f"tail/{key}"] = partial(ess, draws, "tail")
        moments = ["mean", "sd", "q025", "q50", "q975"]
        out[f"summary/{key}"] = partial(summary, draws, moments)
        out[f"judged/{key}"] = partial(summary, draws, ["ess_bulk", "ess_tail", "rhat"])
    return out


def summary(draws: Floats, columns: list[str]) -> Floats:
    """Columns of the summary of a fit whose partial sill has these draws."""
    problem = case("hand").problem
    beta = np.repeat(draws[:, :, None], problem.n_terms, axis=2)
    others = {"tau_sq": draws[::-1] + 1.0, "phi": draws[::-1] + 2.0}
    fit = fit_from(problem, {"beta": -beta, "sigma_sq": draws, **others})
    return np.array(fit.summary().loc["sigma_sq", columns], dtype=np.float64)


def bfmi() -> float:
    """The energy diagnostic as a verdict reports it."""
    own = inputs("diagnostics")
    energy = np.array(own["energy"])
    draws = np.exp(np.array(own["draws"]["white noise"]))
    sampler = np.zeros((*energy.shape, 4))
    sampler[:, :, 3] = energy
    verdict = diagnose(
        {"sigma_sq": draws, "tau_sq": draws},
        sampler,
        settings=SamplerSettings(),
        surface_error=0.0,
        phi_bounds=None,
        r_bounds=(1e-4, 1e4),
    )
    return next(check.value for check in verdict.checks if check.name == "e-bfmi")
