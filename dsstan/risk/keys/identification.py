"""Could an intruder point at somebody's record among the copies?

Reiter and Mitra (2009), "Estimating risks of identification disclosure in
partially synthetic data", Journal of Privacy and Confidentiality 1(1). An
intruder holds a target's keys exactly and the response within a tolerance, and
looks for the record in the copies.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from dsstan.copies.result import Synthesis, require_one_column
from dsstan.core.arrays import Floats, Indices, Truths
from dsstan.models.result import Fit
from dsstan.risk.disclosure import sides
from dsstan.risk.keys.key_variables import numbered_keys, numbered_places, numbered_rows, tolerances
from dsstan.risk.keys.population import chances, sampling_note

TIE = 1e-12
"""Averaged probabilities that differ by less, relatively, are the same sum in another order."""

UNSURE = "expected_match_risk_if_unsure"
"""The measure of an intruder who doesn't know whether their target is in the sample."""

_BLOCK = 2**22
"""Comparisons of a copy's value with a target's held at once."""


@dataclass(frozen=True, eq=False)
class Matches:
    """What the intruder finds for each target, each of shape (N,).

    Attributes
    ----------
    right
        Probability that they give to the right record, averaged over the copies.
    ties
        c_i, the number of records to which they give the largest probability;
        never below 1.
    found
        T_i, whether the right record is among them.
    """

    right: Floats
    ties: Indices
    found: Truths


