"""The law of the chances of the cells under a Gaussian process, for any counts."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from scipy.spatial.distance import cdist

from dsstan.core.arrays import Floats, Indices, Truths
from dsstan.core.errors import InputError
from dsstan.covariance.correlation import correlation
from dsstan.models.counts.fit import CountFit
from dsstan.models.intensity.posterior import CellModel, CellPosterior, inverse, posterior
from dsstan.models.intensity.stacked import flat_columns

JITTER = 1e-9
"""Share of the sill on the diagonal of the covariance of the cells, against rounding."""
FEW = 200
"""Groups times cells up to which each record is taken out and the posterior found anew; beyond, the
others' part in it is kept, which makes a Bayes factor too small by up to 7% a copy where a
record is nearly alone and the surface is strong."""
KEPT = 2
"""How many posteriors a law keeps, since an intruder asks for one copy's group after group."""


def expected_rates(found: CellPosterior, group: int) -> Floats:
    """E[lambda | counts] of the cells of a group, shape (C,).

    One more record multiplies the likelihood by lambda, so that it is a ratio of two integrals in
    one dimension.
    """
    return np.asarray(np.exp(found.tilted(group, 1.0).log_z - found.tilted(group).log_z))


def log_rates_without(found: CellPosterior, group: int, cells: Indices) -> Floats:
    """log E[lambda | counts less one record in each of the cells], shape (n, C).

    At the cell itself it is a ratio of two integrals in one dimension. Another cell c follows from
    the covariance V of the log intensities: taking a record from cell i moves the mean of eta_i by
    d_i, and one more in c would move that of eta_c by d_c, so that log E[lambda_c] changes by
    ``V_ci (d_i / V_ii) (d_c / V_cc)``; for normals it is -V_ci.

    Parameters
    ----------
    found, group
        The posterior, and a group in it.
    cells
        Shape (n,).
    """
    less, now, more = (found.tilted(group, by) for by in (-1.0, 0.0, 1.0))
    variance, rows = found.variance[group], np.arange(len(cells))
    out = found.columns(group, cells)
    out *= ((less.mean - now.mean) / variance)[cells, None]
    out *= (more.mean - now.mean) / variance
    out += more.log_z - now.log_z
    out[rows, cells] = (now.log_z - less.log_z)[cells]
    return out


