"""What an analyst gets from the copies, held against the rule and the regression written out."""

from __future__ import annotations

import dataclasses

import formulaic
import numpy as np
import pytest
from scipy import stats

import dsstan as ds
from conftest import small_table
from dsstan.analysis.utility import _check_terms, ols
from dsstan.core.errors import DsstanWarning, InputError, TableError
from dsstan.table.formulas.formula import build_design, parse

EXACT = 1e-10
"""The exact tier of the design: two ways to one sum differ by rounding only."""

COVERAGE_ERRORS = 5.0
"""Monte Carlo standard errors allowed to a coverage: two-sided false alarm below 1e-6."""

ESTIMATES = np.array([[1.0, -3.0], [2.0, -3.5], [4.0, -2.0], [1.5, -1.0]])
VARIANCES = np.array([[0.5, 0.2], [0.7, 0.1], [0.4, 0.3], [0.6, 0.2]])


def reiter(estimates, variances, level=0.95):
    """Reiter (2003) for one term, written out: q, T, df and the interval."""
    copies = len(estimates)
    q = sum(estimates) / copies
    b = sum((e - q) ** 2 for e in estimates) / (copies - 1)
    u = sum(variances) / copies
    total = u + b / copies
    df = (copies - 1) * (1 + u / (b / copies)) ** 2
    half = stats.t.isf((1 - level) / 2, df) * np.sqrt(total)
    return q, total, df, q - half, q + half


@pytest.mark.parametrize("level", [0.95, 0.5])
def test_estimates_are_combined_by_reiters_rule(level):
    pooled = ds.combine(ESTIMATES, VARIANCES, level=level)
    for j in range(2):
        expected = reiter(ESTIMATES[:, j], VARIANCES[:, j], level)
        found = [v[j] for v in dataclasses.astuple(pooled)]
        np.testing.assert_allclose(found, expected, rtol=EXACT)


def test_the_variance_is_not_that_of_rubins_rule():
    b, u = ESTIMATES.var(axis=0, ddof=1), VARIANCES.mean(axis=0)
    rubin = (1 + 1 / 4) * b + u
    assert np.all(ds.combine(ESTIMATES, VARIANCES).variance < rubin)


def test_order_of_the_copies_does_not_matter():
    pooled = ds.combine(ESTIMATES, VARIANCES)
    turned = ds.combine(ESTIMATES[::-1], VARIANCES[::-1])
    np.testing.assert_allclose(turned.low, pooled.low, rtol=EXACT)


@pytest.mark.parametrize("copies", [2, 3, 10])
def test_copies_that_agree_give_infinite_degrees_of_freedom_and_a_normal_interval(copies):
    pooled = ds.combine(np.full((copies, 1), 0.1), np.full((copies, 1), 0.04))
    assert pooled.df[0] == np.inf
    assert pooled.variance[0] == pytest.approx(0.04, rel=EXACT)
    assert pooled.high[0] == pytest.approx(0.1 + stats.norm.ppf(0.975) * 0.2, rel=EXACT)


@pytest.mark.filterwarnings("error")
def test_copies_that_agree_without_variance_give_a_point():
    pooled = ds.combine(np.full((3, 1), 0.5), np.zeros((3, 1)))
    assert (pooled.low[0], pooled.high[0], pooled.variance[0]) == (0.5, 0.5, 0.0)


def test_one_copy_is_refused():
    with pytest.raises(InputError, match="at least two copies"):
        ds.combine([[1.0]], [[1.0]])


def test_two_copies_that_vary_much_warn():
    with pytest.warns(DsstanWarning, match="two copies"):
        ds.combine([[1.0], [4.0]], [[1.0], [1.0]])


def test_two_copies_that_vary_little_do_not_warn():
    assert ds.combine([[1.0], [1.5]], [[1.0], [1.0]]).estimate[0] == 1.25


@pytest.mark.parametrize(
    ("estimates", "variances", "level", "match"),
    [
        ([1.0, 2.0], [[1.0, 1.0]], 0.95, "shape"),
        ([[1.0], [2.0]], [[1.0]], 0.95, "shape"),
        ([[1.0], [np.nan]], [[1.0], [1.0]], 0.95, "finite"),
        ([[1.0], [2.0]], [[1.0], [np.inf]], 0.95, "finite"),
        ([[1.0], [2.0]], [[1.0], [-1.0]], 0.95, "not negative"),
        ([[1.0], [2.0]], [[2.0], [2.0]], 1.0, "level"),
        ([[1.0], [2.0]], [[2.0], [2.0]], 95, "level"),
    ],
)
def test_what_cannot_be_combined_is_refused(estimates, variances, level, match):
    with pytest.raises(InputError, match=match):
        ds.combine(estimates, variances, level=level)


