"""Adaptive smoothing: weights and the global risk parameter inside the sampler.

Section 6 of Quick, Holan and Wikle (2018) suggests, in place of flags, weights that grow with
the distance to the nearest neighbour and a global parameter set by the variances,

    a_i = 1 - exp(-phi min_j d_ij),    gamma = max(0, sigma_sq / tau_sq - 1)

with both inside the sampler. A is then a function of (phi, r), r = tau_sq / sigma_sq, and so of
a node of the profile surface, from which ``stan/surface.stan`` samples; ``stan/adaptive.stan``
states the model. Under the rule ``"step"`` A does not depend on r and the surface is one
interpolant. What the rules do to flagged and to other records is measured in
``docs/explain/adaptive.md``.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist

from dsstan.core.arrays import Floats
from dsstan.core.errors import InputError
from dsstan.core.progress import progress_bar
from dsstan.core.seeds import stan_seed
from dsstan.covariance.approximations import Covariance
from dsstan.covariance.base import Parameters, SpatialModel
from dsstan.covariance.latent import LatentModel
from dsstan.covariance.protection import PROTECTIONS as ALL
from dsstan.covariance.protection import protection_of
from dsstan.engines import SamplerSettings, gaussian_engine
from dsstan.models.adaptive.rules import RULES, AdaptiveRule
from dsstan.models.adaptive.surface import Setting, build_adaptive_surface
from dsstan.models.arguments import check_arguments
from dsstan.models.finish import finish_fit, run_program
from dsstan.models.posterior import parameters_at
from dsstan.models.predictive import Predictive, carried_at
from dsstan.models.priors import Priors
from dsstan.models.result import Fit
from dsstan.models.starts import near_least_squares
from dsstan.models.weights import PAPER_CORRELATION, Weights, neighbour_distances
from dsstan.table.problem import Problem, require_complete

__all__ = ["RULES", "AdaptiveFit", "AdaptiveRule", "fit_adaptive"]


PROTECTIONS = tuple(name for name in ALL if not protection_of(name).flagged_leave)


@dataclass(frozen=True, eq=False, repr=False)
class AdaptiveFit(Fit):
    """A posterior whose A changes from draw to draw.

    ``weights.a`` and ``A`` hold posterior means, for pictures and summaries alone (of a step, a is
    1 where the mean is above 1/2, and the mean is ``weights.probability``); ``gamma`` is
    the posterior mean of the global risk parameter. What is drawn or computed takes A of its own
    draw, by ``with_smoothing_at``.

    Attributes
    ----------
    rule
        Weights and gamma as functions of (phi, r).
    nearest
        Distance of each record to its neighbour, shape (N,).
    """

    rule: AdaptiveRule = field(default_factory=AdaptiveRule)
    nearest: Floats = field(repr=False, default_factory=lambda: np.zeros(0))

    smoothing_moves = True

    @property
    def model_settings(self) -> dict[str, Any]:
        """The rule, for ``settings.json``."""
        return {"adaptive": self.rule.settings()}

    @property
    def public_note(self) -> str:
        """What the public README must say of this model."""
        return (
            "The spatial effect of every record was smoothed by its distance to others, more where "
            "it stands further away."
        )

    @property
    def gamma_draws(self) -> Floats:
        """Global risk parameter in each draw, shape (chains, samples)."""
        return self.rule.gamma_at(self.draws["tau_sq"] / self.draws["sigma_sq"])

    def diagonal(self, p: Parameters) -> Floats:
        """Diagonal of A at one draw, shape (N,)."""
        return self.rule.diagonal(self.nearest, p.phi, p.tau_sq / p.sigma_sq, self.cov_model)

    def with_smoothing_at(self, p: Parameters) -> SpatialModel:
        """The restricted model with A of this draw, for all that is computed at the draw."""
        return self.model_with(A=self.diagonal(p))

    def predictive(self, effect: str = "auto") -> Predictive:
        """How a copy is drawn: A of its own draw."""
        return AdaptivePredictive(self, effect)


class AdaptivePredictive(Predictive):
    """The Gaussian law of a copy with A of the copy's own draw.

    Under ``paper`` copies carry w* = A w, records with A = 0 w itself; under ``preserving`` all
    carry w. That goes by the rule and not by the draws: the name is published.
    """

    fit: AdaptiveFit

    def prepare(self) -> None:
        """Nothing is shared: A changes from draw to draw."""

    @property
    def label(self) -> bytes:
        """What sets these copies apart from others of the same seed."""
        words = f"adaptive {self.fit.rule} {self.fit.protection} {self.effect}"
        return f"{self.fit.problem.formula}\0{words}".encode(errors="surrogatepass")

    def draw(self, chain: int, iteration: int, rng: np.random.Generator) -> Floats:
        """One copy of the response on its own scale, not yet rounded, shape (N,)."""
        problem, p = self.fit.problem, parameters_at(self.fit, chain, iteration)
        here = self.fit.with_smoothing_at(p)
        w = LatentModel(here).draw(p, rng)
        carried = carried_at(here.A, self.fit.flagged, self.effect)
        noise = np.sqrt(p.tau_sq) * rng.standard_normal(problem.n_records)
        return np.asarray(problem.transform.inverse(self.X @ p.beta + carried * w + noise))


def fit_adaptive(
    problem: Problem,
    *,
    rule: str = "ratio",
    alpha: float | None = None,
    correlation: float | None = None,
    width: float | None = None,
    gamma: float | None = None,
    protection: str = "paper",
    neighbour: int = 1,
    by_site: bool = False,
    start: Fit | None = None,
    cov_model: str | None = None,
    covariance: str | Covariance | None = None,
    priors: Priors | None = None,
    engine: str = "auto",
    chains: int = SamplerSettings.chains,
    warmup: int = SamplerSettings.warmup,
    samples: int = SamplerSettings.samples,
    adapt_delta: float = SamplerSettings.adapt_delta,
    max_treedepth: int = SamplerSettings.max_treedepth,
    nodes: tuple[int, int] | None = None,
    seed: int | None = None,
    progress: bool | None = None,
) -> AdaptiveFit:
    """Fit with weights and gamma that follow the parameters (section 6 of the paper).

    Parameters
    ----------
    problem
        From :func:`dsstan.prepare`.
    rule
        ``"ratio"``, the paper's: a_i = 1 - correlation(d_i) and gamma = max(0,
        sigma_sq / tau_sq - 1); ``"alpha"``: the same weights, gamma by eq. alpha for the
        degree of smoothing ``alpha``, clipped at 0; ``"step"``: the paper's flags as a smooth
        step in log distance about M(phi), with a gamma of its own.
    alpha
        Of rule ``"alpha"`` alone, between 0 and 1.
    correlation, width, gamma
        Of rule ``"step"`` alone: c (0.20), at which M(phi) is; the width (0.25), of which the
        flags are the limit 0; the global risk parameter (infinite).
    protection
        ``"paper"`` or ``"preserving"``; see :func:`dsstan.fit`.
    neighbour, by_site
        Whose distance counts; see :func:`dsstan.models.weights.neighbour_distances`.
    start
        The unrestricted fit: its draws start the chains, and disclosure compares with it.
    cov_model, priors, engine, chains, warmup, samples, adapt_delta, max_treedepth, seed, progress
        See :func:`dsstan.fit`.
    covariance
        ``"exact"``, which is also ``"auto"``: smoothing that moves has no approximation. By
        default that of ``start``, which must be exact then.
    nodes
        Nodes (G, H) of the surface, H on each side of the kink; by default as many as the
        tolerance needs. They cost G reductions of a matrix of N records on each side; below the
        kink under ``"preserving"`` G H Cholesky factors.

    Returns
    -------
    AdaptiveFit
        Whether or not it converged: its ``verdict`` says.

    Raises
    ------
    InputError
        If arguments contradict each other or are out of range.
    SurfaceError
        If the interpolation error is not below its tolerance; a step is then too narrow.
    EngineError
        If the engine is missing or fails.
    """
    require_complete(problem)
    chosen = _rule(rule, alpha, correlation, width, gamma)
    if start is not None and start.kind != "unrestricted":
        raise InputError("start must be an unrestricted fit of the same problem")
    request = check_arguments(
        problem,
        settings=SamplerSettings(chains, warmup, samples, adapt_delta, max_treedepth),
        protection=protection,
        start=start,
        hold_phi=False,
        cov_model=cov_model,
        covariance=covariance,
        priors=priors,
        seed=seed,
        progress=progress,
        label="adaptive fit",
        alone=("start", "protection"),
        protections=PROTECTIONS,
        exact_only="fit_adaptive",
    )
    nearest = neighbour_distances(problem, neighbour=neighbour, by_site=by_site)
    d = cdist(problem.sites, problem.sites)
    setting = Setting(d, nearest, chosen, protection, request.cov_model)
    runner = gaussian_engine(engine, "surface", problem.n_terms)
    with progress_bar("adaptive fit: surface", progress) as advance:
        surface = build_adaptive_surface(
            setting,
            problem.X,
            problem.y,
            phi_bounds=request.phi_bounds,
            r_bounds=request.priors.r_bounds,
            nodes=nodes,
            seed=stan_seed(request.seed),
            advance=advance,
        )
    run = run_program(
        request,
        "surface",
        request.priors.on_surface(surface),
        near_least_squares(surface.rotation, request.priors),
        runner=runner,
        surface_error=surface.error,
        nodes=surface.nodes,
    )
    a, A = _means(run.draws, chosen, nearest, request.cov_model)
    weights = Weights(
        # A step flags whom it smooths in more than half of the draws.
        a=(a > 0.5).astype(np.float64) if rule == "step" else a,
        rule="adaptive",
        threshold=float("nan"),
        correlation=float("nan"),
        nearest=nearest,
        probability=a.copy(),
        neighbour=int(neighbour),
        by_site=by_site,
    )
    mean = float(np.mean(chosen.gamma_at(run.draws["tau_sq"] / run.draws["sigma_sq"])))
    request = replace(request, A=A, weights=weights, gamma=mean, protection=protection)
    return finish_fit(AdaptiveFit, request, run, nodes_asked=nodes, rule=chosen, nearest=nearest)


def _rule(
    rule: str,
    alpha: float | None,
    correlation: float | None,
    width: float | None,
    gamma: float | None,
) -> AdaptiveRule:
    """The rule with its settings; one of another rule's is refused."""
    if rule not in RULES:
        raise InputError(f"rule must be one of {', '.join(RULES)}, got {rule!r}")
    if (alpha is None) != (rule != "alpha"):
        raise InputError('alpha belongs to rule "alpha", which needs it')
    of_step = {"correlation": correlation, "width": width, "gamma": gamma}
    if rule != "step":
        for name, value in of_step.items():
            if value is not None:
                raise InputError(f'{name} belongs to rule "step"')
        return AdaptiveRule(rule, alpha=0.5 if alpha is None else alpha)
    return AdaptiveRule(
        "step",
        c=PAPER_CORRELATION if correlation is None else correlation,
        width=0.25 if width is None else width,
        gamma=np.inf if gamma is None else gamma,
    )


def _means(
    draws: dict[str, Floats], rule: AdaptiveRule, nearest: Floats, cov_model: str
) -> tuple[Floats, Floats]:
    """Posterior means of the weights and of the diagonal of A over up to 400 draws, shape (N,)."""
    phi, r = draws["phi"].ravel(), (draws["tau_sq"] / draws["sigma_sq"]).ravel()
    picks = np.unique(np.linspace(0, phi.size - 1, 400).astype(int))
    a = np.mean([rule.weights(nearest, float(phi[k]), cov_model) for k in picks], axis=0)
    A = np.mean(
        [rule.diagonal(nearest, float(phi[k]), float(r[k]), cov_model) for k in picks], axis=0
    )
    return np.clip(a, 0.0, 1.0), A
