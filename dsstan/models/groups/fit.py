"""Several groups of records, each with its own spatial effect, that inform one another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dsstan.core.arrays import Floats, Indices
from dsstan.core.errors import InputError, is_number
from dsstan.core.spelling import spelled
from dsstan.covariance.approximations import Covariance, choose_covariance
from dsstan.covariance.correlation import correlation_code
from dsstan.covariance.protection import protection_of
from dsstan.engines import SamplerSettings, get_engine
from dsstan.models.arguments import check_arguments
from dsstan.models.checks.conditions import Check, at_bounds
from dsstan.models.finish import Run, finish_fit, run_program
from dsstan.models.groups.direct import run_direct
from dsstan.models.groups.groups import Groups, not_estimable, read_groups
from dsstan.models.groups.result import MultivariateFit
from dsstan.models.priors import Priors, ResolvedPriors
from dsstan.models.request import Request
from dsstan.models.starts import Begin, Pick, decay_near
from dsstan.models.weights import Weights
from dsstan.table.problem import Problem, require_complete

__all__ = ["LKJ_ETA", "MAX_RECORDS", "MultivariateFit", "fit_multivariate"]


LKJ_ETA = 2.0
"""Default of the LKJ prior: correlations between groups lean to 0, mildly."""

ENGINES = ("auto", "direct", "cmdstan", "embedded")

MAX_RECORDS = 1000
"""Most informing records for which ``"auto"`` takes the exact covariance, and Stan takes any: each
density factors a matrix of their number."""


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
    chains: int = SamplerSettings.chains,
    warmup: int = SamplerSettings.warmup,
    samples: int = SamplerSettings.samples,
    adapt_delta: float = SamplerSettings.adapt_delta,
    max_treedepth: int = SamplerSettings.max_treedepth,
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
        posterior median of phi is held (neither under ``"cut"``), and what is not given is taken
        from it.
    phi
        Decay to hold instead; may be given without weights too.
    hold_phi
        False leaves phi free in a restricted fit, as ``"cut"`` does unless ``phi`` is given.
    priors
        As for :func:`dsstan.fit`. ``sigma`` is that of every T_kk, ``tau`` that of every
        tau_sq_k, and ``beta_scale`` that of the coefficients that the groups have in common.
    group_scale
        Prior sd of a group's coefficients about the common ones, one number or P of them. By
        default 2.5 residual sd over sd(x_j), and 2.5 residual sd for a constant column.
    lkj_eta
        Shape of the LKJ prior on the correlation of T; 1 is uniform, by default 2.
    covariance
        ``"exact"``, ``"vecchia"``, or the latter with its settings
        (:mod:`dsstan.covariance.approximations`): each record given so many neighbours of any group
        and as many of its own. ``"auto"``, the default without ``start``,
        is exact up to 1,000 informing records and Vecchia's beyond.
    engine
        ``"direct"``, which is also ``"auto"``, draws from the posterior without Stan in a
        fraction of the time; it knows no warm-up. ``"cmdstan"`` or ``"embedded"`` run the Stan
        program, for up to 1,000 informing records.
    cov_model, chains, warmup, samples, adapt_delta, max_treedepth, seed, progress
        As for :func:`dsstan.fit`.

    Returns
    -------
    MultivariateFit
        Whether or not it converged: its ``verdict`` says.

    Raises
    ------
    InputError
        If arguments contradict each other, the groups can't be used, or Stan is asked for a
        covariance or a number of records that it can't take.
    EngineError
        If the engine is missing or fails.
    """
    require_complete(problem)
    found = read_groups(problem, groups)
    if start is not None:
        _check_start(start, groups)
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
        seed=seed,
        progress=progress,
        alone=("phi",),
        outcome=None,
    )
    asked = covariance if covariance is not None or start is None else start.covariance
    request = replace(request, covariance=_covariance(request, asked, engine))
    rows = request.informing
    spread = group_scales(group_scale, start, problem, rows)
    eta = lkj_eta if lkj_eta is not None else LKJ_ETA if start is None else start.lkj_eta
    if not (is_number(eta) and 0 < eta < np.inf):
        raise InputError("lkj_eta must be positive and finite")
    if engine in ("auto", "direct"):
        run, *trusted = run_direct(request, found, spread, float(eta))
    else:
        run, trusted = _run_stan(request, found, spread, float(eta), engine), []
    return finish_fit(
        MultivariateFit,
        request,
        run,
        checks=[*_ratio_checks(run.draws, request.priors, found.n), *trusted],
        notes=(*_notes(found, problem, rows), *_decided_by_flagged(found, request)),
        groups=found,
        group_scale=spread,
        lkj_eta=float(eta),
    )


