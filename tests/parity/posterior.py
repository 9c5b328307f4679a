"""Full posteriors: dsstan's draws beside the goldens of ``posterior_jags.R`` and ``_gibbs.R``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from dsstan.copies.synthesis import synthesise
from dsstan.models.fit import fit
from dsstan.models.flagging.flags import flag_isolated
from dsstan.models.posterior import latent_draws
from dsstan.models.priors import Priors
from dsstan.models.result import Fit
from dsstan.table.datasets import load_san_francisco, load_simulated
from dsstan.table.prepare import prepare
from dsstan.table.problem import Problem
from mc import FALSE_ALARM, QUANTILES, Estimate, mean_of, quantile_of, sd_of, z_limit

from .cases import inputs
from .golden import SAN_FRANCISCO, Floats, Golden, golden_path, san_francisco_file

SYSTEMS = {"posterior_jags": ("simulated", "subset"), "posterior_gibbs": ("homes",)}
"""Topics, with the cases that each one's R script samples."""

MODELS = {"unrestricted": 0.0, "infinite": np.inf, "four": 4.0}
"""Models by name, with gamma."""

POSTERIORS = {
    f"{case}/{model}": (topic, case, model)
    for topic, cases in SYSTEMS.items()
    for case in cases
    for model in MODELS
}
"""Posteriors by name: topic, case, model."""

PARAMETERS = {"simulated": 9, "subset": 10, "homes": 10}
"""Parameters compared under a held decay; the unrestricted models have phi as well."""

STATISTICS = ("mean", "sd", "q025", "q500", "q975")
COMPARED = len(STATISTICS) * sum(
    PARAMETERS[case] + (model == "unrestricted") for _, case, model in POSTERIORS.values()
)
"""Quantities compared, over all posteriors."""

LIMIT = z_limit(COMPARED)
"""Largest difference allowed, in Monte Carlo standard errors of the difference."""

SAMPLES = 2500
COPIES = 4000
"""Draws a chain of each fit, and draws of w and of the synthetic value in all."""

Estimates = dict[str, Estimate]


@dataclass(frozen=True)
class Run:
    """One posterior as R sampled it.

    Attributes
    ----------
    about
        Words of the case, gamma, seed, chains, iterations, seconds.
    priors
        Numbers of the priors as R worked them out.
    estimates, ess
        Statistics by ``"mean beta_0"`` and the like, with Monte Carlo errors; and their
        effective sample sizes. Empty in a short run.
    draws
        Of a short run: arrays (chains, kept). Empty in a long one.
    rhat
        Of each parameter; empty in a short run.
    """

    about: Mapping[str, Any]
    priors: Mapping[str, Any]
    estimates: Estimates
    ess: dict[str, float]
    draws: dict[str, Floats]
    rhat: dict[str, float]

    @property
    def size(self) -> int:
        """Draws of all chains."""
        return int(self.about["chains"] * self.about["kept"])


@dataclass(frozen=True)
class PosteriorGolden:
    """All posteriors of one R script, with what made them."""

    golden: Golden
    source: str
    runs: Mapping[str, Run]

    @property
    def system(self) -> str:
        """R functions with versions."""
        names = {"posterior_jags": ("rjags", "JAGS"), "posterior_gibbs": ()}[self.golden.topic]
        versions = [f"{name} {self.golden.packages[name]}" for name in names]
        return f"{self.source} ({', '.join([*versions, f'R {self.golden.r}'])})"


def read_runs(path: Path) -> PosteriorGolden:
    """What an R script wrote."""
    raw = json.loads(path.read_text(encoding="utf-8"))
    golden = Golden(raw["topic"], raw["sha256"], raw["r"], raw["packages"], {})
    return PosteriorGolden(
        golden, raw["source"], {name: _run(run) for name, run in raw["runs"].items()}
    )


@cache
def load_runs(topic: str) -> PosteriorGolden:
    """The committed golden of a topic."""
    return read_runs(golden_path(topic))


def _run(raw: dict[str, Any]) -> Run:
    nested = {"priors", "quantities", "draws", "rhat"}
    numbers = {
        f"{statistic} {parameter}": entry
        for parameter, entries in raw.get("quantities", {}).items()
        for statistic, entry in entries.items()
    }
    return Run(
        about={key: item for key, item in raw.items() if key not in nested},
        priors=raw["priors"],
        estimates={key: Estimate(e["value"], e["error"]) for key, e in numbers.items()},
        ess={key: float(e["ess"]) for key, e in numbers.items()},
        draws={key: np.array(d, dtype=np.float64) for key, d in raw.get("draws", {}).items()},
        rhat={key: float(value) for key, value in raw.get("rhat", {}).items()},
    )


def needs_file(case: str) -> bool:
    """Whether a case needs the San Francisco file and it is missing."""
    return bool(inputs("posterior")[case]["table"] == SAN_FRANCISCO) and not san_francisco_file()


