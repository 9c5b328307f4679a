"""Fit the unrestricted or the restricted model."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from dsstan.core.errors import DsstanWarning
from dsstan.core.progress import progress_bar
from dsstan.core.seeds import stan_seed
from dsstan.covariance.approximations import Covariance
from dsstan.covariance.likelihood_surface import Surface
from dsstan.covariance.vecchia.refinement import Refinement
from dsstan.covariance.vecchia.spread import check_spread, kept_seed, spread
from dsstan.covariance.window import Window, exact_surface, narrowed_surface
from dsstan.engines import SamplerSettings, gaussian_engine, refuse_ridge, slow_design
from dsstan.models.arguments import check_arguments, program_of
from dsstan.models.checks.conditions import at_window
from dsstan.models.checks.refined import refinement_checks, refinement_notes
from dsstan.models.finish import finish_fit, run_program
from dsstan.models.priors import Priors, ResolvedPriors
from dsstan.models.request import Request
from dsstan.models.result import Fit
from dsstan.models.stan_data import natural_data
from dsstan.models.starts import near_least_squares
from dsstan.models.weights import Weights
from dsstan.table.problem import Problem

__all__ = ["Fit", "fit"]

_LOG = logging.getLogger("dsstan")


def fit(
    problem: Problem,
    *,
    weights: Weights | None = None,
    gamma: float | None = None,
    protection: str | None = None,
    start: Fit | None = None,
    phi: float | None = None,
    hold_phi: bool = True,
    cov_model: str | None = None,
    covariance: str | Covariance | None = None,
    priors: Priors | None = None,
    time_decay: float | None = None,
    group_share: float | None = None,
    engine: str = "auto",
    chains: int = SamplerSettings.chains,
    warmup: int = SamplerSettings.warmup,
    samples: int = SamplerSettings.samples,
    adapt_delta: float = SamplerSettings.adapt_delta,
    max_treedepth: int = SamplerSettings.max_treedepth,
    nodes: tuple[int, int] | None = None,
    program: str = "auto",
    seed: int | None = None,
    cluster: Any = None,
    resume: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
) -> Fit:
    """Fit the unrestricted model, or with weights the restricted one.

    Equations hier and restrict of Quick, Holan and Wikle (2018), the spatial
    effect integrated out.

    Parameters
    ----------
    problem
        From :func:`dsstan.prepare`.
    weights
        Risk weights; without them the fit is unrestricted.
    gamma
        Global risk parameter, from 0 to infinity (with weights the default: w* of a flagged
        record is fixed to zero). Under ``"cut"`` it makes no difference.
    protection
        What becomes of the variance that smoothing removes: ``"paper"`` (the default) nothing,
        ``"preserving"`` it returns as noise of the observation, ``"cut"`` the
        flagged records leave the fit.
    start
        The unrestricted fit: its draws start the chains, and its posterior
        median of phi is held; under ``"cut"`` neither, as both have seen the flagged records.
    phi
        Decay to hold instead, inverse of the coordinates' unit.
    hold_phi
        False leaves phi free in a restricted fit. The paper advises against it,
        since flags depend on phi. Under ``"cut"`` phi is free unless it is given: it has the
        posterior of the unflagged records' own fit.
    cov_model
        Correlation function of w, ``"exponential"`` (the paper's), ``"matern32"`` or
        ``"matern52"``; see :mod:`dsstan.covariance.correlation`. By default that of ``start``, else
        the exponential.
    covariance
        ``"exact"``, ``"vecchia"``, ``"predictive_process"``, or one of the last two with its
        settings (:mod:`dsstan.covariance.approximations`). ``"auto"``, the default without
        ``start``, is exact up to 2000 informing records and Vecchia's beyond; with ``start``
        the default is that of ``start``.
    priors
        Prior settings; see :class:`dsstan.Priors`. By default those of ``start``, resolved
        for the records that inform this fit.
    time_decay
        Decay of the correlation in time to hold, inverse of the time's unit, of a problem with a
        time. By default that of ``start``, else the most likely one given the records that inform
        the fit; under ``"cut"`` always theirs.
    group_share
        Share of sigma_sq that is of the random intercept ``(1 | group)``, held likewise.
    engine
        ``"cmdstan"`` or ``"embedded"`` run Stan. ``"direct"`` gives independent draws of the same
        posterior without Stan, in a fraction of the time; it knows no warm-up. ``"auto"`` runs
        Stan, but is direct where the design has more than 20 columns.
    chains, warmup, samples, adapt_delta, max_treedepth
        Sampler settings.
    nodes
        Nodes (G, H) of the surface; by default as many as the tolerance needs.
    program
        ``"surface"``, which is also ``"auto"``, runs the program that takes the surface as data;
        ``"natural"`` the one that takes the records and builds the surface inside Stan.
    seed
        Root seed, by default a fresh one of 128 bits.
    cluster
        Workers that compute the surface of Vecchia's approximation: a number of processes on this
        machine, the address of a Dask scheduler or a ``distributed.Client``; see
        :func:`dsstan.core.distributed.connect`. The fit is the same bytes as without.
    resume
        Folder, for its owner alone, in which finished sums of such a surface are kept, and the
        seed where none is given: a run that was killed goes on when it is started again.
        Confidential.
    progress
        Show progress; by default in a terminal.

    Returns
    -------
    Fit
        Whether or not it converged: its ``verdict`` says.

    Raises
    ------
    InputError
        If arguments contradict each other.
    SurfaceError
        If the interpolation error is not below its tolerance.
    EngineError
        If the engine is missing or fails.

    Warns
    -----
    DsstanWarning
        If Stan was asked for and the design has so many columns that it takes long; or if no
        record is flagged.
    """
    request = check_arguments(
        problem,
        settings=SamplerSettings(chains, warmup, samples, adapt_delta, max_treedepth),
        weights=weights,
        gamma=gamma,
        protection=protection,
        start=start,
        phi=phi,
        hold_phi=hold_phi,
        cov_model=cov_model,
        covariance=covariance,
        priors=priors,
        ties=(time_decay, group_share),
        seed=seed,
        progress=progress,
    )
    name = program_of(
        problem,
        program,
        restricted=weights is not None,
        hold_phi=request.phi_held is not None,
        covariance=request.covariance,
    )
    check_spread(request.covariance, cluster, resume)
    request = replace(request, seed=_seed(request, seed, nodes, resume))
    runner = gaussian_engine(engine, name, problem.n_terms)
    refuse_ridge(runner, name, problem.n_terms, request.informing.size)
    slow = slow_design(runner, name, problem.n_terms, request.settings)
    if slow is not None:
        warnings.warn(slow, DsstanWarning, stacklevel=2)
    with progress_bar(f"{request.label}: surface", progress) as advance:
        built = _surface(request, nodes, advance, cluster, resume, narrow=name == "surface")
    surface, sampled = built.surface, built.sampled(request.priors)
    _LOG.info(
        "%s: program %s on %s, %d of %d records inform it, %d x %d nodes",
        *(request.label, name, runner.name, request.informing.size, problem.n_records),
        *surface.nodes,
    )
    run = run_program(
        request,
        name,
        sampled.on_surface(surface)
        if name == "surface"
        else natural_data(
            *(problem, request.A, request.protection, request.phi_held, request.priors, surface),
            cov_model=request.cov_model,
        ),
        near_least_squares(surface.rotation, request.priors),
        runner=runner,
        natural=name != "surface",
        surface_error=surface.error,
        nodes=surface.nodes,
    )
    return finish_fit(
        *(Fit, request, run),
        checks=[
            *at_window(run.draws, sampled, request.priors),
            *refinement_checks(built.refinement, problem.terms),
        ],
        notes=refinement_notes(built.refinement, problem.terms),
        nodes_asked=nodes,
        refinement=built.refinement,
    )


def _seed(
    request: Request,
    seed: int | None,
    nodes: tuple[int, int] | None,
    resume: str | os.PathLike[str] | None,
) -> int:
    """The root seed: that of a run that is resumed, else the request's."""
    r = request
    settings = (r.protection, r.cov_model, r.covariance, r.prior_settings, r.phi_held, nodes)
    return kept_seed(resume, seed, r.seed, r.problem, r.A, settings=(*settings, r.settings))


@dataclass(frozen=True)
class _FitSurface:
    """A surface and the part of the prior's range that it covers."""

    surface: Surface
    window: Window
    refinement: Refinement | None = None

    def sampled(self, priors: ResolvedPriors) -> ResolvedPriors:
        """The priors cut to the window, as the program takes them."""
        held = self.window.phi_bounds[0] == self.window.phi_bounds[1]
        phi = priors.phi_bounds if held else self.window.phi_bounds
        return replace(priors, phi_bounds=phi, r_bounds=self.window.r_bounds)


def _surface(
    request: Request,
    nodes: tuple[int, int] | None,
    advance: Callable[[float], None],
    cluster: Any,
    resume: str | os.PathLike[str] | None,
    narrow: bool,
) -> _FitSurface:
    """The likelihood surface of the informing records; the program of the records has it whole."""
    covariance, ranges = request.covariance, (request.phi_bounds, request.priors.r_bounds)
    how: dict[str, Any] = {"nodes": nodes, "cov_model": request.cov_model}
    how |= {"phi_rate": request.priors.phi_rate}
    how |= {"seed": stan_seed(request.seed), "advance": advance}
    if not covariance.approximate:
        source = covariance.statistics(request)
        return _FitSurface(*exact_surface(source, *ranges, narrow=narrow, **how))
    with ExitStack() as stack:

        def statistics(of: Covariance) -> Any:
            return stack.enter_context(spread(of.statistics(request), cluster, resume))

        source = statistics(covariance.rough)
        surface, window = narrowed_surface(source, *ranges, **how)
        return _FitSurface(*covariance.refined(source, surface, window, statistics))
