"""What earlier releases of the same table already reveal of each record.

Releases of one table add up: given the variances, an intruder's precision about a record is the sum
of what each release adds. The ledger (:mod:`dsstan.release.publication.ledger`) keeps what went
out.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from dsstan.core import above
from dsstan.core.arrays import Floats
from dsstan.table.problem import Problem

__all__ = ["Former", "ledger_precision", "published_before"]


@dataclass(frozen=True, eq=False)
class Former:
    """The information of former releases of a table. Confidential.

    Attributes
    ----------
    fixed, known
        Precision that they add about every record, modelled scale, shape (N,): the variances
        behind their copies reveal nothing, or the intruder knows them.
    releases, copies
        How many of them are counted, and the copies in all.
    unjudged
        Releases of the table whose information was never computed, and is not in these numbers.
    alike
        Releases that may be of the same records, before a value was corrected or of another
        column, and are not in these numbers either (``alike`` of
        :mod:`dsstan.release.publication.earlier`).
    laid_bare
        Columns of which true values go out in one release and copies in another, as
        ``laid_bare`` of :mod:`dsstan.release.publication.earlier` says it: no number counts that.
    seen
        Names of all of these releases, as the ledger has them.
    """

    fixed: Floats = field(repr=False)
    known: Floats = field(repr=False)
    releases: int
    copies: int
    unjudged: int = 0
    alike: int = 0
    laid_bare: tuple[str, ...] = ()
    seen: tuple[str, ...] = ()

    def information(self, variances: str) -> Floats:
        """Precision added, shape (N,), for an intruder of either kind."""
        return self.known if variances == "known" else self.fixed

    def __str__(self) -> str:
        if not self.releases + self.unjudged:
            return ""
        out = (
            f"counted with {self.releases} former release{'s' if self.releases != 1 else ''} of "
            f"this table ({self.copies} cop{'ies' if self.copies != 1 else 'y'})"
        )
        if self.unjudged:
            out += f", not with {self.unjudged} whose values are not counted"
        return out

    @property
    def uncounted(self) -> str:
        """What no number counts, in a sentence, the worst of it; empty where nothing."""
        if self.laid_bare:
            return "; ".join(self.laid_bare)
        if not self.alike:
            return ""
        several = self.alike != 1
        return (
            f"{self.alike} earlier release{'s' if several else ''} may be of these records, before "
            "a correction or in another column"
        )


def published_before(
    problem: Problem, values: Floats | None = None, former: Former | bool = True
) -> Former | None:
    """The former releases of a table: those given, or by default those in the ledger of this user;
    None where there are none, or for False.

    Parameters
    ----------
    problem
        The table.
    values
        Copies, shape (L, N), that may be in the ledger themselves and are not former ones.
    former
        What is known already, or whether to look.
    """
    if isinstance(former, Former):
        return former
    found: Former | None = above.call("published_before", problem, values) if former else None
    return found


def ledger_precision(problem: Problem) -> Floats | None:
    """Precision that former releases of a table add about every record, shape (N,), the variances
    known to the intruder; None where there are none."""
    found = published_before(problem)
    return None if found is None else found.known
