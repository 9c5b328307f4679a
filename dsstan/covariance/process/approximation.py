"""The modified predictive process as a covariance: a process at knots, the rest independent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from dsstan.core.arrays import Floats
from dsstan.core.errors import InputError, check_count
from dsstan.covariance.base import Conditional, Covariance, Parameters, SpatialModel, Terms
from dsstan.covariance.process.knots import PLACEMENTS, place_knots
from dsstan.covariance.process.latent import ProcessLatentModel
from dsstan.covariance.process.statistics import PredictiveProcessStatistics

__all__ = ["PredictiveProcess", "PredictiveProcessStatistics", "ProcessLatentModel", "place_knots"]


@dataclass(frozen=True)
class PredictiveProcess(Covariance):
    """The modified predictive process; see :mod:`dsstan.covariance.process.statistics`.

    Attributes
    ----------
    knots
        Number of knots, from 1, and at most that of sites.
    placement
        ``"kmeans"`` puts them where the sites are, ``"grid"`` regularly.
    """

    knots: int = 200
    placement: str = "kmeans"

    name: ClassVar[str] = "predictive_process"
    has_attacker: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "knots", check_count("knots", self.knots))
        if self.placement not in PLACEMENTS:
            raise InputError(
                f"placement must be one of {', '.join(PLACEMENTS)}, got {self.placement!r}"
            )

    def __str__(self) -> str:
        return f"modified predictive process, {self.knots} knots by {self.placement}"

    def statistics(self, model: SpatialModel) -> PredictiveProcessStatistics:
        """The statistics of the likelihood surface."""
        problem, rows = model.problem, model.informing
        return PredictiveProcessStatistics.of(
            *(problem.sites[rows], problem.X[rows], problem.y[rows]),
            a_diag=model.A[rows],
            protection=model.protection,
            cov_model=model.cov_model,
            # Among all sites, so that every fit of the problem has the same knots.
            knots=place_knots(problem.sites, self.knots, self.placement),
        )

    def latent(self, model: SpatialModel, centre: Parameters) -> Conditional:
        """The law of w given y; ``centre`` tunes nothing here."""
        return ProcessLatentModel(model, self.knots, self.placement)

    def attack_terms(
        self,
        model: SpatialModel,
        points: Sequence[Parameters],
        carried: Floats,
        noise: Floats | None = None,
    ) -> list[Terms]:
        """Always refused.

        Raises
        ------
        InputError
            What an intruder learns is not computed under the predictive process.
        """
        raise InputError(
            "what an intruder learns of each record is not computed under the predictive process: "
            "disclosure() measures its copies; the covariances exact and vecchia have an intruder"
        )

    def draws_by_default(
        self,
        model: SpatialModel,
        carried: Floats,
        records: int | None = None,
        noise: Floats | None = None,
    ) -> int:
        """2, the least that are taken; none is used."""
        return 2
