"""The Stan programs: densities, posteriors and draws, on both engines."""

from __future__ import annotations

import itertools
import json
import re

import numpy as np
import pytest
from scipy import special, stats
from whitened import even, whitened

import dsstan as ds
from conftest import scalars
from dsstan.covariance.base import Parameters
from dsstan.covariance.latent import LatentModel
from dsstan.covariance.likelihood_surface import build_surface
from dsstan.engines import SamplerSettings, get_engine
from dsstan.engines.programs import PROGRAMS, REFERENCE_PROGRAMS, Program
from dsstan.models.stan_data import natural_data
from factory import fit_from
from mc import assert_same, assert_same_posterior, mean_of, z_limit

DENSITY = 1e-8
"""Relative, for programs without interpolation; log densities here are near -100."""

PROTECTION_NUMBERS = {"paper": 1, "preserving": 2, "cut": 3}
R_BOUNDS, PHI_BOUNDS, HELD = (1e-4, 1e4), (1.5, 150.0), 5.0
POINTS = [
    {"beta": [5.0, 0.6], "sigma_sq": 1.4, "tau_sq": 0.2, "phi": 4.4},
    {"beta": [4.0, 1.0], "sigma_sq": 0.3, "tau_sq": 2.0, "phi": 30.0},
    {"beta": [6.0, 0.1], "sigma_sq": 20.0, "tau_sq": 0.01, "phi": 1.6},
]
PRIORS = ds.Priors(phi_bounds=PHI_BOUNDS, r_bounds=R_BOUNDS)
RATE = 0.4
SHORT = ds.Priors(
    phi_bounds=PHI_BOUNDS,
    r_bounds=R_BOUNDS,
    decay="penalised-complexity",
    short_range=(1.2, np.exp(-1.0)),  # of rate RATE for the exponential correlation
)


def smoothing_of(problem, kind):
    a = np.ones(problem.n_records)
    flagged = [0, 7, problem.n_records - 1]
    if kind == "infinite":
        a[flagged] = 0.0
    elif kind == "finite":
        a[flagged] = 1 / np.sqrt(1 + 4.0)
    return a


def prior_density(point, priors, held):
    """Log prior of the natural parameters, all constants."""
    total = stats.norm(0, priors.beta_scale).logpdf(point["beta"]).sum()
    for name, (scale, _) in (("sigma_sq", priors.sigma), ("tau_sq", priors.tau)):
        root = np.sqrt(point[name])
        total += stats.halfnorm(scale=scale).logpdf(root) - np.log(2 * root)
    return total if held else total + decay_density(point["phi"], priors.phi_rate)


def decay_density(phi, rate):
    """Log prior of the decay between PHI_BOUNDS."""
    low, width = PHI_BOUNDS[0], PHI_BOUNDS[1] - PHI_BOUNDS[0]
    if rate == 0.0:
        return stats.uniform(low, width).logpdf(phi)
    return stats.truncexpon(width * rate, loc=low, scale=1 / rate).logpdf(phi)


def jacobian(point, held):
    """Log Jacobian of Stan's transforms of sigma_sq, tau_sq and phi."""

    def bounded(x, low, high):
        return np.log(x - low) + np.log(high - x) - np.log(high - low)

    s = point["sigma_sq"]
    total = np.log(s) + bounded(point["tau_sq"], R_BOUNDS[0] * s, R_BOUNDS[1] * s)
    return total if held else total + bounded(point["phi"], *PHI_BOUNDS)


def matern(d, phi, cov_model):
    """By the general formula with a Bessel function, not the closed forms of the package."""
    nu = {"exponential": 0.5, "matern32": 1.5, "matern52": 2.5}[cov_model]
    u = np.where(d == 0, 1.0, phi * d)
    rest = 2 ** (1 - nu) / special.gamma(nu) * u**nu * special.kv(nu, u)
    return np.where(d == 0, 1.0, rest)


