"""The posterior of the variances on a grid, and each record's leave-one-out law over it.

Quadrature over (log phi, log r), r = tau_sq / sigma_sq, in place of posterior draws: it has no
Monte Carlo error and moves freely when a value of y is taken out or changed.
The coefficients are integrated out under flat priors, sigma_sq by its closed form
(:mod:`dsstan.risk.intruder.scale_integral`). One eigendecomposition serves every r.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh
from scipy.special import logsumexp
from threadpoolctl import threadpool_limits

from dsstan.core.arrays import Floats, Indices
from dsstan.covariance.base import SpatialModel
from dsstan.covariance.pairs import pairs_of
from dsstan.covariance.surface_statistics import smoothed
from dsstan.models.result import Fit
from dsstan.risk.intruder.scale_integral import ScalePrior

MOST_RECORDS = 600
"""Largest table for which records are integrated over a grid without being asked."""

WIDEN, LEAST = 0.35, 0.5
"""By how much of its length, and of the logarithm at least, the draws' range grows at an end."""

EDGE, EDGE_MASS, TRIES = 0.04, 1e-5, 4
"""Outer share of an axis, the mass allowed there before the axis is widened, and how often."""


def integrable(fit: SpatialModel) -> bool:
    """Whether records of this model can be integrated over a grid without a long wait."""
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
    log_phi, log_r
        Axes (G,) and (H,).
    log_weight
        The quadrature's weights times the priors of phi and r, shape (G, H).
    prior
        Of the variances, at each r.
    marginal
        Of y, shapes (G, H, ...).
    """

    def __init__(self, fit: Fit, records: Indices, step: float = np.inf) -> None:
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
            int(np.ceil(6 + 4 * (high - low))),
            int(np.ceil(max(8 + 4 * (r_high - r_low), fine))),
        )
        self.log_phi, self.log_r, log_weight = self.box.nodes(sizes)
        self.prior = ScalePrior.at(self.fit.priors, self.log_r)
        of_phi = self.log_phi - self.fit.priors.phi_rate * np.exp(self.log_phi)
        self.log_weight = log_weight + of_phi[:, None] + self.prior.log_constant
        self.marginal = self.over_nodes(Spectrum.of_values)

    def over_nodes(self, spectrum: Callable[[Fit, Indices, float], Spectrum]) -> Marginal:
        """Statistics of some data at every node."""
        with threadpool_limits(limits=1, user_api="blas"):
            each = [
                spectrum(self.fit, self.records, float(phi)).at(np.exp(self.log_r))
                for phi in np.exp(self.log_phi)
            ]
        return Marginal(*(np.stack(x) for x in zip(*(vars(m).values() for m in each), strict=True)))

    @property
    def without(self) -> Floats:
        """y'P y where a record takes the value that fits the others best, shape (G, H, M)."""
        precision, score = self.marginal.precision, self.marginal.score[..., 0]
        informs = precision > 0
        lost = np.where(informs, score, 0.0) ** 2 / np.where(informs, precision, 1.0)
        return np.asarray(self.marginal.square - lost)

    def masses(self) -> Floats:
        """Mass of each (phi, r) given y, and given y with one record at its best, (1 + M, G, H)."""
        found = np.concatenate([self.marginal.square, self.without], axis=2)
        base = self.log_weight - self.marginal.half_log_det
        log_mass = base + self.prior.integral(self.degrees, np.moveaxis(found, 2, 0))
        return np.asarray(np.exp(log_mass - logsumexp(log_mass, axis=(1, 2), keepdims=True)))

    def _crowded(self) -> list[bool]:
        """At which ends of the box there is mass."""
        ends = [self.box.crowded(self.log_phi, self.log_r, mass) for mass in self.masses()]
        return [bool(x) for x in np.any(ends, axis=0)]

    def moments(self, k: int) -> tuple[float, float]:
        """Mean from y_k, and sd, of y_k's law given the others, the spread of means included.

        At one (phi, r) that law is a scale mixture of normals around the kriged value.
        """
        precision, score = self.marginal.precision[..., k], self.marginal.score[..., k, 0]
        left, degrees = self.without[..., k], self.degrees - 1
        integral = self.prior.integral(degrees, left)
        log_weight = self.log_weight - self.marginal.half_log_det - 0.5 * np.log(precision)
        log_weight = log_weight + integral
        weight = np.exp(log_weight - logsumexp(log_weight))
        scale = np.exp(self.prior.integral(degrees - 2, left) - integral)  # mean of sigma_sq
        shift = -score / precision
        mean = float(np.sum(weight * shift))
        return mean, float(np.sqrt(np.sum(weight * (scale / precision + (shift - mean) ** 2))))


@dataclass(frozen=True, eq=False)
class Marginal:
    """Quadratic forms in P = C^-1 - C^-1 X (X'C^-1 X)^-1 X'C^-1 of several data sets z.

    Attributes
    ----------
    square
        z'P z, shape (..., L).
    score
        (P z)_i of the records, shape (..., M, L); 0 of a record that left the fit.
    precision
        P_ii, shape (..., M).
    half_log_det
        Half of log|C| + log|X'C^-1 X|, shape (...).
    """

    square: Floats
    score: Floats
    precision: Floats
    half_log_det: Floats


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Data in a basis in which C = M + r I is diagonal for every r.

    Attributes
    ----------
    values
        Eigenvalues of M, shape (n,).
    X, Z, units
        Design, data sets and the records' unit vectors in the basis, shapes (n, P), (n, L) and
        (n, M).
    """

    values: Floats
    X: Floats
    Z: Floats
    units: Floats

    @classmethod
    def of_values(cls, fit: Fit, records: Indices, phi: float) -> Spectrum:
        """Of y, as the fit sees it."""
        rows = fit.informing
        M = smoothed(pairs_of(fit, rows).at(phi), fit.A[rows], fit.protection)
        values, Q = eigh(M, check_finite=False, overwrite_a=True)
        X, y = centred(fit)
        return cls(
            np.maximum(values, 0.0),
            Q.T @ X[rows],
            Q.T @ y[rows, None],
            Q.T @ (rows[:, None] == records).astype(np.float64),
        )

    def at(self, r: Floats) -> Marginal:
        """The quadratic forms at each r, every one linear in 1 / (eigenvalue + r)."""
        C = self.values + r[:, None]
        weights = 1.0 / C
        h, n = r.size, len(self.X)

        def forms(left: Floats, right: Floats) -> Floats:
            products = left[:, :, None] * right[:, None, :]
            return (weights @ products.reshape(n, -1)).reshape(h, *products.shape[1:])

        G = np.linalg.inv(forms(self.X, self.X))
        XZ, XE = forms(self.X, self.Z), forms(self.X, self.units)
        log_det = np.sum(np.log(C), axis=1) - np.linalg.slogdet(G)[1]
        return Marginal(
            weights @ self.Z**2 - np.sum(XZ * (G @ XZ), axis=1),
            forms(self.units, self.Z) - np.swapaxes(XE, 1, 2) @ G @ XZ,
            weights @ self.units**2 - np.sum(XE * (G @ XE), axis=1),
            0.5 * log_det,
        )


def centred(fit: Fit) -> tuple[Floats, Floats]:
    """An orthonormal basis of the design (N, P), and y less its least-squares fit (N,).

    Flat priors make no difference between these and the design and y, but for rounding.
    """
    Q, _ = np.linalg.qr(fit.problem.X)
    return Q, fit.problem.y - Q @ (Q.T @ fit.problem.y)


def leave_one_out_sd(fit: Fit, records: Indices) -> Floats:
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
