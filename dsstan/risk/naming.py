"""The chance that an intruder names a value exactly, where the response's column has a step.

Prices in steps of 50,000 are named by whoever is sure of them to 20,000. With t the transform to
the modelled scale, sd the intruder's and s the step, an unbiased normal estimate is nearest to the
true value v with a probability of::

    Phi((t(v + s/2) - t(v)) / sd) - Phi((t(v - s/2) - t(v)) / sd)

Averaged over the records it is their correct attribution probability (CAP; Taub et al. 2018). How
sure the intruder can be of one value is more: who knows that values stand a step apart compares
those values alone, and gives to the true one a mass of up to::

    r_0 / sum_k r_k exp(-(t(v + k s) - t(v))^2 / (2 sd^2)),
    r_k = t(v + k s + s/2) - t(v + k s - s/2)

The limit is on that. An intruder who has the public files alone
rounds the mean or the median of the copies, or undoes the smoothing
(:func:`dsstan.risk.intruder.public_files.smoothing_undone`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import ndtr

from dsstan.copies.result import Synthesis
from dsstan.core.arrays import Floats, Indices
from dsstan.core.errors import InputError, is_number
from dsstan.risk.intruder.public_files import smoothing_undone
from dsstan.table.converted_step import converted_step
from dsstan.table.formulas.formula import ResponseTransform
from dsstan.table.problem import Problem
from dsstan.table.rounding import find_rounding

__all__ = [
    "ATTRIBUTION",
    "Naming",
    "chance_named",
    "check_attribution",
    "least_sd_unnamed",
    "naming",
    "own_steps",
    "surest_named",
]


ATTRIBUTION = 0.5
"""How sure of a value a release with a floor may leave anybody, unless another limit is given:
beyond it the intruder thinks it more likely than all other values together."""


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


@dataclass(frozen=True, eq=False)
class Naming:
    """The chance that an intruder names each value exactly. Confidential.

    Attributes
    ----------
    steps
        Step of each record's value on the response's own scale, shape (N,): the coarsest of the
        column's that it is on; 0 where it has all digits.
    chance
        That the best guess of an intruder who knows all other records and sees all copies is the
        value, shape (N,).
    without
        The same without any copy, shape (N,).
    surest
        How sure that intruder can be of the true value, shape (N,): see :func:`surest_named`.
    surest_without
        The same without any copy, shape (N,).
    public
        Of an intruder who has the public files alone, shape (N,): of the ways to combine the
        copies that which names most.
    named
        Share of the records that such an intruder did name, at most of the ways.
    limit
        How sure of a value the release may leave anybody; None where it is not judged.
    """

    steps: Floats = field(repr=False)
    chance: Floats = field(repr=False)
    without: Floats = field(repr=False)
    surest: Floats = field(repr=False)
    surest_without: Floats = field(repr=False)
    public: Floats = field(repr=False)
    named: float
    limit: float | None = None

    @property
    def largest(self) -> float:
        """The largest of :attr:`surest` of any record."""
        return float(self.surest.max())

    @property
    def coarse(self) -> bool:
        """Whether any value can be named with a chance worth a sentence, one in a hundred."""
        return self.largest >= 0.01

    @property
    def above_limit(self) -> Indices:
        """Positions of the records that are named too surely."""
        if self.limit is None:
            return np.array([], dtype=np.intp)
        return np.flatnonzero(self.surest > self.limit)

    def summary(self) -> dict[str, Any]:
        """For ``summary.json``."""
        steps = self.steps[self.steps > 0]
        return {
            "step": float(np.median(steps)) if steps.size else None,
            "all_others_known": {"mean": float(self.chance.mean()), "largest": self.largest},
            "no_copies": {
                "mean": float(self.without.mean()),
                "largest": float(self.surest_without.max()),
            },
            "public_files": {
                "mean": float(self.public.mean()),
                "largest": float(self.public.max()),
                "named": self.named,
            },
            "limit": self.limit,
            "records_above": int(self.above_limit.size),
        }

    def __str__(self) -> str:
        sure = self.surest_without.max()
        return (
            "Chance of naming a value exactly, on average (how sure at most): "
            f"{self.chance.mean():.0%} ({self.largest:.0%}) for an intruder who knows all other "
            f"records, {self.without.mean():.0%} ({sure:.0%}) for the same without "
            f"copies; from the public files alone {self.public.mean():.0%} "
            f"({self.public.max():.0%}), and {self.named:.0%} were named"
        )

    @property
    def count(self) -> str:
        """How many values can be named exactly with more than the limit, in words."""
        beyond = f" (over {self.limit:.0%})" if self.limit is not None else ""
        return f"{self.above_limit.size} of {self.chance.size} values can be named exactly{beyond}"

    def remarks(self) -> list[str]:
        """A sentence on the limit, if there is one and the column is coarse. It names no record."""
        if self.limit is None or not self.coarse:
            return []
        return [
            f"{self.above_limit.size} of {self.chance.size} values can be named exactly with a "
            f"chance above {self.limit:g} by an intruder who knows all other records: "
            f"{self.largest:.0%} at most"
        ]


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
    return _in_cell(values, steps, transform.forward(values), sd, transform)


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


def naming(
    release: Synthesis,
    sd: Floats,
    leave_one_out: Floats,
    *,
    narrowest: Floats | None = None,
    limit: float | None = None,
) -> Naming:
    """The chance of naming each value of a release exactly.

    Parameters
    ----------
    release
        The copies.
    sd
        Of an intruder who knows all other records, with the copies, modelled scale, shape (N,).
    leave_one_out
        Without any copy, likewise.
    narrowest
        The same as ``sd`` of the middle of the intruder's posterior, where that has a peak; by
        default ``sd``.
    limit
        How sure of a value the release may leave anybody.

    Raises
    ------
    InputError
        If the limit is not above 0 and at most 1.
    """
    check_attribution(limit)
    problem = release.problem
    steps, values, transform = own_steps(problem), problem.original(), problem.transform
    public, named = _from_copies(release, steps)
    return Naming(
        steps=steps,
        chance=chance_named(values, steps, sd, transform),
        without=chance_named(values, steps, leave_one_out, transform),
        surest=surest_named(values, steps, sd if narrowest is None else narrowest, transform),
        surest_without=surest_named(values, steps, leave_one_out, transform),
        public=public,
        named=named,
        limit=limit,
    )


def _in_cell(
    values: Floats, steps: Floats, mean: Floats, sd: Floats, transform: ResponseTransform
) -> Floats:
    """Probability that a normal estimate is within half a step of the true value, shape (N,)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ends = [transform.forward(values + sign * steps / 2) - mean for sign in (-1.0, 1.0)]
        low, high = (end / sd for end in ends)
    # The transform takes no such value, or a law without width ends just there.
    low, high = np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high)
    return np.asarray(np.where(steps > 0, ndtr(high) - ndtr(low), 0.0))


def _from_copies(release: Synthesis, steps: Floats) -> tuple[Floats, float]:
    """The chance of who combines the copies, shape (N,), and the largest share that they name."""
    problem, modelled = release.problem, release.modelled()
    values, transform = problem.original(), problem.transform
    count = max(len(modelled) - 1, 1)
    mean, median = modelled.mean(axis=0), np.median(modelled, axis=0)
    error = np.sqrt(np.sum((modelled - mean) ** 2, axis=0) / count / len(modelled))
    # The standard error of a normal sample's median is larger by sqrt(pi / 2).
    ways = [(mean, mean, error), (median, median, np.sqrt(np.pi / 2) * error)]
    undone = smoothing_undone(release)
    if undone is not None:
        # Unbiased, so its chance is that around the truth.
        ways.append((undone[0], transform.forward(values), undone[1]))
    chances = [_in_cell(values, steps, centre, sd, transform) for _, centre, sd in ways]
    named = [
        np.mean((np.abs(transform.inverse(estimate) - values) <= steps / 2) & (steps > 0))
        for estimate, _, _ in ways
    ]
    return max(chances, key=lambda chance: float(chance.mean())), float(max(named))
