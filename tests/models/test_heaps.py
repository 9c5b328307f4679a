"""Two-part models: who is in a heap, the values beside it, and copies that keep to a range."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import kstest, truncnorm

import dsstan as ds
from conftest import case, small_table
from dsstan.analysis.marginals import marginals
from dsstan.copies.options import ReleaseOptions
from dsstan.core.errors import ConvergenceError, InputError, TableError
from dsstan.core.seeds import seed_of
from dsstan.models.checks.verdict import Verdict
from dsstan.models.counts.fit import fit_counts
from dsstan.models.heaps.fit import MORE, HeapedFit, fit_heaped
from dsstan.models.posterior import parameters_at
from dsstan.risk.assessment import measured

COORDS = ("x", "y")
SEED = 2**100
QUICK: dict[str, Any] = {"engine": "direct", "progress": False, "seed": SEED}
BRIEF: dict[str, Any] = QUICK | {"samples": 200}
ANYWAY: dict[str, Any] = {"seed": SEED, "progress": False, "accept_failed": True}
FALSE_ALARM = 1e-5


@pytest.fixture(scope="module")
def zeros() -> HeapedFit:
    """A fifth of the rents are zero; the others follow a normal law on the log scale."""
    problem = ds.prepare(case("zeros.csv"), "log(rent) ~ log(area)", coords=COORDS, heap=0)
    return fit_heaped(problem, **QUICK)


@pytest.fixture(scope="module")
def copies(zeros: HeapedFit) -> ds.Synthesis:
    return ds.synthesise(zeros, 200, seed=SEED, accept_few_draws=True, progress=False)


def capped() -> pd.DataFrame:
    """A quarter of the rents are at a cap."""
    table = case("zeros.csv").query("rent > 0").reset_index(drop=True)
    return table.assign(rent=table["rent"].clip(upper=float(table["rent"].quantile(0.75))))


def test_either_part_is_the_fit_that_there_is_of_it(zeros: HeapedFit) -> None:
    table = case("zeros.csv")
    of_amount, of_heap = map(seed_of, np.random.SeedSequence(SEED).spawn(2))
    gaps = table.assign(rent=table["rent"].where(table["rent"] > 0))
    problem = ds.prepare(gaps, "log(rent) ~ log(area)", coords=COORDS, missing="draw")
    amount = ds.fit(problem, **(QUICK | {"seed": of_amount}))
    assert np.array_equal(zeros.draws["beta"], amount.draws["beta"])
    who = table.assign(empty=table["rent"] == 0)
    indicator = fit_counts(
        ds.prepare(who, "empty ~ log(area)", coords=COORDS),
        "bernoulli",
        seed=of_heap,
        samples=MORE * 1000,
        progress=False,
    )
    assert zeros.indicator is not None
    assert np.array_equal(zeros.indicator.draws["w"], indicator.draws["w"])
    assert zeros.scalars["heap_sigma_sq"].shape == zeros.scalars["sigma_sq"].shape


def test_copies_have_the_zeros_of_the_table_and_stay_in_its_world(copies: ds.Synthesis) -> None:
    found = marginals(copies)
    assert found.copies.negative == 0.0
    assert {c.name for c in found.checks if c.severity != "ok"} == set()
    # The share over copies is that of the data but for the posterior's sd of a share, 0.045 for
    # 80 records, and the prior's pull: four of them.
    assert found.copies.zeros == pytest.approx(0.2, abs=4 * 0.045)
    positive = copies.values[copies.values != 0.0]
    assert positive.min() > 0.01
    assert positive.max() < 10 * found.original.most  # 24,339 under log1p without a heap


def test_who_is_in_the_heap_differs_from_copy_to_copy(copies: ds.Synthesis) -> None:
    share = np.mean(copies.values == 0.0, axis=0)
    truth = copies.problem.in_heap
    assert share[truth].min() > 0.0
    assert share[truth].max() < 1.0
    assert share[truth].mean() > share[~truth].mean()


def test_the_heap_shows_in_the_shares_near_the_truth(copies: ds.Synthesis) -> None:
    found = ds.disclosure(copies).records["within_relative_unrestricted"].to_numpy()
    heap = copies.problem.in_heap
    assert np.isfinite(found).all()
    expected = np.mean(copies.values[:, heap] == 0.0, axis=0)
    assert np.array_equal(found[heap], expected)


def test_the_regression_is_that_of_the_values_beside_the_heap(copies: ds.Synthesis) -> None:
    table = case("zeros.csv").query("rent > 0")
    X = np.column_stack([np.ones(len(table)), np.log(table["area"])])
    expected = np.linalg.lstsq(X, np.log(table["rent"]), rcond=None)[0]
    found = ds.utility(copies)
    assert found.get("original", "log(area)")["estimate"] == pytest.approx(expected[1])
    row = found.get("unrestricted", "log(area)")
    assert row["low"] < expected[1] < row["high"]


def test_a_value_in_a_range_follows_the_truncated_normal(zeros: HeapedFit) -> None:
    """One record, one posterior draw, many copies: the law beside the heap, given the effect."""
    problem = ds.prepare(case("zeros.csv"), "rent ~ log(area)", coords=COORDS, heap=0)
    law = fit_heaped(problem, (0, 900), **BRIEF).predictive()
    law.of_heap = None
    record = int(np.flatnonzero(problem.observed)[0])
    law.effect_at = lambda *_: np.zeros(problem.n_records)  # type: ignore[method-assign]
    drawn = np.array([law.draw(0, 0, np.random.default_rng(k))[record] for k in range(400)])
    p = parameters_at(law.fit, 0, 0)
    mean, sd = float(problem.X[record] @ p.beta), float(np.sqrt(p.tau_sq))
    expected = truncnorm((0 - mean) / sd, (900 - mean) / sd, mean, sd)
    assert kstest(drawn, expected.cdf).pvalue > FALSE_ALARM


@pytest.mark.parametrize("column", ["float", "int"])
def test_no_copy_goes_beyond_a_cap_and_rounding_moves_nobody_in_it(column: str) -> None:
    table = capped()
    if column == "int":
        table = table.assign(rent=table["rent"].round().astype(int))
    problem = ds.prepare(table, "rent ~ log(area)", coords=COORDS, heap="cap")
    fit = fit_heaped(problem, (0, None), **BRIEF)
    release = ds.synthesise(fit, 20, **ANYWAY)
    cap = float(table["rent"].max())
    assert problem.heap == cap
    assert release.values.max() == cap
    assert release.values.min() >= 0.0
    assert np.mean(release.values == cap) == pytest.approx(0.25, abs=0.15)
    assert release.table(0)["rent"].dtype == table["rent"].dtype
    # Beside the cap values are below it, also where they are rounded to it.
    assert f"0 or more and below {cap:,.15g}" in fit.public_note


def test_a_range_alone_cuts_the_copies_of_the_gaussian_fit() -> None:
    table = small_table(40, seed=5)
    problem = ds.prepare(table, "value ~ x", coords=("east", "north"))
    plain = ds.synthesise(ds.fit(problem, **QUICK), 20, seed=SEED, progress=False)
    low, high = table["value"].min(), table["value"].max()
    assert plain.values.min() < low
    fit = fit_heaped(problem, (low, high), **QUICK)
    release = ds.synthesise(fit, 20, seed=SEED, progress=False)
    assert low <= release.values.min() <= release.values.max() <= high


def test_protection_reaches_both_parts() -> None:
    options = {"threshold": 2.2, "coords": COORDS, "copies": 10, "accept_failed": True, **BRIEF}
    table = case("zeros.csv")
    release = ds.protect(table, "log(rent) ~ log(area)", heap=0, **options)
    fit = release.fit
    assert isinstance(fit, HeapedFit)
    assert fit.indicator is not None
    assert np.array_equal(fit.indicator.A, fit.A)
    assert 0 < fit.flagged.sum() < 80
    # Neighbours in the heap have no value that could stand for that of a record.
    everybody = ds.prepare(table, "rent ~ log(area)", coords=COORDS)
    near = ds.flag_isolated(ds.fit(everybody, **QUICK), distance=2.2).flagged
    assert np.all(near <= fit.flagged)
    found = measured(release)
    assert found.after is None
    assert "two parts" in str(found.absence)
    with pytest.raises(InputError, match="no intruder is computed"):
        measured(release, floor="10%")


def test_the_verdict_is_that_of_both_parts(zeros: HeapedFit) -> None:
    short = fit_heaped(zeros.problem, **(QUICK | {"samples": 20, "chains": 2}))
    checks = tuple(c for c in short.verdict.checks if "who is in the heap" in c.name)
    of_heap = replace(short, verdict=Verdict(checks))
    with pytest.raises(ConvergenceError, match="who is in the heap"):
        ds.synthesise(of_heap, 5, progress=False)


def test_a_release_with_a_heap_is_written_with_its_law(tmp_path: Path, zeros: HeapedFit) -> None:
    release = ds.synthesise(zeros, 5, seed=SEED, progress=False)
    folder = release.write(tmp_path / "out")
    readme = (folder / "public" / "README.md").read_text()
    assert "`rent` has a heap at 0" in readme
    assert "two parts: Bernoulli" in (folder / "public" / "metadata.json").read_text()
    first = pd.read_csv(folder / "public" / "copy_001.csv")["rent"]
    assert np.array_equal(first, release.values[0])
    draws = pd.read_parquet(folder / "confidential" / "draws_unrestricted.parquet")
    assert {"sigma_sq", "heap_sigma_sq"} < set(draws)
    assert "regression that counts" in (folder / "confidential" / "report.html").read_text()


def test_a_step_with_a_heap_takes_the_synthetic_covariates_in_both_parts() -> None:
    table = case("zeros.csv")
    area = ds.fit(ds.prepare(table, "log(area) ~ 1", coords=COORDS), **BRIEF)
    given = ds.synthesise(area, 5, **ANYWAY)
    problem = ds.prepare(table, "log(rent) ~ log(area)", coords=COORDS, heap=0)
    fit = fit_heaped(problem, **BRIEF)
    release = ds.synthesise(fit, 5, given=given, **ANYWAY)
    assert not np.array_equal(release.table(0)["area"], table["area"])
    law = fit.predictive().with_design(problem.X + 1.0)
    assert law.of_heap is not None
    assert np.array_equal(law.of_heap.X, law.X)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"heap": 1}, "0 of 80 records of 'rent' have it"),
        ({"heap": "top"}, 'heap must be a number such as 0, "cap"'),
        ({"heap": "floor", "missing": "draw"}, "needs the response of every record"),
    ],
)
def test_what_is_no_heap_is_refused_by_prepare(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        ds.prepare(case("zeros.csv"), "log1p(rent) ~ 1", coords=COORDS, **given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((0, 500), r"'rent' is outside the range in \d+ row"),
        ((3, 2), "must begin below its end"),
        ((0,), "must be two numbers"),
        ("0", "must be two numbers"),
        ((-5, 0), "must be above 0 for log"),
    ],
)
def test_what_is_no_range_is_refused_before_sampling(given: Any, said: str) -> None:
    problem = ds.prepare(case("zeros.csv"), "log(rent) ~ 1", coords=COORDS, heap=0)
    with pytest.raises(InputError, match=said):
        fit_heaped(problem, given, engine="none")


def test_a_model_of_one_law_refuses_a_heap(zeros: HeapedFit) -> None:
    for call in (ds.fit, fit_counts):
        with pytest.raises((InputError, TableError), match="fit_heaped"):
            call(zeros.problem, engine="none")
    plain = ds.prepare(case("zeros.csv"), "rent ~ 1", coords=COORDS)
    with pytest.raises(InputError, match="give a heap to prepare"):
        fit_heaped(plain)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"protection": "cut"}, "is protected as"),
        ({"protection": "auto"}, "no intruder is known of a table with a heap"),
        ({"missing": "draw"}, "needs the response of every record"),
        ({"by_row_groups": True}, "has no by_row_groups"),
    ],
)
def test_what_a_heap_does_not_go_with_is_refused(more: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        ReleaseOptions(heap=0, **more)
