"""What every intruder of a release is left with: the numbers behind an assessment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import ndtr, stdtrit

from dsstan.copies.result import Synthesis
from dsstan.core.arrays import Floats, Indices
from dsstan.core.display import Shown
from dsstan.core.errors import InputError
from dsstan.risk.chance_named import least_sd_unnamed
from dsstan.risk.disclosure import Disclosure
from dsstan.risk.floors import Floor
from dsstan.risk.intruder.attacker import Attack
from dsstan.risk.intruder.exact import ExactIntruder
from dsstan.risk.intruder.proxies import Proxies
from dsstan.risk.intruder.public_files import PublicFiles
from dsstan.risk.naming import Naming
from dsstan.risk.placing import half_width, placing_table
from dsstan.risk.sd_tables import narrowest_by_copies, smallest_and_median, smallest_by_copies

MANY = 500
"""A number of copies that stands for a very large release."""

ERRORS, MATERIAL = 3.0, 1.05
"""A rise of risk is reported beyond so many Monte Carlo errors, and from this ratio of sds on."""

BOUNDS = ("known", "fixed")
"""What they know of the variances, for the least and the most sd that they can be left with."""


@dataclass(frozen=True, eq=False, repr=False)
class AssessedNumbers(Shown):
    """What every intruder is left with. Confidential.

    Attributes
    ----------
    release
        The copies.
    shares
        Copies near the truth, one at a time; see :func:`dsstan.disclosure`.
    after, before
        The intruder who knows all other records and sees these copies, and as many without
        protection. ``before`` is None where the release itself is unprotected; both are None where
        no intruder could be computed.
    absence
        Why no intruder was computed; None where one was.
    asked
        The floor that was asked for, or None.
    least_sd
        The least sd that it wants of every record, modelled scale, shape (N,), or None.
    seconds
        Wall time.
    exact, exact_before
        The exact posterior of the weakest records (:mod:`dsstan.risk.intruder.exact`), of these
        copies and, for the same records, of as many without protection; None where it was not
        computed.
    public, public_before
        What the public files alone give, of these copies and of as many without protection, or
        None.
    naming
        The chance that each value is named exactly (:mod:`dsstan.risk.naming`); None where no
        intruder could be computed.
    proxies
        What the published columns say of the response beyond the model
        (:mod:`dsstan.risk.intruder.proxies`), which every sd counts; None likewise.
    codes
        Published columns that may be codes of the response, such as a hash of it
        (``possible_codes`` of ``dsstan.table.column_roles``): no number says what they reveal.
    """

    release: Synthesis = field(repr=False)
    shares: Disclosure = field(repr=False)
    after: Attack | None = field(repr=False)
    before: Attack | None = field(repr=False)
    absence: str | None
    asked: Floor | None
    least_sd: Floats | None = field(repr=False)
    seconds: float
    exact: ExactIntruder | None = field(repr=False, default=None)
    exact_before: ExactIntruder | None = field(repr=False, default=None)
    public: PublicFiles | None = field(repr=False, default=None)
    public_before: PublicFiles | None = field(repr=False, default=None)
    naming: Naming | None = field(repr=False, default=None)
    proxies: Proxies | None = field(repr=False, default=None)
    codes: tuple[str, ...] = ()

    @property
    def intruder(self) -> Attack:
        """The intruder who sees these copies.

        Raises
        ------
        InputError
            If none was computed.
        """
        if self.after is None:
            raise InputError(str(self.absence))
        return self.after

    @property
    def floor(self) -> float | None:
        """The least sd asked for, of the median record where they differ; None without a floor."""
        return None if self.least_sd is None else float(np.median(self.least_sd))

    @property
    def floor_share(self) -> float | None:
        """The floor as a share of the value, of the median record; None without a floor."""
        if self.least_sd is None:
            return None
        asked = None if self.asked is None else self.asked.share
        at = float(np.median(half_width(self.release.problem, self.least_sd)))
        return asked or (at if np.isfinite(at) else None)

    @property
    def sd(self) -> Floats:
        """The sd left to an intruder who knows all other records, modelled scale, shape (N,).

        The exact one where it was computed, or that of the normal law whose 95% interval is as
        short as the shortest of the posterior if that is less, but never more than the upper bound
        or than without any copy; else the lower bound, as if the intruder knew the variances behind
        each copy.
        """
        return reported(self.intruder, self.exact, "known")

    @property
    def sd_alone(self) -> Floats:
        """The sd left to the same intruder without this release, shape (N,).

        By the other records and what was published before, as if its copies revealed nothing about
        the variances: an upper bound where anything was.
        """
        return self._alone("fixed")

    @property
    def least_sd_alone(self) -> Floats:
        """The same by the lower bound, shape (N,)."""
        return self._alone("known")

    def _alone(self, variances: str) -> Floats:
        """The same by either bound of what was published before."""
        after = self.intruder
        gained = 0.0 if after.former is None else after.former.information(variances)
        return np.asarray((after.leave_one_out**-2.0 + gained) ** -0.5)

    @property
    def out_before(self) -> bool:
        """Whether former releases of the table are counted."""
        former = None if self.after is None else self.after.former
        return former is not None and former.releases > 0

    @property
    def sd_before(self) -> Floats | None:
        """The same without protection, shape (N,); None where nothing was protected.

        Where it was not computed exactly it is the upper bound, so that no protection is claimed
        that only the bounds show.
        """
        return None if self.before is None else reported(self.before, self.exact_before, "fixed")

    @property
    def least_sd_before(self) -> Floats | None:
        """The same by the lower bound, as :attr:`sd` has it after protection, shape (N,)."""
        return None if self.before is None else reported(self.before, self.exact_before, "known")

    @property
    def compared(self) -> Indices:
        """Positions of the records computed exactly with and without protection."""
        if self.exact is None or self.exact_before is None:
            return np.array([], dtype=np.intp)
        after, before = (
            found.records["position"].to_numpy() for found in (self.exact, self.exact_before)
        )
        return np.intersect1d(after, before)

    @property
    def searched(self) -> bool:
        """Whether a search for the floor chose whom to flag, so that it is no advice any more."""
        weights = self.release.fit.weights
        return weights is not None and weights.rule == "target"

    @property
    def fit_failed(self) -> bool:
        """Whether a fit behind the copies failed its verdict, so that no sd can be relied on."""
        return not all(fit.verdict.passed for fit in self.release.fits.values())

    @property
    def copies(self) -> tuple[int, ...]:
        """The numbers of copies reported, which are 1, L and 500."""
        return tuple(sorted({1, self.release.copies, MANY}))

    @property
    def records(self) -> pd.DataFrame:
        """One row a record, with shares, exposure, the attacker's sds before and after."""
        out = self.shares.records.copy()
        if self.after is None:
            return out
        out["exposure"] = self.after.exposure
        out["sd_leave_one_out"] = self.after.leave_one_out
        if self.after.pareto_k is not None:
            out["pareto_k_leave_one_out"] = self.after.pareto_k
        for name, found in reversed(self._attacks().items()):
            for count in self.copies:
                for variances in BOUNDS:
                    out[f"sd_{variances}_{count}_{name}"] = found.sd(count, variances=variances)
        out["placed_within"] = half_width(self.release.problem, self.sd)
        if self.least_sd is not None:
            out["below_floor"] = np.isin(np.arange(len(out)), self.below_floor)
        return out

    @property
    def rise(self) -> Floats:
        """Intruder's sd before protection over that after it, shape (N,).

        Exact where both were computed exactly, else with variances known. Above 1 the record's
        risk rose. All 1 where nothing was protected.
        """
        before, after = self._before_and_after()
        return before / after

    def _before_and_after(self) -> tuple[Floats, Floats]:
        """The sds that :attr:`rise` compares, each of shape (N,)."""
        after = self.intruder.sd(variances="known").copy()
        if self.before is None:
            return after, after
        before = self.before.sd(self.release.copies, variances="known").copy()
        for sd, found in ((before, self.exact_before), (after, self.exact)):
            if self.compared.size and found is not None:
                some = found.records[np.isin(found.records["position"], self.compared)]
                sd[some["position"]] = some["sd"]
        return before, after

    @property
    def risen(self) -> Indices:
        """Positions of the records whose risk protection raised.

        By five per cent of the sd or more and, where it was not computed exactly, by more than
        three Monte Carlo errors (with few draws more, by Student's t).
        """
        if self.before is None or not self.release.protected:
            return np.array([], dtype=np.intp)
        after = self.intruder
        error = np.hypot(self.before.relative_error(), after.relative_error())
        few = min(self.before.effective, after.effective) - 1.0
        limit = -stdtrit(few, ndtr(-ERRORS))
        error[self.compared] = 0.0
        rise = self.rise
        return np.flatnonzero((np.log(rise) > limit * error) & (rise >= MATERIAL))

    @property
    def rose_most(self) -> int | None:
        """Position of the record among :attr:`risen` whose risk rose most; None without any."""
        risen = self.risen
        return int(risen[np.argmax(self.rise[risen])]) if risen.size else None

    @cached_property
    def largest_release(self) -> int | None:
        """Most copies that leave every record the floor and name no value too surely; None without
        a floor.

        By the lower bounds; at the number released, by the sds reported.
        """
        least = self.least_kept
        if least is None or self.after is None:
            return None
        most, copies = self.after.largest_release(least), self.after.copies
        missed = self.below_floor.size + self.named_too_surely.size
        return min(most, copies - 1) if missed else max(most, copies)

    @cached_property
    def least_kept(self) -> Floats | None:
        """The least sd that every record has to keep, shape (N,); None without a floor.

        The floor's, or that at which its value is named as surely as the limit allows.
        """
        if self.least_sd is None or self.naming is None or self.naming.limit is None:
            return self.least_sd
        unnamed = least_sd_unnamed(self.release.problem, self.naming.limit)
        return np.maximum(self.least_sd, unnamed * self.sd / narrowest(self.sd, self.exact))

    @property
    def below_floor(self) -> Indices:
        """Positions of the records below the floor at L."""
        if self.least_sd is None or self.after is None:
            return np.array([], dtype=np.intp)
        bias = 1.0 + (self.after.left_out or 0.0)
        return np.flatnonzero(self.sd < self.least_sd * bias)

    @property
    def named_too_surely(self) -> Indices:
        """Positions of the records whose value can be named with a chance above the limit."""
        return np.array([], dtype=np.intp) if self.naming is None else self.naming.above_limit

    def table(self) -> pd.DataFrame:
        """Smallest and median sd by fit, group, copies and the intruder's knowledge.

        ``copies`` 0 is the intruder without the release, the same for all fits.
        """
        return smallest_and_median(self._attacks(), (0, *self.copies))

    def curve(self, copies: Sequence[int]) -> pd.DataFrame:
        """Smallest sd by fit, group and L: ``known`` and ``fixed``, the two bounds."""
        return smallest_by_copies(self._attacks(), copies)

    def placing_curve(self, copies: Sequence[int]) -> pd.DataFrame:
        """Within what the weakest record is placed, by fit, group and L, by the two bounds."""
        return narrowest_by_copies(self.release.problem, self._attacks(), copies)

    def _attacks(self) -> dict[str, Attack]:
        """By the name of the fit the copies come from."""
        after = self.intruder
        if self.before is None:
            return {"unrestricted": after}
        return {"unrestricted": self.before, "restricted": after}

    def placing(self) -> pd.DataFrame:
        """How near to the truth the intruders place records, one row a group and stage.

        Returns
        -------
        DataFrame
            See :func:`dsstan.risk.placing.placing_table`.
        """
        sds: dict[str, Floats | None] = {}
        alike: dict[str, Floats] = {}
        public: dict[str, Mapping[str, float]] = {}
        protected = self.release.protected
        if self.after is not None:
            sds["no_release"], alike["no_release"] = self.sd_alone, self.least_sd_alone
        least = self.least_sd_before
        if least is not None and protected:
            sds["unrestricted"], alike["unrestricted"] = self.sd_before, least
        if self.public_before is not None and protected:
            public["unrestricted"] = self.public_before.placed()
        last = "restricted" if protected else "unrestricted"
        sds[last] = None if self.after is None else self.sd
        if self.public is not None:
            public[last] = self.public.placed()
        return placing_table(self.release.problem, self.release.fit.flagged, sds, public, alike)

    @property
    def most_learnt(self) -> dict[str, Any] | None:
        """The record whose interval the release shortens most.

        ``position``, ``flagged``; ``alone`` and ``within``, within what share of its value it is
        placed without and with the release (what was published before counts in both);
        ``exact``, whether the latter is no lower bound. None without an intruder. Confidential.
        """
        if self.after is None:
            return None
        problem = self.release.problem
        alone, within = (half_width(problem, sd) for sd in (self.sd_alone, self.sd))
        with np.errstate(invalid="ignore"):
            row = int(np.argmin(np.nan_to_num(within / alone, nan=np.inf)))
        return {
            "position": row,
            "flagged": bool(self.release.fit.flagged[row]),
            "exact": self.exact is not None and row in set(self.exact.records["position"]),
            "alone": float(alone[row]),
            "within": float(within[row]),
        }

    @property
    def hopeless(self) -> int:
        """Records that are below the floor without any copy; 0 without a floor."""
        if self.least_sd is None or self.after is None:
            return 0
        return int(np.sum(self.sd_alone < self.least_sd))


def reported(bounds: Attack, exact: ExactIntruder | None, variances: str) -> Floats:
    """The sd of the exact posterior where there is one, as :attr:`AssessedNumbers.sd` has it.

    Else that of an intruder for whom the variances are known or fixed, shape (N,).
    """
    sd = bounds.sd(variances=variances).copy()
    if exact is not None:
        found = exact.records
        columns = ["sd", "interval", "sd_fixed", "sd_leave_one_out"]
        sd[found["position"]] = found[columns].min(axis=1)
    return sd


def narrowest(sd: Floats, exact: ExactIntruder | None) -> Floats:
    """The sds of an intruder's knowledge, or that of the middle of their posterior where it was
    computed and has a peak, shape (N,)."""
    out = sd.copy()
    if exact is not None:
        rows = exact.records["position"].to_numpy()
        out[rows] = np.minimum(sd[rows], exact.records["middle"])
    return out
