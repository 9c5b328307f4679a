"""What a whole release reveals to an intruder who knows all the other records.

The paper looks at one copy at a time. Here an intruder knows every other y and
sees all L copies. Given the draws of the variances everything is normal, so the intruder's
posterior of y_i is exact:

    precision_i = 1 / v_i + sum_l h_i(theta_l)' Vs(theta_l)^-1 h_i(theta_l)

v_i is the leave-one-out variance (:mod:`dsstan.risk.intruder.leave_one_out`), h_i the i-th
column of H = dE[copy]/dy, Vs the covariance of a copy given y, and theta_l the draw behind
copy l. The sum is over the draws that were released. Where the nugget is weak, a few draws carry
most of the information, and a mean over other draws says little of those released.

Before a release there are no such draws. The information is then a high quantile over
sets of L posterior draws, so that a plan errs on the safe side.

The variances were estimated from data that hold y_i, so their draws reveal something as well: an
intruder who knows a draw gains the squared deviation of its (P y)_i from the posterior mean. Few
released draws may lie near that mean by chance, so this gain is never taken as less than the
posterior variance of (P y)_i. These gains are taken at the y_i that is true, so the posterior
they describe is a normal approximation. For a release they are compared with
:mod:`dsstan.risk.intruder.known_variances`, which needs none, and a margin makes them bounds of the
exact posterior (:mod:`dsstan.risk.intruder.exact`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from dsstan.copies.result import Synthesis, require_one_column
from dsstan.core.errors import InputError, check_count
from dsstan.core.progress import progress_bar
from dsstan.covariance.base import Terms
from dsstan.covariance.latent import require_gaussian
from dsstan.covariance.vecchia.exposure import left_out
from dsstan.models.posterior import parameters_at, spread_draws
from dsstan.models.predictive import EFFECTS, carried_effect
from dsstan.models.result import Fit
from dsstan.risk.intruder.attack_result import Attack
from dsstan.risk.intruder.former import Former, published_before
from dsstan.risk.intruder.known_variances import KnownVariances, affordable, known_variances
from dsstan.risk.intruder.leave_one_out import (
    DRAWS,
    MeanTerms,
    averaged_draws,
    leave_one_out,
    mean_terms,
    terms_at,
    unrestricted_terms,
)
from dsstan.risk.intruder.planned import planned_information
from dsstan.table.problem import require_complete

__all__ = ["MARGIN", "Attack", "attack", "planned_release"]

Floats = NDArray[np.float64]

MARGIN = (1.25, 0.8)
"""Factors on the sd after a release, variances fixed and known. The exact posterior's sd then lies
between the two in 95 of 100 cases and never far below the lower one: see
``tests/risk/bound_cases.py``, which computes how often for other factors."""


def attack(
    release: Synthesis | Fit,
    *,
    against: Fit | None = None,
    copies: int | None = None,
    effect: str = "auto",
    draws: int | None = None,
    former: Former | bool = True,
    progress: bool | None = None,
) -> Attack:
    """What an intruder who knows all other records learns of each from the whole release.

    Parameters
    ----------
    release
        The copies, or a fit from which copies are planned.
    against
        The unrestricted fit of the leave-one-out benchmark; by default the one
        the release's fit started from.
    copies
        L planned; by default the release's. For a fit the result is a plan, which errs on the
        safe side; for a release it is that of its own draws.
    effect
        For a fit: as in :func:`dsstan.synthesise`.
    draws
        Posterior draws, spread evenly over the chains, for what a release does not settle: the
        plan, the score's posterior mean and variance, Monte Carlo errors; at least 2. By
        default 400 where many cost little (an unrestricted fit, or a held decay, and no noise),
        else 100, of more than 500 records 20; under an approximated covariance 20, of more than
        20,000 records fewer, down to 4, and then no more of the released draws stand for all.
    former
        Other releases of the table that the intruder has too; by default those that the ledger
        says were published, none for False.

    Raises
    ------
    InputError
        If there is no unrestricted fit to compare with, or an argument is out of
        range.
    """
    begin = time.perf_counter()
    fit, free, planned, effect = planned_release(release, against, copies, effect)
    carried, carries = carried_effect(fit, effect)
    noise = release.noise if isinstance(release, Synthesis) else None
    unrestricted = fit.kind == "unrestricted" and carries == "w" and noise is None
    if draws is None:
        draws = min(fit.covariance.draws_by_default(fit, carried, noise=noise), fit.n_draws)
    picks = averaged_draws(fit, draws)
    with (
        threadpool_limits(limits=1, user_api="blas"),
        progress_bar("attack", progress) as advance,
    ):
        alone = leave_one_out(free, draws=DRAWS)  # one benchmark, whatever the copies need
        known = _known_variances(release, fit, free, carried)
        own = (
            unrestricted_terms(fit, draws)
            if unrestricted
            else mean_terms(fit, picks, carries, noise)
        )
        released = None
        if isinstance(release, Synthesis):
            places = release.draw_index
            if fit.covariance.approximate:
                places = places[:: -(-len(places) // len(picks))]
            released = terms_at(fit, places, carries, noise)
        advance(1.0)
    information, leak = of_one_copy(own, released, planned)
    if known is not None and isinstance(release, Synthesis):
        with np.errstate(divide="ignore"):
            gain = known.sd**-2.0 - known.alone**-2.0
        more = np.maximum(leak, gain / release.copies - information)
        leak = np.where(information + leak > 0, more, leak)  # else a gain is rounding
    exposure = own.exposure
    error = own.error
    if isinstance(release, Synthesis) and released is not None:
        exposure = np.mean([t.exposure for t in released], axis=0)
        error = own.error * np.sqrt(own.draws / min(release.copies, own.draws))
    return Attack(
        leave_one_out=alone.sd if known is None else known.alone,
        information=information,
        leak=leak,
        error=error,
        exposure=exposure,
        flagged=fit.flagged,
        index=fit.problem.table.index,
        copies=planned,
        draws=len(picks),
        effective=_effective(fit, len(picks)),
        seconds=time.perf_counter() - begin,
        left_out=_left_out(fit, free, effect, planned),
        pareto_k=alone.pareto_k,
        leave_one_out_error=alone.error if known is None else np.zeros_like(alone.error),
        released=release.copies if isinstance(release, Synthesis) else None,
        looked_at=None if released is None else len(released),
        by_draw=own.by_draw,
        former=published_before(
            fit.problem, release.values if isinstance(release, Synthesis) else None, former
        ),
        margin=MARGIN if isinstance(release, Synthesis) else (1.0, 1.0),
    )


def of_one_copy(
    own: MeanTerms, released: Sequence[Terms] | None, copies: int
) -> tuple[Floats, Floats]:
    """Information and leak of one copy, as :class:`Attack` has them."""
    if released is None:
        fixed, known = (planned_information(part, copies) / copies for part in own.by_draw)
        return fixed, np.maximum(known - fixed, 0.0)
    scores = np.stack([t.score for t in released])
    centre = np.mean([t.score for t in own.terms], axis=0)
    leak = np.maximum(np.mean((scores - centre) ** 2, axis=0), own.leak)
    information = np.mean([t.information for t in released], axis=0)
    # Those who do not know that a copy's variances say little count on the mean over all.
    return information, leak + np.maximum(own.information - information, 0.0)


def _known_variances(
    release: Synthesis | Fit, fit: Fit, free: Fit, carried: Floats
) -> KnownVariances | None:
    """Posterior sds with the draws behind the copies known, where they can be computed."""
    if not isinstance(release, Synthesis) or release.noise is not None:
        return None
    points = [parameters_at(fit, int(chain), int(step)) for chain, step in release.draw_index]
    if not affordable(fit, free, len({p.phi for p in points})):
        return None
    return known_variances(fit, free, release.modelled(), points, carried)


def _left_out(fit: Fit, free: Fit, effect: str, copies: int) -> float | None:
    """What the surroundings leave out, at one draw; None under the exact covariance."""
    if not fit.covariance.approximate:
        return None
    places = [spread_draws(one, 2)[0] for one in (fit, free)]
    own, unrestricted = (
        parameters_at(one, int(chain), int(iteration))
        for one, (chain, iteration) in zip((fit, free), places, strict=True)
    )
    return left_out(fit, own, carried_effect(fit, effect)[0], copies, free, unrestricted)


def _effective(fit: Fit, draws: int) -> float:
    """Draws that count as independent, at least 2."""
    size = fit.worst_ess
    return float(max(2.0, min(draws, size))) if np.isfinite(size) else 2.0


def planned_release(
    release: Synthesis | Fit, against: Fit | None, copies: int | None, effect: str
) -> tuple[Fit, Fit, int, str]:
    """The fit, the unrestricted fit to compare with, L and the effect, all checked.

    Raises
    ------
    InputError
        If there is no unrestricted fit of the same problem, L is not a whole
        number from 1 on, or the effect is unknown.
    """
    fit = release.fit if isinstance(release, Synthesis) else release
    require_gaussian(fit)
    require_complete(fit.problem)
    if isinstance(release, Synthesis):
        require_one_column(release)
    planned = copies
    if isinstance(release, Synthesis):
        effect, planned = release.effect, release.copies if copies is None else copies
    planned = 1 if planned is None else planned
    check_count("copies", planned)
    if effect not in EFFECTS:
        raise InputError(f"effect must be one of {', '.join(EFFECTS)}, got {effect!r}")
    free = against or (fit if fit.kind == "unrestricted" else fit.start)
    if free is None:
        raise InputError("give against, the unrestricted fit of the same problem")
    if free.problem is not fit.problem:
        raise InputError("against is of another problem; both must come from the same prepare()")
    if free.kind != "unrestricted":
        raise InputError("the leave-one-out benchmark comes from the unrestricted fit")
    return fit, free, int(planned), effect
