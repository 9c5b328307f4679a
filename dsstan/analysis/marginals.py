"""Whether copies stay in the world of the data: zeros, signs, ends and quantiles beside it.

A model may pass every check of its draws and not be the model of the table. A normal law has no
heap at zero, no end, and the shape of a bell: copies of a table that differs show it in the
distribution of their values, before any regression does.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field

import numpy as np
import pandas as pd

from dsstan.copies.result import Synthesis
from dsstan.core.arrays import Floats
from dsstan.core.spelling import spelled
from dsstan.models.checks.conditions import Check
from dsstan.table.problem import Problem

CONDITION = "unlike-the-data"

PROBABILITIES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""Probabilities of the quantiles."""

_ZEROS, _ZERO_ERRORS = 0.02, 3.0
"""Difference of the shares of zeros that is none, at least, and in its standard errors."""
_SHAPE, _SHAPE_ERRORS = 0.1, 0.5
"""The same of the share of copies below a quantile, the second over the root of N."""

_ENDS = {"floor": ("smallest", "below"), "cap": ("largest", "above")}
_HEAP, _CONTINUOUS = 0.1, 20
"""Share of records at one end that is a heap, of a column of so many values at least."""


@dataclass(frozen=True)
class Marginal:
    """The distribution of a column's values.

    Attributes
    ----------
    least, q05, q25, q50, q75, q95, most
        Quantiles, on the column's own scale; of all copies together.
    zeros, negative
        Share of the values that are 0, and below it.
    """

    least: float
    q05: float
    q25: float
    q50: float
    q75: float
    q95: float
    most: float
    zeros: float
    negative: float

    @classmethod
    def of(cls, values: Floats) -> Marginal:
        """That of values of any shape."""
        quantiles = np.quantile(values, (0.0, *PROBABILITIES, 1.0))
        shares = np.mean(values == 0.0), np.mean(values < 0.0)
        return cls(*map(float, (*quantiles, *shares)))


@dataclass(frozen=True, eq=False)
class Marginals:
    """The response's distribution in the data and in the copies. Confidential.

    Attributes
    ----------
    response
        The column.
    original, copies
        Its distribution, of the records that have a value.
    checks
        What was compared, each a warning where copies leave the data's world.
    """

    response: str
    original: Marginal = field(repr=False)
    copies: Marginal
    checks: tuple[Check, ...] = field(repr=False)

    def table(self) -> pd.DataFrame:
        """One row for the data and one for the copies."""
        rows = [asdict(self.original), asdict(self.copies)]
        return pd.DataFrame(rows, index=pd.Index(["original", "copies"], name="source"))

    def summary(self) -> dict[str, dict[str, float]]:
        """The same without a value of the data: its quantiles have two digits, and no ends."""
        data = {k: float(f"{v:.2g}") for k, v in asdict(self.original).items()}
        del data["least"], data["most"]
        return {"original": data, "copies": asdict(self.copies)}

    def __str__(self) -> str:
        said = "\n".join(str(check) for check in self.checks if check.severity != "ok")
        return f"{self.response}\n{self.table().to_string()}" + ("\n" + said if said else "")


def _without(heap: float | str) -> str:
    """What to do about a heap."""
    return f"give the heap a law of its own with {spelled('heap', heap)}"


def foreseen_heaps(problem: Problem) -> tuple[str, ...]:
    """What copies of a normal law will lack, by the response alone: zeros, a floor or a cap.

    One sentence for each heap, with what to do; no value of the data is in it.
    """
    values, name = problem.original()[problem.known], repr(problem.response)
    if problem.heap is not None or np.unique(values).size < _CONTINUOUS:
        return ()
    said = []
    zeros = float(np.mean(values == 0.0))
    if zeros > _chance(zeros, values.size):
        said.append(
            f"{zeros:.0%} of {name} are 0, and a normal law draws none ({CONDITION}): {_without(0)}"
        )
    for end, heap in _heaped_ends(values):
        word, beyond = _ENDS[heap]
        said.append(
            f"{np.mean(values == end):.0%} of {name} are its {word} value, and copies go {beyond} "
            f"it ({CONDITION}): {_without(heap)}"
        )
    return tuple(said)


def _heaped_ends(values: Floats) -> Iterator[tuple[float, str]]:
    """Ends other than 0 that many of the values of a continuous column have: floor and cap."""
    if np.unique(values).size < _CONTINUOUS:
        return
    for end, heap in ((values.min(), "floor"), (values.max(), "cap")):
        if end != 0.0 and np.mean(values == end) > _HEAP:
            yield float(end), heap


