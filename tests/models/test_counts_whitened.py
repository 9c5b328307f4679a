"""The whitened coordinates of counts, and the correction to the exact covariance."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import approx_fprime
from scipy.spatial.distance import cdist

import dsstan as ds
from dsstan.core.errors import InputError
from dsstan.covariance.approximations import EXACT, PredictiveProcess, Vecchia
from dsstan.engines import SamplerSettings
from dsstan.models.counts.fit import CountFit, fit_counts
from dsstan.models.counts.outcomes import OUTCOMES
from dsstan.models.counts.priors import CountPriors
from dsstan.models.counts.runs import HARDLY, Task
from mc import assert_same, assert_same_posterior, mean_of, sd_of

ROUNDING = 1e-9
DIFFERENCE = 1e-4
"""Of a derivative by finite differences, relative."""


def square(n: int, outcome: str = "poisson", *, seed: int = 3, shared: int = 0) -> ds.Problem:
    """Records in the unit square with a covariate, some of them at one site."""
    rng = np.random.default_rng(seed)
    sites = rng.uniform(size=(n, 2))
    sites[:shared] = sites[shared : 2 * shared]
    root = np.linalg.cholesky(np.exp(-6.0 * cdist(sites, sites)) + 1e-9 * np.eye(n))
    x = rng.standard_normal(n)
    eta = 0.3 + 0.4 * x + 0.8 * root @ rng.standard_normal(n)
    y = OUTCOMES[outcome].draw(eta, np.log(4.0), rng).astype(int)
    table = pd.DataFrame({"e": sites[:, 0], "n": sites[:, 1], "x": x, "y": y})
    return ds.prepare(table, "y ~ x", coords=("e", "n"))


def task_of(problem: ds.Problem, outcome: str, neighbours: int = 6) -> Task:
    law, n = OUTCOMES[outcome], problem.n_records
    A = np.ones(n)
    A[-4:] = 0.0, 0.5, 0.0, 0.5
    priors = CountPriors().resolve(law, np.asarray(problem.X), problem.d_max)
    shift = np.linspace(-0.5, 0.5, n)
    covariance = Vecchia(neighbours)
    settings = SamplerSettings()
    return Task(
        *(problem, law, shift, A, "exponential", covariance, priors, None, settings, 1, "", False)
    )


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_the_map_of_a_frame_is_linear_and_its_inverse_gradient_and_determinant_are_right(outcome):
    task = task_of(square(25, outcome, shared=3), outcome)
    model = task.model()
    theta = np.array([np.log(4.0), -0.5, np.log(3.0)])[: 3 if task.law.dispersed else 2]
    frame = model.mode_frame(theta, model.start)
    z = np.random.default_rng(1).standard_normal(model.M)
    x = model.place(frame, z)
    np.testing.assert_allclose(model.find(frame, x), z, atol=ROUNDING)
    assert model.m == 22
    slopes = np.column_stack([model.place(frame, e) - frame.centre for e in np.eye(model.M)])
    assert frame.log_det == pytest.approx(np.linalg.slogdet(slopes)[1], abs=ROUNDING)
    numeric = approx_fprime(x, lambda at: model.log_joint(frame, at), 1e-6)
    scale = np.abs(numeric).max()
    np.testing.assert_allclose(model.gradient(frame, x), numeric, atol=DIFFERENCE * scale)
    pulled = model.pull(frame, model.gradient(frame, x))
    np.testing.assert_allclose(pulled, slopes.T @ model.gradient(frame, x), atol=1e-6)
    again = model.prior_place(frame, x, model.prior_find(frame, x))
    np.testing.assert_allclose(again, x, atol=ROUNDING)


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_the_centre_of_a_frame_is_the_mode_and_z_is_nearly_normal_there(outcome):
    """The precision of z at the mode is the identity but for the incomplete factor."""
    task = task_of(square(40, outcome), outcome)
    model = task.model()
    theta = np.array([np.log(6.0), -0.4, np.log(4.0)])[: 3 if task.law.dispersed else 2]
    frame = model.mode_frame(theta, model.start)
    rise = model.newton_step(frame, frame.centre)[1]
    assert rise < 1e-3

    def gradient(z: np.ndarray) -> np.ndarray:
        return model.pull(frame, model.gradient(frame, model.place(frame, z)))

    h = 1e-5
    bend = np.array([(gradient(-h * e) - gradient(h * e)) / (2 * h) for e in np.eye(model.M)])
    values = np.linalg.eigvalsh(0.5 * (bend + bend.T))
    assert np.all(np.abs(values - 1.0) < 0.1)


def integrals(y: np.ndarray, R: np.ndarray, site: list[int]) -> dict[str, float]:
    """Posterior means and sds of a Poisson model, by quadrature.

    The intercept is normal(0, 0.5), sigma half-normal(0, 0.7) between 0.05 and 2: a product of
    Gauss-Hermite rules in the intercept and w, and a Gauss-Legendre rule in sigma.
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(22)
    grid = np.array(list(itertools.product(nodes, repeat=4)))
    mass = np.prod(np.array(list(itertools.product(weights, repeat=4))), axis=1)
    b, unit = 0.5 * grid[:, 0], grid[:, 1:] @ np.linalg.cholesky(R).T
    points, lengths = np.polynomial.legendre.leggauss(24)
    sums, total = np.zeros((2, 5)), 0.0
    for point, length in zip(points, lengths, strict=True):
        sigma = 0.05 + 1.95 * (point + 1) / 2
        w = sigma * unit
        eta = b[:, None] + w[:, site]
        p = length * mass * np.exp((y * eta - np.exp(eta)).sum(axis=1) - 0.5 * (sigma / 0.7) ** 2)
        values = np.column_stack([b, np.full(len(b), sigma**2), w])
        total += p.sum()
        sums += p @ values, p @ values**2
    means = sums[0] / total
    sds = np.sqrt(sums[1] / total - means**2)
    names = ("beta", "sigma_sq", "w0", "w1", "w2")
    of = (("mean", means), ("sd", sds))
    return {f"{what} {k}": float(v) for what, all_ in of for k, v in zip(names, all_, strict=True)}


