"""Time and groups in the spatial effect, against normal laws written out record by record."""

from __future__ import annotations

import dataclasses
from functools import lru_cache

import numpy as np
import pandas as pd
import pytest
from scipy.spatial.distance import cdist
from scipy.stats import multivariate_normal

import dsstan as ds
from dsstan.core.errors import InputError
from dsstan.covariance.approximations import EXACT
from dsstan.covariance.base import Parameters, SpatialModel
from dsstan.covariance.copy_law import copy_law
from dsstan.covariance.correlation import correlation
from dsstan.covariance.eigenbasis import HeldBasis
from dsstan.covariance.latent import LatentModel
from dsstan.covariance.likelihood_surface import exact_statistics, response_log_density
from dsstan.covariance.pairs import pairs_of
from dsstan.models.predictive import Predictive
from dsstan.models.weights import smoothing
from factory import fit_from
from mc import z_limit

DENSITY = 1e-8
"""Largest error of a log density of some hundred, after a Cholesky factor."""

FLAT, FLAT_ERROR = 1e5, 1e-4
"""Prior variance of coefficients that are as good as free, and the error that it makes."""

C, Q = 0.4, 0.3
P = Parameters(np.array([2.0, 0.5]), 1.3, 0.2, 3.0)
KINDS = {"time": (C, None), "group": (None, Q), "both": (C, Q)}


@lru_cache
def problem(kind: str) -> ds.Problem:
    """Twelve places with two to four records each; two records share place, time and group."""
    rng = np.random.default_rng(2)
    place = np.repeat(np.arange(12), rng.integers(2, 5, 12))
    n = place.size
    sites = rng.uniform(0, 1, (12, 2))[place]
    year = 2015.0 + rng.integers(0, 4, n)
    zips = rng.integers(0, 5, n)  # not nested in places
    sites[1], year[1], zips[1] = sites[0], year[0], zips[0]
    x = rng.normal(size=n)
    y = 2.0 + 0.5 * x + rng.normal(size=n)
    table = pd.DataFrame(
        {"a": sites[:, 0], "b": sites[:, 1], "x": x, "y": y, "year": year, "zip": zips}
    )
    group = "" if kind == "time" else " + (1 | zip)"
    time = None if kind == "group" else "year"
    return ds.prepare(table, f"y ~ x{group}", coords=("a", "b"), time=time)


def by_hand(kind: str, phi: float) -> np.ndarray:
    """R, one pair at a time."""
    table, n = problem(kind).table, problem(kind).n_records
    c, q = (value or 0.0 for value in KINDS[kind])
    R = np.empty((n, n))
    for i, first in enumerate(table.itertuples()):
        for j, second in enumerate(table.itertuples()):
            d = np.hypot(first.a - second.a, first.b - second.b)
            R[i, j] = (1 - q) * np.exp(-phi * d - c * abs(first.year - second.year))
            R[i, j] += q * (first.zip == second.zip)
    return R


def model(kind: str, protection: str = "none", gamma: float = np.inf) -> SpatialModel:
    """A model of the table under a protection, three records flagged, one of a pair."""
    a = np.zeros(problem(kind).n_records)
    a[[0, 5, a.size - 1]] = 1.0
    A = np.ones_like(a) if protection == "none" else smoothing(gamma, a)
    c, q = KINDS[kind]
    return SpatialModel(
        problem=problem(kind),
        A=A,
        protection=protection,
        covariance=EXACT,
        phi_held=P.phi,
        time_decay=c,
        group_share=q,
    )


def joint(kind: str, protection: str, gamma: float, phi: float = P.phi):
    """Rows that inform, Cov[w, y], Cov[y] and Cov[w] at P, by definition."""
    own = model(kind, protection, gamma)
    K = P.sigma_sq * by_hand(kind, phi)
    removed = 1 - own.A**2 if protection == "preserving" else 0.0 * own.A
    rows = np.flatnonzero(own.A == 1) if protection == "cut" else np.arange(own.A.size)
    V = own.A[:, None] * K * own.A + np.diag(P.tau_sq + P.sigma_sq * removed)
    return rows, (K * own.A)[:, rows], V[np.ix_(rows, rows)], K