def match(values: Floats, truth: Floats, tolerance: Floats, keys: Indices | None = None) -> Matches:
    """Match every record with the copies (Reiter and Mitra 2009).

    A record of the same keys whose value in copy l lies within the target's
    tolerance has probability 1 / (their number) in that copy. Where a copy holds
    none, it says nothing and every record of the same keys has the same
    probability. Probabilities are averaged over the copies, and only then is the
    largest taken.

    Parameters
    ----------
    values
        Copies, shape (L, N).
    truth
        What the intruder holds for the response of each target, shape (N,).
    tolerance
        How far they trust it, shape (N,), from 0 to infinity.
    keys
        Number of each record's combination of keys, shape (N,); None if they have
        no key.

    Examples
    --------
    Each record's own value is found in one of two copies; the second copy gives
    target 0 to record 1 as well:

    >>> found = match(
    ...     np.array([[1.0, 2.0], [1.0, 1.0]]), np.array([1.0, 2.0]), np.zeros(2)
    ... )
    >>> found.right, found.ties, found.found
    (array([0.75, 0.75]), array([1, 1]), array([ True,  True]))
    """
    copies, n = values.shape
    groups = np.zeros(n, dtype=np.intp) if keys is None else keys
    right, ties, found = np.empty(n), np.empty(n, dtype=np.intp), np.empty(n, dtype=bool)
    order = np.argsort(groups, kind="stable")
    for members in np.split(order, np.flatnonzero(np.diff(groups[order])) + 1):
        m = members.size
        shown = values[:, members]
        step = max(1, _BLOCK // (copies * m))
        for first in range(0, m, step):
            own = np.arange(first, min(first + step, m))
            targets = members[own]
            gap = np.abs(shown[None] - truth[targets, None, None])
            near = gap <= tolerance[targets, None, None]
            count = near.sum(axis=2, keepdims=True)
            share = np.where(count > 0, near / np.maximum(count, 1), 1.0 / m).mean(axis=1)
            top = share >= share.max(axis=1, keepdims=True) * (1.0 - TIE)
            rows = np.arange(own.size)
            right[targets] = share[rows, own]
            ties[targets] = top.sum(axis=1)
            found[targets] = top[rows, own]
    return Matches(right, ties, found)


@dataclass(frozen=True, eq=False)
class Identification:
    """Risks of identification.

    Attributes
    ----------
    records
        One row a record: ``flagged``, ``candidates`` (records with the same keys
        and place), ``alone`` (no other record shares its exact place and keys),
        and for each fit ``right``, ``ties`` and ``found`` of :class:`Matches`. With survey
        weights also ``population``, how many members of the population the candidates stand for.
        Confidential.
    summary
        One row a fit, group and measure. Fit ``keys`` is an intruder who knows
        nothing of the response. Measures: ``targets``; ``unique_matches`` s, the
        targets for which they name one record; ``expected_match_risk``, the sum
        of T_i / c_i, out of ``targets``; ``true_match_rate``, the share of
        targets named and rightly so; ``false_match_rate``, the share of wrong
        ones among the s. Where s is 0 there is no false match rate and its row is
        left out, as are groups without records. With survey weights also
        ``expected_match_risk_if_unsure``, for an intruder who doesn't know whether their
        target is in the sample: the sum of T_i / c_i times the chance that the target was
        sampled (:func:`dsstan.risk.keys.population.chance_of_lookalikes`).
    given
        Whether identification is given: places are keys and exact, and single
        somebody out. No number above then says anything about how safe they are.
    note
        The same in words.
    coordinates, keys
        As given.
    seconds
        Wall time.
    """

    records: pd.DataFrame = field(repr=False)
    summary: pd.DataFrame = field(repr=False)
    given: bool
    note: str
    coordinates: str | float | None
    keys: tuple[str, ...]
    seconds: float

    def get(self, measure: str, fit: str, group: str = "all") -> float | None:
        """One number of the summary; None where there is no such row."""
        s = self.summary
        row = s[(s["measure"] == measure) & (s["fit"] == fit) & (s["group"] == group)]
        return None if row.empty else float(row["value"].iloc[0])

    def __str__(self) -> str:
        lines = {}
        for (fit, group), rows in self.summary.groupby(["fit", "group"], sort=False):
            cells = dict(zip(rows["measure"], rows["value"], strict=True))
            lines[f"{fit}, {group}"] = {
                "targets": f"{cells['targets']:.0f}",
                "expected match risk": f"{cells['expected_match_risk']:.1f}",
                "true match rate": f"{100 * cells['true_match_rate']:.1f}%",
                "false match rate": f"{100 * cells['false_match_rate']:.1f}%"
                if "false_match_rate" in cells
                else "-",
            }
            if UNSURE in cells:
                lines[f"{fit}, {group}"]["if unsure who was sampled"] = f"{cells[UNSURE]:.1f}"
        return f"Identification\n{self.note}\n{pd.DataFrame(lines).T.to_string()}"


def identification(
    release: Synthesis,
    *,
    keys: Sequence[str] = (),
    relative: float | None = None,
    absolute: float | None = None,
    coordinates: str | float | None = "exact",
    against: Fit | Synthesis | None = None,
) -> Identification:
    """Risk that an intruder finds their target's record among the copies.

    They know that their target is in the sample. Where the problem has survey weights, the risk of
    those who don't stands beside it: their target is one of all members of the population with the
    same keys, and a value within the tolerance. An exact place shows who was sampled, so for those
    who know it both risks are the same.

    Parameters
    ----------
    release
        The copies.
    keys
        Columns that the intruder matches exactly; missing values count as a
        value of their own.
    relative, absolute
        How well they know the response: within a share of the true value, or on
        the response's own scale. One of them; by default within 10%. An infinite
        ``absolute`` is an intruder who doesn't know it.
    coordinates
        ``"exact"``: they know the place, and finds it, since copies keep theirs.
        A number: they know it to within a cell of a grid of that size, in the
        problem's unit. None: they don't know it.
    against
        See :func:`dsstan.disclosure`.

    Raises
    ------
    InputError
        If a key is missing, repeated, a coordinate or the response, or a
        tolerance or a grid is out of range.
    """
    begin = time.perf_counter()
    problem = release.problem
    require_one_column(release)
    truth = problem.original()
    tolerance = tolerances(truth, relative, absolute)
    columns = numbered_keys(problem, keys)
    known = np.column_stack([columns, numbered_places(problem, coordinates)])
    group = numbered_rows(known)
    exact = numbered_rows(np.column_stack([columns, problem.site_index]))
    candidates, alone = np.bincount(group)[group], np.bincount(exact)[exact] == 1
    given = coordinates == "exact" and bool(alone.any())
    flagged = release.fit.flagged
    nothing = Matches(1.0 / candidates, candidates, np.ones(truth.size, dtype=bool))
    found = {"keys": nothing}
    for name, synthesis in sides(release, against).items():
        found[name] = match(synthesis.values, truth, tolerance, group)
    records = pd.DataFrame(
        {"flagged": flagged, "candidates": candidates, "alone": alone}, index=problem.table.index
    )
    weights = problem.survey_weight_values
    if weights is not None:
        records["population"] = np.bincount(group, weights)[group]
    sampled = chances(problem, coordinates, group, tolerance)
    rows: list[tuple[str, str, str, float]] = []
    members = {"flagged": flagged, "unflagged": ~flagged, "all": np.ones_like(flagged)}
    for name, matches in found.items():
        if name != "keys":
            records[f"right_{name}"] = matches.right
            records[f"ties_{name}"] = matches.ties
            records[f"found_{name}"] = matches.found
        for label, chosen in members.items():
            if chosen.any():
                cells = _rates(matches, chosen)
                if sampled is not None:
                    risk = matches.found / matches.ties * sampled[name == "keys"]
                    cells.append((UNSURE, float(np.sum(risk[chosen]))))
                rows += [(name, label, *cell) for cell in cells]
    return Identification(
        records=records,
        summary=pd.DataFrame(rows, columns=["fit", "group", "measure", "value"]),
        given=given,
        note=_note(coordinates, int(alone.sum()), truth.size, given)
        + sampling_note(problem, int(np.sum(candidates == 1))),
        coordinates=coordinates,
        keys=tuple(keys),
        seconds=time.perf_counter() - begin,
    )


def _rates(matches: Matches, chosen: Truths) -> list[tuple[str, float]]:
    """The measures of one group of targets."""
    ties, found = matches.ties[chosen], matches.found[chosen]
    single = ties == 1
    cells = [
        ("targets", float(ties.size)),
        ("unique_matches", float(single.sum())),
        ("expected_match_risk", float(np.sum(found / ties))),
        ("true_match_rate", float(np.mean(single & found))),
    ]
    if single.any():
        cells.append(("false_match_rate", float(np.mean(~found[single]))))
    return cells


def _note(coordinates: str | float | None, alone: int, n: int, given: bool) -> str:
    """What exact places mean for the numbers."""
    single = f"{alone} of {n} records"
    if given:
        return (
            f"Identification is given: copies keep exact places, which single out {single}. "
            "Whoever knows the address has the record."
        )
    if coordinates == "exact":
        return "Copies keep exact places, but every record shares its place and keys."
    seen = (
        "who doesn't know the place"
        if coordinates is None
        else f"who knows the place only to a cell of {coordinates:g}"
    )
    if alone == 0:
        return f"The numbers are for an intruder {seen}."
    return (
        f"The numbers hold only for an intruder {seen}. Copies keep exact places, which "
        f"single out {single}: an intruder who knows the address has the record."
    )
