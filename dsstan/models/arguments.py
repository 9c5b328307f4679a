"""What the arguments of a fit come to, and those that contradict each other or the table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dsstan.core.errors import InputError, is_number
from dsstan.covariance.approximations import EXACT, Covariance, choose_covariance
from dsstan.covariance.correlation import correlation_code
from dsstan.covariance.protection import check_protection, protection_of
from dsstan.models.result import Fit
from dsstan.models.weights import Weights, smoothing
from dsstan.table.problem import Problem

Floats = NDArray[np.float64]


def check_arguments(
    problem: Problem,
    weights: Weights | None,
    gamma: float,
    protection: str,
    start: Fit | None,
    phi: float | None,
    hold_phi: bool,
    outcome: str = "Gaussian",
) -> Floats:
    """Refuse arguments that contradict each other; the diagonal of A."""
    check_protection(protection)
    response = problem.table[problem.response]
    if pd.api.types.is_bool_dtype(response.dtype):
        raise InputError(
            f"response {problem.response!r} holds truth values, which are not Gaussian: use "
            'dsstan.models.counts.fit.fit_counts(problem, "bernoulli")'
        )
    if start is not None and start.outcome != outcome:
        raise InputError(
            f"start is a fit of another model ({start.outcome}); it starts a fit of its own kind"
        )
    if start is not None and start.problem is not problem:
        raise InputError("start is a fit of another problem; fit both to the same one")
    if weights is None:
        if phi is not None or start is not None:
            raise InputError("phi and start belong to a restricted fit: give weights as well")
        return np.ones(problem.n_records)
    if weights.a.shape != (problem.n_records,):
        raise InputError(
            f"weights are of {weights.a.size} records, the problem has {problem.n_records}"
        )
    if hold_phi and phi is None and start is None:
        raise InputError(
            "a restricted fit holds phi: give start (the unrestricted fit) or phi itself"
        )
    if hold_phi and phi is None and start is not None and start.kind != "unrestricted":
        raise InputError("start must be an unrestricted fit, or give phi itself")
    if phi is not None and not (is_number(phi) and np.isfinite(phi) and phi > 0):
        raise InputError("phi must be positive and finite")
    if phi is not None and not hold_phi:
        raise InputError("phi is a value to hold: hold_phi=False contradicts it")
    return diagonal(weights, gamma, protection)


def check_cov_model(cov_model: str | None, start: Fit | None) -> str:
    """The correlation function: as asked for, else that of ``start``, else the exponential.

    Raises
    ------
    InputError
        If there is none of this name, or ``start`` has another: its decay would mean
        another range.
    """
    if cov_model is None:
        return "exponential" if start is None else start.cov_model
    correlation_code(cov_model)
    if start is not None and start.cov_model != cov_model:
        raise InputError(
            f"cov_model is {cov_model!r} and start was fitted with {start.cov_model!r}: leave "
            "cov_model out, or fit start with it"
        )
    return cov_model


def covariance_for(
    covariance: str | Covariance | None,
    start: Fit | None,
    n: int,
    *,
    exact_only: str | None = None,
) -> Covariance:
    """The covariance: as asked for, else that of ``start``, else the one for n informing records.

    Parameters
    ----------
    covariance
        See :func:`dsstan.fit`.
    start
        Fit that this one starts from.
    n
        Number of informing records.
    exact_only
        Name of the fit function where its model has the exact covariance only, which ``"auto"``
        then is.

    Raises
    ------
    InputError
        If there is none of this name, or the model does not have it.
    """
    if covariance is None:
        covariance = "auto" if start is None else start.covariance
    if exact_only is None:
        return choose_covariance(covariance, n)
    chosen = choose_covariance(covariance, 0)
    if chosen.approximate:
        raise InputError(
            f"{exact_only} works with the exact covariance only, not with {chosen}: give "
            'covariance="exact"'
        )
    return chosen


def program_of(
    problem: Problem,
    program: str = "auto",
    *,
    restricted: bool,
    hold_phi: bool = True,
    covariance: Covariance = EXACT,
) -> str:
    """Name of the Stan program that a Gaussian fit runs.

    Parameters
    ----------
    problem
        The prepared table.
    program
        ``"auto"``, ``"natural"`` or ``"surface"``; see :func:`dsstan.fit`.
    restricted, hold_phi, covariance
        The fit, its covariance resolved.

    Raises
    ------
    InputError
        If there is none of this name, or the natural program can't run this fit.
    """
    if program not in ("auto", "natural", "surface"):
        raise InputError(f'program must be "auto", "natural" or "surface", got {program!r}')
    if program != "natural":
        return "surface"
    if restricted and not hold_phi:
        raise InputError('restricted.stan holds phi: a free phi needs program="surface"')
    if covariance.approximate or problem.n_missing:
        raise InputError(
            "the program that takes natural data needs a response in every record, and the exact "
            'covariance: leave program at "auto"'
        )
    return "restricted" if restricted else "unrestricted"


def unrestricted_start(start: Fit | None) -> Fit | None:
    """The unrestricted fit behind a start: itself, or the one a restricted fit started from."""
    return start.start if start is not None and start.kind == "restricted" else start


def settings_of(fit: Fit) -> dict[str, Any]:
    """Keyword arguments with which :func:`dsstan.fit` fits the same model again.

    With the same problem, start and seed they give the same draws. Every setting of the model
    and of the sampler is here, the covariance, the engine and the program as resolved; of a
    restricted fit also its protection and the decay it held. Not here are ``start`` and
    ``seed``, and what makes no difference to the draws: ``cluster``, ``resume``, ``progress``.

    Parameters
    ----------
    fit
        A fit of :func:`dsstan.fit`, not of another model.
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
