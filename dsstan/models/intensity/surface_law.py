"""The law of the chances of the cells under a Gaussian process, for any counts."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from scipy.spatial.distance import cdist
from scipy.special import logsumexp

from dsstan.core.arrays import Floats, Indices
from dsstan.core.errors import InputError
from dsstan.covariance.correlation import correlation
from dsstan.models.counts.fit import CountFit
from dsstan.models.intensity.held_surface import HeldSurface
from dsstan.models.intensity.posterior import CellModel, inverse
from dsstan.models.intensity.stacked import flat_columns

JITTER = 1e-9
"""Share of the sill on the diagonal of the covariance of the cells, against rounding."""
FEW, EMPTIEST, MANY = 200, 30, 600
"""Up to so many groups times cells each record is taken out and the posterior found anew; up to so
many cells, the third, those of so many cells of each group, the second, that hold fewest. Of all
others the rest's part in the posterior is kept, which matters where a record is nearly alone."""
PARTS = ((400, 5), (1100, 3))
"""Up to so many cells, into how many parts the posterior of sigma_sq is cut, and each of these by
phi; beyond, its mean stands for it."""


@dataclass(frozen=True, eq=False)
class SurfaceLaw:
    """Chances under a shared surface: ``p_k(c)`` in proportion to exposure exp(x b_k + u(c)).

    The posterior of phi and sigma_sq in ``fit`` is cut into parts of equal probability, each
    represented by its mean; what they say of other counts is weighted by how likely each makes
    these. What is said of any counts is deterministic. A group without a record in the fit has the
    chances of all records together.

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

    @property
    def informed_by(self) -> str:
        """See :class:`dsstan.models.intensity.cell_law.CellLaw`."""
        X = self.surfaces[0].model.X
        return "table" if X.shape[2] == len(X) else "group"  # intercepts alone, one a group

    def expected(self, counts: Floats, group: int) -> Floats:
        """See :class:`dsstan.models.intensity.cell_law.CellLaw`."""
        there = self._heard(counts)
        if not there.any():
            chance = np.exp(self.offset - self.offset.max())
            return np.asarray(chance / chance.sum())
        own = np.flatnonzero(self.there == group)
        chances = np.array([one.expected(there, own) for one in self.surfaces])
        return np.asarray(np.exp(self._log_weights(there)) @ chances)

    def without(self, counts: Floats, group: int, cells: Indices) -> Floats:
        """See :class:`dsstan.models.intensity.cell_law.CellLaw`."""
        if counts[group].sum() <= 1.0 or group not in self.there:
            return np.tile(self.expected(_emptied(counts, group), group), (len(cells), 1))
        there, own = self._heard(counts), int(np.flatnonzero(self.there == group)[0])
        whole = self._log_weights(there)
        chances = np.array([one.without(there, own, cells) for one in self.surfaces])
        self._refine(chances, there, own, cells)
        # A record less makes a surface likelier by one over the chance that it gave that cell.
        log_weights = whole[:, None] - np.log(chances[:, np.arange(len(cells)), cells])
        log_weights -= logsumexp(log_weights, axis=0)
        return np.asarray(np.einsum("jn,jnc->nc", np.exp(log_weights), chances))

    def _refine(self, chances: Floats, there: Floats, own: int, cells: Indices) -> None:
        """Correct chances of all surfaces by what the middle one says where the record is taken out
        and the posterior found anew: of every cell of a small mask, else of the emptiest."""
        middle = len(self.surfaces) // 2
        surface, about = self.surfaces[middle], chances[middle].copy()
        for row in np.flatnonzero(np.isin(cells, self._emptiest[own])):
            exact = surface.expected(_less(there, own, int(cells[row])), np.array([own]))
            chances[:, row] *= exact / about[row]
        chances /= chances.sum(axis=2, keepdims=True)

    @cached_property
    def _emptiest(self) -> tuple[Indices, ...]:
        """For each group in the fit the cells of which records are taken out one by one."""
        C = self.offset.size
        if C * self.there.size <= FEW:
            return (np.arange(C),) * self.there.size
        if C > MANY:
            return (np.arange(0),) * self.there.size
        fitted = self.counts[self.there]
        lone = [np.where(row > 0, row, np.inf) for row in fitted]
        near = self.surfaces[len(self.surfaces) // 2]
        rates = near.posterior(fitted).mean - self.offset
        order = (np.lexsort((rates[k], lone[k])) for k in range(len(fitted)))
        return tuple(one[:EMPTIEST] for one in order)

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

    def _heard(self, counts: Floats) -> Floats:
        """Counts of the groups in the fit. Records of others, which have the chances of all
        together, count as some of the largest group."""
        there = counts[self.there].copy()
        there[self._total.argmax()] += np.delete(counts, self.there, axis=0).sum(axis=0)
        return there

    def _log_weights(self, there: Floats) -> Floats:
        """Log posterior weights of the surfaces given counts, shape (J,)."""
        if len(self.surfaces) == 1:
            return np.zeros(1)
        found = np.array([one.log_evidence(there) for one in self.surfaces]) - self._evidence
        return np.asarray(found - logsumexp(found))

    @cached_property
    def _evidence(self) -> Floats:
        """Log evidence of each surface for the counts of the fit, where their weights are equal."""
        return np.array([one.log_evidence(self.counts[self.there]) for one in self.surfaces])

    @cached_property
    def surfaces(self) -> tuple[HeldSurface, ...]:
        """The parts of the posterior of phi and sigma_sq, the middle one in the middle."""
        fit, fitted = self.fit, self.counts[self.there]
        parts = next((n for most, n in PARTS if self.offset.size <= most), 1)
        sites = fit.problem.unique_sites
        distance = cdist(sites, sites)
        flat = flat_columns(self._X)
        K, C = self._X.shape[:2]
        intercepts = np.broadcast_to(np.eye(K)[:, None], (K, C, K))
        X = np.concatenate([intercepts, self._X[:, :, ~flat]], axis=2)
        scale = np.array(fit.priors.beta_scale)[~flat]
        beta_precision = np.concatenate([np.zeros(K), 1.0 / scale**2])
        out = []
        for sill, phi in equal_parts(fit.draws["sigma_sq"], fit.draws["phi"], parts):
            R = sill * correlation(distance, phi, fit.cov_model)
            R[np.diag_indices_from(R)] += JITTER * sill
            model = CellModel(inverse(R), self.offset, X, beta_precision)
            out.append(HeldSurface(model, fitted))
        return tuple(out)

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

    @property
    def informed_by(self) -> str:
        """See :class:`dsstan.models.intensity.cell_law.CellLaw`."""
        return "group"

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


def equal_parts(sigma_sq: Floats, phi: Floats, parts: int) -> list[tuple[float, float]]:
    """Geometric means of sigma_sq and phi in parts of equal probability, in order.

    Parameters
    ----------
    sigma_sq, phi
        Draws, of one shape.
    parts
        By sigma_sq, and of each by phi, where that was free.
    """
    logs = np.log(np.stack([np.ravel(sigma_sq), np.ravel(phi)], axis=1))
    by_phi = parts if np.ptp(logs[:, 1]) > 0 else 1
    out = []
    for part in np.array_split(logs[np.argsort(logs[:, 0], kind="stable")], parts):
        for cell in np.array_split(part[np.argsort(part[:, 1], kind="stable")], by_phi):
            sill, decay = np.exp(cell.mean(axis=0))
            out.append((float(sill), float(decay)))
    return out


def distinct(size: int, number: int, rng: np.random.Generator) -> Indices:
    """``number`` of ``size`` in random order, each used up before one comes again."""
    rounds = -(-number // size)
    return np.concatenate([rng.permutation(size) for _ in range(rounds)])[:number]
