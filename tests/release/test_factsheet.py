"""The public fact sheet holds nothing that is confidential."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
from test_report import facts, release  # noqa: F401
from test_write import none_flagged, planted  # noqa: F401

import dsstan as ds


def forms(value):
    """A number as text, as any rounding to four digits or more would show it."""
    return {f"{value:.{d}g}" for d in range(4, 17)} | {f"{value:,.{d}f}" for d in range(1, 6)}


def test_the_fact_sheet_holds_none_of_the_confidential_values(planted, tmp_path):  # noqa: F811
    target = planted.write(tmp_path / "r")
    sheet = (target / "public" / "factsheet.html").read_text(encoding="utf-8")
    fit, problem = planted.fit, planted.problem
    truth = np.concatenate([problem.original(), problem.y])
    found = ds.assess(planted)
    secret = [
        *truth,
        *(v for o in (np.min, np.max, np.mean, np.ptp) for v in (o(truth), o(problem.y))),
        *(v for f in (fit, fit.start) for d in f.scalars.values() for v in d.ravel()[:200]),
        *(v for f in (fit, fit.start) for v in f.summary().drop(columns="term").to_numpy().ravel()),
        *ds.utility(planted).table[["estimate", "low", "high"]].to_numpy().ravel(),
        *found.records.select_dtypes("float").to_numpy().ravel(),
        *(fit.weights.threshold, fit.weights.correlation, fit.phi_held, *fit.weights.nearest),
    ]
    texts = {t for v in secret if np.isfinite(v) and v not in (0.0, 1.0) for t in forms(float(v))}
    sheet = re.sub(r"<style>.*?</style>", "", sheet, flags=re.DOTALL)
    numbers = {n.strip(".,") for n in re.findall(r"\d[\d.,]*", sheet)}
    # Records, copies, names of files, the rule and its reference, the version, UTF-8.
    assert numbers <= {
        "30",
        "3",
        "001",
        "003",
        "0",
        "8",
        "1",
        "2",
        "2003",
        "32",
        "64",
        ds.__version__,
    }
    assert not [t for t in texts if len(t) > 3 and t in sheet]
    for seed in (planted.seed, fit.seed, fit.start.seed):
        assert str(seed) not in sheet
    for word in ("flag", "seed", "gamma", "threshold", "risk", "phi", "sd"):
        assert word not in sheet.lower(), word
    # The same search over the report finds values, so it would find them here.
    private = (target / "confidential" / "report.html").read_text(encoding="utf-8")
    assert sum(t in private for t in texts if len(t) > 3) > 50


def test_the_fact_sheet_does_not_depend_on_responses_flags_seeds_or_draws(release):  # noqa: F811
    problem = release.problem
    other = none_flagged(release)
    fit = dataclasses.replace(
        other.fit,
        problem=dataclasses.replace(
            problem, table=problem.with_response(problem.original()[::-1]), y=problem.y[::-1]
        ),
        draws={name: d + 1.0 for name, d in other.fit.draws.items()},
        seed=5,
        start=None,
    )
    other = dataclasses.replace(other, fit=fit, seed=6, values=release.values + 1.0)
    assert facts(other) == facts(release)
