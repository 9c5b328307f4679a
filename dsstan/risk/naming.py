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

from dsstan.copies.result import Synthesis
from dsstan.core.arrays import Floats, Indices
from dsstan.risk.chance_named import (
    chance_in_cell,
    chance_named,
    check_attribution,
    least_sd_unnamed,
    own_steps,
    surest_named,
)
from dsstan.risk.intruder.public_files import smoothing_undone

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
    chances = [chance_in_cell(values, steps, centre, sd, transform) for _, centre, sd in ways]
    named = [
        np.mean((np.abs(transform.inverse(estimate) - values) <= steps / 2) & (steps > 0))
        for estimate, _, _ in ways
    ]
    return max(chances, key=lambda chance: float(chance.mean())), float(max(named))
