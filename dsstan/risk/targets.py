"""The smallest smoothing of each record that leaves an intruder uncertain enough.

For every record the smallest gamma a_i whose attacker sd at the planned number of
copies meets a stated floor (:mod:`dsstan.risk.intruder.attacker`, not h_ii, which is not
monotone). Protecting one record can expose another, so all are solved for
together, the model is fitted again, and every record is checked again.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from threadpoolctl import threadpool_limits

from dsstan.core.arrays import Floats, Indices, Truths
from dsstan.core.errors import InputError, check_count
from dsstan.covariance.protection import PROTECTIONS, check_protection, protection_of
from dsstan.models.arguments import check_cut, settings_of
from dsstan.models.fit import fit
from dsstan.models.posterior import parameters_at
from dsstan.models.predictive import carried_at
from dsstan.models.result import Fit
from dsstan.models.weights import Weights, neighbour_distances, smoothing
from dsstan.risk.floors import Floor, FloorLike
from dsstan.risk.intruder.attacker import Attack, attack
from dsstan.risk.intruder.leave_one_out import MeanTerms, averaged_draws, unrestricted_terms

FULL = 1e8
"""gamma a_i that stands for full smoothing where other records are smoothed in part."""

_STEPS = 14
_SWEEPS = 4
_SOLVING_DRAWS = 12
_SLACK = 1.02
"""The solver aims a little above the floor, so that the refit's own noise does not undo it."""


_OTHERS = tuple(
    p for p in PROTECTIONS if protection_of(p).variance_returns or protection_of(p).flagged_leave
)
"""Protections under which a fully smoothed record does not leak through the coefficients."""


@dataclass(frozen=True)
class _Plan:
    """The release that a floor is asked for, and the decay that its fit will hold."""

    protection: str
    variances: str
    copies: int
    phi: float


@dataclass(frozen=True, eq=False)
class Targets:
    """Smoothing that meets a floor, and what could not be met.

    Attributes
    ----------
    weights, gamma
        For :func:`dsstan.fit`; ``weights.a * gamma`` is gamma a_i.
    fit
        The restricted fit made with them.
    attack
        The check of every record after the refit.
    floor, copies, variances
        What was asked for.
    unmet
        Records below the floor after all, positions ascending. Confidential.
    message
        What was reached, what was not, why, and what would help; nothing
        record-level.
    """

    weights: Weights = field(repr=False)
    gamma: float
    fit: Fit = field(repr=False)
    attack: Attack = field(repr=False)
    floor: float
    copies: int
    variances: str
    unmet: Indices = field(repr=False)
    message: str

    def __str__(self) -> str:
        return self.message


def solve_targets(
    free: Fit,
    floor: FloorLike,
    copies: int,
    *,
    protection: str = "preserving",
    variances: str = "known",
    candidates: Truths | None = None,
    seed: int | None = None,
    refits: int = 3,
    draws: int = 60,
    engine: str = "auto",
    progress: bool | None = None,
) -> Targets:
    """Solve for the smoothing, fit again and check every record.

    Parameters
    ----------
    free
        The unrestricted fit.
    floor
        What an intruder must be left with about every record: ``"10%"`` or a least sd on the
        modelled scale; see :class:`dsstan.risk.floors.Floor`.
    copies
        L planned.
    protection
        See :func:`dsstan.fit`. Under ``"paper"`` a floor exists through the
        coefficients; under ``"cut"`` smoothing is all or nothing.
    variances
        Against an intruder to whom the variances are ``"known"``, the cautious choice, or
        ``"fixed"``; see :meth:`dsstan.risk.intruder.attacker.Attack.sd`.
    candidates
        Records that may be smoothed; by default all.
    refits
        How often to fit again and solve again where a record fell below.
    draws
        Posterior draws of the final check.
    engine
        Of the refits; ``"auto"`` is that of ``free``, as are all their other settings.

    Raises
    ------
    InputError
        If the floor is no floor, or above what a record has without any copy.
    """
    asked = Floor.parse(floor)
    _check(free, copies, protection, variances)
    problem = free.problem
    least = asked.least_sd(problem)
    plan = _Plan(protection, variances, int(copies), float(np.median(free.draws["phi"])))
    may = np.ones(problem.n_records, bool) if candidates is None else np.asarray(candidates, bool)
    strength, base = np.zeros(problem.n_records), free
    aim = least * _SLACK
    settings = {**settings_of(free), **({} if engine == "auto" else {"engine": engine})}
    for number in range(max(1, refits)):
        strength = _solve(base, free, strength, may, aim, plan)
        weights, gamma = _as_weights(free, strength)
        restricted = fit(
            problem,
            weights=weights,
            gamma=gamma,
            protection=protection,
            start=free,
            seed=None if seed is None else seed + number,
            progress=progress,
            **settings,
        )
        final = attack(restricted, against=free, copies=copies, draws=draws, progress=progress)
        sd = final.sd(variances=variances)
        if np.all(sd[may] >= least[may]):
            break
        # What the refit took away is asked for beside what is still missing.
        base, aim = restricted, np.where(sd < least, aim * least / sd, aim)
    unmet = np.flatnonzero(sd < least)
    return Targets(
        weights=weights,
        gamma=gamma,
        fit=restricted,
        attack=final,
        floor=float(np.median(least)),
        copies=int(copies),
        variances=variances,
        unmet=unmet,
        message=_message(restricted, free, final, unmet, strength, asked, plan),
    )