def _chance(share: float, n: int) -> float:
    """How far the share of copies at one value may be from that of n records."""
    return max(_ZEROS, _ZERO_ERRORS * float(np.sqrt(share * (1.0 - share) / n)))


_KNOWN: weakref.WeakKeyDictionary[Synthesis, Marginals] = weakref.WeakKeyDictionary()


def marginals(release: Synthesis) -> Marginals:
    """Compare the distribution of a synthetic column with the original's.

    Parameters
    ----------
    release
        The copies; of several synthetic columns, the last.

    Returns
    -------
    Marginals
        Computed once for each release.
    """
    found = _KNOWN.get(release)
    if found is None:
        problem = release.problem
        there = problem.known
        original, values = problem.original()[there], release.values[:, there]
        beside = np.where(release.in_heap()[:, there], np.nan, values)
        found = Marginals(
            problem.response,
            Marginal.of(original),
            Marginal.of(values),
            _checks(original, values, beside, release),
        )
        _KNOWN[release] = found
    return found


def _checks(
    original: Floats, values: Floats, beside: Floats, release: Synthesis
) -> tuple[Check, ...]:
    """Zeros, signs, both ends of what is ``beside`` a heap, and quantiles."""
    problem = release.problem
    name, transform = problem.response, problem.transform
    amounts = problem.original()[problem.observed]
    modelled = transform.forward(amounts)
    n = original.size

    def heap(at: float, called: str, advice: str) -> Check:
        share, made = float(np.mean(original == at)), float(np.mean(values == at))
        chance = _chance(max(share, made), n)
        return _check(f"share {called}", made, abs(made - share), share, chance, advice, name)

    checks = [heap(0.0, "of zeros", _without(0))]
    for end, kind in _heaped_ends(original):
        checks.append(heap(end, f"at the {_ENDS[kind][0]} value", _without(kind)))
    positive = "where all values are above 0, log() in the formula keeps copies there"
    negative = float(np.mean(values < 0.0)) if original.min() >= 0.0 else 0.0
    checks.append(_check("share of negative values", negative, negative, 0.0, 0.0, positive, name))
    another = (
        "look at the response's histogram: another transform may fit, such as log(), or it mixes "
        "kinds of records that belong into models of their own"
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        low, high = np.nanmin(beside, axis=1), np.nanmax(beside, axis=1)
        lowest, highest = transform.forward(np.array([low, high]))
    beyond = max(
        _beyond(-amounts, -low, -modelled, -lowest), _beyond(amounts, high, modelled, highest)
    )
    checks.append(
        _check("ends of a copy beyond those of the data", beyond, beyond, 0.0, 1.0, another, name)
    )
    far = max(
        (
            abs(_below(values, q) - _below(original, q))
            for q in np.quantile(original, PROBABILITIES)
        ),
        default=0.0,
    )
    limit = _SHAPE + _SHAPE_ERRORS / float(np.sqrt(n))
    checks.append(
        _check("share of copies on one side of a quantile", far, far, 0.0, limit, another, name)
    )
    return tuple(checks)


def _check(
    name: str,
    value: float,
    distance: float,
    target: float,
    limit: float,
    advice: str,
    where: str,
) -> Check:
    """The check of one number: how far it is from its target, and how far it may be."""
    meets = f"{target:.3g}" if limit == 0 else f"within {limit:.2g} of {target:.2g}"
    severity = "ok" if distance <= limit else "warning"
    return Check(name, value, meets, severity, where, advice, CONDITION)


def _beyond(data: Floats, ends: Floats, modelled: Floats, modelled_ends: Floats) -> float:
    """By how much the upper end of a typical copy passes that of the data; 0 where it does not.

    In widths of the data, and on the modelled scale in their sds: the smaller, since a long tail
    is long in the first, and one of few records ends anywhere in the second.
    """
    own = (np.median(ends) - data.max()) / np.ptp(data)
    other = (np.median(modelled_ends) - modelled.max()) / np.std(modelled)
    return max(0.0, float(min(own, other)))


def _below(values: Floats, q: float) -> float:
    """Share of the values below q, of those at q one half."""
    return float(0.5 * (np.mean(values < q) + np.mean(values <= q)))
