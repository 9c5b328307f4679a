"""What a release discloses: the verdict on the numbers of every intruder, in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dsstan.core.display import Card, Part
from dsstan.risk.assessed_numbers import AssessedNumbers
from dsstan.risk.placing import (
    STAGES,
    placed_within,
    placing_by_stage,
    protection_in_words,
    weakest_of,
)
from dsstan.risk.sd_tables import nested


@dataclass(frozen=True, eq=False, repr=False)
class Assessment(AssessedNumbers):
    """What a release discloses: the numbers, the verdict on them, and both in words. Confidential.

    See :class:`dsstan.risk.assessed_numbers.AssessedNumbers` for its attributes.
    """

    @property
    def stages(self) -> Mapping[str, str]:
        """What an intruder sees at each stage of ``placing``, in words."""
        return {**STAGES, "no_release": "already out"} if self.out_before else STAGES

    @property
    def basis(self) -> str:
        """``exact`` where some record was computed exactly; ``bounded`` where none was, or where
        former releases count, whose part rests on the bounds."""
        former = None if self.after is None else self.after.former
        counted = former is not None and former.releases + former.unjudged > 0
        return "bounded" if self.exact is None or counted else "exact"

    @property
    def verdict(self) -> str:
        """Whether every record keeps the floor, and no value is named too surely.

        ``met``, ``missed`` or ``not judged``.
        """
        if self.least_sd is None or self.after is None:
            return "not judged"
        if self.below_floor.size or self.named_too_surely.size or self.laid_bare:
            return "missed"
        former = self.after.former
        uncounted = former is not None and former.unjudged + former.alike > 0
        return "not judged" if uncounted or self.fit_failed or self.codes else "met"

    @property
    def laid_bare(self) -> tuple[str, ...]:
        """Columns of which true values go out in one release and copies in another, in words."""
        former = None if self.after is None else self.after.former
        return () if former is None else former.laid_bare

    @property
    def why(self) -> str:
        """The verdict's reason, in words. It names no record."""
        former = None if self.after is None else self.after.former
        if former is None:
            return self._why_alone()
        alone = ", ".join(filter(None, [self._why_alone(), str(former)]))
        if former.laid_bare:
            return f"{former.uncounted}. No number counts that; by itself, {alone}"
        if not former.alike or self.least_sd is None:
            return alone
        if self.verdict == "not judged":
            return f"{former.uncounted}; by itself, {alone}"
        return f"{alone}; {former.uncounted}, and what those tell is not counted"

    def _why_alone(self) -> str:
        """The reason without what was published before."""
        if self.after is None:
            return str(self.absence)
        if self.least_sd is None:
            return "no floor was asked for"
        n, below = len(self.least_sd), self.below_floor.size
        if below:
            are = "is" if below == 1 else "are"
            return f"{below} of {n} records {are} below the floor of {self.asked}"
        if self.naming is not None and self.named_too_surely.size:
            return self.naming.count
        if self.codes:
            return f"{self.codes[0]!r} goes out and may be a code of the response (a hash)"
        if self.fit_failed:
            return f"a failed fit's numbers keep the floor of {self.asked}"
        by = " by the lower bounds" if self.basis == "bounded" else ""
        made = f", {self.after.approximated}" if self.after.approximated else ""
        return f"every record keeps the floor of {self.asked}{by}{made}{self._unasked}"

    @property
    def sd_in_words(self) -> str:
        """What a floor that is an sd asks for, in a sentence; empty for another, or none."""
        share = self.floor_share
        if self.asked is None or self.asked.share is not None or share is None:
            return ""
        return f"The floor of {self.asked} is an sd: {placed_within(share)} of the median value"

    @property
    def _unasked(self) -> str:
        """Of which records a floor in per cent asks nothing, in words."""
        if self.least_sd is None or self.asked is None or self.asked.share is None:
            return ""
        nought = int(np.sum((self.least_sd == 0) & self.release.problem.observed))
        return f"; of {nought} values of 0 a percentage asks nothing: give an sd" if nought else ""

    def most_learnt_in_words(self) -> str:
        """The same in a sentence that names no record; empty without an intruder."""
        one = self.most_learnt
        if one is None:
            return ""
        flagged = "a flagged" if one["flagged"] else "an unflagged"
        by = "" if one["exact"] else ", by the lower bound"
        return (
            f"The release adds most about {flagged} record: placed within "
            f"{placed_within(one['alone'])} without it, {placed_within(one['within'])} with it{by}"
        )

    def summary(self) -> dict[str, Any]:
        """For ``summary.json``: numbers by group, and the record whose risk rose most.

        Raises
        ------
        InputError
            If there is no intruder.
        """
        out: dict[str, Any] = {"draws": self.intruder.draws, "exact": None}
        if self.exact is not None:
            found = self.exact.records
            out["exact"] = {
                "records": len(found),
                "smallest": float(self.sd[found["position"]].min()),
            }
        out["naming"] = None if self.naming is None else self.naming.summary()
        out["proxies"] = None if self.proxies is None else self.proxies.summary()
        table = self.table()
        for name in ("unrestricted", "restricted"):
            rows = table[table["fit"] == name]
            out[name] = None if rows.empty else nested(rows)
        worst, below = self.rose_most, self.below_floor
        former = self.intruder.former
        out["former"] = (
            None
            if former is None
            else {
                name: getattr(former, name) for name in ("releases", "copies", "unjudged", "alike")
            }
        )
        out["records_risen"] = int(self.risen.size)
        out["rose_most"] = None if worst is None else self._one(worst)
        out["floor"] = (
            None
            if self.floor is None
            else {
                "asked": str(self.asked),
                "sd": self.floor,
                "records_below": int(below.size),
                "largest_release": self.largest_release,
            }
        )
        return out

    def _one(self, record: int) -> dict[str, Any]:
        """One record before and after, at L."""
        after = self.intruder
        sd_before, sd_after = self._before_and_after()
        return {
            "record": str(after.index[record]),
            "position": record,
            "flagged": bool(after.flagged[record]),
            "sd_before": float(sd_before[record]),
            "sd_after": float(sd_after[record]),
        }

    def _line(self) -> str:
        return f"DISCLOSURE: {self.verdict.upper()}: {self.why}"

    def _card(self) -> Card:
        blocks: list[Part | str] = []
        placed = placing_by_stage(self.placing(), self.stages)
        if not placed.empty:
            blocks.append(
                Part(placed, "An intruder who knows all other records places the weakest")
            )
        if self.before is not None:
            blocks.append(self.effect_of_protection())
        blocks += self.floor_remarks()
        if self.proxies is not None and self.proxies.used:
            blocks.append(str(self.proxies))
        if self.naming is not None and self.naming.coarse:
            blocks.append(str(self.naming))
        if self.exact is not None:
            blocks.append(str(self.exact))
        if self.after is not None:
            if self.basis == "bounded":
                blocks.append(f"The sds are bounded {self.after.approximated}".rstrip())
            blocks.append(self._smallest_sds())
            blocks.append("known: the intruder knows the variances behind each copy")
            blocks.append("fixed: the copies reveal nothing about the variances")
        return Card(blocks=(*blocks, self.shares.part()))

    def _smallest_sds(self) -> Part:
        """The least that any record is left with, by group and number of copies."""
        wide = self.table().pivot(
            index=["group", "copies", "variances"], columns="fit", values="smallest"
        )
        names = [c for c in ("unrestricted", "restricted") if c in wide.columns]
        return Part(
            wide[names],
            "Smallest sd left to an intruder who knows all other records and sees the release "
            "(modelled scale, by the draws behind the copies)",
            digits=lambda v: f"{v:.3g}",
        )

    def safer_and_less_safe(self) -> str:
        """How many records protection made safer and less safe, in a sentence; empty where
        nothing was protected."""
        if self.before is None or not self.release.protected:
            return ""
        rows, rise = self.compared, self.rise
        exact = rows.size > 0
        rows = rows if exact else np.arange(rise.size)
        return protection_in_words(rise[rows], int(np.isin(self.risen, rows).sum()), exact)

    def effect_of_protection(self) -> str:
        """The same, and whether the weakest record is flagged. It names none."""
        told = self.safer_and_less_safe()
        if not told:
            return "No record is flagged, so that nothing is protected"
        problem = self.release.problem
        weakest = weakest_of(problem, self.sd, problem.observed)
        flagged = "" if self.release.fit.flagged[weakest] else "not "
        return f"{told}; the weakest is {flagged}flagged"

    def remarks(self) -> list[str]:
        """Sentences on what rose and on the floor. They may name a record: confidential."""
        out = []
        worst = self.rose_most
        if worst is not None:
            one = self._one(worst)
            out.append(
                f"{self.effect_of_protection()}. The risk rose most at record {one['record']} (row "
                f"{worst}, counted from 0): the sd left fell from {one['sd_before']:.3g} to "
                f"{one['sd_after']:.3g}"
            )
        return out + self.floor_remarks()

    def floor_remarks(self) -> list[str]:
        """Sentences on the floor, if there is one, and on naming. They name no record."""
        if self.least_sd is None or self.after is None:
            return []
        return [
            f"{self.below_floor.size} of {len(self.least_sd)} records are below the floor "
            f"{self.asked} at {self.release.copies} copies; {self.reach}{self._unasked}",
            *([] if self.naming is None else self.naming.remarks()),
        ]

    @property
    def reach(self) -> str:
        """What the largest release is that keeps the floor, in words; empty without a floor."""
        if self.least_sd is None or self.after is None:
            return ""
        if self.hopeless:
            return (
                f"no release keeps the floor for all: {self.hopeless} are below it without this one"
            )
        most = self.largest_release
        if not most:
            return "by the lower bounds not even one copy keeps the floor for all"
        return f"{most} {'copies keep' if most > 1 else 'copy keeps'} it for all, perhaps more do"
