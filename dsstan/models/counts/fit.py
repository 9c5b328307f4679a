"""Counts, and yes or no: Poisson, negative binomial and Bernoulli with a smoothed effect.

Section 6 of Quick, Holan and Wikle (2018), the model of age: ``y_i ~ Poisson(exp(o_i + x_i beta +
A_ii w_i))`` with ``w ~ N(0, sigma_sq R(phi))``, and the like. There is no nugget.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dsstan.core.arrays import Floats, Truths
from dsstan.core.errors import InputError
from dsstan.covariance.approximations import Covariance, Vecchia
from dsstan.covariance.base import Parameters
from dsstan.engines import SamplerSettings
from dsstan.models.arguments import check_arguments, refuse_process
from dsstan.models.counts.input import check_counts, read_offset
from dsstan.models.counts.outcomes import OUTCOMES, Outcome
from dsstan.models.counts.priors import CountPriors, ResolvedCountPriors
from dsstan.models.counts.runs import Task, correction_check, lengths_of
from dsstan.models.finish import finish_fit
from dsstan.models.predictive import Predictive
from dsstan.models.result import Fit
from dsstan.models.weights import Weights
from dsstan.table.problem import Problem, require_complete

__all__ = ["CountFit", "CountPriors", "fit_counts"]


SAMPLERS = ("auto", "laplace", "nuts")


@dataclass(frozen=True, eq=False, repr=False)
class CountFit(Fit):
    """A posterior of :func:`fit_counts`; see :class:`dsstan.Fit` for the common attributes.

    ``draws`` holds ``beta`` (chains, samples, P), ``sigma_sq`` and ``phi`` (chains, samples), of
    the negative binomial ``size``, and ``w`` at the distinct sites (chains, samples, n_sites).

    Attributes
    ----------
    model
        ``"poisson"``, ``"negative binomial"`` or ``"bernoulli"``.
    offset
        Column that holds the offset; None without one.
    offset_is
        Whether it holds the ``"exposure"`` or its ``"log"``.
    shift
        The offset on the link scale, shape (N,).
    sampler
        ``"laplace"`` or ``"nuts"``.
    details
        Of the first: Hamiltonian steps a trajectory in each chain.
    corrected
        Share of its steps to the exact covariance that were accepted; 1 where none was needed.
    """

    priors: ResolvedCountPriors = field(repr=False)  # type: ignore[assignment]
    prior_settings: CountPriors = field(repr=False)  # type: ignore[assignment]
    model: str = "poisson"
    offset: str | None = None
    offset_is: str = "exposure"
    shift: Floats = field(repr=False, default_factory=lambda: np.zeros(0))
    sampler: str = "laplace"
    details: tuple[float, ...] = ()
    corrected: float = 1.0

    @property
    def outcome(self) -> str:  # type: ignore[override]
        """Law of the response given the spatial effect, as the metadata name it."""
        return OUTCOMES[self.model].label

    @property
    def scalar_terms(self) -> list[str]:
        """What each of ``scalars`` is, in words."""
        size = ["size (dispersion)"] if "size" in self.draws else []
        return [*self.problem.terms, "partial sill, link scale", "decay", *size]

    @property
    def model_settings(self) -> dict[str, Any]:
        """What sets the model apart, for ``settings.json``."""
        return {
            "outcome": self.model,
            "cov_model": self.cov_model,
            "offset": self.offset,
            "offset_is": self.offset_is,
            "method": self.sampler,
            "hamiltonian_steps": list(self.details),
            "exact_steps_accepted": self.corrected,
        }

    @property
    def public_note(self) -> str:
        """What the public README must say of this model beyond the common text."""
        link = "logit" if self.model == "bernoulli" else "log"
        note = (
            f"`{self.problem.response}` was drawn from a {self.outcome.split(',')[0]} model with "
            f"a {link} link: fit a generalised linear model of that kind rather than least squares."
        )
        return note + (f" Its offset is `{self.offset}`." if self.offset else "")

    @property
    def other_columns(self) -> tuple[str, ...]:
        """The offset, where there is one."""
        return () if self.offset is None else (self.offset,)

    def predictive(self, effect: str = "auto") -> CountPredictive:
        """How a copy is drawn from this fit."""
        return CountPredictive(self, effect)


class CountPredictive(Predictive):
    """Whole numbers given the linear predictor of one posterior draw."""

    fit: CountFit

    def prepare(self) -> None:
        """What all copies share."""
        self.law: Outcome = OUTCOMES[self.fit.model]

    def process(self, chain: int, iteration: int) -> Parameters:
        """The posterior draw, without a nugget."""
        draws, at = self.fit.draws, (chain, iteration)
        return Parameters(
            draws["beta"][at], float(draws["sigma_sq"][at]), 0.0, float(draws["phi"][at])
        )

    def effect_at_records(self, chain: int, iteration: int, rng: np.random.Generator) -> Floats:
        """w of the draw, shape (N,): for a record with A_ii = 0 a draw from its conditional prior
        given the others."""
        w = self.fit.draws["w"][chain, iteration]
        return np.asarray(w[self.fit.problem.site_index])

    def response(
        self, X: Floats, effect: Floats, chain: int, iteration: int, rng: np.random.Generator
    ) -> Floats:
        """New counts given the linear predictor, shape (n,)."""
        fit = self.fit
        shift = 0.0 if fit.offset is None else fit.shift
        eta = shift + X @ fit.draws["beta"][chain, iteration] + effect
        size = fit.draws["size"][chain, iteration] if self.law.dispersed else 1.0
        return self.law.draw(eta, float(np.log(size)), rng)

    @property
    def at_places(self) -> bool:
        """Without an offset, which is known at the records alone."""
        return self.fit.offset is None

    def inside(self, values: Floats) -> Truths:
        """Whether a rounded value is one that the model allows."""
        whole = (values >= 0) & (values == np.rint(values))
        return np.asarray(whole & (values <= 1) if self.fit.model == "bernoulli" else whole)


def fit_counts(
    problem: Problem,
    outcome: str = "poisson",
    *,
    offset: str | None = None,
    offset_is: str = "exposure",
    weights: Weights | None = None,
    gamma: float | None = None,
    start: CountFit | None = None,
    phi: float | None = None,
    cov_model: str | None = None,
    covariance: str | Covariance | None = None,
    priors: CountPriors | None = None,
    sampler: str = "auto",
    engine: str = "auto",
    chains: int = SamplerSettings.chains,
    warmup: int | None = None,
    samples: int | None = None,
    adapt_delta: float = SamplerSettings.adapt_delta,
    max_treedepth: int = SamplerSettings.max_treedepth,
    seed: int | None = None,
    progress: bool | None = None,
) -> CountFit:
    """Fit a count, or a yes or no, with a smoothed spatial effect.

    Section 6 of Quick, Holan and Wikle (2018). The posterior is exact under both samplers; see
    ``docs/explain/counts.md`` for how and for their speed.

    Parameters
    ----------
    problem
        From :func:`dsstan.prepare`, its response without a transform.
    outcome
        ``"poisson"`` or ``"negative binomial"`` (log link), or ``"bernoulli"`` (logit link).
    offset
        Column with the exposure of each record, such as persons or years: the mean is
        proportional to it. It stays in the copies as it is.
    offset_is
        ``"exposure"`` takes the log of that column, ``"log"`` takes it as the log already.
    start
        The unrestricted fit of the same outcome and offset: its posterior median of phi is held.
    phi
        Decay to hold instead; also in an unrestricted fit.
    covariance
        ``"exact"``, ``"vecchia"`` or a :class:`dsstan.covariance.approximations.Vecchia`;
        ``"auto"`` is exact up to 2000 informing records.
    priors
        See :class:`CountPriors`; by default those of ``start``.
    sampler
        ``"laplace"``: whitened coordinates from Laplace's approximation, corrected to the exact
        posterior, in this process. ``"nuts"``: the Stan program, w as a parameter, under the exact
        covariance. ``"auto"`` is the first.
    engine
        What runs the Stan program under ``"nuts"``.
    warmup
        Iterations before them; by default 100 under ``"laplace"``, whose chains start in the
        approximate posterior, and 1000 under ``"nuts"``.
    samples
        Draws a chain; by default 1000, and 500 under ``"laplace"`` beyond 300 sites.
    adapt_delta, max_treedepth
        Settings of ``"nuts"``.
    weights, gamma, cov_model, chains, seed, progress
        As for :func:`dsstan.fit`.

    Returns
    -------
    CountFit
        Whether or not it converged: its ``verdict`` says.

    Raises
    ------
    InputError
        If the response is no count (or no 0 and 1), the offset can't be used, or arguments
        contradict each other.
    EngineError
        If the engine is missing or fails.
    """
    require_complete(problem)
    law = check_counts(problem, outcome)
    shift = read_offset(problem, offset, offset_is)
    if sampler not in SAMPLERS:
        raise InputError(f"sampler must be one of {', '.join(SAMPLERS)}, got {sampler!r}")
    method = "laplace" if sampler == "auto" else sampler
    _check_start(start, outcome, offset, offset_is)
    settings = SamplerSettings(
        chains,
        *lengths_of(problem, warmup, samples, laplace=method == "laplace"),
        adapt_delta,
        max_treedepth,
        "diag_e",
    )
    request = check_arguments(
        problem,
        settings=settings,
        weights=weights,
        gamma=gamma,
        start=start,
        phi=phi,
        cov_model=cov_model,
        covariance=covariance,
        priors=priors,
        seed=seed,
        progress=progress,
        label="{} fit of counts",
        alone=("phi",),
        outcome=None,
        usual_priors=CountPriors,
        law=law,
    )
    _check_covariance(request.covariance, method)
    A, resolved, held = request.A, request.priors, request.phi_held
    model = (problem, law, shift, A, request.cov_model, request.covariance, resolved, held)
    task = Task(*model, settings, request.seed, request.label, progress)
    run, corrected = task.laplace() if method == "laplace" else task.nuts(engine, request)
    return finish_fit(
        CountFit,
        request,
        run,
        checks=[task.effect_check(run), *correction_check(corrected)],
        watched={"log_likelihood": task.log_likelihood(run.draws)},
        model=outcome,
        offset=offset,
        offset_is=offset_is,
        shift=shift,
        sampler=method,
        details=run.details,
        corrected=corrected,
    )


def _check_covariance(covariance: Covariance, method: str) -> None:
    """Counts have the exact covariance and Vecchia's, the Stan programs the exact one."""
    if isinstance(covariance, Vecchia) and method == "nuts":
        raise InputError(
            'sampler="nuts" runs the Stan program, which has the exact covariance: give '
            'covariance="exact", or leave sampler out'
        )
    refuse_process(covariance, "fit_counts")


def _check_start(start: Fit | None, *model: str | None) -> None:
    """The fit to start from must be of the same outcome and offset."""
    if start is None:
        return
    if tuple(getattr(start, name, None) for name in ("model", "offset", "offset_is")) != model:
        raise InputError(
            "start must be a fit_counts() of the same outcome and offset; fit the "
            "unrestricted model with the same arguments first"
        )
