"""The attacker's terms by eigenvectors of R, so that many draws cost little.

Where phi is held and A holds only zeros and ones, every covariance of the model
is diagonal in the eigenvectors of R among the unflagged records, up to the few
flagged records and the P columns of X. One decomposition then serves every
posterior draw, and a draw costs O(N^2) instead of O(N^3). The formulas are those
of :func:`dsstan.attacker.copy_law`, against which the tests hold them.

Where phi is free, as in the leave-one-out precision, one decomposition a node of
phi serves all nodes of r.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.spatial.distance import cdist

from dsstan.fit import Fit
from dsstan.latent import LatentModel, Parameters
from dsstan.surface import (
    chebyshev_map,
    chebyshev_nodes,
    chebyshev_polynomials,
    log_position,
    log_position_inv,
)

Floats = NDArray[np.float64]

ALONE = 1e-10
"""A record whose least-squares leverage is this close to 1 has a coefficient of its own."""


@dataclass(frozen=True, eq=False)
class Terms:
    """What one draw contributes, each of shape (N,): see :class:`dsstan.attacker.Attack`."""

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
        problem = fit.problem
        assert fit.phi_held is not None
        self.protection = fit.protection
        self.u, self.f = np.flatnonzero(fit.A == 1), np.flatnonzero(fit.A == 0)
        R = np.exp(-fit.phi_held * cdist(problem.sites, problem.sites))
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
        s2, t2, lam, X_q, X_f, T = p.sigma_sq, p.tau_sq, self.lam, self.X_q, self.X_f, self.T
        v = s2 * lam + t2
        alpha = s2 * lam / v
        informs = self.protection != "cut"
        d_f = t2 + s2 if self.protection == "preserving" else t2
        G_inv = X_q.T @ (X_q / v[:, None])
        if informs:
            G_inv = G_inv + X_f.T @ X_f / d_f
        G = np.linalg.inv(G_inv)
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
        low = self.Q @ np.column_stack([N, K_j, K_t, Y, J_q])
        f, k = len(self.f), X_q.shape[1]
        q_n, q_k, q_t, q_y, q_j = np.split(low, [f, f + k, f + 2 * k, f + 3 * k], axis=1)
        information, exposure, score = (np.zeros(self.n) for _ in range(3))
        information[self.u] = (
            self.Q2 @ (alpha**2 / s)
            + _quadratic(q_n, schur)
            - _quadratic(q_k, mid)
            + 2.0 * np.sum(q_t * q_y, axis=1)
            + _quadratic(q_y, J_t)
        )
        exposure[self.u] = self.Q2 @ alpha + np.sum(q_j * q_y, axis=1)
        b = X_q.T @ (self.y_q / v)
        if informs:
            b = b + X_f.T @ self.y_f / d_f
        b = G @ b
        score[self.u] = self.Q @ ((self.y_q - X_q @ b) / v)
        if informs:
            X_g = X_f @ G
            information[self.f] = _quadratic(X_g, J_t) / d_f**2
            exposure[self.f] = np.sum(J_f * X_g, axis=1) / d_f
            score[self.f] = (self.y_f - X_f @ b) / d_f
        return Terms(information, exposure, score)


def _quadratic(rows: Floats, middle: Floats) -> Floats:
    """row' middle row for every row."""
    return np.asarray(np.sum((rows @ middle) * rows, axis=1))


def alone(X: Floats) -> NDArray[np.bool_]:
    """Records with a coefficient of their own: P_ii is 0 whatever the covariance."""
    q, _ = np.linalg.qr(X)
    return np.asarray(1.0 - np.sum(q**2, axis=1) < ALONE)


class PrecisionSurface:
    """sigma_sq P_ii of every record at Chebyshev nodes over the range of some draws."""

    def __init__(
        self, model: LatentModel, chosen: list[Parameters], nodes: tuple[int, int]
    ) -> None:
        self.phi_bounds = _range([p.phi for p in chosen])
        self.r_bounds = _range([p.tau_sq / p.sigma_sq for p in chosen])
        self.nodes = nodes
        self.alone = alone(model.X)
        d = cdist(model.sites, model.sites)[np.ix_(model.site, model.site)]
        ratios = log_position_inv(chebyshev_nodes(nodes[1]), self.r_bounds)
        values = np.empty((*nodes, len(d)))
        for g, phi in enumerate(log_position_inv(chebyshev_nodes(nodes[0]), self.phi_bounds)):
            lam, Q = eigh(np.exp(-phi * d), check_finite=False)
            X_q, squares = Q.T @ model.X, Q**2
            for h, r in enumerate(ratios):
                inverse = 1.0 / (np.maximum(lam, 0.0) + r)
                CX = Q @ (inverse[:, None] * X_q)
                G = np.linalg.inv(X_q.T @ (inverse[:, None] * X_q))
                values[g, h] = squares @ inverse - np.sum((CX @ G) * CX, axis=1)
        maps = chebyshev_map(nodes[0]), chebyshev_map(nodes[1])
        # In logs: P_ii spans decades in r. The log of 0 is left out.
        values[:, :, self.alone] = 1.0
        self.coefficients = np.einsum("ag,bh,ghn->abn", *maps, np.log(values), optimize=True)

    def at(self, p: Parameters) -> Floats:
        """P_ii at one draw, shape (N,)."""
        t_phi = chebyshev_polynomials(log_position(p.phi, self.phi_bounds), self.nodes[0])
        t_r = chebyshev_polynomials(
            log_position(p.tau_sq / p.sigma_sq, self.r_bounds), self.nodes[1]
        )
        value = np.einsum("a,b,abn->n", t_phi, t_r, self.coefficients, optimize=True)
        return np.asarray(np.where(self.alone, 0.0, np.exp(value) / p.sigma_sq))


def _range(values: list[float]) -> tuple[float, float]:
    """Smallest and largest, a little apart where they are one."""
    low, high = min(values), max(values)
    return (low, high) if high > low * (1 + 1e-9) else (low * 0.999, high * 1.001)
