"""The posterior by deterministic quadrature, without NUTS and without a surface.

beta is integrated out in closed form, y ~ N(0, V + X B X'), B the diagonal of
its prior variances. What remains is a sum over (log phi, log r, log sigma_sq),
r = tau_sq / sigma_sq: Gregory's rule for the first two, whose ranges the priors
bound, the trapezoid rule for the third, whose ends carry no mass. log r and
log sigma_sq share one lattice, so that log tau_sq lies on it as well and every
marginal density is a sum without interpolation. C is taken apart by its
eigenvalues once per phi. Nothing of dsstan is called: a fit only lends its data,
its weights and the numbers of its priors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import make_interp_spline
from scipy.optimize import brentq
from scipy.special import gamma as gamma_function
from scipy.special import kv, ndtr

Floats = NDArray[np.float64]

EMPTY = 1e-9
"""Share of the largest density that an end of the sigma_sq range may have."""

REACH = (-2.0, 4.0)
"""Range of log sigma_sq about its profile estimate."""

_DUST = 1e-13
"""Nodes with a smaller share of the posterior are left out of the mixtures for beta."""


@dataclass(frozen=True)
class Model:
    """What a posterior depends on.

    Attributes
    ----------
    X, y
        Design matrix (N, P) and response (N,).
    distances
        Shape (N, N).
    A
        Diagonal of A, shape (N,).
    protection
        ``"none"``, ``"paper"``, ``"preserving"`` or ``"cut"``.
    phi
        The decay where it is held, else None.
    priors
        A ``ResolvedPriors``: numbers only.
    cov_model
        Correlation function by name.
    """

    X: Floats
    y: Floats
    distances: Floats
    A: Floats
    protection: str
    phi: float | None
    priors: Any
    cov_model: str = "exponential"

    @property
    def rows(self) -> NDArray[np.intp]:
        """Records that inform the parameters."""
        if self.protection == "cut":
            return np.flatnonzero(self.A == 1)
        return np.arange(len(self.y))

    def R(self, d: Floats, phi: float) -> Floats:
        """Correlation at distances: Matern's general formula with a Bessel function."""
        if self.cov_model == "exponential":
            return np.asarray(np.exp(-phi * d))
        nu = {"matern32": 1.5, "matern52": 2.5}[self.cov_model]
        u = np.where(d == 0, 1.0, phi * d)
        return np.where(d == 0, 1.0, 2 ** (1 - nu) / gamma_function(nu) * u**nu * kv(nu, u))

    def correlation(self, phi: float) -> Floats:
        """M in V = sigma_sq (M + r I), of the informing records."""
        a = self.A[self.rows]
        M = a[:, None] * self.R(self.distances[np.ix_(self.rows, self.rows)], phi) * a
        return M + np.diag(1 - a**2) if self.protection == "preserving" else M

    def log_likelihood(self, beta: Floats, sigma_sq: float, tau_sq: float, phi: float) -> float:
        """log N(y | X beta, V), all constants kept."""
        V = sigma_sq * self.correlation(phi) + tau_sq * np.eye(self.rows.size)
        factor = np.linalg.cholesky(V)
        z = np.linalg.solve(factor, self.y[self.rows] - self.X[self.rows] @ beta)
        log_det = 2 * np.sum(np.log(np.diag(factor)))
        return float(-0.5 * (z.size * np.log(2 * np.pi) + log_det + z @ z))


def model_of(fit: Any) -> Model:
    """The model of a fit, from its data, weights and prior numbers."""
    problem = fit.problem
    difference = problem.sites[:, None] - problem.sites[None]
    a = np.zeros(len(problem.y)) if fit.weights is None else fit.weights.a
    with np.errstate(invalid="ignore"):
        A = np.where(a > 0, 1 / np.sqrt(1 + fit.gamma * a), 1.0)
    return Model(
        problem.X,
        problem.y,
        np.sqrt((difference**2).sum(-1)),
        A,
        fit.protection,
        fit.phi_held,
        fit.priors,
        fit.cov_model,
    )


