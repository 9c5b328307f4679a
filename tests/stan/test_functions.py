"""Every function of ``stan/functions`` called with numbers and held against NumPy."""

from __future__ import annotations

import re
from functools import cache

import numpy as np
import pytest
from scipy import interpolate, special, stats
from scipy.spatial.distance import cdist

from dsstan.core.resources import stan_folder
from dsstan.covariance import likelihood_surface as py
from dsstan.covariance.correlation import CORRELATIONS, correlation
from dsstan.engines.whitening import spline_weights
from dsstan.models.adaptive.rules import AdaptiveRule
from dsstan.models.adaptive.surface import Setting, build_adaptive_surface

stanli = pytest.importorskip("stanli")

CLOSE = 1e-8
INCLUDES = (
    "covariance",
    "chebyshev",
    "surface",
    "whitening",
    "adaptive",
    "priors",
    "decay",
    "copies",
    "brackets",
    "groups",
    "counts",
)
SOURCE = (
    "functions {\n"
    + "".join(f"  #include functions/{name}.stanfunctions\n" for name in INCLUDES)
    + "}\nmodel {}\n"
)


@cache
def program(extra: str = "") -> str:
    return stanli.stan_to_mir(
        SOURCE.replace("}\nmodel", extra + "}\nmodel"), include_paths=[str(stan_folder())]
    )


def call(name, /, **arguments):
    return stanli.Function(name, mir=program())(**arguments)


@pytest.fixture
def rng():
    return np.random.default_rng(3)


@pytest.fixture
def places(rng):
    s = rng.uniform(size=(12, 2))
    s[1] = s[0]
    return s


def test_every_function_is_called_by_a_test_in_this_file():
    names = set()
    for path in (stan_folder() / "functions").glob("*.stanfunctions"):
        text = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.S)
        names |= set(re.findall(r"^[a-z][a-z_\[\], ]* ([a-z_]+)\(", text, flags=re.M))
    with open(__file__, encoding="utf-8") as stream:
        here = stream.read()
    assert len(names) >= 18
    assert not {n for n in names if f'"{n}"' not in here}


def test_distances(places):
    got = call("distances", s=places, t=places[:5])
    np.testing.assert_allclose(got, cdist(places, places[:5]), atol=1e-15)
    assert got[1, 0] == 0


def test_exponential_correlation(places):
    d = cdist(places, places)
    np.testing.assert_allclose(
        call("exponential_correlation", d=d, phi=3.5), np.exp(-3.5 * d), rtol=1e-14
    )


def test_informing_records_are_all_but_the_flagged_under_cut():
    a = np.array([1.0, 0.0, 1.0, 0.7, 1.0])
    assert list(call("informing_records", a_diag=a, protection=1)) == [1, 2, 3, 4, 5]
    assert list(call("informing_records", a_diag=a, protection=2)) == [1, 2, 3, 4, 5]
    assert list(call("informing_records", a_diag=a, protection=3)) == [1, 3, 5]


@pytest.mark.parametrize(("number", "name"), [(1, "paper"), (2, "preserving")])
@pytest.mark.parametrize("kind", [1, 2, 3])
def test_smoothed_correlation(places, rng, number, name, kind):
    d, a = cdist(places, places), rng.uniform(size=12)
    a[:2] = 0, 1
    got = call("smoothed_correlation", d=d, phi=2.0, a_diag=a, protection=number, kind=kind)
    R = call("spatial_correlation", d=d, phi=2.0, kind=kind)
    want = np.diag(a) @ R @ np.diag(a) + (name == "preserving") * np.diag(1 - a**2)
    np.testing.assert_allclose(got, want, atol=1e-15)


def test_chebyshev_functions():
    np.testing.assert_allclose(
        call("chebyshev_nodes", n=7), np.polynomial.chebyshev.chebpts1(7), atol=1e-15
    )
    np.testing.assert_allclose(
        call("chebyshev_polynomials", x=0.3, n=6), np.cos(np.arange(6) * np.arccos(0.3)), atol=1e-14
    )
    x = np.polynomial.chebyshev.chebpts1(5)
    want = np.polynomial.chebyshev.chebfit(x, np.exp(x), 4)
    np.testing.assert_allclose(call("chebyshev_map", n=5) @ np.exp(x), want, atol=1e-13)