def covariance(problem, a, protection, point, phi, cov_model):
    d = np.sqrt(((problem.sites[:, None] - problem.sites[None]) ** 2).sum(-1))
    R = matern(d, phi, cov_model)
    V = point["sigma_sq"] * np.outer(a, a) * R + point["tau_sq"] * np.eye(len(a))
    if protection == "preserving":
        V += np.diag(point["sigma_sq"] * (1 - a**2))
    return V


def likelihood(problem, a, protection, point, phi, cov_model="exponential"):
    rows = np.flatnonzero(a == 1) if protection == "cut" else np.arange(len(a))
    V = covariance(problem, a, protection, point, phi, cov_model)[np.ix_(rows, rows)]
    mean = problem.X[rows] @ np.array(point["beta"])
    return stats.multivariate_normal(mean, V).logpdf(problem.y[rows])


def surface_of(problem, a, protection, held, cov_model="exponential"):
    rows = np.flatnonzero(a == 1) if protection == "cut" else np.arange(len(a))
    sites = problem.sites[rows]
    return build_surface(
        np.sqrt(((sites[:, None] - sites[None]) ** 2).sum(-1)),
        problem.X[rows],
        problem.y[rows],
        a_diag=a[rows],
        protection=protection,
        phi_bounds=(HELD, HELD) if held else PHI_BOUNDS,
        r_bounds=R_BOUNDS,
        cov_model=cov_model,
    )


CASES = [
    ("unrestricted", "none", "none"),
    ("surface", "none", "none"),
    *[
        (name, protection, gamma)
        for name in ("restricted", "surface", "reference/cholesky")
        for protection in PROTECTION_NUMBERS
        for gamma in ("infinite", "finite")
    ],
]


@pytest.mark.parametrize(("name", "protection", "gamma"), CASES)
def test_log_density_is_the_closed_form_on_both_engines(engine, small, name, protection, gamma):
    hold_log_density(engine, small, name, protection, gamma, "exponential")


@pytest.mark.parametrize("cov_model", ["matern32", "matern52"])
@pytest.mark.parametrize(
    ("name", "protection", "gamma"),
    [case for case in CASES if case[1] != "cut" and case[2] != "infinite"],
)
def test_log_density_with_other_correlations(engine, small, name, protection, gamma, cov_model):
    hold_log_density(engine, small, name, protection, gamma, cov_model)


@pytest.mark.parametrize("name", ["unrestricted", "surface"])
def test_log_density_under_the_penalised_complexity_prior(engine, small, name):
    assert SHORT.resolve(small.y, small.X, small.d_max).phi_rate == pytest.approx(RATE)
    hold_log_density(engine, small, name, "none", "none", "exponential", SHORT)


@pytest.mark.parametrize("name", ["multivariate", "bracketed", "adaptive"])
def test_the_prior_of_the_decay_alone_tells_two_rates_apart(name):
    path = Program(name).folder / "data" / f"{name}.json"
    data = json.loads(path.read_text()) | {"phi_lower": PHI_BOUNDS[0], "phi_upper": PHI_BOUNDS[1]}
    if name == "adaptive":
        data |= {"n_check": 0, "check_phi": [], "check_r": []}
    point = {"beta": [2.0, 0.5], "sigma_sq": 1.0, "tau_sq": 0.1}
    if name == "multivariate":
        point = {"root": [1.0, 1.2], "angle": [1.2, 1.1], "L": [[1.0, 0.0], [0.6, 0.8]]}
    if name == "bracketed":
        point["z"] = [0.1] * data["n_sites"]
    decays = (2.0, 9.0)
    key = "phi" if name == "adaptive" else "phi_free"
    points = [{**point, key: phi if key == "phi" else [phi]} for phi in decays]
    found = [
        get_engine("embedded").log_density(Program(name), data | {"phi_rate": rate}, points)
        for rate in (0.0, RATE)
    ]
    wanted = [decay_density(phi, RATE) - decay_density(phi, 0.0) for phi in decays]
    np.testing.assert_allclose(found[1] - found[0], wanted, rtol=0, atol=DENSITY)


