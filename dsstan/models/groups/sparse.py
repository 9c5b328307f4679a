"""The spatial effects of several groups given the data, for many records: memory linear in N.

As :mod:`dsstan.covariance.vecchia.latent` does it for one group: the effects at the distinct sites
are nearest-neighbour processes, ``Cov(w) = T x R``, R applied through its sparse factor once for
each group, and V is solved by conjugate gradients.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy.spatial import cKDTree

from dsstan.core.arrays import Floats, Indices
from dsstan.covariance.correlation import correlation, correlation_code
from dsstan.covariance.vecchia.factor_kernels import (
    conditional_weights,
    unwind,
    unwind_transposed,
    wind,
    wind_transposed,
)
from dsstan.covariance.vecchia.kernels import PARALLEL
from dsstan.covariance.vecchia.kriging import AROUND
from dsstan.covariance.vecchia.latent import ordered_sites, solved
from dsstan.models.groups.coregionalisation import GroupEffects, GroupParameters, group_root
from dsstan.models.groups.kernels import group_weights
from dsstan.models.groups.likelihood import GroupRecords, VecchiaGroups
from dsstan.models.groups.result import MultivariateFit

AT_ONCE = 200
"""Places whose neighbourhoods are solved together."""


class SparseGroupModel(GroupEffects):
    """Conditional law of the spatial effects given y, without an N x N matrix."""

    def __init__(self, fit: MultivariateFit) -> None:
        super().__init__(fit)
        problem, settings = fit.problem, fit.covariance.settings
        m = min(settings["neighbours"], problem.n_records - 1)
        self.sites, self.earlier, self.site = ordered_sites(problem, m, "maxmin")
        self.site_rows = self.site[self.rows]
        self.code = correlation_code(fit.cov_model)
        records = GroupRecords.of(fit, fit.groups)
        self.response = VecchiaGroups(records, settings["neighbours"], settings["ordering"])
        self._process = lru_cache(maxsize=1)(self._weights)

    def _weights(self, phi: float) -> tuple[Floats, Floats]:
        """B and the conditional variances of a process of partial sill 1."""
        ones = np.ones(len(self.sites))
        with PARALLEL:
            B, F = conditional_weights(self.sites, ones, ones, self.earlier, phi, 0.0, self.code)
        return np.asarray(B), np.asarray(F)

    def _covariances(self, p: GroupParameters, weight: Floats) -> Floats:
        """Covariances of all effects with a weighted sum of the informing ones, (sites, J)."""
        B, F = self._process(p.phi)
        J, n = len(p.T), len(self.sites)
        place = self.site_rows * J + self.group_rows
        out: Floats = np.asarray(
            np.bincount(place, weights=weight, minlength=n * J), dtype=np.float64
        ).reshape(n, J)
        for k in range(J):
            column = np.ascontiguousarray(out[:, k])
            unwind_transposed(B, self.earlier, column)
            column *= F
            unwind(B, self.earlier, column)
            out[:, k] = column
        return np.asarray(out @ p.T)

    def _solve(self, p: GroupParameters, right: Floats) -> Floats:
        """A V^-1 right, for the informing records, by preconditioned conjugate gradients.

        Raises
        ------
        EngineError
            If the residual does not fall below its limit.
        """
        noise, order = self.noise_variance(p), self.response.order
        near = self.response.near
        B, F = group_weights(*self.response.arrays, near, p.T, p.tau_sq, p.phi, self.code)

        def times(x: Floats) -> Floats:
            effects = self._covariances(p, self.a_rows * x)
            return np.asarray(self.a_rows * effects[self.site_rows, self.group_rows] + noise * x)

        def nearly(x: Floats) -> Floats:
            inside = wind(B, near, x[order]) / F
            wind_transposed(B, near, inside)
            out = np.empty_like(x)
            out[order] = inside
            return out

        return np.asarray(self.a_rows * solved(times, nearly, right)[0])

    def draw(self, p: GroupParameters, rng: np.random.Generator) -> Floats:
        """One draw of w of all records, shape (N,), as
        :meth:`dsstan.models.groups.coregionalisation.GroupLatentModel.draw`."""
        B, F = self._process(p.phi)
        root = group_root(p.T)
        shared = np.sqrt(F)[:, None] * rng.standard_normal((len(self.sites), len(root)))
        for k in range(len(root)):
            column = np.ascontiguousarray(shared[:, k])
            unwind(B, self.earlier, column)
            shared[:, k] = column
        effects = shared @ root.T
        at_rows = effects[self.site_rows, self.group_rows]
        noise = np.sqrt(self.noise_variance(p)) * rng.standard_normal(self.rows.size)
        residual = self.residual(p) - self.a_rows * at_rows - noise
        effects += self._covariances(p, self._solve(p, residual))
        return np.asarray(effects[self.site, self.group])

    def at(self, p: GroupParameters, group: Indices, places: Floats) -> tuple[Floats, Floats]:
        """Mean and variance of w_k given the records around each place, (m,) each."""
        kept = np.flatnonzero(self.a_rows)
        there = self.fit.problem.sites[self.rows[kept]]
        count = min(AROUND, kept.size)
        mean, variance = np.zeros(len(places)), np.diag(p.T)[group].copy()
        if not count:
            return mean, variance
        near = kept[cKDTree(there).query(places, k=np.arange(1, count + 1))[1]]
        residual, noise = self.residual(p), self.noise_variance(p)
        sites = self.fit.problem.sites[self.rows]
        for begin in range(0, len(places), AT_ONCE):
            part = slice(begin, begin + AT_ONCE)
            who, k = near[part], self.group_rows[near[part]]
            gaps = sites[who][:, :, None] - sites[who][:, None]
            V = correlation(np.linalg.norm(gaps, axis=-1), p.phi, self.fit.cov_model)
            V *= p.T[k[:, :, None], k[:, None]]
            a = self.a_rows[who]
            V *= a[:, :, None] * a[:, None]
            number = np.arange(count)
            V[:, number, number] += noise[who]
            away = np.linalg.norm(places[part][:, None] - sites[who], axis=-1)
            c = a * p.T[group[part][:, None], k] * correlation(away, p.phi, self.fit.cov_model)
            solved = np.linalg.solve(V, c[..., None])[..., 0]
            mean[part] = np.sum(solved * residual[who], axis=1)
            variance[part] -= np.sum(solved * c, axis=1)
        return mean, variance