def _check(free: Fit, copies: int, protection: str, variances: str) -> None:
    """Refuse what can't be solved."""
    if free.kind != "unrestricted":
        raise InputError("targets are solved for from the unrestricted fit")
    check_count("copies", copies)
    check_protection(protection)
    if variances not in ("fixed", "known"):
        raise InputError('variances must be "fixed" or "known"')


def _planned_sd(base: Fit, free: Fit, A: Floats, flagged: Truths, plan: _Plan) -> Floats:
    """Attacker sd of each record, shape (N,), of copies with this A: a guess until the refit.

    The variances are those of some draws of ``base``, the decay that of the plan.
    """
    alone = unrestricted_terms(free).precision
    model = base.model_with(A=A, protection=plan.protection, phi_held=plan.phi)
    effect = "w*" if protection_of(plan.protection).smoothed_copies else "w"
    points = [
        replace(parameters_at(base, int(chain), int(iteration)), phi=plan.phi)
        for chain, iteration in averaged_draws(base, _SOLVING_DRAWS)
    ]
    with threadpool_limits(limits=1, user_api="blas"):
        terms = model.covariance.attack_terms(model, points, carried_at(A, flagged, effect))
    found = MeanTerms.over(alone, terms)
    one = found.information + (found.leak if plan.variances == "known" else 0.0)
    with np.errstate(divide="ignore"):
        return np.asarray(1.0 / np.sqrt((1.0 / np.sqrt(alone)) ** -2 + plan.copies * one))


def _solve(
    base: Fit,
    free: Fit,
    strength: Floats,
    may: Truths,
    aim: Floats,
    plan: _Plan,
) -> Floats:
    """gamma a_i of every record by bisection in logs, all records at once, in sweeps."""

    def sd_at(strengths: Floats) -> Floats:
        weights, gamma = _as_weights(free, strengths)
        return _planned_sd(base, free, smoothing(gamma, weights.a), weights.flagged, plan)

    current = strength.copy()
    for _ in range(_SWEEPS):
        short = may & (sd_at(current) < aim)
        if not short.any():
            return current
        if protection_of(plan.protection).flagged_leave:
            current = np.where(short, FULL, current)
            _require_some_to_stay(free, current, plan)
            continue
        low, high = np.log(np.maximum(current, 1e-3)), np.full(current.size, np.log(FULL))
        for _ in range(_STEPS):
            trial = np.where(short, np.exp(0.5 * (low + high)), current)
            meets = sd_at(trial) >= aim
            high = np.where(short & meets, 0.5 * (low + high), high)
            low = np.where(short & ~meets, 0.5 * (low + high), low)
        current = _unmixed(np.where(short, np.exp(high), current), plan.protection)
    return current