def hold_log_density(engine, small, name, protection, gamma, cov_model, priors=PRIORS):
    a = smoothing_of(small, gamma)
    held = name == "restricted" or (name == "surface" and protection != "none")
    priors = priors.resolve(small.y, small.X, small.d_max)
    surface = surface_of(small, a, protection, held, cov_model)
    more = {"cov_model": cov_model}
    phi_held = HELD if held else None
    if name == "surface":
        data = even(priors.on_surface(surface))
    elif name == "reference/cholesky":
        data = {
            **natural_data(small, a, protection, HELD, priors, surface, **more),
            "phi_lower": PHI_BOUNDS[0],
            "phi_upper": PHI_BOUNDS[1],
        }
    else:
        data = natural_data(small, a, protection, phi_held, priors, surface, **more)
    points = []
    for point in POINTS:
        given = {k: v for k, v in point.items() if k != "phi"}
        if not held:
            given["phi"] = point["phi"]
        points.append(given)
    jacobians = [jacobian(point, held) for point in POINTS]
    if name == "surface":
        coordinates = [whitened(data, point) for point in points]
        points = [{"whitened": z} for z, _ in coordinates]
        jacobians = [log_jacobian for _, log_jacobian in coordinates]
    got = get_engine(engine).log_density(Program(name), data, points) - np.array(jacobians)
    exact = name.startswith("reference")
    for value, point in zip(got, POINTS, strict=True):
        phi = HELD if held else point["phi"]
        if exact:
            response = likelihood(small, a, protection, point, phi, cov_model)
            tolerance = DENSITY * abs(response)
        else:
            # The interpolant is the same polynomial in NumPy: what remains is rounding.
            response = surface.log_density(
                np.array(point["beta"]), point["sigma_sq"], point["tau_sq"], phi
            )
            tolerance = DENSITY * max(100.0, abs(response))
            assert response == pytest.approx(
                likelihood(small, a, protection, point, phi, cov_model), rel=1e-6, abs=1e-4
            )
        want = response + prior_density(point, priors, held)
        assert value == pytest.approx(want, abs=tolerance)


def test_every_program_is_known_and_formatted_within_eighty_columns():
    folder = Program("restricted").folder
    files = sorted(folder.rglob("*.stan"))
    whole = [path for path in files if path.parent.name != "shared"]
    names = {str(path.relative_to(folder).with_suffix("")) for path in whole}
    assert names == {*PROGRAMS, *REFERENCE_PROGRAMS}
    for path in (*files, *folder.rglob("*.stanfunctions")):
        assert max(len(line) for line in path.read_text().splitlines()) <= 80, path.name


def test_every_shared_file_is_included_by_a_program_and_includes_none():
    folder = Program("restricted").folder
    shared = {*folder.glob("shared/*"), *folder.glob("functions/*")}
    used = {name for each in (*PROGRAMS, *REFERENCE_PROGRAMS) for name in Program(each).includes}
    assert {path.relative_to(folder).as_posix() for path in shared} == used
    assert not [path.name for path in shared if "#include" in path.read_text()]


def test_every_switch_in_the_data_has_its_reason_above_it():
    folder = Program("restricted").folder
    names = "cov_model|protection|variance_prior|draw_latent"
    found = 0
    for path in folder.rglob("*.stan"):
        lines = path.read_text().splitlines()
        for before, line in itertools.pairwise(lines):
            if re.match(rf"\s*int<.*> ({names});", line):
                assert before.strip().startswith("// A switch because "), (path.name, line)
                found += 1
            else:
                # Any other whole number with few values is a switch without a reason.
                assert not re.match(r"\s*int<lower=\d, upper=\d> ", line), (path.name, line)
    assert found > len(PROGRAMS)