@dataclass(frozen=True, eq=False)
class SurfaceLaw:
    """Chances under a shared surface: ``p_k(c)`` in proportion to exposure exp(x b_k + u(c)).

    phi and sigma_sq are held at the posterior mean of their logs in ``fit``. What is said of any
    counts is deterministic: see :mod:`dsstan.models.intensity.posterior`. A group without a record
    in the fit has the chances of all records together.

    Attributes
    ----------
    fit
        Of the counts by group and cell, group after group.
    counts
        Those of the fit, shape (K, C). Confidential.
    offset
        Log exposure of the cells, shape (C,).
    there
        Numbers of the groups in the fit, those with records.
    """

    fit: CountFit = field(repr=False)
    counts: Floats = field(repr=False)
    offset: Floats = field(repr=False)
    there: Indices = field(repr=False)
    _kept: OrderedDict[bytes, CellPosterior] = field(
        repr=False, init=False, default_factory=OrderedDict
    )

    def expected(self, counts: Floats, group: int) -> Floats:
        """See :class:`dsstan.models.intensity.cell_law.CellLaw`."""
        return self._expected(self._heard(counts), group)

    def without(self, counts: Floats, group: int, cells: Indices) -> Floats:
        """See :class:`dsstan.models.intensity.cell_law.CellLaw`."""
        if counts[group].sum() <= 1.0 or group not in self.there:
            return np.tile(self.expected(_emptied(counts, group), group), (len(cells), 1))
        if self.offset.size * self.there.size <= FEW:
            rows = [self.expected(_less(counts, group, int(cell)), group) for cell in cells]
            return np.reshape(rows, (len(cells), self.offset.size))
        found, at = self._found(counts, group)
        logs = log_rates_without(found, at, cells)
        rates = np.exp(logs, out=logs)
        rates /= rates.sum(axis=1, keepdims=True)
        return rates

    def draws(self, counts: Floats, number: int, rng: np.random.Generator) -> Floats:
        """Posterior draws of the fit as chances, none twice while there are others.

        Shape (number, K, C). Raises InputError if ``counts`` are not those of the fit.
        """
        if not np.array_equal(counts, self.counts):
            raise InputError("chances can be drawn given the counts of the fit only")
        beta, w = self.fit.draws["beta"], self.fit.draws["w"]
        chosen = distinct(beta.shape[0] * beta.shape[1], number, rng)
        out = np.empty((number, *counts.shape))
        for row, index in zip(out, chosen, strict=True):
            at = np.unravel_index(index, beta.shape[:2])
            rates = np.exp(self.offset + self._X @ beta[at] + w[at])
            row[:] = (rates * (self._total / rates.sum(axis=1))[:, None]).sum(axis=0)
            row[self.there] = rates
            row /= row.sum(axis=1, keepdims=True)
        return out

    def _expected(self, there: Floats, group: int) -> Floats:
        """Expected chances given counts of the groups in the fit."""
        own, some = np.flatnonzero(self.there == group), np.flatnonzero(there.sum(axis=1) > 0)
        if not some.size:
            chance = np.exp(self.offset - self.offset.max())
            return np.asarray(chance / chance.sum())
        found = self._posterior(there)
        asked = own if own.size and there[own[0]].sum() > 0 else some
        at = np.flatnonzero(np.isin(some, asked))
        rates = np.sum([expected_rates(found, int(k)) for k in at], axis=0)
        return np.asarray(rates / rates.sum())

    def _heard(self, counts: Floats) -> Floats:
        """Counts of the groups in the fit. Records of others, which have the chances of all
        together, count as some of the largest group."""
        there = counts[self.there].copy()
        there[self._total.argmax()] += np.delete(counts, self.there, axis=0).sum(axis=0)
        return there

    def _found(self, counts: Floats, group: int) -> tuple[CellPosterior, int]:
        """The posterior given counts, and which of its groups this one is."""
        there = self._heard(counts)
        before = there[self.there < group].sum(axis=1) > 0
        return self._posterior(there), int(before.sum())

    def _posterior(self, there: Floats) -> CellPosterior:
        """The posterior given counts of the groups in the fit, of those that have any."""
        some = there.sum(axis=1) > 0
        key = hashlib.sha256(np.ascontiguousarray(there, dtype=np.float64).tobytes()).digest()
        if key not in self._kept:
            model = self.model if some.all() else self.model.of_groups(some)
            self._kept[key] = posterior(model, there[some], self._begin(there[some], some))
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return self._kept[key]

    def _begin(self, counts: Floats, some: Truths) -> Floats | None:
        """Where to look for the log intensities of some of the groups; None where unknown."""
        fitted = self.counts[self.there]
        if not fitted.any() or np.array_equal(counts, fitted):
            return None
        more = np.log(counts.sum(axis=1) / fitted[some].sum(axis=1))
        return np.asarray(self._fitted[some] + more[:, None])

    @cached_property
    def _fitted(self) -> Floats:
        """Mean of the log intensities given the counts of the fit, shape (groups in the fit, C)."""
        return self._posterior(self.counts[self.there]).mean

    @cached_property
    def model(self) -> CellModel:
        """The model with phi and sigma_sq held."""
        fit = self.fit
        sill, phi = (float(np.exp(np.log(fit.draws[n]).mean())) for n in ("sigma_sq", "phi"))
        sites = fit.problem.unique_sites
        R = sill * correlation(cdist(sites, sites), phi, fit.cov_model)
        R[np.diag_indices_from(R)] += JITTER * sill
        flat = flat_columns(self._X)
        K, C = self._X.shape[:2]
        intercepts = np.broadcast_to(np.eye(K)[:, None], (K, C, K))
        X = np.concatenate([intercepts, self._X[:, :, ~flat]], axis=2)
        scale = np.array(fit.priors.beta_scale)[~flat]
        beta_precision = np.concatenate([np.zeros(K), 1.0 / scale**2])
        return CellModel(inverse(R), self.offset, X, beta_precision)

    @cached_property
    def _X(self) -> Floats:
        """Design by group and cell, shape (groups in the fit, C, P)."""
        X = np.asarray(self.fit.problem.X)
        return X.reshape(self.there.size, self.offset.size, X.shape[1])

    @cached_property
    def _total(self) -> Floats:
        """Records of the groups in the fit."""
        return np.asarray(self.counts[self.there].sum(axis=1))


@dataclass(frozen=True, eq=False)
class OwnSurfaces:
    """Each group with a surface of its own.

    Attributes
    ----------
    laws
        One a group, which knows only this group; None for a group without a record in the fit.
    offset
        Log exposure of the cells, shape (C,): the chances of a group without a record.
    """

    laws: tuple[SurfaceLaw | None, ...] = field(repr=False)
    offset: Floats = field(repr=False)

    def expected(self, counts: Floats, group: int) -> Floats:
        """See :class:`dsstan.models.intensity.cell_law.CellLaw`."""
        law = self.laws[group]
        return self._exposed if law is None else law.expected(counts[[group]], 0)

    def without(self, counts: Floats, group: int, cells: Indices) -> Floats:
        """See :class:`dsstan.models.intensity.cell_law.CellLaw`."""
        law = self.laws[group]
        if law is None:
            return np.tile(self._exposed, (len(cells), 1))
        return law.without(counts[[group]], 0, cells)

    def draws(self, counts: Floats, number: int, rng: np.random.Generator) -> Floats:
        """See :meth:`SurfaceLaw.draws`."""
        out = np.empty((number, *counts.shape))
        for k, law in enumerate(self.laws):
            known = None if law is None else law.draws(counts[[k]], number, rng)[:, 0]
            out[:, k] = self._exposed if known is None else known
        return out

    @cached_property
    def _exposed(self) -> Floats:
        chance = np.exp(self.offset - self.offset.max())
        return np.asarray(chance / chance.sum())


def _less(counts: Floats, group: int, cell: int) -> Floats:
    """The counts without one record."""
    out = counts.copy()
    out[group, cell] -= 1.0
    return out


def _emptied(counts: Floats, group: int) -> Floats:
    """The counts without a group."""
    out = counts.copy()
    out[group] = 0.0
    return out


def distinct(size: int, number: int, rng: np.random.Generator) -> Indices:
    """``number`` of ``size`` in random order, each used up before one comes again."""
    rounds = -(-number // size)
    return np.concatenate([rng.permutation(size) for _ in range(rounds)])[:number]
