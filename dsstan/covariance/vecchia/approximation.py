"""Vecchia's approximation as a covariance: each record given a few nearest earlier ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from dsstan.core.arrays import Floats
from dsstan.core.errors import InputError, check_count
from dsstan.covariance.base import (
    NO_NOISE,
    Conditional,
    Covariance,
    Parameters,
    SpatialModel,
    Terms,
)
from dsstan.covariance.vecchia.exposure import local_draws, local_terms
from dsstan.covariance.vecchia.latent import SparseLatentModel
from dsstan.covariance.vecchia.neighbours import NEIGHBOURS, ORDERINGS
from dsstan.covariance.vecchia.refinement import refined_surface
from dsstan.covariance.vecchia.statistics import VecchiaStatistics


@dataclass(frozen=True)
class Vecchia(Covariance):
    """Conditionals given the nearest earlier records; see
    :mod:`dsstan.covariance.vecchia.statistics`.

    Attributes
    ----------
    neighbours
        m, from 1, of the effect that copies carry: more are nearer to the exact covariance, at a
        cost between m^2 and m^3. The likelihood is refined beyond them; see
        :mod:`dsstan.covariance.vecchia.refinement`.
    ordering
        ``"maxmin"`` or ``"coordinate"``.
    """

    neighbours: int = NEIGHBOURS
    ordering: str = ORDERINGS[0]

    name: ClassVar[str] = "vecchia"
    sums_over_records: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "neighbours", check_count("neighbours", self.neighbours))
        if self.ordering not in ORDERINGS:
            raise InputError(
                f"ordering must be one of {', '.join(ORDERINGS)}, got {self.ordering!r}"
            )

    def __str__(self) -> str:
        return f"Vecchia's approximation, {self.neighbours} neighbours, {self.ordering} order"

    def _at_most(self, model: SpatialModel) -> int:
        """m, or all other records where there are fewer: the rest would be empty places."""
        return min(self.neighbours, model.problem.n_records - 1)

    @property
    def rough(self) -> Vecchia:
        """Of 15 neighbours at most."""
        return replace(self, neighbours=min(self.neighbours, NEIGHBOURS))

    def refined(
        self, source: Any, surface: Any, window: Any, statistics: Callable[[Covariance], Any]
    ) -> tuple[Any, Any, Any]:
        """The surface of the exact likelihood, or of that of more neighbours."""
        if not len(source.sites):
            return surface, window, None

        def more(neighbours: int) -> Any:
            return statistics(replace(self, neighbours=neighbours))

        fine, within, done = refined_surface(
            source, surface, more, at_least=self.neighbours, phi_rate=window.phi_rate
        )
        return fine, within or window, done

    def statistics(self, model: SpatialModel) -> VecchiaStatistics:
        """The statistics of the likelihood surface, as sums over records."""
        return VecchiaStatistics.of_model(model, self._at_most(model), self.ordering)

    def latent(self, model: SpatialModel, centre: Parameters) -> Conditional:
        """The law of w given y, by conjugate gradients tuned at ``centre``.

        In max-min order whatever that of the likelihood: the effect has no nugget, and its law in
        coordinate order is far from the exact one.
        """
        return SparseLatentModel(model, centre, self._at_most(model))

    def attack_terms(
        self,
        model: SpatialModel,
        points: Sequence[Parameters],
        carried: Floats,
        noise: Floats | None = None,
    ) -> list[Terms]:
        """The intruder's terms, each record's from the records around it.

        Raises
        ------
        InputError
            If noise was added: it is counted under the exact covariance alone.
        """
        if noise is not None:
            raise InputError(NO_NOISE)
        return local_terms(model, points, carried)

    def draws_by_default(
        self,
        model: SpatialModel,
        carried: Floats,
        records: int | None = None,
        noise: Floats | None = None,
    ) -> int:
        """20 draws; of more than 20,000 records fewer, down to 4 from 100,000 on."""
        return local_draws(records or model.problem.n_records)
