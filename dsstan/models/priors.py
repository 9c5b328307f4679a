"""Priors of the models, and their settings in the user's own units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from scipy.special import gammaln

from dsstan.core.arrays import Floats
from dsstan.core.errors import InputError, is_number
from dsstan.core.spelling import spelled
from dsstan.covariance.correlation import decay_bounds, decay_rate

DECAYS = ("uniform", "penalised-complexity")
"""Priors of the decay, by name."""

WIDE = 100.0
"""Default scale of a coefficient's prior, in sd(y) / sd(x_j)."""

FARTHEST = 1e4
"""By which factor a stated range of the decay may reach beyond the usual one."""

EARLIER = 10.0
"""By which factor the default range of the decay begins earlier where its prior is exponential."""

SHORT, CHANCE = 20.0, 0.05
"""Default short range, as d_max over so much, and the prior's chance of a shorter one."""


@dataclass(frozen=True)
class Priors:
    """What the user may say about the priors; ``None`` means the default.

    Parameters
    ----------
    beta_scale
        Standard deviation of the normal prior of each coefficient, one number
        or P of them. By default a hundred times sd(y) / sd(x_j), and for a
        constant column a hundred times ``|mean(y)| + sd(y) (1 + sum of
        |mean(x_j)| / sd(x_j))``, over the column's value.
    variance
        ``"half-normal"`` on the roots sigma and tau (the default), or
        ``"inverse-gamma"`` on the variances, for parity with older software:
        with half the residual variance as its scale it shuts out a small
        nugget.
    sigma, tau
        Scale of the half-normal (default: the residual standard deviation of
        ordinary least squares), or shape and scale of the inverse gamma
        (default: 2 and half the residual variance).
    phi_bounds
        Ends of the prior of the decay, inverse of the coordinates'
        unit. By default the effective range goes from d_max to d_max / 100: 3 / d_max and
        300 / d_max for the exponential; see :func:`dsstan.covariance.correlation.decay_bounds`.
        Under ``"penalised-complexity"`` it goes from ten times d_max.
    r_bounds
        Range of tau_sq / sigma_sq to which the prior is cut.
    decay
        ``"uniform"`` between ``phi_bounds`` (the default, as in the paper), or
        ``"penalised-complexity"``: exponential, cut to ``phi_bounds``, so that a long effective
        range needs no evidence and a short one does
        (:func:`dsstan.covariance.correlation.decay_rate`). The prior of the variances stays as
        ``variance`` says; the full penalised-complexity prior has an exponential sigma.
    short_range
        Of ``"penalised-complexity"``: a short effective range, in the coordinates' unit, and the
        chance of a shorter one before the prior is cut. By default d_max / 20 and 0.05.
    """

    beta_scale: float | Sequence[float] | None = None
    variance: Literal["half-normal", "inverse-gamma"] = "half-normal"
    sigma: float | tuple[float, float] | None = None
    tau: float | tuple[float, float] | None = None
    phi_bounds: tuple[float, float] | None = None
    r_bounds: tuple[float, float] = (1e-4, 1e4)
    decay: Literal["uniform", "penalised-complexity"] = "uniform"
    short_range: tuple[float, float] | None = None

    def resolve(
        self, y: Floats, X: Floats, d_max: float, *, cov_model: str = "exponential"
    ) -> ResolvedPriors:
        """Numbers for every setting, given the data that inform the fit.

        Parameters
        ----------
        y, X
            Response (N,) and design matrix (N, P).
        d_max
            Largest distance between sites, in the coordinates' unit.
        cov_model
            Correlation function, on which the default range of the decay depends.

        Raises
        ------
        InputError
            If a setting is not positive and finite, a range is empty, or a short range is given
            for a uniform decay.
        """
        n, p = X.shape
        check_variance(self.variance)
        coef, _, _, _ = np.linalg.lstsq(X, y, rcond=None)
        residual_sd = float(np.sqrt(np.sum((y - X @ coef) ** 2) / (n - p)))
        wide = wide_scales(X, WIDE, centre=abs(float(np.mean(y))), sd=float(np.std(y)))
        resolved = ResolvedPriors(
            beta_scale=coefficient_scales(self.beta_scale, wide),
            variance=self.variance,
            sigma=variance_pair(self.sigma, self.variance, residual_sd),
            tau=variance_pair(self.tau, self.variance, residual_sd),
            phi_bounds=decay_range(
                *(self.phi_bounds, d_max, cov_model),
                earlier=1.0 if self.decay == "uniform" else EARLIER,
            ),
            r_bounds=(float(self.r_bounds[0]), float(self.r_bounds[1])),
            phi_rate=self._phi_rate(d_max, cov_model),
        )
        resolved.check()
        return resolved

    def _phi_rate(self, d_max: float, cov_model: str) -> float:
        """Rate of the exponential prior of the decay, 0 where it is uniform."""
        if self.decay == "uniform":
            if self.short_range is not None:
                raise InputError(
                    'prior setting short_range belongs to decay="penalised-complexity", and decay '
                    'is "uniform"'
                )
            return 0.0
        if self.decay != "penalised-complexity":
            raise InputError(f"decay must be {' or '.join(DECAYS)}, got {self.decay!r}")
        pair = (d_max / SHORT, CHANCE) if self.short_range is None else self.short_range
        fine = np.shape(pair) == (2,) and all(map(is_number, pair))
        if not (fine and 0 < pair[0] < np.inf and 0 < pair[1] < 1):
            raise InputError(
                "prior setting short_range must be (range, chance): a positive effective range and "
                "the chance of a shorter one, between 0 and 1"
            )
        return decay_rate(float(pair[0]), float(pair[1]), cov_model)