SETTINGS = [("none", 0.0), ("paper", np.inf), ("paper", 2.0), ("preserving", 2.0), ("cut", np.inf)]
every = pytest.mark.parametrize(("protection", "gamma"), SETTINGS)
kinds = pytest.mark.parametrize("kind", KINDS)


@kinds
def test_the_correlation_is_the_formula_of_each_pair(kind):
    np.testing.assert_allclose(pairs_of(model(kind)).at(3.0), by_hand(kind, 3.0), atol=1e-14)


@kinds
@every
def test_the_density_of_the_surface_is_that_of_the_normal_law(kind, protection, gamma):
    own = model(kind, protection, gamma)
    source = EXACT.statistics(own)
    rotation, r = source.rotation, P.tau_sq / P.sigma_sq
    for phi in (0.7, 3.0, 20.0):
        rows, _, V, _ = joint(kind, protection, gamma, phi)
        y, X = own.problem.y[rows], own.problem.X[rows]
        want = multivariate_normal(X @ P.beta, V).logpdf(y)
        (s,) = source.at(np.array([phi]), np.array([r]))
        u = rotation.T @ (rotation.b - P.beta)
        got = response_log_density(s[0], u, rows.size, P.sigma_sq, r)
        assert got == pytest.approx(want, abs=DENSITY)


@kinds
def test_only_records_of_one_place_time_and_group_are_taken_together(kind):
    own = problem(kind)
    keys = ["a", "b", *own.structure.columns]
    number = own.table.groupby(keys, sort=False).ngroup().to_numpy()
    np.testing.assert_array_equal(own.effect_index, number)
    assert own.site_index.max() < own.effect_index.max() < own.n_records - 1
    assert EXACT.statistics(model(kind)).means.shape[0] == own.effect_index.max() + 1


@kinds
@every
def test_the_effect_given_the_data_is_the_conditional_normal_one(kind, protection, gamma):
    own = model(kind, protection, gamma)
    rows, KA, V, K = joint(kind, protection, gamma)
    residual = own.problem.y[rows] - own.problem.X[rows] @ P.beta
    law = LatentModel(own)
    np.testing.assert_allclose(law.mean(P), KA @ np.linalg.solve(V, residual), atol=1e-10)
    np.testing.assert_allclose(law.covariance(P), K - KA @ np.linalg.solve(V, KA.T), atol=1e-10)


def test_the_effect_at_another_place_is_of_one_time_and_of_no_group():
    own = model("both")
    _, _, V, _ = joint("both", "none", 0.0)
    table, places = own.problem.table, np.array([[0.2, 0.3], [2.0, 2.0]])
    lag = np.exp(-C * np.abs(table["year"].to_numpy() - 2016.5))
    cross = P.sigma_sq * (1 - Q) * np.exp(-P.phi * cdist(places, own.problem.sites)) * lag
    residual = own.problem.y - own.problem.X @ P.beta
    got = LatentModel(own).mean(P, places, 2016.5)
    np.testing.assert_allclose(got, cross @ np.linalg.solve(V, residual), atol=1e-10)
    with pytest.raises(InputError, match="changes with 'year': say of which time, such as time="):
        LatentModel(own).mean(P, places)


