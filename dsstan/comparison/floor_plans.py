"""Settings that may meet a floor, planned from the unrestricted fit, the least damaging first.

A setting is a protection, a flagged set, a number of copies and added noise. Flagged are the
records of a stated rule and those that copies reveal by more than noise can hide; where that is
cheaper, all that fall short. Plans take the variances of the unrestricted fit, so a setting is
planned again after its own fit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush

import numpy as np

from dsstan.comparison.copy_laws import Analyst, CopyLaws, Cost
from dsstan.comparison.floor_aims import Floors
from dsstan.comparison.least_noise import least_noise
from dsstan.core.arrays import Floats, Indices, Truths
from dsstan.covariance.base import Parameters, SpatialModel
from dsstan.covariance.protection import NO_PROTECTION
from dsstan.models.posterior import parameters_at, spread_draws
from dsstan.models.predictive import carried_at, carried_effect
from dsstan.models.result import Fit
from dsstan.risk.intruder.attacker import of_one_copy
from dsstan.risk.intruder.leave_one_out import (
    MeanTerms,
    averaged_draws,
    mean_terms,
    terms_at,
    unrestricted_terms,
)

LAW_DRAWS, TERM_DRAWS = 8, 40
"""Draws behind the laws of a plan's copies, and behind what they reveal without noise."""

NOISE_DRAWS = 4
"""Of those, how many noise is found by before a setting has its own fit."""

SWEEPS = 5
"""How often the flagged set grows: records may become exposed as others are flagged."""

LAW_RELEASED = 10
"""Most of the draws behind released copies whose laws are held at a time."""

LEAKED = 0.5
"""Share of what known variances would reveal that a plan counts: an intruder who does not know them
learns something between none and all of it. The release is judged exactly where that decides."""

CROWDED = 0.4
"""Share of a record's room that its variances take beyond which flagging it may be cheaper than the
noise that the rest would need."""

LITTLE = 0.1
"""Where the variances reveal too much already, the share of it that copies may reveal besides."""

MOST_FLAGGED = 0.5
"""Largest share of the records that is flagged by need."""


@dataclass(frozen=True, eq=False)
class Plan:
    """One setting, and what it would leave and cost. Confidential.

    Attributes
    ----------
    protection, flagged, copies
        The setting; protection ``"none"`` where no record is flagged.
    noise
        sd of the added noise, shape (N,); None without any.
    sd
        What an intruder would be left with who learns half of what the variances reveal, (N,).
    fixed
        Information of the copies with the variances fixed, shape (N,).
    leaky
        Records whose room is mostly taken by what the variances reveal, shape (N,).
    weakest
        See :meth:`Floors.weakest`.
    cost
        To the analyst.
    """

    protection: str
    flagged: Truths = field(repr=False)
    copies: int
    noise: Floats | None = field(repr=False)
    sd: Floats = field(repr=False)
    fixed: Floats = field(repr=False)
    leaky: Truths = field(repr=False)
    weakest: float
    cost: Cost

    @property
    def meets(self) -> bool:
        """Whether every record that can keeps the floor."""
        return self.weakest >= 1.0

    def __str__(self) -> str:
        return words_of(self.protection, self.flagged, self.copies, self.noise)


def words_of(protection: str, flagged: Truths, copies: int, noise: Floats | None) -> str:
    """A setting in words. It names no record."""
    count = int(flagged.sum())
    who = "no record flagged" if not count else f"{protection}, {count} flagged"
    more = ""
    if noise is not None:
        size = float(np.sqrt(np.mean(noise**2)))
        more = f", noise of sd {size:.2g} (root mean square) on {int(np.sum(noise > 0))} records"
    return f"{copies} copies, {who}{more}"