def test_log_position_and_its_inverse():
    assert call("log_position", v=1.0, lo=0.01, hi=100.0) == pytest.approx(0.0, abs=1e-15)
    assert call("log_position", v=2.0, lo=2.0, hi=2.0) == 0.0
    assert call("log_position_inv", x=0.5, lo=0.01, hi=100.0) == pytest.approx(10.0)


def test_least_squares_pieces(rng):
    X = np.column_stack([np.ones(30), rng.normal(50, 2, 30)])
    y = rng.normal(size=30) + X @ [1.0, 2.0]
    factor = call("design_factor", x=X)
    np.testing.assert_allclose(factor.T @ factor, X.T @ X, rtol=1e-11)
    assert factor[1, 0] == 0
    b = call("least_squares", x=X, factor=factor, y=y)
    np.testing.assert_allclose(b, np.linalg.lstsq(X, y, rcond=None)[0], rtol=CLOSE)
    z = call("rotated_data", x=X, factor=factor, b=b, y=y)
    np.testing.assert_allclose(z[:, :2].T @ z[:, :2], np.eye(2), atol=1e-12)
    np.testing.assert_allclose(z[:, 2], y - X @ b, atol=1e-10)


def test_surface_size_counts_a_log_determinant_and_a_triangle():
    assert [call("surface_size", p=p) for p in (1, 2, 5)] == [4, 7, 22]


def test_node_statistics_and_the_density_made_from_them(places, rng):
    a = rng.uniform(size=12)
    m = py.smoothed_correlation(cdist(places, places), 3.0, a, "paper")
    z, r = rng.normal(size=(12, 3)), np.array([1e-3, 0.4, 50.0])
    got = call("node_statistics", m=m, z=z, r=r)
    for h in range(3):
        C = m + r[h] * np.eye(12)
        full = (1 + r[h]) * z.T @ np.linalg.solve(C, z)
        want = [np.linalg.slogdet(C)[1] - 12 * np.log1p(r[h]), *full[np.tril_indices(3)]]
        np.testing.assert_allclose(got[h], want, rtol=CLOSE, atol=CLOSE)
    u = np.array([0.3, -1.2])
    ours = call("response_lpdf", s=got[1], u=u, n=12, sigma_sq=1.8, r=0.4)
    V = 1.8 * (m + 0.4 * np.eye(12))
    theirs = stats.multivariate_normal(-z[:, :2] @ u, V).logpdf(z[:, 2])
    assert ours == pytest.approx(theirs, rel=CLOSE)


@pytest.mark.parametrize(("protection", "kind"), [(1, 1), (2, 1), (1, 2), (2, 3)])
def test_the_surface_built_in_stan_is_the_one_built_by_lapack(places, rng, protection, kind):
    d, a = cdist(places, places), np.where(np.arange(12) < 2, 0.0, 1.0)
    X = np.column_stack([np.ones(12), rng.normal(size=12)])
    y = rng.normal(size=12)
    name = {1: "paper", 2: "preserving"}[protection]
    ours = py.build_surface(
        d,
        X,
        y,
        a_diag=a,
        protection=name,
        phi_bounds=(2.0, 90.0),
        r_bounds=(1e-4, 1e4),
        cov_model=CORRELATIONS[kind - 1],
    )
    g, h = ours.nodes
    common = {"d": d, "a_diag": a, "protection": protection, "kind": kind, "z": ours.rotation.Z}
    ranges = {"phi_range": [2.0, 90.0], "r_range": [1e-4, 1e4]}
    theirs = call("surface_coefficients", **common, g_nodes=g, h_nodes=h, **ranges)
    data = ours.stan_data()
    np.testing.assert_allclose(theirs, data["surface"][:, : theirs.shape[1]], atol=1e-7)
    assert data["H_above"] == 1  # nothing is added beyond the only panel
    assert not data["surface"][:, theirs.shape[1] :].any()
    at = call("surface_at", coefficients=theirs, h_nodes=h, phi=7.7, r=0.03, **ranges)
    np.testing.assert_allclose(at, ours.at(7.7, 0.03), rtol=CLOSE, atol=CLOSE)
    error = call(
        "surface_error_at",
        coefficients=theirs,
        h_nodes=h,
        phi=3.3,
        check_r=np.array([0.02, 900.0]),
        **ranges,
        **common,
    )
    assert 0 < error < 1e-4
    shifted = theirs.copy()
    shifted[0, 0] += 1.0
    worse = call(
        "surface_error_at",
        coefficients=shifted,
        h_nodes=h,
        phi=3.3,
        check_r=np.array([0.02]),
        **ranges,
        **common,
    )
    assert worse == pytest.approx(0.5, abs=1e-3)


