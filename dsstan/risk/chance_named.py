"""How surely an estimate names a value that stands a step apart from the others."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr

from dsstan.core.arrays import Floats
from dsstan.core.errors import InputError, is_number
from dsstan.table.converted_step import converted_step
from dsstan.table.formulas.formula import ResponseTransform
from dsstan.table.problem import Problem
from dsstan.table.rounding import find_rounding

__all__ = ["chance_named", "check_attribution", "least_sd_unnamed", "own_steps", "surest_named"]

HALVINGS = 60
"""Of a range of 80 in the logarithm of an sd: to the last digit."""

NEIGHBOURS = 40
"""Values on either side that are compared with the true one."""

WIDE = 8.0
"""An sd of so many steps is wider than the values compared suffice for."""

MIDDLES = (0.0, -1.0, 1.0)
"""Where the middle of the intruder's law may be, in sds from the value: beside the lowest price
nothing lies below, and who expects less is surer of it."""

EVEN = 0.01
"""Relative difference below which the steps around a value are alike."""

ORIGINS = 5
"""Values that differences are taken from: more than the few odd ones that a step may leave out."""


def check_attribution(limit: float | None) -> None:
    """Refuse a largest chance that is none.

    Raises
    ------
    InputError
        If it is not above 0 and at most 1.
    """
    if limit is not None and not (is_number(limit) and 0 < limit <= 1):
        raise InputError(
            "attribution, the largest chance of naming a value exactly, must be above 0 and at "
            f"most 1, got {limit!r}"
        )


def own_steps(problem: Problem) -> Floats:
    """Step of each record's value, shape (N,): the coarsest of the column's that it is on.

    Prices of 249,000 and 299,000 are in steps of 50,000 as those of 250,000 and 300,000 are: the
    steps are those of the values and of their differences from the most frequent value, then
    from the most frequent of those that this one has no coarser step with. Prices of whole
    25,000 euros in dollars are in steps of 25,000 times the rate
    (``dsstan.table.converted_step``).
    """
    dtype = problem.table[problem.response].dtype
    values = problem.original()
    found = find_rounding(values[problem.observed], getattr(dtype, "numpy_dtype", dtype))
    steps = _coarsest(values, found.steps)
    if not steps.any():
        return steps
    finest = min(step for step in found.steps if step > 0)
    left = np.flatnonzero((_coarsest(values, (10.0**-found.decimals,)) > 0) & problem.observed)
    known = left
    for _ in range(ORIGINS):
        if not left.size:
            break
        distinct, times = np.unique(values[left], return_counts=True)
        origin = distinct[times.argmax()]
        # To the column's decimals, since a difference of decimals is none but for rounding.
        apart = np.round(values - origin, found.decimals)
        coarsest = _coarsest(apart, find_rounding(apart[known]).steps)
        steps[known] = np.maximum(steps[known], coarsest[known])
        left = left[(coarsest[left] <= finest) & (values[left] != origin)]
    step, on = converted_step(np.where(problem.observed, values, np.nan), finest)
    return np.where(on, np.maximum(steps, step), steps)


def _coarsest(values: Floats, column: tuple[float, ...]) -> Floats:
    """The last of a column's steps that divides each value, shape (N,); 0 where none does."""
    steps = np.zeros(values.size)
    for step in column:
        if step > 0:
            with np.errstate(invalid="ignore"):
                times = values / step
                # Of values in decimals a quotient is whole but for rounding.
                whole = np.abs(times - np.rint(times)) <= 1e-9 * np.maximum(1.0, np.abs(times))
            steps[whole] = step
    return steps


def chance_named(values: Floats, steps: Floats, sd: Floats, transform: ResponseTransform) -> Floats:
    """Chance that a normal estimate is nearer to the true value than to those a step away, (N,).

    Parameters
    ----------
    values, steps
        True values and their steps, own scale, shape (N,). A step of 0 gives a chance of 0.
    sd
        Of the estimate, modelled scale, shape (N,); 0 and infinity are legal.
    transform
        To the modelled scale.

    Examples
    --------
    >>> prices, steps = np.array([400_000.0]), np.array([50_000.0])
    >>> chance_named(prices, steps, np.array([0.05]), ResponseTransform("log")).round(2)
    array([0.79])
    """
    return chance_in_cell(values, steps, transform.forward(values), sd, transform)


