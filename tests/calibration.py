"""Simulation-based calibration of the fits, and coverage of released intervals.

``python tests/calibration.py --replicates 200 --out docs/calibration.md`` runs
all of it and writes the page. Every fit goes through ``dsstan.fit``.

Parameters drawn from the prior, data from the parameters, draws from the
posterior: the rank of the first among the last is uniform if and only if the
posterior is right (Talts et al. 2018; Modrák et al. 2023 for the log likelihood
as test quantity). Uniformity is judged by the simultaneous envelope of the
empirical distribution function of Säilynoja, Bürkner and Vehtari (2022).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from quadrature import model_of
from scipy import stats
from threadpoolctl import threadpool_limits

import dsstan as ds
from dsstan.analysis.utility import ols as ols_fit
from dsstan.engines import get_engine
from dsstan.models.posterior import latent_draws, spread_draws
from dsstan.models.result import Fit

Floats = NDArray[np.float64]
T = TypeVar("T")

N = 60
THINNED = 100
"""Draws kept of each fit, one in ten: close to independent."""
SAMPLER = {"chains": 2, "warmup": 500, "samples": 500, "engine": "direct", "progress": False}
LONGER = {**SAMPLER, "warmup": 1000, "samples": 4000, "adapt_delta": 0.98}
"""For fits with an effective sample size below twice THINNED."""

FAMILY_ALPHA = 1e-3
"""False alarms of one model's whole family of rank tests."""
SIMULATIONS = 200_000
"""Sets of uniform ranks behind an envelope: 25 of them outside at the smallest alpha used."""
COUNT_ALPHA = 1e-4
"""False alarms of one family of coverage or recovery tests."""
LEVEL = 0.95

SPOILED = 1.3
"""Factor on sigma_sq that shows what the rank test sees."""

PRIORS = ds.Priors(beta_scale=(2.0, 1.0), sigma=1.0, tau=0.5, phi_bounds=(2.0, 20.0))
HELD_PHI = 5.0
ISOLATED, ORDINARY = N - 1, 20

TRUTH = {"beta": (5.0, 0.5), "sigma_sq": 1.0, "tau_sq": 0.1, "phi": 4.0}
"""Fixed parameters of the coverage study."""
COPIES = 10
ANALYSTS = ("GLS, true covariance", "GLS, covariance estimated", "OLS")


# --- The tables -----------------------------------------------------------------------------


@lru_cache(maxsize=1)
def places() -> pd.DataFrame:
    """Fixed sites, five of them shared by two records, one far away, and a smooth covariate."""
    rng = np.random.default_rng(60)
    xy = rng.uniform(size=(N, 2))
    xy[:5] = xy[5:10]
    xy[ISOLATED] = 1.4, 0.5
    trend = np.sin(2.5 * xy[:, 0]) + xy[:, 1]
    trend = (trend - trend.mean()) / trend.std(ddof=1)
    return pd.DataFrame({"east": xy[:, 0], "north": xy[:, 1], "trend": trend})


def distances() -> Floats:
    """Among the records, shape (N, N)."""
    xy = places()[["east", "north"]].to_numpy()
    return np.sqrt(((xy[:, None] - xy[None]) ** 2).sum(-1))


def design() -> Floats:
    """X, shape (N, 2)."""
    return np.column_stack([np.ones(N), places()["trend"]])


def problem_of(y: Floats) -> ds.Problem:
    """The table with this response, prepared."""
    table = places().assign(y=y)
    return ds.prepare(table, "y ~ trend", coords=("east", "north"), name="calibration")


@dataclass(frozen=True)
class Parameters:
    """What a table is drawn from."""

    beta: Floats
    sigma_sq: float
    tau_sq: float
    phi: float


def simulate(p: Parameters, A: Floats, extra: float, rng: np.random.Generator) -> tuple[Any, Any]:
    """w and y of the restricted model; ``extra`` is sigma_sq under preserving, else 0."""
    values, vectors = np.linalg.eigh(p.sigma_sq * np.exp(-p.phi * distances()))
    w = vectors @ (np.sqrt(np.maximum(values, 0.0)) * rng.standard_normal(N))
    noise = np.sqrt(p.tau_sq + extra * (1 - A**2)) * rng.standard_normal(N)
    return w, design() @ p.beta + A * w + noise


# --- Simulation-based calibration -----------------------------------------------------------