@pytest.mark.parametrize("neighbours", [1, 2])
def test_the_posterior_of_a_small_case_is_that_of_quadrature(neighbours, monkeypatch):
    """Given one neighbour the process is not exact, and the correction makes it so."""
    monkeypatch.setattr("dsstan.models.counts.runs.NEAR_EXACT", (neighbours,))
    places = np.array([[0.0, 0.0], [0.4, 0.0], [0.2, 0.3]])
    site, y = [0, 1, 2, 0], np.array([3, 0, 5, 1])
    table = pd.DataFrame({"e": places[site, 0], "n": places[site, 1], "y": y})
    priors = CountPriors(beta_scale=0.5, sigma=0.7, sigma_bounds=(0.05, 2.0))
    problem = ds.prepare(table, "y ~ 1", coords=("e", "n"))
    fit = fit_counts(problem, phi=2.0, priors=priors, samples=800, seed=4, progress=False)
    assert (fit.corrected < 1.0) == (neighbours == 1)
    draws = {"beta": fit.draws["beta"][:, :, 0], "sigma_sq": fit.draws["sigma_sq"]}
    sites = problem.unique_sites
    order = [int(np.argmin(cdist(sites, [place]))) for place in places]
    draws |= {f"w{k}": fit.draws["w"][:, :, j] for k, j in enumerate(order)}
    mine = {f"mean {k}": mean_of(d) for k, d in draws.items()}
    mine |= {f"sd {k}": sd_of(d) for k, d in draws.items()}
    assert_same(mine, integrals(y, np.exp(-2.0 * cdist(places, places)), site))


def compared(fit: CountFit) -> dict[str, np.ndarray]:
    """Parameters, positive ones by their logs, and the effect at three sites."""
    logs = {f"log {k}": np.log(fit.draws[k]) for k in ("sigma_sq", "phi", "size") if k in fit.draws}
    if fit.phi_held is not None:
        del logs["log phi"]
    effects = {f"w{j}": fit.draws["w"][:, :, j] for j in (0, 5, fit.problem.n_sites - 1)}
    return {"beta": fit.draws["beta"][:, :, 0], **logs, **effects}


def test_the_correction_leaves_nothing_of_the_process_that_proposes(monkeypatch):
    """Few neighbours and all of them have one posterior; without the correction they differ."""
    problem, found = square(30), []
    for neighbours in (3, 29):
        monkeypatch.setattr("dsstan.models.counts.runs.NEAR_EXACT", (neighbours,))
        found.append(fit_counts(problem, samples=500, seed=neighbours, progress=False))
    assert found[0].corrected < 1.0 == found[1].corrected
    assert_same_posterior(*map(compared, found))


def test_a_process_too_far_from_the_exact_covariance_fails_the_verdict(monkeypatch):
    monkeypatch.setattr("dsstan.models.counts.runs.NEAR_EXACT", (1,))
    short = {"chains": 2, "warmup": 20, "samples": 60, "seed": 1, "progress": False}
    bad = fit_counts(square(120), cov_model="matern52", phi=8.0, **short)
    assert bad.corrected < HARDLY
    assert "exact steps accepted" in {check.name for check in bad.verdict.failures}
    assert bad.model_settings["exact_steps_accepted"] == bad.corrected


