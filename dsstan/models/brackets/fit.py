"""Keep each record's bracket in the copies (section 6, equation trun, of the paper)."""

from __future__ import annotations

import warnings
from dataclasses import fields, replace
from typing import Any

import numpy as np

from dsstan.core.errors import DsstanWarning, InputError
from dsstan.covariance.approximations import Covariance
from dsstan.covariance.protection import PROTECTIONS, protection_of
from dsstan.engines import SamplerSettings, check_name
from dsstan.models.arguments import check_arguments, refuse_process, unrestricted_start
from dsstan.models.brackets.limits import Brackets, find_brackets
from dsstan.models.brackets.result import BracketedFit, TruncatedFit
from dsstan.models.brackets.truncated import fit_truncated
from dsstan.models.counts.runs import correction_check, lengths_of
from dsstan.models.finish import finish_fit
from dsstan.models.fit import fit
from dsstan.models.held import only_in_fit
from dsstan.models.priors import Priors
from dsstan.models.result import Fit
from dsstan.models.weights import Weights
from dsstan.table.problem import Problem, require_complete

__all__ = ["LIKELIHOODS", "BracketedFit", "TruncatedFit", "fit_bracketed"]


LIKELIHOODS = ("plain", "truncated")
"""Likelihoods by name, the default first."""

TRUNCATED_PROTECTIONS = tuple(name for name in PROTECTIONS if protection_of(name).smoothed_copies)
"""Protections of the truncated likelihood: A on the effect, and nothing else."""


def bracketed(fit: Fit, what: str) -> BracketedFit:
    """The fit, if its copies keep brackets.

    Raises
    ------
    InputError
        If they do not; ``what`` is the function that needs it.
    """
    if not isinstance(fit, BracketedFit) or fit.problem.heap is not None:
        raise InputError(f"{what} needs copies of a fit_bracketed fit")
    return fit


