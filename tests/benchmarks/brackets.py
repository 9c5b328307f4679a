"""What the two likelihoods of brackets learn: the numbers of docs/explain/brackets.md.

``python tests/benchmarks/brackets.py`` simulates one table for each size and cuts its values at
their thirds. phi is held at its true value, so that only the likelihoods differ.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

if __package__ in (None, ""):
    sys.path[:0] = [str(Path(__file__).resolve().parents[k]) for k in (0, 1)]

from cases_brackets import PHI, SIGMA_SQ, TAU_SQ, simulate

import dsstan as ds
from dsstan.models.brackets.fit import fit_bracketed


def main() -> None:
    """Print one row a size and likelihood."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--records", type=int, nargs="+", default=[100, 200])
    parser.add_argument("--samples", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    print(f"truth: slope 0.5, sigma_sq {SIGMA_SQ:g}, tau_sq {TAU_SQ:g}; mean (95% interval)")
    head = ("records", "likelihood", "slope", "sigma_sq", "tau_sq", "within 0.2", "seconds")
    print(" | ".join(head))
    for n in given.records:
        problem, cuts = simulate(n, given.seed)
        nobody = ds.own_weights(problem, np.zeros(n))
        common: dict[str, Any] = {"phi": PHI, "seed": given.seed, "progress": False}
        common |= {"samples": given.samples, "warmup": given.samples}
        for likelihood in ("plain", "truncated"):
            weighed = {"weights": nobody} if likelihood == "plain" else {}  # then phi is held
            fit = fit_bracketed(problem, cuts, likelihood=likelihood, **weighed, **common)
            accepted = {"accept_failed": True, "accept_few_draws": True}
            copies = ds.synthesise(fit, 200, seed=2, progress=False, **accepted)
            near = float(np.mean(np.abs(copies.values - problem.original()) <= 0.2))
            cells = [f"{n}", likelihood]
            for name in ("beta_1", "sigma_sq", "tau_sq"):
                d = fit.scalars[name]
                low, high = np.quantile(d, [0.025, 0.975])
                cells.append(f"{d.mean():.2f} ({low:.2f}, {high:.2f})")
            cells += [f"{100 * near:.0f}%", f"{fit.seconds:.0f}"]
            print(" | ".join(cells), flush=True)


if __name__ == "__main__":
    main()
