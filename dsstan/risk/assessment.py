"""The whole disclosure report: shares near the truth, and what an intruder could work out.

The paper's shares (section 4 of Quick, Holan and Wikle 2018) look at one copy at a
time. Beside them stands the intruder who knows every other record and sees all the
copies (:mod:`dsstan.risk.attacker`), before protection and after it, for every record:
protecting one can expose another.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtr, stdtrit

from dsstan.copies.result import Synthesis
from dsstan.core.errors import InputError, is_number
from dsstan.models.result import Fit
from dsstan.risk.attacker import Attack, attack
from dsstan.risk.disclosure import RELATIVE, Disclosure, disclosure, sides
from dsstan.risk.exact import WORST, ExactIntruder, exact_intruder
from dsstan.risk.variance_grid import integrable

Floats = NDArray[np.float64]

FREE_WORST = 3
"""Records whose exact posterior is computed by default where the decay is free."""

MANY = 500
"""A number of copies that stands for a very large release."""

ERRORS, MATERIAL = 3.0, 1.05
"""A rise of risk is reported beyond so many Monte Carlo errors, and from this ratio of sds on."""

BOUNDS = ("known", "fixed")
"""What they know of the variances, for the least and the most sd that they can be left with."""


@dataclass(frozen=True, eq=False)
class Assessment:
    """What a release discloses. Confidential.

    Attributes
    ----------
    shares
        Copies near the truth; see :func:`dsstan.disclosure`.
    after, before
        The whole-release attacker on these copies, and on as many without protection;
        ``before`` is None where the release itself is unprotected.
    floor
        Least attacker sd asked for, modelled scale, or None.
    seconds
        Wall time.
    exact
        The exact posterior of the weakest records (:mod:`dsstan.risk.exact`); None where it was
        not computed.
    """

    shares: Disclosure = field(repr=False)
    after: Attack = field(repr=False)
    before: Attack | None = field(repr=False)
    floor: float | None
    seconds: float
    exact: ExactIntruder | None = field(repr=False, default=None)

    @property
    def copies(self) -> tuple[int, ...]:
        """The numbers of copies reported, which are 1, L and 500."""
        return tuple(sorted({1, self.after.copies, MANY}))

    @property
    def records(self) -> pd.DataFrame:
        """One row a record, with shares, exposure, the attacker's sds before and after."""
        out = self.shares.records.copy()
        out["exposure"] = self.after.exposure
        out["sd_leave_one_out"] = self.after.leave_one_out
        if self.after.pareto_k is not None:
            out["pareto_k_leave_one_out"] = self.after.pareto_k
        for name, found in reversed(self._attacks().items()):
            for count in self.copies:
                for variances in BOUNDS:
                    out[f"sd_{variances}_{count}_{name}"] = found.sd(count, variances=variances)
        if self.floor is not None:
            out["below_floor"] = np.isin(np.arange(len(out)), self.below_floor)
        return out

    @property
    def rise(self) -> Floats:
        """Attacker sd before protection over that after it, known variances, shape (N,).

        Above 1 the record's risk rose. All 1 where nothing was protected.
        """
        if self.before is None:
            return np.ones(self.after.exposure.size)
        after = self.after.sd(variances="known")
        return np.asarray(self.before.sd(self.after.copies, variances="known") / after)

    @property
    def risen(self) -> NDArray[np.intp]:
        """Positions of the records whose risk protection raised.

        By five per cent of the sd or more, and by more than three Monte Carlo errors (with
        few draws more, by Student's t).
        """
        if self.before is None:
            return np.array([], dtype=np.intp)
        error = np.hypot(self.before.relative_error(), self.after.relative_error())
        few = min(self.before.effective, self.after.effective) - 1.0
        limit = -stdtrit(few, ndtr(-ERRORS))
        rise = self.rise
        return np.flatnonzero((np.log(rise) > limit * error) & (rise >= MATERIAL))

    @property
    def rose_most(self) -> int | None:
        """Position of the record among :attr:`risen` whose risk rose most; None without any."""
        risen = self.risen
        return int(risen[np.argmax(self.rise[risen])]) if risen.size else None

    @property
    def largest_release(self) -> int | None:
        """Most copies that leave every record's sd at the floor; None without a floor."""
        return None if self.floor is None else self.after.largest_release(self.floor)

    @property
    def below_floor(self) -> NDArray[np.intp]:
        """Positions of the records below the floor at L, known variances."""
        if self.floor is None:
            return np.array([], dtype=np.intp)
        least = self.floor * (1.0 + (self.after.left_out or 0.0))
        return np.flatnonzero(self.after.sd(variances="known") < least)

    def table(self) -> pd.DataFrame:
        """Smallest and median sd by fit, group, copies and the intruder's knowledge.

        ``copies`` 0 is the intruder without the release, the same for all fits.
        """
        counts = (0, *self.copies)
        table = pd.concat([a.curve(counts).assign(fit=f) for f, a in self._attacks().items()])
        return table[["fit", "group", "copies", "variances", "smallest", "median"]].reset_index(
            drop=True
        )

    def curve(self, copies: Sequence[int]) -> pd.DataFrame:
        """Smallest sd by fit, group and L: ``known`` and ``fixed``, the two bounds."""
        wides = []
        for name, found in self._attacks().items():
            long = found.curve(copies)
            wide = long.pivot(index=["group", "copies"], columns="variances", values="smallest")
            wides.append(wide.reset_index().assign(fit=name))
        return pd.concat(wides, ignore_index=True)

    def _attacks(self) -> dict[str, Attack]:
        """By the name of the fit the copies come from."""
        if self.before is None:
            return {"unrestricted": self.after}
        return {"unrestricted": self.before, "restricted": self.after}

    def summary(self) -> dict[str, Any]:
        """For ``summary.json``: numbers by group, and the record whose risk rose most."""
        out: dict[str, Any] = {"draws": self.after.draws, "exact": None}
        if self.exact is not None:
            found = self.exact.records
            out["exact"] = {"records": len(found), "smallest": self.exact.worst}
        table = self.table()
        for name in ("unrestricted", "restricted"):
            rows = table[table["fit"] == name]
            out[name] = None if rows.empty else _nested(rows)
        worst, below = self.rose_most, self.below_floor
        out["records_risen"] = int(self.risen.size)
        out["rose_most"] = None if worst is None else self._one(worst)
        out["floor"] = (
            None
            if self.floor is None
            else {
                "sd": self.floor,
                "records_below": int(below.size),
                "largest_release": self.largest_release,
            }
        )
        return out

    def _one(self, record: int) -> dict[str, Any]:
        """One record before and after, at L and known variances."""
        assert self.before is not None
        label = self.after.index[record]
        return {
            "record": str(label),
            "position": record,
            "flagged": bool(self.after.flagged[record]),
            "sd_before": float(self.before.sd(self.after.copies, variances="known")[record]),
            "sd_after": float(self.after.sd(variances="known")[record]),
        }

    def __str__(self) -> str:
        wide = self.table().pivot(
            index=["group", "copies", "variances"], columns="fit", values="smallest"
        )
        names = [c for c in ("unrestricted", "restricted") if c in wide.columns]
        text = wide[names].to_string(float_format=lambda v: f"{v:.3g}")
        lines = [
            *([] if self.exact is None else [str(self.exact), ""]),
            str(self.shares),
            "",
            "Smallest sd left to an intruder who knows all other records and sees the release",
            "(modelled scale, by the draws behind the copies)",
            text,
            "known: the intruder knows the variances behind each copy; fixed: they reveal nothing",
            *self.risen_remarks(),
            *self.floor_remarks(),
        ]
        return "\n".join(lines)

    def risen_remarks(self) -> list[str]:
        """A sentence on the records whose risk rose, if any. It names none."""
        return [f"{self._risen()}: rose_most says which most"] if self.risen.size else []

    def _risen(self) -> str:
        """How many records' risk rose, in words."""
        count = self.risen.size
        return f"Protection raised the risk of {count} record{'' if count == 1 else 's'}"

    def remarks(self) -> list[str]:
        """Sentences on what rose and on the floor. They may name a record: confidential."""
        out = []
        worst = self.rose_most
        if worst is not None:
            one = self._one(worst)
            out.append(
                f"{self._risen()}. It rose most at record "
                f"{one['record']} (row {worst}, counted from 0): the "
                f"sd left fell from {one['sd_before']:.3g} to {one['sd_after']:.3g}"
            )
        return out + self.floor_remarks()

    def floor_remarks(self) -> list[str]:
        """A sentence on the floor, if there is one. It names no record."""
        if self.floor is None:
            return []
        n, most = self.after.exposure.size, self.largest_release
        below = int(np.sum(self.after.leave_one_out < self.floor))
        if below:
            reach = f"no release meets it for all: {below} are below it without any copy"
        elif most == 0:
            reach = "not even one copy meets it for all"
        else:
            reach = f"the largest release that meets it for all has {most} copies"
        return [
            f"{self.below_floor.size} of {n} records are below the floor {self.floor:g} at "
            f"{self.after.copies} copies, for an intruder who knows the variances; {reach}"
        ]


