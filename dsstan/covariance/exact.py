"""The exact covariance, every pair of records counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from dsstan.core.arrays import Floats
from dsstan.covariance.base import Conditional, Covariance, Parameters, SpatialModel, Terms
from dsstan.covariance.copy_law import copy_terms, terms_at_draws
from dsstan.covariance.eigenbasis import (
    BATCH,
    HeldBasis,
    eigenbasis_covers,
    unrestricted_terms_at,
    unsmoothed,
)
from dsstan.covariance.latent import LatentModel, require_gaussian
from dsstan.covariance.pairs import pairs_of
from dsstan.covariance.surface_statistics import ExactStatistics, statistics_of_pairs

FAST_DRAWS, SLOW_DRAWS, LARGE_DRAWS, LARGE = 400, 100, 20, 500
"""Draws to average over where many cost little, where they do not, and there beyond so many
records."""


@dataclass(frozen=True)
class Exact(Covariance):
    """The exact covariance."""

    name: ClassVar[str] = "exact"
    approximate: ClassVar[bool] = False

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> str:
        # There is one exact covariance in a process.
        return "EXACT"

    def statistics(self, model: SpatialModel) -> ExactStatistics:
        """The statistics of the likelihood surface, from all pairs of informing records."""
        rows = model.informing
        return statistics_of_pairs(
            pairs_of(model, rows),
            model.problem.X[rows],
            model.problem.y[rows],
            a_diag=model.A[rows],
            protection=model.protection,
            places=model.problem.sites[rows],
        )

    def latent(self, model: SpatialModel, centre: Parameters) -> Conditional:
        """The law of w given y; ``centre`` tunes nothing here."""
        return LatentModel(model)

    def attack_terms(
        self,
        model: SpatialModel,
        points: Sequence[Parameters],
        carried: Floats,
        noise: Floats | None = None,
    ) -> list[Terms]:
        """The intruder's terms: in an eigenbasis where one serves, else from dense matrices."""
        require_gaussian(model)
        if noise is not None:
            latent = LatentModel(model)
            return [copy_terms(latent, p, carried, noise) for p in points]
        if unsmoothed(model, carried):
            return unrestricted_terms_at(model, points)
        if eigenbasis_covers(model, carried):
            basis = HeldBasis(model)
            starts = range(0, len(points), BATCH)
            return [t for i in starts for t in basis.batch(points[i : i + BATCH])]
        return terms_at_draws(LatentModel(model), points, carried)

    def draws_by_default(
        self,
        model: SpatialModel,
        carried: Floats,
        records: int | None = None,
        noise: Floats | None = None,
    ) -> int:
        """400 where one decomposition, or an interpolant, serves all; else 100, of more than 500
        records 20."""
        moving = model.phi_held is None or model.smoothing_moves
        if noise is None and (unsmoothed(model, carried) or not moving):
            return FAST_DRAWS
        return LARGE_DRAWS if (records or model.problem.n_records) > LARGE else SLOW_DRAWS


EXACT = Exact()
