"""A response that is missing in some records: drawn, released, and pooled by the nested rule."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.spatial.distance import cdist

import dsstan as ds
from conftest import small_table
from dsstan.analysis.combining import combine_nested, rows_by_imputation
from dsstan.analysis.pooling import pool
from dsstan.copies.imputation import _draw_by_parts, complete
from dsstan.core.errors import InputError, TableError
from dsstan.covariance.base import Parameters
from dsstan.covariance.latent import LatentModel
from dsstan.models.posterior import parameters_at, spread_draws
from dsstan.models.weights import neighbour_distances
from dsstan.release.reading import read_release
from dsstan.risk.intruder.attacker import attack

FORMULA, COORDS = "log(value) ~ x", ("east", "north")
FALSE_ALARM = 1e-5
ROUNDING = 1e-10
SHORT = {"engine": "embedded", "progress": False, "samples": 2000}


def with_gaps(n=60, gaps=12, seed=0):
    """The small table, cents as whole numbers, the far record and others without a value."""
    table = small_table(n)
    table["value"] = (100 * table["value"]).round()
    lost = np.random.default_rng(seed).choice(n - 1, gaps, replace=False)
    table.loc[lost, "value"] = np.nan
    return table, np.sort(lost)


@pytest.fixture(scope="module")
def table():
    return with_gaps()[0]


@pytest.fixture(scope="module")
def problem(table):
    return ds.prepare(table, FORMULA, coords=COORDS, name="gaps", missing="draw")


@pytest.fixture(scope="module")
def kept(problem):
    free = ds.fit(problem, seed=1, **SHORT)
    weights = ds.flag_isolated(free, distance=0.15)
    assert weights.n_flagged == 1
    return ds.fit(problem, weights=weights, start=free, seed=2, **SHORT)


@pytest.fixture(scope="module")
def release(kept):
    return ds.synthesise(kept, 12, imputations=3, seed=3, progress=False)


def test_the_fit_is_that_of_the_table_without_the_gaps(problem, table):
    there = ds.prepare(table.dropna(), FORMULA, coords=COORDS)
    priors = ds.Priors(phi_bounds=(2.0, 60.0))  # by default from all sites, those of gaps too
    ours = ds.fit(problem, seed=5, priors=priors, **SHORT)
    theirs = ds.fit(there, seed=5, priors=priors, program="surface", **SHORT)
    for name, draws in theirs.draws.items():
        assert np.array_equal(ours.draws[name], draws)


def test_the_effect_of_a_record_without_a_value_is_kriged_from_the_others(kept, problem):
    p = Parameters(np.array([4.0, 0.5]), 1.3, 0.2, 3.0)
    model = LatentModel(kept)
    K = p.sigma_sq * np.exp(-p.phi * cdist(problem.sites, problem.sites))
    rows = np.flatnonzero(problem.observed)
    A = kept.A[rows]
    V = K[np.ix_(rows, rows)] * np.outer(A, A) + p.tau_sq * np.eye(rows.size)
    gain = K[:, rows] * A @ np.linalg.inv(V)
    mean = gain @ (problem.y[rows] - problem.X[rows] @ p.beta)
    assert np.allclose(model.mean(p), mean, atol=ROUNDING)
    assert np.allclose(model.covariance(p), K - gain @ (K[:, rows] * A).T, atol=ROUNDING)


def test_imputations_fill_the_gaps_and_touch_nothing_else(kept, problem):
    first, second = complete(kept, 2, seed=9)
    for whole in (first, second):
        assert whole.n_missing == 0
        assert np.array_equal(whole.y[problem.observed], problem.y[problem.observed])
        assert np.array_equal(whole.table["value"] % 1, np.zeros(problem.n_records))
        assert np.array_equal(np.exp(whole.y).round(6), whole.table["value"].round(6))
    gaps = ~problem.observed
    assert not np.any(first.y[gaps] == second.y[gaps])


def standard_scores(kept, problem, imputations):
    """Imputed values less their conditional means, in units of their law; (M, gaps)."""
    gaps = np.flatnonzero(~problem.observed)
    law, scores = kept.predictive("w"), []
    for whole, (c, i) in zip(
        complete(kept, imputations, seed=8), spread_draws(kept, imputations), strict=True
    ):
        p = parameters_at(kept, int(c), int(i))
        mean = (problem.X @ p.beta + law.model.mean(p))[gaps]
        cov = law.model.covariance(p)[np.ix_(gaps, gaps)] + p.tau_sq * np.eye(gaps.size)
        scores.append(np.linalg.solve(np.linalg.cholesky(cov), whole.y[gaps] - mean))
    return np.array(scores)


def test_imputations_are_independent_and_have_the_law_of_the_model(kept, problem):
    z = standard_scores(kept, problem, 200)
    tail = stats.chi2(z.size)
    assert tail.ppf(FALSE_ALARM / 2) < np.sum(z**2) < tail.isf(FALSE_ALARM / 2)
    means = np.sqrt(len(z)) * z.mean(axis=0)  # all of one noise would give 14 z
    assert np.sum(means**2) < stats.chi2(means.size).isf(FALSE_ALARM)


def test_gaps_are_drawn_with_w_where_copies_carry_less(problem, kept):
    """At a flagged gap w* would shrink the imputed values by A."""
    gap = np.flatnonzero(~problem.observed)[0]
    weights = ds.own_weights(problem, np.arange(problem.n_records) == gap)
    partly = ds.fit(problem, weights=weights, gamma=8.0, phi=3.0, seed=2, **SHORT)
    assert partly.predictive().effect == "w*"
    z = standard_scores(partly, problem, 200)
    tail = stats.chi2(z.size)
    assert tail.ppf(FALSE_ALARM / 2) < np.sum(z**2) < tail.isf(FALSE_ALARM / 2)


def test_each_completed_table_is_fitted_with_what_the_first_fit_had(problem):
    priors = ds.Priors(sigma=1.5, tau=0.7)
    weights = ds.own_weights(problem, np.arange(problem.n_records) == problem.n_records - 1)
    fitted = ds.fit(
        problem,
        weights=weights,
        gamma=4.0,
        protection="preserving",
        phi=3.0,
        priors=priors,
        cov_model="matern32",
        seed=1,
        **SHORT,
    )
    release = ds.synthesise(fitted, 4, imputations=2, seed=2, accept_failed=True, progress=False)
    assert len({part.seed for part in release.parts}) == len({p.fit.seed for p in release.parts})
    assert len({part.seed for part in release.parts}) == 2
    for part in release.parts:
        for name in ("gamma", "protection", "phi_held", "prior_settings", "cov_model", "settings"):
            assert getattr(part.fit, name) == getattr(fitted, name), name


def test_a_record_beside_a_gap_alone_stands_alone(problem):
    """The gap informs nothing, so it is no neighbour; it has neighbours itself."""
    gap = int(np.flatnonzero(~problem.observed)[0])
    table = problem.table.copy()
    table.loc[table.index[-1], ["east", "north"]] = table.loc[table.index[gap], ["east", "north"]]
    table.loc[table.index[[gap, -1]], "east"] += 5.0
    moved = ds.prepare(table, FORMULA, coords=COORDS, missing="draw")
    nearest = neighbour_distances(moved)
    assert nearest[-1] > 3.0
    assert nearest[gap] == 0.0
    assert neighbour_distances(moved, by_site=True)[-1] > 3.0
    there = np.flatnonzero(moved.observed)
    d = cdist(moved.sites, moved.sites[there])
    d[there, np.arange(there.size)] = np.inf
    assert np.allclose(nearest, d.min(axis=1))


def test_under_cut_a_flagged_value_moves_neither_imputations_nor_copies(table):
    def copies(value):
        changed = table.copy()
        changed.loc[59, "value"] = value
        problem = ds.prepare(changed, FORMULA, coords=COORDS, missing="draw")
        weights = ds.own_weights(problem, np.arange(60) == 59)
        fitted = ds.fit(problem, weights=weights, protection="cut", phi=3.0, seed=1, **SHORT)
        return ds.synthesise(fitted, 4, imputations=2, seed=2, rounding="none", progress=False)

    first, second = copies(2000.0), copies(90000.0)
    assert np.array_equal(first.values, second.values)
    gaps = ~first.problem.observed
    for one, other in zip(
        complete(first.fit, 2, seed=7), complete(second.fit, 2, seed=7), strict=True
    ):
        assert np.array_equal(one.y[gaps], other.y[gaps])


def nested_study(rounds, *, n=240, gaps=96, M=8, R=3, seed=1, hide_gaps=False):
    """Means of nested copies of a normal sample with gaps: estimates and variances of each.

    The gaps and the copies are drawn from the posterior predictive law under the usual
    non-informative prior, so the rule must be right.
    """
    rng = np.random.default_rng(seed)

    def predictive(y, size):
        """Draws of new values given samples, last axis records."""
        m = y.shape[-1]
        centre, spread = y.mean(-1), y.var(-1, ddof=1)
        variance = (m - 1) * spread / rng.chisquare(m - 1, spread.shape)
        mean = centre + np.sqrt(variance / m) * rng.standard_normal(centre.shape)
        scale = np.sqrt(variance)[..., None]
        return mean[..., None] + scale * rng.standard_normal((*centre.shape, size))

    y = rng.standard_normal((rounds, n - gaps))
    y = np.broadcast_to(y[:, None], (rounds, M, n - gaps))
    drawn = predictive(y, n if hide_gaps else gaps)
    whole = drawn if hide_gaps else np.concatenate([y, drawn], axis=-1)
    whole = np.broadcast_to(whole[:, :, None], (rounds, M, R, n))
    copies = predictive(whole, n)
    return copies.mean(-1), copies.var(-1, ddof=1) / n


def test_the_nested_rule_has_the_variance_and_the_coverage_that_it_says():
    rounds = 4000
    q, u = nested_study(rounds)
    pooled = combine_nested(np.moveaxis(q, 0, -1), np.moveaxis(u, 0, -1))
    actual = pooled.estimate.var(ddof=1)
    # The sd of a variance of normal numbers, and of the mean of the estimated variances.
    error = np.hypot(actual * np.sqrt(2 / rounds), pooled.variance.std() / np.sqrt(rounds))
    assert abs(pooled.variance.mean() - actual) < stats.norm.isf(FALSE_ALARM / 2) * error
    inside = np.mean((pooled.low < 0) & (pooled.high > 0))
    lowest, highest = stats.binom(rounds, 0.95).interval(1 - FALSE_ALARM)
    assert lowest < inside * rounds < highest
    # The rule for copies of one complete table counts the gaps too little.
    plain = u.mean((1, 2)) + q.reshape(rounds, -1).var(1, ddof=1) / 24
    assert plain.mean() < 0.85 * actual


@pytest.mark.parametrize(("M", "R"), [(5, 4), (10, 2), (24, 3)])
@pytest.mark.parametrize("gaps", [3, 24, 40])
def test_intervals_of_hidden_gaps_cover_94_per_cent_at_least_and_none_is_endless(M, R, gaps):
    """Of 95: with many tables T is right, with few its least lifts it, wider than need be."""
    q, u = nested_study(4000, n=60, gaps=gaps, M=M, R=R, hide_gaps=True)
    pooled = combine_nested(np.moveaxis(q, 0, -1), np.moveaxis(u, 0, -1), hide_gaps=True)
    actual = pooled.estimate.var(ddof=1)
    error = np.hypot(actual * np.sqrt(2 / 4000), pooled.variance.std() / np.sqrt(4000))
    assert pooled.variance.mean() - actual > -stats.norm.isf(FALSE_ALARM) * error
    lowest = stats.binom(4000, 0.94).ppf(FALSE_ALARM)
    assert np.sum((pooled.low < 0) & (pooled.high > 0)) > lowest
    assert pooled.df.min() >= (M - 1) / 2


def test_the_rule_for_hidden_gaps_by_hand():
    q = np.array([[[1.0], [3.0]], [[4.0], [6.0]]])
    pooled = combine_nested(q, np.full((2, 2, 1), 1.0), hide_gaps=True)
    # b = 4.5, w = 2: 1.5 * 4.5 - 2 / 2 - 1 = 4.75, above 1 + 4.5 / 2.
    assert pooled.variance[0] == pytest.approx(4.75)
    pooled = combine_nested(q, np.full((2, 2, 1), 5.0), hide_gaps=True)
    assert pooled.variance[0] == pytest.approx(5.0 + 2.25)
    assert pooled.df[0] == pytest.approx(7.25**2 / (6.75**2 / 1 + 1.0 / 2))


def test_the_rule_by_hand():
    q = np.array([[[1.0], [3.0]], [[4.0], [6.0]]])
    u = np.full((2, 2, 1), 5.0)
    # b = 4.5 between the means 2 and 5, w = 2 in both: T = 5 + 1.5 * 4.5 - 2 / 2.
    pooled = combine_nested(q, u)
    assert pooled.estimate[0] == 3.5
    assert pooled.variance[0] == pytest.approx(10.75)
    assert pooled.df[0] == pytest.approx(10.75**2 / (6.75**2 / 1 + 1.0 / 2))
    assert ds.combine([[1.0], [4.0], [3.0], [6.0]], [[5.0]] * 4, imputation=[1, 2, 1, 2]).df == (
        pytest.approx(pooled.df)
    )


def test_a_variance_near_0_or_below_is_that_of_copies_of_one_table():
    q = np.array([[[0.0], [4.0]], [[0.1], [4.1]]])
    pooled = combine_nested(q, np.full((2, 2, 1), 0.1))
    within = 8.0
    assert pooled.variance[0] == pytest.approx(0.1 + within / 4)
    assert pooled.df[0] == pytest.approx(2 * (1 + 4 * 0.1 / within) ** 2)


def test_no_interval_is_endless():
    q, u = nested_study(4000, n=60, gaps=3, M=5, R=2)
    pooled = combine_nested(np.moveaxis(q, 0, -1), np.moveaxis(u, 0, -1))
    assert pooled.df.min() >= 4.0
    # Never narrower than copies of one complete table, and covering no less than they say.
    lowest = stats.binom(4000, 0.95).ppf(FALSE_ALARM)
    assert np.sum((pooled.low < 0) & (pooled.high > 0)) > lowest


def test_copies_that_agree_have_no_variance_of_synthesis():
    pooled = combine_nested(np.ones((2, 2, 1)), np.full((2, 2, 1), 0.1))
    assert pooled.variance[0] == pytest.approx(0.1)
    assert np.isinf(pooled.df[0])


@pytest.mark.parametrize("labels", [[1, 1, 1, 1], [1, 1, 1, 2], [1, 2, 3, 4], [1, 1, 2]])
def test_imputations_that_are_no_nest_are_refused(labels):
    with pytest.raises(InputError, match="two imputations at least"):
        rows_by_imputation(labels, 4)


def test_utility_and_pool_use_the_nested_rule(release, problem):
    table = ds.utility(release)
    y, X = release.modelled(), problem.X
    fits = [np.linalg.lstsq(X, one, rcond=None) for one in y]
    q = np.stack([f[0] for f in fits])
    s2 = np.array([f[1][0] / (len(X) - 2) for f in fits])
    u = s2[:, None] * np.diag(np.linalg.inv(X.T @ X))
    expected = combine_nested(q.reshape(3, 4, 2), u.reshape(3, 4, 2))
    row = table.get("restricted", "x")
    assert row["se"] == pytest.approx(np.sqrt(expected.variance[1]))
    assert row["df"] == pytest.approx(expected.df[1])

    def mean(copy: pd.DataFrame):
        values = np.log(copy["value"])
        return values.mean(), values.var() / len(values)

    pooled = pool(release, mean)
    q = y.mean(1).reshape(3, 4, 1)
    expected = combine_nested(q, (y.var(1, ddof=1) / y.shape[1]).reshape(3, 4, 1))
    assert pooled.get("restricted", "0")["se"] == pytest.approx(np.sqrt(expected.variance[0]))
    with pytest.raises(InputError, match="several imputations"):
        pooled.joint("restricted")


def test_the_original_s_estimates_are_those_of_the_records_with_a_value(release, table):
    there = ds.prepare(table.dropna(), FORMULA, coords=COORDS)
    coef = np.linalg.lstsq(there.X, there.y, rcond=None)[0]
    assert ds.utility(release).get("original", "x")["estimate"] == pytest.approx(coef[1])


def test_nobody_is_judged_by_a_truth_that_nobody_knows(release, problem):
    found = ds.disclosure(release)
    share = found.records["within_relative_restricted"].to_numpy()
    assert np.array_equal(np.isnan(share), ~problem.observed)
    assert found.share("within_relative", "restricted", "all") == pytest.approx(np.nanmean(share))


def test_the_release_says_how_to_combine(release, tmp_path, problem):
    folder = release.write(tmp_path / "out", pictures=True)
    assert (folder / "confidential" / "pictures" / "surfaces.png").is_file()
    public = read_release(folder)
    assert public.metadata["imputations"] == {"count": 3, "copies_each": 4}
    assert public.imputation is not None
    assert public.imputation.tolist() == release.imputation.tolist()
    assert "Reiter 2004" in (folder / "public" / "README.md").read_text()
    assert "imputed 3 times" in (folder / "public" / "factsheet.html").read_text()
    for number, copy in enumerate(public.copies):
        assert not copy["value"].isna().any()
        assert np.array_equal(copy["value"], release.values[number])
    summary = json.loads((folder / "confidential" / "summary.json").read_text())
    assert summary["missing"] == problem.n_missing
    assert summary["attacker"] is None
    picks = pd.read_csv(folder / "confidential" / "copies.csv")
    assert picks["imputation"].tolist() == release.imputation.tolist()
    assert (folder / "confidential" / "draws_imputation_3.parquet").is_file()


def test_the_same_seed_gives_the_same_bytes_for_any_number_of_workers(kept, release):
    again = ds.synthesise(kept, 12, imputations=3, seed=3, workers=2, progress=False)
    assert np.array_equal(again.values, release.values)
    assert not np.array_equal(
        release.values, ds.synthesise(kept, 12, imputations=3, seed=4, progress=False).values
    )


def test_nothing_of_a_records_own_value_is_in_its_draws_where_gaps_are_hidden(kept, problem):
    """Bit for bit: the same draws for another value, and for none. So no spread can tell."""

    def drawn(y):
        start = replace(kept, problem=replace(problem, y=y))
        return _draw_by_parts(start, 0, 7, np.random.default_rng(4))

    before = drawn(problem.y)
    assert np.isfinite(before).all()
    for record in np.flatnonzero(problem.observed)[:6]:
        for value in (problem.y[record] + 3.0, np.nan):
            after = drawn(np.where(np.arange(problem.n_records) == record, value, problem.y))
            assert after[record] == before[record]
            assert not np.array_equal(after, before)  # it informs the others


def public_scores(release, M):
    """What an intruder can compute of each record's spread from the copies, by name."""
    y = release.modelled().reshape(M, -1, release.problem.n_records)
    means, within = y.mean(1), y.var(1, ddof=1).mean(0)
    between = means.var(0, ddof=1)
    ratio, every = between / within, y.reshape(-1, y.shape[-1]).var(0)
    return {"ratio": ratio, "between": between, "within": within, "total": every}


