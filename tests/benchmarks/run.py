"""Measure speed and memory in one run and write ``docs/benchmarks.md``.

Each row is a fit in a fresh process. Times of different rows are compared only
within one run. ``python tests/benchmarks/run.py [--quick]``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import dsstan as ds
from dsstan.covariance.likelihood_surface import build_surface
from dsstan.engines import SamplerSettings, get_engine
from dsstan.engines.programs import Program
from dsstan.models.checks.diagnostics import ess
from dsstan.models.stan_data import natural_data
from dsstan.models.starts import initial_values, near_least_squares

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "docs" / "benchmarks.md"
CHOLESKY_ITERATIONS = 200
ENOUGH = 100
"""Effective draws from which on the cost of one is known well enough to be compared."""


def table_of(n: int) -> pd.DataFrame:
    """N records uniform on the unit square, the paper's covariance, two covariates."""
    rng = np.random.default_rng(n)
    s = rng.uniform(size=(n, 2))
    d = np.sqrt(((s[:, None] - s[None]) ** 2).sum(-1))
    x = rng.normal(size=(n, 2))
    w = np.linalg.cholesky(4.0 * np.exp(-12.7 * d) + 0.0625 * np.eye(n)) @ rng.normal(size=n)
    y = 11.0 + x @ [0.5, -0.2] + w
    return pd.DataFrame({"s1": s[:, 0], "s2": s[:, 1], "x1": x[:, 0], "x2": x[:, 1], "y": y})


