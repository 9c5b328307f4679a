"""What an intruder who knows all the other records is left with: the result of an attack."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dsstan.core.errors import InputError, check_count
from dsstan.covariance.vecchia.exposure import SURROUNDINGS
from dsstan.risk.intruder.former import Former
from dsstan.risk.intruder.planned import (
    most_copies,
    planned_information,
    sd_with,
    spread_of_sd,
)

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Attack:
    """An intruder's posterior sd of every record, on the modelled scale. Confidential.

    Attributes
    ----------
    leave_one_out
        sd without any copy, shape (N,); infinite where a record has a coefficient
        of its own. See :class:`dsstan.risk.intruder.leave_one_out.LeaveOneOut`.
    information
        Information of one copy on y_i with the variances fixed, shape (N,): the mean over the
        released draws, so that L times it is their sum. Of a plan, the 95% quantile of that mean
        over sets of L posterior draws.
    leak
        What is added for an intruder who knows the variances, a copy, shape (N,): the
        mean squared deviation of the score at the released draws from its posterior mean, or its
        posterior variance where that is more. Of a plan, the like quantile, less ``information``.
    error
        Monte Carlo standard error of ``information + leak``, shape (N,), as that of a mean of as
        many draws as were released or, of a plan, as were averaged over. That of an sd is
        :meth:`relative_error`.
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
    looked_at
        At how many of the draws behind them the terms were computed, which then stand for all;
        None where there are none.
    by_draw
        Information of one copy at each posterior draw, variances fixed and known, shape
        (2, draws, N). Numbers of copies other than the released come from it; without it they
        are in proportion.
    former
        Other releases of the table that the intruder has too; their information is in every sd.
    margin
        Factors on the sd after released copies, variances fixed and known. They make the two
        bounds of the exact posterior; 1 of a plan, and where copies say nothing of a record.
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
    looked_at: int | None = None
    by_draw: Floats | None = field(repr=False, default=None)
    former: Former | None = None
    margin: tuple[float, float] = (1.0, 1.0)

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
            the intruder knows each, the lower bound. Of a release both have their margin.
        """
        count = self.copies if copies is None else copies
        check_count("copies", count, least=0)
        gain = self._of_all(int(count), variances)
        return sd_with(self.leave_one_out**-2, gain, self.margin[variances == "known"])

    @property
    def approximated(self) -> str:
        """What the terms were made from, in words; empty where they are exact."""
        if self.left_out is None:
            return ""
        made = f"from the {SURROUNDINGS} records around each, at {self.draws} posterior draws"
        if self.looked_at is None or self.looked_at == self.released:
            return made
        return f"{made} and {self.looked_at} of the {self.released} behind the copies"

    def relative_error(self, copies: int | None = None, *, variances: str = "known") -> Floats:
        """Monte Carlo error of :meth:`sd`, as a share of the sd: how far other draws move it.

        Of a release, as many draws as it was made from; of a plan, as many as it averages over.
        Both parts count: the copies' information and the leave-one-out sd.
        """
        count = self.copies if copies is None else copies
        whole = self.leave_one_out**-2 + self._of_all(count, variances)
        if self.by_draw is None:
            error = 0.5 * count * self.error / whole
        else:
            others = whole - self.own_information(count, variances)
            plan, known = count > (self.released or 0), variances == "known"
            error = spread_of_sd(self.by_draw[int(known)], count, others, plan=plan)
            if known and count:
                # What the released draws of the variances reveal is a sum of L squares.
                leak = 0.5 * count * self.leak / whole * np.sqrt(2.0 / count)
                error = np.maximum(error, 0.0 if plan else leak)
        error = error * np.sqrt(self.draws / self.effective)
        if self.leave_one_out_error is not None:
            error = np.hypot(error, self.leave_one_out_error * self.leave_one_out**-3.0 / whole)
        return np.asarray(error)

    def _of_all(self, count: int, variances: str) -> Floats:
        """Information of so many copies and of the former releases, shape (N,)."""
        own = self.own_information(count, variances)
        return own if self.former is None else own + self.former.information(variances)

    def own_information(self, count: int, variances: str) -> Floats:
        """Information of so many copies alone, shape (N,); see :meth:`sd`."""
        if variances not in ("fixed", "known"):
            raise InputError('variances must be "fixed" or "known"')
        known = variances == "known"
        own = count * (self.information + (self.leak if known else 0.0))
        if self.by_draw is None or count <= (self.released or 0):
            return np.asarray(own)
        planned = planned_information(self.by_draw[int(known)], count)
        return planned if self.released is None else np.maximum(own, planned)

    def planned(self, count: int) -> Floats:
        """Information to expect of so many more copies of this fit, variances known, shape (N,)."""
        if self.by_draw is None:
            return np.asarray(count * (self.information + self.leak))
        return planned_information(self.by_draw[1], count)

    def largest_release(self, floor: float | Floats, *, variances: str = "known") -> int:
        """Most copies for which every record's sd stays at or above a floor; 0 if none.

        Never more than 10^9, the answer where no number of copies is too many.

        Parameters
        ----------
        floor
            The least sd on the modelled scale, one number or one a record, shape (N,), as
            :meth:`dsstan.risk.floors.Floor.least_sd` gives it.
        variances
            As in :meth:`sd`; the cautious choice is the default.
        """
        least = np.asarray(floor, dtype=np.float64)
        if not (np.all(np.isfinite(least)) and np.all(least >= 0) and np.any(least > 0)):
            raise InputError("the floor must be positive and finite")
        least = least * (1.0 + (self.left_out or 0.0))

        def kept(count: int) -> bool:
            return bool(np.all(self.sd(count, variances=variances) >= least))

        return most_copies(kept)

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
        if self.former is not None:
            out += f"\n{self.former}"
        if self.left_out is None:
            return out
        return (
            f"{out}\n{self.approximated}; in a sample of records, with three times as many around, "
            f"the sd is smaller by {100 * self.left_out:.2g}% at most"
        )
