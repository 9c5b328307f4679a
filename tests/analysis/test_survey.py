"""Weighted estimates, in closed form, pooled, and from copies of an informative sample.

``tests/parity/survey.R`` compares them with R's package survey.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest
from benchmarks.survey import by_formula, estimates, population, sample

import dsstan as ds
from conftest import small_table
from dsstan.analysis.combining import combine
from dsstan.analysis.overlap import interval_overlap
from dsstan.analysis.pooling import pool
from dsstan.analysis.survey import (
    weighted_least_squares,
    weighted_mean,
    weighted_regression,
    weighted_total,
)
from dsstan.analysis.utility import ols, utility
from dsstan.comparison.frontier import fingerprint
from dsstan.comparison.scores import _regression
from dsstan.core.errors import InputError, TableError
from dsstan.release.report.usefulness import groups

EXACT = 1e-10
"""The same arithmetic in another order."""

SAMPLES, ERRORS = 10, 4.0
"""Samples of the informative design, and standard errors of a mean over them (Student's t with 9
degrees of freedom: a false alarm in 300 runs, but the seed is fixed)."""


SOURCES = ("original", "unrestricted")


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(3)
    return pd.DataFrame(
        {
            "y": rng.normal(5.0, 2.0, 40),
            "x": rng.normal(size=40),
            "w": rng.integers(1, 9, 40).astype(float),
            "group": np.repeat(["a", "b"], 20),
        }
    )


def test_a_record_of_weight_three_counts_as_three_records(table):
    X = np.column_stack([np.ones(40), table["x"]])
    coef, _ = weighted_least_squares(X, table["y"].to_numpy(), table["w"].to_numpy())
    times = table["w"].astype(int).to_numpy()
    expanded, _ = ols(np.repeat(X, times, axis=0), np.repeat(table["y"].to_numpy(), times))
    np.testing.assert_allclose(coef, expanded, rtol=EXACT)


def test_the_variance_is_the_sandwich_and_the_scale_of_the_weights_does_not_matter(table):
    X, y, w = np.column_stack([np.ones(40), table["x"]]), table["y"], table["w"].to_numpy()
    coef, found = weighted_least_squares(X, y.to_numpy(), w)
    bread = np.linalg.inv((X.T * w) @ X)
    scores = X * (w * (y.to_numpy() - X @ coef))[:, None]
    np.testing.assert_allclose(found, 40 / 39 * bread @ scores.T @ scores @ bread, rtol=EXACT)
    again = weighted_least_squares(X, y.to_numpy(), 7.0 * w)
    np.testing.assert_allclose(again[0], coef, rtol=EXACT)
    np.testing.assert_allclose(again[1], found, rtol=EXACT)


def test_means_and_totals_of_groups_add_up(table):
    total, _ = weighted_total("y", "w")(table)
    parts, covariance = weighted_total("y", "w", by="group")(table)
    assert parts.sum() == pytest.approx(total["all"], rel=EXACT)
    assert covariance.sum() == pytest.approx(weighted_total("y", "w")(table)[1].item(), rel=1e-9)
    mean, _ = weighted_mean("y", "w", by="group")(table)
    size = table.groupby("group")["w"].sum()
    np.testing.assert_allclose(mean * size, parts, rtol=EXACT)


def test_equal_weights_give_the_variance_of_a_plain_mean(table):
    q, u = weighted_mean("y", "one")(table.assign(one=2.0))
    assert q["all"] == pytest.approx(table["y"].mean(), rel=EXACT)
    assert u.item() == pytest.approx(table["y"].var() / 40, rel=EXACT)


def test_what_cannot_be_estimated_is_refused(table):
    with pytest.raises(InputError, match="no column 'z'"):
        weighted_mean("z", "w")(table)
    with pytest.raises(InputError, match="no column 'z'"):
        weighted_mean("y", "w", by="z")(table)
    with pytest.raises(InputError, match="Did you mean 'group'"):
        weighted_mean("y", "groups")(table)
    with pytest.raises(TableError, match="0 or negative in 1 row"):
        weighted_total("y", "w")(table.assign(w=[0.0, *[1.0] * 39]))


@pytest.fixture(scope="module")
def release(free):
    """Copies of the small table with weights that go with x."""
    table = small_table()
    table = table.assign(weight=np.exp(table["x"]))
    problem = ds.prepare(table, "log(value) ~ x", coords=("east", "north"), survey_weights="weight")
    return ds.synthesise(
        dataclasses.replace(free, problem=problem), 4, seed=1, accept_failed=True, progress=False
    )


def test_utility_and_pool_give_the_weighted_regression_of_data_and_copies(release):
    found = utility(release)
    assert found.weights == "weight"
    assert "weighted by weight" in str(found)
    regression = weighted_regression("log(value) ~ x", "weight")
    q, u = regression(release.problem.table)
    term = found.get("original", "x")
    assert term["estimate"] == pytest.approx(q["x"], rel=EXACT)
    assert term["se"] == pytest.approx(np.sqrt(u[1, 1]), rel=EXACT)
    each = [regression(release.table(k)) for k in range(4)]
    pooled = combine([q for q, _ in each], [np.diag(u) for _, u in each])
    assert found.get("unrestricted", "x")["low"] == pytest.approx(pooled.low[1], rel=EXACT)
    same = pool(release, regression)
    assert same.get("unrestricted", "x")["low"] == pytest.approx(pooled.low[1], rel=EXACT)
    plain = dataclasses.replace(release.problem, survey_weights=None)
    without = dataclasses.replace(release, fit=dataclasses.replace(release.fit, problem=plain))
    assert utility(without).get("original", "x")["se"] != pytest.approx(term["se"], rel=1e-3)


def test_a_comparison_is_weighted_and_not_resumed_with_other_weights(release):
    plain = dataclasses.replace(release.problem, survey_weights=None)
    unweighted = dataclasses.replace(release.fit, problem=plain)
    assert fingerprint(release.fit) != fingerprint(unweighted)
    without = dataclasses.replace(release, fit=unweighted)
    assert _regression(release) != _regression(without)
    found = utility(release)
    ends = [[found.get(s, t)[["low", "high"]] for t in ("Intercept", "x")] for s in SOURCES]
    overlap = interval_overlap(*(tuple(np.array(side, dtype=float).T) for side in ends))
    assert _regression(release)[0] == pytest.approx(float(np.mean(overlap.truncated)), rel=EXACT)


def test_the_means_of_the_report_are_weighted(release):
    found = groups(release).set_index("group").loc["upper left"]
    problem = release.problem
    middle = np.median(problem.sites, axis=0)
    members = (problem.sites[:, 0] <= middle[0]) & (problem.sites[:, 1] > middle[1])
    part = problem.table[members]
    expected = np.average(part["value"], weights=part["weight"])
    assert found["data"] == pytest.approx(expected, rel=EXACT)
    assert found["data"] != pytest.approx(part["value"].mean(), rel=1e-3)


@pytest.mark.nightly("statistics of many releases")
def test_copies_of_an_informative_sample_keep_the_weighted_mean_if_the_formula_has_the_weights():
    """Members with a large y are drawn more often: who leaves the weights out loses that."""
    members = population("straight", np.random.default_rng(1))
    shifts = {"y ~ x": [], "y ~ x + log(w)": []}
    for seed in range(SAMPLES):
        drawn = sample(members, 100, np.random.default_rng(100 + seed))
        q, u = estimates(drawn["y"].to_numpy(), drawn)
        for formula, found in shifts.items():
            copies, _ = by_formula(drawn, formula, 10, seed)
            mean = np.mean([estimates(y, drawn)[0][0] for y in copies])
            found.append((mean - q[0]) / np.sqrt(u[0]))
    mean = {formula: np.mean(found) for formula, found in shifts.items()}
    error = {f: np.std(found, ddof=1) / np.sqrt(SAMPLES) for f, found in shifts.items()}
    assert abs(mean["y ~ x + log(w)"]) < ERRORS * error["y ~ x + log(w)"]
    assert mean["y ~ x"] > ERRORS * error["y ~ x"]
