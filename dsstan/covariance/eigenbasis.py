"""The attacker's terms by eigenvectors of R, so that many draws cost little.

Where phi is held and A holds only zeros and ones, every covariance of the model
is diagonal in the eigenvectors of R among the unflagged records, up to the few
flagged records and the P columns of X. One decomposition then serves every
posterior draw, and a draw costs O(N^2) instead of O(N^3). The formulas are those
of :func:`dsstan.covariance.copy_law.copy_law`, against which the tests hold them.

Where phi is free, as in the unrestricted fit, the terms are smooth functions of
(log phi, log r), up to a power of sigma_sq. They are computed at Chebyshev nodes over
the range of the draws, one decomposition a node of phi, and interpolated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import eigh

from dsstan.core.arrays import Floats, Truths
from dsstan.core.chebyshev import ChebyshevGrid
from dsstan.covariance.base import Parameters, SpatialModel, Terms
from dsstan.covariance.pairs import pairs_of
from dsstan.covariance.protection import NO_PROTECTION, protection_of

TINY = 1e-300
"""Replaces 0 where a logarithm is taken."""

ALONE = 1e-10
"""A record whose least-squares leverage is this close to 1 has a coefficient of its own."""


TOLERANCE = 1e-5
"""Largest error of an interpolated term, by the size of its kind (P_ii: by itself)."""

FEW_DRAWS = 8
"""Up to as many draws the terms are computed at each, not interpolated."""

NODES = ((5, 8), (8, 16), (12, 24), (18, 36), (27, 54))
"""Numbers of nodes (G, H) tried until the tolerance is met."""

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


def eigenbasis_covers(model: SpatialModel, carried: Floats) -> bool:
    """Whether the fast terms serve: held decay, A of zeros and ones, copies of w.

    One record at least must be unflagged, else there is no basis.
    """
    binary = bool(np.all((model.A == 0) | (model.A == 1)) and np.any(model.A == 1))
    return model.phi_held is not None and binary and bool(np.all(carried == 1.0))


def unsmoothed(model: SpatialModel, carried: Floats) -> bool:
    """Whether nothing is smoothed, in the model or in the copies."""
    unrestricted = model.protection == NO_PROTECTION and not model.smoothing_moves
    return unrestricted and bool(np.all(carried == 1.0))


class HeldBasis:
    """The decomposition, and the terms of any draw."""

    def __init__(self, model: SpatialModel) -> None:
        assert model.phi_held is not None
        self._decompose(model, model.A, model.protection, model.phi_held)

    @classmethod
    def unrestricted(cls, model: SpatialModel, phi: float) -> HeldBasis:
        """The decomposition without any smoothing, at one decay."""
        basis = cls.__new__(cls)
        basis._decompose(model, np.ones(model.problem.n_records), NO_PROTECTION, phi)
        return basis

    def _decompose(self, model: SpatialModel, A: Floats, protection: str, phi: float) -> None:
        """R among the unflagged records by its eigenvectors, and all else in their basis."""
        problem = model.problem
        self.protection = protection_of(protection)
        self.informs = not self.protection.flagged_leave
        self.u, self.f = np.flatnonzero(A == 1), np.flatnonzero(A == 0)
        R = pairs_of(model).at(phi)
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
        d_f = t2 + s2 if self.protection.variance_returns else t2
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


def alone(X: Floats) -> Truths:
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
        model: SpatialModel,
        chosen: Sequence[Parameters],
        nodes: tuple[int, int],
    ) -> None:
        problem = model.problem
        ranges = [p.phi for p in chosen], [p.tau_sq / p.sigma_sq for p in chosen]
        self.grid = ChebyshevGrid(nodes, (_range(ranges[0]), _range(ranges[1])))
        self.alone = alone(problem.X)
        decays, ratios = self.grid.points
        values = np.empty((*nodes, 4, problem.n_records))
        zero = np.zeros(problem.n_terms)
        for g, phi in enumerate(decays):
            basis = HeldBasis.unrestricted(model, float(phi))
            points = [Parameters(zero, 1.0, float(r), float(phi)) for r in ratios]
            for h, (at, terms) in enumerate(zip(points, basis.batch(points), strict=True)):
                precision = basis.precision(at)
                precision[self.alone] = 1.0  # the log of 0 is left out
                logs = np.log(np.maximum([precision, terms.information], TINY))
                values[g, h] = *logs, terms.exposure, terms.score
        self.coefficients = self.grid.coefficients(values)

    def at(self, p: Parameters) -> Terms:
        """The terms of every record at one draw, P_ii among them."""
        found = self.grid.at(self.coefficients, p.phi, p.tau_sq / p.sigma_sq)
        precision = np.where(self.alone, 0.0, np.exp(found[0]) / p.sigma_sq)
        information = np.exp(found[1]) / p.sigma_sq
        return Terms(information, found[2], found[3] / p.sigma_sq, precision)


def _range(values: list[float]) -> tuple[float, float]:
    """Smallest and largest, a little apart where they are one."""
    low, high = min(values), max(values)
    return (low, high) if high > low * (1 + 1e-9) else (low * 0.999, high * 1.001)


def unrestricted_terms_at(model: SpatialModel, points: Sequence[Parameters]) -> list[Terms]:
    """Terms of the unrestricted model at some draws, P_ii among them.

    Up to 8 draws they are computed at each. For more they are interpolated over (log phi, log r),
    and nodes are added until the error at the middle draw is below the tolerance.
    """
    source = _interpolant(model, points) if len(points) > FEW_DRAWS else None
    return [_directly(model, p) if source is None else source.at(p) for p in points]


def _directly(model: SpatialModel, p: Parameters) -> Terms:
    """The terms at one draw."""
    basis = HeldBasis.unrestricted(model, p.phi)
    precision = np.where(alone(model.problem.X), 0.0, basis.precision(p))
    return replace(basis.terms(p), precision=precision)


def _interpolant(model: SpatialModel, points: Sequence[Parameters]) -> FreeSurface | None:
    """Terms as functions of (phi, r), good to the tolerance; None if no number of nodes is."""
    middle = points[int(np.argsort([p.phi for p in points])[len(points) // 2])]
    exact = _directly(model, middle)
    assert exact.precision is not None
    there = exact.precision > 0
    for nodes in NODES:
        surface = FreeSurface(model, points, nodes)
        found = surface.at(middle)
        assert found.precision is not None
        relative = np.abs(found.precision[there] / exact.precision[there] - 1.0)
        errors = [np.max(relative, initial=0.0)]
        for mine, want, size in (
            (found.information, exact.information, np.max(exact.information)),
            (found.exposure, exact.exposure, 1.0),
            (found.score, exact.score, np.sqrt(np.max(exact.precision))),  # the score's own sd
        ):
            errors.append(np.max(np.abs(mine - want)) / size)
        if max(errors) < TOLERANCE:
            return surface
    return None
