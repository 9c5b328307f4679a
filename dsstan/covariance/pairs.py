"""The correlation of the spatial effect of pairs of records: by distance, time and group.

``R_ij(phi) = (1 - q) rho(phi d_ij) exp(-c |t_i - t_j|) + q [the groups of i and j are one]``, with
the decay in time c and the share of the groups q held. Without a time c is 0, without groups q is,
and R is the correlation of the distance alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.spatial.distance import cdist

from dsstan.core.arrays import Floats, Indices, Truths
from dsstan.core.errors import InputError
from dsstan.core.spelling import spelled
from dsstan.covariance.base import SpatialModel
from dsstan.covariance.correlation import correlation, correlation_words

__all__ = ["Pairs", "effect_words", "pairs_of", "pairs_of_places"]


@dataclass(frozen=True, eq=False)
class Pairs:
    """R among some records, or between places and records, as a function of phi.

    Attributes
    ----------
    distances
        Shape (m, k).
    cov_model
        Correlation function of the distance.
    lag
        Time between the two, shape (m, k); None without times.
    together
        Whether the two are of one group, shape (m, k); None without groups.
    time_decay, group_share
        c and q.
    """

    distances: Floats
    cov_model: str = "exponential"
    lag: Floats | None = None
    together: Truths | None = None
    time_decay: float = 0.0
    group_share: float = 0.0

    def at(self, phi: float) -> Floats:
        """R at one decay, shape (m, k)."""
        R = correlation(self.distances, phi, self.cov_model)
        if self.lag is not None:
            R *= np.exp(-self.time_decay * self.lag)
        if self.together is not None:
            R *= 1.0 - self.group_share
            R += self.group_share * self.together
        return R

    def take(self, rows: Indices) -> Pairs:
        """Those among some of the records; a position may be there more than once."""
        some = np.ix_(rows, rows)
        return replace(
            self,
            distances=self.distances[some],
            lag=None if self.lag is None else self.lag[some],
            together=None if self.together is None else self.together[some],
        )

    @property
    def first(self) -> Indices:
        """Of each record the first one with its place, time and group, shape (m,)."""
        same = self.distances == 0
        if self.lag is not None:
            same &= self.lag == 0
        if self.together is not None:
            same &= self.together
        return np.asarray(same.argmax(axis=1))


def pairs_of(model: SpatialModel, rows: Indices | None = None) -> Pairs:
    """Pairs of records of a model: all, or those among some."""
    problem, structure = model.problem, model.problem.structure
    rows = np.arange(problem.n_records) if rows is None else rows
    pairs = Pairs(cdist(problem.sites[rows], problem.sites[rows]), model.cov_model)
    if structure is None:
        return pairs
    times, groups = structure.times, structure.groups
    return replace(
        pairs,
        lag=None if times is None else np.abs(times[rows][:, None] - times[rows]),
        together=None if groups is None else groups[rows][:, None] == groups[rows],
        time_decay=model.time_decay or 0.0,
        group_share=model.group_share or 0.0,
    )


def pairs_of_places(
    model: SpatialModel, places: Floats, columns: Indices, time: float | None = None
) -> Pairs:
    """Pairs between places at one time, of no group, and records.

    Parameters
    ----------
    model
        Of the records.
    places
        Planar coordinates, shape (m, 2).
    columns
        Positions of the records.
    time
        In the unit of the problem's structure; needed where there are times.

    Raises
    ------
    InputError
        If it is needed and not there.
    """
    problem, structure = model.problem, model.problem.structure
    pairs = Pairs(cdist(places, problem.sites[columns]), model.cov_model)
    if structure is None:
        return pairs
    lag = None
    if structure.times is not None:
        if time is None:
            raise InputError(
                f"the spatial effect changes with {structure.time!r}: say of which time, such as "
                f"{spelled('time', float(structure.times.max()))}"
            )
        lag = np.abs(time - structure.times[columns]) + np.zeros_like(pairs.distances)
    apart = None if structure.groups is None else np.zeros(pairs.distances.shape, dtype=bool)
    return replace(
        pairs,
        lag=lag,
        together=apart,
        time_decay=model.time_decay or 0.0,
        group_share=model.group_share or 0.0,
    )


def effect_words(model: SpatialModel) -> str:
    """The correlation of the spatial effect in words, with what is held of time and groups."""
    words, structure = f"{correlation_words(model.cov_model)} correlation", model.problem.structure
    if structure is not None and model.time_decay is not None:
        unit = "days" if structure.time_unit == "day" else f"the {structure.time_unit}"
        decay = f"exp(-{model.time_decay:.4g} t)"
        words += f" in space times {decay} for a time t between records, in {unit}"
    if structure is not None and model.group_share is not None:
        words += f"; {model.group_share:.4g} of sigma_sq is a random intercept of {structure.group}"
    return words
