"""From a request to a fit: the run of a program, and the result with its verdict and notes."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from dsstan.core.arrays import Floats
from dsstan.core.errors import DsstanWarning
from dsstan.core.progress import progress_bar
from dsstan.core.seeds import stan_seed
from dsstan.engines.base import Engine
from dsstan.engines.programs import Program
from dsstan.engines.surface_posterior import PosteriorTable
from dsstan.engines.whitening import whitening
from dsstan.models.arguments import unrestricted_start
from dsstan.models.checks.advice import lone_records, repeated_values
from dsstan.models.checks.conditions import Check, most_flagged, reach_note
from dsstan.models.checks.verdict import diagnose, protection_notes
from dsstan.models.request import Request
from dsstan.models.result import Fit
from dsstan.models.starts import Begin, initial_values, whitened_starts
from dsstan.models.wider_range import sd_under_wider_range

F = TypeVar("F", bound=Fit)


@dataclass(frozen=True)
class Run:
    """What a sampler returns.

    Attributes
    ----------
    draws
        By name, each (chains, samples) or (chains, samples, ...).
    sampler
        Shape (chains, samples, 4): acceptance, treedepth, divergence, energy.
    engine, version, program
        What ran.
    surface_error
        Largest error of an interpolated log density; None where its error does not matter.
    nodes
        Nodes of the surface; (0, 0) without one.
    details
        Settings that warm-up found.
    tops, log_mass
        Separate tops of the posterior of phi and tau_sq / sigma_sq, and its log integral, where
        they are tabulated; see :class:`dsstan.engines.surface_posterior.PosteriorTable`.
    """

    draws: dict[str, Floats]
    sampler: Floats
    engine: str
    version: str
    program: str
    surface_error: float | None = 0.0
    nodes: tuple[int, int] = (0, 0)
    details: tuple[float, ...] = ()
    tops: int = 1
    log_mass: float | None = None


def run_program(
    request: Request,
    program: str,
    data: Mapping[str, Any],
    begin: Begin,
    *,
    runner: Engine,
    names: Sequence[str] = ("beta", "sigma_sq", "tau_sq"),
    natural: bool = False,
    latent: int = 0,
    surface_error: float | None = 0.0,
    nodes: tuple[int, int] = (0, 0),
) -> Run:
    """Sample from a Stan program; the larger surface error where it measures its own.

    ``begin``, ``natural`` and ``latent`` say where the chains begin, of other programs than
    ``surface`` (:func:`dsstan.models.starts.initial_values`), ``names`` which draws to keep beside
    ``phi``.
    """
    held, settings, root = request.phi_held, request.settings, request.seed
    tops, log_mass = 1, None
    if program == "surface":
        table = PosteriorTable.of(data)
        tops, log_mass = table.modes(), table.log_mass
        data = {**data, **whitening(table)}
        inits = whitened_starts(request.problem.n_terms, held, settings.chains, root)
    else:
        inits = initial_values(
            begin,
            start=request.drawn_from,
            held=held,
            chains=settings.chains,
            root=root,
            natural=natural,
            latent=latent,
        )
    with progress_bar(f"{request.label}: sampling ({runner.name})", request.progress) as advance:
        drawn = runner.sample(
            Program(program),
            data,
            settings=settings,
            seed=stan_seed(root),
            inits=inits,
            advance=advance,
        )
    if "surface_error" in drawn.names:
        surface_error = max(surface_error or 0.0, float(np.max(drawn["surface_error"])))
    draws = {name: drawn[name] for name in names}
    shape = drawn.sampler.shape[:2]
    draws["phi"] = drawn["phi"] if held is None else np.full(shape, held)
    sampler, (name, version) = drawn.sampler, (runner.name, runner.version)
    return Run(
        *(draws, sampler, name, version, program, surface_error, nodes),
        tops=tops,
        log_mass=log_mass,
    )


def finish_fit(
    kind: type[F],
    request: Request,
    run: Run,
    *,
    checks: Sequence[Check] = (),
    watched: Mapping[str, Floats] | None = None,
    notes: Sequence[str] = (),
    **own: Any,
) -> F:
    """The result of a run, with its verdict and notes.

    Parameters
    ----------
    kind
        Class of the result.
    request, run
        What was asked for, and what the sampler returned.
    checks
        Of the model, for the verdict.
    watched
        What the verdict looks at beside the scalar parameters, each of shape (chains, samples).
    notes
        Of the model, for the user.
    **own
        Fields of ``kind`` that not every fit has.

    Warns
    -----
    DsstanWarning
        If no record is flagged.
    """
    draws, held, weights = run.draws, request.phi_held, request.weights
    if weights is not None and not kind.smoothing_moves:
        chosen = weights.rule not in ("correlation", "distance")
        share = most_flagged(
            *(weights.n_flagged, request.problem.n_records),
            chosen=chosen,
            nearest=weights.nearest,
            threshold=weights.threshold,
            unit=request.problem.unit,
        )
        checks = (*checks, share)
        protected = protection_notes(
            request.problem,
            weights,
            request.A,
            request.protection,
            phi=float(np.median(draws["phi"])),
            phi_from_start=request.phi_from_start,
            cov_model=request.cov_model,
        )
        if weights.n_flagged == 0:
            warnings.warn(protected[0], DsstanWarning, stacklevel=3)
        notes = (*protected, *notes)
    phi_stated = request.prior_settings.phi_bounds is not None
    if held is None and not phi_stated:
        rise = None
        fixed = not (request.covariance.approximate or kind.smoothing_moves)
        if run.log_mass is not None and fixed:
            rise = sd_under_wider_range(request, draws, run.log_mass)
        priors = request.priors
        reach = reach_note(draws["phi"], priors.phi_bounds, rise, priors.phi_rate)
        notes = (*notes, *([] if reach is None else [reach]))
    if run.tops > 1:
        notes = (
            *notes,
            f"the posterior of phi and tau_sq / sigma_sq has {run.tops} separate tops: the table "
            "does not decide between them. Look at a plot of the draws; priors may rule one out",
        )
    notes = (*notes, *(f"{said}: the table does not tell more" for said in request.undecided))
    lone = lone_records(request.problem.X)
    notes = (*notes, *([] if lone is None else [lone]))
    scalars = {k: v for k, v in kind.scalars_in(draws).items() if k != "phi" or held is None}
    return kind(
        problem=request.problem,
        A=request.A,
        protection=request.protection,
        cov_model=request.cov_model,
        covariance=request.covariance,
        phi_held=held,
        time_decay=request.time_decay,
        group_share=request.group_share,
        kind=request.kind,
        weights=weights,
        gamma=request.gamma,
        draws=draws,
        priors=request.priors,
        prior_settings=request.prior_settings,
        engine=run.engine,
        engine_version=run.version,
        program=run.program,
        fingerprint=Program(run.program).fingerprint,
        seed=request.seed,
        settings=request.settings,
        surface_error=run.surface_error or 0.0,
        nodes=run.nodes,
        verdict=diagnose(
            {**scalars, **(watched or {})},
            run.sampler,
            settings=request.settings,
            surface_error=run.surface_error,
            phi_bounds=None if held is not None else request.priors.phi_bounds,
            r_bounds=request.priors.r_bounds if "tau_sq" in scalars else None,
            phi_stated=phi_stated,
            repeated=repeated_values(request.problem),
            more=tuple(checks),
        ),
        seconds=time.perf_counter() - request.begin,
        # An unrestricted fit that took its phi from another is compared with none.
        start=None if weights is None else unrestricted_start(request.start),
        notes=tuple(notes),
        **own,
    )
