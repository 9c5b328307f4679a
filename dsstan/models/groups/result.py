"""A fit of several groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from dsstan.core import above
from dsstan.core.arrays import Floats
from dsstan.models.groups.groups import Groups
from dsstan.models.result import Fit


@dataclass(frozen=True, eq=False, repr=False)
class MultivariateFit(Fit):
    """A posterior of the multivariate model; see :class:`dsstan.models.result.Fit` for the other
    fields.

    Attributes
    ----------
    draws
        ``beta`` (chains, samples, J, P); ``T`` (chains, samples, J, J); ``sigma_sq``, its
        diagonal, and ``tau_sq`` (chains, samples, J); ``phi`` (chains, samples).
    groups
        Which record belongs to which group.
    group_scale
        Prior sd of a group's coefficients about the common ones, P numbers.
    lkj_eta
        Shape of the LKJ prior on the correlation of T.
    """

    groups: Groups = field(repr=False, default_factory=lambda: Groups("", (), np.empty(0, np.intp)))
    group_scale: tuple[float, ...] = ()
    lkj_eta: float = 2.0

    outcome: ClassVar[str] = "Gaussian by group"

    @staticmethod
    def scalars_in(draws: Mapping[str, Floats]) -> dict[str, Floats]:
        """Scalar parameters by name: groups and coefficients counted from 0."""
        beta, T = draws["beta"], draws["T"]
        n, p = beta.shape[2:]
        return {
            **{f"beta_{k}_{j}": beta[:, :, k, j] for k in range(n) for j in range(p)},
            **{f"T_{k}_{j}": T[:, :, k, j] for k in range(n) for j in range(k + 1)},
            **{f"tau_sq_{k}": draws["tau_sq"][:, :, k] for k in range(n)},
            "phi": draws["phi"],
        }

    @property
    def scalar_terms(self) -> list[str]:
        """What each of ``scalars`` is, in words."""
        names = [f"{self.groups.column} {label}" for label in self.groups.labels]
        beta = [f"{term}, {name}" for name in names for term in self.problem.terms]
        T = [
            f"partial sill, {names[k]}" if k == j else f"covariance, {names[k]} with {names[j]}"
            for k in range(len(names))
            for j in range(k + 1)
        ]
        return [*beta, *T, *(f"nugget, {name}" for name in names), "decay"]

    @property
    def group_correlation(self) -> Floats:
        """Correlation of the groups' effects at one place, shape (chains, samples, J, J)."""
        root = np.sqrt(self.draws["sigma_sq"])
        return np.asarray(self.draws["T"] / (root[..., :, None] * root[..., None, :]))

    @property
    def model_settings(self) -> dict[str, Any]:
        """Settings of this model beside those of every fit."""
        return {
            "groups": self.groups.column,
            "group_scale": list(self.group_scale),
            "lkj_eta": self.lkj_eta,
            "cov_model": self.cov_model,
        }

    @property
    def public_note(self) -> str:
        """What the public README says of this model."""
        return (
            f"The model has a regression, a spatial effect and a noise variance for each group of "
            f"column `{self.groups.column}`; the spatial effects of the groups are correlated."
        )

    @property
    def other_columns(self) -> tuple[str, ...]:
        """The column of the groups."""
        return (self.groups.column,)

    def predictive(self, effect: str = "auto") -> Any:
        """How a copy is drawn from this fit."""
        return above.call("MultivariateFit.predictive", self, effect)