def _require_some_to_stay(free: Fit, strength: Floats, plan: _Plan) -> None:
    """Refuse targets that leave too few records to fit, before a fit is tried."""
    problem, stay = free.problem, np.flatnonzero(strength == 0)
    try:
        check_cut(problem.X[stay], stay.size, problem)
    except InputError as error:
        raise InputError(
            f"{strength.size - stay.size} of {strength.size} records fall short of the floor at "
            f"{plan.copies} copies; {error}. Or ask for a lower floor or fewer copies, or name "
            "fewer candidates"
        ) from error


def _unmixed(strength: Floats, protection: str) -> Floats:
    """Under ``paper`` all smoothed records fully, if one is.

    Copies of partly smoothed records carry w*, which for a record with A near 0 is a fixed
    effect and hides little; those of a fully smoothed one carry w, a draw from its
    conditional prior. One release carries one or the other.
    """
    if protection_of(protection).smoothed_copies and np.any(strength >= FULL * 0.99):
        return np.where(strength > 0, FULL, 0.0)
    return strength


def _as_weights(free: Fit, strength: Floats) -> tuple[Weights, float]:
    """Weights and gamma with ``a gamma`` the strengths; infinity where all are full or none."""
    positive = strength > 0
    if np.all(strength[positive] >= FULL * 0.99):
        gamma, a = float("inf"), positive.astype(np.float64)
    else:
        gamma = float(strength.max())
        a = strength / gamma
    nan = float("nan")
    nearest = neighbour_distances(free.problem)
    return Weights(a, "target", nan, nan, nearest, a.copy()), gamma


def _message(
    restricted: Fit,
    free: Fit,
    final: Attack,
    unmet: Indices,
    strength: Floats,
    floor: Floor,
    plan: _Plan,
) -> str:
    """What was reached, what was not and why."""
    least = floor.least_sd(free.problem)
    smoothed = strength > 0
    full = strength >= FULL * 0.99
    n, copies, variances = strength.size, plan.copies, plan.variances
    lines = [
        f"{int(smoothed.sum())} of {n} records smoothed under {restricted.protection}, "
        f"{int(full.sum())} of them fully; floor of {floor} at {copies} copies "
        f"({variances} variances) met by {n - unmet.size} of {n} records"
    ]
    if unmet.size == 0:
        return lines[0]
    hopeless = int(np.sum(final.leave_one_out[unmet] < least[unmet]))
    if hopeless:
        lines.append(
            f"{hopeless} records are known better than that without any copy, from their "
            "neighbours: no smoothing helps; lower the floor"
        )
    leaking = unmet[full[unmet] & (final.leave_one_out[unmet] >= least[unmet])]
    if restricted.protection not in _OTHERS and leaking.size:
        lines.append(
            f"{leaking.size} fully smoothed records still miss it: under paper they leak through "
            "the coefficients, which no smoothing lowers. "
            + _others(free, restricted, final, leaking, plan)
        )
    plain = unmet[~smoothed[unmet]]
    if plain.size:
        ratio = float(np.mean(free.draws["sigma_sq"] / free.draws["tau_sq"]))
        most = final.largest_release(least, variances=variances)
        lines.append(
            f"{plain.size} unsmoothed records miss it: sigma_sq / tau_sq is {ratio:.3g} and L is "
            f"{copies}, so each copy follows every record closely. Fewer copies help (at most "
            f"{most} for all records), or more records to smooth"
        )
    return "\n".join(lines)


def _others(free: Fit, restricted: Fit, final: Attack, leaking: Indices, plan: _Plan) -> str:
    """What the other protections would give the leaking records."""
    found = {plan.protection: final.sd(variances=plan.variances)}
    for name in _OTHERS:
        other = replace(plan, protection=name)
        found[name] = _planned_sd(restricted, free, restricted.A, restricted.flagged, other)
    smallest = [f"{name} {float(sd[leaking].min()):.3g}" for name, sd in found.items()]
    return f"Smallest sd of them: {', '.join(smallest)}"
