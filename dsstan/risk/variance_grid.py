"""The posterior of the variances on a grid, and each record's leave-one-out law over it.

Quadrature over (log phi, log r, log sigma_sq), r = tau_sq / sigma_sq, in place of posterior
draws: it has no Monte Carlo error and moves freely when a value of y is taken out or changed.
The coefficients are integrated out under flat priors. At one (phi, r) all statistics are those of
sigma_sq = 1, scaled, so sigma_sq needs no factorisation of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp
from threadpoolctl import threadpool_limits

from dsstan.covariance.eigenbasis import HeldBasis
from dsstan.models.priors import ResolvedPriors
from dsstan.models.result import Fit

__all__ = ["Box", "UnrestrictedGrid", "integrable", "leave_one_out_sd", "scale_nodes"]

Floats = NDArray[np.float64]

MOST_RECORDS = 600
"""Largest table for which records are integrated over a grid without being asked."""

WIDEN, LEAST = 0.35, 0.5
"""By how much of its length, and of the logarithm at least, the draws' range grows at an end."""

EDGE, EDGE_MASS, TRIES = 0.04, 1e-5, 4
"""Outer share of an axis, the mass allowed there before the axis is widened, and how often."""

SCALE_REACH, SCALE_STEP = 8.0, 0.45
"""Reach of log sigma_sq and the distance of its nodes, in sds sqrt(2 / n)."""


def integrable(fit: Fit) -> bool:
    """Whether records of this fit can be integrated over a grid without a long wait."""
    return not fit.covariance.approximate and fit.problem.n_records <= MOST_RECORDS


@dataclass(frozen=True)
class Box:
    """Ranges of log phi and log r, inside those of the prior; equal ends hold phi.

    Attributes
    ----------
    ends
        Of log phi and log r.
    limits
        Of the prior, likewise.
    """

    ends: tuple[tuple[float, float], tuple[float, float]]
    limits: tuple[tuple[float, float], tuple[float, float]]

    @classmethod
    def around(cls, fit: Fit) -> Box:
        """A box that holds the draws of a fit, and more."""
        r = np.log(fit.draws["tau_sq"] / fit.draws["sigma_sq"])
        phi = np.log(fit.draws["phi"])
        held = fit.phi_held is not None
        bounds = fit.priors.phi_bounds
        value = float(phi.flat[0])
        limits = (
            (value, value) if held else (float(np.log(bounds[0])), float(np.log(bounds[1]))),
            (float(np.log(fit.priors.r_bounds[0])), float(np.log(fit.priors.r_bounds[1]))),
        )
        tight = cls(tuple((float(x.min()), float(x.max())) for x in (phi, r)), limits)  # type: ignore[arg-type]
        return tight.wider((True, True, True, True))

    def wider(self, where: Sequence[bool]) -> Box:
        """Longer at some of the ends: low and high of log phi, low and high of log r."""
        ends = []
        for axis in range(2):
            (low, high), (least, most) = self.ends[axis], self.limits[axis]
            more = max(LEAST, WIDEN * (high - low))
            low -= more * where[2 * axis]
            high += more * where[2 * axis + 1]
            ends.append((max(low, least), min(high, most)))
        return Box((ends[0], ends[1]), self.limits)

    def nodes(self, sizes: tuple[int, int]) -> tuple[Floats, Floats, Floats]:
        """Gauss-Legendre nodes of log phi and log r, flat, and the log weight of each pair."""
        (phi, at_phi), (r, at_r) = (
            _legendre(*ends, size) for ends, size in zip(self.ends, sizes, strict=True)
        )
        return phi, r, np.asarray(at_phi[:, None] + at_r)

    def crowded(self, phi: Floats, r: Floats, mass: Floats) -> list[bool]:
        """At which ends, as :meth:`wider` takes them, mass of shape (G, H) lies too far out."""
        out = []
        share = mass / mass.sum()
        for axis, (values, of) in enumerate(((phi, share.sum(axis=1)), (r, share.sum(axis=0)))):
            (low, high), (least, most) = self.ends[axis], self.limits[axis]
            reach = EDGE * (high - low)
            out.append(low > least and of[values <= low + reach].sum() > EDGE_MASS)
            out.append(high < most and of[values >= high - reach].sum() > EDGE_MASS)
        return out


def _legendre(low: float, high: float, size: int) -> tuple[Floats, Floats]:
    """Nodes between two ends and the logs of their weights; one node where the ends are one."""
    if high <= low:
        return np.array([low]), np.zeros(1)
    x, w = np.polynomial.legendre.leggauss(size)
    return 0.5 * (low + high) + 0.5 * (high - low) * x, np.log(0.5 * (high - low) * w)


def log_prior(priors: ResolvedPriors, log_phi: Floats, log_r: Floats, log_sigma: Floats) -> Floats:
    """Log prior density of (log phi, log r, log sigma_sq), a constant left out."""
    total = np.asarray(log_phi)
    for log_v, par in ((log_sigma, priors.sigma), (log_r + log_sigma, priors.tau)):
        v = np.exp(log_v)
        if priors.variance == "half-normal":
            total = total + 0.5 * log_v - 0.5 * v / par[0] ** 2
        else:
            total = total - par[0] * log_v - par[1] / v
    return np.asarray(total)


