"""What a fit is: a model and its draws."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from dsstan.core import above
from dsstan.core.arrays import Floats, Truths
from dsstan.core.display import Card, Part, Shown
from dsstan.covariance.approximations import EXACT, Covariance
from dsstan.covariance.base import Parameters, SpatialModel
from dsstan.covariance.vecchia.refinement import Refinement
from dsstan.engines import SamplerSettings
from dsstan.models.checks.diagnostics import ess, rhat
from dsstan.models.checks.verdict import Verdict
from dsstan.models.priors import Priors, ResolvedPriors
from dsstan.models.weights import Weights


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Fit(Shown, SpatialModel):
    """A posterior: a spatial model, and the record of how it was sampled.

    Attributes
    ----------
    problem, A, protection, cov_model, covariance, phi_held, time_decay, group_share
        The model; see :class:`dsstan.covariance.base.SpatialModel`.
    kind
        ``"unrestricted"`` or ``"restricted"``.
    weights, gamma
        Risk weights and the global risk parameter; None and 0 if unrestricted.
    draws
        ``beta`` (chains, samples, P); ``sigma_sq``, ``tau_sq`` and ``phi``
        (chains, samples), phi constant where it was held.
    priors, prior_settings
        Every prior setting as a number, and as it was asked for.
    engine, program
        What ran, with versions, and the program with its fingerprint.
    seed
        Root of the fit's random streams. Confidential.
    surface_error, nodes
        Largest error of the interpolated log density, and the nodes (G, H).
    verdict
        Whether the fit may reach synthesis, and why.
    seconds
        Wall time.
    start
        The unrestricted fit that this one started from, at once or through
        another restricted fit; None if there is none.
    notes
        What the user should know beside the verdict.
    nodes_asked
        Nodes that the caller gave; None where they were chosen.
    refinement
        What brought Vecchia's likelihood to the exact one or near it, and what that moved; None
        of another covariance.
    """

    kind: str
    weights: Weights | None
    gamma: float
    draws: Mapping[str, Floats] = field(repr=False)
    priors: ResolvedPriors = field(repr=False)
    prior_settings: Priors = field(repr=False)
    engine: str
    engine_version: str
    program: str
    fingerprint: str = field(repr=False)
    seed: int = field(repr=False)
    settings: SamplerSettings = field(repr=False)
    surface_error: float
    nodes: tuple[int, int]
    verdict: Verdict = field(repr=False)
    seconds: float
    start: Fit | None = field(repr=False, default=None)
    notes: tuple[str, ...] = ()
    covariance: Covariance = EXACT
    nodes_asked: tuple[int, int] | None = None
    refinement: Refinement | None = field(repr=False, default=None)

    @property
    def flagged(self) -> Truths:
        """Flagged records, shape (N,); none in an unrestricted fit."""
        if self.weights is None:
            return np.zeros(self.problem.n_records, dtype=bool)
        return self.weights.flagged

    @property
    def n_draws(self) -> int:
        """S, the number of posterior draws over all chains."""
        chains, samples = self.shape
        return chains * samples

    @property
    def shape(self) -> tuple[int, int]:
        """Chains and draws of each."""
        chains, samples = self.draws["beta"].shape[:2]
        return int(chains), int(samples)

    @property
    def model_settings(self) -> dict[str, Any]:
        """What sets the model apart beyond the fields of every fit, for ``settings.json``."""
        return {}

    @property
    def public_note(self) -> str:
        """What the public README must say of this model beyond the common text."""
        return ""

    @property
    def other_columns(self) -> tuple[str, ...]:
        """Columns beside the formula's that copies are drawn with, as an offset or groups."""
        return ()

    def at(self, p: Parameters) -> SpatialModel:
        """Old name of ``with_smoothing_at``."""
        warnings.warn("Fit.at is now with_smoothing_at", DeprecationWarning, stacklevel=2)
        return self.with_smoothing_at(p)

    @property
    def ties(self) -> dict[str, float]:
        """The decay in time and the share of the groups that are held, those that there are."""
        both = {"time_decay": self.time_decay, "group_share": self.group_share}
        return {name: value for name, value in both.items() if value is not None}

    def predictive(self, effect: str = "auto") -> Any:
        """How a copy is drawn from this fit; see :func:`dsstan.synthesise` for the effects."""
        return above.call("Fit.predictive", self, effect)

    @property
    def scalars(self) -> dict[str, Floats]:
        """Scalar parameters by name, each of shape (chains, samples)."""
        return self.scalars_in(self.draws)

    @staticmethod
    def scalars_in(draws: Mapping[str, Floats]) -> dict[str, Floats]:
        """Scalar parameters of the draws of such a fit."""
        beta, names = draws["beta"], ("sigma_sq", "tau_sq", "phi", "size")
        named = {f"beta_{j}": beta[:, :, j] for j in range(beta.shape[2])}
        return {**named, **{k: draws[k] for k in names if k in draws}}

    @property
    def scalar_terms(self) -> list[str]:
        """What each of ``scalars`` is, in words."""
        return [*self.problem.terms, "partial sill", "nugget", "decay"]

    def summary(self) -> pd.DataFrame:
        """Mean, sd, quantiles, effective sample sizes and R-hat, one row a parameter.

        A held decay has sd 0 and no effective sample size or R-hat (NaN).
        """
        rows = {}
        for name, d in self.scalars.items():
            held = name in self.held
            q025, q50, q975 = np.quantile(d, [0.025, 0.5, 0.975])
            rows[name] = {
                "mean": float(np.mean(d)),
                "sd": 0.0 if held else float(np.std(d, ddof=1)),
                "q025": float(q025),
                "q50": float(q50),
                "q975": float(q975),
                "ess_bulk": np.nan if held else ess(d, "bulk"),
                "ess_tail": np.nan if held else ess(d, "tail"),
                "rhat": np.nan if held else rhat(d),
            }
        table = pd.DataFrame(rows).T
        table.insert(0, "term", self.scalar_terms)
        return table

    @property
    def held(self) -> tuple[str, ...]:
        """Names of the scalar parameters that were held at one value."""
        return () if self.phi_held is None else ("phi",)

    @property
    def worst_ess(self) -> float:
        """Smallest bulk effective sample size of a sampled parameter."""
        return min(ess(d) for name, d in self.scalars.items() if name not in self.held)

    def to_arviz(self) -> Any:
        """The posterior for ArviZ: an InferenceData before ArviZ 1, a DataTree from 1 on.

        Groups ``posterior`` (beta with the terms as coordinate, sigma_sq, tau_sq, phi) and
        ``observed_data`` (y on the modelled scale, by record). Confidential. The groups are
        xarray datasets.

        Raises
        ------
        InputError
            If neither arviz nor arviz-base is installed.
        """
        return above.call("to_arviz", self)

    def _line(self) -> str:
        protection = "" if self.kind == "unrestricted" else f" ({self.protection})"
        return (
            f"{type(self).__name__} of {self.problem.name!r}: {self.kind}{protection}, "
            f"{self.problem.n_records} records, {self.n_draws} draws by {self.engine}"
        )

    def _card(self) -> Card:
        return Card(
            (
                ("formula", self.problem.formula),
                *((name, f"{value:.4g}, held") for name, value in self.ties.items()),
                ("verdict", str(self.verdict)),
            ),
            (Part(self.summary()), *(f"note: {note}" for note in self.notes)),
        )
