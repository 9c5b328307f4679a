"""Counts, and yes or no: Poisson, negative binomial and Bernoulli with a smoothed effect.

Section 6 of Quick, Holan and Wikle (2018), the model of age: ``y_i ~ Poisson(exp(o_i + x_i beta +
A_ii w_i))`` with ``w ~ N(0, sigma_sq R(phi))``, and the like. There is no nugget.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsstan.core.errors import DsstanWarning, InputError
from dsstan.core.seeds import root_seed
from dsstan.covariance.approximations import Covariance
from dsstan.engines import SamplerSettings
from dsstan.engines.programs import Program
from dsstan.models.arguments import covariance_for, unrestricted_start
from dsstan.models.counts.input import check_count_arguments, check_counts, read_offset
from dsstan.models.counts.outcomes import OUTCOMES, Outcome
from dsstan.models.counts.priors import CountPriors, ResolvedCountPriors
from dsstan.models.counts.runs import Task
from dsstan.models.predictive import Predictive
from dsstan.models.result import Fit
from dsstan.models.verdict import protection_notes
from dsstan.models.weights import Weights
from dsstan.table.problem import Problem, require_complete

__all__ = ["CountFit", "CountPriors", "fit_counts"]

Floats = NDArray[np.float64]

SAMPLERS = ("auto", "laplace", "nuts")
WARMUP = {"laplace": 100, "nuts": 1000}
"""Iterations of warm-up by default."""


@dataclass(frozen=True, eq=False)
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
    """

    priors: ResolvedCountPriors = field(repr=False)  # type: ignore[assignment]
    prior_settings: CountPriors = field(repr=False)  # type: ignore[assignment]
    model: str = "poisson"
    offset: str | None = None
    offset_is: str = "exposure"
    shift: Floats = field(repr=False, default_factory=lambda: np.zeros(0))
    sampler: str = "laplace"
    details: tuple[float, ...] = ()

    @property
    def outcome(self) -> str:  # type: ignore[override]
        """Law of the response given the spatial effect, as the metadata name it."""
        return OUTCOMES[self.model].label

    @property
    def scalars(self) -> dict[str, Floats]:
        """Scalar parameters by name, each of shape (chains, samples)."""
        return _scalars(self.draws)

    @property
    def scalar_terms(self) -> list[str]:
        """What each of :attr:`scalars` is, in words."""
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

    def draw(self, chain: int, iteration: int, rng: np.random.Generator) -> Floats:
        """One copy, shape (N,): w of the draw, which for a record with A_ii = 0 is a draw from
        its conditional prior given the others, then a new response.
        """
        fit, problem = self.fit, self.fit.problem
        w = fit.draws["w"][chain, iteration][problem.site]
        eta = fit.shift + self.X @ fit.draws["beta"][chain, iteration] + self.carried * w
        size = fit.draws["size"][chain, iteration] if self.law.dispersed else 1.0
        return self.law.draw(eta, float(np.log(size)), rng)

    def inside(self, values: Floats) -> NDArray[np.bool_]:
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
    chains: int = 4,
    warmup: int | None = None,
    samples: int = 1000,
    adapt_delta: float = 0.9,
    max_treedepth: int = 10,
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
    weights, gamma
        Risk weights and the global risk parameter, as in :func:`dsstan.fit`; infinity by
        default: w* of a flagged record is fixed to zero.
    start
        The unrestricted fit of the same outcome and offset: its posterior median of phi is held.
    phi
        Decay to hold instead, inverse of the coordinates' unit; also in an unrestricted fit.
    cov_model
        Correlation function, one of :data:`dsstan.covariance.correlation.CORRELATIONS`; by default
        that of ``start``, or exponential.
    covariance
        ``"exact"``, which is also ``"auto"``: counts have no approximation.
    priors
        See :class:`CountPriors`; by default those of ``start``.
    sampler
        ``"laplace"``: whitened coordinates from Laplace's approximation, corrected to the exact
        posterior, in this process. ``"nuts"``: the Stan program, w as a parameter. ``"auto"``
        is the first.
    engine
        What runs the Stan program under ``"nuts"``.
    chains, samples
        Chains, and draws of each.
    warmup
        Iterations before them; by default 100 under ``"laplace"``, whose chains start in the
        approximate posterior, and 1000 under ``"nuts"``.
    adapt_delta, max_treedepth
        Settings of ``"nuts"``.
    seed
        Root seed, by default a fresh one of 128 bits.
    progress
        Show progress; by default in a terminal.

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
    begin = time.perf_counter()
    require_complete(problem)
    root = root_seed(seed)
    law = check_counts(problem, outcome)
    shift = read_offset(problem, offset, offset_is)
    A = check_count_arguments(
        problem, (outcome, offset, offset_is), weights, gamma, start, phi, cov_model
    )
    if sampler not in SAMPLERS:
        raise InputError(f"sampler must be one of {', '.join(SAMPLERS)}, got {sampler!r}")
    method = "laplace" if sampler == "auto" else sampler
    covariance_for(covariance, start, problem.n_records, exact_only="fit_counts")
    if cov_model is None:
        cov_model = start.cov_model if start is not None else "exponential"
    if priors is None:
        priors = start.prior_settings if start is not None else CountPriors()
    resolved = priors.resolve(law, problem.X, problem.d_max, cov_model)
    held = float(np.median(start.draws["phi"])) if start is not None and phi is None else phi
    settings = SamplerSettings(
        chains,
        WARMUP[method] if warmup is None else warmup,
        samples,
        adapt_delta,
        max_treedepth,
        "diag_e",
    )
    restricted = weights is not None
    label = f"{'restricted' if restricted else 'unrestricted'} fit of counts"
    task = Task(problem, law, shift, A, cov_model, resolved, held, settings, root, label, progress)
    run = task.laplace() if method == "laplace" else task.nuts(engine, start)
    draws = run.draws
    if held is not None:
        draws["phi"] = np.full(draws["sigma_sq"].shape, held)
    notes = protection_notes(
        problem,
        weights,
        A,
        "paper" if restricted else "none",
        phi=float(np.median(draws["phi"])),
        phi_from_start=phi is None,
    )
    if weights is not None and weights.n_flagged == 0:
        warnings.warn(notes[0], DsstanWarning, stacklevel=2)
    return CountFit(
        problem=problem,
        kind="restricted" if restricted else "unrestricted",
        protection="paper" if restricted else "none",
        weights=weights,
        gamma=0.0 if not restricted else np.inf if gamma is None else float(gamma),
        A=A,
        draws=draws,
        phi_held=held,
        priors=resolved,
        prior_settings=priors,
        engine=run.engine,
        engine_version=run.version,
        program=law.program,
        fingerprint=Program(law.program).fingerprint,
        seed=root,
        settings=settings,
        surface_error=0.0,  # the surface proposes; the posterior is exact whatever its error
        nodes=run.nodes,
        verdict=task.verdict(run, _scalars(draws), weights),
        seconds=time.perf_counter() - begin,
        start=unrestricted_start(start),
        notes=notes,
        cov_model=cov_model,
        model=outcome,
        offset=offset,
        offset_is=offset_is,
        shift=shift,
        sampler=method,
        details=run.details,
    )


def _scalars(draws: Mapping[str, Floats]) -> dict[str, Floats]:
    """Scalar parameters by name, each of shape (chains, samples)."""
    named = {f"beta_{j}": draws["beta"][:, :, j] for j in range(draws["beta"].shape[2])}
    return {**named, **{k: draws[k] for k in ("sigma_sq", "phi", "size") if k in draws}}