@pytest.mark.parametrize("protection", [None, "paper", "preserving", "cut"])
def test_both_engines_and_both_programs_give_the_same_posterior(
    small, free, kept, sampling_engine, protection
):
    runs = {}
    for engine, program in dict.fromkeys(
        [
            ("embedded", "natural"),
            ("embedded", "auto"),
            (sampling_engine, "natural"),
            (sampling_engine, "surface"),
            ("direct", "surface"),
        ]
    ):
        common = {"engine": engine, "program": program, "seed": 5, "progress": False}
        if protection is None:
            fit = ds.fit(small, samples=2000, **common)
        else:
            # The natural program holds phi, which is free under "cut" unless it is given.
            fit = ds.fit(
                small,
                weights=kept.weights,
                protection=protection,
                start=free,
                phi=kept.phi_held,
                samples=2000,
                **common,
            )
        assert fit.verdict.passed, str(fit.verdict)
        assert fit.engine == engine
        runs[engine, program] = scalars(fit)
    first = runs.pop(("embedded", "natural"))
    for other in runs.values():
        assert_same_posterior(first, other)


def reference_data(problem, a, phi):
    priors = FIRM.resolve(problem.y, problem.X, problem.d_max)
    data = {
        "N": problem.n_records,
        "P": problem.n_terms,
        "n_sites": problem.n_sites,
        "X": problem.X,
        "y": problem.y,
        "coords": problem.unique_sites,
        "site": problem.site_index + 1,
        "cov_model": 1,
        **priors.stan_data(),
    }
    if phi is None:
        return {**data, "phi_lower": PHI_BOUNDS[0], "phi_upper": PHI_BOUNDS[1]}
    return {**data, "A": a, "phi": phi}


# Priors that keep the variances off zero, where the centred latent form mixes badly.
FIRM = ds.Priors(
    variance="inverse-gamma",
    sigma=(6.0, 7.0),
    tau=(6.0, 1.5),
    phi_bounds=PHI_BOUNDS,
    r_bounds=R_BOUNDS,
)


@pytest.mark.parametrize("gamma", ["unrestricted", "infinite", "finite"])
def test_marginal_and_latent_forms_agree(sampling_engine, tiny, gamma):
    small = tiny
    held = None if gamma == "unrestricted" else HELD
    a = smoothing_of(small, gamma)
    name = "reference/hier" if held is None else "reference/restrict"
    start = {"beta": [5.0, 0.7], "sigma_sq": 1.5, "tau_sq": 0.3, "w": np.zeros(small.n_sites)}
    if held is None:
        start["phi"] = 4.0
    settings = SamplerSettings(chains=4, warmup=500, samples=1500, metric="diag_e", adapt_delta=0.9)
    drawn = get_engine(sampling_engine).sample(
        Program(name),
        reference_data(small, a, held),
        settings=settings,
        seed=31,
        inits=[start] * 4,
    )
    if held is None:
        fit = ds.fit(small, priors=FIRM, seed=6, engine="embedded", progress=False)
    else:
        weights = ds.own_weights(small, (a < 1).astype(float))
        fit = ds.fit(
            small,
            weights=weights,
            gamma=np.inf if gamma == "infinite" else 4.0,
            phi=HELD,
            priors=FIRM,
            seed=6,
            engine="embedded",
            progress=False,
        )
    latent = {f"beta_{j}": drawn["beta"][:, :, j] for j in range(2)}
    latent |= {k: drawn[k] for k in ("sigma_sq", "tau_sq")}
    if held is None:
        latent["phi"] = drawn["phi"]
    marginal = scalars(fit)
    model = LatentModel(fit)
    # w at a far flagged record, at a site two records share, and at an ordinary one.
    records = [small.n_records - 1, 0, 20]
    ours = _latent_draws(fit, model)
    for record in records:
        latent[f"w_{record}"] = drawn["w"][:, :, small.site_index[record]]
        marginal[f"w_{record}"] = ours[:, :, record]
    assert_same_posterior(latent, marginal)


def _latent_draws(fit, model):
    """One draw of w for each fourth posterior draw, shape (chains, samples / 4, N)."""
    rng = np.random.default_rng(8)
    beta, sigma_sq, tau_sq, phi = (
        fit.draws[k][:, ::4] for k in ("beta", "sigma_sq", "tau_sq", "phi")
    )
    out = np.empty((*sigma_sq.shape, fit.problem.n_records))
    for index in np.ndindex(*sigma_sq.shape):
        p = Parameters(beta[index], float(sigma_sq[index]), float(tau_sq[index]), float(phi[index]))
        out[index] = model.draw(p, rng)
    return out