def _nested(rows: pd.DataFrame) -> dict[str, Any]:
    """group -> copies -> known or fixed -> smallest and median; None where infinite."""
    out: dict[str, Any] = {}
    for row in rows.to_dict("records"):
        by_copies = out.setdefault(row["group"], {})
        by_copies.setdefault(str(row["copies"]), {})[row["variances"]] = {
            key: row[key] if math.isfinite(row[key]) else None for key in ("smallest", "median")
        }
    return out


def check_floor(floor: float | None) -> None:
    """Refuse a floor that is not positive and finite."""
    if floor is not None and not (is_number(floor) and np.isfinite(floor) and floor > 0):
        raise InputError(f"the floor must be positive and finite, got {floor!r}")


def assess(
    release: Synthesis,
    *,
    against: Fit | Synthesis | None = None,
    relative: float = RELATIVE,
    absolute: float | None = None,
    floor: float | None = None,
    draws: int | None = None,
    exact: int | None = None,
    progress: bool | None = None,
) -> Assessment:
    """The disclosure report of a release.

    Parameters
    ----------
    release
        The copies.
    against
        The unrestricted fit, or copies drawn from it, to compare with; by default the
        fit that the release's started from.
    relative, absolute
        Tolerances of the shares; see :func:`dsstan.disclosure`.
    floor
        Least sd that an intruder should be left with, on the modelled scale: under log,
        0.1 is about ten per cent.
    draws
        Posterior draws behind the attacker's sds, spread evenly over the chains; see
        :func:`dsstan.risk.attacker.attack`.
    exact
        For how many of the weakest records the exact posterior is computed
        (:func:`dsstan.risk.exact.exact_intruder`); 0 for none. By default 10 of up to 600 records
        under the exact covariance, 3 where the decay is free, which takes five times as long;
        else none.

    Raises
    ------
    InputError
        If the floor is not positive, or there is no unrestricted fit to compare with.
    """
    begin = time.perf_counter()
    check_floor(floor)
    other = sides(release, against).get("unrestricted")
    bare = None if other is release else other  # drawn once, for the shares and the attack
    shares = disclosure(release, against=bare, relative=relative, absolute=absolute)
    free = None if bare is None else bare.fit
    after = attack(release, against=free, draws=draws, progress=progress)
    before = None
    if bare is not None:
        bare_attack = attack(bare, draws=draws, progress=False)
        before = replace(bare_attack, flagged=release.fit.flagged)  # the same groups as after
    found = None
    if exact is None:
        able = integrable(release.fit) and not release.fit.smoothing_moves
        exact = (WORST if release.fit.phi_held is not None else FREE_WORST) if able else 0
    if exact:
        found = exact_intruder(release, exact=exact, against=free, bounds=after, progress=progress)
    return Assessment(shares, after, before, floor, time.perf_counter() - begin, found)
