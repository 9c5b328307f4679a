"""The spatial effects of several groups given the data."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.spatial.distance import cdist

from dsstan.core.arrays import Floats, Indices
from dsstan.covariance.correlation import correlation
from dsstan.covariance.latent import correlation_factor
from dsstan.covariance.protection import removed_variance
from dsstan.models.groups.result import MultivariateFit


@dataclass(frozen=True)
class GroupParameters:
    """One posterior draw: beta (J, P), T (J, J), tau_sq (J,), phi."""

    beta: Floats
    T: Floats
    tau_sq: Floats
    phi: float


def group_parameters_at(fit: MultivariateFit, chain: int, iteration: int) -> GroupParameters:
    """The draw of one chain at one iteration."""
    at = {name: fit.draws[name][chain, iteration] for name in ("beta", "T", "tau_sq", "phi")}
    return GroupParameters(at["beta"], at["T"], at["tau_sq"], float(at["phi"]))


def group_root(T: Floats) -> Floats:
    """F with T = F F', also where T is singular to rounding, shape (J, J)."""
    values, vectors = np.linalg.eigh(T)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


class GroupEffects(ABC):
    """Conditional law of the spatial effects given y for the draws of one fit.

    ``w | y ~ N(C A V^-1 (y - mean), K - C A V^-1 A C')`` with ``K_ij = T_k(i)k(j) R_ij``, C its
    columns of the informing records, ``V = A K A + D`` and the mean ``x_i' beta_k(i)``; section
    6 of Quick, Holan and Wikle (2018) names the process.
    """

    def __init__(self, fit: MultivariateFit) -> None:
        self.fit = fit
        self.group = fit.groups.index
        self.rows = fit.informing
        self.a_rows = fit.A[self.rows]
        self.group_rows = self.group[self.rows]

    def mean_response(self, p: GroupParameters, X: Floats | None = None) -> Floats:
        """x_i' beta_k(i) of every record, shape (N,), at the table's design matrix or another."""
        x = self.fit.problem.X if X is None else X
        return np.asarray(np.sum(x * p.beta[self.group], axis=1))

    def noise_variance(self, p: GroupParameters) -> Floats:
        """D of the informing records, shape (n,)."""
        removed = removed_variance(self.a_rows, self.fit.protection)
        return np.asarray(p.tau_sq[self.group_rows] + np.diag(p.T)[self.group_rows] * removed)

    def residual(self, p: GroupParameters) -> Floats:
        """y - mean of the informing records."""
        return np.asarray((self.fit.problem.y - self.mean_response(p))[self.rows])

    @abstractmethod
    def draw(self, p: GroupParameters, rng: np.random.Generator) -> Floats:
        """One draw of w of all records, shape (N,)."""

    @abstractmethod
    def at(self, p: GroupParameters, group: Indices, places: Floats) -> tuple[Floats, Floats]:
        """Mean and variance of w_k given y and the parameters, of groups at places, (m,) each."""


class GroupLatentModel(GroupEffects):
    """The law of the effects under the exact covariance, by dense matrices."""

    def __init__(self, fit: MultivariateFit) -> None:
        super().__init__(fit)
        problem = fit.problem
        self.sites, self.site = problem.unique_sites, problem.site_index
        self.site_rows = problem.site_index[self.rows]
        self._parts = lru_cache(maxsize=1)(self._factor)

    def _factor(self, phi: float) -> tuple[Floats, Floats]:
        """R among the sites and its factor."""
        R = correlation(cdist(self.sites, self.sites), phi, self.fit.cov_model)
        return R, correlation_factor(R)

    def _solve(self, p: GroupParameters, right: Floats) -> Floats:
        """A V^-1 right, for the informing records."""
        R, _ = self._parts(p.phi)
        V = (
            p.T[np.ix_(self.group_rows, self.group_rows)]
            * R[np.ix_(self.site_rows, self.site_rows)]
        )
        V *= self.a_rows[:, None] * self.a_rows[None, :]
        V[np.diag_indices_from(V)] += self.noise_variance(p)
        factor = cho_factor(V, lower=True, overwrite_a=True, check_finite=False)
        solved = np.asarray(cho_solve(factor, right, check_finite=False))
        return solved * (self.a_rows if right.ndim == 1 else self.a_rows[:, None])

    def cross(self, p: GroupParameters, group: Indices, places: Floats | None = None) -> Floats:
        """Covariance of effects with those of the informing records, shape (m, n).

        Each effect is of a group, shape (m,), at a planar place, shape (m, 2); by default the
        records'.
        """
        if places is None:
            R = self._parts(p.phi)[0][np.ix_(self.site, self.site_rows)]
        else:
            R = correlation(cdist(places, self.sites[self.site_rows]), p.phi, self.fit.cov_model)
        return np.asarray(p.T[np.ix_(group, self.group_rows)] * R)

    def mean(self, p: GroupParameters) -> Floats:
        """E[w | y, parameters] of the records, shape (N,)."""
        return np.asarray(self.cross(p, self.group) @ self._solve(p, self.residual(p)))

    def at(self, p: GroupParameters, group: Indices, places: Floats) -> tuple[Floats, Floats]:
        """Mean and variance of w_k given y and the parameters, of groups at places, (m,) each."""
        C = self.cross(p, group, places)
        solved = self._solve(p, np.column_stack([self.residual(p), (C * self.a_rows).T]))
        variance = np.diag(p.T)[group] - np.sum(C * solved[:, 1:].T, axis=1)
        return np.asarray(C @ solved[:, 0]), np.asarray(variance)

    def covariance(self, p: GroupParameters) -> Floats:
        """Cov[w | y, parameters] of the records, shape (N, N)."""
        R, _ = self._parts(p.phi)
        K = p.T[np.ix_(self.group, self.group)] * R[np.ix_(self.site, self.site)]
        C = self.cross(p, self.group)
        return np.asarray(K - C @ self._solve(p, (C * self.a_rows).T))

    def draw(self, p: GroupParameters, rng: np.random.Generator) -> Floats:
        """One draw of w of all records, shape (N,).

        A prior draw corrected by its own residual: w0 + C A V^-1 (y - mean - A w0 - e).
        """
        _, factor = self._parts(p.phi)
        root = group_root(p.T)
        shared = factor @ rng.standard_normal((len(self.sites), len(root)))
        w0 = np.sum(shared[self.site] * root[self.group], axis=1)
        noise = np.sqrt(self.noise_variance(p)) * rng.standard_normal(self.rows.size)
        residual = self.residual(p) - self.a_rows * w0[self.rows] - noise
        return np.asarray(w0 + self.cross(p, self.group) @ self._solve(p, residual))
