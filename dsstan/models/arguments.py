"""What the arguments of a fit come to, and those that contradict each other or the table."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import pandas as pd

from dsstan.core.arrays import Floats
from dsstan.core.errors import InputError, is_number
from dsstan.core.seeds import root_seed
from dsstan.covariance.approximations import EXACT, Covariance, Vecchia, choose_covariance
from dsstan.covariance.base import SpatialModel
from dsstan.covariance.correlation import correlation_code
from dsstan.covariance.most_likely import Ties
from dsstan.covariance.protection import NO_PROTECTION, PROTECTIONS, protection_of
from dsstan.engines import SamplerSettings
from dsstan.models.held import check_structure, held_ties, only_in_fit
from dsstan.models.priors import Priors
from dsstan.models.request import Request
from dsstan.models.result import Fit
from dsstan.models.weights import Weights, smoothing
from dsstan.table.problem import Problem, refuse_heap


def check_arguments(
    problem: Problem,
    *,
    settings: SamplerSettings,
    weights: Weights | None = None,
    gamma: float | None = None,
    protection: str | None = None,
    start: Fit | None = None,
    phi: float | None = None,
    hold_phi: bool = True,
    cov_model: str | None = None,
    covariance: str | Covariance | None = None,
    priors: Any = None,
    seed: int | None = None,
    progress: bool | None = None,
    label: str = "{} fit",
    alone: Collection[str] = (),
    protections: Sequence[str] = PROTECTIONS,
    outcome: str | None = "Gaussian",
    exact_only: str | None = None,
    usual_priors: Any = Priors,
    law: Any = None,
    ties: tuple[float | None, float | None] | None = None,
) -> Request:
    """Refuse arguments of a fit that contradict each other, and resolve the others.

    Parameters
    ----------
    problem, settings, weights, gamma, protection, start, phi, hold_phi, cov_model, covariance, \
    priors, seed, progress
        See :func:`dsstan.fit`.
    label
        What is fitted, with a place for whether it is restricted.
    alone
        Those of gamma, protection, start and phi that an unrestricted fit takes too.
    protections
        Those that the model has.
    outcome
        What ``start`` must be a fit of; None where the caller has compared it.
    exact_only
        Name of the fit function where its model has the exact covariance only.
    usual_priors
        Gives the prior settings where neither ``priors`` nor ``start`` does.
    law
        What priors of counts are resolved for, in place of the response.
    ties
        ``time_decay`` and ``group_share`` as given; None where the model has neither.

    Raises
    ------
    InputError
        If arguments contradict each other or the table.
    """
    begin, root = time.perf_counter(), root_seed(seed)
    refuse_heap(problem)
    if law is None and pd.api.types.is_bool_dtype(problem.table[problem.response].dtype):
        raise InputError(
            f"response {problem.response!r} holds truth values, which are not Gaussian: use "
            'dsstan.models.counts.fit.fit_counts(problem, "bernoulli")'
        )
    given = {"gamma": gamma, "protection": protection, "start": start, "phi": phi}
    names = [name for name, v in given.items() if v is not None and name not in alone]
    if law is None and {"gamma", "protection"} & set(names):
        names = list(dict.fromkeys(["gamma", "protection", *names]))  # counts have no protection
    if weights is None and names:
        verb = "belongs" if len(names) == 1 else "belong"
        raise InputError(f"{' and '.join(names)} {verb} to a restricted fit: give weights as well")
    if phi is not None and not (is_number(phi) and np.isfinite(phi) and phi > 0):
        raise InputError("phi must be positive and finite")
    _check_same(problem, weights, start, outcome)
    gamma = np.inf if gamma is None else gamma
    protection = "paper" if protection is None else protection
    if protection not in protections:
        raise InputError(f"protection must be one of {', '.join(protections)}, got {protection!r}")
    leaves = weights is not None and protection_of(protection).flagged_leave
    if weights is not None:
        _check_phi(start, phi, hold_phi, leaves)
    held = phi
    of_start = None if start is None else float(np.median(start.draws["phi"]))
    # Flagged records that leave the fit helped to choose the start's phi: it would carry them.
    if phi is None and hold_phi and not leaves:
        held = of_start
    model = SpatialModel(
        problem=problem,
        A=np.ones(problem.n_records) if weights is None else diagonal(weights, gamma, protection),
        protection=NO_PROTECTION if weights is None else protection,
        cov_model=check_cov_model(cov_model, start),
        covariance=EXACT,
        phi_held=held,
    )
    rows = model.informing
    X = problem.X[rows]
    if leaves:
        check_cut(X, len(rows), problem)
    if priors is None:
        priors = usual_priors() if start is None else start.prior_settings
    response = problem.y[rows] if law is None else law
    resolved = priors.resolve(response, X, problem.d_max, cov_model=model.cov_model)
    chosen = covariance_for(
        covariance, start, len(rows), cov_model=model.cov_model, exact_only=exact_only
    )
    found = Ties()
    if ties is None:
        only_in_fit(problem)
    else:
        asked = start.covariance if covariance is None and start is not None else covariance
        check_structure(problem, asked or "auto", model.cov_model)
        ranges = resolved.phi_bounds if held is None else (held, held), resolved.r_bounds
        found = held_ties(model, start, *ties, ranges=ranges, own=leaves)
    changed = {"time_decay": found.time_decay, "group_share": found.group_share}
    return Request(
        **vars(model) | {"covariance": chosen, **changed},
        undecided=found.undecided,
        weights=weights,
        gamma=0.0 if weights is None else float(gamma),
        start=start,
        priors=resolved,
        prior_settings=priors,
        phi_from_start=held is not None and held == of_start,
        seed=root,
        settings=settings,
        label=label.format("unrestricted" if weights is None else "restricted"),
        progress=progress,
        begin=begin,
    )


def _check_same(
    problem: Problem, weights: Weights | None, start: Fit | None, outcome: str | None
) -> None:
    """Start and weights must be of the same model and problem."""
    if start is not None and outcome is not None and start.outcome != outcome:
        raise InputError(
            f"start is a fit of another model ({start.outcome}); it starts a fit of its own kind"
        )
    if start is not None and start.problem is not problem:
        raise InputError("start is a fit of another problem; fit both to the same one")
    if weights is not None and weights.a.shape != (problem.n_records,):
        raise InputError(
            f"weights are of {weights.a.size} records, the problem has {problem.n_records}"
        )


def _check_phi(start: Fit | None, phi: float | None, hold_phi: bool, leaves: bool) -> None:
    """A restricted fit holds the decay that was given, or that of an unrestricted fit.

    Where flagged records leave it, its decay is free, and no start is needed.
    """
    if phi is not None and not hold_phi:
        raise InputError("phi is a value to hold: hold_phi=False contradicts it")
    if phi is not None or not hold_phi or (leaves and start is None):
        return
    if start is None:
        raise InputError(
            "a restricted fit holds phi: give start (the unrestricted fit) or phi itself"
        )
    if start.kind != "unrestricted":
        raise InputError("start must be an unrestricted fit, or give phi itself")


def check_cov_model(cov_model: str | None, start: Fit | None) -> str:
    """The correlation function: as asked for, else that of ``start``, else the exponential.

    Raises InputError if there is none of this name, or ``start`` has another: its decay would mean
    another range.
    """
    if cov_model is None:
        return "exponential" if start is None else start.cov_model
    correlation_code(cov_model)
    if start is not None and start.cov_model != cov_model:
        raise InputError(
            f"cov_model is {cov_model!r} and start was fitted with {start.cov_model!r}: its "
            "phi would mean another distance. Leave cov_model out, or fit both with one"
        )
    return cov_model


def covariance_for(
    covariance: str | Covariance | None,
    start: Fit | None,
    n: int,
    *,
    cov_model: str = "exponential",
    exact_only: str | None = None,
) -> Covariance:
    """The covariance: as asked for, else that of ``start``, else the one for n informing records.

    Raises InputError if there is none of this name, or the model does not have it.

    Parameters
    ----------
    covariance
        See :func:`dsstan.fit`.
    start
        Fit that this one starts from.
    n
        Number of informing records.
    cov_model
        Correlation function.
    exact_only
        Name of the fit function where its model has the exact covariance only, which ``"auto"``
        then is.
    """
    if covariance is None:
        covariance = "auto" if start is None else start.covariance
    if exact_only is None:
        return choose_covariance(covariance, n, cov_model)
    chosen = choose_covariance(covariance, 0)
    if chosen.approximate:
        raise InputError(
            f"{exact_only} works with the exact covariance only, not with {chosen}: give "
            'covariance="exact"'
        )
    return chosen


def refuse_process(covariance: str | Covariance | None, what: str) -> None:
    """Raise InputError if it is neither the exact covariance nor Vecchia's; ``what`` fits."""
    chosen = choose_covariance("auto" if covariance is None else covariance, 0)
    if chosen.approximate and not isinstance(chosen, Vecchia):
        raise InputError(
            f"{what} has the exact covariance and Vecchia's, not {chosen}: give "
            'covariance="exact" or covariance="vecchia"'
        )