def test_interpolation_error_is_the_difference_of_two_log_densities(rng):
    z = rng.normal(size=(9, 3))
    exact = np.array([3.0, *(z.T @ z)[np.tril_indices(3)]])
    near = exact.copy()
    near[0] += 0.25  # of log|C|, which counts by half
    got = call("interpolation_error", near=near, exact=exact, n=9, r=0.4)
    assert got == pytest.approx(0.125, rel=CLOSE)


@pytest.mark.parametrize("rule", [AdaptiveRule(), AdaptiveRule("alpha", alpha=0.2)])
@pytest.mark.parametrize("kind", [1, 2, 3])
def test_the_adaptive_surface_in_stan_is_the_one_built_by_lapack(places, rng, rule, kind):
    name, nearest = CORRELATIONS[kind - 1], np.sort(cdist(places, places), axis=1)[:, 1]
    of = {"kink": rule.kink, "kind": kind}
    A = call("adaptive_diagonal", nearest=nearest, phi=3.0, r=0.2, **of)
    np.testing.assert_allclose(A, rule.diagonal(nearest, 3.0, 0.2, name), rtol=CLOSE)
    assert call("adaptive_diagonal", nearest=0 * nearest, phi=3.0, r=0.2, **of)[0] == 1
    d = cdist(places, places)
    X, y = np.column_stack([np.ones(12), rng.normal(size=12)]), rng.normal(size=12)
    setting = Setting(d, nearest, rule, "preserving", name)
    ours = build_adaptive_surface(
        setting, X, y, phi_bounds=(2.0, 9.0), r_bounds=(1e-4, 1e4), nodes=(12, 28), tolerance=1.0
    )
    z = ours.rotation.Z
    of |= {"d": d, "nearest": nearest, "protection": 2, "z": z}
    r = np.array([0.01, 0.7])
    np.testing.assert_allclose(
        call("adaptive_statistics", phi=3.0, r=r, **of), setting.statistics(z, 3.0, r), atol=CLOSE
    )
    below, above = (
        call(
            "adaptive_coefficients",
            **of,
            g_nodes=12,
            h_nodes=28,
            phi_range=[2.0, 9.0],
            r_range=list(panel.r_bounds),
        )
        for panel in ours.panels
    )
    panels = {"below": below, "h_below": 28, "h_above": 28}
    added = call("added_above", above=above, **panels)
    data = ours.stan_data()
    np.testing.assert_allclose(np.hstack([below, added]), data["surface"], atol=1e-7)
    ends = [1e-4, data["r_split"], 1e4]
    for ratio in (0.02, rule.kink, 30.0):
        at = call(
            "panels_at",
            above=added,
            phi=5.0,
            r=ratio,
            phi_range=[2.0, 9.0],
            r_ends=ends,
            **panels,
        )
        np.testing.assert_allclose(at, ours.at(5.0, ratio), rtol=1e-7, atol=1e-7)
        exact = setting.statistics(z, 5.0, np.array([ratio]))[0]
        np.testing.assert_allclose(at, exact, atol=1e-4)  # what 12 nodes in phi leave


@pytest.mark.parametrize("z", [-7.3, -4.0, -3.2, 0.0, 0.4, 2.99, 4.5])
def test_spline_weights_are_b_splines_inside_and_a_line_beyond(rng, z):
    nodes, coefficients = np.linspace(-4, 4, 9), rng.normal(size=9)
    weights, slopes = call("spline_weights", z=z, nodes=nodes)
    # Uniform cubic B-splines: one coefficient a node, three knots more on each side.
    spline = interpolate.BSpline(np.linspace(-6, 6, 13), coefficients, 3)
    inside = np.clip(z, -3, 3)
    slope = spline(inside, 1)
    assert weights @ coefficients == pytest.approx(spline(inside) + slope * (z - inside))
    assert slopes @ coefficients == pytest.approx(slope)
    np.testing.assert_allclose(spline_weights(np.array([z]), nodes)[0], weights, atol=1e-14)