def test_gamma_zero_reproduces_the_unrestricted_posterior(small, free, kept):
    zero = ds.fit(
        small,
        weights=kept.weights,
        gamma=0.0,
        hold_phi=False,
        start=free,
        seed=9,
        samples=2000,
        engine="embedded",
        progress=False,
    )
    assert np.all(zero.A == 1)
    assert_same_posterior(scalars(free), scalars(zero))


@pytest.mark.parametrize("protection", ["paper", "preserving"])
def test_a_huge_gamma_and_an_infinite_one_give_the_same_fit(small, free, kept, protection):
    common = {
        "weights": kept.weights,
        "protection": protection,
        "start": free,
        "samples": 2000,
        "engine": "embedded",
        "progress": False,
    }
    huge = ds.fit(small, gamma=1e8, seed=10, **common)
    infinite = ds.fit(small, gamma=np.inf, seed=11, **common)
    assert np.all(huge.A[kept.flagged] > 0)
    assert np.all(infinite.A[kept.flagged] == 0)
    assert_same_posterior(scalars(huge), scalars(infinite))


@pytest.mark.parametrize("protection", ["none", "paper", "preserving", "cut"])
@pytest.mark.parametrize("gamma", ["infinite", "finite"])
def test_draws_of_w_and_y_inside_stan_follow_the_closed_form(small, protection, gamma):
    """Standardised draws of w are normal scores: mean 0 and variance 1 at every record."""
    if protection == "none" and gamma == "finite":
        pytest.skip("the unrestricted program has no gamma")
    a = smoothing_of(small, "none" if protection == "none" else gamma)
    held = None if protection == "none" else HELD
    fit = _fit_of(small, a, protection, gamma)
    priors = fit.priors
    surface = surface_of(small, a, protection, held is not None)
    data = natural_data(small, a, protection, held, priors, surface, draw_latent=True)
    init = {"beta": [5.0, 0.7], "sigma_sq": 1.5, "tau_sq": 0.3}
    if held is None:
        init["phi"] = 4.0
    drawn = get_engine("embedded").sample(
        Program("unrestricted" if held is None else "restricted"),
        data,
        settings=SamplerSettings(chains=2, warmup=500, samples=1000),
        seed=77,
        inits=[init] * 2,
    )
    model = LatentModel(fit)
    carried, _ = ds.predictive.carried_effect(fit)
    scores, noise = [], []
    for c in range(2):
        for i in range(0, 1000, 8):
            p = Parameters(
                drawn["beta"][c, i],
                float(drawn["sigma_sq"][c, i]),
                float(drawn["tau_sq"][c, i]),
                HELD if held else float(drawn["phi"][c, i]),
            )
            w = drawn["w"][c, i]
            sd = np.sqrt(np.diag(model.covariance(p)))
            scores.append((w - model.mean(p)) / sd)
            mean = small.X @ p.beta + carried * w
            noise.append((drawn["y_synthetic"][c, i] - mean) / np.sqrt(p.tau_sq))
    for z in (np.array(scores), np.array(noise)):
        n = len(z)
        limit = z_limit(2 * small.n_records)
        assert np.all(np.abs(z.mean(axis=0)) < limit / np.sqrt(n))
        assert np.all(np.abs(z.var(axis=0) - 1) < limit * np.sqrt(2.0 / n) * 1.3)


def _fit_of(problem, a, protection, gamma):
    """A fit of one draw that carries A, the protection and the priors."""
    draws = {"beta": [[[5.0, 0.7]]], "sigma_sq": [[1.5]], "tau_sq": [[0.3]], "phi": [[HELD]]}
    priors = PRIORS.resolve(problem.y, problem.X, problem.d_max)
    if protection == "none":
        return fit_from(problem, draws, priors=priors)
    return fit_from(
        problem,
        draws,
        weights=ds.own_weights(problem, (a < 1).astype(float)),
        gamma=np.inf if gamma == "infinite" else 4.0,
        protection=protection,
        phi_held=HELD,
        priors=priors,
    )


