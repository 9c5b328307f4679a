"""Noise added to the copies: its law, what an intruder's numbers make of it, what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest

import dsstan as ds
from dsstan.core.errors import InputError
from dsstan.covariance.copy_law import copy_law, copy_terms
from dsstan.covariance.latent import LatentModel
from dsstan.models.posterior import parameters_at
from dsstan.risk.intruder.attacker import attack
from dsstan.risk.intruder.weaker import weak_attack
from mc import z_limit

QUICK = {"accept_failed": True, "accept_few_draws": True, "rounding": "none", "progress": False}
COPIES = 400
ROUNDING = 1e-9
"""Relative error of two orders of the same linear algebra."""


def test_noise_has_the_sd_asked_for_record_by_record_and_changes_nothing_else(kept):
    """Two releases of the same posterior draws: the difference of a record's variances."""
    n = kept.problem.n_records
    sd = np.where(np.arange(n) % 2 == 0, 2.0, 0.0)
    plain = ds.synthesise(kept, COPIES, seed=1, **QUICK)
    noisy = ds.synthesise(kept, COPIES, seed=1, noise=sd, **QUICK)
    np.testing.assert_array_equal(noisy.draw_index, plain.draw_index)
    np.testing.assert_array_equal(noisy.noise, sd)
    assert plain.noise is None
    a, b = plain.modelled(), noisy.modelled()
    more = b.var(axis=0, ddof=1) - a.var(axis=0, ddof=1) - sd**2
    error = np.hypot(a.var(axis=0, ddof=1), b.var(axis=0, ddof=1)) * np.sqrt(2 / (COPIES - 1))
    assert np.all(np.abs(more) < z_limit(n) * error)
    shift = b.mean(axis=0) - a.mean(axis=0)
    error = np.sqrt((a.var(axis=0, ddof=1) + b.var(axis=0, ddof=1)) / COPIES)
    assert np.all(np.abs(shift) < z_limit(n) * error)


def test_noise_of_one_record_is_independent_of_that_of_another_and_of_the_plain_copies(kept):
    """No stream is shared: the same seed without noise does not take the noise off."""
    plain = ds.synthesise(kept, 50, seed=1, **QUICK).modelled()
    noisy = ds.synthesise(kept, 50, seed=1, noise=5.0, **QUICK).modelled()
    apart = (noisy - plain).T
    found = np.corrcoef(apart)[np.triu_indices(len(apart), 1)]
    assert np.abs(found).mean() < 0.2  # 0.11 if all are independent, 50 copies each
    assert np.all(noisy != plain)


def test_the_law_of_a_copy_counts_the_noise(kept):
    latent, p = LatentModel(kept), parameters_at(kept, 0, 0)
    n = kept.problem.n_records
    sd, ones = np.linspace(0.0, 0.5, n), np.ones(n)
    plain, noisy = copy_law(latent, p, ones), copy_law(latent, p, ones, sd)
    np.testing.assert_allclose(noisy.Vs, plain.Vs + np.diag(sd**2), rtol=ROUNDING)
    np.testing.assert_array_equal(noisy.H, plain.H)
    want = np.einsum("ij,ij->j", plain.H, np.linalg.solve(plain.Vs + np.diag(sd**2), plain.H))
    found = copy_terms(latent, p, ones, sd)
    np.testing.assert_allclose(found.information, want, rtol=ROUNDING)
    # Noise on a record hides its neighbours, too, and none tells more for it.
    assert np.all(found.information < copy_terms(latent, p, ones).information)


@pytest.mark.parametrize("fit_name", ["free", "kept"])
def test_an_intruder_learns_less_from_copies_with_noise(request, fit_name):
    fit = request.getfixturevalue(fit_name)
    n = fit.problem.n_records
    plain, zero, noisy = (
        attack(ds.synthesise(fit, 4, seed=1, noise=sd, **QUICK), draws=20, progress=False)
        for sd in (None, 0.0, 0.4)
    )
    np.testing.assert_allclose(zero.information, plain.information, rtol=1e-5)
    assert np.all(noisy.information < plain.information)
    release = ds.synthesise(fit, 4, seed=1, noise=0.4, **QUICK)
    latent, total = LatentModel(fit), np.zeros(n)
    for chain, iteration in release.draw_index:
        p = parameters_at(fit, int(chain), int(iteration))
        total += copy_terms(latent, p, np.ones(n), np.full(n, 0.4)).information
    np.testing.assert_allclose(4 * noisy.information, total, rtol=1e-6)
    weak = [
        weak_attack(ds.synthesise(fit, 4, seed=1, noise=sd, **QUICK), draws=4, progress=False).sd
        for sd in (None, 0.4)
    ]
    assert np.all(weak[1] > weak[0])


def test_settings_keep_the_noise_and_the_public_side_only_says_that_there_is_some(kept, tmp_path):
    n = kept.problem.n_records
    sd = np.where(np.arange(n) < 3, 0.123456789, 0.0)
    release = ds.synthesise(kept, 4, seed=2**100 + 1, noise=sd, accept_few_draws=True)
    folder = release.write(tmp_path / "out", report=False)
    settings = json.loads((folder / "confidential" / "settings.json").read_text())
    assert settings["synthesis"]["noise_sd"] == sd.tolist()
    public = "".join(p.read_text() for p in (folder / "public").glob("*.[jm]*"))
    assert "0.123456789" not in public
    assert "independent noise" in public
    plain = ds.synthesise(kept, 4, seed=2**100 + 1, accept_few_draws=True)
    folder = plain.write(tmp_path / "plain", report=False)
    public = "".join(p.read_text() for p in (folder / "public").glob("*.[jm]*"))
    assert "independent noise" not in public


@pytest.mark.parametrize("noise", [-0.1, np.nan, np.inf, np.ones(3), "much", -np.ones(60)])
def test_noise_that_is_no_sd_is_refused(kept, noise):
    with pytest.raises(InputError, match="noise must be an sd"):
        ds.synthesise(kept, 4, seed=1, noise=noise, **QUICK)


def test_noise_is_refused_where_an_intruders_numbers_could_not_count_it(small, free):
    coarse = ds.fit(
        small, covariance="vecchia", chains=1, warmup=50, samples=50, seed=1, engine="embedded"
    )
    with pytest.raises(InputError, match="exact covariance alone"):
        ds.synthesise(coarse, 4, seed=1, noise=0.1, **QUICK)
    first = ds.synthesise(free, 4, seed=1, **QUICK)
    with pytest.raises(InputError, match="one column without gaps"):
        ds.synthesise(free, 4, seed=1, given=first, noise=0.1, **QUICK)
