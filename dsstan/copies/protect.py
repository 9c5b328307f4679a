"""The whole way in one call: table in, copies out."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Unpack

import numpy as np

from dsstan.copies.imputation import check_imputations
from dsstan.copies.keywords import ReleaseKeywords
from dsstan.copies.options import ReleaseOptions
from dsstan.copies.published import columns_going_out
from dsstan.copies.result import Synthesis
from dsstan.copies.synthesis import synthesise
from dsstan.core.errors import InputError
from dsstan.core.seeds import root_seed, seed_bits, seed_of
from dsstan.models.fit import fit
from dsstan.models.heaps.fit import fit_heaped
from dsstan.models.heaps.limits import find_range
from dsstan.models.held import check_structure, only_in_fit
from dsstan.models.result import Fit
from dsstan.models.weights import own_weights
from dsstan.table.column_roles import check_proxies
from dsstan.table.order_leaks import check_order
from dsstan.table.problem import Problem


def protect(table: Any, formula: str, **options: Unpack[ReleaseKeywords]) -> Synthesis:
    """Prepare, fit, flag, fit again and synthesise.

    Parameters
    ----------
    table, formula, coords, distance, crs, name, missing, publish, survey_weights, time
        See :func:`dsstan.prepare`.
    copies
        L.
    threshold, correlation, neighbour, by_site
        The flagging rule: M in the coordinates' unit, or c; see
        :func:`dsstan.flag_isolated`.
    weights
        Column with the risk weight of each record, in place of a rule; see
        :func:`dsstan.own_weights`.
    gamma, protection, cov_model, covariance, priors, engine, time_decay, group_share
        See :func:`dsstan.fit`.
    heap, range
        A value that many records share, such as 0, and the ends of the copies; see
        :func:`dsstan.prepare` and :func:`dsstan.models.heaps.fit.fit_heaped`.
    seed
        One root seed, from which the three stages' seeds are derived.
    workers
        Threads of the synthesis.
    accept_failed
        Go on although a fit failed its verdict.
    strict, rounding, imputations, hide_gaps
        See :func:`dsstan.synthesise`.
    accept_proxy
        Names of columns outside the formula that may be published although they predict the
        response (:func:`dsstan.table.column_roles.check_proxies`); an intruder's numbers count
        them.
    by_row_groups
        Take ``table`` as the path of a Parquet file, or of a folder of them, of which only the
        needed columns come into memory; see :func:`dsstan.table.parquet.prepare_parquet`.
    progress
        Show progress; by default in a terminal.
    chains, warmup, samples, adapt_delta, max_treedepth
        Sampler settings.
    nodes, program, hold_phi, cluster, resume
        What else :func:`dsstan.fit` takes, for both fits; its own default where None.

    Returns
    -------
    Synthesis
        Its ``fit.start`` is the unrestricted fit. Where no record is flagged the
        restricted fit still runs, and only holds phi.
    """
    return make_release(table, formula, ReleaseOptions(**options))


_own = inspect.signature(protect)
_stated = inspect.signature(ReleaseOptions).parameters.values()
protect.__signature__ = _own.replace(  # type: ignore[attr-defined]
    parameters=[*list(_own.parameters.values())[:2], *_stated]
)


def make_release(table: Any, formula: str, options: ReleaseOptions) -> Synthesis:
    """The copies of a table; :func:`protect` takes the options as keywords."""
    options.refuse_search()
    return release_of(prepare_release(table, formula, options), options)


def release_of(problem: Problem, options: ReleaseOptions) -> Synthesis:
    """The copies of a problem that :func:`prepare_release` checked."""
    model: Callable[..., Fit] = fit
    if options.heaped:
        model = partial(fit_heaped, range=options.range)
    run = partial(model, problem, covariance=options.covariance, **options.fitting)
    return draw_release(run, options, root_seed(options.seed))


def prepare_release(table: Any, formula: str, options: ReleaseOptions) -> Problem:
    """The checked problem of a table that can be released."""
    problem = options.prepare(table, formula)
    check_structure(problem, options.covariance, options.cov_model)
    if options.hide_gaps and not problem.n_missing:
        raise InputError("hide_gaps is for a missing response, and none is missing: leave it out")
    if options.imputations is not None or problem.n_missing:
        check_imputations(problem, options.copies, options.imputations)
    if options.weights is not None:
        _check_weights(problem, options.weights)
    if options.heaped:
        only_in_fit(problem)
        find_range(problem, options.range)
    check_order(problem)
    check_proxies(problem, options.accept_proxy or (), columns_going_out(problem))
    return problem


def _check_weights(problem: Problem, column: str) -> None:
    """Refuse, before any sampling, a column that can't hold weights, or goes out."""
    own_weights(problem, column)
    if column in columns_going_out(problem):
        raise InputError(
            f"column {column!r} holds the weights, which tell who is protected and are never "
            "published: take it out of the formula and of publish, or give the weights in a column "
            "of their own"
        )


def draw_release(
    run: Callable[..., Fit], options: ReleaseOptions, root: int, *, given: Synthesis | None = None
) -> Synthesis:
    """Fit, flag, fit again and synthesise.

    ``run`` fits the model, and takes what sets the two fits apart; ``root`` is the seed of all
    three stages, and ``given`` are copies of the former columns (:func:`dsstan.synthesise`).
    """
    free_seed, kept_seed, copies_seed = stage_seeds(root)
    free = run(seed=free_seed)
    kept = run(
        weights=options.flag(free),
        gamma=options.gamma,
        protection=options.protection,
        start=free,
        seed=kept_seed,
    )
    release = synthesise(
        kept,
        options.copies,
        seed=copies_seed,
        workers=options.workers,
        accept_failed=options.accept_failed,
        strict=options.strict,
        rounding=options.rounding,
        imputations=options.imputations,
        hide_gaps=options.hide_gaps,
        given=given,
        progress=options.progress,
    )
    # The seed of the copies has 128 bits, and no more of chance than the one it comes from.
    return replace(release, seed_bits=seed_bits(options.seed))


def stage_seeds(root: int, stages: int = 3) -> tuple[int, ...]:
    """Seeds of the stages of a run, 128 bits each: by default of the unrestricted fit, the
    restricted fit and the copies."""
    return tuple(map(seed_of, np.random.SeedSequence(root).spawn(stages)))