def measure(task: str, n: int, quick: bool) -> dict[str, Any]:
    """One fit, in this process."""
    problem = ds.prepare(table_of(n), "y ~ x1 + x2", coords=("s1", "s2"))
    begin = time.perf_counter()
    if task == "report":
        return _report(problem)
    if task == "cholesky":
        row = _cholesky(problem, 40 if quick else CHOLESKY_ITERATIONS)
    elif task == "restricted":
        weights = ds.flag_isolated(_stand_in(problem), distance=_tenth(problem))
        begin = time.perf_counter()
        fit = ds.fit(problem, weights=weights, phi=12.7, seed=1, engine="embedded", progress=False)
        row = {"ess": fit.worst_ess, "program": fit.program, "error": fit.surface_error}
    else:
        fit = ds.fit(problem, seed=1, engine="embedded", progress=False)
        row = {"ess": fit.worst_ess, "program": fit.program, "error": fit.surface_error}
    row["seconds"] = time.perf_counter() - begin
    peak = max(
        resource.getrusage(who).ru_maxrss
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return {"task": task, "n": n, "mib": peak / 1024, **row}


def _tenth(problem: ds.Problem) -> float:
    from dsstan.models.weights import neighbour_distances

    return float(np.quantile(neighbour_distances(problem), 0.99))


class _Phi:
    """What flagging needs of a fit: the problem and draws of phi."""

    def __init__(self, problem: ds.Problem) -> None:
        self.problem, self.draws = problem, {"phi": np.full((1, 1), 12.7)}


def _stand_in(problem: ds.Problem) -> Any:
    return _Phi(problem)


REPORT_COPIES, REPORT_DRAWS = 20, 400


def _report(problem: ds.Problem) -> dict[str, Any]:
    """The whole disclosure report of a restricted fit, and the unrestricted fit, in one run."""
    settings: dict[str, Any] = {"engine": "embedded", "progress": False}
    begin = time.perf_counter()
    free = ds.fit(problem, seed=1, **settings)
    fitted = time.perf_counter() - begin
    weights = ds.flag_isolated(free, distance=_tenth(problem))
    kept = ds.fit(problem, weights=weights, start=free, seed=1, **settings)
    release = ds.synthesise(kept, REPORT_COPIES, seed=1, progress=False)
    begin = time.perf_counter()
    found = ds.assess(release, draws=REPORT_DRAWS, progress=False)
    seconds = time.perf_counter() - begin
    row = {"task": "report", "n": problem.n_records, "flagged": weights.n_flagged}
    return {**row, "fit": fitted, "seconds": seconds, "draws": found.after.draws}


def _cholesky(problem: ds.Problem, iterations: int) -> dict[str, Any]:
    """The plain program: one chain, half warm-up, from the same starting values."""
    priors = ds.Priors().resolve(problem.y, problem.X, problem.d_max)
    d = np.sqrt(((problem.sites[:, None] - problem.sites[None]) ** 2).sum(-1))
    surface = build_surface(
        d,
        problem.X,
        problem.y,
        a_diag=np.ones(problem.n_records),
        protection="none",
        phi_bounds=priors.phi_bounds,
        r_bounds=priors.r_bounds,
        nodes=(8, 8),
        tolerance=np.inf,
    )
    data = {
        **natural_data(problem, np.ones(problem.n_records), "paper", 1.0, priors, surface),
        "phi_lower": priors.phi_bounds[0],
        "phi_upper": priors.phi_bounds[1],
    }
    drawn = get_engine("embedded").sample(
        Program("reference/cholesky"),
        data,
        settings=SamplerSettings(chains=1, warmup=iterations // 2, samples=iterations // 2),
        seed=1,
        inits=initial_values(
            near_least_squares(surface.rotation, priors),
            start=None,
            held=None,
            chains=1,
            root=1,
            natural=True,
        ),
    )
    scalars = [drawn[k] for k in ("sigma_sq", "tau_sq", "phi")]
    scalars += [drawn["beta"][:, :, j] for j in range(problem.n_terms)]
    return {"ess": min(ess(d) for d in scalars), "program": "reference/cholesky", "error": 0.0}


def report(rows: list[dict[str, Any]]) -> str:
    """The table and the ratios, as Markdown."""
    cost, step = {}, {}
    table = [
        "| fit | program | N | seconds | worst ESS | seconds per 1000 ESS | peak MiB "
        "| surface error |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for r in (row for row in rows if row["task"] != "report"):
        iterations = CHOLESKY_ITERATIONS if r["task"] == "cholesky" else 8000
        step[r["task"], r["n"]] = r["seconds"] / iterations
        per = 1000 * r["seconds"] / r["ess"]
        # A chain too short to know its effective sample size has no cost of one.
        shown = f"{per:.2f}" if r["ess"] >= ENOUGH else "–"
        cost[r["task"], r["n"]] = per if r["ess"] >= ENOUGH else None
        table.append(
            f"| {r['task']} | {r['program']} | {r['n']} | {r['seconds']:.1f} | {r['ess']:.0f} | "
            f"{shown} | {r['mib']:.0f} | {r['error']:.1g} |"
        )
    lines = ["# Benchmarks", ""]
    for n in sorted({n for _, n in cost}):
        if ("cholesky", n) in cost and ("unrestricted", n) in cost:
            each = step["cholesky", n] / step["unrestricted", n]
            plain, ours = cost["cholesky", n], cost["unrestricted", n]
            drawn = "" if not (plain and ours) else f", {plain / ours:.0f} times an effective draw"
            lines.append(
                f"- At N = {n} an iteration of the plain Cholesky program takes **{each:.0f} "
                f"times** as long as one of the unrestricted fit{drawn}."
            )
    lines += [
        "",
        "The ratio is of seconds an iteration, a fit's surface and checks included. The plain "
        f"program ran one chain of {CHOLESKY_ITERATIONS} iterations, so its effective sample size "
        f"is rough, and below {ENOUGH} no cost of an effective draw is given: "
        "[the benchmarks by the number of records](benchmarks-scale.md) compare whole chains, "
        "with other programs too.",
        "",
        "Made by `make bench`: each row one fit in a fresh process on "
        f"{os.cpu_count()} cores ({platform.machine()}), embedded engine. The surface fits run "
        "4 chains of 1000 + 1000 iterations. Worst effective sample size: the smallest bulk ESS of "
        "any parameter. Memory: peak of the larger of the two processes.",
        "",
        *table,
        "",
    ]
    lines += _report_lines([row for row in rows if row["task"] == "report"])
    return "\n".join(lines) + "\n"


def _report_lines(rows: list[dict[str, Any]]) -> list[str]:
    """The disclosure report against the unrestricted fit of the same run."""
    lines = [
        "## The disclosure report",
        "",
        "`assess` of a restricted fit: shares of the copies with as many drawn without protection, "
        "and the whole-release attacker of every record before and after it, exact at "
        f"{REPORT_DRAWS} evenly spread draws in the held decay's eigenbasis; L = {REPORT_COPIES}.",
        "",
        "| N | flagged | unrestricted fit, seconds | report, seconds | ratio |",
        "|---|---|---|---|---|",
    ]
    for r in rows:
        lines.append(
            f"| {r['n']} | {r['flagged']} | {r['fit']:.1f} | {r['seconds']:.1f} | "
            f"{r['seconds'] / r['fit']:.2f} |"
        )
    return lines


def main() -> None:
    """Run every task in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller sizes")
    parser.add_argument("--one", nargs=2, metavar=("TASK", "N"), help="run one task, print JSON")
    arguments = parser.parse_args()
    if arguments.one:
        task, n = arguments.one
        print(json.dumps(measure(task, int(n), arguments.quick)))
        return
    sizes = [200] if arguments.quick else [200, 500, 1000, 2000]
    plan = [("unrestricted", n) for n in sizes] + [("restricted", n) for n in sizes]
    plan += [("report", n) for n in sizes]
    plan += [("cholesky", n) for n in sizes if n <= 500]
    rows = []
    for task, n in plan:
        command = [sys.executable, __file__, "--one", task, str(n)]
        command += ["--quick"] if arguments.quick else []
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        rows.append(json.loads(done.stdout.splitlines()[-1]))
        print(rows[-1], file=sys.stderr)
    text = report(rows)
    if not arguments.quick:
        OUT.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