def fit_bracketed(
    problem: Problem,
    cuts: Any,
    *,
    column: str | None = None,
    closed: str = "left",
    likelihood: str = "plain",
    weights: Weights | None = None,
    gamma: float | None = None,
    protection: str | None = None,
    start: BracketedFit | None = None,
    phi: float | None = None,
    cov_model: str | None = None,
    covariance: str | Covariance | None = None,
    priors: Priors | None = None,
    engine: str = "auto",
    chains: int = SamplerSettings.chains,
    warmup: int | None = None,
    samples: int | None = None,
    adapt_delta: float = SamplerSettings.adapt_delta,
    max_treedepth: int = SamplerSettings.max_treedepth,
    nodes: tuple[int, int] | None = None,
    seed: int | None = None,
    progress: bool | None = None,
) -> BracketedFit:
    """Fit a model whose copies keep each record's bracket.

    Equation trun of Quick, Holan and Wikle (2018, section 6).

    Parameters
    ----------
    problem
        From :func:`dsstan.prepare`.
    cuts
        Cut points on the response's own scale, or brackets by name; see
        :func:`dsstan.models.brackets.limits.find_brackets`. They are published.
    column
        With named brackets: the column that names each record's.
    closed
        Which end belongs to a bracket, ``"left"`` (the default) or ``"right"``.
    likelihood
        ``"plain"``, the default: the Gaussian fit, and only the copies are cut.
        ``"truncated"``: each record's bracket is taken as given, with the normalising constant
        of its normal; it learns little of the variances.
    weights, gamma, start, phi
        As of :func:`dsstan.fit`: without weights the fit is unrestricted; with them phi is held,
        at ``phi`` or at the posterior median of ``start``, an unrestricted fit with the same
        brackets. An unrestricted fit of the truncated likelihood takes ``start`` (of either
        likelihood) or ``phi`` too and then holds phi; with neither phi is free.
    protection
        As of :func:`dsstan.fit`. The truncated likelihood knows ``"paper"`` only.
    covariance
        ``"exact"``, ``"vecchia"`` or a :class:`dsstan.covariance.approximations.Vecchia`;
        ``"auto"`` is exact up to 2000 informing records.
    warmup, samples
        Iterations a chain before and after it settles. Of ``"plain"`` by default those of
        :func:`dsstan.fit`; of ``"truncated"`` those of
        :func:`dsstan.models.counts.fit.fit_counts`: 100, and 1000 or beyond 300 sites 500.
    engine, adapt_delta, max_treedepth, nodes
        As of :func:`dsstan.fit`, for ``"plain"``; the truncated likelihood is sampled in this
        process, without Stan.
    cov_model, priors, chains, seed, progress
        As of :func:`dsstan.fit`.

    Returns
    -------
    BracketedFit
        A :class:`TruncatedFit` under ``"truncated"``. Whether or not it converged: its
        ``verdict`` says.

    Raises
    ------
    InputError
        If brackets do not fit the table, or arguments contradict each other.
    SurfaceError, EngineError
        As of :func:`dsstan.fit`.

    Warns
    -----
    DsstanWarning
        If the column can hold one value only in a record's bracket: its copies are the truth.
    """
    require_complete(problem)
    only_in_fit(problem)
    kept = find_brackets(problem, cuts, column=column, closed=closed)
    check_name(engine)
    if likelihood not in LIKELIHOODS:
        raise InputError(f"likelihood must be one of {', '.join(LIKELIHOODS)}, got {likelihood!r}")
    _check_start(start, problem, kept, weights, likelihood)
    if nodes is not None and likelihood != "plain":
        raise InputError('nodes belong to likelihood="plain", which has a surface: leave them out')
    notes = _notes(kept)
    for note in notes:
        warnings.warn(note, DsstanWarning, stacklevel=2)
    common: dict[str, Any] = {
        **{"weights": weights, "gamma": gamma, "protection": protection, "phi": phi},
        **{"cov_model": cov_model, "priors": priors, "seed": seed, "progress": progress},
    }
    sampler = SamplerSettings(
        chains,
        *lengths_of(problem, warmup, samples, laplace=likelihood == "truncated"),
        adapt_delta,
        max_treedepth,
    )
    if likelihood == "plain":
        refuse_process(covariance, "fit_bracketed")
        found = fit(
            problem,
            covariance=covariance,
            nodes=nodes,
            engine=engine,
            start=None if start is None else start.gaussian,
            **common,
            **{name: value for name, value in vars(sampler).items() if name != "metric"},
        )
        own = {each.name: getattr(found, each.name) for each in fields(Fit)}
        own |= {"start": unrestricted_start(start), "notes": (*found.notes, *notes)}
        return BracketedFit(**own, brackets=kept, gaussian=found)
    if protection not in (None, *TRUNCATED_PROTECTIONS):
        raise InputError(
            f'the truncated likelihood has protection "paper" only, got {protection!r}; '
            'likelihood="plain" has them all'
        )
    request = check_arguments(
        problem,
        settings=replace(sampler, metric="diag_e"),
        start=start,
        covariance=covariance,
        alone=("start", "phi", "protection"),
        outcome=None,
        **common,
    )
    refuse_process(request.covariance, "fit_bracketed")
    task, run, corrected = fit_truncated(request, kept)
    return finish_fit(
        TruncatedFit,
        request,
        run,
        checks=correction_check(corrected),
        watched={"log_likelihood": task.log_likelihood(run.draws)},
        notes=notes,
        brackets=kept,
    )


def _check_start(
    start: BracketedFit | None,
    problem: Problem,
    kept: Brackets,
    weights: Weights | None,
    likelihood: str,
) -> None:
    """Refuse a start that is not of the same model."""
    if start is None:
        return
    if not isinstance(start, BracketedFit):
        raise InputError("start must be a fit of fit_bracketed, with the same brackets")
    if start.problem is not problem:
        raise InputError("start is a fit of another problem; fit both to the same one")
    other = start.brackets
    same = other.low.shape == kept.low.shape and other.closed == kept.closed
    if not (same and np.array_equal(other.low, kept.low) and np.array_equal(other.high, kept.high)):
        raise InputError("start has other brackets: give both fits the same")
    if weights is None and likelihood == "plain":
        raise InputError("start belongs to a restricted fit: give weights as well")
    if weights is not None and start.likelihood != likelihood:
        raise InputError(
            f'start has the likelihood "{start.likelihood}": give both fits the same one'
        )


def _notes(kept: Brackets) -> tuple[str, ...]:
    """What the user should know of the brackets."""
    alone, found = int(kept.single.sum()), []
    if len(kept.low) > 1 and np.count_nonzero(kept.counts) == 1:
        found.append(
            "all records are in one bracket, so brackets keep nothing apart: cuts are on the "
            "response's own scale, before any log"
        )
    if alone:
        found.append(
            f"the copies of {alone} record{'' if alone == 1 else 's'} are equal to the truth: the "
            "column, as it is rounded, holds one value in their bracket. Give wider brackets"
        )
    return tuple(found)