def test_intervals_cover_the_truth_as_often_as_they_say():
    """A normal sample of 200, all values replaced in each of 5 copies, 2000 times."""
    replicates, copies, n, mean, sd = 2000, 5, 200, 3.0, 2.0
    rng = np.random.default_rng(20030)
    original = rng.normal(mean, sd, (replicates, n))
    s_sq = original.var(axis=1, ddof=1)
    # The posterior under the usual flat prior, one draw a copy, and a sample from it.
    sigma_sq = (n - 1) * s_sq / rng.chisquare(n - 1, (copies, replicates))
    mu = rng.normal(original.mean(axis=1), np.sqrt(sigma_sq / n))
    values = rng.normal(mu[..., None], np.sqrt(sigma_sq)[..., None], (copies, replicates, n))
    pooled = ds.combine(values.mean(axis=2), values.var(axis=2, ddof=1) / n)
    coverage = np.mean((pooled.low <= mean) & (mean <= pooled.high))
    error = np.sqrt(0.95 * 0.05 / replicates)
    assert abs(coverage - 0.95) < COVERAGE_ERRORS * error


def normal_equations(X, y):
    """Least squares by the normal equations: coefficients and squared standard errors."""
    inverse = np.linalg.inv(X.T @ X)
    coef = inverse @ X.T @ y
    residual = y - X @ coef
    return coef, np.diag(inverse) * (residual @ residual) / (len(y) - X.shape[1])


def test_least_squares_agrees_with_the_normal_equations():
    rng = np.random.default_rng(1)
    X = np.column_stack([np.ones(40), rng.normal(size=40), rng.uniform(5, 9, 40)])
    y = X @ [1.0, -2.0, 0.3] + rng.normal(size=40)
    coef, variance = ols(X, y)
    expected, expected_variance = normal_equations(X, y)
    np.testing.assert_allclose(coef, expected, rtol=1e-8)  # condition of X'X about 1e4
    np.testing.assert_allclose(variance, expected_variance, rtol=1e-8)


def test_least_squares_agrees_with_scipys_simple_regression():
    rng = np.random.default_rng(2)
    x = rng.normal(size=25)
    y = 2 * x + rng.normal(size=25)
    found = stats.linregress(x, y)
    coef, variance = ols(np.column_stack([np.ones(25), x]), y)
    np.testing.assert_allclose(coef, [found.intercept, found.slope], rtol=EXACT)
    np.testing.assert_allclose(
        np.sqrt(variance), [found.intercept_stderr, found.stderr], rtol=EXACT
    )


@pytest.fixture(scope="module")
def release(kept):
    """Six copies of the restricted fit."""
    return ds.synthesise(kept, 6, seed=21)


def test_original_is_the_regression_on_the_original_table(release):
    table = release.problem.table
    found = stats.linregress(table["x"], np.log(table["value"]))
    half = stats.t.ppf(0.975, len(table) - 2) * found.stderr
    row = ds.utility(release).get("original", "x")
    np.testing.assert_allclose(
        [row["estimate"], row["se"], row["df"], row["low"], row["high"]],
        [found.slope, found.stderr, len(table) - 2, found.slope - half, found.slope + half],
        rtol=EXACT,
    )


def pooled_by_hand(synthesis, rhs, forward):
    """Each copy's regression, by formulaic and the normal equations, combined."""
    fits = []
    for number in range(synthesis.copies):
        table = synthesis.table(number)
        X = formulaic.model_matrix(rhs, table)
        fits.append(normal_equations(X.to_numpy(dtype=float), forward(table["value"].to_numpy())))
    q, u = (np.array([f[i] for f in fits]) for i in (0, 1))
    rows = {name: reiter(q[:, j], u[:, j]) for j, name in enumerate(X.columns)}
    return {
        name: (estimate, np.sqrt(total), df, low, high)
        for name, (estimate, total, df, low, high) in rows.items()
    }


@pytest.mark.parametrize(
    ("formula", "rhs", "forward"),
    [
        ("log(value) ~ x", "1 + x", np.log),
        ("log(value) ~ east * north", "1 + east * north", np.log),
        ("value ~ x + north", "1 + x + north", np.asarray),
    ],
)
@pytest.mark.parametrize("source", ["unrestricted", "restricted"])
def test_copies_are_each_analysed_and_combined_under_any_formula(
    release, formula, rhs, forward, source
):
    synthesis = {"restricted": release, "unrestricted": release.unprotected}[source]
    kept = ds.utility(release, formula)
    for term, expected in pooled_by_hand(synthesis, rhs, forward).items():
        row = kept.get(source, term)
        found = [row[c] for c in ("estimate", "se", "df", "low", "high")]
        np.testing.assert_allclose(found, expected, rtol=1e-8)  # normal equations, as above


