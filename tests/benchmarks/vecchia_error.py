"""How far a fit under Vecchia's approximation is from the exact posterior, on six kinds of tables.

Largest shift of a posterior mean (log phi, log sigma_sq, log tau_sq, the coefficients) in sds of
the exact posterior: as the surface of 15 neighbours has it, as a fit of up to 5000 sites has it,
and as a fit of more sites would have it, with what each said of itself, as a Markdown table:
``python tests/benchmarks/vecchia_error.py [tables] [seeds]``.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from vecchia_tables import LAYOUTS, problem_on, shift

import dsstan as ds
from dsstan.covariance.vecchia import refinement

SEEDS = 4
DRAWS = {"engine": "direct", "samples": 10_000, "progress": False, "seed": 1}
EXACT_ROWS = refinement.EXACT_ROWS


def fitted(problem: ds.Problem, **how: object) -> tuple[ds.Fit, float]:
    """A fit and its seconds of the processor."""
    begin = time.process_time()
    fit = ds.fit(problem, **how, **DRAWS)
    return fit, time.process_time() - begin


def main(names: list[str], seeds: int) -> None:
    """Print the table."""
    print(
        "| table | seed | 15 neighbours alone | refined by the exact one | error left | "
        "refined by more neighbours | how many | still to expect | seconds: exact, refined, more |"
    )
    print("|---" * 9 + "|")
    for name in names:
        layout = LAYOUTS[name]
        for seed in range(seeds):
            problem = problem_on(layout, 3000 if layout.towers else 1000, seed)
            how = {"cov_model": layout.cov_model}
            exact, *spent = fitted(problem, covariance="exact", **how)
            cells = []
            for rows in (EXACT_ROWS, 0):
                refinement.EXACT_ROWS = rows
                near, seconds = fitted(problem, covariance="vecchia", **how)
                spent.append(seconds)
                moved, done = shift(exact, near), near.refinement
                most = max(moved, key=lambda k: abs(moved[k]))
                if not cells:
                    alone = np.abs(np.array(list(moved.values())) - done.moved).max()
                    cells.append(f"{alone:.2f}")
                cells.append(f"{abs(moved[most]):.3f}")
                cells += [f"{done.left:.2f}"] if rows else [str(done.by), f"{done.left:.2f}"]
            refinement.EXACT_ROWS = EXACT_ROWS
            spent_words = ", ".join(f"{s:.1f}" for s in spent)
            print(f"| {name} | {seed} | {' | '.join(cells)} | {spent_words} |", flush=True)


if __name__ == "__main__":
    main(
        sys.argv[1].split(";") if len(sys.argv) > 1 else list(LAYOUTS),
        int(sys.argv[2]) if len(sys.argv) > 2 else SEEDS,
    )