@pytest.mark.parametrize("held", [False, True])
def test_spatial_parameters_and_their_derivatives(rng, held):
    nodes = np.linspace(-4.0, 4.0, 7)
    rows = 1 if held else 7
    maps = {
        "log_phi": np.sort(rng.normal(size=rows)),
        "log_r": np.sort(rng.normal(size=(rows, 7)), axis=1),
        "log_sigma_sq": rng.normal(size=(rows, 7)),
        "log_scale": rng.normal(size=(rows, 7)),
    }
    z = np.array([0.7, -1.3, 0.4])[: 2 if held else 3]

    def natural(at):
        """log phi, log tau_sq and log sigma_sq by splines of one axis after the other."""
        phi, r, v, _ = call("spatial_parameters", z=at, nodes=nodes, **maps)
        return np.log([phi, r * v, v])[1 if held else 0 :]

    col = spline_weights(z[1:2], nodes)[0]
    row = np.ones(1) if held else spline_weights(z[2:], nodes)[0]
    phi, r, v, jacobian = call("spatial_parameters", z=z, nodes=nodes, **maps)
    assert np.log(phi) == pytest.approx(row @ maps["log_phi"])
    assert np.log(r) == pytest.approx(row @ maps["log_r"] @ col)
    mode, scale = row @ maps["log_sigma_sq"] @ col, row @ maps["log_scale"] @ col
    assert np.log(v) == pytest.approx(mode + np.exp(scale) * z[0])
    step = 1e-5 * np.eye(z.size)
    derivatives = np.array([(natural(z + h) - natural(z - h)) / 2e-5 for h in step])
    at = r * v * v * (1 if held else phi)
    assert jacobian == pytest.approx(np.log(abs(np.linalg.det(derivatives)) * at), abs=1e-6)


def test_coefficients_given_have_the_posterior_of_a_regression(rng):
    n, p, r, v = 15, 3, 0.4, 1.7
    X, y = rng.normal(size=(n, p)), rng.normal(size=n)
    C = np.cov(rng.normal(size=(n, 60))) + r * np.eye(n)
    scale = np.array([0.5, 2.0, 30.0])
    rotation = py.rotate(X, y)
    s = np.array(
        [0.0, *((1 + r) * rotation.Z.T @ np.linalg.solve(C, rotation.Z))[np.tril_indices(4)]]
    )
    common = {"s": s, "r": r, "sigma_sq": v, "factor": rotation.T, "b_ls": rotation.b}
    at = lambda z: call("coefficients_given", z=z, beta_scale=scale, **common)  # noqa: E731
    precision = X.T @ np.linalg.solve(v * C, X) + np.diag(1 / scale**2)
    centre = at(np.zeros(p))
    mean = np.linalg.solve(precision, X.T @ np.linalg.solve(v * C, y))
    np.testing.assert_allclose(centre[:p], mean, rtol=CLOSE)
    factor = np.column_stack([at(e)[:p] - mean for e in np.eye(p)])
    np.testing.assert_allclose(factor @ factor.T, np.linalg.inv(precision), rtol=1e-7)
    assert centre[p] == pytest.approx(-0.5 * np.linalg.slogdet(precision)[1], rel=CLOSE)


def test_variance_priors():
    v = 0.8
    root = np.sqrt(v)
    half = np.log(2) + stats.norm(0, 1.3).logpdf(root) - np.log(2 * root)
    assert call("variance_lpdf", v=v, kind=1, par=[1.3, 1.0]) == pytest.approx(half, rel=1e-13)
    inverse = stats.invgamma(2.5, scale=0.7).logpdf(v)
    assert call("variance_lpdf", v=v, kind=2, par=[2.5, 0.7]) == pytest.approx(inverse, rel=1e-13)


@pytest.mark.parametrize("phi", [2.0, 7.3, 90.0])
def test_decay_priors(phi):
    ends = {"phi": phi, "low": 2.0, "high": 90.0}
    uniform = stats.uniform(2.0, 88.0).logpdf(phi)
    assert call("decay_lpdf", rate=0.0, **ends) == pytest.approx(uniform, rel=1e-13)
    for rate in (1e-3, 0.2, 3.0):
        cut = stats.truncexpon(88.0 * rate, loc=2.0, scale=1 / rate).logpdf(phi)
        assert call("decay_lpdf", rate=rate, **ends) == pytest.approx(cut, rel=CLOSE)


def test_eigen_system_reproduces_a_singular_correlation(places):
    R = np.exp(-2 * cdist(places, places))
    system = call("eigen_system", m=R)
    q, values = system[:12], system[12]
    assert np.all(values >= 0)
    np.testing.assert_allclose(q * values @ q.T, R, atol=1e-12)


