"""What a whole release reveals to an intruder who knows all the other records.

The paper looks at one copy at a time. Here an intruder knows every other y and
sees all L copies. Given the draws of the variances everything is normal, so the intruder's
posterior of y_i is exact:

    precision_i = 1 / v_i + sum_l h_i(theta_l)' Vs(theta_l)^-1 h_i(theta_l)

v_i is the leave-one-out variance (:mod:`dsstan.risk.leave_one_out`), h_i the i-th
column of H = dE[copy]/dy, Vs the covariance of a copy given y, and theta_l the draw behind
copy l. The sum is over the draws that were released. Where the nugget is weak, a few draws carry
most of the information, and a mean over other draws says little of those released.

Before a release there are no such draws. The information is then a high quantile over
sets of L posterior draws, so that a plan errs on the safe side.

The variances were estimated from data that hold y_i, so their draws speak as well: an intruder
who knows a draw gains the squared deviation of its (P y)_i from the posterior mean. Few
released draws may lie near that mean by chance, so this gain is never taken as less than the
posterior variance of (P y)_i. These gains are taken at the y_i that is true, so the posterior
they describe is a normal approximation; :mod:`dsstan.risk.exact` computes the exact one.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from dsstan.copies.result import Synthesis, require_one_column
from dsstan.core.errors import InputError
from dsstan.core.progress import progress_bar
from dsstan.covariance.base import Terms
from dsstan.covariance.latent import require_gaussian
from dsstan.covariance.vecchia.exposure import left_out
from dsstan.models.posterior import parameters_at, spread_draws
from dsstan.models.predictive import EFFECTS, carried_effect
from dsstan.models.result import Fit
from dsstan.risk.leave_one_out import (
    DRAWS,
    MeanTerms,
    averaged_draws,
    leave_one_out,
    mean_terms,
    terms_at,
    unrestricted_terms,
)
from dsstan.risk.planned import planned_information
from dsstan.table.problem import require_complete

Floats = NDArray[np.float64]

MOST_COPIES = 10**9
"""Answer where no number of copies is too many."""


@dataclass(frozen=True, eq=False)
class Attack:
    """An intruder's posterior sd of every record, on the modelled scale. Confidential.

    Attributes
    ----------
    leave_one_out
        sd without any copy, shape (N,); infinite where a record has a coefficient
        of its own. See :class:`dsstan.risk.leave_one_out.LeaveOneOut`.
    information
        Information of one copy on y_i with the variances fixed, shape (N,): the mean over the
        released draws, so that L times it is their sum. Of a plan, the 95% quantile of that mean
        over sets of L posterior draws.
    leak
        What is added for an intruder who knows the variances, a copy, shape (N,): the
        mean squared deviation of the score at the released draws from its posterior mean, or its
        posterior variance where that is more. Of a plan, the like quantile, less ``information``.
    error
        Monte Carlo standard error of ``information + leak``, shape (N,): how far it would move
        with other draws, as many as were released or, of a plan, as were averaged over.
    exposure
        h_ii, shape (N,); a mean over the released draws, or the plan's.
    draws, effective
        Posterior draws averaged over; of them, at most as many count for an error as the
        fit's effective sample size.
    left_out
        Where the terms come from the records around each
        (:mod:`dsstan.covariance.vecchia.exposure`), how much larger the sd is at most, in a sample
        of records, than with three times as many around; it errs on the unsafe side. Floors are
        compared with an sd smaller by that much. None where the terms are exact.
    pareto_k
        Of the leave-one-out weights, shape (N,); None where they were not computed.
    leave_one_out_error
        Monte Carlo standard error of ``leave_one_out``, shape (N,), or None.
    released
        How many copies there are; None where they are only planned.
    by_draw
        Information of one copy at each posterior draw, variances fixed and known, shape
        (2, draws, N). Numbers of copies other than the released come from it; without it they
        are in proportion.
    """

    leave_one_out: Floats = field(repr=False)
    information: Floats = field(repr=False)
    leak: Floats = field(repr=False)
    error: Floats = field(repr=False)
    exposure: Floats = field(repr=False)
    flagged: NDArray[np.bool_] = field(repr=False)
    index: pd.Index = field(repr=False)
    copies: int
    draws: int
    effective: float
    seconds: float
    left_out: float | None = None
    pareto_k: Floats | None = field(repr=False, default=None)
    leave_one_out_error: Floats | None = field(repr=False, default=None)
    released: int | None = None
    by_draw: Floats | None = field(repr=False, default=None)

    def sd(self, copies: int | None = None, *, variances: str = "fixed") -> Floats:
        """Posterior sd of each y_i after L copies, shape (N,).

        Parameters
        ----------
        copies
            L; by default the number released or planned. Fewer copies than were released
            have a proportional share of the information. More have at least that, and at least
            what is planned for as many (the 95% quantile over sets of draws).
        variances
            ``"fixed"``: their draws reveal nothing, the upper bound; ``"known"``:
            the intruder knows each, the lower bound. An intruder who does not know
            them learns something between. About a record whose value is
            unremarkable, so that the bounds meet, they may learn a few per cent
            less than either, not knowing a copy's variances.
        """
        count = self.copies if copies is None else copies
        if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 0:
            raise InputError("copies must be a whole number from 0 on")
        precision = self.leave_one_out**-2 + self._of_copies(int(count), variances)
        with np.errstate(divide="ignore"):
            return np.asarray(1.0 / np.sqrt(precision))

    def relative_error(self) -> Floats:
        """Monte Carlo error of the sd after L copies, known variances, as a share of the sd.

        Both parts count: the copies' information and the leave-one-out sd.
        """
        precision = self.sd(variances="known") ** -2
        error = self.copies * self.error * np.sqrt(self.draws / self.effective)
        if self.leave_one_out_error is not None:
            alone = self.leave_one_out_error * 2.0 * self.leave_one_out**-3.0
            error = np.hypot(error, alone)
        return np.asarray(0.5 * error / precision)

    def _of_copies(self, count: int, variances: str) -> Floats:
        """Information of so many copies, shape (N,)."""
        if variances not in ("fixed", "known"):
            raise InputError('variances must be "fixed" or "known"')
        known = variances == "known"
        own = count * (self.information + (self.leak if known else 0.0))
        if self.by_draw is None or count <= (self.released or 0):
            return np.asarray(own)
        planned = planned_information(self.by_draw[int(known)], count)
        return planned if self.released is None else np.maximum(own, planned)

    def largest_release(self, floor: float, *, variances: str = "known") -> int:
        """Most copies for which every record's sd stays at or above a floor; 0 if none.

        Never more than 10^9, the answer where no number of copies is too many.

        Parameters
        ----------
        floor
            On the modelled scale: under log, 0.1 is about ten per cent.
        variances
            As in :meth:`sd`; the cautious choice is the default.
        """
        if not (np.isfinite(floor) and floor > 0):
            raise InputError("the floor must be positive and finite")
        floor *= 1.0 + (self.left_out or 0.0)
        # The limit may fall short of a whole number by rounding alone.
        room = (floor**-2 - self.leave_one_out**-2) * (1 + 1e-12)
        if np.any(room < 0):
            return 0

        def kept(count: int) -> bool:
            return bool(np.all(self._of_copies(count, variances) <= room))

        low, high = 0, 1
        while high < MOST_COPIES and kept(high):
            low, high = high, min(2 * high, MOST_COPIES)
        if kept(high):
            return high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if kept(middle) else (low, middle)
        return low

    def table(self, copies: Sequence[int] | None = None) -> pd.DataFrame:
        """One row a record: exposure, and sds without copies and after L of them."""
        planned = sorted({1, self.copies, 500}) if copies is None else list(copies)
        out = pd.DataFrame(
            {
                "flagged": self.flagged,
                "exposure": self.exposure,
                "leave_one_out": self.leave_one_out,
            },
            index=self.index,
        )
        for count in planned:
            out[f"fixed_{count}"] = self.sd(count)
            out[f"known_{count}"] = self.sd(count, variances="known")
        return out

    def curve(self, copies: Sequence[int] = (1, 2, 5, 10, 20, 50, 100, 200, 500)) -> pd.DataFrame:
        """Smallest and median sd against L, for flagged and for other records."""
        rows = []
        for count in copies:
            for variances in ("fixed", "known"):
                sd = self.sd(count, variances=variances)
                for group, members in (("flagged", self.flagged), ("unflagged", ~self.flagged)):
                    if members.any():
                        rows.append(
                            (count, variances, group, sd[members].min(), np.median(sd[members]))
                        )
        return pd.DataFrame(rows, columns=["copies", "variances", "group", "smallest", "median"])

    def __str__(self) -> str:
        table = self.table()
        text = table.groupby("flagged").min().to_string(float_format=lambda v: f"{v:.3g}")
        out = (
            "Smallest sd left to an intruder who knows all other records\n"
            f"(modelled scale, {self.draws} posterior draws)\n{text}"
        )
        if self.left_out is None:
            return out
        return (
            f"{out}\nfrom the records around each; in a sample, with three times as many around, "
            f"the sd is smaller by {100 * self.left_out:.2g}% at most"
        )


def attack(
    release: Synthesis | Fit,
    *,
    against: Fit | None = None,
    copies: int | None = None,
    effect: str = "auto",
    draws: int | None = None,
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
        default 400 where an eigenbasis serves (an unrestricted
        fit, or a held decay with records smoothed fully or not at all), else 100, of
        more than 500 records 20; under an approximated covariance 8, of more than 20,000
        records 4, and then as many of the released draws stand for all.

    Raises
    ------
    InputError
        If there is no unrestricted fit to compare with, or an argument is out of
        range.
    """
    begin = time.perf_counter()
    fit, free, planned, effect = planned_release(release, against, copies, effect)
    carried, carries = carried_effect(fit, effect)
    unrestricted = fit.kind == "unrestricted" and carries == "w"
    if draws is None:
        draws = min(fit.covariance.draws_by_default(fit, carried), fit.n_draws)
    picks = averaged_draws(fit, draws)
    with (
        threadpool_limits(limits=1, user_api="blas"),
        progress_bar("attack", progress) as advance,
    ):
        alone = leave_one_out(free, draws=DRAWS)  # one benchmark, whatever the copies need
        own = unrestricted_terms(fit, draws) if unrestricted else mean_terms(fit, picks, carries)
        released = None
        if isinstance(release, Synthesis):
            places = release.draw_index
            if fit.covariance.approximate:
                places = places[:: -(-len(places) // len(picks))]
            released = terms_at(fit, places, carries)
        advance(1.0)
    information, leak = _of_one_copy(own, released, planned)
    exposure = own.exposure
    error = own.error
    if isinstance(release, Synthesis) and released is not None:
        exposure = np.mean([t.exposure for t in released], axis=0)
        error = own.error * np.sqrt(own.draws / min(release.copies, own.draws))
    return Attack(
        leave_one_out=alone.sd,
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
        leave_one_out_error=alone.error,
        released=release.copies if isinstance(release, Synthesis) else None,
        by_draw=own.by_draw,
    )


def _of_one_copy(
    own: MeanTerms, released: Sequence[Terms] | None, copies: int
) -> tuple[Floats, Floats]:
    """Information and leak of one copy, as :class:`Attack` has them."""
    if released is None:
        fixed, known = (planned_information(part, copies) / copies for part in own.by_draw)
        return fixed, np.maximum(known - fixed, 0.0)
    scores = np.stack([t.score for t in released])
    centre = np.mean([t.score for t in own.terms], axis=0)
    leak = np.maximum(np.mean((scores - centre) ** 2, axis=0), own.leak)
    return np.mean([t.information for t in released], axis=0), leak


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
    whole = isinstance(planned, int | np.integer) and not isinstance(planned, bool)
    if not whole or planned < 1:
        raise InputError("copies must be a whole number of at least 1")
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