def program_of(
    problem: Problem,
    program: str = "auto",
    *,
    restricted: bool,
    hold_phi: bool = True,
    covariance: Covariance = EXACT,
) -> str:
    """Name of the Stan program that a Gaussian fit runs.

    Raises InputError if there is none of this name, or the natural program can't run this fit.

    Parameters
    ----------
    problem
        The prepared table.
    program
        ``"auto"``, ``"natural"`` or ``"surface"``; see :func:`dsstan.fit`.
    restricted, hold_phi, covariance
        The fit, its covariance resolved.
    """
    if program not in ("auto", "natural", "surface"):
        raise InputError(f'program must be "auto", "natural" or "surface", got {program!r}')
    if program != "natural":
        return "surface"
    if restricted and not hold_phi:
        raise InputError(
            'restricted.stan holds phi, which is free under "cut" and with hold_phi=False: give '
            'phi, or program="surface"'
        )
    if covariance.approximate or problem.n_missing or problem.structure is not None:
        raise InputError(
            "the program that takes natural data needs a response in every record, the exact "
            'covariance, and neither a time nor groups: leave program at "auto"'
        )
    return "restricted" if restricted else "unrestricted"


def unrestricted_start(start: Fit | None) -> Fit | None:
    """The unrestricted fit behind a start: itself, or the one a restricted fit started from."""
    return start.start if start is not None and start.kind == "restricted" else start


