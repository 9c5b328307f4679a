"""Whether an intruder's target is in the sample at all, by the survey weights.

Drechsler and Reiter (2008), "Accounting for intruder uncertainty due to sampling when estimating
identification disclosure risks in partially synthetic data", Privacy in Statistical Databases, and
Benedetti and Franconi (1998), "Statistical and technological solutions for controlled data
dissemination", as in mu-ARGUS and sdcMicro.
"""

from __future__ import annotations

import numpy as np

from dsstan.core.arrays import Floats, Indices
from dsstan.table.problem import Problem

_FEW, _TERMS = 20, 120
"""Records up to which the recursion is used, and terms of the series beyond."""

__all__ = ["chance_of_lookalikes", "chance_sampled", "chances", "sampling_note"]


def chance_sampled(records: Floats, total: Floats) -> Floats:
    """Expected share f / F of the members of a population who look alike that are in the sample.

    F is f plus a negative binomial count, with f successes of probability f / total (Benedetti and
    Franconi): the law of F given f where the sizes of groups of lookalikes are as frequent as 1 / F
    makes them. A mean of f / F is above f / the mean of F, so this is never below f / total. It is
    1 at most. Where most members of the population have keys that nobody else has, it is several
    times too low, and a sample does not tell.

    Parameters
    ----------
    records
        f, how many records look alike, at least 1.
    total
        The sum of their survey weights; below f it counts as f.

    Examples
    --------
    One record that stands for ten, and ten records of a population of ten:

    >>> chance_sampled(np.array([1.0, 10.0]), np.array([10.0, 10.0])).round(3)
    array([0.256, 1.   ])
    """
    f = np.asarray(records, dtype=np.float64)
    p = np.minimum(1.0, f / total)
    q = 1.0 - p
    # E f / F = p f J_f, J_f the integral of u^(f - 1) / (p + q u) over u from 0 to 1. Its series in
    # q converges fast unless f is small and q near 1; there J_(f + 1) = (1 / f - p J_f) / q.
    term, series = np.ones_like(p), np.ones_like(p)
    for k in range(1, _TERMS):
        term = term * q * k / (f + k)
        series = series + term
    few = (f <= _FEW) & (p < 0.5)
    small, rest = np.where(few, p, 0.25), np.where(few, q, 0.75)
    J = -np.log(small) / rest
    for number in range(1, _FEW):
        J = np.where(f > number, (1.0 / number - small * J) / rest, J)
    return np.asarray(np.clip(p * np.where(few, f * J, series), p, 1.0))


def chance_of_lookalikes(
    truth: Floats, tolerance: Floats, group: Indices, weights: Floats
) -> Floats:
    """:func:`chance_sampled` of the records that an intruder takes for each target, shape (N,).

    It is never below the chance with which the target itself was drawn, one over its weight.

    Parameters
    ----------
    truth
        True value of each record.
    tolerance
        How far from it a record may be and still look like the target, up to infinity.
    group
        Number of each record's combination of keys: others look alike in no case.
    weights
        Survey weights.
    """
    count, total = np.empty(truth.size), np.empty(truth.size)
    order = np.lexsort((truth, group))
    for members in np.split(order, np.flatnonzero(np.diff(group[order])) + 1):
        values = truth[members]
        sums = np.concatenate([[0.0], np.cumsum(weights[members])])
        first = np.searchsorted(values, values - tolerance[members], side="left")
        last = np.searchsorted(values, values + tolerance[members], side="right")
        count[members], total[members] = last - first, sums[last] - sums[first]
    return np.maximum(chance_sampled(count, total), 1.0 / np.maximum(weights, 1.0))


def chances(
    problem: Problem, coordinates: str | float | None, group: Indices, tolerance: Floats
) -> tuple[Floats, Floats] | None:
    """Each target's chance to be in the sample, for an intruder who knows its value, and for one
    who knows its keys alone; None without survey weights."""
    weights = problem.survey_weight_values
    if weights is None:
        return None
    if coordinates == "exact":
        return (np.ones(weights.size),) * 2
    truth = problem.original()
    by_value = chance_of_lookalikes(truth, tolerance, group, weights)
    return by_value, chance_of_lookalikes(truth, np.full(truth.size, np.inf), group, weights)


def sampling_note(problem: Problem, unique: int) -> str:
    """What the weights say of an intruder who doesn't know who was sampled.

    ``unique`` is how many records have keys and a place that no other has.
    """
    weights = problem.survey_weight_values
    if weights is None:
        return ""
    return (
        f" The {weights.size} records stand for {weights.sum():,.0f} members of the population: "
        "where places are not known exactly, an intruder who doesn't know whether their target is "
        f"one of the records is less sure. Of {unique} records nobody else in the sample has the "
        "keys; where nobody in the population has them either, not knowing helps nobody, and the "
        "estimate is too low."
    )
