"""Python's side of ``density.R``: exact node statistics, and every Stan program.

Stan's own log density has the Jacobian of its transforms in it; that is taken away by formula.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial.distance import cdist
from whitened import even, whitened

from dsstan.covariance.base import Parameters
from dsstan.covariance.likelihood_surface import (
    DEFAULT_NODES,
    build_surface,
    node_statistics,
    response_log_density,
    rotate,
    smoothed_correlation,
)
from dsstan.engines import EmbeddedEngine
from dsstan.engines.programs import Program
from dsstan.models.priors import Priors, ResolvedPriors
from dsstan.models.weights import smoothing

from .cases import GAMMAS, PROTECTIONS, Case, case, inputs, stan_function
from .golden import Floats, Values

Bounds = tuple[float, float]

NUMBERS = {"paper": 1, "preserving": 2, "cut": 3}


def values() -> Values:
    """Each quantity by its key."""
    own = inputs("density")
    out: dict[str, Callable[[], ArrayLike]] = {}
    for kind in ("sigma", "tau"):
        scale, par = own["half_normal"][kind], own["inverse_gamma"][kind]
        out[f"half-normal/{kind}"] = partial(variance_prior, 1, [scale, 1.0])
        out[f"chi-square/{kind}"] = partial(variance_prior, 1, [scale, 1.0])
        out[f"inverse-gamma/{kind}"] = partial(variance_prior, 2, par)
    for name in ("hand", "simulated", "baltimore"):
        c = case(name)
        full = name != "baltimore"
        out[f"response/none/{name}"] = partial(response, c, 0.0, "none")
        for kind in ("half-normal", "inverse-gamma"):
            out[f"unrestricted/{kind}/{name}"] = partial(unrestricted, c, kind=kind)
        out[f"unrestricted/off/{name}"] = partial(unrestricted, c, off=True)
        if full:
            w = np.array(own["w"][name])
            out[f"hier/{name}"] = partial(hierarchical, c, w)
        for gamma_name, gamma in GAMMAS.items():
            if full:
                out[f"restrict/{gamma_name}/{name}"] = partial(hierarchical, c, w, gamma)
            for protection in PROTECTIONS:
                key = f"{protection}/{gamma_name}/{name}"
                out[f"response/{key}"] = partial(response, c, gamma, protection)
                if not full:
                    continue
                out[f"cholesky/{key}"] = partial(cholesky, c, gamma, protection)
                out[f"restricted/{key}"] = partial(restricted, c, gamma, protection)
                out[f"surface/held/{key}"] = partial(surface, c, gamma, protection, "held")
                if gamma_name == "4":
                    out[f"restricted/off/{key}"] = partial(
                        restricted, c, gamma, protection, off=True
                    )
                    for kind in ("free", "off"):
                        out[f"surface/{kind}/{key}"] = partial(surface, c, gamma, protection, kind)
    return out


def variance_prior(kind: int, par: list[float]) -> Floats:
    """Stan's log prior of the listed variances."""
    variances = inputs("density")["variances"]
    return np.array([stan_function("variance_lpdf", v=v, kind=kind, par=par) for v in variances])


def prior_settings(c: Case, kind: str = "half-normal", own: Any = None) -> ResolvedPriors:
    """The priors of a topic's inputs, those of the density topic by default."""
    own = own or inputs("density")
    half = kind == "half-normal"
    source = own["half_normal"] if half else own["inverse_gamma"]
    return Priors(
        beta_scale=own["beta_scale"][: c.problem.n_terms],
        variance="half-normal" if half else "inverse-gamma",
        sigma=source["sigma"],
        tau=source["tau"],
        phi_bounds=c.phi_bounds,
        r_bounds=(own["r_bounds"][0], own["r_bounds"][1]),
    ).resolve(c.problem.y, c.problem.X, c.problem.d_max)


def _rows(A: Floats, protection: str) -> Any:
    """Informing records."""
    return np.flatnonzero(A == 1.0) if protection == "cut" else np.arange(A.size)


def response(c: Case, gamma: float, protection: str, cov_model: str = "exponential") -> Floats:
    """Log density of the response from exact node statistics, at every point."""
    A = smoothing(gamma, c.a)
    rows = _rows(A, protection)
    rotation = rotate(c.problem.X[rows], c.problem.y[rows])
    d = cdist(c.problem.sites[rows], c.problem.sites[rows])
    out = []
    for p in c.points:
        m = smoothed_correlation(d, p.phi, A[rows], protection, cov_model)
        r = p.tau_sq / p.sigma_sq
        s = node_statistics(m, rotation.Z, np.array([r]))[0]
        u = rotation.T @ (rotation.b - p.beta)
        out.append(response_log_density(s, u, rows.size, p.sigma_sq, r))
    return np.array(out)