def area(score, gaps):
    """Chance that a gap has a higher score than a record with a value."""
    return stats.mannwhitneyu(score[gaps], score[~gaps]).statistic / (gaps.sum() * (~gaps).sum())


@pytest.mark.parametrize("tables", [2, pytest.param(8, marks=pytest.mark.nightly("64 fits"))])
def test_public_files_rank_who_is_missing_unless_gaps_are_hidden(tables):
    """20 copies, 36 of 120 values missing; the spread tells with an area of 0.8 by default."""
    found = {False: [], True: []}
    for seed in range(tables):
        table, _ = with_gaps(120, 36, seed)
        problem = ds.prepare(table, FORMULA, coords=COORDS, missing="draw")
        fitted = ds.fit(problem, engine="direct", seed=seed + 1, progress=False)
        for hide_gaps, areas in found.items():
            release = ds.synthesise(
                *(fitted, 20),
                imputations=5,
                seed=seed + 9,
                hide_gaps=hide_gaps,
                accept_failed=True,
                progress=False,
            )
            scores = public_scores(release, 5)
            areas.append([area(score, ~problem.observed) for score in scores.values()])
    shown, hidden = np.mean(found[False], axis=0), np.mean(found[True], axis=0)
    assert shown[:2].min() > 0.7
    # Under chance the area has this sd (Mann and Whitney); four attacks.
    error = np.sqrt(121 / (12 * 36 * 84) / tables)
    assert np.abs(hidden - 0.5).max() < stats.norm.isf(FALSE_ALARM / 8) * error
    assert hidden[:2].max() < shown[:2].min()


