"""Risk weights: which records stand alone on the map, and how far to smooth them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.spatial import cKDTree

from dsstan.core.arrays import Floats, Indices, Truths
from dsstan.core.display import Card, Shown, four_digits
from dsstan.core.errors import InputError, check_count, is_number
from dsstan.covariance.correlation import correlation_distance
from dsstan.table.geo import as_points
from dsstan.table.problem import Problem

PAPER_CORRELATION = 0.20
"""The correlation c of the paper's rule M = -log(c) / phi."""


def smoothing(gamma: float, weights: Floats) -> Floats:
    """Diagonal of A, the factor by which each record keeps its spatial effect.

    Section 3.1 of Quick, Holan and Wikle (2018): A_ii = 1 / sqrt(1 + gamma a_i).

    Parameters
    ----------
    gamma
        Global risk parameter, from 0 (unrestricted) to ``inf`` (fully smoothed).
    weights
        Risk weights a, shape (N,), each from 0 to 1.

    Returns
    -------
    ndarray
        Shape (N,). Exactly 1 where the weight is 0; exactly 0 where gamma is
        infinite and the weight is not.

    Raises
    ------
    InputError
        If gamma is negative or not a number, or a weight is outside [0, 1].

    Examples
    --------
    >>> smoothing(np.inf, np.array([0.0, 1.0]))
    array([1., 0.])
    """
    a = np.asarray(weights, dtype=np.float64)
    if not (is_number(gamma) and gamma >= 0):
        raise InputError("gamma must be a number from 0 to infinity")
    if not np.all((a >= 0) & (a <= 1)):
        bad = np.flatnonzero(~((a >= 0) & (a <= 1)))
        raise InputError(
            f"weights must lie from 0 to 1; they do not in {_rows(bad)}. They say who is "
            "protected; survey weights go to survey_weights"
        )
    if np.isinf(gamma):
        return np.where(a > 0, 0.0, 1.0)
    return np.asarray(1.0 / np.sqrt(1.0 + gamma * a))


def isolation_distance(correlation: float, phi: float, cov_model: str = "exponential") -> float:
    """M, at which the correlation has fallen to c: -log(c) / phi for the exponential.

    Section 3.2 of Quick, Holan and Wikle (2018).

    Examples
    --------
    >>> round(isolation_distance(0.20, 12.7), 2)
    0.13
    """
    return correlation_distance(correlation, phi, cov_model)


def alpha_from_gamma(gamma: float, sigma_sq: float, tau_sq: float) -> float:
    """Degree of spatial smoothing alpha of an isolated record (the paper's eq. alpha).

    Examples
    --------
    >>> alpha_from_gamma(np.inf, 4.0, 0.0625)
    0.0
    """
    _check_variances(sigma_sq, tau_sq)
    if not (is_number(gamma) and gamma >= 0):
        raise InputError("gamma must be a number from 0 to infinity")
    if np.isinf(gamma):
        return 0.0
    kept = sigma_sq / (1.0 + gamma)
    return float(kept / (tau_sq + kept))


def gamma_from_alpha(alpha: float, sigma_sq: float, tau_sq: float) -> float:
    """The gamma that gives an isolated record the degree of smoothing alpha.

    Raises
    ------
    InputError
        If alpha is outside [0, sigma_sq / (sigma_sq + tau_sq)]: gamma would be
        negative.

    Examples
    --------
    >>> gamma_from_alpha(0.5, 4.0, 1.0)
    3.0
    """
    _check_variances(sigma_sq, tau_sq)
    if alpha == 0:
        return float("inf")
    most = sigma_sq / (sigma_sq + tau_sq)
    if not 0 < alpha <= most:
        raise InputError(
            f"alpha must lie from 0 to sigma_sq / (sigma_sq + tau_sq), here {most:.4g}; "
            f"got {alpha:g}, which would need a negative gamma"
        )
    return max(0.0, float((sigma_sq / tau_sq) * (1.0 - alpha) / alpha - 1.0))


def _check_variances(sigma_sq: float, tau_sq: float) -> None:
    """Variances must be positive and finite."""
    if not (0 < sigma_sq < np.inf and 0 < tau_sq < np.inf):
        raise InputError("sigma_sq and tau_sq must be positive and finite")


def neighbour_distances(
    problem: Problem,
    *,
    neighbour: int = 1,
    by_site: bool = False,
    within: Indices | None = None,
) -> Floats:
    """Distance of each record to its k-th nearest neighbour, shape (N,).

    Records without a response are nobody's neighbours: they inform nothing.

    Parameters
    ----------
    problem
        The prepared table.
    neighbour
        k, from 1.
    by_site
        Count distinct sites other than the record's own, so that records at one
        address are one neighbour and distance 0 never occurs.
    within
        Group of each record, shape (N,): only records of its own group are neighbours. The
        distance is infinite where the group has no k-th.

    Raises
    ------
    InputError
        If there are not that many other records or sites.
    """
    neighbour = check_count("neighbour", neighbour)
    if within is not None:
        return _distances_within(problem, neighbour, by_site, within)
    if not problem.observed.all():
        return _distances_to_observed(problem, neighbour, by_site)
    points = problem.unique_sites if by_site else problem.sites
    if neighbour >= len(points):
        kind = "sites" if by_site else "records"
        raise InputError(
            f"a {neighbour}-th neighbour needs at least {neighbour + 1} {kind}; "
            f"there are {len(points)}"
        )
    distance, _ = cKDTree(points).query(points, k=neighbour + 1)
    kth = np.asarray(distance[:, neighbour], dtype=np.float64)
    return kth[problem.site_index] if by_site else kth


