"""The fits and releases of a search for a floor, the cheapest plan first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from dsstan.comparison.floor_aims import Floors
from dsstan.comparison.floor_plans import MOST_FLAGGED, Plan, released_plan
from dsstan.copies.result import Synthesis
from dsstan.copies.synthesis import synthesise
from dsstan.core.arrays import Truths
from dsstan.core.errors import ConvergenceError
from dsstan.core.seeds import FRONTIER, seed_of, stream
from dsstan.models.fit import fit
from dsstan.models.result import Fit
from dsstan.models.weights import Weights, neighbour_distances
from dsstan.risk.assessment import assess
from dsstan.risk.assessment_result import Assessment

TRIED = 6
"""Most plans that are fitted."""

GROWTHS = 3
"""Fits of one plan; each flags the records of which the former's variances reveal too much."""

DEARER = 1.3
"""A plan whose own fit makes it dearer by more is fitted with more records flagged, too."""

STEPS = 4
"""Releases of one fit: as planned, and then with the noise that the exact intruder of the former
asks for."""

CHEAPER = 0.95
"""Share of the cost of a release that keeps the floor below which one with less noise is drawn."""

WORTH = 0.7
"""Share of that cost below which another plan is still worth its fit and its releases."""


def seed_for(root: int, label: str) -> int:
    """The seed of one fit or release."""
    return seed_of(stream(root, FRONTIER, label.encode()))


def _better(plan: Plan, other: Plan) -> bool:
    """Whether one plan is the better: it alone meets the floor, or it is cheaper or closer."""
    if plan.meets != other.meets:
        return plan.meets
    if plan.meets:
        return plan.cost.total < other.cost.total
    return plan.weakest > other.weakest


def row_of(
    plan: Plan, stage: str, *, reason: str = "", weakest: float | None = None
) -> dict[str, Any]:
    """One row of the trail."""
    weakest = plan.weakest if weakest is None else weakest
    noise = plan.noise
    return {
        "setting": str(plan),
        "protection": plan.protection,
        "flagged": int(plan.flagged.sum()),
        "copies": plan.copies,
        "noise": 0.0 if noise is None else float(np.sqrt(np.mean(noise**2))),
        "noisy": 0 if noise is None else int(np.sum(noise > 0)),
        "weakest": weakest,
        "met": weakest >= 1.0,
        "regression": plan.cost.regression,
        "copy": plan.cost.copies,
        "cost": plan.cost.total,
        "stage": stage,
        "reason": reason,
    }


