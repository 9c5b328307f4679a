"""Fit the unrestricted or the restricted model."""

from __future__ import annotations

import logging
import os
import time
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsstan.core.errors import DsstanWarning, InputError
from dsstan.core.progress import progress_bar
from dsstan.core.seeds import root_seed, stan_seed
from dsstan.covariance.approximations import Covariance
from dsstan.covariance.base import SpatialModel
from dsstan.covariance.protection import informs
from dsstan.covariance.vecchia.spread import check_spread, kept_seed
from dsstan.engines import SamplerSettings, get_engine
from dsstan.engines.programs import Program
from dsstan.models.arguments import (
    check_arguments,
    check_cov_model,
    check_cut,
    covariance_for,
    program_of,
    unrestricted_start,
)
from dsstan.models.conditions import at_window, most_flagged
from dsstan.models.fit_surface import fit_surface
from dsstan.models.priors import Priors
from dsstan.models.result import Fit
from dsstan.models.stan_data import initial_values, natural_data
from dsstan.models.verdict import diagnose, protection_notes
from dsstan.models.weights import Weights
from dsstan.table.problem import Problem

__all__ = ["Fit", "fit"]

Floats = NDArray[np.float64]

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
    engine: str = "auto",
    chains: int = 4,
    warmup: int = 1000,
    samples: int = 1000,
    adapt_delta: float = 0.9,
    max_treedepth: int = 10,
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
        median of phi is held.
    phi
        Decay to hold instead, inverse of the coordinates' unit.
    hold_phi
        False leaves phi free in a restricted fit. The paper advises against it,
        since flags depend on phi.
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
    engine
        ``"cmdstan"``, ``"embedded"`` or ``"auto"``.
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
    """
    begin = time.perf_counter()
    root = root_seed(seed)
    settings = SamplerSettings(chains, warmup, samples, adapt_delta, max_treedepth)
    if weights is None and (gamma is not None or protection is not None):
        raise InputError("gamma and protection belong to a restricted fit: give weights as well")
    gamma = np.inf if gamma is None else gamma
    protection = "paper" if protection is None else protection
    A = check_arguments(problem, weights, gamma, protection, start, phi, hold_phi)
    cov_model = check_cov_model(cov_model, start)
    restricted = weights is not None
    used = protection if restricted else "none"
    rows = np.flatnonzero(informs(A, used) & problem.observed)
    y, X = problem.y[rows], problem.X[rows]
    if restricted and used == "cut":
        check_cut(X, len(rows), problem)
    if priors is None:
        priors = start.prior_settings if start is not None else Priors()
    resolved = priors.resolve(y, X, problem.d_max, cov_model=cov_model)
    held = None
    if restricted and hold_phi:
        # check_arguments has seen to it that there is one of the two.
        held = float(np.median(start.draws["phi"])) if phi is None and start else phi
    phi_bounds = resolved.phi_bounds if held is None else (held, held)
    kind = "restricted" if restricted else "unrestricted"
    label = f"{kind} fit"
    reckoned = covariance_for(covariance, start, len(rows))
    name = program_of(
        problem, program, restricted=restricted, hold_phi=held is not None, covariance=reckoned
    )
    natural = name != "surface"
    check_spread(reckoned, cluster, resume)
    root = kept_seed(
        *(resume, seed, root, problem, A),
        settings=(used, cov_model, reckoned, priors, held, nodes, settings),
    )
    runner = get_engine(engine)
    model = SpatialModel(
        problem=problem,
        A=A,
        protection=used,
        cov_model=cov_model,
        covariance=reckoned,
        phi_held=held,
    )
    with progress_bar(f"{label}: surface", progress) as advance:
        built = fit_surface(
            model,
            phi_bounds=phi_bounds,
            r_bounds=resolved.r_bounds,
            nodes=nodes,
            seed=stan_seed(root),
            advance=advance,
            cluster=cluster,
            resume=resume,
        )
    surface, sampled = built.surface, built.sampled(resolved)
    data = (
        natural_data(problem, A, used, held, resolved, surface, cov_model=cov_model)
        if natural
        else {**surface.stan_data(), **sampled.stan_data()}
    )
    _LOG.info(
        "%s: program %s on %s, %d of %d records inform it, %d x %d nodes",
        *(label, name, runner.name, len(rows), problem.n_records, *surface.nodes),
    )
    inits = (
        initial_values(start, surface, resolved, held, chains, root, natural)
        if built.window is None
        else built.starts(chains, root, held is not None)
    )
    with progress_bar(f"{label}: sampling ({runner.name})", progress) as advance:
        drawn = runner.sample(
            Program(name),
            data,
            settings=settings,
            seed=stan_seed(root),
            inits=inits,
            advance=advance,
        )
    draws = {key: drawn[key] for key in ("beta", "sigma_sq", "tau_sq")}
    draws["phi"] = drawn["phi"] if "phi" in drawn.names else np.full(draws["sigma_sq"].shape, held)
    notes = protection_notes(
        problem,
        weights,
        A,
        used,
        phi=float(np.median(draws["phi"])),
        phi_from_start=held is not None and phi is None,
        cov_model=cov_model,
    )
    if weights is not None and weights.n_flagged == 0:
        warnings.warn(notes[0], DsstanWarning, stacklevel=2)
    checks = at_window(draws, sampled, resolved)
    if weights is not None:
        chosen = weights.rule not in ("correlation", "distance")
        checks.append(most_flagged(weights.n_flagged, problem.n_records, chosen=chosen))
    error = surface.error
    if natural:
        error = max(error, float(np.max(drawn["surface_error"])))
    return Fit(
        problem=problem,
        kind=kind,
        protection=used,
        weights=weights,
        gamma=float(gamma) if restricted else 0.0,
        A=A,
        draws=draws,
        phi_held=held,
        priors=resolved,
        prior_settings=priors,
        engine=runner.name,
        engine_version=runner.version,
        program=name,
        fingerprint=Program(name).fingerprint,
        seed=root,
        settings=settings,
        surface_error=error,
        nodes=surface.nodes,
        verdict=diagnose(
            {
                **{f"beta_{j}": draws["beta"][:, :, j] for j in range(problem.n_terms)},
                "sigma_sq": draws["sigma_sq"],
                "tau_sq": draws["tau_sq"],
                **({} if held is not None else {"phi": draws["phi"]}),
            },
            drawn.sampler,
            max_treedepth=max_treedepth,
            surface_error=error,
            phi_bounds=None if held is not None else resolved.phi_bounds,
            r_bounds=resolved.r_bounds,
            more=tuple(checks),
        ),
        seconds=time.perf_counter() - begin,
        start=unrestricted_start(start),
        notes=notes,
        cov_model=cov_model,
        covariance=reckoned,
        nodes_asked=nodes,
    )