@pytest.fixture(scope="module")
def hidden(kept):
    return ds.synthesise(kept, 12, imputations=3, seed=3, hide_gaps=True, progress=False)


def test_a_release_with_hidden_gaps_says_how_to_combine(hidden, tmp_path):
    folder = hidden.write(tmp_path / "out")
    public = read_release(folder)
    assert public.hide_gaps
    assert public.metadata["imputations"] == {
        **{"count": 3, "copies_each": 4},
        "drawn": "every record",
    }
    for text in ((folder / "public" / n).read_text() for n in ("README.md", "factsheet.html")):
        assert "do not show which" in " ".join(text.split())
        assert "Raghunathan" in text
    labels = {"imputation": public.imputation, "hide_gaps": True}
    y, X = hidden.modelled(), hidden.problem.X
    q = np.linalg.lstsq(X, y.T, rcond=None)[0].T
    s2 = np.sum((y - q @ X.T) ** 2, axis=1) / (len(X) - 2)
    u = s2[:, None] * np.diag(np.linalg.inv(X.T @ X))
    row = ds.utility(hidden).get("restricted", "x")
    assert row["se"] == pytest.approx(np.sqrt(ds.combine(q, u, **labels).variance[1]))


def test_without_gaps_there_is_nothing_to_hide(free, table):
    with pytest.raises(InputError, match="none is missing"):
        ds.synthesise(free, 4, hide_gaps=True)
    with pytest.raises(InputError, match="none is missing"):
        ds.protect(table.dropna(), FORMULA, coords=COORDS, hide_gaps=True, **SHORT)


