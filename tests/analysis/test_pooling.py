"""Pooled analyses and joint tests: the rule written out, its size, and what is refused."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import dsstan as ds
from dsstan.analysis.combining import combine
from dsstan.analysis.overlap import interval_overlap
from dsstan.analysis.pooling import (
    SMOOTHING_BIAS,
    combine_many,
    joint_statistic,
    pool,
)
from dsstan.analysis.utility import ols
from dsstan.core.errors import DsstanWarning, InputError
from mc import z_limit

EXACT = 1e-10
"""The exact tier of the design: two ways to one sum differ by rounding only."""

REPLICATES = 40_000

SIZES = [(copies, p) for copies in (3, 5, 10) for p in (2, 3)]

SIZE_RANGE = (0.034, 0.051)
"""Where the exact size lies for these L and p at b = 2 u_bar: the F distribution is an
approximation, nearly exact but for t = p (L - 1) just above 4, where it is conservative."""


def estimates_of(copies=4, p=3, seed=1):
    """Coefficients and covariances of no particular structure."""
    rng = np.random.default_rng(seed)
    roots = rng.normal(size=(copies, p, p + 2))
    return rng.normal(1.0, 0.7, (copies, p)), roots @ np.swapaxes(roots, 1, 2) / p


def reiter_2005(q, u, null):
    """The rule of Reiter (2005), written out."""
    copies, p = q.shape
    centre = q.mean(axis=0)
    b = sum(np.outer(e - centre, e - centre) for e in q) / (copies - 1)
    inverse = np.linalg.inv(sum(u) / copies)
    r = np.trace(b @ inverse) / (copies * p)
    statistic = (centre - null) @ inverse @ (centre - null) / (p * (1 + r))
    t = p * (copies - 1)
    if t > 4:
        w = 4 + (t - 4) * (1 + (1 - 2 / t) / r) ** 2
    else:
        w = t * (1 + 1 / p) * (1 + 1 / r) ** 2 / 2
    return statistic, p, w, stats.f.sf(statistic, p, w), sum(u) / copies + b / copies


@pytest.mark.parametrize("copies", [3, 4, 10])
@pytest.mark.parametrize("p", [1, 2, 3])
def test_several_coefficients_are_tested_by_reiters_rule(copies, p):
    q, u = estimates_of(copies, p)
    null = np.linspace(-1, 1, p)
    found = combine_many(q, u, null=null)
    statistic, df1, df2, p_value, covariance = reiter_2005(q, u, null)
    np.testing.assert_allclose(
        [found.statistic, found.df1, found.df2, found.p_value],
        [statistic, df1, df2, p_value],
        rtol=1e-9,  # two inversions of a covariance stand between
    )
    np.testing.assert_allclose(found.covariance, covariance, rtol=EXACT)


@pytest.mark.parametrize("copies", [2, 3, 5, 6, 20])
def test_one_coefficient_gives_the_square_of_t(copies):
    q = 0.3 + 0.1 * np.arange(copies)[:, None] % 0.35
    u = np.full((copies, 1, 1), 0.04)
    joint, single = combine_many(q, u, null=[0.1]), combine(q, u[:, :, 0])
    t = (single.estimate[0] - 0.1) / np.sqrt(single.variance[0])
    assert joint.statistic == pytest.approx(t**2, rel=EXACT)
    if copies <= 5:  # beyond, Reiter (2005) takes another formula than Reiter (2003)
        assert joint.df2 == pytest.approx(single.df[0], rel=EXACT)
        assert joint.p_value == pytest.approx(2 * stats.t.sf(abs(t), single.df[0]), rel=1e-8)


def test_the_statistic_does_not_depend_on_the_units_of_the_terms():
    q, u = estimates_of()
    units = np.array([1e-6, 1.0, 1e5])
    scaled = combine_many(q * units, u * np.outer(units, units))
    assert scaled.statistic == pytest.approx(combine_many(q, u).statistic, rel=1e-9)


def exact_size(copies, p, ratio):
    """Size at 5% where b = ratio * u_bar exactly and u is known, by quadrature.

    Then r (L p - p) L / ratio is a chi-square and q_bar independent of it.
    """
    t, rho = p * (copies - 1), ratio / copies
    r = rho * stats.chi2.ppf((np.arange(4000) + 0.5) / 4000, t) / t
    if t > 4:
        w = 4 + (t - 4) * (1 + (1 - 2 / t) / r) ** 2
    else:
        w = t * (1 + 1 / p) * (1 + 1 / r) ** 2 / 2
    limit = stats.f.isf(0.05, p, np.minimum(w, 1e9))
    return float(np.mean(stats.chi2.sf(p * limit * (1 + r) / (1 + rho), p)))


@pytest.mark.parametrize(("copies", "p"), SIZES)
def test_the_joint_test_rejects_a_true_null_as_often_as_the_approximation_allows(copies, p):
    """A normal regression whose response is replaced by posterior draws, null true.

    The copies' coefficients vary by the posterior and by their own noise, so
    b is 2 u_bar. The simulated size must agree with the quadrature within Monte
    Carlo error; what the quadrature leaves out, that u is estimated from n
    records, moves a chi-square to an F with n - p degrees of freedom.
    """
    n = 2000
    rng = np.random.default_rng(100 * copies + p)
    root = np.tril(np.full((p, p), 0.5)) + np.eye(p)
    unit = root @ root.T / n  # (X'X)^-1
    factor = np.linalg.cholesky(unit)

    def coefficients(centre, s_sq):
        z = rng.normal(size=(*s_sq.shape, p))
        return centre + np.sqrt(s_sq)[..., None] * (z @ factor.T)

    one = np.ones(REPLICATES)
    estimate = coefficients(0.0, one)
    s_sq = rng.chisquare(n - p, REPLICATES) / (n - p)
    drawn = s_sq[:, None] * (n - p) / rng.chisquare(n - p, (REPLICATES, copies))
    copy = coefficients(coefficients(estimate[:, None], drawn), drawn)
    own = drawn * rng.chisquare(n - p, drawn.shape) / (n - p)
    statistic, _, w = joint_statistic(copy, own[..., None, None] * unit, np.zeros(p))
    size = np.mean(stats.f.sf(statistic, p, w) < 0.05)
    expected = exact_size(copies, p, 2.0)
    error = np.sqrt(expected * (1 - expected) / REPLICATES)
    left_out = stats.f.sf(stats.chi2.isf(0.05, p) / p, p, n - p) - 0.05
    assert abs(size - expected) < z_limit(len(SIZES)) * error + left_out
    assert SIZE_RANGE[0] < expected < SIZE_RANGE[1]


@pytest.mark.parametrize("copies", [2, 5])
def test_copies_that_agree_give_infinite_degrees_of_freedom_and_a_chi_square(copies):
    q, u = np.full((copies, 2), 0.1), np.tile(0.01 * np.eye(2), (copies, 1, 1))
    found = combine_many(q, u)
    assert (found.df2, found.relative_increase) == (np.inf, 0.0)
    assert found.p_value == pytest.approx(stats.chi2.sf(2.0, 2), rel=EXACT)


def test_copies_that_nearly_agree_give_the_limit():
    q = np.full((3, 2), 0.1)
    q[0, 0] += 1e-12
    found = combine_many(q, np.tile(0.01 * np.eye(2), (3, 1, 1)))
    assert found.p_value == pytest.approx(stats.chi2.sf(2.0, 2), rel=1e-8)


def test_two_copies_that_vary_much_warn():
    with pytest.warns(DsstanWarning, match="two copies"):
        combine_many([[1.0, 1.0], [4.0, 1.1]], [np.eye(2)] * 2)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"estimates": [[1.0, 2.0]], "covariances": [np.eye(2)]}, "at least two copies"),
        ({"estimates": [1.0, 2.0]}, "shape"),
        ({"covariances": [[1.0, 1.0]] * 3}, "shape"),
        ({"estimates": [[1.0, np.nan]] * 3}, "finite"),
        ({"covariances": [[[1.0, np.nan], [np.nan, 1.0]]] * 3}, "positive definite"),
        ({"covariances": [[[1.0, 1.0], [1.0, 1.0]]] * 3}, "positive definite"),
        ({"covariances": [[[1.0, 0.9], [0.1, 1.0]]] * 3}, "symmetric"),
        ({"covariances": [np.diag([1.0, 0.0])] * 3}, "no variance"),
        ({"covariances": [np.diag([1.0, -1.0])] * 3}, "not negative"),
        ({"null": [0.0]}, "null"),
        ({"null": [0.0, np.inf]}, "null"),
        ({"level": 95}, "level"),
        ({"rule": "rubin"}, "nobody observed.*too wide"),
        ({"rule": "full"}, "same records.*negative"),
        ({"rule": "best"}, "only combining rule"),
    ],
)
def test_what_cannot_be_tested_is_refused_with_the_reason(change, match):
    given = {"estimates": [[1.0, 2.0], [1.5, 2.5], [1.2, 2.2]], "covariances": [np.eye(2)] * 3}
    given.update(change)
    with pytest.raises(InputError, match=match):
        combine_many(given.pop("estimates"), given.pop("covariances"), **given)


@pytest.mark.parametrize(
    ("original", "synthetic", "raw", "width"),
    [
        ((0.0, 2.0), (0.0, 2.0), 1.0, 1.0),
        ((0.0, 2.0), (1.0, 3.0), 0.5, 1.0),
        ((0.0, 2.0), (0.5, 1.5), 0.75, 0.5),
        ((-3.0, -1.0), (-2.0, 2.0), 0.375, 2.0),
        ((0.0, 1.0), (3.0, 5.0), -1.5, 2.0),
        ((0.0, 1.0), (1.0, 2.0), 0.0, 1.0),
        ((0.0, 1.0), (0.5, 0.5), 0.5, 0.0),
        ((0.5, 0.5), (0.5, 0.5), 1.0, 1.0),
        ((0.0, 1.0), (2.0, 2.0), -np.inf, 0.0),
        ((0.5, 0.5), (0.0, 1.0), 0.5, np.inf),
    ],
)
def test_overlap_is_the_mean_of_the_two_shares(original, synthetic, raw, width):
    found = interval_overlap(original, synthetic)
    assert (float(found.raw), float(found.truncated)) == (raw, max(raw, 0.0))
    assert float(found.width_ratio) == width


def test_overlap_takes_one_interval_a_term():
    found = interval_overlap(([0.0, 0.0], [2.0, 1.0]), ([1.0, 3.0], [3.0, 5.0]))
    np.testing.assert_array_equal(found.raw, [0.5, -1.5])


@pytest.mark.parametrize(
    ("synthetic", "match"),
    [((1.0, 0.0), "above its high"), ((0.0, np.inf), "finite"), (([0.0], [1.0]), "shape")],
)
def test_an_interval_that_is_none_is_refused(synthetic, match):
    with pytest.raises(InputError, match=match):
        interval_overlap((0.0, 1.0), synthetic)


@pytest.fixture(scope="module")
def release(kept):
    """Six copies of the restricted fit."""
    return ds.synthesise(kept, 6, seed=21)


def regression(table):
    """Least squares of log(value) on x, with a covariance."""
    X = np.column_stack([np.ones(len(table)), table["x"]])
    y = np.log(table["value"].to_numpy())
    coef, _ = ols(X, y)
    inverse = np.linalg.inv(X.T @ X)
    names = ["Intercept", "x"]
    return pd.Series(coef, names), inverse * np.sum((y - X @ coef) ** 2) / (len(y) - 2)


def test_pooled_least_squares_are_the_utility_table(release):
    """The same regression by two ways; the original's interval is given the same df."""
    pooled = pool(release, regression, df=release.problem.n_records - 2)
    expected = ds.utility(release).table
    assert list(pooled.table["source"]) == list(expected["source"])
    assert list(pooled.table["term"]) == list(expected["term"])
    for column in ("estimate", "se", "df", "low", "high"):
        np.testing.assert_allclose(pooled.table[column], expected[column], rtol=1e-8)


