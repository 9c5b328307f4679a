"""What samples counts: the numbers of docs/explain/counts.md.

``python tests/benchmarks/counts.py METHOD [--n 200] [--setting age] [--covariance auto]``

METHOD is one of

- ``laplace``: the default, phi free
- ``held``: both samplers with phi held
- ``nuts``: the Stan program with phi free, embedded engine, a short run
- ``homes``: a simulated age of the San Francisco homes, phi free and then restricted
- ``release``: every stage of a release with 20 copies, with its processor time and memory
- ``near``: how far Vecchia processes are from the exact covariance, by neighbours
- ``approximation``: Laplace's approximation without its correction, against the corrected draws
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from cases_counts import PHI, SETTINGS, problem_case
from scipy.spatial.distance import cdist

import dsstan as ds
from dsstan.covariance.correlation import CORRELATIONS
from dsstan.covariance.vecchia.neighbours import Neighbours
from dsstan.covariance.vecchia.site_process import ExactCorrection, SiteProcess
from dsstan.engines import SamplerSettings
from dsstan.models.checks.diagnostics import ess
from dsstan.models.counts.fit import CountFit, fit_counts
from dsstan.models.counts.outcomes import OUTCOMES
from dsstan.models.counts.priors import CountPriors
from dsstan.models.counts.proposal import build_proposal
from dsstan.models.counts.runs import Task


def tell(label: str, fit: CountFit, cpu: float) -> None:
    """One line: time, worst effective sample size, the same a second of processor time."""
    names = [n for n in fit.scalars if n != "phi" or fit.phi_held is None]
    sizes = {name: ess(fit.scalars[name]) for name in names}
    w = min(ess(fit.draws["w"][:, :, j]) for j in range(0, fit.problem.n_sites, 10))
    worst = min(sizes, key=sizes.__getitem__)
    print(
        f"{label}: {fit.seconds:.1f} s, {cpu:.1f} s of processor; worst ESS "
        f"{min(sizes[worst], w):.0f} of {fit.n_draws} ({worst} {sizes[worst]:.0f}, w {w:.0f}), "
        f"{min(sizes[worst], w) / cpu:.1f} a second; {fit.verdict.passed}; "
        f"phi {np.median(fit.draws['phi']):.2f}, sigma_sq {np.median(fit.draws['sigma_sq']):.3f}"
    )


def timed(label: str, problem: object, outcome: str, **arguments: object) -> CountFit:
    """Fit, and tell of it."""
    before = os.times()
    fit = fit_counts(problem, outcome, seed=1, progress=False, **arguments)  # type: ignore[arg-type]
    after = os.times()
    tell(label, fit, sum(after[:4]) - sum(before[:4]))
    return fit


def homes() -> None:
    """A simulated age, 18 to 95, at the San Francisco sites: both fits of a release."""
    rng = np.random.default_rng(1)
    table = ds.load_san_francisco()[["longitude", "latitude", "squarefeet"]].copy()
    sites, site = np.unique(table[["longitude", "latitude"]], axis=0, return_inverse=True)
    root = np.linalg.cholesky(np.exp(-100.0 * cdist(sites, sites)))
    w = 0.35 * root @ rng.standard_normal(len(sites))
    x = np.log(table["squarefeet"])
    eta = np.log(45.0) + 0.1 * (x - x.mean()) / x.std() + w[site]
    table["age"] = np.clip(rng.poisson(np.exp(eta)), 18, 95).astype("int8")
    problem = ds.prepare(
        table,
        "age ~ scale(log(squarefeet))",
        coords=("longitude", "latitude"),
        distance="degrees",
    )
    free = timed("homes, unrestricted", problem, "poisson")
    weights = ds.flag_isolated(free, distance=0.01)
    timed("homes, restricted", problem, "poisson", weights=weights, start=free)


def approximation(problem: object, outcome: str) -> None:
    """Draws of the uncorrected approximation: means in posterior sds, importance weights."""
    exact = timed("corrected", problem, outcome)
    law, p = OUTCOMES[outcome], exact.problem
    priors = CountPriors().resolve(law, np.asarray(p.X), p.d_max)
    settings, cov = SamplerSettings(), ("exponential", exact.covariance)
    model = Task(p, law, exact.shift, exact.A, *cov, priors, None, settings, 1, "", False).model()
    low, high = priors.theta_range(None)
    begin = time.perf_counter()

    def log_prior(theta: np.ndarray) -> float:
        return priors.log_prior(theta, held=False)

    proposal = build_proposal(model, log_prior, low, high)
    rng, kept, weights = np.random.default_rng(1), [], []
    for _ in range(2000):
        theta = proposal.draw(rng)
        frame = proposal.frame(model, theta)
        z = rng.standard_normal(model.M)
        x = model.place(frame, z)
        beta, w = model.natural(x)
        kept.append(np.concatenate([beta, theta, w]))
        target = model.log_joint(frame, x) + frame.log_det + log_prior(theta)
        weights.append(target - proposal.log_density(theta) + 0.5 * z @ z)
    seconds = time.perf_counter() - begin
    draws = np.array(kept)
    theirs = [exact.draws["beta"].reshape(-1, p.n_terms)]
    names = ["phi", "sigma_sq", *(["size"] if law.dispersed else [])]
    theirs += [np.log(exact.draws[name]).reshape(-1, 1) for name in names]
    right = np.hstack([*theirs, exact.draws["w"].reshape(-1, p.n_sites)])
    gap = np.abs(draws.mean(axis=0) - right.mean(axis=0)) / right.std(axis=0)
    ratio = draws.std(axis=0) / right.std(axis=0)
    scaled = np.exp(np.array(weights) - np.max(weights))
    count = p.n_terms + len(names)
    print(
        f"uncorrected: {seconds:.1f} s for 2000 draws; means off by up to {gap[:count].max():.2f} "
        f"posterior sds (parameters), {gap[count:].max():.2f} (w); sds "
        f"{ratio.min():.2f} to {ratio.max():.2f} times the exact; importance resampling would "
        f"keep {scaled.sum() ** 2 / np.sum(scaled**2):.0f} of 2000"
    )


def near(n: int) -> None:
    """sd, over draws of w, of the log density under the exact covariance less the process's."""
    sites, rng = np.random.default_rng(1).uniform(size=(n, 2)), np.random.default_rng(2)
    log_phi = float(np.log(PHI))
    for cov_model in CORRELATIONS:
        for m in (15, 20, 30, 45, 65, 90):
            process = SiteProcess(sites, Neighbours.of(sites, m), cov_model)
            correction = ExactCorrection(process, log_phi, log_phi)
            draws = [
                process.colour(process.weights(log_phi), z) for z in rng.standard_normal((20, n))
            ]
            sd = np.std([correction(log_phi, 1.0, w) for w in draws], ddof=1)
            print(f"{cov_model}, {n} sites, {m} neighbours: sd {sd:.2f}", flush=True)