@dataclass(frozen=True)
class Scenario:
    """A model to calibrate; a restricted one holds phi."""

    title: str
    restricted: bool = True
    protection: str = "paper"
    gamma: float = np.inf

    @property
    def a(self) -> Floats:
        """Risk weights: the far record, and three others in part."""
        a = np.zeros(N)
        a[[ISOLATED, 0, 30, 31]] = 1.0, 0.5, 0.5, 0.25
        return a

    @property
    def A(self) -> Floats:
        """Diagonal of A."""
        if not self.restricted:
            return np.ones(N)
        with np.errstate(invalid="ignore"):
            return np.where(self.a > 0, 1 / np.sqrt(1 + self.gamma * self.a), 1.0)


SCENARIOS = {
    "unrestricted": Scenario("Unrestricted", restricted=False),
    "paper": Scenario("Restricted, paper, gamma infinite"),
    "paper-finite": Scenario("Restricted, paper, gamma 3", gamma=3.0),
    "preserving": Scenario("Restricted, preserving, gamma 3", protection="preserving", gamma=3.0),
    "cut": Scenario("Restricted, cut", protection="cut"),
}


@dataclass(frozen=True)
class Outcome:
    """One replicate.

    Attributes
    ----------
    truth
        The value drawn from the prior, by name.
    draws
        Thinned posterior draws, each of shape (THINNED,).
    summary
        Mean, sd and ends of the 95% interval from all draws, of the parameters alone.
    passed, ess
        The fit's verdict and its smallest effective sample size.
    """

    truth: dict[str, float]
    draws: dict[str, Floats]
    summary: dict[str, tuple[float, float, float, float]]
    passed: bool
    ess: float

    def rank(self, name: str, change: Callable[[Floats], Floats] = lambda d: d) -> int:
        """Draws below the truth, 0 to THINNED."""
        return int(np.sum(change(self.draws[name]) < self.truth[name]))


def prior_draw(scenario: Scenario, rng: np.random.Generator) -> Parameters:
    """Parameters from PRIORS, tau_sq / sigma_sq within its range."""
    beta = np.asarray(PRIORS.beta_scale) * rng.standard_normal(2)
    low, high = PRIORS.r_bounds
    while True:
        sigma_sq, tau_sq = (np.array([PRIORS.sigma, PRIORS.tau]) * rng.standard_normal(2)) ** 2
        if low < tau_sq / sigma_sq < high:
            break
    phi = HELD_PHI if scenario.restricted else rng.uniform(*PRIORS.phi_bounds)
    return Parameters(beta, float(sigma_sq), float(tau_sq), float(phi))


def replicate(scenario: Scenario, seed: int, priors: ds.Priors = PRIORS) -> Outcome:
    """Draw a table, fit it, keep what the ranks need."""
    rng = np.random.default_rng([seed, 1])  # apart from the fit's own streams
    p = prior_draw(scenario, rng)
    extra = p.sigma_sq if scenario.protection == "preserving" else 0.0
    w, y = simulate(p, scenario.A, extra, rng)
    problem = problem_of(y)
    restricted: dict[str, Any] = {}
    if scenario.restricted:
        restricted = {
            "weights": ds.own_weights(problem, scenario.a),
            "gamma": scenario.gamma,
            "protection": scenario.protection,
            "phi": HELD_PHI,
        }
    fit = ds.fit(problem, priors=priors, seed=seed, **SAMPLER, **restricted)
    if fit.worst_ess < 2 * THINNED:
        fit = ds.fit(problem, priors=priors, seed=seed + 1, **LONGER, **restricted)
    truth = {"beta_0": p.beta[0], "beta_1": p.beta[1], "sigma_sq": p.sigma_sq, "tau_sq": p.tau_sq}
    if not scenario.restricted:
        truth["phi"] = p.phi
    chain, iteration = spread_draws(fit, THINNED).T
    draws = {name: fit.scalars[name][chain, iteration] for name in truth}
    summary = {name: _summary(fit.scalars[name]) for name in truth}
    effects = latent_draws(fit, draws=THINNED, seed=seed)
    for name, record in (("w", ORDINARY), ("w, far record", ISOLATED)):
        truth[name], draws[name] = w[record], effects[:, record]
    model = model_of(fit)
    truth["log likelihood"] = model.log_likelihood(p.beta, p.sigma_sq, p.tau_sq, p.phi)
    draws["log likelihood"] = _log_likelihoods(model, fit, chain, iteration)
    return Outcome(truth, draws, summary, fit.verdict.passed, fit.worst_ess)