def test_beyond_its_limits_a_fit_has_fewer_draws_and_vecchia_and_so_has_the_restricted_fit(
    monkeypatch,
):
    monkeypatch.setattr("dsstan.covariance.approximations.EXACT_LIMIT", 20)
    problem = square(30)
    monkeypatch.setattr("dsstan.models.counts.runs.MANY", 20)
    monkeypatch.setattr("dsstan.models.counts.runs.FEWER", 30)
    short = {"chains": 2, "warmup": 10, "seed": 1, "progress": False}
    free = fit_counts(problem, **short)
    assert (free.covariance, free.settings.samples) == (Vecchia(), 30)
    weights = ds.own_weights(problem, np.eye(30)[3])
    kept = fit_counts(problem, weights=weights, start=free, **short)
    assert (kept.covariance, kept.settings.samples) == (Vecchia(), 30)
    assert fit_counts(problem, covariance="exact", samples=20, **short).covariance is EXACT


def test_covariances_that_counts_do_not_have_are_refused_before_sampling():
    problem = square(20)
    with pytest.raises(InputError, match="Vecchia's, not modified predictive process"):
        fit_counts(problem, covariance=PredictiveProcess(5), engine="none")
    with pytest.raises(InputError, match='"nuts" runs the Stan program, which has the exact'):
        fit_counts(problem, covariance="vecchia", sampler="nuts", engine="none")


HARD = {
    "few ones": ("bernoulli", lambda t: (t["u"] < 0.1).astype(int), {}),
    "many zeros": ("poisson", lambda t: ((t["u"] > 0.85) * 3).astype(int), {}),
    "a strong effect": ("poisson", lambda t: np.rint(np.exp(3.5 * t["wave"])).astype(int), {}),
    "a long range": ("poisson", lambda t: np.rint(6 + 5 * t["e"]).astype(int), {"phi": 0.3}),
    "dispersed": ("negative binomial", lambda t: np.rint(9 * t["u"] ** 4).astype(int), {}),
}


@pytest.mark.nightly("minutes of latent sampling")
@pytest.mark.parametrize("case", HARD)
@pytest.mark.parametrize("flags", [False, True])
def test_hard_cases_have_the_posterior_of_a_long_latent_run(case, flags):
    """Thirty records, shared sites, phi held, two records flagged or none; three wide priors."""
    outcome, respond, how = HARD[case]
    rng = np.random.default_rng(12)
    sites = rng.uniform(size=(30, 2))
    sites[:3] = sites[3:6]
    table = pd.DataFrame({"e": sites[:, 0], "n": sites[:, 1], "u": rng.uniform(size=30)})
    table["wave"] = np.sin(5.0 * table["e"]) * np.cos(4.0 * table["n"])
    table["years"] = rng.uniform(0.5, 3.0, 30)
    table["y"] = respond(table)
    problem = ds.prepare(table, "y ~ 1", coords=("e", "n"))
    weights = ds.own_weights(problem, np.eye(30)[7] + np.eye(30)[20]) if flags else None
    model = {"phi": how.get("phi", 4.0), "weights": weights, "offset": "years"}
    model |= {"priors": CountPriors(sigma=2.0, beta_scale=3.0), "progress": False}
    long = {"warmup": 2000, "samples": 6000, "adapt_delta": 0.98, "engine": "embedded"}
    theirs = fit_counts(problem, outcome, sampler="nuts", seed=1, **model, **long)
    ours = fit_counts(problem, outcome, seed=2, samples=4000, **model)
    assert_same_posterior(compared(ours), compared(theirs))


@pytest.mark.nightly("minutes of latent sampling")
@pytest.mark.parametrize("outcome", OUTCOMES)
def test_two_hundred_records_have_the_posterior_of_a_long_latent_run(outcome):
    """phi held, where the Stan program mixes; three records share the sites of others."""
    problem = square(200, outcome, shared=3)
    model = {"phi": 6.0, "progress": False}
    long = {"warmup": 1000, "samples": 2500, "adapt_delta": 0.95, "engine": "embedded"}
    theirs = fit_counts(problem, outcome, sampler="nuts", seed=1, **model, **long)
    ours = fit_counts(problem, outcome, seed=2, samples=2000, **model)
    assert ours.corrected < 1.0
    assert_same_posterior(compared(ours), compared(theirs))