def test_default_formula_is_the_one_of_the_problem(release):
    kept = ds.utility(release)
    assert kept.formula == "log(value) ~ x"
    assert list(kept.table["source"]) == 2 * ["original"] + 2 * ["unrestricted"] + 2 * [
        "restricted"
    ]
    assert list(kept.table["term"]) == 3 * ["Intercept", "x"]


def test_an_unrestricted_release_has_no_restricted_rows(free):
    kept = ds.utility(ds.synthesise(free, 3, seed=1))
    assert list(kept.table["source"].unique()) == ["original", "unrestricted"]


def test_against_copies_already_drawn_those_are_analysed(release, free):
    other = ds.synthesise(free, 4, seed=77)
    row = ds.utility(release, against=other).get("unrestricted", "x")
    expected = pooled_by_hand(other, "1 + x", np.log)["x"]
    assert row["estimate"] == pytest.approx(expected[0], rel=1e-8)


def test_a_higher_level_widens_every_interval(release):
    narrow, wide = (ds.utility(release, level=level).table for level in (0.5, 0.99))
    assert np.all(wide["low"] < narrow["low"])
    assert np.all(wide["high"] > narrow["high"])
    np.testing.assert_array_equal(wide["estimate"], narrow["estimate"])


@pytest.mark.parametrize("formula", ["x ~ east", "log(value) ~ nothing", "value"])
def test_a_formula_of_another_response_or_column_is_refused(release, formula):
    with pytest.raises(InputError):
        ds.utility(release, formula)


def test_the_refusal_of_another_response_names_both(release):
    with pytest.raises(InputError, match=r"'value'.*'x'.*unchanged in every copy"):
        ds.utility(release, "x ~ east")


def test_one_copy_cannot_be_analysed(kept):
    with pytest.raises(InputError, match="at least two copies"):
        ds.utility(ds.synthesise(kept, 1, seed=1))


def test_asking_for_a_term_that_is_not_there_names_those_that_are(release):
    with pytest.raises(InputError, match="terms Intercept, x"):
        ds.utility(release).get("restricted", "X")


def test_text_shows_estimate_and_interval_of_each_term_and_source(release):
    kept = ds.utility(release)
    lines = str(kept).splitlines()
    assert lines[0] == "Least squares log(value) ~ x, 95% intervals"
    assert lines[1].split() == ["original", "unrestricted", "restricted"]
    row = kept.get("restricted", "x")
    cell = f"{row['estimate']:.4g} ({row['low']:.4g}, {row['high']:.4g})"
    assert lines[3].startswith("x ")
    assert lines[3].endswith(cell)


@pytest.fixture(scope="module")
def households():
    """Copies of a number of children, and of a rent given it."""
    table = small_table(60, seed=4)
    kids = np.random.default_rng(5).integers(0, 3, 60)
    table["kids"] = np.where(np.arange(60) == 7, 6, kids)
    common = {"coords": ("east", "north"), "seed": 1, "engine": "direct", "accept_failed": True}
    first = ds.protect(table, "kids ~ x", copies=6, threshold=0.3, **common)
    problem = ds.prepare(table, "log(value) ~ x + kids", coords=("east", "north"))
    fit = ds.fit(problem, seed=2, engine="direct")
    return ds.synthesise(fit, 6, seed=3, given=first, accept_failed=True)


def test_a_synthetic_level_that_the_original_lacks_is_an_error_and_no_baseline(households):
    known = set(households.problem.table["kids"])
    made = {k for number in range(6) for k in households.table(number)["kids"]}
    assert made - known
    with pytest.raises(TableError, match=r"Column 'kids' has a level in .* nothing tells its"):
        ds.utility(households, "log(value) ~ C(kids)")
    assert "kids" in set(ds.utility(households, "log(value) ~ kids").table["term"])


def test_a_level_that_a_copy_lost_is_an_error_that_names_the_term(households):
    built = build_design(parse("log(value) ~ C(kids)"), households.problem.table)
    copy = households.problem.table.assign(kids=lambda t: t["kids"].replace(6, 0))
    with pytest.raises(
        InputError, match=r"the effect of 'C\(kids\)' .* no record of copy 3 has one"
    ):
        _check_terms(built.X_of(copy), built, "copy 3")