def scale_nodes(quadratic: Sequence[Floats], degrees: int) -> tuple[Floats, Floats]:
    """Nodes of log sigma_sq and the logs of their weights, shapes (..., K) and (K,) or (..., K).

    Parameters
    ----------
    quadratic
        y'P y at sigma_sq = 1 for the smallest and for the largest y that matters, each of
        shape (...).
    degrees
        n - P; given (phi, r), log sigma_sq has an sd near sqrt(2 / degrees).
    """
    sd = np.sqrt(2.0 / degrees)
    low, high = (np.log(q / degrees) for q in quadratic)
    centre, half = 0.5 * (low + high), 0.5 * np.max(high - low) + SCALE_REACH * sd
    x, w = np.polynomial.legendre.leggauss(int(np.ceil(np.pi / 2 * 2 * half / (SCALE_STEP * sd))))
    return centre[..., None] + half * x, np.log(half * w)


class UnrestrictedGrid:
    """Statistics of the unrestricted model on a grid of (phi, r), at sigma_sq = 1.

    Attributes
    ----------
    log_phi, log_r, log_weight
        Axes (G,) and (H,), and the quadrature's weights (G, H).
    precision, score
        P_ii and (P y)_i of the records asked for, shape (G, H, M).
    quadratic, half_log_det
        y'P y, and half of log|C| + log|X'C^-1 X|, shape (G, H).
    """

    def __init__(self, fit: Fit, records: NDArray[np.intp]) -> None:
        self.fit, self.records = fit, records
        problem = fit.problem
        self.degrees = problem.n_records - problem.n_terms
        self.box = Box.around(fit)
        for _ in range(TRIES):
            self._compute()
            crowded = np.any([self._crowded(k) for k in range(records.size)], axis=0)
            if not crowded.any():
                break
            self.box = self.box.wider(crowded.tolist())

    def _compute(self) -> None:
        """Every statistic at every node."""
        lengths = [high - low for low, high in self.box.ends]
        sizes = int(np.ceil(8 + 6 * lengths[0])), int(np.ceil(12 + 6 * lengths[1]))
        self.log_phi, self.log_r, self.log_weight = self.box.nodes(sizes)
        shape, m = self.log_weight.shape, self.records.size
        self.precision, self.score = np.empty((*shape, m)), np.empty((*shape, m))
        self.quadratic, self.half_log_det = np.empty(shape), np.empty(shape)
        with threadpool_limits(limits=1, user_api="blas"):
            for g, phi in enumerate(np.exp(self.log_phi)):
                basis = HeldBasis.unrestricted(self.fit.problem, float(phi), self.fit.cov_model)
                Q, X, y = basis.Q[self.records], basis.X_q, basis.y_q
                for h, r in enumerate(np.exp(self.log_r)):
                    v = basis.lam + r
                    VX = X / v[:, None]
                    G_inv = X.T @ VX
                    residual = y - X @ np.linalg.solve(G_inv, VX.T @ y)
                    low = Q @ VX
                    self.precision[g, h] = Q**2 @ (1.0 / v) - np.sum(
                        low * np.linalg.solve(G_inv, low.T).T, axis=1
                    )
                    self.score[g, h] = Q @ (residual / v)
                    self.quadratic[g, h] = residual @ (residual / v)
                    log_det = np.sum(np.log(v)) + np.linalg.slogdet(G_inv)[1]
                    self.half_log_det[g, h] = 0.5 * log_det

    def law(self, k: int) -> tuple[Floats, Floats, Floats]:
        """The mixture that is y_i's law given the others, over all nodes.

        Parameters
        ----------
        k
            Which of :attr:`records`.

        Returns
        -------
        log weights, shift of the means from y_i, variances
            Each of shape (G, H, K) or one that broadcasts to it.
        """
        precision, score = self.precision[:, :, k], self.score[:, :, k]
        left = self.quadratic - score**2 / precision
        log_sigma, log_scale = scale_nodes((left, left), self.degrees - 1)
        log_r, log_phi = self.log_r[None, :, None], self.log_phi[:, None, None]
        log_weight = (
            log_prior(self.fit.priors, log_phi, log_r, log_sigma)
            + self.log_weight[:, :, None]
            + log_scale
            - 0.5 * (self.degrees - 1) * log_sigma
            - (self.half_log_det + 0.5 * np.log(precision))[:, :, None]
            - 0.5 * left[:, :, None] * np.exp(-log_sigma)
        )
        variance = np.exp(log_sigma) / precision[:, :, None]
        return log_weight, np.asarray(-score / precision)[:, :, None], variance

    def _crowded(self, k: int) -> list[bool]:
        """At which ends of the box a record's law has mass."""
        log_weight = logsumexp(self.law(k)[0], axis=2)
        mass = np.exp(log_weight - log_weight.max())
        return self.box.crowded(self.log_phi, self.log_r, mass)

    def sd(self, k: int) -> float:
        """sd of the mixture, the spread of its means included."""
        log_weight, shift, variance = self.law(k)
        weight = np.exp(log_weight - log_weight.max())
        weight /= weight.sum()
        mean = np.sum(weight * shift)
        return float(np.sqrt(np.sum(weight * (variance + (shift - mean) ** 2))))


def leave_one_out_sd(fit: Fit, records: NDArray[np.intp]) -> Floats:
    """sd of each record's law given the others, by quadrature, shape (M,).

    Parameters
    ----------
    fit
        The unrestricted fit, of the exact covariance.
    records
        Positions, of records without a coefficient of their own.
    """
    grid = UnrestrictedGrid(fit, records)
    return np.array([grid.sd(k) for k in range(records.size)])
