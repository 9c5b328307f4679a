"""Risk and utility of every setting of a grid, side by side, and which are the least damaging."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from dsstan.comparison.scores import LEGEND
from dsstan.core import above
from dsstan.core.arrays import Floats, Truths
from dsstan.core.display import Card, Part, Shown
from dsstan.core.errors import InputError
from dsstan.risk.placing import placed_within

RISKS = ("sd_at_risk_known", "sd_at_risk_fixed", "sd_at_risk_median", "sd_all", "share_at_risk")
TIE = 2.0
"""Monte Carlo errors within which two utilities count as equal."""

UTILITIES = ("overlap", "surface", "width_ratio")

_PRINTED = ["flagged", "copies", "within_at_risk", "sd_at_risk_known", "within_all", "sd_all"]
_PRINTED += ["share_at_risk", *UTILITIES, "passed"]


def _placed(share: float) -> str:
    return "-" if pd.isna(share) else placed_within(share)


@dataclass(frozen=True, eq=False, repr=False)
class Frontier(Shown):
    """Risk and utility of every setting. Confidential.

    Attributes
    ----------
    table
        One row a setting and L; see :func:`dsstan.compare`.
    at_risk
        Records that any rule of the grid flags, shape (N,).
    failed
        Settings that could not be judged, with the reason.
    seed
        Root of all random streams.
    computed
        Settings computed in this run; the others came from the folder.
    seconds
        Wall time.
    """

    table: pd.DataFrame = field(repr=False)
    at_risk: Truths = field(repr=False)
    failed: dict[str, str]
    seed: int = field(repr=False)
    computed: int
    seconds: float

    @property
    def usual_risk(self) -> str:
        """Name of the risk that orders the settings; a share where no sd could be computed."""
        attacked = self.table["sd_all"].notna().any()
        return "sd_at_risk_known" if attacked else "share_at_risk"

    def best(
        self, risk: str | None = None, utility: str = "overlap", *, any_copies: bool = False
    ) -> pd.DataFrame:
        """Rows that no other row of the same L beats in both respects.

        Utilities within two Monte Carlo errors of each other count as equal. A setting whose fit
        failed its verdict is never among them, and beats none: its numbers are not to be trusted.

        Parameters
        ----------
        risk
            A column of sds, of which more is better, or ``"share_at_risk"``, of which
            less is. By default ``"sd_at_risk_known"``; the share under the predictive process,
            which has no sds.
        utility
            ``"overlap"`` or ``"surface"``, of which more is better, or ``"width_ratio"``,
            best at 1.
        any_copies
            Compare rows of all L: fewer copies are a protection as well.
        """
        safe, useful, error = self._worth(risk or self.usual_risk, utility).T
        copies = self.table["copies"].to_numpy()
        passed = self.table["passed"].to_numpy(dtype=bool)
        keep = []
        for i in range(len(safe)):
            margin = TIE * np.hypot(error, error[i])
            as_good = (safe >= safe[i]) & (useful >= useful[i] - margin)
            better = (safe > safe[i]) | (useful > useful[i] + margin)
            rival = passed & (any_copies | (copies == copies[i]))
            keep.append(passed[i] and not np.any(rival & as_good & better))
        return self.table[np.array(keep, dtype=bool)].reset_index(drop=True)

    def leaving(self, floor: float, risk: str = "sd_all") -> pd.DataFrame:
        """Rows whose fit passed and that leave at least so much.

        Parameters
        ----------
        floor
            Least sd, modelled scale. An approximated sd is taken smaller by ``left_out``.
        risk
            A column of sds.
        """
        sd = self.table[risk].astype("Float64").to_numpy(dtype=np.float64, na_value=0.0)
        passed = self.table["passed"].to_numpy(dtype=bool)
        good = passed & (sd >= floor * (1.0 + self.table["left_out"].to_numpy()))
        return self.table[good].reset_index(drop=True)

    def envelope(
        self, floor: float | None = None, risk: str | None = None, utility: str = "overlap"
    ) -> pd.DataFrame:
        """The least damaging settings: rows of which each is the most useful that leaves so much.

        Every other row, of whatever L, leaves less than one of them without being more useful.
        They come in the order of what they leave, the most first: the last damages least of all.
        A setting whose fit failed its verdict is never among them.

        Parameters
        ----------
        floor
            Least sd, modelled scale; only rows that leave it to every record are taken.
        risk, utility
            See :meth:`best`; by default the smallest sd of all records where there are sds.
        """
        risk = risk or ("sd_all" if self.usual_risk.startswith("sd") else self.usual_risk)
        passed = self.table["passed"].to_numpy(dtype=bool)
        kept = self.table[passed] if floor is None else self.leaving(floor)
        if kept.empty:
            return kept.reset_index(drop=True)
        safe, useful, _ = replace(self, table=kept)._worth(risk, utility).T
        order = np.lexsort((-useful, -safe))
        so_far = np.maximum.accumulate(np.r_[-np.inf, useful[order]])[:-1]
        corners: pd.DataFrame = kept.iloc[order[useful[order] > so_far]]
        return corners.reset_index(drop=True)

    def _worth(self, risk: str, utility: str) -> Floats:
        """Both respects, more is better, and the error of utility, shape (rows, 3)."""
        if risk not in RISKS:
            raise InputError(f"risk must be one of {', '.join(RISKS)}, got {risk!r}")
        if utility not in UTILITIES:
            raise InputError(f"utility must be one of {', '.join(UTILITIES)}, got {utility!r}")
        safe, useful = (
            self.table[name].astype("Float64").to_numpy(dtype=np.float64, na_value=np.nan)
            for name in (risk, utility)
        )
        if risk.startswith("sd") and self.usual_risk.startswith("share"):
            raise InputError(
                "no sd of an intruder is computed under the predictive process: look at "
                'risk="share_at_risk", or compare with covariance="vecchia"'
            )
        if np.isnan(safe).any():
            raise InputError(
                "no record is at risk: no rule of the grid flags any. Give a rule that does, or "
                'look at risk="sd_all"'
            )
        if risk.startswith("share"):
            safe = -safe
        error = self.table[f"{utility}_error"].to_numpy(dtype=np.float64)
        if utility == "width_ratio":
            useful, error = -np.abs(np.log(useful)), error / useful
        return np.column_stack([safe, useful, error])

    def plot(
        self, risk: str | None = None, utility: str = "overlap", floor: float | None = None
    ) -> Any:
        """Risk against utility; see :func:`dsstan.release.pictures.plots.plot_frontier`."""
        return above.call("plot_frontier", self, risk=risk, utility=utility, floor=floor)

    def _line(self) -> str:
        settings = self.table["setting"].nunique()
        return f"Risk and utility of {settings} settings; {int(self.at_risk.sum())} records at risk"

    def _card(self) -> Card:
        placed = {name: self.table[name].map(_placed) for name in ("within_at_risk", "within_all")}
        rows = self.table.assign(**placed).set_index("setting")[_PRINTED].rename_axis(None)
        left_out = self.table["left_out"].max()
        sample = (
            "sds are from the records around each; in a sample, with three times as many "
            f"around, they are smaller by {100 * left_out:.2g}% at most"
        )
        failed = tuple(f"{name}: {why}" for name, why in self.failed.items())
        return Card(
            blocks=(
                Part(rows, digits=lambda v: f"{v:.3g}"),
                LEGEND,
                *([sample] if left_out > 0 else []),
                *failed,
            )
        )
