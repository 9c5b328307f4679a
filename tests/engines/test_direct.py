"""The direct engine: its density against Stan's, its draws against quadrature, where it is hard."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.linalg import eigh
from scipy.spatial.distance import cdist
from scipy.special import logsumexp, softmax
from whitened import even, whitened

import dsstan as ds
from conftest import case
from dsstan.core.chebyshev import ChebyshevGrid
from dsstan.core.errors import InputError
from dsstan.covariance.likelihood_surface import Rotation, Surface, first_nodes, interpolate
from dsstan.covariance.window import narrowed_surface
from dsstan.engines import (
    DirectEngine,
    SamplerSettings,
    gaussian_engine,
    get_engine,
    slow_design,
)
from dsstan.engines.programs import Program
from dsstan.engines.surface_posterior import PosteriorTable, SurfacePosterior
from dsstan.engines.whitening import spline_weights, whitening
from dsstan.models.checks.diagnostics import ess
from dsstan.models.priors import Priors
from dsstan.models.starts import whitened_starts
from mc import assert_same, estimates_of

SURFACE = Program("surface")
SAME_DENSITY = 1e-8  # rounding, of log densities of some hundreds
QUICK = {"engine": "direct", "progress": False}


def stan_data(fit):
    """The data of surface.stan of a fit."""
    held, priors = fit.phi_held, fit.priors
    ranges = priors.phi_bounds if held is None else (held, held), priors.r_bounds
    source = fit.covariance.statistics(fit)
    if fit.covariance.approximate:
        surface, window = narrowed_surface(source, *ranges, cov_model=fit.cov_model)
        priors = replace(priors, phi_bounds=window.phi_bounds, r_bounds=window.r_bounds)
    else:
        surface = interpolate(source, *ranges, first_nodes(fit.cov_model))
    return priors.on_surface(surface)


FITS = {
    "free": {},
    "inverse gamma": {"priors": Priors(variance="inverse-gamma")},
    "tight priors": {"priors": Priors(beta_scale=0.5, sigma=0.1, tau=2.0)},
    "smoother": {"cov_model": "matern32"},
    "vecchia": {"covariance": "vecchia"},
    "short ranges penalised": {"priors": Priors(decay="penalised-complexity")},
    "restricted": {"protection": "paper", "gamma": 5.0},
    "preserving": {"protection": "preserving"},
    "cut": {"protection": "cut"},
}


@pytest.fixture(scope="module", params=FITS)
def fitted(request, small, kept):
    how = dict(FITS[request.param])
    if "protection" in how:
        how["weights"] = kept.weights
        if how["protection"] != "cut":
            how["phi"] = 4.0
    return ds.fit(small, seed=3, **QUICK, **how)


def density_at(posterior, points):
    """Log density of natural parameters: the law without beta, times that of beta given it."""
    found = []
    for point in points:
        phi = point.get("phi", posterior.held)
        r, sigma_sq = point["tau_sq"] / point["sigma_sq"], point["sigma_sq"]
        given, t = posterior.given(np.log([[phi, r]])), np.log([[sigma_sq]])
        mean, precision = (value[0] for value in posterior.gamma_given(given, t))
        gamma = given.basis[0].T @ (point["beta"] / posterior.scale)
        of_beta = stats.norm(mean, precision**-0.5).logpdf(gamma) - np.log(posterior.scale)
        # The law is of logs of phi, r and sigma_sq; phi has no law where it is held.
        logs = np.log(sigma_sq * point["tau_sq"] * point.get("phi", 1.0))
        found.append(float(posterior.over_sigma(given, t)[0, 0] + of_beta.sum() - logs))
    return np.array(found)


@pytest.mark.parametrize("functions", ["own", "even"])
def test_the_density_without_beta_times_that_of_beta_is_stans(fitted, engine, functions):
    data = stan_data(fitted)
    data = {**data, **whitening(PosteriorTable.of(data))} if functions == "own" else even(data)
    points = [
        {name: values[at] for name, values in fitted.draws.items()}
        for at in [(0, 3), (1, 500), (2, 700), (3, 999)]
    ]
    if fitted.phi_held:
        points = [{k: v for k, v in point.items() if k != "phi"} for point in points]
    ours = density_at(SurfacePosterior.of(data), points)
    z, jacobian = zip(*(whitened(data, point) for point in points), strict=True)
    theirs = get_engine(engine).log_density(SURFACE, data, [{"whitened": at} for at in z])
    np.testing.assert_allclose(ours, theirs - np.array(jacobian), rtol=0, atol=SAME_DENSITY)


def test_every_fit_passes_with_independent_draws(fitted):
    assert fitted.verdict.passed, str(fitted.verdict)
    assert fitted.engine == "direct"
    for name in ("sigma_sq", "tau_sq"):
        # 4000 independent draws: the estimate of their effective size has an error of some percent.
        assert ess(fitted.draws[name], "bulk") > 3400
        assert np.unique(fitted.draws[name]).size == fitted.n_draws


def quadrature(problem, priors, points=(40, 110, 120)):
    """Means and quantiles of the log parameters by a dense grid, beta integrated out.

    Independent of the surface: for each decay and ratio the covariance of y with the prior of
    beta in it, X D^2 X' + sigma_sq C, is diagonalised with respect to C.
    """
    d = cdist(problem.coords, problem.coords)
    y = problem.y
    within = (problem.X * np.array(priors.beta_scale)) @ (problem.X * np.array(priors.beta_scale)).T
    phi = np.linspace(*np.log(priors.phi_bounds), points[0])
    r = np.linspace(*np.log(priors.r_bounds), points[1])
    t = np.linspace(-10.0, 6.0, points[2])
    v = np.exp(t)[:, None]
    density = np.empty(points)
    for i, log_phi in enumerate(phi):
        correlated = np.exp(-np.exp(log_phi) * d)
        for j, log_r in enumerate(r):
            C = correlated + np.exp(log_r) * np.eye(len(y))
            values, vectors = eigh(within, C)
            spread = values + v
            z = vectors.T @ y
            log_det = np.linalg.slogdet(C)[1]
            density[i, j] = -0.5 * (log_det + np.log(spread).sum(1) + (z**2 / spread).sum(1))
    tau = np.exp(t[None, None] + r[None, :, None])
    density += -0.5 * (np.exp(t) / priors.sigma[0] ** 2) - 0.5 * tau / priors.tau[0] ** 2
    # Half-normal roots give each variance v^(-1/2); then the change to logs of all three.
    density += phi[:, None, None] + 0.5 * t + 0.5 * (t + r[:, None])
    density[[0, -1]] -= np.log(2)  # the rule of trapezia: the ends of ranges count half
    density[:, [0, -1]] -= np.log(2)
    mass = np.exp(density - logsumexp(density))
    found = {}
    for name, grid in {
        "log_phi": np.broadcast_to(phi[:, None, None], mass.shape),
        "log_r": np.broadcast_to(r[None, :, None], mass.shape),
        "log_sigma_sq": np.broadcast_to(t, mass.shape),
    }.items():
        mean = float(np.sum(mass * grid))
        found[name] = (mean, float(np.sqrt(np.sum(mass * (grid - mean) ** 2))))
    return found


def test_the_draws_have_the_moments_of_a_dense_quadrature(tiny):
    fit = ds.fit(tiny, seed=8, samples=4000, **QUICK)
    exact = quadrature(tiny, fit.priors)
    draws = {
        "log_phi": np.log(fit.draws["phi"]),
        "log_r": np.log(fit.draws["tau_sq"] / fit.draws["sigma_sq"]),
        "log_sigma_sq": np.log(fit.draws["sigma_sq"]),
    }
    for name, (mean, sd) in exact.items():
        values = draws[name].ravel()
        # Five standard errors: a false alarm in a million for each of six comparisons.
        assert abs(values.mean() - mean) < 5 * sd / np.sqrt(values.size), name
        kurtosis = np.mean((values - values.mean()) ** 4) / values.var() ** 2
        error = sd * np.sqrt((kurtosis - 1) / values.size) / 2
        assert abs(values.std() - sd) < 5 * error + 1e-3 * sd, name  # 1e-3: the grid's own


def two_peaks(share):
    """Data of surface.stan whose density has two narrow peaks of known shares, apart in phi."""
    bounds = ((1.0, 100.0), (1e-4, 1e4))
    grid = ChebyshevGrid((64, 112), bounds)
    phi, r = (np.log(p) for p in grid.points)
    x, z = np.meshgrid(phi, r, indexing="ij")
    sd = 0.18
    peaks = np.logaddexp(
        np.log(share) - 0.5 * ((x - 1.2) ** 2 + (z + 2) ** 2) / sd**2,
        np.log(1 - share) - 0.5 * ((x - 3.4) ** 2 + (z - 1) ** 2) / sd**2,
    )
    values = np.zeros((64, 112, 4))
    values[..., 0] = -2 * peaks
    values[..., 1] = values[..., 3] = 1.0
    rotation = Rotation(np.zeros((40, 2)), np.eye(1), np.zeros(1))
    surface = Surface(grid, grid.coefficients(values), rotation, 40, np.inf)
    return {
        **surface.stan_data(),
        "beta_scale": [1.0],
        "variance_prior": 1,
        "sigma_par": [1.0, 1.0],
        "tau_par": [1.0, 1.0],
        "r_lower": 1e-4,
        "r_upper": 1e4,
        "phi_rate": 0.0,
    }


@pytest.mark.parametrize(("share", "tops"), [(0.5, 2), (0.02, 1)])
def test_two_narrow_peaks_are_both_found_with_their_shares(share, tops):
    data = two_peaks(share)
    posterior = SurfacePosterior.of(data)
    axes = [np.linspace(*ends, n) for ends, n in zip(posterior.box, (120, 400), strict=True)]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
    mass = softmax(posterior.marginal(points))
    first = float(mass[points[:, 0] < 2.3].sum())
    assert 0.001 < first < 0.999
    assert PosteriorTable.of(data).modes() == tops  # one of less than a hundredth is no top
    draws = DirectEngine().sample(SURFACE, data, settings=SamplerSettings(), seed=5)
    found = float(np.mean(np.log(draws["phi"]) < 2.3))
    assert abs(found - first) < 5 * np.sqrt(first * (1 - first) / 4000)


def hard_table(kind, seed=1):
    """Simulated tables on which samplers struggle."""
    rng = np.random.default_rng(seed)
    n = {"thirty": 30, "towers": 300}.get(kind, 200)
    places = rng.random((n, 2))
    if kind == "towers":
        places = places[rng.integers(0, 20, n)]
    decay = {"long range": 0.7, "short range": 60.0}.get(kind, 6.0)
    nugget = {"weak nugget": 1e-3, "strong nugget": 20.0}.get(kind, 0.3)
    cov = np.exp(-decay * cdist(places, places)) + nugget * np.eye(n)
    x = rng.normal(size=n)
    y = 3.0 + 0.5 * x + np.linalg.cholesky(cov) @ rng.normal(size=n)
    if kind == "outlier":
        places[-1], y[-1] = (3.0, 3.0), y[-1] + 8.0
    return pd.DataFrame({"east": places[:, 0], "north": places[:, 1], "x": x, "y": y})


KINDS = (
    *("thirty", "towers", "long range", "short range"),
    *("weak nugget", "strong nugget", "outlier"),
)


@pytest.mark.parametrize("kind", KINDS)
def test_hard_tables_pass_and_have_stans_posterior(kind):
    problem = ds.prepare(hard_table(kind), "y ~ x", coords=("east", "north"))
    fit = ds.fit(problem, seed=1, **QUICK)
    assert {check.name for check in fit.verdict.failures} == set(), str(fit.verdict)
    long = ds.fit(problem, engine="embedded", seed=2, samples=2000, progress=False)
    assert_same(estimates_of(logs(fit)), estimates_of(logs(long)))


def logs(fit):
    """The variances and the decay in logs, where quantiles have a density to speak of."""
    return {name: np.log(fit.draws[name]) for name in ("sigma_sq", "tau_sq", "phi")}


def test_no_chain_of_stan_begins_outside_the_ranges_of_phi_and_r(small):
    data = stan_data(ds.fit(small, seed=3, **QUICK))
    functions = whitening(PosteriorTable.of(data))
    nodes = functions["z_nodes"]
    starts = [one["whitened"] for root in range(2000) for one in whitened_starts(2, None, 4, root)]
    z = np.array(starts)
    assert np.abs(z).max() == nodes[-2]  # so far apart that some would have been beyond
    by_r, by_phi = (spline_weights(z[:, k], nodes) for k in (-2, -1))
    places = {
        "phi": by_phi @ functions["log_phi"],
        "r": np.einsum("ij,jk,ik->i", by_phi, functions["log_r"], by_r),
    }
    for name, values in places.items():
        low, high = np.log(data[f"{name}_lower"]), np.log(data[f"{name}_upper"])
        assert low < values.min() < values.max() < high


def test_the_same_seed_gives_the_same_draws_and_another_gives_others(small):
    first, again, other = (ds.fit(small, seed=seed, **QUICK) for seed in (5, 5, 6))
    np.testing.assert_array_equal(first.draws["phi"], again.draws["phi"])
    assert not np.any(first.draws["phi"] == other.draws["phi"])


def test_chains_and_samples_are_those_asked_for(small):
    fit = ds.fit(small, seed=5, chains=2, samples=150, **QUICK)
    assert fit.shape == (2, 150)


def test_another_program_is_refused_before_it_runs(small):
    with pytest.raises(InputError, match=r'engine="cmdstan" or "embedded" for unrestricted.stan'):
        ds.fit(small, program="natural", seed=1, **QUICK)


def test_fifty_levels_of_eighty_records_are_drawn_directly_by_default():
    problem = ds.prepare(case("lev50.csv"), "log(rent) ~ log(area) + lev", coords=("x", "y"))
    fit = ds.fit(problem, seed=1, samples=500, progress=False)
    assert fit.engine == "direct"
    assert fit.verdict.passed


def test_ten_covariates_of_thirty_records_are_fitted():
    formula = " + ".join(["log(rent) ~ log(area)", *(f"c{j}" for j in range(10))])
    problem = ds.prepare(case("n30p10.csv"), formula, coords=("x", "y"))
    fit = ds.fit(problem, seed=1, engine="direct", progress=False)
    assert fit.verdict.passed
    assert get_engine("auto").name == gaussian_engine("auto", "surface", problem.n_terms).name


@pytest.mark.parametrize(
    ("engine", "program", "terms", "slow"),
    [
        ("embedded", "surface", 51, True),
        ("embedded", "surface", 20, False),
        ("embedded", "unrestricted", 51, False),
        ("direct", "surface", 51, False),
    ],
)
def test_stan_on_a_design_of_many_columns_is_said_to_be_slow(engine, program, terms, slow):
    said = slow_design(get_engine(engine), program, terms)
    assert (said is not None) is slow
    assert said is None or ("51 columns" in said and 'engine="direct"' in said)


def test_the_time_of_many_columns_is_told_from_them_and_the_iterations():
    engine = get_engine("embedded")
    told = [
        slow_design(engine, "surface", terms, SamplerSettings(chains=chains))
        for terms, chains in ((30, 4), (51, 4), (51, 8))
    ]
    minutes = [int(re.search(r"about (\d+) min of computing", one).group(1)) for one in told]
    assert minutes == [6, 17, 33]
    assert all("levels with few records pooled" in one for one in told)
