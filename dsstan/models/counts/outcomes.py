"""The outcomes of :func:`dsstan.models.counts.fit.fit_counts`: likelihoods, links and draws.

All functions take the linear predictor eta, shape (N,), and the log of the dispersion, which of
them only the negative binomial uses. Log likelihoods keep all constants.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from scipy.special import expit, gammaln

from dsstan.core.arrays import Floats
from dsstan.table.problem import Problem

MOST = 1e15
"""Largest mean of a count that is drawn; beyond, the count is the mean itself."""


class Outcome:
    """What the sampler needs to know of an outcome."""

    name: ClassVar[str]
    program: ClassVar[str]
    label: ClassVar[str]
    dispersed: ClassVar[bool] = False
    dispersion: ClassVar[str] = "size"
    """Name of the dispersion among the draws, where there is one."""

    def response(self, problem: Problem) -> Floats:
        """The response as it is modelled, shape (N,)."""
        return problem.original()

    def scales(self, theta: Floats) -> tuple[Floats, Floats]:
        """log sigma_sq and the log dispersion, 0 without one, at theta, shape (..., q)."""
        return theta[..., 1], theta[..., 2] if self.dispersed else np.zeros(theta.shape[:-1])

    def start(self, y: Floats) -> Floats:
        """A value of eta near each record, shape (N,)."""
        return np.log(y + 0.5)

    def log_likelihood(self, y: Floats, eta: Floats, log_size: float = 0.0) -> float:
        """Sum over the records, all constants kept."""
        raise NotImplementedError

    def slopes(self, y: Floats, eta: Floats, log_size: float = 0.0) -> tuple[Floats, Floats]:
        """Score and observed information of each eta, shapes (N,)."""
        raise NotImplementedError

    def draw(self, eta: Floats, log_size: float, rng: np.random.Generator) -> Floats:
        """New responses, whole numbers, shape (N,)."""
        raise NotImplementedError


class Poisson(Outcome):
    """y ~ Poisson(exp(eta))."""

    name, program, label = "poisson", "poisson", "Poisson, log link"

    def log_likelihood(self, y: Floats, eta: Floats, log_size: float = 0.0) -> float:
        """Sum over the records."""
        with np.errstate(all="ignore"):
            return float(np.sum(y * eta - np.exp(eta) - gammaln(y + 1.0)))

    def slopes(self, y: Floats, eta: Floats, log_size: float = 0.0) -> tuple[Floats, Floats]:
        """Score y - mu, information mu."""
        mu = np.exp(np.minimum(eta, 300.0))
        return y - mu, mu

    def draw(self, eta: Floats, log_size: float, rng: np.random.Generator) -> Floats:
        """Poisson counts."""
        return _poisson(np.exp(np.minimum(eta, 700.0)), rng)


class NegativeBinomial(Outcome):
    """y ~ negative binomial of mean mu = exp(eta) and variance mu + mu^2 / size."""

    name, program = "negative binomial", "negative_binomial"
    label = "negative binomial, log link"
    dispersed = True

    def log_likelihood(self, y: Floats, eta: Floats, log_size: float = 0.0) -> float:
        """Sum over the records."""
        k = np.exp(log_size)
        each = gammaln(y + k) - gammaln(k) - gammaln(y + 1.0)
        # k log(k / (k + mu)) + y log(mu / (k + mu)), by log1p so that no exponential overflows.
        each += -k * np.logaddexp(0.0, eta - log_size) - y * np.logaddexp(0.0, log_size - eta)
        return float(np.sum(each))

    def slopes(self, y: Floats, eta: Floats, log_size: float = 0.0) -> tuple[Floats, Floats]:
        """Score (y - mu) k / (k + mu), observed information (y + k) k mu / (k + mu)^2."""
        k = np.exp(log_size)
        share = expit(eta - log_size)  # mu / (k + mu)
        return y * (1.0 - share) - k * share, (y + k) * share * (1.0 - share)

    def draw(self, eta: Floats, log_size: float, rng: np.random.Generator) -> Floats:
        """A Poisson count of a gamma mean."""
        k = np.exp(log_size)
        mean = np.exp(np.minimum(eta, 700.0))
        return _poisson(mean * rng.gamma(k, 1.0 / k, size=mean.shape), rng)


class Bernoulli(Outcome):
    """y ~ Bernoulli(1 / (1 + exp(-eta)))."""

    name, program, label = "bernoulli", "bernoulli", "Bernoulli, logit link"

    def start(self, y: Floats) -> Floats:
        """Half way to the record's side."""
        return 2.0 * y - 1.0

    def log_likelihood(self, y: Floats, eta: Floats, log_size: float = 0.0) -> float:
        """Sum over the records."""
        return float(np.sum(y * eta - np.logaddexp(0.0, eta)))

    def slopes(self, y: Floats, eta: Floats, log_size: float = 0.0) -> tuple[Floats, Floats]:
        """Score y - p, information p (1 - p)."""
        p = expit(eta)
        return y - p, p * (1.0 - p)

    def draw(self, eta: Floats, log_size: float, rng: np.random.Generator) -> Floats:
        """Zeros and ones."""
        return np.asarray(rng.random(eta.shape) < expit(eta), dtype=np.float64)


def _poisson(mean: Floats, rng: np.random.Generator) -> Floats:
    """Poisson counts as floats; means that NumPy's sampler can't take are the count."""
    drawn = rng.poisson(np.minimum(mean, MOST)).astype(np.float64)
    return np.where(mean > MOST, np.minimum(mean, np.finfo(np.float64).max), drawn)


OUTCOMES: dict[str, Outcome] = {o.name: o for o in (Poisson(), NegativeBinomial(), Bernoulli())}
"""Outcomes by name."""
