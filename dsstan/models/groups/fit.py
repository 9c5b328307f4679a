"""Several groups of records, each with its own spatial effect, that inform one another."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dsstan.core.errors import DsstanWarning, InputError, is_number
from dsstan.core.progress import progress_bar
from dsstan.core.seeds import root_seed, stan_seed
from dsstan.covariance.approximations import Covariance
from dsstan.covariance.correlation import correlation_code
from dsstan.engines import Draws, SamplerSettings, get_engine
from dsstan.engines.programs import Program
from dsstan.models.arguments import (
    check_arguments,
    check_cov_model,
    check_cut,
    covariance_for,
    unrestricted_start,
)
from dsstan.models.conditions import Check, at_bounds, most_flagged
from dsstan.models.groups.groups import Groups, not_estimable, read_groups
from dsstan.models.groups.result import MultivariateFit, scalars_of
from dsstan.models.groups.settings import group_scales, starts
from dsstan.models.priors import Priors, ResolvedPriors
from dsstan.models.verdict import Verdict, diagnose, protection_notes
from dsstan.models.weights import Weights
from dsstan.table.problem import Problem, require_complete

__all__ = ["LKJ_ETA", "MAX_RECORDS", "MultivariateFit", "fit_multivariate"]

Floats = NDArray[np.float64]

LKJ_ETA = 2.0
"""Default of the LKJ prior: correlations between groups lean to 0, mildly."""

MAX_RECORDS = 1000
"""Most informing records: a gradient factors a matrix of their number."""

_NUMBERS = {"none": 1, "paper": 1, "preserving": 2, "cut": 3}


def fit_multivariate(
    problem: Problem,
    groups: str,
    *,
    weights: Weights | None = None,
    gamma: float | None = None,
    protection: str | None = None,
    start: MultivariateFit | None = None,
    phi: float | None = None,
    hold_phi: bool = True,
    priors: Priors | None = None,
    group_scale: float | Sequence[float] | None = None,
    lkj_eta: float | None = None,
    cov_model: str | None = None,
    covariance: str | Covariance | None = None,
    engine: str = "auto",
    chains: int = 4,
    warmup: int = 1000,
    samples: int = 1000,
    adapt_delta: float = 0.9,
    max_treedepth: int = 10,
    seed: int | None = None,
    progress: bool | None = None,
) -> MultivariateFit:
    """Fit a model with a spatial effect for each group of records.

    Section 6 of Quick, Holan and Wikle (2018) names it: Cov(w_k(s), w_l(s')) = T_kl R(phi), so
    that records of one group inform the effects of another. Coefficients and nuggets are the
    group's own. Effects and coefficients are integrated out.

    Parameters
    ----------
    problem
        From :func:`dsstan.prepare`. The formula holds for every group.
    groups
        Column with each record's group: whole numbers, text, categories, or true and false.
    weights, gamma, protection
        As for :func:`dsstan.fit`; without weights the fit is unrestricted.
    start
        The unrestricted multivariate fit of the same groups: its draws start the chains, its
        posterior median of phi is held, and what is not given is taken from it.
    phi
        Decay to hold instead; may be given without weights too.
    hold_phi
        False leaves phi free in a restricted fit.
    priors
        As for :func:`dsstan.fit`. ``sigma`` is that of every T_kk, ``tau`` that of every
        tau_sq_k, and ``beta_scale`` that of the coefficients that the groups have in common.
    group_scale
        Prior sd of a group's coefficients about the common ones, one number or P of them. By
        default 2.5 residual sd over sd(x_j), and 2.5 residual sd for a constant column.
    lkj_eta
        Shape of the LKJ prior on the correlation of T; 1 is uniform, by default 2.
    cov_model
        Name of the correlation function; ``"exponential"`` by default.
    covariance
        ``"exact"``, which is also ``"auto"``: several groups have no approximation.
    engine, chains, warmup, samples, adapt_delta, max_treedepth, seed, progress
        As for :func:`dsstan.fit`.

    Returns
    -------
    MultivariateFit
        Whether or not it converged: its ``verdict`` says.

    Raises
    ------
    InputError
        If arguments contradict each other, the groups can't be used, or there are more than
        ``MAX_RECORDS`` (1000) informing records.
    EngineError
        If the engine is missing or fails.
    """
    begin = time.perf_counter()
    root = root_seed(seed)
    settings = SamplerSettings(chains, warmup, samples, adapt_delta, max_treedepth)
    require_complete(problem)
    found = read_groups(problem, groups)
    if weights is None and (gamma is not None or protection is not None):
        raise InputError("gamma and protection belong to a restricted fit: give weights as well")
    if start is not None:
        _check_start(start, groups)
    gamma = np.inf if gamma is None else gamma
    protection = "paper" if protection is None else protection
    restricted = weights is not None
    if not restricted and phi is not None and not (is_number(phi) and 0 < phi < np.inf):
        raise InputError("phi must be positive and finite")
    A = check_arguments(
        problem,
        weights,
        gamma,
        protection,
        start,
        phi if restricted else None,
        hold_phi,
        MultivariateFit.outcome,
    )
    used = protection if restricted else "none"
    rows = np.flatnonzero(A == 1.0) if used == "cut" else np.arange(A.size)
    if used == "cut":
        check_cut(problem.X[rows], len(rows), problem)
    if len(rows) > MAX_RECORDS:
        raise InputError(
            f"{len(rows)} records inform the fit and at most {MAX_RECORDS} are taken: every "
            "gradient factors a matrix of their number, days of work beyond. Fit an area, or a "
            "sample"
        )
    if priors is None:
        priors = start.prior_settings if start is not None else Priors()
    named = check_cov_model(cov_model, start)
    covariance_for(covariance, start, len(rows), exact_only="fit_multivariate")
    code = correlation_code(named)
    resolved = priors.resolve(problem.y[rows], problem.X[rows], problem.d_max, cov_model=named)
    spread = group_scales(group_scale, start, problem, rows)
    eta = lkj_eta if lkj_eta is not None else LKJ_ETA if start is None else start.lkj_eta
    if not (is_number(eta) and 0 < eta < np.inf):
        raise InputError("lkj_eta must be positive and finite")
    held = phi
    if restricted and hold_phi and phi is None and start is not None:
        held = float(np.median(start.draws["phi"]))
    low, high = resolved.phi_bounds if held is None else (held, held)
    data = {
        "N": problem.n_records,
        "P": problem.n_terms,
        "n_groups": found.n,
        "X": problem.X,
        "y": problem.y,
        "coords": problem.sites,
        "group": found.index + 1,
        "A": A,
        "protection": _NUMBERS[used],
        "cov_model": code,
        "phi_lower": low,
        "phi_upper": high,
        **resolved.stan_data(),
        "group_scale": list(spread),
        "lkj_eta": float(eta),
    }
    kind = "restricted" if restricted else "unrestricted"
    runner = get_engine(engine)
    with progress_bar(f"{kind} fit: sampling ({runner.name})", progress) as advance:
        drawn = runner.sample(
            Program("multivariate"),
            data,
            settings=settings,
            seed=stan_seed(root),
            inits=starts(start, problem, found, resolved, held, chains, root),
            advance=advance,
        )
    draws = _draws(drawn, found.n, problem.n_terms)
    notes = (
        *_notes(found, problem, rows),
        *_decided_by_flagged(found, problem, rows, A, used),
        *protection_notes(
            problem,
            weights,
            A,
            used,
            phi=float(np.median(draws["phi"])),
            phi_from_start=held is not None and phi is None,
            cov_model=named,
        ),
    )
    if weights is not None and weights.n_flagged == 0:
        warnings.warn(
            next(n for n in notes if n.startswith("no record")), DsstanWarning, stacklevel=2
        )
    return MultivariateFit(
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
        program="multivariate",
        fingerprint=Program("multivariate").fingerprint,
        seed=root,
        settings=settings,
        surface_error=0.0,
        nodes=(0, 0),
        verdict=_verdict(draws, drawn.sampler, max_treedepth, resolved, held, weights, found),
        seconds=time.perf_counter() - begin,
        start=unrestricted_start(start),
        notes=notes,
        cov_model=named,
        groups=found,
        group_scale=spread,
        lkj_eta=float(eta),
    )


def _check_start(start: MultivariateFit, column: str) -> None:
    """The fit to start from must be of the same groups."""
    if not isinstance(start, MultivariateFit):
        raise InputError("start must be a fit of fit_multivariate")
    if start.groups.column != column:
        raise InputError(
            f"start is a fit by column {start.groups.column!r} and groups names {column!r}"
        )


def _draws(drawn: Draws, n: int, p: int) -> dict[str, Floats]:
    """Draws by name; Stan's columns run down the columns of a matrix."""
    T, beta = drawn["T"], drawn["beta"]
    return {
        "beta": beta.reshape(*beta.shape[:2], n, p),
        "T": T.reshape(*T.shape[:2], n, n).swapaxes(2, 3),
        "sigma_sq": drawn["sigma_sq"],
        "tau_sq": drawn["tau_sq"],
        "phi": drawn["phi"],
    }


def _verdict(
    draws: dict[str, Floats],
    sampler: Floats,
    max_treedepth: int,
    priors: ResolvedPriors,
    held: float | None,
    weights: Weights | None,
    groups: Groups,
) -> Verdict:
    """The verdict, with the variances' bounds looked at group by group."""
    named = {k: v for k, v in scalars_of(draws).items() if k != "phi" or held is None}
    first = {"sigma_sq": named.pop("T_0_0"), "tau_sq": named.pop("tau_sq_0")}
    more: list[Check] = []
    for k in range(1, groups.n):
        pair = {"sigma_sq": draws["sigma_sq"][..., k], "tau_sq": draws["tau_sq"][..., k]}
        found = at_bounds(pair, None, priors.r_bounds)
        more += [replace(c, where=f"tau_sq_{k} / T_{k}_{k}") for c in found]
    if weights is not None:
        chosen = weights.rule not in ("correlation", "distance")
        more.append(most_flagged(weights.n_flagged, len(weights.a), chosen=chosen))
    verdict = diagnose(
        {**named, **first},
        sampler,
        max_treedepth=max_treedepth,
        surface_error=0.0,
        phi_bounds=None if held is not None else priors.phi_bounds,
        r_bounds=priors.r_bounds,
        more=tuple(more),
    )
    own = {"sigma_sq": "T_0_0", "tau_sq": "tau_sq_0", "tau_sq / sigma_sq": "tau_sq_0 / T_0_0"}
    return Verdict(tuple(replace(c, where=own.get(c.where, c.where)) for c in verdict.checks))


def _decided_by_flagged(
    groups: Groups, problem: Problem, rows: NDArray[np.intp], A: Floats, protection: str
) -> tuple[str, ...]:
    """Groups whose regression rests on flagged records: their copies follow them nonetheless."""
    if protection not in ("paper", "preserving"):
        return ()
    rest = rows[A[rows] == 1.0]
    resting = [
        k
        for k, _ in not_estimable(groups, problem.X, rest)
        if np.any((groups.index == k) & (A < 1.0))
    ]
    return tuple(
        f"the coefficients of group {k} ({groups.column} {groups.labels[k]}) rest on its flagged "
        'records, so copies follow them whatever the smoothing: protection "cut", a small '
        "group_scale, or joining groups helps"
        for k in resting
    )


def _notes(groups: Groups, problem: Problem, rows: NDArray[np.intp]) -> tuple[str, ...]:
    """Groups for whose coefficients the prior speaks."""
    return tuple(
        f"the {int(np.sum(groups.index[rows] == k))} informing records of group {k} "
        f"({groups.column} {groups.labels[k]}) tell {rank} of {problem.n_terms} coefficients: "
        "the common coefficients and group_scale decide the others"
        for k, rank in not_estimable(groups, problem.X, rows)
    )