@dataclass(frozen=True)
class Steps:
    """Intervals in log phi, and in log r, whose step log sigma_sq takes too."""

    phi: int = 48
    r: int = 128

    def coarser(self) -> Steps:
        """Every step twice as long."""
        return Steps(self.phi // 2, self.r // 2)


@dataclass(frozen=True)
class Posterior:
    """Nodes (phi, r, sigma_sq) with their shares of the posterior.

    Attributes
    ----------
    log_phi, log_r
        Nodes, shapes (F,) and (G,); F = 1 where phi is held.
    log_sigma_sq
        Shape (F, G, H), multiples of the step of ``log_r``.
    share
        Shape (F, G, H), sums to 1.
    log_marginal
        log p(y | phi, r, sigma_sq), beta integrated out, shape (F, G, H).
    beta_mean, beta_var
        Moments of beta given the node, shape (F, G, H, P).
    w_mean
        E[w_i | node] of the record asked for, shape (F, G, H).
    copy_mean, copy_var
        Moments of its synthetic value given the node, shape (F, G, H).
    """

    log_phi: Floats
    log_r: Floats
    log_sigma_sq: Floats
    share: Floats
    log_marginal: Floats
    beta_mean: Floats
    beta_var: Floats
    w_mean: Floats
    copy_mean: Floats
    copy_var: Floats

    def _moments(self, name: str) -> tuple[Floats, Floats]:
        """Mean and variance given the node, each broadcastable to (F, G, H)."""
        if name.startswith("beta_"):
            j = int(name.removeprefix("beta_"))
            return self.beta_mean[..., j], self.beta_var[..., j]
        if name == "copy":
            return self.copy_mean, self.copy_var
        exact = {
            "phi": self.log_phi[:, None, None],
            "sigma_sq": self.log_sigma_sq,
            "tau_sq": self.log_sigma_sq + self.log_r[:, None],
            "w_mean": self.w_mean,
        }
        value = exact[name.removeprefix("log_")]
        return np.exp(value) if name in ("phi", "sigma_sq", "tau_sq") else value, np.zeros(1)

    def mean(self, name: str) -> float:
        """Mean of ``beta_0`` .., ``sigma_sq``, ``log_sigma_sq`` .., ``w_mean``, ``copy``."""
        return float(np.sum(self.share * self._moments(name)[0]))

    def sd(self, name: str) -> float:
        """Standard deviation of the same; of ``w_mean`` it is that of E[w_i | node]."""
        given, spread = self._moments(name)
        centre = self.mean(name)
        return float(np.sqrt(np.sum(self.share * ((given - centre) ** 2 + spread))))

    def quantile(self, name: str, probability: float) -> float:
        """Quantile of ``beta_0`` .., ``sigma_sq``, ``tau_sq`` or ``phi``."""
        if name.startswith("beta_"):
            keep = self.share > _DUST * self.share.max()
            mean, var = (m[keep] for m in self._moments(name))
            share, sd = self.share[keep] / self.share[keep].sum(), np.sqrt(var)
            centre, reach = self.mean(name), 12 * self.sd(name)
            ends = centre - reach, centre + reach
            return _root(lambda x: float(share @ ndtr((x - mean) / sd)) - probability, *ends)
        nodes, density = self._density(name)
        below = make_interp_spline(nodes, density, k=5).antiderivative()
        part = probability * float(below(nodes[-1]))
        return float(np.exp(_root(lambda x: float(below(x)) - part, nodes[0], nodes[-1])))

    def _density(self, name: str) -> tuple[Floats, Floats]:
        """Marginal density, up to a constant, of the log of a parameter at equal steps."""
        if name == "phi":
            return self.log_phi, self.share.sum(axis=(1, 2)) / gregory(self.log_phi.size - 1)
        start, step = self.log_r[0], self.log_r[1] - self.log_r[0]
        values = self.log_sigma_sq
        if name == "tau_sq":
            values = values + (self.log_r - start)[:, None]
        place = np.rint(values / step).astype(np.intp)
        first = int(place.min())
        density = np.bincount((place - first).ravel(), weights=self.share.ravel())
        nodes = (first + np.arange(density.size)) * step
        return nodes + (start if name == "tau_sq" else 0.0), density


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    return float(brentq(function, low, high, xtol=1e-10 * (high - low)))


def gregory(intervals: int) -> Floats:
    """Weights for equal intervals of length 1, exact for cubics; [1] for none."""
    if intervals == 0:
        return np.ones(1)
    assert intervals >= 6
    weights = np.ones(intervals + 1)
    weights[:3] = 3 / 8, 7 / 6, 23 / 24
    weights[-3:] = 23 / 24, 7 / 6, 3 / 8
    return weights


def posterior(
    model: Model, *, record: int, effect: str = "w", steps: Steps | None = None
) -> Posterior:
    """The posterior by quadrature.

    Parameters
    ----------
    model
        From :func:`model_of`.
    record
        The record i whose w_i and synthetic value are wanted.
    effect
        ``"w"``: copies carry w; ``"w*"``: they carry A w.
    steps
        Fineness of the nodes.
    """
    steps = steps or Steps()
    log_phi = (
        np.linspace(*np.log(model.priors.phi_bounds), steps.phi + 1)
        if model.phi is None
        else np.log([model.phi])
    )
    log_r = np.linspace(*np.log(model.priors.r_bounds), steps.r + 1)
    slices = [_slice(model, float(np.exp(f)), log_r, record, effect) for f in log_phi]
    parts = {key: np.stack([s[key] for s in slices]) for key in slices[0]}
    log_density = parts["log_marginal"] + _log_prior(model, log_phi, log_r, parts["log_sigma_sq"])
    density = np.exp(log_density - log_density.max())
    assert density[..., [0, -1]].max() < EMPTY, "the range of sigma_sq is too narrow"
    share = density * gregory(log_phi.size - 1)[:, None, None] * gregory(steps.r)[:, None]
    return Posterior(log_phi, log_r, share=share / share.sum(), **parts)


def _log_prior(model: Model, log_phi: Floats, log_r: Floats, log_sigma_sq: Floats) -> Floats:
    """Log prior density of (log phi, log r, log sigma_sq) up to a constant."""
    priors = model.priors
    log_tau_sq = log_sigma_sq + log_r[:, None]
    total = log_sigma_sq + log_tau_sq  # Jacobians of the two logs
    for log_v, (first, second) in ((log_sigma_sq, priors.sigma), (log_tau_sq, priors.tau)):
        if priors.variance == "half-normal":
            total = total - 0.5 * log_v - 0.5 * np.exp(log_v) / first**2
        else:
            total = total - (first + 1) * log_v - second * np.exp(-log_v)
    if model.phi is not None:
        return total
    return total + (log_phi - priors.phi_rate * np.exp(log_phi))[:, None, None]


def _slice(model: Model, phi: float, log_r: Floats, record: int, effect: str) -> dict[str, Floats]:
    """Everything at one phi, shapes (G, H) and (G, H, P).

    With F = B^(1/2) U, U the eigenvectors of B^(1/2) X'C^-1 X B^(1/2) and e its
    eigenvalues, Cov(beta | y, node) = F diag(1 / (1 + e / sigma_sq)) F'.
    """
    rows = model.rows
    X, y, a = model.X[rows], model.y[rows], model.A[rows]
    n, p = X.shape
    values, vectors = np.linalg.eigh(model.correlation(phi))
    towards = a * model.R(model.distances[rows, record], phi)
    z = vectors.T @ np.column_stack([X, y, towards])
    inverse = 1 / (values + np.exp(log_r)[:, None])
    S = np.einsum("gn,nj,nk->gjk", inverse, z, z, optimize=True)  # [X y k]' C^-1 [X y k]
    XX, Xy, yy = S[:, :p, :p], S[:, :p, p], S[:, p, p]
    Xk, yk, kk = S[:, :p, p + 1], S[:, p, p + 1], S[:, p + 1, p + 1]
    log_det = -np.sum(np.log(inverse), axis=1)

    least = yy - np.sum(Xy * np.linalg.solve(XX, Xy[..., None])[..., 0], axis=1)
    step = log_r[1] - log_r[0]
    centre = np.rint(np.log(least / n) / step)  # the profile sigma_sq, on the lattice
    u = step * (centre[:, None] + np.arange(np.rint(REACH[0] / step), REACH[1] / step))
    sigma_sq = np.exp(u)

    scale = np.asarray(model.priors.beta_scale)
    e, U = np.linalg.eigh(XX * scale[:, None] * scale)
    F = scale[:, None] * U
    spread = 1 / (1 + e[:, None] / sigma_sq[..., None])  # (G, H, P)
    pull = np.einsum("gjk,gj->gk", F, Xy)[:, None] / sigma_sq[..., None]
    beta = np.einsum("gjk,ghk->ghj", F, spread * pull)
    log_marginal = -0.5 * (
        n * (np.log(2 * np.pi) + u)
        + log_det[:, None]
        + yy[:, None] / sigma_sq
        - np.sum(spread * pull**2 + np.log(spread), axis=-1)
    )

    carried = 1.0 if effect == "w" or model.A[record] == 0 else float(model.A[record])
    w_mean = yk[:, None] - np.einsum("ghj,gj->gh", beta, Xk)
    lean = model.X[record] - carried * Xk  # derivative of the copy's mean by beta
    copy_var = (
        np.einsum("ghk,gk->gh", spread, np.einsum("gjk,gj->gk", F, lean) ** 2)
        + sigma_sq * carried**2 * (1 - kk)[:, None]
        + sigma_sq * np.exp(log_r)[:, None]
    )
    return {
        "log_sigma_sq": u,
        "log_marginal": log_marginal,
        "beta_mean": beta,
        "beta_var": np.einsum("gjk,ghk->ghj", F**2, spread),
        "w_mean": w_mean,
        "copy_mean": beta @ model.X[record] + carried * w_mean,
        "copy_var": copy_var,
    }
