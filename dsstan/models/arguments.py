"""Arguments of a fit that contradict each other, or the table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dsstan.core.errors import InputError, is_number
from dsstan.covariance.correlation import correlation_code
from dsstan.models.weights import Weights, smoothing
from dsstan.table.problem import Problem

if TYPE_CHECKING:
    from dsstan.models.result import Fit

Floats = NDArray[np.float64]

PROTECTIONS = ("paper", "preserving", "cut")


def check_arguments(
    problem: Problem,
    weights: Weights | None,
    gamma: float,
    protection: str,
    start: Fit | None,
    phi: float | None,
    hold_phi: bool,
    program: str,
    outcome: str = "Gaussian",
) -> Floats:
    """Refuse arguments that contradict each other; the diagonal of A."""
    if program not in ("auto", "natural", "surface"):
        raise InputError(f'program must be "auto", "natural" or "surface", got {program!r}')
    if protection not in PROTECTIONS:
        raise InputError(f"protection must be one of {', '.join(PROTECTIONS)}, got {protection!r}")
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
    if not hold_phi and program == "natural":
        raise InputError('restricted.stan holds phi: a free phi needs program="surface"')
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


def diagonal(weights: Weights, gamma: float, protection: str) -> Floats:
    """Diagonal of A, shape (N,); under ``cut`` flagged records leave whatever gamma is."""
    A = smoothing(gamma, weights.a)
    return np.where(weights.flagged, 0.0, 1.0) if protection == "cut" else A


def check_cut(X: Floats, n: int, problem: Problem) -> None:
    """The unflagged records must be able to carry the regression."""
    if n < X.shape[1] + 2 or np.linalg.matrix_rank(X) < X.shape[1]:
        raise InputError(
            f'protection "cut" leaves {n} of {problem.n_records} records, too few to '
            "estimate every term of the formula; flag fewer, or use another protection"
        )