def _distances_to_observed(problem: Problem, neighbour: int, by_site: bool) -> Floats:
    """Distance to the k-th neighbour that has a response, shape (N,): the others inform nothing."""
    there = np.flatnonzero(problem.observed)
    own = np.unique(problem.site_index[there]) if by_site else there
    points = problem.unique_sites[own] if by_site else problem.sites[own]
    if neighbour >= len(points):
        raise InputError(
            f"a {neighbour}-th neighbour needs at least {neighbour + 1} records or sites with a "
            f"response; there are {len(points)}"
        )
    distance, _ = cKDTree(points).query(problem.sites, k=neighbour + 1)
    # A record, or site, that is among the points finds itself first.
    itself = np.isin(problem.site_index, own) if by_site else problem.observed
    return np.asarray(np.where(itself, distance[:, neighbour], distance[:, neighbour - 1]))


def _distances_within(problem: Problem, neighbour: int, by_site: bool, group: Indices) -> Floats:
    """Distance to the k-th neighbour of the same group, shape (N,); infinite where none is."""
    found = np.full(problem.n_records, np.inf)
    for k in np.unique(group):
        own = np.flatnonzero(group == k)
        first, place = np.unique(problem.site_index[own], return_index=True, return_inverse=True)[
            1:
        ]
        points = problem.sites[own[first] if by_site else own]
        if neighbour < len(points):
            distance, _ = cKDTree(points).query(points, k=neighbour + 1)
            found[own] = distance[place, neighbour] if by_site else distance[:, neighbour]
    return found


@dataclass(frozen=True, eq=False, repr=False)
class Weights(Shown):
    """Risk weights of the records, with the rule that made them.

    Attributes
    ----------
    a
        Risk weights, shape (N,), each from 0 to 1.
    rule
        ``"correlation"``, ``"distance"`` or ``"own"``.
    threshold
        M, in the coordinates' unit; NaN for own weights.
    correlation
        c, the correlation at distance M under the posterior median of phi; NaN
        for own weights.
    nearest
        Distance to the neighbour the rule looks at, shape (N,).
    probability
        P(flag) over the posterior of phi, shape (N,); the weights themselves for
        own weights.
    neighbour, by_site
        Which neighbour the rule looks at.
    column
        The column own weights were taken from; withheld from public copies.
    within_group
        Whether only records of the same group count as neighbours.
    """

    a: Floats
    rule: str
    threshold: float
    correlation: float
    nearest: Floats = field(repr=False)
    probability: Floats = field(repr=False)
    neighbour: int = 1
    by_site: bool = False
    column: str | None = None
    within_group: bool = False

    @property
    def flagged(self) -> Truths:
        """Records whose weight is not 0, shape (N,)."""
        return np.asarray(self.a > 0)

    @property
    def n_flagged(self) -> int:
        """Number of flagged records."""
        return int(np.sum(self.flagged))

    def table(self, problem: Problem) -> pd.DataFrame:
        """One row a record: coordinates, distance, P(flag) and weight. Confidential.

        A GeoDataFrame where the prepared table is one.
        """
        table = pd.DataFrame(
            {
                problem.coord_names[0]: problem.coords[:, 0],
                problem.coord_names[1]: problem.coords[:, 1],
                "neighbour_distance": self.nearest,
                "probability": self.probability,
                "weight": self.a,
                "flagged": self.flagged,
            },
            index=problem.table.index,
        )
        return as_points(table, problem)

    def _line(self) -> str:
        far = "" if np.isnan(self.threshold) else f", threshold {four_digits(self.threshold)}"
        return f"Weights: {self.n_flagged} of {self.a.size} records flagged, rule {self.rule}{far}"

    def _card(self) -> Card:
        if self.rule == "own":
            taken = "given" if self.column is None else f"column {self.column!r}"
            return Card((("weights", taken),))
        of = "site" if self.by_site else "record"
        group = " of the same group" if self.within_group else ""
        return Card(
            (
                ("looks at", f"neighbour {self.neighbour}, counted by {of}{group}"),
                ("distance", four_digits(self.threshold)),
                ("correlation there", four_digits(self.correlation)),
            )
        )


def own_weights(problem: Problem, a: str | ArrayLike) -> Weights:
    """The caller's own weights, e.g. a sensitive subgroup at isolated places.

    Parameters
    ----------
    problem
        The prepared table.
    a
        Name of a column, or N values from 0 to 1 (or true and false).

    Raises
    ------
    InputError
        If the column is missing, the length is not N, or a weight is outside
        [0, 1].
    """
    if isinstance(a, str):
        if a not in problem.table.columns:
            raise InputError(f"there is no column {a!r} to take weights from")
        values: ArrayLike = problem.table[a].to_numpy()
    else:
        values = a
    try:
        weights = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError("weights must be numbers from 0 to 1, or true and false") from None
    if weights.shape != (problem.n_records,):
        raise InputError(
            f"weights need one value a record, shape ({problem.n_records},); "
            f"got shape {weights.shape}"
        )
    smoothing(0.0, weights)
    nan = float("nan")
    return Weights(
        a=weights,
        rule="own",
        threshold=nan,
        correlation=nan,
        nearest=neighbour_distances(problem),
        probability=weights.copy(),
        column=a if isinstance(a, str) else None,
    )


def _rows(positions: Indices) -> str:
    """Positions for a message, the first five and a count."""
    shown = ", ".join(str(int(p)) for p in positions[:5])
    more = f" and {positions.size - 5} more" if positions.size > 5 else ""
    return f"rows {shown}{more} (counted from 0)"