def copies_to_try(most: int, least: int) -> list[int]:
    """Numbers of copies, each half of the former."""
    counts = [most]
    while counts[-1] > least:
        counts.append(max(least, counts[-1] // 2))
    return counts


@dataclass(frozen=True, eq=False)
class _Sketch:
    """A setting before its noise is known, its cost a lower bound.

    Noise is found by ``laws``, and what it costs by ``judged``, whose draws do not depend on how
    many copies there are.
    """

    protection: str
    flagged: Truths
    copies: int
    fixed: Floats
    leak: Floats
    laws: CopyLaws
    judged: CopyLaws
    cost: Cost


def planned_settings(
    free: Fit,
    floors: Floors,
    base: Truths,
    protections: Sequence[str],
    counts: Sequence[int],
    noise: bool,
) -> Iterator[Plan]:
    """Plans, those that meet the floor first, by their cost; then the others, the closest first.

    Noise is found for a setting only when its turn comes: it can only add to the cost.

    Parameters
    ----------
    free
        The unrestricted fit.
    floors
        What is asked for.
    base
        Records that are flagged in any case, shape (N,).
    protections, counts
        Protections and numbers of copies to try.
    noise
        Whether noise may be added.
    """
    bare = _laws(free, NO_PROTECTION, np.zeros_like(base))
    analyst = Analyst(free.problem, bare)
    sketches = _sketches(free, floors, base, protections, counts, bare, analyst)
    queue: list[tuple[float, int, _Sketch | Plan]] = [
        (sketch.cost.total, number, sketch) for number, sketch in enumerate(sketches)
    ]
    heapify(queue)
    short = []
    while queue:
        _, number, item = heappop(queue)
        if isinstance(item, Plan):
            yield item
            continue
        plan = _with_noise(item, floors, analyst, noise)
        if plan.meets:
            heappush(queue, (plan.cost.total, number, plan))
        else:
            short.append(plan)
    yield from sorted(short, key=lambda plan: -plan.weakest)


def _sketches(
    free: Fit,
    floors: Floors,
    base: Truths,
    protections: Sequence[str],
    counts: Sequence[int],
    bare: CopyLaws,
    analyst: Analyst,
) -> list[_Sketch]:
    """Every protection, number of copies and way to flag, none twice."""
    zero = np.zeros(base.size)
    known: dict[tuple[str, bytes], tuple[CopyLaws, Floats]] = {}
    made: dict[tuple[str, bytes, int], _Sketch] = {}

    def sketch(protection: str, flagged: Truths, copies: int) -> _Sketch:
        mark = (protection, flagged.tobytes())
        if (*mark, copies) in made:
            return made[*mark, copies]
        if mark not in known:
            laws = _laws(free, protection, flagged) if flagged.any() else bare
            by_draw = _by_draw(free, protection, flagged) if flagged.any() else zero
            known[mark] = laws, by_draw
        laws, by_draw = known[mark]
        if flagged.any():  # the mean: what is released is judged by its own draws
            fixed, whole = copies * by_draw.mean(axis=1)
            leak = whole - fixed
        else:
            fixed, leak = information_of_release(free, copies)
        cost = analyst.cost(laws, copies, zero)
        some = laws.some(NOISE_DRAWS)
        found = _Sketch(protection, flagged, copies, fixed, leak, some, laws, cost)
        made[*mark, copies] = found
        return found

    for copies in counts:
        for protection in protections:
            for level, all_short in ((1.0, False), (CROWDED, False), (1.0, True)):
                flagged = base
                for _ in range(SWEEPS):
                    found = sketch(protection if flagged.any() else NO_PROTECTION, flagged, copies)
                    leaked = LEAKED * found.leak + (found.fixed if all_short else 0.0)
                    more = flagged | (leaked > level * floors.room)
                    if np.array_equal(more, flagged) or more.mean() > MOST_FLAGGED:
                        break
                    flagged = more
    return list(made.values())


def _model(free: Fit, protection: str, flagged: Truths) -> SpatialModel:
    """The model of a setting before its fit: smoothed fully, phi held where it will be near."""
    if not flagged.any():
        return free.model_with()
    return free.model_with(
        A=np.where(flagged, 0.0, 1.0),
        protection=protection,
        phi_held=float(np.median(free.draws["phi"])),
    )


def _points(free: Fit, model: SpatialModel, count: int) -> list[Parameters]:
    """Some draws of the unrestricted fit, at the decay that the model holds."""
    points = _draws_at(free, spread_draws(free, count))
    if model.phi_held is None:
        return points
    return [replace(p, phi=model.phi_held) for p in points]


def _laws(free: Fit, protection: str, flagged: Truths) -> CopyLaws:
    """Laws of a setting's copies at a few draws."""
    model = _model(free, protection, flagged)
    points = _points(free, model, min(LAW_DRAWS, free.n_draws))
    return CopyLaws.at(model, points, np.ones(flagged.size))


def _by_draw(free: Fit, protection: str, flagged: Truths) -> Floats:
    """What a copy without noise reveals at each draw, variances fixed and known, (2, S, N)."""
    model = _model(free, protection, flagged)
    points = _points(free, model, min(TERM_DRAWS, free.n_draws))
    carried = carried_at(model.A, flagged, "w")
    terms = model.covariance.attack_terms(model, points, carried)
    return MeanTerms.over(np.zeros(flagged.size), terms).by_draw


def _with_noise(
    sketch: _Sketch, floors: Floors, analyst: Analyst, noise: bool, near: Floats | None = None
) -> Plan:
    """The plan with as much noise as it needs, if noise may be added.

    Where the variances alone reveal more than is allowed of a record, noise keeps what copies
    reveal besides to a small share of that. ``near`` are variances that may be near the answer.
    """
    zero = np.zeros(floors.aim.size)
    information = sketch.laws.information(sketch.laws.solved(zero))
    factor = np.divide(sketch.fixed, information, out=zero.copy(), where=information > 0)
    variance: Floats | None = zero
    leak = LEAKED * sketch.leak if floors.beyond is None else floors.beyond
    if noise and np.any(sketch.fixed + leak > floors.room):
        if floors.beyond is None:  # noise hides the variances too: a release tells how much
            leak = np.minimum(leak, CROWDED * np.maximum(floors.room, 0.0))
        room = np.maximum(floors.room - leak, LITTLE * leak)
        price = analyst.price(sketch.copies)
        variance = least_noise(sketch.laws, factor, room, price, near)
    variance = zero if variance is None else variance
    fixed = sketch.fixed
    if variance.any():
        fixed = factor * sketch.laws.information(sketch.laws.solved(variance))
    sd = floors.sd(fixed + leak)
    return Plan(
        protection=sketch.protection,
        flagged=sketch.flagged,
        copies=sketch.copies,
        noise=np.sqrt(variance) if variance.any() else None,
        sd=sd,
        fixed=fixed,
        leaky=LEAKED * sketch.leak > CROWDED * floors.room,
        weakest=floors.weakest(sd),
        cost=analyst.cost(sketch.judged, sketch.copies, variance),
    )


def released_plan(fitted: Fit, free: Fit, floors: Floors, plan: Plan, noise: bool) -> Plan:
    """The plan again, at the very draws that a release of this fit has behind its copies.

    Parameters
    ----------
    fitted, free
        The setting's own fit, and the unrestricted one.
    floors, plan
        What is asked for, and what was planned before the fit.
    noise
        Whether noise may be added.
    """
    carried = carried_effect(fitted)[0]
    fixed, leak = information_of_release(fitted, plan.copies)
    places = spread_draws(fitted, plan.copies)
    held = places[:: -(-len(places) // LAW_RELEASED)]
    laws = CopyLaws.at(fitted, _draws_at(fitted, held), carried)
    bare = _laws(free, NO_PROTECTION, np.zeros_like(plan.flagged))
    judged = bare
    if fitted is not free:
        some = spread_draws(fitted, min(LAW_DRAWS, fitted.n_draws))
        judged = CopyLaws.at(fitted, _draws_at(fitted, some), carried)
    analyst = Analyst(free.problem, bare)
    cost = analyst.cost(judged, plan.copies, np.zeros(fixed.size))
    sketch = _Sketch(plan.protection, plan.flagged, plan.copies, fixed, leak, laws, judged, cost)
    near = None if plan.noise is None else plan.noise**2
    return _with_noise(sketch, floors, analyst, noise, near)


def information_of_release(fitted: Fit, copies: int) -> tuple[Floats, Floats]:
    """What the copies of a fit reveal by the draws behind them, and what the variances, (N,) each.

    The draws are known before the copies are drawn. It is what
    :func:`dsstan.risk.intruder.attacker.attack` reports of the release, but for its margin.
    """
    carried, effect = carried_effect(fitted)
    if fitted.kind == "unrestricted":
        own = unrestricted_terms(fitted)
    else:
        draws = min(fitted.covariance.draws_by_default(fitted, carried), fitted.n_draws)
        own = mean_terms(fitted, averaged_draws(fitted, draws), effect)
    released = terms_at(fitted, spread_draws(fitted, copies), effect)
    fixed, leak = of_one_copy(own, released, copies)
    return copies * fixed, copies * leak


def _draws_at(fitted: Fit, places: Indices) -> list[Parameters]:
    """The draws at some positions."""
    return [parameters_at(fitted, int(chain), int(iteration)) for chain, iteration in places]