def test_each_row_has_its_overlap_with_the_original(release):
    pooled = pool(release, regression)
    assert pooled.get("original", "x")["overlap"] == 1.0
    first, row = pooled.get("original", "x"), pooled.get("restricted", "x")
    found = interval_overlap((first["low"], first["high"]), (row["low"], row["high"]))
    assert row["overlap"] == pytest.approx(float(found.raw), rel=EXACT)
    assert row["width_ratio"] == pytest.approx(float(found.width_ratio), rel=EXACT)


def test_tables_of_a_published_release_are_pooled_alone_or_with_the_original(release):
    tables = [release.table(number) for number in range(6)]
    expected = pool(release, regression)
    alone = pool(tables, regression)
    beside = pool(tables, regression, original=release.problem.table)
    assert list(alone.table["source"]) == ["copies", "copies"]
    assert "overlap" not in alone.table
    row = expected.get("restricted", "x")
    assert alone.get("copies", "x")["low"] == row["low"]
    assert beside.get("copies", "x")["overlap"] == row["overlap"]


def test_all_terms_of_a_source_are_tested_at_once(release):
    pooled = pool(release, regression)
    found = pooled.joint("restricted", null=[5.0, 0.7])
    again = combine_many(
        pooled.estimates["restricted"], pooled.covariances["restricted"], null=[5.0, 0.7]
    )
    assert dataclasses.astuple(found)[:4] == dataclasses.astuple(again)[:4]
    assert f"p = {found.p_value:.3g}" in str(found)
    with pytest.raises(InputError, match="unrestricted, restricted"):
        pooled.joint("original")