@pytest.mark.parametrize(("kind", "nu"), [(1, 0.5), (2, 1.5), (3, 2.5)])
def test_spatial_correlation_is_matern_s(places, kind, nu):
    d = cdist(places, places)
    u = np.where(d == 0, 1.0, 3.0 * d)
    bessel = 2 ** (1 - nu) / special.gamma(nu) * u**nu * special.kv(nu, u)
    found = call("spatial_correlation", d=d, phi=3.0, kind=kind)
    assert np.allclose(found, np.where(d == 0, 1.0, bessel), atol=CLOSE)


def test_carried_effect_is_w_star_only_where_smoothing_is_partial_under_paper():
    w, a = np.array([1.0, 2.0, 3.0]), np.array([1.0, 0.0, 0.5])
    assert list(call("carried_effect", w=w, a_diag=a, protection=1)) == [1.0, 2.0, 1.5]
    for protection in (2, 3):
        assert list(call("carried_effect", w=w, a_diag=a, protection=protection)) == [1, 2, 3]


def test_latent_draws_are_called_by_the_programs():
    """``"latent_rng"`` can't be called alone; test_stan holds its draws against the closed form."""
    text = (stan_folder() / "restricted.stan").read_text()
    assert "latent_rng(" in text


def test_bracket_log_mass_is_the_log_probability_of_the_brackets():
    mu, tau = np.array([0.0, 1.0, 50.0, -50.0, 0.3]), 0.7
    low = np.array([0.0, -0.5, 0.0, 2.0, 9.0])
    high = np.array([1.0, 0.0, 2.0, 3.0, 9.001])
    none = np.zeros(0, dtype=int)
    sets = {"below": none, "above": none, "between": none}

    def mass(name, numbers):
        numbers = {**sets, name: np.array(numbers)}
        return call("bracket_log_mass", mu=mu, tau=tau, low=low, high=high, **numbers)

    assert mass("below", [1]) == pytest.approx(stats.norm.logcdf(1.0, 0.0, tau), rel=CLOSE)
    assert mass("above", [2, 4]) == pytest.approx(
        stats.norm.logsf(-0.5, 1.0, tau) + stats.norm.logsf(2.0, -50.0, tau), rel=CLOSE
    )
    for i in (0, 2, 3, 4):  # on both sides of the mean, far out, and narrow
        tail = stats.norm.logsf if low[i] + high[i] > 2 * mu[i] else stats.norm.logcdf
        ends = sorted(tail(np.array([low[i], high[i]]), mu[i], tau), reverse=True)
        want = ends[0] + np.log1p(-np.exp(ends[1] - ends[0]))
        assert mass("between", [i + 1]) == pytest.approx(want, rel=CLOSE), i


@pytest.mark.parametrize(
    ("low", "high"), [(-0.4, 0.9), (6.0, 7.0), (-8.0, -7.5), (5.0, np.inf), (-np.inf, -9.0)]
)
def test_bracket_quantile_is_that_of_a_truncated_normal(low, high):
    mu, tau = 0.2, 0.9
    for u in (0.001, 0.3, 0.5, 0.999):
        got = call(
            "bracket_quantile",
            u=u,
            mu=mu,
            tau=tau,
            low=low if np.isfinite(low) else 0.0,
            high=high if np.isfinite(high) else 0.0,
            has_low=int(np.isfinite(low)),
            has_high=int(np.isfinite(high)),
        )
        law = stats.truncnorm((low - mu) / tau, (high - mu) / tau, loc=mu, scale=tau)
        assert got == pytest.approx(law.ppf(u), rel=CLOSE)
    free = {"mu": mu, "tau": tau, "low": 0.0, "high": 0.0, "has_low": 0, "has_high": 0}
    assert call("bracket_quantile", u=0.3, **free) == pytest.approx(stats.norm.ppf(0.3, mu, tau))


def test_which_equal():
    assert list(call("which_equal", values=[3, 0, 3, 1], wanted=3, n=2)) == [1, 3]
    assert list(call("which_equal", values=[3, 0, 3, 1], wanted=2, n=0)) == []


@pytest.fixture
def groups(places, rng):
    """Twelve records of two groups: arguments of the functions for several groups."""
    group = np.array([1, 2] * 6)
    T = np.array([[1.5, 0.6], [0.6, 0.8]])
    tau_sq, a = np.array([0.2, 0.5]), np.ones(12)
    a[[0, 5]] = 0.0, 0.6
    return {
        "r": np.exp(-2.0 * cdist(places, places)),
        "t": T,
        "tau_sq": tau_sq,
        "group": group,
        "a_diag": a,
        "X": np.column_stack([np.ones(12), rng.normal(size=12)]),
        "y": rng.normal(size=12),
    }