def _covariance(request: Request, asked: str | Covariance | None, engine: str) -> Covariance:
    """The covariance of a fit; refused where the model or the engine does not have it."""
    if engine not in ENGINES:
        raise InputError(f"engine must be one of {', '.join(ENGINES)}, got {engine!r}")
    n, stan = len(request.informing), engine not in ("auto", "direct")
    chosen = request.covariance
    if asked in (None, "auto"):
        chosen = choose_covariance("vecchia" if n > MAX_RECORDS and not stan else "exact", n)
    if chosen.approximate and not chosen.sums_over_records:
        raise InputError(
            f"several groups have the exact covariance and Vecchia's, and not {chosen}: take "
            f"{spelled('covariance', 'vecchia')}"
        )
    if stan and (chosen.approximate or n > MAX_RECORDS):
        what = f"{n:,} records inform the fit" if not chosen.approximate else f"it has {chosen}"
        raise InputError(
            f"the Stan program takes the exact covariance of at most {MAX_RECORDS:,} informing "
            f"records, and {what}: take {spelled('engine', 'direct')}"
        )
    return chosen


def _run_stan(
    request: Request, groups: Groups, spread: tuple[float, ...], eta: float, engine: str
) -> Run:
    """Draws by the Stan program."""
    run = run_program(
        request,
        "multivariate",
        _data(request, groups, spread, eta),
        group_starts(request.problem, groups, request.priors),
        runner=get_engine(engine),
        names=("beta", "T", "sigma_sq", "tau_sq"),
    )
    return replace(run, draws=_shaped(run.draws, groups.n, request.problem.n_terms))


def _data(
    request: Request, groups: Groups, spread: tuple[float, ...], eta: float
) -> dict[str, Any]:
    """Data of ``multivariate.stan``."""
    problem = request.problem
    return {
        "N": problem.n_records,
        "P": problem.n_terms,
        "n_groups": groups.n,
        "X": problem.X,
        "y": problem.y,
        "coords": problem.sites,
        "group": groups.index + 1,
        "A": request.A,
        "protection": protection_of(request.protection).stan_number,
        "cov_model": correlation_code(request.cov_model),
        **request.priors.decay_data(request.phi_held),
        **request.priors.stan_data(),
        "group_scale": list(spread),
        "lkj_eta": eta,
    }


def _check_start(start: MultivariateFit, column: str) -> None:
    """The fit to start from must be of the same groups."""
    if not isinstance(start, MultivariateFit):
        raise InputError("start must be a fit of fit_multivariate")
    if start.groups.column != column:
        raise InputError(
            f"start is a fit by column {start.groups.column!r} and groups names {column!r}"
        )


def _shaped(draws: dict[str, Floats], n: int, p: int) -> dict[str, Floats]:
    """Draws with matrices as such; Stan's columns run down the columns of a matrix."""
    T, beta = draws["T"], draws["beta"]
    return {
        **draws,
        "beta": beta.reshape(*beta.shape[:2], n, p),
        "T": T.reshape(*T.shape[:2], n, n).swapaxes(2, 3),
    }