class _OfStan(Protocol):
    """A surface of any kind."""

    def stan_data(self) -> dict[str, Any]:
        """Its part of the data of ``surface.stan``."""


@dataclass(frozen=True)
class ResolvedPriors:
    """Every prior setting as a number, as it reached Stan and is recorded.

    ``phi_rate`` is the rate of the exponential prior of the decay, 0 where it is uniform.
    """

    beta_scale: tuple[float, ...]
    variance: Literal["half-normal", "inverse-gamma"]
    sigma: tuple[float, float]
    tau: tuple[float, float]
    phi_bounds: tuple[float, float]
    r_bounds: tuple[float, float]
    phi_rate: float = 0.0

    def check(self) -> None:
        """Raise InputError where a setting is not positive or a range is empty."""
        check_settings({**vars(self), "phi_rate": None}, "phi_bounds", "r_bounds")

    def on_surface(self, surface: _OfStan) -> dict[str, Any]:
        """Data of ``surface.stan`` but for the whitening."""
        return {**surface.stan_data(), **self.stan_data(), "phi_rate": self.phi_rate}

    def decay_data(self, held: float | None = None) -> dict[str, float]:
        """The data names of the decay, of the programs that it may be free in."""
        low, high = self.phi_bounds if held is None else (held, held)
        return {"phi_lower": low, "phi_upper": high, "phi_rate": self.phi_rate}

    def stan_data(self) -> dict[str, Any]:
        """The data names that every program shares, but for those of the decay."""
        return {
            "beta_scale": list(self.beta_scale),
            "variance_prior": 1 if self.variance == "half-normal" else 2,
            "sigma_par": list(self.sigma),
            "tau_par": list(self.tau),
            "r_lower": self.r_bounds[0],
            "r_upper": self.r_bounds[1],
        }


def check_settings(settings: Mapping[str, Any], *ranges: str) -> None:
    """Refuse settings that are not positive and finite, or ranges that are empty."""
    for name, values in settings.items():
        numbers = () if values is None or name == "variance" else values
        if not all(is_number(v) and np.isfinite(v) and v > 0 for v in numbers):
            raise InputError(f"prior setting {name} must be positive and finite")
    for name in ranges:
        low, high = settings[name]
        if not low < high:
            raise InputError(f"prior setting {name} must be (low, high) with low < high")


