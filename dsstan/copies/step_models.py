"""The models that a step of a job may name, each fitted twice as ``dsstan run`` does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dsstan.copies.protect import flag
from dsstan.core.errors import InputError
from dsstan.models.brackets.fit import fit_bracketed
from dsstan.models.brackets.limits import find_brackets
from dsstan.models.counts.fit import CountPriors, fit_counts
from dsstan.models.counts.input import check_counts, read_offset
from dsstan.models.fit import fit
from dsstan.models.groups.fit import fit_multivariate
from dsstan.models.groups.groups import read_groups
from dsstan.models.priors import Priors
from dsstan.models.result import Fit
from dsstan.table.problem import Problem

__all__ = ["OF_A_MODEL", "OUTCOMES", "check_model", "check_step", "fit_step", "other_columns"]

COUNTS = ("poisson", "negative binomial", "bernoulli")
OUTCOMES = ("gaussian", *COUNTS, "bracketed", "grouped")
"""How the column of a step may be modelled, by the name in a job."""

OF_A_MODEL = {
    "offset": COUNTS,
    "cuts": ("bracketed",),
    "closed": ("bracketed",),
    "likelihood": ("bracketed",),
    "groups": ("grouped",),
}
"""Keys that belong to some models only."""


def check_step(step: Mapping[str, Any]) -> None:
    """Refuse keys of one model in a step of another.

    Raises
    ------
    InputError
        If so, if there is no such model, or one lacks what it needs.
    """
    outcome = step["outcome"]
    if outcome not in OUTCOMES:
        raise InputError(f"outcome must be one of {', '.join(OUTCOMES)}, got {outcome!r}")
    for key, models in OF_A_MODEL.items():
        if step[key] is not None and outcome not in models:
            raise InputError(
                f"the key {key!r} belongs to the outcome {' or '.join(map(repr, models))}, and "
                f"this step has {outcome!r}"
            )
    for outcome_of, key in (("bracketed", "cuts"), ("grouped", "groups")):
        if outcome == outcome_of and step[key] is None:
            raise InputError(f"the outcome {outcome!r} needs the key {key!r}")
    if outcome in COUNTS and step["protection"] != "paper":
        raise InputError(f'a count is protected as "paper" does, got {step["protection"]!r}')


def check_model(problem: Problem, step: Mapping[str, Any]) -> None:
    """Refuse, before any sampling, a table that the model of a step can't take.

    Raises
    ------
    InputError
        If so; see the fit of the model.
    """
    outcome = step["outcome"]
    if outcome in COUNTS:
        check_counts(problem, outcome)
        read_offset(problem, step["offset"], "exposure")
    elif outcome == "bracketed":
        closed = {} if step["closed"] is None else {"closed": step["closed"]}
        find_brackets(problem, step["cuts"], **closed)
    elif outcome == "grouped":
        read_groups(problem, step["groups"])


def other_columns(step: Mapping[str, Any]) -> tuple[str, ...]:
    """Columns beside the formula's that a step takes as they are."""
    return tuple(step[key] for key in ("offset", "groups") if step[key] is not None)


def fit_step(
    problem: Problem, step: Mapping[str, Any], sampler: Mapping[str, Any], seeds: tuple[int, ...]
) -> Fit:
    """The unrestricted fit, the flags and the restricted fit of a step.

    Parameters
    ----------
    problem
        Of the step.
    step
        Its checked settings.
    sampler
        Engine, chains, samples, and what else was asked for.
    seeds
        Of the two fits.
    """
    run = _model(problem, step)
    free = run(seed=seeds[0], **sampler)
    weights = flag(
        free,
        threshold=step["threshold"],
        correlation=step["correlation"],
        neighbour=step["neighbour"],
    )
    protection = {} if step["outcome"] in COUNTS else {"protection": step["protection"]}
    return run(
        weights=weights,
        gamma=step["gamma"],
        start=free,
        seed=seeds[1],
        **protection,
        **sampler,
    )


def _model(problem: Problem, step: Mapping[str, Any]) -> Callable[..., Fit]:
    """The fit of a step's model with what belongs to it filled in."""
    bounds, outcome = step["phi_bounds"], step["outcome"]
    own: dict[str, Any] = {"cov_model": step["cov_model"]}
    if bounds is not None:
        kind: Any = CountPriors if outcome in COUNTS else Priors
        own["priors"] = kind(phi_bounds=bounds)
    if outcome in COUNTS:
        return lambda **how: fit_counts(problem, outcome, offset=step["offset"], **own, **how)
    if outcome == "bracketed":
        asked = {key: step[key] for key in ("closed", "likelihood") if step[key] is not None}
        return lambda **how: fit_bracketed(problem, step["cuts"], **asked, **own, **how)
    if outcome == "grouped":
        return lambda **how: fit_multivariate(problem, step["groups"], **own, **how)
    return lambda **how: fit(problem, **own, **how)