def _ratio_checks(draws: dict[str, Floats], priors: ResolvedPriors, n: int) -> list[Check]:
    """Whether the variances' ratio of a group is at an end of its range."""
    checks: list[Check] = []
    for k in range(n):
        pair = {name: draws[name][..., k] for name in ("sigma_sq", "tau_sq")}
        found = at_bounds(pair, None, priors.r_bounds)
        checks += [replace(c, where=f"tau_sq_{k} / T_{k}_{k}") for c in found]
    return checks


def _decided_by_flagged(groups: Groups, request: Request) -> tuple[str, ...]:
    """Groups whose regression rests on flagged records: their copies follow them nonetheless."""
    if protection_of(request.protection).flagged_leave:
        return ()
    problem, rows, A = request.problem, request.informing, request.A
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


def _notes(groups: Groups, problem: Problem, rows: Indices) -> tuple[str, ...]:
    """Groups whose coefficients rest on the prior."""
    return tuple(
        f"the {int(np.sum(groups.index[rows] == k))} informing records of group {k} "
        f"({groups.column} {groups.labels[k]}) determine {rank} of {problem.n_terms} coefficients: "
        "the common coefficients and group_scale decide the others"
        for k, rank in not_estimable(groups, problem.X, rows)
    )


GROUP_SCALE = 2.5
"""Default sd of a group's coefficient about the common one, in residual sd / sd(x_j)."""


def group_scales(
    given: float | Sequence[float] | None,
    start: MultivariateFit | None,
    problem: Problem,
    rows: Indices,
) -> tuple[float, ...]:
    """Prior sd of a group's coefficients about the common ones, P numbers."""
    if given is None and start is not None and len(rows) == problem.n_records:
        return start.group_scale
    if given is None:
        X = problem.X[rows]
        sd = _residual_sd(X, problem.y[rows])
        spread = np.std(X, axis=0)
        size = np.abs(X).max(axis=0)
        unit = np.where(spread <= 1e-12 * np.maximum(1.0, size), size, spread)
        return tuple(float(v) for v in GROUP_SCALE * sd / unit)
    values = np.asarray(given, dtype=np.float64)
    if values.ndim > 1 or values.size not in (1, problem.n_terms):
        raise InputError(
            f"group_scale needs one number or one a coefficient ({problem.n_terms}); "
            f"got {values.size}"
        )
    if not (np.isfinite(values).all() and (values > 0).all()):
        raise InputError("group_scale must be positive and finite")
    return tuple(float(v) for v in np.broadcast_to(values, (problem.n_terms,)))


def _residual_sd(X: Floats, y: Floats) -> float:
    """sd of the residuals of least squares."""
    residual = y - X @ np.linalg.lstsq(X, y, rcond=None)[0]
    return float(np.sqrt(residual @ residual / max(1, len(y) - X.shape[1])))


def group_starts(problem: Problem, groups: Groups, priors: ResolvedPriors) -> Begin:
    """Points of the multivariate model: draws of the start, else about the residual variance."""
    sd = _residual_sd(problem.X, problem.y)
    bounds = np.arctan(1.0 / np.sqrt(np.array(priors.r_bounds[::-1])))
    low, high = bounds + np.diff(bounds) * [0.01, -0.01]

    def begin(rng: np.random.Generator, pick: Pick) -> dict[str, Any]:
        drawn = pick()
        if drawn is None:
            size = sd * np.exp(rng.uniform(-0.4, 0.4, groups.n))
            angle = np.pi * rng.uniform(0.15, 0.35, groups.n)
            factor = np.eye(groups.n)
        else:
            sigma, tau = np.sqrt(drawn["sigma_sq"]), np.sqrt(drawn["tau_sq"])
            size, angle = np.hypot(sigma, tau), np.arctan2(sigma, tau)
            factor = np.linalg.cholesky(drawn["T"] / np.outer(sigma, sigma))
            factor /= np.linalg.norm(factor, axis=1, keepdims=True)
        phi = decay_near(rng, drawn, priors.phi_bounds)
        return {"root": size, "angle": np.clip(angle, low, high), "L": factor, "phi": phi}

    return begin