def test_a_single_number_and_its_variance_will_do(release):
    pooled = pool(release, lambda t: (t["value"].median(), 1.0), terms=["median"], name="Median")
    assert pooled.get("original", "median")["estimate"] == release.problem.table["value"].median()
    assert str(pooled).startswith("Median, 95% intervals")


def test_the_text_says_that_smoothing_bias_is_not_covered(release):
    assert " ".join(str(pool(release, regression)).split()).endswith(SMOOTHING_BIAS)


def test_copies_equal_to_the_original_overlap_it_entirely(release):
    table = release.problem.table
    pooled = pool([table, table, table], regression, original=table)
    row = pooled.get("copies", "x")
    assert row["df"] == np.inf
    assert row["overlap"] == pytest.approx(1.0, abs=EXACT)
    assert np.all(np.isfinite(pooled.table[["estimate", "se", "low", "high", "overlap"]]))


def test_two_copies_that_vary_much_warn_when_pooled(release):
    tables = [release.table(0).assign(value=v) for v in (2.0, 200.0)]
    with pytest.warns(DsstanWarning, match="two copies"):
        pool(tables, lambda t: (t["value"].mean(), 1.0))


@pytest.mark.parametrize(
    ("estimator", "match"),
    [
        (lambda t: t["x"].mean(), "must return"),
        (lambda t: (t["x"].mean(), np.nan), "not finite"),
        (lambda t: (t["x"].mean(), -1.0), "negative variance"),
        (lambda t: ([1.0, 2.0], [1.0, 2.0]), "the original the estimator gave shapes"),
    ],
)
def test_an_estimator_that_gives_something_else_is_refused(release, estimator, match):
    with pytest.raises(InputError, match=match):
        pool(release, estimator)


def test_an_estimator_that_fails_on_one_copy_says_which(release):
    third = release.table(2)["value"].iloc[0]

    def odd(table):
        return (np.nan if table["value"].iloc[0] == third else 1.0), 1.0

    with pytest.raises(InputError, match="restricted copy 2"):
        pool(release, odd)


@pytest.mark.parametrize("rule", ["rubin", "full"])
def test_rules_for_other_kinds_of_copies_are_refused(release, rule):
    with pytest.raises(InputError, match="partially synthetic"):
        pool(release, regression, rule=rule)


def test_what_cannot_be_pooled_is_refused(release, free):
    table = release.problem.table
    for bad, match in (
        (lambda: pool([table], regression), "at least two copies"),
        (lambda: pool(ds.synthesise(release.fit, 1, seed=1), regression), "at least two copies"),
        (lambda: pool([1, 2], regression), "pandas tables"),
        (lambda: pool([table, table], regression, against=free), "carry no fit"),
        (lambda: pool(release, regression, original=table), "leave original out"),
        (lambda: pool(release, regression, level=95), "level"),
        (lambda: pool(release, regression, df=0), "df"),
    ):
        with pytest.raises(InputError, match=match):
            bad()
