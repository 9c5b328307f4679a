"""The attacker's terms by eigenvectors of R, so that many draws cost little.

Where phi is held and A holds only zeros and ones, every covariance of the model
is diagonal in the eigenvectors of R among the unflagged records, up to the few
flagged records and the P columns of X. One decomposition then serves every
posterior draw, and a draw costs O(N^2) instead of O(N^3). The formulas are those
of :func:`dsstan.risk.attacker.copy_law`, against which the tests hold them.

Where phi is free, as in the unrestricted fit, the terms are smooth functions of
(log phi, log r), up to a power of sigma_sq. They are computed at Chebyshev nodes over
the range of the draws, one decomposition a node of phi, and interpolated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.spatial.distance import cdist

from dsstan.covariance.correlation import correlation
from dsstan.covariance.latent import Parameters, require_gaussian
from dsstan.covariance.likelihood_surface import (
    chebyshev_map,
    chebyshev_nodes,
    chebyshev_polynomials,
    log_position,
    log_position_inv,
)
from dsstan.models.fit import Fit
from dsstan.table.problem import Problem

Floats = NDArray[np.float64]

TINY = 1e-300
"""Stands for 0 where a logarithm is taken."""

ALONE = 1e-10
"""A record whose least-squares leverage is this close to 1 has a coefficient of its own."""


BATCH = 16
"""Draws whose products with the eigenvectors are taken together."""


@dataclass(frozen=True, eq=False)
class _Part:
    """One draw in the basis; see :meth:`HeldBasis._part`."""

    right: Floats
    squares: Floats
    schur: Floats
    mid: Floats
    J_t: Floats
    J_f: Floats
    G: Floats
    b: Floats
    d_f: float


@dataclass(frozen=True, eq=False)
class Terms:
    """What one draw contributes, each of shape (N,): see :class:`dsstan.risk.attacker.Attack`."""

    information: Floats
    exposure: Floats
    score: Floats


def applies(fit: Fit, effect: str) -> bool:
    """Whether the fast terms cover a fit: held decay, A of zeros and ones, copies of w.

    One record at least must be unflagged, else there is no basis.
    """
    binary = bool(np.all((fit.A == 0) | (fit.A == 1)) and np.any(fit.A == 1))
    return fit.phi_held is not None and binary and effect != "plug"


class HeldBasis:
    """The decomposition, and the terms of any draw."""

    def __init__(self, fit: Fit) -> None:
        require_gaussian(fit)
        assert fit.phi_held is not None
        self._decompose(fit.problem, fit.A, fit.protection, fit.phi_held, fit.cov_model)

    @classmethod
    def unrestricted(
        cls, problem: Problem, phi: float, cov_model: str = "exponential"
    ) -> HeldBasis:
        """The decomposition without any smoothing, at one decay."""
        basis = cls.__new__(cls)
        basis._decompose(problem, np.ones(problem.n_records), "none", phi, cov_model)
        return basis

    def _decompose(
        self, problem: Problem, A: Floats, protection: str, phi: float, cov_model: str
    ) -> None:
        """R among the unflagged records by its eigenvectors, and all else in their basis."""
        self.protection, self.informs = protection, protection != "cut"
        self.u, self.f = np.flatnonzero(A == 1), np.flatnonzero(A == 0)
        R = correlation(cdist(problem.sites, problem.sites), phi, cov_model)
        values, self.Q = eigh(R[np.ix_(self.u, self.u)], check_finite=False)
        self.lam = np.maximum(values, 0.0)
        self.Q2 = self.Q**2
        self.T = self.Q.T @ R[np.ix_(self.u, self.f)]
        self.R_ff = R[np.ix_(self.f, self.f)]
        self.X_f, self.y_f = problem.X[self.f], problem.y[self.f]
        self.X_q, self.y_q = self.Q.T @ problem.X[self.u], self.Q.T @ problem.y[self.u]
        self.n = problem.n_records

    def terms(self, p: Parameters) -> Terms:
        """Information, exposure and score of every record at one draw, O(N^2)."""
        return self.batch([p])[0]

    def batch(self, points: Sequence[Parameters]) -> list[Terms]:
        """The terms at several draws; their products with the eigenvectors are one each."""
        parts = [self._part(p) for p in points]
        low = self.Q @ np.column_stack([part.right for part in parts])
        flat = self.Q2 @ np.column_stack([part.squares for part in parts])
        width = parts[0].right.shape[1]
        return [
            self._finish(part, low[:, i * width : (i + 1) * width], flat[:, 2 * i : 2 * i + 2])
            for i, part in enumerate(parts)
        ]

    def _part(self, p: Parameters) -> _Part:
        """What one draw needs of the basis, and its small matrices."""
        s2, t2, lam, X_q, X_f, T = p.sigma_sq, p.tau_sq, self.lam, self.X_q, self.X_f, self.T
        v = s2 * lam + t2
        alpha = s2 * lam / v
        d_f = t2 + s2 if self.protection == "preserving" else t2
        G_inv = X_q.T @ (X_q / v[:, None])
        b = X_q.T @ (self.y_q / v)
        if self.informs:
            G_inv = G_inv + X_f.T @ X_f / d_f
            b = b + X_f.T @ self.y_f / d_f
        G = np.linalg.inv(G_inv)
        b = G @ b
        # J and the covariance of a copy, in the basis: diagonal s, border E, corner W.
        J_q, J_f = (t2 / v)[:, None] * X_q, X_f - s2 * T.T @ (X_q / v[:, None])
        s = t2 * (1.0 + alpha)
        E = (s2 * t2 / v)[:, None] * T
        W = s2 * self.R_ff - s2**2 * T.T @ (T / v[:, None])
        W[np.diag_indices_from(W)] += t2
        schur = np.linalg.inv(W - E.T @ (E / s[:, None]))
        # M0^-1 J and C0' M0^-1 C0 = diag(alpha^2 / s) + N schur N'.
        J_c = J_f - E.T @ (J_q / s[:, None])
        N = (s2 / v - alpha * s2 * t2 / (s * v))[:, None] * T
        K_j = (alpha / s)[:, None] * J_q + N @ (schur @ J_c)
        J_m = J_q.T @ (J_q / s[:, None]) + J_c.T @ schur @ J_c
        mid = np.linalg.inv(G_inv + J_m)
        K_t, J_t = K_j @ mid @ G_inv, J_m - J_m @ mid @ J_m
        Y = (X_q / v[:, None]) @ G
        residual = (self.y_q - X_q @ b) / v
        right = np.column_stack([N, K_j, K_t, Y, J_q, residual])
        squares = np.column_stack([alpha**2 / s, alpha])
        return _Part(right, squares, schur, mid, J_t, J_f, G, b, d_f)

    def _finish(self, part: _Part, low: Floats, flat: Floats) -> Terms:
        """The terms of one draw from its products with the eigenvectors."""
        f, k = len(self.f), self.X_q.shape[1]
        q_n, q_k, q_t, q_y, q_j, q_r = np.split(
            low, [f, f + k, f + 2 * k, f + 3 * k, f + 4 * k], axis=1
        )
        information, exposure, score = (np.zeros(self.n) for _ in range(3))
        information[self.u] = (
            flat[:, 0]
            + _quadratic(q_n, part.schur)
            - _quadratic(q_k, part.mid)
            + 2.0 * np.sum(q_t * q_y, axis=1)
            + _quadratic(q_y, part.J_t)
        )
        exposure[self.u] = flat[:, 1] + np.sum(q_j * q_y, axis=1)
        score[self.u] = q_r[:, 0]
        if self.informs:
            X_g = self.X_f @ part.G
            information[self.f] = _quadratic(X_g, part.J_t) / part.d_f**2
            exposure[self.f] = np.sum(part.J_f * X_g, axis=1) / part.d_f
            score[self.f] = (self.y_f - self.X_f @ part.b) / part.d_f
        return Terms(information, exposure, score)

    def precision(self, p: Parameters) -> Floats:
        """P_ii of the informing records, shape (N,), without any smoothing; 0 to rounding or more.

        P = V^-1 - V^-1 X (X' V^-1 X)^-1 X' V^-1.
        """
        assert self.f.size == 0
        v = p.sigma_sq * self.lam + p.tau_sq
        VX = self.X_q / v[:, None]
        G = np.linalg.inv(self.X_q.T @ VX)
        return np.asarray(self.Q2 @ (1.0 / v) - _quadratic(self.Q @ VX, G))


def _quadratic(rows: Floats, middle: Floats) -> Floats:
    """row' middle row for every row."""
    return np.asarray(np.sum((rows @ middle) * rows, axis=1))


def alone(X: Floats) -> NDArray[np.bool_]:
    """Records with a coefficient of their own: P_ii is 0 whatever the covariance."""
    q, _ = np.linalg.qr(X)
    return np.asarray(1.0 - np.sum(q**2, axis=1) < ALONE)


class FreeSurface:
    """Terms of the unrestricted model at Chebyshev nodes over the range of some draws.

    At sigma_sq = 1; the precision P_ii, the information and the score of a draw are
    these over its sigma_sq, the exposure does not depend on it. Precision and
    information, which span decades in r, are interpolated in logs.
    """

    def __init__(
        self,
        problem: Problem,
        chosen: list[Parameters],
        nodes: tuple[int, int],
        cov_model: str = "exponential",
    ) -> None:
        self.phi_bounds = _range([p.phi for p in chosen])
        self.r_bounds = _range([p.tau_sq / p.sigma_sq for p in chosen])
        self.nodes = nodes
        self.alone = alone(problem.X)
        ratios = log_position_inv(chebyshev_nodes(nodes[1]), self.r_bounds)
        values = np.empty((4, *nodes, problem.n_records))
        for g, phi in enumerate(log_position_inv(chebyshev_nodes(nodes[0]), self.phi_bounds)):
            basis = HeldBasis.unrestricted(problem, float(phi), cov_model)
            zero = np.zeros(problem.n_terms)
            points = [Parameters(zero, 1.0, float(r), float(phi)) for r in ratios]
            for h, (at, terms) in enumerate(zip(points, basis.batch(points), strict=True)):
                precision = basis.precision(at)
                precision[self.alone] = 1.0  # the log of 0 is left out
                logs = np.log(np.maximum([precision, terms.information], TINY))
                values[:, g, h] = *logs, terms.exposure, terms.score
        maps = chebyshev_map(nodes[0]), chebyshev_map(nodes[1])
        self.coefficients = np.einsum("ag,bh,tghn->tabn", *maps, values, optimize=True)

    def at(self, p: Parameters) -> tuple[Floats, Terms]:
        """P_ii, shape (N,), and the terms of every record at one draw."""
        t_phi = chebyshev_polynomials(log_position(p.phi, self.phi_bounds), self.nodes[0])
        t_r = chebyshev_polynomials(
            log_position(p.tau_sq / p.sigma_sq, self.r_bounds), self.nodes[1]
        )
        found = np.einsum("a,b,tabn->tn", t_phi, t_r, self.coefficients, optimize=True)
        precision = np.where(self.alone, 0.0, np.exp(found[0]) / p.sigma_sq)
        return precision, Terms(np.exp(found[1]) / p.sigma_sq, found[2], found[3] / p.sigma_sq)


def _range(values: list[float]) -> tuple[float, float]:
    """Smallest and largest, a little apart where they are one."""
    low, high = min(values), max(values)
    return (low, high) if high > low * (1 + 1e-9) else (low * 0.999, high * 1.001)