def release(problem: object, outcome: str, covariance: str) -> None:
    """Fit, flag, fit again, copies, what they give away, what they are good for, files."""

    def stage(label: str, run: Callable[[], Any]) -> Any:
        begin, before = time.perf_counter(), time.process_time()
        out = run()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(
            f"{label}: {time.perf_counter() - begin:.1f} s, "
            f"{time.process_time() - before:.1f} s of processor; {peak:.2f} GiB at most so far",
            flush=True,
        )
        return out

    free = stage("fit", lambda: timed("unrestricted", problem, outcome, covariance=covariance))
    far = float(np.quantile(ds.flag_isolated(free).nearest, 0.99))
    weights = stage("flags", lambda: ds.flag_isolated(free, distance=far))
    kept = stage(
        "restricted", lambda: timed("restricted", problem, outcome, weights=weights, start=free)
    )
    synthesis = stage("copies", lambda: ds.synthesise(kept, 20, seed=3, progress=False))
    stage("disclosure", lambda: ds.disclosure(synthesis, absolute=0))
    stage("utility", lambda: ds.utility(synthesis))
    with tempfile.TemporaryDirectory() as folder:
        stage("assessed and written", lambda: synthesis.write(Path(folder) / "out"))


def main() -> None:
    """Run one method."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    methods = ("laplace", "held", "nuts", "homes", "release", "near", "approximation")
    parser.add_argument("method", choices=methods)
    parser.add_argument("--n", type=int, default=200)
    parser.add_argument("--setting", choices=tuple(SETTINGS), default="age")
    parser.add_argument("--covariance", default="auto")
    given = parser.parse_args()
    if given.method == "near":
        near(given.n)
        return
    problem, outcome = problem_case(given.n, setting=given.setting)
    label = f"{given.method}, {given.setting}, {given.n} records"
    if given.method == "homes":
        homes()
    elif given.method == "release":
        release(problem, outcome, given.covariance)
    elif given.method == "laplace":
        timed(f"{label}, {given.covariance}", problem, outcome, covariance=given.covariance)
    elif given.method == "held":
        timed(f"{label}, laplace", problem, outcome, phi=PHI)
        timed(f"{label}, nuts", problem, outcome, phi=PHI, sampler="nuts", engine="embedded")
    elif given.method == "nuts":
        timed(
            label,
            problem,
            outcome,
            sampler="nuts",
            engine="embedded",
            chains=2,
            warmup=100,
            samples=100,
            max_treedepth=6,
        )
    else:
        approximation(problem, outcome)


if __name__ == "__main__":
    main()
