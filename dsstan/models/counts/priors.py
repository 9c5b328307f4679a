"""Priors of the models of counts, on the scale of the link."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from dsstan.core.arrays import Floats
from dsstan.core.errors import InputError
from dsstan.models.counts.outcomes import Outcome
from dsstan.models.priors import (
    Priors,
    check_settings,
    check_variance,
    coefficient_scales,
    decay_range,
    log_variance_density,
    variance_pair,
    wide_scales,
)

WIDE = 10.0
"""Default scale of a coefficient's prior on the link scale, in 1 / sd(x_j)."""
SIZE = (10.0, 2.0)
"""Default median of the negative binomial's size, and sd of its log."""
SIGMA = 1.0
"""Default scale of sigma, on the link scale."""
SIGMA_RANGE = (1e-2, 1e1)
"""Default range of sigma, in units of its prior's scale."""
SIZE_REACH = 3.5
"""The prior of the log size is cut at so many of its standard deviations."""


@dataclass(frozen=True)
class CountPriors:
    """What the user may say about the priors; ``None`` means the default.

    Parameters
    ----------
    beta_scale
        Standard deviation of the normal prior of each coefficient, one number or P of them.
        By default 10 / sd(x_j), and for a constant column 10 (1 + sum of
        ``|mean(x_j)| / sd(x_j)``) over the column's value.
    variance
        ``"half-normal"`` on sigma (the default) or ``"inverse-gamma"`` on sigma_sq.
    sigma
        Scale of the half-normal (default: 1, on the link scale), or shape and scale of the
        inverse gamma (default: 2 and 0.5).
    sigma_bounds
        Range of sigma to which the prior is cut. By default 0.01 to 10 times its scale.
    phi_bounds
        Ends of the uniform prior of the decay, inverse of the coordinates' unit. By default
        3 / d_max and 300 / d_max, d_max the largest distance between sites; for another
        correlation function see :func:`dsstan.covariance.correlation.decay_bounds`.
    size
        Median of the negative binomial's size k (variance = mean + mean^2 / k), and standard
        deviation of log k, which is normal; cut at 3.5 of them.
    """

    beta_scale: float | Sequence[float] | None = None
    variance: Literal["half-normal", "inverse-gamma"] = "half-normal"
    sigma: float | tuple[float, float] | None = None
    sigma_bounds: tuple[float, float] | None = None
    phi_bounds: tuple[float, float] | None = None
    size: tuple[float, float] = SIZE

    @classmethod
    def beside(cls, priors: Priors | None) -> CountPriors | None:
        """Those of counts beside a Gaussian model: the same range of the decay.

        Raises InputError where its decay has another prior than the uniform one.
        """
        if priors is None:
            return None
        if priors.decay != "uniform":
            raise InputError(
                f"in a model of counts the decay has a uniform prior, and decay is "
                f"{priors.decay!r}: leave it out, or model the counts apart"
            )
        return cls(phi_bounds=priors.phi_bounds)

    def resolve(
        self, outcome: Outcome, X: Floats, d_max: float, cov_model: str = "exponential"
    ) -> ResolvedCountPriors:
        """Numbers for every setting.

        Raises InputError if a setting is not positive and finite, or a range is empty.
        """
        check_variance(self.variance)
        sigma = variance_pair(self.sigma, self.variance, SIGMA)
        unit = sigma[0] if self.variance == "half-normal" else SIGMA
        bounds = self.sigma_bounds or (SIGMA_RANGE[0] * unit, SIGMA_RANGE[1] * unit)
        resolved = ResolvedCountPriors(
            beta_scale=coefficient_scales(self.beta_scale, wide_scales(X, WIDE)),
            variance=self.variance,
            sigma=sigma,
            sigma_bounds=(float(bounds[0]), float(bounds[1])),
            phi_bounds=decay_range(self.phi_bounds, d_max, cov_model),
            size=(float(self.size[0]), float(self.size[1])) if outcome.dispersed else None,
        )
        resolved.check()
        return resolved


@dataclass(frozen=True)
class ResolvedCountPriors:
    """Every prior setting as a number, as it is recorded.

    ``phi_rate`` is that of a uniform decay; see :class:`dsstan.models.priors.ResolvedPriors`.
    """

    phi_rate: ClassVar[float] = 0.0

    beta_scale: tuple[float, ...]
    variance: Literal["half-normal", "inverse-gamma"]
    sigma: tuple[float, float]
    sigma_bounds: tuple[float, float]
    phi_bounds: tuple[float, float]
    size: tuple[float, float] | None

    def check(self) -> None:
        """Raise InputError where a setting is not positive or a range is empty."""
        check_settings(vars(self), "sigma_bounds", "phi_bounds")

    @property
    def size_bounds(self) -> tuple[float, float]:
        """Range of the size."""
        assert self.size is not None
        median, sd = self.size
        return median * float(np.exp(-SIZE_REACH * sd)), median * float(np.exp(SIZE_REACH * sd))

    def theta_range(self, held: float | None) -> tuple[Floats, Floats]:
        """Ends of (log phi, log sigma_sq) and, of the negative binomial, log size."""
        ends = [self.phi_bounds if held is None else (held, held)]
        ends.append((self.sigma_bounds[0] ** 2, self.sigma_bounds[1] ** 2))
        if self.size is not None:
            ends.append(self.size_bounds)
        low, high = np.log(np.array(ends)).T
        return low, high

    def log_prior(self, theta: Floats, *, held: bool) -> float:
        """Log density of (log phi, log sigma_sq, log size) but for the cuts' constants."""
        value = log_variance_density(float(theta[1]), self.variance, self.sigma)
        if not held:
            value += theta[0] - np.log(self.phi_bounds[1] - self.phi_bounds[0])
        if self.size is not None:
            median, sd = self.size
            value -= 0.5 * ((theta[2] - np.log(median)) / sd) ** 2
            value -= np.log(sd) + 0.5 * np.log(2.0 * np.pi)
        return float(value)

    def stan_data(self, held: float | None) -> dict[str, Any]:
        """Prior settings as the programs name them."""
        phi = self.phi_bounds if held is None else (held, held)
        data: dict[str, Any] = {
            "phi_lower": phi[0],
            "phi_upper": phi[1],
            "sigma_sq_lower": self.sigma_bounds[0] ** 2,
            "sigma_sq_upper": self.sigma_bounds[1] ** 2,
            "beta_scale": list(self.beta_scale),
            "variance_prior": 1 if self.variance == "half-normal" else 2,
            "sigma_par": list(self.sigma),
        }
        if self.size is not None:
            data |= {
                "size_par": [float(np.log(self.size[0])), self.size[1]],
                "size_lower": self.size_bounds[0],
                "size_upper": self.size_bounds[1],
            }
        return data