@pytest.mark.parametrize(("protection", "gamma"), [("none", 0.0), ("paper", np.inf)])
def test_copies_have_the_law_written_out(protection, gamma):
    """Mean and covariance of copies at one draw, by Monte Carlo."""
    own = model("both", protection, gamma)
    n, count = own.problem.n_records, 4000
    draws = {"beta": np.tile(P.beta, (1, 2, 1))}
    draws |= {k: np.full((1, 2), getattr(P, k)) for k in ("sigma_sq", "tau_sq", "phi")}
    fit = fit_from(own.problem, draws, A=own.A, protection=protection, phi_held=P.phi)
    fit = dataclasses.replace(fit, time_decay=C, group_share=Q)
    law, rng = Predictive(fit, "w"), np.random.default_rng(3)
    copies = np.stack([law.draw(0, 0, rng) for _ in range(count)])
    rows, KA, V, K = joint("both", protection, gamma)
    X, y = own.problem.X, own.problem.y
    mean = X @ P.beta + KA @ np.linalg.solve(V, y[rows] - X[rows] @ P.beta)
    cov = K - KA @ np.linalg.solve(V, KA.T) + P.tau_sq * np.eye(n)
    sd, limit = np.sqrt(np.diag(cov)), z_limit(n + n * (n + 1) // 2)
    assert np.all(np.abs(copies.mean(axis=0) - mean) < limit * sd / np.sqrt(count))
    error = np.sqrt((np.outer(sd, sd) ** 2 + cov**2) / count)
    assert np.all(np.abs(np.cov(copies.T) - cov) < limit * error)


@kinds
@every
def test_the_law_of_a_copy_is_the_conditional_of_the_joint_normal(kind, protection, gamma):
    own = model(kind, protection, gamma)
    X, carried = own.problem.X, np.ones(own.A.size)
    rows, KA, V, K = joint(kind, protection, gamma)
    wide = FLAT * X @ X.T
    yy, cy = wide[np.ix_(rows, rows)] + V, wide[:, rows] + KA
    H = np.zeros_like(K)
    H[:, rows] = np.linalg.solve(yy, cy.T).T
    Vs = wide + K + P.tau_sq * np.eye(len(K)) - H[:, rows] @ cy.T
    law = copy_law(LatentModel(own), P, carried)
    np.testing.assert_allclose(law.H, H, atol=FLAT_ERROR)
    np.testing.assert_allclose(law.Vs, Vs, atol=FLAT_ERROR)


@kinds
@pytest.mark.parametrize("protection", ["paper", "preserving", "cut"])
def test_the_terms_in_the_eigenbasis_are_those_of_dense_matrices(kind, protection):
    own = model(kind, protection)
    terms, law = HeldBasis(own).terms(P), copy_law(LatentModel(own), P, np.ones(own.A.size))
    information = np.einsum("ij,ij->j", law.H, np.linalg.solve(law.Vs, law.H))
    np.testing.assert_allclose(terms.information, information, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(terms.exposure, np.diag(law.H), rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(terms.score, law.score, rtol=1e-7, atol=1e-9)


@kinds
def test_what_the_others_tell_of_a_record_is_universal_kriging(kind):
    own = model(kind)
    (terms,) = EXACT.attack_terms(own, [P], np.ones(own.A.size))
    _, _, V, _ = joint(kind, "none", 0.0)
    X = own.problem.X
    inverse = np.linalg.inv(V)
    projected = inverse - inverse @ X @ np.linalg.solve(X.T @ inverse @ X, X.T @ inverse)
    np.testing.assert_allclose(terms.precision, np.diag(projected), rtol=1e-8)


def test_a_table_without_either_has_the_bytes_of_its_distances_alone(small):
    own = SpatialModel(problem=small, A=np.ones(small.n_records), covariance=EXACT)
    d = cdist(small.sites, small.sites)
    assert pairs_of(own).at(3.0).tobytes() == correlation(d, 3.0).tobytes()
    phi, r = np.array([1.0, 9.0]), np.array([0.1, 1.0])
    plain = exact_statistics(d, small.X, small.y, a_diag=own.A, protection="none")
    for mine, theirs in zip(EXACT.statistics(own).at(phi, r), plain.at(phi, r), strict=True):
        assert mine.tobytes() == theirs.tobytes()
    assert small.effect_index is small.site_index


def test_values_of_0_change_nothing_but_rounding(small):
    """No decay in time and no share of the groups: the model of the places alone."""
    rng = np.random.default_rng(1)
    table = small.table.assign(year=rng.integers(0, 3, small.n_records), zip=small.site_index % 4)
    tied = ds.prepare(table, f"{small.formula} + (1 | zip)", coords=small.coord_names, time="year")
    plain = SpatialModel(problem=small, A=np.ones(small.n_records), covariance=EXACT)
    own = dataclasses.replace(plain, problem=tied, time_decay=0.0, group_share=0.0)
    phi, r = np.array([1.0, 9.0]), np.array([0.1, 1.0])
    pieces = zip(EXACT.statistics(own).at(phi, r), EXACT.statistics(plain).at(phi, r), strict=True)
    for mine, theirs in pieces:
        np.testing.assert_allclose(mine, theirs, rtol=1e-8, atol=1e-8)
