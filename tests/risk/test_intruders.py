"""The weaker intruder against normal laws written out, simulated releases, and the stronger one."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy import stats
from scipy.spatial.distance import cdist

import dsstan as ds
from dsstan.core.errors import InputError
from dsstan.covariance.base import Parameters
from dsstan.covariance.latent import LatentModel
from dsstan.models.predictive import carried_effect
from dsstan.models.weights import own_weights, smoothing
from dsstan.risk.intruder.attacker import attack
from dsstan.risk.intruder.leave_one_out import unrestricted_terms
from dsstan.risk.intruder.weaker import weak_attack
from mc import FALSE_ALARM, z_limit

P = Parameters(np.array([5.0, 0.7]), 1.6, 0.25, 4.0)
PROTECTIONS = ("none", "paper", "preserving", "cut")

FLAT = 1e6
"""Prior variance of a coefficient that stands for a flat prior where a law is written out."""

FLAT_ERROR = 1e-4
"""Relative error of a variance that is a difference of numbers of the size of FLAT."""

ROUNDING = 1e-8
"""Relative error of two orders of the same linear algebra, condition numbers up to 1e5."""

ENDLESS = 10**6
"""Copies beyond any release: what they leave is what no number of them tells."""

RADII = (0.0, 0.05, 0.2, 0.5, 1.0, 3.0)
"""From nobody near to everybody: the sites span 1.7."""


@pytest.fixture(scope="module")
def cheap(tiny):
    """A fit to be given weights and draws; its own draws are never used."""
    return ds.fit(tiny, chains=1, warmup=50, samples=50, seed=1, engine="embedded", progress=False)


def pair(cheap, protection, gamma=np.inf):
    """A fit under a protection and the unrestricted one, the parameters at P in every draw."""
    draws = {
        "beta": np.array([[P.beta, P.beta]]),
        **{name: np.full((1, 2), getattr(P, name)) for name in ("sigma_sq", "tau_sq", "phi")},
    }
    free = dataclasses.replace(cheap, draws=draws)
    if protection == "none":
        return free, free
    a = np.zeros(30)
    a[[29, 0, 1, 5]] = 1.0, 1.0, 0.5, 0.5
    weights = own_weights(cheap.problem, a)
    fit = dataclasses.replace(
        free,
        kind="restricted",
        protection=protection,
        weights=weights,
        gamma=gamma,
        A=smoothing(gamma, a),
        phi_held=P.phi,
        start=free,
    )
    return fit, free


def law_written_out(fit, copies):
    """Cov of (y, copies): y unrestricted, each copy from the fitted model given y."""
    problem, A, n = fit.problem, fit.A, fit.problem.n_records
    carried, _ = carried_effect(fit)
    K = P.sigma_sq * np.exp(-P.phi * cdist(problem.sites, problem.sites))
    prior = FLAT * problem.X @ problem.X.T
    D = np.full(n, P.tau_sq)
    if fit.protection == "preserving":
        D = D + P.sigma_sq * (1 - A**2)
    rows = np.flatnonzero(A == 1) if fit.protection == "cut" else np.arange(n)
    yy = (prior + np.diag(A) @ K @ np.diag(A) + np.diag(D))[np.ix_(rows, rows)]
    cy = (prior + np.diag(carried) @ K @ np.diag(A))[:, rows]
    H = np.zeros((n, n))
    H[:, rows] = np.linalg.solve(yy, cy.T).T
    cc = prior + np.diag(carried) @ K @ np.diag(carried) + P.tau_sq * np.eye(n)
    Vs = cc - H[:, rows] @ cy.T
    S = prior + K + P.tau_sq * np.eye(n)
    side = np.tile(S @ H.T, copies)
    both = np.kron(np.ones((copies, copies)), H @ S @ H.T) + np.kron(np.eye(copies), Vs)
    return np.block([[S, side], [side.T, both]])


@pytest.mark.parametrize("knows", ["none", 0.05, 0.3, 1.0])
@pytest.mark.parametrize("gamma", [3.0, np.inf])
@pytest.mark.parametrize("protection", PROTECTIONS)
def test_the_sd_is_that_of_the_joint_normal_given_copies_and_known_records(
    cheap, protection, gamma, knows
):
    fit, _ = pair(cheap, protection, gamma)
    joint = law_written_out(fit, 2)
    d = cdist(fit.problem.sites, fit.problem.sites)
    want = []
    for i in range(30):
        known = np.flatnonzero(d[i] > knows) if knows != "none" else np.arange(0)
        seen = np.concatenate([known, np.arange(30, 90)])
        gain = np.linalg.solve(joint[np.ix_(seen, seen)], joint[seen, i])
        want.append(joint[i, i] - joint[i, seen] @ gain)
    found = weak_attack(fit, copies=2, knows=knows, progress=False)
    np.testing.assert_allclose(found.sd**2, want, rtol=FLAT_ERROR)
    # The parameters are the same in every draw.
    np.testing.assert_allclose(found.error, 0.0, atol=1e-12)


@pytest.mark.parametrize("variances", ["fixed", "known"])
def test_the_fewer_records_he_knows_the_larger_the_sd(kept, variances):
    found = [
        weak_attack(kept, copies=10, knows=k, variances=variances, draws=20, progress=False)
        for k in (*RADII, "none")
    ]
    sds = np.array([f.sd for f in found])
    assert np.all(sds >= found[0].full * (1 - ROUNDING))
    assert np.all(np.diff(sds, axis=0) >= -ROUNDING * sds[1:])
    assert np.all(np.diff([f.unknown for f in found], axis=0) >= 0)


@pytest.mark.parametrize("variances", ["fixed", "known"])
def test_who_knows_all_other_sites_is_the_stronger_attacker_at_a_site_of_one_record(
    kept, variances
):
    whole = attack(kept, copies=10, draws=5, progress=False)
    # Means over the same draws, where a plan takes a quantile.
    fixed, known = whole.by_draw.mean(axis=1)
    alone = unrestricted_terms(kept.start, 5).precision ** -0.5
    mean = {"leave_one_out": alone, "information": fixed, "leak": known - fixed, "by_draw": None}
    strong = dataclasses.replace(whole, **mean).sd(variances=variances)
    found = weak_attack(kept, copies=10, knows=0.0, variances=variances, draws=5, progress=False)
    single = np.bincount(kept.problem.site_index)[kept.problem.site_index] == 1
    np.testing.assert_allclose(found.full, strong, rtol=ROUNDING)
    np.testing.assert_allclose(found.sd[single], strong[single], rtol=ROUNDING)
    # Records at one place are at distance 0, not beyond it.
    assert np.all(found.unknown[single] == 0)
    assert np.all(found.unknown[~single] == 1)
    assert np.all(found.sd[~single] > strong[~single])


def test_a_radius_beyond_the_farthest_site_is_to_know_none(kept):
    far = 1.01 * kept.problem.d_max
    first, second = (
        weak_attack(kept, copies=3, knows=k, draws=4, progress=False) for k in (far, "none")
    )
    np.testing.assert_array_equal(first.sd, second.sd)
    assert np.all(first.unknown == 59)


def test_more_copies_leave_a_smaller_sd(kept):
    sds = [weak_attack(kept, copies=c, draws=4, progress=False).sd for c in (1, 5, 50, 500)]
    assert np.all(np.diff(sds, axis=0) < 0)


def test_endless_copies_leave_a_record_that_left_the_fit_its_leave_one_out_sd(cheap):
    """Under ``cut`` they tell all about the others, one at a site, and so as much as those do."""
    fit, _ = pair(cheap, "cut")
    found = weak_attack(fit, copies=ENDLESS, progress=False)
    alone = attack(fit, copies=1, progress=False).leave_one_out
    single = np.bincount(fit.problem.site_index)[fit.problem.site_index] == 1
    assert np.all(found.sd[single & ~fit.flagged] < 0.01)
    # A little above: the two pairs at one site that stay in the fit keep their difference.
    assert alone[29] <= found.sd[29] < 1.01 * alone[29]


def test_two_records_at_one_site_keep_their_difference_from_who_knows_neither(cheap):
    """Copies carry one w for both, so they tell the sum alone: the variance left is tau_sq / 2."""
    table = cheap.problem.table
    problem = ds.prepare(table, "log(value) ~ 1", coords=("east", "north"))
    fit, _ = pair(dataclasses.replace(cheap, problem=problem), "none")
    fit = dataclasses.replace(fit, draws={**fit.draws, "beta": fit.draws["beta"][:, :, :1]})
    found = weak_attack(fit, copies=ENDLESS, progress=False)
    shared = np.bincount(problem.site_index)[problem.site_index] == 2
    np.testing.assert_allclose(found.sd[shared], np.sqrt(P.tau_sq / 2), rtol=1e-3)
    assert np.all(found.sd[~shared] < 0.01)


REPLICATES = 300


@pytest.mark.parametrize("knows", ["none", 0.3])
@pytest.mark.parametrize("protection", PROTECTIONS)
def test_his_guesses_from_simulated_releases_miss_by_the_stated_sd(cheap, protection, knows):
    """Values from the unrestricted model, copies as ``synthesise`` draws them, the variances
    fixed; he takes the conditional mean of y_i given the copies and the records he knows."""
    fit, _ = pair(cheap, protection)
    problem, rows, rng = fit.problem, fit.informing, np.random.default_rng(6)
    X, copies = problem.X, 2
    joint = law_written_out(fit, copies)
    model = LatentModel(fit)
    _, _, M = model.parts(P.phi)
    W = np.linalg.solve(P.sigma_sq * M + P.tau_sq * np.eye(rows.size), X[rows])
    G = np.linalg.inv(X[rows].T @ W)
    G_root = np.linalg.cholesky(G)
    root = np.linalg.cholesky(joint[:30, :30] - FLAT * X @ X.T)
    d = cdist(problem.sites, problem.sites)
    targets, gains = (29, 0, 12), {}
    for i in targets:
        known = np.flatnonzero(d[i] > knows) if knows != "none" else np.arange(0)
        seen = np.concatenate([known, np.arange(30, 30 * (1 + copies))])
        gains[i] = seen, np.linalg.solve(joint[np.ix_(seen, seen)], joint[seen, i])
    misses = {i: [] for i in targets}
    for _ in range(REPLICATES):
        y = X @ P.beta + root @ rng.standard_normal(30)
        model.y = y[rows]
        release = [y]
        for _ in range(copies):
            beta = G @ (W.T @ y[rows]) + G_root @ rng.standard_normal(len(G))
            w = model.draw(dataclasses.replace(P, beta=beta), rng)
            release.append(X @ beta + w + np.sqrt(P.tau_sq) * rng.standard_normal(30))
        values = np.concatenate(release)
        for i, (seen, gain) in gains.items():
            misses[i].append(y[i] - values[seen] @ gain)
    sd = weak_attack(fit, copies=copies, knows=knows, progress=False).sd
    comparisons = 2 * len(targets) * len(PROTECTIONS) * 2
    tail = FALSE_ALARM / (2 * comparisons)
    low, high = stats.chi2.ppf([tail, 1 - tail], REPLICATES)
    for i, miss in misses.items():
        scores = np.array(miss) / sd[i]
        assert abs(np.mean(scores)) < z_limit(comparisons) / np.sqrt(REPLICATES)
        assert low < np.sum(scores**2) < high


@pytest.mark.parametrize("knows", ["none", 0.2])
def test_the_monte_carlo_error_is_the_spread_over_independent_draws(cheap, knows):
    """60 times 20 draws of the variances: the sds spread as much as their errors say."""
    rng, records, times = np.random.default_rng(2), [29, 2, 12], 60
    sds, errors = [], []
    for _ in range(times):
        draws = {
            "beta": np.zeros((1, 20, 2)),
            "sigma_sq": P.sigma_sq * np.exp(0.3 * rng.standard_normal((1, 20))),
            "tau_sq": P.tau_sq * np.exp(0.3 * rng.standard_normal((1, 20))),
            "phi": np.full((1, 20), P.phi),
        }
        fit = dataclasses.replace(cheap, draws=draws)
        found = weak_attack(fit, copies=20, knows=knows, draws=20, progress=False)
        sds.append(found.sd[records])
        errors.append(found.error[records])
    ratio = np.var(sds, axis=0, ddof=1) / np.mean(np.square(errors), axis=0)
    # Each error comes from ten batches.
    tail = FALSE_ALARM / (2 * 2 * len(records))
    low, high = stats.f.ppf([tail, 1 - tail], times - 1, 9 * times)
    assert np.all((low < ratio) & (ratio < high))


def test_copies_count_by_the_draws_behind_them(kept):
    release = ds.synthesise(kept, 6, seed=1, accept_failed=True)
    one, all_six = (
        weak_attack(release, copies=c, knows=0.0, draws=4, progress=False) for c in (1, 6)
    )
    assert (all_six.copies, all_six.draws) == (6, 4)
    alone = np.flatnonzero(all_six.unknown == 0)
    assert alone.size > 10
    gained = all_six.full[alone] ** -2 - one.full[alone] ** -2
    strong = 5 * attack(release, progress=False).information[alone]
    np.testing.assert_allclose(gained, strong, rtol=ROUNDING)
    planned = weak_attack(kept, copies=6, knows=0.0, draws=4, progress=False)
    assert not np.allclose(planned.full, all_six.full, rtol=1e-3)


def test_the_table_has_a_row_a_record_and_the_text_says_who_he_is(kept):
    found = weak_attack(kept, copies=6, knows=0.2, draws=4, progress=False)
    table = found.table()
    assert list(table.columns) == ["flagged", "unknown", "sd", "error", "full"]
    assert table.index.equals(kept.problem.table.index)
    assert np.all(np.isfinite(table.to_numpy(dtype=float)))
    assert "farther than 0.2" in str(found)
    assert "Monte Carlo error" in str(found)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"knows": "all"}, "knows"),
        ({"knows": -0.1}, "radius"),
        ({"knows": np.nan}, "radius"),
        ({"knows": np.inf}, "radius"),
        ({"knows": True}, "radius"),
        ({"variances": "unknown"}, "variances"),
        ({"copies": 0}, "copies"),
        ({"draws": 1}, "draws"),
        ({"effect": "W"}, "effect"),
    ],
)
def test_arguments_out_of_range_are_refused(kept, arguments, message):
    with pytest.raises(InputError, match=message):
        weak_attack(kept, progress=False, **arguments)


def test_an_unrestricted_fit_is_needed(cheap):
    fit, free = pair(cheap, "paper")
    with pytest.raises(InputError, match="give against"):
        weak_attack(dataclasses.replace(fit, start=None), progress=False)
    with pytest.raises(InputError, match="unrestricted"):
        weak_attack(fit, against=fit, progress=False)
    assert weak_attack(fit, against=free, progress=False).copies == 1
