"""Coordinates of the covariance parameters in which their prior is a standard normal."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import betaincinv, gammaincinv, log_ndtr, ndtr, ndtri

from dsstan.core.arrays import Floats, Truths
from dsstan.covariance.correlation import decay_quantile, decay_share
from dsstan.models.priors import ResolvedPriors


@dataclass(frozen=True, eq=False)
class GroupParameterSets:
    """M sets of parameters: T (M, J, J), tau_sq (M, J), phi (M,).

    ``inside`` says which keep to the range of tau_sq_k / T_kk, shape (M,).
    """

    T: Floats
    tau_sq: Floats
    phi: Floats
    inside: Truths


@dataclass(frozen=True)
class PriorCoordinates:
    """u ~ N(0, I) a priori, and what it stands for.

    Every parameter is a quantile of its prior at Phi(u), so that the posterior density of u is
    the likelihood times a standard normal, whatever the priors are. A parameter of which the
    records tell nothing keeps its normal, and one of which they tell much is nearly normal:
    Laplace's approximation serves both.

    The entries of u are, for J groups: J sizes and J angles (under the inverse gamma J partial
    sills and J nuggets), J (J - 1) / 2 partial correlations, and phi unless it is held. Scaled by
    their priors' scales, two half-normal roots are a Rayleigh radius and a uniform angle; the
    sum of squares is what a small group knows. Partial correlations of the LKJ law are
    independent betas (Lewandowski, Kurowicka and Joe 2009).

    Attributes
    ----------
    groups
        J.
    priors
        Of the fit, resolved.
    eta
        Shape of the LKJ prior.
    held
        The decay where it is held.
    """

    groups: int
    priors: ResolvedPriors
    eta: float
    held: float | None

    @property
    def size(self) -> int:
        """Entries of u."""
        J = self.groups
        return 2 * J + J * (J - 1) // 2 + (self.held is None)

    def start(self, share: float) -> Floats:
        """A middling point, phi at a share of its range in logs, shape (size,)."""
        u = np.zeros(self.size)
        if self.held is None:
            low, high = self.priors.phi_bounds
            phi = np.exp((1 - share) * np.log(low) + share * np.log(high))
            u[-1] = ndtri(decay_share(phi, (low, high), self.priors.phi_rate))
        return u

    def natural(self, u: Floats) -> GroupParameterSets:
        """The parameters at each row of u, shape (M, size)."""
        J, priors = self.groups, self.priors
        first, second = u[:, :J], u[:, J : 2 * J]
        low, high = priors.r_bounds
        inside = np.ones(len(u), dtype=bool)
        if priors.variance == "half-normal":
            scale = priors.tau[0] / priors.sigma[0]
            least, most = np.arctan(scale / np.sqrt(high)), np.arctan(scale / np.sqrt(low))
            # Phi(-u) from the other end, so that a small nugget keeps its digits.
            angle = np.where(
                second < 0,
                least + (most - least) * ndtr(second),
                most - (most - least) * ndtr(-second),
            )
            radius = np.sqrt(-2.0 * log_ndtr(-first))
            sill = (priors.sigma[0] * radius * np.sin(angle)) ** 2
            tau_sq = (priors.tau[0] * radius * np.cos(angle)) ** 2
        else:
            sill = priors.sigma[1] / gammaincinv(priors.sigma[0], ndtr(-first))
            tau_sq = priors.tau[1] / gammaincinv(priors.tau[0], ndtr(-second))
            ratio = tau_sq / sill
            inside &= np.all((ratio > low) & (ratio < high), axis=1)
        factor = self._correlation_factor(u[:, 2 * J : 2 * J + J * (J - 1) // 2])
        factor = np.sqrt(sill)[:, :, None] * factor
        T = factor @ factor.swapaxes(1, 2)
        if self.held is not None:
            phi = np.full(len(u), self.held)
        else:
            phi = decay_quantile(ndtr(u[:, -1]), priors.phi_bounds, priors.phi_rate)
        return GroupParameterSets(T, tau_sq, phi, inside)

    def _correlation_factor(self, u: Floats) -> Floats:
        """Cholesky factors of correlations between groups, shape (M, J, J)."""
        J = self.groups
        factor = np.zeros((len(u), J, J))
        rest, at = np.ones((len(u), J)), 0
        for k in range(1, J):
            for j in range(k):
                shape = self.eta + 0.5 * (J - 2 - j)
                tail = betaincinv(shape, shape, ndtr(-np.abs(u[:, at])))
                partial = np.sign(u[:, at]) * (1.0 - 2.0 * tail)
                factor[:, k, j] = partial * np.sqrt(rest[:, k])
                rest[:, k] *= 4.0 * tail * (1.0 - tail)  # 1 - partial^2
                at += 1
        number = np.arange(J)
        factor[:, number, number] = np.sqrt(rest)
        return factor
