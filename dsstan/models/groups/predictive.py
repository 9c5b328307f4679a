"""How copies of several groups are drawn."""

from __future__ import annotations

import numpy as np

from dsstan.core.arrays import Floats
from dsstan.models.groups.coregionalisation import (
    GroupEffects,
    GroupLatentModel,
    group_parameters_at,
)
from dsstan.models.groups.result import MultivariateFit
from dsstan.models.groups.sparse import SparseGroupModel
from dsstan.models.predictive import Predictive


def group_effects(fit: MultivariateFit) -> GroupEffects:
    """The law of the effects given y under the covariance of the fit."""
    return SparseGroupModel(fit) if fit.covariance.approximate else GroupLatentModel(fit)


class GroupPredictive(Predictive):
    """The law of a copy with a nugget and coefficients of each group."""

    fit: MultivariateFit

    def prepare(self) -> None:
        """What all copies share."""
        self.groups_model = group_effects(self.fit)

    @property
    def label(self) -> bytes:
        """What sets these copies apart from others of the same seed."""
        return f"groups {self.fit.groups.column} ".encode() + super().label

    def draw(self, chain: int, iteration: int, rng: np.random.Generator) -> Floats:
        """One copy of the response on its own scale, shape (N,)."""
        model = self.groups_model
        p = group_parameters_at(self.fit, chain, iteration)
        w = model.draw(p, rng)
        noise = np.sqrt(p.tau_sq[model.group]) * rng.standard_normal(len(w))
        centre = model.mean_response(p, self.X) + self.carried * w
        return np.asarray(self.fit.problem.transform.inverse(centre + noise))
