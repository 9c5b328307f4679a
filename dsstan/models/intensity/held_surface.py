"""A surface of one decay and one sill: the posterior of its cells for any counts."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from dsstan.core.arrays import Floats, Indices, Truths
from dsstan.models.intensity.posterior import CellModel, CellPosterior, posterior

KEPT = 2
"""How many posteriors a surface keeps, since an intruder asks for one copy's group after group."""


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
class HeldSurface:
    """Chances with phi and sigma_sq held; counts are those of the groups in the fit.

    Attributes
    ----------
    model
        Of the groups in the fit.
    fitted
        Their counts in the fit, shape (groups in the fit, C).
    """

    model: CellModel = field(repr=False)
    fitted: Floats = field(repr=False)
    _kept: OrderedDict[bytes, CellPosterior] = field(
        repr=False, init=False, default_factory=OrderedDict
    )

    def expected(self, there: Floats, own: Indices) -> Floats:
        """Expected chances of a group, or without a record in it of all together, shape (C,)."""
        some = np.flatnonzero(there.sum(axis=1) > 0)
        found = self.posterior(there)
        asked = own if own.size and there[own[0]].sum() > 0 else some
        at = np.flatnonzero(np.isin(some, asked))
        rates = np.sum([expected_rates(found, int(k)) for k in at], axis=0)
        return np.asarray(rates / rates.sum())

    def without(self, there: Floats, own: int, cells: Indices) -> Floats:
        """About the expected chances with one record less in each of the cells, shape (n, C)."""
        at = int((there[:own].sum(axis=1) > 0).sum())
        rates = np.exp(log_rates_without(self.posterior(there), at, cells))
        return np.asarray(rates / rates.sum(axis=1, keepdims=True))

    def log_evidence(self, there: Floats) -> float:
        """Log probability of the counts, but for what all surfaces have in common."""
        return self.posterior(there).log_evidence

    def posterior(self, there: Floats) -> CellPosterior:
        """The posterior given counts, of the groups that have any."""
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
        if not self.fitted.any() or np.array_equal(counts, self.fitted):
            return None
        more = np.log(counts.sum(axis=1) / self.fitted[some].sum(axis=1))
        return np.asarray(self._mean[some] + more[:, None])

    @cached_property
    def _mean(self) -> Floats:
        """Mean of the log intensities given the counts of the fit, shape (groups in the fit, C)."""
        return self.posterior(self.fitted).mean
