"""The posterior of the variances on a grid, and each record's leave-one-out law over it.

Quadrature over (log phi, log r, log sigma_sq), r = tau_sq / sigma_sq, in place of posterior
draws: it has no Monte Carlo error and moves freely when a value of y is taken out or changed.
The coefficients are integrated out under flat priors. At one (phi, r) all statistics are those of
sigma_sq = 1, scaled, so sigma_sq needs no factorisation of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve
from scipy.special import logsumexp
from threadpoolctl import threadpool_limits

from dsstan.covariance.base import Parameters
from dsstan.covariance.copy_law import covariance_factor
from dsstan.covariance.eigenbasis import HeldBasis
from dsstan.covariance.latent import LatentModel
from dsstan.models.priors import ResolvedPriors
from dsstan.models.result import Fit

__all__ = ["Box", "VarianceGrid", "integrable", "leave_one_out_sd", "scale_nodes"]

Floats = NDArray[np.float64]

MOST_RECORDS = 600
"""Largest table for which records are integrated over a grid without being asked."""

WIDEN, LEAST = 0.35, 0.5
"""By how much of its length, and of the logarithm at least, the draws' range grows at an end."""

EDGE, EDGE_MASS, TRIES = 0.04, 1e-5, 4
"""Outer share of an axis, the mass allowed there before the axis is widened, and how often."""

MATTERS = 18.0
"""Nodes whose log weight is by so much less than the largest are left out."""

SCALE_REACH, SCALE_STEP = 6.5, 0.85
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


class VarianceGrid:
    """Statistics of a fit's model on a grid of (phi, r), at sigma_sq = 1.

    Parameters
    ----------
    fit
        Of the exact covariance.
    records
        Positions of the records whose y may change.
    step
        Distance of the nodes of log r in the middle of their range, where it must be small.

    Attributes
    ----------
    log_phi, log_r, log_weight
        Axes (G,) and (H,), and the quadrature's weights (G, H).
    precision, score
        P_ii and (P y)_i of the records, shape (G, H, M); 0 of a record that left the fit.
    quadratic, half_log_det
        y'P y, and half of log|C| + log|X'C^-1 X|, shape (G, H).
    """

    def __init__(self, fit: Fit, records: NDArray[np.intp], step: float = np.inf) -> None:
        self.fit, self.records, self.step = fit, records, step
        self.degrees = fit.informing.size - fit.problem.n_terms
        self.box = Box.around(fit)
        for _ in range(TRIES):
            self._compute()
            crowded = self._crowded()
            if not any(crowded):
                break
            self.box = self.box.wider(crowded)

    def _compute(self) -> None:
        """Every statistic at every node."""
        (low, high), (r_low, r_high) = self.box.ends
        fine = np.pi / 2 * (r_high - r_low) / self.step
        sizes = (
            int(np.ceil(7 + 5 * (high - low))),
            int(np.ceil(max(12 + 6 * (r_high - r_low), fine))),
        )
        self.log_phi, self.log_r, self.log_weight = self.box.nodes(sizes)
        shape, m = self.log_weight.shape, self.records.size
        self.precision, self.score = np.empty((*shape, m)), np.empty((*shape, m))
        self.quadratic, self.half_log_det = np.empty(shape), np.empty(shape)
        at = _by_eigenvectors if self.fit.kind == "unrestricted" else _by_factors
        with threadpool_limits(limits=1, user_api="blas"):
            for g, phi in enumerate(np.exp(self.log_phi)):
                for h, found in enumerate(at(self.fit, self.records, float(phi), self.log_r)):
                    self.precision[g, h], self.score[g, h] = found[:2]
                    self.quadratic[g, h], self.half_log_det[g, h] = found[2:]

    def without(self, k: int) -> Floats:
        """y'P y where record k takes the value that fits the others best, shape (G, H)."""
        precision, score = self.precision[:, :, k], self.score[:, :, k]
        informs = precision > 0
        return np.asarray(
            self.quadratic - np.where(informs, score, 0.0) ** 2 / np.where(informs, precision, 1.0)
        )

    def log_posterior(self, quadratic: Floats, log_sigma: Floats, degrees: int) -> Floats:
        """Log density of (log phi, log r, log sigma_sq) with the weights of (phi, r), (G, H, K)."""
        log_r, log_phi = self.log_r[None, :, None], self.log_phi[:, None, None]
        return np.asarray(
            log_prior(self.fit.priors, log_phi, log_r, log_sigma)
            + (self.log_weight - self.half_log_det)[:, :, None]
            - 0.5 * degrees * log_sigma
            - 0.5 * quadratic[:, :, None] * np.exp(-log_sigma)
        )

    def masses(self) -> Floats:
        """Mass of each (phi, r) given y, and given y with one record at its best, (1 + M, G, H)."""
        found = []
        for quadratic in (self.quadratic, *(self.without(k) for k in range(self.records.size))):
            log_sigma, log_scale = scale_nodes((quadratic, quadratic), self.degrees)
            density = self.log_posterior(quadratic, log_sigma, self.degrees)
            log_mass = logsumexp(density + log_scale, axis=2)
            found.append(np.exp(log_mass - logsumexp(log_mass)))
        return np.stack(found)

    def _crowded(self) -> list[bool]:
        """At which ends of the box there is mass."""
        ends = [self.box.crowded(self.log_phi, self.log_r, mass) for mass in self.masses()]
        return [bool(x) for x in np.any(ends, axis=0)]

    def law(self, k: int) -> tuple[Floats, Floats, Floats]:
        """The mixture that is y_k's law given the others, over all nodes.

        Returns
        -------
        log weights, shift of the means from y_k, variances
            Flat, of the nodes that matter.
        """
        precision, score, left = self.precision[:, :, k], self.score[:, :, k], self.without(k)
        log_sigma, log_scale = scale_nodes((left, left), self.degrees - 1)
        log_weight = self.log_posterior(left, log_sigma, self.degrees - 1) + log_scale
        log_weight = log_weight - 0.5 * np.log(precision)[:, :, None]
        log_weight -= logsumexp(log_weight)
        matters = log_weight > log_weight.max() - MATTERS
        variance = np.exp(log_sigma) / precision[:, :, None]
        shift = np.broadcast_to((-score / precision)[:, :, None], variance.shape)
        return log_weight[matters], shift[matters], variance[matters]

    def moments(self, k: int) -> tuple[float, float]:
        """Mean from y_k, and sd, of the mixture, the spread of its means included."""
        log_weight, shift, variance = self.law(k)
        weight = np.exp(log_weight)
        weight /= weight.sum()
        mean = float(weight @ shift)
        return mean, float(np.sqrt(weight @ (variance + (shift - mean) ** 2)))


