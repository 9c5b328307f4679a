"""The two verdicts on a release in words, and how near to the truth an intruder gets.

FIT says whether the draws behind the copies can be trusted, DISCLOSURE whether every record keeps
the floor. Neither stands for the other. Screens and the report share these words.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dsstan.core.display import per_cent
from dsstan.models.checks.conditions import CONDITIONS
from dsstan.release.conditions import conditions, fit_verdict
from dsstan.risk.assessment_result import Assessment
from dsstan.risk.placing import NEAR, placed_between

if TYPE_CHECKING:
    from dsstan.copies.result import Synthesis

PAPER_SHARES = "The paper's measure looks at one copy; all copies together give far more."
"""What to know before reading the shares of copies near the truth."""

GUESSES = (
    "A best guess can land near the truth without anybody knowing that it did, as guesses without "
    "a release do. The floor is about certainty: how wide the range stays that holds the true "
    "value with 95%"
)
"""Why many near guesses do not contradict a floor that is met."""

GUESSES_IN_SHORT = "A best guess can be near without anybody knowing; the floor limits certainty"
"""The same on a screen."""

KEEP_APART = (
    "leave the column out of publish and of the formula, or publish one of the two and no other"
)
"""What to do where a release would publish true values of which another has copies."""

FREE = "Nothing stands against publishing"
"""The answer where both verdicts are good."""

FIT_WORDS = {"ok": "ok", "warned": "warnings", "failed": "FAILED"}
"""The verdict on the fits, as a reader sees it."""

NAMED = 3
"""Conditions that the verdict names itself; where there are more it counts them."""

FEW = 10
"""Records below which a share of them is given with their number."""

_FIT_SEVERITY = {"ok": "ok", "warned": "warning", "failed": "failure"}
_DISCLOSURE_SEVERITY = {"met": "ok", "not judged": "warning", "missed": "failure"}


@dataclass(frozen=True)
class VerdictLine:
    """One verdict: ``FIT`` or ``DISCLOSURE``, its word, its reason, ``ok``, ``warning`` or
    ``failure``, and what else to know."""

    name: str
    word: str
    why: str
    severity: str
    more: str = ""

    def __str__(self) -> str:
        return f"{self.name}: {self.word}" + (f": {self.why}" if self.why else "")


def verdict_lines(
    release: Synthesis, found: Assessment, accepted: str | None = None
) -> tuple[VerdictLine, VerdictLine]:
    """FIT and DISCLOSURE; ``accepted`` is the reason why a missed floor is accepted."""
    return (
        fit_line(fit_verdict(release), unmet(release)),
        disclosure_line(found.verdict, found.why, accepted),
    )


def fit_line(verdict: str, names: Sequence[str]) -> VerdictLine:
    """FIT, by ``ok``, ``warned`` or ``failed`` and the names of what is not met."""
    why = ", ".join(names) if len(names) <= NAMED else f"{len(names)} conditions not met"
    if verdict == "failed":
        why += "; accepted"
    return VerdictLine("FIT", FIT_WORDS[verdict], why, _FIT_SEVERITY[verdict])


def disclosure_line(verdict: str, why: str, accepted: str | None = None) -> VerdictLine:
    """DISCLOSURE, by ``met``, ``missed`` or ``not judged`` and why."""
    word = verdict.upper() + (", accepted" if accepted else "")
    more = f"Accepted below the floor: {accepted}" if accepted else ""
    return VerdictLine("DISCLOSURE", word, why, _DISCLOSURE_SEVERITY[verdict], more)


def unmet(release: Synthesis) -> list[str]:
    """Names of the conditions that the fits did not meet."""
    return list(dict.fromkeys(str(c["condition"]) for c in conditions(release)))


def meanings(release: Synthesis) -> dict[str, str]:
    """What each condition that the fits did not meet means, in a sentence."""
    return {name: CONDITIONS[name] for name in unmet(release) if name in CONDITIONS}


def answer(
    lines: tuple[VerdictLine, VerdictLine], warnings: Sequence[str] = (), where: str = ""
) -> str:
    """Whether the release may be published, by both verdicts; beside a yes the warnings of the
    report that are in neither, or where they stand."""
    fit, disclosure = lines
    missed = disclosure.severity == "failure" and not disclosure.more
    if missed or fit.severity == "failure":
        return "Do not publish as it is"
    if any(line.severity != "ok" for line in lines):
        return "Publish only with a reason"
    if len(warnings) > 1:
        return f"{FREE}; {len(warnings)} warnings are open, see {where}"
    return f"{FREE}; open warning: {warnings[0]}" if warnings else FREE


@dataclass(frozen=True)
class PlacingRow:
    """One measure of a group of records, as text by stage; ``weakest``, ``near`` or ``public``."""

    group: str
    measure: str
    cells: dict[str, str]

    @property
    def text(self) -> str:
        """The measure in words."""
        return {
            "weakest": "weakest record placed within (95% certain)",
            "near": f"best guesses that land within {100 * NEAR:g}%",
            "public": "the same, from the public files alone",
        }[self.measure]


def placing_rows(found: Assessment) -> list[PlacingRow]:
    """How near intruders place the records of each group, without and with the release.

    The first two measures are of an intruder who knows all other records. A share of fewer than
    :data:`FEW` records has their number beside it.
    """
    table = found.placing()
    problem, flagged = found.release.problem, found.release.fit.flagged
    sizes = {
        group: int(np.sum(members & problem.observed))
        for group, members in (("flagged", flagged), ("unflagged", ~flagged))
    }
    rows = []
    for measure, column in (("weakest", "within"), ("near", "near"), ("public", "public")):
        for group, of_group in table.groupby("group", sort=False):
            cells = {
                found.stages[row["stage"]]: _text(measure, row, column, sizes[str(group)])
                for row in of_group.to_dict("records")
            }
            if any(text != "-" for text in cells.values()):
                rows.append(PlacingRow(str(group), measure, cells))
    return rows


def _text(measure: str, row: Mapping[Any, Any], column: str, size: int) -> str:
    """One cell of a row, of a group of ``size`` records."""
    if math.isnan(row[column]):
        return "-"
    if measure == "weakest":
        return placed_between(row["least"], row[column])
    return per_cent(row[column]) + (f" of {size}" if size < FEW else "")
