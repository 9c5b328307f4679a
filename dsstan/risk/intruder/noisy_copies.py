"""The density of copies with added noise, as a function of one value of y, for the exact intruder.

Without noise a copy's covariance given y is ``sigma_sq`` times a matrix, and sigma_sq is
integrated out in closed form. Noise of variances D is not in proportion to it, so sigma_sq gets
nodes. One decomposition serves all of them: with ``Vs = L L'`` at sigma_sq = 1 and
``L^-1 D L^-T = U diag(m) U'``, ``sigma_sq Vs + D = L U diag(sigma_sq + m) U' L'``.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import eigh, solve_triangular

from dsstan.core.arrays import Floats, Truths
from dsstan.covariance.base import Parameters
from dsstan.covariance.copy_law import copy_law
from dsstan.covariance.latent import LatentModel
from dsstan.risk.intruder.variance_grid import VarianceGrid

REACH, STEP = 6.5, 0.85
"""Reach of log sigma_sq and the distance of its nodes, in sds sqrt(2 / n)."""

NEGLIGIBLE, ROUGH = 12.0, 9
"""Nodes whose log density is by so much less than the largest are left out, and the number of
values at which they are compared."""


class NoisyCopies:
    """log p(y, copies) over the nodes of (phi, r) that matter.

    Parameters
    ----------
    grid
        Of the fit that the copies come from.
    kept
        Nodes that matter, shape (G, H).
    copies
        On the modelled scale, shape (L, N).
    carried
        Factor on w in the copies, shape (N,).
    noise
        sd of the added noise, shape (N,).
    """

    def __init__(
        self,
        grid: VarianceGrid,
        kept: Truths,
        copies: Floats,
        carried: Floats,
        noise: Floats,
    ) -> None:
        self.grid, self.kept = grid, kept
        latent, zero = LatentModel(grid.fit), np.zeros(grid.fit.problem.n_terms)
        y, found = grid.fit.problem.y, []
        for g, h in np.argwhere(kept):
            phi, r = np.exp(grid.log_phi[g]), np.exp(grid.log_r[h])
            law = copy_law(latent, Parameters(zero, 1.0, float(r), float(phi)), carried)
            root = np.linalg.cholesky(law.Vs)
            half = solve_triangular(root, np.diag(noise), lower=True, check_finite=False)
            m, U = eigh(half @ half.T, check_finite=False)
            right = np.column_stack([law.H[:, grid.records], copies.T - (law.H @ y)[:, None]])
            z = U.T @ solve_triangular(root, right, lower=True, check_finite=False)
            own, residual = z[:, : grid.records.size], z[:, grid.records.size :]
            found.append((np.maximum(m, 0.0), own, residual, np.sum(np.log(np.diag(root)))))
        # Shapes (T, N), (T, N, M), (T, N, L) and (T,), T the number of nodes.
        self.m, self.own, self.residual, self.half_log_det = (
            np.stack(x) for x in zip(*found, strict=True)
        )

        # One set of nodes of sigma_sq serves all records: wide enough for the least y'P y of any.
        square = grid.marginal.square[..., 0][kept]
        least = grid.without[kept].min(axis=1)
        log_v, log_weight = _scales(least, np.maximum(square, least), grid.degrees)
        self.v = v = np.exp(log_v)
        rate, add, base = (
            np.broadcast_to(x, kept.shape)[kept][:, None]
            for x in (
                grid.prior.rate,
                grid.prior.add,
                grid.log_weight - grid.marginal.half_log_det,
            )
        )
        order = 0.5 * grid.degrees + grid.prior.shift
        each = base - self.half_log_det[:, None] + log_weight - order * log_v
        each = each - rate * v - (0.5 * square[:, None] + add) / v
        C = v[:, :, None] + self.m[:, None, :]
        each -= 0.5 * np.sum(np.log(C), axis=2)
        self.weight = 1.0 / C
        constant = each[:, :, None] - 0.5 * self.weight @ self.residual**2
        # Shapes (T, K), (T, K, N) and (L, T K), K the number of nodes of sigma_sq.
        self.constant = np.moveaxis(constant, 2, 0).reshape(constant.shape[2], -1)

    def log_density(self, k: int, near: float) -> Callable[[Floats], Floats]:
        """Sum over the copies of log p(y, copy) as a function of the shift of y_k, (D,) to (D,).

        Right for shifts up to ``near``; beyond, where nothing is asked of it, it falls off.
        """
        grid, kept, v = self.grid, self.kept, self.v
        precision = grid.marginal.precision[..., k][kept]
        score = grid.marginal.score[..., k, 0][kept]
        own = self.own[:, :, k]
        bend = (self.weight @ (own**2)[:, :, None])[:, :, 0] + precision[:, None] / v
        slope = self.weight @ (own[:, :, None] * self.residual) - (score[:, None] / v)[:, :, None]
        slopes = np.moveaxis(slope, 2, 0).reshape(slope.shape[2], -1)

        def density(shift: Floats) -> Floats:
            total = np.zeros(shift.size)
            for constant, s in zip(self.constant, slopes, strict=True):
                total += _log_sum(constant, s, bend.ravel(), shift, near)
            return total

        return density


def _scales(low: Floats, high: Floats, degrees: int) -> tuple[Floats, Floats]:
    """Nodes of log sigma_sq for y'P y from low to high, (T, K), and the logs of their weights."""
    sd = np.sqrt(2.0 / degrees)
    ends = np.log(low / degrees), np.log(high / degrees)
    centre, half = 0.5 * (ends[0] + ends[1]), 0.5 * np.max(ends[1] - ends[0]) + REACH * sd
    x, w = np.polynomial.legendre.leggauss(int(np.ceil(np.pi * half / (STEP * sd))))
    return centre[:, None] + half * x, np.log(half * w)


def _log_sum(constant: Floats, slope: Floats, bend: Floats, x: Floats, near: float) -> Floats:
    """log sum_n exp(constant_n + slope_n x - bend_n x^2 / 2), shape (D,); right up to ``near``."""
    at = np.divide(slope, bend, out=np.zeros_like(slope), where=bend > 0)
    peak = np.clip(at, -near, near)
    height = constant + slope * peak - 0.5 * bend * peak**2
    # The largest summand in the middle is an envelope, and so are a few where others are larger.
    best = int(np.argmax(constant))
    least = constant[best] - abs(slope[best]) * near - 0.5 * bend[best] * near**2
    some = np.flatnonzero(height > least - NEGLIGIBLE)
    constant, slope, bend, peak, height = (v[some] for v in (constant, slope, bend, peak, height))
    points = np.linspace(-near, near, ROUGH)
    rough = constant[:, None] + np.multiply.outer(slope, points)
    rough -= 0.5 * np.multiply.outer(bend, points**2)
    envelope = rough.max(axis=0)
    # A narrow summand may matter between two of these values only: it is compared at its peak.
    kept = height > np.interp(peak, points, envelope) - NEGLIGIBLE
    kept |= np.any(rough > envelope - NEGLIGIBLE, axis=1)
    value = constant[kept, None] + np.multiply.outer(slope[kept], x)
    value -= 0.5 * np.multiply.outer(bend[kept], x**2)
    top = value.max(axis=0)
    return np.asarray(top + np.log(np.exp(value - top).sum(axis=0)))
