"""What a fit was asked for, once it is checked."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, TypedDict

from dsstan.covariance.approximations import Covariance
from dsstan.covariance.base import SpatialModel
from dsstan.covariance.protection import protection_of
from dsstan.engines import SamplerSettings
from dsstan.models.priors import Priors
from dsstan.models.weights import Weights


class SamplerKeywords(TypedDict, total=False):
    """What a comparison hands on to :func:`dsstan.fit`, for type checkers and editors."""

    chains: int
    warmup: int
    samples: int
    adapt_delta: float
    max_treedepth: int
    nodes: tuple[int, int] | None
    program: str
    hold_phi: bool
    time_decay: float | None
    group_share: float | None
    resume: str | os.PathLike[str] | None


class FitKeywords(SamplerKeywords, total=False):
    """The same of whoever has no such settings itself; a test compares them with fit's own."""

    cov_model: str | None
    covariance: str | Covariance | None
    priors: Priors | None
    engine: str
    cluster: Any


@dataclass(frozen=True, eq=False, kw_only=True)
class Request(SpatialModel):
    """A model to fit, and how: the arguments of a fit function, checked and resolved.

    Attributes
    ----------
    weights, gamma
        Risk weights and the global risk parameter; None and 0 if unrestricted.
    start
        Fit that this one starts from; None if there is none.
    priors, prior_settings
        Every prior setting as a number, and as it was asked for.
    phi_from_start
        Whether the decay that is held is the posterior median of ``start``, also where the caller
        gave that value.
    seed
        Root of the fit's random streams. Confidential.
    settings
        Of the sampler.
    undecided
        What the table does not tell of the decay in time and the share of the groups.
    label, progress
        What is fitted, for the progress, and whether to show it.
    begin
        Clock when the fit was asked for.
    """

    weights: Weights | None
    gamma: float
    start: Any
    priors: Any
    prior_settings: Any
    phi_from_start: bool
    undecided: tuple[str, ...]
    seed: int
    settings: SamplerSettings
    label: str
    progress: bool | None
    begin: float

    @property
    def kind(self) -> str:
        """``"restricted"`` with weights, else ``"unrestricted"``."""
        return "unrestricted" if self.weights is None else "restricted"

    @property
    def flagged_leave(self) -> bool:
        """Whether flagged records leave the fit."""
        return protection_of(self.protection).flagged_leave

    @property
    def drawn_from(self) -> Any:
        """Fit whose draws start the chains; None where it may hold records that leave this one."""
        return None if self.flagged_leave else self.start

    @property
    def phi_bounds(self) -> tuple[float, float]:
        """Range of the decay; equal ends where it is held."""
        held = self.phi_held
        bounds: tuple[float, float] = self.priors.phi_bounds
        return bounds if held is None else (held, held)
