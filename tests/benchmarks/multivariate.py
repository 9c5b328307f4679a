"""Three groups: the direct engine beside Stan, and ``stan/multivariate.stan`` beside a plain form.

``python tests/benchmarks/multivariate.py [records]`` fits three groups twice with the embedded
engine, 2 chains of 400 + 500, and prints for each form the processor time of a gradient, gradients
a draw, the worst bulk effective sample size, and that a thousand gradients and a processor second.
Then it fits them with the direct engine, and prints how many times as much that gives a second.

The plain form samples coefficients, roots of variances and a Cholesky factor of the correlation.

``... [records] direct [covariance]`` runs the direct engine alone, 4 chains of 1000 draws, and says
what a copy takes.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import stanli
from scipy.spatial.distance import cdist

sys.path.insert(0, str(Path(__file__).resolve().parent))

from cases_multivariate import simulate

from dsstan.engines.base import jsonable
from dsstan.engines.programs import Program
from dsstan.models.checks.diagnostics import ess
from dsstan.models.groups.fit import fit_multivariate
from dsstan.models.priors import Priors

PLAIN = """
data {
  int N; int P; int n_groups; matrix[N, P] X; vector[N] y; matrix[N, N] d; array[N] int group;
  real phi_lower; real phi_upper; vector[P] beta_scale; vector[P] group_scale;
  array[2] real sigma_par; array[2] real tau_par; real lkj_eta;
}
parameters {
  vector[P] mu; matrix[P, n_groups] beta;
  vector<lower=0>[n_groups] sigma; vector<lower=0>[n_groups] tau; cholesky_factor_corr[n_groups] L;
  real<lower=phi_lower, upper=phi_upper> phi;
}
model {
  matrix[n_groups, n_groups] T
    = multiply_lower_tri_self_transpose(diag_pre_multiply(sigma, L));
  vector[N] m;
  for (i in 1:N) m[i] = X[i] * beta[, group[i]];
  mu ~ normal(0, beta_scale);
  for (k in 1:n_groups) beta[, k] ~ normal(mu, group_scale);
  sigma ~ normal(0, sigma_par[1]);
  tau ~ normal(0, tau_par[1]);
  L ~ lkj_corr_cholesky(lkj_eta);
  y ~ multi_normal_cholesky(m, cholesky_decompose(
        add_diag(T[group, group] .* exp(-phi * d), square(tau[group]))));
}
"""


def data_of(records: int) -> dict[str, Any]:
    """Data of both forms."""
    p = simulate(records)
    resolved = Priors(sigma=1.5, tau=1.5).resolve(p.y, p.X, p.d_max)
    return {
        "N": p.n_records,
        "P": 2,
        "n_groups": 3,
        "X": p.X,
        "y": p.y,
        "coords": p.sites,
        "d": cdist(p.sites, p.sites),
        "group": p.table["group"].to_numpy() + 1,
        "A": np.ones(p.n_records),
        "protection": 1,
        "cov_model": 1,
        **resolved.decay_data(),
        **resolved.stan_data(),
        "group_scale": [3.0, 3.0],
        "lkj_eta": 2.0,
    }


def direct(records: int, covariance: str | None = None, **settings: int) -> float:
    """Effective draws a processor second of the direct engine; prints its line."""
    problem = simulate(records)
    begin, wall = time.process_time(), time.perf_counter()
    fit = fit_multivariate(
        problem, "group", seed=1, covariance=covariance, progress=False, **settings
    )
    seconds, wall = time.process_time() - begin, time.perf_counter() - wall
    law = fit.predictive()
    law.draw(0, 0, np.random.default_rng(1))
    begin = time.process_time()
    law.draw(0, 1, np.random.default_rng(1))
    copy = time.process_time() - begin
    worst = fit.worst_ess
    (k,) = (check.value for check in fit.verdict.checks if check.name == "pareto k")
    print(
        f"direct       {records} records, {fit.covariance}: {seconds:.0f} processor seconds, "
        f"{wall:.0f} by the clock; worst ESS {worst:.0f} of {fit.n_draws}, "
        f"{worst / seconds:.1f} a second; pareto k {k:.2f}; "
        f"{'passed' if fit.verdict.passed else 'failed'}; {copy:.2f} s a copy",
        flush=True,
    )
    return worst / seconds


def run(name: str, model: Any, start: dict[str, Any]) -> float:
    """Sample one form, print its line, and give effective draws a processor second."""
    point = model.unconstrain(jsonable(start))
    model.log_prob_grad(point)
    begin = time.process_time()
    for _ in range(50):
        model.log_prob_grad(point)
    gradient = (time.process_time() - begin) / 50
    begin = time.process_time()
    fit = model.sample(
        chains=2,
        warmup=400,
        samples=500,
        delta=0.9,
        metric="dense_e",
        seed=1,
        inits=np.stack([point] * 2),
        refresh=0,
    )
    seconds = time.process_time() - begin
    draws = fit.draws()
    moving = [i for i in range(draws.shape[2]) if np.ptp(draws[:, :, i]) > 1e-12]
    worst = min(ess(draws[:, :, i]) for i in moving)
    column = list(stanli.SAMPLER_COLUMNS)
    leaps = float(fit.sampler_stats[:, :, column.index("n_leapfrog__")].mean())
    divergent = int(fit.sampler_stats[:, :, column.index("divergent__")].sum())
    print(
        f"{name:12s} {1e3 * gradient:6.2f} ms a gradient, {leaps:5.1f} gradients a draw, "
        f"worst ESS {worst:4.0f} of 1000, {worst / leaps:5.1f} a thousand gradients, "
        f"{worst / seconds:5.1f} a second of {seconds:.0f}, {divergent} divergent",
        flush=True,
    )
    return worst / seconds


def main(records: int) -> None:
    """Both forms, one line each."""
    data = data_of(records)
    print(f"{records} records of three groups, decay free")
    program = Program("multivariate")
    ours = stanli.Model(
        stan_code=program.source,
        data=json.dumps(jsonable(data)),
        include_paths=[str(program.folder)],
    )
    eye, ones = np.eye(3), np.ones(3)
    stan = run("collapsed", ours, {"root": ones, "angle": 1.2 * ones, "L": eye, "phi_free": [6.0]})
    plain = stanli.Model(stan_code=PLAIN, data=json.dumps(jsonable(data)))
    beta = [[3.0, 3.0, 3.0], [0.5, 0.5, 0.5]]
    start = {"mu": [3.0, 0.5], "beta": beta, "sigma": ones, "tau": 0.4 * ones, "L": eye, "phi": 6.0}
    run("plain", plain, start)
    settings = {"chains": 2, "samples": 500}
    direct(records, **settings)  # compiles what it needs
    ratio = direct(records, **settings) / stan
    print(f"direct gives {ratio:.0f} times as many effective draws a second as collapsed")


if __name__ == "__main__":
    given = sys.argv[1:]
    size = int(given[0]) if given else 100
    if given[1:2] == ["direct"]:
        direct(size, *given[2:3])
    else:
        main(size)
