"""What the copies of a table disclose whose strata were modelled each by itself.

The models of the strata share neither data nor draws, so copies of one stratum say nothing of the
records of another. An intruder who knows all other records of the table therefore knows as much of
a record as an intruder who knows those of its stratum: each stratum is assessed as a release of
its own, and the table is judged by the worst.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from dsstan.copies.strata import StrataRelease
from dsstan.risk.assessment import Assessment, measured
from dsstan.risk.floors import FloorLike
from dsstan.risk.placing import half_width

__all__ = ["StrataAssessment", "assess_strata"]


WORST_FIRST = ("missed", "not judged", "met")


@dataclass(frozen=True, eq=False)
class StrataAssessment:
    """What every stratum discloses. Confidential.

    Attributes
    ----------
    parts
        The assessment of every stratum, by name.
    """

    parts: Mapping[str, Assessment] = field(repr=False)

    @property
    def verdict(self) -> str:
        """``missed`` if a stratum misses the floor, ``not judged`` if one is not, else ``met``."""
        found = {part.verdict for part in self.parts.values()}
        return next(verdict for verdict in WORST_FIRST if verdict in found)

    @property
    def worst(self) -> str:
        """The stratum that decides, which of those with the verdict has the smallest sd."""
        names = [name for name, part in self.parts.items() if part.verdict == self.verdict]
        return min(names, key=lambda name: self._smallest(self.parts[name]))

    def table(self) -> pd.DataFrame:
        """One row a stratum: records, flagged, verdict, its reason, smallest sd, and how near the
        weakest record is placed, as a share of its value."""
        rows: list[dict[str, Any]] = []
        for name, part in self.parts.items():
            problem = part.release.problem
            near = np.nan if part.after is None else float(half_width(problem, part.sd).min())
            rows.append(
                {
                    "stratum": name,
                    "records": problem.n_records,
                    "flagged": int(part.release.fit.flagged.sum()),
                    "verdict": part.verdict,
                    "why": part.why,
                    "smallest_sd": self._smallest(part),
                    "placed_within": near,
                }
            )
        return pd.DataFrame(rows).set_index("stratum")

    def __str__(self) -> str:
        table = self.table().drop(columns="why")
        return (
            f"DISCLOSURE: {self.verdict.upper()}: in stratum {self.worst!r}, "
            f"{self.parts[self.worst].why}\n{table.to_string(float_format=lambda v: f'{v:.3g}')}"
        )

    def _smallest(self, part: Assessment) -> float:
        return np.inf if part.after is None else float(part.sd.min())


def assess_strata(
    release: StrataRelease,
    *,
    floor: FloorLike | None = None,
    attribution: float | None = None,
    absolute: float | None = None,
    progress: bool | None = None,
) -> StrataAssessment:
    """The disclosure report of every stratum of a table.

    Parameters
    ----------
    release
        Copies of :func:`dsstan.copies.strata.fit_strata`.
    floor, attribution, absolute
        For every stratum; see :func:`dsstan.assess`.

    Raises
    ------
    InputError
        If the floor is neither an sd nor a percentage, or cannot be judged in a stratum.
    """
    limits = {"floor": floor, "attribution": attribution, "absolute": absolute}
    return StrataAssessment(
        {
            name: measured(part, **limits, progress=progress)  # type: ignore[arg-type]
            for name, part in release.parts.items()
        }
    )