@pytest.mark.parametrize("protection", [1, 2, 3])
def test_draws_of_several_groups_inside_stan_follow_the_closed_form(tiny, protection):
    """Standardised draws of the coefficients are normal scores."""
    X, y, n = tiny.X, tiny.y, tiny.n_records
    group = np.arange(n) % 2
    a = np.ones(n)
    a[[n - 1, 3]] = 0.0, 0.5
    prior = np.kron(np.ones((2, 2)), np.diag([400.0, 25.0])) + np.kron(np.eye(2), np.eye(2))
    data = {
        "N": n,
        "P": 2,
        "n_groups": 2,
        "X": X,
        "y": y,
        "coords": tiny.sites,
        "group": group + 1,
        "A": a,
        "protection": protection,
        "cov_model": 1,
        "phi_lower": HELD,
        "phi_upper": HELD,
        "phi_rate": 0.0,
        **PRIORS.resolve(y, X, tiny.d_max).stan_data(),
        "beta_scale": [20.0, 5.0],
        "group_scale": [1.0, 1.0],
        "lkj_eta": 2.0,
    }
    start = {"root": [1.0, 1.0], "angle": [1.0, 1.0], "L": np.eye(2), "phi_free": []}
    drawn = get_engine("embedded").sample(
        Program("multivariate"),
        data,
        settings=SamplerSettings(chains=2, warmup=300, samples=400),
        seed=78,
        inits=[start] * 2,
    )
    rows = np.flatnonzero(a == 1) if protection == 3 else np.arange(n)
    R = np.exp(-HELD * np.sqrt(((tiny.sites[:, None] - tiny.sites[None]) ** 2).sum(-1)))
    Z = np.hstack([X * (group == k)[:, None] for k in (0, 1)])
    scores = []
    for c, i in [(c, i) for c in range(2) for i in range(0, 400, 4)]:
        T = drawn["T"][c, i].reshape(2, 2)
        tau_sq, beta = (drawn[name][c, i] for name in ("tau_sq", "beta"))
        K = T[np.ix_(group, group)] * R
        noise = tau_sq[group] + (protection == 2) * np.diag(T)[group] * (1 - a**2)
        V = (np.outer(a, a) * K + np.diag(noise))[np.ix_(rows, rows)]
        precision = np.linalg.inv(prior) + Z[rows].T @ np.linalg.solve(V, Z[rows])
        mean = np.linalg.solve(precision, Z[rows].T @ np.linalg.solve(V, y[rows]))
        scores.append(np.linalg.cholesky(precision).T @ (beta - mean))
    z = np.array(scores)
    limit = z_limit(2 * 4)
    assert np.all(np.abs(z.mean(axis=0)) < limit / np.sqrt(len(z)))
    assert np.all(np.abs(z.var(axis=0) - 1) < limit * np.sqrt(2.0 / len(z)) * 1.3)


def test_stan_reports_the_surface_error_it_has(small, kept):
    brief = {"warmup": 200, "samples": 200, "engine": "embedded", "progress": False, "seed": 1}
    for kind, protection in (
        ("unrestricted", {}),
        ("restricted", {"weights": kept.weights, "phi": kept.phi_held}),
    ):
        fit = ds.fit(small, program="natural", **protection, **brief)
        assert fit.program == kind
        assert 0 < fit.surface_error < 1e-4


def test_monte_carlo_comparison_can_fail(free):
    moved = {k: d + 0.2 * d.std() for k, d in scalars(free).items()}
    with pytest.raises(AssertionError, match="standard errors"):
        assert_same_posterior(scalars(free), moved)
    with pytest.raises(AssertionError):
        assert_same({"m": mean_of(free.draws["phi"])}, {"m": 1e9})