def _summary(draws: Floats) -> tuple[float, float, float, float]:
    ends = np.quantile(draws, [0.5 - LEVEL / 2, 0.5 + LEVEL / 2])
    return float(draws.mean()), float(draws.std(ddof=1)), float(ends[0]), float(ends[1])


def _log_likelihoods(model: Any, fit: Fit, chain: Any, iteration: Any) -> Floats:
    d = fit.draws
    return np.array(
        [
            model.log_likelihood(d["beta"][at], *(d[k][at] for k in ("sigma_sq", "tau_sq", "phi")))
            for at in zip(chain, iteration, strict=True)
        ]
    )


def in_parallel(task: Callable[[int], T], seeds: Iterable[int], workers: int) -> list[T]:
    """Run tasks in threads: the fits' child processes do the work."""
    with threadpool_limits(limits=1, user_api="blas"), ThreadPoolExecutor(workers) as pool:
        return list(pool.map(task, seeds))


def calibrate(
    scenario: Scenario,
    replicates: int,
    *,
    seed: int,
    workers: int = 2,
    priors: ds.Priors = PRIORS,
) -> list[Outcome]:
    """All replicates of one model; replicate i depends on the seed and i alone."""
    seeds = [int(s) for s in np.random.SeedSequence(seed).generate_state(replicates)]
    return in_parallel(lambda s: replicate(scenario, s, priors), seeds, workers)


# --- Judging ranks, intervals and counts ----------------------------------------------------


@dataclass(frozen=True)
class Envelope:
    """Simultaneous limits of the number of ranks below each of the points.

    Attributes
    ----------
    points
        Probabilities z, shape (K,).
    low, high
        Smallest and largest counts inside, shape (K,).
    """

    points: Floats
    low: NDArray[np.intp]
    high: NDArray[np.intp]