def decay_range(
    given: tuple[float, float] | None, d_max: float, cov_model: str, *, earlier: float = 1.0
) -> tuple[float, float]:
    """Ends of the prior of the decay: as given, else the usual ones, the low one ``earlier``.

    Raises InputError if an end is so far out that all correlations of the table's places are as
    good as 1 or 0 there.
    """
    usual = decay_bounds(d_max, cov_model)
    least, most = usual[0] / FARTHEST, usual[1] * FARTHEST
    usual = usual[0] / earlier, usual[1]
    low, high = map(float, given or usual)
    if 0.0 < low < high < np.inf and not (least <= low and high <= most):
        raise InputError(
            f"{spelled('phi_bounds', (low, high), of='priors')} is beyond what the places of the "
            f"table can tell apart: give ends between {least:.2g} and {most:.2g}, or leave it out "
            f"for {usual[0]:.2g} to {usual[1]:.2g}"
        )
    return low, high


def check_variance(kind: str) -> None:
    """Refuse a prior of variances that there is none of."""
    if kind not in ("half-normal", "inverse-gamma"):
        raise InputError(f'variance must be "half-normal" or "inverse-gamma", got {kind!r}')


def log_variance_density(log_v: float, kind: str, pair: tuple[float, float]) -> float:
    """Log prior density of the log of a variance, given its kind and its two numbers."""
    if kind == "half-normal":
        scale = pair[0]
        value = 0.5 * log_v - 0.5 * np.exp(log_v) / scale**2
        return float(value - np.log(scale) - 0.5 * np.log(2.0 * np.pi))
    shape, scale = pair
    value = shape * np.log(scale) - gammaln(shape) - shape * log_v
    return float(value - scale * np.exp(-log_v))


def coefficient_scales(given: float | Sequence[float] | None, wide: Floats) -> tuple[float, ...]:
    """Prior scale of each coefficient: as given, else the wide ones, shape (P,)."""
    scales = np.asarray(wide if given is None else given, dtype=np.float64)
    return tuple(float(s) for s in np.broadcast_to(scales, wide.shape))


def variance_pair(
    given: float | tuple[float, float] | None, kind: str, residual_sd: float
) -> tuple[float, float]:
    """Settings of one variance's prior as two numbers."""
    if given is None:
        return (residual_sd, 1.0) if kind == "half-normal" else (2.0, 0.5 * residual_sd**2)
    values = np.atleast_1d(np.asarray(given, dtype=np.float64))
    if kind == "half-normal" and values.size == 1:
        return (float(values[0]), 1.0)
    if kind == "inverse-gamma" and values.size == 2:
        return (float(values[0]), float(values[1]))
    raise InputError(
        "a half-normal prior takes one number, its scale; an inverse-gamma prior takes "
        f"two, shape and scale; got {values.size} for {kind}"
    )


def wide_scales(X: Floats, factor: float, *, centre: float = 0.0, sd: float = 1.0) -> Floats:
    """Wide prior scales in the units of each coefficient, shape (P,).

    ``factor`` says how wide, in sd over that of each column of X, shape (N, P); ``centre`` and
    ``sd`` are the distance from 0 and the spread of what the formula is for.
    """
    spread, middle = np.std(X, axis=0), np.abs(X.mean(axis=0))
    constant = spread <= 1e-12 * np.maximum(1.0, np.abs(X).max(axis=0))
    safe = np.where(constant, 1.0, spread)
    reach = 1.0 + float(np.sum(np.where(constant, 0.0, middle / safe)))
    level = factor * (centre + sd * reach)
    return np.where(constant, level / np.maximum(middle, 1e-300), factor * sd / safe)