def log_density(
    program: str,
    data: dict[str, Any],
    points: Sequence[Parameters],
    priors: ResolvedPriors,
    free: str | None,
    extra: dict[str, Any] | None = None,
) -> Floats:
    """Stan's log density at natural parameters, its Jacobian taken away.

    Parameters
    ----------
    free
        Name of the decay among the program's parameters, None where it is data.
    extra
        Further parameters, the same at every point, without constraints.
    """
    given: list[dict[str, Any]] = []
    jacobian = []
    if program == "surface":
        data = even(data)
    for p in points:
        if program == "surface":
            natural = {"beta": p.beta, "sigma_sq": p.sigma_sq, "tau_sq": p.tau_sq}
            z, log_jacobian = whitened(data, natural | ({} if free is None else {"phi": p.phi}))
            given.append({"whitened": z})
            jacobian.append(log_jacobian)
            continue
        point: dict[str, Any] = {
            "beta": p.beta,
            "sigma_sq": p.sigma_sq,
            "tau_sq": p.tau_sq,
            **(extra or {}),
        }
        low, high = (p.sigma_sq * bound for bound in priors.r_bounds)
        log_jacobian = np.log(p.sigma_sq) + _logit_jacobian(p.tau_sq, (low, high))
        if free is not None:
            point[free] = [p.phi] if free == "phi_free" else p.phi
            log_jacobian += _logit_jacobian(p.phi, priors.phi_bounds)
        given.append(point)
        jacobian.append(log_jacobian)
    got = EmbeddedEngine().log_density(Program(program), data, given)
    return np.asarray(got - np.array(jacobian))


def _logit_jacobian(value: float, bounds: Bounds) -> float:
    """Log derivative of low + (high - low) inverse-logit(x)."""
    low, high = bounds
    return float(np.log(value - low) + np.log(high - value) - np.log(high - low))


def _natural(c: Case) -> dict[str, Any]:
    """Data that every program with natural data takes."""
    p = c.problem
    return {"N": p.n_records, "P": p.n_terms, "X": p.X, "y": p.y, "coords": p.sites, "cov_model": 1}


def _phi_range(c: Case) -> dict[str, float]:
    return {"phi_lower": c.phi_bounds[0], "phi_upper": c.phi_bounds[1]}


def unrestricted(
    c: Case, *, kind: str = "half-normal", off: bool = False, own: Any = None
) -> Floats:
    """``unrestricted.stan``, at the nodes of a coarse surface or off those of the default one."""
    priors = prior_settings(c, kind, own)
    g, h = DEFAULT_NODES if off else (own or inputs("density"))["nodes"]
    data = {
        **_natural(c),
        **priors.stan_data(),
        **priors.decay_data(),
        "G": g,
        "H": h,
        "n_check": 0,
        "check_phi": [],
        "check_r": [],
        "draw_latent": 0,
    }
    points = c.off_nodes if off else c.at_nodes
    return log_density("unrestricted", data, points, priors, "phi")


def restricted(c: Case, gamma: float, protection: str, *, off: bool = False) -> Floats:
    """``restricted.stan``, its decay held at that of the points."""
    priors = prior_settings(c)
    points = c.off_nodes[:1] if off else c.at_nodes[:3]
    assert len({p.phi for p in points}) == 1
    data = {
        **_natural(c),
        **priors.stan_data(),
        "A": smoothing(gamma, c.a),
        "protection": NUMBERS[protection],
        "phi": points[0].phi,
        "H": DEFAULT_NODES[1] if off else inputs("density")["nodes"][1],
        "n_check": 0,
        "check_r": [],
        "draw_latent": 0,
    }
    return log_density("restricted", data, points, priors, None)


def surface(c: Case, gamma: float, protection: str, kind: str) -> Floats:
    """``surface.stan`` on LAPACK's surface: decay held, free, or free and off the nodes."""
    priors = prior_settings(c)
    points = {"held": c.at_nodes[:3], "free": c.at_nodes, "off": c.off_nodes}[kind]
    A = smoothing(gamma, c.a)
    rows = _rows(A, protection)
    sites = c.problem.sites[rows]
    g, h = DEFAULT_NODES if kind == "off" else inputs("density")["nodes"]
    held = (points[0].phi, points[0].phi)
    built = build_surface(
        cdist(sites, sites),
        c.problem.X[rows],
        c.problem.y[rows],
        a_diag=A[rows],
        protection=protection,
        phi_bounds=held if kind == "held" else c.phi_bounds,
        r_bounds=priors.r_bounds,
        nodes=(g, h),
        tolerance=np.inf,
    )
    data = priors.on_surface(built)
    free = None if kind == "held" else "phi_free"
    return log_density("surface", data, points, priors, free)


def cholesky(c: Case, gamma: float, protection: str, own: Any = None) -> Floats:
    """``reference/cholesky.stan`` at every point."""
    priors = prior_settings(c, own=own)
    data = {
        **_natural(c),
        **priors.stan_data(),
        **_phi_range(c),
        "A": smoothing(gamma, c.a),
        "protection": NUMBERS[protection],
    }
    return log_density("reference/cholesky", data, c.points, priors, "phi")


def hierarchical(c: Case, w: Floats, gamma: float | None = None) -> Floats:
    """``reference/hier.stan``, or with a gamma ``reference/restrict.stan``."""
    priors = prior_settings(c)
    data: dict[str, Any] = {
        **_natural(c),
        **priors.stan_data(),
        "n_sites": c.problem.n_sites,
        "coords": c.problem.unique_sites,
        "site": c.problem.site_index + 1,
    }
    if gamma is None:
        data |= _phi_range(c)
        return log_density("reference/hier", data, c.points, priors, "phi", {"w": w})
    points = c.at_nodes[:3]
    data |= {"A": smoothing(gamma, c.a), "phi": points[0].phi}
    return log_density("reference/restrict", data, points, priors, None, {"w": w})