def test_gaps_are_hidden_under_the_exact_covariance_alone(table):
    problem = ds.prepare(table, FORMULA, coords=COORDS, missing="draw")
    near = ds.fit(problem, covariance="vecchia", engine="direct", seed=1, progress=False)
    with pytest.raises(InputError, match='covariance="exact"'):
        ds.synthesise(near, 12, imputations=3, hide_gaps=True, accept_failed=True)


def test_protect_goes_the_whole_way(table):
    release = ds.protect(
        table, FORMULA, coords=COORDS, missing="draw", copies=4, imputations=2, seed=6, **SHORT
    )
    assert release.imputation.tolist() == [1, 1, 2, 2]
    assert not np.isnan(release.values).any()


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"copies": 12, "imputations": 5}, "same number of copies of each"),
        ({"copies": 12, "imputations": 12}, "two at least"),
        ({"copies": 12, "imputations": 1}, "two imputations at least"),
        ({"copies": 12, "imputations": True}, "two imputations at least"),
    ],
)
def test_numbers_that_make_no_nest_are_refused_before_any_fit(kept, options, match):
    with pytest.raises(InputError, match=match):
        ds.synthesise(kept, **options, progress=False)


def test_imputations_of_a_complete_response_are_refused(free):
    with pytest.raises(InputError, match="none is missing"):
        ds.synthesise(free, 4, imputations=2)


def test_a_gap_is_refused_unless_asked_for(table):
    with pytest.raises(TableError, match=r"missing values in 12 rows.*missing=\"draw\""):
        ds.prepare(table, FORMULA, coords=COORDS)
    with pytest.raises(InputError, match="missing must be one of"):
        ds.prepare(table, FORMULA, coords=COORDS, missing="drop")


def test_too_few_values_are_refused():
    table, _ = with_gaps()
    table.loc[table.index[:57], "value"] = np.nan
    with pytest.raises(TableError, match="too few to estimate every term"):
        ds.prepare(table, FORMULA, coords=COORDS, missing="draw")


def test_what_needs_every_truth_says_so(release, kept):
    for ask in (lambda: attack(release), lambda: ds.assess(release)):
        with pytest.raises(InputError, match="12 have none"):
            ask()
    with pytest.raises(InputError, match="natural data"):
        ds.fit(kept.problem, program="natural", **SHORT)
