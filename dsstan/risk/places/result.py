"""What a release of places discloses: the numbers of both intruders and the verdict on them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pandas as pd

from dsstan.core.arrays import Floats, Truths
from dsstan.core.display import Card, Part, Shown, chance_per_cent
from dsstan.risk.assessment_result import Assessment
from dsstan.risk.places.earlier import EarlierPlaces, rise_of_log_odds
from dsstan.risk.places.finding import Finding
from dsstan.risk.places.known import KnownPlaces

__all__ = ["MET", "MISSED", "NOT_JUDGED", "EarlierPlaces", "PlaceAssessment"]

MET, MISSED, NOT_JUDGED = "MET", "MISSED", "NOT JUDGED"

_ABOVE = 1.0 + 1e-9
"""A limit is passed beyond rounding."""


@dataclass(frozen=True, eq=False, repr=False)
class PlaceAssessment(Shown):
    """What a release of places discloses. Confidential.

    Attributes
    ----------
    known, released
        The table, and records of each group in each cell of each copy, shape (L, K, C).
    places, number
        ``"moved"`` or ``"population"``; ``"kept"`` or ``"drawn"``.
    bayes_factor
        Of presence, of every record, shape (N,); see :func:`dsstan.risk.places.presence.presence`.
    found
        What a search for each record's place comes to.
    presence, finding
        The largest Bayes factor and the largest chance of the right place that were allowed, or
        None.
    addresses
        Whether the places in a cell are known addresses, which ``finding`` is then about.
    earlier
        How many earlier releases of the table are counted.
    seconds
        Wall time.
    index
        Of the table; by default the records are numbered from 0.
    alone
        What this release says without the earlier ones that were multiplied; None where none were.
    unknown
        Earlier releases of the table that published its places, or that nobody assessed.
    values
        The intruder of values, as if places had been kept; None where no floor was asked for.
    modelled
        How many columns have synthetic values. A floor judges those of the last one: without it, or
        with further ones, the release is NOT JUDGED.
    unlisted
        Records whose place is none of the addresses: the right cell counts for them.
    """

    known: KnownPlaces = field(repr=False)
    released: Floats = field(repr=False)
    places: str
    number: str
    bayes_factor: Floats = field(repr=False)
    found: Finding = field(repr=False)
    presence: float | None
    finding: float | None
    addresses: bool = False
    earlier: int = 0
    seconds: float = 0.0
    index: pd.Index | None = field(repr=False, default=None)
    alone: EarlierPlaces | None = field(repr=False, default=None)
    unknown: int = 0
    values: Assessment | None = field(repr=False, default=None)
    modelled: int = 0
    unlisted: int = 0

    @property
    def copies(self) -> int:
        """L."""
        return len(self.released)

    @property
    def chance(self) -> Floats:
        """What ``finding`` limits, shape (N,): the chance of the right address, else cell."""
        return self.found.address if self.addresses else self.found.cell

    @property
    def chance_before(self) -> Floats:
        """The same without the release, shape (N,)."""
        return self.found.address_before if self.addresses else self.found.cell_before

    @cached_property
    def too_sure(self) -> tuple[Truths, Truths]:
        """Records beyond the limit of presence and of finding, shape (N,) each."""
        none = np.zeros(self.known.n_records, dtype=bool)
        present = none
        if self.presence is not None and self.presence_hidden:
            present = self.bayes_factor > self.presence * _ABOVE
        found = none if self.finding is None else self.chance > self.finding * _ABOVE
        return present, found

    @property
    def presence_hidden(self) -> bool:
        """Whether a release of this kind hides that anybody is in the table."""
        return self.places != "moved"

    @property
    def by_address(self) -> bool:
        """Whether ``finding`` is about addresses: there are some, and a record is at one."""
        return self.addresses and self.unlisted < self.known.n_records

    @property
    def right_place(self) -> str:
        """What ``finding`` is about."""
        if not self.by_address:
            return "cell"
        if not self.unlisted:
            return "address"
        return f"address (cell for the {self.unlisted} at no listed address)"

    @property
    def verdict(self) -> str:
        """MET, MISSED or NOT JUDGED."""
        values = None if self.values is None else self.values.verdict.upper()
        if any(one.any() for one in self.too_sure) or values == MISSED:
            return MISSED
        unjudged = self.unknown > 0 or values == NOT_JUDGED
        if self.presence is not None and not self.presence_hidden:
            unjudged = True
        unjudged |= self.unbounded or self.modelled > int(self.values is not None)
        return MET if self.floor is not None and not unjudged else NOT_JUDGED

    @property
    def unbounded(self) -> bool:
        """Whether a limit rests on what releases of other fits say of a place together."""
        asked = self.finding is not None or (self.presence is not None and self.number == "kept")
        return asked and self.alone is not None

    @property
    def why(self) -> str:
        """The verdict in sentences, what misses a limit first."""
        if self.floor is None:
            return NO_LIMIT
        present, found = self.too_sure
        n, missed, open_, out = self.known.n_records, list[str](), list[str](), list[str]()
        if self.unknown:
            several = "s" if self.unknown > 1 else ""
            open_.append(
                f"{self.unknown} earlier release{several} of this table published its places or "
                f"{'were' if several else 'was'} not assessed: what all tell is not known"
            )
        if self.presence is not None and not self.presence_hidden:
            open_.append(NO_PRESENCE)
        elif present.any():
            missed.append(
                f"the Bayes factor of presence is above {self.presence:g} for {present.sum()} of "
                f"{n} records"
            )
        elif self.presence is not None:
            out.append(f"no Bayes factor of presence is above {self.presence:g}")
        if self.finding is not None:
            what = self.right_place
            limit = chance_per_cent(self.finding)
            if found.any():
                already = int(np.sum(self.chance_before[found] > self.finding * _ABOVE))
                missed.append(
                    f"the chance of the right {what} is above {limit} for {found.sum()} "
                    f"of {n} records, for {already} of them without the release already"
                )
            else:
                out.append(f"no chance of the right {what} is above {limit}")
        if self.unbounded:
            open_.append(
                "what an earlier release of another fit and this one say together of a place is "
                "estimated, not bounded"
            )
        if self.modelled and self.values is None:
            open_.append(NO_FLOOR)
        elif self.modelled > 1:
            open_.append(LAST_ALONE)
        if self.values is not None:
            which = {MISSED: missed, NOT_JUDGED: open_}.get(self.values.verdict.upper(), out)
            which.append(f"of values, as if places were kept, {self.values.why}")
        if self.modelled and (self.presence, self.finding) != (None, None):
            out.append("what a value that an intruder knows says of its place is not counted")
        return "; ".join([*missed, *open_, *out])

    @cached_property
    def log_odds(self) -> Floats:
        """By how much the log odds of the right cell against all others rose, shape (N,)."""
        return rise_of_log_odds(self.found.cell_before, self.found.cell)

    @property
    def for_later(self) -> EarlierPlaces:
        """What a later release of the table has to count, earlier ones included."""
        with np.errstate(divide="ignore"):
            return EarlierPlaces(np.log(self.bayes_factor), self.log_odds)

    @property
    def of_this_release(self) -> EarlierPlaces:
        """What this release says by itself, as far as it was worked out."""
        return self.for_later if self.alone is None else self.alone

    @cached_property
    def records(self) -> pd.DataFrame:
        """Numbers of every record, in the table's order. Confidential."""
        columns = {
            "lonely": self.known.lonely,
            "bayes_factor": self.bayes_factor,
            "cell_before": self.found.cell_before,
            "cell": self.found.cell,
            "cells_as_likely_before": self.found.as_likely_before,
            "cells_as_likely": self.found.as_likely,
        }
        if self.addresses:
            columns |= {
                "address_before": self.found.address_before,
                "address": self.found.address,
                "addresses_as_likely_before": self.found.addresses_before,
                "addresses_as_likely": self.found.addresses,
            }
        return pd.DataFrame(columns, index=self.index)

    def table(self, column: str, *, low: bool = False) -> pd.DataFrame:
        """Quantiles of one column of :attr:`records`, of lonely records and of the others.

        Parameters
        ----------
        column
            Its name.
        low
            Whether a low value is the risk.
        """
        levels = {"median": 0.5, "5%": 0.05, "smallest": 0.0}
        if not low:
            levels = {"median": 0.5, "95%": 0.95, "largest": 1.0}
        values, lonely = self.records[column].to_numpy(), self.known.lonely
        rows = {}
        for label, which in (("lonely", lonely), ("others", ~lonely)):
            if which.any():
                # values that occur, as none lies between a number and infinity
                found = np.quantile(values[which], list(levels.values()), method="inverted_cdf")
                rows[label] = {"records": int(which.sum()), **dict(zip(levels, found, strict=True))}
        return pd.DataFrame.from_dict(rows, orient="index")

    def summary(self) -> dict[str, object]:
        """The numbers of a written release, for JSON; None stands for infinity."""
        measures = [("bayes_factor", False), ("cell_before", False), ("cell", False)]
        measures += [("cells_as_likely_before", True), ("cells_as_likely", True)]
        if self.addresses:
            measures += [("address_before", False), ("address", False)]
            measures += [("addresses_as_likely_before", True), ("addresses_as_likely", True)]
        return {
            "places": self.places,
            "number": self.number,
            "copies": self.copies,
            "earlier_releases": self.earlier,
            "earlier_not_known": self.unknown,
            "at_no_address": self.unlisted,
            "largest_bayes_factor_allowed": self.presence,
            "largest_chance_allowed": self.finding,
            "presence_hidden": self.presence_hidden,
            "floor": self.floor,
            "verdict": self.verdict,
            "why": self.why,
            **{name: _plain(self.table(name, low=low)) for name, low in measures},
            "values_as_if_kept": None if self.values is None else self.values.summary(),
        }

    @property
    def floor(self) -> str | None:
        """The limits in words; None where none was asked for."""
        limits = (("presence", self.presence), ("finding", self.finding))
        words = [f"{name} {limit:g}" for name, limit in limits if limit is not None]
        words += [] if self.values is None else [f"values {self.values.asked}"]
        return ", ".join(words) or None

    @property
    def against(self) -> str:
        """What the Bayes factor compares, in a sentence."""
        if self.number == "drawn":
            return "the table with the person against the table without them"
        return (
            "the person against another of the group, at a place that nobody knows; how many there "
            "are goes out, so that who knows all others knows that one more is there; it is the "
            "chance of the right cell after the release over that before"
        )

    def _line(self) -> str:
        return (
            f"Places of {self.known.n_records} records in {self.copies} copies, "
            f"{'moved' if self.places == 'moved' else 'a synthetic population'}: {self.verdict}"
        )

    def _card(self) -> Card:
        return Card((), (f"{self.why[:1].upper()}{self.why[1:]}.", *self.numbers()))

    def numbers(self) -> tuple[Part | str, ...]:
        """The tables of both intruders as they are printed, with what to know of them."""
        one, many = ("address", "addresses") if self.by_address else ("cell", "cells")
        blocks: list[Part | str] = (
            [f"Lonely records have {LONELY}."] if self.known.lonely.any() else []
        )
        if self.earlier:
            several = "s" if self.earlier > 1 else ""
            blocks.append(f"{self.earlier} earlier release{several} counted.")
        if self.presence_hidden:
            title = f"Presence, Bayes factor (1 is no news): {self.against}"
            blocks.append(Part(self.table("bayes_factor"), title))
        for place in dict.fromkeys((one, "cell")):
            title = f"Finding, chance of the right {place}"
            blocks.append(Part(self._both(place), title, chance_per_cent))
        title = f"{many.capitalize()} at least as likely as the right one"
        blocks.append(Part(self._both(f"{many}_as_likely", low=True), title, "{:,.0f}".format))
        if self.by_address and self.unlisted:
            blocks.append(
                f"The place of {self.unlisted} of {self.known.n_records} records is at no address "
                "of the list: the chance of the right cell counts for them."
            )
        return (*blocks, NOT_MEASURED)

    def _both(self, column: str, *, low: bool = False) -> pd.DataFrame:
        """The table of a column without the release and with it, group by group."""
        before, after = (self.table(name, low=low) for name in (f"{column}_before", column))
        stages = pd.concat({"no release": before, "released": after})
        return stages.swaplevel().sort_index()  # by the alphabet, lonely ones and no release first


LONELY = "too few of their group in their cell to inform the copies"
"""What makes records lonely."""
LAST_ALONE = "of several modelled columns the floor judges the last one alone"
NO_FLOOR = "values are not judged without a floor"
NO_LIMIT = "no limit was asked for, of presence, finding or values"
NO_PRESENCE = (
    "moved places hide where somebody is, not that they are in the table, whose covariates all go "
    "out: no limit on presence can be judged"
)
NOT_MEASURED = (
    "Not measured: what values and covariates say of the place and of who is there, what is learnt "
    "of several persons at once, and that somebody is not there."
)


def _plain(table: pd.DataFrame) -> dict[str, dict[str, float | None]]:
    """A table as JSON takes it."""
    return {
        str(row): {
            str(name): float(value) if np.isfinite(value) else None
            for name, value in values.items()
        }
        for row, values in table.to_dict(orient="index").items()
    }
