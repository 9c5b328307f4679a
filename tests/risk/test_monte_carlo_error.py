"""The stated Monte Carlo errors against the spread over fits whose draws are independent.

The draws come from one law each time, heavy-tailed in the information as a weakly known nugget
makes it, so the spread of an sd over fits is what an honest error says. Records of one fit move
together: each case is about one test. With K fits the spread is known to ``1 / sqrt(2 (K - 1))``
of itself.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pandas as pd
import pytest
from scipy.spatial.distance import cdist

import dsstan as ds
from dsstan.models.weights import own_weights
from dsstan.risk.intruder.attacker import attack
from dsstan.risk.intruder.leave_one_out import leave_one_out
from factory import fit_from

N, COPIES, CHAINS, SAMPLES = 50, 10, 4, 500
PHI, TAU = 3.0, 0.15

HONEST, WASTEFUL = 0.7, 3.0
"""Least and most of the spread that may be stated. Over the seeds here 1.0 to 2.1 times the spread
is stated, so a right error is failed when the spread comes out 1.5 times too large: 3 of its errors
with 24 fits (one run in 700), 2.3 with 16 (one in 90)."""


@lru_cache
def problem():
    """Records of the model with phi, sigma_sq 1 and tau."""
    rng = np.random.default_rng(1)
    sites = rng.uniform(0, 1, (N, 2))
    V = np.exp(-PHI * cdist(sites, sites)) + TAU**2 * np.eye(N)
    table = pd.DataFrame({"a": sites[:, 0], "b": sites[:, 1], "x": rng.standard_normal(N)})
    table["y"] = np.linalg.cholesky(V) @ rng.standard_normal(N)
    return ds.prepare(table, "y ~ x", coords=("a", "b"))


def fits(seed):
    """An unrestricted fit, and one under paper at gamma 5 with weights 0, 1 and between."""
    rng = np.random.default_rng(seed)
    size = (CHAINS, SAMPLES)

    def draws(phi):
        return {
            "beta": np.zeros((*size, 2)),
            "sigma_sq": np.exp(0.3 * rng.standard_normal(size)),
            "tau_sq": (TAU * rng.standard_normal(size)) ** 2 + 1e-5,
            "phi": phi,
        }

    a = np.zeros(N)
    a[:4], a[4:8] = 1.0, [0.2, 0.5, 0.7, 0.9]
    free = fit_from(problem(), draws(PHI * np.exp(0.3 * rng.standard_normal(size))))
    weights = own_weights(problem(), a)
    kept = fit_from(
        problem(), draws(np.full(size, PHI)), weights=weights, gamma=5.0, phi_held=PHI, start=free
    )
    return free, kept


def stated_over_spread(pairs):
    """Root mean square of the stated errors over the spread of the log sds, shape (N,)."""
    sds, errors = (np.stack(part) for part in zip(*pairs, strict=True))
    return np.sqrt(np.mean(errors**2, axis=0)) / np.std(np.log(sds), axis=0, ddof=1)


@lru_cache
def plans(which):
    """What is planned of 24 fits, whose attacks know both bounds."""
    return [
        attack(fits(seed)[which == "paper"], copies=COPIES, progress=False) for seed in range(24)
    ]


@pytest.mark.parametrize("which", ["unrestricted", "paper"])
@pytest.mark.parametrize("variances", ["fixed", "known"])
def test_the_error_of_a_plan_is_its_spread_over_fits(which, variances):
    ratio = stated_over_spread(
        [
            (found.sd(variances=variances), found.relative_error(variances=variances))
            for found in plans(which)
        ]
    )
    assert np.quantile(ratio, 0.1) > HONEST
    assert np.median(ratio) < WASTEFUL


def test_the_error_without_copies_is_its_spread_over_fits():
    laws = [leave_one_out(fits(seed)[0]) for seed in range(24)]
    never = ~np.any([law.integrated for law in laws], axis=0)
    assert never.sum() > N / 2
    ratio = stated_over_spread([(law.sd[never], law.error[never] / law.sd[never]) for law in laws])
    assert np.quantile(ratio, 0.1) > HONEST


@pytest.mark.nightly("the law of every record at each draw behind 16 releases")
@pytest.mark.filterwarnings("ignore::dsstan.core.errors.DsstanWarning")
def test_the_error_of_a_release_is_its_spread_over_fits():
    """Variances known it may be stated as larger: their draws reveal less than is assumed."""
    pairs = {"fixed": [], "known": []}
    for seed in range(16):
        kept = fits(seed)[1]
        release = ds.synthesise(
            kept, COPIES, seed=seed, accept_few_draws=True, accept_failed=True, progress=False
        )
        found = attack(release, former=False, progress=False)
        for variances, into in pairs.items():
            into.append((found.sd(variances=variances), found.relative_error(variances=variances)))
    assert np.median(stated_over_spread(pairs["fixed"])) < WASTEFUL
    for found in pairs.values():
        assert np.quantile(stated_over_spread(found), 0.1) > HONEST
