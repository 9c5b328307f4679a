"""Places with what is known at them: what the functions of this room compare."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from dsstan.copies.places.result import PlacedRelease
from dsstan.core.arrays import Floats, Indices
from dsstan.core.errors import InputError
from dsstan.table.problem import Problem

Groups = Callable[[pd.DataFrame], Indices]


@dataclass(frozen=True, eq=False)
class MarkedPlaces:
    """A table of places as arrays.

    Attributes
    ----------
    places
        Planar coordinates, shape (N, 2).
    values
        The response on the modelled scale, shape (N,); None where there is none.
    X
        Design matrix of the regression without the place, shape (N, P); None where there is none.
    groups
        Number of the group of each record, shape (N,); None where there is one group.
    terms
        Names of the P columns.
    """

    places: Floats = field(repr=False)
    values: Floats | None = field(repr=False, default=None)
    X: Floats | None = field(repr=False, default=None)
    groups: Indices | None = field(repr=False, default=None)
    terms: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        n = len(self.places)
        for name in ("values", "X", "groups"):
            array = getattr(self, name)
            if array is not None and len(array) != n:
                raise InputError(f"{name} has {len(array)} rows, and there are {n} places")
        if self.places.ndim != 2 or self.places.shape[1] != 2 or not np.isfinite(self.places).all():
            raise InputError("places need two finite planar coordinates, shape (N, 2)")


def marked(problem: Problem, groups: Indices | None = None) -> MarkedPlaces:
    """The original table of a problem."""
    return MarkedPlaces(problem.sites, problem.y, problem.X, groups, problem.terms)


def marked_release(release: PlacedRelease, groups: Groups | None = None) -> list[MarkedPlaces]:
    """The copies of a release with synthetic places, each with its values and covariates.

    Parameters
    ----------
    release
        The copies.
    groups
        Gives the number of the group of each row of a published table, shape (N_l,); by default
        one group.
    """
    problem, modelled = release.problem, bool(release.fits)
    out = []
    for table, places in zip(release.tables, release.sites, strict=True):
        values = None
        if modelled:
            values = np.asarray(problem.transform.forward(table[problem.response].to_numpy(float)))
        own = None if groups is None else groups(table)
        out.append(MarkedPlaces(places, values, problem.design.X_of(table), own, problem.terms))
    return out