def settings_of(fit: Fit) -> dict[str, Any]:
    """Keyword arguments with which :func:`dsstan.fit` fits the same model, one of its own, again.

    With the same problem, start and seed they give the same draws. Every setting of the model and
    of the sampler is here, the covariance, the engine and the program as resolved; of a restricted
    fit also its protection and the decay it held. Not here are ``start`` and ``seed``, and what
    makes no difference to the draws: ``cluster``, ``resume``, ``progress``.
    """
    protection = {
        "weights": fit.weights,
        "gamma": fit.gamma,
        "protection": fit.protection,
        "phi": fit.phi_held,
        "hold_phi": fit.phi_held is not None,
    }
    return {
        **({} if fit.weights is None else protection),
        **fit.ties,
        "cov_model": fit.cov_model,
        "covariance": fit.covariance,
        "priors": fit.prior_settings,
        "engine": fit.engine,
        "chains": fit.settings.chains,
        "warmup": fit.settings.warmup,
        "samples": fit.settings.samples,
        "adapt_delta": fit.settings.adapt_delta,
        "max_treedepth": fit.settings.max_treedepth,
        "nodes": fit.nodes_asked,
        "program": "surface" if fit.program == "surface" else "natural",
    }


def diagonal(weights: Weights, gamma: float, protection: str) -> Floats:
    """Diagonal of A, shape (N,); under ``cut`` flagged records leave whatever gamma is."""
    A = smoothing(gamma, weights.a)
    return np.where(weights.flagged, 0.0, 1.0) if protection_of(protection).flagged_leave else A


def check_cut(X: Floats, n: int, problem: Problem) -> None:
    """The unflagged records must be able to carry the regression."""
    if n < X.shape[1] + 2 or np.linalg.matrix_rank(X) < X.shape[1]:
        raise InputError(
            f'protection "cut" leaves {n} of {problem.n_records} records, too few to '
            "estimate every term of the formula; flag fewer, or use another protection"
        )