def covariance_of(g, protection):
    k, a = g["group"] - 1, g["a_diag"]
    V = g["t"][np.ix_(k, k)] * g["r"] * np.outer(a, a) + np.diag(g["tau_sq"][k])
    return V + (protection == 2) * np.diag(np.diag(g["t"])[k] * (1 - a**2))


def stacked(g):
    return np.hstack([g["X"] * (g["group"] == k)[:, None] for k in (1, 2)])


@pytest.mark.parametrize("protection", [1, 2, 3])
def test_group_covariance(groups, protection):
    names = ("r", "t", "tau_sq", "group", "a_diag")
    given = {name: groups[name] for name in names}
    got = call("group_covariance", protection=protection, **given)
    np.testing.assert_allclose(got, covariance_of(groups, protection), atol=1e-15)
    whole = call("group_covariance", protection=protection, **{**given, "a_diag": np.ones(12)})
    want = covariance_of({**groups, "a_diag": np.ones(12)}, 1)
    np.testing.assert_allclose(whole, want, atol=1e-15)


def test_group_design_and_its_prior(groups):
    got = call("group_design", x=groups["X"], y=groups["y"], group=groups["group"], n_groups=2)
    np.testing.assert_array_equal(got, np.column_stack([stacked(groups), groups["y"]]))
    prior = call(
        "group_prior", beta_scale=np.array([3.0, 2.0]), group_scale=np.array([0.5, 0.7]), n_groups=2
    )
    want = np.kron(np.ones((2, 2)), np.diag([9.0, 4.0])) + np.kron(np.eye(2), np.diag([0.25, 0.49]))
    np.testing.assert_allclose(prior, want, atol=1e-15)


def test_bordered_statistics_and_the_collapsed_density(groups):
    V, X, y = covariance_of(groups, 1), stacked(groups), groups["y"]
    Z = np.column_stack([X, y])
    s = call("bordered_statistics", v=V, z=Z, border=2 * np.sum(Z**2) / 0.2)
    np.testing.assert_allclose(s[:5], Z.T @ np.linalg.solve(V, Z), rtol=CLOSE, atol=CLOSE)
    assert s[5, 0] == pytest.approx(np.linalg.slogdet(V)[1], rel=CLOSE)
    B = np.kron(np.ones((2, 2)), np.diag([9.0, 4.0])) + np.kron(np.eye(2), np.diag([0.25, 0.49]))
    got = call(
        "collapsed_lpdf",
        s=s,
        precision=np.linalg.inv(B),
        log_det_b=float(np.linalg.slogdet(B)[1]),
        n=12,
    )
    want = stats.multivariate_normal(np.zeros(12), V + X @ B @ X.T).logpdf(y)
    assert got == pytest.approx(want, rel=CLOSE)


def test_draws_of_several_groups_are_called_by_the_program():
    """``"coefficients_rng"`` can't be called alone; test_stan compares its draws with the law."""
    text = (stan_folder() / "multivariate.stan").read_text()
    assert "coefficients_rng(" in text


@pytest.mark.parametrize(("kind", "name"), [(1, "exponential"), (2, "matern32"), (3, "matern52")])
def test_correlation_root(rng, kind, name):
    d = cdist(*(2 * [rng.uniform(size=(9, 2))]))
    root = call("correlation_root", d=d, phi=12.0, kind=kind)
    np.testing.assert_allclose(root @ root.T, correlation(d, 12.0, name), atol=CLOSE)
    assert np.all(np.triu(root, 1) == 0)


def test_smoothed_predictor(rng):
    x, w, site = rng.normal(size=(5, 2)), rng.normal(size=3), np.array([1, 3, 3, 2, 1])
    a, shift = np.array([1.0, 0.0, 0.5, 1.0, 1.0]), rng.normal(size=5)
    got = call(
        "smoothed_predictor",
        shift=shift,
        x=x,
        beta=np.array([0.3, -1.0]),
        a_diag=a,
        w=w,
        site=site,
    )
    want = shift + x @ [0.3, -1.0] + a * w[site - 1]
    np.testing.assert_allclose(got, want, atol=CLOSE)
