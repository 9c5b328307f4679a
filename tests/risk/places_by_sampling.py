"""An intruder of places under a Gaussian surface, from the definitions, by importance sampling.

One group. Nothing here is from the package: the chances are a softmax of a surface, their law given
counts is sampled, and what informs the release is worked out anew in every table thought of.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp

DEGREES = 6
"""Of the t density that is drawn from; its tails are heavier than the posterior's."""

WIDER = 1.3
"""Its variance over that of the normal at the mode."""


class Sampled:
    """Weighted draws of the log chances given counts, shape (C,)."""

    def __init__(self, covariance, counts, draws):
        precision, C = np.linalg.inv(covariance), len(counts)

        def minus_log(u):
            p = np.exp(u - logsumexp(u))
            value = 0.5 * u @ precision @ u - counts @ u + counts.sum() * logsumexp(u)
            return value, precision @ u - counts + counts.sum() * p

        mode = minimize(minus_log, np.zeros(C), jac=True, method="BFGS").x
        p = np.exp(mode - logsumexp(mode))
        curvature = precision + counts.sum() * (np.diag(p) - np.outer(p, p))
        root = np.linalg.cholesky(WIDER * np.linalg.inv(curvature))
        rng = np.random.default_rng(1)  # of all counts the same: errors of ratios cancel
        z = rng.standard_normal((draws, C))
        scale = rng.chisquare(DEGREES, draws) / DEGREES
        u = mode + z @ root.T / np.sqrt(scale)[:, None]
        log_t = -0.5 * (DEGREES + C) * np.log1p((z**2).sum(axis=1) / scale / DEGREES)
        self.log_p = u - logsumexp(u, axis=1, keepdims=True)
        quadratic = np.einsum("ni,ij,nj->n", u, precision, u)
        self.weight = -0.5 * quadratic + self.log_p @ counts - log_t

    def log_mean(self, powers):
        """log E of the product of the chances to these powers, shape (C,)."""
        return logsumexp(self.weight + self.log_p @ powers) - logsumexp(self.weight)

    def chances(self, rng):
        """One draw of the chances."""
        weight = np.exp(self.weight - self.weight.max())
        return np.exp(self.log_p[rng.choice(len(weight), p=weight / weight.sum())])


class SampledIntruder:
    """Who knows all others, the covariance of the surface and how many are held back."""

    def __init__(self, covariance, held_back, draws):
        self.cells, self.held_back = np.eye(len(covariance)), held_back
        self._at = cache(lambda counts: Sampled(covariance, np.array(counts), draws))

    def at(self, counts):
        """The law given counts."""
        return self._at(tuple(counts))

    def informing(self, table):
        """Counts without the held back, of a table as counts."""
        return np.maximum(table - self.held_back, 0.0)

    def log_ratio(self, released, some, other):
        """Log of how many times likelier copies are from ``other`` than from ``some``."""
        more = other - some
        seen = sum(self.at(some + copy).log_mean(more) for copy in released)
        return seen - len(released) * self.at(some).log_mean(more)

    def log_present(self, released, table, cell):
        """Log Bayes factor of a record there, given the number of records."""
        return self.log_ratio(
            released, self.informing(table - self.cells[cell]), self.informing(table)
        )

    def chances(self, released, table, cell):
        """Chance of each cell for a record there, after the release."""
        others = table - self.cells[cell]
        base = self.informing(others)
        before = np.array([self.at(others).log_mean(one) for one in self.cells])
        seen = [self.log_ratio(released, base, self.informing(others + one)) for one in self.cells]
        after = before + np.array(seen)
        return np.exp(after - logsumexp(after))
