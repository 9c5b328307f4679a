"""What ``scale.py`` measures: the same model of the same records, by one program a process.

    y ~ normal(X beta, sigma_sq exp(-phi d) + tau_sq I)

    beta_j ~ normal(0, beta_scale_j), sigma and tau ~ half-normal(0, scale), phi ~ uniform

``python scale_programs.py PROGRAM DATA DRAWS [--quick]`` reads the records and the numbers of the
priors from DATA, writes the draws to DRAWS and prints one line of JSON. It needs no more of an
interpreter than NumPy and the program that is measured, so a peer may live in another environment.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Result = dict[str, Any]

CHAINS = 4
NEIGHBOURS = 15

ITERATIONS: dict[str, tuple[tuple[int, int, int], ...]] = {
    "dsstan": ((2**62, 1000, 1000),),
    "stan": ((200, 300, 300), (2**62, 50, 50)),
    "numpyro": ((200, 1000, 1000), (500, 300, 300), (2**62, 100, 100)),
    "nutpie": ((200, 1000, 1000), (500, 300, 300), (2**62, 100, 100)),
}
"""For each sampler: most records, warm-up and kept iterations of a chain."""

QUICK = 10
"""By how much ``--quick`` divides the iterations of every sampler but dsstan's."""


def iterations(program: str, n: int) -> tuple[int, int]:
    """Warm-up and kept iterations of a chain at n records."""
    part = QUICK if "--quick" in sys.argv and program != "dsstan" else 1
    warmup, kept = next(pair for most, *pair in ITERATIONS[program] if n <= most)
    return max(20, warmup // part), max(20, kept // part)


def dsstan(data: Mapping[str, Any]) -> Result:
    """This project: from the arrays to the draws, surface and checks included."""
    import pandas as pd

    import dsstan as ds

    s, x, y = data["sites"], data["X"], data["y"]
    table = pd.DataFrame({"s1": s[:, 0], "s2": s[:, 1], "x": x[:, 1], "y": y})
    warmup, kept = iterations("dsstan", len(y))
    begin = time.perf_counter()
    problem = ds.prepare(table, "y ~ x", coords=("s1", "s2"))
    fit = ds.fit(
        problem,
        covariance="auto",
        chains=CHAINS,
        warmup=warmup,
        samples=kept,
        engine="embedded",
        seed=1,
        progress=False,
    )
    seconds = time.perf_counter() - begin
    return {"seconds": seconds, "draws": fit.scalars, "iterations": (warmup, kept)}


def stan(data: Mapping[str, Any]) -> Result:
    """The plain Stan program, a Cholesky factor a gradient, on the embedded engine."""
    from dsstan.engines import SamplerSettings, get_engine
    from dsstan.engines.programs import Program

    X, y, scale = data["X"], data["y"], float(data["scale"])
    n, p = X.shape
    low, high = (float(end) for end in data["phi_bounds"])
    warmup, kept = iterations("stan", n)
    begin = time.perf_counter()
    told = {
        **{"N": n, "P": p, "X": X, "y": y, "coords": data["sites"], "cov_model": 1},
        **{"A": np.ones(n), "protection": 1, "phi_lower": low, "phi_upper": high},
        **{"r_lower": float(data["r_bounds"][0]), "r_upper": float(data["r_bounds"][1])},
        **{"beta_scale": data["beta_scale"], "variance_prior": 1},
        **{"sigma_par": [scale, 1.0], "tau_par": [scale, 1.0]},
    }
    drawn = get_engine("embedded").sample(
        Program("reference/cholesky"),
        told,
        settings=SamplerSettings(chains=CHAINS, warmup=warmup, samples=kept),
        seed=1,
        inits=_starts(X, y, low, high),
    )
    draws = {f"beta_{j}": drawn["beta"][:, :, j] for j in range(p)}
    draws |= {name: drawn[name] for name in ("sigma_sq", "tau_sq", "phi")}
    return {
        "seconds": time.perf_counter() - begin,
        "draws": draws,
        "iterations": (warmup, kept),
    }


def _starts(X: Floats, y: Floats, low: float, high: float) -> list[dict[str, Any]]:
    """Starting values about least squares, one mapping a chain."""
    rng = np.random.default_rng(1)
    beta = np.linalg.lstsq(X, y, rcond=None)[0]
    half = 0.5 * float(np.var(y - X @ beta))
    return [
        {
            "beta": beta,
            "sigma_sq": half * np.exp(rng.uniform(-0.5, 0.5)),
            "tau_sq": half * np.exp(rng.uniform(-0.5, 0.5)),
            "phi": np.sqrt(low * high) * np.exp(rng.uniform(-0.5, 0.5)),
        }
        for _ in range(CHAINS)
    ]


def gpboost(data: Mapping[str, Any], approximation: str) -> Result:
    """GPBoost's maximum likelihood: an estimate and no posterior, on all cores."""
    import gpboost as gpb

    begin = time.perf_counter()
    more = {"num_neighbors": NEIGHBOURS} if approximation == "vecchia" else {}
    model = gpb.GPModel(
        gp_coords=data["sites"],
        cov_function="exponential",
        gp_approx=approximation,
        likelihood="gaussian",
        **more,
    )
    model.fit(y=data["y"], X=data["X"])
    found = np.asarray(model.get_cov_pars(format_pandas=False), dtype=np.float64).ravel()
    seconds = time.perf_counter() - begin
    # Nugget, partial sill and range: its exponential is exp(-d / range).
    estimate = {"log_tau_sq": float(np.log(found[0])), "log_phi": float(-np.log(found[2]))}
    return {"seconds": seconds, **estimate}


def numpyro(data: Mapping[str, Any]) -> Result:
    """NumPyro's NUTS, compilation included, chains side by side."""
    os.environ["XLA_FLAGS"] = (
        f"--xla_force_host_platform_device_count={CHAINS} "
        "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    )
    import jax
    import jax.numpy as jnp
    import numpyro as npr
    from numpyro import distributions as dist

    jax.config.update("jax_enable_x64", True)
    begin = time.perf_counter()
    X, y, d = jnp.asarray(data["X"]), jnp.asarray(data["y"]), jnp.asarray(_distances(data))
    low, high = (float(end) for end in data["phi_bounds"])
    scale, n = float(data["scale"]), len(data["y"])

    def model() -> None:
        beta = npr.sample("beta", dist.Normal(0.0, jnp.asarray(data["beta_scale"])).to_event(1))
        sigma = npr.sample("sigma", dist.HalfNormal(scale))
        tau = npr.sample("tau", dist.HalfNormal(scale))
        phi = npr.sample("phi", dist.Uniform(low, high))
        V = sigma**2 * jnp.exp(-phi * d) + tau**2 * jnp.eye(n)
        npr.sample("y", dist.MultivariateNormal(X @ beta, covariance_matrix=V), obs=y)

    warmup, kept = iterations("numpyro", n)
    sampler = npr.infer.MCMC(
        npr.infer.NUTS(model),
        num_warmup=warmup,
        num_samples=kept,
        num_chains=CHAINS,
        chain_method="parallel",
        progress_bar=False,
    )
    sampler.run(jax.random.PRNGKey(1))
    found = {k: np.asarray(v) for k, v in sampler.get_samples(group_by_chain=True).items()}
    seconds = time.perf_counter() - begin
    return {"seconds": seconds, "draws": _natural(found), "iterations": (warmup, kept)}


def nutpie(data: Mapping[str, Any]) -> Result:
    """PyMC's model sampled by nutpie, compilation included."""
    import nutpie as sampler
    import pymc as pm
    from pytensor import tensor as pt

    begin = time.perf_counter()
    X, y, d, n = data["X"], data["y"], _distances(data), len(data["y"])
    low, high = (float(end) for end in data["phi_bounds"])
    scale = float(data["scale"])
    with pm.Model() as model:
        beta = pm.Normal("beta", 0.0, data["beta_scale"], shape=X.shape[1])
        sigma = pm.HalfNormal("sigma", scale)
        tau = pm.HalfNormal("tau", scale)
        phi = pm.Uniform("phi", low, high)
        V = sigma**2 * pt.exp(-phi * d) + tau**2 * pt.eye(n)
        pm.MvNormal("y", mu=X @ beta, cov=V, observed=y)
    warmup, kept = iterations("nutpie", n)
    found = sampler.sample(
        sampler.compile_pymc_model(model),
        draws=kept,
        tune=warmup,
        chains=CHAINS,
        cores=min(CHAINS, os.cpu_count() or 1),
        seed=1,
        progress_bar=False,
    ).posterior
    draws = _natural({k: np.asarray(found[k]) for k in ("beta", "sigma", "tau", "phi")})
    seconds = time.perf_counter() - begin
    return {"seconds": seconds, "draws": draws, "iterations": (warmup, kept)}


def _distances(data: Mapping[str, Any]) -> Floats:
    """Distances between all records, shape (n, n)."""
    s = data["sites"]
    return np.asarray(np.hypot(*(s[:, None, k] - s[None, :, k] for k in (0, 1))))


def _natural(found: Mapping[str, Floats]) -> dict[str, Floats]:
    """Draws by scalar parameter, the standard deviations squared."""
    beta = found["beta"]
    named = {f"beta_{j}": beta[:, :, j] for j in range(beta.shape[2])}
    squares = {f"{name}_sq": found[name] ** 2 for name in ("sigma", "tau")}
    return {**named, **squares, "phi": found["phi"]}


PROGRAMS: dict[str, tuple[str, Callable[[Mapping[str, Any]], Result], tuple[str, ...]]] = {
    "dsstan": ("dsstan", dsstan, ("stanli", "numpy", "scipy", "numba")),
    "stan": ("plain Stan program", stan, ("stanli",)),
    "numpyro": ("NumPyro, NUTS", numpyro, ("numpyro", "jax", "jaxlib")),
    "nutpie": ("PyMC with nutpie", nutpie, ("pymc", "nutpie", "pytensor")),
    "gpboost": ("GPBoost, exact", lambda data: gpboost(data, "none"), ("gpboost",)),
    "gpboost-vecchia": ("GPBoost, Vecchia", lambda data: gpboost(data, "vecchia"), ("gpboost",)),
}
"""Each program's label, what runs it, and the packages whose versions are told."""


def _own_peak() -> float:
    """Most memory of this process so far in MiB, 0 where the system does not tell."""
    # Not ru_maxrss: on Linux it counts what the parent held when it started this process.
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return sum(float(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def main() -> None:
    """Run one program on one file of records."""
    program, data, draws = sys.argv[1:4]
    _, run, packages = PROGRAMS[program]
    # dsstan and the plain program are this repository's: their absence is an error.
    for package in packages if program not in ("dsstan", "stan") else ():
        if importlib.util.find_spec(package) is None:
            print(json.dumps({"missing": package}))
            return
    with np.load(data) as held:
        result = run(dict(held))
    if "draws" in result:
        np.savez(draws, **result.pop("draws"))
    versions = {package: importlib.metadata.version(package) for package in packages}
    print(json.dumps({**result, "versions": versions, "mib": _own_peak()}))


if __name__ == "__main__":
    main()