def surest_named(values: Floats, steps: Floats, sd: Floats, transform: ResponseTransform) -> Floats:
    """What an intruder can believe in the true value, shape (N,).

    They know that values stand a step apart, and their law is normal. A value has the mass of the
    density there, times as much of the modelled scale as is nearest to it. The law's middle is at
    the true value, or an sd beside it where that gives more.

    Parameters
    ----------
    values, steps, sd, transform
        As in :func:`chance_named`.

    Examples
    --------
    >>> prices, steps = np.array([400_000.0]), np.array([50_000.0])
    >>> surest_named(prices, steps, np.array([0.05]), ResponseTransform("log")).round(2)
    array([0.92])
    """
    surest = chance_named(values, steps, sd, transform)
    with np.errstate(divide="ignore", invalid="ignore"):
        # Where the law is wide it is an interval's probability, and farther values would count.
        near = (steps > 0) & (sd < WIDE * _room(values, steps, transform))
        v, s, width = values[near], steps[near], sd[near]
        there, room = transform.forward(v), _room(v, s, transform)
        total = np.ones((len(MIDDLES), v.size))
        for k in (*range(-NEIGHBOURS, 0), *range(1, NEIGHBOURS + 1)):
            away = (transform.forward(v + k * s) - there) / width
            share = _room(v + k * s, s, transform) / room
            for row, middle in zip(total, MIDDLES, strict=True):
                row += np.nan_to_num(share * np.exp(middle * away - 0.5 * away**2), posinf=0.0)
    surest[near] = 1.0 / total.min(axis=0)
    return surest


def _room(values: Floats, steps: Floats, transform: ResponseTransform) -> Floats:
    """How much of the modelled scale is nearest to each of some values a step apart; of the lowest
    that the transform takes twice the part above it."""
    upper = transform.forward(values + steps / 2) - transform.forward(values)
    lower = transform.forward(values) - transform.forward(values - steps / 2)
    return np.asarray(upper + np.where(np.isfinite(lower), lower, upper))


def least_sd_unnamed(problem: Problem, limit: float) -> Floats:
    """The least sd with which nobody is surer of a value than a limit, shape (N,).

    Modelled scale; 0 for values with all digits, and for a limit of 1.

    Raises
    ------
    InputError
        If the limit is not above 0 and at most 1.
    """
    check_attribution(limit)
    steps, values = own_steps(problem), problem.original()
    if limit == 1:
        return np.zeros(values.size)
    coarse = (steps > 0) & problem.observed
    pairs, which = np.unique(np.stack([values[coarse], steps[coarse]]), axis=1, return_inverse=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        room = _room(pairs[0], pairs[1], problem.transform)
        ends = [
            _room(pairs[0] + k * pairs[1], pairs[1], problem.transform) / room
            for k in (-NEIGHBOURS, NEIGHBOURS)
        ]
    # Of the many values whose steps are alike all around them the sd is in proportion to those.
    even = np.all(np.abs(np.array(ends) - 1.0) < EVEN, axis=0)
    needed = np.empty(room.size)
    if even.any():
        one = _least(np.zeros(1), np.ones(1), limit, ResponseTransform("identity"))
        needed[even] = (1.0 + EVEN) * one * room[even]
    needed[~even] = _least(pairs[0][~even], pairs[1][~even], limit, problem.transform)
    least = np.zeros(values.size)
    least[coarse] = needed[which.ravel()]
    return least


def _least(values: Floats, steps: Floats, limit: float, transform: ResponseTransform) -> Floats:
    """The least sd with which nobody is surer of each value than a limit, by halving."""
    low, high = np.full(values.size, -40.0), np.full(values.size, 40.0)
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        named = surest_named(values, steps, np.exp(middle), transform) > limit
        low, high = np.where(named, middle, low), np.where(named, high, middle)
    return np.asarray(np.exp(high))


def chance_in_cell(
    values: Floats, steps: Floats, mean: Floats, sd: Floats, transform: ResponseTransform
) -> Floats:
    """Probability that a normal estimate is within half a step of the true value, shape (N,)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ends = [transform.forward(values + sign * steps / 2) - mean for sign in (-1.0, 1.0)]
        low, high = (end / sd for end in ends)
    # The transform takes no such value, or a law without width ends just there.
    low, high = np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high)
    return np.asarray(np.where(steps > 0, ndtr(high) - ndtr(low), 0.0))