@dataclass(eq=False)
class Search:
    """The fits and releases of a search, and the best of them so far.

    Attributes
    ----------
    free, floors, noise, root
        The unrestricted fit, what is asked for, whether noise may be added, the root seed.
    stated
        Weights of the rule that was stated, if any.
    settings, drawing, judging
        Arguments of each fit, of :func:`dsstan.synthesise` and of :func:`dsstan.assess`.
    best, closest
        Release, assessment and plan that came closest so far; whether they keep the floor, and
        their cost with the other sign, or the smallest sd over its floor where they miss it.
    rows, planned
        The trail, and the plans that were fitted.
    fits
        Made so far, by protection and flagged set.
    """

    free: Fit
    floors: Floors
    noise: bool
    root: int
    stated: Weights | None
    settings: dict[str, Any]
    drawing: dict[str, Any]
    judging: dict[str, Any]
    best: tuple[Synthesis, Assessment, Plan] | None = None
    closest: tuple[bool, float] = (False, -np.inf)
    rows: list[dict[str, Any]] = field(default_factory=list)
    planned: list[Plan] = field(default_factory=list)
    fits: dict[tuple[str, bytes], Fit] = field(default_factory=dict)

    def run(self, plans: Iterator[Plan]) -> None:
        """Fit plans and release them in the order of their cost until none is worth it any more.

        A plan's own fit changes its cost, so it waits while others may be cheaper; so do its
        releases, so others may be cheaper than one that keeps the floor.
        """
        waiting: list[tuple[float, int, Fit, Plan]] = []
        short: list[tuple[Fit, Plan]] = []
        ahead, tried = next(plans, None), 0
        while waiting or (ahead is not None and tried < TRIED):
            cheapest = waiting[0][0] if waiting else np.inf
            fits = None
            if ahead is not None and tried < TRIED:
                sooner = ahead.meets and ahead.cost.total < cheapest
                fits = ahead if sooner or not waiting else None
            if self._beaten(cheapest if fits is None else fits.cost.total, WORTH):
                return
            if fits is None:
                _, _, fitted, plan = heappop(waiting)
                self._released(fitted, plan)
                continue
            self.planned.append(fits)
            own, again = self._fitted(fits)
            ahead, tried = next(plans, None), tried + 1
            if own is not None and again.meets:
                heappush(waiting, (again.cost.total, tried, own, again))
            elif own is not None:
                short.append((own, again))
        if short and not self.closest[0]:
            fitted, plan = max(short, key=lambda pair: pair[1].weakest)
            if plan.weakest > self.closest[1]:
                self._released(fitted, plan)

    def _beaten(self, cost: float, share: float = 1.0) -> bool:
        """Whether a release keeps the floor at no more than this cost, or its share of this."""
        met, score = self.closest
        return met and cost >= share * -score

    def _released(self, fitted: Fit, plan: Plan) -> None:
        """Draw and judge, then with the noise that this asks for.

        Before copies with noise are drawn, what they reveal of the variances is a guess; the exact
        intruder's sds say it. A release that keeps the floor with too much noise is drawn
        again with less, and stays where that misses it.
        """
        floors, kept = self.floors, False
        for step in range(STEPS):
            found, met = self._release(fitted, plan, step)
            if found is None:
                break
            kept, noisy = kept or met, plan.noise is not None
            if not self.noise or (not noisy and (kept or not plan.meets)):
                break
            floors = self._learnt(floors, plan, found) if noisy else floors.raised(found.sd)
            before, plan = plan, self._again(fitted, plan, floors)
            if self._beaten(plan.cost.total) or (
                kept and plan.cost.total > CHEAPER * before.cost.total
            ):
                break

    def _learnt(self, floors: Floors, plan: Plan, found: Assessment) -> Floors:
        """The aims after a release with noise."""
        exact = np.zeros(found.sd.size, dtype=bool)
        if found.exact is not None:
            exact[found.exact.records["position"]] = True
        guessed = plan.sd**-2.0 - floors.alone**-2.0 - plan.fixed
        return floors.learnt(found.sd, plan.fixed, guessed, exact)

    def _fitted(self, plan: Plan) -> tuple[Fit | None, Plan]:
        """A plan's own fit, and the plan by it; flags more where variances reveal too much."""
        kept: tuple[Fit, Plan] | None = None
        for _ in range(GROWTHS):
            fitted = self._fit(plan)
            if not fitted.verdict.passed:
                reason = f"fit failed: {'; '.join(c.name for c in fitted.verdict.failures)}"
                self.rows.append(row_of(plan, "fitted", reason=reason))
                break
            again = self._again(fitted, plan, self.floors)
            if kept is None or _better(again, kept[1]):
                kept = fitted, again
            flagged = plan.flagged | again.leaky
            as_planned = again.meets and again.cost.total <= DEARER * plan.cost.total
            grown = plan.flagged.any() and not np.array_equal(flagged, plan.flagged)
            if as_planned or not grown or flagged.mean() > MOST_FLAGGED:
                break
            plan = replace(plan, flagged=flagged)
        if kept is None:
            return None, plan
        fitted, again = kept
        self.rows.append(row_of(again, "fitted", reason="" if again.meets else "falls short"))
        return fitted, again

    def _again(self, fitted: Fit, plan: Plan, floors: Floors) -> Plan:
        """The plan at the draws behind the copies."""
        with threadpool_limits(limits=1, user_api="blas"):
            return released_plan(fitted, self.free, floors, plan, self.noise)

    def _fit(self, plan: Plan) -> Fit:
        """The fit of a setting, made once; the unrestricted one where nobody is flagged."""
        if not plan.flagged.any():
            return self.free
        key = (plan.protection, plan.flagged.tobytes())
        if key not in self.fits:
            self.fits[key] = fit(
                self.free.problem,
                weights=self._weights(plan.flagged),
                gamma=np.inf,
                protection=plan.protection,
                start=self.free,
                seed=seed_for(self.root, f"fit {key}"),
                **self.settings,
            )
        return self.fits[key]

    def _weights(self, flagged: Truths) -> Weights:
        """Those of the stated rule, if they are all; else what the search asks for."""
        if self.stated is not None and np.array_equal(self.stated.flagged, flagged):
            return self.stated
        a, nan = flagged.astype(np.float64), float("nan")
        return Weights(a, "target", nan, nan, neighbour_distances(self.free.problem), a.copy())

    def _release(self, fitted: Fit, plan: Plan, step: int) -> tuple[Assessment | None, bool]:
        """Draw and judge, and whether the floor is kept; keep it where it is the best so far."""
        try:
            release = synthesise(
                fitted,
                plan.copies,
                noise=plan.noise,
                seed=seed_for(self.root, f"copies {plan} {step}"),
                **self.drawing,
            )
        except ConvergenceError as error:
            self.rows.append(row_of(plan, "fitted", reason=f"fit failed: {error}".splitlines()[0]))
            return None, False
        found = assess(release, progress=self.drawing["progress"], **self.judging)
        weakest = self.floors.weakest(found.sd)
        self.rows.append(row_of(plan, "released", weakest=weakest))
        met = weakest >= 1.0 and not found.named_too_surely.size
        score = (met, -plan.cost.total if met else weakest)
        if score > self.closest:
            self.best, self.closest = (release, found, plan), score
        return found, met