@cache
def problem_of(case: str) -> Problem:
    """The records of a case, prepared."""
    own = inputs("posterior")[case]
    simulated = own["table"] == "simulated"
    table = load_simulated() if simulated else load_san_francisco(san_francisco_file())
    rows = own.get("rows") or [k * len(table) // own["keep"] for k in range(own["keep"])]
    return prepare(
        table.iloc[rows].reset_index(drop=True),
        own["formula"],
        coords=tuple(own["coords"]),
        distance="planar" if simulated else "degrees",
        name=own["words"],
    )


@cache
def unrestricted(case: str, priors: Priors | None = None) -> Fit:
    """The unrestricted fit of a case."""
    return fit(
        problem_of(case),
        priors=priors,
        engine="embedded",
        samples=SAMPLES,
        seed=inputs("posterior")[case]["seed"],
        progress=False,
    )


@cache
def fitted(case: str, model: str, priors: Priors | None = None) -> Fit:
    """The fit of one posterior, the decay held at the inputs' value where it is restricted."""
    if model == "unrestricted":
        return unrestricted(case, priors)
    own = inputs("posterior")[case]
    return fit(
        problem_of(case),
        weights=flag_isolated(unrestricted(case), distance=own["distance"]),
        gamma=MODELS[model],
        phi=own["phi"],
        priors=priors,
        engine="embedded",
        samples=SAMPLES,
        seed=own["seed"] + 1,
        progress=False,
    )


def draws_of(case: str, sample: Fit, effect: str = "auto") -> dict[str, Floats]:
    """Draws of everything compared, each of shape (chains, samples).

    ``latent_draws`` and ``synthesise`` take draws from all chains in turn, so that theirs fall
    into chains again and keep what autocorrelation they have.
    """
    own = inputs("posterior")[case]
    chains = sample.settings.chains
    w = latent_draws(sample, draws=COPIES, seed=own["seed"])
    release = synthesise(
        sample, COPIES, seed=own["seed"], effect=effect, accept_few_draws=True, progress=False
    )
    return {
        **{f"beta_{j}": sample.draws["beta"][:, :, j] for j in range(sample.problem.n_terms)},
        "sigma_sq": sample.draws["sigma_sq"],
        "tau_sq": sample.draws["tau_sq"],
        **({"phi": sample.draws["phi"]} if sample.phi_held is None else {}),
        **{f"w_{i}": w[:, i].reshape(-1, chains).T for i in own["watched"]},
        "copy": release.modelled()[:, own["outlier"]].reshape(-1, chains).T,
    }


def estimates_of(draws: Mapping[str, Floats]) -> Estimates:
    """Mean, sd and three quantiles of every parameter, with Monte Carlo errors."""
    out: Estimates = {}
    for parameter, d in draws.items():
        found = (mean_of(d), sd_of(d), *(quantile_of(d, p) for p in QUANTILES))
        out |= {f"{name} {parameter}": e for name, e in zip(STATISTICS, found, strict=True)}
    return out


@cache
def ours(name: str) -> Estimates:
    """dsstan's side of one posterior."""
    _, case, model = POSTERIORS[name]
    return estimates_of(draws_of(case, fitted(case, model)))


def theirs(name: str) -> Run:
    """R's side of one posterior, from the golden."""
    return load_runs(POSTERIORS[name][0]).runs[name]


def z_scores(first: Estimates, second: Estimates) -> dict[str, float]:
    """Differences in Monte Carlo standard errors of the difference.

    Raises
    ------
    AssertionError
        If the two sides don't hold the same quantities, or an error isn't positive.
    """
    assert first, "nothing to compare"
    assert set(first) == set(second), f"not on both sides: {set(first) ^ set(second)}"
    out = {}
    for key, a in first.items():
        b = second[key]
        assert 0 < a.error < np.inf, f"no Monte Carlo error of {key}"
        assert 0 < b.error < np.inf, f"no Monte Carlo error of {key} in R"
        z = abs(a.value - b.value) / float(np.hypot(a.error, b.error))
        out[key] = z if np.isfinite(z) else np.inf
    return out


def rejected(scores: Mapping[str, float], limit: float = LIMIT) -> dict[str, float]:
    """Quantities further apart than the limit."""
    return {key: round(z, 1) for key, z in scores.items() if not z < limit}


def strain_of_short(short: Run, long: Run) -> dict[str, float]:
    """How improbable a short run is by the long one: log tail probability, 1 at the limit.

    A short chain judges its own autocorrelation badly, so the long run's effective sample
    sizes, scaled to the shorter length, are what counts. Means and sds: the standard error is
    the larger of the short run's own and the long run's scaled up, and the law is Student's t
    with the effective size less one as its degrees of freedom. Quantiles: the share of the short
    run's draws below the long run's quantile is binomial with the effective size as its count,
    the mean's where that is smaller: draws beyond a quantile come in clumps.
    """
    assert set(short.draws) == {key.split()[1] for key in long.estimates}
    scale = short.size / long.size
    own = estimates_of(short.draws)
    out = {}
    for key, reference in long.estimates.items():
        statistic, parameter = key.split()
        ess = min(long.ess[key], long.ess[f"mean {parameter}"])
        size = 1.0 / (1.0 / (ess * scale) + 1.0 / ess)
        if statistic in ("mean", "sd"):
            error = max(own[key].error, reference.error / np.sqrt(scale))
            gap = abs(own[key].value - reference.value) / np.hypot(error, reference.error)
            tail = stats.t.logsf(gap, max(size - 1.0, 1.0))
        else:
            probability = QUANTILES[STATISTICS.index(statistic) - 2]
            below = float(np.mean(short.draws[parameter] <= reference.value))
            tail = _binomial_tail(below, probability, size)
        strain = float(tail) / float(np.log(FALSE_ALARM / (2 * COMPARED)))
        out[key] = strain if np.isfinite(strain) else np.inf
    return out


def _binomial_tail(share: float, probability: float, size: float) -> float:
    """Log probability of a share as far out or further, the count being any positive number."""
    count = share * size
    if share > probability:
        return float(stats.beta.logcdf(probability, count, size - count + 1.0))
    return float(stats.beta.logsf(probability, count + 1.0, size - count))
