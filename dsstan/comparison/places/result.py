"""Places as one method would publish them, with what two intruders make of them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dsstan.analysis.places.marked import MarkedPlaces
from dsstan.core.arrays import Floats, Indices
from dsstan.core.display import Card, Shown, per_cent


@dataclass(frozen=True, eq=False, repr=False)
class ProtectedPlaces(Shown):
    """Tables whose places one method has changed. Confidential: it holds record-level risks.

    Both intruders know the method, its setting, the covariates of everybody and the places of all
    others. Who looks for a person ends with a chance of each cell; who asks whether the person is
    in the table compares them with another person of the same covariates, somewhere by the prior.

    Attributes
    ----------
    method, setting
        Its name, and what was chosen, in words.
    tables
        As published, L of them.
    finding
        The intruder's chance of the record's cell after they saw the tables, shape (N,).
    before
        The same before, by the prior, shape (N,).
    note
        What the two numbers leave out; empty where they are exact.
    bayes_factor
        Of presence, shape (N,), where it is not the rise of the chance of the cell.
    """

    method: str
    setting: str
    tables: tuple[MarkedPlaces, ...] = field(repr=False)
    finding: Floats = field(repr=False)
    before: Floats = field(repr=False)
    note: str = ""
    bayes_factor: Floats | None = field(repr=False, default=None)

    def _line(self) -> str:
        return (
            f"{self.method}, {self.setting}: right cell found with {per_cent(self.mean_finding)} "
            "on average"
        )

    def _card(self) -> Card:
        facts = (
            ("largest chance", per_cent(float(self.finding.max()))),
            ("before any release", per_cent(float(self.before.mean()))),
            ("largest Bayes factor of presence", f"{self.presence.max():.4g}"),
        )
        return Card(facts, (self.note,) if self.note else ())

    @property
    def mean_finding(self) -> float:
        """Mean of ``finding``."""
        return float(self.finding.mean())

    @property
    def presence(self) -> Floats:
        """Bayes factor that the person is in the table, instead of another one, shape (N,).

        The number of records is published. The likelihood of a cell over its mean by the prior is
        the posterior chance of the cell over the prior's.
        """
        if self.bayes_factor is not None:
            return self.bayes_factor
        return np.asarray(self.finding / self.before)


def of_cells(prior: Floats, cells: Indices) -> Floats:
    """Chance of the own cell of each record by a prior of shape (C,) or (N, C)."""
    rows = np.broadcast_to(prior, (len(cells), prior.shape[-1]))
    return np.asarray(rows[np.arange(len(cells)), cells] / rows.sum(axis=1))


def copies_in_words(copies: int) -> str:
    """A number of copies with its noun."""
    return "1 copy" if copies == 1 else f"{copies} copies"