@lru_cache
def _pointwise(replicates: int, ranks: int) -> tuple[Floats, Floats, Floats]:
    """Points, two-sided p-values (points, counts), smallest p-values of simulated sets, sorted."""
    z = np.arange(1, ranks) / ranks
    count = np.arange(replicates + 1)
    law = stats.binom(replicates, z[:, None])
    p = np.minimum(1.0, 2 * np.minimum(law.cdf(count), law.sf(count - 1)))
    rng = np.random.default_rng(2022)
    smallest = []
    for _ in range(SIMULATIONS // 10_000):
        sets = rng.multinomial(replicates, np.full(ranks, 1 / ranks), size=10_000)
        below = np.cumsum(sets, axis=1)[:, :-1]
        smallest.append(p[np.arange(z.size), below].min(axis=1))
    return z, p, np.sort(np.concatenate(smallest))


def envelope(replicates: int, alpha: float, *, ranks: int = THINNED + 1) -> Envelope:
    """Limits that a set of uniform ranks leaves somewhere with probability alpha.

    Parameters
    ----------
    replicates
        Ranks in a set.
    alpha
        Probability of a false alarm.
    ranks
        Values that a rank can take.
    """
    z, p, smallest = _pointwise(replicates, ranks)
    inside = p >= smallest[int(alpha * smallest.size)]
    return Envelope(z, inside.argmax(axis=1), replicates - inside[:, ::-1].argmax(axis=1))


@dataclass(frozen=True)
class Uniformity:
    """Largest deviation of the ranks' distribution function from the uniform one.

    Attributes
    ----------
    deviation, limit
        Its size, and the envelope at the same place; of a function that leaves the
        envelope, at the place where it is farthest outside.
    passed
        Whether all of the function lies inside.
    """

    deviation: float
    limit: float
    passed: bool


def uniformity(ranks: Sequence[int], alpha: float) -> Uniformity:
    """Judge ranks from 0 to THINNED."""
    bounds = envelope(len(ranks), alpha)
    below = np.cumsum(np.bincount(ranks, minlength=THINNED + 1))[:-1]
    deviation = below / len(ranks) - bounds.points
    side = np.where(deviation > 0, bounds.high, bounds.low) / len(ranks) - bounds.points
    passed = bool(np.all((bounds.low <= below) & (below <= bounds.high)))
    worst = int(np.argmax(np.abs(deviation) if passed else deviation / side))
    return Uniformity(float(abs(deviation[worst])), float(abs(side[worst])), passed)


def judge(
    outcomes: Sequence[Outcome], changes: dict[str, Callable[[Floats], Floats]] | None = None
) -> dict[str, Uniformity]:
    """Every quantity of one model; ``changes`` spoils draws, to show that it is seen."""
    names = list(outcomes[0].truth)
    changes = changes or {}
    return {
        name: uniformity(
            [o.rank(name, changes.get(name, lambda d: d)) for o in outcomes],
            FAMILY_ALPHA / len(names),
        )
        for name in names
    }


def count_limits(n: int, probability: float, false_alarm: float) -> tuple[int, int]:
    """Fewest and most successes of n that are no surprise."""
    law = stats.binom(n, probability)
    return int(law.ppf(false_alarm / 2)), int(law.isf(false_alarm / 2))


@dataclass(frozen=True)
class Recovery:
    """How one parameter's posterior meets its true values.

    Attributes
    ----------
    covered, limits
        Number of 95% intervals that hold the truth, and the numbers that are no surprise.
    bias, bias_limit
        Mean of (truth - posterior mean) / posterior sd, and its limit.
    correlation
        Of truth and posterior mean.
    """

    covered: int
    limits: tuple[int, int]
    bias: float
    bias_limit: float
    correlation: float

    @property
    def passed(self) -> bool:
        """Whether coverage and bias are no surprise."""
        low, high = self.limits
        return low <= self.covered <= high and abs(self.bias) <= self.bias_limit


def recover(outcomes: Sequence[Outcome]) -> dict[str, Recovery]:
    """Coverage of posterior intervals, and recovery, of each parameter."""
    out = {}
    n, names = len(outcomes), list(outcomes[0].summary)
    alarm = COUNT_ALPHA / (2 * len(names))
    for name in names:
        truth = np.array([o.truth[name] for o in outcomes])
        mean, sd, low, high = np.array([o.summary[name] for o in outcomes]).T
        out[name] = Recovery(
            covered=int(np.sum((low <= truth) & (truth <= high))),
            limits=count_limits(n, LEVEL, alarm),
            bias=float(np.mean((truth - mean) / sd)),
            bias_limit=float(stats.norm.isf(alarm / 2) / np.sqrt(n)),
            correlation=float(np.corrcoef(truth, mean)[0, 1]),
        )
    return out


# --- Coverage of released intervals ---------------------------------------------------------


PHI_GRID, R_GRID = np.geomspace(0.5, 50.0, 16), np.geomspace(1e-3, 10.0, 40)


def gls_true(y: Floats) -> tuple[Floats, Floats]:
    """Generalised least squares under the true covariance: slope and variance of each row."""
    V = TRUTH["sigma_sq"] * np.exp(-TRUTH["phi"] * distances()) + TRUTH["tau_sq"] * np.eye(N)
    weight = np.linalg.solve(V, design())
    inverse = np.linalg.inv(design().T @ weight)
    return y @ weight @ inverse[:, 1], np.full(len(y), inverse[1, 1])


def gls_estimated(y: Floats) -> tuple[Floats, Floats]:
    """The same, covariance by restricted maximum likelihood over a grid, row by row."""
    best: Any = np.full((3, len(y)), -np.inf)
    for phi in PHI_GRID:
        values, vectors = _eigen(phi)
        inverse = 1 / (values + R_GRID[:, None])
        x, z = vectors.T @ design(), vectors.T @ y.T
        xx = np.linalg.inv(np.einsum("rn,nj,nk->rjk", inverse, x, x))
        xy = np.einsum("rn,nj,nl->rjl", inverse, x, z, optimize=True)
        coef = xx @ xy
        residual = np.einsum("rn,nl->rl", inverse, z**2) - np.sum(coef * xy, axis=1)
        s_sq = residual / (N - 2)
        log_det = np.sum(np.log(inverse), axis=1) + np.linalg.slogdet(xx)[1]
        value = 0.5 * (log_det[:, None] - (N - 2) * np.log(s_sq))
        pick = value.argmax(axis=0), np.arange(len(y))
        here = np.stack([value[pick], coef[:, 1][pick], (s_sq * xx[:, 1, 1, None])[pick]])
        best = np.where(here[0] > best[0], here, best)
    return best[1], best[2]


@lru_cache
def _eigen(phi: float) -> tuple[Floats, Floats]:
    values, vectors = np.linalg.eigh(np.exp(-phi * distances()))
    return np.maximum(values, 0.0), vectors


def ols(y: Floats) -> tuple[Floats, Floats]:
    """Ordinary least squares: slope and variance of each row."""
    pairs = [ols_fit(design(), row) for row in y]
    return np.array([c[1] for c, _ in pairs]), np.array([u[1] for _, u in pairs])


ESTIMATORS = dict(zip(ANALYSTS, (gls_true, gls_estimated, ols), strict=True))


@dataclass(frozen=True)
class Release:
    """One table's intervals for the slope: ends by analyst, original and copies."""

    original: dict[str, tuple[float, float]]
    copies: dict[str, tuple[float, float]]
    passed: bool

    def covers(self, source: str, analyst: str) -> bool:
        """Whether the interval holds the true slope."""
        low, high = getattr(self, source)[analyst]
        return bool(low <= TRUTH["beta"][1] <= high)

    def width(self, source: str, analyst: str) -> float:
        """Of the interval."""
        low, high = getattr(self, source)[analyst]
        return float(high - low)


def release(seed: int) -> Release:
    """Draw a table from fixed parameters, synthesise it without protection, analyse."""
    rng = np.random.default_rng([seed, 1])  # apart from the fit's own streams
    p = Parameters(np.array(TRUTH["beta"]), TRUTH["sigma_sq"], TRUTH["tau_sq"], TRUTH["phi"])
    _, y = simulate(p, np.ones(N), 0.0, rng)
    fit = ds.fit(problem_of(y), seed=seed, **SAMPLER)
    copies = ds.synthesise(fit, COPIES, seed=seed, accept_failed=True, progress=False).modelled()
    original, pooled = {}, {}
    for analyst, estimator in ESTIMATORS.items():
        estimate, variance = (float(v[0]) for v in estimator(y[None]))
        law = stats.norm if analyst == ANALYSTS[0] else stats.t(N - 2)
        half = float(law.ppf(0.5 + LEVEL / 2)) * np.sqrt(variance)
        original[analyst] = (estimate - half, estimate + half)
        estimates, variances = estimator(copies)
        result = ds.combine(estimates[:, None], variances[:, None], level=LEVEL)
        pooled[analyst] = (float(result.low[0]), float(result.high[0]))
    return Release(original, pooled, fit.verdict.passed)


def releases(replicates: int, *, seed: int, workers: int = 2) -> list[Release]:
    """Repeated sampling of tables and releases."""
    seeds = [int(s) for s in np.random.SeedSequence(seed).generate_state(replicates)]
    return in_parallel(release, seeds, workers)


# --- The page -------------------------------------------------------------------------------


def table(head: str, rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table; ``head`` holds the titles, separated by bars."""
    titles = [t.strip() for t in head.split("|")]
    lines = [titles, ["---"] * len(titles), *([str(cell) for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def scenario_section(scenario: Scenario, outcomes: Sequence[Outcome]) -> str:
    """Ranks and recovery of one model."""
    n = len(outcomes)
    yes = {True: "yes", False: "**no**"}
    ranks = [
        (name, n, f"{u.deviation:.3f}", f"{u.limit:.3f}", yes[u.passed])
        for name, u in judge(outcomes).items()
    ]
    recovery = []
    for name, r in recover(outcomes).items():
        covered, low, high = (100 * k / n for k in (r.covered, *r.limits))
        error = np.sqrt(covered * (100 - covered) / n)
        limits, bias = f"{low:.1f} to {high:.1f}%", f"{r.bias:+.3f}"
        cells = (f"{covered:.1f}% (se {error:.1f})", limits, bias, f"{r.bias_limit:.3f}")
        cells += (f"{r.correlation:.2f}",)
        recovery.append((name, *cells, yes[r.passed]))
    spoiled = judge(outcomes, {"sigma_sq": lambda d: SPOILED * d})["sigma_sq"]
    head = "parameter | 95% interval covers | no surprise | bias | limit | correlation | pass"
    return f"""## {scenario.title}

{sum(not o.passed for o in outcomes)} of {n} fits, short as they are, failed the package's own
verdict. They count all the same: to drop them would bias the ranks. Smallest effective sample size
of a fit: {min(o.ess for o in outcomes):.0f}.

{table("parameter | replicates | largest deviation | envelope | pass", ranks)}

The test can fail: draws of sigma_sq multiplied by {SPOILED} deviate by {spoiled.deviation:.3f},
envelope {spoiled.limit:.3f}: {"pass" if spoiled.passed else "rejected"}.

{table(head, recovery)}
"""


def release_section(results: Sequence[Release]) -> str:
    """Coverage of the released intervals."""
    n = len(results)
    low, high = (100 * k / n for k in count_limits(n, LEVEL, COUNT_ALPHA))
    rows = []
    for analyst in ANALYSTS:
        cells = [analyst]
        for source in ("original", "copies"):
            share = np.mean([r.covers(source, analyst) for r in results])
            error = 100 * np.sqrt(share * (1 - share) / n)
            width = np.mean([r.width(source, analyst) for r in results])
            cells += [f"{100 * share:.1f}% (se {error:.1f})", f"{width:.3f}"]
        rows.append(cells)
    head = "analyst | original covers | mean width | copies cover | mean width"
    return f"""## Intervals from released copies

{n} tables from fixed parameters, {", ".join(f"{k} {v}" for k, v in TRUTH.items())},
each with {COPIES} copies from an unrestricted fit under the default priors, combined by
`dsstan.combine` (Reiter 2003). Share of the 95% intervals that hold the true coefficient of a
spatially smooth covariate. Where the coverage is 95%, {low:.1f} to {high:.1f}% is no surprise
(false alarm {COUNT_ALPHA:g}).

{table(head, rows)}

The combining rule can give back what the analyst's own method has, and no more. Ordinary least
squares takes correlated records for independent ones: its intervals are too narrow on the original
table and on the copies. Generalised least squares with the covariance estimated from {N} records
ignores the error of that estimate.
"""


def page(replicates: int, *, seed: int, workers: int, scenarios: Sequence[str]) -> str:
    """Run everything and write it up."""
    sections = []
    for key in scenarios:
        own = seed + list(SCENARIOS).index(key)
        outcomes = calibrate(SCENARIOS[key], replicates, seed=own, workers=workers)
        sections.append(scenario_section(SCENARIOS[key], outcomes))
        print(sections[-1], flush=True)
    sections.append(release_section(releases(replicates, seed=seed + 100, workers=workers)))
    print(sections[-1], flush=True)
    engine = get_engine(str(SAMPLER["engine"])).version
    chains, warmup, samples = (SAMPLER[k] for k in ("chains", "warmup", "samples"))
    return f"""# Calibration

Written by `python tests/calibration.py --replicates {replicates} --seed {seed}
--out docs/calibration.md` with dsstan {ds.__version__} and {engine}; don't edit.

Parameters are drawn from the prior, a table of {N} records at fixed sites from the parameters
(five sites hold two records each, one record is far from all), and draws from its posterior by
`dsstan.fit`, {chains} chains of {warmup} + {samples}. A fit with an effective sample size below
{2 * THINNED}, where the data can't tell a variance from 0, is run again with {LONGER["warmup"]} +
{LONGER["samples"]}. If the posterior is right, the rank of the true value among {THINNED} thinned
draws is uniform: simulation-based calibration. The first table of each model shows the largest
deviation of the ranks' distribution function from the uniform one, beside the limit there of its
simultaneous envelope (Säilynoja, Bürkner and Vehtari 2022); it passes where all of it lies inside.
The envelopes are simulated and leave {FAMILY_ALPHA:g} of false alarms to a whole table. `w` is the
spatial effect of an ordinary record and of the far one, which restricted models flag. The log
likelihood depends on the data; it sees errors that parameters alone don't show.

The second table: coverage of the 95% posterior intervals, the mean of (truth - posterior mean) /
posterior sd, which is 0 for a right posterior, and the correlation of truth and posterior mean.
Its limits leave {COUNT_ALPHA:g} of false alarms to the table.

Priors: coefficients normal with sd {PRIORS.beta_scale}; sigma half-normal({PRIORS.sigma});
tau half-normal({PRIORS.tau}); phi uniform on {PRIORS.phi_bounds}, or held at {HELD_PHI} in
restricted models. The same checks run shorter in `tests/models/test_calibration.py`, which also
shows that wrong posteriors are rejected.

{chr(10).join(sections)}"""


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="Calibrate the fits and write the page.")
    parser.add_argument("--replicates", type=int, default=200, help="of each model")
    parser.add_argument("--seed", type=int, default=2018)
    parser.add_argument("--workers", type=int, default=2, help="fits at a time")
    parser.add_argument("--scenarios", nargs="+", choices=SCENARIOS, default=list(SCENARIOS))
    parser.add_argument("--out", type=Path, required=True, help="the page, in Markdown")
    given = parser.parse_args()
    text = page(given.replicates, seed=given.seed, workers=given.workers, scenarios=given.scenarios)
    given.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
