"""The public fact sheet holds nothing that is confidential."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
from test_report import facts, release  # noqa: F401
from test_write import none_flagged, planted  # noqa: F401

import dsstan as ds
from dsstan.release.public import metadata
from dsstan.release.report import factsheet, public_view


def forms(value):
    """A number as text, as any rounding to four digits or more would show it."""
    return {f"{value:.{d}g}" for d in range(4, 17)} | {f"{value:,.{d}f}" for d in range(1, 6)}


def test_the_fact_sheet_holds_none_of_the_confidential_values(planted, tmp_path):  # noqa: F811
    target = planted.write(tmp_path / "r")
    sheet = (target / "public" / "factsheet.html").read_text(encoding="utf-8")
    start = sheet.index("<h2>What the copies show</h2>")
    sheet = sheet[:start] + sheet[sheet.index("<h2>Columns</h2>") :]  # see the test below
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


def test_what_it_shows_of_the_copies_depends_on_nothing_but_the_copies(release, tmp_path):  # noqa: F811
    """The confidential values are permuted and the draws moved; the copies are held."""
    problem, rng = release.problem, np.random.default_rng(3)
    order = rng.permutation(problem.n_records)
    table = problem.with_response(problem.original()[order])
    design = dataclasses.replace(problem.design, y=problem.y[order])
    other = dataclasses.replace(problem, table=table, y=problem.y[order], design=design)
    fit = dataclasses.replace(
        release.fit,
        problem=other,
        start=dataclasses.replace(release.fit.start, problem=other),
        draws={name: d * 1.5 + 1.0 for name, d in release.fit.draws.items()},
        weights=none_flagged(release).fit.weights,
    )
    permuted = dataclasses.replace(release, fit=fit)
    assert not np.array_equal(permuted.problem.original(), problem.original())
    files = [f"copy_{i:03d}.csv" for i in (1, 2, 3)]
    sheets = [factsheet(metadata(one, files), public_view(one)) for one in (release, permuted)]
    assert sheets[0] == sheets[1]
    assert "svg" in sheets[0]
    moved = dataclasses.replace(release, values=release.values * 1.1)
    assert factsheet(metadata(moved, files), public_view(moved)) != sheets[0]
