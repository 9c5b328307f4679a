"""The whole way in one call: table in, copies out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from dsstan.copies.imputation import check_imputations
from dsstan.copies.result import Synthesis
from dsstan.copies.synthesis import synthesise
from dsstan.core.errors import InputError, is_number
from dsstan.core.seeds import root_seed, seed_bits, seed_of
from dsstan.covariance.approximations import Covariance, choose_covariance
from dsstan.covariance.correlation import correlation_code
from dsstan.covariance.protection import PROTECTIONS
from dsstan.models.fit import fit
from dsstan.models.flags import flag_isolated
from dsstan.models.priors import Priors
from dsstan.models.result import Fit
from dsstan.models.weights import Weights, smoothing
from dsstan.table.order_leaks import check_order
from dsstan.table.parquet import prepare_parquet
from dsstan.table.problem import Problem, prepare
from dsstan.table.rounding import ROUNDINGS


def protect(
    table: Any,
    formula: str,
    *,
    coords: tuple[str, str] | None = None,
    distance: str | None = None,
    crs: Any = None,
    name: str | None = None,
    copies: int = 20,
    threshold: float | None = None,
    correlation: float | None = None,
    neighbour: int = 1,
    gamma: float = np.inf,
    protection: str = "paper",
    cov_model: str = "exponential",
    covariance: str | Covariance = "auto",
    priors: Priors | None = None,
    engine: str = "auto",
    seed: int | None = None,
    workers: int = 1,
    accept_failed: bool = False,
    strict: bool = False,
    rounding: str = "auto",
    missing: str = "refuse",
    imputations: int | None = None,
    by_row_groups: bool = False,
    progress: bool | None = None,
    **sampler: Any,
) -> Synthesis:
    """Prepare, fit, flag, fit again and synthesise.

    Parameters
    ----------
    table, formula, coords, distance, crs, name, missing
        See :func:`dsstan.prepare`.
    copies
        L.
    threshold, correlation, neighbour
        The flagging rule: M in the coordinates' unit, or c; see
        :func:`dsstan.flag_isolated`.
    gamma, protection, cov_model, covariance, priors, engine
        See :func:`dsstan.fit`.
    seed
        One root seed, from which the three stages' seeds are derived.
    workers
        Threads of the synthesis.
    accept_failed
        Go on although a fit failed its verdict.
    strict, rounding, imputations
        See :func:`dsstan.synthesise`.
    by_row_groups
        Take ``table`` as the path of a Parquet file, or of a folder of them, of which only the
        needed columns come into memory; see :func:`dsstan.table.parquet.prepare_parquet`.
    progress
        Show progress; by default in a terminal.
    sampler
        ``chains``, ``warmup``, ``samples``, ``adapt_delta``, ``max_treedepth``.

    Returns
    -------
    Synthesis
        Its ``fit.start`` is the unrestricted fit. Where no record is flagged the
        restricted fit still runs, and only holds phi.
    """
    check_choices(threshold, correlation, gamma, protection, copies, rounding, cov_model)
    choose_covariance(covariance, 0)
    root = root_seed(seed)
    free_seed, kept_seed, copies_seed = stage_seeds(root)
    prepared = prepare_parquet if by_row_groups else prepare
    problem = prepared(
        table, formula, coords=coords, distance=distance, crs=crs, name=name, missing=missing
    )
    if imputations is not None or problem.n_missing:
        check_imputations(problem, copies, imputations)
    check_order(problem)
    common = {
        "cov_model": cov_model,
        "covariance": covariance,
        "priors": priors,
        "engine": engine,
        "progress": progress,
        **sampler,
    }
    free = fit(problem, seed=free_seed, **common)
    weights = flag(free, threshold=threshold, correlation=correlation, neighbour=neighbour)
    kept = fit(
        problem,
        weights=weights,
        gamma=gamma,
        protection=protection,
        start=free,
        seed=kept_seed,
        **common,
    )
    release = synthesise(
        kept,
        copies,
        seed=copies_seed,
        workers=workers,
        accept_failed=accept_failed,
        strict=strict,
        rounding=rounding,
        imputations=imputations,
        progress=progress,
    )
    # The seed of the copies has 128 bits, and no more of chance than the one it comes from.
    return replace(release, seed_bits=seed_bits(seed))


def check_choices(
    threshold: float | None,
    correlation: float | None,
    gamma: float,
    protection: str,
    copies: int,
    rounding: str,
    cov_model: str,
) -> None:
    """Refuse before the first fit what only a later stage would look at."""
    if threshold is not None and correlation is not None:
        raise InputError("give threshold or correlation, not both")
    if threshold is not None and not (
        is_number(threshold) and np.isfinite(threshold) and threshold > 0
    ):
        raise InputError("threshold must be positive and finite")
    if correlation is not None and not (is_number(correlation) and 0 < correlation < 1):
        raise InputError("correlation must lie between 0 and 1")
    smoothing(gamma, np.zeros(1))
    correlation_code(cov_model)
    if protection not in PROTECTIONS:
        raise InputError(f"protection must be one of {', '.join(PROTECTIONS)}, got {protection!r}")
    if rounding not in ROUNDINGS:
        raise InputError(f"rounding must be one of {', '.join(ROUNDINGS)}, got {rounding!r}")
    if not is_number(copies) or copies < 1:
        raise InputError("copies must be a whole number of at least 1")


def stage_seeds(root: int, stages: int = 3) -> tuple[int, ...]:
    """Seeds of the stages of a run, 128 bits each: by default of the unrestricted fit, the
    restricted fit and the copies."""
    return tuple(map(seed_of, np.random.SeedSequence(root).spawn(stages)))


def flag(
    free: Fit, *, threshold: float | None, correlation: float | None, neighbour: int
) -> Weights:
    """The paper's rule, by M or by c."""
    return flag_isolated(free, distance=threshold, correlation=correlation, neighbour=neighbour)


__all__ = ["Problem", "check_choices", "protect", "stage_seeds"]
