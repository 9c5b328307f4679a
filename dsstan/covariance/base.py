"""What every covariance is asked for, and the model that it is part of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Protocol

import numpy as np

from dsstan.core.arrays import Floats, Indices
from dsstan.covariance.protection import NO_PROTECTION, informs
from dsstan.table.problem import Problem

NO_NOISE = (
    "added noise is counted in what an intruder learns under the exact covariance alone: leave "
    'noise out, or fit with covariance="exact"'
)
"""Why noise is refused under an approximated covariance."""


@dataclass(frozen=True)
class Parameters:
    """One posterior draw: beta (P,), sigma_sq, tau_sq, phi."""

    beta: Floats
    sigma_sq: float
    tau_sq: float
    phi: float


class Conditional(Protocol):
    """The law of w given y under one covariance."""

    def draw(self, p: Parameters, rng: np.random.Generator) -> Floats:
        """One draw of w at all records, shape (N,)."""

    def mean(self, p: Parameters, places: Floats | None = None) -> Floats:
        """E[w | y, parameters] at the records (N,), or at planar places (m, 2)."""


@dataclass(frozen=True, eq=False)
class Terms:
    """What one draw contributes to an intruder's knowledge of each record.

    Attributes
    ----------
    information
        Information that one copy gives on y_i with the variances fixed, shape (N,).
    exposure
        h_ii = dE[copy_i] / dy_i, shape (N,).
    score
        (P y)_i of the fitted model, shape (N,): minus the derivative by y_i of the log likelihood
        of the variances, 0 for records that left the fit.
    precision
        P_ii of the unrestricted model, shape (N,); None where it was not asked for.
    """

    information: Floats
    exposure: Floats
    score: Floats
    precision: Floats | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class SpatialModel:
    """y = X beta + A w + noise: what a fit is a fit of, without how it was sampled.

    Attributes
    ----------
    problem
        The prepared table.
    A
        Diagonal of A, shape (N,): 1 where a record keeps its spatial effect, 0 where it is
        fixed to zero.
    protection
        ``"none"`` for the unrestricted model, else ``"paper"``, ``"preserving"`` or ``"cut"``.
    cov_model
        Correlation function of w, one of :data:`dsstan.covariance.correlation.CORRELATIONS`.
    covariance
        The exact covariance, or an approximation in its place.
    phi_held
        The decay where it is held, else None.
    time_decay
        Decay of the correlation in time, inverse of the time's unit; None without a time.
    group_share
        Share of sigma_sq that is of the random intercept of the groups; None without groups.
    """

    problem: Problem
    A: Floats = field(repr=False)
    protection: str = NO_PROTECTION
    cov_model: str = "exponential"
    covariance: Covariance
    phi_held: float | None = None
    time_decay: float | None = None
    group_share: float | None = None

    outcome: ClassVar[str] = "Gaussian"
    """Law of the response given the spatial effect, as the metadata name it."""

    smoothing_moves: ClassVar[bool] = False
    """Whether A changes from draw to draw; ``with_smoothing_at`` then gives that of one draw."""

    @property
    def informing(self) -> Indices:
        """Positions of the records that inform the fit.

        They are those with a response; under ``cut`` the unflagged of them.
        """
        return np.flatnonzero(informs(self.A, self.protection) & self.problem.observed)

    def model_with(self, **changes: Any) -> SpatialModel:
        """The model alone, without how it was sampled, some of its fields changed."""
        own = {each.name: getattr(self, each.name) for each in fields(SpatialModel)}
        return SpatialModel(**{**own, **changes})

    def with_smoothing_at(self, p: Parameters) -> SpatialModel:
        """The model whose A is that of one draw; this one, where A does not change."""
        return self


@dataclass(frozen=True)
class Covariance(ABC):
    """The covariance of w, exact or approximated; its fields are its settings."""

    name: ClassVar[str]

    approximate: ClassVar[bool] = True
    """Whether it stands in for the exact covariance."""

    has_attacker: ClassVar[bool] = True
    """Whether what an intruder learns can be computed under it."""

    sums_over_records: ClassVar[bool] = False
    """Whether its statistics are sums over records, which workers can share."""

    @property
    def settings(self) -> dict[str, Any]:
        """The name and every setting, for ``settings.json``."""
        return {"name": self.name, **vars(self)}

    @property
    def rough(self) -> Covariance:
        """The covariance whose surface covers the whole range; :meth:`refined` does the rest."""
        return self

    def refined(
        self, source: Any, surface: Any, window: Any, statistics: Callable[[Covariance], Any]
    ) -> tuple[Any, Any, Any]:
        """A surface where the posterior lies, its box, and what was done to both; else None.

        Parameters
        ----------
        source, surface, window
            Of :attr:`rough`.
        statistics
            Gives those of another covariance.
        """
        return surface, window, None

    @abstractmethod
    def statistics(self, model: SpatialModel) -> Any:
        """Where the statistics of the likelihood surface come from.

        A :class:`dsstan.covariance.surface_statistics.Statistics`; of an approximation a
        ``dsstan.covariance.window.PartialStatistics``.
        """

    @abstractmethod
    def latent(self, model: SpatialModel, centre: Parameters) -> Conditional:
        """The law of w given y.

        Parameters
        ----------
        model
            Of a Gaussian response.
        centre
            Where the draws lie; what is tuned is tuned there, and no draw depends on it.
        """

    @abstractmethod
    def attack_terms(
        self,
        model: SpatialModel,
        points: Sequence[Parameters],
        carried: Floats,
        noise: Floats | None = None,
    ) -> list[Terms]:
        """The intruder's terms of every record, at each of some draws.

        Parameters
        ----------
        model
            Of a Gaussian response.
        points
            Draws; their coefficients are integrated out under flat priors.
        carried
            Factor on w in the copies, shape (N,).
        noise
            sd of the independent noise added to each value of a copy, shape (N,), or None; of the
            exact covariance alone.
        """

    @abstractmethod
    def draws_by_default(
        self,
        model: SpatialModel,
        carried: Floats,
        records: int | None = None,
        noise: Floats | None = None,
    ) -> int:
        """Posterior draws that the intruder's terms are averaged over, unless others are asked for.

        ``records`` is the size of the table, where the model is of a part of it.
        """
