"""The truncated likelihood as the sampler of latent models takes it: slopes, and the law of theta.

theta is (log phi, log(sigma_sq + tau_sq), log(tau_sq / sigma_sq)): the data tell the sum of the
variances well, and the ratio is what the prior cuts, so that the range of theta is a box.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import halfnorm, invgamma

from dsstan.core.arrays import Floats
from dsstan.models.brackets.kernels import log_density, slopes
from dsstan.models.counts.outcomes import Outcome
from dsstan.models.priors import ResolvedPriors, log_variance_density
from dsstan.table.problem import Problem

__all__ = ["TruncatedNormal", "TruncatedPriors"]

BEYOND = 1e-9
"""Prior probability left out of the range of sigma_sq + tau_sq at either end."""
IN_DATA = (1e-6, 1e2)
"""Shares of the variance about least squares between which data could put the sum."""
LOGS = (-60.0, 60.0)
"""Range of the log of the sum, in whatever units."""


class TruncatedNormal(Outcome):
    """y_i ~ normal(eta_i, tau_sq) cut to the bracket of the record.

    Equation trun of Quick, Holan and Wikle (2018). The log density is concave in eta: its second
    derivative is minus the variance of the cut normal over tau_sq^2.

    Parameters
    ----------
    low, high
        Ends of each record's bracket on the modelled scale, infinite where open, shapes (N,).
    """

    name, program = "truncated", "bracketed"
    label = "Gaussian truncated to the bracket of each record"
    dispersed = True
    dispersion = "tau_sq"

    def __init__(self, low: Floats, high: Floats) -> None:
        self.low, self.high = low, high

    def response(self, problem: Problem) -> Floats:
        """The response on the modelled scale."""
        return problem.y

    def start(self, y: Floats) -> Floats:
        """The value itself."""
        return y

    def scales(self, theta: Floats) -> tuple[Floats, Floats]:
        """log sigma_sq and log tau_sq."""
        log_sigma_sq = theta[..., 1] - np.logaddexp(0.0, theta[..., 2])
        return log_sigma_sq, log_sigma_sq + theta[..., 2]

    def log_likelihood(self, y: Floats, eta: Floats, log_size: float = 0.0) -> float:
        """Sum over the records; ``log_size`` is log tau_sq."""
        return float(log_density(y, eta, float(np.exp(0.5 * log_size)), self.low, self.high))

    def slopes(self, y: Floats, eta: Floats, log_size: float = 0.0) -> tuple[Floats, Floats]:
        """Score (y - m) / tau_sq and information v / tau_sq^2, m and v those of the cut normal."""
        score, information = slopes(y, eta, float(np.exp(0.5 * log_size)), self.low, self.high)
        return score, information


@dataclass(frozen=True)
class TruncatedPriors:
    """The priors of a Gaussian fit as the sampler of latent models asks for them.

    Parameters
    ----------
    priors
        Of the fit.
    spread
        Variance of the response about least squares; 0 where it has none.
    """

    priors: ResolvedPriors
    spread: float

    @property
    def beta_scale(self) -> tuple[float, ...]:
        """Standard deviations of the coefficients' priors."""
        return self.priors.beta_scale

    def theta_range(self, held: float | None) -> tuple[Floats, Floats]:
        """Ends of theta, shapes (3,).

        The prior cuts the ratio. The range of the sum leaves out a share of :data:`BEYOND` of the
        prior at either end, but nothing that the data could tell where the prior is far from them.
        """
        half_normal = self.priors.variance == "half-normal"
        ends = []
        for pair in (self.priors.sigma, self.priors.tau):
            law = halfnorm(scale=pair[0]) if half_normal else invgamma(pair[0], scale=pair[1])
            # The sum is tiny where both are.
            log = np.log([law.ppf(np.sqrt(BEYOND)), law.isf(BEYOND)])
            ends.append(2.0 * log if half_normal else log)
        lows, highs = np.transpose(ends)
        least, most = lows.min(), np.logaddexp(*highs)
        if self.spread > 0.0:
            few, many = np.log(self.spread) + np.log(IN_DATA)
            least, most = min(least, few), max(most, many)
        phi = self.priors.phi_bounds if held is None else (held, held)
        low = [np.log(phi[0]), max(least, LOGS[0]), np.log(self.priors.r_bounds[0])]
        high = [np.log(phi[1]), min(most, LOGS[1]), np.log(self.priors.r_bounds[1])]
        return np.array(low), np.array(high)

    def log_prior(self, theta: Floats, *, held: bool) -> float:
        """Log density of theta but for the cuts' constants."""
        log_sigma_sq = float(theta[1] - np.logaddexp(0.0, theta[2]))
        value = 0.0 if held else float(theta[0] - self.priors.phi_rate * np.exp(theta[0]))
        for log_v, pair in (
            (log_sigma_sq, self.priors.sigma),
            (log_sigma_sq + float(theta[2]), self.priors.tau),
        ):
            value += log_variance_density(log_v, self.priors.variance, pair)
        return value
