"""Sweeps about an exact covariance end where sweeps of exact covariances do."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from dsstan.models.intensity import posterior as room
from dsstan.models.intensity.held_surface import expected_rates, log_rates_without
from dsstan.models.intensity.posterior import CellModel, inverse, posterior

OWN, OTHERS = 3e-6, 1e-5
"""Of log rates in a record's own cell and in others: the covariances between cells are those of the
last exact sweep, at most ``CLOSE`` away."""


@pytest.mark.parametrize("sill", [0.5, 9.0])
@pytest.mark.parametrize("records", [60, 3000])
@pytest.mark.parametrize("warm", [False, True])
def test_few_exact_covariances_give_what_many_do(sill, records, warm, monkeypatch):
    rng, side = np.random.default_rng(3), 12
    C, at = side**2, np.stack(np.meshgrid(*[np.arange(side)] * 2), axis=-1).reshape(-1, 2)
    R = sill * (np.exp(-0.3 * cdist(at, at)) + 1e-9 * np.eye(C))
    X = np.zeros((2, C, 4))  # two groups with an intercept and a slope each
    X[0, :, 0] = X[1, :, 1] = 1.0
    X[0, :, 2], X[1, :, 3] = rng.standard_normal((2, C))
    model = CellModel(inverse(np.asfortranarray(R)), np.zeros(C), X, np.array([0, 0, 0.2, 0.2]))
    chance = np.exp(np.linalg.cholesky(R) @ rng.standard_normal(C))
    counts = rng.multinomial(records, chance / chance.sum(), size=2).astype(float)
    begin = None
    if warm:
        twice = counts + rng.multinomial(records, chance / chance.sum(), size=2)
        begin = posterior(model, twice).mean - np.log(2.0)
    ours, solved = posterior(model, counts, begin), []
    exact = room._solve
    monkeypatch.setattr(room, "_solve", lambda *told: solved.append(1) or exact(*told))
    posterior(model, counts, begin)
    monkeypatch.setattr(room, "FAR", -1.0)  # every sweep is then exact
    monkeypatch.setattr(room, "CLOSE", 1e-8)
    few = len(solved)
    theirs = posterior(model, counts)
    assert 2 * few < len(solved) - few
    for k in range(2):
        logs = np.log(expected_rates(ours, k)) - np.log(expected_rates(theirs, k))
        assert np.abs(logs).max() < OWN
        some = np.flatnonzero(counts[k])[:40]
        logs = log_rates_without(ours, k, some) - log_rates_without(theirs, k, some)
        assert np.abs(logs).max() < OTHERS
