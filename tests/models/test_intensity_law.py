"""Expected chances of cells under a surface: against quadrature, closed forms and long MCMC."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.spatial.distance import cdist
from scipy.special import roots_hermitenorm

from dsstan.core.errors import ConvergenceError
from dsstan.models.intensity.held_surface import expected_rates, log_rates_without
from dsstan.models.intensity.posterior import CellModel, inverse, posterior
from dsstan.models.intensity.surface_law import distinct, equal_parts
from dsstan.models.intensity.tilted import tilted

Floats = NDArray[np.float64]

COPIES = 20
RATIO, OF_FEW = 0.03, 0.1
"""Largest error of the log of a product over 20 copies: 3%, a third of what an intruder's number
may be off; and of a group of three records, whose intercept is far from normal."""


def model_of(R: Floats, exposure: Floats, groups: int = 1) -> CellModel:
    """Cells with covariance R, an intercept a group."""
    C = len(R)
    X = np.zeros((groups, C, groups))
    for k in range(groups):
        X[k, :, k] = 1.0
    return CellModel(inverse(np.array(R, order="F")), np.log(exposure), X, np.zeros(groups))


def exact_chances(R: Floats, exposure: Floats, counts: Floats, nodes: int = 160) -> Floats:
    """E[p | counts] of three cells by quadrature over two differences of u; any groups."""
    at, weight = roots_hermitenorm(nodes)
    D = np.array([[1.0, 0.0, -1.0], [0.0, 1.0, -1.0]])
    # Nodes are set about the mode, and their normal weights taken back.
    root = np.linalg.cholesky(D @ R @ D.T)
    z = np.stack(np.meshgrid(at, at, indexing="ij"), axis=-1).reshape(-1, 2)
    log_w = np.log(np.outer(weight, weight)).ravel()

    def log_p(d: Floats) -> Floats:
        eta = np.column_stack([d, np.zeros(len(d))]) + np.log(exposure)
        return np.asarray(eta - np.log(np.exp(eta).sum(axis=1))[:, None])

    def target(x: Floats) -> Floats:
        return np.asarray(log_p(x @ root.T) @ counts - 0.5 * (x**2).sum(axis=1))

    mode, scale = np.zeros(2), np.eye(2)
    for _ in range(30):
        p = np.exp(log_p((mode @ root.T)[None]))[0]
        score = root.T @ (counts - counts.sum() * p)[:2] - mode
        second = counts.sum() * (np.diag(p) - np.outer(p, p))[:2, :2]
        information = root.T @ second @ root + np.eye(2)
        mode = mode + np.linalg.solve(information, score)
        scale = np.linalg.cholesky(np.linalg.inv(information))
    x = mode + z @ scale.T
    log_f = target(x) + 0.5 * (z**2).sum(axis=1) + log_w
    f = np.exp(log_f - log_f.max())
    return np.asarray(f @ np.exp(log_p(x @ root.T)) / f.sum())


@pytest.mark.parametrize(
    ("n", "mu", "v"),
    [(0, 0.0, 1.0), (0, 0.0, 9.0), (1, -2.0, 4.0), (5, 1.0, 0.5), (40, 2.0, 4.0), (3, 0.0, 1e-3)],
)
def test_a_tilted_normal_has_the_moments_of_quadrature(n: int, mu: float, v: float) -> None:
    law = tilted(np.array([float(n)]), np.array([mu]), np.array([v]))
    mean, sd = float(law.mean[0]), float(np.sqrt(law.variance[0]))
    ends = mean + sd * np.array([-15.0, -5.0, 0.0, 5.0, 12.0])

    def moment(power: int) -> float:
        def f(eta: float) -> float:
            return float(
                (eta - mean) ** power * np.exp(n * eta - np.exp(eta) - (eta - mu) ** 2 / (2 * v))
            )

        pieces = pairwise(ends)
        return sum(quad(f, a, b, epsabs=0.0, epsrel=1e-10)[0] for a, b in pieces)

    z = moment(0)
    # Five digits are what the nodes give for the widest of these.
    assert float(law.log_z[0]) == pytest.approx(np.log(z / np.sqrt(2 * np.pi * v)), abs=1e-5)
    assert moment(1) / z == pytest.approx(0.0, abs=3e-5)
    assert moment(2) / z == pytest.approx(float(law.variance[0]), rel=2e-4)


def test_with_a_wide_prior_counts_are_gamma_and_chances_dirichlet() -> None:
    counts = np.array([[3.0, 5.0, 12.0, 40.0]])
    model = model_of(1e5 * np.eye(4), np.ones(4))
    found = posterior(model, counts)
    # Of order 1 / v, and the skewness of a count of 3 in the normal law of the intercept.
    np.testing.assert_allclose(expected_rates(found, 0), counts[0], rtol=2e-3)
    left = counts[0] - [1.0, 0.0, 0.0, 0.0]
    logs = log_rates_without(found, 0, np.array([0]))[0]
    np.testing.assert_allclose(logs, np.log(left), atol=3e-3)


@pytest.mark.parametrize("sigma", [0.7, 1.5])
@pytest.mark.parametrize("counts", [(1, 2, 40), (2, 0, 1), (1, 1, 1), (5, 3, 0)])
def test_the_product_over_20_copies_is_that_of_quadrature(
    sigma: float, counts: tuple[int, ...]
) -> None:
    rng = np.random.default_rng(7)
    R = sigma**2 * np.exp(-0.7 * cdist(*[np.array([[0.0, 0], [1.0, 0], [0.4, 1.0]])] * 2))
    exposure, n = np.array([1.0, 2.0, 0.5]), np.array(counts, dtype=np.float64)
    model = model_of(R, exposure)
    cell = int(np.flatnonzero(n > 0)[0])
    one = np.eye(3)[cell]

    def both(counts: Floats) -> tuple[Floats, Floats]:
        ours = np.exp(log_rates_without(posterior(model, counts[None]), 0, np.array([cell])))[0]
        return ours / ours.sum(), exact_chances(R, exposure, counts - one)

    ours, theirs = both(n)
    log_ratio = COPIES * (np.log(theirs) - np.log(ours))
    chances = exact_chances(R, exposure, n)
    for _ in range(COPIES):
        ours, theirs = both(n + rng.multinomial(int(n.sum()), chances))
        log_ratio += np.log(ours) - np.log(theirs)
    assert np.abs(log_ratio[cell]) < (RATIO if n.sum() > 3 or max(counts) > 1 else OF_FEW)


def test_groups_that_share_a_surface_inform_each_other() -> None:
    R = np.exp(-0.7 * cdist(*[np.array([[0.0, 0], [1.0, 0], [0.4, 1.0]])] * 2))
    exposure = np.array([1.0, 2.0, 0.5])
    counts = np.array([[4.0, 2.0, 1.0], [1.0, 3.0, 6.0]])
    found = posterior(model_of(R, exposure, 2), counts)
    exact = exact_chances(R, exposure, counts.sum(axis=0))  # without covariates they have one p
    for k in range(2):
        rates = expected_rates(found, k)
        np.testing.assert_allclose(rates.sum(), counts[k].sum(), rtol=1e-3)
        np.testing.assert_allclose(rates / rates.sum(), exact, rtol=3e-3)


def test_the_posterior_is_a_function_of_the_counts_alone() -> None:
    R = np.exp(-cdist(*[np.random.default_rng(1).random((20, 2))] * 2))
    model = model_of(R, np.ones(20))
    counts = np.random.default_rng(2).poisson(2.0, (1, 20)).astype(np.float64)
    first, again = posterior(model, counts), posterior(model, counts.copy())
    np.testing.assert_array_equal(first.mean, again.mean)


def test_a_covariance_that_is_none_is_refused() -> None:
    with pytest.raises(ConvergenceError, match="not positive definite"):
        inverse(np.asfortranarray(-np.eye(2)))


def test_draws_are_used_up_before_one_comes_again() -> None:
    chosen = distinct(6, 14, np.random.default_rng(0))
    assert sorted(np.bincount(chosen).tolist()) == [2, 2, 2, 2, 3, 3]


def test_it_settles_for_towers_tiny_groups_and_wide_surfaces() -> None:
    rng = np.random.default_rng(5)
    for case in range(60):
        side, K = int(rng.integers(4, 8)), int(rng.integers(1, 4))
        C, grid = side**2, np.arange(side) + 0.5
        x = np.stack(np.meshgrid(grid, grid, indexing="ij"), axis=-1).reshape(-1, 2)
        R = rng.choice([0.1, 1.0, 3.0]) ** 2 * np.exp(-rng.choice([0.05, 0.3, 20.0]) * cdist(x, x))
        R[np.diag_indices(C)] *= 1.0 + 1e-9
        exposure = rng.gamma(0.3 if case % 3 == 0 else 5.0, 1.0, C) + 1e-6
        model = model_of(R, exposure, K)
        if case % 2:  # and a slope a group
            slopes = np.eye(K)[:, None] * rng.standard_normal(C)[None, :, None]
            X, free = np.concatenate([model.X, slopes], axis=2), np.full(K, 2.5**-2)
            model = replace(model, X=X, beta_precision=np.append(np.zeros(K), free))
        chance = exposure * np.exp(np.linalg.cholesky(R) @ rng.standard_normal(C))
        counts = np.stack(
            [rng.multinomial(rng.choice([1, 3, 30, 5000]), chance / chance.sum()) for _ in range(K)]
        ).astype(np.float64)
        if case % 5 == 0:
            counts[0, rng.integers(C)] += 500.0
        found = posterior(model, counts)
        for k in range(K):
            # The total of the intensities is gamma of shape N_k, whose mean is N_k. Skewness of
            # an intercept of one record is a per cent.
            limit = 1e-3 if counts[k].sum() > 3 else 3e-2
            assert expected_rates(found, k).sum() == pytest.approx(counts[k].sum(), rel=limit)


def hmc_rates(model: CellModel, counts: Floats, samples: int, seed: int) -> tuple[Floats, Floats]:
    """E[lambda] of one group by Hamiltonian Monte Carlo, and its standard errors.

    2000 chains side by side; the joint density is written out here, and only the metric is that of
    the normal posterior.
    """
    rng, chains, C = np.random.default_rng(seed), 2000, counts.shape[1]
    found = posterior(model, counts)
    A = np.hstack([model.X[0], np.eye(C)])
    prior = np.zeros((C + 1, C + 1))
    prior[1:, 1:] = model.precision
    tau = found.tau[0]
    Q = prior + A.T @ (tau[:, None] * A)
    middle = np.linalg.solve(Q, A.T @ (found.nu[0] - tau * model.offset))
    L = np.linalg.cholesky(np.linalg.inv(Q))

    def at(z: Floats) -> tuple[Floats, Floats, Floats]:
        x = middle + z @ L.T
        eta = model.offset + x @ A.T
        rate = np.exp(np.minimum(eta, 50.0))
        value = eta @ counts[0] - rate.sum(axis=1) - 0.5 * np.sum((x @ prior) * x, axis=1)
        return value, ((counts[0] - rate) @ A - x @ prior) @ L, rate

    z = rng.standard_normal((chains, C + 1))
    value, slope, rate = at(z)
    kept: list[Any] = []
    for iteration in range(30 + samples):
        p = rng.standard_normal(z.shape)
        energy, size = value - 0.5 * np.sum(p**2, axis=1), rng.uniform(0.8, 1.2) * np.pi / 12
        new, new_slope = z, slope
        for _ in range(6):
            p = p + 0.5 * size * new_slope
            new = new + size * p
            new_value, new_slope, new_rate = at(new)
            p = p + 0.5 * size * new_slope
        change = new_value - 0.5 * np.sum(p**2, axis=1) - energy
        ok = np.log(rng.random(chains)) < change
        z, slope, rate = (
            np.where(ok[:, None], a, b) for a, b in ((new, z), (new_slope, slope), (new_rate, rate))
        )
        value = np.where(ok, new_value, value)
        if iteration >= 30:
            kept.append(rate)
    by_chain = np.mean(kept, axis=0)  # chains are independent
    return by_chain.mean(axis=0), by_chain.std(axis=0, ddof=1) / np.sqrt(chains)


def planted(seed: int = 1) -> tuple[CellModel, Floats]:
    """36 cells with counts 0 to 6, one record alone at 3, and a tower of 40 at 20."""
    rng = np.random.default_rng(seed)
    grid = np.arange(6) + 0.5
    x = np.stack(np.meshgrid(grid, grid, indexing="ij"), axis=-1).reshape(-1, 2)
    R = np.exp(-0.5 * cdist(x, x))
    n = rng.poisson(np.exp(np.linalg.cholesky(R) @ rng.standard_normal(36) + 0.3))
    n = np.minimum(n, 6)
    n[[3, 20]] = 1, 40
    return model_of(R, np.ones(36)), n[None].astype(np.float64)


@pytest.mark.parametrize(
    "samples",
    [40, pytest.param(1500, marks=pytest.mark.nightly("long MCMC, four times"))],
)
def test_chances_without_a_record_are_those_of_hamiltonian_monte_carlo(samples: int) -> None:
    model, counts = planted()
    for cell in (3, 20) if samples > 100 else (3,):
        ours = np.exp(log_rates_without(posterior(model, counts), 0, np.array([cell])))[0]
        less = counts.copy()
        less[0, cell] -= 1.0
        theirs, error = hmc_rates(model, less, samples, seed=cell)
        # 0.3% is the error of the approximation that is accepted; 5.2 sds are a false alarm of
        # 1e-5 over 72 comparisons.
        assert np.max((np.abs(ours / theirs - 1.0) - 3e-3) / (error / theirs)) < 5.2


@pytest.mark.parametrize("counts", [(3.0, 1.0), (1.0, 0.0), (10.0, 2.0)])
def test_the_evidence_of_a_surface_is_that_of_quadrature(counts: tuple[float, float]) -> None:
    """Two cells, the intercept flat; one surface against another, as all have a constant."""
    offset, n = np.array([0.0, 0.3]), np.array(counts)
    at = np.linspace(-16.0, 16.0, 2001)
    apart, low = np.meshgrid(at, at)
    found = []
    for sill, rho in ((1.0, 0.5), (4.0, 0.2)):
        R = sill * np.array([[1.0, rho], [rho, 1.0]])
        v = 2.0 * sill * (1.0 - rho)  # of the difference of the two log intensities
        log_f = n[0] * low - np.exp(low) + n[1] * (low + apart) - np.exp(low + apart)
        log_f -= 0.5 * (apart - offset[1] + offset[0]) ** 2 / v + 0.5 * np.log(v)
        model = CellModel(inverse(R), offset, np.ones((1, 2, 1)), np.zeros(1))
        ours = posterior(model, n[None]).log_evidence
        found.append(ours - np.log(np.exp(log_f).sum()))
    assert found[1] == pytest.approx(found[0], abs=RATIO)


def test_a_posterior_is_cut_into_parts_of_equal_probability() -> None:
    rng = np.random.default_rng(4)
    sigma_sq, phi = np.exp(rng.standard_normal((2, 4, 900)))
    parts = np.log(equal_parts(sigma_sq, phi, 3))
    assert parts.shape == (9, 2)
    np.testing.assert_allclose(parts.mean(axis=0), [np.log(sigma_sq).mean(), np.log(phi).mean()])
    assert (np.diff(parts[::3, 0]) > 0.5).all()
    held = equal_parts(sigma_sq, np.full_like(phi, 2.0), 3)
    assert len(held) == 3
    assert [decay for _, decay in held] == pytest.approx([2.0] * 3)
