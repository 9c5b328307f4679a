"""Python's side of ``counts.R``: the Stan programs, and the target of the package's own sampler."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.linalg import solve_triangular

from dsstan.covariance.approximations import EXACT
from dsstan.covariance.correlation import CORRELATIONS, correlation
from dsstan.covariance.vecchia.site_process import ExactCorrection
from dsstan.engines import STAN_ENGINES, SamplerSettings
from dsstan.engines.programs import Program
from dsstan.models.counts.outcomes import OUTCOMES
from dsstan.models.counts.priors import CountPriors
from dsstan.models.counts.runs import Task
from dsstan.models.weights import smoothing
from dsstan.table.prepare import prepare
from dsstan.table.problem import Problem

from .cases import inputs
from .golden import Floats, Values


def values() -> Values:
    """Each quantity by its key."""
    out: dict[str, Callable[[], ArrayLike]] = {}
    for side, of in (("program", program), ("sampler", sampler)):
        for outcome in OUTCOMES:
            for kind in CORRELATIONS:
                for i in range(len(inputs("counts")["points"]["phi"])):
                    out[f"{side}/{outcome}/{kind}/{i + 1}"] = partial(of, outcome, kind, i)
    return out


@cache
def problem_of(outcome: str) -> Problem:
    """The records with one response, prepared."""
    table = pd.DataFrame(inputs("counts")["columns"])
    table["y"] = table[outcome].astype(int)
    return prepare(table[["s1", "s2", "x", "exposure", "y"]], "y ~ x", coords=("s1", "s2"))


def priors_of(point: int = 0) -> CountPriors:
    """The priors of the inputs; inverse gamma at the third point."""
    own = inputs("counts")
    third = point == 2
    return CountPriors(
        beta_scale=own["beta_scale"],
        variance="inverse-gamma" if third else "half-normal",
        sigma=tuple(own["inverse_gamma"]) if third else own["sigma"],
        sigma_bounds=tuple(own["sigma_bounds"]),
        phi_bounds=tuple(own["phi_bounds"]),
        size=tuple(own["size"]),
    )


def task_of(outcome: str, kind: str, i: int) -> Task:
    """The fit's own view of one point: the second with the flagged records smoothed to 0."""
    own, law = inputs("counts"), OUTCOMES[outcome]
    problem = problem_of(outcome)
    offset = np.zeros(problem.n_records)
    if outcome != "bernoulli":
        offset = np.log(problem.table["exposure"].to_numpy())
    return Task(
        problem,
        law,
        offset,
        smoothing(np.inf if i == 1 else 0.0, np.array(own["a"])),
        kind,
        EXACT,
        priors_of(i).resolve(law, np.asarray(problem.X), problem.d_max),
        None,
        SamplerSettings(),
        1,
        "parity",
        False,
    )


def program(outcome: str, kind: str, i: int, engine: str = "embedded") -> Floats:
    """Log density of the Stan program less the Jacobians of its unconstrained coordinates."""
    own = inputs("counts")["points"]
    task = task_of(outcome, kind, i)
    v, phi, w = own["sigma_sq"][i], own["phi"][i], np.array(own["w"][i])
    d = _distances(task.problem)
    L = np.linalg.cholesky(correlation(d, phi, kind))
    point: dict[str, Any] = {
        "beta": own["beta"][i],
        "sigma_sq": v,
        "phi_free": [phi],
        "z": solve_triangular(L, w, lower=True) / np.sqrt(v),
    }
    data = task.stan_data()
    # z to w, and the bounded parameters.
    extra = np.sum(np.log(np.diag(L))) + 0.5 * len(w) * np.log(v)
    extra += _bounded(v, data["sigma_sq_lower"], data["sigma_sq_upper"])
    extra += _bounded(phi, data["phi_lower"], data["phi_upper"])
    if task.law.dispersed:
        point["size"] = own["size"][i]
        extra += _bounded(point["size"], data["size_lower"], data["size_upper"])
    got = STAN_ENGINES[engine]().log_density(Program(task.law.program), data, [point])
    return np.asarray(got - extra)


def sampler(outcome: str, kind: str, i: int) -> float:
    """Target of the package's own sampler, in natural coordinates."""
    own = inputs("counts")["points"]
    task = task_of(outcome, kind, i)
    model, v, w = task.model(), own["sigma_sq"][i], np.array(own["w"][i])
    log_phi = float(np.log(own["phi"][i]))
    theta = np.array(
        [log_phi, np.log(v), *(np.log([own["size"][i]]) if task.law.dispersed else [])]
    )
    w = w[model.process.order]
    x = np.concatenate([own["beta"][i], w])
    value = model.log_joint(model.frame(theta, x), x) + task.priors.log_prior(theta, held=False)
    value += ExactCorrection(model.process, log_phi, log_phi)(log_phi, v, w)
    value -= 0.5 * model.M * np.log(2.0 * np.pi) + np.sum(np.log(model.beta_scale))
    # log theta to theta.
    return float(value - np.sum(theta))


def _distances(problem: Problem) -> Floats:
    sites = problem.unique_sites
    return np.asarray(np.sqrt(((sites[:, None] - sites[None]) ** 2).sum(-1)))


def _bounded(x: float, low: float, high: float) -> float:
    """Log Jacobian of Stan's transform of a bounded parameter."""
    return float(np.log(x - low) + np.log(high - x) - np.log(high - low))