Statistics = tuple[Floats, Floats, float, float]
"""P_ii, (P y)_i, y'P y, and half of log|C| + log|X'C^-1 X|."""


def _by_eigenvectors(
    fit: Fit, records: NDArray[np.intp], phi: float, log_r: Floats
) -> Iterator[Statistics]:
    """Statistics of the unrestricted model at one phi and each r."""
    basis = HeldBasis.unrestricted(fit.problem, phi, fit.cov_model)
    Q, X, y = basis.Q[records], basis.X_q, basis.y_q
    for r in np.exp(log_r):
        v = basis.lam + r
        VX = X / v[:, None]
        G_inv = X.T @ VX
        residual = y - X @ np.linalg.solve(G_inv, VX.T @ y)
        low = Q @ VX
        precision = Q**2 @ (1.0 / v) - np.sum(low * np.linalg.solve(G_inv, low.T).T, axis=1)
        log_det = np.sum(np.log(v)) + np.linalg.slogdet(G_inv)[1]
        yield precision, Q @ (residual / v), float(residual @ (residual / v)), float(log_det / 2)


def _by_factors(
    fit: Fit, records: NDArray[np.intp], phi: float, log_r: Floats
) -> Iterator[Statistics]:
    """Statistics of a restricted model at one phi and each r."""
    latent = LatentModel(fit)
    M = latent.parts(phi)[2]
    X, y = latent.X, latent.y
    place = np.searchsorted(latent.rows, records).clip(max=len(latent.rows) - 1)
    there = latent.rows[place] == records
    unit = np.zeros((y.size, records.size))
    unit[place[there], np.flatnonzero(there)] = 1.0
    for r in np.exp(log_r):
        factor = covariance_factor(M, Parameters(np.zeros(0), 1.0, float(r), phi))
        solved = cho_solve(factor, np.column_stack([X, unit, y]), check_finite=False)
        VX = solved[:, : X.shape[1]]
        G_inv = X.T @ VX
        projected = solved[:, X.shape[1] :] - VX @ np.linalg.solve(
            G_inv, VX.T @ np.column_stack([unit, y])
        )
        precision = np.sum(unit * projected[:, :-1], axis=0)
        log_det = 2.0 * np.sum(np.log(np.diag(factor[0]))) + np.linalg.slogdet(G_inv)[1]
        yield precision, unit.T @ projected[:, -1], float(y @ projected[:, -1]), float(log_det / 2)


def leave_one_out_sd(fit: Fit, records: NDArray[np.intp]) -> Floats:
    """sd of each record's law given the others, by quadrature, shape (M,).

    Parameters
    ----------
    fit
        The unrestricted fit, of the exact covariance.
    records
        Positions, of records without a coefficient of their own.
    """
    grid = VarianceGrid(fit, records)
    return np.array([grid.moments(k)[1] for k in range(records.size)])
